//! [`LiveWakeup`]: this machine as a bench for the experiment `wakeup`. `lab::wakeup` calls it for the window, and for
//! pairs of short windows that show what the probes cost.
//!
//! The calling thread is the *observer*: while the measured threads run, it leaves their CPUs if it can, and reads their
//! records and the kernel's marks.

use std::process::ExitStatus;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use lab::cpu_warnings::CpuWarning;
use lab::cpus::UnmeasuredCpu;
use lab::experiment::{Absence, Bench, BenchError, BenchFacts};
use lab::flight_recorder::FlightRecorder;
use lab::flight_table;
use lab::keys;
use lab::noise::ContextName;
use lab::wakeup::{
    CpuWakeups, DiskCounts, ThreadReadings, WakerCounts, Wakeup, WakeupBench, WakeupLedger,
    WakeupSample, cause_in_words, shared_waker_warning,
};
use rustix::thread::sched_setaffinity;
use serde_json::{Map, json};

use super::idle_states::IdleStateLimit;
use super::join::{DiskMarks, DueGrid, Join};
use super::schedule::{Schedule, nanoseconds, schedules};
use super::settings::{Length, WakeupSettings};
use super::thread::{MeasuredThread, Stay, ThreadConfig};
use super::thread_class::{check_policy, refused_deadline};
use crate::clock::{KernelClock, WallReading, monotonic_ns};
use crate::companion::Companion;
use crate::host::diagnosis::setcap_line_for;
use crate::host::{
    Root, SmtWatch, available_memory, format_cpu_list, host_facts, is_leaving, process_cpus,
};
use crate::marks::{MarkProbes, Scope};
use crate::ring::Record;
use crate::threads::{LockedMemory, affinity, cpu_set, lost_observer_cpus, shared_cpus_warning};
use crate::threshold::{OverThreshold, ThresholdWatch};
use crate::window::{Stop, ThrottlingWindow, WaitOutcome, wait};

/// Longest total time of the comparison without and with probes.
const COMPARED_MAX: Duration = Duration::from_secs(8);
/// Shortest time of a part of this comparison, in periods. Its median needs some wake-ups.
const PART_PERIODS_MIN: u32 = 20;
/// Length of the window from which parts of the comparison are taken if a command ends the window.
const COMPARED_WITH_COMMAND: Duration = Duration::from_secs(4);
/// Longest warm-up of a part of the comparison.
const PART_WARM_UP_MAX: Duration = Duration::from_millis(10);
/// Longest time between two polls of the observer.
const POLL_MAX: Duration = Duration::from_millis(100);
/// Longest time between two polls if the observer shares the CPU of a measured thread, which it would delay.
const POLL_ON_MEASURED_CPU_MAX: Duration = Duration::from_secs(1);
/// Marks of all CPUs that may gather between two polls: a quarter of what their ring holds.
const MARKS_PER_POLL: u64 = 100_000;
/// Marks of a wake-up on a CPU without other work, rounded up. The records of its chain of wakers are longer than marks.
const MARKS_PER_WAKEUP: u64 = 12;
/// Number in marks of no thread: a CPU of wakers has marks of all switches, also of those to a waker.
const NO_THREAD: u32 = u32::MAX;
/// Capacity of a thread's ring, in polls, and its limits in wake-ups.
const RING_POLLS: u64 = 5;
const RING_RECORDS_MIN: u64 = 1_024;
const RING_RECORDS_MAX: u64 = 1 << 19;
/// Time between two polls of threads that were stopped.
const AFTER_STOP: Duration = Duration::from_millis(10);
/// A window ends if the observer gets no CPU time for this long.
const WATCHDOG_NS: u64 = 10_000_000_000;
/// The warning about a window that ended because the observer got no CPU time.
const STARVED: &str = "the run was ended: irqlab's own thread, which reads the records, got no time for 10 s (was irqlab \
                       stopped? otherwise leave it a CPU with -c or -H)";
/// Reasons why a thread ended early, or why its records are not used.
const WENT_OFFLINE: &str = "went offline in the window: measured until then";
const MOVED: &str = "the kernel moved the thread to another CPU (did this one go offline for a while?): measured until then";
const WAKER_LEFT: &str =
    "the kernel moved the waker to another CPU (did its CPU go offline?): measured until then";
const WAKER_MOVED: &str = "the kernel let the waker leave its CPU for a while (did it go offline?)";
const LEFT_UNNOTICED: &str =
    "the kernel let the thread leave the CPU for a while (did it go offline?)";
