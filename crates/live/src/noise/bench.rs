//! [`LiveNoise`]: this machine as a bench for the noise experiment.

use std::time::Duration;

use lab::handlers::BenchError;
use lab::noise::{CpuNoise, GapLedger, Loop, NoiseBench, NoiseFacts, NoiseSample, Rules, Traced};
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use serde_json::{Map, json};

use super::beside::beside;
use super::clock::{Clocks, Grain, grain_on};
use super::collect::{Pace, Runner, Start, collect};
use crate::clock::CoreClock;
use super::join::Join;
use super::loops::Order;
use crate::threads::{LockedMemory, cpu_set};
use crate::marks::MarkProbes;
use super::seen::Seen;
use super::settings::NoiseSettings;
use super::way::way_ns;
use crate::bpf::BpfError;
use crate::window::WaitOutcome;
use crate::host::{Root, format_cpu_list, parse_cpu_list, smi_count};

/// The default threshold, where the clock is fine enough.
pub(super) const THRESHOLD_NS: u64 = 100;
/// The way into the kernel where it could not be measured.
const WAY_NS_ASSUMED: u64 = 1000;
/// Longest window of a loop that runs bare only for a comparison with itself, watched.
const BARE_NS_MAX: u64 = 60_000_000_000;

/// This machine, ready to run loops.
pub struct LiveNoise {
    settings: NoiseSettings,
    grain: Grain,
    threshold_ns: u64,
    probes: Option<MarkProbes>,
    /// The way into the kernel, and whether it was measured.
    way: (u64, bool),
    root: Root,
    absent: Vec<(String, String, String, Option<String>)>,
    warnings: Vec<String>,
}

