//! Tables `events` and `ratios`: PMU events of each context, and ratios of them.

use std::collections::BTreeMap;

use attribution::Context;
use record::{Column, Kind, Table, TableDisplay, Value};
use stats::interval::BATCHES_MIN;
use stats::{Batches, Interval, JointBatch, Term};

use super::super::bench::{Pass, ProbeOverhead};
use super::super::sample::ContextStats;
use super::super::samples::ConditionSamples;
use crate::amounts::{spread_columns, spread_values};

use super::{Group, condition_column, context_columns, context_values, display, groups};

/// Why there is no interval.
const TOO_FEW_BATCHES: &str = "too-few-batches";
const NEVER_COUNTED: &str = "never-counted";
const NOT_KEPT: &str = "not-kept";
const DENOMINATOR_NEAR_ZERO: &str = "denominator-near-zero";
/// The methods of intervals in these tables, and the reasons above, for columns.
const METHODS: &str = "batch-means; batch-means-correlated where the window was too short for batches that \
                       do not correlate, so that it may be too narrow";
const REASONS: &str = "Where it is absent, the reason: too-few-batches (spans in fewer than 8), \
                       never-counted (the event in no span), not-kept (too many spans in a simulated machine)";

/// The mean of an event per span of one context, all CPUs together.
struct EventMean<'a> {
    pass: usize,
    /// Its place among the events of the pass.
    at: usize,
    spans: u64,
    own: u64,
    inclusive: u64,
    /// What reading adds to a span.
    overhead: Option<f64>,
    /// Half of the 95 % interval of that.
    overhead_ci95: Option<f64>,
    /// The spans of the pass in batches of time, with the sums of all of its events.
    batches: &'a Batches<JointBatch>,
}

/// The batches of a context's spans, all CPUs together; without cells where they were not kept on each.
fn batches_of(samples: &[&ContextStats]) -> Batches<JointBatch> {
    let counted = samples.iter().filter(|sample| sample.events.spans > 0);
    let mut all = Batches { shift: 0, cells: Vec::new() };
    for sample in counted {
        if sample.events.batches.cells.is_empty() {
            return Batches { shift: 0, cells: Vec::new() };
        }
        all.merge(&sample.events.batches);
    }
    all
}

impl<'a> EventMean<'a> {
    /// The events of a group of samples; none where no span of it was read.
    fn of_group(
        group: &Group<'_>,
        pass: usize,
        events: usize,
        probes: &ProbeOverhead,
        batches: &'a Batches<JointBatch>,
    ) -> Vec<Self> {
        let samples = &group.samples;
        let spans: u64 = samples.iter().map(|sample| sample.events.spans).sum();
        let one = |at: usize| {
            let sum = |pick: fn(&ContextStats) -> &Vec<u64>| -> u64 {
                samples.iter().filter_map(|sample| pick(sample).get(at)).sum()
            };
            EventMean {
                pass,
                at,
                spans,
                own: sum(|sample| &sample.events.own),
                inclusive: sum(|sample| &sample.events.inclusive),
                overhead: overhead(probes, pass, at, samples),
                overhead_ci95: overhead_ci95(at, samples),
                batches,
            }
        };
        (0..if spans > 0 { events } else { 0 }).map(one).collect()
    }

    /// Without what reading added; negative where that exceeds what was counted.
    fn mean(&self) -> f64 {
        self.own as f64 / self.spans as f64 - self.overhead.unwrap_or(0.0)
    }

    fn term(&self) -> Term {
        Term { at: self.at, less: self.overhead.unwrap_or(0.0) }
    }

    /// The interval of the mean, that of what reading added included where it is known; or why there is none.
    fn interval(&self) -> Result<Interval, &'static str> {
        let of_spans = self.batches.mean(self.term()).ok_or_else(|| self.reason())?;
        let half_width = of_spans.half_width.hypot(self.overhead_ci95.unwrap_or(0.0));
        Ok(Interval { mean: self.mean(), half_width, ..of_spans })
    }

    fn reason(&self) -> &'static str {
        let filled = self.batches.cells.iter().filter(|batch| batch.count > 0).count();
        match (self.batches.cells.is_empty(), filled < BATCHES_MIN) {
            (true, _) => NOT_KEPT,
            (_, true) => TOO_FEW_BATCHES,
            (_, false) => NEVER_COUNTED,
        }
    }
}

