//! The tables of `wakeup`, computed from the samples. `experiment.rs` puts them into the report. Names and order of the
//! columns, and the words in their cells, are public.

use record::limits::ROWS_MAX;
use record::{Column, Columns, Format, Keep, RowFilter, Table, TableDisplay, column};
use stats::Distribution;

use super::disk::DiskReads;
use super::ledger::WholeWakeup;
use super::sample::{
    CpuWakeups, FunctionTime, NOT_RECORDED, OTHER_FUNCTIONS, SeedOutcome, WakeupSample,
};
use super::split::{Part, Running, Stage};
use super::wakers::chain_text;
use crate::flight_table::Marked;
use crate::noise::{ContextName, IDLE};
use crate::quantiles::{interval_columns, interval_link};

/// How many of the worst wake-ups of a run the terminal shows.
const SHOWN: u64 = 10;
/// The quantiles of lateness: name of the column, its header, and share of 100,000.
const QUANTILES: [(&str, &str, u32); 4] = [
    ("late_p50_ns", "p50", 50_000),
    ("late_p99_ns", "p99", 99_000),
    ("late_p999_ns", "p99.9", 99_900),
    ("late_p9999_ns", "p99.99", 99_990),
];

/// Why a thread was late. Each part of a wake-up has one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Time before the kernel wakes the thread, outside of all contexts: the timer's interrupt had not come yet.
    LateTimer,
    /// Time before the kernel wakes the thread, outside of all contexts: the waker's system call, or what runs between a disk's
    /// interrupt and the wake-up.
    Waking,
    /// Interrupts and softirqs ran, the timer's own among them.
    Interrupts,
    /// Another task ran although the thread had been woken.
    Tasks,
    /// The CPU left the idle task.
    Switch,
    /// The thread returned to user mode.
    Return,
    /// The thread had not gone to sleep at the due time, or kernel events are missing.
    Other,
}

impl Class {
    const ALL: [Class; 7] = [
        Class::LateTimer,
        Class::Waking,
        Class::Interrupts,
        Class::Tasks,
        Class::Switch,
        Class::Return,
        Class::Other,
    ];

    /// Name of the class in tables. It is part of the run's format.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Class::LateTimer => "late timer",
            Class::Waking => "waking",
            Class::Interrupts => "interrupts",
            Class::Tasks => "tasks",
            Class::Switch => "switch",
            Class::Return => "return",
            Class::Other => "other",
        }
    }

    /// Whether a thread can have time of this class: with a waker or a disk, no timer of the thread can be late.
    fn can_occur(self, is_woken_by_timer: bool) -> bool {
        match self {
            Class::LateTimer => is_woken_by_timer,
            Class::Waking => !is_woken_by_timer,
            _ => true,
        }
    }

    /// The class of a part. `names`: see [`WakeupSample::names`].
    fn of_part(part: Part, names: &[ContextName]) -> Class {
        Class::of(part, |task| is_idle(task, names))
    }

    /// The class of a part. `is_idle`: whether the task with a number is the idle task.
    pub(super) fn of(part: Part, is_idle: impl Fn(u32) -> bool) -> Class {
        match (part.stage, part.running) {
            (_, Running::Context(_)) => Class::Interrupts,
            (_, Running::Unknown) | (Stage::Expiry | Stage::Scheduling, Running::Thread) => {
                Class::Other
            }
            (Stage::Waking, _) => Class::Waking,
            (Stage::Return, _) => Class::Return,
            (Stage::Expiry, Running::Task(_) | Running::Waker) => Class::LateTimer,
            (Stage::Scheduling, Running::Task(task)) if is_idle(task) => Class::Switch,
            (Stage::Scheduling, Running::Task(_) | Running::Waker) => Class::Tasks,
        }
    }
}

/// Whether the numbered task is the one that runs when a CPU has nothing to do.
fn is_idle(task: u32, names: &[ContextName]) -> bool {
    matches!(names.get(task as usize), Some(ContextName::Task(name)) if name == IDLE)
}

/// The thread of a CPU, with the sample of its window.
#[derive(Clone, Copy)]
pub(super) struct Thread<'a> {
    pub(super) sample: &'a WakeupSample,
    cpu: &'a CpuWakeups,
}

impl<'a> Thread<'a> {
    fn all(sample: &'a WakeupSample) -> impl Iterator<Item = Thread<'a>> {
        sample.cpus.iter().map(move |cpu| Thread { sample, cpu })
    }

    fn lateness(&self) -> &'a Distribution {
        &self.cpu.ledger.late
    }

    /// The reads of the disk. `None` if no disk wakes the thread.
    fn reads(&self) -> Option<&'a DiskReads> {
        self.cpu.disk.map(|_| &self.cpu.ledger.reads)
    }

    /// Whether the sample has causes, and a thread can have time of this class.
    fn has_class(&self, class: Class) -> bool {
        self.sample.events.is_some() && class.can_occur(self.cpu.is_woken_by_timer())
    }

    /// Share of a class in the lateness of all wake-ups. `None` without tracing, without lateness, or for
    /// a class that cannot occur.
    fn class_ratio(&self, class: Class) -> Option<f64> {
        if !self.has_class(class) {
            return None;
        }
        let parts = self.cpu.ledger.parts.iter();
        let of_class =
            parts.filter(|(part, _)| Class::of_part(**part, &self.sample.names) == class);
        ratio(of_class.map(|(_, times)| times.sum).sum(), self.lateness().sum)
    }
}

