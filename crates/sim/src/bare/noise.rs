//! [`BareNoise`]: the machine without a kernel as a bench of the noise experiment. Nothing interrupts its
//! loops, whose times are the reference for loops under a kernel.

use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::noise::{
    AttributionParameters, Body, CpuNoise, Fixed, Gap, GapLedger, KeepDetours, Loop, LoopResult,
    NoiseBench, NoiseSample, Quantum, Slots, Visibility,
};
use serde_json::{Map, json};

use super::lines::{Output, RECORDS_MAX};
use super::{RunOutcome, WALK_BYTES_MAX, run, watch};
use crate::Cache;
use crate::boot::Limits;
use crate::counters;
use crate::models::Model;
use crate::qemu::Qemu;

/// Bytes that stay in a first-level cache; as in the live loops.
const LOAD_BYTES: u64 = 16 << 10;
/// Memory of the body `memory` without a model, bytes.
const MEMORY_BYTES: u64 = 16 << 20;

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct BareNoiseSettings {
    /// The work of the loops that have work.
    pub body: Body,
    /// Time of a quantum, and of a slot, ns.
    pub quantum_ns: u64,
    /// Iterations of the body in a quantum. `None`: the program chooses the number that takes `quantum_ns`.
    pub iterations: Option<u64>,
    /// Quanta, and slots; 1 to 131,072.
    pub repetitions: u64,
    /// Shortest gap that is a detour, ns.
    pub threshold_ns: u64,
    /// The model of the processor; without one an instruction takes 1 ns.
    pub model: Option<Model>,
    /// How long the machine may run.
    pub limits: Limits,
    /// The choice of single detours that are kept.
    pub keep: KeepDetours,
}

/// The machine, ready to run loops.
pub struct BareNoise {
    cache: Cache,
    qemu: Qemu,
    settings: BareNoiseSettings,
    stop: Box<dyn Fn() -> bool>,
}

impl BareNoise {
    /// Maximum number of quanta or slots of a window.
    pub const REPETITIONS_MAX: u64 = RECORDS_MAX as u64;

    /// Makes a bench with these settings. `stop` returns whether the user asked to stop.
    #[must_use]
    pub fn new(
        cache: Cache,
        qemu: Qemu,
        settings: BareNoiseSettings,
        stop: Box<dyn Fn() -> bool>,
    ) -> Self {
        BareNoise { cache, qemu, settings, stop }
    }

    /// Returns the program's command line, in the format of `crates/bare`. Its times are in ns, because the machine's
    /// time-stamp counter counts ns of guest time.
    fn command_line(&self, looping: Loop) -> String {
        let settings = &self.settings;
        let (body, bytes) = match settings.body {
            Body::Add => ("add", 0),
            Body::Alu => ("alu", 0),
            Body::Branch => ("branch", 0),
            Body::Load => ("walk", LOAD_BYTES),
            Body::Memory => ("walk", self.memory_bytes()),
        };
        let iterations = settings.iterations.unwrap_or(0);
        let window_ns = settings.quantum_ns.saturating_mul(settings.repetitions);
        format!(
            "noise loop={looping} body={body} bytes={bytes} quantum={} iterations={iterations} repetitions={} \
             window={window_ns} threshold={} warm_up=2",
            settings.quantum_ns, settings.repetitions, settings.threshold_ns
        )
    }

    /// Returns twice the size of the model's second-level cache, up to the program's limit.
    fn memory_bytes(&self) -> u64 {
        let l2 = self.settings.model.as_ref().and_then(|model| model.model.l2.as_ref());
        l2.map(|l2| l2.size_bytes)
            .map_or(MEMORY_BYTES, |bytes| bytes.saturating_mul(2))
            .clamp(1 << 20, WALK_BYTES_MAX)
    }

    /// Converts the outcome of a run to the sample of a loop.
    ///
    /// Fails if the guest's records are impossible.
    fn sample(&self, looping: Loop, run: &RunOutcome) -> Result<NoiseSample, BenchError> {
        let (output, settings) = (&run.output, &self.settings);
        let result = match looping {
            Loop::Detour => LoopResult::Gaps(Box::new(self.gaps(output))),
            Loop::Fwq => LoopResult::Quanta(Box::new(self.quanta(output))),
            Loop::Ftq => {
                let slots = slots(&output.records, settings.quantum_ns, settings.repetitions)?;
                LoopResult::Slots(Box::new(slots))
            }
        };
        let start_ns = output.ns(output.start);
        let window_ns = output.ns(output.end).saturating_sub(start_ns);
        // Without a kernel there is nothing else to count.
        let cpu =
            CpuNoise { lost_records: output.lost, ..CpuNoise::new(0, start_ns, window_ns, result) };
        Ok(NoiseSample {
            facts: facts(looping, run),
            ..NoiseSample::in_exact_clock(looping, vec![cpu])
        })
    }

    /// Converts the records of the detour loop: start and end of each gap.
    fn gaps(&self, output: &Output) -> GapLedger {
        let mut ledger = GapLedger::new(AttributionParameters::default(), self.settings.keep);
        for &[start, end] in &output.records {
            ledger.add_bare(Gap { start_ns: output.ns(start), end_ns: output.ns(end) });
        }
        ledger
    }

