//! The time that a CPU quota of a control group took from a window. Every experiment of the live bench adds it to its
//! window's facts, and warns if it is not zero.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use crate::host::cgroup::{CpuQuota, LevelThrottling, Throttling};
use crate::host::{Root, cgroup_limits};

/// Name of a window's fact: the number of the quota's periods that stopped threads.
pub const THROTTLED_PERIODS: &str = "cpu_quota_throttled_periods";
/// Name of a window's fact: how long threads were stopped, summed over the CPUs, ns.
pub const THROTTLED_NS: &str = "cpu_quota_throttled_ns";
/// Names of a window's facts: both counts of each group, from this process's group up. The two facts above have the counts
/// of the group that was stopped longest.
pub const THROTTLED_PERIODS_BY_GROUP: &str = "cpu_quota_throttled_periods_by_group";
pub const THROTTLED_NS_BY_GROUP: &str = "cpu_quota_throttled_ns_by_group";

/// The throttling counters of this process's control groups at the start of a window.
#[derive(Clone, Debug)]
pub struct ThrottlingWindow {
    before: Option<Throttling>,
}

impl ThrottlingWindow {
    /// Reads the counters. Call it when the window opens.
    #[must_use]
    pub fn open(root: &Root) -> Self {
        ThrottlingWindow { before: Throttling::now(root) }
    }

    /// Adds the lowest quota, and the throttling since the window opened, to the window's facts. Returns the group that was
    /// stopped longest, with its quota. Without a quota, does nothing and returns `None`.
    pub fn add_facts(
        &self,
        root: &Root,
        facts: &mut Map<String, Json>,
    ) -> Option<(CpuQuota, LevelThrottling)> {
        let (before, lowest_quota) = (self.before.as_ref()?, cgroup_limits(root).cpu?);
        let increase = Throttling::now(root)?.since(before);
        let longest = increase.longest()?.clone();
        facts.insert("cpu_quota_cpus".to_owned(), json!(lowest_quota.cpus()));
        facts.insert(THROTTLED_PERIODS.to_owned(), json!(longest.periods));
        facts.insert(THROTTLED_NS.to_owned(), json!(longest.time_ns));
        if increase.levels.len() > 1 {
            let of_groups = |count: fn(&LevelThrottling) -> u64| -> Vec<u64> {
                increase.levels.iter().map(count).collect()
            };
            let periods = of_groups(|level| level.periods);
            facts.insert(THROTTLED_PERIODS_BY_GROUP.to_owned(), json!(periods));
            facts.insert(THROTTLED_NS_BY_GROUP.to_owned(), json!(of_groups(|level| level.time_ns)));
        }
        let quota = longest.quota.clone().unwrap_or(lowest_quota);
        Some((quota, longest))
    }