/// `part` as a share of `total`. `None` if the total is 0.
fn ratio(part: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| part as f64 / total as f64)
}

fn cpu_column<'a>() -> Columns<'a, u32> {
    column("cpu", "CPU that the thread ran on.").priority(100).key().uint(|cpu: &u32| *cpu)
}

pub(super) fn us_column(name: &str, doc: &str) -> Column {
    column(name, doc).format(Format::Microseconds)
}

/// Display hints of a table that shows every row.
fn all_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() }
}

/// Display hints of a table of which a terminal shows no row: only pictures and programs use it.
pub(super) fn no_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(0), ..TableDisplay::default() }
}

/// The worst wake-ups, to mark them in the flight record.
pub(super) fn late_wake_ups(sample: &WakeupSample) -> Vec<Marked> {
    let late = Worst::all(sample).map(|worst| Marked {
        cpu: worst.thread.cpu.cpu,
        start_ns: worst.whole.wakeup.due_ns,
        length_ns: worst.whole.wakeup.late_ns(),
        kind: "late wake-up",
        name: worst.largest_part().map(|(_, name)| name),
    });
    late.collect()
}

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
pub(super) fn wakeup(sample: &WakeupSample) -> Table {
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
        "before the window, in {observer.compared_pairs} pairs of short ones, median {observer.bare_late_p50_ns} without \
         marks, {observer.traced_late_p50_ns} with marks",
        "irqlab's own thread on CPUs {settings.observer_cpus}",
    ];
    let display = TableDisplay {
        headline: "CPU {cpu}: {late_max_ns} at worst, {late_p99_ns} at the 99th percentile"
            .to_owned(),
        sort_by: Some("late_max_ns".to_owned()),
        notes: notes.map(str::to_owned).to_vec(),
        ..all_rows()
    };
    let doc = "How late a periodic thread of each CPU ran: from the time at which it was due, at which another thread sent its \
               wake-up, or at which the disk interrupted (--wake-by), to its first reading of the clock.";
    columns.table("wakeup", doc, Thread::all(sample)).displayed(display)
}

