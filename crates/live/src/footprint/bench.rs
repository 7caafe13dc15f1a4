//! [`LiveFootprint`]: this machine as a bench for the footprint experiment. `lab::footprint::measure_series` calls it:
//! [`SeriesBench::ready`] once for each level and stimulus, then [`SeriesBench::repeat`].
//!
//! All runs on one thread, which is pinned to the loop's CPU while the bench exists. A repetition's steps have an
//! order, which decides what the cache holds; see `LiveFootprint::repetition`.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lab::experiment::Absence;
use lab::experiment::{Bench, BenchError, BenchFacts, Measured, Progress};
use lab::footprint::trace::{Trace, TraceTimes};
use lab::footprint::{
    FootprintBench, Geometry, Level, Method, Plan, Ready, Repetition, Samples, SeriesBench,
    Stimulus, Verdict, measure_series,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Map, json};
use stats::Random;
use touch_loop::{InterruptTimes, Loop, TimedPass, Window, WindowConfig, wait_for_interrupt};

use super::counters::{Counters, Misses};
use super::geometry::{ByHand, geometry};
use super::interrupt_line::StimulusLines;
use super::kernel_counts::{
    CountDelta, ExpectedInterrupt, KernelCounts, verdict, verdict_with_ticks,
};
use super::route::{Route, route};
use super::stimulus::{FarEnd, RaiseInterrupt, prepare_stimulus};
use super::tick::{check_pass, is_tickless, tick_ns};
use super::watcher::Watcher;
use crate::clock::{ClockResolution, now};
use crate::host::{Root, available_memory};
use crate::threads::{LockedMemory, affinity, check_pinned, is_pinned_to, pin};
use crate::window::{Stop, ThrottlingWindow, WindowEdge};

/// Passes in a window before the interrupt is due.
const PASSES_BEFORE: u64 = 3;
/// Untimed passes among [`PASSES_BEFORE`]. They bring back the lines that starting
/// the window displaced.
const WARM_PASSES: u64 = 1;
/// Longest time from the request to the window that a delay allows for: `REQUEST_NS_MAX` plus
/// `REQUEST_PASSES_MAX` passes.
const REQUEST_NS_MAX: u64 = 400_000;
const REQUEST_PASSES_MAX: u64 = 10;
/// The next request may take longer than the last one by the last one's time divided by this.
const REQUEST_MARGIN_PARTS: u64 = 4;
/// Shortest time from the request of an interrupt to its arrival from a device, ns.
const DEVICE_NS_MIN: u64 = 28_000;
/// An iteration of the loop that waits for a tick was interrupted if it took longer than this many iterations, and
/// longer than the shortest tick.
const TICK_GAP_ITERATIONS: u64 = 40;
/// A sleep until a tick is near ends this long before it, ns: the timer's slack of 50 us and the time to wake up, with a
/// margin for slow processors.
const TICK_NEAR_NS: u64 = 200_000;
/// Longest period of a tick (HZ=100), with a margin.
const TICK_NS_MAX: u64 = 12_000_000;
/// The next tick comes up to this part of a period before one full period after the request: the request starts
/// some time after the previous tick.
const TICK_EARLY_PARTS: u64 = 16;
/// Number of interrupts whose delays are kept for control windows.
const DELAYS_MAX: usize = 8;
/// A requested timer expires late by at most this time.
const LATE_NS_MAX: u64 = 20_000;

/// Configuration of [`LiveFootprint`].
#[derive(Debug)]
pub struct FootprintSettings {
    /// The CPU on which the loop runs.
    pub cpu: u32,
    /// CPUs for other work, such as sending an interrupt.
    pub others: Vec<u32>,
    /// Geometries from the user, which replace those of the machine.
    pub by_hand: ByHand,
    /// Maximum length of a window: how long the loop waits for the interrupt.
    pub window_max: Duration,
    /// Block device that the disk stimuli read. `None`: scratch files.
    pub device: Option<PathBuf>,
    /// The sender of the network stimuli's messages.
    pub far: FarEnd,
    /// Whether a device's interrupt may be moved to the loop's CPU during the run.
    pub move_irq: bool,
    /// Whether this machine is virtual.
    pub is_virtual: bool,
    /// Seed of the order of lines and of the times of interrupts.
    pub seed: u64,
    /// The observer of the contexts in a traced repetition; also shows whether this machine is simulated.
    pub watcher: Watcher,
    /// Whether to skip the curve of a level whose misses a counter counts.
    pub counters_only: bool,
    /// Whether windows may contain ticks. Treatment and control then have the same number of ticks, so their misses
    /// cancel. Times give no result.
    pub allows_ticks: bool,
    /// Called where counters start and stop, so that a simulator counts the same interval.
    pub mark: Option<fn(WindowEdge)>,
    /// The user's request to stop early.
    pub stop: Stop,
}

