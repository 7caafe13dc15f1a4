//! One window of `noise`: the threads of the loops, one on each CPU, and the observer, which reads their records.
//!
//! `bench.rs` starts [`Runner`]s and calls [`collect`]; `in_guest.rs` starts runners and reads their rings at the end.
//! A loop's thread measures in this order: calibration of the body, warm-up, trials (detour loop), the window. Only the
//! window's records reach the ring.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use lab::noise::in_guest::RECORDS_MAX;
use lab::noise::{Body, Loop, PARTS_PER_SLOT, kind_and_name};

use super::body::Worker;
use super::join::Join;
use super::loops::{LoopConfig, LoopOutcome, iterations_of_body, run};
use crate::bpf::{BpfError, CallerProgram};
use crate::clock::{ClockMap, core_cycle, now};
use crate::companion::Companion;
use crate::host::diagnosis::setcap_line_for;
use crate::host::{Root, host_facts};
use crate::marks::{MarkProbes, loop_thread};
use crate::ring::{Record, Ring};
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::{ThreadCounts, is_pinned_to, pin, real_time};
use crate::threshold::{ThresholdWatch, cause_text};
use crate::window::{Stop, WaitOutcome, wait};

/// Capacity of a ring: more records than the fastest loop writes in one second.
const RING_RECORDS: usize = RECORDS_MAX;

/// Configuration of a loop's thread.
#[derive(Clone, Copy, Debug)]
pub struct RunnerConfig {
    pub loop_config: LoopConfig,
    pub body: Body,
    /// Size of the last-level cache, if known.
    pub cache_bytes: Option<u64>,
    pub warm_up_cycles: u64,
    /// Priority under SCHED_FIFO; `None`: SCHED_OTHER.
    pub fifo: Option<u32>,
    /// Whether to measure the core's clock before and after the loop.
    pub times_core: bool,
}

/// The result that a loop's thread returns.
#[derive(Clone, Copy, Debug)]
pub struct RunnerOutcome {
    pub outcome: LoopOutcome,
    /// Context switches and page faults of the thread in the loop.
    pub counts: Option<ThreadCounts>,
    /// Iterations of the body in a quantum, or in a part of a slot.
    pub body_iterations: u64,
    /// The configuration with which the loop ran, after calibration.
    pub loop_config: LoopConfig,
    /// [`core_cycle`] before and after the loop.
    pub core_cycles: (Option<f64>, Option<f64>),
    /// Whether the loop stayed on its CPU.
    pub stay: Stay,
}

/// Whether a loop stayed on its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// The loop ran on its CPU until its end.
    ToTheEnd,
    /// The loop left the CPU within the window, and ended then.
    UntilItLeft,
    /// The loop left before the window opened, or left and came back unnoticed. Its records
    /// may be from another CPU.
    Unknown,
}

/// A loop and its thread.
pub struct Runner {
    pub cpu: u32,
    pub ring: Arc<Ring>,
    /// The number of the loop's thread in marks ([`loop_thread`]).
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
        let (ready, ready_receiver) = channel();
        let (go, go_receiver) = channel();
        let cpu = config.loop_config.cpu;
        let thread_ring = Arc::clone(&ring);
        let body = move || loop_main(config, caller.as_deref(), &thread_ring, &ready, &go_receiver);
        let handle = spawn_thread("irqlab-loop", body).map_err(no_thread)?;
        match ready_receiver.recv() {
            Ok(Ok(thread)) => Ok(Runner { cpu, ring, thread, go, handle }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(BenchError::Failed(format!("the loop's thread on CPU {cpu} died"))),
        }
    }

    /// Makes the loop start. If the thread has died, [`Runner::join`] reports that.
    pub fn start_loop(&self) {
        let _ = self.go.send(());
    }

    /// Whether the loop's window has opened.
    fn has_started(&self) -> bool {
        self.ring.started.load(Ordering::Relaxed) > 0
    }