/// Table `causes`: one row per CPU, stage and cause. For each CPU, the largest cause comes first.
pub(super) fn causes(sample: &WakeupSample) -> Table {
    struct Row<'a> {
        thread: Thread<'a>,
        part: Part,
        /// The times of the cause in the wake-ups that contain it, ns.
        times: &'a Distribution,
        /// Time of the cause in the wake-ups of table `worst`, and the lateness of these wake-ups, ns.
        in_worst_ns: u64,
        worst_ns: u64,
    }
    impl Row<'_> {
        fn kind_and_name(&self) -> Option<(&str, String)> {
            self.thread.sample.kind_and_name(self.part.running)
        }

        /// Kind and name, in words that are the same in all runs of the same programs.
        fn stable_kind_and_name(&self) -> Option<(&str, String)> {
            match self.part.running {
                Running::Context(number) => {
                    let name = self.thread.sample.names.get(number as usize);
                    name.map(ContextName::stable_kind_and_name)
                }
                _ => self.kind_and_name(),
            }
        }
    }
    let has_senders = sample.names.iter().any(ContextName::is_sent);
    let (name_header, name_priority) = if has_senders { ("name", 30) } else { ("what ran", 100) };
    let columns = Columns::all([
        cpu_column().of(|row: &Row<'_>| row.thread.cpu.cpu),
        column(
            "class",
            "Class of the time: late timer, waking, interrupts, tasks, switch, return or other (see table wakeup).",
        )
        .priority(95)
        .key()
        .text(|row: &Row<'_>| Class::of_part(row.part, &row.thread.sample.names).label()),
        column(
            "stage",
            "How far the wake-up had come: expiry (from the due time until the kernel wakes the thread) or waking (from \
             the time at which another thread sent the wake-up, on the CPU of that thread, or from the disk's interrupt on), scheduling (until the \
             kernel switches to it), return (until it reads the clock).",
        )
        .priority(80)
        .key()
        .text(|row: &Row<'_>| row.part.stage.label()),
        column("kind", "Kind of what ran: irq, vector, softirq, nmi, task, thread (the measured one or its waker) or unknown.")
            .priority(75)
            .key()
            .text(|row: &Row<'_>| row.kind_and_name().map(|(kind, _)| kind.to_owned())),
        column(
            "name",
            "Name of the context, as the kernel gives it, or of the task. With --senders, an interrupt from another CPU has \
             its sender, too: the task's name, and why it sent.",
        )
        .shown_as(name_header, name_priority)
        .key()
        .text(|row: &Row<'_>| row.stable_kind_and_name().map(|(_, name)| name)),
        column("wakeup_count", "Wake-ups with time of this cause.")
            .shown_as("wake-ups", 70)
            .uint(|row: &Row<'_>| row.times.count),
        column("total_ns", "Time of the cause in all wake-ups. Exact.")
            .format(Format::Milliseconds)
            .priority(60)
            .uint(|row: &Row<'_>| row.times.sum),
        column(
            "late_ratio",
            "Share of the lateness: total_ns over the lateness of all wake-ups. The rows of a CPU add up to 1.",
        )
        .shown_as("of lateness", 98)
        .real(|row: &Row<'_>| ratio(row.times.sum, row.thread.lateness().sum)),
        column(
            "worst_ratio",
            "Share of the lateness of the wake-ups in table worst. The rows of a CPU add up to 1.",
        )
        .shown_as("of the worst", 97)
        .real(|row: &Row<'_>| ratio(row.in_worst_ns, row.worst_ns)),
        us_column("p50_ns", "Median time of the cause in a wake-up that has it; exact within 1/16.")
            .interval(interval_link("p50_ns"))
            .priority(50)
            .uint(|row: &Row<'_>| row.times.quantile(50_000)),
        us_column("p99_ns", "99th percentile of this time; exact within 1/16.")
            .interval(interval_link("p99_ns"))
            .priority(65)
            .uint(|row: &Row<'_>| row.times.quantile(99_000)),
        us_column("max_ns", "Longest time of the cause in one wake-up; exact.")
            .shown_as("max", 75)
            .uint(|row: &Row<'_>| row.times.peak.value),
        crate::quantiles::p50_p99_interval_columns(["p50_ns", "p99_ns"])
            .of_ref(|row: &Row<'_>| row.times),
    ]);
    let cause = column(
        "cause",
        "What ran, as in name; an interrupt with the process and the CPUs of its sender.",
    )
    .shown_as("what ran", 101)
    .text(|row: &Row<'_>| row.kind_and_name().map(|(_, name)| name));
    let columns = if has_senders { columns.and([cause]) } else { columns };
    let rows = Thread::all(sample).flat_map(|thread| {
        let worst = thread.cpu.ledger.worst.sorted();
        let worst_ns = worst.iter().map(|record| record.wakeup.late_ns()).sum();
        let mut parts: Vec<_> = thread.cpu.ledger.parts.iter().collect();
        parts.sort_by_key(|(_, times)| std::cmp::Reverse(times.sum));
        parts.into_iter().map(move |(&part, times)| {
            let in_worst = worst.iter().flat_map(|record| record.parts.iter().chain(&record.later));
            let same_part = in_worst.filter(|(worst_part, _)| *worst_part == part);
            let in_worst_ns = same_part.map(|(_, length_ns)| length_ns).sum();
            Row { thread, part, times, in_worst_ns, worst_ns }
        })
    });
    let filter = RowFilter {
        column: "late_ratio".to_owned(),
        keep: Keep::AtLeast(0.001),
        others: "below a thousandth of the lateness".to_owned(),
    };
    let display = TableDisplay {
        headline: format!(
            "largest: {{kind}} {{{}}} ({{stage}}), {{late_ratio}} of the lateness, {{worst_ratio}} of that of the worst \
             wake-ups",
            if has_senders { "cause" } else { "name" }
        ),
        group_by: vec!["cpu".to_owned()],
        sort_by: Some("total_ns".to_owned()),
        filter: Some(filter),
        ..all_rows()
    };
    let doc =
        "Why threads ran late: the rows of all wake-ups' causes add up to the lateness exactly.";
    columns.table("causes", doc, rows).displayed(display)
}

/// A row of table `worst`: one of the worst wake-ups of a CPU.
#[derive(Clone, Copy)]
pub(super) struct Worst<'a> {
    pub(super) thread: Thread<'a>,
    /// 1 for the worst wake-up of the CPU.
    rank: u64,
    pub(super) whole: &'a WholeWakeup,
}

impl<'a> Worst<'a> {
    /// The worst wake-ups of all CPUs, in the order of CPUs and ranks.
    pub(super) fn all(sample: &'a WakeupSample) -> impl Iterator<Item = Worst<'a>> {
        Thread::all(sample).flat_map(|thread| {
            let ranked = (1..).zip(thread.cpu.ledger.worst.sorted());
            ranked.map(move |(rank, whole)| Worst { thread, rank, whole })
        })
    }

    /// Due time from the opening of the window, ns.
    fn due_ns(&self) -> u64 {
        self.whole.wakeup.due_ns.saturating_sub(self.thread.cpu.start_ns)
    }

    /// Kind and name of the part that took the most time. `None` if the wake-up has no parts, or the part has no name.
    fn largest_part(&self) -> Option<(&str, String)> {
        self.thread.sample.kind_and_name(self.whole.largest_part()?.0.running)
    }

    /// Time of a class in the wake-up, ns. `None` without tracing, or for a class that cannot occur.
    fn class_ns(&self, class: Class) -> Option<u64> {
        if !self.thread.has_class(class) {
            return None;
        }
        let parts = self.whole.parts.iter().chain(&self.whole.later);
        let of_class =
            parts.filter(|(part, _)| Class::of_part(*part, &self.thread.sample.names) == class);
        Some(of_class.map(|(_, length_ns)| length_ns).sum())
    }
}

/// The columns that identify a wake-up.
pub(super) fn key_columns<'a>() -> Columns<'a, Worst<'a>> {
    Columns::all([
        cpu_column().of(|row: &Worst<'_>| row.thread.cpu.cpu),
        column("rank", "1: the worst wake-up of the CPU, 2: the next.")
            .priority(90)
            .uint(|row: &Worst<'_>| row.rank),
    ])
}

/// Table `worst`: the worst wake-ups of each CPU.
pub(super) fn worst_table(sample: &WakeupSample) -> Table {
    let class_columns = Class::ALL.map(|class| {
        let name = format!("{}_ns", class.label().replace(' ', "_"));
        let doc = format!("Part of class {} (see table wakeup).", class.label());
        // A wake-up whose causes are unknown has its whole time there.
        let priority = if class == Class::Other { 62 } else { 60 };
        us_column(&name, &doc)
            .shown_as(class.label(), priority)
            .uint(move |row: &Worst<'_>| row.class_ns(class))
    });
    let columns = key_columns()
        .and([
            us_column("late_ns", "How late the thread ran.")
                .shown_as("late", 98)
                .uint(|row: &Worst<'_>| row.whole.wakeup.late_ns()),
            column(
                "due_ns",
                "When the thread was due, its waker sent the wake-up, or the disk interrupted, from the opening of the window.",
            )
                .format(Format::Milliseconds)
                .shown_as("due", 80)
                .uint(Worst::due_ns),
            column("largest_kind", "Kind of what ran in the largest part.")
                .shown_as("kind", 70)
                .text(|row: &Worst<'_>| row.largest_part().map(|(kind, _)| kind.to_owned())),
            column("largest_name", "Name of what ran in the largest part.")
                .shown_as("largest cause", 97)
                .text(|row: &Worst<'_>| row.largest_part().map(|(_, name)| name)),
            column("largest_class", "Class of the largest part, as in table causes.")
                .detail()
                .text(|row: &Worst<'_>| {
                    let (part, _) = row.whole.largest_part()?;
                    Some(Class::of_part(part, &row.thread.sample.names).label())
                }),
            column("largest_stage", "Stage of the largest part, as in table causes.")
                .shown_as("stage", 65)
                .text(|row: &Worst<'_>| {
                    row.whole.largest_part().map(|(part, _)| part.stage.label())
                }),
            us_column("largest_ns", "Time of the largest part.")
                .shown_as("largest part", 96)
                .uint(|row: &Worst<'_>| row.whole.largest_part().map(|main| main.1)),
        ])
        .and(class_columns)
        .and([
            column(
                "wakers",
                "Who woke the thread, then after each < who woke that waker, by the kernel's events at that time: a task with \
                 its number, an interrupt, or a softirq with the task in which it ran. An interrupt ends the chain, and so \
                 does a softirq in a task that was not woken for it. `not seen`: no event shows who woke the last waker. \
                 Absent without such events, on sim, and if the thread was not asleep. Table wakers has the same in columns.",
            )
            .shown_as("woken by", 50)
            .text(|row: &Worst<'_>| chain_text(&row.whole.wakers, &row.thread.sample.names)),
            column("part_count", "Rows of the wake-up in table worst_parts.")
            .detail()
            .uint(|row: &Worst<'_>| row.whole.parts.len() + row.whole.later.len()),
            column(
                "due_utc",
                "When the thread was due in UTC, by the system clock. Absent on sim.",
            )
            .shown_as("UTC", 10)
            .text(|row: &Worst<'_>| {
                let clock = row.thread.sample.wall_clock?;
                clock.utc(row.whole.wakeup.due_ns)
            }),
            column(
                "due_utc_error_max_ns",
                "Largest error of due_utc by the difference of the clocks; the system clock's own error is not known.",
            )
            .detail()
            .uint(|row: &Worst<'_>| row.thread.sample.wall_clock.map(|clock| clock.error_max_ns)),
]);
    let display = TableDisplay {
        title: "the worst wake-ups".to_owned(),
        headline: "worst: {late_ns} on CPU {cpu}, {largest_ns} of it {largest_kind} {largest_name} ({largest_stage})"
            .to_owned(),
        sort_by: Some("late_ns".to_owned()),
        rows_max: Some(SHOWN),
        ..TableDisplay::default()
    };
    let doc = "The worst wake-ups of each CPU (--keep-worst), of all that were recorded.";
    columns.table("worst", doc, Worst::all(sample)).displayed(display)
}

/// How many causes the sentence about the worst case names.
const CAUSES_IN_SENTENCE: usize = 3;

/// A time in microseconds with three digits, as in the tables.
fn microseconds(ns: u64) -> String {
    let us = ns as f64 / 1_000.0;
    match ns {
        0..1_000 => format!("{us:.3} µs"),
        1_000..10_000 => format!("{us:.2} µs"),
        10_000..100_000 => format!("{us:.1} µs"),
        _ => format!("{us:.0} µs"),
    }
}

/// Why the worst wake-up of all seeds was late, in a sentence. `None` without seeds.
pub(super) fn worst_case(sample: &WakeupSample) -> Option<String> {
    let worst = sample
        .seeds
        .iter()
        .min_by_key(|outcome| (std::cmp::Reverse(outcome.late_ns), outcome.seed))?;
    let mut causes: Vec<(&(String, String), u64)> = Vec::new();
    for (name, ns) in &worst.parts {
        let Some(name) = name else { continue };
        match causes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum_ns)) => *sum_ns += ns,
            None => causes.push((name, *ns)),
        }
    }
    causes.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let causes: Vec<String> = causes
        .iter()
        .take(CAUSES_IN_SENTENCE)
        .map(|((kind, name), ns)| {
            let function = largest_function(sample, (kind.as_str(), name.as_str()), *ns);
            let function = function.map_or_else(String::new, |(function, function_ns)| {
                format!(" ({} in {function})", microseconds(function_ns))
            });
            // The name of the measured thread has its kind.
            let kind = if kind == "thread" { String::new() } else { format!("{kind} ") };
            format!("{} {kind}{name}{function}", microseconds(*ns))
        })
        .collect();
    Some(format!(
        "worst of {} machines: seed {}, {} late on CPU {}: {}",
        sample.seeds.len(),
        worst.seed,
        microseconds(worst.late_ns),
        worst.cpu,
        causes.join(", ")
    ))
}

/// The innermost function that, with its callees, took at least half of the time `cause_ns` of this context or task;
/// else the function with the most time of its own. The time is in ns. `None` if no functions were recorded for it.
fn largest_function<'a>(
    sample: &'a WakeupSample,
    (kind, name): (&str, &str),
    cause_ns: u64,
) -> Option<(&'a str, u64)> {
    let mut self_times: Vec<(&str, u64)> = Vec::new();
    let mut total_times: Vec<(&str, u64)> = Vec::new();
    let add = |times: &mut Vec<(&'a str, u64)>, function: &'a str, ns: u64| match times
        .iter_mut()
        .find(|(known, _)| *known == function)
    {
        Some((_, sum_ns)) => *sum_ns += ns,
        None => times.push((function, ns)),
    };
    let functions = sample.worst_functions.as_ref()?.functions.iter();
    for row in functions.filter(|row| is_function(row)) {
        let runs = sample.kind_and_name(row.part.running);
        if runs.is_some_and(|(row_kind, row_name)| (row_kind, row_name.as_str()) == (kind, name)) {
            add(&mut self_times, &row.function, row.self_ns);
            add(&mut total_times, &row.function, row.total_ns.unwrap_or(row.self_ns));
        }
    }
    let is_half = |(_, ns): &(&str, u64)| *ns >= cause_ns.div_ceil(2);
    let innermost = total_times.into_iter().filter(is_half).min_by_key(|(_, ns)| *ns);
    innermost.or_else(|| self_times.into_iter().max_by_key(|(_, ns)| *ns))
}

/// Whether the row is of a function, and not of a rest.
fn is_function(row: &FunctionTime) -> bool {
    ![OTHER_FUNCTIONS, NOT_RECORDED].contains(&row.function.as_str())
}

/// Table `worst_functions`: the functions of the kernel in the worst wake-up.
pub(super) fn worst_functions(sample: &WakeupSample) -> Table {
    struct Row<'a> {
        cpu: u32,
        sample: &'a WakeupSample,
        time: &'a FunctionTime,
    }
    impl Row<'_> {
        fn kind_and_name(&self) -> Option<(&str, String)> {
            self.sample.kind_and_name(self.time.part.running)
        }
    }
    let columns = Columns::all([
        cpu_column().of(|row: &Row<'_>| row.cpu),
        us_column(
            "first_ns",
            "When the function first ran, or a function that it called: time from the due time.",
        )
        .shown_as("from", 85)
        .uint(|row: &Row<'_>| row.time.first_ns),
        column("class", "Class of the time, as in table causes.")
            .shown_as("class", 60)
            .key()
            .text(|row: &Row<'_>| Class::of_part(row.time.part, &row.sample.names).label()),
        column("stage", "Stage of the wake-up, as in table causes.")
            .priority(70)
            .key()
            .text(|row: &Row<'_>| row.time.part.stage.label()),
        column("kind", "Kind of what ran, as in table causes.")
            .priority(65)
            .key()
            .text(|row: &Row<'_>| row.kind_and_name().map(|(kind, _)| kind.to_owned())),
        column("name", "Name of the context or task in which the function ran, as in table causes.")
            .shown_as("in", 90)
            .key()
            .text(|row: &Row<'_>| row.kind_and_name().map(|(_, name)| name)),
        column(
            "function",
            "Function of the kernel. `user mode`: code of a program. `others`: functions of this stage and context with less \
             time than the 100 in the table. `not recorded`: the record of blocks was full. A function that takes less than \
             1 ns has no row.",
        )
        .priority(100)
        .key()
        .text(|row: &Row<'_>| row.time.function.clone()),
        us_column(
            "self_ns",
            "Time of the function itself, from the start of each of its blocks to the start of the next block. Time of a \
             halt belongs to the function that halts, and the processor's entry into an interrupt to the handler's first \
             function. The rows add up to the lateness exactly.",
        )
        .shown_as("self", 99)
        .uint(|row: &Row<'_>| row.time.self_ns),
        us_column(
            "total_ns",
            "Time of the function and of the functions that it called in this stage and context, without interrupts. \
             Callers are those whose first instruction, or a return into them, was seen since the due time.",
        )
        .shown_as("with callees", 95)
        .uint(|row: &Row<'_>| row.time.total_ns),
        column("call_count", "How often the function's first instruction executed, after other code.")
            .shown_as("calls", 80)
            .uint(|row: &Row<'_>| row.time.calls),
        column("instruction_count", "Instructions of the function itself.")
            .shown_as("instructions", 55)
            .uint(|row: &Row<'_>| row.time.instructions),
        column(
            "l1_miss_count",
            "Misses of the function itself in L1I and L1D of the model. Absent without a model.",
        )
        .shown_as("L1 misses", 58)
        .uint(|row: &Row<'_>| row.time.l1_misses),
        column("l2_miss_count", "Misses of the function itself in L2 of the model. Absent without a model that has an L2.")
            .shown_as("L2 misses", 57)
            .uint(|row: &Row<'_>| row.time.l2_misses),
    ]);
    let functions = sample.worst_functions.iter().flat_map(|worst| &worst.functions);
    let largest = functions.filter(|row| is_function(row)).max_by_key(|row| row.self_ns);
    let headline = largest.map(|row| {
        let name = row.function.replace(['{', '}'], "");
        format!("most time of its own: {name}, {}", microseconds(row.self_ns))
    });
    let rows = sample
        .worst_functions
        .iter()
        .flat_map(|worst| worst.functions.iter().map(|time| Row { cpu: worst.cpu, sample, time }));
    let display = TableDisplay {
        title: "functions of the kernel in the worst wake-up".to_owned(),
        headline: headline.unwrap_or_default(),
        sort_by: Some("self_ns".to_owned()),
        rows_max: Some(SHOWN),
        ..TableDisplay::default()
    };
    let doc = "The functions of the kernel that ran in the worst wake-up of all seeds, on its CPU, from the due time until \
               the thread read the clock. Recorded when the worst machine ran again.";
    columns.table("worst_functions", doc, rows).displayed(display)
}

/// Table `seeds`: the worst wake-up of each machine of `--seeds`.
pub(super) fn seeds(sample: &WakeupSample) -> Table {
    let largest = |row: &SeedOutcome| row.largest.as_ref().and_then(|(name, _)| name.clone());
    let columns = Columns::all([
        column("seed", "Seed of the machine's phases; --seed gives the same machine again.")
            .priority(100)
            .key()
            .uint(|row: &SeedOutcome| row.seed),
        column("wakeup_count", "Number of wake-ups of all threads.")
            .shown_as("wake-ups", 80)
            .uint(|row: &SeedOutcome| row.wakeups),
        us_column("late_max_ns", "How late a thread ran at worst.")
            .shown_as("latest", 99)
            .uint(|row: &SeedOutcome| row.late_ns),
        column("cpu", "CPU that this thread ran on.")
            .priority(90)
            .uint(|row: &SeedOutcome| row.cpu),
        column("due_ns", "When this thread was due, from the opening of the window.")
            .format(Format::Milliseconds)
            .shown_as("due", 70)
            .uint(|row: &SeedOutcome| row.due_ns),
        column("largest_kind", "Kind of what ran in the largest part of this lateness.")
            .shown_as("kind", 75)
            .text(move |row: &SeedOutcome| largest(row).map(|(kind, _)| kind)),
        column("largest_name", "Name of what ran in the largest part of this lateness.")
            .shown_as("largest cause", 97)
            .text(move |row: &SeedOutcome| largest(row).map(|(_, name)| name)),
        us_column("largest_ns", "Time of the largest part.")
            .shown_as("largest part", 96)
            .uint(|row: &SeedOutcome| row.largest.as_ref().map(|(_, ns)| *ns)),
    ]);
    let display = TableDisplay {
        title: "machines with different seeds".to_owned(),
        headline: worst_case(sample).unwrap_or_default().replace(['{', '}'], ""),
        sort_by: Some("late_max_ns".to_owned()),
        rows_max: Some(SHOWN),
        ..TableDisplay::default()
    };
    let doc = "The worst wake-up of each machine of --seeds. The other tables are of the machine with the latest of all, \
               which runs a second time and must give the same (worst_seed_runs in the settings says whether it did).";
    columns.table("seeds", doc, &sample.seeds).displayed(display)
}

/// Table `worst_parts`: the parts of the worst wake-ups. They add up to the lateness, to the nanosecond.
pub(super) fn worst_parts(sample: &WakeupSample) -> Table {
    struct Row<'a> {
        worst: Worst<'a>,
        part: Part,
        length_ns: u64,
        /// Start of the part from the opening of the window, ns. `None` for the sum of several parts.
        start_ns: Option<u64>,
    }
    impl Row<'_> {
        fn kind_and_name(&self) -> Option<(&str, String)> {
            self.worst.thread.sample.kind_and_name(self.part.running)
        }

        fn start_utc(&self) -> Option<String> {
            let Thread { sample, cpu } = self.worst.thread;
            sample.wall_clock?.utc(cpu.start_ns.checked_add(self.start_ns?)?)
        }
    }
    let columns = Columns::all([
        key_columns().of(|row: &Row<'_>| row.worst),
        column(
            "start_ns",
            "Start of the part, from the opening of the window. Blank: the sum of all later parts of this cause, in a \
             wake-up of very many parts.",
        )
        .digits(9)
        .uint(|row: &Row<'_>| row.start_ns),
        column("length_ns", "Length of the part.").uint(|row: &Row<'_>| row.length_ns),
        column("start_utc", "start_ns in UTC, by the system clock. Absent on sim. Error: see table worst.")
            .shown_as("UTC", 10)
            .text(Row::start_utc),
        column("class", "Class of the time, as in table causes.")
            .text(|row: &Row<'_>| Class::of_part(row.part, &row.worst.thread.sample.names).label()),
        column("stage", "Stage of the wake-up, as in table causes.")
            .text(|row: &Row<'_>| row.part.stage.label()),
        column("kind", "Kind of what ran, as in table causes.")
            .text(|row: &Row<'_>| row.kind_and_name().map(|(kind, _)| kind.to_owned())),
        column("name", "Name of what ran, as in table causes.")
            .text(|row: &Row<'_>| row.kind_and_name().map(|(_, name)| name)),
    ]);
    let rows = Worst::all(sample).flat_map(|worst| {
        let mut next_start_ns = worst.due_ns();
        let parts_in_time = worst.whole.parts.iter().map(move |&(part, length_ns)| {
            let start_ns = Some(next_start_ns);
            next_start_ns += length_ns;
            Row { worst, part, length_ns, start_ns }
        });
        let sums = worst.whole.later.iter();
        let sums =
            sums.map(move |&(part, length_ns)| Row { worst, part, length_ns, start_ns: None });
        parts_in_time.chain(sums)
    });
    let doc = "The parts of the wake-ups in table worst, in the order of time: the first ones of each (at most \
               4,096, fewer with many CPUs), then sums. The parts of a wake-up add up to its lateness exactly.";
    columns.table("worst_parts", doc, rows).displayed(no_rows())
}

/// Table `late_histogram`: the histogram of the lateness of all wake-ups.
pub(super) fn distribution(sample: &WakeupSample) -> Table {
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

#[cfg(test)]
pub(super) mod tests {
    use serde_json::Map;

    use super::super::experiment::{Plan, WakeupSamples};
    use super::super::ledger::WakeupLedger;
    use super::super::sample::NamedPart;
    use super::super::split::Wakeup;
    use super::super::wakers::Waker;
    use super::*;
    use crate::experiment::Experiment;
    use crate::noise::{InterruptSender, KeepDetours, Mark, Processes, SentInterrupt, What};
    use crate::wall_clock::WallClock;

    /// 50,000 wake-ups of the thread on CPU 3, which a task on CPU 0 woke.
    pub(in crate::wakeup) fn sample() -> WakeupSample {
        let mut ledger = WakeupLedger::new(KeepDetours::new(3, 1, 0));
        for number in 1..=50_000_u64 {
            let due_ns = number * 1_000_000;
            let marks = [
                (400, What::Enter(0)),
                (600, What::Wake(0)),
                (700, What::Leave(0)),
                (900 + number % 5_000, What::SwitchTo(2)),
                (2_000 + number % 5_000, What::SwitchBack),
            ];
            let marks = marks.map(|(at_ns, what)| Mark { at_ns: due_ns + at_ns, what });
            let wakers = [
                Waker { at_ns: due_ns + 600, cpu: 0, task: 2, pid: 77, context: None },
                Waker { at_ns: due_ns - 400, cpu: 0, task: 1, pid: 0, context: Some(0) },
            ];
            ledger.add(
                Wakeup { due_ns, woke_ns: due_ns + 2_400 + number % 5_000 },
                &marks,
                &wakers,
            );
            ledger.apply_marks(&[Mark { at_ns: due_ns + 20_000, what: What::SwitchTo(1) }]);
        }
        let tasks = ["local_timer", "idle", "hog"].map(|name| ContextName::Task(name.to_owned()));
        let cpu = CpuWakeups {
            cpu: 3,
            start_ns: 500,
            ledger,
            missed: 2,
            waker: None,
            disk: None,
            lost: 0,
            page_faults: Some(0),
            left: false,
            readings: None,
        };
        WakeupSample {
            cpus: vec![cpu],
            unmeasured: Vec::new(),
            names: tasks.to_vec(),
            lost_events: Some(0),
            events: Some(250_000),
            window_ns: 50_000_000_000,
            interrupted: false,
            ended_by_threshold: false,
            ended_by_command: false,
            warnings: Vec::new(),
            cpu_warnings: Vec::new(),
            facts: Map::new(),
            flight_record: None,
            seeds: Vec::new(),
            worst_functions: None,
            absent: Vec::new(),
            wall_clock: None,
        }
    }

    /// With a sender, the name is the same in each run of its program, and the cause has the process and the CPU.
    #[test]
    fn the_sender_of_an_interrupt_is_part_of_its_name_and_of_the_worst_wake_ups() {
        let cells = |sample: &WakeupSample, column: &str| {
            let table = causes(sample);
            assert_eq!(table.check_display(), Ok(()));
            let cells = table.rows().iter().map(|row| table.get(row, column).cloned());
            cells.collect::<Vec<_>>()
        };
        let mut sample = sample();
        let plain = (cells(&sample, "total_ns"), cells(&sample, "cause"));
        assert!(plain.1.iter().all(Option::is_none), "no column without senders");
        let context = attribution::Context {
            kind: attribution::ContextKind::Vector,
            number: 5,
            name: "call_function".to_owned(),
        };
        let sender = InterruptSender::Known {
            name: "dotnet".to_owned(),
            processes: Processes::One(812),
            reason: Some("membarrier".to_owned()),
            cpus: vec![0],
        };
        sample.names[0] = ContextName::Sent(SentInterrupt { context, sender });
        assert_eq!(cells(&sample, "total_ns"), plain.0, "a name changes no time");
        let text = |text: &str| Some(record::Value::from(text));
        let label = "call_function from dotnet[812] (membarrier) on CPU 0";
        assert!(cells(&sample, "name").contains(&text("call_function from dotnet (membarrier)")));
        assert!(cells(&sample, "cause").contains(&text(label)));
        let parts = super::worst_parts(&sample);
        let is_named = |row: &Vec<record::Value>| parts.get(row, "name").cloned() == text(label);
        assert!(parts.rows().iter().any(is_named));
    }

    #[test]
    fn the_table_says_what_ended_the_window() {
        let cell = |change: fn(&mut WakeupSample)| {
            let mut sample = sample();
            change(&mut sample);
            let table = wakeup(&sample);
            table.get(&table.rows()[0], "ended_by").cloned()
        };
        let text = |word: &str| Some(record::Value::from(word));
        assert_eq!(cell(|_| {}), text("length"));
        assert_eq!(cell(|sample| sample.ended_by_threshold = true), text("threshold"));
        assert_eq!(cell(|sample| sample.ended_by_command = true), text("command"));
        assert_eq!(cell(|sample| sample.interrupted = true), text("stop"));
        assert_eq!(cell(|sample| sample.cpus[0].left = true), text("migration"));
    }

    #[test]
    fn no_wake_up_is_later_than_the_last_bucket_of_the_histogram() {
        let mut sample = sample();
        let (due_ns, late_ns) = (60_000_000_000, 60_000_000_000);
        sample.cpus[0].ledger.add(Wakeup { due_ns, woke_ns: due_ns + late_ns }, &[], &[]);
        let table = distribution(&sample);
        let last = table.rows().last().unwrap();
        let cell = |name: &str| table.get(last, name).cloned();
        assert_eq!(cell("bucket_max_ns"), Some(late_ns.into()));
        assert_eq!(cell("wakeup_count"), Some(1_u64.into()));
    }

    #[test]
    fn missed_periods_under_sched_deadline_have_a_possible_reason() {
        let warns = |scheduler: &str, missed| {
            let mut window = sample();
            window.facts.insert("scheduler".to_owned(), scheduler.into());
            window.cpus[0].missed = missed;
            let samples = WakeupSamples { window: Some(window), pairs: Vec::new() };
            let warnings = Plan::default().report(&samples).warnings;
            warnings.iter().any(|warning| warning.contains("has used up its RUNTIME"))
        };
        assert!(warns("SCHED_DEADLINE 200us,500us,1ms", 2));
        assert!(!warns("SCHED_DEADLINE 200us,500us,1ms", 0));
        assert!(!warns("SCHED_FIFO 95", 2));
    }

    #[test]
    fn the_worst_wake_ups_have_a_date_where_it_is_known() {
        let cell = |sample: &WakeupSample, column: &str| {
            let table = worst_table(sample);
            table.get(&table.rows()[0], column).cloned()
        };
        let absent = Some(record::Value::Absent);
        assert_eq!(cell(&sample(), "due_utc"), absent);
        assert_eq!(cell(&sample(), "due_utc_error_max_ns"), absent);
        let clock = WallClock { offset_ns: 1_700_000_000_000_000_000, error_max_ns: 20 };
        let sample = WakeupSample { wall_clock: Some(clock), ..sample() };
        let Some(record::Value::Text(utc)) = cell(&sample, "due_utc") else { panic!("no date") };
        assert!(utc.starts_with("2023-11-14T22:13:"), "{utc}");
        assert_eq!(cell(&sample, "due_utc_error_max_ns"), Some(20_u64.into()));
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let sample = sample();
        for table in [
            wakeup(&sample),
            causes(&sample),
            worst_table(&sample),
            worst_parts(&sample),
            distribution(&sample),
        ] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
            assert!(!table.rows().is_empty(), "{}", table.name);
        }
    }

    #[test]
    fn a_sentence_says_why_the_worst_machine_was_late() {
        let named = |kind: &str, name: &str| Some((kind.to_owned(), name.to_owned()));
        let outcome = |seed, late_ns, parts: Vec<NamedPart>| SeedOutcome {
            largest: parts.iter().max_by_key(|(_, ns)| *ns).cloned(),
            seed,
            wakeups: 10,
            cpu: 3,
            late_ns,
            due_ns: 5,
            parts,
        };
        let idle = || named("task", "idle");
        let parts = vec![
            (idle(), 1_500),
            (named("softirq", "NET_RX"), 30_100),
            (idle(), 8_600),
            (named("thread", "the measured thread"), 1_000),
            (named("vector", "local_timer"), 999),
        ];
        let part = |running| Part { stage: Stage::Scheduling, running };
        let function = |name: &str, running, self_ns| FunctionTime {
            part: part(running),
            function: name.to_owned(),
            first_ns: 0,
            self_ns,
            total_ns: None,
            calls: Some(1),
            instructions: None,
            l1_misses: None,
            l2_misses: None,
        };
        let mut sample = WakeupSample {
            seeds: vec![outcome(7, 10, Vec::new()), outcome(8, 42_199, parts)],
            names: vec![ContextName::Task("idle".to_owned())],
            ..sample()
        };
        let sentence = "worst of 2 machines: seed 8, 42.2 µs late on CPU 3: 30.1 µs softirq NET_RX, 10.1 µs task idle, \
                        1.00 µs the measured thread";
        assert_eq!(worst_case(&sample).as_deref(), Some(sentence));
        let idle_task = Running::Task(0);
        sample.worst_functions = Some(super::super::sample::WorstFunctions {
            cpu: 3,
            functions: vec![
                FunctionTime { total_ns: Some(10_100), ..function("do_idle", idle_task, 100) },
                function("pv_halt", idle_task, 10_000),
                function("memcpy", Running::Thread, 300),
            ],
        });
        let sentence = worst_case(&sample).unwrap();
        assert!(
            sentence.contains("30.1 µs softirq NET_RX, 10.1 µs task idle (10.0 µs in pv_halt)"),
            "{sentence}"
        );
        assert!(
            sentence.ends_with("1.00 µs the measured thread (0.300 µs in memcpy)"),
            "{sentence}"
        );
        for table in [seeds(&sample), worst_functions(&sample)] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
            assert!(!table.rows().is_empty(), "{}", table.name);
        }
    }

    #[test]
    fn shares_add_up_and_rare_quantiles_need_many_wake_ups() {
        let sample = sample();
        let thread = Thread::all(&sample).next().unwrap();
        let sum: f64 = Class::ALL.iter().filter_map(|class| thread.class_ratio(*class)).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        let hog = thread.class_ratio(Class::Tasks).unwrap();
        let expected = 1_100.0 * 50_000.0 / thread.lateness().sum as f64;
        assert!((hog - expected).abs() < 1e-9, "{hog} {expected}");
        assert!(thread.lateness().quantile(99_990).is_some());
        let mut few = Distribution::default();
        (0..999).for_each(|number| few.record(number, 0));
        assert_eq!(few.quantile(99_990), None);
    }
}
