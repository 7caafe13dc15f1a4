//! Table `handlers`: count and times of each context. Users' programs read the columns: names
//! and order must not change.

use std::collections::BTreeSet;

use record::{Column, Columns, Format, IntervalColumns, RowFilter, Table, TableDisplay, column};
use stats::{Distribution, Inflation, Interval};

use super::super::bench::ProbeOverhead;
use super::super::sample::{ContextStats, SpanOverhead, Timing};
use super::super::samples::ConditionSamples;
use super::{Group, GroupRow, display, group_rows, groups, key_columns, offline_column, rate_hz};
use crate::amounts::{
    interval_columns, interval_link, rate_interval, share_interval, spread_columns,
};
use crate::quantiles::{SectionIntervals, method_column, section_interval_columns, section_link};

/// Quantiles of the table: suffix of the column, and quantile in units of 1/100,000.
const QUANTILES: [(&str, u32); 4] =
    [("p50", 50_000), ("p90", 90_000), ("p99", 99_000), ("p999", 99_900)];

/// The self times of a row's spans, or their inclusive times.
struct Times {
    distribution: Distribution,
    /// Sum over all spans, ns. Unlike the sum of the distribution, it has spans shorter than the probe overhead as
    /// negative times. It can be negative itself, below the detection limit.
    total_ns: i64,
    /// Mean time of a span, ns.
    mean: Option<f64>,
    /// The inflation of the variance of each of [`QUANTILES`], because spans depend on one another.
    inflations: [Option<Inflation>; QUANTILES.len()],
    /// When the longest span ended, ns since the window opened.
    peak_at_ns: Option<u64>,
}

impl Times {
    /// The total, or 0 if it is negative: see the column's text.
    fn total_or_zero_ns(&self) -> u64 {
        self.total_ns.try_into().unwrap_or(0)
    }

    /// The inflations of the quantiles that the distribution has.
    fn known_inflations(&self) -> Vec<Option<Inflation>> {
        let quantiles = QUANTILES.into_iter().zip(self.inflations);
        let present =
            quantiles.filter(|((_, share), _)| self.distribution.quantile(*share).is_some());
        present.map(|(_, inflation)| inflation).collect()
    }
}

/// The columns of the self times or of the inclusive times. `prefix`: start of the columns' names. `name`: the time in
/// words. `is_shown`: whether the terminal shows the columns.
fn time_columns<'a>(prefix: &str, name: &str, is_shown: bool) -> Columns<'a, Times> {
    let shown = |column: Column, title: &str, priority: u8| {
        let column = column.title(title).format(Format::Microseconds).cost();
        if is_shown { column.priority(priority) } else { column.detail() }
    };
    let mean_name = format!("{prefix}_mean_ns");
    let doc = format!("Mean {name} of a span; the probe overhead within the span is subtracted.");
    let flag = format!("{prefix}_mean_below_limit");
    let mut mean = shown(column(&mean_name, &doc), "mean ± ci95", 99).below_limit(&flag);
    if is_shown {
        mean = mean
            .interval(interval_link(&mean_name).method(&format!("{prefix}_mean_ci95_method")))
            .plus_minus(&format!("{prefix}_mean_ci95_ns"));
    }
    let mut columns = mean.real(|times: &Times| times.mean);
    let shown_as = [("p50", 50), ("p90", 0), ("p99", 80), ("p99.9", 0)];
    for (index, ((suffix, share), (title, priority))) in
        QUANTILES.into_iter().zip(shown_as).enumerate()
    {
        let percent = f64::from(share) / 1e3;
        let doc = format!(
            "{percent} % of the spans took at most this time; exact within 1/16; absent where \
             fewer than one span is expected above it."
        );
        let name = format!("{prefix}_{suffix}_ns");
        let quantile = column(&name, &doc).interval(section_link(&name));
        columns = columns.and([
            shown(quantile, title, priority)
                .uint(move |times: &Times| times.distribution.quantile(share)),
            section_interval_columns(&name).of(move |times: &Times| {
                SectionIntervals::new(&times.distribution, share, times.inflations[index])
            }),
        ]);
    }
    let time = |suffix: &str, doc| column(&format!("{prefix}_{suffix}"), doc);
    let doc = format!(
        "Sum over all spans, without the probe overhead: count times {mean_name}. 0 where {mean_name} is negative: the \
         total is then below the detection limit."
    );
    let total = shown(time("total_ns", &doc), "total", 60).format(Format::Milliseconds);
    let total = total.below_limit(&flag);
    columns.and([
        shown(time("max_ns", "The longest span."), "max", 90)
            .uint(|times: &Times| times.distribution.peak.value),
        time("max_at_ns", "When the longest span ended, since the window opened.")
            .detail()
            .uint(|times: &Times| times.peak_at_ns),
        total.uint(Times::total_or_zero_ns),
    ])
}

