//! Table `handlers`: what each context cost.

use std::collections::BTreeSet;

use record::{Column, Format, Kind, RowFilter, Table, TableDisplay, Value};
use stats::{Distribution, Inflation};

use super::super::bench::ProbeOverhead;
use super::super::sample::{ContextStats, Timing, probe_overhead_error};
use super::super::samples::ConditionSamples;
use super::{Group, display, groups, key_columns, key_values, offline_column, rate_hz};
use crate::amounts::{interval_columns, rate_values, share_values, spread_columns, spread_values};
use crate::quantiles::{
    method_column, method_value, section_interval_columns, section_interval_values,
};

/// Quantiles of the table: suffix of the column, share of 100,000.
const QUANTILES: [(&str, u32); 4] =
    [("p50", 50_000), ("p90", 90_000), ("p99", 99_000), ("p999", 99_900)];

/// Columns of a time; the self times are what people see.
fn time_columns(prefix: &str, what: &str, is_shown: bool) -> Vec<Column> {
    let shown = |column: Column, title: &str, priority: u8| {
        let column = column.title(title).format(Format::Microseconds).cost();
        if is_shown { column.priority(priority) } else { column.detail() }
    };
    let mean = Column::new(
        &format!("{prefix}_mean_ns"),
        Kind::Real,
        &format!("Mean {what} of a span; the probe overhead within the span is subtracted."),
    );
    let mean = shown(mean, "mean ± ci95", 99);
    let mut columns = vec![if is_shown {
        let half_width = format!("{prefix}_mean_ci95_ns");
        mean.plus_minus(&half_width).below_limit(&format!("{prefix}_mean_below_limit"))
    } else {
        mean
    }];
    for ((suffix, share), (title, priority)) in
        QUANTILES.into_iter().zip([("p50", 50), ("p90", 0), ("p99", 80), ("p99.9", 0)])
    {
        let percent = f64::from(share) / 1e3;
        let doc = format!(
            "{percent} % of the spans took at most this time; exact within 1/16; absent where fewer than \
             one span is expected above it."
        );
        let column = Column::new(&format!("{prefix}_{suffix}_ns"), Kind::Uint, &doc);
        let interval = section_interval_columns(&column.name);
        columns.push(shown(column, title, priority));
        columns.extend(interval);
    }
    let uint = |suffix: &str, doc| Column::new(&format!("{prefix}_{suffix}"), Kind::Uint, doc);
    let total = uint("total_ns", "Sum over all spans; exact within the clock's resolution.");
    columns.extend([
        shown(uint("max_ns", "The longest span."), "max", 90),
        uint("max_at_ns", "When the longest span ended, since the window opened.").detail(),
        shown(total, "total", 60).format(Format::Milliseconds),
    ]);
    columns
}

