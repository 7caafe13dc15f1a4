//! The kernel memory that BPF maps and programs take, as the kernel states it. `handlers` reports
//! it among the facts of its bench.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Describes in results how [`KernelMemory`] is determined.
pub const METHOD: &str = "memlock of each map and program in /proc/self/fdinfo";

/// The kernel memory of maps and programs. A map that several objects share counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelMemory {
    /// Bytes by the line `map_id:` or `prog_id:` of fdinfo, which identifies the map or program.
    by_id: BTreeMap<String, u64>,
}

impl KernelMemory {
    /// Adds a map or a program; `None` if the kernel does not report its memory.
    pub(super) fn add(&mut self, fd: BorrowedFd<'_>) -> Option<()> {
        let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
        let (id, bytes) = parse(&std::fs::read_to_string(path).ok()?)?;
        self.by_id.insert(id, bytes);
        Some(())
    }

    /// Adds the maps and programs of `other` that are not in `self`.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.by_id.extend(other.by_id);
        self
    }

    /// Bytes of all maps and programs. Since Linux 6.4 the kernel states the memory that it has allocated for a map,
    /// and before that the size of the map's values (kernel/bpf/syscall.c, `bpf_map_show_fdinfo`).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.by_id.values().sum()
    }
}

/// Parses the line that identifies the map or program, and the bytes, from the text of an fdinfo file. `None` if either
/// line is missing.
fn parse(text: &str) -> Option<(String, u64)> {
    let is_id = |line: &&str| line.starts_with("map_id:") || line.starts_with("prog_id:");
    let id = text.lines().find(is_id)?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:"))?;
    Some((id.to_owned(), bytes.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text_has_an_identity_and_a_size() {
        let text =
            "pos:\t0\nflags:\t02000002\nmap_type:\t2\nmemlock:\t8192\nmap_id:\t7\nfrozen:\t0\n";
        assert_eq!(parse(text), Some(("map_id:\t7".to_owned(), 8_192)));
        assert_eq!(parse("pos:\t0\nmap_id:\t7\n"), None, "absent is not zero");
    }

    #[test]
    fn what_is_shared_counts_once() {
        let memory = |ids: &[(&str, u64)]| KernelMemory {
            by_id: ids.iter().map(|(id, bytes)| ((*id).to_owned(), *bytes)).collect(),
        };
        let all = memory(&[("map_id:1", 10), ("map_id:2", 20)])
            .with(memory(&[("map_id:2", 20), ("prog_id:2", 5)]));
        assert_eq!(all.bytes(), 35);
    }
}