    /// Like [`ThrottlingWindow::add_facts`], but also adds a warning if a quota stopped threads, or may have stopped
    /// threads.
    pub fn report(&self, root: &Root, facts: &mut Map<String, Json>, warnings: &mut Vec<String>) {
        let unknown = cgroup_limits(root).unknown;
        if let Some(limit) = unknown.iter().find(|limit| limit.controller == "cpu") {
            warnings.push(format!(
                "whether a CPU quota stopped threads is unknown: {}; loops and loads may have stood still",
                limit.reason
            ));
        }
        let Some((quota, throttled)) = self.add_facts(root, facts) else { return };
        if throttled.periods > 0 {
            warnings.push(format!(
                "a CPU quota of {:.2} CPUs ({}) stopped the threads of this process's group in {} periods, for \
                 {:?} summed over CPUs: loops and loads stood still then (docker --cpus or systemd CPUQuota= \
                 removes it)",
                quota.cpus(),
                quota.file,
                throttled.periods,
                Duration::from_nanos(throttled.time_ns)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_with(directory: &std::path::Path, files: &[(&str, &str)]) {
        for (path, content) in files {
            let path = directory.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn a_throttled_window_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let stat = |periods: u32, us: u32| {
            let text = format!("nr_periods 99\nnr_throttled {periods}\nthrottled_usec {us}\n");
            root_with(directory.path(), &[("sys/fs/cgroup/a/cpu.stat", &text)]);
        };
        let closed = |window: ThrottlingWindow| {
            let (mut facts, mut warnings) = (Map::new(), Vec::new());
            window.report(&root, &mut facts, &mut warnings);
            (facts, warnings)
        };
        assert_eq!(closed(ThrottlingWindow::open(&root)), (Map::new(), Vec::new()), "no groups");
        root_with(
            directory.path(),
            &[
                ("proc/self/cgroup", "0::/a\n"),
                ("proc/self/mountinfo", "24 19 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
                ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
            ],
        );
        stat(3, 400);
        let (facts, warnings) = closed(ThrottlingWindow::open(&root));
        assert_eq!(facts["cpu_quota_throttled_periods"], 0);
        assert!(warnings.is_empty(), "{warnings:?}");
        let window = ThrottlingWindow::open(&root);
        stat(5, 1400);
        let (facts, warnings) = closed(window);
        assert_eq!(facts["cpu_quota_throttled_periods"], 2);
        assert_eq!(facts["cpu_quota_throttled_ns"], 1_000_000);
        assert!(
            warnings[0].contains("0.50 CPUs") && warnings[0].contains("in 2 periods, for 1ms"),
            "{warnings:?}"
        );
    }

    /// A pod and its container both have a quota, and both count the same stops of the container's threads.
    #[test]
    fn a_stop_that_two_groups_count_is_one_stop() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let stat = |group: &str, [periods, us]: [u64; 2]| {
            let text = format!("nr_throttled {periods}\nthrottled_usec {us}\n");
            root_with(directory.path(), &[(&format!("sys/fs/cgroup/{group}/cpu.stat"), &text)]);
        };
        root_with(
            directory.path(),
            &[
                ("proc/self/cgroup", "0::/pod/box\n"),
                ("proc/self/mountinfo", "24 19 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
                ("sys/fs/cgroup/pod/cpu.max", "60000 100000\n"),
                ("sys/fs/cgroup/pod/box/cpu.max", "30000 100000\n"),
            ],
        );
        let throttled = |[pod, inner]: [[u64; 2]; 2]| {
            stat("pod", [0, 0]);
            stat("pod/box", [0, 0]);
            let window = ThrottlingWindow::open(&root);
            stat("pod", pod);
            stat("pod/box", inner);
            let (mut facts, mut warnings) = (Map::new(), Vec::new());
            window.report(&root, &mut facts, &mut warnings);
            (facts, warnings.concat())
        };
        let (facts, warning) = throttled([[20, 800], [20, 1000]]);
        assert_eq!(
            (&facts[THROTTLED_PERIODS], &facts[THROTTLED_NS]),
            (&json!(20), &json!(1_000_000))
        );
        assert_eq!(facts[THROTTLED_NS_BY_GROUP], json!([1_000_000, 800_000]));
        assert!(warning.contains("of 0.30 CPUs (/sys/fs/cgroup/pod/box/cpu.max)"), "{warning}");
        // The pod's other containers use up its quota.
        let (facts, warning) = throttled([[9, 500], [0, 0]]);
        assert_eq!((&facts[THROTTLED_PERIODS], &facts["cpu_quota_cpus"]), (&json!(9), &json!(0.3)));
        assert!(warning.contains("of 0.60 CPUs (/sys/fs/cgroup/pod/cpu.max)"), "{warning}");
        root_with(directory.path(), &[("proc/self/cgroup", "0::/../other\n")]);
        let (facts, warning) = throttled([[9, 500], [0, 0]]);
        assert!(facts.is_empty() && warning.contains("is unknown: no mount"), "{warning}");
    }
}
