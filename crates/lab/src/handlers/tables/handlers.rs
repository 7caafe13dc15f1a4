//! Table `handlers`: count and times of each context.

use std::collections::BTreeSet;

use record::{Column, Format, IntervalColumns, Kind, RowFilter, Table, TableDisplay, Value};
use stats::{Distribution, Inflation};

use super::super::bench::ProbeOverhead;
use super::super::sample::{ContextStats, Timing, probe_overhead_error};
use super::super::samples::ConditionSamples;
use super::{Group, display, groups, key_columns, key_values, offline_column, rate_hz};
use crate::amounts::{
    interval_columns, interval_link, rate_values, share_values, spread_columns, spread_values,
};
use crate::quantiles::{
    method_column, method_value, section_interval_columns, section_interval_values, section_link,
};

/// Quantiles of the table: suffix of the column, and quantile in units of 1/100,000.
const QUANTILES: [(&str, u32); 4] =
    [("p50", 50_000), ("p90", 90_000), ("p99", 99_000), ("p999", 99_900)];

/// The columns of one kind of time. `name`: the time in words. `is_shown`: whether the terminal shows the columns.
fn time_columns(prefix: &str, name: &str, is_shown: bool) -> Vec<Column> {
    let shown = |column: Column, title: &str, priority: u8| {
        let column = column.title(title).format(Format::Microseconds).cost();
        if is_shown { column.priority(priority) } else { column.detail() }
    };
    let mean = Column::new(
        &format!("{prefix}_mean_ns"),
        Kind::Real,
        &format!("Mean {name} of a span; the probe overhead within the span is subtracted."),
    );
    let mean = shown(mean, "mean ± ci95", 99);
    let mut columns = vec![if is_shown {
        let half_width = format!("{prefix}_mean_ci95_ns");
        let link = interval_link(&mean.name).method(&format!("{prefix}_mean_ci95_method"));
        mean.interval(link)
            .plus_minus(&half_width)
            .below_limit(&format!("{prefix}_mean_below_limit"))
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
        let column = column.interval(section_link(&format!("{prefix}_{suffix}_ns")));
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
            "Source of the times: probes, kernel, simulator, or none (spans are only counted).",
        )
        .detail(),
        Column::new("count", Kind::Uint, "Spans that ended in the window.").priority(70),
        undelivered_column(measured),
        Column::new(
            "undelivered_max_ratio",
            Kind::Real,
            "undelivered_max_count over the sum of undelivered_max_count and count. Times, means and quantiles do not \
             include these spans.",
        )
        .detail(),
        Column::new("rate_hz", Kind::Real, "Spans per second of the window.")
            .interval(interval_link("rate_hz"))
            .priority(40),
    ]);
    columns.extend(time_columns("self", "self time (without nested spans)", true));
    columns.extend([
        Column::new(
            "self_mean_ci95_ns",
            Kind::Real,
            "Half width of the 95 % confidence interval of self_mean_ns. It includes the interval of the probe \
             overhead.",
        )
        .detail(),
        Column::new(
            "self_mean_ci95_method",
            Kind::Text,
            "Method of the interval: batch-means; batch-means-correlated where the window was too short for \
             uncorrelated batches (the interval may be too narrow); or independent with few batches.",
        )
        .detail(),
        Column::new(
            "probe_overhead_mean_ns",
            Kind::Real,
            "Mean probe overhead that was subtracted from a span. The sum of self_mean_ns and \
             probe_overhead_mean_ns is the mean before the subtraction.",
        )
        .interval(IntervalColumns::half_width("probe_overhead_mean_ci95_ns"))
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
            "Whether self_mean_ns is below the detection limit, probe_overhead_mean_ci95_ns. self_mean_ns may then \
             be negative; self_mean_ns plus self_mean_ci95_ns is an upper bound.",
        )
        .detail(),
        Column::new(
            "self_cpu_ratio",
            Kind::Real,
            "Share of CPU time: self_total_ns over the length of the window on all CPUs of the row.",
        )
        .title("CPU")
        .priority(85)
        .cpu_share()
        .interval(interval_link("self_cpu_ratio")),
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
        uint("unmatched_entry_count", "Entries without a matching exit; no other column includes them."),
        method_column(),
    ]);
    columns.push(offline_column(measured));
    columns.extend(spread_columns("self_mean_ns"));
    columns.extend(interval_columns("rate_hz"));
    columns.extend(interval_columns("self_cpu_ratio"));
    columns
}