/// This machine as a bench for the experiment `footprint`.
pub struct LiveFootprint {
    settings: FootprintSettings,
    clock: ClockResolution,
    root: Root,
    random: Random,
    /// `None` before the first series, and after a series failed.
    current: Option<PreparedLevel>,
    stimulus: Option<RoutedStimulus>,
    /// Delays of the series' last interrupts from the start of their windows, cycles. Control
    /// windows use these delays.
    interrupt_delays: VecDeque<u64>,
    /// Method of the repetitions with these delays; `None` before the first one.
    delays_method: Option<Method>,
    /// Time from the last request of an interrupt to its window.
    request_cycles: u64,
    route: Route,
    /// Whether the loop's CPU has no tick while one task runs (`nohz_full`).
    is_tickless: bool,
    /// Period of the tick, cycles. `None` if the CPU has no tick, or ticks may come in windows.
    tick_cycles: Option<u64>,
    /// When the last tick that the loop waited for had ended, by the loop's clock.
    tick_seen_at: Option<u64>,
    /// Windows so far; the next window's number.
    window_count: u32,
    throttling: ThrottlingWindow,
    /// Why the misses of a level cannot be counted.
    counter_absences: BTreeMap<Level, String>,
    /// CPUs of this thread before it was pinned.
    initial_affinity: CpuSet,
    _locked: LockedMemory,
}

/// A level's loop, with its calibration.
struct PreparedLevel {
    level: Level,
    level_loop: Loop,
    geometry: Geometry,
    /// `None` if the experiment uses only counters.
    curve: Option<lab::footprint::Curve>,
    /// `None` if the level's misses cannot be counted.
    counters: Option<Counters>,
}

