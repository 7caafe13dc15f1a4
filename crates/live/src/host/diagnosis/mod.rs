//! Findings of `irqlab doctor`: what the facts about the machine mean for irqlab, and the command that unlocks a
//! missing feature. [`diagnose`] collects the findings of the submodules, one for each subject. Errors of other verbs
//! take their remedies from here.
//!
//! Subjects and texts are printed, and `irqlab doctor --json` exports them.

mod counters;
mod limits;
mod machine;
mod remedy;
mod tracing;

use serde::Serialize;

use super::{HostFacts, Root, host_facts};

pub use remedy::{setcap_line, setcap_line_for};

/// How well the machine serves irqlab in one respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Everything is available.
    Ok,
    /// Available in part, or in a way that a reader of the numbers must know.
    Limited,
    /// The machine does not have it.
    Missing,
}

/// The result of checking one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the subject in one to three words: `PMU`.
    pub subject: String,
    pub status: Status,
    /// Text for the user: what the machine has or lacks.
    pub says: String,
    /// Text for the user: what irqlab therefore cannot measure, or measures less well. `None` if nothing.
    pub consequence: Option<String>,
    /// The exact line to type or to write into the named place, or the statement that nothing helps.
    /// `None` if there is nothing to unlock.
    pub unlock: Option<String>,
}

impl Finding {
    fn ok(subject: &str, says: impl Into<String>) -> Finding {
        Finding {
            subject: subject.to_owned(),
            status: Status::Ok,
            says: says.into(),
            consequence: None,
            unlock: None,
        }
    }

    fn limited(subject: &str, says: impl Into<String>, consequence: impl Into<String>) -> Finding {
        Finding {
            status: Status::Limited,
            consequence: Some(consequence.into()),
            ..Finding::ok(subject, says)
        }
    }

    fn missing(subject: &str, says: impl Into<String>, consequence: impl Into<String>) -> Finding {
        Finding { status: Status::Missing, ..Finding::limited(subject, says, consequence) }
    }

    /// The finding with this text as its `unlock`.
    fn unlocked_by(self, line: impl Into<String>) -> Finding {
        Finding { unlock: Some(line.into()), ..self }
    }
}

/// Subject of the finding about the rights to load BPF programs.
pub const RIGHTS: &str = tracing::RIGHTS;
/// Subject of the finding about hardware counters.
pub const PMU: &str = "PMU";

/// Subjects without which `irqlab handlers --on live` cannot measure at all.
const ESSENTIAL: [&str; 3] = ["/proc", "kernel", tracing::RIGHTS];

/// The finding with a remedy that helps: if /sys is not mounted, the command that mounts it, because
/// /sys contains the missing facts.
fn with_sys(finding: Finding, facts: &HostFacts) -> Finding {
    if facts.sys_mounted {
        return finding;
    }
    finding.unlocked_by("sudo mount -t sysfs sysfs /sys")
}

/// Like [`with_sys`], for facts in /proc.
fn with_proc(finding: Finding, facts: &HostFacts) -> Finding {
    if facts.proc_mounted {
        return finding;
    }
    finding.unlocked_by("sudo mount -t proc proc /proc")
}

fn or_unknown(text: Option<&str>) -> &str {
    text.unwrap_or("unknown")
}

/// The findings, at most one for each subject, in the order of printing: machine, limits, tracing, counting.
#[must_use]
pub fn diagnose(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = machine::findings(facts);
    findings.extend(limits::findings(facts));
    findings.extend(tracing::findings(facts));
    findings.extend(counters::findings(facts));
    findings
}

/// The command that gives this process the rights to load BPF tracing programs; `None` if it has them.
#[must_use]
pub fn remedy_for_tracing_rights() -> Option<String> {
    let findings = diagnose(&host_facts(&Root::default()));
    findings.into_iter().find(|finding| finding.subject == RIGHTS)?.unlock
}

