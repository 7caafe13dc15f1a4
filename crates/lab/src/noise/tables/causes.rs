//! Table `causes`: the causes of the time that CPUs lost in detours.

use record::{Columns, Format, Keep, RowFilter, Table, TableDisplay, column};
use stats::Distribution;

use super::super::sample::{ContextName, NoiseSample};
use super::super::split::Part;
use super::{DetourLoop, all_rows, cpu_column, detour_loops, kind_and_name, rate_hz, ratio};
use crate::quantiles::{interval_link, p50_p99_interval_columns};

/// A row of table `causes`: one cause in the detours of a loop.
struct Row<'a> {
    detours: DetourLoop<'a>,
    part: Part,
    /// The times of the cause in the detours that contain it, ns.
    times: &'a Distribution,
}

impl Row<'_> {
    fn kind_and_name(&self) -> Option<(&str, String)> {
        kind_and_name(self.part, &self.detours.sample.names)
    }

    /// Kind and name, in words that are the same in all runs of the same programs.
    fn stable_kind_and_name(&self) -> Option<(&str, String)> {
        match self.part {
            Part::Context(number) => {
                let name = self.detours.sample.names.get(number as usize);
                name.map(ContextName::stable_kind_and_name)
            }
            _ => self.kind_and_name(),
        }
    }
}

/// The column of causes with their senders' processes and CPUs.
fn sender_column<'a>() -> Columns<'a, Row<'a>> {
    let doc = "The cause as in name; an interrupt with the process and the CPUs of its sender.";
    column("cause", doc)
        .shown_as("cause", 101)
        .text(|row: &Row<'_>| row.kind_and_name().map(|(_, name)| name))
}