/// A stimulus whose interrupts come to the loop's CPU.
struct RoutedStimulus {
    stimulus: Box<dyn RaiseInterrupt>,
    /// Where the kernel counts its interrupts.
    lines: StimulusLines,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl LiveFootprint {
    /// Pins this thread to the loop's CPU until the bench is dropped, and measures the clock.
    ///
    /// Fails if the thread can't be pinned, or the processor has no time-stamp counter.
    pub fn new(settings: FootprintSettings) -> Result<Self, BenchError> {
        let initial_affinity = affinity(None).map_err(failed)?;
        pin(settings.cpu).map_err(|error| BenchError::NothingMeasurable {
            reason: error.to_string(),
            remedy: Some("-c with a CPU of this process's cpuset".to_owned()),
        })?;
        let clock = ClockResolution::measure().ok_or_else(|| BenchError::NothingMeasurable {
            reason: "the loops need a time-stamp counter, which this processor does not have"
                .to_owned(),
            remedy: None,
        })?;
        let random = Random::new(settings.seed);
        let root = Root::default();
        let tickless = is_tickless(&root, settings.cpu);
        let has_ticks = !tickless && !settings.allows_ticks;
        Ok(LiveFootprint {
            tick_cycles: has_ticks.then(|| clock.cycles(tick_ns())),
            tick_seen_at: None,
            is_tickless: tickless,
            window_count: 0,
            throttling: ThrottlingWindow::open(&root),
            settings,
            clock,
            root,
            random,
            current: None,
            stimulus: None,
            interrupt_delays: VecDeque::new(),
            delays_method: None,
            request_cycles: 0,
            route: Route::default(),
            counter_absences: BTreeMap::new(),
            initial_affinity,
            _locked: LockedMemory::current(),
        })
    }

    /// A step of a simulated machine's clock, cycles. 0 on hardware: there a step is far shorter than a reading.
    fn clock_step_cycles(&self) -> u64 {
        match self.settings.watcher {
            Watcher::Outside => self.clock.unit_cycles,
            Watcher::Probes => 0,
        }
    }

    /// Allocates and calibrates the loop of a level. Fails if the geometry is not known, memory is missing, or a pass
    /// takes too long.
    fn new_loop(&mut self, level: Level) -> Result<(Geometry, Loop), BenchError> {
        let geometry = geometry(&self.root, self.settings.cpu, level, &self.settings.by_hand)?;
        let interrupts = InterruptTimes {
            shortest_cycles: self.clock.cycles(self.settings.watcher.interrupt_ns_min()),
            gap_lines: self.settings.watcher.gap_lines(),
            delay_cycles: self.clock.cycles(DEVICE_NS_MIN),
        };
        // The level's lines, and after them the conflicting lines: together three times the level's size.
        let needed_bytes = geometry.size_bytes.saturating_mul(3);
        if matches!(self.settings.watcher, Watcher::Probes) {
            available_memory(&self.root).check(&level.to_string(), needed_bytes)?;
        }
        let level_loop = Loop::new(level, geometry, self.settings.seed, interrupts)
            .map_err(|error| missing(format!("memory for {level}: {error}")))?;
        let pass_ns = self.ns(level_loop.pass_cycles);
        let LiveFootprint { is_tickless, settings, .. } = self;
        check_pass(level, pass_ns, settings.cpu, (*is_tickless, settings.allows_ticks))?;
        Ok((geometry, level_loop))
    }

    /// Pins this thread again if it lost its CPU. Fails if the CPU is still offline.
    fn stay_on_cpu(&self) -> Result<(), BenchError> {
        if is_pinned_to(self.settings.cpu) {
            return Ok(());
        }
        pin(self.settings.cpu).map_err(failed)
    }

    /// Prepares a series: stimulus, route, counters and loop. Keeps the loop of the last series if the level is equal.
    /// This thread must be pinned.
    fn prepare(&mut self, level: Level, stimulus: Stimulus) -> Result<Ready, BenchError> {
        let mut stimulus = prepare_stimulus(
            stimulus,
            self.settings.cpu,
            &self.settings.others,
            (self.settings.device.as_deref(), &self.settings.far),
        )?;
        let (root, cpu) = (&self.root, self.settings.cpu);
        let how = (self.settings.watcher.other_devices(), self.settings.move_irq);
        let lines = route(root, cpu, stimulus.as_mut(), &mut self.route, how)?;
        let same_level = self.current.take().filter(|current| current.level == level);
        let mut counters = Counters::open(&self.root, level, cpu);
        if let Err(reason) = &counters {
            self.counter_absences.insert(level, reason.clone());
        }
        let (geometry, mut level_loop, curve) = match same_level {
            Some(current) => (current.geometry, current.level_loop, current.curve),
            None => {
                let (geometry, mut level_loop) = self.new_loop(level)?;
                let by_time = counters.is_err() || !self.settings.counters_only;
                let repetitions = self.settings.watcher.curve_repetitions(geometry.lines());
                let curve =
                    by_time.then(|| level_loop.curve(self.clock_step_cycles(), repetitions));
                (geometry, level_loop, curve)
            }
        };
        let repetitions = self.settings.watcher.curve_repetitions(geometry.lines());
        let start_misses =
            counters.as_mut().ok().map(|counters| level_loop.start_misses(counters, repetitions));
        let ready = Ready {
            start_misses: start_misses.transpose().map_err(|error| missing(error.to_string()))?,
            geometry,
            pages: level_loop.pages().word().to_owned(),
            raised_by: stimulus.method(),
            curve: curve.clone(),
            pass_cycles: level_loop.pass_cycles,
            chunk_lines: level_loop.chunk_lines(),
        };
        let counters = counters.ok();
        self.current = Some(PreparedLevel { level, level_loop, geometry, curve, counters });
        self.stimulus = Some(RoutedStimulus { stimulus, lines });
        Ok(ready)
    }

    pub(super) fn cpu(&self) -> u32 {
        self.settings.cpu
    }
}

fn missing(reason: String) -> BenchError {
    BenchError::unavailable(reason)
}

impl LiveFootprint {
    /// The configuration of a treatment window. `delay`: cycles from the request to the interrupt. `has_counters`:
    /// misses are counted in the window.
    fn window_config(
        &self,
        level_loop: &Loop,
        delay: u64,
        method: Method,
        has_counters: bool,
    ) -> WindowConfig {
        let pass = level_loop.pass_cycles;
        let longest = self.clock.cycles(self.settings.window_max.as_nanos() as u64);
        WindowConfig {
            limits: level_loop.in_window,
            window_cycles: match method {
                // Leaves time for a pass after a late interrupt.
                Method::Refined => longest.max(delay) + 2 * pass,
                Method::Basic => longest.max(delay + pass),
            },
            sham_cycles: None,
            warm_passes: WARM_PASSES,
            rest_passes: if self.settings.allows_ticks {
                None
            } else {
                Some(u64::from(has_counters))
            },
        }
    }

