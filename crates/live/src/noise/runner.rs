//! One window: the threads of the loops, one on each CPU, and the reader of their records.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use lab::noise::in_guest::RECORDS_MAX;
use lab::noise::{Body, Loop};
use loop_bodies::ATTEMPTS;

use super::body::Worker;
use super::companion::Companion;
use super::join::Join;
use super::loops::{LoopConfig, LoopOutcome, iterations_of_body, run};
use super::ring::{Record, Ring};
use crate::bpf::{BpfError, CallerProgram};
use crate::clock::{ClockMap, core_cycle, now};
use crate::host::diagnosis::setcap_line_for;
use crate::host::{Root, host_facts};
use crate::marks::{MarkProbes, loop_thread};
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::{ThreadCounts, is_pinned_to, pin, real_time};
use crate::window::{Stop, WaitOutcome, wait};

/// Capacity of a ring: more records than the fastest loop writes in one second.
const RING_RECORDS: usize = RECORDS_MAX;
/// Number of parts of a slot of fixed time. The body's iterations fill one part.
const PARTS_PER_SLOT: u64 = 64;

/// Configuration of a loop's thread.
#[derive(Clone, Copy, Debug)]
pub struct RunnerConfig {
    pub looping: LoopConfig,
    pub body: Body,
    pub cache_bytes: Option<u64>,
    pub warm_up_cycles: u64,
    pub fifo: Option<u32>,
    /// Whether the core's clock is measured before and after the loop.
    pub times_core: bool,
}

/// The result that a loop's thread returns.
#[derive(Clone, Copy, Debug)]
pub struct RunnerOutcome {
    pub outcome: LoopOutcome,
    pub counts: Option<ThreadCounts>,
    /// Iterations of the body in a quantum, or in a part of a slot.
    pub body_iterations: u64,
    /// The configuration with which the loop ran.
    pub looping: LoopConfig,
    /// [`core_cycle`] before and after the loop.
    pub core_cycles: (Option<f64>, Option<f64>),
    /// Whether the loop stayed on its CPU.
    pub stay: Stay,
}

/// Whether a loop stayed on its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It ran there until its end.
    ToTheEnd,
    /// It left the CPU within the window. It was ended then.
    UntilItLeft,
    /// It left before the window opened, or left and came back unnoticed. Its records
    /// may be from another CPU.
    Unknown,
}

/// A loop and its thread.
pub struct Runner {
    pub cpu: u32,
    pub ring: Arc<Ring>,
    /// The number that marks have for the loop's thread ([`loop_thread`]).
    pub thread: u32,
    go: Sender<()>,
    handle: JoinHandle<Option<RunnerOutcome>>,
}

