//! Table `causes`: who took the time.

use record::{Kind, Table};

use super::super::sample::NoiseSample;
use super::{column, cpu_column, ledgers, rate_hz, ratio, words};

/// One row a CPU and part; the dearest first within a CPU.
pub fn causes(samples: &[NoiseSample]) -> Table {
    use Kind::{Real, Text, Uint};
    let columns = vec![
        cpu_column(),
        column("class", Text, "named, path, host, remainder or aftermath: see table noise."),
        column(
            "kind",
            Text,
            "irq, vector, softirq, nmi, exception, task, path, host, remainder, aftermath; on sim syscall \
             and idle, too.",
        ),
        column("name", Text, "The context as the kernel names it, or the task."),
        column("detour_count", Uint, "Detours that have this part."),
        column("rate_hz", Real, "Those per second of the window."),
        column("total_ns", Uint, "Its time: without what is nested in it. Exact."),
        column("cpu_ratio", Real, "total_ns over the window: its share of the CPU."),
        column(
            "lost_ratio",
            Real,
            "total_ns over all time in detours. The rows of a CPU sum to 1.",
        ),
        column("p50_ns", Uint, "Median of its time in a detour; within 1/16."),
        column("p99_ns", Uint, "99th percentile; within 1/16."),
        column("max_ns", Uint, "Its longest time in one detour; exact."),
    ];
    let doc = "Who took the time: the parts of all detours, which add up to lost_ns exactly.";
    let mut table = Table::new("causes", doc, columns);
    for (sample, cpu, ledger) in ledgers(samples) {
        let mut parts: Vec<_> = ledger.parts.iter().collect();
        parts.sort_by_key(|(_, times)| std::cmp::Reverse(times.sum));
        for (part, times) in parts {
            let [kind, name] = words(*part, &sample.names);
            table.push(vec![
                u64::from(cpu.cpu).into(),
                ledger.class_of(*part).label().into(),
                kind,
                name,
                times.count.into(),
                rate_hz(times.count, cpu.window_ns),
                times.sum.into(),
                ratio(times.sum, cpu.window_ns),
                ratio(times.sum, ledger.gaps.sum),
                times.quantile(50_000).into(),
                times.quantile(99_000).into(),
                times.peak.value.into(),
            ]);
        }
    }
    table
}