    /// Runs one repetition with the prepared level and stimulus, and returns it with its times. Fails if the thread
    /// lost its CPU meanwhile.
    pub(super) fn run_repetition(
        &mut self,
        method: Method,
        treatment: bool,
    ) -> Result<(Repetition, TraceTimes), BenchError> {
        let Some((mut current, mut stimulus)) = self.current.take().zip(self.stimulus.take())
        else {
            return Err(BenchError::Failed("no level is ready".to_owned()));
        };
        let outcome = self.repetition(&mut current, &mut stimulus, method, treatment);
        (self.current, self.stimulus) = (Some(current), Some(stimulus));
        // On another CPU, the loop would have filled that CPU's caches.
        check_pinned(self.settings.cpu).and(outcome).map_err(failed)
    }

    /// The steps of a repetition. Their order matters:
    ///
    /// 1. `refill` and `warm_up` give caches and code a defined state.
    /// 2. A tick passes, so that the next one is a whole period away.
    /// 3. The interrupt is requested. Then `fill` brings back the lines that the request displaced.
    /// 4. Counters start directly before the window, and stop directly after it.
    fn repetition(
        &mut self,
        current: &mut PreparedLevel,
        routed: &mut RoutedStimulus,
        method: Method,
        treatment: bool,
    ) -> io::Result<(Repetition, TraceTimes)> {
        let RoutedStimulus { stimulus, lines } = routed;
        let delay = self.delay(current.level_loop.pass_cycles.max(1));
        let mut config =
            self.window_config(&current.level_loop, delay, method, current.counters.is_some());
        config.sham_cycles = (!treatment).then(|| self.sham_delay().unwrap_or(delay));
        let mut before = KernelCounts::now(&self.root);
        current.level_loop.displace_and_fill();
        current.level_loop.warm_up();
        if !self.is_tickless && !self.settings.allows_ticks {
            if self.settings.watcher == Watcher::Outside {
                self.sleep_until_tick_is_near();
            }
            self.wait_for_tick();
        }
        let requested_at = now();
        if treatment {
            stimulus.schedule(Duration::from_nanos(self.ns(delay)))?;
        }
        // For some disks a kernel thread of this CPU (kblockd) sends the request. It has run by now, and its context
        // switches do not count.
        before.iter_mut().for_each(KernelCounts::restart_task_counts);
        let level_loop = &mut current.level_loop;
        level_loop.fill();
        if self.settings.allows_ticks {
            // Only treatments have a request, which takes some time. Windows that start directly after a tick have
            // the same number of ticks in treatment and control.
            self.wait_for_tick();
        }
        if let Some(counters) = &mut current.counters {
            counters.start()?;
        }
        self.mark(WindowEdge::Open);
        let opened = now();
        let window = level_loop.window(method, config);
        let ended = now();
        self.mark(WindowEdge::Close);
        let misses = current.counters.as_mut().map(Counters::stop).transpose()?;
        let after = KernelCounts::now(&self.root);
        if treatment {
            stimulus.drain()?;
        }
        let request_cycles = opened.wrapping_sub(requested_at);
        self.remember(request_cycles, &window, treatment.then_some(opened));
        let lines = treatment.then_some(&*lines);
        let delta =
            before.zip(after).map(|(before, after)| before.until(&after, self.settings.cpu, lines));
        let late_cycles = window.gap_at.wrapping_sub(requested_at.wrapping_add(delay)) as i64;
        let late_cycles_max =
            (self.clock.cycles(LATE_NS_MAX) + request_cycles + window.gap_cycles) as i64;
        let came_when_due = if stimulus.is_timed() {
            (0..late_cycles_max).contains(&late_cycles)
        } else {
            delta.is_none_or(|delta| delta.ticks == 0) || !self.is_tick(requested_at, &window)
        };
        let was_due_in_window = stimulus.comes_in_window() && request_cycles < delay;
        let expected = lines.map(|lines| ExpectedInterrupt {
            is_in_tick_line: lines.count_ticks(),
            came_when_due,
            was_due_in_window,
        });
        let pass = TimedPass::after_interrupt(method, treatment);
        let excess = window.excess_cycles(level_loop.chunk_count(), pass, level_loop.in_window);
        let times =
            TraceTimes { opened, ended, resumed: window.gap_at, stalled_cycles: window.gap_cycles };
        let mut result = repetition(delta, (&window, method), expected, excess, misses);
        if matches!(result.verdict, Verdict::Contaminated | Verdict::NotInterrupted) {
            // Perhaps the tick came in the window, because another interrupt was taken for it. Each later sleep would end
            // at the same wrong time.
            self.tick_seen_at = None;
        }
        result.window = self.settings.mark.map(|_| self.window_count);
        self.window_count += 1;
        if self.settings.allows_ticks {
            result.verdict =
                delta.map_or(Verdict::Contaminated, |delta| verdict_with_ticks(delta, expected));
            // Ticks also make gaps, and nothing shows which gap is the interrupt's.
            (result.excess_cycles, result.stalled_cycles) = (None, None);
        }
        Ok((result, times))
    }

