//! The observer of a rank: the process's first thread. It loads the probes, reads the kernel's marks and the detours while
//! the rank's thread runs the job, and ends the job if the rank stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use lab::noise::collective::{RankSample, StepTimes};
use lab::noise::{AttributionParameters, Gap, Mark};
use rustix::thread::sched_setaffinity;

use super::rank::{Event, Gathered, JobPlan, Measured, RankThread, Reply, rank_main};
use super::sample::Interruptions;
use super::transport::Connect;
use crate::clock::{ClockMap, ClockResolution, KernelClock};
use crate::host::Root;
use crate::marks::MarkProbes;
use crate::noise::entry_latency::entry_latency_ns;
use crate::noise::loops::detour_resolution;
use crate::ring::{Record, Ring};
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::cpu_set;
use crate::window::Stop;

/// Capacity of the ring of detours: more than a rank has between two polls.
const RING_RECORDS: usize = 1 << 17;
/// Most detours that are kept until the end of the job.
const DETOURS_MAX: usize = 1 << 20;
/// Most marks that are kept until the end of the job.
const MARKS_MAX: usize = 1 << 22;
/// Time between two polls. On the rank's own CPU the observer is a cause of detours, so it polls rarely.
const POLL: Duration = Duration::from_millis(100);
const POLL_ON_SHARED_CPU: Duration = Duration::from_secs(1);
/// Time that a rank has in addition to the limit of its own waits, before the observer gives up.
const GRACE: Duration = Duration::from_secs(5);

/// Settings of a rank.
#[derive(Clone, Debug)]
pub struct RankSettings {
    pub cpu: u32,
    /// CPUs of the observer. Empty: it shares the rank's CPU.
    pub housekeeping: Vec<u32>,
    pub version: String,
    /// The job, if this is rank 0. Other ranks get it from rank 0.
    pub plan: JobPlan,
    /// Whether to find the causes of detours.
    pub trace: bool,
    /// Every wait ends after this time.
    pub limit: Duration,
    pub stop: Stop,
}

/// Runs a rank of the job. Returns the samples of all ranks on rank 0, and `None` on other ranks.
///
/// Fails with the reason if the job cannot be run: a rank is missing, gone or of another version, or a time limit passed.
pub fn measure(settings: RankSettings, connect: Connect) -> Result<Option<Gathered>, BenchError> {
    let clock = detour_resolution(settings.cpu).map_err(|error| BenchError::Unavailable {
        reason: error.to_string(),
        remedy: Some("-c with CPUs of this process's cpuset".to_owned()),
    })?;
    let clock = clock.ok_or_else(|| {
        BenchError::nothing_measurable(
            "the computation needs a time-stamp counter, which this processor does not have",
        )
    })?;
    let mut observer = Observer::new(settings, clock)?;
    let cpus = match &observer.settings.housekeeping[..] {
        [] => vec![observer.settings.cpu],
        cpus => cpus.to_vec(),
    };
    // If this fails, the observer is a cause of detours on other CPUs, and has a name there.
    let _ = sched_setaffinity(None, &cpu_set(&cpus));
    let (replies, rank_replies) = channel();
    let (rank_events, events) = channel();
    let thread = observer.rank_thread(rank_events, rank_replies);
    let progress = Arc::clone(&observer.progress);
    let handle =
        spawn_thread("irqlab-rank", move || rank_main(thread, connect)).map_err(no_thread)?;
    let outcome = observer.observe(&events, &replies, &progress);
    drop(replies);
    if outcome.is_ok() {
        handle.join().map_err(|_| BenchError::Failed("the rank's thread died".to_owned()))?;
    }
    // After an error the thread may wait in the MPI library for ever. It ends with the process.
    outcome
}

/// The name of this machine (uname(2)).
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Identifies this process's clock: the boot of the kernel, the time namespace, and the difference that irqlab takes out.
/// `None` if the boot is unknown.
fn clock_id(kernel_clock: KernelClock) -> Option<String> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // Kernels before 5.6 have no time namespaces.
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let offset_ns = kernel_clock.offset_ns();
    Some(format!("{} {} {offset_ns}", boot_id.trim(), namespace.display()))
}