/// The verbs that measure even if the kernel takes no BPF programs.
const RUNS_WITHOUT_TRACING: &str = "These run as they are: `irqlab noise`, `wakeup` and `footprint` (without the causes \
                                    that kernel events show), `signal run`, `signal model`, and every \
                                    verb that has --on with --on sim.";

/// A sentence for the user: whether `irqlab handlers` can measure here, and the missing or limited subjects.
#[must_use]
pub fn verdict(findings: &[Finding]) -> String {
    let subjects_with = |status: Status| {
        let matching = findings.iter().filter(|finding| finding.status == status);
        matching.map(|finding| finding.subject.as_str()).collect::<Vec<_>>()
    };
    let missing = subjects_with(Status::Missing);
    let blocking: Vec<&str> =
        missing.iter().copied().filter(|subject| ESSENTIAL.contains(subject)).collect();
    if !blocking.is_empty() {
        // Without /proc or /sys, no verb measures this machine.
        let needs_files = blocking.iter().any(|subject| subject.starts_with('/'));
        let others = if needs_files { "" } else { RUNS_WITHOUT_TRACING };
        let sentence =
            format!("`irqlab handlers` cannot run here yet. In the way: {}.", blocking.join(", "));
        return format!("{sentence} {others}").trim_end().to_owned();
    }
    let limited = subjects_with(Status::Limited);
    match (missing.is_empty(), limited.is_empty()) {
        (true, true) => "`irqlab handlers` runs here, with everything.".to_owned(),
        (true, false) => format!("`irqlab handlers` runs here. Limited: {}.", limited.join(", ")),
        _ => format!("`irqlab handlers` runs here, without: {}.", missing.join(", ")),
    }
}