const OFFLINE_BEFORE: &str = "it was offline when the window opened";

/// This machine as a bench that runs periodic threads.
pub struct LiveWakeup {
    settings: WakeupSettings,
    /// `None` if no marks are recorded.
    probes: Option<MarkProbes>,
    /// The user's command that runs concurrently with the threads.
    companion: Option<Companion>,
    root: Root,
    absent: Vec<Absence>,
    thresholds: ThresholdWatch,
    /// The status of the command, if it ended by itself in the window.
    command_ended: Option<ExitStatus>,
    _idle_states: Option<IdleStateLimit>,
}

impl LiveWakeup {
    /// Loads the probes, limits the idle states, and prepares the command.
    ///
    /// Fails if the command's program is not found, the idle states cannot be limited, or the kernel refuses SCHED_DEADLINE.
    pub fn new(settings: WakeupSettings) -> Result<Self, BenchError> {
        check_policy(settings.policy, &settings.cpus)?;
        let idle_states = settings.idle_exit_max_us.map(|exit_max_us| {
            IdleStateLimit::request(exit_max_us).map_err(|error| BenchError::NothingMeasurable {
                reason: format!("/dev/cpu_dma_latency: {error}; the idle states cannot be limited"),
                remedy: Some("sudo, or without --idle-exit-max".to_owned()),
            })
        });
        let mut bench = LiveWakeup {
            _idle_states: idle_states.transpose()?,
            settings,
            probes: None,
            companion: None,
            root: Root::default(),
            absent: Vec::new(),
            thresholds: ThresholdWatch::default(),
            command_ended: None,
        };
        if bench.settings.trace {
            bench.load_probes()?;
        }
        if !bench.settings.command.is_empty() {
            let (words, to_stderr) = (&bench.settings.command, bench.settings.command_to_stderr);
            bench.companion = Some(Companion::hold(words, to_stderr)?);
        }
        Ok(bench)
    }

    /// Loads the probes. Without them the threads run all the same, and the causes are absent.
    ///
    /// Fails if a disk wakes the threads: their lateness begins with an event of the probes.
    fn load_probes(&mut self) -> Result<(), BenchError> {
        let scope = if self.settings.wakers { Scope::WakersOfWakeUps } else { Scope::WakeUps };
        match MarkProbes::load_for(scope, self.settings.senders) {
            Ok(probes) => {
                for (context, reason) in &probes.absent {
                    self.absent.push(Absence::new("causes", context, reason));
                }
                for (senders, reason) in &probes.absent_senders {
                    self.absent.push(Absence::new("causes", senders, reason));
                }
                if let Some(reason) = probes.why_no_chains {
                    self.absent.push(Absence::new("wakers", "who woke the threads", reason));
                }
                self.probes = Some(probes);
            }
            Err(error) => {
                let error = BenchError::from(error);
                let absence = error.absence("causes", "why the threads were late");
                if self.settings.disk.is_some() {
                    let reason = format!("--wake-by disk needs the probes: {}", absence.reason);
                    return Err(BenchError::NothingMeasurable { reason, remedy: absence.remedy });
                }
                self.absent.push(absence);
            }
        }
        Ok(())
    }

    /// Ends the command that ran concurrently. Returns its status if it had ended by itself before the window
    /// did, or ended the window.
    ///
    /// Fails if the program could not be executed, or the kernel does not report the status.
    pub fn end_command(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        self.companion.take().map_or(Ok(None), Companion::end)?;
        Ok(self.command_ended)
    }

    /// Sets the thresholds of the wake-ups in the next window, and the actions.
    pub fn watch_for(&mut self, thresholds: ThresholdWatch) {
        self.thresholds = thresholds;
    }

    /// Keeps the kernel's events of the last `length_ns` of the next window.
    ///
    /// Fails if there is not enough memory.
    pub fn record_flight(&mut self, length_ns: u64) -> Result<(), BenchError> {
        if self.probes.is_none() {
            let reason = "the kernel's events cannot be recorded here, see the causes";
            self.absent.push(Absence::new(flight_table::NAME, "the last seconds", reason));
            return Ok(());
        }
        let recorder = FlightRecorder::new(length_ns, &self.settings.cpus);
        available_memory(&self.root).check("the flight record", recorder.bytes_max())?;
        self.thresholds.set_recorder(recorder);
        Ok(())
    }

    /// The worst wake-up that reached a threshold, and whether it ended the window. `None` if none reached a threshold.
    #[must_use]
    pub fn over_threshold(&self) -> Option<(&OverThreshold, bool)> {
        let worst = self.thresholds.worst_length()?;
        Some((worst, self.thresholds.ends_window()))
    }

