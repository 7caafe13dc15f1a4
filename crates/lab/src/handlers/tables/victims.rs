//! Table `victims`: who pays for interrupts, and who causes them. Users' programs read the columns: names and order must
//! not change.

use record::{Columns, Format, Table, TableDisplay, column};

use super::super::samples::ConditionSamples;
use super::super::victims::{Cgroup, VICTIMS, VictimStats, has_victim};
use super::{condition_column, display};

/// A victim and a cause of a context in a condition.
struct Row<'a> {
    condition: String,
    by: &'a str,
    stats: &'a VictimStats,
    /// Self time of all rows of the condition, ns.
    all_ns: u64,
    /// Sum of the window's lengths over the measured CPUs, ns.
    cpu_time_ns: u64,
}

impl Row<'_> {
    fn share_of(&self, whole_ns: u64) -> Option<f64> {
        (whole_ns > 0).then(|| self.stats.self_total_ns as f64 / whole_ns as f64)
    }
}

/// The path of a group; `None` for a party that is no group, or has no path.
fn path(cgroup: Option<&Cgroup>) -> Option<String> {
    cgroup?.path.clone()
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    let name = "a task's name, or the path of a control group, or the short name of its container.";
    Columns::all([
        condition_column(50).of_ref(|row: &Row<'_>| &row.condition),
        column("victim_kind", "Who pays: task, cgroup, idle (nobody pays), other or unknown.")
            .detail()
            .key()
            .text(|row: &Row<'_>| row.stats.victim.kind()),
        column(
            "victim",
            &format!(
                "Who pays: the task that the CPU ran when the span ended, or its group: {name} (idle): the CPU had \
                 nothing to run. (other): all victims that found no free place, with all their causes."
            ),
        )
        .priority(100)
        .key()
        .text(|row: &Row<'_>| row.stats.victim.name()),
        column("cause_kind", "Who causes: task, cgroup, idle or unknown.")
            .detail()
            .key()
            .text(|row: &Row<'_>| row.stats.cause.kind()),
        column(
            "cause",
            &format!("Who causes the interrupt, if the kernel says so: {name} (unknown): the kernel does not say."),
        )
        .priority(99)
        .key()
        .text(|row: &Row<'_>| row.stats.cause.name()),
        column(
            "kind",
            "Kind of context: irq, vector or softirq; with --callbacks also hrtimer, timer and tasklet, all functions \
             together. Absent for contexts that share a row (other).",
        )
        .priority(75)
        .key()
        .text(|row: &Row<'_>| row.stats.context.as_ref().map(|context| context.kind.label())),
        column("number", "IRQ number, index of the vector or softirq number.")
            .detail()
            .key()
            .uint(|row: &Row<'_>| row.stats.context.as_ref().map(|context| context.number)),
        column("name", "Name of the context, as in table handlers; all handlers of an IRQ line together.")
            .prefixed("number", "kind", "irq")
            .priority(98)
            .key()
            .text(|row: &Row<'_>| row.stats.context.as_ref().map(|context| context.name.clone())),
        column("count", "Spans. A span with several causes counts in the row of each.")
            .priority(90)
            .uint(|row: &Row<'_>| row.stats.count),
        column(
            "self_total_ns",
            "Self time of these spans. A span's causes share its time by the number of their events in it. The times of \
             all rows of a context add up to its self_total_ns in table handlers, but for spans shorter than the probe \
             overhead: they count as 0 here, and as negative times there.",
        )
        .shown_as("total", 97)
        .format(Format::Milliseconds)
        .cost()
        .uint(|row: &Row<'_>| row.stats.self_total_ns),
        column("share_ratio", "self_total_ns over the self time of all rows of the condition.")
            .shown_as("share", 95)
            .real(|row: &Row<'_>| row.share_of(row.all_ns)),
        column("self_cpu_ratio", "self_total_ns over the open time of all measured CPUs.")
            .shown_as("CPU", 96)
            .cpu_share()
            .real(|row: &Row<'_>| row.share_of(row.cpu_time_ns)),
        column("victim_cgroup", "Path of the victim's control group. Absent if the group was removed, and for tasks.")
            .detail()
            .text(|row: &Row<'_>| path(row.stats.victim.cgroup())),
        column("victim_cgroup_id", "The kernel's id of that group.")
            .detail()
            .uint(|row: &Row<'_>| row.stats.victim.cgroup().map(|cgroup| cgroup.id)),
        column("cause_cgroup", "Path of the cause's control group. Absent if the group was removed, and for tasks.")
            .detail()
            .text(|row: &Row<'_>| path(row.stats.cause.cgroup())),
        column("cause_cgroup_id", "The kernel's id of that group.")
            .detail()
            .uint(|row: &Row<'_>| row.stats.cause.cgroup().map(|cgroup| cgroup.id)),
        column("by", "What victims and causes are: names of tasks, or groups of a hierarchy of control groups.")
            .detail()
            .text(|row: &Row<'_>| row.by.to_owned()),
        column("cause_method", "How the causes of this context are found. Absent if they are not: all are unknown.")
            .detail()
            .text(|row: &Row<'_>| row.stats.cause_method),
    ])
}

fn rows_of(condition: &ConditionSamples) -> impl Iterator<Item = Row<'_>> {
    let victims = condition.timing.victims.iter();
    let cpu_time_ns = condition.timing.cpu_time_ns();
    victims.flat_map(move |victims| {
        let all_ns = victims.rows.iter().map(|stats| stats.self_total_ns).sum();
        victims.rows.iter().map(move |stats| Row {
            condition: condition.condition.label(),
            by: &victims.by,
            stats,
            all_ns,
            cpu_time_ns,
        })
    })
}

/// A note of the time that all rows have too much, because they count spans shorter than the probe overhead as 0. `None`
/// if no span is shorter.
fn note_of_clamped_spans(measured: &[ConditionSamples]) -> Option<String> {
    let contexts = measured
        .iter()
        .filter(|condition| condition.timing.victims.is_some())
        .flat_map(|condition| &condition.timing.contexts);
    let clamped_ns: u64 = contexts
        .filter(|stats| has_victim(stats.context.kind))
        .map(|stats| stats.clamped_total_ns)
        .sum();
    (clamped_ns > 0).then(|| {
        let clamped_us = clamped_ns.div_ceil(1_000);
        format!(
            "all rows together have {clamped_us} µs more than these contexts in table handlers: a span shorter than the \
             probe overhead counts as 0 here"
        )
    })
}

/// Table `victims`: one row for each victim, cause and context, over all CPUs.
pub fn victims(measured: &[ConditionSamples]) -> Table {
    let doc = "One row per victim, cause and context, over all CPUs: the time that the interrupts and softirqs of one \
               cause take from one victim.";
    let victims =
        "victim: who ran when the interrupt came; cause: who made it come, where the kernel says so".to_owned();
    let display = TableDisplay {
        sort_by: Some("self_total_ns".to_owned()),
        notes: [victims].into_iter().chain(note_of_clamped_spans(measured)).collect(),
        ..display("who pays for interrupts, and who causes them")
    };
    columns().table(VICTIMS, doc, measured.iter().flat_map(rows_of)).displayed(display)
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};

    use super::super::super::condition::Condition;
    use super::super::super::sample::{ContextStats, Timing, WindowSample};
    use super::super::super::victims::Victims;
    use super::*;

    #[test]
    fn a_note_states_what_short_spans_add_to_the_rows() {
        let notes_of = |kind, clamped_total_ns| {
            let context = Context { kind, number: 0, name: "local_timer".to_owned() };
            let stats = ContextStats {
                clamped_total_ns,
                ..ContextStats::new(0, context, Timing::Probes, 9)
            };
            let timing = WindowSample {
                contexts: vec![stats],
                victims: Some(Victims { by: "task".to_owned(), rows: Vec::new() }),
                ..WindowSample::default()
            };
            let condition = Condition::Ambient;
            victims(&[ConditionSamples { condition, timing, events: Vec::new() }]).display.notes
        };
        assert!(
            notes_of(ContextKind::Vector, 1_500).iter().any(|note| note.contains(" 2 µs more "))
        );
        let plain = notes_of(ContextKind::Vector, 0);
        assert_eq!(plain, notes_of(ContextKind::Work, 1_500), "work items have no victims");
    }
}