    /// Converts the records of the loop of fixed work: start and end of each quantum.
    fn quanta(&self, output: &Output) -> Fixed {
        let mut fixed = Fixed::default();
        let quanta_per_block = Fixed::quanta_per_block(output.records.len() as u64);
        for &[start, end] in &output.records {
            let time_ns = output.ns(end.saturating_sub(start));
            let mut quantum = Quantum::untraced(output.ns(start), time_ns);
            // Without a kernel there are no faults, and nothing else takes time.
            quantum.faulted = Some(false);
            quantum.attribute(&mut [], Some(std::iter::empty()));
            fixed.add(quantum, quanta_per_block);
        }
        fixed
    }
}

/// Converts the records of the loop of fixed time, in a window of `repetitions` slots: number of a slot, and its work.
/// Slots without work have no record.
///
/// Fails if a slot is not after the slot before it, or not in the window: the records come from a guest, so they can be
/// any numbers.
fn slots(records: &[[u64; 2]], slot_ns: u64, repetitions: u64) -> Result<Slots, BenchError> {
    let mut slots = Slots { slot_length_ns: slot_ns as f64, is_alone: true, ..Slots::default() };
    for &[slot, work] in records {
        if !(slots.count..repetitions).contains(&slot) {
            let reason = format!(
                "the bare machine reports slot {slot} after {} of {repetitions} slots",
                slots.count
            );
            return Err(BenchError::Failed(reason));
        }
        slots.add(slot, work);
    }
    Ok(slots)
}

/// Returns the facts of a window: its parameters, and the simulator's counters.
fn facts(looping: Loop, run: &RunOutcome) -> Map<String, serde_json::Value> {
    let (mut facts, output) = (Map::new(), &run.output);
    facts.insert("iterations_on_cpu_0".into(), json!(output.iterations));
    facts.insert("clock_hz".into(), json!(output.hz));
    if looping == Loop::Detour && output.loops > 0 {
        let iteration_ns = output.ns(output.end - output.start) as f64 / output.loops as f64;
        facts.insert("iteration_ns".into(), json!(iteration_ns));
    }
    let region = run.accounting.regions.first();
    if let Some(used) = region.and_then(|region| region.cpus.first()).map(|cpu| cpu.used) {
        let counted =
            (0..counters::COUNTERS).filter(|counter| run.accounting.counters & (1 << counter) != 0);
        for (counter, name) in
            counted.filter_map(|counter| Some((counter, counters::name(counter)?)))
        {
            facts.insert(name.to_owned(), json!(used[counter]));
        }
    }
    facts
}

impl Bench for BareNoise {
    fn facts(&self) -> BenchFacts {
        let settings = &self.settings;
        let mut map = Map::new();
        map.insert("system".into(), json!("none"));
        map.insert("context".into(), json!("bare"));
        map.insert("qemu".into(), json!(self.qemu.version_text));
        map.insert("cpus".into(), json!("0"));
        map.insert("body".into(), json!(settings.body.word()));
        map.insert("iterations".into(), json!(settings.iterations));
        map.insert("threshold_ns".into(), json!(settings.threshold_ns));
        let model = settings.model.as_ref();
        map.insert("model".into(), json!(model.map(|model| &model.model.name)));
        map.insert("model_sha256".into(), json!(model.map(|model| &model.sha256)));
        BenchFacts {
            bench: "sim".to_owned(),
            settings: map,
            observer: Map::new(),
            absent: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn stop_requested(&self) -> bool {
        (self.stop)()
    }
}

impl NoiseBench for BareNoise {
    fn visibility(&self) -> Visibility {
        Visibility::Gaps
    }

    fn measure(&mut self, looping: Loop, _traced: bool) -> Result<NoiseSample, BenchError> {
        let watch = watch(self.settings.model.as_ref());
        let line = self.command_line(looping);
        let run_outcome =
            run(&self.cache, &self.qemu, &watch, false, &line, self.settings.limits, &self.stop);
        match run_outcome? {
            Some(run_outcome) => self.sample(looping, &run_outcome),
            None => Err(BenchError::Failed("stopped".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_window() {
        let good = slots(&[[0, 5], [1, 6], [4, 7]], 100, 5).unwrap();
        assert_eq!((good.count, good.empty, good.work_sum, good.work_max), (5, 2, 18, 7));
        assert_eq!((good.slot_length_ns, good.first), (100.0, vec![5, 6, 0, 0, 7]));
        // Numbers of slots with which memory would grow, or which come twice.
        let far = (1..1000).map(|number| [number * 100_000, 1]).collect::<Vec<_>>();
        for records in [far.as_slice(), &[[u64::MAX, 1]], &[[3, 1], [3, 1]], &[[5, 1]]] {
            let error = slots(records, 100, 5).unwrap_err().to_string();
            assert!(error.contains("the bare machine reports slot"), "{error}");
        }
    }
}
