//! The three loops. Their bodies make no system calls, allocate nothing and take no locks.

use std::io;
use std::sync::atomic::Ordering;

use lab::noise::Loop;
use loop_bodies::ATTEMPTS;

use super::body::Worker;
use super::ring::{Ring, Verdict};
use crate::clock::{ClockResolution, now, now_after_work};
use crate::spawn::spawn_thread;
use crate::threads::{pin, runs_on};

/// A gap shorter than this, cycles, does not move a thread to another CPU, because that takes the
/// kernel a context switch on each of the two CPUs.
const MOVE_CYCLES_MIN: u64 = 1_000;

/// Configuration of a loop, in cycles of its clock.
#[derive(Clone, Copy, Debug)]
pub struct LoopConfig {
    pub looping: Loop,
    /// The CPU that the loop runs on.
    pub cpu: u32,
    /// Length of the window.
    pub window_cycles: u64,
    /// Number of quanta after which the loop ends, however long they took.
    pub repetitions: u64,
    /// Length of a quantum or a slot.
    pub quantum_cycles: u64,
    /// A gap longer than this is a detour.
    pub threshold_cycles: u64,
    /// Time of one iteration of the detour loop.
    pub iteration_cycles: u64,
}

/// Start and end of a loop, cycles.
#[derive(Clone, Copy, Debug)]
pub struct LoopOutcome {
    pub start: u64,
    /// Time at which the loop ended.
    pub end: u64,
    /// Number of iterations of the detour loop without a record; 0 for the other loops.
    pub iterations: u64,
    /// Time of the iterations with a record, without the gaps.
    pub recording_cycles: u64,
    /// Whether the kernel moved the thread to another CPU, for instance because its own CPU went
    /// offline. The loop ended then, and `end` is the end of the last record on its own CPU.
    pub left_cpu: bool,
}

/// Runs the configured loop until its window ends, or the ring requests a stop.
///
/// Not inlined, so that an iteration time measured with this function is valid for later
/// calls from the same place.
#[inline(never)]
pub fn run(config: &LoopConfig, worker: &mut Worker, iterations: u64, ring: &Ring) -> LoopOutcome {
    match config.looping {
        Loop::Fwq => fwq(config, worker, iterations, ring),
        Loop::Ftq => ftq(config, worker, iterations, ring),
        Loop::Detour => detour(config, ring),
    }
}

/// Publishes the loop's start to the reader.
fn publish_start(start: u64, ring: &Ring) -> u64 {
    ring.started.store(start, Ordering::Relaxed);
    start
}

/// Longest iteration that records a gap, or follows such an iteration, in multiples of the shortest
/// one. Recording touches memory outside the loop, and evicts the loop's cache lines. A longer
/// iteration is a gap itself.
const RECORDING_RATIO_MAX: u64 = 4;
/// Number of iterations that a record affects: the iteration that writes it, and the next one,
/// which fetches the loop's code again.
const RECORDING_ITERATIONS: u32 = 2;

/// Reads the clock in a loop. A record consists of the start and the end of a gap, and of the part
/// subtracted at its start as the loop's own time.
fn detour(config: &LoopConfig, ring: &Ring) -> LoopOutcome {
    let is_trial = config.threshold_cycles == u64::MAX;
    let start = if is_trial { now() } else { publish_start(now(), ring) };
    let (mut last, mut iterations, mut recording_cycles) = (start, 0, 0);
    // Number of iterations that the last record still affects.
    let mut affected = 0_u32;
    let mut recording_min = u64::MAX;
    loop {
        let seen = now();
        // The counters of two CPUs may differ, so time may even go backwards.
        let gap = seen.saturating_sub(last);
        let (mut own, mut limit) = (config.iteration_cycles, config.threshold_cycles);
        if affected == RECORDING_ITERATIONS {
            recording_min = recording_min.min(gap);
            own = recording_min;
        }
        if affected > 0 {
            limit = limit.saturating_add(RECORDING_RATIO_MAX.saturating_mul(recording_min));
        }
        if gap > limit.min(MOVE_CYCLES_MIN) && !runs_on(config.cpu) {
            return LoopOutcome { start, end: last, iterations, recording_cycles, left_cpu: true };
        }
        let is_gap = gap > limit;
        iterations += u64::from(affected == 0);
        if affected > 0 && !is_gap {
            recording_cycles += gap;
        }
        if is_gap {
            let own_cycles = own.min(gap);
            ring.push([last + own_cycles, seen, own_cycles]);
        }
        (last, affected) =
            (seen, if is_gap { RECORDING_ITERATIONS } else { affected.saturating_sub(1) });
        if seen.wrapping_sub(start) >= config.window_cycles
            || ring.verdict(seen) != Verdict::Continue
        {
            return LoopOutcome { start, end: seen, iterations, recording_cycles, left_cpu: false };
        }
    }
}

