//! The plan of the experiment `handlers`: measures its conditions on a bench, and reports the tables. The command
//! (`irqlab/src/verbs`) makes the plan, and chooses the bench.

use record::{Table, keys};
use serde_json::{Map, Value as Json, json};

use super::bench::{HandlersBench, Pass, ProbeOverhead};
use super::condition::Condition;
use super::hotplug;
use super::sample::{Timing, WindowSample};
use super::samples::{ConditionSamples, Samples};
use super::{storm, tables};
use crate::cpu_warnings::CpuWarnings;
use crate::experiment::{BenchError, Experiment, Measured, Progress, Report, Steps};
use crate::timeline;

/// The conditions to measure.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub conditions: Vec<Condition>,
    /// Whether to report the table `histograms` too.
    pub histograms: bool,
}

impl Experiment for Plan {
    const NAME: &'static str = "handlers";
    type Bench = dyn HandlersBench;
    type Samples = Samples;

    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError> {
        let mut measured = Measured::<Samples>::default();
        measured.samples.passes = bench.passes();
        let passes = measured.samples.passes.clone();
        bench.prepare(&self.conditions);
        let mut steps = Steps::new(self.conditions.len() * passes.len(), progress);
        for (index, &condition) in self.conditions.iter().enumerate() {
            if bench.stop_requested() && !bench.is_measured(condition) {
                measured.left_out(condition.label());
                continue;
            }
            match measure_passes(condition, &passes, bench, &mut steps) {
                Ok(MeasuredPasses { samples, missing, failed }) => {
                    measured.complete &= samples.is_complete();
                    missing.into_iter().for_each(|part| measured.left_out(part));
                    // Without a window, the user stopped the run before the window opened.
                    if !samples.timing.windows.is_empty() {
                        measured.samples.conditions.push(samples);
                    }
                    for (part, error) in failed {
                        measured.part_failed("events", part, error)?;
                    }
                }
                Err(error) => measured.part_failed(Self::NAME, condition.label(), error)?,
            }
            steps.skip_to((index + 1) * passes.len());
        }
        measured.samples.overhead = bench.probe_overhead();
        Ok(measured)
    }

    fn report(&self, samples: &Samples) -> Report {
        let Samples { conditions, passes, overhead } = samples;
        let mut tables = vec![tables::handlers(conditions, overhead), tables::napi(conditions)];
        if conditions.iter().any(|condition| condition.timing.delays.is_some()) {
            tables.push(tables::delays(conditions));
        }
        if conditions.iter().any(|condition| condition.timing.senders.is_some()) {
            tables.push(tables::senders(conditions));
        }
        if conditions.iter().any(|condition| condition.timing.victims.is_some()) {
            tables.push(tables::victims(conditions));
        }
        if conditions.iter().any(|condition| condition.timing.timeline.is_some()) {
            tables.push(timeline(conditions));
        }
        // Causes come before counts of events.
        tables.extend(tables::misses(conditions));
        if passes.len() > 1 {
            tables.push(tables::events(conditions, passes, overhead));
            tables.push(tables::ratios(conditions, passes, overhead));
        }
        if self.histograms {
            tables.push(tables::histograms(conditions));
        }
        tables.extend([tables::agreement(conditions), tables::conditions(conditions)]);
        let in_force = (keys::CONDITIONS.to_owned(), conditions_in_force(conditions));
        Report {
            tables,
            settings: Map::from_iter([in_force]),
            observer: observer(overhead, conditions),
            warnings: warnings(conditions),
            absent: hotplug::absences(conditions),
        }
    }
}

/// The measurement of the passes over one condition.
struct MeasuredPasses {
    samples: ConditionSamples,
    /// The parts that a request to stop or a limit left out or cut short, in words.
    missing: Vec<String>,
    /// The passes with events that failed, in words, with their errors.
    failed: Vec<(String, BenchError)>,
}