    /// Delay of the interrupt from its request, cycles. The window must have started by then, with
    /// [`PASSES_BEFORE`] passes. The interrupt is equally probable at all times of a pass of `pass` cycles.
    fn delay(&mut self, pass: u64) -> u64 {
        let min = self.clock.cycles(self.settings.watcher.delay_ns_min());
        let request_max = pass * REQUEST_PASSES_MAX + self.clock.cycles(REQUEST_NS_MAX);
        let request_cycles = self.request_cycles + self.request_cycles / REQUEST_MARGIN_PARTS;
        let request_cycles = request_cycles.min(request_max);
        let ticks_ns = if self.settings.allows_ticks { TICK_NS_MAX } else { 0 };
        let delay = (request_cycles + pass * PASSES_BEFORE).max(min) + self.clock.cycles(ticks_ns);
        delay + self.random.below(pass)
    }

    /// Delay of the sham interrupt from the window's start, cycles: the delay of one of the last real interrupts,
    /// chosen at random. `None` before the first real interrupt.
    fn sham_delay(&mut self) -> Option<u64> {
        let index = self.random.below(self.interrupt_delays.len() as u64);
        self.interrupt_delays.get(index as usize).copied()
    }

    /// Keeps the times that the delays of later repetitions depend on. `opened`: start of the window; `None` for a
    /// control.
    fn remember(&mut self, request_cycles: u64, window: &Window, opened: Option<u64>) {
        if !self.settings.allows_ticks && opened.is_some() {
            self.request_cycles = request_cycles;
        }
        if let Some(opened) = opened
            && window.after.chunks > 0
        {
            // The start of the gap: a control window then touches equally many lines before its sham interrupt.
            let interrupted_at = window.gap_at.wrapping_sub(window.gap_cycles);
            self.interrupt_delays.push_back(interrupted_at.saturating_sub(opened));
            if self.interrupt_delays.len() > DELAYS_MAX {
                self.interrupt_delays.pop_front();
            }
        }
    }

    /// Whether the first gap started when the next tick was due. Then the gap may be the tick's, and the requested
    /// interrupt may have come before the window.
    fn is_tick(&self, requested_at: u64, window: &Window) -> bool {
        let delay = window.gap_at.wrapping_sub(window.gap_cycles).wrapping_sub(requested_at);
        self.tick_cycles.is_some_and(|period| delay >= period - period / TICK_EARLY_PARTS)
    }

    /// Waits until a tick has passed, at most [`TICK_NS_MAX`].
    fn wait_for_tick(&mut self) {
        let gap_ns = self.settings.watcher.tick_ns_min();
        let gap = self.clock.cycles(gap_ns).max(TICK_GAP_ITERATIONS * self.clock.iteration_cycles);
        wait_for_interrupt(gap, self.clock.cycles(TICK_NS_MAX));
        self.tick_seen_at = Some(now());
    }

    /// Sleeps until [`TICK_NEAR_NS`] before the next tick, where a tick was seen before. A simulated machine executes
    /// nothing while its CPU is idle, and each instruction of a loop that waits. Not for hardware: there a CPU that was
    /// idle is slower at first.
    ///
    /// A CPU's ticks keep their distance, also across idle time. The kernel's coarse clock does not tell when they come:
    /// its steps have another phase.
    fn sleep_until_tick_is_near(&self) {
        let Some((seen_at, period)) = self.tick_seen_at.zip(self.tick_cycles) else { return };
        let to_next = period - now().saturating_sub(seen_at) % period.max(1);
        let sleep_ns = self.ns(to_next).saturating_sub(TICK_NEAR_NS);
        std::thread::sleep(Duration::from_nanos(sleep_ns));
    }