/// Length of a trial of the detour loop, cycles.
const TRIAL_CYCLES: u64 = 100_000;

impl LoopConfig {
    /// A trial of the detour loop, which records nothing.
    #[must_use]
    pub fn trial(self) -> LoopConfig {
        let window_cycles = TRIAL_CYCLES;
        LoopConfig { looping: Loop::Detour, window_cycles, threshold_cycles: u64::MAX, ..self }
    }

    /// Takes the iteration time from the fastest of some trials in the same place. The placement of
    /// the loop's code or memory may make the loop slower there than elsewhere. The resulting
    /// threshold is at least two iterations.
    #[must_use]
    pub fn with_iteration_time(self, trials: &[LoopOutcome]) -> LoopConfig {
        let iteration = |trial: &LoopOutcome| {
            trial.end.saturating_sub(trial.start).div_ceil(trial.iterations.max(1))
        };
        let fastest = trials.iter().map(iteration).min();
        let iteration_cycles = fastest.unwrap_or(self.iteration_cycles).max(1);
        let threshold_cycles = self.threshold_cycles.max(2 * iteration_cycles);
        LoopConfig { iteration_cycles, threshold_cycles, ..self }
    }
}

/// Time of an undisturbed iteration of the detour loop, cycles; at least 1.
fn detour_iteration_cycles(cpu: u32) -> u64 {
    let config = LoopConfig {
        looping: Loop::Detour,
        cpu,
        window_cycles: 0,
        repetitions: u64::MAX,
        quantum_cycles: 1,
        threshold_cycles: 0,
        iteration_cycles: 1,
    };
    let ring = Ring::new(1);
    let trials = [(); ATTEMPTS].map(|()| detour(&config.trial(), &ring));
    config.with_iteration_time(&trials).iteration_cycles
}

/// Measures the clock's resolution on a CPU, with the iteration time of the detour loop. `None` on
/// a processor without a time-stamp counter.
///
/// Fails if this process may not run on the CPU, or no thread can be started.
pub fn detour_resolution(cpu: u32) -> io::Result<Option<ClockResolution>> {
    let measure = move || {
        pin(cpu)?;
        let iteration_cycles = detour_iteration_cycles(cpu);
        let measured = ClockResolution::measure();
        Ok(measured.map(|clock| ClockResolution { iteration_cycles, ..clock }))
    };
    let thread = spawn_thread("irqlab-clock", measure)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that measures died")))
}

/// Repeats a fixed amount of work. A record consists of the start and the end of a quantum.
fn fwq(config: &LoopConfig, worker: &mut Worker, iterations: u64, ring: &Ring) -> LoopOutcome {
    let start = publish_start(now_after_work(), ring);
    let (mut quanta, mut end, mut left_cpu) = (0, start, false);
    while quanta < config.repetitions
        && end.wrapping_sub(start) < config.window_cycles
        && ring.verdict(end) == Verdict::Continue
    {
        let quantum_start = now_after_work();
        worker.work(iterations);
        let quantum_end = now_after_work();
        if !runs_on(config.cpu) {
            left_cpu = true;
            break;
        }
        end = quantum_end;
        ring.push([quantum_start, end, 0]);
        quanta += 1;
    }
    LoopOutcome { start, end, iterations: 0, recording_cycles: 0, left_cpu }
}

/// Repeats work in slots of fixed time. A record consists of the slot's number and the work
/// completed in the slot. Slots without work have no record.
fn ftq(config: &LoopConfig, worker: &mut Worker, iterations: u64, ring: &Ring) -> LoopOutcome {
    let start = publish_start(now_after_work(), ring);
    let outcome =
        |end, left_cpu| LoopOutcome { start, end, iterations: 0, recording_cycles: 0, left_cpu };
    let (mut slot, mut work) = (0, 0);
    loop {
        worker.work(iterations);
        let seen = now_after_work();
        let current_slot = seen.saturating_sub(start) / config.quantum_cycles;
        if current_slot != slot {
            if !runs_on(config.cpu) {
                return outcome(start + slot * config.quantum_cycles, true);
            }
            ring.push([slot, work, 0]);
            // Work counts in the slot that is current when the work completes.
            (slot, work) = (current_slot, 0);
        }
        work += 1;
        let is_over =
            slot >= config.repetitions || seen.wrapping_sub(start) >= config.window_cycles;
        if is_over || ring.verdict(seen) != Verdict::Continue {
            return outcome(seen, false);
        }
    }
}

/// Number of iterations of the body that take `cycles` without disturbance; at least 1.
pub fn iterations_of_body(worker: &mut Worker, cycles: u64) -> u64 {
    loop_bodies::iterations_for(cycles, |iterations| {
        let start = now_after_work();
        worker.work(iterations);
        now_after_work().saturating_sub(start)
    })
}
