//! Tables `fwq` and `ftq`: quanta of fixed work, and of fixed time.

use record::{Format, Kind, Table};

use super::super::sample::{LoopResult, NoiseSample};
use super::{all_rows, column, cpu_column, ratio};
use crate::quantiles::{interval_link, p50_p99_interval_columns, p50_p99_interval_values};

/// One row per CPU and window of fixed work.
pub fn fwq(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Real, Uint};
    let us = |name: &str, kind, doc: &str| column(name, kind, doc).format(Format::Microseconds);
    let mut columns = vec![
        cpu_column(),
        column("traced", Bool, "Whether irqlab traced the kernel's events in the window.")
            .priority(99),
        column("window_ns", Uint, "How long the loop ran.").format(Format::Seconds),
        column("quantum_count", Uint, "Completed quanta of work.").title("quanta"),
        us("min_ns", Uint, "Shortest duration of a quantum, without interference; exact.")
            .priority(80),
        us("mean_ns", Real, "Mean duration of a quantum.")
            .title("mean ± ci95")
            .plus_minus("mean_ci95_ns")
            .priority(90),
        us(
            "mean_ci95_ns",
            Real,
            "Half width of the mean's 95 % confidence interval, from the sample variance.",
        )
        .detail(),
        us("p50_ns", Uint, "Median duration; exact within 1/16.").interval(interval_link("p50_ns")),
        us("p99_ns", Uint, "99th percentile of the durations; exact within 1/16.")
            .interval(interval_link("p99_ns")),
        us("max_ns", Uint, "Longest duration; exact.").priority(85),
        column("slowdown_ratio", Real, "mean_ns over min_ns, minus 1.").priority(95),
        column("page_fault_count", Uint, "Page faults of the loop that the kernel counted.")
            .detail(),
        column(
            "migration_count",
            Uint,
            "1 if the kernel moved the loop to another CPU, for example because the loop's CPU \
             went offline. The window ended then.",
        )
        .detail(),
        column("lost_record_count", Uint, "Quanta that were dropped because the buffer was full.")
            .detail(),
    ];
    columns.extend(p50_p99_interval_columns(["p50_ns", "p99_ns"]));
    let doc = "Fixed work quanta (FWQ): the duration of the same work, repeated.";
    let mut table = Table::new("fwq", doc, columns).displayed(all_rows());
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Quanta(fixed) = &cpu.result else { continue };
            let times = &fixed.times;
            let min_ns = fixed.least_ns.iter().min().copied();
            let slowdown = times.mean().zip(min_ns.filter(|min_ns| *min_ns > 0));
            let mut row = vec![
                u64::from(cpu.cpu).into(),
                sample.traced.is_some().into(),
                cpu.window_ns.into(),
                times.count.into(),
                min_ns.into(),
                times.mean().into(),
                times.interval().map(|interval| interval.half_width).into(),
                times.quantile(50_000).into(),
                times.quantile(99_000).into(),
                (times.count > 0).then_some(times.peak.value).into(),
                slowdown.map(|(mean_ns, min_ns)| mean_ns / min_ns as f64 - 1.0).into(),
                cpu.page_faults.into(),
                u64::from(cpu.left).into(),
                cpu.lost_records.into(),
            ];
            row.extend(p50_p99_interval_values(times));
            table.push(row);
        }
    }
    table
}

/// One row per CPU and window of fixed time.
pub fn ftq(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Real, Uint};
    let columns = vec![
        cpu_column(),
        column("traced", Bool, "Whether irqlab traced the kernel's events in the window."),
        column("quantum_ns", Uint, "Length of a quantum.").format(Format::Microseconds),
        column("quantum_count", Uint, "Quanta that passed.").title("quanta"),
        column(
            "work_max_iterations",
            Uint,
            "Maximum work done in a quantum, in iterations of the loop body.",
        ),
        column("work_mean_iterations", Real, "Mean work done in a quantum."),
        column(
            "lost_work_ratio",
            Real,
            "Share of the work that was not done: 1 minus work_mean_iterations over \
             work_max_iterations.",
        ),
        column("empty_quantum_count", Uint, "Quanta without any work.").title("empty quanta"),
        column(
            "lost_record_count",
            Uint,
            "Quanta that were dropped because the buffer was full; they count as empty.",
        )
        .detail(),
    ];
    let doc = "Fixed time quanta (FTQ): the work done in the same time, repeated.";
    let mut table = Table::new("ftq", doc, columns).displayed(all_rows());
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Slots(slots) = &cpu.result else { continue };
            let possible_work = slots.work_max.saturating_mul(slots.count);
            table.push(vec![
                u64::from(cpu.cpu).into(),
                sample.traced.is_some().into(),
                slots.slot_ns.into(),
                slots.count.into(),
                slots.work_max.into(),
                (slots.count > 0).then(|| slots.work_sum as f64 / slots.count as f64).into(),
                ratio(possible_work.saturating_sub(slots.work_sum), possible_work),
                slots.empty.into(),
                cpu.lost_records.into(),
            ]);
        }
    }
    table
}
