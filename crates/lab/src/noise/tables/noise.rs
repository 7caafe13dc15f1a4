//! Table `noise`: the time that each CPU lost. Tables `detour_histogram` and `detour_histogram_by_cause`: the lengths
//! of detours. Also which classes of time a bench knows ([`class_ns`]).

use record::{Columns, Format, Table, TableDisplay, column};
use stats::Distribution;

use super::super::sample::{NoiseSample, PairedWindows};
use super::super::split::{Class, Part};
use super::single::{LARGEST_CAUSE, cause_columns};
use super::{
    DetourLoop, UNTIL_NOTE, USER_MODE_NOTE, all_rows, cpu_column, detour_loops, ended_by,
    ended_by_column, no_rows, rate_hz, ratio,
};
use crate::added_cost::NoteWords;
use crate::quantiles::{interval_link, p50_p99_interval_columns};

impl<'a> DetourLoop<'a> {
    /// The lost time of each class, ns. `None` without tracing.
    fn by_class(&self) -> Option<[u64; Class::ALL.len()]> {
        self.sample.traced.and_then(|_| self.ledger.by_class_ns())
    }

    /// The lost time of a class, ns. `None` if the bench does not know it.
    fn class_ns(&self, class: Class) -> Option<u64> {
        class_ns(class, self.by_class(), self)
    }

    fn explained_ns(&self) -> Option<u64> {
        let sums = self.by_class()?;
        let explained = Class::ALL.into_iter().filter(|class| class.is_explained());
        Some(explained.map(|class| sums[class as usize]).sum())
    }

    /// Gaps without an interruption, on a bench that sees every cycle.
    fn own_gaps(&self) -> Option<&'a Distribution> {
        (self.sees_every_cycle() == Some(true)).then_some(&self.ledger.own_gaps)
    }

    /// Whether the bench saw every cycle. `None` without tracing.
    fn sees_every_cycle(&self) -> Option<bool> {
        self.sample.traced.map(|traced| traced.whole)
    }
}