/// Each check builds facts, and looks for the line that a user would type.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::cgroup::{CpuQuota, MemoryLimit, PidLimit, UnknownLimit};
    use crate::host::root::plant;
    use crate::host::{
        BtfFacts, CacheFacts, ClockFacts, CpuFacts, CpuTopology, EventKind, EventScope,
        HypervisorFacts, KernelFacts, PmuEvent, PmuFacts, RightsFacts, Root, Tracepoint,
        host_facts, needed_tracepoints, run_host_block,
    };

    #[test]
    fn without_rights_the_verdict_says_what_runs() {
        let finding = |subject: &str| Finding {
            subject: subject.to_owned(),
            status: Status::Missing,
            says: String::new(),
            consequence: None,
            unlock: None,
        };
        let blocked = verdict(&[finding(RIGHTS)]);
        assert!(blocked.starts_with("`irqlab handlers` cannot run here yet."), "{blocked}");
        assert!(blocked.contains("`irqlab noise`") && blocked.contains("--on sim"), "{blocked}");
        assert!(!verdict(&[finding("PMU")]).contains("run as they are"));
        assert!(!verdict(&[finding("/proc")]).contains("run as they are"));
    }

    /// Facts of a bare-metal machine that has everything.
    fn complete() -> HostFacts {
        let root = tempfile::tempdir().unwrap();
        let mut facts = host_facts(&Root::new(root.path()));
        (facts.proc_mounted, facts.sys_mounted) = (true, true);
        facts.kernel = KernelFacts {
            release: Some("6.1.0".into()),
            arch: Some("x86_64".into()),
            hz: Some(250),
            ..KernelFacts::default()
        };
        let cpu = |cpu| CpuTopology {
            cpu,
            governor: Some("performance".into()),
            ..CpuTopology::default()
        };
        facts.cpu = CpuFacts {
            online: Some(vec![0, 1]),
            topology: vec![cpu(0), cpu(1)],
            ..CpuFacts::default()
        };
        facts.caches =
            vec![CacheFacts { level: 3, size_bytes: Some(32 << 20), ..CacheFacts::default() }];
        facts.clock = ClockFacts { source: Some("tsc".into()), ..ClockFacts::default() };
        facts.hypervisor = HypervisorFacts { present: Some(false), ..HypervisorFacts::default() };
        facts.irqs = Some(vec![]);
        facts.rights = RightsFacts {
            capabilities: Some(["cap_bpf", "cap_perfmon"].map(str::to_owned).to_vec()),
            bpf_loads: Some(true),
            tracefs_mounted: Some(true),
            user_namespaces_allowed: Some(true),
            executable: Some("/usr/bin/irqlab".into()),
            ..RightsFacts::default()
        };
        facts.btf = BtfFacts { present: Some(true), size_bytes: Some(5 << 20) };
        facts.tracepoints = needed_tracepoints("x86_64")
            .into_iter()
            .map(|name| Tracepoint { name, exists: Some(true) })
            .collect();
        facts.pmu = PmuFacts {
            events: vec![event(EventScope::KernelAndUser, None)],
            counters_in_group: Some(5),
            general_counters_in_group: Some(4),
            ..PmuFacts::default()
        };
        facts
    }

    fn event(scope: EventScope, errno: Option<i32>) -> PmuEvent {
        let error = errno.map(|errno| std::io::Error::from_raw_os_error(errno).to_string());
        PmuEvent { name: "cycles".into(), kind: EventKind::Hardware, scope, errno, error }
    }

    /// The finding about `subject`, after `spoil` removed something from the complete machine.
    fn spoilt(subject: &str, spoil: impl FnOnce(&mut HostFacts)) -> Finding {
        let mut facts = complete();
        spoil(&mut facts);
        let findings = diagnose(&facts);
        findings.into_iter().find(|finding| finding.subject == subject).expect(subject)
    }

    #[track_caller]
    fn check(finding: &Finding, status: Status, unlock: &str) {
        assert_eq!(finding.status, status, "{finding:?}");
        assert!(finding.consequence.is_some(), "{finding:?}");
        assert!(finding.unlock.as_deref().unwrap_or_default().contains(unlock), "{finding:?}");
    }

    #[test]
    fn a_complete_machine_has_nothing_to_unlock() {
        let findings = diagnose(&complete());
        let bad: Vec<_> = findings.iter().filter(|finding| finding.status != Status::Ok).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        assert_eq!(verdict(&findings), "`irqlab handlers` runs here, with everything.");
    }

    #[test]
    fn nothing_known_gives_findings_and_subjects_are_unique() {
        let findings = diagnose(&HostFacts::default());
        assert!(findings.iter().any(|finding| finding.status == Status::Missing));
        let mut subjects: Vec<_> = findings.iter().map(|finding| &finding.subject).collect();
        subjects.sort_unstable();
        subjects.dedup();
        assert_eq!(subjects.len(), findings.len());
        assert!(verdict(&findings).contains("In the way: /proc"), "{}", verdict(&findings));
    }

    #[test]
    fn the_setcap_line_keeps_what_the_file_has() {
        let mut facts = complete();
        facts.rights.capabilities = Some(vec!["cap_bpf".into(), "cap_chown".into()]);
        let line = setcap_line_for(&facts, &["cap_sys_nice"]);
        assert_eq!(line, "sudo setcap cap_sys_nice,cap_bpf+ep /usr/bin/irqlab");
    }

    #[test]
    fn lacking_capabilities_give_the_setcap_line() {
        let lacking = |facts: &mut HostFacts| {
            facts.rights.capabilities = Some(vec![]);
            facts.rights.bpf_loads = Some(false);
        };
        let finding = spoilt(tracing::RIGHTS, lacking);
        check(&finding, Status::Missing, "sudo setcap cap_bpf,cap_perfmon+ep /usr/bin/irqlab");
        let finding = spoilt(tracing::RIGHTS, |facts| {
            lacking(facts);
            facts.kernel.release = Some("5.10.0".into());
            facts.rights.executable = None;
        });
        check(&finding, Status::Missing, "cap_perfmon,cap_sys_resource+ep $(command -v irqlab)");
        let finding = spoilt(tracing::RIGHTS, |facts| {
            lacking(facts);
            facts.rights.bounded_away = Some(vec!["cap_bpf".into()]);
        });
        check(&finding, Status::Missing, "--cap-add=BPF");
        let finding = spoilt(tracing::RIGHTS, |facts| {
            lacking(facts);
            facts.rights.no_new_privs = Some(true);
        });
        check(&finding, Status::Missing, "no_new_privs");
        let finding = spoilt(tracing::RIGHTS, |facts| {
            facts.rights.bpf_loads = Some(false);
            facts.rights.bpf_errno = Some(libc::ENOSYS);
        });
        check(&finding, Status::Missing, "CONFIG_BPF_SYSCALL");
    }

    #[test]
    fn a_machine_without_pmu() {
        let without = |errno: i32, hypervisor: Option<&str>| {
            spoilt("PMU", |facts| {
                facts.pmu.events = vec![event(EventScope::Refused, Some(errno))];
                facts.pmu.counters_in_group = None;
                facts.hypervisor.present = Some(hypervisor.is_some());
                facts.hypervisor.name = hypervisor.map(str::to_owned);
            })
        };
        let kvm = without(libc::ENOENT, Some("KVM"));
        check(&kvm, Status::Missing, "<cpu mode=\"host-passthrough\"/>");
        check(&kvm, Status::Missing, "-cpu host,pmu=on");
        check(&without(libc::ENOENT, Some("VMware")), Status::Missing, "vpmc.enable");
        check(&without(libc::ENOENT, Some("Unheard")), Status::Missing, "nothing inside");
        check(&without(libc::ENOENT, None), Status::Missing, "dmesg");
        check(&without(libc::EACCES, None), Status::Missing, "kernel.perf_event_paranoid=1");
        check(&without(libc::ENOSYS, None), Status::Missing, "CONFIG_PERF_EVENTS");
        let user = spoilt("PMU", |facts| facts.pmu.events[0].scope = EventScope::UserOnly);
        check(&user, Status::Missing, "setcap");
        let held = spoilt("PMU", |facts| facts.pmu.counters_in_group = Some(0));
        check(&held, Status::Missing, "another profiler");
        let watchdog = spoilt("NMI watchdog", |facts| facts.rights.nmi_watchdog = Some(true));
        check(&watchdog, Status::Limited, "kernel.nmi_watchdog=0");
    }

    #[test]
    fn clocks_governors_and_the_rest() {
        let clock = |available: &[&str]| {
            spoilt("clock source", |facts| {
                facts.clock.source = Some("hpet".into());
                facts.clock.available =
                    Some(available.iter().map(|&name| name.to_owned()).collect());
            })
        };
        check(&clock(&["tsc", "hpet"]), Status::Limited, "echo tsc | sudo tee /sys");
        check(&clock(&["hpet"]), Status::Limited, "clocksource=tsc tsc=reliable");
        let governor = spoilt("frequency", |facts| {
            facts.cpu.topology[0].governor = Some("powersave".into());
        });
        check(&governor, Status::Limited, "sudo cpupower frequency-set -g performance");
        let tracefs = spoilt("tracefs", |facts| facts.rights.tracefs_mounted = Some(false));
        check(&tracefs, Status::Limited, "sudo mount -t tracefs nodev /sys/kernel/tracing");
        let btf = spoilt(tracing::BTF, |facts| {
            facts.btf = BtfFacts { present: Some(false), size_bytes: None };
        });
        check(&btf, Status::Limited, "CONFIG_DEBUG_INFO_BTF");
        let jit = spoilt("BPF compiler", |facts| facts.rights.bpf_jit_enable = Some(0));
        check(&jit, Status::Limited, "sudo sysctl net.core.bpf_jit_enable=1");
        for release in ["4.18.0", "5.10.0-32-cloud-amd64", "5.11.22"] {
            let old = |facts: &mut HostFacts| facts.kernel.release = Some(release.into());
            check(&spoilt("kernel", old), Status::Missing, "5.12");
            let mut facts = complete();
            old(&mut facts);
            assert!(verdict(&diagnose(&facts)).contains("cannot run here"), "{release}");
        }
        let floor = spoilt("kernel", |facts| facts.kernel.release = Some("5.12.0".into()));
        assert_eq!(floor.status, Status::Ok);
        let finding = spoilt("CPUs", |facts| facts.cpu.online = Some(vec![0]));
        check(&finding, Status::Limited, "-smp 2");
    }

    #[test]
    fn limits_of_the_process_are_named_with_what_sets_them() {
        assert!(diagnose(&complete()).iter().all(|finding| finding.subject != "memory limit"));
        let cpus = |allowed: Vec<u32>| {
            spoilt("allowed CPUs", |facts| facts.limits.cpus_allowed = Some(allowed))
        };
        assert_eq!(cpus(vec![0, 1]).status, Status::Ok);
        let finding = cpus(vec![1]);
        check(&finding, Status::Limited, "--cpuset-cpus=0-1");
        assert!(finding.says.starts_with("1 of 0-1"), "{finding:?}");
        let memory = MemoryLimit {
            limit_bytes: 512 << 20,
            available_bytes: Some(400 << 20),
            file: "/cg/memory.max".into(),
        };
        let memory = spoilt("memory limit", |facts| facts.limits.cgroup.memory = Some(memory));
        check(&memory, Status::Limited, "docker --memory");
        assert_eq!(memory.says, "512 MiB, 400 MiB left (/cg/memory.max)");
        let memory = spoilt("memory limit", |facts| {
            let limit = |limit_bytes: u64, available_bytes: u64, file: &str| MemoryLimit {
                limit_bytes: limit_bytes << 20,
                available_bytes: Some(available_bytes << 20),
                file: file.to_owned(),
            };
            facts.limits.cgroup.memory = Some(limit(512, 400, "/cg/a/memory.max"));
            facts.limits.cgroup.least_available_memory = Some(limit(600, 30, "/cg/memory.max"));
        });
        assert_eq!(
            memory.says,
            "512 MiB, 400 MiB left (/cg/a/memory.max); 30 MiB left of 600 MiB (/cg/memory.max)"
        );
        let unknown = spoilt("control groups", |facts| {
            let reason = "no mount shows it".to_owned();
            facts.limits.cgroup.unknown = vec![UnknownLimit { controller: "memory", reason }];
        });
        check(&unknown, Status::Limited, "--cgroupns=host");
        assert_eq!(unknown.says, "limits of memory unknown: no mount shows it");
        let quota = CpuQuota { quota_us: 50_000, period_us: 100_000, file: "/cg/cpu.max".into() };
        let quota = spoilt("CPU quota", |facts| facts.limits.cgroup.cpu = Some(quota));
        check(&quota, Status::Limited, "docker --cpus");
        assert_eq!(quota.says, "50000 us of each 100000 us: 0.50 CPUs (/cg/cpu.max)");
        let pids = |limit| {
            let pids = PidLimit {
                limit,
                current: Some(3),
                refused_count: None,
                file: "/cg/pids.max".into(),
            };
            spoilt("process limit", |facts| facts.limits.cgroup.pids = Some(pids))
        };
        check(&pids(20), Status::Limited, "docker --pids-limit");
        assert_eq!(pids(4000).status, Status::Ok);
        let namespace = spoilt("PID namespace", |facts| {
            facts.limits.namespaces.pid_is_initial = Some(false);
        });
        check(&namespace, Status::Limited, "docker --pid=host");
        let time = spoilt("time namespace", |facts| {
            facts.limits.namespaces.time_is_initial = Some(false);
            facts.limits.namespaces.monotonic_offset_ns = Some(86_400_000_000_000);
        });
        assert!(time.says.contains("by 86400000000000 ns"), "{time:?}");
    }

    #[test]
    fn tracepoints_that_are_absent_or_unknown() {
        let without = |names: &[&str], exists: Option<bool>| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            move |facts: &mut HostFacts| {
                for tracepoint in &mut facts.tracepoints {
                    if names.contains(&tracepoint.name) {
                        tracepoint.exists = exists;
                    }
                }
            }
        };
        let napi = spoilt("NAPI polls", without(&["napi_poll"], Some(false)));
        check(&napi, Status::Missing, "CONFIG_NET=y");
        let unknown = spoilt("tracepoints", |facts| {
            facts.tracepoints.iter_mut().for_each(|tracepoint| tracepoint.exists = None);
        });
        check(&unknown, Status::Limited, "sudo /usr/bin/irqlab doctor");
        let optional = without(&["threshold_apic_entry", "threshold_apic_exit"], Some(false));
        assert_eq!(spoilt("timer and IPIs", optional).status, Status::Ok);
        let timer = spoilt("timer and IPIs", without(&["local_timer_exit"], Some(false)));
        check(&timer, Status::Limited, "these interrupts");
        let arm = spoilt("timer and IPIs", |facts| facts.kernel.arch = Some("aarch64".into()));
        check(&arm, Status::Limited, "nothing on this architecture");
    }

    /// Every file that irqlab reads.
    const FILES: &str = "