    fn is_over(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the thread and returns its ring and its outcome.
    ///
    /// Fails if the thread died, or if its loop was never started ([`Runner::start_loop`]).
    pub fn join(self) -> Result<(Arc<Ring>, RunnerOutcome), BenchError> {
        let Runner { cpu, ring, go, handle, .. } = self;
        // Ends a thread that still waits for the start of its loop.
        drop(go);
        let failed =
            |end: &str| BenchError::Failed(format!("the loop's thread on CPU {cpu} {end}"));
        let outcome = handle.join().map_err(|_| failed("died"))?;
        Ok((ring, outcome.ok_or_else(|| failed("ended before its loop was started"))?))
    }
}

/// The main function of a loop's thread. Sends the thread's number, or an error, to `ready`. Returns `None` if the
/// sender of `go_receiver` is dropped before it lets the loop start.
fn loop_main(
    config: RunnerConfig,
    caller: Option<&CallerProgram>,
    ring: &Ring,
    ready: &Sender<Result<u32, BenchError>>,
    go_receiver: &Receiver<()>,
) -> Option<RunnerOutcome> {
    let placed = pin_with_priority(config.loop_config.cpu, config.fifo);
    let is_placed = placed.is_ok();
    let thread = placed.and_then(|()| Ok(loop_thread(caller)?));
    let mut worker = Worker::new(config.body, config.cache_bytes);
    let cycles = match config.loop_config.looping {
        Loop::Fwq => config.loop_config.quantum_cycles,
        Loop::Ftq => config.loop_config.quantum_cycles / PARTS_PER_SLOT,
        Loop::Detour => 0,
    };
    let body_iterations =
        if is_placed && cycles > 0 { iterations_of_body(&mut worker, cycles) } else { 1 };
    ready.send(thread).ok()?;
    go_receiver.recv().ok()?;
    // The warm-up runs the code of the window. Nobody reads its ring, and a stop of `ring` also stops the warm-up.
    let warm_up = LoopConfig {
        window_cycles: config.warm_up_cycles,
        repetitions: u64::MAX,
        ..config.loop_config
    };
    let warmed_up = run(&warm_up, &mut worker, body_iterations, &ring.of_other_loop(1));
    let loop_config = match config.loop_config.looping {
        Loop::Detour => config.loop_config.with_iteration_time(ring, |trial, trial_ring| {
            run(trial, &mut worker, body_iterations, trial_ring)
        }),
        Loop::Fwq | Loop::Ftq => config.loop_config,
    };
    let core = || config.times_core.then(core_cycle).flatten();
    let core_before = core();
    let before = ThreadCounts::now();
    let outcome = run(&loop_config, &mut worker, body_iterations, ring);
    let counts = ThreadCounts::now().zip(before).map(|(now, before)| now.since(before));
    let stay = match (warmed_up.left_cpu, outcome.left_cpu) {
        (false, true) => Stay::UntilItLeft,
        (false, false) if is_pinned_to(config.loop_config.cpu) => Stay::ToTheEnd,
        _ => Stay::Unknown,
    };
    let core_after = if stay == Stay::ToTheEnd { core() } else { None };
    let core_cycles = (core_before, core_after);
    Some(RunnerOutcome { outcome, counts, body_iterations, loop_config, core_cycles, stay })
}

/// Pins the calling thread, and makes it a real-time thread if `fifo` has a priority.
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

/// Starts the loops, and joins their records with the marks until all loops have ended. Stops the loops if the user
/// requests a stop, if a detour reaches a threshold, or if the observer starves. A held command (`companion`) starts
/// when all loops run; if it cannot start, the loops end.
///
/// Returns [`WaitOutcome::Stopped`] for a requested stop and for a starved observer. After another early end,
/// [`ThresholdWatch::ends_window`] or [`Companion::status`] has the reason.
///
/// Fails if the kernel refuses to deliver the marks.
pub fn collect(
    runners: &[Runner],
    joins: &mut [Join],
    clocks: &mut ClockMap,
    probes: Option<&MarkProbes>,
    schedule: &PollSchedule,
    companion: &mut Option<Companion>,
    watch: &mut ThresholdWatch,
) -> Result<WaitOutcome, BpfError> {
    if let Some(probes) = probes {
        probes.take()?; // Discards the marks of an earlier window.
        runners.iter().try_for_each(|runner| probes.announce(runner.cpu, runner.thread))?;
    }
    clocks.read();
    let mut outcome = WaitOutcome::Completed;
    let mut is_ending = false;
    let extend_watchdog = || {
        let until = now().saturating_add(schedule.watchdog_cycles);
        runners.iter().for_each(|runner| runner.ring.run_until(until));
    };
    extend_watchdog();
    runners.iter().for_each(Runner::start_loop);
    let start = Instant::now();
    while runners.iter().any(|runner| !runner.is_over()) {
        let is_held = companion.as_ref().is_some_and(Companion::is_held);
        let deadline = Instant::now() + schedule.time_to_next_poll(start.elapsed(), is_held);
        // After a stop request, `wait` would return at once.
        if is_ending {
            std::thread::sleep(schedule.period_after_end);
        } else if wait(Some(deadline), None, &schedule.stop) == WaitOutcome::Stopped
            || runners.iter().any(|runner| runner.ring.is_starved())
        {
            outcome = WaitOutcome::Stopped;
            is_ending = true;
        } else {
            extend_watchdog();
        }
        if is_held && runners.iter().all(Runner::has_started) {
            *companion = companion.take().map(Companion::released);
            is_ending |= companion.as_mut().is_some_and(|companion| companion.status().is_err());
        }
        if is_ending || runners.iter().all(Runner::is_over) {
            watch.note_end_of_window();
        }
        poll_once(runners, joins, clocks, probes, watch)?;
        is_ending |= watch.ends_window();
        if is_ending {
            runners.iter().for_each(|runner| runner.ring.stop());
        }
    }
    if runners.iter().any(|runner| runner.ring.is_starved()) {
        outcome = WaitOutcome::Stopped;
    }
    if let Some(probes) = probes {
        runners.iter().try_for_each(|runner| probes.announce(runner.cpu, 0))?;
    }
    watch.note_end_of_window();
    // The first poll empties the rings, the second processes the records that waited for their marks.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1));
        poll_once(runners, joins, clocks, probes, watch)?;
    }
    Ok(outcome)
}

