//! [`LiveNoise`]: this machine as a bench for the experiment `noise`. `lab::noise` calls [`NoiseBench::measure`] for
//! each loop, and [`NoiseBench::measure_part`] to compare the loop with and without probes.
//!
//! The calling thread is the *observer*: while the loops run, it leaves their CPUs if it can, and reads their records.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use lab::cpu_warnings::CpuWarning;
use lab::cpus::UnmeasuredCpu;
use lab::experiment::Absence;
use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::flight_recorder::FlightRecorder;
use lab::flight_table;
use lab::keys;
use lab::noise::{
    AttributionParameters, ContextName, CpuNoise, GapLedger, Loop, NoiseBench, NoiseSample, Traced,
    Visibility,
};
use rustix::thread::sched_setaffinity;
use serde_json::{Map, json};

use super::body::memory_bytes;
use super::concurrent::concurrent_activity;
use super::entry_latency::entry_latency_ns;
use super::external_counts::ExternalCounts;
use super::join::Join;
use super::loops::{LoopConfig, LoopOutcome, detour_resolution};
use super::runner::{PollSchedule, Runner, RunnerConfig, Stay, collect};
use super::settings::NoiseSettings;
use crate::clock::{
    ClockMap, ClockResolution, ClockState, CoreClock, KernelClock, Reading, WallReading,
    disagreement, suspended_ns, suspension,
};
use crate::companion::Companion;
use crate::footprint::tick::tick_ns;
use crate::host::{
    Root, SmtWatch, available_memory, format_cpu_list, is_leaving, online_cpus, process_cpus,
    smi_count, steal_facts,
};
use crate::marks::{MarkProbes, Scope};
use crate::threads::{LockedMemory, affinity, cpu_set, lost_observer_cpus, shared_cpus_warning};
use crate::threshold::{OverThreshold, ThresholdWatch};
use crate::window::{ThrottlingWindow, WaitOutcome};

/// The default threshold, if the clock's resolution allows it.
pub(super) const THRESHOLD_NS: u64 = 100;
/// A window ends if the observer gets no CPU time for this long. The observer polls at least once a second, and a
/// throttled real-time loop leaves it CPU time once a second (sched_rt_period_us).
const WATCHDOG_NS: u64 = 10_000_000_000;
/// The warning about a window that ended because the observer got no CPU time.
const STARVED: &str = "the run was ended: irqlab's own thread, which reads the loop's records, got no time for \
                       10 s (leave it a CPU with -c or -H; --fifo takes all time of a CPU)";
/// Longest total time of the comparison of the loop with and without probes.
const COMPARED_NS_MAX: u64 = 60_000_000_000;
/// Shortest time of a part of this comparison.
const PART_NS_MIN: u64 = 10_000_000;
/// Time between two polls for the end of a window, after its planned end.
const POLL_PERIOD_AFTER_END: Duration = Duration::from_millis(20);
/// Reasons why a loop ended early.
const WENT_OFFLINE: &str = "went offline in the window: measured until then";
const MOVED: &str = "the kernel moved the loop to another CPU (did this one go offline for a while?): measured until \
                     then";
/// Reasons why a CPU has no loop, or a loop whose records are not used.
const OFFLINE_BEFORE: &str = "it was offline when the window opened";
const LEFT_UNNOTICED: &str = "the kernel let the loop's thread leave the CPU before the window opened, or for a \
                              while (did it go offline?)";
/// Kind of the warning about a loop whose threshold is above the bench's.
const THRESHOLD_RAISED: &str = "the loop has a longer threshold than the run, two of its iterations: shorter \
                                detours are not recorded there";
/// Longest warm-up of a part of the comparison of the loop with and without probes.
const PART_WARM_UP_MAX: Duration = Duration::from_millis(10);

/// This machine as a bench that runs loops.
pub struct LiveNoise {
    settings: NoiseSettings,
    clock: ClockResolution,
    /// Length of the shortest gap that counts as a detour.
    threshold_ns: u64,
    /// `None` if no marks are recorded.
    probes: Option<MarkProbes>,
    /// The kernel entry latency; `None` if it was not measured.
    entry_latency_ns: Option<u64>,
    /// The user's command that runs concurrently with the loops.
    companion: Option<Companion>,
    /// The status of the command, if it ended by itself before the last window did.
    command_ended: Option<ExitStatus>,
    thresholds: ThresholdWatch,
    root: Root,
    absent: Vec<Absence>,
    warnings: Vec<String>,
}

