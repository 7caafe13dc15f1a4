//! The owner of a journal: which process it is, by the journal's name, and whether it may still live. A replay undoes
//! only journals of dead owners.

use std::io;
use std::path::Path;

use super::dir::{ASIDE, JOURNAL};
use crate::host::{in_first_pid_namespace, in_first_time_namespace};

/// Prefix of the names of journals whose owners hold them locked: `journal-PID-UUID.json`.
const PREFIX: &str = "journal-";

/// The owner of a journal, as its file's name describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Holds its journal locked until it ends. The process number only serves messages.
    Locking { pid: u32 },
    /// Ran an earlier version of irqlab, which locked nothing. `start_ticks`: clock ticks from the boot to the start
    /// of the process. The name is `PID-TICKS-NUMBER.json`.
    Unlocked { pid: u32, start_ticks: u64 },
}

/// Makes a name that no other journal has, in any namespace.
///
/// Fails if /proc has no random numbers.
pub(super) fn new_file_name() -> io::Result<String> {
    let unique = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(format!("{PREFIX}{}-{}.{JOURNAL}", std::process::id(), unique.trim()))
}

impl Owner {
    /// The owner that a file's name describes; `None` for a file that is not a journal.
    pub fn of_file_name(name: &str) -> Option<Self> {
        let stem =
            name.strip_suffix(JOURNAL).or_else(|| name.strip_suffix(ASIDE))?.strip_suffix('.')?;
        if let Some(pid_and_uuid) = stem.strip_prefix(PREFIX) {
            let (pid, unique) = pid_and_uuid.split_once('-')?;
            return (!unique.is_empty()).then_some(Owner::Locking { pid: pid.parse().ok()? });
        }
        let mut parts = stem.split('-');
        let pid = parts.next()?.parse().ok()?;
        let start_ticks = parts.next()?.parse().ok()?;
        let _number: u32 = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Owner::Unlocked { pid, start_ticks })
    }

    pub fn pid(self) -> u32 {
        match self {
            Owner::Locking { pid } | Owner::Unlocked { pid, .. } => pid,
        }
    }

    /// Whether the owner may live if its journal is not locked. True in doubt.
    pub fn may_live_unlocked(self) -> bool {
        match self {
            Owner::Locking { .. } => false,
            Owner::Unlocked { pid, start_ticks: recorded } => {
                !in_first_namespaces()
                    || start_ticks(pid).map_or(true, |ticks| ticks == Some(recorded))
            }
        }
    }

    /// Whether the owner of another user's journal, which this process cannot open, may live. True in doubt.
    /// /proc/locks lists all locks only in the initial PID namespace.
    pub fn may_live_elsewhere(self, path: &Path) -> bool {
        match self {
            Owner::Locking { .. } => !in_first_namespaces() || is_listed_as_locked(path),
            Owner::Unlocked { .. } => self.may_live_unlocked(),
        }
    }
}

/// Whether this process is in the initial PID and time namespaces, so it sees the machine's
/// process numbers and start times.
fn in_first_namespaces() -> bool {
    in_first_pid_namespace() && in_first_time_namespace()
}

/// Whether /proc/locks lists a lock of a file with this file's inode, on any device. True if that cannot be read.
fn is_listed_as_locked(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(inode) = std::fs::symlink_metadata(path).map(|data| data.ino()) else { return true };
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return true };
    // A line is `1: FLOCK  ADVISORY  WRITE 2897 fe:00:5456290 0 EOF`.
    let inode_of = |word: &str| word.splitn(3, ':').nth(2)?.parse::<u64>().ok();
    locks.split_whitespace().any(|word| inode_of(word) == Some(inode))
}

/// Start time of a process in clock ticks since boot (field 22 of `/proc/PID/stat`). `None` if there is no such
/// process, or it is a zombie.
///
/// Fails if /proc cannot be read.
fn start_ticks(pid: u32) -> io::Result<Option<u64>> {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => Ok(parse_start_ticks(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Distinguishes a missing process from a missing /proc.
            std::fs::metadata("/proc/self/stat").map(|_| None)
        }
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses the start time from the text of `/proc/PID/stat`; `None` for a zombie, a dead process, and any other text.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The command (field 2, in parentheses) may contain blanks and parentheses, so fields are
    // counted from the last parenthesis.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    // A zombie, or a dead process.
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The identity of this boot; empty if the kernel has no such file. A caller must not treat an error as another boot:
/// settings of another boot are not restored.
pub(super) fn boot_id() -> io::Result<String> {
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map(|text| text.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_tell_owners() {
        let name = new_file_name().unwrap();
        let this_process = Owner::Locking { pid: std::process::id() };
        assert_eq!(Owner::of_file_name(&name), Some(this_process));
        assert_eq!(Owner::of_file_name(&name.replace(JOURNAL, ASIDE)), Some(this_process));
        assert_ne!(name, new_file_name().unwrap());
        let earlier = Owner::Unlocked { pid: 1, start_ticks: 2 };
        assert_eq!(Owner::of_file_name("1-2-0.aside"), Some(earlier));
        for bad in ["", "1.json", "1-2.json", "1-2-3-4.json", "a-2-0.json", "1-2-0.jsonx", "-.json"]
            .into_iter()
            .chain(["journal-1.json", "journal-1-.json", "journal-x-y.json", "kept-1.json"])
        {
            assert_eq!(Owner::of_file_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid).unwrap().unwrap();
        assert!(Owner::Unlocked { pid, start_ticks }.may_live_unlocked());
        if !in_first_namespaces() {
            return needs::not_run(needs::Need::Other, "this is a namespace of processes");
        }
        let reused = Owner::Unlocked { pid, start_ticks: start_ticks + 1 };
        assert!(!reused.may_live_unlocked());
        assert!(!Owner::Unlocked { pid: 4_194_305, start_ticks }.may_live_unlocked());
    }

    #[test]
    fn a_locked_file_is_listed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = super::super::lock::create_locked(&path).unwrap();
        assert!(is_listed_as_locked(&path));
        drop(file);
        assert!(!is_listed_as_locked(&path));
        assert!(is_listed_as_locked(&directory.path().join("none")), "in doubt");
    }

    #[test]
    fn the_start_time_is_found_behind_any_command() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse_start_ticks(&format!("7 (a) b) {tail}")), Some(4711));
        assert_eq!(parse_start_ticks(&format!("7 (a) {}", tail.replace('S', "Z"))), None);
        assert_eq!(parse_start_ticks("7 (a"), None);
        assert_eq!(parse_start_ticks("7 (a)"), None);
    }
}
