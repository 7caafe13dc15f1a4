//! Tables `worst` and `worst_parts`: the latest wake-ups of each CPU, with all their parts.

use record::{Columns, Format, Table, TableDisplay, column};

use super::{Class, SHOWN, Thread, cpu_column, no_rows, us_column};
use crate::flight_table::Marked;
use crate::wakeup::class::cause_in_words;
use crate::wakeup::ledger::WholeWakeup;
use crate::wakeup::sample::WakeupSample;
use crate::wakeup::split::Part;
use crate::wakeup::wakers::chain_text;

/// A row of table `worst`: one of the worst wake-ups of a CPU.
#[derive(Clone, Copy)]
pub(in crate::wakeup) struct Worst<'a> {
    pub(in crate::wakeup) thread: Thread<'a>,
    /// 1 for the worst wake-up of the CPU.
    rank: u64,
    pub(in crate::wakeup) whole: &'a WholeWakeup,
}

impl<'a> Worst<'a> {
    /// The worst wake-ups of all CPUs, in the order of CPUs and ranks.
    pub(in crate::wakeup) fn all(sample: &'a WakeupSample) -> impl Iterator<Item = Worst<'a>> {
        Thread::all(sample).flat_map(|thread| {
            let ranked = (1..).zip(thread.cpu.ledger.worst.sorted());
            ranked.map(move |(rank, whole)| Worst { thread, rank, whole })
        })
    }

    /// Due time from the opening of the window, ns.
    fn due_ns(&self) -> u64 {
        self.whole.wakeup.due_ns.saturating_sub(self.thread.cpu.start_ns)
    }

    /// What delayed the thread in the part that took the most time, in words. `None` if the wake-up has no parts, or the part
    /// has no name.
    fn cause(&self) -> Option<String> {
        cause_in_words(self.whole.largest_part()?.0, &self.thread.sample.names)
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
pub(in crate::wakeup) fn key_columns<'a>() -> Columns<'a, Worst<'a>> {
    Columns::all([
        cpu_column().of(|row: &Worst<'_>| row.thread.cpu.cpu),
        column("rank", "1: the worst wake-up of the CPU, 2: the next.")
            .priority(90)
            .uint(|row: &Worst<'_>| row.rank),
    ])
}

/// The worst wake-ups, to mark them in the flight record.
pub(in crate::wakeup) fn late_wake_ups(sample: &WakeupSample) -> Vec<Marked> {
    let late = Worst::all(sample).map(|worst| Marked {
        cpu: worst.thread.cpu.cpu,
        start_ns: worst.whole.wakeup.due_ns,
        length_ns: worst.whole.wakeup.late_ns(),
        kind: "late wake-up",
        name: worst.cause(),
    });
    late.collect()
}

/// Table `worst`: the worst wake-ups of each CPU.
pub(in crate::wakeup) fn worst_table(sample: &WakeupSample) -> Table {
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
        headline: "worst: {late_ns} on CPU {cpu}, {largest_ns} of it {largest_class}: {largest_kind} {largest_name} \
                   ({largest_stage})"
            .to_owned(),
        sort_by: Some("late_ns".to_owned()),
        rows_max: Some(SHOWN),
        ..TableDisplay::default()
    };
    let doc = "The worst wake-ups of each CPU (--keep-worst), of all that were recorded.";
    columns.table("worst", doc, Worst::all(sample)).displayed(display)
}

/// Table `worst_parts`: the parts of the worst wake-ups. They add up to the lateness, to the nanosecond.
pub(in crate::wakeup) fn worst_parts(sample: &WakeupSample) -> Table {
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