    /// The CPUs for the observer: the configured ones, else the usable ones without a measured thread.
    fn observer_cpus(&self) -> Vec<u32> {
        if !self.settings.housekeeping.is_empty() {
            return self.settings.housekeeping.clone();
        }
        let usable = process_cpus().started_with.iter().copied();
        usable.filter(|cpu| !self.settings.cpus.contains(cpu)).collect()
    }

    /// Time between two polls: short enough for the rings.
    fn poll_interval(&self) -> Duration {
        let max = if self.observer_cpus().is_empty() { POLL_ON_MEASURED_CPU_MAX } else { POLL_MAX };
        let has_other_cpu = self.settings.waker.is_some() || self.settings.disk.is_some();
        let cpus_of_wakeup = 1 + u64::from(has_other_cpu);
        let per_period = MARKS_PER_WAKEUP * cpus_of_wakeup * self.settings.cpus.len().max(1) as u64;
        let full_ns = self.settings.period_ns.saturating_mul(MARKS_PER_POLL) / per_period;
        Duration::from_nanos(full_ns).clamp(Duration::from_millis(5), max)
    }

    /// Capacity of a thread's ring, in wake-ups.
    fn ring_records(&self) -> u64 {
        let records =
            RING_POLLS * nanoseconds(self.poll_interval()) / self.settings.period_ns.max(1);
        records.clamp(RING_RECORDS_MIN, RING_RECORDS_MAX).next_power_of_two()
    }

    /// Starts the threads. Also returns the CPUs without a thread, because they are offline. Fails if all are.
    fn start_threads(
        &self,
        probes: Option<&MarkProbes>,
    ) -> Result<(Vec<MeasuredThread>, Vec<UnmeasuredCpu>), BenchError> {
        let (mut threads, mut offline) = (Vec::new(), Vec::new());
        let ring_records = self.ring_records();
        let ring_bytes = ring_records.saturating_mul(size_of::<Record>() as u64);
        let rings_bytes = ring_bytes.saturating_mul(self.settings.cpus.len() as u64);
        available_memory(&self.root).check("the records of the threads", rings_bytes)?;
        for &cpu in &self.settings.cpus {
            let WakeupSettings { policy, wait, period_ns, waker, .. } = self.settings;
            let (ring_records, disk) = (ring_records as usize, self.settings.disk.clone());
            let config = ThreadConfig { cpu, policy, wait, period_ns, ring_records, waker, disk };
            match MeasuredThread::start(config, probes.map(MarkProbes::caller)) {
                Ok(thread) => match &thread.policy_error {
                    Some(reason) if policy.is_deadline() => {
                        return Err(refused_deadline(policy, cpu, reason));
                    }
                    _ => threads.push(thread),
                },
                Err(_) if is_leaving(&self.root, cpu) => {
                    offline.push(UnmeasuredCpu { cpu, reason: OFFLINE_BEFORE.to_owned() });
                }
                Err(error) => return Err(error),
            }
        }
        if threads.is_empty() {
            return Err(BenchError::unavailable("every CPU to measure is offline"));
        }
        Ok((threads, offline))
    }

