//! Table `noise`: the time that each CPU lost. Table `detour_histogram`: the lengths of detours.

use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::ledger::GapLedger;
use super::super::sample::{CpuNoise, LoopResult, NoiseSample};
use super::super::split::Class;
use super::{all_rows, column, cpu_column, no_rows, rate_hz, ratio};
use crate::quantiles::{interval_link, p50_p99_interval_columns, p50_p99_interval_values};

fn columns() -> Vec<Column> {
    use Kind::{Bool, Real, Uint};
    let us = |name: &str, doc: &str| column(name, Uint, doc).format(Format::Microseconds);
    let ms = |name: &str, doc: &str| column(name, Uint, doc).format(Format::Milliseconds);
    let mut columns = vec![
        cpu_column(),
        column("traced", Bool, "Whether irqlab traced the kernel's events in the window.")
            .priority(99)
            .key(),
        column("window_ns", Uint, "How long the loop ran.").format(Format::Seconds).priority(60),
        column(
            "detour_count",
            Uint,
            "Detours: gaps between two readings of the clock that are longer than the threshold.",
        )
        .title("detours")
        .priority(90),
        column("rate_hz", Real, "Detours per second of the window.").priority(50),
        ms("lost_ns", "Time in detours; exact.").detail(),
        column("lost_ratio", Real, "Share of the CPU that detours took: lost_ns over window_ns.")
            .title("lost")
            .priority(98)
            .cost(),
        us("detour_p50_ns", "Median length of a detour; exact within 1/16.")
            .interval(interval_link("detour_p50_ns"))
            .title("p50")
            .priority(70)
            .cost(),
        us("detour_p99_ns", "99th percentile of the lengths; exact within 1/16.")
            .interval(interval_link("detour_p99_ns"))
            .title("p99")
            .priority(75)
            .cost(),
        us("detour_max_ns", "Length of the longest detour; exact.")
            .title("max")
            .priority(85)
            .cost(),
        column(
            "detour_max_at_ns",
            Uint,
            "Start of the longest detour, from the opening of the window.",
        )
        .detail(),
        ms("attributed_ns", "Lost time that kernel events attribute to contexts and tasks.")
            .title("attributed")
            .priority(64),
        ms(
            "entry_exit_ns",
            "Lost time that is attributed to kernel entry and exit, each at most \
                         settings.entry_latency_max_ns.",
        )
        .title("entry/exit")
        .priority(63),
        ms(
            "unattributed_ns",
            "Lost time without a kernel event: detours without any event, and the time before the \
             first event in excess of the entry latency. By elimination, the host or the firmware \
             took it. Not explained.",
        )
        .title("unattributed")
        .priority(62),
        ms(
            "remainder_ns",
            "Lost time between and after kernel events, when the kernel may have run. Not \
             explained. attributed, entry_exit, unattributed, indirect and remainder add up to \
             lost_ns exactly.",
        )
        .title("remainder")
        .priority(80),
        ms(
            "indirect_ns",
            "Indirect cost: time of the loop itself within detours in excess of one iteration, \
             because of colder caches. Absent unless the bench sees every cycle.",
        )
        .title("indirect")
        .priority(79),
        column(
            "uninterrupted_gap_count",
            Uint,
            "Gaps without an interruption: the loop itself was slower after a detour. They do not \
             count as detours. Absent unless the bench sees every cycle.",
        )
        .detail(),
        ms("uninterrupted_gap_ns", "Time in uninterrupted gaps; exact.").detail(),
        column("attributed_ratio", Real, "attributed_ns over lost_ns.").detail(),
        column(
            "explained_ratio",
            Real,
            "Share of lost_ns that is explained: attributed to contexts and tasks by kernel \
             events, or within the measured latency of kernel entry and exit. On a bench that \
             sees every cycle, indirect_ns is explained, too.",
        )
        .title("explained")
        .priority(95),
        ms("steal_ns", "Time that the host reports as stolen (/proc/stat), in steps of 10 ms.")
            .title("steal")
            .priority(30),
        column(
            "smi_count",
            Uint,
            "System management interrupts that the processor counted (Intel: MSR 34H). They run \
             firmware, without kernel events.",
        )
        .title("SMIs")
        .priority(31),
        column(
            "context_switch_count",
            Uint,
            "Context switches away from the loop that the kernel counted.",
        )
        .title("switches")
        .priority(40),
        column("page_fault_count", Uint, "Page faults of the loop that the kernel counted.")
            .title("faults")
            .priority(20),
        column(
            "migration_count",
            Uint,
            "1 if the kernel moved the loop to another CPU, for example because the loop's CPU \
             went offline. The window ended then.",
        )
        .detail(),
        column(
            "lost_record_count",
            Uint,
            "Detours that were dropped because the buffer was full; no other column counts them.",
        )
        .detail(),
        column(
            "unmatched_exit_count",
            Uint,
            "Exits of contexts whose entry was not in the same detour.",
        )
        .detail(),
        column(
            "unmatched_entry_count",
            Uint,
            "Entries of contexts and tasks whose exit the kernel did not report.",
        )
        .detail(),
    ];
    columns.extend(p50_p99_interval_columns(["detour_p50_ns", "detour_p99_ns"]));
    columns
}

