//! Services of the kernel: the time of each service, summed over all CPUs, and the latency of its requests. The plugin
//! adds the parts that [`crate::KernelStack`] reports; the experiment `services` shows the sums.
//!
//! A *request* is a frame of a task's stack above the task itself, such as a system call, a fault, an
//! interrupt, a softirq or a pass through the scheduler. It belongs to the task, and continues on whichever CPU
//! the task runs next. Its latency has four parts:
//!
//! ```text
//! read        |==|        |=|      |===|      computation: the service itself
//! timer int.     |===|                        nested: other services meanwhile, on the same task
//! (blocked)                 |~~~|             from leaving the CPU to the wake-up
//! (runnable)                    |..|          until the task runs again
//! ```
//!
//! Computation is charged when a frame ends, because the kind of a fault is known only then. Invariant: the charged
//! counts and the counts of open frames add up to the counts of the CPUs.

use std::collections::BTreeMap;

use crate::kernel_context::KernelContext;
use crate::ledger::{Counts, Ledger, Row};

/// Maximum number of pairs of a service and an awaited event.
const WAITS_MAX: usize = 16_384;
/// Number of bits after the leading 1 that distinguish the buckets of times. A bucket's width is at most 1/16 of its
/// lower bound. The histograms of `stats` have the same buckets, so this number must not change alone.
const LEADING_BITS: u32 = 4;

/// How long a task was off the CPUs, in the unit of the caller's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpu {
    /// Time from the task's leave until it was woken.
    pub blocked: u64,
    /// Time during which the task could have run: after its wake-up, or after a preemption.
    pub descheduled: u64,
}

impl OffCpu {
    /// The increase since `earlier`.
    pub(crate) fn since(self, earlier: OffCpu) -> OffCpu {
        OffCpu {
            blocked: self.blocked - earlier.blocked,
            descheduled: self.descheduled - earlier.descheduled,
        }
    }
}

/// The counts of a frame: all of them if the frame has ended, or the counts so far of an open frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPart<const N: usize = 1> {
    pub service: KernelContext,
    /// Counts of the service itself.
    pub self_counts: Counts<N>,
    /// How many frames of the task were below it.
    pub depth: usize,
    /// Whether the request started in the region.
    pub is_new: bool,
    /// The counts from entry to exit, if the request started in the region and completed.
    pub completed: Option<Completed<N>>,
}

/// The counts of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed<const N: usize = 1> {
    /// Counts including nested contexts, without other tasks.
    pub inclusive: Counts<N>,
    /// How long the request's task was off the CPUs during the request.
    pub off: OffCpu,
}

/// An interval during which a task was blocked in a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedSpan {
    pub service: KernelContext,
    /// The caller's number of the awaited event, or 0 if it is not known.
    pub wait: u32,
    /// Duration of the wait, in the caller's unit of time.
    pub blocked: u64,
}

/// The counts of a service.
#[derive(Clone, Debug)]
pub struct ServiceRow<const N: usize = 1> {
    /// The counts. [`Row::entries`] is the number of requests that started in the region.
    pub counts: Row<N>,
    /// Time of the service itself in completed requests: sum of the first count.
    pub computation: u64,
    /// Total time that tasks were off the CPUs during completed requests.
    pub off: OffCpu,
    /// Number of completed requests by latency. The key is the lowest value of a bucket.
    pub latencies: BTreeMap<u64, u64>,
    /// Number of completed requests by computation. The key is the lowest value of a bucket.
    pub computations: BTreeMap<u64, u64>,
}

impl<const N: usize> Default for ServiceRow<N> {
    fn default() -> Self {
        ServiceRow {
            counts: Row::default(),
            computation: 0,
            off: OffCpu::default(),
            latencies: BTreeMap::new(),
            computations: BTreeMap::new(),
        }
    }
}

impl<const N: usize> ServiceRow<N> {
    /// The sum of the latencies of completed requests.
    #[must_use]
    pub fn latency(&self) -> u64 {
        self.counts.inclusive[0] + self.off.blocked + self.off.descheduled
    }
}