    /// Runs one window on all CPUs. `companion` starts when the window opens.
    fn run(
        &self,
        traced: bool,
        length: Length,
        warm_up: Duration,
        watch: &mut ThresholdWatch,
        companion: &mut Option<Companion>,
    ) -> Result<WakeupSample, BenchError> {
        let probes = if traced { self.probes.as_ref() } else { None };
        let observer_cpus = self.observer_cpus();
        let (threads, unmeasured) = self.start_threads(probes)?;
        // The threads have mapped all their memory.
        let locked = LockedMemory::current();
        let lost_before = probes.map(MarkProbes::lost).transpose()?;
        let others_before = probes.map(MarkProbes::other_senders).unwrap_or_default();
        let allowed = affinity(None).ok();
        if !observer_cpus.is_empty() {
            // If this fails, the observer delays threads, like others.
            let _ = sched_setaffinity(None, &cpu_set(&observer_cpus));
        }
        let throttling = ThrottlingWindow::open(&self.root);
        let smt = SmtWatch::start(&self.root, &self.settings.cpus);
        let wall_before = WallReading::now();
        let interrupted_cpus = match &self.settings.disk {
            Some(disk) => disk.interrupted_cpus(&self.root, &self.settings.cpus),
            None => Vec::new(),
        };
        let mut observer = Observer {
            kernel_clock: probes.map(MarkProbes::kernel_clock).unwrap_or_default(),
            probes,
            schedules: schedules(
                threads.len(),
                length,
                warm_up,
                self.settings.period_ns,
                self.settings.aligned,
            ),
            threads: &threads,
            interrupted_cpus: &interrupted_cpus,
            joins: Vec::new(),
            readings: self.settings.keeps_readings.then(|| vec![Vec::new(); threads.len()]),
            stop: &self.settings.stop,
            poll: self.poll_interval(),
            ends_with_command: length == Length::Command,
            stopped_ns: None,
            watch,
            root: &self.root,
        };
        let counted_ns = observer.watch.counted_ns();
        let (has_marks, has_waker) = (probes.is_some(), self.settings.waker.is_some());
        let disk_irqs = self.settings.disk.as_ref().map(|disk| disk.irqs.as_slice());
        let outcome = observer.observe(companion, |cpu, window_ns, first_due_ns| {
            let ledger = WakeupLedger::new(self.settings.keep).with_threshold(counted_ns);
            let due_grid = DueGrid { first_due_ns, period_ns: self.settings.period_ns };
            let join = Join::new(ledger, has_marks, has_waker, window_ns, due_grid);
            join.with_disk(probes.zip(disk_irqs).map(|(probes, irqs)| {
                DiskMarks::new(cpu, probes.contexts_of_irqs(irqs), &interrupted_cpus)
            }))
        });
        let lost_observer_cpus = lost_observer_cpus(&self.root, &observer_cpus);
        if let Some(allowed) = allowed {
            let _ = sched_setaffinity(None, &allowed); // This mask was valid before the window.
        }
        let interrupted = outcome? == WaitOutcome::Stopped;
        // Wake-ups that are taken later do not end a window that is over.
        let ended_by_threshold = observer.watch.ends_window();
        let Observer { joins, readings, schedules, kernel_clock, stopped_ns, .. } = observer;
        let numbers: Vec<(u32, u32)> =
            threads.iter().map(|thread| (thread.cpu, thread.number)).collect();
        let end_ns = schedules[0].end_ns.min(stopped_ns.unwrap_or(u64::MAX)).min(monotonic_ns());
        let start_ns = kernel_clock.from_process_ns(schedules[0].window_ns);
        let lost_after = probes.map(MarkProbes::lost).transpose()?;
        let dropped: u64 = joins.iter().map(|join| join.dropped).sum();
        let lost_events =
            lost_after.zip(lost_before).map(|(after, before)| after - before + dropped);
        let mut sample = WakeupSample {
            cpus: Vec::new(),
            unmeasured,
            names: probes.map(|probes| probes.names(&self.root)).unwrap_or_default(),
            lost_events,
            events: probes.map(|_| joins.iter().map(|join| join.marks_in_window).sum()),
            window_ns: end_ns.saturating_sub(schedules[0].window_ns),
            interrupted,
            ended_by_threshold,
            ended_by_command: length == Length::Command
                && stopped_ns.is_some()
                && !interrupted
                && !ended_by_threshold,
            warnings: Vec::new(),
            cpu_warnings: Vec::new(),
            facts: Map::new(),
            flight_record: None,
            seeds: Vec::new(),
            worst_functions: None,
            absent: Vec::new(),
            wall_clock: Some(wall_before.until(WallReading::now(), kernel_clock)),
        };
        self.add_cpus(threads, joins, Times { start_ns, stopped_ns }, &mut sample)?;
        for ((cpu, thread), records) in numbers.into_iter().zip(readings.unwrap_or_default()) {
            if let Some(row) = sample.cpus.iter_mut().find(|row| row.cpu == cpu) {
                row.readings = Some(ThreadReadings { thread, records });
            }
        }
        for cpu in &mut sample.cpus {
            take_over_threshold(watch, cpu.cpu, &mut cpu.ledger, || sample.names.clone());
        }
        sample.flight_record = watch.take_recorder(kernel_clock.from_process_ns(end_ns));
        sample.facts.insert("over_threshold".to_owned(), json!(watch.worst_length().is_some()));
        throttling.report(&self.root, &mut sample.facts, &mut sample.warnings);
        smt.describe(&mut sample.facts, &mut sample.warnings);
        sample.warnings.extend(lost_observer_cpus);
        let others = probes.map(MarkProbes::other_senders).unwrap_or_default();
        sample.warnings.extend(others.since(others_before).warning());
        sample.facts.insert("window_start_monotonic_ns".to_owned(), json!(start_ns));
        if let Some(released_ns) = companion.as_ref().and_then(Companion::released_ns) {
            let after_ns = released_ns.saturating_sub(schedules[0].window_ns);
            sample.facts.insert("command_started_after_ns".to_owned(), json!(after_ns));
        }
        if let Err(error) = &locked.result {
            sample.warnings.push(format!(
                "locking the memory failed: {error}; page faults may delay the threads (allow it with \
                 ulimit -l unlimited)"
            ));
        }
        Ok(sample)
    }

