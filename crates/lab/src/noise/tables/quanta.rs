//! Tables `fwq` and `ftq`: quanta of fixed work, and of fixed time.

use record::{Format, Kind, Table};

use super::super::sample::{LoopResult, NoiseSample};
use super::{all_rows, column, cpu_column, ratio};
use crate::quantiles::{p50_p99_interval_columns, p50_p99_interval_values};

/// One row per CPU and window of fixed work.
pub fn fwq(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Real, Uint};
    let us = |name: &str, kind, doc: &str| column(name, kind, doc).format(Format::Microseconds);
    let mut columns = vec![
        cpu_column(),
        column("traced", Bool, "Whether irqlab traced the kernel's events meanwhile.").priority(99),
        column("window_ns", Uint, "How long the loop ran.").format(Format::Seconds),
        column("quantum_count", Uint, "Quanta of work that were done.").title("quanta"),
        us("min_ns", Uint, "Shortest duration of a quantum: nothing interfered. Exact.")
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
        us("p50_ns", Uint, "Median; within 1/16."),
        us("p99_ns", Uint, "99th percentile; within 1/16."),
        us("max_ns", Uint, "The longest; exact.").priority(85),
        column("slowdown_ratio", Real, "mean_ns over min_ns, minus 1.").priority(95),
        column("page_fault_count", Uint, "Page faults of the loop that the kernel counted.")
            .detail(),
        column("migration_count", Uint, "1 where the kernel moved the loop to another CPU, as when its own went offline: the window ended there.").detail(),
        column("lost_record_count", Uint, "Quanta for which there was no room.").detail(),
    ];
    columns.extend(p50_p99_interval_columns(["p50_ns", "p99_ns"]));
    let doc = "Fixed work quanta (FWQ): the duration of the same work, repeated.";
    let mut table = Table::new("fwq", doc, columns).displayed(all_rows());
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Quanta(fixed) = &cpu.result else { continue };
            let times = &fixed.times;
            let least_ns = fixed.least_ns.iter().min().copied();
            let slowdown = times.mean().zip(least_ns.filter(|least| *least > 0));
            let mut row = vec![
                u64::from(cpu.cpu).into(),
                sample.traced.is_some().into(),
                cpu.window_ns.into(),
                times.count.into(),
                least_ns.into(),
                times.mean().into(),
                times.interval().map(|interval| interval.half_width).into(),
                times.quantile(50_000).into(),
                times.quantile(99_000).into(),
                (times.count > 0).then_some(times.peak.value).into(),
                slowdown.map(|(mean, least)| mean / least as f64 - 1.0).into(),
                cpu.page_faults.into(),
                cpu.migrated.into(),
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
        column("traced", Bool, "Whether irqlab traced the kernel's events meanwhile."),
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
        column("lost_record_count", Uint, "Quanta for which there was no room; counted as empty.")
            .detail(),
    ];
    let doc = "Fixed time quanta (FTQ): the work done in the same time, repeated.";
    let mut table = Table::new("ftq", doc, columns).displayed(all_rows());
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Slots(slots) = &cpu.result else { continue };
            let most = slots.work_max.saturating_mul(slots.count);
            table.push(vec![
                u64::from(cpu.cpu).into(),
                sample.traced.is_some().into(),
                slots.slot_ns.into(),
                slots.count.into(),
                slots.work_max.into(),
                (slots.count > 0).then(|| slots.work_sum as f64 / slots.count as f64).into(),
                ratio(most.saturating_sub(slots.work_sum), most),
                slots.empty.into(),
                cpu.lost_records.into(),
            ]);
        }
    }
    table
}
