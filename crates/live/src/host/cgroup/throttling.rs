//! [`Throttling`]: how often and how long a CPU quota kept this process's group from running, for
//! `window::ThrottlingWindow`.

use super::super::root::Root;
use super::field;
use super::levels::{Controller, Version, levels};

/// The counts of cpu.stat up to a moment, summed over this process's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Number of periods whose quota the group used up.
    pub periods: u64,
    /// Time during which the quota kept tasks from running, summed over the CPUs, ns.
    pub time_ns: u64,
}

impl Throttling {
    /// Reads the counts now; `None` if no level has any.
    #[must_use]
    pub fn now(root: &Root) -> Option<Throttling> {
        let counts = levels(root, Controller::Cpu).into_iter().filter_map(|level| {
            let file = level.file("cpu.stat");
            let periods = field(root, &file, "nr_throttled")?;
            let time_ns = match level.version {
                Version::V1 => field(root, &file, "throttled_time")?,
                Version::V2 => field(root, &file, "throttled_usec")?.saturating_mul(1000),
            };
            Some(Throttling { periods, time_ns })
        });
        counts.reduce(|sum, level| Throttling {
            periods: sum.periods.saturating_add(level.periods),
            time_ns: sum.time_ns.saturating_add(level.time_ns),
        })
    }

    /// The increase since `before`.
    #[must_use]
    pub fn since(self, before: Throttling) -> Throttling {
        Throttling {
            periods: self.periods.saturating_sub(before.periods),
            time_ns: self.time_ns.saturating_sub(before.time_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{V1, root_with};
    use super::*;

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
        let (_directory, root) = root_with(&files);
        let counts = Throttling::now(&root).unwrap();
        assert_eq!(counts, Throttling { periods: 6, time_ns: 7010 });
        let before = Throttling { periods: 2, time_ns: 7000 };
        assert_eq!(counts.since(before), Throttling { periods: 4, time_ns: 10 });
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
        assert_eq!(Throttling::now(&root), Some(Throttling { periods: 3, time_ns: 8000 }));
        let (_directory, root) = root_with(&[]);
        assert_eq!(Throttling::now(&root), None);
    }
}