impl Runner {
    /// Starts the thread, and waits until its loop is ready.
    ///
    /// Fails if the thread may not run on its CPU, or not in its scheduling class.
    pub fn start(
        config: RunnerConfig,
        caller: Option<Arc<CallerProgram>>,
    ) -> Result<Runner, BenchError> {
        let ring = Arc::new(Ring::new(RING_RECORDS));
        let (ready, is_ready) = channel();
        let (go, may_go) = channel();
        let cpu = config.looping.cpu;
        let its_ring = Arc::clone(&ring);
        let body = move || in_thread(config, caller.as_deref(), &its_ring, &ready, &may_go);
        let handle = spawn_thread("irqlab-loop", body).map_err(no_thread)?;
        match is_ready.recv() {
            Ok(Ok(thread)) => Ok(Runner { cpu, ring, thread, go, handle }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(BenchError::Failed(format!("the loop's thread on CPU {cpu} died"))),
        }
    }

    /// Lets the loop start. If the thread died before, [`Runner::join`] reports it.
    pub fn start_loop(&self) {
        let _ = self.go.send(());
    }

    /// Whether the loop runs, after its warm-up, or has ended.
    fn has_started(&self) -> bool {
        self.ring.started.load(Ordering::Relaxed) > 0
    }

    fn is_over(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the thread and returns its ring and its outcome.
    ///
    /// Fails if the thread died.
    pub fn join(self) -> Result<(Arc<Ring>, RunnerOutcome), BenchError> {
        let died = || BenchError::Failed(format!("the loop's thread on CPU {} died", self.cpu));
        let outcome = self.handle.join().ok().flatten().ok_or_else(died)?;
        Ok((self.ring, outcome))
    }
}

fn in_thread(
    config: RunnerConfig,
    caller: Option<&CallerProgram>,
    ring: &Ring,
    ready: &Sender<Result<u32, BenchError>>,
    may_go: &Receiver<()>,
) -> Option<RunnerOutcome> {
    let placed = pin_with_priority(config.looping.cpu, config.fifo);
    let is_placed = placed.is_ok();
    let thread = placed.and_then(|()| Ok(loop_thread(caller)?));
    let mut worker = Worker::new(config.body, config.cache_bytes);
    let cycles = match config.looping.looping {
        Loop::Fwq => config.looping.quantum_cycles,
        Loop::Ftq => config.looping.quantum_cycles / PARTS_PER_SLOT,
        Loop::Detour => 0,
    };
    let body_iterations =
        if is_placed && cycles > 0 { iterations_of_body(&mut worker, cycles) } else { 1 };
    ready.send(thread).ok()?;
    may_go.recv().ok()?;
    // The warm-up runs the same code, with a ring that nobody reads and that
    // ends together with `ring`.
    let warm_up = LoopConfig {
        window_cycles: config.warm_up_cycles,
        repetitions: u64::MAX,
        ..config.looping
    };
    let warmed_up = run(&warm_up, &mut worker, body_iterations, &ring.unread());
    let looping = match config.looping.looping {
        Loop::Detour => {
            let trial = config.looping.trial();
            let trials = [(); ATTEMPTS].map(|()| run(&trial, &mut worker, body_iterations, ring));
            config.looping.with_iteration_time(&trials)
        }
        Loop::Fwq | Loop::Ftq => config.looping,
    };
    let core = || config.times_core.then(core_cycle).flatten();
    let core_before = core();
    let before = ThreadCounts::now();
    let outcome = run(&looping, &mut worker, body_iterations, ring);
    let counts = ThreadCounts::now().zip(before).map(|(now, before)| now.since(before));
    let stay = match (warmed_up.left_cpu, outcome.left_cpu) {
        (false, true) => Stay::UntilItLeft,
        (false, false) if is_pinned_to(config.looping.cpu) => Stay::ToTheEnd,
        _ => Stay::Unknown,
    };
    let core_after = if stay == Stay::ToTheEnd { core() } else { None };
    let core_cycles = (core_before, core_after);
    Some(RunnerOutcome { outcome, counts, body_iterations, looping, core_cycles, stay })
}

fn pin_with_priority(cpu: u32, fifo: Option<u32>) -> Result<(), BenchError> {
    pin(cpu).map_err(|error| BenchError::Unavailable {
        reason: error.to_string(),
        remedy: Some("-c with CPUs of this process's cpuset".to_owned()),
    })?;
    let Some(priority) = fifo else { return Ok(()) };
    real_time(priority).map_err(|error| BenchError::Unavailable {
        reason: format!("SCHED_FIFO at priority {priority} is refused: {error}"),
        remedy: Some(setcap_line_for(&host_facts(&Root::default()), &["cap_sys_nice"])),
    })
}

/// Starts the loops, and joins their records with the marks until all loops have ended. A waiting
/// command starts when all loops run. If it cannot start, the loops end.
///
/// Fails if the kernel refuses to deliver the marks.
pub fn collect(
    runners: &[Runner],
    joins: &mut [Join],
    clocks: &mut ClockMap,
    probes: Option<&MarkProbes>,
    schedule: &PollSchedule,
    companion: &mut Option<Companion>,
) -> Result<WaitOutcome, BpfError> {
    if let Some(probes) = probes {
        probes.take()?; // marks of an earlier window
        runners.iter().try_for_each(|runner| probes.announce(runner.cpu, runner.thread))?;
    }
    clocks.read();
    let mut outcome = WaitOutcome::Completed;
    let show_life = || {
        let until = now().saturating_add(schedule.watchdog_cycles);
        runners.iter().for_each(|runner| runner.ring.run_until(until));
    };
    show_life();
    runners.iter().for_each(Runner::start_loop);
    let start = Instant::now();
    while runners.iter().any(|runner| !runner.is_over()) {
        let is_held = companion.as_ref().is_some_and(Companion::is_held);
        let deadline = Instant::now() + schedule.next(start.elapsed(), is_held);
        // Sleeps without waiting for the pipe, which stays readable after a request to stop.
        if outcome == WaitOutcome::Stopped {
            std::thread::sleep(schedule.at_end);
        } else if wait(Some(deadline), None, &schedule.stop) == WaitOutcome::Stopped
            || runners.iter().any(|runner| runner.ring.is_starved())
        {
            outcome = WaitOutcome::Stopped;
            runners.iter().for_each(|runner| runner.ring.stop());
        } else {
            show_life();
        }
        if is_held && runners.iter().all(Runner::has_started) {
            *companion = companion.take().map(Companion::released);
            if companion.as_mut().is_some_and(|companion| companion.status().is_err()) {
                runners.iter().for_each(|runner| runner.ring.stop());
            }
        }
        poll_once(runners, joins, clocks, probes)?;
    }
    if runners.iter().any(|runner| runner.ring.is_starved()) {
        outcome = WaitOutcome::Stopped;
    }
    if let Some(probes) = probes {
        runners.iter().try_for_each(|runner| probes.announce(runner.cpu, 0))?;
    }
    // The first turn empties the rings, and the second processes the records
    // that wait for their marks.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1));
        poll_once(runners, joins, clocks, probes)?;
    }
    Ok(outcome)
}

fn poll_once(
    runners: &[Runner],
    joins: &mut [Join],
    clocks: &mut ClockMap,
    probes: Option<&MarkProbes>,
) -> Result<(), BpfError> {
    let drained = |runner: &Runner| {
        let mut records: Vec<Record> = Vec::new();
        runner.ring.drain(|record| records.push(record));
        records
    };
    let new: Vec<Vec<Record>> = runners.iter().map(drained).collect();
    clocks.read();
    let marks = probes.map(MarkProbes::take).transpose()?.unwrap_or_default();
    let (mut oldest, mut all_started) = (u64::MAX, true);
    for ((runner, join), new) in runners.iter().zip(joins).zip(new) {
        let of_cpu = marks.iter().filter(|(cpu, _)| *cpu == runner.cpu);
        join.add_marks(of_cpu.map(|(_, mark)| *mark));
        let started = runner.ring.started.load(Ordering::Relaxed);
        if join.start_ns.is_none() && started > 0 {
            join.start_ns = clocks.ns_at(started);
        }
        join.advance(new, clocks);
        oldest = oldest.min(join.oldest().unwrap_or(u64::MAX));
        all_started &= join.start_ns.is_some();
    }
    // If no record waits, a gap may have started that has not ended yet.
    if all_started && oldest < u64::MAX {
        clocks.forget_before(oldest);
    }
    Ok(())
}

/// The times at which the reader polls.
#[derive(Clone, Debug)]
pub struct PollSchedule {
    /// Expected length of the window, with its warm-up.
    pub expected: Duration,
    /// How long the loops run before their window opens.
    pub warm_up: Duration,
    /// Time between two polls.
    pub period: Duration,
    /// Time between two polls after the window's expected end.
    pub at_end: Duration,
    /// A loop ends if the reader has not polled for this time. Perhaps the loops leave it none.
    pub watchdog_cycles: u64,
    pub stop: Stop,
}

/// Time between two checks whether all loops run, while a command waits for that.
const UNTIL_LOOPS_RUN: Duration = Duration::from_millis(1);

impl PollSchedule {
    /// Time until the next poll.
    fn next(&self, elapsed: Duration, is_command_held: bool) -> Duration {
        if is_command_held {
            let time_left = self.warm_up.saturating_sub(elapsed);
            return time_left.min(self.period).max(UNTIL_LOOPS_RUN);
        }
        let time_left = self.expected.saturating_sub(elapsed);
        if time_left.is_zero() { self.at_end } else { time_left.min(self.period) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Configures a loop of ten minutes on the first CPU on which this process may run.
    fn long(looping: Loop, warm_up_cycles: u64) -> RunnerConfig {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap() as u32;
        let looping = LoopConfig {
            looping,
            cpu,
            window_cycles: u64::MAX,
            repetitions: u64::MAX,
            quantum_cycles: 100_000,
            threshold_cycles: 1_000,
            iteration_cycles: 50,
        };
        RunnerConfig {
            looping,
            body: Body::Add,
            cache_bytes: None,
            warm_up_cycles,
            fifo: None,
            times_core: false,
        }
    }

    #[test]
    fn a_loop_whose_reader_gets_no_time_ends_by_itself() {
        if !cfg!(target_arch = "x86_64") {
            return needs::not_run(needs::Need::Tsc, "the loops are for x86-64");
        }
        for (looping, warm_up_cycles) in
            [(Loop::Detour, 1), (Loop::Fwq, 1), (Loop::Ftq, 1), (Loop::Detour, u64::MAX)]
        {
            let runner = Runner::start(long(looping, warm_up_cycles), None).unwrap();
            runner.ring.run_until(now() + 10_000_000);
            runner.start_loop();
            // Nobody reads the records, so this would never return without the watchdog.
            let (ring, _) = runner.join().unwrap();
            assert!(ring.is_starved(), "{looping}");
        }
    }

    #[test]
    fn a_stop_ends_the_warm_up_too() {
        if !cfg!(target_arch = "x86_64") {
            return needs::not_run(needs::Need::Tsc, "the loops are for x86-64");
        }
        let runner = Runner::start(long(Loop::Detour, u64::MAX), None).unwrap();
        runner.start_loop();
        runner.ring.stop();
        let (ring, _) = runner.join().unwrap();
        assert!(!ring.is_starved());
    }
}