    /// Waits for the threads, and adds their results to the sample.
    fn add_cpus(
        &self,
        threads: Vec<MeasuredThread>,
        joins: Vec<Join>,
        Times { start_ns, stopped_ns }: Times,
        sample: &mut WakeupSample,
    ) -> Result<(), BenchError> {
        for (thread, join) in threads.into_iter().zip(joins) {
            let cpu = thread.cpu;
            if let Some(error) = &thread.policy_error {
                let facts = host_facts(&self.root);
                let remedy = setcap_line_for(&facts, &["cap_sys_nice"]);
                let problem = format!(
                    "{} is refused ({error}): the thread ran under SCHED_OTHER (allow it: {remedy})",
                    self.settings.policy
                );
                sample.cpu_warnings.push(CpuWarning::new(cpu, &problem));
            }
            let policy = thread.policy;
            let waker_cpu = thread.waker.as_ref().map(|waker| waker.cpu);
            if let Some(waker) = &thread.waker {
                sample.facts.insert("waker_scheduler".to_owned(), json!(waker.policy.to_string()));
                if let Some(error) = &waker.policy_error {
                    let problem =
                        format!("the waker's scheduling class is refused ({error}): SCHED_OTHER");
                    sample.cpu_warnings.push(CpuWarning::new(cpu, &problem));
                }
            }
            let (ring, outcome) = thread.join(stopped_ns)?;
            let waker_left = outcome.waker.is_some_and(|waker| waker.has_left);
            if outcome.waker.is_some_and(|waker| !waker.is_pinned) {
                let reason = if waker_left { WAKER_LEFT } else { WAKER_MOVED };
                sample.cpu_warnings.push(CpuWarning::new(cpu, reason));
            }
            if ring.is_starved() {
                self.settings.stop.request();
                sample.interrupted = true;
                sample.cpu_warnings.push(CpuWarning::new(cpu, STARVED));
            }
            if outcome.stay == Stay::Unknown {
                sample.unmeasured.push(UnmeasuredCpu { cpu, reason: LEFT_UNNOTICED.to_owned() });
                continue;
            }
            let left = outcome.stay == Stay::UntilItLeft;
            if left {
                let reason = if is_leaving(&self.root, cpu) { WENT_OFFLINE } else { MOVED };
                sample.cpu_warnings.push(CpuWarning::new(cpu, reason));
            }
            sample.facts.insert(keys::SCHEDULER.to_owned(), json!(policy.to_string()));
            sample.facts.insert("timer_slack_ns".to_owned(), json!(outcome.timer_slack_ns));
            sample.cpus.push(CpuWakeups {
                cpu,
                start_ns,
                ledger: join.into_ledger(),
                missed: outcome.missed,
                waker: waker_cpu.map(|cpu| WakerCounts {
                    cpu,
                    missed: outcome.waker_missed,
                    not_asleep: outcome.not_asleep,
                }),
                disk: self
                    .settings
                    .disk
                    .as_ref()
                    .map(|_| DiskCounts { not_asleep: outcome.not_asleep }),
                lost: ring.lost(),
                page_faults: outcome.counts.map(|counts| counts.page_faults),
                left: left || outcome.waker.is_some_and(|waker| !waker.is_pinned),
                readings: None,
            });
        }
        Ok(())
    }

    /// The length of a part of the comparison.
    fn part(&self, parts: u32) -> Duration {
        let window = match self.settings.length {
            Length::Time(time) => time,
            Length::Command => COMPARED_WITH_COMMAND,
        };
        (window.min(COMPARED_MAX) / parts.max(1)).max(self.shortest_part())
    }

    /// The warm-up of a part of the comparison.
    fn part_warm_up(&self) -> Duration {
        self.settings.warm_up.min(PART_WARM_UP_MAX)
    }

    /// The shortest part whose median is of use.
    fn shortest_part(&self) -> Duration {
        Duration::from_nanos(self.settings.period_ns) * PART_PERIODS_MIN
    }
}

