//! The three measured loops: detour (reads the clock), FWQ (fixed work quanta) and FTQ (fixed time quanta). They run on
//! the loops' threads (`runner.rs`), and write records into a ring.
//!
//! Invariant: the loops make no system calls, allocate nothing and take no locks, because that would be noise.

use std::io;
use std::sync::atomic::Ordering;

use lab::noise::Loop;
use loop_bodies::ATTEMPTS;

use super::body::Worker;
use crate::clock::{ClockResolution, now, now_after_work};
use crate::ring::{Ring, Verdict};
use crate::spawn::spawn_thread;
use crate::threads::{pin, runs_on};

/// Shortest gap, cycles, in which the kernel can have moved the thread to another CPU: a move takes a context switch on
/// both CPUs. The loop checks its CPU only after longer gaps.
const MOVE_CYCLES_MIN: u64 = 1_000;

/// Configuration of a loop, in cycles of its clock.
#[derive(Clone, Copy, Debug)]
pub struct LoopConfig {
    pub looping: Loop,
    /// The CPU that the loop runs on.
    pub cpu: u32,
    /// Length of the window; `u64::MAX`: no limit.
    pub window_cycles: u64,
    /// Number of quanta or slots after which FWQ or FTQ ends; `u64::MAX`: no limit.
    pub repetitions: u64,
    /// Length of a quantum or a slot.
    pub quantum_cycles: u64,
    /// A longer gap is a detour.
    pub threshold_cycles: u64,
    /// Time of one iteration of the detour loop.
    pub iteration_cycles: u64,
}

/// The result of a loop, in cycles of its clock.
#[derive(Clone, Copy, Debug)]
pub struct LoopOutcome {
    pub start: u64,
    pub end: u64,
    /// Number of iterations of the detour loop without a record; 0 for the other loops.
    pub iterations: u64,
    /// Time of the iterations with a record, without the gaps.
    pub recording_cycles: u64,
    /// Whether the loop ended because the kernel moved the thread to another CPU, for instance because the loop's CPU
    /// went offline. Then `end` is the last time that is certainly from the loop's CPU.
    pub left_cpu: bool,
}

/// Runs the configured loop until its window ends, or the ring requests a stop.
///
/// Not inlined: trials and window then execute the same instructions, so the iteration time of a trial holds in the
/// window.
#[inline(never)]
pub fn run(config: &LoopConfig, worker: &mut Worker, iterations: u64, ring: &Ring) -> LoopOutcome {
    match config.looping {
        Loop::Fwq => fwq(config, worker, iterations, ring),
        Loop::Ftq => ftq(config, worker, iterations, ring),
        Loop::Detour => detour(config, ring),
    }
}

/// Publishes the loop's start to the observer, and returns it.
fn publish_start(start: u64, ring: &Ring) -> u64 {
    ring.started.store(start, Ordering::Relaxed);
    start
}

/// An iteration that writes a record, or follows such an iteration, takes longer: recording touches memory outside the
/// loop, and evicts the loop's cache lines. It is a gap only if it takes longer than the threshold plus this multiple
/// of the shortest iteration that wrote a record.
const RECORDING_RATIO_MAX: u64 = 4;
/// Number of iterations that a record affects: the iteration that writes it, and the next one,
/// which fetches the loop's code again.
const RECORDING_ITERATIONS: u32 = 2;