impl LiveNoise {
    /// Measures the clock, loads the probes, measures the kernel entry latency, and prepares the command.
    ///
    /// Fails with [`BenchError::NothingMeasurable`] on a processor without a time-stamp counter, and if real-time loops
    /// would leave the observer no CPU time.
    pub fn new(settings: NoiseSettings) -> Result<Self, BenchError> {
        let cpu = settings.cpus.first().copied().unwrap_or(0);
        let clock = detour_resolution(cpu).map_err(|error| BenchError::Unavailable {
            reason: error.to_string(),
            remedy: (error.kind() != io::ErrorKind::WouldBlock)
                .then(|| "-c with CPUs of this process's cpuset".to_owned()),
        })?;
        let clock = clock.ok_or_else(|| BenchError::NothingMeasurable {
            reason: "the loops need a time-stamp counter, which this processor does not have"
                .to_owned(),
            remedy: None,
        })?;
        let threshold_ns =
            settings.threshold_ns.unwrap_or(THRESHOLD_NS.max(clock.threshold_ns_min()));
        let mut bench = LiveNoise {
            settings,
            clock,
            threshold_ns,
            probes: None,
            entry_latency_ns: None,
            companion: None,
            command_ended: None,
            thresholds: ThresholdWatch::default(),
            root: Root::default(),
            absent: Vec::new(),
            warnings: Vec::new(),
        };
        if bench.settings.fifo.is_some()
            && starves(&bench.root, &bench.settings.cpus, &bench.observer_cpus())
        {
            return Err(BenchError::NothingMeasurable {
                reason: "real-time loops on all CPUs on which irqlab's own thread may run, and a \
                         kernel that never takes one off (kernel.sched_rt_runtime_us = -1): that \
                         thread, and Ctrl-C, would get no time until the end"
                    .to_owned(),
                remedy: Some(
                    "leave a CPU free with -c, or sysctl -w kernel.sched_rt_runtime_us=950000"
                        .to_owned(),
                ),
            });
        }
        let body_bytes = memory_bytes(bench.settings.body, bench.settings.cache_bytes);
        let body_bytes = body_bytes.saturating_mul(bench.settings.cpus.len() as u64);
        available_memory(&bench.root).check("the memory of the loops' body", body_bytes)?;
        if bench.settings.trace {
            bench.load_probes(cpu)?;
        }
        bench.warn_about_throttling();
        bench.warn_about_slow_reading(cpu);
        if let Some(reason) = steal_facts(&bench.root).unreported {
            bench.absent.push(Absence::new("noise", "stolen time", reason));
        }
        if let Err(reason) = smi_count(&bench.root, cpu) {
            let counts = "counts of system management interrupts";
            bench.absent.push(Absence::new("noise", counts, reason));
        }
        if !bench.settings.command.is_empty() {
            let (words, to_stderr) = (&bench.settings.command, bench.settings.command_to_stderr);
            bench.companion = Some(Companion::hold(words, to_stderr)?);
        }
        Ok(bench)
    }

    /// Ends the command that ran concurrently with the loops. Returns its status if it had ended by itself
    /// before the last window did.
    ///
    /// Fails if the program could not be executed, or the kernel does not report the status.
    pub fn end_command(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        self.companion.take().map_or(Ok(None), Companion::end)?;
        Ok(self.command_ended)
    }

    /// Sets the thresholds of the detours in the next windows, and the actions.
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

    /// The longest detour that reached a threshold, and whether it ended the window. `None` if none reached a threshold.
    #[must_use]
    pub fn over_threshold(&self) -> Option<(&OverThreshold, bool)> {
        let worst = self.thresholds.worst_length()?;
        Some((worst, self.thresholds.ends_window()))
    }

    /// The minimum threshold that this clock allows, ns, if the requested threshold is below it. `None` if it is not.
    #[must_use]
    pub fn threshold_too_low(&self) -> Option<u64> {
        let min_ns = self.clock.threshold_ns_min();
        (self.threshold_ns < min_ns).then_some(min_ns)
    }