/// Times of a window.
#[derive(Clone, Copy)]
struct Times {
    /// When the window opened, by the kernel's clock, ns.
    start_ns: u64,
    /// When a request to stop ended the window, by the process's clock, ns. `None`: no request did.
    stopped_ns: Option<u64>,
}

/// Reads the records of the threads and the marks of their CPUs until all threads have ended.
struct Observer<'a> {
    kernel_clock: KernelClock,
    probes: Option<&'a MarkProbes>,
    threads: &'a [MeasuredThread],
    /// CPUs to which the interrupts of the disk that wakes the threads may come. Empty without a disk.
    interrupted_cpus: &'a [u32],
    schedules: Vec<Schedule>,
    joins: Vec<Join>,
    /// Due time, time of the reading and time-stamp counter of all wake-ups of each thread. `None`: they are not kept.
    readings: Option<Vec<Vec<[u64; 3]>>>,
    stop: &'a Stop,
    poll: Duration,
    /// Whether the end of the command ends the window.
    ends_with_command: bool,
    /// When the threads were stopped before their end.
    stopped_ns: Option<u64>,
    watch: &'a mut ThresholdWatch,
    root: &'a Root,
}

/// Takes from `ledger` the wake-up with the longest delay of those that reached the threshold since the last call, and
/// passes it to `watch`. `names` returns the names of contexts and tasks; called only if `watch` wants the cause.
fn take_over_threshold(
    watch: &mut ThresholdWatch,
    cpu: u32,
    ledger: &mut WakeupLedger,
    names: impl FnOnce() -> Vec<ContextName>,
) {
    let Some(longest) = ledger.over_threshold.take_longest() else { return };
    watch.take(cpu, &longest, |part| cause_in_words(*part, &names()));
}

/// Adds how the concurrent command ended to the sample of its window. `ended`: its status if it ended by itself.
fn describe_command(ended: Option<ExitStatus>, length: Length, sample: &mut WakeupSample) {
    let status_text = ended.map(|status| status.to_string());
    sample.facts.insert(keys::COMMAND_ENDED.to_owned(), json!(status_text));
    // After an early end of the window, the command may have ended later.
    let Some(status) = ended.filter(|_| !sample.ended_by_threshold && !sample.interrupted) else {
        return;
    };
    if length != Length::Command {
        sample.warnings.push(format!(
            "the command ended by itself before the window did ({status}): the rest of the window ran without it"
        ));
    } else if !status.success() {
        sample.warnings.push(format!("the command failed: {status}"));
    }
}

