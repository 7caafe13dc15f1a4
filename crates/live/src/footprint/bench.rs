//! [`LiveFootprint`]: this machine as a bench for the footprint experiment.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lab::footprint::trace::{Trace, TraceTimes};
use lab::footprint::{
    FootprintBench, FootprintFacts, Geometry, Level, Method, Missing, Ready, Repetition, Source,
    Verdict,
};
use lab::handlers::BenchError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Map, json};
use stats::Random;

use super::counters::{Counters, Misses};
use super::geometry::{ByHand, geometry};
use super::loops::Loop;
use super::route::{Route, route};
use super::seen::{Added, Seen, Wanted, verdict, with_ticks};
use super::sources::{FarEnd, Raise, ready};
use super::tick::{check_pass, is_tickless};
use super::trace::Watcher;
use super::window::{Watch, Window, wait_for_interrupt};
use crate::handlers::{Stop, WindowEdge};
use crate::host::Root;
use crate::noise::clock::{Grain, grain, now};
use crate::noise::place::{Locked, pin};

/// Passes of touching before the interrupt is to come.
const PASSES_BEFORE: u64 = 5;
/// Of which so many are within the window and not timed: what starting it displaced comes back.
const WARM_PASSES: u64 = 1;
/// The interrupt comes no earlier: asking for it takes a while.
const DELAY_NS_MIN: u64 = 400_000;
/// An interrupt stops a loop for longer: the way into the kernel and back, and the least handler.
const INTERRUPT_NS_MIN: u64 = 700;
/// What is no turn of a loop that reads the clock, but an interrupt.
const TICK_GAP_NS: u64 = 1000;
const TICK_GAP_TURNS: u64 = 40;
/// Longest period of a tick (HZ=100), and some more.
const TICK_NS_MAX: u64 = 12_000_000;
/// How late a timer may be and still be the one that was set.
const LATE_NS_MAX: u64 = 20_000;

/// What was asked for.
#[derive(Debug)]
pub struct FootprintSettings {
    /// CPU of the loop.
    pub cpu: u32,
    /// CPUs that may do something else, such as send an interrupt.
    pub others: Vec<u32>,
    /// Sizes that the machine does not say, or says wrongly.
    pub by_hand: ByHand,
    /// How long the interrupt is waited for at most.
    pub window: Duration,
    /// Block device that the disk sources read; absent: files of their own.
    pub device: Option<PathBuf>,
    /// From where messages come to the network sources.
    pub far: FarEnd,
    /// Whether a device's interrupt may be moved to the loop's CPU for the run.
    pub move_irq: bool,
    /// Whether a hypervisor is below.
    pub is_virtual: bool,
    /// Chooses the order of lines and the times of interrupts.
    pub seed: u64,
    /// Who says what runs, where that is asked for.
    pub watcher: Watcher,
    /// Whether counters are enough: where misses of a level are counted, its curve is not measured.
    pub counters_only: bool,
    /// Whether ticks may come in windows: as many with the interrupt as without, so that their misses are
    /// taken off. Nothing is told by time then.
    pub ticks: bool,
    /// Called where counters start and stop: what watches from outside counts the same stretch.
    pub mark: Option<fn(WindowEdge)>,
    /// Set when the user asks to stop.
    pub stop: Stop,
}

/// This machine, ready to fill its caches.
pub struct LiveFootprint {
    settings: FootprintSettings,
    grain: Grain,
    root: Root,
    random: Random,
    current: Option<Current>,
    route: Route,
    tickless: bool,
    windows: u32,
    no_counters: BTreeMap<Level, String>,
    allowed: CpuSet,
    _locked: Locked,
}

