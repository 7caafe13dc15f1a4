//! Findings about performance events: hardware counters, the NMI watchdog that uses one, and software events.

use super::Finding;
use super::remedy::setcap_line;
use crate::host::{EventKind, EventScope, HostFacts, PmuEvent};

/// The columns that need hardware counters, in messages.
const COLUMNS: &str = "cycles, instructions, IPC, branches, cache and TLB misses";

/// The findings about performance events.
pub(super) fn findings(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = vec![pmu(facts)];
    findings.extend(watchdog(facts));
    findings.extend(other_events(facts));
    findings
}

/// The finding about hardware events: which ones count kernel and user mode, which only user mode, and what is absent
/// without them.
fn pmu(facts: &HostFacts) -> Finding {
    let pmu = &facts.pmu;
    let is_hardware =
        |event: &&PmuEvent| [EventKind::Hardware, EventKind::Cache].contains(&event.kind);
    let hardware: Vec<&PmuEvent> = pmu.events.iter().filter(is_hardware).collect();
    if hardware.is_empty() {
        return Finding::limited(
            super::PMU,
            "not tried",
            format!("these columns may be absent: {COLUMNS}"),
        );
    }
    let names_with = |scope: EventScope| {
        let events = hardware.iter().filter(move |event| event.scope == scope);
        events.map(|event| event.name.as_str()).collect::<Vec<_>>()
    };
    let (kernel_and_user, user_only) =
        (names_with(EventScope::KernelAndUser), names_with(EventScope::UserOnly));
    let refused = names_with(EventScope::Refused);
    if kernel_and_user.is_empty() && user_only.is_empty() {
        return no_pmu(facts, hardware[0]);
    }
    let opened = kernel_and_user.len() + user_only.len();
    let counters = pmu.counters_in_group.unwrap_or(0);
    let says = format!(
        "{opened} of {} hardware events open; {counters} counters at once, {} for any event",
        hardware.len(),
        pmu.general_counters_in_group.unwrap_or(0),
    );
    if pmu.counts() == Some(false) {
        return Finding::missing(
            super::PMU,
            format!("{says}: none counts"),
            format!("these columns are absent: {COLUMNS}"),
        )
        .unlocked_by("end what holds the counters (another profiler)");
    }
    if kernel_and_user.is_empty() {
        let finding = Finding::missing(
            super::PMU,
            format!("{says}, but for user mode only"),
            format!("handlers run in the kernel: these columns are absent: {COLUMNS}"),
        );
        return finding.unlocked_by(setcap_line(facts));
    }
    if refused.is_empty() {
        return Finding::ok(super::PMU, says);
    }
    let consequence = format!("these columns are absent: {}", refused.join(", "));
    Finding::limited(super::PMU, says, consequence)
        .unlocked_by("nothing: this processor, or the hypervisor, has no such event")
}

/// The finding if no hardware event opens. `event`: the first event that was tried.
fn no_pmu(facts: &HostFacts, event: &PmuEvent) -> Finding {
    let says = match (event.errno, event.error.as_deref()) {
        (Some(libc::ENOENT), _) => "none: this kernel found no hardware counters".to_owned(),
        (_, Some(error)) => format!("no hardware event opens ({}: {error})", event.name),
        (_, None) => "no hardware event opens".to_owned(),
    };
    let consequence = format!(
        "these columns are absent: {COLUMNS}; counts, times in ns and TSC cycles are there"
    );
    let finding = Finding::missing(super::PMU, says, consequence);
    let is_virtual = facts.hypervisor.present == Some(true);
    match event.errno {
        Some(libc::EACCES | libc::EPERM) => {
            let line = setcap_line(facts);
            finding.unlocked_by(format!("{line}, or: sudo sysctl kernel.perf_event_paranoid=1"))
        }
        Some(libc::ENOSYS) => finding
            .unlocked_by("nothing on this kernel: it needs one built with CONFIG_PERF_EVENTS=y"),
        _ if is_virtual => finding.unlocked_by(virtual_pmu(facts.hypervisor.name.as_deref())),
        _ => finding.unlocked_by(
            "see why the kernel found none: sudo dmesg | grep -i 'performance events'",
        ),
    }
}

/// How to switch on the PMU of a virtual machine.
fn virtual_pmu(hypervisor: Option<&str>) -> &'static str {
    match hypervisor {
        Some("KVM") => {
            "on the host: libvirt <cpu mode=\"host-passthrough\"/> and <features><pmu \
             state=\"on\"/></features>; qemu -cpu host,pmu=on; in a cloud: a .metal machine"
        }
        Some("VMware") => "in the VM's .vmx file: vpmc.enable = \"TRUE\"",
        Some("Hyper-V") => "on the host: Set-VMProcessor -VMName NAME -Perfmon @(\"pmu\")",
        Some("Xen") => "on Xen's command line: vpmu=on",
        _ => "nothing inside of this VM: measure on bare metal",
    }
}

/// `None` if the watchdog does not run, or there are no counters that it could use.
fn watchdog(facts: &HostFacts) -> Option<Finding> {
    if facts.pmu.counts() != Some(true) || facts.rights.nmi_watchdog != Some(true) {
        return None;
    }
    let consequence = "it holds a counter: the PMU columns take more passes, and it raises NMIs";
    let finding = Finding::limited("NMI watchdog", "runs", consequence);
    Some(finding.unlocked_by("sudo sysctl kernel.nmi_watchdog=0"))
}

/// The finding about software events and the TSC's event. `None` if none was tried.
fn other_events(facts: &HostFacts) -> Option<Finding> {
    let is_other = |event: &&PmuEvent| [EventKind::Software, EventKind::Msr].contains(&event.kind);
    let others: Vec<&PmuEvent> = facts.pmu.events.iter().filter(is_other).collect();
    let open = others.iter().filter(|event| event.scope == EventScope::KernelAndUser).count();
    let first_refused = others.iter().find(|event| event.scope != EventScope::KernelAndUser);
    let says = format!("{open} of {} software and msr events open", others.len());
    let Some(refused) = first_refused else {
        return (!others.is_empty()).then(|| Finding::ok("software events", says));
    };
    let error = refused.error.as_deref().unwrap_or("refused");
    let says = format!("{says} for the kernel too ({}: {error})", refused.name);
    let finding = Finding::limited("software events", says, "no `--stimulus timer` by cpu-clock");
    Some(match refused.errno {
        Some(libc::EACCES | libc::EPERM) => finding.unlocked_by(setcap_line(facts)),
        _ => finding.unlocked_by("nothing: this kernel has no such event"),
    })
}
