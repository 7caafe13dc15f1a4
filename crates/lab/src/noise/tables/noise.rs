//! Table `noise`: how much of each CPU was taken; table `sizes`: in gaps of what length.

use record::{Column, Kind, Table, Value};

use super::super::sample::{CpuNoise, NoiseSample, Work};
use super::super::split::Class;
use super::{column, cpu_column, rate_hz, ratio};

fn columns() -> Vec<Column> {
    use Kind::{Bool, Real, Uint};
    vec![
        cpu_column(),
        column(
            "traced",
            Bool,
            "Whether the kernel's side was watched; without, the loop ran bare.",
        ),
        column("window_ns", Uint, "How long the loop ran."),
        column("detour_count", Uint, "Gaps longer than the threshold."),
        column("rate_hz", Real, "Detours per second of the window."),
        column("lost_ns", Uint, "Time in detours; exact."),
        column("lost_ratio", Real, "lost_ns over window_ns."),
        column("p50_ns", Uint, "Median length of a detour; within 1/16."),
        column("p99_ns", Uint, "99th percentile; within 1/16."),
        column("max_ns", Uint, "The longest detour; exact."),
        column("max_at_ns", Uint, "When the longest one began, since the window opened."),
        column("named_ns", Uint, "Time that the kernel's events name: contexts and tasks."),
        column(
            "path_ns",
            Uint,
            "The way into the kernel and back, each as far as settings.way_ns bounds it.",
        ),
        column(
            "host_ns",
            Uint,
            "Detours without any kernel event and, in a virtual machine, the time before the first \
             event beyond the way in: the host's or the firmware's, by elimination.",
        ),
        column("remainder_ns", Uint, "What is left; all of these add up to lost_ns exactly."),
        column(
            "aftermath_ns",
            Uint,
            "The loop's own time in detours beyond a turn of it: colder caches. Absent where not every \
             cycle is seen.",
        ),
        column(
            "own_gap_count",
            Uint,
            "Gaps in which nobody came: the loop itself went slower, behind a detour. No detours, and in \
             no other column. Absent where not every cycle is seen.",
        ),
        column("own_gap_ns", Uint, "Their time; exact."),
        column("named_ratio", Real, "named_ns over lost_ns."),
        column("explained_ratio", Real, "All but the remainder over lost_ns."),
        column("steal_ns", Uint, "What the host says it took (/proc/stat), in its steps of 10 ms."),
        column(
            "smi_count",
            Uint,
            "System management interrupts that the processor counted (Intel: MSR 34H): firmware, which no \
             kernel sees.",
        ),
        column("switch_count", Uint, "Switches away from the loop that the kernel counted."),
        column("page_fault_count", Uint, "Page faults of the loop that the kernel counted."),
        column("migrated_count", Uint, "Detours that ended on another CPU."),
        column(
            "lost_record_count",
            Uint,
            "Detours for which there was no room; in no other column.",
        ),
        column("unmatched_count", Uint, "Ends of contexts whose begin was not in the same detour."),
        column("cut_count", Uint, "Contexts and tasks whose end the kernel did not report."),
    ]
}

/// One row a CPU and window of the detour loop.
pub fn noise(samples: &[NoiseSample]) -> Table {
    let mut table = Table::new(
        "noise",
        "How much of each CPU was taken from the loop that reads the clock, and how much of that is \
         explained.",
        columns(),
    );
    for sample in samples {
        for cpu in &sample.cpus {
            if let Some(row) = row(sample, cpu) {
                table.push(row);
            }
        }
    }
    table
}

fn row(sample: &NoiseSample, cpu: &CpuNoise) -> Option<Vec<Value>> {
    let Work::Gaps(ledger) = &cpu.work else { return None };
    let gaps = &ledger.gaps;
    let by_class = sample.traced.and_then(|_| ledger.by_class_ns());
    let whole = sample.traced.map(|traced| traced.whole);
    let class = |class: Class| class_ns(class, by_class, whole);
    let explained = by_class.map(|sums| gaps.sum - sums[Class::Remainder as usize]);
    let share = |part: Option<u64>| part.map_or(Value::Absent, |part| ratio(part, gaps.sum));
    let own_gaps = whole.filter(|whole| *whole).map(|_| &ledger.own_gaps);
    let some = gaps.count > 0;
    let seen = |count: u64| -> Value { sample.traced.map(|_| count).into() };
    Some(vec![
        u64::from(cpu.cpu).into(),
        sample.traced.is_some().into(),
        cpu.window_ns.into(),
        gaps.count.into(),
        rate_hz(gaps.count, cpu.window_ns),
        gaps.sum.into(),
        ratio(gaps.sum, cpu.window_ns),
        gaps.quantile(50_000).into(),
        gaps.quantile(99_000).into(),
        some.then_some(gaps.peak.value).into(),
        some.then(|| gaps.peak.at.saturating_sub(cpu.start_ns)).into(),
        class(Class::Named),
        class(Class::Path),
        class(Class::Host),
        class(Class::Remainder),
        class(Class::Aftermath),
        own_gaps.map(|gaps| gaps.count).into(),
        own_gaps.map(|gaps| gaps.sum).into(),
        share(by_class.map(|sums| sums[Class::Named as usize])),
        share(explained),
        cpu.steal_ns.into(),
        cpu.smi_count.into(),
        cpu.switches.into(),
        cpu.page_faults.into(),
        cpu.migrated.into(),
        cpu.lost_records.into(),
        seen(ledger.faults.unmatched),
        seen(ledger.faults.cut),
    ])
}

/// Time of a class. Where every cycle is seen there is no way into the kernel that is not part of what
/// it leads to, and no host; elsewhere the loop's own time in a gap is not known.
pub(super) fn class_ns(
    class: Class,
    sums: Option<[u64; Class::ALL.len()]>,
    whole: Option<bool>,
) -> Value {
    let is_known = match class {
        Class::Named | Class::Remainder => true,
        Class::Path | Class::Host => whole == Some(false),
        Class::Aftermath => whole == Some(true),
    };
    sums.filter(|_| is_known).map(|sums| sums[class as usize]).into()
}

/// The histogram of the lengths of all detours.
pub fn sizes(samples: &[NoiseSample]) -> Table {
    let columns = vec![
        cpu_column(),
        column("from_ns", Kind::Uint, "Least length in this bucket."),
        column("to_ns", Kind::Uint, "Greatest length in it."),
        column("detour_count", Kind::Uint, "Detours in it."),
    ];
    let mut table = Table::new("sizes", "How many detours were how long.", columns);
    for (_, cpu, ledger) in super::ledgers(samples) {
        for (from_ns, to_ns, count) in ledger.gaps.histogram.filled() {
            let cpu = u64::from(cpu.cpu);
            table.push(vec![cpu.into(), from_ns.into(), to_ns.into(), count.into()]);
        }
    }
    table
}
