//! Tables `longest` and `longest_parts`: the longest detours of each CPU with their causes, and their parts in the
//! order of time.

use record::{Columns, Format, Table, TableDisplay, column};

use super::super::ledger::WholeDetour;
use super::super::split::{Class, Part};
use super::noise::class_ns;
use super::single::cause_columns;
use super::{DetourLoop, NoiseSample, cpu_column, detour_loops, kind_and_name, no_rows};
use crate::flight_table::Marked;

/// How many of the longest detours of a run the terminal shows.
const SHOWN: u64 = 10;

/// A row of table `longest`: one of the longest detours of a CPU.
#[derive(Clone, Copy)]
struct Longest<'a> {
    detour_loop: DetourLoop<'a>,
    /// 1 for the longest detour of the CPU.
    rank: u64,
    whole: &'a WholeDetour,
}

impl<'a> Longest<'a> {
    /// The longest detours of all CPUs, in the order of CPUs and ranks.
    fn all(samples: &'a [NoiseSample]) -> impl Iterator<Item = Longest<'a>> {
        detour_loops(samples).into_iter().flat_map(|detour_loop| {
            let ranked = (1..).zip(detour_loop.ledger.longest.sorted());
            ranked.map(move |(rank, whole)| Longest { detour_loop, rank, whole })
        })
    }

    /// Start of the detour from the opening of the window, ns.
    fn start_ns(&self) -> u64 {
        self.detour_loop.since_opening_ns(self.whole.detour.gap.start_ns)
    }

    /// Time of a class in the detour, ns. `None` if the bench does not know it.
    fn class_ns(&self, class: Class) -> Option<u64> {
        let sums = self.detour_loop.sample.traced.map(|_| self.whole.detour.by_class_ns);
        class_ns(class, sums, &self.detour_loop)
    }

    fn kind_and_name(&self, part: Part) -> Option<(&str, String)> {
        kind_and_name(part, &self.detour_loop.sample.names)
    }

    /// Kind and name of the largest cause.
    fn largest_cause(&self) -> Option<(&str, String)> {
        self.kind_and_name(self.whole.main()?.0)
    }
}

/// The longest detours, to mark them in the flight record.
pub fn marked_detours(samples: &[NoiseSample]) -> Vec<Marked> {
    let detours = Longest::all(samples).map(|longest| Marked {
        cpu: longest.detour_loop.cpu.cpu,
        start_ns: longest.whole.detour.gap.start_ns,
        length_ns: longest.whole.detour.gap.length_ns(),
        kind: "detour",
        name: longest.largest_cause().map(|(_, name)| name),
    });
    detours.collect()
}

/// The columns that identify a detour.
fn key_columns<'a>() -> Columns<'a, Longest<'a>> {
    Columns::all([
        cpu_column(100).of(|longest: &Longest<'_>| longest.detour_loop.cpu.cpu),
        column("rank", "1: the longest detour of the CPU, 2: the next.")
            .priority(90)
            .uint(|longest: &Longest<'_>| longest.rank),
    ])
}

/// Table `longest`. It has all of the longest detours, even those that the sample in table `detours` lacks.
pub fn longest(samples: &[NoiseSample]) -> Table {
    let us_column = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let class = |class: Class| move |longest: &Longest<'_>| longest.class_ns(class);
    let columns = key_columns().and([
        us_column("length_ns", "Length of the detour.")
            .shown_as("length", 98)
            .uint(|longest: &Longest<'_>| longest.whole.detour.gap.length_ns()),
        column("start_ns", "Start of the detour, from the opening of the window.")
            .format(Format::Milliseconds)
            .shown_as("start", 80)
            .uint(Longest::start_ns),
        column("largest_kind", "Kind of the largest cause; unattributed if the host or the firmware took more than half.")
            .shown_as("kind", 70)
            .text(|longest: &Longest<'_>| longest.largest_cause().map(|(kind, _)| kind.to_owned())),
        column("largest_name", "Name of the largest cause: a context or a task, unless the host or the firmware took more than half.")
            .shown_as("largest cause", 97)
            .text(|longest: &Longest<'_>| longest.largest_cause().map(|(_, name)| name)),
        us_column("largest_ns", "Time of that cause in the detour.")
            .shown_as("largest part", 96)
            .uint(|longest: &Longest<'_>| longest.whole.main().map(|main| main.1)),
        cause_columns("trigger", "context of the detour's first kernel event").of(
            |longest: &Longest<'_>| {
                (longest.whole.detour.trigger, longest.detour_loop.sample.names.as_slice())
            },
        ),
        us_column("attributed_ns", "Part that kernel events attribute to contexts and tasks.")
            .shown_as("attributed", 55)
            .uint(class(Class::Named)),
        us_column("entry_exit_ns", "Part attributed to kernel entry and exit.")
            .shown_as("entry/exit", 35)
            .uint(class(Class::Path)),
        us_column("unattributed_ns", "Part that the host or the firmware took, by elimination.")
            .shown_as("unattributed", 50)
            .uint(class(Class::Unattributed)),
        us_column("remainder_ns", "Part that is not explained; all parts add up to length_ns.")
            .shown_as("remainder", 40)
            .uint(class(Class::Remainder)),
        us_column("indirect_ns", "Part that is the loop's own time, because of colder caches.")
            .shown_as("indirect", 30)
            .uint(class(Class::Aftermath)),
        column("part_count", "Rows of the detour in table longest_parts.")
            .detail()
            .uint(|longest: &Longest<'_>| longest.whole.parts.len() + longest.whole.later.len()),
        column("start_utc", "Start of the detour in UTC, by the system clock. Absent on sim.")
            .shown_as("UTC", 10)
            .text(|longest: &Longest<'_>| {
                let clock = longest.detour_loop.sample.wall_clock?;
                clock.utc(longest.whole.detour.gap.start_ns)
            }),
        column(
            "start_utc_error_max_ns",
            "Largest error of start_utc by the difference of the clocks; the system clock's own error is not known.",
        )
        .detail()
        .uint(|longest: &Longest<'_>| {
            longest.detour_loop.sample.wall_clock.map(|clock| clock.error_max_ns)
        }),
    ]);
    let display = TableDisplay {
        title: "the longest detours".to_owned(),
        headline: "longest: {length_ns} on CPU {cpu}, {largest_ns} of it {largest_kind} \
                   {largest_name}"
            .to_owned(),
        sort_by: Some("length_ns".to_owned()),
        rows_max: Some(SHOWN),
        ..TableDisplay::default()
    };
    let doc = "The longest detours of each CPU (--keep-longest), of all that were recorded: \
               lost_record_count in table noise says how many were dropped.";
    columns.table("longest", doc, Longest::all(samples)).displayed(display)
}

/// Table `longest_parts`: the parts of the longest detours. The parts of a detour add up to its length, to the
/// nanosecond.
pub fn longest_parts(samples: &[NoiseSample]) -> Table {
    struct Row<'a> {
        longest: Longest<'a>,
        part: Part,
        length_ns: u64,
        /// Start of the part from the opening of the window, ns. `None` for the sum of several parts.
        start_ns: Option<u64>,
    }
    impl Row<'_> {
        fn kind_and_name(&self) -> Option<(&str, String)> {
            self.longest.kind_and_name(self.part)
        }

        fn start_utc(&self) -> Option<String> {
            let DetourLoop { sample, .. } = self.longest.detour_loop;
            sample.wall_clock?.utc(sample.opened_ns().checked_add(self.start_ns?)?)
        }
    }
    let columns = Columns::all([
        key_columns().of(|row: &Row<'_>| row.longest),
        column(
            "start_ns",
            "Start of the part, from the opening of the window. On sim, it is late by up to one \
             iteration of the loop, which is no part of a detour. Blank: the sum of all later parts \
             of this cause, in a detour of very many parts.",
        )
        .digits(9)
        .uint(|row: &Row<'_>| row.start_ns),
        column("length_ns", "Length of the part.").uint(|row: &Row<'_>| row.length_ns),
        column("start_utc", "start_ns in UTC, by the system clock. Absent on sim. Error: see table longest.")
            .shown_as("UTC", 10)
            .text(Row::start_utc),
        column("class", "Class of the time, as in table causes.")
            .text(|row: &Row<'_>| row.part.class().label()),
        column("kind", "Kind of the cause, as in table causes.")
            .text(|row: &Row<'_>| row.kind_and_name().map(|(kind, _)| kind.to_owned())),
        column("name", "Name of the cause, as in table causes.")
            .text(|row: &Row<'_>| row.kind_and_name().map(|(_, name)| name)),
    ]);
    let rows = Longest::all(samples).flat_map(|longest| {
        let mut next_start_ns = longest.start_ns();
        let parts_in_time = longest.whole.parts.iter().map(move |&(part, length_ns)| {
            let start_ns = Some(next_start_ns);
            next_start_ns += length_ns;
            Row { longest, part, length_ns, start_ns }
        });
        let sums = longest.whole.later.iter();
        let later_sums =
            sums.map(move |&(part, length_ns)| Row { longest, part, length_ns, start_ns: None });
        parts_in_time.chain(later_sums)
    });
    let doc = "The parts of the detours in table longest, in the order of time: the first ones of \
               each (at most 4,096), then sums. The parts of a detour add up to it exactly.";
    columns.table("longest_parts", doc, rows).displayed(no_rows())
}
