//! [`Throttling`]: how often and how long the CPU quotas of this process's groups kept threads from running, for
//! `window::ThrottlingWindow`.

use super::super::root::Root;
use super::levels::{Controller, Version, levels};
use super::{CpuQuota, cpu_quota, field};

/// The counts of cpu.stat of each of this process's groups up to a moment, or their increase.
///
/// A pod and its container, or a slice and its service, may both have a quota. Both then count the same stop of a thread,
/// so the counts of the levels must not be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// From the innermost group up. Has an entry for each group that counts.
    pub levels: Vec<LevelThrottling>,
}

/// The counts of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelThrottling {
    /// The directory of the group's files.
    directory: String,
    /// The quota that the group has now; `None` if it sets none.
    pub quota: Option<CpuQuota>,
    /// Number of periods whose quota the group used up.
    pub periods: u64,
    /// Time during which the quota kept the group's tasks from running, summed over the CPUs, ns.
    pub time_ns: u64,
}

impl Throttling {
    /// Reads the counts now; `None` if no level has any.
    #[must_use]
    pub fn now(root: &Root) -> Option<Throttling> {
        let counts = levels(root, Controller::Cpu).known().into_iter().filter_map(|level| {
            let file = level.file("cpu.stat");
            let periods = field(root, &file, "nr_throttled")?;
            let time_ns = match level.version {
                Version::V1 => field(root, &file, "throttled_time")?,
                Version::V2 => field(root, &file, "throttled_usec")?.saturating_mul(1000),
            };
            let (directory, quota) = (level.directory().to_owned(), cpu_quota(root, &level));
            Some(LevelThrottling { directory, quota, periods, time_ns })
        });
        let levels: Vec<LevelThrottling> = counts.collect();
        (!levels.is_empty()).then_some(Throttling { levels })
    }

    /// The increase of each group since `before`. Leaves out groups that `before` lacks, because this process was in
    /// another group then.
    #[must_use]
    pub fn since(self, before: &Throttling) -> Throttling {
        let increase = |level: LevelThrottling| {
            let mut levels = before.levels.iter();
            let before = levels.find(|candidate| candidate.directory == level.directory)?;
            Some(LevelThrottling {
                periods: level.periods.saturating_sub(before.periods),
                time_ns: level.time_ns.saturating_sub(before.time_ns),
                ..level
            })
        };
        Throttling { levels: self.levels.into_iter().filter_map(increase).collect() }
    }

    /// The group that was stopped longest. Its counts are a lower bound for all groups together: the stops of other groups
    /// may have been at the same time or at other times. `None` without groups.
    #[must_use]
    pub fn longest(&self) -> Option<&LevelThrottling> {
        // `max_by_key` returns the last of equal levels, here the innermost.
        self.levels.iter().rev().max_by_key(|level| (level.time_ns, level.periods))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::root::plant;
    use super::super::tests::{V1, root_with};
    use super::*;

    fn counts_of(throttling: &Throttling) -> Vec<(u64, u64)> {
        throttling.levels.iter().map(|level| (level.periods, level.time_ns)).collect()
    }

    #[test]
    fn both_versions_count_in_their_units() {
        let mut files = V1.to_vec();
        let top = "sys/fs/cgroup/cpu,cpuacct/cpu.stat";
        files.extend([
            (
                "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.stat",
                "nr_periods 9\nnr_throttled 5\nthrottled_time 7000\n",
            ),
            (top, "nr_periods 0\nnr_throttled 1\nthrottled_time 10\n"),
        ]);
        let (directory, root) = root_with(&files);
        let before = Throttling::now(&root).unwrap();
        assert_eq!(counts_of(&before), [(5, 7000), (1, 10)]);
        assert_eq!(before.longest().map(|level| level.periods), Some(5), "not the sum");
        plant(
            directory.path(),
            "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.stat",
            "nr_periods 12\nnr_throttled 7\nthrottled_time 7400\n",
        );
        plant(directory.path(), top, "nr_periods 3\nnr_throttled 4\nthrottled_time 910\n");
        let increase = Throttling::now(&root).unwrap().since(&before);
        assert_eq!(counts_of(&increase), [(2, 400), (3, 900)]);
        // The longest since boot was the other level.
        assert_eq!(increase.longest().map(|level| (level.periods, level.time_ns)), Some((3, 900)));
        // The root group of version 2 has no throttling lines.
        let (_directory, root) = root_with(&[
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", "24 19 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 5\n"),
            (
                "sys/fs/cgroup/a/cpu.stat",
                "usage_usec 5\nnr_periods 4\nnr_throttled 3\nthrottled_usec 8\n",
            ),
        ]);
        assert_eq!(counts_of(&Throttling::now(&root).unwrap()), [(3, 8000)]);
        let (_directory, root) = root_with(&[]);
        assert_eq!(Throttling::now(&root), None);
    }
}
