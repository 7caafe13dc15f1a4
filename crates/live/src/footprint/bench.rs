//! [`LiveFootprint`]: this machine as a bench for the footprint experiment.

use std::collections::BTreeMap;
use std::time::Duration;

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
use super::seen::{Seen, verdict};
use super::sources::{Raise, ready};
use super::window::Watch;
use crate::handlers::Stop;
use crate::host::Root;
use crate::noise::clock::{Grain, grain};
use crate::noise::place::{Locked, pin};

/// Passes of touching before the interrupt is to come.
const PASSES_BEFORE: u64 = 6;
/// Longest pass, ns: with longer ones there is hardly one between two ticks.
const PASS_NS_MAX: u64 = 1_000_000;

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
    /// Whether a device's interrupt may be moved to the loop's CPU for the run.
    pub move_irq: bool,
    /// Whether a hypervisor is below.
    pub is_virtual: bool,
    /// Chooses the order of lines and the times of interrupts.
    pub seed: u64,
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
    no_counters: BTreeMap<Level, String>,
    allowed: CpuSet,
    _locked: Locked,
}

/// What was made ready last.
struct Current {
    level: Level,
    looping: Loop,
    geometry: Geometry,
    curve: lab::footprint::Curve,
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
        Ok(LiveFootprint {
            settings,
            grain,
            root: Root::default(),
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
        let looping = Loop::new(level, geometry, self.settings.seed)
            .map_err(|error| missing(format!("memory for {level}: {error}")))?;
        let pass_ns = (looping.pass_cycles as f64 * 1e9 / self.grain.hz) as u64;
        if pass_ns > PASS_NS_MAX {
            return Err(missing(format!(
                "a pass over {level} takes {pass_ns} ns; beyond {PASS_NS_MAX} other interrupts fall \
                 into each"
            )));
        }
        Ok((geometry, looping))
    }

    /// One repetition, from the counts before to the counts behind.
    fn once(&mut self, method: Method, raised: bool) -> Result<Repetition, BenchError> {
        let Some(current) = &mut self.current else {
            return Err(BenchError::Failed("nothing was made ready".to_owned()));
        };
        let pass = current.looping.pass_cycles.max(1);
        // In the middle of any chunk with the same chance.
        let delay = pass * PASSES_BEFORE + self.random.below(pass);
        let delay_ns = (delay as f64 * 1e9 / self.grain.hz) as u64;
        let window_cycles = match method {
            Method::Refined => self.grain.cycles(self.settings.window.as_nanos() as u64) + 8 * pass,
            Method::Basic => self.grain.cycles(self.settings.window.as_nanos() as u64),
        };
        let watch = Watch {
            gap_cycles: current.looping.gap_cycles,
            window_cycles,
            pretend_cycles: (!raised).then_some(delay),
            whole: current.counters.is_some(),
        };
        let before = Seen::now(&self.root);
        current.looping.fill();
        if raised {
            current.raise.schedule(Duration::from_nanos(delay_ns)).map_err(failed)?;
        }
        if let Some(counters) = &mut current.counters {
            counters.start().map_err(failed)?;
        }
        current.looping.fill();
        let window = current.looping.window(method, watch);
        let misses = current.counters.as_mut().map(Counters::stop).transpose().map_err(failed)?;
        let after = Seen::now(&self.root);
        if raised {
            current.raise.settle().map_err(failed)?;
        }
        let kind = raised.then(|| current.raise.counted());
        let added = before.zip(after).map(|(b, a)| b.until(&a, self.settings.cpu, kind));
        let excess_cycles = window.excess_cycles(current.looping.chunks(), raised);
        let verdict = match added {
            Some(added) => verdict(added, &window, raised),
            None => Verdict::OthersToo,
        };
        // Too late for a whole pass behind it: as good as not at all.
        let is_late = verdict == Verdict::Kept && excess_cycles.is_none();
        Ok(Repetition {
            verdict: if is_late { Verdict::NotInterrupted } else { verdict },
            excess_cycles,
            stopped_cycles: raised.then_some(window.gap_cycles),
            user_misses: misses.map(|misses: Misses| misses.user),
            kernel_misses: misses.map(|misses| misses.kernel),
        })
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
        settings.insert("moved_irqs".into(), json!(self.route.moved()));
        let mut warnings = Vec::new();
        if self.settings.is_virtual {
            warnings.push(
                "a virtual machine: memory is contiguous as the guest sees it; in what pages the host \
                 keeps it is not known, and its own interrupts evict, too"
                    .to_owned(),
            );
        }
        let no_counters =
            self.no_counters.iter().map(|(level, why)| (level.to_string(), why.clone()));
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
        let mut raise = ready(source, self.settings.cpu, &self.settings.others)
            .map_err(|why| Missing { reason: why.reason, remedy: why.remedy })?;
        let (root, cpu) = (&self.root, self.settings.cpu);
        route(root, cpu, raise.as_mut(), &mut self.route, self.settings.move_irq)?;
        let kept = self.current.take().filter(|current| current.level == level);
        let (geometry, mut looping, curve) = match kept {
            Some(current) => (current.geometry, current.looping, current.curve),
            None => {
                let (geometry, mut looping) = self.looping(level)?;
                let curve = looping.curve();
                (geometry, looping, curve)
            }
        };
        let mut counters = Counters::open(&self.root, level);
        if let Err(reason) = &counters {
            self.no_counters.insert(level, reason.clone());
        }
        let start_misses = counters.as_mut().ok().map(|one| looping.start_misses(one));
        let ready = Ready {
            start_misses: start_misses.transpose().map_err(|error| missing(error.to_string()))?,
            geometry,
            pages: looping.pages().word().to_owned(),
            raised_by: raise.method(),
            curve: Some(curve.clone()),
            pass_cycles: looping.pass_cycles,
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
        (0..number).map(|_| self.once(method, raised)).collect()
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
