//! Tables `wakeup` and `late_histogram`: how late the threads ran.

use record::{Columns, Table, TableDisplay, column};

use super::{Class, Thread, all_rows, cpu_column, no_rows, us_column};
use crate::added_cost::{AddedCost, NoteWords};
use crate::quantiles::{interval_columns, interval_link};
use crate::wakeup::sample::{CpuWakeups, WakeupSample};

/// The quantiles of lateness: name of the column, its header, and share of 100,000.
const QUANTILES: [(&str, &str, u32); 4] = [
    ("late_p50_ns", "p50", 50_000),
    ("late_p99_ns", "p99", 99_000),
    ("late_p999_ns", "p99.9", 99_900),
    ("late_p9999_ns", "p99.99", 99_990),
];

/// The cell of the column `ended_by`.
fn ended_by(sample: &WakeupSample, cpu: &CpuWakeups) -> &'static str {
    if cpu.left {
        "migration"
    } else if sample.interrupted {
        "stop"
    } else if sample.ended_by_threshold {
        "threshold"
    } else if sample.ended_by_command {
        "command"
    } else {
        "length"
    }
}

/// Table `wakeup`: one row per CPU.
///
/// `added`: what the marks add to the median lateness, if it was measured.
pub(in crate::wakeup) fn wakeup(sample: &WakeupSample, added: Option<&AddedCost>) -> Table {
    let quantiles = QUANTILES.map(|(name, header, share)| {
        let doc = format!(
            "Lateness that {} % of the wake-ups do not exceed; exact within 1/16. Absent with too few wake-ups.",
            f64::from(share) / 1_000.0
        );
        us_column(name, &doc)
            .interval(interval_link(name))
            .shown_as(header, 90)
            .cost()
            .uint(move |row: &Thread<'_>| row.lateness().quantile(share))
    });
    let shares = Class::ALL.map(|class| {
        let (name, doc) = match class {
            Class::LateTimer => (
                "late_timer_ratio",
                "Share of the lateness before the timer's interrupt and outside of other contexts: the host, \
                 disabled interrupts, an idle state, or the firmware. No kernel event tells these apart. Absent if \
                 another thread or a disk wakes this one (--wake-by).",
            ),
            Class::Waking => (
                "waking_ratio",
                "Share of the lateness outside of interrupts, from the waker's reading of the clock, on its CPU, or from the \
                 disk's interrupt on, until the kernel wakes the thread. Absent with --wake-by timer.",
            ),
            Class::Interrupts => (
                "interrupts_ratio",
                "Share of the lateness in interrupts and softirqs, the timer's own among them.",
            ),
            Class::Tasks => (
                "tasks_ratio",
                "Share of the lateness in which another task ran although the thread had been woken.",
            ),
            Class::Switch => (
                "switch_ratio",
                "Share of the lateness in the idle task after the thread had been woken: the way out of it, and the \
                 scheduler.",
            ),
            Class::Return => (
                "return_ratio",
                "Share of the lateness from the switch to the thread until it read the clock.",
            ),
            Class::Other => (
                "other_ratio",
                "Share of the lateness in which the thread had not gone to sleep yet, or of which no kernel event \
                 shows what ran. All shares add up to 1.",
            ),
        };
        column(name, doc).shown_as(class.label(), 60).real(move |row: &Thread<'_>| row.class_ratio(class))
    });
    let intervals = QUANTILES.map(|(name, _, share)| {
        interval_columns(name).of(move |row: &Thread<'_>| row.lateness().quantile_interval(share))
    });
    let columns = Columns::all([
        cpu_column().of(|row: &Thread<'_>| row.cpu.cpu),
        column("wakeup_count", "Wake-ups of the thread in the window.")
            .shown_as("wake-ups", 95)
            .uint(|row: &Thread<'_>| row.lateness().count),
        column(
            "missed_count",
            "Periods that were over before the thread ran again, or with a waker: wake-ups sent before the thread had run \
             after an earlier one. With --wake-by disk, the time of the read counts, too. No other column counts them: a thread that is late by several periods has one wake-up.",
        )
        .shown_as("missed", 85)
        .uint(|row: &Thread<'_>| row.cpu.missed),
        column(
            "waker_missed_count",
            "Periods in which the waker sent no wake-up, because it was late itself. Absent without a waker.",
        )
        .shown_as("waker missed", 84)
        .uint(|row: &Thread<'_>| row.cpu.waker.map(|waker| waker.missed)),
        column(
            "not_asleep_count",
            "Wake-ups that the waker sent before the thread slept, or reads that were over before: the thread went on \
             without sleeping. No other column counts them. Absent with --wake-by timer.",
        )
        .shown_as("not asleep", 83)
        .uint(|row: &Thread<'_>| row.cpu.not_asleep()),
        column(
            "no_interrupt_count",
            "Reads without a kernel event of the disk's interrupt, or of the wake-up after it. They have no lateness, and no \
             other column counts them. Absent without --wake-by disk.",
        )
        .shown_as("no interrupt", 82)
        .uint(|row: &Thread<'_>| row.reads().map(|reads| reads.no_interrupt)),
        us_column("late_mean_ns", "Mean lateness.")
            .shown_as("mean", 50)
            .real(|row: &Thread<'_>| row.lateness().mean()),
    ])
    .and(quantiles)
    .and([us_column("late_max_ns", "Lateness of the worst wake-up; exact.")
        .shown_as("max", 98)
        .cost()
        .uint(|row: &Thread<'_>| (row.lateness().count > 0).then_some(row.lateness().peak.value))])
    .and(shares)
    .and([
        column(
            "over_threshold_count",
            "Wake-ups that reached the shortest time of --on-threshold. Absent without this option.",
        )
        .shown_as("over threshold", 97)
        .uint(|row: &Thread<'_>| row.cpu.ledger.over_threshold.count()),
        column(
            "ended_by",
            "What ended the window: `length` (-d), `command`, `stop` (a request to stop, or a limit), `threshold` \
             (--on-threshold), or `migration`: the kernel moved the thread or its waker to another CPU. A window that a \
             threshold ended has its worst wake-up for certain: its mean and quantiles are higher than those of a whole \
             window.",
        )
        .shown_as("ended by", 35)
        .text(|row: &Thread<'_>| ended_by(row.sample, row.cpu)),
        column("late_max_at_ns", "Due time of the worst wake-up, from the opening of the window.")
            .detail()
            .uint(|row: &Thread<'_>| {
                (row.lateness().count > 0)
                    .then(|| row.lateness().peak.at.saturating_sub(row.cpu.start_ns))
            }),
        us_column(
            "until_interrupt_p50_ns",
            "Median time from before the thread's system call that reads the disk to the disk's interrupt, exact within 1/16: \
             the system call and the disk. It is no part of the lateness. Absent without --wake-by disk.",
        )
        .shown_as("until interrupt p50", 40)
        .uint(|row: &Thread<'_>| row.reads()?.until_interrupt.quantile(50_000)),
        us_column("until_interrupt_max_ns", "Longest such time; exact.").detail().uint(|row: &Thread<'_>| {
            let until_interrupt = &row.reads()?.until_interrupt;
            (until_interrupt.count > 0).then_some(until_interrupt.peak.value)
        }),
        column(
            "several_interrupts_count",
            "Wake-ups before which the disk interrupted several times during the read. Their lateness begins with the \
             interrupt whose handler woke the thread, or else with the last one, and may be too short. Absent without \
             --wake-by disk.",
        )
        .shown_as("several interrupts", 39)
        .uint(|row: &Thread<'_>| row.reads().map(|reads| reads.several_interrupts)),
        column("waker_cpu", "CPU of the waker. Absent without a waker.")
            .detail()
            .uint(|row: &Thread<'_>| row.cpu.waker.map(|waker| waker.cpu)),
        column("page_fault_count", "Page faults of the thread that the kernel counted.")
            .detail()
            .uint(|row: &Thread<'_>| row.cpu.page_faults),
        column(
            "unseen_count",
            "Wake-ups without a kernel event that shows the switch to the thread, or the wake-up by the waker. In \
             other_ratio is their time after the last event, or without the wake-up's event their whole lateness.",
        )
        .detail()
        .uint(|row: &Thread<'_>| row.sample.events.map(|_| row.cpu.ledger.unseen)),
        column(
            "migration_count",
            "1 if the kernel moved the thread or its waker to another CPU, for example because its CPU went offline. The \
             thread was measured until then.",
        )
        .detail()
        .uint(|row: &Thread<'_>| u64::from(row.cpu.left)),
        column("lost_record_count", "Wake-ups that were dropped because the buffer was full.")
            .detail()
            .uint(|row: &Thread<'_>| row.cpu.lost),
    ])
    .and(intervals);
    let notes = [
        "{settings.scheduler}",
        "woken by {settings.wake_by}",
        "wakers on CPU {settings.waker_cpus}, {settings.waker_scheduler}",
        "reads of {settings.disk}",
        "period {settings.period_ns}",
        "timer slack {settings.timer_slack_ns}",
        "irqlab's own thread on CPUs {settings.observer_cpus}",
    ];
    let words = NoteWords { probes: "the marks", whole: "", figure: "the median lateness" };
    let cost = added.map(|added| format!("before the window, {}", added.note(&words)));
    let display = TableDisplay {
        headline: "CPU {cpu}: {late_max_ns} at worst, {late_p99_ns} at the 99th percentile"
            .to_owned(),
        sort_by: Some("late_max_ns".to_owned()),
        notes: notes.map(str::to_owned).into_iter().chain(cost).collect(),
        ..all_rows()
    };
    let doc = "How late a periodic thread of each CPU ran: from the time at which it was due, at which another thread sent its \
               wake-up, or at which the disk interrupted (--wake-by), to its first reading of the clock.";
    columns.table("wakeup", doc, Thread::all(sample)).displayed(display)
}

/// Table `late_histogram`: the histogram of the lateness of all wake-ups.
pub(in crate::wakeup) fn distribution(sample: &WakeupSample) -> Table {
    struct Bucket {
        cpu: u32,
        min_ns: u64,
        max_ns: u64,
        count: u64,
    }
    let columns = Columns::all([
        cpu_column().of(|bucket: &Bucket| bucket.cpu),
        column("bucket_min_ns", "Smallest lateness in the bucket.")
            .uint(|bucket: &Bucket| bucket.min_ns),
        column("bucket_max_ns", "Largest lateness in the bucket.")
            .uint(|bucket: &Bucket| bucket.max_ns),
        column("wakeup_count", "Wake-ups in the bucket.").uint(|bucket: &Bucket| bucket.count),
    ]);
    let buckets = Thread::all(sample).flat_map(|thread| {
        thread.lateness().buckets().map(move |(min_ns, max_ns, count)| Bucket {
            cpu: thread.cpu.cpu,
            min_ns,
            max_ns,
            count,
        })
    });
    let doc =
        "Histogram of the lateness of all wake-ups: filled buckets, each within 1/16 of its value.";
    columns.table("late_histogram", doc, buckets).displayed(no_rows())
}
