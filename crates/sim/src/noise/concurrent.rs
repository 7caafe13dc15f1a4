//! Converts the record to the concurrent activity of the CPUs: when each CPU was busy with something other than the
//! loop, so that detours on several CPUs can be compared.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::{BusyIntervals, CpuActivity, Place};

use crate::accounting::RegionUse;

/// Returns the activity of each CPU. `threads`: the loop's thread on each CPU that has one.
pub(super) fn concurrent_activity(
    region: &RegionUse,
    threads: &BTreeMap<u32, u32>,
    threads_per_core: u32,
) -> Vec<CpuActivity> {
    let of_cpu = |cpu: &crate::accounting::CpuUse| {
        let mut intervals = BusyIntervals::default();
        let loop_thread = threads.get(&cpu.cpu).copied();
        for transition in &cpu.transitions {
            intervals.transition(transition.tsc, is_handlers(transition.context, loop_thread));
        }
        let end_ns = cpu.transitions.last().map_or(0, |last| last.tsc);
        let core = (cpu.cpu / threads_per_core.max(1)).cast_signed();
        intervals.finish(Place { cpu: cpu.cpu, core, socket: 0 }, end_ns)
    };
    region.cpus.iter().map(of_cpu).collect()
}

/// Returns `None` for the loop and for an idle CPU; otherwise whether `context` handles an interrupt. A CPU in an
/// unknown context may execute other work, so the relations between CPUs leave this time out.
fn is_handlers(context: KernelContext, loop_thread: Option<u32>) -> Option<bool> {
    match context {
        KernelContext::Idle => None,
        KernelContext::User(thread) if Some(thread) == loop_thread => None,
        KernelContext::Interrupt(_)
        | KernelContext::Softirq(_)
        | KernelContext::Nmi
        | KernelContext::Irq(_) => Some(true),
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_loop_nor_an_idle_cpu_is_concurrent_activity() {
        let loop_thread = Some(7);
        assert_eq!(is_handlers(KernelContext::User(7), loop_thread), None);
        assert_eq!(is_handlers(KernelContext::Idle, loop_thread), None);
        assert_eq!(is_handlers(KernelContext::User(8), loop_thread), Some(false));
        assert_eq!(is_handlers(KernelContext::User(7), None), Some(false));
        assert_eq!(is_handlers(KernelContext::Unknown, loop_thread), Some(false));
        assert_eq!(is_handlers(KernelContext::KernelThread(7), loop_thread), Some(false));
        assert_eq!(is_handlers(KernelContext::Interrupt(0xec), loop_thread), Some(true));
        assert_eq!(is_handlers(KernelContext::Softirq(1), loop_thread), Some(true));
    }
}