/// The values of an interval's columns: its half width, its degrees of freedom and drift, and its method or why
/// there is none.
fn interval_values(interval: Option<Result<Interval, &'static str>>) -> [Value; 4] {
    let known = interval.and_then(Result::ok);
    let [freedom, drift] = spread_values(known);
    let method = match interval {
        Some(Ok(interval)) => interval.method.label().into(),
        Some(Err(reason)) => reason.into(),
        None => Value::Absent,
    };
    [known.map(|interval| interval.half_width).into(), freedom, drift, method]
}

/// One row per context and event, over all CPUs.
pub fn events(measured: &[ConditionSamples], passes: &[Pass], probes: &ProbeOverhead) -> Table {
    let mut columns = vec![condition_column()];
    columns.extend(context_columns());
    columns.extend([
        Column::new("event", Kind::Text, "PMU event, by its name in perf.").priority(95).key(),
        Column::new(
            "pass",
            Kind::Uint,
            "Pass in which the event was counted; each pass is a window of its own.",
        )
        .priority(20),
        Column::new("span_count", Kind::Uint, "Spans whose counters were read at entry and exit.")
            .title("spans")
            .priority(70),
        Column::new(
            "self_total",
            Kind::Uint,
            "Events of the spans without those of nested spans, read overhead included.",
        )
        .priority(30),
        Column::new(
            "inclusive_total",
            Kind::Uint,
            "Events of the spans with those of nested spans, read overhead included.",
        )
        .detail(),
        Column::new(
            "read_overhead_mean",
            Kind::Real,
            "Events that reading the counters adds to a span, measured in this run.",
        )
        .title("read overhead")
        .priority(50),
        Column::new(
            "read_overhead_mean_ci95",
            Kind::Real,
            "Half width of the 95 % confidence interval of read_overhead_mean, of the empty spans of this \
             condition and of what is assumed for a cold exit; absent where these were too few.",
        )
        .detail(),
        Column::new(
            "self_mean",
            Kind::Real,
            "Mean events per span: self_total over span_count, minus read_overhead_mean; negative where that \
             exceeds what was counted.",
        )
        .title("mean per span ± ci95")
        .plus_minus("self_mean_ci95")
        .priority(90)
        .cost(),
        Column::new(
            "self_mean_ci95",
            Kind::Real,
            "Half width of the 95 % confidence interval of self_mean, that of read_overhead_mean included \
             where it is known.",
        )
        .detail(),
    ]);
    columns.extend(spread_columns("self_mean"));
    columns.extend([Column::new(
        "self_mean_ci95_method",
        Kind::Text,
        &format!("How that interval was computed: {METHODS}. {REASONS}."),
    )
    .detail()]);
    let doc = "PMU events of each context, all CPUs together.";
    let display =
        display("PMU events of each context, all CPUs together; means without the read overhead");
    let mut table = Table::new("events", doc, columns).displayed(display);
    for one in measured {
        for (pass, window) in &one.events {
            let names = &passes[*pass].events;
            for group in groups(window).iter().filter(|group| group.cpu.is_none()) {
                let batches = batches_of(&group.samples);
                let means = EventMean::of_group(group, *pass, names.len(), probes, &batches);
                for (event, of) in names.iter().zip(means) {
                    let mut row: Vec<Value> = vec![one.condition.label().into()];
                    row.extend(context_values(group.context));
                    row.extend([
                        event.clone().into(),
                        (*pass as u64).into(),
                        of.spans.into(),
                        of.own.into(),
                        of.inclusive.into(),
                        of.overhead.into(),
                        of.overhead_ci95.into(),
                        of.mean().into(),
                    ]);
                    row.extend(interval_values(Some(of.interval())));
                    table.push(row);
                }
            }
        }
    }
    table
}

/// Events that reading the counters adds to a span of these.
fn overhead(
    probes: &ProbeOverhead,
    pass: usize,
    event: usize,
    samples: &[&ContextStats],
) -> Option<f64> {
    let of_all = probes.events.get(pass).and_then(|pass| pass.get(event).copied());
    let spans: u64 = samples.iter().map(|sample| sample.events.spans).sum();
    let added = samples.iter().map(|sample| sample.events.added(event, of_all));
    (spans > 0).then(|| added.sum::<Option<f64>>().map(|added| added / spans as f64)).flatten()
}