/// The part of a pass that is missing because a request to stop or a limit ended its window, in words. `None` if
/// nothing ended the window early. `label`: the pass.
fn missing_part(label: &str, window: &WindowSample) -> Option<String> {
    if window.windows.is_empty() {
        return Some(label.to_owned()); // the run ended before the window opened
    }
    let length_ms = window.length_ns() as f64 / 1e6;
    window.interrupted.then(|| format!("{label} after {length_ms:.1} ms of its window"))
}

/// Measures all passes over a condition. A request to stop skips the remaining passes, unless the bench has measured
/// the condition ahead. A pass with events that fails does not affect the other passes.
///
/// Fails if the timing pass fails: the other passes are then not measured.
fn measure_passes(
    condition: Condition,
    passes: &[Pass],
    bench: &mut dyn HandlersBench,
    steps: &mut Steps<'_>,
) -> Result<MeasuredPasses, BenchError> {
    let is_measured = bench.is_measured(condition);
    steps.start(bench, condition.label());
    let timing = bench.measure(condition, 0)?;
    let mut missing: Vec<String> = missing_part(&condition.label(), &timing).into_iter().collect();
    let (mut events, mut failed) = (Vec::new(), Vec::new());
    // The missing part of a timing window that ended early stands for all passes.
    let has_whole_timing = missing.is_empty();
    for (position, pass) in passes.iter().enumerate().skip(1) {
        let label = format!("{}, events {}", condition.label(), pass.events.join(" "));
        if !is_measured && (!has_whole_timing || bench.stop_requested()) {
            missing.extend(has_whole_timing.then_some(label));
            continue;
        }
        steps.start(bench, label.clone());
        match bench.measure(condition, position) {
            Ok(window) => {
                if has_whole_timing {
                    missing.extend(missing_part(&label, &window));
                }
                if !window.windows.is_empty() {
                    events.push((position, window));
                }
            }
            Err(error) => failed.push((label, error)),
        }
    }
    let samples = ConditionSamples { condition, timing, events };
    Ok(MeasuredPasses { samples, missing, failed })
}

/// Table `timeline` of the timing windows.
fn timeline(measured: &[ConditionSamples]) -> Table {
    let labels: Vec<String> = measured.iter().map(|samples| samples.condition.label()).collect();
    let timelines = measured.iter().map(|samples| samples.timing.timeline.as_deref());
    let labelled = labels.iter().map(String::as_str).zip(timelines);
    timeline::table::table(labelled.filter_map(|(label, timeline)| Some((label, timeline?))))
}

/// The settings of each condition that only the bench knows: files, interfaces, threads and their CPUs.
fn conditions_in_force(measured: &[ConditionSamples]) -> Json {
    let facts = |samples: &ConditionSamples| {
        let mut facts = samples.timing.facts.clone();
        facts.extend(samples.timing.timeline.iter().flat_map(|timeline| timeline.facts()));
        (samples.condition.label(), Json::Object(facts))
    };
    Json::Object(measured.iter().map(facts).collect())
}

/// Warnings of all windows: of the bench, about single CPUs, and about lost and undelivered events.
fn warnings(measured: &[ConditionSamples]) -> Vec<String> {
    let (mut warnings, mut cpu_warnings) = (Vec::new(), CpuWarnings::default());
    for condition in measured {
        for window in condition.windows() {
            let label = condition.condition.label();
            let hotplug = window.hotplug_warnings().into_iter();
            hotplug
                .chain(window.cpu_warnings.iter().cloned())
                .for_each(|warning| cpu_warnings.add(&label, warning));
            let of_timeline = window.timeline.iter().flat_map(|timeline| timeline.warnings());
            warnings.extend(
                window
                    .warnings
                    .iter()
                    .cloned()
                    .chain(of_timeline)
                    .map(|warning| format!("{label}: {warning}")),
            );
            if window.lost() > 0 {
                warnings.push(format!(
                    "{label}: {} events were lost; counts and totals do not include them",
                    window.lost()
                ));
            }
        }
    }
    warnings.extend(cpu_warnings.lines());
    warnings.extend(
        measured.iter().flat_map(|samples| storm::warnings(samples.condition, &samples.timing)),
    );
    let windows = || measured.iter().map(|condition| &condition.timing);
    let undelivered: u64 = windows().map(WindowSample::undelivered_min).sum();
    // Without exact counters, the files in /proc give a lower bound.
    let is_exact = windows().all(|window| window.undelivered().is_some());
    let at_least = if is_exact { "" } else { "at least " };
    let is_simulated = |condition: &ConditionSamples| {
        condition.timing.contexts.iter().any(|context| context.timing == Timing::Simulator)
    };
    if undelivered > 0 && measured.iter().any(is_simulated) {
        warnings.push(format!(
            "the guest's kernel counted {at_least}{undelivered} interrupts and softirqs that the simulator did not recognise \
             (table agreement); no other table includes them. The list of what was not measured names the \
             functions that this kernel lacks"
        ));
    } else if undelivered > 0 {
        warnings.push(format!(
            "the kernel counted {at_least}{undelivered} interrupts and softirqs that it did not hand to BPF \
             programs (table agreement); no count, time or mean includes them. undelivered_max_count in \
             table handlers is the maximum that a row may lack"
        ));
    }
    warnings
}