/// Reads the clock in a loop. A record has the start of a gap, its end, and the time of the loop itself, which is
/// already subtracted from the gap at its start.
fn detour(config: &LoopConfig, ring: &Ring) -> LoopOutcome {
    let start = publish_start(now(), ring);
    let (mut last, mut iterations, mut recording_cycles) = (start, 0, 0);
    // Number of iterations that the last record still affects.
    let mut affected = 0_u32;
    // Shortest iteration that wrote a record.
    let mut recording_min = u64::MAX;
    loop {
        let seen = now();
        // The counters of two CPUs may differ: after a move, time may go backwards.
        let gap = seen.saturating_sub(last);
        let (mut loop_cycles, mut limit) = (config.iteration_cycles, config.threshold_cycles);
        if affected == RECORDING_ITERATIONS {
            recording_min = recording_min.min(gap);
            loop_cycles = recording_min;
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
            let loop_cycles = loop_cycles.min(gap);
            ring.push([last + loop_cycles, seen, loop_cycles]);
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
/// Length of all trials before the window of a detour loop, cycles.
pub const TRIALS_CYCLES: u64 = TRIAL_CYCLES * ATTEMPTS as u64;

/// A gap of a trial that is longer than this multiple of the mean iteration of earlier trials is no iteration.
const TRIAL_GAP_RATIO: u64 = 4;
/// Number of gaps that a trial can record. It has room for one iteration in eight, if an iteration takes 12 cycles.
const TRIAL_GAPS_MAX: usize = 1 << 10;

impl LoopConfig {
    /// The configuration of a trial of the detour loop. `iteration_cycles`: the shortest mean of an iteration in the trials
    /// before it; `None` for the first trial, which counts all gaps as iterations.
    fn trial(self, iteration_cycles: Option<u64>) -> LoopConfig {
        let gap_cycles = |iteration_cycles: u64| iteration_cycles.saturating_mul(TRIAL_GAP_RATIO);
        LoopConfig {
            looping: Loop::Detour,
            window_cycles: TRIAL_CYCLES,
            threshold_cycles: iteration_cycles.map_or(u64::MAX, gap_cycles),
            iteration_cycles: iteration_cycles.unwrap_or(self.iteration_cycles),
            ..self
        }
    }

    /// Measures the time of an iteration in trials, and raises the threshold to at least two iterations. The time is the
    /// shortest mean of a trial, without the gaps of the trial: interrupts and other tasks may disturb all trials.
    ///
    /// `run_trial` must call the loop as the window does: the placement of code and stack may change its speed. A stop of
    /// `ring` also stops the trials.
    #[must_use]
    pub fn with_iteration_time(
        self,
        ring: &Ring,
        mut run_trial: impl FnMut(&LoopConfig, &Ring) -> LoopOutcome,
    ) -> LoopConfig {
        let trial_ring = ring.of_other_loop(TRIAL_GAPS_MAX);
        let mut shortest: Option<u64> = None;
        for _ in 0..ATTEMPTS {
            let trial = self.trial(shortest);
            let outcome = run_trial(&trial, &trial_ring);
            let mean = mean_iteration_cycles(&trial, &outcome, &trial_ring);
            shortest = shortest.into_iter().chain(mean).min();
        }
        let iteration_cycles = shortest.unwrap_or(self.iteration_cycles).max(1);
        let threshold_cycles = self.threshold_cycles.max(2 * iteration_cycles);
        LoopConfig { iteration_cycles, threshold_cycles, ..self }
    }
}

/// The mean iteration of a trial without the gaps in `ring`, cycles, rounded up. Empties the ring. `None` if no
/// iteration is without a gap.
fn mean_iteration_cycles(trial: &LoopConfig, outcome: &LoopOutcome, ring: &Ring) -> Option<u64> {
    let (mut other_cycles, mut gap_count) = (outcome.recording_cycles, 0);
    ring.drain(|[start, end, loop_cycles]| {
        other_cycles += end.saturating_sub(start) + loop_cycles;
        // The loop counts no iteration that wrote a record.
        gap_count += u64::from(loop_cycles <= trial.iteration_cycles);
    });
    let iteration_count = outcome.iterations.saturating_sub(gap_count);
    let all_cycles = outcome.end.saturating_sub(outcome.start).saturating_sub(other_cycles);
    (iteration_count > 0).then(|| all_cycles.div_ceil(iteration_count).max(1))
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
    config.with_iteration_time(&Ring::new(1), detour).iteration_cycles
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

/// FWQ: repeats a fixed amount of work. A record has the start and the end of a quantum.
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

/// FTQ: repeats small units of work, and counts the units in slots of fixed time. A record has the slot's number and
/// the units completed in the slot. A slot without a completed unit has no record.
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
            // A unit counts in the slot in which it completes.
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

/// Longest run of the body in its calibration, cycles: short enough that most runs have no interrupt. In a simulated machine,
/// whose counter counts ns, that is 100 us.
const CALIBRATION_CYCLES: u64 = 100_000;

/// Number of the body's iterations that take `cycles` when nothing interrupts them; at least 1.
pub fn iterations_of_body(worker: &mut Worker, cycles: u64) -> u64 {
    loop_bodies::iterations_for(cycles, CALIBRATION_CYCLES, |iterations| {
        let start = now_after_work();
        worker.work(iterations);
        now_after_work().saturating_sub(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial of a loop whose iteration takes 24 cycles. A gap of `gap_cycles` comes after `iterations_before` iterations.
    fn trial_with_gap(
        config: &LoopConfig,
        ring: &Ring,
        iterations_before: u64,
        gap_cycles: u64,
    ) -> LoopOutcome {
        let mut outcome = LoopOutcome {
            start: 1_000,
            end: 1_000,
            iterations: 0,
            recording_cycles: 0,
            left_cpu: false,
        };
        while outcome.end - outcome.start < config.window_cycles {
            let gap = 24 + if outcome.iterations == iterations_before { gap_cycles } else { 0 };
            if gap > config.threshold_cycles {
                let start = outcome.end + config.iteration_cycles;
                ring.push([start, outcome.end + gap, config.iteration_cycles]);
            }
            outcome.end += gap;
            outcome.iterations += 1;
        }
        outcome
    }

    #[test]
    fn gaps_in_all_trials_do_not_lengthen_the_iteration() {
        let config = LoopConfig {
            looping: Loop::Detour,
            cpu: 0,
            window_cycles: 1,
            repetitions: u64::MAX,
            quantum_cycles: 1,
            threshold_cycles: 250,
            iteration_cycles: 1,
        };
        // A gap in the middle of a trial, and one that takes almost the whole trial, as of a task.
        for (iterations_before, gap_cycles) in [(2_000, 50_000), (100, 10_000_000), (0, 99_000)] {
            let calibrated = config.with_iteration_time(&Ring::new(1), |trial, ring| {
                trial_with_gap(trial, ring, iterations_before, gap_cycles)
            });
            let found = (calibrated.iteration_cycles, calibrated.threshold_cycles);
            assert_eq!(found, (24, 250), "{iterations_before} {gap_cycles}");
        }
    }
}
