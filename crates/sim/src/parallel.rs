//! Runs independent machines at the same time. The host's cores and memory limit their number. The benches run the
//! machines of conditions, loops and windows with this module.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Memory that a machine needs in addition to the guest's: QEMU's translations, plugin and record, MiB.
const OVERHEAD_MIB: u64 = 512;

/// How many machines run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// At least 1.
    pub count: usize,
    /// Whether too little memory is available for the requested number.
    pub limited_by_memory: bool,
}

impl Jobs {
    /// Chooses how many of `machines` machines, of `memory_mib` MiB each, run at the same time. The number is
    /// `requested`; by default the number of CPUs that this process may use (affinity and CPU quota).
    /// `available_bytes`, the memory that this process can get now, limits the number.
    #[must_use]
    pub fn choose(
        requested: Option<NonZeroU32>,
        machines: usize,
        memory_mib: u32,
        available_bytes: Option<u64>,
    ) -> Jobs {
        let cores = thread::available_parallelism().map_or(1, Into::into);
        let requested = requested.map_or(cores, |jobs| jobs.get() as usize);
        let available_mib = available_bytes.map(|bytes| bytes >> 20);
        Jobs::within(requested.min(machines), memory_mib, available_mib)
    }

    /// Like [`Jobs::choose`], for machines of which some take much longer than others. By default, up to two machines for each CPU
    /// run at the same time. They share the CPUs, so all CPUs stay busy until the longest machine runs alone.
    #[must_use]
    pub fn choose_for_unequal(
        requested: Option<NonZeroU32>,
        machines: usize,
        memory_mib: u32,
        available_bytes: Option<u64>,
    ) -> Jobs {
        let cores = thread::available_parallelism().map_or(1, Into::into);
        let shared = u32::try_from(machines_that_share(machines, cores)).ok();
        let requested = requested.or(shared.and_then(NonZeroU32::new));
        Jobs::choose(requested, machines, memory_mib, available_bytes)
    }

    /// Returns the host memory for a machine of `memory_mib` MiB, in MiB.
    #[must_use]
    pub fn needed_mib(memory_mib: u32) -> u64 {
        u64::from(memory_mib) + OVERHEAD_MIB
    }

    /// Limits a number of machines to the available memory; at least one machine runs.
    fn within(wanted: usize, memory_mib: u32, available_mib: Option<u64>) -> Jobs {
        let each = Jobs::needed_mib(memory_mib);
        let fitting = available_mib.map_or(usize::MAX, |mib| (mib / each) as usize);
        let wanted = wanted.max(1);
        Jobs { count: wanted.min(fitting).max(1), limited_by_memory: fitting < wanted }
    }
}

/// How many of `machines` machines run at the same time on `cores` CPUs if they take unequal times: all of them if they are few.
fn machines_that_share(machines: usize, cores: usize) -> usize {
    let are_few = cores > 1 && machines <= 2 * cores;
    if are_few { machines } else { cores }
}

/// Calls `work` with the index of each item and the item, at most `jobs.count` calls at the same time. Calls start in
/// the order of the items, and the results are in this order, too.
///
/// Each call has its own thread until it returns: a machine is killed with the thread that started it.
pub fn for_each<T: Sync, R: Send>(
    jobs: Jobs,
    items: &[T],
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            let result = work(index, item);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs.count.min(items.len()) {
            // If the host refuses a thread, the other threads do all the work, later.
            if thread::Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        worker();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn memory_bounds_the_jobs() {
        let jobs = |wanted, available| Jobs::within(wanted, 512, available);
        assert_eq!(jobs(4, Some(100_000)), Jobs { count: 4, limited_by_memory: false });
        assert_eq!(jobs(4, Some(2_100)), Jobs { count: 2, limited_by_memory: true });
        assert_eq!(jobs(4, Some(10)), Jobs { count: 1, limited_by_memory: true });
        assert_eq!(jobs(0, None), Jobs { count: 1, limited_by_memory: false });
        let chosen = |count| Jobs::choose(NonZeroU32::new(count), 3, 64, None);
        assert!((1..=3).contains(&chosen(1000).count));
        assert_eq!(chosen(1).count, 1);
    }

    #[test]
    fn a_few_unequal_machines_share_the_cpus() {
        for (machines, cores, together) in [(3, 2, 3), (4, 2, 4), (5, 2, 2), (3, 8, 3), (3, 1, 1)] {
            assert_eq!(machines_that_share(machines, cores), together, "{machines} on {cores}");
        }
        let chosen = |requested| Jobs::choose_for_unequal(NonZeroU32::new(requested), 3, 64, None);
        assert_eq!((chosen(1).count, chosen(2).count), (1, 2));
        let available = Some(1_200 << 20);
        let limited = Jobs::choose_for_unequal(NonZeroU32::new(3), 3, 64, available);
        assert_eq!(limited, Jobs { count: 2, limited_by_memory: true });
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let jobs = Jobs { count: 2, limited_by_memory: false };
        // The first waits for the second, so both run at the same time and the second ends first.
        let both = Barrier::new(2);
        let results = for_each(jobs, &[10, 20, 30], |index, item| {
            if index < 2 {
                both.wait();
            }
            (index, item * 2)
        });
        assert_eq!(results, [(0, 20), (1, 40), (2, 60)]);
        assert_eq!(for_each(jobs, &[] as &[u8], |_, _| ()), []);
    }
}