/// The spans of a context in a condition, on one CPU or on all CPUs.
struct Row<'a> {
    group_row: GroupRow<'a>,
    timing: Timing,
    count: u64,
    /// Upper bound of the number of spans that the kernel counted without a call of a probe. `None` if it is not known.
    undelivered_max: Option<u64>,
    /// The self times; meaningless unless [`Row::has_times`]. Columns use [`Row::self_times`].
    self_spans: Times,
    /// The inclusive times. Columns use [`Row::inclusive_times`].
    inclusive_spans: Times,
    /// Mean probe overhead that was subtracted from a span.
    overhead_mean_ns: Option<f64>,
    /// Half width of the interval of `overhead_mean_ns`.
    overhead_error_ns: Option<f64>,
    tsc_hz: Option<f64>,
}

impl<'a> Row<'a> {
    fn new(
        group_row: GroupRow<'a>,
        undelivered_max: Option<u64>,
        overhead: &ProbeOverhead,
    ) -> Row<'a> {
        let group = &group_row.group;
        let timing = timing(group);
        let count = sum(group, |sample| sample.count);
        let mean_per_span = |total: i64| {
            (timing != Timing::CountOnly && count > 0).then(|| total as f64 / count as f64)
        };
        let distribution = self_times(group);
        let total_ns = group.samples.iter().map(|sample| sample.self_total_ns()).sum();
        let self_spans = Times {
            total_ns,
            mean: mean_per_span(total_ns),
            inflations: QUANTILES.map(|(_, share)| distribution.quantile_inflation(share)),
            peak_at_ns: group.peak_at_ns(|sample| sample.own.peak),
            distribution,
        };
        let mut distribution = Distribution::default();
        group.samples.iter().for_each(|sample| distribution.merge(&sample.inclusive));
        let total_ns = group.samples.iter().map(|sample| sample.inclusive_total_ns()).sum();
        let inclusive_spans = Times {
            total_ns,
            mean: distribution.mean().and_then(|_| mean_per_span(total_ns)),
            // The sections have only self times. All quantiles of inclusive times use the
            // largest inflation of the self times.
            inflations: [largest(&self_spans.known_inflations()); QUANTILES.len()],
            peak_at_ns: group.peak_at_ns(|sample| sample.inclusive.peak),
            distribution,
        };
        let overhead_total_ns = sum(group, |sample| sample.probe_overhead_total_ns);
        let overhead_mean_ns = match timing {
            Timing::Probes => mean_per_span(overhead_total_ns as i64),
            _ => None,
        };
        let warm_ns = overhead.in_span_ns as f64;
        Row {
            timing,
            count,
            undelivered_max,
            self_spans,
            inclusive_spans,
            overhead_mean_ns,
            overhead_error_ns: overhead_mean_ns
                .map(|mean_ns| SpanOverhead { mean_ns, warm_ns }.half_width_95_ns()),
            tsc_hz: overhead.tsc_hz,
            group_row,
        }
    }

    fn group(&self) -> &Group<'a> {
        &self.group_row.group
    }

    fn sum(&self, field: fn(&ContextStats) -> u64) -> u64 {
        sum(self.group(), field)
    }

    fn has_times(&self) -> bool {
        self.timing != Timing::CountOnly && self.count > 0
    }

    fn has_probes(&self) -> bool {
        self.timing == Timing::Probes
    }

    fn is_irq(&self) -> bool {
        self.group().context.kind == attribution::ContextKind::HardIrq
    }

    /// Upper bound of the share of undelivered spans among delivered and undelivered spans. `None` if their number is
    /// not known, or without spans.
    fn undelivered_max_ratio(&self) -> Option<f64> {
        let undelivered_max = self.undelivered_max?;
        let spans_max = self.count.saturating_add(undelivered_max);
        (spans_max > 0).then(|| undelivered_max as f64 / spans_max as f64)
    }

    fn self_times(&self) -> Option<&Times> {
        self.has_times().then_some(&self.self_spans)
    }

    fn inclusive_times(&self) -> Option<&Times> {
        (self.has_times() && self.timing.has_spans()).then_some(&self.inclusive_spans)
    }

    /// The interval of the mean self time, without the interval of the probe overhead. `None` if the row is only
    /// counted, or has too few batches.
    fn interval(&self) -> Option<Interval> {
        self.self_times()?.distribution.interval()
    }

    /// Half width of the interval of the mean self time, with the interval of the probe overhead. `None` if the row is
    /// only counted, or has too few batches.
    fn interval_half_width(&self) -> Option<f64> {
        Some(self.interval()?.half_width.hypot(self.overhead_error_ns.unwrap_or(0.0)))
    }

    /// Whether a mean is at most the interval of the probe overhead. `None` without an overhead.
    fn is_below_limit(&self, mean: Option<f64>) -> Option<bool> {
        self.overhead_error_ns.zip(mean).map(|(limit, mean)| mean <= limit)
    }

    fn cpu_ratio(&self) -> Option<f64> {
        Some(self.self_times()?.total_or_zero_ns() as f64 / self.group().cpu_time_ns as f64)
    }

    /// The interval of [`Row::cpu_ratio`], with the interval of the probe overhead. `None` with too few batches.
    fn cpu_ratio_interval(&self) -> Option<Interval> {
        let (spans, group) = (&self.self_spans.distribution, self.group());
        let interval = share_interval(spans, group.length_ns, group.cpu_time_ns)?;
        let overhead_ns = self.overhead_error_ns.unwrap_or(0.0) * self.count as f64;
        let half_width = interval.half_width.hypot(overhead_ns / group.cpu_time_ns as f64);
        Some(Interval { half_width, ..interval })
    }

    /// `ns` in cycles of the time-stamp counter. `None` if the row has no times, or the frequency is unknown.
    fn tsc_cycles(&self, ns: Option<f64>) -> Option<f64> {
        let cycles_per_ns = self.tsc_hz? / 1e9;
        self.self_times().and(ns).map(|ns| ns * cycles_per_ns)
    }
}

