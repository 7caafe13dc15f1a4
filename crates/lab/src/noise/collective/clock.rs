//! Compares the clock of a rank with that of rank 0, by exchanges of messages before and after the job.
//!
//! Rank 0 sends a message, the rank answers with the time on its clock, and rank 0 receives the answer. The rank read its
//! clock at some time between sending and receiving, so the middle of both times is wrong by at most half of the round
//! trip. The exchange with the shortest round trip has the smallest bound. Between the two estimates the clocks are
//! assumed to drift at a constant rate.
//!
//! Ranks on one kernel have one clock. The exchange then only checks that.

use super::sample::TIME_NS_MAX;

/// Assumed largest error when two processes convert the counter to the clock that they share, ns: each interpolates between
/// readings of both.
const SHARED_BOUND_NS: u64 = 500;

/// One exchange of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When rank 0 sent the message, on its clock, ns.
    pub sent_ns: u64,
    /// When the rank answered, on the rank's clock, ns.
    pub remote_ns: u64,
    /// When rank 0 received the answer, on its clock, ns.
    pub received_ns: u64,
}

/// The times of one event on the clocks of rank 0 and of another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Time on the clock of rank 0, ns.
    pub root_ns: u64,
    /// Time on the clock of the rank, ns.
    pub remote_ns: u64,
    /// Largest error of the pair, ns: half of the round trip, rounded up. Less for a shared clock.
    pub bound_ns: u64,
}

impl Offset {
    /// The estimate with the smallest bound. `None` without an exchange whose times ascend.
    #[must_use]
    pub fn best(exchanges: &[Exchange]) -> Option<Offset> {
        let offset = |exchange: &Exchange| {
            let round_trip_ns = exchange.received_ns.checked_sub(exchange.sent_ns)?;
            Some(Offset {
                root_ns: exchange.sent_ns + round_trip_ns / 2,
                remote_ns: exchange.remote_ns,
                bound_ns: round_trip_ns.div_ceil(2),
            })
        };
        exchanges.iter().filter_map(offset).min_by_key(|offset| offset.bound_ns)
    }

    /// Time on the clock of the rank minus time on that of rank 0, ns.
    #[must_use]
    pub fn difference_ns(&self) -> i128 {
        i128::from(self.remote_ns) - i128::from(self.root_ns)
    }

    /// Whether the clocks may show the same time.
    fn allows_equal_clocks(&self) -> bool {
        self.difference_ns().unsigned_abs() <= u128::from(self.bound_ns)
    }

    /// The estimate for a rank with the clock of rank 0.
    fn of_equal_clocks(self) -> Offset {
        let bound_ns = self.bound_ns.min(SHARED_BOUND_NS);
        Offset { remote_ns: self.root_ns, bound_ns, ..self }
    }
}

/// The clock of a rank, compared with that of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOfRank {
    /// The estimates before and after the job. `None` for rank 0.
    estimates: Option<(Offset, Offset)>,
}

impl ClockOfRank {
    /// The clock of rank 0, which all others are compared with.
    pub const ROOT: ClockOfRank = ClockOfRank { estimates: None };

    /// The clock of another rank. `None` unless both clocks advanced from `before` to `after`, and are in range.
    #[must_use]
    pub fn new(before: Offset, after: Offset) -> Option<ClockOfRank> {
        let advanced = after.root_ns > before.root_ns && after.remote_ns > before.remote_ns;
        let is_in_range = after.root_ns.max(after.remote_ns) <= TIME_NS_MAX;
        (advanced && is_in_range).then_some(ClockOfRank { estimates: Some((before, after)) })
    }

    /// The clock of a rank that says that it has the clock of rank 0. If an exchange contradicts that, as for copies of one
    /// virtual machine, this is [`ClockOfRank::new`].
    #[must_use]
    pub fn shared(before: Offset, after: Offset) -> Option<ClockOfRank> {
        if before.allows_equal_clocks() && after.allows_equal_clocks() {
            ClockOfRank::new(before.of_equal_clocks(), after.of_equal_clocks())
        } else {
            ClockOfRank::new(before, after)
        }
    }

    /// Time on the clock of rank 0 at a time on this clock, ns.
    #[must_use]
    pub fn to_root_ns(&self, remote_ns: u64) -> i128 {
        let remote_ns = i128::from(remote_ns);
        let Some((before, after)) = self.estimates else { return remote_ns };
        let passed_ns = remote_ns - i128::from(before.remote_ns);
        let root_ns = i128::from(after.root_ns - before.root_ns);
        let elapsed_ns = i128::from(after.remote_ns - before.remote_ns);
        i128::from(before.root_ns) + (passed_ns * root_ns).div_euclid(elapsed_ns)
    }