    /// Loads the probes, and measures the kernel entry latency on `cpu`. If the probes cannot be loaded, the loops run
    /// without them, and the causes of detours are absent. If too few page faults are seen, the latency is unknown.
    ///
    /// Fails if the kernel refuses to deliver the marks of loaded probes.
    fn load_probes(&mut self, cpu: u32) -> Result<(), BenchError> {
        match MarkProbes::load_for(Scope::Interruptions, self.settings.senders) {
            Ok(probes) => {
                for (context, reason) in &probes.absent {
                    self.absent.push(Absence::new("causes", context, reason));
                }
                for (senders, reason) in &probes.absent_senders {
                    self.absent.push(Absence::new("causes", senders, reason));
                }
                self.entry_latency_ns = entry_latency_ns(&probes, cpu)?;
                if self.entry_latency_ns.is_none() {
                    self.warnings.push(
                        "measuring the kernel entry latency failed: too few page faults were seen; time \
                         in kernel entry and exit counts as unattributed and as remainder"
                            .to_owned(),
                    );
                }
                self.probes = Some(probes);
            }
            Err(error) => {
                let error = BenchError::from(error);
                self.absent.push(error.absence("causes", "the kernel's activity during the loop"));
            }
        }
        Ok(())
    }

    /// Warns that the kernel throttles a real-time loop, which never sleeps.
    fn warn_about_throttling(&mut self) {
        if self.settings.fifo.is_none() {
            return;
        }
        let [runtime, period] = ["sched_rt_runtime_us", "sched_rt_period_us"]
            .map(|name| kernel_number(&self.root, name));
        if let (Some(runtime), Some(period)) = (runtime, period)
            && (0..period).contains(&runtime)
        {
            let taken = period - runtime;
            self.warnings.push(format!(
                "--fifo: the kernel takes a real-time loop off its CPU for up to {taken} us of each \
                 {period} us, so that other tasks can run (kernel.sched_rt_runtime_us = {runtime}): \
                 --fifo itself causes these detours. -1 removes them, and then no other task runs on \
                 that CPU"
            ));
        }
    }

    /// Warns if the default threshold is longer than usual, because a reading of the clock took long on `cpu`.
    fn warn_about_slow_reading(&mut self, cpu: u32) {
        if self.settings.threshold_ns.is_none() && self.threshold_ns > THRESHOLD_NS {
            self.warnings.push(format!(
                "detours of {THRESHOLD_NS} to {} ns are not recorded: an iteration of the loop that reads the clock takes \
                 {} ns on CPU {cpu}, so the threshold is longer than usual. If the CPU is busy, measure again",
                self.threshold_ns,
                self.clock.iteration_ns()
            ));
        }
    }

    fn loop_config(&self, looping: Loop, cpu: u32, window_ns: u64) -> LoopConfig {
        let window_cycles = match self.settings.length {
            super::Length::Time(_) => self.clock.cycles(window_ns),
            // FWQ and FTQ end after their number of quanta or slots, whatever the time.
            super::Length::Repetitions(_) if looping != Loop::Detour => u64::MAX,
            super::Length::Repetitions(_) => self.clock.cycles(window_ns),
        };
        LoopConfig {
            looping,
            cpu,
            window_cycles,
            repetitions: self.settings.repetitions(),
            quantum_cycles: self.clock.cycles(self.settings.quantum_ns).max(1),
            threshold_cycles: self.clock.cycles(self.threshold_ns),
            iteration_cycles: self.clock.iteration_cycles,
        }
    }

    /// The CPUs for the observer: the configured ones, else the usable ones without a loop. Empty if there are none.
    fn observer_cpus(&self) -> Vec<u32> {
        if !self.settings.housekeeping.is_empty() {
            return self.settings.housekeeping.clone();
        }
        let usable = process_cpus().started_with.iter().copied();
        usable.filter(|cpu| !self.settings.cpus.contains(cpu)).collect()
    }

    /// The window of one of `parts` parts of the comparison, ns, and its warm-up.
    fn part(&self, parts: u32) -> (u64, Duration) {
        let total_ns = self.settings.window_ns().min(COMPARED_NS_MAX);
        let window_ns = (total_ns / u64::from(parts.max(1))).max(PART_NS_MIN);
        (window_ns, self.settings.warm_up.min(PART_WARM_UP_MAX))
    }

