//! [`LiveFootprint`]: this machine as a bench for the footprint experiment.

mod repetition;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab::footprint::trace::Trace;
use lab::footprint::{
    FootprintBench, FootprintFacts, Geometry, Level, Method, Missing, Ready, Repetition, Source,
};
use lab::handlers::BenchError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Map, json};
use stats::Random;

use super::counters::Counters;
use super::geometry::{ByHand, geometry};
use super::loops::Loop;
use super::route::{Route, route};
use super::sources::{FarEnd, Raise, ready};
use super::tick::{check_pass, is_tickless, tick_ns};
use super::trace::Watcher;
use crate::window::{Stop, WindowEdge};
use crate::host::Root;
use crate::clock::ClockResolution;
use crate::threads::{LockedMemory, pin};

/// An interrupt stops a loop for longer: the way into the kernel and back, and the least handler.
const INTERRUPT_NS_MIN: u64 = 700;
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
    raise: Option<Box<dyn Raise>>,
    /// When interrupts came since their window began, cycles: the ends of windows without.
    came_after: Vec<u64>,
    /// How long it took last from asking for an interrupt to the window.
    asking_cycles: u64,
    route: Route,
    tickless: bool,
    /// From one tick to the next; absent where there are none, or they may come in windows.
    tick_cycles: Option<u64>,
    windows: u32,
    no_counters: BTreeMap<Level, String>,
    allowed: CpuSet,
    _locked: LockedMemory,
}

/// What was made ready last.
struct Current {
    level: Level,
    looping: Loop,
    geometry: Geometry,
    curve: Option<lab::footprint::Curve>,
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
        let tickless = is_tickless(&root, settings.cpu);
        let has_ticks = !tickless && !settings.ticks;
        Ok(LiveFootprint {
            tick_cycles: has_ticks.then(|| grain.cycles(tick_ns())),
            tickless,
            windows: 0,
            settings,
            grain,
            root,
            random,
            current: None,
            raise: None,
            came_after: Vec::new(),
            asking_cycles: 0,
            route: Route::default(),
            no_counters: BTreeMap::new(),
            allowed,
            _locked: LockedMemory::current(),
        })
    }

    fn looping(&mut self, level: Level) -> Result<(Geometry, Loop), Missing> {
        let geometry = geometry(&self.root, self.settings.cpu, level, &self.settings.by_hand)?;
        let interrupt = self.grain.cycles(INTERRUPT_NS_MIN);
        let looping = Loop::new(level, geometry, self.settings.seed, interrupt)
            .map_err(|error| missing(format!("memory for {level}: {error}")))?;
        let pass_ns = self.ns(looping.pass_cycles);
        let LiveFootprint { tickless, settings, .. } = self;
        check_pass(level, pass_ns, settings.cpu, (*tickless, settings.ticks))?;
        Ok((geometry, looping))
    }

    pub(super) fn cpu(&self) -> u32 {
        self.settings.cpu
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
        self.raise = None; // what one has, the next one may need
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
        let counters = counters.ok();
        self.current = Some(Current { level, looping, geometry, curve, counters });
        self.raise = Some(raise);
        Ok(ready)
    }

    fn repeat(
        &mut self,
        method: Method,
        raised: bool,
        number: usize,
    ) -> Result<Vec<Repetition>, BenchError> {
        if raised {
            self.came_after.clear();
        }
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
