//! The plan, how it is measured, and what is reported.

use serde_json::{Map, Value as Json, json};

use super::bench::{NoiseBench, Visibility};
use super::loops::Loop;
use super::sample::{LoopResult, NoiseSample, Traced};
use super::tables;
use crate::experiment::{BenchError, Experiment, Measured, Progress, Report, Samples, Steps};

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The loops, in order.
    pub loops: Vec<Loop>,
    /// Find the causes of detours, where the bench can.
    pub trace: bool,
}

impl Plan {
    /// The windows to measure: which loop, and whether with causes. Where probes find the causes, the
    /// detour loop runs once more before, without them: the difference is what they cost.
    fn windows(&self, visibility: Visibility) -> Vec<(Loop, bool)> {
        let traced = self.trace && visibility != Visibility::Gaps;
        let mut windows = Vec::new();
        for &looping in &self.loops {
            if traced && visibility == Visibility::KernelEvents && looping == Loop::Detour {
                windows.push((looping, false));
            }
            // The work of slots is searched for its periods, not for its causes.
            windows.push((looping, traced && looping != Loop::Ftq));
        }
        windows
    }
}

impl Samples for Vec<NoiseSample> {
    fn is_empty(&self) -> bool {
        self.iter().all(|sample| sample.cpus.is_empty())
    }
}

impl Experiment for Plan {
    const NAME: &'static str = "noise";
    type Bench = dyn NoiseBench;
    type Samples = Vec<NoiseSample>;

    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Self::Samples>, BenchError> {
        let mut measured = Measured::<Self::Samples>::default();
        let windows = self.windows(bench.visibility());
        let mut steps = Steps::new(windows.len(), progress);
        for (looping, traced) in windows {
            if bench.stop_requested() {
                break;
            }
            let label = format!("loop {looping}{}", if traced { "" } else { ", bare" });
            steps.start(bench, label.clone());
            match bench.measure(looping, traced) {
                Ok(sample) => measured.samples.push(sample),
                Err(error) => measured.part_failed(Self::NAME, label, error)?,
            }
        }
        measured.complete &=
            !bench.stop_requested() && measured.samples.iter().all(|sample| !sample.interrupted);
        Ok(measured)
    }

    fn report(&self, samples: &Self::Samples) -> Report {
        let (placement, mut absent) = tables::placement(samples);
        let (tick, no_tick) = tables::tick(samples);
        absent.splice(..0, no_tick.into_iter().chain(tables::aftermath_absent(samples)));
        let mut tables = vec![
            tables::noise(samples),
            tick,
            tables::causes(samples),
            tables::fwq(samples),
            tables::aftermath(samples),
            placement,
            tables::ftq(samples),
            tables::periods(samples),
            tables::injected(samples),
            tables::sizes(samples),
            tables::detours(samples),
            tables::repetitions(samples),
            tables::slots(samples),
            tables::spectrum(samples),
        ];
        tables.retain(|table| !table.rows().is_empty());
        let windows = samples.iter().map(|sample| {
            let mut window = sample.facts.clone();
            window.insert("loop".to_owned(), json!(sample.looping.word()));
            window.insert("traced".to_owned(), json!(sample.traced.is_some()));
            Json::Object(window)
        });
        let windows = ("windows".to_owned(), Json::Array(windows.collect()));
        Report {
            tables,
            settings: Map::from_iter([windows]),
            observer: observer(samples),
            warnings: warnings(samples),
            absent,
        }
    }
}