/// Half of the 95 % interval of that, where it is known on each CPU. The CPUs share their empty spans: the
/// half widths add.
fn overhead_ci95(event: usize, samples: &[&ContextStats]) -> Option<f64> {
    let counted = || samples.iter().map(|sample| &sample.events).filter(|events| events.spans > 0);
    let spans: u64 = counted().map(|events| events.spans).sum();
    let wide = |half: f64, events: &super::super::EventSums| half * events.spans as f64;
    let known = counted().map(|events| Some(wide((*events.added_mean_ci95.get(event)?)?, events)));
    (spans > 0).then(|| known.sum::<Option<f64>>().map(|sum| sum / spans as f64)).flatten()
}

/// Derived metrics: name, title, numerator, denominator, doc (paper, sections 4.3 to 4.6).
const RATIOS: [(&str, &str, &str, &str, &str); 8] = [
    ("instructions_per_cycle", "IPC", "instructions", "cycles", "Instructions per cycle."),
    (
        "retired_ratio",
        "retired",
        "instructions",
        "issued",
        "Retired instructions over issued micro-operations (Intel).",
    ),
    (
        "branch_miss_ratio",
        "branch miss",
        "branch-misses",
        "branches",
        "Mispredicted branches over retired branches.",
    ),
    (
        "l1i_miss_ratio",
        "L1I miss",
        "L1-icache-load-misses",
        "L1-icache-loads",
        "L1 instruction cache misses over accesses.",
    ),
    (
        "l1d_miss_ratio",
        "L1D miss",
        "L1-dcache-load-misses",
        "L1-dcache-loads",
        "L1 data cache misses over accesses.",
    ),
    (
        "llc_miss_ratio",
        "LLC miss",
        "LLC-load-misses",
        "LLC-loads",
        "Last-level cache misses over accesses.",
    ),
    (
        "dtlb_miss_ratio",
        "D-TLB miss",
        "dTLB-load-misses",
        "dTLB-loads",
        "Data TLB misses over accesses.",
    ),
    (
        "itlb_miss_ratio",
        "I-TLB miss",
        "iTLB-load-misses",
        "iTLB-loads",
        "Instruction TLB misses over accesses.",
    ),
];