    /// Largest error of [`ClockOfRank::to_root_ns`] between the estimates, ns, if the clocks drifted at a constant rate.
    #[must_use]
    pub fn bound_ns(&self) -> u64 {
        self.estimates.map_or(0, |(before, after)| before.bound_ns.max(after.bound_ns))
    }

    /// Time on this clock minus time on that of rank 0, before the job, ns.
    #[must_use]
    pub fn offset_ns(&self) -> i128 {
        self.estimates.map_or(0, |(before, _)| before.difference_ns())
    }

    /// How much the offset changed until the end of the job, ns.
    #[must_use]
    pub fn drift_ns(&self) -> i128 {
        self.estimates.map_or(0, |(before, after)| after.difference_ns() - before.difference_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEN_SECONDS_NS: i128 = 10_000_000_000;

    /// A clock that is ahead of rank 0's by `ahead_ns` at time 0 and gains `drift_ppm`.
    fn remote(root_ns: u64, ahead_ns: i128, drift_ppm: i128) -> u64 {
        let root_ns = i128::from(root_ns);
        u64::try_from(root_ns + ahead_ns + root_ns * drift_ppm / 1_000_000).unwrap()
    }

    #[test]
    fn the_shortest_round_trip_is_taken() {
        let exchange =
            |sent_ns, remote_ns, received_ns| Exchange { sent_ns, remote_ns, received_ns };
        let exchanges =
            [exchange(0, 1_000, 90), exchange(100, 1_112, 121), exchange(300, 1_200, 200)];
        let best = Offset::best(&exchanges).unwrap();
        assert_eq!(best, Offset { root_ns: 110, remote_ns: 1_112, bound_ns: 11 });
        assert_eq!(best.difference_ns(), 1_002);
        assert_eq!(Offset::best(&[]), None);
    }

    #[test]
    fn a_clock_that_stood_still_is_no_clock() {
        let offset = Offset { root_ns: 5, remote_ns: 7, bound_ns: 1 };
        assert_eq!(ClockOfRank::new(offset, offset), None);
        let later = Offset { root_ns: 9, ..offset };
        assert_eq!(ClockOfRank::new(offset, later), None);
    }

    #[test]
    fn a_shared_clock_has_no_offset_unless_an_exchange_contradicts_it() {
        let offset = |root_ns, ahead_ns: u64| Offset {
            root_ns,
            remote_ns: root_ns + ahead_ns,
            bound_ns: 5_000,
        };
        let shared = ClockOfRank::shared(offset(100, 3), offset(90_000, 4_000)).unwrap();
        assert_eq!((shared.offset_ns(), shared.drift_ns()), (0, 0));
        assert_eq!((shared.bound_ns(), shared.to_root_ns(777)), (SHARED_BOUND_NS, 777));
        for (before_ns, after_ns) in [(10_000, 3), (3, 10_000)] {
            let (before, after) = (offset(100, before_ns), offset(90_000, after_ns));
            assert_eq!(ClockOfRank::shared(before, after), ClockOfRank::new(before, after));
        }
    }

    proptest! {
        #[test]
        fn clocks_ten_seconds_apart_agree_within_the_bound(
            sign in prop::sample::select(vec![-1_i128, 1]),
            drift_ppm in -100_i128..100,
            delays in prop::collection::vec((1_000_u64..80_000, 1_000_u64..80_000), 2..20),
            at_ns in 20_000_000_000_u64..30_000_000_000,
        ) {
            let exchanges = |start_ns: u64| -> Vec<Exchange> {
                let exchange = |(number, (there_ns, back_ns)): (usize, &(u64, u64))| {
                    let sent_ns = start_ns + 1_000_000 * number as u64;
                    Exchange {
                        sent_ns,
                        remote_ns: remote(sent_ns + there_ns, sign * TEN_SECONDS_NS, drift_ppm),
                        received_ns: sent_ns + there_ns + back_ns,
                    }
                };
                delays.iter().enumerate().map(exchange).collect()
            };
            let before = Offset::best(&exchanges(19_900_000_000)).unwrap();
            let after = Offset::best(&exchanges(30_100_000_000)).unwrap();
            let clock = ClockOfRank::new(before, after).unwrap();
            let found_ns = clock.to_root_ns(remote(at_ns, sign * TEN_SECONDS_NS, drift_ppm));
            let error_ns = found_ns - i128::from(at_ns);
            // Two roundings of the test's clock and one of the estimate.
            prop_assert!(error_ns.unsigned_abs() <= u128::from(clock.bound_ns()) + 3);
            let apart_ns = clock.offset_ns() - sign * TEN_SECONDS_NS;
            prop_assert!(apart_ns.abs() < 3_100_000);
        }
    }
}
