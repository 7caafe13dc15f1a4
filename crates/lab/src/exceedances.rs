//! Counts the detours of `noise`, or the wake-ups of `wakeup`, that reach the threshold of `--on-threshold`. The ledger
//! of each CPU has an [`Exceedances`]. The live benches read it while the window is open.

/// A detour, or the lateness of a wake-up, that reached the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceedance<P> {
    /// Length of the detour, or lateness of the wake-up, ns.
    pub length_ns: u64,
    /// When the detour ended, or the thread woke up, ns of the marks' clock.
    pub end_ns: u64,
    /// The part with the most time, and this time, ns. `None` without tracing.
    pub cause: Option<(P, u64)>,
}

/// Counts lengths that reach a threshold, and holds the longest one until it is taken. Memory does not grow with their
/// number.
#[derive(Clone, Debug)]
pub struct Exceedances<P> {
    /// `None`: nothing is counted.
    threshold_ns: Option<u64>,
    count: u64,
    longest: Option<Exceedance<P>>,
}

impl<P> Exceedances<P> {
    /// Without a threshold (`None`), nothing is counted.
    #[must_use]
    pub fn new(threshold_ns: Option<u64>) -> Self {
        Exceedances { threshold_ns, count: 0, longest: None }
    }

    /// Counts a length that reaches the threshold, and that ended at `end_ns`. Calls `cause` only if this length is the longest since the last
    /// [`Exceedances::take_longest`].
    pub fn offer(&mut self, length_ns: u64, end_ns: u64, cause: impl FnOnce() -> Option<(P, u64)>) {
        if self.threshold_ns.is_none_or(|threshold_ns| length_ns < threshold_ns) {
            return;
        }
        self.count += 1;
        if self.longest.as_ref().is_none_or(|longest| longest.length_ns < length_ns) {
            self.longest = Some(Exceedance { length_ns, end_ns, cause: cause() });
        }
    }

    /// The longest one since the last call. `None`: no length has reached the threshold since then.
    pub fn take_longest(&mut self) -> Option<Exceedance<P>> {
        self.longest.take()
    }

    /// Number of lengths that reached the threshold. `None` without a threshold.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.threshold_ns.map(|_| self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_longest_since_the_last_look_is_kept() {
        let mut over = Exceedances::new(Some(100));
        for (end_ns, length_ns, cause) in
            [(1_000, 99, 'a'), (2_000, 100, 'b'), (3_000, 700, 'c'), (4_000, 300, 'd')]
        {
            over.offer(length_ns, end_ns, || Some((cause, 60)));
        }
        let longest = Exceedance { length_ns: 700, end_ns: 3_000, cause: Some(('c', 60)) };
        assert_eq!(over.take_longest(), Some(longest));
        assert_eq!(over.take_longest(), None);
        over.offer(150, 5_000, || None);
        let next = Exceedance { length_ns: 150, end_ns: 5_000, cause: None };
        assert_eq!(over.take_longest(), Some(next));
        assert_eq!(over.count(), Some(4));
    }

    #[test]
    fn without_a_threshold_nothing_is_counted() {
        let mut over = Exceedances::<char>::new(None);
        over.offer(u64::MAX, u64::MAX, || unreachable!("nobody asks for the cause"));
        assert_eq!((over.count(), over.take_longest()), (None, None));
    }
}
