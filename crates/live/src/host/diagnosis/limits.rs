//! Findings about limits that give this process less than the machine has, as containers, systemd services and
//! taskset(1) set them. Each private function makes the finding about one limit.

use super::Finding;
use crate::host::cgroup::{CgroupLimits, CpuQuota, PidLimit};
use crate::host::{HostFacts, format_cpu_list};

const MIB: u64 = 1 << 20;
/// Threads and processes that a measurement on a small machine starts, and a margin. A
/// limit that leaves fewer is reported.
const PIDS_WANTED: u64 = 64;

/// The findings about limits; none for limits that are not set.
pub(super) fn findings(facts: &HostFacts) -> Vec<Finding> {
    let limits = &facts.limits;
    let findings = [
        allowed_cpus(facts),
        unknown_limits(&limits.cgroup),
        memory(&limits.cgroup),
        limits.cgroup.cpu.as_ref().map(cpu_quota),
        limits.cgroup.pids.as_ref().map(pids),
        (limits.namespaces.pid_is_initial == Some(false)).then(pid_namespace),
        (limits.namespaces.time_is_initial == Some(false)).then(|| time_namespace(facts)),
    ];
    findings.into_iter().flatten().collect()
}

fn allowed_cpus(facts: &HostFacts) -> Option<Finding> {
    let (allowed, online) = (facts.limits.cpus_allowed.as_ref()?, facts.cpu.online.as_ref()?);
    let forbidden: Vec<u32> = online.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    let allowed_list = format_cpu_list(allowed);
    if forbidden.is_empty() {
        return Some(Finding::ok("allowed CPUs", format!("all online CPUs ({allowed_list})")));
    }
    let online_list = format_cpu_list(online);
    let consequence = format!(
        "by default, measurements, stimuli and loops use only these CPUs, not {}",
        format_cpu_list(&forbidden)
    );
    let finding =
        Finding::limited("allowed CPUs", format!("{allowed_list} of {online_list}"), consequence);
    Some(finding.unlocked_by(format!(
        "start irqlab without taskset, in a cpuset with CPUs {online_list} (docker --cpuset-cpus={online_list}, \
         systemd AllowedCPUs={online_list})"
    )))
}

/// `None` if the files of all limits are found.
fn unknown_limits(cgroup: &CgroupLimits) -> Option<Finding> {
    let reason = &cgroup.unknown.first()?.reason;
    let controllers: Vec<&str> = cgroup.unknown.iter().map(|limit| limit.controller).collect();
    let finding = Finding::limited(
        "control groups",
        format!("limits of {} unknown: {reason}", controllers.join(", ")),
        "a limit of memory may end a load without a message, and no run says how often a CPU quota stopped threads",
    );
    Some(finding.unlocked_by(
        "mount the group's own file system: docker without -v /sys/fs/cgroup, or --cgroupns=host with it",
    ))
}

/// `None` without a limit.
fn memory(cgroup: &CgroupLimits) -> Option<Finding> {
    let limit = cgroup.memory.as_ref()?;
    let available = |bytes: u64| format!("{} MiB left", bytes / MIB);
    let of_limit =
        limit.available_bytes.map_or_else(String::new, |bytes| format!(", {}", available(bytes)));
    let mut says = format!("{} MiB{of_limit} ({})", limit.limit_bytes / MIB, limit.file);
    let tightest = cgroup.least_available_memory.as_ref();
    if let Some(tightest) = tightest.filter(|tightest| tightest.file != limit.file) {
        let available = available(tightest.available_max());
        let (limit_mib, file) = (tightest.limit_bytes / MIB, &tightest.file);
        says.push_str(&format!("; {available} of {limit_mib} MiB ({file})"));
    }
    let finding = Finding::limited(
        "memory limit",
        says,
        "`--load busy` takes at most an eighth of what is left, and may stay within the last-level cache; loops of \
         `footprint` and simulated machines that need more are refused",
    );
    Some(finding.unlocked_by("docker --memory, systemd MemoryMax="))
}

fn cpu_quota(quota: &CpuQuota) -> Finding {
    Finding::limited(
        "CPU quota",
        format!(
            "{} us of each {} us: {:.2} CPUs ({})",
            quota.quota_us,
            quota.period_us,
            quota.cpus(),
            quota.file
        ),
        "the kernel stops all threads when it is used up: `noise` shows that as detours, and a busy load runs at \
         times only; each run says how often that happened",
    )
    .unlocked_by("docker --cpus, systemd CPUQuota=")
}

fn pids(limit: &PidLimit) -> Finding {
    let current = limit.current.map_or_else(String::new, |current| format!(", {current} in use"));
    let says = format!("{}{current} ({})", limit.limit, limit.file);
    if limit.unused() >= PIDS_WANTED {
        return Finding::ok("process limit", says);
    }
    let consequence =
        "threads of loops, stimuli and QEMU cannot all be started: a measurement may be refused";
    Finding::limited("process limit", says, consequence)
        .unlocked_by("docker --pids-limit, systemd TasksMax=")
}

fn pid_namespace() -> Finding {
    Finding::limited(
        "PID namespace",
        "not the initial one",
        "the kernel's threads are invisible: `signal` does not know the CPU time of ksoftirqd, and `handlers` \
         attaches its probe at task switches, because threads of IRQ lines may exist",
    )
    .unlocked_by("docker --pid=host, or start irqlab outside of the namespace")
}

fn time_namespace(facts: &HostFacts) -> Finding {
    let says = match facts.limits.namespaces.monotonic_offset_ns {
        Some(offset_ns) => format!(
            "not the initial one: CLOCK_MONOTONIC differs from the kernel's by {offset_ns} ns, which is \
             subtracted"
        ),
        None => "not the initial one: the difference of CLOCK_MONOTONIC from the kernel's is measured at the \
                 start of a run"
            .to_owned(),
    };
    Finding::ok("time namespace", says)
}