    pub(super) fn ns(&self, cycles: u64) -> u64 {
        (cycles as f64 * 1e9 / self.clock.hz) as u64
    }

    #[inline(always)]
    fn mark(&self, edge: WindowEdge) {
        if let Some(mark) = self.settings.mark {
            mark(edge);
        }
    }
}

impl Bench for LiveFootprint {
    /// The settings of the series. Their keys are part of the run's format.
    fn facts(&self) -> BenchFacts {
        let mut settings = Map::new();
        settings.insert("cpu".into(), json!(self.settings.cpu));
        settings.insert("clock".into(), json!("TSC"));
        settings.insert("tsc_hz".into(), json!(self.clock.hz));
        settings.insert("clock_step_ns".into(), json!(self.clock.step_ns));
        settings.insert("window_ns".into(), json!(self.settings.window_max.as_nanos() as u64));
        settings.insert("tickless".into(), json!(self.is_tickless));
        settings.insert("ticks".into(), json!(self.settings.allows_ticks));
        settings.insert("moved_irqs".into(), json!(self.route.moved_irqs()));
        let mut warnings = self.route.restoration_warnings().to_vec();
        if self.settings.is_virtual {
            warnings.push(
                "a virtual machine: memory is contiguous for the guest, but the host's pages are not \
                 known, and the host's interrupts evict lines, too"
                    .to_owned(),
            );
        }
        self.throttling.report(&self.root, &mut settings, &mut warnings);
        let absent = self
            .counter_absences
            .iter()
            .map(|(level, reason)| Absence::new("footprint", format!("{level}: misses"), reason));
        BenchFacts {
            bench: "live".to_owned(),
            settings,
            observer: Map::new(),
            absent: absent.collect(),
            warnings,
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }
}

impl FootprintBench for LiveFootprint {
    fn measure(
        &mut self,
        plan: &Plan,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError> {
        measure_series(plan, self, progress)
    }
}

impl SeriesBench for LiveFootprint {
    fn clock_hz(&self) -> f64 {
        self.clock.hz
    }

    fn ready(&mut self, level: Level, stimulus: Stimulus) -> Result<Ready, BenchError> {
        self.stimulus = None; // The next stimulus may need its resources.
        self.delays_method = None;
        self.stay_on_cpu()?;
        let ready = self.prepare(level, stimulus);
        if let Err(lost) = check_pinned(self.settings.cpu) {
            // The series was prepared on another CPU, or not at all because this CPU was offline.
            (self.current, self.stimulus) = (None, None);
            return Err(failed(lost));
        }
        ready
    }

    fn repeat(
        &mut self,
        method: Method,
        treatment: bool,
        number: usize,
    ) -> Result<Vec<Repetition>, BenchError> {
        if self.delays_method != Some(method) {
            self.interrupt_delays.clear();
            self.delays_method = Some(method);
        }
        (0..number).map(|_| Ok(self.run_repetition(method, treatment)?.0)).collect()
    }

    fn trace(&mut self, stimulus: Stimulus, method: Method) -> Result<Trace, BenchError> {
        let level = self.current.as_ref().map(|current| current.level);
        let level = level.ok_or_else(|| missing("no level is ready".to_owned()))?;
        self.traced((level, stimulus, method), self.settings.watcher)
    }

    fn forget(&mut self) {
        self.current = None;
    }
}

impl Drop for LiveFootprint {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.initial_affinity); // The mask was valid before.
    }
}

/// The sample of a repetition. Without kernel counts (`delta`), nothing shows whether it was undisturbed, and its
/// verdict is contaminated.
fn repetition(
    delta: Option<CountDelta>,
    (window, method): (&Window, Method),
    expected: Option<ExpectedInterrupt>,
    excess_cycles: Option<i64>,
    misses: Option<Misses>,
) -> Repetition {
    let verdict = delta.map_or(Verdict::Contaminated, |delta| verdict(delta, window, expected));
    // An interrupt that leaves no time for a whole pass gives no excess, so the repetition does not count.
    let is_late = verdict == Verdict::Accepted && excess_cycles.is_none();
    Repetition {
        verdict: if is_late { Verdict::NotInterrupted } else { verdict },
        excess_cycles,
        stalled_cycles: expected.map(|_| window.stall_cycles(method)),
        user_misses: misses.map(|misses| misses.user),
        kernel_misses: misses.map(|misses| misses.kernel),
        window: None,
    }
}