/// What was made ready last.
struct Current {
    level: Level,
    looping: Loop,
    geometry: Geometry,
    curve: Option<lab::footprint::Curve>,
    raise: Box<dyn Raise>,
    counters: Option<Counters>,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl LiveFootprint {
    /// Pins this thread to the loop's CPU, for as long as the bench lives, and measures the clock.
    ///
    /// # Errors
    /// Where the CPU can't be pinned, or has no constant counter.
    pub fn new(settings: FootprintSettings) -> Result<Self, BenchError> {
        let allowed = sched_getaffinity(None).map_err(failed)?;
        pin(settings.cpu).map_err(|error| BenchError::NothingMeasurable {
            reason: format!("this thread can't be pinned to CPU {}: {error}", settings.cpu),
            remedy: Some("-c with a CPU of this process's cpuset".to_owned()),
        })?;
        let grain = grain().ok_or_else(|| BenchError::NothingMeasurable {
            reason: "the loops read a time-stamp counter, which this processor has not".to_owned(),
            remedy: None,
        })?;
        let random = Random::new(settings.seed);
        let root = Root::default();
        Ok(LiveFootprint {
            tickless: is_tickless(&root, settings.cpu),
            windows: 0,
            settings,
            grain,
            root,
            random,
            current: None,
            route: Route::default(),
            no_counters: BTreeMap::new(),
            allowed,
            _locked: Locked::all(),
        })
    }

    fn looping(&mut self, level: Level) -> Result<(Geometry, Loop), Missing> {
        let geometry = geometry(&self.root, self.settings.cpu, level, &self.settings.by_hand)?;
        let interrupt = self.grain.cycles(INTERRUPT_NS_MIN);
        let looping = Loop::new(level, geometry, self.settings.seed, interrupt)
            .map_err(|error| missing(format!("memory for {level}: {error}")))?;
        let pass_ns = (looping.pass_cycles as f64 * 1e9 / self.grain.hz) as u64;
        let LiveFootprint { tickless, settings, .. } = self;
        check_pass(level, pass_ns, settings.cpu, (*tickless, settings.ticks))?;
        Ok((geometry, looping))
    }

    fn watch(&self, looping: &Loop, delay: u64, method: Method, counted: bool) -> Watch {
        let pass = looping.pass_cycles;
        let asked = self.grain.cycles(self.settings.window.as_nanos() as u64);
        Watch {
            scale: looping.in_window,
            window_cycles: match method {
                // A pass behind an interrupt that comes late, too.
                Method::Refined => asked.max(delay) + 2 * pass,
                Method::Basic => asked.max(delay + pass),
            },
            pretend_cycles: None,
            warm_passes: WARM_PASSES,
            whole: counted,
        }
    }

    /// One repetition, from the counts before to the counts behind. It begins directly behind a tick.
    fn once(
        &mut self,
        method: Method,
        raised: bool,
    ) -> Result<(Repetition, TraceTimes), BenchError> {
        let Some(mut current) = self.current.take() else {
            return Err(BenchError::Failed("nothing was made ready".to_owned()));
        };
        let done = self.repetition(&mut current, method, raised);
        self.current = Some(current);
        done.map_err(failed)
    }

    /// One repetition with the interrupt, and when what happened.
    pub(super) fn once_with_times(
        &mut self,
        method: Method,
    ) -> Result<(Repetition, TraceTimes), BenchError> {
        self.once(method, true)
    }

    pub(super) fn cpu(&self) -> u32 {
        self.settings.cpu
    }

    fn repetition(
        &mut self,
        current: &mut Current,
        method: Method,
        raised: bool,
    ) -> io::Result<(Repetition, TraceTimes)> {
        let pass = current.looping.pass_cycles.max(1);
        // In the middle of any chunk with the same chance.
        let delay = (pass * PASSES_BEFORE).max(self.grain.cycles(DELAY_NS_MIN));
        let ticks_ns = if self.settings.ticks { TICK_NS_MAX } else { 0 };
        let delay = delay + self.grain.cycles(ticks_ns) + self.random.below(pass);
        let delay_ns = (delay as f64 * 1e9 / self.grain.hz) as u64;
        let counted = current.counters.is_some();
        let mut watch = self.watch(&current.looping, delay, method, counted);
        watch.pretend_cycles = (!raised).then_some(delay);
        let looping = &mut current.looping;
        let mut before = Seen::now(&self.root);
        looping.warm_up();
        let gap = self.grain.cycles(TICK_GAP_NS).max(TICK_GAP_TURNS * self.grain.turn_cycles);
        let (tick_cycles, ticks) = (self.grain.cycles(TICK_NS_MAX), self.settings.ticks);
        if !self.tickless && !ticks {
            wait_for_interrupt(gap, tick_cycles);
        }
        let asked_at = now();
        if raised {
            current.raise.schedule(Duration::from_nanos(delay_ns))?;
        }
        // Some disks have a kernel thread of this CPU send the request (kblockd): that is now.
        before.iter_mut().for_each(Seen::task_anew);
        // What asking displaced comes back before anything is counted.
        looping.fill();
        if ticks {
            // Asking takes a while: windows of both sorts have as many ticks when they begin behind one.
            wait_for_interrupt(gap, tick_cycles);
        }
        let asking = now().wrapping_sub(asked_at);
        if let Some(counters) = &mut current.counters {
            counters.start()?;
        }
        self.mark(WindowEdge::Open);
        let opened = now();
        let window = looping.window(method, watch);
        let ended = now();
        self.mark(WindowEdge::Close);
        let misses = current.counters.as_mut().map(Counters::stop).transpose()?;
        let after = Seen::now(&self.root);
        if raised {
            current.raise.settle()?;
        }
        let late = window.gap_at.wrapping_sub(asked_at.wrapping_add(delay)) as i64;
        let most_late = (self.grain.cycles(LATE_NS_MAX) + asking + window.gap_cycles) as i64;
        let wanted = raised.then(|| Wanted {
            kind: current.raise.counted(),
            on_time: !current.raise.is_timed() || (0..most_late).contains(&late),
        });
        let kind = wanted.map(|wanted| wanted.kind);
        let added = before.zip(after).map(|(b, a)| b.until(&a, self.settings.cpu, kind));
        let excess = window.excess_cycles(looping.chunks(), raised, looping.in_window);
        let times =
            TraceTimes { opened, ended, resumed: window.gap_at, stopped_cycles: window.gap_cycles };
        let mut done = repetition(added, &window, wanted, excess, misses);
        done.window = self.settings.mark.map(|_| self.windows);
        self.windows += 1;
        if self.settings.ticks {
            done.verdict = added.map_or(Verdict::OthersToo, |added| with_ticks(added, wanted));
        }
        Ok((done, times))
    }

    #[inline(always)]
    fn mark(&self, edge: WindowEdge) {
        if let Some(mark) = self.settings.mark {
            mark(edge);
        }
    }
}

fn repetition(
    added: Option<Added>,
    window: &Window,
    wanted: Option<Wanted>,
    excess_cycles: Option<i64>,
    misses: Option<Misses>,
) -> Repetition {
    let verdict = added.map_or(Verdict::OthersToo, |added| verdict(added, window, wanted));
    // Too late for a whole pass behind it: as good as not at all.
    let is_late = verdict == Verdict::Kept && excess_cycles.is_none();
    Repetition {
        verdict: if is_late { Verdict::NotInterrupted } else { verdict },
        excess_cycles,
        stopped_cycles: wanted.map(|_| window.gap_cycles),
        user_misses: misses.map(|misses| misses.user),
        kernel_misses: misses.map(|misses| misses.kernel),
        window: None,
    }
}

fn missing(reason: String) -> Missing {
    Missing { reason, remedy: None }
}

impl FootprintBench for LiveFootprint {
    fn facts(&self) -> FootprintFacts {
        let mut settings = Map::new();
        settings.insert("cpu".into(), json!(self.settings.cpu));
        settings.insert("clock".into(), json!("TSC"));
        settings.insert("tsc_hz".into(), json!(self.grain.hz));
        settings.insert("clock_step_ns".into(), json!(self.grain.step_ns));
        settings.insert("window_ns".into(), json!(self.settings.window.as_nanos() as u64));
        settings.insert("tickless".into(), json!(self.tickless));
        settings.insert("ticks".into(), json!(self.settings.ticks));
        settings.insert("moved_irqs".into(), json!(self.route.moved()));
        let mut warnings = Vec::new();
        if self.settings.is_virtual {
            warnings.push(
                "a virtual machine: memory is contiguous as the guest sees it; in what pages the host \
                 keeps it is not known, and its own interrupts evict, too"
                    .to_owned(),
            );
        }
        let no_counters = self.no_counters.iter();
        let no_counters = no_counters.map(|(level, why)| (level.to_string(), why.clone()));
        FootprintFacts {
            no_counters: no_counters.collect(),
            bench: "live".to_owned(),
            clock_hz: self.grain.hz,
            settings,
            observer: Map::new(),
            warnings,
        }
    }

