//! Victims and causes of interrupts in a simulated machine. The victim is the task at the bottom of the CPU's stack of contexts
//! when a span ends. Causes are the tasks that sent the interrupt, as `senders.rs` has them.

use std::collections::BTreeMap;

use attribution::{Context, KernelContext};
use lab::experiment::Absence;
use lab::handlers::{Party, VICTIMS, VictimStats, Victims, has_victim};

use super::causes::{Causes, cause_method};
use crate::Accounting;
use crate::accounting::{CpuUse, SendersUse};
use crate::contexts::context_of;

/// Parts of the table that are absent in a simulated machine, with the reasons.
pub(super) fn absent_of_victims() -> Vec<Absence> {
    let groups = ("control groups", "the simulator knows tasks, but not their groups");
    let causes = (
        "causes of device interrupts and softirqs",
        "the simulator does not follow who makes requests or owns sockets",
    );
    let absences = [causes, groups].map(|(subject, reason)| Absence::new(VICTIMS, subject, reason));
    absences.into_iter().collect()
}

/// The victims and causes of all spans on these CPUs. `ns` converts cycles.
pub(super) fn victims_of<'a>(
    cpus: impl Iterator<Item = &'a CpuUse>,
    senders: &SendersUse,
    accounting: &Accounting,
    ns: impl Fn(u64) -> u64,
) -> Victims {
    let mut sums: BTreeMap<(Party, Party, Context), (u64, u64)> = BTreeMap::new();
    for cpu in cpus {
        let causes = Causes::on_cpu(cpu, senders);
        for (index, span) in cpu.spans.iter().enumerate() {
            let Some(context) = interrupt_of(span.context, accounting) else { continue };
            let changes = &cpu.transitions;
            let after = changes.partition_point(|change| change.at_cycles <= span.ended_at_cycles);
            let task = after.checked_sub(1).map(|last| changes[last].task);
            let victim = party_of(task.unwrap_or(KernelContext::Unknown), accounting);
            for (cause, self_ns) in causes.divide(index, ns(span.self_cycles)) {
                let key = (victim.clone(), cause, context.clone());
                let (count, sum_ns) = sums.entry(key).or_default();
                *count += 1;
                *sum_ns += self_ns;
            }
        }
    }
    let rows = sums.into_iter().map(|((victim, cause, context), (count, self_total_ns))| {
        let cause_method = cause_method(&context);
        let context = Some(context);
        VictimStats { victim, cause, context, count, self_total_ns, cause_method }
    });
    Victims { by: "name of the task".to_owned(), rows: rows.collect() }
}

/// The context of a span that has a victim. All functions of a kind are one context, as on the live bench.
fn interrupt_of(context: KernelContext, accounting: &Accounting) -> Option<Context> {
    let context = match context {
        KernelContext::Callback(kind, _) => Context { kind, number: 0, name: "(all)".to_owned() },
        _ => context_of(context, accounting)?,
    };
    has_victim(context.kind).then_some(context)
}

fn party_of(task: KernelContext, accounting: &Accounting) -> Party {
    match task {
        KernelContext::Idle => Party::Idle,
        KernelContext::User(pid) | KernelContext::Task(pid) | KernelContext::KernelThread(pid) => {
            let name = accounting.tasks.get(&pid).filter(|name| !name.is_empty());
            Party::Task(name.cloned().unwrap_or_else(|| format!("task {pid}")))
        }
        _ => Party::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;

    use super::*;
    use crate::accounting::{ContextTransition, SpanUse};

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
            ..CpuUse::default()
        };
        let tasks = BTreeMap::from([(5, "make".to_owned())]);
        let accounting = Accounting { tasks, ..Accounting::default() };
        let senders = SendersUse::default();
        let victims = victims_of([&cpu].into_iter(), &senders, &accounting, |cycles| cycles * 2);
        let found: Vec<_> = victims
            .rows
            .iter()
            .map(|row| (row.victim.name(), row.count, row.self_total_ns))
            .collect();
        let expected = [("make", 1, 4), ("(idle)", 1, 8), ("(unknown)", 1, 2)];
        assert_eq!(found, expected.map(|(name, count, ns)| (name.to_owned(), count, ns)));
    }
}
