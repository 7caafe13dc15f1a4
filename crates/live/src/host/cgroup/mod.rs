//! Limits that control groups impose on this process: memory, CPU time, number of processes. `available_memory`,
//! `spawn`, `window::throttling` and `irqlab doctor` use them.
//!
//! The limit of a group and the limits of all groups above it apply. Therefore each limit here is the tightest one of
//! the levels from this process's group up to the mount point. Both versions of the interface are read
//! (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst). A machine may have both, with each controller in one of them.
//! A container's own mount hides some levels above it, whose limits are unknown.

mod levels;
mod names;
mod throttling;

use serde::Serialize;

use self::levels::{Controller, Level, Version, levels};
use super::root::Root;

pub use names::{CgroupPaths, Hierarchy};
pub use throttling::{LevelThrottling, Throttling};

/// A memory limit from this value on means no limit: for that, version 1 shows the largest number of pages, in bytes.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// The tightest limits of this process. A limit is `None` if no group sets it, or if `unknown` names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CgroupLimits {
    /// The lowest limit of memory.
    pub memory: Option<MemoryLimit>,
    /// The limit of the group with the fewest available bytes. It may be a higher limit of a group above, which has other
    /// members that use it up.
    pub least_available_memory: Option<MemoryLimit>,
    pub cpu: Option<CpuQuota>,
    pub pids: Option<PidLimit>,
    /// Limits that may exist, but whose files this process cannot find.
    pub unknown: Vec<UnknownLimit>,
}

/// A limit that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownLimit {
    /// Name of the limited resource: `memory`, `cpu` or `pids`.
    pub controller: &'static str,
    pub reason: String,
}

/// The memory limit of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryLimit {
    /// Bytes that all processes of the group together may use.
    pub limit_bytes: u64,
    /// Bytes below the limit that the group can still get, including page cache that the
    /// kernel can reclaim. `None` if unknown.
    pub available_bytes: Option<u64>,
    /// The file that sets the limit.
    pub file: String,
}

impl MemoryLimit {
    /// The available bytes; the limit if they are unknown.
    #[must_use]
    pub fn available_max(&self) -> u64 {
        self.available_bytes.unwrap_or(self.limit_bytes)
    }
}

/// The limit of a group's CPU time in each period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuQuota {
    /// CPU time of all the group's processes together, us.
    pub quota_us: u64,
    /// Length of a period, us.
    pub period_us: u64,
    /// The file that sets the quota.
    pub file: String,
}

impl CpuQuota {
    /// How many CPUs the group can keep busy on average.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us.max(1) as f64
    }
}

/// The limit of the number of a group's processes and threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PidLimit {
    pub limit: u64,
    /// Number of processes and threads now; `None` if the kernel does not state it.
    pub current: Option<u64>,
    /// How often a limit of this process's groups has refused a process or thread so far: the maximum over all levels.
    /// The kernel counts a refusal at the group that sets the limit, and older kernels at the group of the process.
    pub refused_count: Option<u64>,
    /// The file that sets the limit.
    pub file: String,
}

impl PidLimit {
    /// Number of processes and threads that the group can still start; the limit if the current number is unknown.
    #[must_use]
    pub fn unused(&self) -> u64 {
        self.limit.saturating_sub(self.current.unwrap_or(0))
    }

    /// Whether the limit is reached now, or has been reached before: it has refused a process or thread.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.current.is_some_and(|current| current >= self.limit)
            || self.refused_count.is_some_and(|times| times > 0)
    }
}