fn columns<'a>() -> Columns<'a, DetourLoop<'a>> {
    let us_column = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let ms_column = |name: &str, doc: &str| column(name, doc).format(Format::Milliseconds);
    Columns::all([
        cpu_column(100).of(|row: &DetourLoop<'_>| row.cpu.cpu),
        column("traced", "Whether irqlab traced the kernel's events in the window.")
            .priority(99)
            .key()
            .bool(|row: &DetourLoop<'_>| row.sample.traced.is_some()),
        column("window_ns", "How long the loop ran.")
            .format(Format::Seconds)
            .priority(60)
            .uint(|row: &DetourLoop<'_>| row.cpu.window_ns),
        column(
            "window_start_ns",
            "When the loop of this CPU started, from the opening of the window: from the start of \
             the first CPU's loop.",
        )
        .detail()
        .uint(|row: &DetourLoop<'_>| row.since_opening_ns(row.cpu.start_ns)),
        ended_by_column().of(|row: &DetourLoop<'_>| ended_by(row.sample, row.cpu)),
        column(
            "detour_count",
            "Detours: gaps between two readings of the clock that are longer than the threshold.",
        )
        .shown_as("detours", 90)
        .uint(|row: &DetourLoop<'_>| row.ledger.gaps.count),
        column("rate_hz", "Detours per second of the window.")
            .priority(50)
            .real(|row: &DetourLoop<'_>| rate_hz(row.ledger.gaps.count, row.cpu.window_ns)),
        ms_column("lost_ns", "Time in detours; exact.")
            .detail()
            .uint(|row: &DetourLoop<'_>| row.ledger.gaps.sum),
        column("lost_ratio", "Share of the CPU that detours took: lost_ns over window_ns.")
            .shown_as("lost", 98)
            .cost()
            .real(|row: &DetourLoop<'_>| ratio(row.ledger.gaps.sum, row.cpu.window_ns)),
        us_column("detour_p50_ns", "Median length of a detour; exact within 1/16.")
            .interval(interval_link("detour_p50_ns"))
            .shown_as("p50", 70)
            .cost()
            .uint(|row: &DetourLoop<'_>| row.ledger.gaps.quantile(50_000)),
        us_column("detour_p99_ns", "99th percentile of the lengths; exact within 1/16.")
            .interval(interval_link("detour_p99_ns"))
            .shown_as("p99", 75)
            .cost()
            .uint(|row: &DetourLoop<'_>| row.ledger.gaps.quantile(99_000)),
        us_column("detour_max_ns", "Length of the longest detour; exact.")
            .shown_as("max", 85)
            .cost()
            .uint(|row: &DetourLoop<'_>| {
                (row.ledger.gaps.count > 0).then_some(row.ledger.gaps.peak.value)
            }),
        column(
            "over_threshold_count",
            "Detours that reached the shortest time of --on-threshold. Absent without this option.",
        )
        .shown_as("over threshold", 84)
        .uint(|row: &DetourLoop<'_>| row.ledger.over_threshold.count()),
        column("detour_max_at_ns", "Start of the longest detour, from the opening of the window.")
            .detail()
            .uint(|row: &DetourLoop<'_>| {
                (row.ledger.gaps.count > 0)
                    .then(|| row.since_opening_ns(row.ledger.gaps.peak.at))
            }),
        ms_column("attributed_ns", "Lost time that kernel events attribute to contexts and tasks.")
            .shown_as("attributed", 64)
            .uint(|row: &DetourLoop<'_>| row.class_ns(Class::Named)),
        ms_column(
            "entry_exit_ns",
            "Lost time that is attributed to kernel entry and exit, each at most \
             settings.entry_latency_max_ns: in 9 of 10 cases, kernel entry took at most this time, \
             measured on the first CPU.",
        )
        .shown_as("entry/exit", 63)
        .uint(|row: &DetourLoop<'_>| row.class_ns(Class::Path)),
        ms_column(
            "unattributed_ns",
            "Lost time without a kernel event: detours without any event, and the time before the \
             first event in excess of the entry latency. By elimination, the host or the firmware \
             took it. Not explained.",
        )
        .shown_as("unattributed", 62)
        .uint(|row: &DetourLoop<'_>| row.class_ns(Class::Unattributed)),
        ms_column(
            "remainder_ns",
            "Lost time between and after kernel events, when the kernel may have run. Not \
             explained. attributed, entry_exit, unattributed, indirect and remainder add up to \
             lost_ns exactly.",
        )
        .shown_as("remainder", 80)
        .uint(|row: &DetourLoop<'_>| row.class_ns(Class::Remainder)),
        ms_column(
            "indirect_ns",
            "Indirect cost: time of the loop itself within detours in excess of one iteration, \
             because of colder caches. Absent unless the bench sees every cycle.",
        )
        .shown_as("indirect", 79)
        .uint(|row: &DetourLoop<'_>| row.class_ns(Class::Aftermath)),
        column(
            "uninterrupted_gap_count",
            "Gaps without an interruption: the loop itself was slower after a detour. They do not \
             count as detours. Absent unless the bench sees every cycle.",
        )
        .detail()
        .uint(|row: &DetourLoop<'_>| row.own_gaps().map(|gaps| gaps.count)),
        ms_column("uninterrupted_gap_ns", "Time in uninterrupted gaps; exact.")
            .detail()
            .uint(|row: &DetourLoop<'_>| row.own_gaps().map(|gaps| gaps.sum)),
        column("attributed_ratio", "attributed_ns over lost_ns.").detail().real(
            |row: &DetourLoop<'_>| {
                ratio(row.by_class()?[Class::Named as usize], row.ledger.gaps.sum)
            },
        ),
        column(
            "explained_ratio",
            "Share of lost_ns that is explained: attributed to contexts and tasks by kernel \
             events, or within the measured latency of kernel entry and exit (see \
             entry_exit_ns). On a bench that sees every cycle, indirect_ns is explained, too.",
        )
        .shown_as("explained", 95)
        .real(|row: &DetourLoop<'_>| {
            row.explained_ns().and_then(|ns| ratio(ns, row.ledger.gaps.sum))
        }),
        ms_column(
            "steal_ns",
            "Time that the host reports as stolen (/proc/stat) within external_ns, in steps of 10 ms.",
        )
        .shown_as("steal", 30)
        .uint(|row: &DetourLoop<'_>| row.cpu.steal_ns),
        column(
            "smi_count",
            "System management interrupts that the processor counted (Intel: MSR 34H) within \
             external_ns. They run firmware, without kernel events.",
        )
        .shown_as("SMIs", 31)
        .uint(|row: &DetourLoop<'_>| row.cpu.smi_count),
        column(
            "external_ns",
            "How long the time lasted that steal_ns and smi_count cover: the window, its warm-up, \
             and the start and the end of the loops.",
        )
        .detail()
        .uint(|row: &DetourLoop<'_>| row.cpu.external_ns),
        column(
            "context_switch_count",
            "Context switches away from the loop that the kernel counted.",
        )
        .shown_as("switches", 40)
        .uint(|row: &DetourLoop<'_>| row.cpu.switches),
        column("page_fault_count", "Page faults of the loop that the kernel counted.")
            .shown_as("faults", 20)
            .uint(|row: &DetourLoop<'_>| row.cpu.page_faults),
        column(
            "migration_count",
            "1 if the kernel moved the loop to another CPU, for example because the loop's CPU \
             went offline. The window ended then.",
        )
        .detail()
        .uint(|row: &DetourLoop<'_>| u64::from(row.cpu.left)),
        column(
            "lost_record_count",
            "Detours that were dropped because the buffer was full; no other column counts them.",
        )
        .detail()
        .uint(|row: &DetourLoop<'_>| row.cpu.lost_records),
        column("unmatched_exit_count", "Exits of contexts whose entry was not in the same detour.")
            .detail()
            .uint(|row: &DetourLoop<'_>| row.sample.traced.map(|_| row.ledger.faults.unmatched)),
        column(
            "unmatched_entry_count",
            "Entries of contexts and tasks whose exit the kernel did not report.",
        )
        .detail()
        .uint(|row: &DetourLoop<'_>| row.sample.traced.map(|_| row.ledger.faults.cut)),
        p50_p99_interval_columns(["detour_p50_ns", "detour_p99_ns"])
            .of_ref(|row: &DetourLoop<'_>| &row.ledger.gaps),
    ])
}

/// Notes below the table on the method of the measurement. The report replaces names in braces by settings and figures.
fn notes(samples: &[NoiseSample]) -> Vec<String> {
    let method = [
        "clock resolution {settings.clock_step_ns}",
        "one reading every {settings.iteration_ns}",
        "detours are gaps above {settings.threshold_ns}",
        "kernel entry latency in 9 of 10 cases at most {settings.entry_latency_max_ns} (measured on the \
         first CPU)",
        "{settings.scheduler}",
        USER_MODE_NOTE,
        UNTIL_NOTE,
        "irqlab's own thread on CPUs {settings.observer_cpus}",
    ];
    let probes = "the probes";
    let lost = NoteWords { probes, whole: " of the CPU", figure: "the lost time" };
    let length = NoteWords { probes, whole: "", figure: "the median detour" };
    let costs = samples.iter().flat_map(|sample| {
        [
            PairedWindows::added_lost(&sample.pairs).map(|added| added.note(&lost)),
            PairedWindows::added_length(&sample.pairs).map(|added| added.note(&length)),
        ]
    });
    method.map(str::to_owned).into_iter().chain(costs.flatten()).collect()
}

/// Table `noise`: one row per CPU and window of the detour loop.
pub fn noise(samples: &[NoiseSample]) -> Table {
    let doc = "Time that each CPU lost to interrupts, tasks and the host, seen by a loop that \
               reads the clock, and the explained share of it.";
    let display = TableDisplay { notes: notes(samples), ..all_rows() };
    columns().table("noise", doc, DetourLoop::all(samples)).displayed(display)
}

/// Time of a class, ns, from `sums` by class. `None` if the bench does not know it.
///
/// On a bench that sees every cycle, kernel entry belongs to the context that follows, and there is no host. Other
/// benches do not know the loop's own time in a detour. Without a measured entry latency, kernel entry and exit are not
/// distinguishable from the time around them.
pub(super) fn class_ns(
    class: Class,
    sums: Option<[u64; Class::ALL.len()]>,
    detour_loop: &DetourLoop<'_>,
) -> Option<u64> {
    let sees_every_cycle = detour_loop.sees_every_cycle();
    let is_known = match class {
        Class::Named | Class::Remainder => true,
        Class::Path => sees_every_cycle == Some(false) && detour_loop.ledger.knows_entry_latency(),
        Class::Unattributed => sees_every_cycle == Some(false),
        Class::Aftermath => sees_every_cycle == Some(true),
    };
    if is_known { sums.map(|sums| sums[class as usize]) } else { None }
}

/// Table `detour_histogram`: the histogram of the lengths of all detours.
pub fn sizes(samples: &[NoiseSample]) -> Table {
    struct Bucket {
        cpu: u32,
        min_ns: u64,
        max_ns: u64,
        count: u64,
    }
    let columns = Columns::all([
        cpu_column(100).of(|bucket: &Bucket| bucket.cpu),
        column("bucket_min_ns", "Smallest length in the bucket.")
            .uint(|bucket: &Bucket| bucket.min_ns),
        column("bucket_max_ns", "Largest length in the bucket.")
            .uint(|bucket: &Bucket| bucket.max_ns),
        column("detour_count", "Detours in the bucket.").uint(|bucket: &Bucket| bucket.count),
    ]);
    let doc =
        "Histogram of the lengths of all detours: filled buckets, each within 1/16 of its value.";
    let buckets =
        detour_loops(samples).into_iter().flat_map(|DetourLoop { cpu, ledger, .. }| {
            ledger.gaps.buckets().map(|(min_ns, max_ns, count)| Bucket {
                cpu: cpu.cpu,
                min_ns,
                max_ns,
                count,
            })
        });
    columns.table("detour_histogram", doc, buckets).displayed(no_rows())
}

/// Table `detour_histogram_by_cause`: the histogram of the lengths of detours for each largest cause. No rows without
/// tracing.
pub fn sizes_by_cause(samples: &[NoiseSample]) -> Table {
    struct Bucket<'a> {
        detour_loop: DetourLoop<'a>,
        /// The largest cause of the detours in the bucket.
        main: Option<Part>,
        min_ns: u64,
        max_ns: u64,
        count: u64,
    }
    let columns = Columns::all([
        cpu_column(100).of(|bucket: &Bucket<'_>| bucket.detour_loop.cpu.cpu),
        cause_columns("largest", LARGEST_CAUSE)
            .of(|bucket: &Bucket<'_>| (bucket.main, bucket.detour_loop.sample.names.as_slice())),
        column("bucket_min_ns", "Smallest length in the bucket.")
            .uint(|bucket: &Bucket<'_>| bucket.min_ns),
        column("bucket_max_ns", "Largest length in the bucket.")
            .uint(|bucket: &Bucket<'_>| bucket.max_ns),
        column("detour_count", "Detours in the bucket.").uint(|bucket: &Bucket<'_>| bucket.count),
    ]);
    let doc = "Table detour_histogram divided by the largest cause of each detour. Exact counts.";
    let is_traced = |detour_loop: &DetourLoop<'_>| detour_loop.sample.traced.is_some();
    let traced_loops = detour_loops(samples).into_iter().filter(is_traced);
    let buckets = traced_loops.flat_map(|detour_loop| {
        let ledger = detour_loop.ledger;
        // The longest detour of a cause is not known: the longest of all is a bound for it.
        let max_ns = ledger.gaps.peak.value;
        ledger.lengths_by_main.iter().flat_map(move |(&main, lengths)| {
            let bucket =
                move |(min_ns, max_ns, count)| Bucket { detour_loop, main, min_ns, max_ns, count };
            lengths.filled_up_to(max_ns).map(bucket)
        })
    });
    columns.table("detour_histogram_by_cause", doc, buckets).displayed(no_rows())
}
