//! Converts the senders of a simulated machine to the rows of table `senders`, with the names of the live bench.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::handlers::{
    CallType, Sender, SenderCounts, SenderEvent, SenderKey, SenderMethod, SenderStats,
};
use simrecord::record::SentKind;

use crate::Symbols;
use crate::accounting::{Accounting, QueuedRunUse, SendersUse, SentUse};
use crate::contexts::context_of;
use crate::timeline::called_function;

/// Names of the addresses and contexts of a machine.
pub(super) struct MachineNames<'a> {
    pub(super) accounting: &'a Accounting,
    pub(super) symbols: Option<&'a Symbols>,
}

impl MachineNames<'_> {
    /// The function at an address, or around it.
    fn function(&self, address: u64) -> String {
        match self.symbols {
            Some(symbols) => symbols.code_name(address),
            None => format!("{address:#x}"),
        }
    }

    fn sender(&self, sent: &SentUse) -> Sender {
        match sent.sender {
            KernelContext::Task(_) if !sent.task.is_empty() => Sender::Task(sent.task.clone()),
            KernelContext::Task(_) => Sender::Unknown,
            KernelContext::Unknown => Sender::UnknownInterrupt("interrupt"),
            context => match context_of(context, self.accounting) {
                Some(mut context) => {
                    if let KernelContext::Irq(line) = sent.sender {
                        context.name = format!("{line} {}", context.name);
                    }
                    Sender::Interrupt(context)
                }
                None => Sender::Unknown,
            },
        }
    }

    fn key(&self, sent: &SentUse) -> SenderKey {
        let event = event_of(sent.kind);
        let function = matches!(event, SenderEvent::Call(_))
            .then(|| called_function(sent.function, self.symbols));
        let call_site = (sent.call_site != 0).then(|| self.function(sent.call_site));
        SenderKey { event, function, sender: self.sender(sent), call_site }
    }
}

fn event_of(kind: SentKind) -> SenderEvent {
    match kind {
        SentKind::AsynchronousCall => SenderEvent::Call(CallType::Asynchronous),
        SentKind::SynchronousCall => SenderEvent::Call(CallType::Synchronous),
        SentKind::IrqWorkCall => SenderEvent::Call(CallType::IrqWork),
        SentKind::WakeUpCall => SenderEvent::Call(CallType::WakeUp),
        SentKind::Reschedule => SenderEvent::Interrupt(Some("reschedule")),
        SentKind::CallFunctionSingle => SenderEvent::Interrupt(Some("call_function_single")),
        SentKind::CallFunction => SenderEvent::Interrupt(Some("call_function")),
        SentKind::IrqWork => SenderEvent::Interrupt(Some("irq_work")),
    }
}

/// The senders of a region. `is_measured`: whether a CPU is measured. `ns` converts cycles.
pub(super) fn senders_of(
    senders: &SendersUse,
    names: &MachineNames<'_>,
    is_measured: impl Fn(u32) -> bool,
    ns: impl Fn(u64) -> u64,
) -> Vec<SenderStats> {
    let mut by_key: BTreeMap<SenderKey, SenderCounts> = BTreeMap::new();
    for sent in senders.sent.iter().filter(|sent| is_measured(sent.target)) {
        let counts = SenderCounts {
            count: 1,
            sender_cpus: vec![sent.cpu],
            target_cpus: vec![sent.target],
            ..sent
                .run
                .map_or_else(SenderCounts::default, |run| counts_of_sent(sent.kind, &run, &ns))
        };
        by_key.entry(names.key(sent)).or_default().add(&counts);
    }
    for run in senders.unjoined_runs.iter().filter(|run| is_measured(run.cpu)) {
        let key = SenderKey {
            event: SenderEvent::UnjoinedRun,
            function: Some(called_function(run.function, names.symbols)),
            sender: Sender::Unknown,
            call_site: None,
        };
        let target_cpus = vec![run.cpu];
        by_key.entry(key).or_default().add(&SenderCounts { target_cpus, ..counts_of(run, &ns) });
    }
    let stats = |(key, counts)| SenderStats { key, counts, method: SenderMethod::Simulator };
    by_key.into_iter().map(stats).collect()
}

/// The counts of a call or interrupt of this kind, from its run or start.
fn counts_of_sent(kind: SentKind, run: &QueuedRunUse, ns: impl Fn(u64) -> u64) -> SenderCounts {
    if kind.is_call() {
        return counts_of(run, ns);
    }
    let delay_ns = ns(run.delay_cycles);
    SenderCounts {
        handled_count: 1,
        delay_total_ns: delay_ns,
        delay_max_ns: delay_ns,
        ..SenderCounts::default()
    }
}