    fn poll_schedule(
        &self,
        has_observer_cpu: bool,
        window_ns: u64,
        warm_up: Duration,
    ) -> PollSchedule {
        // On a loop's CPU the observer causes noise, so it polls rarely.
        let period_ms = if has_observer_cpu { 100 } else { 1000 };
        PollSchedule {
            expected: Duration::from_nanos(window_ns) + warm_up,
            warm_up,
            period: Duration::from_millis(period_ms),
            period_after_end: POLL_PERIOD_AFTER_END,
            watchdog_cycles: self.clock.cycles(WATCHDOG_NS),
            stop: self.settings.stop.clone(),
        }
    }

    /// Starts the loops' threads. Also returns the CPUs without a loop, because they are offline. Fails if all are.
    fn runners(
        &self,
        looping: Loop,
        window_ns: u64,
        warm_up: Duration,
        probes: Option<&MarkProbes>,
    ) -> Result<(Vec<Runner>, Vec<UnmeasuredCpu>), BenchError> {
        let start = |cpu: u32| {
            let config = RunnerConfig {
                loop_config: self.loop_config(looping, cpu, window_ns),
                body: self.settings.body,
                cache_bytes: self.settings.cache_bytes,
                warm_up_cycles: self.clock.cycles(warm_up.as_nanos() as u64),
                fifo: self.settings.fifo,
                times_core: true,
            };
            Runner::start(config, probes.map(MarkProbes::caller))
        };
        let (mut runners, mut offline) = (Vec::new(), Vec::new());
        for &cpu in &self.settings.cpus {
            match start(cpu) {
                Ok(runner) => runners.push(runner),
                Err(_) if is_leaving(&self.root, cpu) => {
                    offline.push(UnmeasuredCpu { cpu, reason: OFFLINE_BEFORE.to_owned() });
                }
                Err(error) => return Err(error),
            }
        }
        if runners.is_empty() {
            let reason = "every CPU to measure is offline".to_owned();
            return Err(BenchError::unavailable(reason));
        }
        Ok((runners, offline))
    }

    /// A join for each runner. `has_marks`: marks are recorded in the window. `counted_ns`: detours of this
    /// length are over the threshold.
    fn joins(
        &self,
        looping: Loop,
        has_marks: bool,
        counted_ns: Option<u64>,
        runners: &[Runner],
    ) -> Vec<Join> {
        let parameters =
            AttributionParameters { entry_latency_ns: self.entry_latency_ns.unwrap_or(0) };
        let expected_quanta = self.settings.window_ns() / self.settings.quantum_ns.max(1);
        let join = |runner: &Runner| {
            let ledger = GapLedger::new(parameters, self.settings.keep.on_cpu(runner.cpu))
                .with_threshold(counted_ns);
            Join::new(looping, has_marks, parameters, ledger, expected_quanta)
        };
        runners.iter().map(join).collect()
    }

