//! The experiment `wakeup` as [`Experiment`]: the plan, its measurement on a bench, and the report from the samples. The
//! verb `wakeup` makes the plan from the command line.

use std::time::Duration;

use record::keys;
use serde_json::{Map, Value as Json, json};
use stats::median;

use super::sample::{ProbeCost, WakeupSample};
use super::{tables, wakers_table};
use crate::added_cost::AddedCost;
use crate::cpu_warnings::{CpuWarning, CpuWarnings};
use crate::cpus::add_once;
use crate::expected_time::ExpectedTime;
use crate::experiment::{
    Bench, BenchError, Experiment, Measured, Progress, Report, Samples, Steps,
};
use crate::flight_table::Recorded;

/// A machine whose CPUs can run the threads.
pub trait WakeupBench: Bench {
    /// Whether the bench can find the causes of lateness.
    fn sees_events(&self) -> bool;

    /// Runs a thread on every measured CPU for one window. If `traced`, the bench also finds the causes.
    ///
    /// Fails if no thread can run.
    fn measure(&mut self, traced: bool) -> Result<WakeupSample, BenchError>;

    /// Whether `parts` parts of a window can be measured in reasonable time. Fails with the reason if not.
    fn can_measure_parts(&self, parts: u32) -> Result<(), String>;

    /// Returns how long [`WakeupBench::measure_part`] takes; `None` if that is unknown before it starts.
    fn expected_part(&self, _parts: u32) -> Option<Duration> {
        None
    }

    /// Like [`WakeupBench::measure`], for one of `parts` short parts of a window, and without the user's command.
    ///
    /// Fails if no thread can run.
    fn measure_part(&mut self, traced: bool, parts: u32) -> Result<WakeupSample, BenchError>;
}

/// Options of the measurement.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Whether to find the causes of lateness, if the bench can.
    pub trace: bool,
    /// Whether to compare short windows without and with marks before the window.
    pub compare: bool,
    /// Seed of the order of the short windows.
    pub seed: u64,
}

/// Number of pairs of windows without and with marks. The number is even, so each order can come equally often. It is
/// large enough for a 95 % interval of the median difference: from the 4th to the 13th of 16 sorted differences.
const PAIRS: u32 = 16;

/// The window, and the pairs of short windows that show what the marks cost.
#[derive(Clone, Debug, Default)]
pub struct WakeupSamples {
    pub window: Option<WakeupSample>,
    pub pairs: Vec<ProbeCost>,
}

impl Samples for WakeupSamples {
    fn is_empty(&self) -> bool {
        self.window.as_ref().is_none_or(|window| window.cpus.is_empty())
    }
}

impl Plan {
    /// Whether to compare windows without and with marks on this bench.
    fn compares(&self, bench: &dyn WakeupBench) -> bool {
        self.trace && bench.sees_events() && self.compare
    }

    /// Returns how long the measurement takes; `None` if the bench does not know it before.
    #[must_use]
    pub fn expected_time(&self, bench: &dyn WakeupBench) -> Option<ExpectedTime> {
        let parts = 2 * PAIRS;
        let comparison = if self.compares(bench) && bench.can_measure_parts(parts).is_ok() {
            bench.expected_part(parts)? * parts
        } else {
            Duration::ZERO
        };
        Some(ExpectedTime { windows: 1, window_time: bench.expected_step()?, comparison })
    }