fn columns(measured: &[ConditionSamples]) -> Vec<Column> {
    let mut columns = key_columns();
    columns.extend([
        Column::new(
            "timed_by",
            Kind::Text,
            "What timed the spans: probes, kernel, simulator, or none (counted only).",
        )
        .detail(),
        Column::new("count", Kind::Uint, "Spans that ended in the window.").priority(70),
        undelivered_column(measured),
        Column::new(
            "undelivered_max_ratio",
            Kind::Real,
            "undelivered_max_count as a share of itself and count: times, means and quantiles are of the others.",
        )
        .detail(),
        Column::new("rate_hz", Kind::Real, "Spans per second of the window.").priority(40),
    ]);
    columns.extend(time_columns("self", "self time (without nested spans)", true));
    columns.extend([
        Column::new(
            "self_mean_ci95_ns",
            Kind::Real,
            "Half width of the 95 % confidence interval of self_mean_ns, that of the probe overhead \
             included.",
        )
        .detail(),
        Column::new(
            "self_mean_ci95_method",
            Kind::Text,
            "How that interval was computed: batch-means; batch-means-correlated where the window was too \
             short for batches that do not correlate, so that it may be too narrow; or independent with \
             few batches.",
        )
        .detail(),
        Column::new(
            "probe_overhead_mean_ns",
            Kind::Real,
            "What was subtracted from a span on average for the probes inside it; self_mean_ns and this are \
             the mean as it was read.",
        )
        .detail(),
        Column::new(
            "probe_overhead_mean_ci95_ns",
            Kind::Real,
            "Half width of the 95 % confidence interval of probe_overhead_mean_ns.",
        )
        .detail(),
        Column::new(
            "self_mean_below_limit",
            Kind::Bool,
            "Whether self_mean_ns is below the detection limit, which is probe_overhead_mean_ci95_ns: then it \
             may be negative, and self_mean_ns plus self_mean_ci95_ns is all that is known of it.",
        )
        .detail(),
        Column::new(
            "self_cpu_ratio",
            Kind::Real,
            "Share of CPU time: self_total_ns over the length of the window on all CPUs of the row.",
        )
        .title("CPU")
        .priority(85)
        .cost(),
        Column::new(
            "self_mean_tsc_cycles",
            Kind::Real,
            "self_mean_ns in cycles of the time-stamp counter.",
        )
        .detail(),
        Column::new(
            "self_total_tsc_cycles",
            Kind::Real,
            "self_total_ns in cycles of the time-stamp counter.",
        )
        .detail(),
    ]);
    columns.extend(time_columns("inclusive", "time from entry to exit", false));
    let uint = |name, doc| Column::new(name, Kind::Uint, doc).detail();
    columns.extend([
        uint("interrupted_count", "Spans that were interrupted by a nested span."),
        uint("irq_none_count", "irq only: handlers that returned IRQ_NONE (shared line)."),
        uint(
            "clamped_count",
            "Spans shorter than the probe overhead: 0 ns in quantiles and the total, negative in the mean.",
        ),
        uint("unmatched_entry_count", "Entries whose exit was not seen; in no other column."),
        method_column(),
    ]);
    columns.push(offline_column(measured));
    columns.extend(spread_columns("self_mean_ns"));
    columns.extend(interval_columns("rate_hz"));
    columns.extend(interval_columns("self_cpu_ratio"));
    columns
}

/// What the rows may lack. People see it where a row lacks something.
fn undelivered_column(measured: &[ConditionSamples]) -> Column {
    let column = Column::new(
        "undelivered_max_count",
        Kind::Uint,
        "At most how many spans the kernel counted here and did not hand to the probes: they are in no other \
         column. The kernel counts all IRQ lines together, and both function calls; each of those rows may \
         lack all that is missing. Absent where the kernel has no counter.",
    )
    .title("undelivered ≤");
    let is_incomplete = measured.iter().any(|one| one.timing.undelivered() > 0);
    if is_incomplete { column.priority(72) } else { column.detail() }
}

/// How the numbers were measured.
fn notes(measured: &[ConditionSamples], has_probes: bool) -> Vec<String> {
    let mut notes = vec![
        "{settings.attachment} probes at entry and exit".to_owned(),
        "CPUs {settings.cpus}".to_owned(),
        "{settings.clock}".to_owned(),
    ];
    let spans = measured.iter().flat_map(|one| groups(&one.timing)).filter(|group| {
        group.samples.first().is_some_and(|sample| sample.timing != Timing::CountOnly)
    });
    let methods: BTreeSet<&str> = spans
        .filter_map(|group| self_times(&group).interval())
        .map(|interval| interval.method.label())
        .collect();
    let has_batches = methods.iter().any(|method| method.starts_with("batch-means"));
    let how = match (has_batches, methods.contains("independent")) {
        (true, true) => Some("by batch means, or as if independent where spans are few"),
        (true, false) => Some("by batch means"),
        (false, true) => Some("as if spans were independent"),
        (false, false) => None,
    };
    notes.extend(how.map(|how| {
        format!("± is half of the mean's 95\u{a0}% confidence interval over count spans, {how}")
    }));
    if methods.contains("batch-means-correlated") {
        let narrow = "± may be too narrow where self_mean_ci95_method is batch-means-correlated: the window \
             was too short";
        notes.push(narrow.to_owned());
    }
    if has_probes {
        let subtracted = "what the probes add inside a span is subtracted: {observer.probe_overhead_in_span_ns} \
             in a warm loop, in situ as probe_overhead_mean_ns says";
        notes.push(subtracted.to_owned());
    }
    notes.push(
        "quantiles within {settings.histogram_error_max_ratio}, max and total exact".to_owned(),
    );
    notes
}

