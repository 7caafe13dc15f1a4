//! How much memory this process can still get: what the machine has left, or less in a control group with a
//! limit, whose processes the kernel kills when they exceed it.

use std::fmt::{self, Display};

use super::cgroup::{MemoryLimit, cgroup_limits};
use super::cpu_time::memory_facts;
use super::root::Root;

const MIB: u64 = 1 << 20;

/// What is left for this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableMemory {
    /// Bytes; absent where the kernel does not say it.
    pub bytes: Option<u64>,
    /// The control group's limit, where there is one.
    pub limit: Option<MemoryLimit>,
}

/// Reads how much memory is left.
#[must_use]
pub fn available_memory(root: &Root) -> AvailableMemory {
    let limit = cgroup_limits(root).memory;
    let in_group = limit.as_ref().map(|limit| limit.available_bytes.unwrap_or(limit.limit_bytes));
    let bytes = [memory_facts(root).available_bytes, in_group].into_iter().flatten().min();
    AvailableMemory { bytes, limit }
}

/// Why there is no memory for something, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryShortage {
    /// What needs how much, and what there is.
    pub reason: String,
    /// How to get more.
    pub remedy: String,
}

impl Display for MemoryShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.remedy)
    }
}

impl AvailableMemory {
    /// Checks that `what` gets its memory and leaves as much again: the kernel ends a process that
    /// exceeds the limit of its group by SIGKILL, without a word.
    ///
    /// # Errors
    /// When less is left.
    pub fn check(&self, what: &str, needed_bytes: u64) -> Result<(), MemoryShortage> {
        let Some(available) = self.bytes.filter(|available| needed_bytes > available / 2) else {
            return Ok(());
        };
        let by_group = self.limit.as_ref();
        let by_group = by_group
            .filter(|limit| limit.available_bytes.unwrap_or(limit.limit_bytes) == available);
        let limited_by = by_group.map_or_else(String::new, |limit| {
            format!(" (a control group's limit of {} MiB: {})", limit.limit_bytes / MIB, limit.file)
        });
        let reason = format!(
            "{what} needs {} MiB, and more than half of the {} MiB that this process can get{limited_by} is \
             not taken",
            needed_bytes.div_ceil(MIB),
            available / MIB
        );
        let remedy = match by_group {
            Some(_) => "raise that limit: docker --memory, systemd MemoryMax=",
            None => "free some memory",
        };
        Err(MemoryShortage { reason, remedy: remedy.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    #[test]
    fn the_limit_of_the_group_counts_where_it_is_less_than_the_machines_memory() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(available_memory(&root), AvailableMemory::default());
        assert_eq!(available_memory(&root).check("a region", u64::MAX), Ok(()), "not known");
        let at = |path: &str, text: &str| plant(directory.path(), path, text);
        at("proc/meminfo", "MemTotal: 9999999 kB\nMemAvailable: 4194304 kB\n");
        let machine = available_memory(&root);
        assert_eq!(machine.bytes, Some(4096 * MIB));
        let shortage = machine.check("a region", 3000 * MIB).unwrap_err();
        assert!(shortage.reason.starts_with("a region needs 3000 MiB"), "{shortage}");
        assert_eq!(shortage.remedy, "free some memory");
        at("proc/self/cgroup", "0::/box\n");
        at("proc/self/mountinfo", "24 19 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        at("sys/fs/cgroup/box/memory.max", "536870912\n");
        at("sys/fs/cgroup/box/memory.current", "0\n");
        let group = available_memory(&root);
        assert_eq!(group.bytes, Some(512 * MIB));
        assert_eq!(group.check("a region", 256 * MIB), Ok(()));
        let shortage = group.check("a region", 257 * MIB).unwrap_err();
        assert!(
            shortage.reason.contains("limit of 512 MiB: /sys/fs/cgroup/box/memory.max"),
            "{shortage}"
        );
        assert!(shortage.remedy.contains("docker --memory"));
    }
}
