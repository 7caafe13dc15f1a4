//! How a CPU quota (cgroup `cpu.max`) stopped irqlab between two readings. A stop delays the next reading, so the
//! interval is longer.

use std::iter::repeat;
use std::time::Duration;

use lab::handlers::WindowSample;
use live::window::{
    THROTTLED_NS, THROTTLED_NS_BY_GROUP, THROTTLED_PERIODS, THROTTLED_PERIODS_BY_GROUP,
};
use serde_json::{Value as Json, json};

/// How often and for how long a CPU quota stopped irqlab in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// Number of the quota's periods with stopped threads.
    pub periods: u64,
    /// How long threads were stopped, summed over the CPUs, ns.
    pub time_ns: u64,
}

impl Throttled {
    /// The stops between two readings. Without `before`: the stops since the window opened. `None` if irqlab has no
    /// quota.
    ///
    /// Two groups with a quota count the same stops. Therefore only the group counts that was stopped longest between the
    /// readings.
    pub fn between(before: Option<&WindowSample>, reading: &WindowSample) -> Option<Throttled> {
        let increases = |all: &str, by_group: &str| {
            let counts_before = before.map(|before| counts(before, all, by_group));
            let counts_before = counts_before.unwrap_or_default().into_iter().chain(repeat(0));
            let counts = counts(reading, all, by_group).into_iter().zip(counts_before);
            counts.map(|(count, before)| count.saturating_sub(before)).collect::<Vec<u64>>()
        };
        let periods = increases(THROTTLED_PERIODS, THROTTLED_PERIODS_BY_GROUP);
        let times = increases(THROTTLED_NS, THROTTLED_NS_BY_GROUP);
        let groups = periods.into_iter().zip(times);
        let groups = groups.map(|(periods, time_ns)| Throttled { periods, time_ns });
        groups.max_by_key(|group| (group.time_ns, group.periods))
    }

    /// The counts as settings of a run, with the names that other verbs use.
    pub fn settings(&self) -> [(String, Json); 2] {
        [
            (THROTTLED_PERIODS.to_owned(), json!(self.periods)),
            (THROTTLED_NS.to_owned(), json!(self.time_ns)),
        ]
    }

    /// The text for the screen, or `None` if the quota stopped nothing.
    pub fn text(&self) -> Option<String> {
        let time = Duration::from_nanos(self.time_ns);
        (self.periods > 0).then(|| format!("stopped by a CPU quota for {time:.1?}"))
    }

    /// The warning of a run, or `None` if the quota stopped nothing.
    pub fn warning(&self) -> Option<String> {
        let time = Duration::from_nanos(self.time_ns);
        (self.periods > 0).then(|| {
            format!(
                "a CPU quota stopped irqlab in {} periods of this interval, for {time:?} summed over CPUs: the counts \
                 are read late, and the interval is longer (docker --cpus or systemd CPUQuota= removes it)",
                self.periods
            )
        })
    }
}

/// The counts of each group, or the count of the only one.
fn counts(reading: &WindowSample, all: &str, by_group: &str) -> Vec<u64> {
    match reading.facts.get(by_group).and_then(Json::as_array) {
        Some(counts) => counts.iter().filter_map(Json::as_u64).collect(),
        None => reading.facts.get(all).and_then(Json::as_u64).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(periods: u64, time_ns: u64) -> WindowSample {
        let facts = [(THROTTLED_PERIODS, periods), (THROTTLED_NS, time_ns)];
        let facts = facts.map(|(name, value)| (name.to_owned(), json!(value)));
        WindowSample { facts: facts.into_iter().collect(), ..WindowSample::default() }
    }

    #[test]
    fn an_interval_has_what_was_throttled_in_it() {
        let (first, second) = (reading(3, 5_000_000), reading(5, 17_000_000));
        assert_eq!(Throttled::between(None, &WindowSample::default()), None, "no quota");
        let since_open = Throttled::between(None, &first).unwrap();
        assert_eq!(since_open, Throttled { periods: 3, time_ns: 5_000_000 });
        let of_interval = Throttled::between(Some(&first), &second).unwrap();
        assert_eq!(of_interval, Throttled { periods: 2, time_ns: 12_000_000 });
        assert!(of_interval.warning().unwrap().contains("in 2 periods of this interval, for 12ms"));
        assert_eq!(of_interval.text().unwrap(), "stopped by a CPU quota for 12.0ms");
        let quiet = Throttled::between(Some(&second), &second).unwrap();
        assert_eq!((quiet.text(), quiet.warning()), (None, None));
        assert_eq!(quiet.settings()[1], (THROTTLED_NS.to_owned(), json!(0)));
    }

    /// The inner group was stopped for longer before the interval, and the outer one in it.
    #[test]
    fn an_interval_has_the_stops_of_the_group_that_was_stopped_longest_in_it() {
        let reading = |periods: [u64; 2], times: [u64; 2]| {
            let mut reading = reading(periods[0].max(periods[1]), times[0].max(times[1]));
            reading.facts.insert(THROTTLED_PERIODS_BY_GROUP.to_owned(), json!(periods));
            reading.facts.insert(THROTTLED_NS_BY_GROUP.to_owned(), json!(times));
            reading
        };
        let (first, second) = (reading([50, 0], [900, 0]), reading([50, 4], [900, 300]));
        let between = Throttled::between(Some(&first), &second);
        assert_eq!(between, Some(Throttled { periods: 4, time_ns: 300 }));
    }
}