/// What watching costs: the detour loop bare and watched, and what was lost.
fn observer(samples: &[NoiseSample]) -> Map<String, Json> {
    let mut observer = Map::new();
    let traces = || samples.iter().filter_map(|sample| sample.traced);
    let sum = |of: fn(&Traced) -> u64| traces().map(|traced| of(&traced)).sum::<u64>();
    let records_lost: u64 =
        samples.iter().flat_map(|sample| &sample.cpus).map(|cpu| cpu.lost_records).sum();
    let watched_ns: u64 = samples
        .iter()
        .filter(|sample| sample.traced.is_some())
        .map(|sample| sample.cpus.iter().map(|cpu| cpu.window_ns).max().unwrap_or(0))
        .sum();
    if watched_ns > 0 {
        observer.insert("events".into(), json!(sum(|traced| traced.marks)));
        let rate = sum(|traced| traced.marks) as f64 * 1e9 / watched_ns as f64;
        observer.insert("events_per_second".into(), json!(rate));
        observer.insert("events_outside_detours".into(), json!(sum(|traced| traced.outside)));
    }
    observer.insert("events_lost".into(), json!(sum(|traced| traced.lost) + records_lost));
    let detours = |traced: bool| {
        let wanted = |sample: &&NoiseSample| {
            sample.looping == Loop::Detour && sample.traced.is_some() == traced
        };
        samples.iter().find(wanted).map(detours_in_all)
    };
    if let (Some(bare), Some(traced)) = (detours(false), detours(true)) {
        observer.insert("bare_lost_ratio".into(), json!(bare.lost_ratio));
        observer.insert("traced_lost_ratio".into(), json!(traced.lost_ratio));
        observer.insert("bare_detour_p50_ns".into(), json!(bare.median_ns));
        observer.insert("traced_detour_p50_ns".into(), json!(traced.median_ns));
        if let (Some(bare), Some(traced)) = (bare.median_ns, traced.median_ns) {
            let added = i128::from(traced) - i128::from(bare);
            observer.insert("added_per_detour_p50_ns".into(), json!(added as i64));
        }
    }
    observer
}

struct InAll {
    lost_ratio: Option<f64>,
    median_ns: Option<u64>,
}

fn detours_in_all(sample: &NoiseSample) -> InAll {
    let mut gaps = stats::Distribution::default();
    let mut window_ns = 0;
    for cpu in &sample.cpus {
        if let LoopResult::Gaps(ledger) = &cpu.result {
            gaps.merge(&ledger.gaps);
            window_ns += cpu.window_ns;
        }
    }
    let lost_ratio = (window_ns > 0).then(|| gaps.sum as f64 / window_ns as f64);
    InAll { lost_ratio, median_ns: gaps.quantile(50_000) }
}

fn warnings(samples: &[NoiseSample]) -> Vec<String> {
    let mut warnings = Vec::new();
    for sample in samples {
        let label = sample.looping;
        warnings.extend(sample.warnings.iter().map(|text| format!("{label}: {text}")));
        if let Some(lost) = sample.traced.map(|traced| traced.lost).filter(|lost| *lost > 0) {
            warnings.push(format!(
                "{label}: {lost} kernel events were lost; their time is in the remainder"
            ));
        }
        for cpu in &sample.cpus {
            let number = cpu.cpu;
            if cpu.lost_records > 0 {
                let lost = cpu.lost_records;
                warnings
                    .push(format!("{label}: CPU {number}: {lost} records of the loop were lost"));
            }
            if cpu.migrated > 0 {
                let times = cpu.migrated;
                warnings.push(format!("{label}: CPU {number}: {times} samples on another CPU"));
            }
            if let LoopResult::Gaps(ledger) = &cpu.result
                && ledger.unbalanced > 0
            {
                let gaps = ledger.unbalanced;
                warnings.push(format!(
                    "broken: {label}: CPU {number}: the causes of {gaps} detours do not add up to \
                     them; their time is in the remainder"
                ));
            }
            if let LoopResult::Quanta(fixed) = &cpu.result
                && let Some(words) = changed_speed(&fixed.least_ns)
            {
                warnings.push(format!("{label}: CPU {number}: {words}"));
            }
        }
    }
    warnings
}

/// How much the minimum time of two blocks of quanta may differ: the work is the same.
const SPEED_CHANGE_MAX: f64 = 1.05;

fn changed_speed(least_ns: &[u64]) -> Option<String> {
    let (least, most) = (*least_ns.iter().min()?, *least_ns.iter().max()?);
    (most as f64 > least as f64 * SPEED_CHANGE_MAX).then(|| {
        format!(
            "the processor changed its speed, or shares its core: the same work took {least} ns at \
             best in one part of the window and {most} ns in another"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_speed_is_one_beyond_a_twentieth() {
        assert_eq!(changed_speed(&[]), None);
        assert_eq!(changed_speed(&[100_000, 104_000]), None);
        assert!(changed_speed(&[100_000, 106_000]).is_some());
    }
}
