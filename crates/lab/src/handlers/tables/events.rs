//! Tables `events` and `ratios`: PMU events of each context, and ratios of two events. Users' programs read the
//! columns: names and order must not change.

use std::collections::BTreeMap;
use std::rc::Rc;

use attribution::Context;
use record::{Column, Columns, IntervalColumns, Table, TableDisplay, column};
use stats::interval::BATCHES_MIN;
use stats::{Batches, Interval, JointBatch, Term};

use super::super::bench::{Pass, ProbeOverhead};
use super::super::sample::{ContextStats, EventSums};
use super::super::samples::ConditionSamples;
use crate::amounts::{interval_link, spread_columns, spread_link};

use super::{Group, condition_column, context_columns, display, groups};

/// Reasons for a missing interval, as cells of the columns `*_ci95_method`.
const TOO_FEW_BATCHES: &str = "too-few-batches";
const NEVER_COUNTED: &str = "never-counted";
const NOT_KEPT: &str = "not-kept";
const DENOMINATOR_NEAR_ZERO: &str = "denominator-near-zero";
/// The methods of intervals, as a part of a column's documentation.
const METHODS: &str = "batch-means; batch-means-correlated where the window was too short for \
             uncorrelated batches (the interval may be too narrow)";
/// The reasons for a missing interval, as a part of a column's documentation.
const REASONS: &str = "If the interval is absent, the reason: too-few-batches (fewer than 8 batches have \
             spans), never-counted (no span has the event), not-kept (too many spans in a \
             simulated machine)";

/// The mean of an event per span of one context, all CPUs together.
struct EventMean {
    /// Index of the pass that counted the event.
    pass: usize,
    /// Index among the events of the pass.
    index: usize,
    spans: u64,
    /// Sum over the spans, without nested spans.
    self_total: u64,
    /// Sum over the spans, with nested spans.
    inclusive_total: u64,
    /// Events that reading the counters adds to a span, on average; `None` if unknown.
    overhead: Option<f64>,
    /// Half width of the 95 % confidence interval of `overhead`.
    overhead_ci95: Option<f64>,
    /// Batches of the window: in each cell, the number of spans and the sum of each event of
    /// the pass. All events of a pass share them.
    batches: Rc<Batches<JointBatch>>,
}

/// The batches of a context's spans, all CPUs together. Without cells if a CPU did not keep its batches.
fn merged_batches(samples: &[&ContextStats]) -> Batches<JointBatch> {
    let with_spans = samples.iter().filter(|sample| sample.events.spans > 0);
    let mut merged = Batches { shift: 0, cells: Vec::new() };
    for sample in with_spans {
        if sample.events.batches.cells.is_empty() {
            return Batches { shift: 0, cells: Vec::new() };
        }
        merged.merge(&sample.events.batches);
    }
    merged
}

impl EventMean {
    /// The means of a pass's events over the spans of a group, in the order of the pass. `event_count`: number of
    /// events of the pass. Empty if no span has events.
    fn of_group(
        group: &Group<'_>,
        pass: usize,
        event_count: usize,
        probes: &ProbeOverhead,
    ) -> Vec<Self> {
        let samples = &group.samples;
        let batches = Rc::new(merged_batches(samples));
        let spans: u64 = samples.iter().map(|sample| sample.events.spans).sum();
        let mean = |index: usize| {
            // The event's total over the CPUs.
            let total = |by_event: fn(&ContextStats) -> &Vec<u64>| -> u64 {
                samples.iter().filter_map(|sample| by_event(sample).get(index)).sum()
            };
            EventMean {
                pass,
                index,
                spans,
                self_total: total(|sample| &sample.events.own),
                inclusive_total: total(|sample| &sample.events.inclusive),
                overhead: overhead(probes, pass, index, samples),
                overhead_ci95: overhead_ci95(index, samples),
                batches: Rc::clone(&batches),
            }
        };
        if spans > 0 { (0..event_count).map(mean).collect() } else { Vec::new() }
    }