fn failed(error: BpfError) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl LiveNoise {
    /// Measures the clock, loads the probes and measures the way into the kernel.
    ///
    /// # Errors
    /// [`BenchError::NothingMeasurable`] on a processor without a constant counter.
    pub fn new(settings: NoiseSettings) -> Result<Self, BenchError> {
        let cpu = settings.cpus.first().copied().unwrap_or(0);
        let grain = grain_on(cpu).ok_or_else(|| BenchError::NothingMeasurable {
            reason: "the loops read a time-stamp counter, which this processor or CPU has not"
                .to_owned(),
            remedy: None,
        })?;
        let threshold_ns =
            settings.threshold_ns.unwrap_or(THRESHOLD_NS.max(grain.threshold_ns_min()));
        let mut bench = LiveNoise {
            settings,
            grain,
            threshold_ns,
            probes: None,
            way: (WAY_NS_ASSUMED, false),
            root: Root::default(),
            absent: Vec::new(),
            warnings: Vec::new(),
        };
        if bench.settings.trace {
            bench.watch(cpu)?;
        }
        bench.warn_of_throttling();
        if let Err(reason) = smi_count(&bench.root, cpu) {
            let what = "counts of system management interrupts".to_owned();
            bench.absent.push(("noise".to_owned(), what, reason, None));
        }
        Ok(bench)
    }

    /// The least threshold that this clock allows, ns, if the one asked for is below it.
    #[must_use]
    pub fn threshold_too_low(&self) -> Option<u64> {
        let least_ns = self.grain.threshold_ns_min();
        (self.threshold_ns < least_ns).then_some(least_ns)
    }

    /// Loads the probes; without them the loops run bare, and the causes are absent.
    fn watch(&mut self, cpu: u32) -> Result<(), BenchError> {
        match MarkProbes::load() {
            Ok(probes) => {
                for (what, reason) in &probes.absent {
                    self.absent.push(("causes".to_owned(), what.clone(), reason.clone(), None));
                }
                if let Some(way_ns) = way_ns(&probes, cpu).map_err(failed)? {
                    self.way = (way_ns, true);
                } else {
                    let words = "the way into the kernel could not be measured";
                    self.warnings.push(format!("{words}: {WAY_NS_ASSUMED} ns are assumed"));
                }
                self.probes = Some(probes);
            }
            Err(error) => {
                let remedy = match &error {
                    BpfError::NotPermitted(_) => self.settings.remedy_rights.clone(),
                    BpfError::Failed(_) => None,
                };
                let what = "what the kernel did meanwhile".to_owned();
                // What libbpf adds guesses at memory limits; the remedy says what is lacking.
                let words = error.to_string();
                let reason = words.split("; ").next().unwrap_or_default().to_owned();
                self.absent.push(("causes".to_owned(), what, reason, remedy));
            }
        }
        Ok(())
    }

    /// A loop under SCHED_FIFO never sleeps, and the kernel takes it off the CPU for that.
    fn warn_of_throttling(&mut self) {
        if self.settings.fifo.is_none() {
            return;
        }
        let number = |name: &str| -> Option<i64> {
            self.root.word(format!("proc/sys/kernel/{name}"))?.parse().ok()
        };
        let (runtime, period) = (number("sched_rt_runtime_us"), number("sched_rt_period_us"));
        if let (Some(runtime), Some(period)) = (runtime, period)
            && (0..period).contains(&runtime)
        {
            let taken = period - runtime;
            self.warnings.push(format!(
                "--fifo: the kernel takes a real-time loop off its CPU for up to {taken} us of each \
                 {period} us, so that others live (kernel.sched_rt_runtime_us = {runtime}): these \
                 detours are of --fifo's own making. With -1 they are gone, and so is whatever else \
                 needs that CPU"
            ));
        }
    }

    /// How long the window of a pass should be, ns.
    fn window_ns(&self, looping: Loop, traced: bool) -> u64 {
        let window_ns = self.settings.window_ns();
        let compares = looping == Loop::Detour && !traced && self.probes.is_some();
        if compares { window_ns.min(BARE_NS_MAX) } else { window_ns }
    }

    fn order(&self, looping: Loop, cpu: u32, window_ns: u64) -> Order {
        let window_cycles = match self.settings.length {
            super::Length::Time(_) => self.grain.cycles(window_ns),
            // Quanta take their time, and slots end by their number.
            super::Length::Repetitions(_) if looping != Loop::Detour => u64::MAX,
            super::Length::Repetitions(_) => self.grain.cycles(window_ns),
        };
        Order {
            looping,
            cpu,
            window_cycles,
            repetitions: self.settings.repetitions(),
            quantum_cycles: self.grain.cycles(self.settings.quantum_ns).max(1),
            threshold_cycles: self.grain.cycles(self.threshold_ns),
            turn_cycles: self.grain.turn_cycles,
        }
    }

    /// CPUs for this thread: as asked, or those without a loop, or, when there are none, all.
    fn own_cpus(&self) -> Vec<u32> {
        if !self.settings.housekeeping.is_empty() {
            return self.settings.housekeeping.clone();
        }
        let online = self.root.text("sys/devices/system/cpu/online").unwrap_or_default();
        let online = parse_cpu_list(online.trim()).unwrap_or_default();
        online.into_iter().filter(|cpu| !self.settings.cpus.contains(cpu)).collect()
    }

    fn pace(&self, is_apart: bool, window_ns: u64) -> Pace {
        // Where this thread has no CPU of its own, it is noise itself: as seldom as can be.
        let millis = if is_apart { 100 } else { 1000 };
        Pace {
            expected: Duration::from_nanos(window_ns) + self.settings.warm_up,
            round: Duration::from_millis(millis),
            at_end: Duration::from_millis(20),
            stop: self.settings.stop.clone(),
        }
    }

    fn runners(&self, looping: Loop, window_ns: u64) -> Result<Vec<Runner>, BenchError> {
        let start = |&cpu: &u32| {
            Runner::start(Start {
                order: self.order(looping, cpu, window_ns),
                body: self.settings.body,
                cache_bytes: self.settings.cache_bytes,
                warm_up_cycles: self.grain.cycles(self.settings.warm_up.as_nanos() as u64),
                fifo: self.settings.fifo,
                times_core: true,
            })
        };
        self.settings.cpus.iter().map(start).collect()
    }

    fn joins(&self, looping: Loop, watched: bool) -> Vec<Join> {
        let rules = Rules { way_ns: self.way.0 };
        let expected = self.settings.window_ns() / self.settings.quantum_ns.max(1);
        let join = |&cpu: &u32| {
            let seed = self.settings.seed ^ u64::from(cpu);
            let ledger = GapLedger::new(rules, self.settings.is_virtual, seed);
            Join::new(looping, watched, rules, ledger, expected)
        };
        self.settings.cpus.iter().map(join).collect()
    }

    fn run(&self, looping: Loop, traced: bool) -> Result<NoiseSample, BenchError> {
        let probes = self.probes.as_ref().filter(|_| traced);
        let own = self.own_cpus();
        let window_ns = self.window_ns(looping, traced);
        let runners = self.runners(looping, window_ns)?;
        // All that the loops touch is there now.
        let locked = LockedMemory::current();
        let mut joins = self.joins(looping, probes.is_some());
        let mut clocks = ClockMap::default();
        let before = Seen::now(&self.root, &self.settings.cpus, probes).map_err(failed)?;
        let allowed = sched_getaffinity(None).ok();
        if !own.is_empty() {
            let _ = sched_setaffinity(None, &cpu_set(&own)); // else it is noise like others
        }
        let pace = self.pace(!own.is_empty(), window_ns);
        let ended = collect(&runners, &mut joins, &mut clocks, probes, &pace);
        if let Some(allowed) = allowed {
            let _ = sched_setaffinity(None, &allowed); // we were allowed all of it a moment ago
        }
        let interrupted = ended.map_err(failed)? == WaitOutcome::Stopped;
        let after = Seen::now(&self.root, &self.settings.cpus, probes).map_err(failed)?;
        let mut sample = self.sample(looping, runners, joins, &clocks, (&before, &after))?;
        sample.interrupted = interrupted;
        if let Err(error) = &locked.result {
            let words = "memory could not be locked, so that pages may go missing";
            sample.warnings.push(format!("{words} ({error}); ulimit -l unlimited allows it"));
        }
        Ok(sample)
    }

    fn sample(
        &self,
        looping: Loop,
        runners: Vec<Runner>,
        joins: Vec<Join>,
        clocks: &ClockMap,
        (before, after): (&Seen, &Seen),
    ) -> Result<NoiseSample, BenchError> {
        let (mut cpus, mut facts, mut warnings) = (Vec::new(), Map::new(), Vec::new());
        let mut stretches = Vec::new();
        let mut traced =
            Traced { lost: after.lost.saturating_sub(before.lost), ..Traced::default() };
        for (runner, mut join) in runners.into_iter().zip(joins) {
            let cpu = runner.cpu;
            let (ring, back) = runner.back()?;
            let start_ns = join.start_ns.or_else(|| clocks.ns_at(back.ran.start)).unwrap_or(0);
            let beside = std::mem::take(&mut join.beside);
            stretches.push((cpu, beside, clocks.ns_at(back.ran.end).unwrap_or(0)));
            let window_ns = clocks.ns_at(back.ran.end).unwrap_or(0).saturating_sub(start_ns);
            join.finish(window_ns, self.settings.quantum_ns);
            traced.marks += join.marks_taken;
            traced.outside += join.outside;
            facts.insert(format!("turns_on_cpu_{cpu}"), json!(back.turns));
            if let Some(core) = CoreClock::new(back.core_cycles, self.grain.hz) {
                core.tell(cpu, &mut facts, &mut warnings);
            }
            cpus.push(CpuNoise {
                cpu,
                start_ns,
                window_ns,
                lost_records: ring.lost() + join.timeless,
                migrated: join.migrated,
                page_faults: back.counted.map(|counted| counted.page_faults),
                switches: back.counted.map(|counted| counted.switches),
                steal_ns: before.stolen_until(after, cpu),
                smi_count: before.smis_until(after, cpu),
                work: join.into_work(),
            });
        }
        if after.to_first_process > before.to_first_process && self.probes.is_some() {
            warnings.push(format!(
                "tasks of process 1 ran {} times in place of a loop; some kernels call no BPF program \
                 meanwhile, and interrupts in that time are then counted as the task's",
                after.to_first_process - before.to_first_process
            ));
        }
        let probes = self.probes.as_ref().filter(|_| after.watched);
        Ok(NoiseSample {
            looping,
            cpus,
            beside: if after.watched { beside(&self.root, stretches) } else { Vec::new() },
            names: probes.map(|p| p.with_marks(|m| m.names(&self.root))).unwrap_or_default(),
            traced: after.watched.then_some(traced),
            injected: Vec::new(),
            interrupted: false,
            warnings,
            facts,
        })
    }
}