/// The overhead of the measurement, over the timing passes. The keys are public: they are in the record.
fn observer(overhead: &ProbeOverhead, measured: &[ConditionSamples]) -> Map<String, Json> {
    let windows = || measured.iter().map(|condition| &condition.timing);
    let events: u64 = windows().map(WindowSample::events).sum();
    let cpu_time_ns: u64 = windows().map(WindowSample::cpu_time_ns).sum();
    let length_ns: u64 = windows().map(WindowSample::length_ns).sum();
    let user_ns: Option<u64> = windows().map(|window| window.user_cpu_ns).sum();
    let ratio = |part: f64, total: u64| (total > 0).then(|| part / total as f64);
    let mut observer = Map::new();
    observer.insert("probe_overhead_ns".into(), json!(overhead.total_ns));
    observer.insert("probe_overhead_in_span_ns".into(), json!(overhead.in_span_ns));
    observer.insert("outside_ns_per_span".into(), json!(overhead.total_ns - overhead.in_span_ns));
    observer.insert("events".into(), json!(events));
    let per_second = ratio(events as f64 * 1e9, length_ns);
    observer.insert("events_per_second".into(), json!(per_second));
    // In situ, probes find cold caches and cost more than in a hot loop. Without that measurement, the hot loop's cost
    // is a lower bound. Each span has two events.
    let in_situ: Option<u64> = windows().map(|window| window.probe_ns).sum();
    let hot_loop_ns = || events as f64 / 2.0 * overhead.total_ns as f64;
    let probe_ns = in_situ.map_or_else(hot_loop_ns, |ns| ns as f64);
    observer.insert("cpu_share_ratio".into(), json!(ratio(probe_ns, cpu_time_ns)));
    let method = match in_situ {
        Some(_) => Some("cost of the probes in situ"),
        None if overhead.total_ns > 0 => Some("cost in a hot loop"),
        None => None, // a bench without probes
    };
    observer.insert("cpu_share_method".into(), json!(method));
    let user_ratio = user_ns.and_then(|ns| ratio(ns as f64, cpu_time_ns));
    observer.insert("user_cpu_share_ratio".into(), json!(user_ratio));
    let lost: u64 =
        measured.iter().flat_map(ConditionSamples::windows).map(WindowSample::lost).sum();
    observer.insert(keys::EVENTS_LOST_COUNT.into(), json!(lost));
    let undelivered: Option<u64> = windows().map(WindowSample::undelivered).sum();
    observer.insert("events_undelivered".into(), json!(undelivered));
    observer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Bench, BenchFacts, Outcome, RunContext, Step, run};
    use crate::handlers::sample::{Agreement, CpuWindow};

    /// The end of a pass of [`Passes`].
    #[derive(Clone, Copy, PartialEq)]
    enum PassEnd {
        Whole,
        /// A stop is requested before the window opens.
        StoppedBefore,
        /// A stop is requested in the window, after 400 ms.
        StoppedWithin,
        Failed,
        Unavailable,
    }

    /// A bench with a timing pass and two passes with events. Each condition has the same pass ends.
    struct Passes {
        ends: [PassEnd; 3],
        is_stopped: bool,
        /// Whether the bench has measured all passes ahead.
        is_ahead: bool,
    }

    impl Bench for Passes {
        fn facts(&self) -> BenchFacts {
            BenchFacts::default()
        }

        fn stop_requested(&self) -> bool {
            self.is_stopped
        }
    }

    impl HandlersBench for Passes {
        fn passes(&self) -> Vec<Pass> {
            let pass =
                |events: &[&str]| Pass { events: events.iter().map(|&name| name.into()).collect() };
            vec![pass(&[]), pass(&["cycles", "instructions"]), pass(&["branches"])]
        }

        fn probe_overhead(&self) -> ProbeOverhead {
            ProbeOverhead {
                events: vec![vec![], vec![0.0; 2], vec![0.0]],
                ..ProbeOverhead::default()
            }
        }

        fn is_measured(&self, _: Condition) -> bool {
            self.is_ahead
        }

        fn measure(&mut self, _: Condition, pass: usize) -> Result<WindowSample, BenchError> {
            let end = self.ends[pass];
            self.is_stopped |= matches!(end, PassEnd::StoppedBefore | PassEnd::StoppedWithin);
            let length_ns = if end == PassEnd::Whole { 1_000_000_000 } else { 400_000_000 };
            let window = CpuWindow { length_ns, ..CpuWindow::default() };
            match end {
                PassEnd::Whole => Ok(WindowSample { windows: vec![window], ..Default::default() }),
                PassEnd::StoppedWithin => Ok(WindowSample {
                    windows: vec![window],
                    interrupted: true,
                    ..Default::default()
                }),
                PassEnd::StoppedBefore => {
                    Ok(WindowSample { interrupted: true, ..WindowSample::default() })
                }
                PassEnd::Failed => Err(BenchError::Failed("the counter is taken".to_owned())),
                PassEnd::Unavailable => Err(BenchError::unavailable("no such counter")),
            }
        }
    }

    /// Measures `command` with these pass ends. Returns the measurement, and the number of its event passes.
    fn measured_passes(ends: [PassEnd; 3]) -> (Measured<Samples>, usize) {
        let plan = Plan { conditions: vec![Condition::Command], ..Plan::default() };
        let mut bench = Passes { ends, is_stopped: false, is_ahead: false };
        let measured = plan.measure(&mut bench, &mut |_: &Step| {}).unwrap();
        let passes = measured.samples.conditions.iter().map(|samples| samples.events.len()).sum();
        (measured, passes)
    }

    #[test]
    fn a_stop_in_a_pass_with_events_is_named() {
        use PassEnd::{StoppedBefore, StoppedWithin, Whole};
        let missing = |ends| {
            let (measured, passes) = measured_passes(ends);
            assert!(!measured.complete && measured.samples.conditions.len() == 1);
            (passes, measured.missing)
        };
        let [first, second] = ["command, events cycles instructions", "command, events branches"];
        assert_eq!(
            missing([Whole, StoppedBefore, Whole]),
            (0, vec![first.to_owned(), second.to_owned()])
        );
        let within = format!("{first} after 400.0 ms of its window");
        assert_eq!(missing([Whole, StoppedWithin, Whole]), (1, vec![within, second.to_owned()]));
        assert_eq!(missing([Whole, Whole, StoppedBefore]), (1, vec![second.to_owned()]));
        let timing = "command after 400.0 ms of its window".to_owned();
        assert_eq!(missing([StoppedWithin, Whole, Whole]), (0, vec![timing]));
        let (whole, passes) = measured_passes([Whole; 3]);
        assert!(whole.complete && whole.missing.is_empty() && passes == 2);
    }

    #[test]
    fn a_stop_loses_no_pass_that_was_measured_ahead() {
        use PassEnd::{StoppedWithin, Whole};
        let measured = |ends| {
            let plan = Plan { conditions: vec![Condition::Command], ..Plan::default() };
            let mut bench = Passes { ends, is_stopped: true, is_ahead: true };
            let measured = plan.measure(&mut bench, &mut |_: &Step| {}).unwrap();
            (measured.complete, measured.missing, measured.samples.conditions[0].events.len())
        };
        assert_eq!(measured([Whole; 3]), (true, vec![], 2));
        // On a simulated machine, all passes have one window.
        let part = vec!["command after 400.0 ms of its window".to_owned()];
        assert_eq!(measured([StoppedWithin; 3]), (false, part, 2));
    }

    #[test]
    fn a_pass_with_events_that_fails_leaves_the_other_passes() {
        use PassEnd::{Failed, Unavailable, Whole};
        for (end, is_complete) in [(Failed, false), (Unavailable, true)] {
            let (measured, passes) = measured_passes([Whole, end, Whole]);
            assert_eq!((measured.samples.conditions.len(), passes), (1, 1));
            assert_eq!(
                (measured.complete, measured.failure.is_some()),
                (is_complete, !is_complete)
            );
            assert!(measured.missing.is_empty());
            let [absent] = &measured.absent[..] else { panic!("{:?}", measured.absent) };
            assert_eq!(absent.what, "command, events cycles instructions");
        }
        // The tables have the rows of the passes that were measured.
        let plan = Plan { conditions: vec![Condition::Command], ..Plan::default() };
        let mut bench =
            Passes { ends: [Whole, Failed, Failed], is_stopped: false, is_ahead: false };
        let outcome = run(&plan, RunContext::default(), &mut bench, &mut |_: &Step| {});
        let Ok(Outcome::Run { run, .. }) = outcome else { panic!("no run") };
        assert!(!run.complete && run.absent.len() == 2, "{:?}", run.absent);
    }

    /// A window of one second on one CPU, with this CPU time of the probes.
    fn measured(probe_ns: Option<u64>) -> ConditionSamples {
        let window = CpuWindow { length_ns: 1_000_000_000, ..CpuWindow::default() };
        let timing = WindowSample { windows: vec![window], probe_ns, ..WindowSample::default() };
        ConditionSamples { condition: Condition::Command, timing, events: Vec::new() }
    }

    #[test]
    fn missing_interrupts_are_not_zero_without_exact_counts() {
        let mut samples = measured(None);
        samples.timing.agreement = vec![Agreement {
            cpu: 0,
            line: "LOC".to_owned(),
            name: "local_timer".to_owned(),
            counted: Some(90),
            kernel_exact: None,
            kernel_min: Some(100),
            kernel_max: Some(108),
            edge_max: 0,
        }];
        let samples = [samples];
        assert!(observer(&ProbeOverhead::default(), &samples)["events_undelivered"].is_null());
        let [warning] = &warnings(&samples)[..] else { panic!("{:?}", warnings(&samples)) };
        assert!(warning.starts_with("the kernel counted at least 10 interrupts"), "{warning}");
    }

    #[test]
    fn the_observers_share_is_the_cost_of_the_probes_in_situ() {
        let overhead = ProbeOverhead { total_ns: 100, ..ProbeOverhead::default() };
        let share = |probe_ns: &[Option<u64>]| {
            let conditions: Vec<_> = probe_ns.iter().copied().map(measured).collect();
            let observer = observer(&overhead, &conditions);
            (observer["cpu_share_ratio"].as_f64().unwrap(), observer["cpu_share_method"].clone())
        };
        let in_situ = json!("cost of the probes in situ");
        assert_eq!(share(&[Some(2_000_000), Some(4_000_000)]), (0.003, in_situ));
        // If one window has no cost in situ, all windows use the cost in a hot loop.
        assert_eq!(share(&[Some(2_000_000), None]), (0.0, json!("cost in a hot loop")));
        let without_probes = observer(&ProbeOverhead::default(), &[measured(None)]);
        assert!(without_probes["cpu_share_method"].is_null());
    }
}