    /// Runs one window of a loop on all CPUs, and returns its sample. `traced`: with the probes' marks. `companion`
    /// starts when all loops run.
    ///
    /// The external counts are read directly before and after the window, outside of it.
    fn run(
        &self,
        looping: Loop,
        traced: bool,
        window_ns: u64,
        warm_up: Duration,
        companion: &mut Option<Companion>,
        watch: &mut ThresholdWatch,
    ) -> Result<NoiseSample, BenchError> {
        let status = companion.as_mut().map(Companion::status).transpose()?;
        let command_had_ended = status.flatten().is_some();
        let probes = if traced { self.probes.as_ref() } else { None };
        let observer_cpus = self.observer_cpus();
        let (runners, unmeasured) = self.runners(looping, window_ns, warm_up, probes)?;
        // The runners have mapped all memory of the loops.
        let locked = LockedMemory::current();
        let mut joins = self.joins(looping, probes.is_some(), watch.counted_ns(), &runners);
        let kernel_clock = probes.map(MarkProbes::kernel_clock).unwrap_or_default();
        let mut clocks = ClockMap::new(kernel_clock);
        let before = ExternalCounts::now(&self.root, &self.settings.cpus, probes)?;
        let allowed = affinity(None).ok();
        if !observer_cpus.is_empty() {
            // If this fails, the observer is a source of noise, like others.
            let _ = sched_setaffinity(None, &cpu_set(&observer_cpus));
        }
        let throttling = ThrottlingWindow::open(&self.root);
        let smt = SmtWatch::start(&self.root, &self.settings.cpus);
        let clock_before = ClockState::now(self.clock.hz);
        let (suspended_before_ns, counter_before) = (suspended_ns(), Reading::now());
        let wall_before = WallReading::now();
        let schedule = self.poll_schedule(!observer_cpus.is_empty(), window_ns, warm_up);
        let outcome =
            collect(&runners, &mut joins, &mut clocks, probes, &schedule, companion, watch);
        let lost_observer_cpus = lost_observer_cpus(&self.root, &observer_cpus);
        if let Some(allowed) = allowed {
            let _ = sched_setaffinity(None, &allowed); // This mask was valid before the window.
        }
        let is_interrupted = outcome? == WaitOutcome::Stopped;
        let after = ExternalCounts::now(&self.root, &self.settings.cpus, probes)?;
        let clock_after = ClockState::now(self.clock.hz);
        let window_hz = counter_before.and_then(Reading::frequency_so_far_hz);
        let stopped_clock = suspension(suspended_before_ns, suspended_ns())
            .or_else(|| disagreement(self.clock.hz, window_hz?));
        let mut sample = self.sample(looping, runners, joins, &clocks, (&before, &after))?;
        throttling.report(&self.root, &mut sample.facts, &mut sample.warnings);
        smt.describe(&mut sample.facts, &mut sample.warnings);
        sample.unmeasured.splice(..0, unmeasured);
        sample.warnings.extend(lost_observer_cpus);
        sample.warnings.extend(stopped_clock.map(|reason| {
            format!("times of detours, and of what caused them, do not fit the window's: {reason}")
        }));
        if let Some(companion) = companion {
            describe_command(companion, command_had_ended, kernel_clock, &mut sample)?;
        }
        add_clock(&mut sample, clock_before.zip(clock_after));
        sample.wall_clock = Some(wall_before.until(WallReading::now(), kernel_clock));
        sample.interrupted = is_interrupted;
        sample.ended_by_threshold = watch.ends_window();
        let ends_ns = sample.cpus.iter().map(|cpu| cpu.start_ns.saturating_add(cpu.window_ns));
        sample.flight_record = watch.take_recorder(ends_ns.max().unwrap_or(0));
        if watch.counted_ns().is_some() {
            sample.facts.insert("over_threshold".to_owned(), json!(watch.worst_length().is_some()));
        }
        if let Err(error) = &locked.result {
            sample.warnings.push(format!(
                "locking the memory failed: {error}; page faults may interrupt the loops (allow it with \
                 ulimit -l unlimited)"
            ));
        }
        Ok(sample)
    }

    /// The relative error of the time-stamp counter's frequency in a loop's window. `window_ns`: the window's
    /// length by the kernel's clock.
    fn counter_error(&self, outcome: &LoopOutcome, window_ns: u64) -> f64 {
        let counter_ns = outcome.end.saturating_sub(outcome.start) as f64 * 1e9 / self.clock.hz;
        (counter_ns / window_ns.max(1) as f64 - 1.0).abs()
    }