/// Passes all new records and marks to the joins.
///
/// The order matters: records are taken before marks. All marks within a record are then there one poll later at the
/// latest (see [`Join::advance`]).
fn poll_once(
    runners: &[Runner],
    joins: &mut [Join],
    clocks: &mut ClockMap,
    probes: Option<&MarkProbes>,
    watch: &mut ThresholdWatch,
) -> Result<(), BpfError> {
    let drained = |runner: &Runner| {
        let mut records: Vec<Record> = Vec::new();
        runner.ring.drain(|record| records.push(record));
        records
    };
    let new_records: Vec<Vec<Record>> = runners.iter().map(drained).collect();
    clocks.read();
    let marks = probes.map(MarkProbes::take).transpose()?.unwrap_or_default();
    watch.record(&marks);
    let (mut oldest, mut all_started) = (u64::MAX, true);
    for ((runner, join), records) in runners.iter().zip(joins).zip(new_records) {
        let cpu_marks = marks.iter().filter(|(cpu, _)| *cpu == runner.cpu);
        join.add_marks(cpu_marks.map(|(_, mark)| *mark));
        let started = runner.ring.started.load(Ordering::Relaxed);
        if join.start_ns.is_none() && started > 0 {
            join.start_ns = clocks.ns_at(started);
        }
        join.advance(records, clocks);
        if let Some(longest) = join.take_over_threshold() {
            let names = || probes.map(|probes| probes.names(&Root::default())).unwrap_or_default();
            watch.take(runner.cpu, &longest, |part| kind_and_name(*part, &names()).map(cause_text));
        }
        oldest = oldest.min(join.oldest_start().unwrap_or(u64::MAX));
        all_started &= join.start_ns.is_some();
    }
    // Without a waiting record nothing is forgotten: a gap may have started long ago and not have ended yet.
    if all_started && oldest < u64::MAX {
        clocks.forget_before(oldest);
    }
    Ok(())
}

/// The times at which the observer polls.
#[derive(Clone, Debug)]
pub struct PollSchedule {
    /// Expected length of the window, with its warm-up.
    pub expected: Duration,
    /// How long the loops run before their window opens.
    pub warm_up: Duration,
    /// Time between two polls.
    pub period: Duration,
    /// Time between two polls after the window's expected end.
    pub period_after_end: Duration,
    /// A loop ends if the observer has not polled for this time: the loops may leave the observer no CPU time.
    pub watchdog_cycles: u64,
    pub stop: Stop,
}

/// Time between two polls while a command waits until all loops run.
const HELD_COMMAND_PERIOD: Duration = Duration::from_millis(1);

impl PollSchedule {
    /// Time until the next poll.
    fn time_to_next_poll(&self, elapsed: Duration, is_command_held: bool) -> Duration {
        if is_command_held {
            let remaining = self.warm_up.saturating_sub(elapsed);
            return remaining.min(self.period).max(HELD_COMMAND_PERIOD);
        }
        let remaining = self.expected.saturating_sub(elapsed);
        if remaining.is_zero() { self.period_after_end } else { remaining.min(self.period) }
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
            loop_config: looping,
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
    fn a_loop_that_was_never_started_is_an_error_and_does_not_hang() {
        if !cfg!(target_arch = "x86_64") {
            return needs::not_run(needs::Need::Tsc, "the loops are for x86-64");
        }
        let runner = Runner::start(long(Loop::Detour, 1), None).unwrap();
        let error = runner.join().map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("before its loop was started"), "{error}");
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