struct Observer {
    settings: RankSettings,
    clock: ClockResolution,
    clocks: ClockMap,
    probes: Option<MarkProbes>,
    /// Why there are no probes.
    untraced: Option<String>,
    entry_latency_ns: u64,
    ring: Arc<Ring>,
    progress: Arc<AtomicU64>,
    detours: Vec<Record>,
    marks: Vec<Mark>,
    /// Detours and marks that found no room.
    lost_detours: u64,
    lost_marks: u64,
    /// Marks that the probes had lost before the job.
    lost_before: u64,
}

impl Observer {
    fn new(settings: RankSettings, clock: ClockResolution) -> Result<Observer, BenchError> {
        let (mut probes, mut untraced, mut entry_latency) = (None, None, 0);
        if settings.trace {
            match MarkProbes::load() {
                Ok(loaded) => {
                    entry_latency = entry_latency_ns(&loaded, settings.cpu)?.unwrap_or(0);
                    probes = Some(loaded);
                }
                Err(error) => untraced = Some(BenchError::from(error).to_string()),
            }
        } else {
            untraced = Some("--no-trace".to_owned());
        }
        let kernel_clock = probes.as_ref().map(MarkProbes::kernel_clock).unwrap_or_default();
        Ok(Observer {
            settings,
            clock,
            clocks: ClockMap::new(kernel_clock),
            probes,
            untraced,
            entry_latency_ns: entry_latency,
            ring: Arc::new(Ring::new(RING_RECORDS)),
            progress: Arc::default(),
            detours: Vec::new(),
            marks: Vec::new(),
            lost_detours: 0,
            lost_marks: 0,
            lost_before: 0,
        })
    }

    fn rank_thread(&self, events: Sender<Event>, replies: Receiver<Reply>) -> RankThread {
        let kernel_clock = self.probes.as_ref().map(MarkProbes::kernel_clock).unwrap_or_default();
        RankThread {
            cpu: self.settings.cpu,
            host: host_name(),
            version: self.settings.version.clone(),
            clock_id: clock_id(kernel_clock),
            shares_clock: Vec::new(),
            plan: self.settings.plan.clone(),
            clock: self.clock,
            kernel_clock,
            caller: self.probes.as_ref().map(MarkProbes::caller),
            ring: Arc::clone(&self.ring),
            progress: Arc::clone(&self.progress),
            events,
            replies,
        }
    }