/// Reads the tightest limits of this process.
#[must_use]
pub fn cgroup_limits(root: &Root) -> CgroupLimits {
    let unknown = [Controller::Memory, Controller::Cpu, Controller::Pids].into_iter().filter_map(
        |controller| {
            let reason = levels(root, controller).reason()?.to_owned();
            Some(UnknownLimit { controller: controller.name(), reason })
        },
    );
    let memory_levels = levels(root, Controller::Memory).known();
    let memory_limits = memory_levels.iter().filter_map(|level| memory_limit(root, level));
    let memory_limits: Vec<MemoryLimit> = memory_limits.collect();
    let cpu_levels = levels(root, Controller::Cpu).known();
    let cpu_quotas = cpu_levels.iter().filter_map(|level| cpu_quota(root, level));
    CgroupLimits {
        memory: memory_limits.iter().min_by_key(|limit| limit.limit_bytes).cloned(),
        cpu: cpu_quotas.min_by(|first, second| first.cpus().total_cmp(&second.cpus())),
        pids: pid_limit(root),
        unknown: unknown.collect(),
        least_available_memory: memory_limits.into_iter().min_by_key(MemoryLimit::available_max),
    }
}

/// The memory limit that one level sets; `None` if it sets none.
fn memory_limit(root: &Root, level: &Level) -> Option<MemoryLimit> {
    let (limit, used, reclaimable) = match level.version {
        Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        Version::V2 => ("memory.max", "memory.current", "inactive_file"),
    };
    let file = level.file(limit);
    // In version 2, `max` means no limit, and does not parse as a number.
    let limit_bytes = root.number::<u64>(&file).filter(|limit| *limit < UNLIMITED_BYTES)?;
    let available = || {
        let used: u64 = root.number(level.file(used))?;
        let reclaimable = field(root, &level.file("memory.stat"), reclaimable).unwrap_or(0);
        Some(limit_bytes.saturating_sub(used.saturating_sub(reclaimable)))
    };
    Some(MemoryLimit { limit_bytes, available_bytes: available(), file })
}

/// The CPU quota that one level sets; `None` if the level sets none. Both versions state times in us.
fn cpu_quota(root: &Root, level: &Level) -> Option<CpuQuota> {
    let (file, quota_us, period_us) = match level.version {
        Version::V1 => {
            let file = level.file("cpu.cfs_quota_us");
            // -1 means no quota, and does not parse as an unsigned number.
            let quota_us = root.number(&file)?;
            (file, quota_us, root.number(level.file("cpu.cfs_period_us"))?)
        }
        Version::V2 => {
            let file = level.file("cpu.max");
            // The quota and the period, such as `100000 100000`. `max` in place of the quota does not parse as a
            // number.
            let text = root.word(&file)?;
            let (quota, period) = text.split_once(' ')?;
            (file, quota.parse().ok()?, period.trim().parse().ok()?)
        }
    };
    Some(CpuQuota { quota_us, period_us, file })
}

/// The limit of the number of processes and threads that this process reaches first: that of the level with the fewest
/// unused ones. A group above may have a higher limit and other members, which use it up.
#[must_use]
pub fn pid_limit(root: &Root) -> Option<PidLimit> {
    let levels = levels(root, Controller::Pids).known();
    let refused = levels.iter().filter_map(|level| field(root, &level.file("pids.events"), "max"));
    let refused_count = refused.max();
    let limits = levels.iter().filter_map(|level| {
        let file = level.file("pids.max");
        let limit = root.number(&file)?;
        let current = root.number(level.file("pids.current"));
        Some(PidLimit { limit, current, refused_count, file })
    });
    limits.min_by_key(PidLimit::unused)
}

