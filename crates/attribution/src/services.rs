//! Services of the kernel: the time of each service, summed over all CPUs, and the latency of its requests.
//!
//! A *request* is a frame of a task's stack above the task itself: a system call, a fault, an interrupt, a
//! softirq, a pass through the scheduler. It belongs to the task, and continues on whichever CPU the task runs
//! next. Its latency has four parts:
//!
//! ```text
//! read        |==|        |=|      |===|      computation: the service itself
//! timer int.     |===|                        nested: other services meanwhile, on the same task
//! (blocked)                 |~~~|             from leaving the CPU to the wake-up
//! (runnable)                    |..|          until the task runs again
//! ```
//!
//! Computation is charged when a frame ends, because only then the kind of a fault is known. The charged times
//! and the times of open frames add up to the counts of the CPUs.

use std::collections::BTreeMap;

use crate::kernel_context::KernelContext;
use crate::ledger::{Counts, Ledger, Row};

/// Maximum number of pairs of a service and what it waited for.
const WAITS_MAX: usize = 16_384;
/// Values are counted by their leading bits, this many after the first one: a bucket is at most 1/16 of
/// its lower bound wide, as in the histograms of `stats`.
const LEADING_BITS: u32 = 4;

/// How long a task was off the CPUs, in the unit of the caller's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpu {
    /// Time from the task's leave until it was woken.
    pub blocked: u64,
    /// While it could have run: after the wake-up, or preempted.
    pub descheduled: u64,
}

impl OffCpu {
    /// The difference from `earlier` to this.
    pub(crate) fn since(self, earlier: OffCpu) -> OffCpu {
        OffCpu {
            blocked: self.blocked - earlier.blocked,
            descheduled: self.descheduled - earlier.descheduled,
        }
    }
}

/// A frame that ended, or what a frame has used that is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPart<const N: usize = 1> {
    pub service: KernelContext,
    /// Counts of the service itself.
    pub self_counts: Counts<N>,
    /// How many frames of the task were below it.
    pub depth: usize,
    /// Whether it started in the region.
    pub is_new: bool,
    /// The counts from entry to exit, if the request started in the region and completed.
    pub completed: Option<Completed<N>>,
}

/// The counts of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed<const N: usize = 1> {
    /// Counts including nested contexts, without other tasks.
    pub inclusive: Counts<N>,
    /// How long its task was off the CPUs meanwhile.
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
    /// Counts; [`Row::entries`] are requests that started in the region.
    pub counts: Row<N>,
    /// The first count of the service itself, of completed requests.
    pub computation: u64,
    /// How long tasks of completed requests were off the CPUs.
    pub off: OffCpu,
    /// Completed requests by latency: the lowest value of a bucket, and how many.
    pub latencies: BTreeMap<u64, u64>,
    /// Completed requests by computation, likewise.
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
    /// The latencies of completed requests, sum.
    #[must_use]
    pub fn latency(&self) -> u64 {
        self.counts.inclusive[0] + self.off.blocked + self.off.descheduled
    }
}

/// The services of a machine in a region.
#[derive(Clone, Debug)]
pub struct Services<const N: usize = 1> {
    ledger: Ledger<N>,
    times: BTreeMap<KernelContext, ServiceRow<N>>,
    waits: BTreeMap<(KernelContext, u32), (u64, u64)>,
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
    pub fn add(&mut self, part: &RequestPart<N>) {
        let service = part.service.of_all_tasks();
        self.ledger.charge(service, &part.self_counts);
        if part.is_new {
            self.ledger.enter(service);
        }
        let Some(Completed { inclusive, off }) = part.completed else { return };
        self.ledger.complete(service, &inclusive);
        // The ledger bounds the services; what has no row there has no times either.
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

    /// Notes for what a service was blocked.
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

    /// For what services were blocked: service, what they waited for, how often, how long.
    pub fn waits(&self) -> impl Iterator<Item = (KernelContext, u32, u64, u64)> + '_ {
        let row =
            |(key, value): (&(KernelContext, u32), &(u64, u64))| (key.0, key.1, value.0, value.1);
        self.waits.iter().map(row)
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

/// The lowest value of the bucket of a value.
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