/// Notes on the method of the measurement.
fn notes() -> Vec<String> {
    [
        "clock resolution {settings.clock_step_ns}",
        "one reading every {settings.iteration_ns}",
        "detours are gaps above {settings.threshold_ns}",
        "kernel entry latency at most {settings.entry_latency_max_ns}",
        "{settings.scheduler}",
        "irqlab's own thread on CPUs {settings.observer_cpus}",
        "in {observer.compared_pairs} pairs of windows, lost {observer.bare_lost_ratio} untraced, \
         {observer.traced_lost_ratio} traced",
        "median detour {observer.bare_detour_p50_ns} untraced, {observer.traced_detour_p50_ns} \
         traced",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// One row per CPU and window of the detour loop.
pub fn noise(samples: &[NoiseSample]) -> Table {
    let doc = "Time that each CPU lost to interrupts, tasks and the host, seen by a loop that \
               reads the clock, and the explained share of it.";
    let display = TableDisplay { notes: notes(), ..all_rows() };
    let mut table = Table::new("noise", doc, columns()).displayed(display);
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
    let LoopResult::Gaps(ledger) = &cpu.result else { return None };
    let gaps = &ledger.gaps;
    let by_class = sample.traced.and_then(|_| ledger.by_class_ns());
    let sees_every_cycle = sample.traced.map(|traced| traced.whole);
    let class = |class: Class| class_ns(class, by_class, sees_every_cycle, ledger);
    let explained = by_class.map(|sums| {
        let explained = Class::ALL.into_iter().filter(|class| class.is_explained());
        explained.map(|class| sums[class as usize]).sum::<u64>()
    });
    let share = |part: Option<u64>| part.map_or(Value::Absent, |part| ratio(part, gaps.sum));
    let own_gaps = (sees_every_cycle == Some(true)).then_some(&ledger.own_gaps);
    let has_gaps = gaps.count > 0;
    let if_traced = |count: u64| -> Value { sample.traced.map(|_| count).into() };
    let mut row = vec![
        u64::from(cpu.cpu).into(),
        sample.traced.is_some().into(),
        cpu.window_ns.into(),
        gaps.count.into(),
        rate_hz(gaps.count, cpu.window_ns),
        gaps.sum.into(),
        ratio(gaps.sum, cpu.window_ns),
        gaps.quantile(50_000).into(),
        gaps.quantile(99_000).into(),
        has_gaps.then_some(gaps.peak.value).into(),
        has_gaps.then(|| gaps.peak.at.saturating_sub(cpu.start_ns)).into(),
        class(Class::Named),
        class(Class::Path),
        class(Class::Unattributed),
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
        u64::from(cpu.left).into(),
        cpu.lost_records.into(),
        if_traced(ledger.faults.unmatched),
        if_traced(ledger.faults.cut),
    ];
    row.extend(p50_p99_interval_values(gaps));
    Some(row)
}

/// Time of a class, or absent if it is unknown.
///
/// On a bench that sees every cycle, kernel entry belongs to the context that it leads to, and there is no host. Other
/// benches do not know the loop's own time in a detour. Without a measured entry latency, kernel entry and exit cannot be
/// told from the time around them.
pub(super) fn class_ns(
    class: Class,
    sums: Option<[u64; Class::ALL.len()]>,
    sees_every_cycle: Option<bool>,
    ledger: &GapLedger,
) -> Value {
    let is_known = match class {
        Class::Named | Class::Remainder => true,
        Class::Path => sees_every_cycle == Some(false) && ledger.knows_entry_latency(),
        Class::Unattributed => sees_every_cycle == Some(false),
        Class::Aftermath => sees_every_cycle == Some(true),
    };
    if !is_known {
        return Value::Absent;
    }
    sums.map(|sums| sums[class as usize]).into()
}

/// The histogram of the lengths of all detours.
pub fn sizes(samples: &[NoiseSample]) -> Table {
    let columns = vec![
        cpu_column(),
        column("bucket_min_ns", Kind::Uint, "Smallest length in the bucket."),
        column("bucket_max_ns", Kind::Uint, "Largest length in the bucket."),
        column("detour_count", Kind::Uint, "Detours in the bucket."),
    ];
    let doc =
        "Histogram of the lengths of all detours: filled buckets, each within 1/16 of its value.";
    let mut table = Table::new("detour_histogram", doc, columns).displayed(no_rows());
    for (_, cpu, ledger) in super::ledgers(samples) {
        for (from_ns, to_ns, count) in ledger.gaps.histogram.filled() {
            let cpu = u64::from(cpu.cpu);
            table.push(vec![cpu.into(), from_ns.into(), to_ns.into(), count.into()]);
        }
    }
    table
}
