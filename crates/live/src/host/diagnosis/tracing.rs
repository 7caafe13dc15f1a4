//! Findings about tracing: whether the kernel accepts BPF programs from this process, which tracepoints it has, and
//! what makes tracing slower or impossible. The last one is about the namespaces that `--stimulus net` needs.

use super::remedy::{as_root, capabilities_needed, setcap_line, unlock_bpf};
use super::{Finding, or_unknown, with_proc, with_sys};
use crate::host::{HostFacts, X86_VECTORS};

pub(super) const RIGHTS: &str = "tracing rights";
pub(super) const BTF: &str = "BTF";
pub(super) const DEVICE_INTERRUPTS: &str = "device interrupts";

/// Since this version, the kernel charges the memory of BPF maps to the control group.
/// Before, RLIMIT_MEMLOCK limited it.
const KERNEL_WITHOUT_MEMLOCK: (u32, u32) = (5, 11);

/// Start of the remedy for a kernel that was built without an option. The option's name follows.
const KERNEL_OPTION: &str = "nothing on this kernel: it needs one built with ";

/// Groups of tracepoints: the subject of their finding, their names, and the rows that need them.
const GROUPS: [(&str, &[&str], &str); 6] = [
    (DEVICE_INTERRUPTS, &["irq_handler_entry", "irq_handler_exit"], "rows of device IRQs"),
    ("softirqs", &["softirq_entry", "softirq_exit"], "rows of softirqs"),
    ("NAPI polls", &["napi_poll"], "rows of NAPI polls, packets per poll"),
    ("NMI", &["nmi_handler"], "the row of NMIs"),
    ("page faults", &["page_fault_user", "page_fault_kernel"], "counts of page faults"),
    (
        "system calls",
        &["sys_enter", "sys_exit", "sched_switch"],
        "the calibration on a system call, and whose time it was",
    ),
];

/// The findings about tracing, in the order of printing.
pub(super) fn findings(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = vec![rights(facts), btf(facts)];
    if facts.tracepoints.iter().all(|tracepoint| tracepoint.exists.is_none()) {
        findings.push(unknown_tracepoints(facts));
    } else {
        let groups = GROUPS
            .iter()
            .map(|(subject, names, rows)| tracepoint_group(facts, subject, names, rows));
        findings.extend(groups);
        findings.push(vectors(facts));
    }
    findings.extend(lockdown(facts));
    findings.extend(jit(facts));
    findings.extend(memlock(facts));
    findings.push(tracefs(facts));
    findings.push(network(facts));
    findings
}

/// The finding about the rights to load BPF programs. If the kernel was not asked, the capabilities decide.
fn rights(facts: &HostFacts) -> Finding {
    let rights = &facts.rights;
    let lacking: Vec<&str> = capabilities_needed(facts)
        .into_iter()
        .filter(|capability| rights.holds(capability) == Some(false))
        .collect();
    let loads =
        rights.bpf_loads.or_else(|| rights.capabilities.as_ref().map(|_| lacking.is_empty()));
    let is_lacking = rights.capabilities.is_none() || !lacking.is_empty();
    match loads {
        Some(true) => {
            Finding::ok(RIGHTS, "the kernel takes BPF tracing programs from this process")
        }
        Some(false) => {
            let error = rights.bpf_error.as_deref();
            let error = error.map(|text| format!(": {text}")).unwrap_or_default();
            let lacking_note = match lacking[..] {
                [] => String::new(),
                _ => format!(" (lacking: {})", lacking.join(", ")),
            };
            let says = format!(
                "the kernel refuses BPF tracing programs of this process{error}{lacking_note}"
            );
            Finding::missing(RIGHTS, says, "`irqlab handlers --on live` measures nothing")
                .unlocked_by(unlock_bpf(facts, is_lacking))
        }
        None => Finding::limited(
            RIGHTS,
            "unknown: not tried, and /proc/self/status does not report it",
            "whether the BPF programs load is known only after trying",
        )
        .unlocked_by(setcap_line(facts)),
    }
}