    /// Mean events per span, without the overhead of reading. Negative if the overhead exceeds the count.
    fn mean(&self) -> f64 {
        self.self_total as f64 / self.spans as f64 - self.overhead.unwrap_or(0.0)
    }

    /// The event as a term of a mean or ratio over batches: the overhead is subtracted from each span.
    fn term(&self) -> Term {
        Term { at: self.index, less: self.overhead.unwrap_or(0.0) }
    }

    /// The interval of the mean. It includes the interval of the overhead of reading, if known.
    ///
    /// The error is the reason for a missing interval.
    fn interval(&self) -> Result<Interval, &'static str> {
        let span_interval =
            self.batches.mean(self.term()).ok_or_else(|| self.missing_interval_reason())?;
        let half_width = span_interval.half_width.hypot(self.overhead_ci95.unwrap_or(0.0));
        Ok(Interval { mean: self.mean(), half_width, ..span_interval })
    }

    fn missing_interval_reason(&self) -> &'static str {
        let batches_with_spans = self.batches.cells.iter().filter(|batch| batch.count > 0).count();
        if self.batches.cells.is_empty() {
            NOT_KEPT
        } else if batches_with_spans < BATCHES_MIN {
            TOO_FEW_BATCHES
        } else {
            NEVER_COUNTED
        }
    }
}

/// The interval of a figure, or the reason why the figure has no interval. `None`: there is no figure.
type KnownInterval = Option<Result<Interval, &'static str>>;

fn half_width(interval: &KnownInterval) -> Option<f64> {
    Some((*interval)?.ok()?.half_width)
}

/// The columns of an interval after the half width: degrees of freedom, drift, and method. If the interval is missing,
/// the method column has the reason.
fn interval_columns<'a>(name: &str, method_doc: &str) -> Columns<'a, KnownInterval> {
    let spread = spread_columns(name).of(|interval: &KnownInterval| interval.and_then(Result::ok));
    let method = |interval: &KnownInterval| match interval {
        Some(Ok(interval)) => Some(interval.method.label()),
        Some(Err(reason)) => Some(*reason),
        None => None,
    };
    spread.and([column(&format!("{name}_ci95_method"), method_doc).detail().text(method)])
}