proc/stat proc/cpuinfo proc/cmdline proc/config.gz proc/meminfo proc/interrupts
proc/irq/4/smp_affinity_list proc/irq/4/effective_affinity_list proc/self/status proc/self/mounts
proc/self/cgroup proc/self/mountinfo proc/self/timens_offsets
proc/self/uid_map proc/sys/kernel/osrelease proc/sys/kernel/version proc/sys/kernel/arch
proc/sys/kernel/perf_event_paranoid proc/sys/kernel/nmi_watchdog
proc/sys/kernel/unprivileged_bpf_disabled proc/sys/kernel/unprivileged_userns_clone
proc/sys/kernel/kptr_restrict proc/sys/net/core/bpf_jit_enable proc/sys/user/max_user_namespaces
proc/device-tree/model sys/kernel/irq/4/actions sys/kernel/btf/vmlinux sys/kernel/realtime
sys/kernel/debug/sched/preempt sys/kernel/security/lockdown sys/kernel/tracing/available_events
sys/hypervisor/type sys/class/dmi/id/sys_vendor sys/class/dmi/id/product_name
sys/bus/event_source/devices/cpu/rdpmc
sys/devices/system/clocksource/clocksource0/current_clocksource
sys/devices/system/clocksource/clocksource0/available_clocksource
sys/devices/system/cpu/possible sys/devices/system/cpu/present sys/devices/system/cpu/isolated
sys/devices/system/cpu/nohz_full sys/devices/system/cpu/cpuidle/current_driver
sys/devices/system/cpu/cpuidle/current_governor sys/devices/system/cpu/cpu0/topology/core_id
sys/devices/system/cpu/cpu0/topology/physical_package_id
sys/devices/system/cpu/cpu0/topology/core_cpus_list
sys/devices/system/cpu/cpu0/cpufreq/scaling_governor sys/devices/system/cpu/cpu0/cache/index0/level
sys/devices/system/cpu/cpu0/cache/index0/size
sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list
";

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

        /// Puts the same noise into every file: reading, diagnosing and the verdict do not panic.
        #[test]
        fn a_machine_of_noise_is_diagnosed(
            noise in proptest::prop_oneof![
                proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120),
                proptest::string::bytes_regex("[0-9]{1,20}\\n?").unwrap(),
                proptest::string::bytes_regex("([a-zA-Z_]{1,9}[:=] ?[0-9a-f]{0,17}\\n){0,5}").unwrap(),
            ],
        ) {
            let directory = tempfile::tempdir().unwrap();
            for file in FILES.split_whitespace() {
                plant(directory.path(), file, &noise);
            }
            plant(directory.path(), "sys/devices/system/cpu/online", "0-1");
            let facts = host_facts(&Root::new(directory.path()));
            let findings = diagnose(&facts);
            proptest::prop_assert!(!verdict(&findings).is_empty());
            serde_json::to_string(&(&facts, findings, run_host_block(&facts))).unwrap();
        }
    }
}
