//! The exact commands that grant rights, for findings and for errors of other verbs. They must work when
//! a user copies them into a shell.

use super::super::HostFacts;

/// The capabilities that a process needs on this kernel to load the BPF programs. CAP_BPF is for maps and programs,
/// CAP_PERFMON for tracing programs and for events of whole CPUs. Before Linux 5.8, CAP_SYS_ADMIN is for both. Before
/// Linux 5.11, CAP_SYS_RESOURCE lifts the limit on locked memory.
pub(super) fn capabilities_needed(facts: &HostFacts) -> Vec<&'static str> {
    match facts.kernel.version_pair() {
        Some(version) if version < (5, 8) => vec!["cap_sys_admin", "cap_sys_resource"],
        Some(version) if version < (5, 11) => vec!["cap_bpf", "cap_perfmon", "cap_sys_resource"],
        _ => vec!["cap_bpf", "cap_perfmon"],
    }
}

/// All capabilities that some part of irqlab uses.
const USED: [&str; 6] = [
    "cap_bpf",
    "cap_perfmon",
    "cap_sys_admin",
    "cap_sys_resource",
    "cap_sys_nice",
    "cap_net_admin",
];

/// The command that gives this program the rights to trace and to count.
#[must_use]
pub fn setcap_line(facts: &HostFacts) -> String {
    setcap_line_for(facts, &capabilities_needed(facts))
}

/// The command that gives this program's file the `wanted` capabilities. It also names the capabilities that this
/// process has and irqlab uses, because setcap(8) replaces all capabilities of the file.
#[must_use]
pub fn setcap_line_for(facts: &HostFacts, wanted: &[&str]) -> String {
    let file = match facts.rights.executable.as_deref() {
        Some(path) => quoted(path),
        None => "$(command -v irqlab)".to_owned(),
    };
    let held = facts.rights.capabilities.iter().flatten().map(String::as_str);
    let kept = held.filter(|name| USED.contains(name) && !wanted.contains(name));
    let all: Vec<&str> = wanted.iter().copied().chain(kept).collect();
    format!("sudo setcap {}+ep {file}", all.join(","))
}

/// The start of a command that runs this program as root. Contains the program's path,
/// because sudo searches another PATH.
pub(super) fn as_root(facts: &HostFacts) -> String {
    let program = facts.rights.executable.as_deref().map_or("irqlab".to_owned(), quoted);
    format!("sudo {program}")
}

/// Quotes a path as one word of a shell.
fn quoted(path: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    if path.chars().all(is_plain) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', r"'\''"))
}

/// The remedy for a kernel that refuses BPF programs, by the likely cause. `is_lacking`: whether capabilities are
/// missing or unknown. The order of the checks matters: an earlier cause makes the later remedies useless.
pub(super) fn unlock_bpf(facts: &HostFacts, is_lacking: bool) -> String {
    let rights = &facts.rights;
    if rights.bpf_errno == Some(libc::ENOSYS) {
        return "nothing on this kernel: it needs one built with CONFIG_BPF_SYSCALL=y".to_owned();
    }
    if rights.user_namespace == Some(true) {
        let line = as_root(facts);
        return format!("outside of this user namespace (rootless container): {line} handlers");
    }
    let is_unobtainable =
        |name: &str| rights.bounded_away.iter().flatten().any(|away| away == name);
    if is_lacking && capabilities_needed(facts).into_iter().any(is_unobtainable) {
        return "start the container with: --cap-add=BPF --cap-add=PERFMON --security-opt \
                seccomp=unconfined"
            .to_owned();
    }
    if is_lacking && rights.no_new_privs == Some(true) {
        let line = as_root(facts);
        return format!("in a session that may gain rights (no_new_privs is set): {line} handlers");
    }
    if is_lacking {
        return setcap_line(facts);
    }
    if rights.seccomp_mode == Some(2) {
        return "a system call filter refuses it; start the container with: --security-opt \
                seccomp=unconfined"
            .to_owned();
    }
    "nothing known: the capabilities are held; look into the kernel's log (sudo dmesg | tail)"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_one_word() {
        assert_eq!(quoted("/usr/bin/irqlab"), "/usr/bin/irqlab");
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