impl Observer<'_> {
    /// Lets the threads run. Stops them if the user asks for it, or at the end of the command that ends the window.
    ///
    /// Fails if the kernel refuses to deliver the marks, or the command cannot be executed.
    fn observe(
        &mut self,
        companion: &mut Option<Companion>,
        join: impl Fn(u32, u64, u64) -> Join,
    ) -> Result<WaitOutcome, BenchError> {
        let kernel_ns = |process_ns| self.kernel_clock.from_process_ns(process_ns);
        let join = |(thread, schedule): (&MeasuredThread, &Schedule)| {
            join(thread.cpu, kernel_ns(schedule.window_ns), kernel_ns(schedule.first_due_ns))
        };
        self.joins = self.threads.iter().zip(&self.schedules).map(join).collect();
        if let Some(probes) = self.probes {
            probes.take()?; // Discards the marks of an earlier window.
            drop(probes.take_chains());
            for cpu in self.other_cpus() {
                probes.announce(cpu, NO_THREAD)?;
            }
            for thread in self.threads {
                probes.announce(thread.cpu, thread.number)?;
                probes.announce_sleeper(thread.cpu, thread.number)?;
            }
        }
        self.extend_watchdog();
        for (thread, schedule) in self.threads.iter().zip(&self.schedules) {
            thread.begin(*schedule);
        }
        let ended = self.until_all_threads_end(companion);
        if ended.is_err() {
            self.stop_threads();
            while self.threads.iter().any(|thread| !thread.is_over()) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let Some(probes) = self.probes {
            for cpu in self.other_cpus() {
                probes.announce(cpu, 0)?;
            }
            for thread in self.threads {
                probes.announce(thread.cpu, 0)?;
                probes.forget_sleeper(thread.number)?;
            }
        }
        // The marks of the last wake-ups may be on their way.
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(5));
            self.poll_once()?;
        }
        ended
    }

    /// The CPU of all wakers. `None` without wakers.
    fn waker_cpu(&self) -> Option<u32> {
        self.threads.iter().find_map(|thread| Some(thread.waker.as_ref()?.cpu))
    }

    /// CPUs whose events are recorded for a waker or a disk. A CPU of a thread may be among them.
    fn other_cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.waker_cpu().into_iter().chain(self.interrupted_cpus.iter().copied())
    }

    /// Ends the window. A thread that does not see this request yet is before the end of the window.
    fn stop_threads(&mut self) {
        self.threads.iter().for_each(|thread| thread.ring.stop());
        fence(Ordering::SeqCst);
        self.stopped_ns.get_or_insert_with(monotonic_ns);
    }

    /// The threads end if the observer does not call this for [`WATCHDOG_NS`]: they may leave it no CPU time.
    fn extend_watchdog(&self) {
        let until_ns = monotonic_ns().saturating_add(WATCHDOG_NS);
        self.threads.iter().for_each(|thread| thread.ring.run_until(until_ns));
    }

    /// Polls the rings until all threads have ended. Releases the command when the window opens. The end of the command
    /// ends the window if `ends_with_command`; a request to stop and a starved ring end it, too, and make the outcome
    /// [`WaitOutcome::Stopped`]. Each round extends the watchdog.
    fn until_all_threads_end(
        &mut self,
        companion: &mut Option<Companion>,
    ) -> Result<WaitOutcome, BenchError> {
        let mut outcome = WaitOutcome::Completed;
        while self.threads.iter().any(|thread| !thread.is_over()) {
            let is_held = companion.as_ref().is_some_and(Companion::is_held);
            let opens_in_ns = self.schedules[0].window_ns.saturating_sub(monotonic_ns());
            let ends_in_ns = self.schedules[0].end_ns.saturating_sub(monotonic_ns());
            let mut pause = self.poll.min(Duration::from_nanos(ends_in_ns));
            if is_held {
                pause = pause.min(Duration::from_nanos(opens_in_ns));
            }
            if self.stopped_ns.is_some() {
                // After a request to stop, `wait` would return at once.
                std::thread::sleep(AFTER_STOP);
            } else {
                let deadline = Some(Instant::now() + pause.max(Duration::from_millis(1)));
                let command = companion.as_ref().filter(|_| self.ends_with_command);
                let command = command.and_then(Companion::running);
                if wait(deadline, command, self.stop) == WaitOutcome::Stopped
                    || self.threads.iter().any(|thread| thread.ring.is_starved())
                {
                    outcome = WaitOutcome::Stopped;
                    self.stop_threads();
                } else {
                    self.extend_watchdog();
                }
            }
            if is_held && opens_in_ns <= 1_000_000 && self.stopped_ns.is_none() {
                *companion = companion.take().map(Companion::released);
            }
            if let Some(companion) = companion
                && companion.status()?.is_some()
                && self.ends_with_command
            {
                self.stop_threads();
            }
            if self.stopped_ns.is_some() || self.threads.iter().all(MeasuredThread::is_over) {
                self.watch.note_end_of_window();
            }
            self.poll_once()?;
        }
        self.watch.note_end_of_window();
        Ok(outcome)
    }

    /// Passes all new records and marks to the joins. Reads first which threads have ended, then records, then marks: in
    /// this order no mark of a record is missed.
    fn poll_once(&mut self) -> Result<(), BenchError> {
        let mut readings = self.readings.take();
        let mut drained = |(number, thread): (usize, &MeasuredThread)| {
            let mut wakeups = Vec::new();
            thread.ring.drain(|[due, woke, counter]| {
                // A thread that is stopped wakes up once more.
                if self.stopped_ns.is_some_and(|stopped_ns| due >= stopped_ns) {
                    return;
                }
                let [due_ns, woke_ns] = [due, woke].map(|ns| self.kernel_clock.from_process_ns(ns));
                wakeups.push(Wakeup { due_ns, woke_ns });
                if let Some(readings) = &mut readings {
                    readings[number].push([due_ns, woke_ns, counter]);
                }
            });
            wakeups
        };
        let over: Vec<bool> = self.threads.iter().map(MeasuredThread::is_over).collect();
        let new_wakeups: Vec<Vec<Wakeup>> =
            self.threads.iter().enumerate().map(&mut drained).collect();
        self.readings = readings;
        let marks = self.probes.map(MarkProbes::take).transpose()?.unwrap_or_default();
        let chains = self.probes.map(MarkProbes::take_chains).unwrap_or_default();
        self.watch.record(&marks);
        let waker_cpu = self.waker_cpu();
        let threads = self.threads.iter().zip(over);
        for (((thread, is_over), join), wakeups) in threads.zip(&mut self.joins).zip(new_wakeups) {
            let of_waker = marks.iter().filter(|(cpu, _)| Some(*cpu) == waker_cpu);
            join.take_waker_marks(of_waker.map(|(_, mark)| *mark));
            join.take_disk_marks(&marks);
            let chains_of_cpu = chains.iter().filter(|(cpu, _)| *cpu == thread.cpu);
            join.take_chains(chains_of_cpu.map(|(_, chain)| chain.clone()));
            let of_cpu = marks.iter().filter(|(cpu, _)| *cpu == thread.cpu);
            join.advance(of_cpu.map(|(_, mark)| *mark), wakeups, is_over);
            let names = || self.probes.map(|probes| probes.names(self.root)).unwrap_or_default();
            take_over_threshold(self.watch, thread.cpu, &mut join.ledger, names);
        }
        if self.watch.ends_window() {
            self.stop_threads();
        }
        Ok(())
    }
}

