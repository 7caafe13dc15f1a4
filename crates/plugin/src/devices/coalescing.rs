//! Completions of a disk that wait for one another, so that one interrupt reports several (interrupt coalescing).
//!
//! A batch of completions is reported when it has `count` members, or `delay_ns` after its first member was done. All
//! members are then released at the same guest time, before a vCPU executes another instruction. The disk raises its
//! message interrupt for each of them, and the local APIC has one bit for all (Intel SDM 3A, IRR). So the CPU is
//! interrupted once.

/// The deadline of a request. Requests with the same deadline follow in the order of their serial numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeadlineKey {
    /// Guest time, ns.
    pub(super) due_ns: i64,
    pub(super) serial: u64,
}

/// A disk's batch of completions that wait.
#[derive(Debug)]
pub(super) struct Coalescing {
    count: u32,
    delay_ns: u64,
    /// The batch that accepts further completions.
    open: Option<Batch>,
}

#[derive(Debug)]
struct Batch {
    /// When the batch is reported if no more completions join it, ns of guest time.
    report_ns: i64,
    /// Serial numbers of the requests in the batch.
    serials: Vec<u64>,
}

impl Coalescing {
    pub(super) fn new(count: u32, delay_ns: u64) -> Coalescing {
        Coalescing { count, delay_ns, open: None }
    }

    /// Adds the request with this serial number, which is done at `done_ns`. Requests must come in the order of
    /// `done_ns`. Returns when the request is reported. If the request fills a batch, also returns the earlier members,
    /// with their former deadlines: all members are reported now.
    pub(super) fn add(&mut self, done_ns: i64, serial: u64) -> (i64, Vec<DeadlineKey>) {
        // A batch that is reported before this request is done does not wait for it.
        let joined = self.open.take().filter(|batch| done_ns <= batch.report_ns);
        let new = || Batch {
            report_ns: done_ns.saturating_add_unsigned(self.delay_ns),
            serials: Vec::new(),
        };
        let mut batch = joined.unwrap_or_else(new);
        if batch.serials.len() + 1 >= self.count as usize {
            let due_ns = batch.report_ns;
            let earlier = batch.serials.into_iter().map(|serial| DeadlineKey { due_ns, serial });
            return (done_ns, earlier.collect());
        }
        batch.serials.push(serial);
        let report_ns = batch.report_ns;
        self.open = Some(batch);
        (report_ns, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(due_ns: i64, serial: u64) -> DeadlineKey {
        DeadlineKey { due_ns, serial }
    }

    #[test]
    fn a_full_batch_is_reported_at_once() {
        let mut coalescing = Coalescing::new(3, 100);
        assert_eq!(coalescing.add(10, 1), (110, vec![]));
        assert_eq!(coalescing.add(20, 2), (110, vec![]));
        assert_eq!(coalescing.add(30, 3), (30, vec![key(110, 1), key(110, 2)]));
        assert_eq!(coalescing.add(30, 4), (130, vec![]));
    }

    #[test]
    fn a_batch_is_reported_after_the_delay() {
        let mut coalescing = Coalescing::new(2, 100);
        assert_eq!(coalescing.add(10, 1), (110, vec![]));
        // The first batch was reported at 110.
        assert_eq!(coalescing.add(111, 2), (211, vec![]));
        // A completion at the report time still joins the batch.
        assert_eq!(coalescing.add(211, 3), (211, vec![key(211, 2)]));
    }

    #[test]
    fn batches_of_one_do_not_wait() {
        let mut coalescing = Coalescing::new(1, 100);
        assert_eq!(coalescing.add(10, 1), (10, vec![]));
        assert_eq!(coalescing.add(11, 2), (11, vec![]));
    }
}