    fn ready(&mut self, level: Level, source: Source) -> Result<Ready, Missing> {
        let mut raise = ready(
            source,
            self.settings.cpu,
            &self.settings.others,
            (self.settings.device.as_deref(), &self.settings.far),
        )
        .map_err(|why| Missing { reason: why.reason, remedy: why.remedy })?;
        let (root, cpu) = (&self.root, self.settings.cpu);
        route(root, cpu, raise.as_mut(), &mut self.route, self.settings.move_irq)?;
        let kept = self.current.take().filter(|current| current.level == level);
        let mut counters = Counters::open(&self.root, level);
        if let Err(reason) = &counters {
            self.no_counters.insert(level, reason.clone());
        }
        let (geometry, mut looping, curve) = match kept {
            Some(current) => (current.geometry, current.looping, current.curve),
            None => {
                let (geometry, mut looping) = self.looping(level)?;
                let by_time = counters.is_err() || !self.settings.counters_only;
                let curve = by_time.then(|| looping.curve());
                (geometry, looping, curve)
            }
        };
        let start_misses = counters.as_mut().ok().map(|one| looping.start_misses(one));
        let ready = Ready {
            start_misses: start_misses.transpose().map_err(|error| missing(error.to_string()))?,
            geometry,
            pages: looping.pages().word().to_owned(),
            raised_by: raise.method(),
            curve: curve.clone(),
            pass_cycles: looping.pass_cycles,
            chunk_lines: looping.chunk_lines(),
        };
        self.current =
            Some(Current { level, looping, geometry, curve, raise, counters: counters.ok() });
        Ok(ready)
    }

    fn repeat(
        &mut self,
        method: Method,
        raised: bool,
        number: usize,
    ) -> Result<Vec<Repetition>, BenchError> {
        (0..number).map(|_| Ok(self.once(method, raised)?.0)).collect()
    }

    fn trace(&mut self, source: Source, method: Method) -> Result<Trace, Missing> {
        let level = self.current.as_ref().map(|current| current.level);
        let level = level.ok_or_else(|| missing("nothing was made ready".to_owned()))?;
        self.traced((level, source, method), self.settings.watcher)
    }

    fn forget(&mut self) {
        self.current = None;
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }
}

impl Drop for LiveFootprint {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.allowed); // it was allowed all of it before
    }
}