/// The most memory that this process had at once, of its `status`, bytes.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

impl NoiseBench for LiveNoise {
    fn facts(&self) -> NoiseFacts {
        let settings = &self.settings;
        let mut map = Map::new();
        map.insert("cpus".into(), json!(format_cpu_list(&settings.cpus)));
        map.insert("observer_cpus".into(), json!(format_cpu_list(&self.own_cpus())));
        map.insert("body".into(), json!(settings.body.word()));
        map.insert("tsc_hz".into(), json!(self.grain.hz));
        map.insert("clock_step_ns".into(), json!(self.grain.step_ns));
        map.insert("iteration_ns".into(), json!(self.grain.turn_ns()));
        map.insert("threshold_ns".into(), json!(self.threshold_ns));
        map.insert("threshold_ns_min".into(), json!(self.grain.threshold_ns_min()));
        if self.probes.is_some() {
            map.insert("entry_latency_max_ns".into(), json!(self.way.0));
            map.insert("way_measured".into(), json!(self.way.1));
        }
        let mut observer = Map::new();
        if let Some(peak) = self.root.text("proc/self/status").as_deref().and_then(peak_bytes) {
            observer.insert("peak_memory_bytes".into(), json!(peak));
        }
        NoiseFacts {
            bench: "live".to_owned(),
            can_trace: self.probes.is_some(),
            sees_whole: false,
            settings: map,
            observer,
            absent: self.absent.clone(),
            warnings: self.warnings.clone(),
        }
    }

    fn measure(&mut self, looping: Loop, traced: bool) -> Result<NoiseSample, BenchError> {
        self.run(looping, traced)
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }
}

#[cfg(test)]
mod tests {
    use super::peak_bytes;

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
