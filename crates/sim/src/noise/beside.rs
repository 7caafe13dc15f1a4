//! What CPUs did beside their loops, as the simulator saw it.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::{Beside, Place, Stretches};

use crate::accounting::RegionUse;

/// Of all CPUs; `threads` are those of the loops, by CPU.
pub(super) fn beside(
    region: &RegionUse,
    threads: &BTreeMap<u32, u32>,
    threads_per_core: u32,
) -> Vec<Beside> {
    let of_cpu = |cpu: &crate::accounting::CpuUse| {
        let mut stretches = Stretches::default();
        let own = threads.get(&cpu.cpu).copied();
        for turn in &cpu.transitions {
            stretches.turn(turn.tsc, is_handlers(turn.context, own));
        }
        let end_ns = cpu.transitions.last().map_or(0, |turn| turn.tsc);
        let core = (cpu.cpu / threads_per_core.max(1)).cast_signed();
        stretches.finish(Place { cpu: cpu.cpu, core, socket: 0 }, end_ns)
    };
    region.cpus.iter().map(of_cpu).collect()
}

/// None of the loop and of an idle CPU; whether it is a handler of an interrupt.
fn is_handlers(context: KernelContext, own: Option<u32>) -> Option<bool> {
    match context {
        KernelContext::Idle => None,
        KernelContext::User(thread) if Some(thread) == own => None,
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
    fn neither_the_loop_nor_an_idle_cpu_is_beside() {
        let own = Some(7);
        assert_eq!(is_handlers(KernelContext::User(7), own), None);
        assert_eq!(is_handlers(KernelContext::Idle, own), None);
        assert_eq!(is_handlers(KernelContext::User(8), own), Some(false));
        assert_eq!(is_handlers(KernelContext::User(7), None), Some(false));
        assert_eq!(is_handlers(KernelContext::KernelThread(7), own), Some(false));
        assert_eq!(is_handlers(KernelContext::Interrupt(0xec), own), Some(true));
        assert_eq!(is_handlers(KernelContext::Softirq(1), own), Some(true));
    }
}
