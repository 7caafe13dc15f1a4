//! How a CPU quota (cgroup `cpu.max`) stopped irqlab between two readings. A stop delays the next reading, so the
//! interval is longer.

use std::time::Duration;

use lab::handlers::WindowSample;
use live::window::{THROTTLED_NS, THROTTLED_PERIODS};
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
    pub fn between(before: Option<&WindowSample>, reading: &WindowSample) -> Option<Throttled> {
        let count =
            |reading: &WindowSample, name: &str| reading.facts.get(name).and_then(Json::as_u64);
        let increase = |name: &str| {
            let count_before = before.and_then(|before| count(before, name)).unwrap_or(0);
            Some(count(reading, name)?.saturating_sub(count_before))
        };
        let (periods, time_ns) = (increase(THROTTLED_PERIODS)?, increase(THROTTLED_NS)?);
        Some(Throttled { periods, time_ns })
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
}
