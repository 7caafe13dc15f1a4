//! One window: loops on all CPUs, and their records taken as they come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use lab::handlers::BenchError;
use lab::noise::in_guest::RECORDS_MAX;
use lab::noise::{Body, Loop};
use loop_bodies::ATTEMPTS;
use rustix::thread::gettid;

use super::body::Worker;
use crate::clock::ClockMap;
use crate::clock::core_cycle;
use super::join::Join;
use super::loops::{Order, Ran, run, turns_of};
use crate::threads::{ThreadCounts, pin, real_time};
use crate::marks::MarkProbes;
use super::ring::{Record, Ring};
use crate::bpf::BpfError;
use crate::window::Stop;
use crate::window::{WaitOutcome, wait};

/// Records that a ring holds: a second of the fastest loop, and more.
const RING_RECORDS: usize = RECORDS_MAX;
/// Turns of the body that a slot of fixed time is divided into.
const TURNS_PER_SLOT: u64 = 64;

/// What a thread is told before it starts.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub order: Order,
    pub body: Body,
    pub cache_bytes: Option<u64>,
    pub warm_up_cycles: u64,
    pub fifo: Option<u32>,
    /// Whether the clock of the core is measured around the loop.
    pub times_core: bool,
}

/// What a thread brings back.
#[derive(Clone, Copy, Debug)]
pub struct Back {
    pub ran: Ran,
    pub counted: Option<Counted>,
    /// Turns of the body in a quantum, or in a part of a slot.
    pub turns: u64,
    /// The order as it was carried out.
    pub order: Order,
    /// [`core_cycle`] before and behind the loop.
    pub core_cycles: (Option<f64>, Option<f64>),
}

/// A loop on its thread.
pub struct Runner {
    pub cpu: u32,
    pub ring: Arc<Ring>,
    pub thread: u32,
    go: Sender<()>,
    handle: JoinHandle<Option<Back>>,
}

