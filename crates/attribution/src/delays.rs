//! Delays: the time from the event that asks for work to the start of that work. This module joins both events.
//!
//! The plugin of the simulated bench uses [`RaisedSoftirq`]. The live bench has the same rules in a BPF program
//! (`crates/live/bpf/delays.h`).

/// A raise that waits for its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raised {
    since: u64,
    /// The kernel's count of the softirq's runs before the awaited run, modulo 2^32.
    runs_before: u32,
}

/// The kernel's own state of one softirq on one CPU, read at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftirqState {
    /// The kernel's count of the softirq's runs, modulo 2^32. At the begin of a run it includes that run.
    pub runs: u32,
    /// Whether the softirq is in the kernel's mask of pending softirqs. At a raise: before the raise.
    pub is_pending: bool,
}

/// Result of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinResult {
    /// The delay that the event ends, in the clock of the events.
    pub delay: Option<u64>,
    /// How many raises were dropped, because no run can be joined to them.
    pub dropped_raises: u32,
}

/// The raises of one softirq on one CPU that wait for their runs.
///
/// The kernel sets the softirq's bit in a mask at a raise. Before it runs softirqs, it takes all bits from the mask. So a
/// run serves all raises from the one that set the bit until the kernel took the bit: the delay is that of the first of
/// these raises. A raise between this taking and the run belongs to the run after it.
///
/// Events may be missing. The kernel's count of runs shows a run without an event, and its mask shows a raise without an
/// event. A raise or run that cannot be joined for certain is not joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaisedSoftirq {
    /// The raise that the next run serves.
    first: Option<Raised>,
    /// The time of the first raise after the kernel took the bit of `first` from its mask.
    next: Option<u64>,
}

impl RaisedSoftirq {
    /// A raise at time `now`.
    pub fn raise(&mut self, now: u64, state: SoftirqState) -> JoinResult {
        let dropped_raises = self.drop_served(state.runs);
        match self.first {
            // The bit is set: an earlier raise set it, perhaps one that was not seen.
            _ if state.is_pending => {}
            Some(_) => self.next = self.next.or(Some(now)),
            None => self.first = Some(Raised { since: now, runs_before: state.runs }),
        }
        JoinResult { delay: None, dropped_raises }
    }

    /// A run begins at time `now`.
    pub fn run(&mut self, now: u64, state: SoftirqState) -> JoinResult {
        let mut dropped_raises = self.drop_served(state.runs.wrapping_sub(1));
        let Some(first) = self.first.take() else {
            return JoinResult { delay: None, dropped_raises };
        };
        let next = self.next.take();
        if state.is_pending && next.is_none() {
            // A raise was not seen, or `first` is that raise after the taking of the mask. Which one is not known.
            dropped_raises += 1;
            return JoinResult { delay: None, dropped_raises };
        }
        self.first = next.map(|since| Raised { since, runs_before: state.runs });
        JoinResult { delay: Some(now.saturating_sub(first.since)), dropped_raises }
    }

    /// Drops the raises whose run is among the first `runs` runs: no event of that run came. Returns their number.
    fn drop_served(&mut self, runs: u32) -> u32 {
        let Some(first) = self.first.filter(|first| first.runs_before != runs) else { return 0 };
        let next = self.next.take();
        let is_next_waiting = first.runs_before.wrapping_add(1) == runs;
        self.first =
            next.filter(|_| is_next_waiting).map(|since| Raised { since, runs_before: runs });
        1 + u32::from(next.is_some() && !is_next_waiting)
    }

    /// How many raises wait for their run.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        u32::from(self.first.is_some()) + u32::from(self.next.is_some())
    }
}

#[cfg(test)]
mod tests {
    use stats::Random;

    use super::*;

    fn state(runs: u32, is_pending: bool) -> SoftirqState {
        SoftirqState { runs, is_pending }
    }

    fn joined(delay: u64) -> JoinResult {
        JoinResult { delay: Some(delay), dropped_raises: 0 }
    }

    fn dropped(dropped_raises: u32) -> JoinResult {
        JoinResult { delay: None, dropped_raises }
    }