/// The value of the line `NAME VALUE` of a file. `None` if the file or the line is missing, or its value is no number.
fn field(root: &Root, file: &str, name: &str) -> Option<u64> {
    let text = root.text(file)?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    /// Files below a root, as `PATH: CONTENT`.
    pub(super) fn root_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        files.iter().for_each(|(path, content)| plant(directory.path(), path, content));
        let root = Root::new(directory.path());
        (directory, root)
    }

    /// Version 1 on a machine with one mount for each controller: a container's group
    /// below the root group.
    pub(super) const V1: [(&str, &str); 2] = [
        (
            "proc/self/cgroup",
            "9:pids:/\n4:memory:/docker/ab\n3:cpuset:/\n2:cpu,cpuacct:/docker/ab\n0::/\n",
        ),
        (
            "proc/self/mountinfo",
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
             39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
        ),
    ];

    #[test]
    fn limits_of_version_1_are_the_tightest_of_all_levels() {
        let memory = "sys/fs/cgroup/memory";
        let cpu = "sys/fs/cgroup/cpu,cpuacct";
        let mut files = V1.to_vec();
        let [limit, used, stat, above] = [
            format!("{memory}/docker/ab/memory.limit_in_bytes"),
            format!("{memory}/docker/ab/memory.usage_in_bytes"),
            format!("{memory}/docker/ab/memory.stat"),
            format!("{memory}/docker/memory.limit_in_bytes"),
        ];
        let top = format!("{memory}/memory.limit_in_bytes");
        let [quota, period] =
            ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|name| format!("{cpu}/docker/ab/{name}"));
        let [quota_above, period_above] =
            ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|name| format!("{cpu}/docker/{name}"));
        files.extend([
            (limit.as_str(), "536870912\n"),
            (&used, "100000000\n"),
            (&stat, "cache 7\ntotal_cache 8\ntotal_inactive_file 36870912\n"),
            (&above, "1073741824\n"),
            (&top, "9223372036854771712\n"),
            (&quota, "-1\n"),
            (&period, "100000\n"),
            (&quota_above, "50000\n"),
            (&period_above, "100000\n"),
            ("sys/fs/cgroup/pids/pids.max", "max\n"),
        ]);
        let (_directory, root) = root_with(&files);
        let limits = cgroup_limits(&root);
        let memory = limits.memory.unwrap();
        assert_eq!(memory.limit_bytes, 512 << 20);
        assert_eq!(memory.available_bytes, Some((512 << 20) - 100_000_000 + 36_870_912));
        assert_eq!(memory.file, format!("/{limit}"));
        let quota = limits.cpu.unwrap();
        assert_eq!((quota.cpus(), quota.file), (0.5, format!("/{quota_above}")));
        assert_eq!(limits.pids, None);
    }

    /// The content comes from a Debian 12 with systemd: a service with MemoryMax=512M,
    /// CPUQuota=150% and TasksMax=64, below a slice with MemoryMax=256M.
    #[test]
    fn limits_of_version_2_are_the_tightest_of_all_levels() {
        let slice = "sys/fs/cgroup/system.slice";
        let service = format!("{slice}/irqlab.service");
        let file = |name: &str| format!("{service}/{name}");
        let [memory, current, stat, cpu, pids, pids_now] =
            ["memory.max", "memory.current", "memory.stat", "cpu.max", "pids.max", "pids.current"]
                .map(file);
        let slice_memory = format!("{slice}/memory.max");
        let slice_current = format!("{slice}/memory.current");
        let slice_cpu = format!("{slice}/cpu.max");
        let (directory, root) = root_with(&[
            ("proc/self/cgroup", "0::/system.slice/irqlab.service\n"),
            (
                "proc/self/mountinfo",
                "24 19 0:22 / /sys/fs/cgroup rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n",
            ),
            (memory.as_str(), "536870912\n"),
            (&current, "1048576\n"),
            (&stat, "anon 4096\nfile 8192\ninactive_file 524288\n"),
            (&cpu, "150000 100000\n"),
            (&pids, "64\n"),
            (&pids_now, "3\n"),
            (&slice_memory, "268435456\n"),
            (&slice_current, "201326592\n"),
            (&slice_cpu, "max 100000\n"),
        ]);
        let limits = cgroup_limits(&root);
        let memory = limits.memory.unwrap();
        assert_eq!(memory.limit_bytes, 256 << 20);
        assert_eq!(memory.available_bytes, Some(64 << 20));
        assert_eq!(memory.file, format!("/{slice_memory}"));
        assert_eq!(limits.cpu.unwrap().cpus(), 1.5);
        let pids = limits.pids.unwrap();
        assert_eq!((pids.limit, pids.current), (64, Some(3)));
        assert!(!pids.is_reached() && pids.refused_count.is_none());
        // In older kernels the group of the process counts refusals by the limit of a group above it.
        plant(directory.path(), &format!("{service}/pids.events"), "max 0\n");
        plant(directory.path(), &format!("{slice}/pids.max"), "16\n");
        plant(directory.path(), &format!("{slice}/pids.events"), "max 0\n");
        let reached = || pid_limit(&root).unwrap();
        assert_eq!((reached().limit, reached().is_reached()), (16, false));
        plant(directory.path(), &format!("{service}/pids.events"), "max 2\n");
        assert_eq!((reached().refused_count, reached().is_reached()), (Some(2), true));
    }

    /// A group above has a higher limit, and other members that use it up.
    #[test]
    fn the_level_with_the_least_room_is_found() {
        let (outer, inner) =
            ("sys/fs/cgroup/user.slice", "sys/fs/cgroup/user.slice/irqlab.service");
        let (directory, root) = root_with(&[
            ("proc/self/cgroup", "0::/user.slice/irqlab.service\n"),
            ("proc/self/mountinfo", "24 19 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ]);
        let numbers = [
            (outer, "pids.max", 120),
            (outer, "pids.current", 104),
            (inner, "pids.max", 100),
            (inner, "pids.current", 4),
            (outer, "memory.max", 2000 << 20),
            (outer, "memory.current", 1900 << 20),
            (inner, "memory.max", 1000 << 20),
            (inner, "memory.current", 10 << 20),
        ];
        for (group, name, number) in numbers {
            plant(directory.path(), &format!("{group}/{name}"), format!("{number}\n"));
        }
        let limits = cgroup_limits(&root);
        let pids = limits.pids.unwrap();
        assert_eq!((pids.file, pids.limit), (format!("/{outer}/pids.max"), 120));
        let [lowest, tightest] =
            [limits.memory, limits.least_available_memory].map(|limit| limit.unwrap());
        assert_eq!((lowest.limit_bytes, lowest.available_bytes), (1000 << 20, Some(990 << 20)));
        assert_eq!((tightest.limit_bytes, tightest.available_bytes), (2000 << 20, Some(100 << 20)));
        assert_eq!(tightest.file, format!("/{outer}/memory.max"));
    }

    /// A container whose file system of groups is the host's: its own limits are not those at the mount point.
    #[test]
    fn limits_of_a_group_that_is_not_shown_are_unknown() {
        let (_directory, root) = root_with(&[
            ("proc/self/cgroup", "0::/box\n"),
            ("proc/self/mountinfo", "24 19 0:22 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/memory.max", "67108864\n"),
            ("sys/fs/cgroup/pids.max", "64\n"),
        ]);
        let limits = cgroup_limits(&root);
        assert_eq!((limits.memory, limits.pids), (None, None));
        let controllers: Vec<_> = limits.unknown.iter().map(|limit| limit.controller).collect();
        assert_eq!(controllers, ["memory", "cpu", "pids"]);
        assert!(limits.unknown[0].reason.contains("no mount"), "{:?}", limits.unknown);
    }

    #[test]
    fn without_groups_there_are_no_limits() {
        let (_directory, root) = root_with(&[]);
        assert_eq!(cgroup_limits(&root), CgroupLimits::default());
        let (_directory, root) = root_with(&V1);
        assert_eq!(cgroup_limits(&root), CgroupLimits::default());
    }

    #[test]
    fn this_process_has_limits_that_are_no_nonsense() {
        let limits = cgroup_limits(&Root::default());
        assert!(limits.memory.is_none_or(|memory| memory.limit_bytes > 1 << 20));
        assert!(limits.cpu.is_none_or(|quota| quota.cpus() > 0.0));
    }
}