/// One row per context and CPU, and one per context over all CPUs.
pub fn handlers(measured: &[ConditionSamples], overhead: &ProbeOverhead) -> Table {
    let doc = "One row per interrupt context and CPU, and one for the sum over the CPUs (`all`).";
    let title =
        "CPU time of each interrupt context; self times: without the contexts nested within";
    let samples = measured.iter().flat_map(|one| &one.timing.contexts);
    let has_probes = samples.into_iter().any(|sample| sample.timing == Timing::Probes);
    let display = TableDisplay {
        headline: "largest: {kind} {name}, {self_cpu_ratio} of CPU time, {self_mean_ns} × {count}"
            .to_owned(),
        sort_by: Some("self_total_ns".to_owned()),
        filter: Some(RowFilter::sums_over_cpus()),
        notes: notes(measured, has_probes),
        ..display(title)
    };
    let mut table = Table::new("handlers", doc, columns(measured)).displayed(display);
    for one in measured {
        let condition = one.condition.label();
        for group in groups(&one.timing) {
            let timing = group.samples.first().map_or(Timing::CountOnly, |sample| sample.timing);
            if timing != Timing::Packets {
                let undelivered_max = one.timing.undelivered_max(group.context, group.cpu);
                table.push(row(&condition, &group, timing, undelivered_max, overhead));
            }
        }
    }
    table
}

fn row(
    condition: &str,
    group: &Group<'_>,
    timing: Timing,
    undelivered_max: Option<u64>,
    overhead: &ProbeOverhead,
) -> Vec<Value> {
    let sum = |field: fn(&ContextStats) -> u64| group.samples.iter().map(|s| field(s)).sum::<u64>();
    let count = sum(|sample| sample.count);
    let timed = timing != Timing::CountOnly && count > 0;
    let own = self_times(group);
    let mut inclusive = Distribution::default();
    group.samples.iter().for_each(|sample| inclusive.merge(&sample.inclusive));
    let mut row = key_values(condition, group);
    let entries = undelivered_max.map(|lacking| count.saturating_add(lacking));
    let undelivered_ratio = undelivered_max.zip(entries.filter(|entries| *entries > 0));
    row.extend([
        timing.label().into(),
        count.into(),
        undelivered_max.into(),
        undelivered_ratio.map(|(lacking, entries)| lacking as f64 / entries as f64).into(),
        rate_hz(count, group.length_ns).into(),
    ]);
    let probed = timing == Timing::Probes;
    let mean_of = |total: i64| (timed && count > 0).then(|| total as f64 / count as f64);
    let self_total = group.samples.iter().map(|sample| sample.self_total_ns()).sum();
    let subtracted =
        mean_of(sum(|sample| sample.probe_overhead_total_ns) as i64).filter(|_| probed);
    let warm_ns = overhead.in_span_ns as f64;
    let subtracted_error = subtracted.map(|mean| probe_overhead_error(mean, warm_ns));
    let mean = mean_of(self_total);
    let inflations = QUANTILES.map(|(_, share)| own.quantile_inflation(share));
    row.extend(times(&own, mean, inflations, group.peak_at_ns(|sample| sample.own.peak), timed));
    let interval = if timed { own.interval() } else { None };
    let cycles_per_ns = overhead.tsc_hz.map(|hz| hz / 1e9);
    let share = own.sum as f64 / group.cpu_time_ns as f64;
    let cycles = |ns: Option<f64>| -> Value {
        let both = ns.zip(cycles_per_ns).filter(|_| timed);
        both.map(|(ns, cycles)| ns * cycles).into()
    };
    row.extend([
        interval.map(|of| of.half_width.hypot(subtracted_error.unwrap_or(0.0))).into(),
        interval.map(|interval| interval.method.label()).into(),
        subtracted.into(),
        subtracted_error.into(),
        subtracted_error.zip(mean).map(|(limit, mean)| mean <= limit).into(),
        timed.then_some(share).into(),
        cycles(mean),
        cycles(Some(own.sum as f64)),
    ]);
    let has_inclusive = timed && timing.has_spans();
    row.extend(times(
        &inclusive,
        inclusive.mean(),
        // Sections are of self times: the largest of their inflations stands for all quantiles.
        [largest(&known(&own, inflations)); QUANTILES.len()],
        group.peak_at_ns(|s| s.inclusive.peak),
        has_inclusive,
    ));
    let is_irq = group.context.kind == attribution::ContextKind::HardIrq;
    row.extend([
        timing.has_spans().then(|| sum(|sample| sample.nested_count)).into(),
        (is_irq && probed).then(|| sum(|sample| sample.special_count)).into(),
        probed.then(|| sum(|sample| sample.clamped_count)).into(),
        probed.then(|| sum(|sample| sample.abandoned_count)).into(),
        if timed { method_value(&known(&own, inflations)) } else { Value::Absent },
        group.offline_after_ns.into(),
    ]);
    row.extend(spread_values(interval));
    row.extend(rate_values(&own, group.length_ns, group.cpu_time_ns));
    row.extend(share_values(&own, group.length_ns, group.cpu_time_ns));
    row
}