    /// Waits for the loops' threads, and makes the sample of a window.
    fn sample(
        &self,
        looping: Loop,
        runners: Vec<Runner>,
        joins: Vec<Join>,
        clocks: &ClockMap,
        (before, after): (&ExternalCounts, &ExternalCounts),
    ) -> Result<NoiseSample, BenchError> {
        let (mut cpus, mut facts, mut warnings) = (Vec::new(), Map::new(), Vec::new());
        let mut cpu_warnings = Vec::new();
        let mut unmeasured = Vec::new();
        let mut counter_error = 0.0_f64;
        let mut activity = Vec::new();
        let lost = after.lost.unwrap_or(0).saturating_sub(before.lost.unwrap_or(0));
        let mut traced = Traced { lost, ..Traced::default() };
        let probes = if after.lost.is_some() { self.probes.as_ref() } else { None };
        let names = probes.map(|probes| probes.names(&self.root)).unwrap_or_default();
        for (runner, mut join) in runners.into_iter().zip(joins) {
            let cpu = runner.cpu;
            let (ring, ran) = runner.join()?;
            if ring.is_starved() {
                // The observer would starve in the next window, too.
                self.settings.stop.request();
                cpu_warnings.push(CpuWarning::new(cpu, STARVED));
            }
            if ran.stay == Stay::Unknown {
                unmeasured.push(UnmeasuredCpu { cpu, reason: LEFT_UNNOTICED.to_owned() });
                continue;
            }
            let start_ns = join.start_ns.or_else(|| clocks.ns_at(ran.outcome.start)).unwrap_or(0);
            let end_ns = clocks.ns_at(ran.outcome.end).unwrap_or(0);
            let window_ns = end_ns.saturating_sub(start_ns);
            let slot_cycles = ran.loop_config.quantum_cycles;
            let window_cycles = ran.outcome.end.saturating_sub(ran.outcome.start);
            join.finish(
                end_ns,
                window_cycles / slot_cycles,
                slot_cycles as f64 * 1e9 / self.clock.hz,
            );
            activity.push((cpu, std::mem::take(&mut join.busy), end_ns));
            let has_left = ran.stay == Stay::UntilItLeft;
            if has_left {
                let reason = if is_leaving(&self.root, cpu) { WENT_OFFLINE } else { MOVED };
                let after_s = window_ns as f64 / 1e9;
                let warning = CpuWarning::new(cpu, reason);
                cpu_warnings.push(warning.with_extent(after_s, format!("after {after_s:.3} s")));
            }
            // FTQ's slots are times of the counter. All other times are from the kernel's clock.
            if looping == Loop::Ftq {
                counter_error = counter_error.max(self.counter_error(&ran.outcome, window_ns));
            }
            traced.marks += join.marks_in_window;
            traced.outside += join.outside;
            traced.lost += join.forgotten_in_records;
            let is_timer =
                |number: u32| names.get(number as usize).is_some_and(ContextName::is_local_timer);
            let timers = join.entries.iter().filter(|(number, _)| is_timer(**number));
            let timer_count = probes.map(|_| timers.map(|(_, count)| count).sum());
            facts.insert(format!("iterations_on_cpu_{cpu}"), json!(ran.body_iterations));
            if looping == Loop::Detour {
                let threshold_cycles = ran.loop_config.threshold_cycles;
                if let Some(threshold_ns) =
                    raised_threshold_ns(&self.clock, self.threshold_ns, threshold_cycles)
                {
                    facts.insert(format!("threshold_ns_on_cpu_{cpu}"), json!(threshold_ns));
                    let warning = CpuWarning::new(cpu, THRESHOLD_RAISED);
                    let words = format!("threshold {threshold_ns} ns");
                    cpu_warnings.push(warning.with_extent(threshold_ns as f64, words));
                }
            }
            if let Some(core) = CoreClock::new(ran.core_cycles, self.clock.hz) {
                core.describe(cpu, &mut facts, &mut cpu_warnings);
            }
            cpus.push(CpuNoise {
                cpu,
                start_ns,
                window_ns,
                timer_count,
                external_ns: before.external_ns(after, cpu),
                lost_records: ring.lost() + join.timeless,
                left: has_left,
                page_faults: ran.counts.map(|counts| counts.page_faults),
                switches: ran.counts.map(|counts| counts.switches),
                steal_ns: before.stolen_until(after, cpu),
                smi_count: before.smis_until(after, cpu),
                result: join.into_result().calibrated_for(self.settings.quantum_ns),
            });
        }
        if after.switches_to_init > before.switches_to_init && self.probes.is_some() {
            warnings.push(format!(
                "threads of process 1 ran {} times instead of a loop; some kernels call no BPF program \
                 meanwhile, and interrupts in that time are then counted as the thread's",
                after.switches_to_init - before.switches_to_init
            ));
        }
        warnings.extend(after.other_senders.since(before.other_senders).warning());
        let measured: Vec<u32> = cpus.iter().map(|cpu| cpu.cpu).collect();
        let mut unobserved_cpus = online_cpus(&self.root).unwrap_or_default();
        unobserved_cpus.retain(|cpu| !measured.contains(cpu));
        // Every field is named: a default could hide a field that a real machine must fill.
        Ok(NoiseSample {
            looping,
            cpus,
            unmeasured,
            activity: probes.map(|_| concurrent_activity(&self.root, activity)).unwrap_or_default(),
            unobserved_cpus,
            names,
            traced: probes.map(|_| traced),
            tick_hz: Some(1e9 / tick_ns().max(1) as f64),
            clock_rate_error: Some(counter_error),
            pairs: Vec::new(),
            injected: Vec::new(),
            interrupted: false,
            had_enough: false,
            ended_by_threshold: false,
            warnings,
            cpu_warnings,
            facts,
            flight_record: None,
            wall_clock: None,
        })
    }
}

