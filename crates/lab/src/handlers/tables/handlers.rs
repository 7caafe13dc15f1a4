//! Table `handlers`: what each source cost.

use record::{Column, Kind, Table, Value};
use stats::Distribution;

use super::super::bench::BenchFacts;
use super::super::experiment::Measured;
use super::super::sample::{SourceSample, Timing};
use super::{Group, groups, key_columns, key_values, rate_hz};

/// Quantiles of the table: suffix of the column, share of 100,000.
const QUANTILES: [(&str, u32); 4] =
    [("p50", 50_000), ("p90", 90_000), ("p99", 99_000), ("p999", 99_900)];

fn time_columns(prefix: &str, what: &str) -> Vec<Column> {
    let mut columns = vec![Column::new(
        &format!("{prefix}_mean_ns"),
        Kind::Real,
        &format!("Mean {what} of a span; the probes' own cost is subtracted."),
    )];
    for (suffix, share) in QUANTILES {
        let percent = f64::from(share) / 1e3;
        columns.push(Column::new(
            &format!("{prefix}_{suffix}_ns"),
            Kind::Uint,
            &format!("{percent} % of the spans took at most this; within 1/16."),
        ));
    }
    for (suffix, doc) in [
        ("max_ns", "The longest span."),
        ("max_at_ns", "When the longest span ended, since the window opened."),
        ("total_ns", "Sum over the spans; exact but for the clock."),
    ] {
        columns.push(Column::new(&format!("{prefix}_{suffix}"), Kind::Uint, doc));
    }
    columns
}

fn columns() -> Vec<Column> {
    let mut columns = key_columns();
    columns.extend([
        Column::new(
            "timing",
            Kind::Text,
            "Who timed it: probes, kernel, simulator, or none (counted only).",
        ),
        Column::new("count", Kind::Uint, "Spans that ended in the window."),
        Column::new("rate_hz", Kind::Real, "Count per second of the window."),
    ]);
    columns.extend(time_columns("self", "time less that of the spans nested in it,"));
    columns.extend([
        Column::new("self_mean_ci95_ns", Kind::Real, "Half width of the mean's 95 % interval."),
        Column::new("interval_method", Kind::Text, "batch-means, or independent with few batches."),
        Column::new(
            "self_share_ratio",
            Kind::Real,
            "Total self time over the open time of the CPUs.",
        ),
        Column::new(
            "self_mean_cycles",
            Kind::Real,
            "Mean self time in cycles of the time-stamp counter.",
        ),
        Column::new("self_total_cycles", Kind::Real, "Total self time in the same."),
    ]);
    columns.extend(time_columns("incl", "time from entry to exit"));
    columns.extend([
        Column::new("nested_count", Kind::Uint, "Spans that had another span inside."),
        Column::new("not_handled_count", Kind::Uint, "irq only: returned IRQ_NONE (shared line)."),
        Column::new(
            "clamped_count",
            Kind::Uint,
            "Spans shorter than the probes' cost, taken as 0 ns.",
        ),
        Column::new(
            "abandoned_count",
            Kind::Uint,
            "Entries whose exit was not seen; in no other column.",
        ),
    ]);
    columns
}

/// One row a source and CPU, and one a source over all CPUs.
pub fn handlers(measured: &[Measured], facts: &BenchFacts) -> Table {
    let doc =
        "One row for each source of interrupts on each CPU, and one for its sum over the CPUs.";
    let mut table = Table::new("handlers", doc, columns());
    for one in measured {
        let condition = one.condition.label();
        for group in groups(&one.timing) {
            let timing = group.samples.first().map_or(Timing::CountOnly, |sample| sample.timing);
            if timing != Timing::Packets {
                table.push(row(&condition, &group, timing, facts));
            }
        }
    }
    table
}

fn row(condition: &str, group: &Group<'_>, timing: Timing, facts: &BenchFacts) -> Vec<Value> {
    let sum = |field: fn(&SourceSample) -> u64| group.samples.iter().map(|s| field(s)).sum::<u64>();
    let count = sum(|sample| sample.count);
    let timed = timing != Timing::CountOnly && count > 0;
    let (mut own, mut inclusive) = (Distribution::default(), Distribution::default());
    for sample in &group.samples {
        own.merge(&sample.own);
        inclusive.merge(&sample.inclusive);
    }
    let mut row = key_values(condition, group);
    row.extend([timing.label().into(), count.into(), rate_hz(count, group.length_ns).into()]);
    row.extend(times(&own, group.peak_at_ns(|sample| sample.own.peak), timed));
    let interval = if timed { own.interval() } else { None };
    let cycles_per_ns = facts.tsc_hz.map(|hz| hz / 1e9);
    let share = own.sum as f64 / group.cpu_time_ns as f64;
    let cycles = |ns: Option<f64>| -> Value {
        let both = ns.zip(cycles_per_ns).filter(|_| timed);
        both.map(|(ns, cycles)| ns * cycles).into()
    };
    row.extend([
        interval.map(|interval| interval.half_width).into(),
        interval.map(|interval| interval.method.label()).into(),
        timed.then_some(share).into(),
        cycles(own.mean()),
        cycles(Some(own.sum as f64)),
    ]);
    let has_inclusive = timed && timing.has_spans();
    row.extend(times(&inclusive, group.peak_at_ns(|s| s.inclusive.peak), has_inclusive));
    let is_irq = group.context.kind == attribution::ContextKind::HardIrq;
    let probed = timing == Timing::Probes;
    row.extend([
        timing.has_spans().then(|| sum(|sample| sample.nested_count)).into(),
        (is_irq && probed).then(|| sum(|sample| sample.special_count)).into(),
        probed.then(|| sum(|sample| sample.clamped_count)).into(),
        probed.then(|| sum(|sample| sample.abandoned_count)).into(),
    ]);
    row
}

fn times(of: &Distribution, peak_at_ns: Option<u64>, timed: bool) -> Vec<Value> {
    let when = |value: Option<u64>| Value::from(if timed { value } else { None });
    let mut values = vec![Value::from(if timed { of.mean() } else { None })];
    values.extend(QUANTILES.iter().map(|(_, share)| when(of.quantile(*share))));
    values.extend([when(Some(of.peak.value)), when(peak_at_ns), when(Some(of.sum))]);
    values
}
