//! The time that a CPU quota of a control group took from a window. Every experiment of the live bench adds it to its
//! window's facts, and warns if it is not zero.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use crate::host::cgroup::{CpuQuota, Throttling};
use crate::host::{Root, cgroup_limits};

/// Name of a window's fact: the number of the quota's periods that stopped threads.
pub const THROTTLED_PERIODS: &str = "cpu_quota_throttled_periods";
/// Name of a window's fact: how long threads were stopped, summed over the CPUs, ns.
pub const THROTTLED_NS: &str = "cpu_quota_throttled_ns";

/// The throttling counters of this process's control groups at the start of a window.
#[derive(Clone, Copy, Debug)]
pub struct ThrottlingWindow {
    before: Option<Throttling>,
}

impl ThrottlingWindow {
    /// Reads the counters. Call it when the window opens.
    #[must_use]
    pub fn open(root: &Root) -> Self {
        ThrottlingWindow { before: Throttling::now(root) }
    }

    /// Adds the quota, and the throttling since the window opened, to the window's facts. Also returns both. Does
    /// nothing without a quota.
    pub fn add_facts(
        &self,
        root: &Root,
        facts: &mut Map<String, Json>,
    ) -> Option<(CpuQuota, Throttling)> {
        let (before, quota) = (self.before?, cgroup_limits(root).cpu?);
        let throttled = Throttling::now(root)?.since(before);
        facts.insert("cpu_quota_cpus".to_owned(), json!(quota.cpus()));
        facts.insert(THROTTLED_PERIODS.to_owned(), json!(throttled.periods));
        facts.insert(THROTTLED_NS.to_owned(), json!(throttled.time_ns));
        Some((quota, throttled))
    }

    /// Like [`ThrottlingWindow::add_facts`], but also adds a warning if the quota stopped threads.
    pub fn close(self, root: &Root, facts: &mut Map<String, Json>, warnings: &mut Vec<String>) {
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
            window.close(&root, &mut facts, &mut warnings);
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
}