/// `has_senders`: whether causes name senders.
fn columns<'a>(has_senders: bool) -> Columns<'a, Row<'a>> {
    let name = if has_senders { ("name", 30) } else { ("cause", 100) };
    let columns = Columns::all([
        cpu_column(100).of(|row: &Row<'_>| row.detours.cpu.cpu),
        column(
            "class",
            "Class of the time: attributed, entry/exit, unattributed (host or firmware), \
             remainder or indirect (see table noise).",
        )
        .priority(95)
        .key()
        .text(|row: &Row<'_>| row.part.class().label()),
        column(
            "kind",
            "Kind of the cause: irq, vector, softirq, nmi, exception or task; on sim also syscall \
             and idle. Without a kernel event: the class.",
        )
        .priority(80)
        .key()
        .text(|row: &Row<'_>| row.kind_and_name().map(|(kind, _)| kind.to_owned())),
        column(
            "name",
            "Name of the context, as the kernel gives it, or of the task. With --senders, an interrupt from another CPU has \
             its sender, too: the task's name, and why it sent.",
        )
        .shown_as(name.0, name.1)
        .key()
        .text(|row: &Row<'_>| row.stable_kind_and_name().map(|(_, name)| name)),
        column("detour_count", "Detours with time of this cause.")
            .shown_as("detours", 70)
            .uint(|row: &Row<'_>| row.times.count),
        column("rate_hz", "Detours with time of this cause, per second of the window.")
            .priority(40)
            .real(|row: &Row<'_>| rate_hz(row.times.count, row.detours.cpu.window_ns)),
        column("total_ns", "Self time of the cause in all detours (without nested causes). Exact.")
            .format(Format::Milliseconds)
            .priority(60)
            .uint(|row: &Row<'_>| row.times.sum),
        column("cpu_ratio", "Share of the CPU: total_ns over the length of the window.")
            .shown_as("CPU", 85)
            .cpu_share()
            .real(|row: &Row<'_>| ratio(row.times.sum, row.detours.cpu.window_ns)),
        column(
            "lost_ratio",
            "Share of the lost time: total_ns over the time in all detours. The rows of a CPU add \
             up to 1.",
        )
        .shown_as("of lost time", 98)
        .real(|row: &Row<'_>| ratio(row.times.sum, row.detours.ledger.gaps.sum)),
        column("p50_ns", "Median time of the cause in a detour; exact within 1/16.")
            .interval(interval_link("p50_ns"))
            .format(Format::Microseconds)
            .priority(50)
            .uint(|row: &Row<'_>| row.times.quantile(50_000)),
        column("p99_ns", "99th percentile of the cause's time in a detour; exact within 1/16.")
            .interval(interval_link("p99_ns"))
            .format(Format::Microseconds)
            .priority(65)
            .uint(|row: &Row<'_>| row.times.quantile(99_000)),
        column("max_ns", "Longest time of the cause in one detour; exact.")
            .format(Format::Microseconds)
            .priority(75)
            .uint(|row: &Row<'_>| row.times.peak.value),
        p50_p99_interval_columns(["p50_ns", "p99_ns"]).of_ref(|row: &Row<'_>| row.times),
    ]);
    if has_senders { columns.and([sender_column()]) } else { columns }
}

/// Table `causes`: one row per CPU and cause. For each CPU, the largest cause comes first.
pub fn causes(samples: &[NoiseSample]) -> Table {
    let doc =
        "The causes of the lost time: the rows of all detours' causes add up to lost_ns exactly.";
    let filter = RowFilter {
        column: "lost_ratio".to_owned(),
        keep: Keep::AtLeast(0.001),
        others: "below a thousandth of the lost time".to_owned(),
    };
    let has_senders = samples.iter().any(|sample| sample.names.iter().any(ContextName::is_sent));
    let name = if has_senders { "cause" } else { "name" };
    let display = TableDisplay {
        headline: format!(
            "largest: {{kind}} {{{name}}}, {{cpu_ratio}} of CPU time, {{lost_ratio}} of the lost time, {{detour_count}} \
             detours"
        ),
        group_by: vec!["cpu".to_owned()],
        sort_by: Some("total_ns".to_owned()),
        filter: Some(filter),
        ..all_rows()
    };
    let rows = detour_loops(samples).into_iter().flat_map(|detours| {
        let mut parts: Vec<_> = detours.ledger.parts.iter().collect();
        parts.sort_by_key(|(_, times)| std::cmp::Reverse(times.sum));
        parts.into_iter().map(move |(part, times)| Row { detours, part: *part, times })
    });
    columns(has_senders).table("causes", doc, rows).displayed(display)
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};

    use super::*;
    use crate::noise::{
        CpuNoise, Gap, GapLedger, InterruptSender, KeepDetours, Loop, LoopResult, Processes,
        SentInterrupt,
    };

    /// Two senders of one vector have a row each, and the rows add up to the lost time.
    #[test]
    fn senders_split_the_row_of_their_vector_and_change_no_sum() {
        let mut ledger = GapLedger::new(Default::default(), KeepDetours::with_seed(1));
        let parts = [(Part::Context(0), 300), (Part::Context(1), 200), (Part::Tail, 11)];
        ledger.add_split(Gap { start_ns: 0, end_ns: 511 }, &mut parts.to_vec());
        let cpu = CpuNoise::new(1, 0, 1_000, LoopResult::Gaps(Box::new(ledger)));
        let mut sample = NoiseSample::in_exact_clock(Loop::Detour, vec![cpu]);
        let context =
            Context { kind: ContextKind::Vector, number: 5, name: "call_function".to_owned() };
        let sender = InterruptSender::Known {
            name: "dotnet".to_owned(),
            processes: Processes::One(812),
            reason: Some("membarrier".to_owned()),
            cpus: vec![0],
        };
        let sent = |sender| ContextName::Sent(SentInterrupt { context: context.clone(), sender });
        sample.names = vec![sent(sender), sent(InterruptSender::Others)];
        let table = causes(&[sample]);
        assert_eq!(table.check_display(), Ok(()));
        assert!(table.display.headline.contains("{cause}"));
        let cells = |column: &str| {
            let cells = table.rows().iter().map(|row| table.get(row, column).cloned());
            cells.map(Option::unwrap).collect::<Vec<_>>()
        };
        let text = record::Value::from;
        assert_eq!(
            cells("name"),
            [
                text("call_function from dotnet (membarrier)"),
                text("call_function from other senders"),
                text("after the last event")
            ]
        );
        let label = "call_function from dotnet[812] (membarrier) on CPU 0";
        assert_eq!(cells("cause")[0], text(label));
        assert_eq!(cells("total_ns"), [300_u64, 200, 11].map(record::Value::from));
    }
}