fn btf(facts: &HostFacts) -> Finding {
    match (facts.btf.present, facts.btf.size_bytes) {
        (Some(true), Some(bytes)) => {
            Finding::ok(BTF, format!("/sys/kernel/btf/vmlinux, {} KiB", bytes / 1024))
        }
        (Some(true), None) => Finding::limited(
            BTF,
            "/sys/kernel/btf/vmlinux is there and can't be read",
            "names of actions and NAPI devices are absent; probes attach by the slower raw_tp",
        )
        .unlocked_by("sudo chmod a+r /sys/kernel/btf/vmlinux"),
        (present, _) => {
            let says = if present.is_none() { "unknown: /sys is not readable" } else { "none" };
            let finding = Finding::limited(
                BTF,
                says,
                "names of actions and NAPI devices are absent, and so is the kernel's own count \
                 taken at the same instant; probes attach by the slower raw_tp",
            )
            .unlocked_by(format!("{KERNEL_OPTION}CONFIG_DEBUG_INFO_BTF=y"));
            with_sys(finding, facts)
        }
    }
}

/// Whether the kernel is known to have this tracepoint.
fn exists(facts: &HostFacts, name: &str) -> bool {
    let mut tracepoints = facts.tracepoints.iter();
    tracepoints.any(|tracepoint| tracepoint.name == name && tracepoint.exists == Some(true))
}

fn unknown_tracepoints(facts: &HostFacts) -> Finding {
    let finding = Finding::limited(
        "tracepoints",
        "unknown: neither BTF nor tracefs is readable",
        "rows whose tracepoint turns out not to exist are absent",
    );
    with_sys(
        finding.unlocked_by(format!("{} doctor (root can read tracefs)", as_root(facts))),
        facts,
    )
}

/// The finding about a group of tracepoints.
fn tracepoint_group(facts: &HostFacts, subject: &str, names: &[&str], rows: &str) -> Finding {
    let lacking: Vec<&str> = names.iter().copied().filter(|name| !exists(facts, name)).collect();
    if lacking.is_empty() {
        let plural = if names.len() == 1 { "" } else { "s" };
        return Finding::ok(subject, format!("tracepoint{plural} {}", names.join(", ")));
    }
    let says = format!("this kernel has no tracepoint {}", lacking.join(", "));
    let option = match subject {
        "system calls" => "CONFIG_FTRACE_SYSCALLS=y",
        "NAPI polls" => "CONFIG_NET=y and tracepoints",
        "NMI" | "page faults" => "these tracepoints (x86 only)",
        _ => "CONFIG_TRACEPOINTS=y",
    };
    Finding::missing(subject, says, format!("absent: {rows}"))
        .unlocked_by(format!("{KERNEL_OPTION}{option}"))
}

/// The finding about the local timer, IPIs and other interrupts of the interrupt controller.
fn vectors(facts: &HostFacts) -> Finding {
    let subject = "timer and IPIs";
    let arch = facts.kernel.arch.as_deref().unwrap_or(std::env::consts::ARCH);
    if !["x86_64", "i686"].contains(&arch) {
        return Finding::limited(
            subject,
            format!("{arch} has no tracepoint at the entry and exit of every vector"),
            "the timer is a device IRQ there and has its row; IPIs have none",
        )
        .unlocked_by("nothing on this architecture");
    }
    let has_tracepoints = |vector: &&str| {
        ["entry", "exit"].iter().all(|suffix| exists(facts, &format!("{vector}_{suffix}")))
    };
    let (present, absent): (Vec<&str>, Vec<&str>) =
        X86_VECTORS.into_iter().partition(has_tracepoints);
    if present.is_empty() {
        return Finding::missing(
            subject,
            "this kernel has none of the irq_vectors tracepoints",
            "absent: rows of the local timer, of IPIs and of every other vector",
        )
        .unlocked_by(format!("{KERNEL_OPTION}CONFIG_TRACEPOINTS=y"));
    }
    let says = format!("{} of {} vectors have tracepoints", present.len(), X86_VECTORS.len());
    // A kernel without machine-check options has neither these two interrupts nor their tracepoints.
    let is_optional = |name: &&str| ["threshold_apic", "deferred_error_apic"].contains(name);
    if absent.iter().all(is_optional) {
        let absent_note = match absent[..] {
            [] => String::new(),
            _ => format!(" (this kernel has no {} interrupts)", absent.join(", ")),
        };
        return Finding::ok(subject, says + &absent_note);
    }
    Finding::limited(subject, says, format!("absent: rows {}", absent.join(", ")))
        .unlocked_by(format!("{KERNEL_OPTION}these interrupts"))
}