    #[test]
    fn the_first_raise_begins_the_delay() {
        let mut softirq = RaisedSoftirq::default();
        assert_eq!(softirq.raise(10, state(4, false)), dropped(0));
        assert_eq!(softirq.raise(15, state(4, true)), dropped(0));
        assert_eq!(softirq.run(30, state(5, false)), joined(20));
        assert_eq!(softirq.run(40, state(6, false)), dropped(0), "no raise was seen");
        softirq.raise(50, state(6, false));
        assert_eq!(softirq.run(50, state(7, false)), joined(0));
    }

    #[test]
    fn a_raise_after_the_kernel_took_the_mask_belongs_to_the_next_run() {
        let mut softirq = RaisedSoftirq::default();
        softirq.raise(10, state(4, false));
        softirq.raise(20, state(4, false));
        softirq.raise(25, state(4, true));
        assert_eq!((softirq.run(30, state(5, true)), softirq.waiting()), (joined(20), 1));
        assert_eq!(softirq.raise(35, state(5, true)), dropped(0));
        assert_eq!(softirq.run(40, state(6, false)), joined(20));
    }

    #[test]
    fn a_run_that_was_not_seen_ends_no_later_delay() {
        let mut softirq = RaisedSoftirq::default();
        softirq.raise(10, state(4, false));
        assert_eq!(softirq.raise(100, state(5, false)), dropped(1), "run 5 was not seen");
        assert_eq!(softirq.run(130, state(6, false)), joined(30));
        softirq.raise(140, state(6, false));
        assert_eq!(softirq.run(200, state(8, false)), dropped(1), "nor was run 7");
        assert_eq!(softirq.waiting(), 0);
    }

    #[test]
    fn a_raise_that_was_not_seen_is_not_replaced_by_a_later_one() {
        let mut softirq = RaisedSoftirq::default();
        assert_eq!(softirq.raise(20, state(4, true)), dropped(0), "an earlier raise set the bit");
        assert_eq!(softirq.run(30, state(5, false)), dropped(0));
    }

    #[test]
    fn the_kernels_count_of_runs_may_wrap() {
        let mut softirq = RaisedSoftirq::default();
        softirq.raise(10, state(u32::MAX, false));
        assert_eq!(softirq.run(30, state(0, false)), joined(20));
    }

    /// A kernel with one softirq, which knows the true begin of each delay.
    #[derive(Default)]
    struct Kernel {
        /// The raise that set the bit in the mask.
        pending: Option<u64>,
        /// The raise whose bit was taken from the mask, until its run.
        taken: Option<u64>,
        runs: u32,
    }

    /// In random series of events, of which some are not seen, each joined delay is the true one.
    #[test]
    fn each_joined_delay_is_true_whatever_is_not_seen() {
        for (seed, lost_of_16) in (1..400).flat_map(|seed| [(seed, 0), (seed, 1), (seed, 8)]) {
            let mut random = Random::new(seed);
            let (mut softirq, mut kernel) = (RaisedSoftirq::default(), Kernel::default());
            let (mut runs_seen, mut raises_served, mut joined, mut dropped) = (0, 0, 0, 0);
            for now in 0..300 {
                let is_seen = random.below(16) >= lost_of_16;
                match random.below(3) {
                    0 => {
                        let state = state(kernel.runs, kernel.pending.is_some());
                        kernel.pending = kernel.pending.or(Some(now));
                        if is_seen {
                            dropped += softirq.raise(now, state).dropped_raises;
                        }
                    }
                    1 if kernel.taken.is_none() => kernel.taken = kernel.pending.take(),
                    2 => {
                        let Some(raised_at) = kernel.taken.take() else { continue };
                        kernel.runs += 1;
                        raises_served += 1;
                        if !is_seen {
                            continue;
                        }
                        runs_seen += 1;
                        let result = softirq.run(now, state(kernel.runs, kernel.pending.is_some()));
                        dropped += result.dropped_raises;
                        joined += u32::from(result.delay.is_some());
                        let true_delay = now - raised_at;
                        assert!(
                            result.delay.is_none_or(|delay| delay == true_delay),
                            "seed {seed}, time {now}: {result:?}, not {true_delay}"
                        );
                    }
                    _ => {}
                }
            }
            assert!(joined + dropped + softirq.waiting() <= raises_served + 2, "seed {seed}");
            assert!(runs_seen > 10 && (joined > 0 || lost_of_16 > 1), "seed {seed}: {runs_seen}");
            if lost_of_16 == 0 {
                assert_eq!((joined, dropped), (runs_seen, 0), "seed {seed}");
            }
        }
    }
}