/// The threshold that a loop used, ns, if it is above the run's `threshold_ns`. A loop raises its threshold to two of its
/// iterations, because undisturbed iterations would count as detours otherwise. `None` if the loop did not raise it.
fn raised_threshold_ns(
    clock: &ClockResolution,
    threshold_ns: u64,
    threshold_cycles: u64,
) -> Option<u64> {
    let is_raised = threshold_cycles > clock.cycles(threshold_ns);
    is_raised.then(|| (threshold_cycles as f64 * 1e9 / clock.hz).ceil() as u64)
}

/// Adds facts about the concurrent command to a window's sample: when it started, and whether it ended in the window.
/// `had_ended`: it had ended before the window.
///
/// Fails if the program could not be executed, or the kernel does not report the status.
fn describe_command(
    companion: &mut Companion,
    had_ended: bool,
    kernel_clock: KernelClock,
    sample: &mut NoiseSample,
) -> Result<(), BenchError> {
    let status = companion.status()?;
    let started_ns = sample.cpus.iter().map(|cpu| cpu.start_ns).min();
    if let Some((released_ns, started_ns)) = companion.released_ns().zip(started_ns) {
        // The starts of loops are times of the kernel's clock.
        let after_ns = kernel_clock.from_process_ns(released_ns).saturating_sub(started_ns);
        sample.facts.insert("command_started_after_ns".to_owned(), json!(after_ns));
    }
    let ended = status.map(|status| status.to_string());
    sample.facts.insert(keys::COMMAND_ENDED.to_owned(), json!(ended));
    if let Some(ended) = ended
        && !had_ended
    {
        sample.warnings.push(format!(
            "the command ended by itself in this loop's window ({ended}): the rest of it, and the \
             loops after it, ran without the command"
        ));
    }
    Ok(())
}

/// Adds facts about the clocks, and adds the error of the kernel clock's rate to the error of the loops' clock.
/// `states`: the kernel's clock before and after the window; `None` makes the error unknown.
fn add_clock(sample: &mut NoiseSample, states: Option<(ClockState, ClockState)>) {
    let length_ns = sample.cpus.iter().map(|cpu| cpu.window_ns).min().unwrap_or(0);
    let error = states.map(|(before, after)| before.rate_error(after, length_ns));
    sample.clock_rate_error =
        sample.clock_rate_error.zip(error).map(|(loops, kernel)| loops + kernel);
    if let Some((before, after)) = states {
        let is_synchronised = before.is_synchronised && after.is_synchronised;
        sample.facts.insert("clock_is_synchronised".to_owned(), json!(is_synchronised));
    }
    let ppm = sample.clock_rate_error.map(|error| error * 1e6);
    sample.facts.insert("clock_rate_error_ppm".to_owned(), json!(ppm));
}

/// The peak memory of this process according to its `status` file, bytes. `None` if the file does not state it in kB.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

impl Bench for LiveNoise {
    fn facts(&self) -> BenchFacts {
        let settings = &self.settings;
        let mut map = Map::new();
        map.insert("cpus".into(), json!(format_cpu_list(&settings.cpus)));
        map.insert("observer_cpus".into(), json!(format_cpu_list(&self.observer_cpus())));
        map.insert("body".into(), json!(settings.body.word()));
        map.insert("tsc_hz".into(), json!(self.clock.hz));
        map.insert("clock_step_ns".into(), json!(self.clock.step_ns));
        map.insert("iteration_ns".into(), json!(self.clock.iteration_ns()));
        map.insert("threshold_ns".into(), json!(self.threshold_ns));
        map.insert("threshold_ns_min".into(), json!(self.clock.threshold_ns_min()));
        if let Some(probes) = &self.probes {
            probes.kernel_clock().describe(&mut map);
        }
        if let Some(latency_ns) = self.entry_latency_ns {
            map.insert("entry_latency_max_ns".into(), json!(latency_ns));
        }
        let mut observer = Map::new();
        if !settings.command.is_empty() {
            observer.insert("compared_before_command".into(), json!(true));
        }
        if let Some(peak) = self.root.text("proc/self/status").as_deref().and_then(peak_bytes) {
            observer.insert("peak_memory_bytes".into(), json!(peak));
        }
        let effect = "and is a cause of detours there";
        let shared = shared_cpus_warning(&settings.cpus, &self.observer_cpus(), effect);
        BenchFacts {
            bench: "live".to_owned(),
            settings: map,
            observer,
            absent: self.absent.clone(),
            warnings: shared.into_iter().chain(self.warnings.iter().cloned()).collect(),
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }

    fn expected_step(&self) -> Option<Duration> {
        Some(self.settings.warm_up + Duration::from_nanos(self.settings.window_ns()))
    }
}

impl NoiseBench for LiveNoise {
    fn visibility(&self) -> Visibility {
        if self.probes.is_some() { Visibility::KernelEvents } else { Visibility::Gaps }
    }

