//! The PID and time namespaces of this process, which determine the process numbers and clocks that it sees. The
//! journal asks whether it can recognise processes; `clock::kernel` converts this process's clock to the kernel's.

use std::fs::read_link;

use serde::Serialize;

use super::root::Root;

/// Targets of the links in /proc/self/ns for the initial namespaces, whose inode numbers are fixed in the kernel
/// (include/linux/proc_ns.h).
const INITIAL_PID: &str = "pid:[4026531836]";
const INITIAL_TIME: &str = "time:[4026531834]";
const INITIAL_USER: &str = "user:[4026531837]";

/// Whether this process is in the initial namespaces, and how its clock differs from the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamespaceFacts {
    /// Whether the PID namespace is the initial one. In another one, process numbers differ from the kernel's, and the
    /// kernel's threads are invisible.
    pub pid_is_initial: Option<bool>,
    /// Whether the time namespace is the initial one, whose clocks equal the kernel's. True on
    /// a kernel without time namespaces.
    pub time_is_initial: Option<bool>,
    /// CLOCK_MONOTONIC of this process minus the kernel's, ns. `None` if /proc does not show it: /proc shows the
    /// offset of the namespace of this process's children, which may be another namespace.
    pub monotonic_offset_ns: Option<i64>,
}

/// Reads the facts about this process's namespaces.
#[must_use]
pub fn namespaces(root: &Root) -> NamespaceFacts {
    let link = |name: &str| {
        let target = read_link(root.path(format!("proc/self/ns/{name}"))).ok()?;
        target.into_os_string().into_string().ok()
    };
    let pid = link("pid");
    let (time, time_for_children) = (link("time"), link("time_for_children"));
    // Linux has time namespaces since version 5.6. Without a link for PIDs, /proc is not readable, and
    // the missing link for times means nothing.
    let has_time_namespaces = time.is_some() || pid.is_none();
    let time_is_initial = match &time {
        Some(name) => Some(name == INITIAL_TIME),
        None => (!has_time_namespaces).then_some(true),
    };
    let shown_ns = || {
        let shares_childrens_namespace = time.is_some() && time == time_for_children;
        shares_childrens_namespace
            .then(|| offset_ns(&root.text("proc/self/timens_offsets")?))
            .flatten()
    };
    NamespaceFacts {
        pid_is_initial: pid.map(|name| name == INITIAL_PID),
        time_is_initial,
        monotonic_offset_ns: if time_is_initial == Some(true) { Some(0) } else { shown_ns() },
    }
}

/// The offset of CLOCK_MONOTONIC, ns, from the line `monotonic SECONDS NANOSECONDS` (time_namespaces(7)).
fn offset_ns(offsets: &str) -> Option<i64> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let mut fields = line.split_ascii_whitespace();
    let (seconds, ns): (i64, i64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// The inode of this process's PID namespace. `None` if /proc does not state it.
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    let metadata = std::fs::metadata("/proc/self/ns/pid").ok()?;
    Some(std::os::unix::fs::MetadataExt::ino(&metadata))
}

/// Whether this process sees all processes of the machine, with the kernel's numbers. False if that is unknown.
#[must_use]
pub fn in_first_pid_namespace() -> bool {
    namespaces(&Root::default()).pid_is_initial == Some(true)
}

/// Whether this process's capabilities are rights on the whole machine. In another user namespace, they are rights to what
/// belongs to the namespace. True on a kernel without user namespaces.
#[must_use]
pub fn in_first_user_namespace() -> bool {
    match read_link("/proc/self/ns/user") {
        Ok(target) => target.as_os_str() == INITIAL_USER,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Whether this process's clocks equal the kernel's. True if that is unknown.
#[must_use]
pub fn in_first_time_namespace() -> bool {
    namespaces(&Root::default()).time_is_initial != Some(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::root::plant;
    use super::*;

    /// A process of a new PID namespace is recognised.
    #[test]
    fn pid_namespaces_differ() {
        let script = "readlink /proc/self/ns/pid";
        let arguments = ["--pid", "--fork", "--mount-proc", "sh", "-c", script];
        let inner = std::process::Command::new("unshare").args(arguments).output().unwrap();
        if !inner.status.success() {
            return needs::not_run(needs::Need::Namespaces, "unshare --pid");
        }
        let own_namespace = format!("pid:[{}]", pid_namespace().unwrap());
        assert_ne!(String::from_utf8(inner.stdout).unwrap().trim(), own_namespace);
    }

    /// A process in a user namespace of its own has all capabilities, and no rights on the machine.
    #[test]
    fn user_namespaces_differ() {
        let mut inner = std::process::Command::new("unshare");
        let inner = inner.args(["--user", "readlink", "/proc/self/ns/user"]).output().unwrap();
        if !inner.status.success() {
            return needs::not_run(needs::Need::Namespaces, "unshare --user");
        }
        assert_ne!(String::from_utf8(inner.stdout).unwrap().trim(), INITIAL_USER);
        let own_namespace = read_link("/proc/self/ns/user").unwrap();
        assert_eq!(in_first_user_namespace(), own_namespace.as_os_str() == INITIAL_USER);
    }

    #[test]
    fn the_offsets_are_the_childrens() {
        let facts = |pid: &str, time: &str, children: &str| {
            let directory = tempfile::tempdir().unwrap();
            plant(
                directory.path(),
                "proc/self/timens_offsets",
                "monotonic  -5  999\nboottime 7 0\n",
            );
            std::fs::create_dir_all(directory.path().join("proc/self/ns")).unwrap();
            for (name, target) in [("pid", pid), ("time", time), ("time_for_children", children)] {
                let link = directory.path().join("proc/self/ns").join(name);
                if !target.is_empty() {
                    symlink(target, link).unwrap();
                }
            }
            let facts = namespaces(&Root::new(directory.path()));
            (facts.pid_is_initial, facts.time_is_initial, facts.monotonic_offset_ns)
        };
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(facts(INITIAL_PID, INITIAL_TIME, INITIAL_TIME), (yes, yes, Some(0)));
        // After `unshare`, children will be in the new namespace, and this process is not.
        assert_eq!(facts(INITIAL_PID, INITIAL_TIME, "time:[7]"), (yes, yes, Some(0)));
        assert_eq!(facts("pid:[9]", "time:[7]", "time:[7]"), (no, no, Some(-4_999_999_001)));
        assert_eq!(facts("pid:[9]", "time:[7]", "time:[8]"), (no, no, None));
        assert_eq!(facts(INITIAL_PID, "", ""), (yes, yes, Some(0)), "no time namespaces");
        assert_eq!(facts("", "", ""), (None, None, None), "no /proc");
    }

    #[test]
    fn any_text_is_an_offset_or_none() {
        for text in ["", "monotonic", "monotonic x 1", "monotonic 9223372036854775807 0"] {
            assert_eq!(offset_ns(text), None, "{text}");
        }
    }
}
