//! The experiment `noise` as [`Experiment`]: the plan, its measurement on a bench, and the report from the samples. The
//! verb `noise` makes the plan from the command line.

use std::time::Duration;

use record::keys;
use serde_json::{Map, Value as Json, json};
use stats::median;

use super::bench::{NoiseBench, Visibility};
use super::ledger::GapLedger;
use super::loops::Loop;
use super::sample::{ContextName, LoopResult, NoiseSample, PairedWindows, Traced, kind_and_name};
use super::tables;
use super::undisturbed::{warning_of_slots, warnings_of_quanta};
use crate::cpu_warnings::{CpuWarning, CpuWarnings};
use crate::cpus::add_once;
use crate::expected_time::ExpectedTime;
use crate::experiment::{BenchError, Experiment, Measured, Progress, Report, Samples, Steps};
use crate::flight_table::Recorded;

/// Options of the measurement.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The loops to run, in order.
    pub loops: Vec<Loop>,
    /// Whether to find the causes of detours, if the bench can.
    pub trace: bool,
    /// Seed of the order of windows without and with probes in the comparison.
    pub seed: u64,
}

/// Number of pairs of windows without and with probes. The number is even, so each order can come equally often. It is
/// large enough for a 95 % interval of the median difference: from the 4th to the 13th of 16 sorted differences.
const PAIRS: u32 = 16;

impl Plan {
    /// The windows to measure: the loop of each, and whether to trace causes in it.
    fn windows(&self, visibility: Visibility) -> Vec<(Loop, bool)> {
        let traced = self.trace && visibility != Visibility::Gaps;
        let mut windows = Vec::new();
        for &looping in &self.loops {
            // The loop ftq needs no causes: its quanta are only searched for periods.
            windows.push((looping, traced && looping != Loop::Ftq));
        }
        windows
    }

    /// Whether to compare windows with probes and windows without probes, to show the cost of the probes.
    fn compares(&self, visibility: Visibility) -> bool {
        self.trace && visibility == Visibility::KernelEvents && self.loops.contains(&Loop::Detour)
    }

    /// Returns how long the measurement takes; `None` if the bench does not know it before.
    #[must_use]
    pub fn expected_time(&self, bench: &dyn NoiseBench) -> Option<ExpectedTime> {
        let visibility = bench.visibility();
        let windows = self.windows(visibility).len() as u32;
        let window_time = bench.expected_step()?;
        let comparison = if self.compares(visibility) {
            let parts = 2 * PAIRS;
            bench.expected_part(parts)? * parts
        } else {
            Duration::ZERO
        };
        Some(ExpectedTime { windows, window_time, comparison })
    }

    /// For each pair of windows: whether the window with probes comes first. The answer is yes for a random half of the
    /// pairs. Then drift and periodic disturbances affect windows with and without probes equally.
    fn probes_come_first(&self) -> Vec<bool> {
        let mut probes_come_first: Vec<bool> = (0..PAIRS).map(|pair| pair % 2 == 0).collect();
        stats::Random::new(self.seed).shuffle(&mut probes_come_first);
        probes_come_first
    }

    /// Measures the detour loop without and with probes, in pairs of short windows. Ends early, with the complete pairs
    /// so far, after a request to stop, or if a CPU's window is incomplete or empty.
    fn compare(&self, bench: &mut dyn NoiseBench) -> Result<Vec<PairedWindows>, BenchError> {
        let mut pairs = Vec::new();
        for is_traced_first in self.probes_come_first() {
            let mut pair = PairedWindows::default();
            for traced in [is_traced_first, !is_traced_first] {
                let sample = bench.measure_part(traced, 2 * PAIRS)?;
                if sample.interrupted || !sample.has_all_cpus() || bench.stop_requested() {
                    return Ok(pairs);
                }
                let detours = detours_of_all_cpus(&sample);
                // An empty window cannot be compared.
                let Some(lost_ratio) = detours.lost_ratio else { return Ok(pairs) };
                pair.lost_ratio[usize::from(traced)] = lost_ratio;
                pair.detour_p50_ns[usize::from(traced)] = detours.median_ns;
            }
            pairs.push(pair);
        }
        Ok(pairs)
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
        let compares = self.compares(bench.visibility());
        let mut steps = Steps::new(windows.len() + usize::from(compares), progress);
        let mut pairs = Vec::new();
        if compares {
            let label = "loop detour, without and with probes in turn".to_owned();
            steps.start(bench, label.clone());
            match self.compare(bench) {
                Ok(compared) => pairs = compared,
                Err(error) => measured.part_failed(Self::NAME, label, error)?,
            }
        }
        for (looping, traced) in windows {
            let label = format!("loop {looping}{}", if traced { "" } else { ", bare" });
            if bench.stop_requested() && !bench.is_measured(looping) {
                measured.left_out(label);
                continue;
            }
            steps.start(bench, label.clone());
            match bench.measure(looping, traced) {
                Ok(mut sample) => {
                    if looping == Loop::Detour {
                        sample.pairs = std::mem::take(&mut pairs);
                    }
                    if sample.interrupted {
                        measured.left_out(cut_short(&label, &sample));
                    }
                    measured.samples.push(sample);
                }
                Err(error) => measured.part_failed(Self::NAME, label, error)?,
            }
        }
        let is_complete = |sample: &NoiseSample| !sample.interrupted && sample.has_all_cpus();
        measured.complete &= measured.samples.iter().all(is_complete);
        Ok(measured)
    }