/// Table `events`: one row per context and event, all CPUs together.
pub fn events(measured: &[ConditionSamples], passes: &[Pass], probes: &ProbeOverhead) -> Table {
    /// The mean of an event in a condition.
    struct Row<'a> {
        condition: String,
        context: &'a Context,
        event: &'a String,
        /// Length of the pass's window, ns.
        window_ns: u64,
        mean: EventMean,
        interval: KnownInterval,
    }
    let columns = Columns::all([
        condition_column(50).of_ref(|row: &Row<'_>| &row.condition),
        context_columns().of_ref(|row: &Row<'_>| row.context),
        column(
            "event",
            "PMU event, by its name in perf; on a simulated machine, events without a name in perf have the model's \
             name. `instructions` of a simulated machine counts each repetition of a string instruction (rep movs, rep stos, \
             ...); a processor counts one for all repetitions.",
        )
            .priority(95)
            .key()
            .text(|row: &Row<'_>| row.event.clone()),
        column("pass", "Pass that counted the event; each pass has its own window.")
            .priority(20)
            .uint(|row: &Row<'_>| row.mean.pass as u64),
        column("span_count", "Spans whose counters were read at entry and exit.")
            .shown_as("spans", 70)
            .uint(|row: &Row<'_>| row.mean.spans),
        column(
            "self_total",
            "Events of the spans, without the events of nested spans, with the overhead of \
             reading.",
        )
        .priority(30)
        .uint(|row: &Row<'_>| row.mean.self_total),
        column(
            "inclusive_total",
            "Events of the spans, with the events of nested spans and the overhead of reading.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.mean.inclusive_total),
        column(
            "read_overhead_mean",
            "Events that reading the counters adds to a span, measured in this run.",
        )
        .interval(IntervalColumns::half_width("read_overhead_mean_ci95"))
        .shown_as("read overhead", 50)
        .real(|row: &Row<'_>| row.mean.overhead),
        column(
            "read_overhead_mean_ci95",
            "Half width of the 95 % confidence interval of read_overhead_mean. It includes the \
             spread of this condition's empty spans and the assumption about a cold exit; \
             absent with too few empty spans.",
        )
        .detail()
        .real(|row: &Row<'_>| row.mean.overhead_ci95),
        column(
            "self_mean",
            "Mean events per span: self_total over span_count, minus read_overhead_mean; \
             negative if the overhead exceeds the count.",
        )
        .title("mean per span ± ci95")
        .interval(interval_link("self_mean").method("self_mean_ci95_method"))
        .plus_minus("self_mean_ci95")
        .priority(90)
        .cost()
        .real(|row: &Row<'_>| row.mean.mean()),
        column(
            "self_mean_ci95",
            "Half width of the 95 % confidence interval of self_mean. It includes the interval \
             of read_overhead_mean, if known.",
        )
        .detail()
        .real(|row: &Row<'_>| half_width(&row.interval)),
        interval_columns("self_mean", &format!("Method of the interval: {METHODS}. {REASONS}."))
            .of_ref(|row: &Row<'_>| &row.interval),
        column("window_ns", "Length of the pass's window, mean over the CPUs that stayed online.")
            .detail()
            .uint(|row: &Row<'_>| row.window_ns),
    ]);
    let mut rows = Vec::new();
    for condition in measured {
        for (pass, window) in &condition.events {
            let (names, window_ns) = (&passes[*pass].events, window.length_ns());
            for group in groups(window).iter().filter(|group| group.cpu.is_none()) {
                let means = EventMean::of_group(group, *pass, names.len(), probes);
                rows.extend(names.iter().zip(means).map(|(event, mean)| {
                    let interval = Some(mean.interval());
                    let condition = condition.condition.label();
                    Row { condition, context: group.context, event, window_ns, mean, interval }
                }));
            }
        }
    }
    let doc = "PMU events of each context, all CPUs together.";
    let display =
        display("PMU events of each context, all CPUs together; means without the read overhead");
    columns.table("events", doc, rows).displayed(display)
}

/// Overhead of reading the counters: events that it adds to a span, on average over the samples. `None` if unknown.
fn overhead(
    probes: &ProbeOverhead,
    pass: usize,
    event: usize,
    samples: &[&ContextStats],
) -> Option<f64> {
    let default_overhead = probes.events.get(pass).and_then(|pass| pass.get(event).copied());
    let spans: u64 = samples.iter().map(|sample| sample.events.spans).sum();
    let added =
        samples.iter().map(|sample| sample.events.added_by_reading(event, default_overhead));
    let added: f64 = added.sum::<Option<f64>>()?;
    (spans > 0).then(|| added / spans as f64)
}

/// Half width of the 95 % confidence interval of [`overhead`]; `None` if it is unknown on a CPU. The overheads of all
/// CPUs come from the same empty spans: their errors are not independent, so the half widths add.
fn overhead_ci95(event: usize, samples: &[&ContextStats]) -> Option<f64> {
    let counted = || samples.iter().map(|sample| &sample.events).filter(|events| events.spans > 0);
    let spans: u64 = counted().map(|events| events.spans).sum();
    let total_half_width = |events: &EventSums| {
        let half_width = (*events.added_mean_ci95.get(event)?)?;
        Some(half_width * events.spans as f64)
    };
    let total: f64 = counted().map(total_half_width).sum::<Option<f64>>()?;
    (spans > 0).then(|| total / spans as f64)
}

/// A ratio of two events: name, title, numerator, denominator, documentation.
type Ratio = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// The ratios of the table, in the order of its columns (paper `handlers-ia32`, sections 4.3 to 4.6).
const RATIOS: [Ratio; 8] = [
    (
        "instructions_per_cycle",
        "IPC",
        "instructions",
        "cycles",
        "Instructions per cycle. On a simulated machine, each repetition of a string instruction (rep movs, rep stos, \
         ...) counts as an instruction; a processor counts one for all repetitions.",
    ),
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

/// The ratios of a context in a condition. `ratios` and `intervals` have the order of [`RATIOS`].
struct RatioRow<'a> {
    condition: String,
    context: &'a Context,
    ratios: [Option<f64>; RATIOS.len()],
    intervals: [KnownInterval; RATIOS.len()],
    /// Names of the ratios whose events were counted in different windows.
    two_window_ratios: Vec<&'static str>,
}

/// The columns of table `ratios`. Each ratio of [`RATIOS`] has its figure, the half width of its interval, and the
/// interval's method.
fn ratio_columns<'a>() -> Columns<'a, RatioRow<'a>> {
    let mut columns = Columns::all([
        condition_column(50).of_ref(|row: &RatioRow<'_>| &row.condition),
        context_columns().of_ref(|row: &RatioRow<'_>| row.context),
    ]);
    for (index, (name, title, _, _, doc)) in RATIOS.iter().enumerate() {
        let is_benefit = matches!(*name, "instructions_per_cycle" | "retired_ratio");
        let with_role = if is_benefit { Column::benefit } else { Column::cost };
        let (width, method) = (format!("{name}_ci95"), format!("{name}_ci95_method"));
        let width_doc = format!(
            "Half width of the 95 % confidence interval of {name}. It includes the intervals \
             of read_overhead_mean, if known."
        );
        let method_doc = format!(
            "Method of the interval: {METHODS}; two-windows or two-windows-correlated where \
             the events were counted in different windows and are treated as independent. \
             {REASONS}, denominator-near-zero (the denominator's interval contains 0)."
        );
        columns = columns.and([
            with_role(column(name, doc).title(title))
                .interval(spread_link(name, &width).method(&method))
                .plus_minus(&width)
                .priority(90 - index as u8)
                .real(move |row: &RatioRow<'_>| row.ratios[index]),
            column(&width, &width_doc)
                .detail()
                .real(move |row: &RatioRow<'_>| half_width(&row.intervals[index])),
            interval_columns(name, &method_doc)
                .of_ref(move |row: &RatioRow<'_>| &row.intervals[index]),
        ]);
    }
    columns.and([column(
        "two_window_ratios",
        "Ratios whose numerator and denominator were counted in different windows, and so \
             in different spans.",
    )
    .detail()
    .text(|row: &RatioRow<'_>| {
        (!row.two_window_ratios.is_empty()).then(|| row.two_window_ratios.join(" "))
    })])
}

/// Table `ratios`: one row per context, with each ratio whose two events were counted.
pub fn ratios(measured: &[ConditionSamples], passes: &[Pass], probes: &ProbeOverhead) -> Table {
    let mut rows = Vec::new();
    for condition in measured {
        let mut contexts: BTreeMap<&Context, Means<'_>> = BTreeMap::new();
        for (pass, window) in &condition.events {
            let names = &passes[*pass].events;
            for group in groups(window).iter().filter(|group| group.cpu.is_none()) {
                let means = EventMean::of_group(group, *pass, names.len(), probes);
                let named = names.iter().map(String::as_str).zip(means);
                contexts.entry(group.context).or_default().extend(named);
            }
        }
        rows.extend(contexts.into_iter().map(|(context, means)| {
            let ratios = RATIOS
                .map(|(_, _, numerator, denominator, _)| ratio(&means, numerator, denominator));
            let intervals = RATIOS.map(|(_, _, numerator, denominator, _)| {
                ratio(&means, numerator, denominator)?;
                ratio_interval(&means, numerator, denominator)
            });
            let from_two_windows =
                RATIOS.into_iter().filter(|(_, _, numerator, denominator, _)| {
                    has_two_windows(&means, numerator, denominator)
                });
            let two_window_ratios = from_two_windows.map(|(name, ..)| name).collect();
            let condition = condition.condition.label();
            RatioRow { condition, context, ratios, intervals, two_window_ratios }
        }));
    }
    // A context without any ratio: the user asked for no event of these ratios.
    rows.retain(|row: &RatioRow<'_>| row.ratios.iter().any(Option::is_some));
    let doc = "Ratios of mean events per span, all CPUs together.";
    let display = TableDisplay {
        notes: vec!["± is half of the ratio's 95\u{a0}% confidence interval".to_owned()],
        ..display("")
    };
    ratio_columns().table("ratios", doc, rows).displayed(display)
}

/// The events of one context by name.
type Means<'a> = BTreeMap<&'a str, EventMean>;

/// The ratio of the means of two events. `None` if an event was not counted or the denominator is not above 0.
fn ratio(means: &Means<'_>, numerator: &str, denominator: &str) -> Option<f64> {
    let denominator = means.get(denominator).map(EventMean::mean).filter(|mean| *mean > 0.0)?;
    Some(means.get(numerator)?.mean() / denominator)
}

/// The interval of a ratio, or the reason for a missing interval. `None` if an event was not counted.
fn ratio_interval(
    means: &Means<'_>,
    numerator: &str,
    denominator: &str,
) -> Option<Result<Interval, &'static str>> {
    let (numerator, denominator) = means.get(numerator).zip(means.get(denominator))?;
    Some(interval_of_ratio(numerator, denominator))
}

/// The interval of a ratio. Events of one window have common batches. Events of two windows are treated as
/// independent values.
fn interval_of_ratio(
    numerator: &EventMean,
    denominator: &EventMean,
) -> Result<Interval, &'static str> {
    let (numerator_interval, denominator_interval) =
        (numerator.interval()?, denominator.interval()?);
    if denominator_interval.holds_zero() {
        return Err(DENOMINATOR_NEAR_ZERO);
    }
    if numerator.pass != denominator.pass {
        return numerator_interval.over(&denominator_interval).ok_or(DENOMINATOR_NEAR_ZERO);
    }
    let batch_interval = numerator.batches.ratio(numerator.term(), denominator.term());
    let batch_interval = batch_interval.ok_or(TOO_FEW_BATCHES)?;
    let mean = numerator.mean() / denominator.mean();
    // The overheads of reading were measured in other spans, the empty spans: their errors are independent.
    let numerator_error = numerator.overhead_ci95.unwrap_or(0.0) / denominator.mean();
    let denominator_error = mean * denominator.overhead_ci95.unwrap_or(0.0) / denominator.mean();
    let half_width = batch_interval.half_width.hypot(numerator_error).hypot(denominator_error);
    Ok(Interval { mean, half_width, ..batch_interval })
}

/// Whether both events were counted, but in different windows.
fn has_two_windows(means: &Means<'_>, numerator: &str, denominator: &str) -> bool {
    let counted = means.get(numerator).zip(means.get(denominator));
    counted.is_some_and(|(numerator, denominator)| numerator.pass != denominator.pass)
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;

    /// 16 batches with 10 spans each. A span of an even batch has 100 of event 0 and 50 of event 1. A span of an odd
    /// batch has 200 and 150. Event 2 never comes.
    fn batches() -> Batches<JointBatch> {
        let cell = |index: i64| JointBatch {
            count: 10,
            sums: vec![1_000 * (1 + index % 2), 500 * (1 + 2 * (index % 2)), 0],
        };
        Batches { shift: 4, cells: (0..16).map(cell).collect() }
    }

    fn mean(batches: &Batches<JointBatch>, pass: usize, index: usize) -> EventMean {
        let self_total = batches.cells.iter().map(|cell| cell.sums[index] as u64).sum();
        EventMean {
            pass,
            index,
            spans: batches.cells.iter().map(|cell| cell.count).sum(),
            self_total,
            inclusive_total: self_total,
            overhead: Some(0.0),
            overhead_ci95: None,
            batches: Rc::new(batches.clone()),
        }
    }

    #[test]
    fn a_mean_below_the_overhead_of_reading_is_negative() {
        let batches = batches();
        let mean_with = |overhead| {
            EventMean { self_total: 100, overhead, spans: 10, ..mean(&batches, 0, 0) }.mean()
        };
        assert_eq!(mean_with(Some(12.5)), -2.5);
        assert_eq!(mean_with(None), 10.0);
    }

    #[test]
    fn a_ratio_of_events_from_two_windows_is_marked() {
        let batches = batches();
        let event =
            |pass, self_total| EventMean { self_total, spans: 1, ..mean(&batches, pass, 0) };
        let means: Means<'_> =
            [("a", event(1, 6)), ("b", event(1, 3)), ("c", event(2, 4)), ("zero", event(2, 0))]
                .into();
        let ratio_and_mark = |numerator, denominator| {
            let ratio = ratio(&means, numerator, denominator);
            (ratio, has_two_windows(&means, numerator, denominator))
        };
        assert_eq!(ratio_and_mark("a", "b"), (Some(2.0), false));
        assert_eq!(ratio_and_mark("a", "c"), (Some(1.5), true));
        assert_eq!(ratio_and_mark("a", "zero").0, None);
        assert_eq!(ratio_and_mark("a", "d"), (None, false));
    }

    #[test]
    fn the_overhead_of_reading_widens_intervals_of_means_and_ratios() {
        let batches = batches();
        let (numerator, denominator) = (mean(&batches, 1, 0), mean(&batches, 1, 1));
        let plain = numerator.interval().unwrap();
        assert_eq!(plain.mean, 150.0);
        let wide = EventMean { overhead_ci95: Some(30.0), ..mean(&batches, 1, 0) };
        let half_width = wide.interval().unwrap().half_width;
        assert!((half_width - plain.half_width.hypot(30.0)).abs() < 1e-9, "{half_width}");
        // In one window, the common variation of both events cancels.
        let one_window = interval_of_ratio(&numerator, &denominator).unwrap();
        let in_other_window = EventMean { pass: 2, ..mean(&batches, 1, 0) };
        let two_windows = interval_of_ratio(&in_other_window, &denominator).unwrap();
        assert_eq!((one_window.mean, one_window.method.label()), (1.5, "batch-means"));
        assert_eq!((two_windows.mean, two_windows.method.label()), (1.5, "two-windows"));
        let (narrow, broad) = (one_window.half_width, two_windows.half_width);
        assert!(broad > 2.0 * narrow, "{one_window:?} {two_windows:?}");
        let with_overhead = interval_of_ratio(&wide, &denominator).unwrap().half_width;
        assert!((with_overhead - narrow.hypot(0.3)).abs() < 1e-9, "{with_overhead}");
    }

    #[test]
    fn an_interval_that_is_absent_has_its_reason() {
        let kept = batches();
        let few = Batches { cells: kept.cells[..7].to_vec(), ..kept.clone() };
        let not_kept = Batches { shift: 0, cells: Vec::new() };
        let counted = mean(&kept, 1, 0);
        assert_eq!(mean(&few, 1, 0).interval(), Err(TOO_FEW_BATCHES));
        assert_eq!(
            EventMean { batches: Rc::new(not_kept), ..mean(&kept, 1, 0) }.interval(),
            Err(NOT_KEPT)
        );
        assert_eq!(mean(&kept, 1, 2).interval(), Err(NEVER_COUNTED));
        assert_eq!(interval_of_ratio(&mean(&kept, 1, 2), &counted), Err(NEVER_COUNTED));
        let small = EventMean { overhead: Some(149.0), ..mean(&kept, 1, 0) };
        assert_eq!(interval_of_ratio(&counted, &small), Err(DENOMINATOR_NEAR_ZERO));
        let missing = Some(Err(NEVER_COUNTED));
        let values =
            interval_columns("a", "").cells_of(&missing).into_iter().map(|(_, value)| value);
        assert_eq!(half_width(&missing), None);
        assert!(values.eq([Value::Absent, Value::Absent, NEVER_COUNTED.into()]));
    }
}