/// The column with the spans that a row may lack. The terminal shows it only if spans are missing.
fn undelivered_column(measured: &[ConditionSamples]) -> Column {
    let column = Column::new(
        "undelivered_max_count",
        Kind::Uint,
        "Upper bound of the spans that the kernel counted, but for which it called no probe. No other column \
         includes them. The kernel counts all IRQ lines together, and both function calls together; each of \
         these rows may lack all missing spans. Absent where the kernel has no counter.",
    )
    .title("undelivered ≤");
    let is_incomplete = measured.iter().any(|condition| condition.timing.undelivered() > 0);
    if is_incomplete { column.priority(72) } else { column.detail() }
}

/// Notes below the table on how its numbers were measured.
fn notes(measured: &[ConditionSamples], has_probes: bool) -> Vec<String> {
    let mut notes = vec![
        "{settings.attachment} probes at entry and exit".to_owned(),
        "CPUs {settings.cpus}".to_owned(),
        "{settings.clock}".to_owned(),
    ];
    let all_groups = measured.iter().flat_map(|condition| groups(&condition.timing));
    let timed_groups = all_groups.filter(|group| {
        group.samples.first().is_some_and(|sample| sample.timing != Timing::CountOnly)
    });
    let methods: BTreeSet<&str> = timed_groups
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
        let warning = "± may be too narrow where self_mean_ci95_method is batch-means-correlated: the window \
             was too short";
        notes.push(warning.to_owned());
    }
    if has_probes {
        let overhead = "the probe overhead inside a span is subtracted: {observer.probe_overhead_in_span_ns} in a \
             warm loop, probe_overhead_mean_ns in situ";
        notes.push(overhead.to_owned());
    }
    notes.push(
        "quantiles within {settings.histogram_error_max_ratio}, max and total exact".to_owned(),
    );
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
    let mut table = Table::new("handlers", doc, columns(measured)).displayed(display);
    for condition in measured {
        let label = condition.condition.label();
        for group in groups(&condition.timing) {
            let timing = group.samples.first().map_or(Timing::CountOnly, |sample| sample.timing);
            if timing != Timing::Packets {
                let undelivered_max = condition.timing.undelivered_max(group.context, group.cpu);
                table.push(row(&label, &group, timing, undelivered_max, overhead));
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
    let sum = |field: fn(&ContextStats) -> u64| -> u64 {
        group.samples.iter().map(|sample| field(sample)).sum()
    };
    let count = sum(|sample| sample.count);
    let has_times = timing != Timing::CountOnly && count > 0;
    let self_times = self_times(group);
    let mut inclusive = Distribution::default();
    group.samples.iter().for_each(|sample| inclusive.merge(&sample.inclusive));
    let mut row = key_values(condition, group);
    let entries = undelivered_max.map(|missing| count.saturating_add(missing));
    let undelivered_and_entries = undelivered_max.zip(entries.filter(|entries| *entries > 0));
    row.extend([
        timing.label().into(),
        count.into(),
        undelivered_max.into(),
        undelivered_and_entries.map(|(missing, entries)| missing as f64 / entries as f64).into(),
        rate_hz(count, group.length_ns).into(),
    ]);
    let has_probes = timing == Timing::Probes;
    let mean_per_span = |total: i64| has_times.then(|| total as f64 / count as f64);
    let self_total = group.samples.iter().map(|sample| sample.self_total_ns()).sum();
    let self_mean = mean_per_span(self_total);
    let overhead_mean = if has_probes {
        mean_per_span(sum(|sample| sample.probe_overhead_total_ns) as i64)
    } else {
        None
    };
    let warm_ns = overhead.in_span_ns as f64;
    let overhead_error = overhead_mean.map(|mean| probe_overhead_error(mean, warm_ns));
    let inflations = QUANTILES.map(|(_, share)| self_times.quantile_inflation(share));
    let self_peak_at_ns = group.peak_at_ns(|sample| sample.own.peak);
    row.extend(time_values(&self_times, self_mean, inflations, self_peak_at_ns, has_times));
    let interval = if has_times { self_times.interval() } else { None };
    let cycles_per_ns = overhead.tsc_hz.map(|hz| hz / 1e9);
    let cpu_ratio = self_times.sum as f64 / group.cpu_time_ns as f64;
    let cycles = |ns: Option<f64>| -> Value {
        let cycles = ns.zip(cycles_per_ns).map(|(ns, cycles_per_ns)| ns * cycles_per_ns);
        if has_times { cycles.into() } else { Value::Absent }
    };
    row.extend([
        interval.map(|interval| interval.half_width.hypot(overhead_error.unwrap_or(0.0))).into(),
        interval.map(|interval| interval.method.label()).into(),
        overhead_mean.into(),
        overhead_error.into(),
        overhead_error.zip(self_mean).map(|(limit, mean)| mean <= limit).into(),
        has_times.then_some(cpu_ratio).into(),
        cycles(self_mean),
        cycles(Some(self_times.sum as f64)),
    ]);
    let has_inclusive = has_times && timing.has_spans();
    row.extend(time_values(
        &inclusive,
        inclusive.mean(),
        // The inflations come from sections of self times. Inclusive times use the largest for all quantiles.
        [largest(&known_inflations(&self_times, inflations)); QUANTILES.len()],
        group.peak_at_ns(|sample| sample.inclusive.peak),
        has_inclusive,
    ));
    let is_irq = group.context.kind == attribution::ContextKind::HardIrq;
    row.extend([
        timing.has_spans().then(|| sum(|sample| sample.nested_count)).into(),
        (is_irq && has_probes).then(|| sum(|sample| sample.special_count)).into(),
        has_probes.then(|| sum(|sample| sample.clamped_count)).into(),
        has_probes.then(|| sum(|sample| sample.abandoned_count)).into(),
        if has_times {
            method_value(&known_inflations(&self_times, inflations))
        } else {
            Value::Absent
        },
        group.offline_after_ns.into(),
    ]);
    row.extend(spread_values(interval));
    row.extend(rate_values(&self_times, group.length_ns, group.cpu_time_ns));
    row.extend(share_values(&self_times, group.length_ns, group.cpu_time_ns));
    row
}

/// The inflations of the quantiles that the distribution has.
fn known_inflations(
    distribution: &Distribution,
    inflations: [Option<Inflation>; QUANTILES.len()],
) -> Vec<Option<Inflation>> {
    let quantiles = QUANTILES.into_iter().zip(inflations);
    let known = quantiles.filter(|((_, share), _)| distribution.quantile(*share).is_some());
    known.map(|(_, inflation)| inflation).collect()
}

/// The largest inflation, with the minimum of the degrees of freedom; `None` if an inflation is unknown.
fn largest(inflations: &[Option<Inflation>]) -> Option<Inflation> {
    inflations.iter().copied().reduce(|larger, next| Some(larger?.or_larger(next?))).flatten()
}

fn self_times(group: &Group<'_>) -> Distribution {
    let mut self_times = Distribution::default();
    group.samples.iter().for_each(|sample| self_times.merge(&sample.own));
    self_times
}

/// The values of [`time_columns`]; all absent without `has_times`.
fn time_values(
    times: &Distribution,
    mean: Option<f64>,
    inflations: [Option<Inflation>; QUANTILES.len()],
    peak_at_ns: Option<u64>,
    has_times: bool,
) -> Vec<Value> {
    let mut values = vec![Value::from(mean)];
    for ((_, share), inflation) in QUANTILES.into_iter().zip(inflations) {
        values.push(times.quantile(share).into());
        values.extend(section_interval_values(times, share, inflation));
    }
    values.extend([times.peak.value.into(), peak_at_ns.into(), times.sum.into()]);
    if has_times { values } else { vec![Value::Absent; values.len()] }
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};

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