    fn report(&self, samples: &Self::Samples) -> Report {
        let (placement, mut absent) = tables::placement(samples);
        let (tick, no_tick) = tables::tick(samples);
        absent.splice(..0, no_tick.into_iter().chain(tables::aftermath_absent(samples)));
        let unmeasured = samples.iter().flat_map(|sample| &sample.unmeasured);
        add_once(&mut absent, unmeasured.map(|cpu| cpu.absence(Self::NAME)));
        // The order of the tables in the run.
        let mut tables = vec![
            tables::noise(samples),
            tick,
            tables::causes(samples),
            tables::longest(samples),
            tables::fwq(samples),
            tables::aftermath(samples),
            placement,
            tables::ftq(samples),
            tables::periods(samples),
            tables::injected(samples),
            tables::sizes(samples),
            tables::sizes_by_cause(samples),
            tables::lost_time(samples),
            tables::longest_parts(samples),
            tables::detours(samples),
            tables::repetitions(samples),
            tables::slots(samples),
            tables::spectrum(samples),
        ];
        let mut warnings = warnings(samples);
        let mut settings = Map::new();
        for sample in samples {
            let Some(recorded) = recorded(sample) else { continue };
            recorded.describe(&mut settings);
            warnings.extend(recorded.warnings());
            tables.push(recorded.table(tables::marked_detours(samples)));
        }
        tables.retain(|table| !table.rows().is_empty());
        let windows = samples.iter().map(|sample| {
            let mut window = sample.facts.clone();
            window.insert("loop".to_owned(), json!(sample.looping.word()));
            window.insert("traced".to_owned(), json!(sample.traced.is_some()));
            Json::Object(window)
        });
        settings.insert("windows".to_owned(), Json::Array(windows.collect()));
        Report { tables, settings, observer: observer(samples), warnings, absent }
    }
}

/// The flight record of a window, with names. `None` without one.
fn recorded(sample: &NoiseSample) -> Option<Recorded<'_>> {
    let recorder = sample.flight_record.as_ref()?;
    Some(Recorded { recorder, names: &sample.names, opened_ns: sample.opened_ns() })
}

/// Describes a window that a request to stop cut short, in words: the label, and how much of the window was measured.
fn cut_short(label: &str, sample: &NoiseSample) -> String {
    let longest_ns = sample.cpus.iter().map(|cpu| cpu.window_ns).max();
    longest_ns.map_or_else(
        || label.to_owned(),
        |ns| format!("{label} after {:.1} ms of its window", ns as f64 / 1e6),
    )
}

/// The overhead of the measurement, for the run's `observer`: counts of traced and lost events, and the detour loop
/// without and with probes. Its keys are public.
fn observer(samples: &[NoiseSample]) -> Map<String, Json> {
    let mut observer = Map::new();
    let traces = || samples.iter().filter_map(|sample| sample.traced);
    let sum = |count: fn(&Traced) -> u64| traces().map(|traced| count(&traced)).sum::<u64>();
    let records_lost: u64 =
        samples.iter().flat_map(|sample| &sample.cpus).map(|cpu| cpu.lost_records).sum();
    let traced_ns: u64 = samples
        .iter()
        .filter(|sample| sample.traced.is_some())
        .map(|sample| sample.cpus.iter().map(|cpu| cpu.window_ns).max().unwrap_or(0))
        .sum();
    if traced_ns > 0 {
        observer.insert("events".into(), json!(sum(|traced| traced.marks)));
        let rate = sum(|traced| traced.marks) as f64 * 1e9 / traced_ns as f64;
        observer.insert("events_per_second".into(), json!(rate));
        observer.insert("events_outside_detours".into(), json!(sum(|traced| traced.outside)));
    }
    observer
        .insert(keys::EVENTS_LOST_COUNT.into(), json!(sum(|traced| traced.lost) + records_lost));
    samples.iter().for_each(|sample| add_comparison(&sample.pairs, &mut observer));
    observer
}

