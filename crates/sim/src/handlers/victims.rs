//! Victims and causes of interrupts in a simulated machine. The victim is the task at the bottom of the CPU's stack of contexts
//! when a span ends, or the task's control group. `causes.rs` finds the causes.

use std::collections::{BTreeMap, BTreeSet};

use attribution::{Context, KernelContext};
use lab::experiment::Absence;
use lab::handlers::{Party, VICTIMS, VictimStats, Victims, VictimsBy, has_victim};

use super::causes::{Causes, cause_method};
use super::parties::Parties;
use crate::Accounting;
use crate::accounting::CpuUse;
use crate::contexts::context_of;

/// Parts of the table that are absent in a simulated machine, with the reasons.
pub(super) fn absent_of_victims() -> Vec<Absence> {
    let subject = "causes of interrupts of network cards, timers and softirqs other than BLOCK";
    let reason = "the simulator does not follow who owns sockets, sets timers or raises softirqs";
    vec![Absence::new(VICTIMS, subject, reason)]
}

/// The victims and causes of all spans on these CPUs of the region of `parties`. `ns` converts cycles.
pub(super) fn victims_of<'a>(
    cpus: impl Iterator<Item = &'a CpuUse>,
    parties: &Parties<'_>,
    ns: impl Fn(u64) -> u64,
) -> Victims {
    let mut sums: BTreeMap<(Party, Party, Context), (u64, u64)> = BTreeMap::new();
    let mut with_requests: BTreeSet<Context> = BTreeSet::new();
    for cpu in cpus {
        let causes = Causes::on_cpu(cpu, parties);
        for (index, span) in cpu.spans.iter().enumerate() {
            let Some(context) = interrupt_of(span.context, parties.accounting) else { continue };
            if causes.completes_requests(index) {
                with_requests.insert(context.clone());
            }
            let changes = &cpu.transitions;
            let after = changes.partition_point(|change| change.at_cycles <= span.ended_at_cycles);
            let task = after.checked_sub(1).map(|last| changes[last].task);
            let task = task.unwrap_or(KernelContext::Unknown);
            let victim = parties.victim(cpu, task, span.ended_at_cycles);
            for (cause, self_ns) in causes.divide(index, ns(span.self_cycles)) {
                let key = (victim.clone(), cause, context.clone());
                let (count, sum_ns) = sums.entry(key).or_default();
                *count += 1;
                *sum_ns += self_ns;
            }
        }
    }
    let rows = sums.into_iter().map(|((victim, cause, context), (count, self_total_ns))| {
        let cause_method = cause_method(&context, with_requests.contains(&context));
        let context = Some(context);
        VictimStats { victim, cause, context, count, self_total_ns, cause_method }
    });
    Victims { by: parties.label().to_owned(), rows: rows.collect() }
}

/// The kernel's id of the group at the root of a hierarchy.
const ROOT: u64 = 1;

/// A warning if all tasks are in the root group, so that the table tells no groups apart.
pub(super) fn root_warning(by: VictimsBy, victims: &Victims) -> Option<String> {
    let groups = || victims.rows.iter().flat_map(|row| [&row.victim, &row.cause]);
    let mut groups = groups().filter_map(Party::cgroup).peekable();
    let has_only_root = groups.peek().is_some() && groups.all(|group| group.id == ROOT);
    (by == VictimsBy::Cgroup && has_only_root).then(|| {
        "table victims: all tasks are in the root group, because the guest has mounted no cgroup v2, or has made no \
         groups in it"
            .to_owned()
    })
}

/// The context of a span that has a victim. All functions of a kind are one context, as on the live bench.
fn interrupt_of(context: KernelContext, accounting: &Accounting) -> Option<Context> {
    let context = match context {
        KernelContext::Callback(kind, _) => Context { kind, number: 0, name: "(all)".to_owned() },
        _ => context_of(context, accounting)?,
    };
    has_victim(context.kind).then_some(context)
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;

    use super::*;
    use crate::accounting::{ContextTransition, GroupChange, RegionUse, SpanUse};

    #[test]
    fn the_victim_is_the_task_at_the_bottom_of_the_stack_when_the_span_ends() {
        let timer = KernelContext::Interrupt(0xec);
        let span = |context, ended_at_cycles, self_cycles| SpanUse {
            context,
            ended_at_cycles,
            self_cycles,
            inclusive_cycles: self_cycles,
            self_instructions: 0,
        };
        let change = |task, at_cycles| ContextTransition {
            context: task,
            task,
            at_cycles,
            cycles: at_cycles,
            tsc: at_cycles,
        };
        let function = KernelContext::Callback(ContextKind::Work, 7);
        let cpu = CpuUse {
            spans: vec![
                span(timer, 9, 1),
                span(timer, 20, 2),
                span(timer, 40, 4),
                span(function, 41, 8),
            ],
            transitions: vec![change(KernelContext::User(5), 10), change(KernelContext::Idle, 30)],
            groups: vec![GroupChange { at_cycles: 15, tsc: 15, group: 7 }],
            ..CpuUse::default()
        };
        let tasks = BTreeMap::from([(5, "make".to_owned())]);
        let group_paths = BTreeMap::from([(7, "/lab/a".to_owned())]);
        let accounting = Accounting { tasks, group_paths, ..Accounting::default() };
        let region = RegionUse::default();
        let found = |naming| -> Vec<(String, u64, u64)> {
            let parties = Parties { by: naming, accounting: &accounting, region: &region };
            let victims = victims_of([&cpu].into_iter(), &parties, |cycles| cycles * 2);
            let row = |row: &VictimStats| (row.victim.name(), row.count, row.self_total_ns);
            victims.rows.iter().map(row).collect()
        };
        let named = |rows: [(&str, u64, u64); 3]| rows.map(|row| (row.0.to_owned(), row.1, row.2));
        let tasks = named([("make", 1, 4), ("(idle)", 1, 8), ("(unknown)", 1, 2)]);
        assert_eq!(found(VictimsBy::Task), tasks);
        let groups = named([("/lab/a", 1, 4), ("(idle)", 1, 8), ("(unknown)", 1, 2)]);
        assert_eq!(found(VictimsBy::Cgroup), groups);
    }
}