/// The counts of a run.
fn counts_of(run: &QueuedRunUse, ns: impl Fn(u64) -> u64) -> SenderCounts {
    let Some(cycles) = run.cycles else {
        return SenderCounts { unfinished_count: 1, ..SenderCounts::default() };
    };
    let (run_ns, delay_ns) = (ns(cycles), ns(run.delay_cycles));
    SenderCounts {
        run_count: 1,
        run_total_ns: run_ns.try_into().unwrap_or(i64::MAX),
        run_max_ns: run_ns,
        delay_total_ns: delay_ns,
        delay_max_ns: delay_ns,
        completion_total_ns: delay_ns.saturating_add(run_ns),
        completion_max_ns: delay_ns.saturating_add(run_ns),
        ..SenderCounts::default()
    }
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;

    use super::*;

    fn sent(kind: SentKind, sender: KernelContext, run: Option<(u64, Option<u64>)>) -> SentUse {
        let run = run.map(|(delay_cycles, cycles)| QueuedRunUse {
            cpu: 1,
            function: 0x1100,
            delay_cycles,
            at_cycles: 0,
            cycles,
            tsc: 0,
        });
        let task = if matches!(sender, KernelContext::Task(_)) { "make" } else { "" }.to_owned();
        let function = if kind.is_call() { 0x1100 } else { 0 };
        SentUse {
            kind,
            cpu: 0,
            target: 1,
            function,
            call_site: 0x2004,
            sender,
            task,
            process: 0,
            system_call: None,
            tsc: 0,
            run,
        }
    }

    #[test]
    fn rows_add_up_the_calls_of_a_sender_on_measured_cpus() {
        let symbols = Symbols::parse(b"1100 t ipi_mb\n2000 t membarrier\n2100 t end\n").unwrap();
        let accounting = Accounting::default();
        let names = MachineNames { accounting: &accounting, symbols: Some(&symbols) };
        let task = KernelContext::Task(7);
        let call = SentKind::SynchronousCall;
        let unmeasured = SentUse { target: 2, ..sent(call, task, None) };
        let senders = SendersUse {
            sent: vec![
                sent(call, task, Some((10, Some(4)))),
                sent(call, task, Some((30, Some(5)))),
                sent(call, KernelContext::Task(8), Some((1, None))),
                sent(SentKind::Reschedule, KernelContext::Softirq(7), Some((15, None))),
                sent(SentKind::Reschedule, KernelContext::Softirq(7), None),
                unmeasured,
            ],
            unjoined_runs: vec![QueuedRunUse {
                cpu: 1,
                function: 0,
                delay_cycles: 0,
                at_cycles: 0,
                cycles: Some(9),
                tsc: 0,
            }],
        };
        let rows = senders_of(&senders, &names, |cpu| cpu == 1, |cycles| cycles * 2);
        assert_eq!(rows.len(), 3, "{rows:?}");
        let calls = rows.iter().find(|row| row.key.event.label() == "call").unwrap();
        assert_eq!(calls.key.sender, Sender::Task("make".to_owned()), "tasks with this name");
        assert_eq!(calls.key.function.as_deref(), Some("ipi_mb"));
        assert_eq!(calls.key.call_site.as_deref(), Some("membarrier"));
        let counts = &calls.counts;
        assert_eq!((counts.count, counts.run_count, counts.unfinished_count), (3, 2, 1));
        assert_eq!((counts.run_total_ns, counts.delay_total_ns), (18, 80));
        assert_eq!((counts.completion_total_ns, counts.completion_max_ns), (98, 70));
        assert_eq!((&*counts.sender_cpus, &*counts.target_cpus), (&[0][..], &[1][..]));
        let interrupt = rows.iter().find(|row| row.key.event.label() == "interrupt").unwrap();
        let Sender::Interrupt(context) = &interrupt.key.sender else { panic!("{interrupt:?}") };
        assert_eq!((context.kind, &*context.name), (ContextKind::Softirq, "SCHED"));
        let SenderCounts { count, handled_count, run_count, unfinished_count, .. } =
            interrupt.counts;
        assert_eq!((count, handled_count, run_count, unfinished_count), (2, 1, 0, 0));
        assert_eq!((interrupt.counts.delay_total_ns, interrupt.counts.delay_max_ns), (30, 30));
        let run = rows.iter().find(|row| row.key.event == SenderEvent::UnjoinedRun).unwrap();
        assert_eq!(run.key.function.as_deref(), Some("sched_ttwu_pending"));
        assert_eq!((run.counts.run_count, run.counts.run_total_ns), (1, 18));
    }
}