fn lockdown(facts: &HostFacts) -> Option<Finding> {
    let mode = facts.rights.lockdown.as_deref()?;
    if mode != "confidentiality" {
        return Some(Finding::ok("lockdown", mode));
    }
    let consequence = "BPF may not read kernel memory: names of actions and NAPI devices are \
                       absent, or the programs are refused altogether";
    let finding = Finding::limited("lockdown", mode, consequence);
    Some(finding.unlocked_by("boot without lockdown=confidentiality; nothing while it runs"))
}

fn jit(facts: &HostFacts) -> Option<Finding> {
    if facts.rights.bpf_jit_enable? != 0 {
        return Some(Finding::ok("BPF compiler", "on"));
    }
    let consequence = "probes are interpreted: each span costs several times more";
    let finding =
        Finding::limited("BPF compiler", "off (net.core.bpf_jit_enable = 0)", consequence);
    Some(finding.unlocked_by("sudo sysctl net.core.bpf_jit_enable=1"))
}

/// The finding about the limit on locked memory. `None` if the limit does not affect BPF maps, or is not known.
fn memlock(facts: &HostFacts) -> Option<Finding> {
    let limits_bpf = facts.kernel.version_pair()? < KERNEL_WITHOUT_MEMLOCK;
    let bytes = facts.rights.memlock_bytes_max?;
    if !limits_bpf || facts.rights.holds("cap_sys_resource") == Some(true) {
        return None;
    }
    let says = format!("{} KiB, and kernels before 5.11 take BPF maps from it", bytes / 1024);
    let finding = Finding::limited("locked memory", says, "the BPF maps may be refused");
    Some(finding.unlocked_by(setcap_line(facts)))
}

fn tracefs(facts: &HostFacts) -> Finding {
    match facts.rights.tracefs_mounted {
        Some(true) => Finding::ok("tracefs", "mounted"),
        mounted => Finding::limited(
            "tracefs",
            if mounted.is_none() { "not known" } else { "not mounted" },
            "only the comparison with the kernel's own trace is absent; measuring does not need tracefs",
        )
        .unlocked_by("sudo mount -t tracefs nodev /sys/kernel/tracing"),
    }
}

/// The finding about `--stimulus net`, which creates a veth pair in new network namespaces.
fn network(facts: &HostFacts) -> Finding {
    let subject = "network source";
    let rights = &facts.rights;
    let holds_both = ["cap_sys_admin", "cap_net_admin"].map(|name| rights.holds(name));
    if holds_both == [Some(true); 2] {
        return Finding::ok(subject, "may make a veth pair in namespaces of its own");
    }
    match rights.user_namespaces_allowed {
        Some(true) => Finding::ok(subject, "may make a veth pair in a user namespace of its own"),
        Some(false) => Finding::missing(
            subject,
            "may make neither network nor user namespaces",
            "no `--stimulus net` on this machine alone (to `--peer HOST` it works)",
        )
        .unlocked_by(format!(
            "{} handlers --stimulus net (as root), or allow user namespaces: sudo sysctl \
             user.max_user_namespaces=1000 kernel.unprivileged_userns_clone=1 \
             kernel.apparmor_restrict_unprivileged_userns=0 (those that exist)",
            as_root(facts)
        )),
        None => {
            let says = format!("rights to make namespaces {}", or_unknown(None));
            let consequence = "whether `--stimulus net` works is known only after trying";
            with_proc(Finding::limited(subject, says, consequence), facts)
        }
    }
}
