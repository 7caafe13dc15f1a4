//! The delays of a window, from the record of the simulator.

use std::collections::BTreeMap;

use attribution::{ContextKind, KernelContext};
use lab::handlers::{DelayMethod, DelayStats};
use simrecord::record::DelayEvents;
use stats::Distribution;

use super::convert::{Reading, batches};
use crate::Symbols;
use crate::accounting::{Accounting, CpuUse};
use crate::contexts::{callback_of, context_of, irq_thread_of};

/// The events of a softirq's delays.
const SOFTIRQ_DELAY: DelayMethod = DelayMethod {
    begins: "the instruction that sets the softirq's clear bit in the CPU's mask of pending softirqs",
    ends: "the first instruction of the softirq's handler on that CPU",
    not_seen: "softirqs raised before the window opened",
};
/// The events of a work item's delay.
const WORK_DELAY: DelayMethod = DelayMethod {
    begins: "the first instruction of __queue_work (for delayed work when its timer has expired)",
    ends: "the call of the work item's function",
    not_seen: "work items queued before the window opened",
};
/// The events of the delay of an IRQ line's thread.
const IRQ_THREAD_DELAY: DelayMethod = DelayMethod {
    begins: "the return of the handler that requests the thread (at a request without such a return, __irq_wake_thread), \
             if the thread sleeps and the action's flag IRQTF_RUNTHREAD is clear",
    ends: "__switch_to_asm to the thread",
    not_seen: "requests before the window opened, and of a second thread of the same handler",
};
/// The events of the delay of a high-resolution timer.
const HRTIMER_DELAY: DelayMethod = DelayMethod {
    begins: "the time from which the timer may run (hrtimer._softexpires, before its slack), by the timer's clock",
    ends: "the call of the timer's function",
    not_seen: "timers due before the window opened, and timers that another CPU sets again before the call",
};
/// The events of the delay of a timer of the timer wheel.
const TIMER_DELAY: DelayMethod = DelayMethod {
    begins: "the jiffy in which the timer is due (timer_list.expires): a delay is a whole number of jiffies, and the timer \
             wheel runs timers late by design",
    ends: "the call of the timer's function, by the kernel's count of jiffies",
    not_seen: "timers due before the window opened, and timers that another CPU sets again before the call",
};

/// The method of the delays of functions of a kind.
fn method_of_functions(kind: ContextKind) -> DelayMethod {
    match kind {
        ContextKind::Hrtimer => HRTIMER_DELAY,
        ContextKind::Timer => TIMER_DELAY,
        _ => WORK_DELAY,
    }
}

/// Returns the delays that ended on a CPU while it was online, by softirq, thread and function, in batches over
/// `batches_ns`. `symbols` name the functions of work items and timers.
pub(super) fn delays_of(
    cpu: &CpuUse,
    accounting: &Accounting,
    symbols: Option<&Symbols>,
    reading: &Reading,
    batches_ns: Option<u64>,
) -> Vec<DelayStats> {
    let mut by_context: BTreeMap<KernelContext, DelayStats> = BTreeMap::new();
    let is_online = |at_cycles: u64| {
        cpu.offline_at_cycles.is_none_or(|offline_at_cycles| at_cycles <= offline_at_cycles)
    };
    for delay in cpu.delays.iter().filter(|delay| is_online(delay.at_cycles)) {
        let (context, method) = match delay.context {
            KernelContext::Callback(kind, _) => {
                (callback_of(delay.context, symbols), method_of_functions(kind))
            }
            KernelContext::KernelThread(_) => {
                (irq_thread_of(delay.context, accounting), IRQ_THREAD_DELAY)
            }
            other => (context_of(other, accounting), SOFTIRQ_DELAY),
        };
        let Some(context) = context else { continue };
        let is_thread = context.kind == ContextKind::IrqThread;
        let stats = by_context.entry(delay.context).or_insert_with(|| {
            let batches = batches(batches_ns);
            DelayStats {
                cpu: cpu.cpu,
                context,
                method,
                delays: Distribution { batches, ..Distribution::default() },
                unjoined_end_count: 0,
                unjoined_begin_count: 0,
                awake_count: is_thread.then_some(0),
            }
        });
        match delay.events {
            DelayEvents::Joined => {
                let delay_ns = reading.ns(delay.cycles);
                let ended_ns = reading.ns(delay.at_cycles.saturating_sub(cpu.opened_at_cycles));
                stats.delays.record(delay_ns, ended_ns);
                stats.delays.batches.record(delay_ns, ended_ns);
            }
            DelayEvents::EndAlone => stats.unjoined_end_count += 1,
            DelayEvents::BeginAlone => stats.unjoined_begin_count += 1,
            DelayEvents::Awake => *stats.awake_count.get_or_insert(0) += 1,
        }
    }
    by_context.into_values().collect()
}