fn columns<'a>(measured: &[ConditionSamples]) -> Columns<'a, Row<'a>> {
    Columns::all([
        key_columns().of_ref(|row: &Row<'_>| &row.group_row),
        column(
            "timed_by",
            "Source of the times: probes, kernel, simulator, or none (spans are only counted).",
        )
        .detail()
        .text(|row: &Row<'_>| row.timing.label()),
        column("count", "Spans that ended in the window.")
            .priority(70)
            .uint(|row: &Row<'_>| row.count),
        undelivered_column(measured),
        column(
            "undelivered_max_ratio",
            "undelivered_max_count over the sum of undelivered_max_count and count. Times, \
             means and quantiles do not include these spans.",
        )
        .detail()
        .real(|row: &Row<'_>| row.undelivered_max_ratio()),
        column("rate_hz", "Spans per second of the window.")
            .interval(interval_link("rate_hz"))
            .priority(40)
            .real(|row: &Row<'_>| rate_hz(row.count, row.group().length_ns)),
        time_columns("self", "self time (without nested spans)", true)
            .of_optional(|row: &Row<'_>| row.self_times()),
        column(
            "self_mean_ci95_ns",
            "Half width of the 95 % confidence interval of self_mean_ns. It includes the \
             interval of the probe overhead.",
        )
        .detail()
        .real(|row: &Row<'_>| row.interval_half_width()),
        column(
            "self_mean_ci95_method",
            "Method of the interval: batch-means; batch-means-correlated where the window was \
             too short for uncorrelated batches (the interval may be too narrow); or \
             independent with few batches.",
        )
        .detail()
        .text(|row: &Row<'_>| row.interval().map(|interval| interval.method.label())),
        column(
            "probe_overhead_mean_ns",
            "Mean probe overhead that was subtracted from a span. The sum of self_mean_ns and \
             probe_overhead_mean_ns is the mean before the subtraction.",
        )
        .interval(IntervalColumns::half_width("probe_overhead_mean_ci95_ns"))
        .detail()
        .real(|row: &Row<'_>| row.overhead_mean_ns),
        column(
            "probe_overhead_mean_ci95_ns",
            "Half width of the 95 % confidence interval of probe_overhead_mean_ns.",
        )
        .detail()
        .real(|row: &Row<'_>| row.overhead_error_ns),
        column(
            "self_mean_below_limit",
            "Whether self_mean_ns is below the detection limit, probe_overhead_mean_ci95_ns. \
             self_mean_ns may then be negative; self_mean_ns plus self_mean_ci95_ns is an \
             upper bound.",
        )
        .detail()
        .bool(|row: &Row<'_>| row.is_below_limit(row.self_spans.mean)),
        column(
            "self_cpu_ratio",
            "Share of CPU time: self_total_ns over the length of the window on all CPUs of the row. The interval includes that of the probe overhead.",
        )
        .shown_as("CPU", 85)
        .cpu_share()
        .below_limit("self_mean_below_limit")
        .interval(interval_link("self_cpu_ratio"))
        .real(|row: &Row<'_>| row.cpu_ratio()),
        column("self_mean_tsc_cycles", "self_mean_ns in cycles of the time-stamp counter.")
            .detail()
            .below_limit("self_mean_below_limit")
            .real(|row: &Row<'_>| row.tsc_cycles(row.self_spans.mean)),
        column("self_total_tsc_cycles", "self_total_ns in cycles of the time-stamp counter.")
            .detail()
            .below_limit("self_mean_below_limit")
            .real(|row: &Row<'_>| row.tsc_cycles(Some(row.self_spans.total_or_zero_ns() as f64))),
        time_columns("inclusive", "time from entry to exit", false)
            .of_optional(|row: &Row<'_>| row.inclusive_times()),
        column(
            "inclusive_mean_below_limit",
            "Whether inclusive_mean_ns is below the detection limit, probe_overhead_mean_ci95_ns. It may then be \
             negative.",
        )
        .detail()
        .bool(|row: &Row<'_>| {
            row.inclusive_times().and_then(|times| row.is_below_limit(times.mean))
        }),
        column("interrupted_count", "Spans that were interrupted by a nested span.").detail().uint(
            |row: &Row<'_>| row.timing.has_spans().then(|| row.sum(|sample| sample.nested_count)),
        ),
        column("irq_none_count", "irq only: handlers that returned IRQ_NONE (shared line).")
            .detail()
            .uint(|row: &Row<'_>| {
                (row.is_irq() && row.has_probes()).then(|| row.sum(|sample| sample.special_count))
            }),
        column(
            "clamped_count",
            "Spans shorter than the probe overhead: 0 ns in quantiles, negative in the mean and the total.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.has_probes().then(|| row.sum(|sample| sample.clamped_count))),
        column(
            "unmatched_entry_count",
            "Entries without a matching exit; no other column includes them.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.has_probes().then(|| row.sum(|sample| sample.abandoned_count))),
        method_column()
            .of(|row: &Row<'_>| row.self_times().map(Times::known_inflations).unwrap_or_default()),
        offline_column(measured).of_ref(|row: &Row<'_>| &row.group_row),
        spread_columns("self_mean_ns").of(|row: &Row<'_>| row.interval()),
        interval_columns("rate_hz").of(|row: &Row<'_>| {
            let group = row.group();
            rate_interval(&row.self_spans.distribution, group.length_ns, group.cpu_time_ns)
        }),
        interval_columns("self_cpu_ratio").of(|row: &Row<'_>| row.cpu_ratio_interval()),
    ])
}

/// The column with the spans that a row may lack. The terminal shows it only if spans are missing.
fn undelivered_column<'a>(measured: &[ConditionSamples]) -> Columns<'a, Row<'a>> {
    let column = column(
        "undelivered_max_count",
        "Upper bound of the spans that the kernel counted, but for which it called no \
             probe. No other column includes them. The kernel counts all IRQ lines together, \
             and both function calls together; each of these rows may lack all missing spans. \
             Absent where the kernel has no counter.",
    )
    .title("undelivered ≤");
    let is_incomplete = measured.iter().any(|condition| condition.timing.undelivered_min() > 0);
    let column = if is_incomplete { column.priority(72) } else { column.detail() };
    column.uint(|row: &Row<'_>| row.undelivered_max)
}

/// Notes below the table on how its numbers were measured.
fn notes(measured: &[ConditionSamples], has_probes: bool) -> Vec<String> {
    let mut notes = vec![
        "{settings.attachment} probes at entry and exit".to_owned(),
        "CPUs {settings.cpus}".to_owned(),
        "{settings.clock}".to_owned(),
    ];
    let is_timed = |group: &Group<'_>| {
        group.samples.first().is_some_and(|sample| sample.timing != Timing::CountOnly)
    };
    let timed_rows = group_rows(measured).filter(|row| is_timed(&row.group));
    let methods: BTreeSet<&str> = timed_rows
        .filter_map(|row| self_times(&row.group).interval())
        .map(|interval| interval.method.label())
        .collect();
    let has_batches = methods.iter().any(|method| method.starts_with("batch-means"));
    let method_words = match (has_batches, methods.contains("independent")) {
        (true, true) => Some("by batch means, or as if independent where spans are few"),
        (true, false) => Some("by batch means"),
        (false, true) => Some("as if spans were independent"),
        (false, false) => None,
    };
    notes.extend(method_words.map(|method| {
        format!("± is half of the mean's 95\u{a0}% confidence interval over count spans, {method}")
    }));
    if methods.contains("batch-means-correlated") {
        let warning = "± may be too narrow where self_mean_ci95_method is batch-means-correlated: the \
             window was too short";
        notes.push(warning.to_owned());
    }
    if has_probes {
        let overhead = "the probe overhead inside a span is subtracted: \
             {observer.probe_overhead_in_span_ns} in a warm loop, probe_overhead_mean_ns in \
             situ";
        notes.push(overhead.to_owned());
    }
    let within = if has_probes {
        "quantiles within {settings.histogram_error_max_ratio}, max and total exact, but for the probe overhead, \
         which is known to probe_overhead_mean_ci95_ns a span: not told from 0 where the mean has <"
    } else {
        "quantiles within {settings.histogram_error_max_ratio}, max and total exact"
    };
    notes.push(within.to_owned());
    notes
}

/// Table `handlers`: one row per context and CPU, and one per context over all CPUs.
pub fn handlers(measured: &[ConditionSamples], overhead: &ProbeOverhead) -> Table {
    let doc = "One row per interrupt context and CPU, and one for the sum over the CPUs (`all`).";
    let title =
        "CPU time of each interrupt context; self times: without the contexts nested within";
    let samples = measured.iter().flat_map(|condition| &condition.timing.contexts);
    let has_probes = samples.into_iter().any(|sample| sample.timing == Timing::Probes);
    let display = TableDisplay {
        headline: "largest: {kind} {name}, {self_cpu_ratio} of CPU time, {self_mean_ns} × {count}"
            .to_owned(),
        sort_by: Some("self_total_ns".to_owned()),
        filter: Some(RowFilter::sums_over_cpus()),
        notes: notes(measured, has_probes),
        ..display(title)
    };
    let rows = measured.iter().flat_map(|condition| {
        let groups = groups(&condition.timing).into_iter();
        groups.filter(|group| timing(group) != Timing::Packets).map(|group| {
            let undelivered_max = condition.timing.undelivered_max(group.context, group.cpu);
            let group_row = GroupRow { condition: condition.condition.label(), group };
            Row::new(group_row, undelivered_max, overhead)
        })
    });
    columns(measured).table("handlers", doc, rows).displayed(display)
}

/// The source of the times of a group's spans. All samples of a context have the same source.
fn timing(group: &Group<'_>) -> Timing {
    group.samples.first().map_or(Timing::CountOnly, |sample| sample.timing)
}

fn sum(group: &Group<'_>, field: fn(&ContextStats) -> u64) -> u64 {
    group.samples.iter().map(|sample| field(sample)).sum()
}

/// The largest inflation, with the minimum of the degrees of freedom. `None` if an
/// inflation is unknown or there is no inflation.
fn largest(inflations: &[Option<Inflation>]) -> Option<Inflation> {
    inflations.iter().copied().reduce(|larger, next| Some(larger?.or_larger(next?))).flatten()
}

/// The self times of all samples of a group.
fn self_times(group: &Group<'_>) -> Distribution {
    let mut self_times = Distribution::default();
    group.samples.iter().for_each(|sample| self_times.merge(&sample.own));
    self_times
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};
    use record::Value;

    use super::super::super::condition::Condition;
    use super::super::super::sample::{Agreement, CpuWindow, WindowSample};
    use super::*;

    /// The table of a window with 90 ticks on each of two CPUs. `kernel`: the ticks that the kernel counted on each.
    fn table_of(kernel: [u64; 2]) -> Table {
        let context =
            Context { kind: ContextKind::Vector, number: 0, name: "local_timer".to_owned() };
        let cpus = [0, 1];
        let agreement = cpus.map(|cpu: u32| Agreement {
            cpu,
            line: "LOC".to_owned(),
            name: context.name.clone(),
            counted: Some(90),
            kernel_exact: Some(kernel[cpu as usize]),
            kernel_min: None,
            kernel_max: None,
            edge_max: 0,
        });
        let stats = |cpu| ContextStats::new(cpu, context.clone(), Timing::Probes, 90);
        let window = |cpu| CpuWindow { cpu, length_ns: 1_000_000_000, ..CpuWindow::default() };
        let timing = WindowSample {
            windows: cpus.map(window).to_vec(),
            contexts: cpus.map(stats).to_vec(),
            agreement: agreement.to_vec(),
            ..WindowSample::default()
        };
        let condition = Condition::Ambient;
        let samples = ConditionSamples { condition, timing, events: Vec::new() };
        handlers(&[samples], &ProbeOverhead::default())
    }

    /// Below the limit of the mean, totals and shares are sums of noise.
    #[test]
    fn totals_and_shares_have_the_detection_limit_of_the_mean() {
        let table = table_of([90, 90]);
        let limit =
            |name: &str| table.columns[table.column(name).unwrap()].display.below_limit.as_deref();
        let of_self_times =
            ["mean_ns", "total_ns", "mean_tsc_cycles", "total_tsc_cycles", "cpu_ratio"];
        for column in of_self_times {
            let column = format!("self_{column}");
            assert_eq!(limit(&column), Some("self_mean_below_limit"), "{column}");
        }
        for column in ["inclusive_mean_ns", "inclusive_total_ns"] {
            assert_eq!(limit(column), Some("inclusive_mean_below_limit"), "{column}");
        }
    }

    /// Spans that scatter around the probe overhead: what some spans lack, others have too much. A total of the
    /// positive spans alone would be too large.
    #[test]
    fn totals_and_shares_are_count_times_mean() {
        let table_of_clamped = |clamped_total_ns: u64| {
            let context = Context { kind: ContextKind::Timer, number: 0, name: "f".to_owned() };
            let times = Distribution { count: 4, sum: 4_000, ..Distribution::default() };
            let stats = ContextStats {
                own: times.clone(),
                inclusive: times,
                clamped_count: 2,
                clamped_total_ns,
                probe_overhead_total_ns: 400,
                ..ContextStats::new(0, context, Timing::Probes, 4)
            };
            let window = CpuWindow { length_ns: 1_000_000, ..CpuWindow::default() };
            let timing = WindowSample {
                windows: vec![window],
                contexts: vec![stats],
                ..WindowSample::default()
            };
            let condition = Condition::Ambient;
            let samples = ConditionSamples { condition, timing, events: Vec::new() };
            let overhead = ProbeOverhead { in_span_ns: 100, ..ProbeOverhead::default() };
            handlers(&[samples], &overhead)
        };
        let cell = |table: &Table, column: &str| table.get(&table.rows()[0], column).cloned();
        let number =
            |table: &Table, column: &str| cell(table, column).and_then(|value| value.number());
        let table = table_of_clamped(1_000);
        for prefix in ["self", "inclusive"] {
            assert_eq!(number(&table, &format!("{prefix}_mean_ns")), Some(750.0));
            assert_eq!(number(&table, &format!("{prefix}_total_ns")), Some(3_000.0));
            let flag = cell(&table, &format!("{prefix}_mean_below_limit"));
            assert_eq!(flag, Some(Value::Bool(false)));
        }
        assert_eq!(number(&table, "self_cpu_ratio"), Some(0.003));
        let table = table_of_clamped(4_400);
        for prefix in ["self", "inclusive"] {
            assert_eq!(number(&table, &format!("{prefix}_mean_ns")), Some(-100.0));
            assert_eq!(number(&table, &format!("{prefix}_total_ns")), Some(0.0));
            let flag = cell(&table, &format!("{prefix}_mean_below_limit"));
            assert_eq!(flag, Some(Value::Bool(true)), "{prefix}: it is no measurement");
        }
    }

    #[test]
    fn rows_state_the_spans_without_a_call_of_the_probes() {
        let table = table_of([100, 90]);
        let cells = |table: &Table, column: &str| -> Vec<Option<f64>> {
            let cell = |row: &Vec<Value>| table.get(row, column).and_then(Value::number);
            table.rows().iter().map(cell).collect()
        };
        // The rows are: all CPUs, CPU 0, CPU 1.
        assert_eq!(cells(&table, "undelivered_max_count"), [Some(10.0), Some(10.0), Some(0.0)]);
        let ratios = [Some(10.0 / 190.0), Some(0.1), Some(0.0)];
        assert_eq!(cells(&table, "undelivered_max_ratio"), ratios);
        let is_shown = |table: &Table| {
            let column = table.column("undelivered_max_count").unwrap();
            table.columns[column].display.priority > 0
        };
        assert!(is_shown(&table) && !is_shown(&table_of([90, 90])));
    }
}