impl Runner {
    /// Starts the thread, and waits until it is ready to go.
    ///
    /// # Errors
    /// When it may not run there, or not in that way.
    pub fn start(start: Start) -> Result<Runner, BenchError> {
        let ring = Arc::new(Ring::new(RING_RECORDS));
        let (ready, is_ready) = channel();
        let (go, may_go) = channel();
        let cpu = start.order.cpu;
        let its_ring = Arc::clone(&ring);
        let handle = Builder::new()
            .name("irqlab-loop".to_owned())
            .spawn(move || in_thread(start, &its_ring, &ready, &may_go))
            .map_err(|error| BenchError::Failed(format!("cannot start a thread: {error}")))?;
        match is_ready.recv() {
            Ok(Ok(thread)) => Ok(Runner { cpu, ring, thread, go, handle }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(BenchError::Failed(format!("the thread on CPU {cpu} ended"))),
        }
    }

    /// Lets the loop go. One that died says so at the end.
    pub fn let_go(&self) {
        let _ = self.go.send(());
    }

    fn is_over(&self) -> bool {
        self.handle.is_finished()
    }

    /// What the thread brought.
    ///
    /// # Errors
    /// When it died.
    pub fn back(self) -> Result<(Arc<Ring>, Back), BenchError> {
        let died = || BenchError::Failed(format!("the loop on CPU {} died", self.cpu));
        let back = self.handle.join().ok().flatten().ok_or_else(died)?;
        Ok((self.ring, back))
    }
}

fn in_thread(
    start: Start,
    ring: &Ring,
    ready: &Sender<Result<u32, BenchError>>,
    may_go: &Receiver<()>,
) -> Option<Back> {
    let placed = place(start.order.cpu, start.fifo);
    let is_placed = placed.is_ok();
    let mut worker = Worker::new(start.body, start.cache_bytes);
    let cycles = match start.order.looping {
        Loop::Fwq => start.order.quantum_cycles,
        Loop::Ftq => start.order.quantum_cycles / TURNS_PER_SLOT,
        Loop::Detour => 0,
    };
    let turns = if is_placed && cycles > 0 { turns_of(&mut worker, cycles) } else { 1 };
    let thread = gettid().as_raw_nonzero().get() as u32;
    ready.send(placed.map(|()| thread)).ok()?;
    may_go.recv().ok()?;
    // The same code, into a ring that nobody reads.
    let warm_up =
        Order { window_cycles: start.warm_up_cycles, repetitions: u64::MAX, ..start.order };
    run(&warm_up, &mut worker, turns, &Ring::new(1));
    let order = match start.order.looping {
        Loop::Detour => {
            let tried = start.order.tried();
            start.order.with_turn(&[(); ATTEMPTS].map(|()| run(&tried, &mut worker, turns, ring)))
        }
        Loop::Fwq | Loop::Ftq => start.order,
    };
    let core = || start.times_core.then(core_cycle).flatten();
    let core_before = core();
    let before = ThreadCounts::now();
    let ran = run(&order, &mut worker, turns, ring);
    let counted = ThreadCounts::now().zip(before).map(|(now, before)| now.since(before));
    Some(Back { ran, counted, turns, order, core_cycles: (core_before, core()) })
}

fn place(cpu: u32, fifo: Option<u32>) -> Result<(), BenchError> {
    pin(cpu).map_err(|error| BenchError::Unavailable {
        reason: format!("this process may not run on CPU {cpu}: {error}"),
        remedy: None,
    })?;
    let Some(priority) = fifo else { return Ok(()) };
    real_time(priority).map_err(|error| BenchError::Unavailable {
        reason: format!("SCHED_FIFO at priority {priority}: {error}"),
        remedy: Some("sudo setcap cap_sys_nice+ep irqlab, or start it as root".to_owned()),
    })
}

/// Lets the loops go, and brings records and marks together until all have ended.
///
/// # Errors
/// When the kernel refuses to hand out the marks.
pub fn collect(
    runners: &[Runner],
    joins: &mut [Join],
    clocks: &mut ClockMap,
    probes: Option<&MarkProbes>,
    pace: &Pace,
) -> Result<WaitOutcome, BpfError> {
    if let Some(probes) = probes {
        probes.take()?; // of a window before
        runners.iter().try_for_each(|runner| probes.announce(runner.cpu, runner.thread))?;
    }
    clocks.read();
    let mut ended = WaitOutcome::Completed;
    runners.iter().for_each(Runner::let_go);
    let first = Instant::now();
    while runners.iter().any(|runner| !runner.is_over()) {
        let deadline = Instant::now() + pace.next(first.elapsed());
        // Once stopped, the pipe stays readable.
        if ended == WaitOutcome::Stopped {
            std::thread::sleep(pace.at_end);
        } else if wait(Some(deadline), None, &pace.stop) == WaitOutcome::Stopped {
            ended = WaitOutcome::Stopped;
            runners.iter().for_each(|runner| runner.ring.stop.store(true, Ordering::Relaxed));
        }
        round(runners, joins, clocks, probes)?;
    }
    if let Some(probes) = probes {
        runners.iter().try_for_each(|runner| probes.announce(runner.cpu, 0))?;
    }
    // What is in the rings, then what waited for its marks.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1));
        round(runners, joins, clocks, probes)?;
    }
    Ok(ended)
}

fn round(
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
    let (mut oldest, mut all_began) = (u64::MAX, true);
    for ((runner, join), new) in runners.iter().zip(joins).zip(new) {
        let of_cpu = marks.iter().filter(|(cpu, _)| *cpu == runner.cpu);
        join.add_marks(of_cpu.map(|(_, mark)| *mark));
        let started = runner.ring.started.load(Ordering::Relaxed);
        if join.start_ns.is_none() && started > 0 {
            join.start_ns = clocks.ns_at(started);
        }
        join.turn(new, clocks);
        oldest = oldest.min(join.oldest().unwrap_or(u64::MAX));
        all_began &= join.start_ns.is_some();
    }
    // Where nothing waits, a gap may have begun that is not over.
    if all_began && oldest < u64::MAX {
        clocks.forget_before(oldest);
    }
    Ok(())
}

/// How often the records are taken.
#[derive(Clone, Debug)]
pub struct Pace {
    /// When the window should be over.
    pub expected: Duration,
    /// Time between two rounds.
    pub round: Duration,
    /// And when the window should be over.
    pub at_end: Duration,
    /// The wish to stop.
    pub stop: Stop,
}

impl Pace {
    fn next(&self, elapsed: Duration) -> Duration {
        let left = self.expected.saturating_sub(elapsed);
        if left.is_zero() { self.at_end } else { left.min(self.round) }
    }
}
