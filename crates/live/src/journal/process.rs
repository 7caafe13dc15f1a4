//! The name of a process that survives the reuse of its pid: pid and start time.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::dir::{ASIDE, JOURNAL};

/// Number of the next journal of this process.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// A process of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessName {
    pid: u32,
    /// Clock ticks between the boot and the start of the process.
    start_ticks: u64,
}

impl ProcessName {
    pub fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid)?
            .ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        Ok(ProcessName { pid, start_ticks })
    }

    /// `PID-STARTTICKS-NUMBER.json`, another number each time.
    pub fn next_file_name(self) -> String {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        format!("{}-{}-{number}.{JOURNAL}", self.pid, self.start_ticks)
    }

    /// The process a journal's file name speaks of; `None` for a file that is no journal.
    pub fn of_file_name(name: &str) -> Option<Self> {
        let stem =
            name.strip_suffix(JOURNAL).or_else(|| name.strip_suffix(ASIDE))?.strip_suffix('.')?;
        let mut parts = stem.split('-');
        let pid = parts.next()?.parse().ok()?;
        let start_ticks = parts.next()?.parse().ok()?;
        let _number: u32 = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(ProcessName { pid, start_ticks })
    }

    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Whether exactly this process still lives. When in doubt (`/proc` unreadable), it does.
    pub fn lives(self) -> bool {
        match start_ticks(self.pid) {
            Ok(Some(start_ticks)) => start_ticks == self.start_ticks,
            Ok(None) => false,
            Err(_) => true,
        }
    }
}

/// Field 22 of `/proc/PID/stat`; `None` when there is no such process, or only its zombie.
fn start_ticks(pid: u32) -> io::Result<Option<u64>> {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => Ok(parse_start_ticks(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // No entry for the process, or no /proc at all?
            std::fs::metadata("/proc/self/stat").map(|_| None)
        }
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The command (field 2) may hold blanks and parentheses: count from the last one.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let dead = matches!(state, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !dead)
}

/// Identifies this boot; empty if the kernel does not report it.
pub(super) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_go_both_ways() {
        let own = ProcessName::own().unwrap();
        assert_eq!(ProcessName::of_file_name(&own.next_file_name()), Some(own));
        assert_eq!(ProcessName::of_file_name("1-2-0.aside").unwrap().pid(), 1);
        for bad in ["", "1.json", "1-2.json", "1-2-3-4.json", "a-2-0.json", "1-2-0.jsonx", "-.json"]
        {
            assert_eq!(ProcessName::of_file_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let own = ProcessName::own().unwrap();
        assert!(own.lives());
        assert!(!ProcessName { start_ticks: own.start_ticks + 1, ..own }.lives());
        assert!(!ProcessName { pid: 4_194_305, ..own }.lives());
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