/// Adds the cost of the probes from pairs of windows: the median without probes, the median with probes, and what the probes
/// add.
fn add_comparison(pairs: &[PairedWindows], observer: &mut Map<String, Json>) {
    if pairs.is_empty() {
        return;
    }
    observer.insert("compared_pairs".into(), json!(pairs.len()));
    let lost: Vec<[f64; 2]> = pairs.iter().map(|pair| pair.lost_ratio).collect();
    let lengths: Vec<[f64; 2]> = pairs.iter().filter_map(PairedWindows::p50_of_both_ns).collect();
    for (values, bare_key, traced_key) in [
        (lost, "bare_lost_ratio", "traced_lost_ratio"),
        (lengths, "bare_detour_p50_ns", "traced_detour_p50_ns"),
    ] {
        let sorted_side = |side: usize| sorted(values.iter().map(|pair| pair[side]).collect());
        observer.insert(bare_key.into(), json!(median(&sorted_side(0))));
        observer.insert(traced_key.into(), json!(median(&sorted_side(1))));
    }
    for added in [PairedWindows::added_lost(pairs), PairedWindows::added_length(pairs)] {
        added.into_iter().for_each(|added| added.describe(observer));
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The detours of all CPUs together.
struct DetourSummary {
    /// Share of the CPUs' time that detours took. `None` if no loop ran.
    lost_ratio: Option<f64>,
    /// Median length of a detour, ns. `None` with too few detours.
    median_ns: Option<u64>,
}

fn detours_of_all_cpus(sample: &NoiseSample) -> DetourSummary {
    let mut gaps = stats::Distribution::default();
    let mut window_ns = 0;
    for cpu in &sample.cpus {
        if let LoopResult::Gaps(ledger) = &cpu.result {
            gaps.merge(&ledger.gaps);
            window_ns += cpu.window_ns;
        }
    }
    let lost_ratio = (window_ns > 0).then(|| gaps.sum as f64 / window_ns as f64);
    DetourSummary { lost_ratio, median_ns: gaps.quantile(50_000) }
}

/// Warnings of the run: of whole windows, and of single CPUs, merged by kind.
fn warnings(samples: &[NoiseSample]) -> Vec<String> {
    let (mut warnings, mut cpu_warnings) = (Vec::new(), CpuWarnings::default());
    for sample in samples {
        let label = sample.looping;
        warnings.extend(sample.warnings.iter().map(|text| format!("{label}: {text}")));
        if let Some(lost) = sample.traced.map(|traced| traced.lost).filter(|lost| *lost > 0) {
            warnings.push(format!(
                "{label}: {lost} kernel events were lost: their time counts for what ran before \
                 them, or for the host or the firmware"
            ));
        }
        for warning in sample.cpu_warnings.iter().cloned().chain(warnings_of_cpus(sample)) {
            cpu_warnings.add(label.word(), warning);
        }
    }
    warnings.extend(cpu_warnings.lines());
    warnings
}

/// Warnings about single CPUs that follow from their results.
fn warnings_of_cpus(sample: &NoiseSample) -> Vec<CpuWarning> {
    let mut warnings = Vec::new();
    for cpu in &sample.cpus {
        let lost = cpu.lost_records;
        if lost > 0 {
            let warning = CpuWarning::new(cpu.cpu, "records of the loop were lost");
            warnings.push(warning.with_count(lost, "records"));
        }
        match &cpu.result {
            LoopResult::Gaps(ledger) => {
                if ledger.unbalanced > 0 {
                    let problem = "broken: the causes of detours do not add up to the detours; their \
                                   time is in the remainder";
                    let warning = CpuWarning::new(cpu.cpu, problem);
                    warnings.push(warning.with_count(ledger.unbalanced, "detours"));
                }
                if is_mostly_own(ledger, &sample.names) {
                    let problem = "threads of this or another irqlab are the largest cause of \
                                   detours: keep this one's off the measured CPUs (-c, -H), and run \
                                   no other";
                    warnings.push(CpuWarning::new(cpu.cpu, problem));
                }
            }
            LoopResult::Quanta(fixed) => warnings.extend(warnings_of_quanta(cpu.cpu, fixed)),
            LoopResult::Slots(slots) => warnings.extend(warning_of_slots(cpu.cpu, slots)),
        }
    }
    warnings
}

/// Whether a thread or a system call of irqlab takes more of the lost time than any other cause.
fn is_mostly_own(ledger: &GapLedger, names: &[ContextName]) -> bool {
    let largest = ledger.parts.iter().max_by_key(|(_, times)| times.sum);
    let named = largest.and_then(|(&part, _)| kind_and_name(part, names));
    named.is_some_and(|(_, name)| name.contains("irqlab"))
}

#[cfg(test)]
mod tests {
    use super::super::ledger::KeepDetours;
    use super::super::sample::CpuNoise;
    use super::super::split::{AttributionParameters, Gap, Part};
    use super::super::undisturbed::tests::fixed_with_minima;
    use super::*;

    #[test]
    fn pairs_remove_what_both_windows_have() {
        let mut random = stats::Random::new(7);
        // Other work takes 1 to 50 % of the CPU, and drifts. The probes add 0.1 %.
        let pair = |bare_ratio: f64, noise: f64| PairedWindows {
            lost_ratio: [bare_ratio, bare_ratio + 0.001 + noise],
            detour_p50_ns: [Some(5_000), Some(6_000)],
        };
        let pairs: Vec<PairedWindows> = (0..PAIRS)
            .map(|number| pair(0.01 + 0.03 * f64::from(number), (random.unit() - 0.5) * 1e-4))
            .collect();
        let mut observer = Map::new();
        add_comparison(&pairs, &mut observer);
        let number = |key: &str| observer[key].as_f64().unwrap();
        assert!((number("added_lost_ratio") - 0.001).abs() < 5e-5, "{observer:?}");
        let interval = ["added_lost_ratio_ci95_low", "added_lost_ratio_ci95_high"].map(number);
        assert!(interval[0] <= 0.001 && 0.001 <= interval[1], "{interval:?}");
        assert!(interval[1] - interval[0] < 1e-4, "{interval:?}");
        assert_eq!(number("added_per_detour_p50_ns"), 1_000.0);
        // Too few pairs have no interval.
        let mut observer = Map::new();
        add_comparison(&pairs[..5], &mut observer);
        assert!(observer["added_lost_ratio_ci95_low"].is_null(), "{observer:?}");
    }

    #[test]
    fn each_side_comes_first_in_half_of_the_pairs_in_no_fixed_order() {
        let order = |seed: u64| Plan { seed, ..Plan::default() }.probes_come_first();
        for seed in 0..20 {
            assert_eq!(order(seed).iter().filter(|first| **first).count(), PAIRS as usize / 2);
        }
        assert_eq!(order(1), order(1));
        assert!((2..20).any(|seed| order(seed) != order(1)));
    }

    #[test]
    fn a_loop_that_irqlab_disturbs_most_says_so() {
        let lines_for = |own_ns: u64| {
            let parameters = AttributionParameters::default();
            let mut ledger = GapLedger::new(parameters, KeepDetours::with_seed(1));
            let gap = Gap { start_ns: 0, end_ns: 500 + own_ns };
            let parts = [(Part::Context(0), 500), (Part::Context(1), own_ns)];
            ledger.add_split(gap, &mut parts.to_vec());
            let cpu = CpuNoise::new(3, 0, 1_000, LoopResult::Gaps(Box::new(ledger)));
            let mut sample = NoiseSample::in_exact_clock(Loop::Detour, vec![cpu]);
            sample.names = vec![
                ContextName::Task("kworker/3:1".to_owned()),
                ContextName::Other("system call", "202 of irqlab".to_owned()),
            ];
            warnings(&[sample])
        };
        assert!(lines_for(501)[0].contains("irqlab are the largest cause of detours"));
        assert!(lines_for(499).is_empty());
    }

    #[test]
    fn sixteen_cpus_have_a_line_for_each_kind_of_warning() {
        let cpu = |looping: Loop, number: u32| {
            let fixed = fixed_with_minima(&[100_000, 110_000 + u64::from(number)], 10);
            let result = match looping {
                Loop::Fwq => LoopResult::Quanta(Box::new(fixed)),
                _ => LoopResult::Slots(Box::default()),
            };
            CpuNoise { lost_records: 1 + u64::from(number), ..CpuNoise::new(number, 0, 1, result) }
        };
        let sample = |looping| {
            let cpus = (0..16).map(|number| cpu(looping, number)).collect();
            let frequency = |cpu| CpuWarning::new(cpu, "the core changed its frequency");
            let cpu_warnings = (0..16).map(frequency).collect();
            NoiseSample { cpu_warnings, ..NoiseSample::in_exact_clock(looping, cpus) }
        };
        let lines = warnings(&[sample(Loop::Fwq), sample(Loop::Ftq)]);
        let kinds = ["fwq, ftq: CPUs 0-15: the core changed", "fwq, ftq: CPUs 0-15: records of"];
        assert_eq!(lines.len(), 3, "{lines:?}");
        for (line, start) in lines.iter().zip(kinds) {
            assert!(line.starts_with(start), "{line}");
        }
        assert!(
            lines[1].ends_with("(least: 1 records, CPU 0, fwq; most: 16 records, CPU 15, ftq)")
        );
        let speed = "(least: 100000 and 110000 ns, CPU 0; most: 100000 and 110015 ns, CPU 15)";
        assert!(lines[2].starts_with("fwq: CPUs 0-15: ") && lines[2].ends_with(speed), "{lines:?}");
    }
}
