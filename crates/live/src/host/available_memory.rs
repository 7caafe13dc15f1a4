//! How much memory this process can still get. A control group may have a limit below the machine's free
//! memory, and the kernel kills processes of a group that exceeds its limit. Loads, loops and simulated
//! machines check the memory before they take it.

use std::fmt::{self, Display};

use lab::experiment::BenchError;

use super::cgroup::{MemoryLimit, cgroup_limits};
use super::cpu_time::memory_facts;
use super::root::Root;

const MIB: u64 = 1 << 20;

/// The memory that this process can still get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableMemory {
    /// Bytes that are still available; `None` if the kernel does not state them.
    pub bytes: Option<u64>,
    /// The limit of the control group that leaves this process the fewest bytes, if there is one.
    pub limit: Option<MemoryLimit>,
}

/// Reads the available memory: the machine's, or less if the control group's limit leaves less.
#[must_use]
pub fn available_memory(root: &Root) -> AvailableMemory {
    let limit = cgroup_limits(root).least_available_memory;
    let in_group = limit.as_ref().map(MemoryLimit::available_max);
    let bytes = [memory_facts(root).available_bytes, in_group].into_iter().flatten().min();
    AvailableMemory { bytes, limit }
}

/// Why there is not enough memory, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryShortage {
    /// Names the use, the memory that it needs, and the memory that there is.
    pub reason: String,
    pub remedy: String,
}

impl From<MemoryShortage> for BenchError {
    fn from(MemoryShortage { reason, remedy }: MemoryShortage) -> BenchError {
        BenchError::Unavailable { reason, remedy: Some(remedy) }
    }
}

impl Display for MemoryShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.remedy)
    }
}

impl AvailableMemory {
    /// Checks that this process can get the `needed_bytes` that `what` needs, and a reserve of the same size. The
    /// reserve matters because the kernel kills a process without a message if its group exceeds the limit. Succeeds
    /// if the available memory is unknown.
    ///
    /// Fails with [`MemoryShortage`] if less memory is available.
    pub fn check(&self, what: &str, needed_bytes: u64) -> Result<(), MemoryShortage> {
        let Some(available) = self.bytes.filter(|available| needed_bytes > available / 2) else {
            return Ok(());
        };
        let group_limit = self.limit.as_ref();
        let group_limit = group_limit.filter(|limit| limit.available_max() == available);
        let limited_by = group_limit.map_or_else(String::new, |limit| {
            format!(" (a control group's limit of {} MiB: {})", limit.limit_bytes / MIB, limit.file)
        });
        let reason = format!(
            "{what} needs {} MiB and an equal reserve; only {} MiB are available{limited_by}",
            needed_bytes.div_ceil(MIB),
            available / MIB
        );
        let remedy = match group_limit {
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
        let write_file = |path: &str, text: &str| plant(directory.path(), path, text);
        write_file("proc/meminfo", "MemTotal: 9999999 kB\nMemAvailable: 4194304 kB\n");
        let machine = available_memory(&root);
        assert_eq!(machine.bytes, Some(4096 * MIB));
        let shortage = machine.check("a region", 3000 * MIB).unwrap_err();
        assert!(shortage.reason.starts_with("a region needs 3000 MiB"), "{shortage}");
        assert_eq!(shortage.remedy, "free some memory");
        write_file("proc/self/cgroup", "0::/box\n");
        write_file("proc/self/mountinfo", "24 19 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write_file("sys/fs/cgroup/box/memory.max", "536870912\n");
        write_file("sys/fs/cgroup/box/memory.current", "0\n");
        let group = available_memory(&root);
        assert_eq!(group.bytes, Some(512 * MIB));
        assert_eq!(group.check("a region", 256 * MIB), Ok(()));
        let shortage = group.check("a region", 257 * MIB).unwrap_err();
        assert!(
            shortage.reason.contains("limit of 512 MiB: /sys/fs/cgroup/box/memory.max"),
            "{shortage}"
        );
        assert!(shortage.remedy.contains("docker --memory"));
        // A group above has a higher limit, and other members that use it up.
        write_file("sys/fs/cgroup/memory.max", "1073741824\n");
        write_file("sys/fs/cgroup/memory.current", "1048576000\n");
        let shortage = available_memory(&root).check("a region", 100 * MIB).unwrap_err();
        assert!(
            shortage.reason.contains("limit of 1024 MiB: /sys/fs/cgroup/memory.max"),
            "{shortage}"
        );
    }
}