/// The services of a machine in a region.
#[derive(Clone, Debug)]
pub struct Services<const N: usize = 1> {
    ledger: Ledger<N>,
    /// The times of each service; `counts` is unused here.
    times: BTreeMap<KernelContext, ServiceRow<N>>,
    /// Number of waits and total blocked time, for each service and awaited event.
    waits: BTreeMap<(KernelContext, u32), (u64, u64)>,
    /// How often a wait was not counted because there was no room for its row.
    waits_refused: u64,
}

impl<const N: usize> Default for Services<N> {
    fn default() -> Self {
        Services {
            ledger: Ledger::default(),
            times: BTreeMap::new(),
            waits: BTreeMap::new(),
            waits_refused: 0,
        }
    }
}

impl<const N: usize> Services<N> {
    /// Charges a part of a request to its service.
    pub fn add(&mut self, part: &RequestPart<N>) {
        let service = part.service.of_all_tasks();
        self.ledger.charge(service, &part.self_counts);
        if part.is_new {
            self.ledger.enter(service);
        }
        let Some(Completed { inclusive, off }) = part.completed else { return };
        self.ledger.complete(service, &inclusive);
        // The ledger bounds the number of services. After it has refused a service, new services get no times either.
        if self.ledger.refused() > 0 && !self.times.contains_key(&service) {
            return;
        }
        let row = self.times.entry(service).or_default();
        let computation = part.self_counts[0];
        row.computation += computation;
        row.off.blocked += off.blocked;
        row.off.descheduled += off.descheduled;
        let latency = inclusive[0] + off.blocked + off.descheduled;
        *row.latencies.entry(bucket(latency)).or_default() += 1;
        *row.computations.entry(bucket(computation)).or_default() += 1;
    }

    /// Adds a blocked span to the waits of its service.
    pub fn add_blocked(&mut self, span: &BlockedSpan) {
        let key = (span.service.of_all_tasks(), span.wait);
        if self.waits.len() >= WAITS_MAX && !self.waits.contains_key(&key) {
            self.waits_refused += 1;
            return;
        }
        let (count, blocked) = self.waits.entry(key).or_default();
        *count += 1;
        *blocked += span.blocked;
    }

    /// The rows, in the order of contexts.
    pub fn rows(&self) -> impl Iterator<Item = (KernelContext, ServiceRow<N>)> + '_ {
        self.ledger.rows().map(|(service, counts)| {
            let times = self.times.get(&service).cloned().unwrap_or_default();
            (service, ServiceRow { counts, ..times })
        })
    }

    /// The waits of services: service, number of the awaited event, number of waits, total blocked time.
    pub fn waits(&self) -> impl Iterator<Item = (KernelContext, u32, u64, u64)> + '_ {
        self.waits
            .iter()
            .map(|((service, event), (count, blocked))| (*service, *event, *count, *blocked))
    }

    /// The sum of the self counts.
    #[must_use]
    pub fn total(&self) -> Counts<N> {
        self.ledger.total()
    }

    /// How often there was no room for a row.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.ledger.refused() + self.waits_refused
    }
}

/// The lowest value of the bucket that contains `value`.
fn bucket(value: u64) -> u64 {
    let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(LEADING_BITS);
    value >> shift << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_at_most_a_sixteenth_wide() {
        for (value, lowest) in [(0, 0), (1, 1), (31, 31), (32, 32), (33, 32), (1000, 992)] {
            assert_eq!(bucket(value), lowest, "{value}");
        }
        assert_eq!(bucket(u64::MAX), 31 << 59);
    }

    #[test]
    fn a_request_that_did_not_complete_has_counts_and_no_latency() {
        let mut services = Services::<1>::default();
        let service = KernelContext::Syscall(60);
        let (self_counts, is_new) = ([7], true);
        let part = RequestPart { service, self_counts, depth: 1, is_new, completed: None };
        services.add(&part);
        let [(_, row)] = services.rows().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((row.counts.entries, row.counts.completed, row.latency()), (1, 0, 0));
        assert_eq!(services.total(), [7]);
    }

    #[test]
    fn waits_beyond_the_bound_are_counted() {
        let mut services = Services::<1>::default();
        for wait in 0..=WAITS_MAX as u32 {
            let service = KernelContext::Syscall(0);
            services.add_blocked(&BlockedSpan { service, wait, blocked: 1 });
        }
        assert_eq!((services.waits().count(), services.refused()), (WAITS_MAX, 1));
    }
}