    /// Measures pairs of short windows without and with marks, in random order within each pair. Ends early, with the
    /// complete pairs so far, after a request to stop, or after a window that lacks wake-ups or a CPU.
    fn compare(&self, bench: &mut dyn WakeupBench) -> Result<Vec<ProbeCost>, BenchError> {
        let mut traced_first: Vec<bool> = (0..PAIRS).map(|pair| pair % 2 == 0).collect();
        stats::Random::new(self.seed).shuffle(&mut traced_first);
        let mut pairs = Vec::new();
        for traced_first in traced_first {
            let mut pair = ProbeCost::default();
            for traced in [traced_first, !traced_first] {
                let sample = bench.measure_part(traced, 2 * PAIRS)?;
                let is_whole = !bench.stop_requested() && sample.has_all_cpus();
                let Some(p50_ns) = median_late_ns(&sample) else { return Ok(pairs) };
                if !is_whole {
                    return Ok(pairs);
                }
                let side = if traced { &mut pair.traced_p50_ns } else { &mut pair.bare_p50_ns };
                *side = p50_ns;
            }
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

/// The exact median lateness of all CPUs together, ns. `None` without wake-ups.
fn median_late_ns(sample: &WakeupSample) -> Option<f64> {
    let all = sample.cpus.iter().flat_map(|cpu| &cpu.ledger.first_late_ns);
    let mut all: Vec<f64> = all.map(|ns| *ns as f64).collect();
    all.sort_unstable_by(f64::total_cmp);
    median(&all)
}

impl Experiment for Plan {
    const NAME: &'static str = "wakeup";
    type Bench = dyn WakeupBench;
    type Samples = WakeupSamples;

    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Self::Samples>, BenchError> {
        let mut measured = Measured::<Self::Samples>::default();
        let traced = self.trace && bench.sees_events();
        let compares = self.compares(bench);
        let mut steps = Steps::new(1 + usize::from(compares), progress);
        if compares {
            let label = "wake-ups without and with marks in turn".to_owned();
            steps.start(bench, label.clone());
            let can_compare = bench.can_measure_parts(2 * PAIRS).map_err(BenchError::unavailable);
            match can_compare.and_then(|()| self.compare(bench)) {
                Ok(pairs) => measured.samples.pairs = pairs,
                Err(error) => measured.part_failed(Self::NAME, label, error)?,
            }
        }
        let label = if traced { "wake-ups" } else { "wake-ups, without marks" }.to_owned();
        if bench.stop_requested() {
            measured.left_out(label);
            return Ok(measured);
        }
        steps.start(bench, label.clone());
        match bench.measure(traced) {
            Ok(sample) => {
                if sample.interrupted {
                    let measured_s = sample.window_ns as f64 / 1e9;
                    measured.left_out(format!("{label} after {measured_s:.3} s of the window"));
                }
                measured.complete &= sample.has_all_cpus();
                measured.samples.window = Some(sample);
            }
            Err(error) => measured.part_failed(Self::NAME, label, error)?,
        }
        Ok(measured)
    }

    fn report(&self, samples: &Self::Samples) -> Report {
        let Some(window) = &samples.window else { return Report::default() };
        let mut absent = Vec::new();
        add_once(&mut absent, window.unmeasured.iter().map(|cpu| cpu.absence(Self::NAME)));
        add_once(&mut absent, window.absent.iter().cloned());
        let mut tables = vec![
            tables::seeds(window),
            tables::wakeup(window, added_cost(&samples.pairs).as_ref()),
            tables::causes(window),
            tables::worst_table(window),
            tables::worst_functions(window),
            tables::distribution(window),
            tables::worst_parts(window),
            wakers_table::wakers(window),
        ];
        let mut settings = window.facts.clone();
        let mut warnings = warnings(window);
        if let Some(recorded) = recorded(window) {
            recorded.describe(&mut settings);
            warnings.extend(recorded.warnings());
            tables.push(recorded.table(tables::late_wake_ups(window)));
        }
        if let Some(sentence) = tables::worst_case(window) {
            settings.insert("worst_case".to_owned(), json!(sentence));
        }
        tables.retain(|table| !table.rows().is_empty());
        settings.insert(keys::MEASURED_WINDOW_NS.to_owned(), json!(window.window_ns));
        let broken_cpus = window.cpus.iter().filter(|cpu| cpu.ledger.unbalanced > 0).count();
        let broken_records =
            window.cpu_warnings.iter().filter(|warning| warning.is_broken()).count();
        settings.insert(keys::BROKEN_COUNT.to_owned(), json!(broken_cpus + broken_records));
        settings.insert("traced".to_owned(), json!(window.events.is_some()));
        Report { tables, settings, observer: observer(samples, window), warnings, absent }
    }
}

/// The flight record of the window, with names. `None` without one.
fn recorded(window: &WakeupSample) -> Option<Recorded<'_>> {
    let recorder = window.flight_record.as_ref()?;
    let opened_ns = window.cpus.iter().map(|cpu| cpu.start_ns).min().unwrap_or(0);
    Some(Recorded { recorder, names: &window.names, opened_ns })
}

/// The overhead of the measurement, for the run's `observer`. Its keys are public.
fn observer(samples: &WakeupSamples, window: &WakeupSample) -> Map<String, Json> {
    let lost_wakeups: u64 = window.cpus.iter().map(|cpu| cpu.lost).sum();
    let mut observer = Map::new();
    if let Some(events) = window.events {
        observer.insert("events".into(), json!(events));
        if window.window_ns > 0 {
            let rate = events as f64 * 1e9 / window.window_ns as f64;
            observer.insert("events_per_second".into(), json!(rate));
        }
    }
    // Without tracing, no kernel event was asked for.
    if let Some(lost) = window.lost_events {
        observer.insert(keys::EVENTS_LOST_COUNT.into(), json!(lost));
    }
    observer.insert(keys::WAKEUPS_LOST_COUNT.into(), json!(lost_wakeups));
    add_probe_cost(&samples.pairs, &mut observer);
    observer
}

/// What the marks add to the median lateness. `None` without pairs of windows.
fn added_cost(pairs: &[ProbeCost]) -> Option<AddedCost> {
    let difference = |pair: &ProbeCost| pair.traced_p50_ns - pair.bare_p50_ns;
    AddedCost::new("added_late_p50_ns", pairs.iter().map(difference))
}

/// Adds the median lateness of pairs of windows without and with marks, and what the marks add.
fn add_probe_cost(pairs: &[ProbeCost], observer: &mut Map<String, Json>) {
    let Some(added) = added_cost(pairs) else { return };
    let sorted = |value: fn(&ProbeCost) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(value).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    observer.insert("compared_pairs".into(), json!(pairs.len()));
    observer.insert("bare_late_p50_ns".into(), json!(median(&sorted(|pair| pair.bare_p50_ns))));
    let traced = sorted(|pair| pair.traced_p50_ns);
    observer.insert("traced_late_p50_ns".into(), json!(median(&traced)));
    added.describe(observer);
}

/// Warnings of the run: of the whole window, and of single CPUs, merged by kind.
fn warnings(window: &WakeupSample) -> Vec<String> {
    let mut warnings = window.warnings.clone();
    if let Some(lost) = window.lost_events.filter(|lost| *lost > 0) {
        warnings.push(format!(
            "{lost} kernel events were lost; their time counts for what ran before them"
        ));
    }
    let unseen: u64 = window.cpus.iter().map(|cpu| cpu.ledger.unseen).sum();
    if unseen > 0 {
        warnings.push(format!(
            "{unseen} wake-ups lack a kernel event, so a part of their lateness, or all of it, is other: some kernels call \
             no BPF program while a thread of process 1 runs"
        ));
    }
    let scheduler = window.facts.get(keys::SCHEDULER).and_then(Json::as_str).unwrap_or_default();
    if scheduler.starts_with("SCHED_DEADLINE") && window.cpus.iter().any(|cpu| cpu.missed > 0) {
        warnings.push(
            "periods were missed under SCHED_DEADLINE: a thread that has used up its RUNTIME waits for its next PERIOD, and \
             this time is in the classes switch and tasks (a longer RUNTIME avoids it)"
                .to_owned(),
        );
    }
    let mut cpu_warnings = CpuWarnings::default();
    for warning in &window.cpu_warnings {
        cpu_warnings.add(Plan::NAME, warning.clone());
    }
    for cpu in &window.cpus {
        let counted = [
            (cpu.lost, "wake-ups were lost", "wake-ups"),
            (cpu.ledger.unbalanced, "broken: causes do not add up to the lateness", "wake-ups"),
            (cpu.missed, "periods were over before the thread ran again", "periods"),
            (
                cpu.waker.map_or(0, |waker| waker.missed),
                "periods were over before the waker ran again: it sent no wake-up",
                "periods",
            ),
            (
                cpu.disk.map_or(0, |_| cpu.ledger.reads.no_interrupt),
                "reads of the disk have no event of its interrupt or of the wake-up, and no lateness",
                "reads",
            ),
            (
                cpu.disk.map_or(0, |_| cpu.ledger.reads.several_interrupts),
                "wake-ups had several interrupts of the disk during the read: their lateness may be too short, because it \
                 begins with the last one",
                "wake-ups",
            ),
            (
                cpu.not_asleep().unwrap_or(0),
                "wake-ups found the thread not yet asleep, and are not in its lateness",
                "wake-ups",
            ),
        ];
        for (count, problem, unit) in counted {
            if count > 0 {
                let warning = CpuWarning::new(cpu.cpu, problem).with_count(count, unit);
                cpu_warnings.add(Plan::NAME, warning);
            }
        }
    }
    warnings.extend(cpu_warnings.lines());
    warnings
}
