//! Tables `fwq` and `ftq`: what the loops with work in them saw.

use record::{Kind, Table};

use super::super::sample::{NoiseSample, Work};
use super::{column, cpu_column, ratio};

/// One row a CPU and window of fixed work.
pub fn fwq(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Real, Uint};
    let columns = vec![
        cpu_column(),
        column("traced", Bool, "Whether the kernel's side was watched."),
        column("window_ns", Uint, "How long the loop ran."),
        column("repetition_count", Uint, "Quanta of work that were done."),
        column("least_ns", Uint, "The least time of a quantum: nobody interfered. Exact."),
        column("mean_ns", Real, "Mean time of a quantum."),
        column("mean_ci95_ns", Real, "Half width of its 95 % interval, from the sample variance."),
        column("p50_ns", Uint, "Median; within 1/16."),
        column("p99_ns", Uint, "99th percentile; within 1/16."),
        column("max_ns", Uint, "The longest; exact."),
        column("slowdown_ratio", Real, "mean_ns over least_ns, less 1."),
        column("page_fault_count", Uint, "Page faults of the loop that the kernel counted."),
        column("migrated_count", Uint, "Quanta that ended on another CPU."),
        column("lost_record_count", Uint, "Quanta for which there was no room."),
    ];
    let doc = "Fixed work, repeated: what it took (as in the paper's Figures 1 and 2).";
    let mut table = Table::new("fwq", doc, columns);
    for sample in samples {
        for cpu in &sample.cpus {
            let Work::Quanta(fixed) = &cpu.work else { continue };
            let times = &fixed.times;
            let least_ns = fixed.least_ns.iter().min().copied();
            let slowdown = times.mean().zip(least_ns.filter(|least| *least > 0));
            table.push(vec![
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
            ]);
        }
    }
    table
}

/// One row a CPU and window of fixed time.
pub fn ftq(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Real, Uint};
    let columns = vec![
        cpu_column(),
        column("traced", Bool, "Whether the kernel's side was watched."),
        column("slot_ns", Uint, "Length of a slot."),
        column("slot_count", Uint, "Slots that passed."),
        column("work_max", Uint, "The most work done in a slot, in turns of the body."),
        column("work_mean", Real, "The mean."),
        column(
            "missing_ratio",
            Real,
            "1 less work_mean over work_max: the share of work not done.",
        ),
        column("empty_count", Uint, "Slots without any work."),
        column("lost_record_count", Uint, "Slots for which there was no room; counted as empty."),
    ];
    let doc = "Fixed time, repeated: how much work was done in it.";
    let mut table = Table::new("ftq", doc, columns);
    for sample in samples {
        for cpu in &sample.cpus {
            let Work::Slots(slots) = &cpu.work else { continue };
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
