//! The counts of services in a region.

use std::collections::BTreeMap;

use attribution::{KernelContext, KernelStack, Locks, Services};

use crate::guest::service_misses::EndedFault;
use crate::guest::structures::{Located, Structure};
use simrecord::counters::COUNTERS;
use simrecord::record::{CPUS_MAX, StructureKind};

/// The most locks whose names are remembered.
const LOCKS_MAX: usize = 1 << 18;

/// A lock, and the call that takes it. Each call takes one kind of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TakenLock {
    /// The return address of the call.
    return_to: u64,
    /// The address of the lock.
    lock: u64,
}

/// Names of locks, as numbers: all locks in the same member of the objects of a slab cache have one.
#[derive(Debug, Default)]
pub(crate) struct LockNames {
    known: BTreeMap<TakenLock, u32>,
    numbers: BTreeMap<(Structure, u32), u32>,
    names: Vec<Located>,
}

impl LockNames {
    /// The number of the name of `lock`, which the code before `return_to` takes. `locate` finds the lock's structure.
    pub(crate) fn number_of(
        &mut self,
        return_to: u64,
        lock: u64,
        locate: impl FnOnce(u64) -> Located,
    ) -> u32 {
        if let Some(known) = self.known.get(&TakenLock { return_to, lock }) {
            return *known;
        }
        let located = locate(lock);
        let next = self.names.len() as u32;
        let number = *self.numbers.entry((located.structure, located.offset)).or_insert(next);
        if number == next {
            self.names.push(located);
        }
        if self.known.len() < LOCKS_MAX {
            self.known.insert(TakenLock { return_to, lock }, number);
        }
        number
    }

    pub(crate) fn name(&self, number: u32) -> Located {
        self.names.get(number as usize).copied().unwrap_or(Located {
            structure: Structure { kind: StructureKind::Unknown, place: 0 },
            offset: 0,
        })
    }
}

/// The counts of services in the open region.
#[derive(Default)]
pub(crate) struct ServiceSums {
    pub(crate) sums: Services<COUNTERS>,
    /// Page faults that the kernel's memory management handled, since services are recorded.
    pub(crate) handled_faults: u64,
    /// Handled faults before the region.
    pub(crate) faults_before: u64,
    pub(crate) locks: Locks,
    /// Addresses of the functions of system calls, by number.
    pub(crate) functions: Vec<u64>,
    /// Page faults that have ended, for those who wait for what they were.
    pub(crate) ended_faults: Vec<EndedFault>,
    /// The task that each CPU ran at the last event: that of the faults that the next one ends.
    pub(crate) ran: [u64; CPUS_MAX],
    /// Names of locks, by where they lie.
    pub(crate) lock_names: LockNames,
}

impl ServiceSums {
    /// Takes over what ended on a CPU, which runs `task` from now on.
    pub(crate) fn collect(&mut self, cpu: usize, task: u64, stack: &mut KernelStack<COUNTERS>) {
        self.ended_faults.clear();
        let ran = self.ran.get_mut(cpu).map_or(task, |ran| std::mem::replace(ran, task));
        for part in stack.take_requests() {
            self.sums.add(&part);
            let (service, depth) = (part.service, part.depth);
            if matches!(service, KernelContext::Fault(_) | KernelContext::KernelFault(_)) {
                self.ended_faults.push(EndedFault { service, depth });
                self.locks.end_fault(ran, depth, service);
            }
        }
        for span in stack.take_blocked() {
            self.sums.add_blocked(&span);
        }
    }

    /// Page faults that the kernel's memory management handled, since services are recorded.
    pub(crate) fn handled_faults(&self) -> u64 {
        self.handled_faults
    }

    /// The page faults that the last event ended.
    pub(crate) fn take_ended_faults(&mut self) -> impl Iterator<Item = EndedFault> + '_ {
        self.ended_faults.drain(..)
    }
}