impl Bench for LiveWakeup {
    fn facts(&self) -> BenchFacts {
        let mut settings = Map::new();
        let observer_cpus = self.observer_cpus();
        settings.insert("cpus".into(), json!(self.settings.cpus));
        settings.insert("observer_cpus".into(), json!(format_cpu_list(&observer_cpus)));
        let waker_cpu = self.settings.waker.map(|waker| waker.cpu);
        settings.insert("waker_cpus".into(), json!(waker_cpu.map(|cpu| format_cpu_list(&[cpu]))));
        if let Some(disk) = &self.settings.disk {
            settings.insert("disk".into(), json!(disk.place));
            settings.insert("disk_irqs".into(), json!(disk.irqs));
        }
        if let Some(probes) = &self.probes {
            probes.kernel_clock().describe(&mut settings);
        }
        let effect = "and may delay the measured threads";
        let mut warnings = Vec::new();
        warnings.extend(shared_cpus_warning(&self.settings.cpus, &observer_cpus, effect));
        warnings.extend(self.settings.waker.and_then(|waker| {
            shared_waker_warning(&self.settings.cpus, waker.cpu, &waker.policy.to_string())
        }));
        BenchFacts {
            bench: "live".to_owned(),
            settings,
            observer: Map::new(),
            absent: self.absent.clone(),
            warnings,
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }

    fn expected_step(&self) -> Option<Duration> {
        match self.settings.length {
            Length::Time(time) => Some(time + self.settings.warm_up),
            Length::Command => None,
        }
    }
}

impl WakeupBench for LiveWakeup {
    fn sees_events(&self) -> bool {
        self.probes.is_some()
    }

    fn measure(&mut self, traced: bool) -> Result<WakeupSample, BenchError> {
        let mut companion = self.companion.take();
        let (length, warm_up) = (self.settings.length, self.settings.warm_up);
        let mut watch = std::mem::take(&mut self.thresholds);
        let sample = self.run(traced, length, warm_up, &mut watch, &mut companion);
        let ended = companion.as_mut().map(Companion::status).transpose();
        self.companion = companion;
        self.thresholds = watch;
        let mut sample = sample?;
        if let Some(status) = ended? {
            describe_command(status, length, &mut sample);
            self.command_ended = status;
        }
        self.thresholds.act_after_window();
        Ok(sample)
    }

    fn can_measure_parts(&self, parts: u32) -> Result<(), String> {
        if self.settings.disk.is_some() {
            return Err(
                "the lateness begins with an event of the probes, so it has no figure without them"
                    .to_owned(),
            );
        }
        let shortest = self.shortest_part() * parts;
        if shortest <= COMPARED_MAX {
            return Ok(());
        }
        let [shortest_s, max_s] = [shortest, COMPARED_MAX].map(|time| time.as_secs_f64());
        Err(format!(
            "{parts} windows of {PART_PERIODS_MIN} periods take {shortest_s} s, more than {max_s} s"
        ))
    }

    fn expected_part(&self, parts: u32) -> Option<Duration> {
        Some(self.part(parts) + self.part_warm_up())
    }

    fn measure_part(&mut self, traced: bool, parts: u32) -> Result<WakeupSample, BenchError> {
        let warm_up = self.part_warm_up();
        let length = Length::Time(self.part(parts));
        self.run(traced, length, warm_up, &mut ThresholdWatch::default(), &mut None)
    }
}
