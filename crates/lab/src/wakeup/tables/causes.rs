//! Table `causes`: why the threads ran late, summed up over the wake-ups.

use record::{Columns, Format, Keep, RowFilter, Table, TableDisplay, column};
use stats::Distribution;

use super::{Class, Thread, all_rows, cpu_column, ratio, us_column};
use crate::noise::ContextName;
use crate::quantiles::interval_link;
use crate::wakeup::sample::WakeupSample;
use crate::wakeup::split::{Part, Running};

/// Table `causes`: one row per CPU, stage and cause. For each CPU, the largest cause comes first.
pub(in crate::wakeup) fn causes(sample: &WakeupSample) -> Table {
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
            "largest: {{class}}: {{kind}} {{{}}} ({{stage}}), {{late_ratio}} of the lateness, {{worst_ratio}} of that of the worst \
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