/// The inflations of the quantiles that there are.
fn known(
    own: &Distribution,
    inflations: [Option<Inflation>; QUANTILES.len()],
) -> Vec<Option<Inflation>> {
    let quantiles = QUANTILES.into_iter().zip(inflations);
    let of_those_there_are = quantiles.filter(|((_, share), _)| own.quantile(*share).is_some());
    of_those_there_are.map(|(_, inflation)| inflation).collect()
}

/// The largest inflation of all, with the fewest degrees of freedom; `None` where one is not known.
fn largest(inflations: &[Option<Inflation>]) -> Option<Inflation> {
    inflations.iter().copied().reduce(|one, other| Some(one?.or_larger(other?))).flatten()
}

fn self_times(group: &Group<'_>) -> Distribution {
    let mut own = Distribution::default();
    group.samples.iter().for_each(|sample| own.merge(&sample.own));
    own
}

fn times(
    of: &Distribution,
    mean: Option<f64>,
    inflations: [Option<Inflation>; QUANTILES.len()],
    peak_at_ns: Option<u64>,
    timed: bool,
) -> Vec<Value> {
    let when = |value: Option<u64>| Value::from(if timed { value } else { None });
    let mut values = vec![Value::from(if timed { mean } else { None })];
    for ((_, share), inflation) in QUANTILES.into_iter().zip(inflations) {
        values.push(when(of.quantile(share)));
        let interval = section_interval_values(of, share, inflation);
        values.extend(interval.map(|bound| if timed { bound } else { Value::Absent }));
    }
    values.extend([when(Some(of.peak.value)), when(peak_at_ns), when(Some(of.sum))]);
    values
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};

    use super::super::super::condition::Condition;
    use super::super::super::sample::{Agreement, CpuWindow, WindowSample};
    use super::*;

    /// A window of two CPUs with 90 ticks on each, of which the kernel counted this many.
    fn table_of(kernel: [u64; 2]) -> Table {
        let context =
            Context { kind: ContextKind::Vector, number: 0, name: "local_timer".to_owned() };
        let on_both = [0, 1];
        let agreement = on_both.map(|cpu: u32| Agreement {
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
            windows: on_both.map(window).to_vec(),
            contexts: on_both.map(stats).to_vec(),
            agreement: agreement.to_vec(),
            ..WindowSample::default()
        };
        let one = ConditionSamples { condition: Condition::Ambient, timing, events: Vec::new() };
        handlers(&[one], &ProbeOverhead::default())
    }

    #[test]
    fn rows_state_what_the_kernel_did_not_hand_to_the_probes() {
        let table = table_of([100, 90]);
        let cells = |table: &Table, column: &str| -> Vec<Option<f64>> {
            let cell = |row: &Vec<Value>| table.get(row, column).and_then(Value::number);
            table.rows().iter().map(cell).collect()
        };
        // All CPUs, CPU 0, CPU 1.
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