    /// Serves the rank's thread until it is done.
    fn observe(
        &mut self,
        events: &Receiver<Event>,
        replies: &Sender<Reply>,
        progress: &AtomicU64,
    ) -> Result<Option<Gathered>, BenchError> {
        let period = if self.settings.housekeeping.is_empty() { POLL_ON_SHARED_CPU } else { POLL };
        let (mut last, mut advanced) = (0, Instant::now());
        loop {
            match events.recv_timeout(period) {
                Ok(Event::Joined { thread }) => {
                    self.open(thread)?;
                    let _ = replies.send(Reply::Go); // a thread that is gone has sent the reason
                }
                Ok(Event::Measured(measured)) => {
                    let sample = self.close(&measured)?;
                    let _ = replies.send(Reply::Sample(Box::new(sample)));
                }
                Ok(Event::Done(result)) => return result,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(BenchError::Failed("the rank's thread died".to_owned()));
                }
            }
            self.poll()?;
            if self.settings.stop.is_requested() {
                return Err(BenchError::Failed("stopped before the job was done".to_owned()));
            }
            let current = progress.load(Ordering::Relaxed);
            if current != last {
                (last, advanced) = (current, Instant::now());
            } else if advanced.elapsed() > self.settings.limit + GRACE {
                let limit_s = self.settings.limit.as_secs();
                return Err(BenchError::Failed(format!(
                    "this rank waited for the other ranks for more than {limit_s} s: one of them hangs, or needs longer \
                     (--limit)"
                )));
            }
        }
    }

    /// Starts to record the events of the rank's CPU.
    fn open(&mut self, thread: u32) -> Result<(), BenchError> {
        if let Some(probes) = &self.probes {
            probes.take()?; // Discards the marks of the calibration.
            self.lost_before = probes.lost()?;
            probes.announce(self.settings.cpu, thread)?;
        }
        self.clocks.read();
        Ok(())
    }

    /// Takes new detours and marks.
    fn poll(&mut self) -> Result<(), BenchError> {
        let (detours, lost) = (&mut self.detours, &mut self.lost_detours);
        self.ring.drain(|record| {
            if detours.len() < DETOURS_MAX {
                detours.push(record);
            } else {
                *lost += 1;
            }
        });
        self.clocks.read();
        let Some(probes) = &self.probes else { return Ok(()) };
        for (cpu, mark) in probes.take()? {
            if cpu == self.settings.cpu && self.marks.len() < MARKS_MAX {
                self.marks.push(mark);
            } else {
                self.lost_marks += u64::from(cpu == self.settings.cpu);
            }
        }
        Ok(())
    }

    /// Ends the recording, and makes the sample.
    fn close(&mut self, measured: &Measured) -> Result<RankSample, BenchError> {
        if let Some(probes) = &self.probes {
            probes.announce(self.settings.cpu, 0)?;
        }
        std::thread::sleep(Duration::from_millis(1));
        self.poll()?;
        // Marks arrive almost in order; noise.bpf.c has the reason.
        self.marks.sort_by_key(|mark| mark.at_ns);
        let no_time =
            || BenchError::Failed("the counter could not be converted to a time".to_owned());
        let time_ns = |cycles: u64| self.clocks.ns_at(cycles).ok_or_else(no_time);
        let step = |[start, arrival, leave]: &[u64; 3]| {
            let [start_ns, arrival_ns, leave_ns] =
                [time_ns(*start)?, time_ns(*arrival)?, time_ns(*leave)?];
            Ok(StepTimes { start_ns, arrival_ns, leave_ns })
        };
        let times = measured.times.iter().map(step).collect::<Result<Vec<_>, BenchError>>()?;
        let gap = |[start, end, _]: &Record| {
            Ok(Gap { start_ns: time_ns(*start)?, end_ns: time_ns(*end)? })
        };
        let gaps = self.detours.iter().map(gap).collect::<Result<Vec<_>, BenchError>>()?;
        let names = self.probes.as_ref().map(|probes| probes.names(&Root::default()));
        let names = names.unwrap_or_default();
        let parameters = AttributionParameters { entry_latency_ns: self.entry_latency_ns };
        let marks = self.probes.as_ref().map(|_| &self.marks[..]);
        let mut interruptions = Interruptions::new(marks, &names, parameters);
        interruptions.add_all(&times, &gaps);
        let lost = self.probes.as_ref().map(MarkProbes::lost).transpose()?.unwrap_or(0);
        let interruptions_lost = interruptions.lost_activities;
        let mut warnings = Vec::new();
        if !measured.stayed_on_cpu {
            warnings
                .push("the kernel moved it to another CPU (did its CPU go offline?)".to_owned());
        }
        if interruptions.other_cause_count > 0 {
            warnings.push(format!(
                "it had too many causes: {} of them are together in \"causes without room\" (use fewer --steps, or keep \
                 programs that start many tasks off its CPU)",
                interruptions.other_cause_count
            ));
        }
        Ok(RankSample {
            host: host_name(),
            cpu: self.settings.cpu,
            times,
            lost_detours: interruptions.lost + self.lost_detours + self.ring.lost(),
            causes: interruptions.causes,
            interruptions: interruptions.found,
            bare_latency_ns: measured.bare_latency_ns,
            untraced: self.untraced.clone(),
            lost_events: self.lost_marks
                + interruptions_lost
                + lost.saturating_sub(self.lost_before),
            unseen_contexts: self
                .probes
                .as_ref()
                .map(|probes| probes.absent.clone())
                .unwrap_or_default(),
            warnings,
        })
    }
}