    fn measure(&mut self, looping: Loop, traced: bool) -> Result<NoiseSample, BenchError> {
        let mut companion = self.companion.take();
        let (window_ns, warm_up) = (self.settings.window_ns(), self.settings.warm_up);
        // The thresholds are lengths of detours.
        let mut watch = match looping {
            Loop::Detour => std::mem::take(&mut self.thresholds),
            Loop::Fwq | Loop::Ftq => ThresholdWatch::default(),
        };
        let sample = self.run(looping, traced, window_ns, warm_up, &mut companion, &mut watch);
        let ended = companion.as_mut().map(Companion::status).transpose();
        self.companion = companion;
        let sample = sample?;
        self.command_ended = ended?.flatten();
        if looping == Loop::Detour {
            watch.act_after_window();
            self.thresholds = watch;
        }
        Ok(sample)
    }

    fn expected_part(&self, parts: u32) -> Option<Duration> {
        let (window_ns, warm_up) = self.part(parts);
        Some(Duration::from_nanos(window_ns) + warm_up + POLL_PERIOD_AFTER_END)
    }

    fn measure_part(&mut self, traced: bool, parts: u32) -> Result<NoiseSample, BenchError> {
        let (window_ns, warm_up) = self.part(parts);
        // The concurrent command does not run in the comparison.
        let no_thresholds = &mut ThresholdWatch::default();
        self.run(Loop::Detour, traced, window_ns, warm_up, &mut None, no_thresholds)
    }
}

/// The number in a file of /proc/sys/kernel.
fn kernel_number(root: &Root, name: &str) -> Option<i64> {
    root.word(format!("proc/sys/kernel/{name}"))?.parse().ok()
}

/// Whether real-time loops leave no CPU time at all to the threads that may run on `observer_cpus`
/// (sched(7), "Limiting the CPU usage of real-time and deadline processes").
fn starves(root: &Root, loop_cpus: &[u32], observer_cpus: &[u32]) -> bool {
    let is_limited = kernel_number(root, "sched_rt_runtime_us").is_none_or(|runtime| runtime >= 0);
    !is_limited && observer_cpus.iter().all(|cpu| loop_cpus.contains(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_that_leave_irqlab_no_time_are_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let settings = directory.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&settings).unwrap();
        let starves = |runtime: &str, observer_cpus: &[u32]| {
            std::fs::write(settings.join("sched_rt_runtime_us"), runtime).unwrap();
            super::starves(&Root::new(directory.path()), &[0, 1], observer_cpus)
        };
        // No CPU remains, or only CPUs of the loops.
        assert!(starves("-1\n", &[]) && starves("-1\n", &[1]));
        assert!(!starves("-1\n", &[1, 2]));
        assert!(!starves("950000\n", &[]) && !starves("950000\n", &[0]));
    }

    #[test]
    fn a_slow_cpus_loop_states_its_own_threshold() {
        let clock = ClockResolution { hz: 2e9, ..ClockResolution::default() };
        let raised = |threshold_cycles| raised_threshold_ns(&clock, 100, threshold_cycles);
        assert_eq!(raised(200), None, "100 ns, as the run");
        assert_eq!(raised(301), Some(151), "rounded up");
    }

    #[test]
    fn the_peak_is_the_high_water_mark() {
        assert_eq!(
            peak_bytes("Name:\tirqlab\nVmPeak:\t 9 kB\nVmHWM:\t    1234 kB\n"),
            Some(1_263_616)
        );
        assert_eq!(peak_bytes("VmHWM:\t many kB\n"), None);
        assert_eq!(peak_bytes(""), None);
    }
}
