//! Facts about the machine on which irqlab runs, from /proc, /sys, CPUID and trial system calls. [`host_facts`] reads
//! all of them, for `irqlab doctor` and the `host` block of a run; experiments call single readers. [`diagnose`] turns
//! the facts into findings with remedies.
//!
//! Rules for readers: they take a [`Root`], so that a test can build its own `/proc` and `/sys`. Reads are bounded,
//! and no content causes a panic. Every fact is an `Option`: absent is not zero. `irqlab doctor --json` prints the
//! facts, so the names of fields are public.

mod affinity;
mod available_memory;
mod caches;
pub mod cgroup;
mod clock;
mod core_types;
mod cpu;
mod cpu_list;
mod cpu_time;
pub mod diagnosis;
mod disk_interrupts;
mod guest_devices;
pub mod interrupts;
mod irq_threads;
mod kernel;
mod kernel_functions;
mod kernel_symbols;
mod limits;
mod namespaces;
mod online;
mod pmu;
mod process_cpus;
mod rights;
mod root;
mod run_block;
mod smi;
mod smt;
mod tracepoints;

use serde::Serialize;

pub use affinity::{IrqAffinity, irq_affinities};
pub use available_memory::{AvailableMemory, MemoryShortage, available_memory};
pub use caches::{CacheFacts, cache_facts};
pub use cgroup::cgroup_limits;
pub use clock::{ClockFacts, HypervisorFacts};
pub use core_types::{CoreType, core_types};
pub use cpu::{CpuFacts, CpuModel, CpuTopology, RateFacts, cpu_facts, rate_facts};
pub use cpu_list::{CPU_MAX, CpuListError, format_cpu_list, parse_cpu_list, parse_cpu_mask};
pub use cpu_time::{CpuSteal, MemoryFacts, StealFacts, memory_facts, steal_facts};
pub use diagnosis::{Finding, Status, diagnose, remedy_for_tracing_rights};
pub use disk_interrupts::disk_irqs;
pub use guest_devices::{first_disk, has_paired_cards};
pub use interrupts::{InterruptLine, Interrupts};
pub use irq_threads::{IrqThread, irq_of_thread, irq_threads, kernel_threads_are_visible};
pub use kernel::{KERNEL_MIN, KERNEL_REMEDY, KernelFacts, Preemption, kernel_facts};
pub use kernel_functions::{KernelFunctions, OTHER_FUNCTIONS};
pub(crate) use kernel_symbols::KernelSymbols;
pub use limits::{LimitFacts, limit_facts};
pub use namespaces::{
    NamespaceFacts, in_first_pid_namespace, in_first_time_namespace, in_first_user_namespace,
    namespaces, pid_namespace,
};
pub use online::{guest_cpus, is_any_leaving, is_leaving, is_online, offline_cpus, online_cpus};
#[cfg(test)]
pub(crate) use pmu::machines::plant_machine;
pub use pmu::{
    Encoding, EventAbsence, EventCatalogue, EventKind, EventScope, PmuEvent, PmuFacts, pmu_facts,
};
pub use process_cpus::{ProcessCpus, process_cpus};
pub use rights::{RightsFacts, rights_facts};
pub use root::Root;
#[cfg(test)]
pub(crate) use root::plant;
pub use run_block::run_host_block;
pub use smi::smi_count;
pub use smt::SmtWatch;
pub use tracepoints::{BtfFacts, Tracepoint, X86_VECTORS, needed_tracepoints, tracepoint_facts};

/// All facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostFacts {
    /// Whether /proc is there.
    pub proc_mounted: bool,
    /// Whether /sys is there.
    pub sys_mounted: bool,
    pub kernel: KernelFacts,
    pub cpu: CpuFacts,
    /// Each kind of cache of the online CPUs.
    pub caches: Vec<CacheFacts>,
    pub clock: ClockFacts,
    /// The hypervisor and the machine that it presents.
    pub hypervisor: HypervisorFacts,
    pub steal: StealFacts,
    pub memory: MemoryFacts,
    /// Device interrupts and the CPUs that they may use; `None` without /proc/irq.
    pub irqs: Option<Vec<IrqAffinity>>,
    /// The rights of this process.
    pub rights: RightsFacts,
    /// Limits that give this process less than the machine has.
    pub limits: LimitFacts,
    pub pmu: PmuFacts,
    /// Type information of the kernel.
    pub btf: BtfFacts,
    /// The tracepoints that irqlab uses.
    pub tracepoints: Vec<Tracepoint>,
}

impl HostFacts {
    /// Size in bytes of one instance of the last-level cache; `None` if the machine hides it.
    #[must_use]
    pub fn last_level_cache_bytes(&self) -> Option<u64> {
        caches::last_level_cache_bytes(&self.caches)
    }
}

/// Size in bytes of one instance of the last-level cache; `None` if the machine hides it. Reads no other facts.
#[must_use]
pub fn last_level_cache_bytes(root: &Root) -> Option<u64> {
    let online = root.text("sys/devices/system/cpu/online")?;
    caches::last_level_cache_bytes(&cache_facts(root, &parse_cpu_list(&online).ok()?))
}

/// Reads all facts. Takes about 10 ms, mainly for BTF. On the running machine, opens and closes performance events, and
/// loads and closes a BPF program.
#[must_use]
pub fn host_facts(root: &Root) -> HostFacts {
    let kernel = kernel_facts(root);
    let cpu = cpu_facts(root);
    let pmu = pmu_facts(root);
    let arch = kernel.arch.as_deref().unwrap_or(std::env::consts::ARCH);
    let (btf, tracepoints) = tracepoint_facts(root, arch);
    HostFacts {
        proc_mounted: root.exists("proc/self") || root.exists("proc/stat"),
        sys_mounted: root.exists("sys/devices"),
        caches: cache_facts(root, cpu.online.as_deref().unwrap_or_default()),
        clock: clock::clock_facts(root, pmu.tsc_khz),
        hypervisor: clock::hypervisor_facts(root, &cpu.model),
        steal: steal_facts(root),
        memory: memory_facts(root),
        irqs: irq_affinities(root),
        rights: rights_facts(root),
        limits: limit_facts(root),
        kernel,
        cpu,
        pmu,
        btf,
        tracepoints,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_a_processor() {
        let facts = host_facts(&Root::default());
        assert!(facts.kernel.release.is_some());
        assert!(facts.cpu.online.is_none_or(|cpus| !cpus.is_empty()));
        assert_eq!(facts.caches.is_empty(), last_level_cache_bytes(&Root::default()).is_none());
    }

    #[test]
    fn an_empty_root_gives_absent_facts() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let facts = host_facts(&root);
        let empty = HostFacts { tracepoints: facts.tracepoints.clone(), ..HostFacts::default() };
        assert_eq!(facts, empty);
        assert!(facts.tracepoints.iter().all(|tracepoint| tracepoint.exists.is_none()));
        assert_eq!(last_level_cache_bytes(&root), None);
    }
}
