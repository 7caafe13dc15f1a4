//! The counts of services in the open region: requests, locks and the page faults that have ended. The
//! [`Tracker`](super::tracker::Tracker) has one [`ServiceSums`] if the recording has services.

use std::collections::BTreeMap;

use attribution::{KernelContext, KernelStack, Locks, Services};

use crate::guest::service_misses::EndedFault;
use crate::guest::structures::{Located, Structure};
use simrecord::counters::COUNTERS;
use simrecord::record::{CPUS_MAX, StructureKind};

/// The most locks whose names are remembered.
const LOCKS_MAX: usize = 1 << 18;

/// A lock, and the call site that takes it. All locks that a call site takes have the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TakenLock {
    /// The return address of the call that takes the lock.
    return_to: u64,
    /// The address of the lock.
    lock: u64,
}

/// Names of locks, with a number for each. Locks at equal offsets in objects of the same slab cache share a name.
#[derive(Debug, Default)]
pub(crate) struct LockNames {
    /// Numbers by lock and call site, so that a lock is located once.
    known: BTreeMap<TakenLock, u32>,
    /// Numbers by structure and offset.
    numbers: BTreeMap<(Structure, u32), u32>,
    /// The names, indexed by number.
    names: Vec<Located>,
}

impl LockNames {
    /// The number of a lock's name. `lock`: its address. `return_to`: the return address of the call that takes it.
    /// `locate` finds the structure at an address.
    pub(crate) fn number_of(
        &mut self,
        return_to: u64,
        lock: u64,
        locate: impl FnOnce(u64) -> Located,
    ) -> u32 {
        if let Some(number) = self.known.get(&TakenLock { return_to, lock }) {
            return *number;
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

    /// The structure that contains the locks of this name, and their offset in it.
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
    /// Page faults that the kernel's memory management has handled since the recording of services started.
    pub(crate) handled_faults: u64,
    /// The value of `handled_faults` when the region was opened.
    pub(crate) faults_before: u64,
    pub(crate) locks: Locks,
    /// Addresses of the functions of system calls, by the number of the call. Empty until they are read.
    pub(crate) functions: Vec<u64>,
    /// Page faults that the last event has ended. Their kinds are known now, and their misses can be counted.
    pub(crate) ended_faults: Vec<EndedFault>,
    /// The task that each CPU ran at the last event, by the address of its description. Faults that the next event ends
    /// belong to this task.
    pub(crate) last_tasks: [u64; CPUS_MAX],
    pub(crate) lock_names: LockNames,
}

impl ServiceSums {
    /// Takes the requests and waits that the last event on a CPU has ended from its stack. The CPU runs `task` from now
    /// on.
    pub(crate) fn collect(&mut self, cpu: usize, task: u64, stack: &mut KernelStack<COUNTERS>) {
        self.ended_faults.clear();
        let last_task =
            self.last_tasks.get_mut(cpu).map_or(task, |last| std::mem::replace(last, task));
        for part in stack.take_requests() {
            self.sums.add(&part);
            let (service, depth) = (part.service, part.depth);
            if matches!(service, KernelContext::Fault(_) | KernelContext::KernelFault(_)) {
                self.ended_faults.push(EndedFault { service, depth });
                self.locks.end_fault(last_task, depth, service);
            }
        }
        for span in stack.take_blocked() {
            self.sums.add_blocked(&span);
        }
    }

    /// Page faults that the kernel's memory management has handled since the recording of services started.
    pub(crate) fn handled_faults(&self) -> u64 {
        self.handled_faults
    }

    /// Takes the page faults that the last event has ended.
    pub(crate) fn take_ended_faults(&mut self) -> impl Iterator<Item = EndedFault> + '_ {
        self.ended_faults.drain(..)
    }
}
