//! The delays of a window, from the rows of the BPF programs (bpf/delays.h, bpf/irq_thread_delays.h, bpf/timer_delays.h).

use attribution::context::SOFTIRQS;
use attribution::{Context, ContextKey, ContextKind};
use lab::handlers::{CpuWindow, DelayMethod, DelayStats};

use super::convert::{self_times, thread_of};
use crate::bpf::CountedRow;
use crate::host::KernelFunctions;

/// The events of a softirq's delay.
const SOFTIRQ_DELAY: DelayMethod = DelayMethod {
    begins: "tracepoint softirq_raise, if the softirq's bit in the CPU's mask of pending softirqs was clear",
    ends: "tracepoint softirq_entry on that CPU",
    not_seen: "softirqs raised before the window opened, or where the kernel calls no BPF program",
};
/// The events of a work item's delay.
const WORK_DELAY: DelayMethod = DelayMethod {
    begins: "tracepoint workqueue_queue_work on a measured CPU; for delayed work, when its timer has expired",
    ends: "tracepoint workqueue_execute_start",
    not_seen: "work items queued before the window opened, on a CPU that is not measured, or where the kernel calls no \
               BPF program",
};

/// The events of the delay of an IRQ line's thread.
const IRQ_THREAD_DELAY: DelayMethod = DelayMethod {
    begins: "tracepoint irq_handler_exit on a measured CPU, with the result IRQ_WAKE_THREAD, if the thread sleeps and the \
             action's flag IRQTF_RUNTHREAD is clear",
    ends: "tracepoint sched_switch to the thread",
    not_seen: "requests before the window opened, on a CPU that is not measured, by the driver itself, of a second thread of \
               the same handler, or where the kernel calls no BPF program",
};
/// The events of the delay of a high-resolution timer.
const HRTIMER_DELAY: DelayMethod = DelayMethod {
    begins: "the time from which the timer may run (hrtimer._softexpires, before its slack), by the timer's clock",
    ends: "tracepoint hrtimer_expire_entry",
    not_seen: "timers due before the window opened, timers that another CPU sets again before the event, or where the kernel \
               calls no BPF program",
};
/// The events of the delay of a timer of the timer wheel.
const TIMER_DELAY: DelayMethod = DelayMethod {
    begins: "the jiffy in which the timer is due (timer_list.expires): a delay is a whole number of jiffies, and the timer \
             wheel runs timers late by design",
    ends: "tracepoint timer_expire_entry, by the kernel's count of jiffies",
    not_seen: "timers due before the window opened, timers that another CPU sets again before the event, or where the kernel \
               calls no BPF program",
};

/// The delays of a row; `None` for all other rows. `functions` name the functions of work items and timers.
#[must_use]
pub fn delays_of(
    row: &CountedRow,
    window: &CpuWindow,
    functions: &KernelFunctions,
) -> Option<DelayStats> {
    let (context, method) = match ContextKey::from_key(row.key)? {
        ContextKey::DelayOfSoftirq(number) => {
            let name = (*SOFTIRQS.get(number as usize)?).to_owned();
            (Context { kind: ContextKind::Softirq, number, name }, SOFTIRQ_DELAY)
        }
        ContextKey::DelayOfFunctions(kind) => {
            let method = match kind {
                ContextKind::Hrtimer => HRTIMER_DELAY,
                ContextKind::Timer => TIMER_DELAY,
                _ => WORK_DELAY,
            };
            (Context { kind, number: 0, name: functions.name(row.object) }, method)
        }
        ContextKey::DelayOfIrqThread(_) => (thread_of(row)?, IRQ_THREAD_DELAY),
        _ => return None,
    };
    let awake_count = (context.kind == ContextKind::IrqThread).then_some(row.clamped);
    Some(DelayStats {
        cpu: row.cpu,
        context,
        method,
        delays: self_times(row, window.length_ns, false),
        unjoined_end_count: row.special,
        unjoined_begin_count: row.abandoned,
        awake_count,
    })
}