/// One row per context: the ratios of which both events were counted.
pub fn ratios(measured: &[ConditionSamples], passes: &[Pass], probes: &ProbeOverhead) -> Table {
    let mut columns = vec![condition_column()];
    columns.extend(context_columns());
    for (at, (name, title, _, _, doc)) in (0..).zip(&RATIOS) {
        let is_benefit = matches!(*name, "instructions_per_cycle" | "retired_ratio");
        let with_role = if is_benefit { Column::benefit } else { Column::cost };
        let (width, method) = (format!("{name}_ci95"), format!("{name}_ci95_method"));
        columns.extend([
            with_role(Column::new(name, Kind::Real, doc).title(title))
                .plus_minus(&width)
                .priority(90 - at),
            Column::new(
                &width,
                Kind::Real,
                &format!(
                    "Half width of the 95 % confidence interval of {name}, those of read_overhead_mean \
                     included where they are known."
                ),
            )
            .detail(),
        ]);
        columns.extend(spread_columns(name));
        columns.extend([
            Column::new(
                &method,
                Kind::Text,
                &format!(
                    "How that interval was computed: {METHODS}; two-windows and two-windows-correlated where \
                     the events were counted in different windows, as independent. {REASONS}, or \
                     denominator-near-zero (0 lies in the interval of the denominator)."
                ),
            )
            .detail(),
        ]);
    }
    columns.push(
        Column::new(
            "two_window_ratios",
            Kind::Text,
            "Ratios whose numerator and denominator were counted in different windows, so in different spans.",
        )
        .detail(),
    );
    let doc = "Ratios of mean events per span, all CPUs together.";
    let display = TableDisplay {
        notes: vec!["± is half of the ratio's 95\u{a0}% confidence interval".to_owned()],
        ..display("")
    };
    let mut table = Table::new("ratios", doc, columns).displayed(display);
    for one in measured {
        let windows: Vec<_> =
            one.events.iter().map(|(pass, window)| (*pass, groups(window))).collect();
        let all: Vec<_> = windows
            .iter()
            .flat_map(|(pass, groups)| groups.iter().map(|group| (*pass, group)))
            .filter(|(_, group)| group.cpu.is_none())
            .map(|(pass, group)| (pass, group, batches_of(&group.samples)))
            .collect();
        let mut contexts: BTreeMap<&Context, Means<'_>> = BTreeMap::new();
        for (pass, group, batches) in &all {
            let names = &passes[*pass].events;
            let means = EventMean::of_group(group, *pass, names.len(), probes, batches);
            let named = names.iter().map(String::as_str).zip(means);
            contexts.entry(group.context).or_default().extend(named);
        }
        for (context, means) in contexts {
            let ratios = RATIOS.map(|(_, _, top, bottom, _)| ratio(&means, top, bottom));
            if ratios.iter().all(Option::is_none) {
                continue; // none of these ratios' events were asked for
            }
            let mut row: Vec<Value> = vec![one.condition.label().into()];
            row.extend(context_values(context));
            for ((_, _, top, bottom, _), ratio) in RATIOS.iter().zip(ratios) {
                row.push(ratio.into());
                row.extend(interval_values(
                    ratio.and_then(|_| ratio_interval(&means, top, bottom)),
                ));
            }
            let of_two =
                RATIOS.iter().filter(|(_, _, top, bottom, _)| of_two_windows(&means, top, bottom));
            let of_two: Vec<&str> = of_two.map(|(name, ..)| *name).collect();
            row.push(Some(of_two.join(" ")).filter(|names| !names.is_empty()).into());
            table.push(row);
        }
    }
    table
}

/// The events of one context by name.
type Means<'a> = BTreeMap<&'a str, EventMean<'a>>;

fn ratio(means: &Means<'_>, top: &str, bottom: &str) -> Option<f64> {
    let whole = means.get(bottom).map(EventMean::mean).filter(|whole| *whole > 0.0)?;
    Some(means.get(top)?.mean() / whole)
}

/// The interval of that ratio, or why there is none: by the batches of both events together where they were
/// counted in one window, and as independent otherwise.
fn ratio_interval(
    means: &Means<'_>,
    top: &str,
    bottom: &str,
) -> Option<Result<Interval, &'static str>> {
    let (top, bottom) = means.get(top).zip(means.get(bottom))?;
    Some(interval_of_ratio(top, bottom))
}

fn interval_of_ratio(
    top: &EventMean<'_>,
    bottom: &EventMean<'_>,
) -> Result<Interval, &'static str> {
    let (of_top, of_bottom) = (top.interval()?, bottom.interval()?);
    if of_bottom.holds_zero() {
        return Err(DENOMINATOR_NEAR_ZERO);
    }
    if top.pass != bottom.pass {
        return of_top.over(&of_bottom).ok_or(DENOMINATOR_NEAR_ZERO);
    }
    let of_spans = top.batches.ratio(top.term(), bottom.term()).ok_or(TOO_FEW_BATCHES)?;
    let mean = top.mean() / bottom.mean();
    // What reading adds to either was measured in other spans, apart from the other.
    let by_top = top.overhead_ci95.unwrap_or(0.0) / bottom.mean();
    let by_bottom = mean * bottom.overhead_ci95.unwrap_or(0.0) / bottom.mean();
    let half_width = of_spans.half_width.hypot(by_top).hypot(by_bottom);
    Ok(Interval { mean, half_width, ..of_spans })
}

