//! The offset of a host's clock, from round trips.

use serde::{Deserialize, Serialize};

/// One question for a host's clock, and its answer. All times in ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// This machine's clock when the question was sent.
    pub sent_ns: i64,
    /// From the question to the answer, by a clock that nobody sets.
    pub elapsed_ns: u64,
    /// The host's clock in the answer.
    pub host_ns: i64,
}

/// How far a host's clock is ahead of this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// The host's clock minus this machine's clock.
    pub offset_ns: i64,
    /// Largest error of the offset: the host answered at an unknown time within the round trip.
    pub offset_error_max_ns: u64,
    /// Number of round trips. The shortest one counts.
    pub round_trip_count: u32,
}

/// How the offset was determined, in words.
pub(crate) const METHOD: &str = "host's clock minus the middle of the shortest round trip; largest error: half of that round trip";

impl ClockOffset {
    /// The offset by the shortest round trip. `None` without round trips, or if the clocks are centuries apart.
    #[must_use]
    pub fn from_round_trips(round_trips: &[RoundTrip]) -> Option<ClockOffset> {
        let shortest = round_trips.iter().min_by_key(|round_trip| round_trip.elapsed_ns)?;
        let half_ns = shortest.elapsed_ns.div_ceil(2);
        let middle_ns = shortest.sent_ns.checked_add(i64::try_from(half_ns).ok()?)?;
        Some(ClockOffset {
            offset_ns: shortest.host_ns.checked_sub(middle_ns)?,
            offset_error_max_ns: half_ns,
            round_trip_count: u32::try_from(round_trips.len()).ok()?,
        })
    }

    /// Whether the clocks differ by more than the largest error of the offset.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.offset_ns.unsigned_abs() > self.offset_error_max_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_gives_the_offset_and_its_bound() {
        let trip = |sent_ns, elapsed_ns, host_ns| RoundTrip { sent_ns, elapsed_ns, host_ns };
        let ahead = [trip(1_000, 500, 90_000), trip(5_000, 101, 15_050), trip(9_000, 300, 0)];
        let offset = ClockOffset::from_round_trips(&ahead).unwrap();
        assert_eq!(offset.offset_ns, 15_050 - 5_051);
        assert_eq!((offset.offset_error_max_ns, offset.round_trip_count), (51, 3));
        assert!(offset.differs());
        // An answer within the round trip is no difference: the true offset may be 0.
        for host_ns in [5_000, 5_051, 5_101] {
            assert!(
                !ClockOffset::from_round_trips(&[trip(5_000, 101, host_ns)]).unwrap().differs()
            );
        }
        assert!(ClockOffset::from_round_trips(&[trip(5_000, 101, 5_103)]).unwrap().differs());
        assert!(ClockOffset::from_round_trips(&[trip(5_000, 101, 4_998)]).unwrap().differs());
        assert_eq!(ClockOffset::from_round_trips(&[]), None);
        assert_eq!(ClockOffset::from_round_trips(&[trip(i64::MAX, 101, 0)]), None);
        assert_eq!(ClockOffset::from_round_trips(&[trip(i64::MAX - 100, 10, i64::MIN)]), None);
    }
}
