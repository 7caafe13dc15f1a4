//! What CPUs did beside their loops, as the simulator saw it.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::{Beside, Place, Relation, Stretches};

use crate::account::RegionUse;

/// Of all CPUs; `threads` are those of the loops, by CPU.
pub(super) fn beside(
    region: &RegionUse,
    threads: &BTreeMap<u32, u32>,
    threads_per_core: u32,
) -> Vec<Beside> {
    let of_cpu = |cpu: &crate::account::CpuUse| {
        let mut stretches = Stretches::default();
        let own = threads.get(&cpu.cpu).copied();
        for turn in &cpu.turns {
            stretches.turn(turn.tsc, is_handlers(turn.context, own));
        }
        let end_ns = cpu.turns.last().map_or(0, |turn| turn.tsc);
        let core = (cpu.cpu / threads_per_core.max(1)).cast_signed();
        stretches.finish(Place { cpu: cpu.cpu, core, socket: 0 }, end_ns)
    };
    region.cpus.iter().map(of_cpu).collect()
}

/// What is to be said where a loop's core had more to do than the loop: threads of a core are then given
/// more of each other's time than is theirs (docs/noise.md).
pub(super) fn shared(beside: &[Beside], threads: &BTreeMap<u32, u32>) -> Option<String> {
    let is_shared = |one: &Beside| {
        let is_busy =
            |other: &Beside| threads.contains_key(&other.place.cpu) || !other.stretches.is_empty();
        let beside_it = |other: &&Beside| {
            Relation::of(one.place, other.place) == Relation::SameCore && is_busy(other)
        };
        threads.contains_key(&one.place.cpu) && beside.iter().any(|other| beside_it(&other))
    };
    let cpus = beside.iter().filter(|one| is_shared(one)).map(|one| one.place.cpu.to_string());
    let cpus: Vec<String> = cpus.collect();
    (!cpus.is_empty()).then(|| {
        format!(
            "CPUs {}: other threads of their cores ran, too, and the level ooo gives them too much of \
             each other's time: times of these loops, and of handlers on these cores, are no \
             measurement (docs/noise.md, Placement)",
            cpus.join(",")
        )
    })
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
    fn loops_that_share_a_core_are_told() {
        let of = |cpu: u32, busy: bool| {
            let mut stretches = Stretches::default();
            stretches.turn(if busy { 5 } else { 9 }, Some(true));
            stretches.finish(Place { cpu, core: (cpu / 4).cast_signed(), socket: 0 }, 9)
        };
        let all = |busy| vec![of(0, busy), of(1, false), of(4, false)];
        let on = |cpus: &[u32]| cpus.iter().map(|cpu| (*cpu, 77)).collect();
        assert_eq!(shared(&all(true), &on(&[0, 4])), None);
        assert_eq!(shared(&all(false), &on(&[1])), None);
        for (busy, cpus, told) in [(true, vec![1, 4], "CPUs 1:"), (false, vec![0, 1], "CPUs 0,1:")]
        {
            let words = shared(&all(busy), &on(&cpus)).unwrap();
            assert!(words.starts_with(told), "{words}");
        }
    }

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