fn of_two_windows(means: &Means<'_>, top: &str, bottom: &str) -> bool {
    means.get(top).zip(means.get(bottom)).is_some_and(|(top, bottom)| top.pass != bottom.pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans in 16 batches, 10 in each; events 100 and 50 in each span of every second batch, twice and
    /// three times as many in the others.
    fn batches() -> Batches<JointBatch> {
        let cell = |at: i64| JointBatch {
            count: 10,
            sums: vec![1_000 * (1 + at % 2), 500 * (1 + 2 * (at % 2)), 0],
        };
        Batches { shift: 4, cells: (0..16).map(cell).collect() }
    }

    fn mean(batches: &Batches<JointBatch>, pass: usize, at: usize) -> EventMean<'_> {
        let own = batches.cells.iter().map(|cell| cell.sums[at] as u64).sum();
        let spans = batches.cells.iter().map(|cell| cell.count).sum();
        let overhead = Some(0.0);
        EventMean { pass, at, spans, own, inclusive: own, overhead, overhead_ci95: None, batches }
    }

    #[test]
    fn a_mean_below_what_reading_adds_is_negative() {
        let batches = batches();
        let of = |own, overhead| EventMean { own, overhead, spans: 10, ..mean(&batches, 0, 0) };
        assert_eq!(of(100, Some(12.5)).mean(), -2.5);
        assert_eq!(of(100, None).mean(), 10.0);
    }

    #[test]
    fn a_ratio_says_whether_its_events_are_of_one_window() {
        let batches = batches();
        let of = |pass, own| EventMean { own, spans: 1, ..mean(&batches, pass, 0) };
        let means: Means<'_> =
            [("a", of(1, 6)), ("b", of(1, 3)), ("c", of(2, 4)), ("zero", of(2, 0))].into();
        assert_eq!((ratio(&means, "a", "b"), of_two_windows(&means, "a", "b")), (Some(2.0), false));
        assert_eq!((ratio(&means, "a", "c"), of_two_windows(&means, "a", "c")), (Some(1.5), true));
        assert_eq!(ratio(&means, "a", "zero"), None);
        assert_eq!((ratio(&means, "a", "d"), of_two_windows(&means, "a", "d")), (None, false));
    }

    #[test]
    fn what_reading_adds_widens_intervals_of_means_and_ratios() {
        let batches = batches();
        let (top, bottom) = (mean(&batches, 1, 0), mean(&batches, 1, 1));
        let plain = top.interval().unwrap();
        assert_eq!(plain.mean, 150.0);
        let wide = EventMean { overhead_ci95: Some(30.0), ..mean(&batches, 1, 0) };
        let half_width = wide.interval().unwrap().half_width;
        assert!((half_width - plain.half_width.hypot(30.0)).abs() < 1e-9, "{half_width}");
        // Both are of one window: their common part does not count.
        let one = interval_of_ratio(&top, &bottom).unwrap();
        let two =
            interval_of_ratio(&EventMean { pass: 2, ..mean(&batches, 1, 0) }, &bottom).unwrap();
        assert_eq!((one.mean, one.method.label()), (1.5, "batch-means"));
        assert_eq!((two.mean, two.method.label()), (1.5, "two-windows"));
        assert!(two.half_width > 2.0 * one.half_width, "{one:?} {two:?}");
        let of_wide = interval_of_ratio(&wide, &bottom).unwrap().half_width;
        assert!((of_wide - one.half_width.hypot(0.3)).abs() < 1e-9, "{of_wide}");
    }

    #[test]
    fn an_interval_that_is_absent_has_its_reason() {
        let all = batches();
        let few = Batches { cells: all.cells[..7].to_vec(), ..all.clone() };
        let none = Batches { shift: 0, cells: Vec::new() };
        let counted = mean(&all, 1, 0);
        assert_eq!(mean(&few, 1, 0).interval(), Err(TOO_FEW_BATCHES));
        assert_eq!(EventMean { batches: &none, ..mean(&all, 1, 0) }.interval(), Err(NOT_KEPT));
        assert_eq!(mean(&all, 1, 2).interval(), Err(NEVER_COUNTED));
        let of_nothing = interval_of_ratio(&mean(&all, 1, 2), &counted);
        assert_eq!(of_nothing, Err(NEVER_COUNTED));
        let small = EventMean { overhead: Some(149.0), ..mean(&all, 1, 0) };
        assert_eq!(interval_of_ratio(&counted, &small), Err(DENOMINATOR_NEAR_ZERO));
        let values = interval_values(Some(Err(NEVER_COUNTED)));
        assert_eq!(values, [Value::Absent, Value::Absent, Value::Absent, NEVER_COUNTED.into()]);
    }
}
