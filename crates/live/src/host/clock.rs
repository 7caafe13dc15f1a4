//! Facts about the kernel's clock source, the frequency of the TSC, and the hypervisor, from /sys and CPUID.

use std::sync::OnceLock;

use serde::Serialize;

use super::cpu::{CpuModel, cpu_model};
use super::kernel::is_kvm_guest;
use super::root::Root;

/// Facts about the clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockFacts {
    /// The clock source in use, such as `tsc`.
    pub source: Option<String>,
    /// The clock sources that the kernel offers.
    pub available: Option<Vec<String>>,
    /// Frequency of the TSC, kHz; `None` if no source states it.
    pub tsc_khz: Option<u64>,
    /// Where the frequency is from: `kernel` (the kernel's own conversion), `cpuid 0x15`, or
    /// `hypervisor` (CPUID leaf 0x40000010).
    pub tsc_khz_source: Option<String>,
}

/// Facts about the hypervisor and the machine that it presents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HypervisorFacts {
    /// Whether there is a hypervisor; `None` if neither CPUID nor sysfs says.
    pub present: Option<bool>,
    /// Name of the hypervisor, such as `KVM`.
    pub name: Option<String>,
    /// The twelve characters of CPUID leaf 0x40000000.
    pub signature: Option<String>,
    /// Maker and product of the machine, from DMI or the device tree.
    pub machine: Option<String>,
}

/// Names of hypervisors by their signature. A KVM may be configured to present the signature of Hyper-V.
const SIGNATURES: [(&str, &str); 12] = [
    ("KVMKVMKVM", "KVM"),
    ("Linux KVM Hv", "KVM"),
    ("Microsoft Hv", "Hyper-V"),
    ("VMwareVMware", "VMware"),
    ("XenVMMXenVMM", "Xen"),
    ("TCGTCGTCGTCG", "QEMU (TCG)"),
    ("VBoxVBoxVBox", "VirtualBox"),
    ("bhyve bhyve", "bhyve"),
    ("ACRNACRNACRN", "ACRN"),
    ("prl hyperv", "Parallels"),
    ("QNXQVMBSQG", "QNX"),
    ("OpenBSDVMM58", "OpenBSD vmm"),
];

/// Reads the facts about the clocks. `tsc_khz_from_kernel`: the frequency in the kernel's conversion ([`PmuFacts`]).
///
/// [`PmuFacts`]: super::PmuFacts
#[must_use]
pub fn clock_facts(root: &Root, tsc_khz_from_kernel: Option<u64>) -> ClockFacts {
    let directory = "sys/devices/system/clocksource/clocksource0";
    let from_kernel = tsc_khz_from_kernel.map(|khz| (khz, "kernel"));
    let from_cpuid = if root.is_live() { cpuid::tsc_khz() } else { None };
    let (tsc_khz, source) = from_kernel.or(from_cpuid).unzip();
    ClockFacts {
        source: root.word(format!("{directory}/current_clocksource")),
        available: root
            .word(format!("{directory}/available_clocksource"))
            .map(|names| names.split_whitespace().map(str::to_owned).collect()),
        tsc_khz,
        tsc_khz_source: source.map(str::to_owned),
    }
}

/// Reads the facts about the hypervisor. `cpu`: the processor's model, with its flag for a hypervisor.
#[must_use]
pub fn hypervisor_facts(root: &Root, cpu: &CpuModel) -> HypervisorFacts {
    let sys_type = root.word("sys/hypervisor/type");
    let present = match (cpu.hypervisor_flag, &sys_type) {
        (_, Some(_)) => Some(true),
        (Some(flag), None) => Some(flag),
        // Without /proc/cpuinfo, asks the processor of the running machine.
        (None, None) => root.is_live().then(cpuid::is_virtual).flatten(),
    };
    let signature =
        (root.is_live() && present == Some(true)).then(cpuid::hypervisor_signature).flatten();
    let dmi = |name: &str| root.word(format!("sys/class/dmi/id/{name}"));
    let machine = match (dmi("sys_vendor"), dmi("product_name")) {
        (Some(vendor), Some(product)) => Some(format!("{vendor} {product}")),
        (vendor, product) => vendor.or(product),
    };
    let machine = machine.or_else(|| {
        let model = root.word("proc/device-tree/model")?;
        Some(model.trim_end_matches('\0').to_owned())
    });
    let name_of_signature = signature.as_deref().and_then(|signature| {
        let (_, name) = SIGNATURES.iter().find(|(known, _)| *known == signature)?;
        Some((*name).to_owned())
    });
    let capitalised = |name: String| if name == "xen" { "Xen".to_owned() } else { name };
    let name = name_of_signature
        .or_else(|| sys_type.map(capitalised))
        .or_else(|| present.filter(|is_present| *is_present).and(signature.clone()));
    HypervisorFacts { present, name, signature, machine }
}

/// Why zeros of stolen time in /proc/stat may mean that it is not known. `None` if no hypervisor is visible, or if the
/// hypervisor promises to report it and the kernel reads the report.
pub(super) fn why_steal_may_be_hidden(root: &Root) -> Option<&'static str> {
    let has_sysfs_type = root.exists("sys/hypervisor/type");
    if !root.is_live() {
        let is_virtual = has_sysfs_type || cpu_model(root).hypervisor_flag == Some(true);
        return why_hidden(root, is_virtual, false);
    }
    // The answer does not change while the machine runs, and the benches ask at the edges of windows.
    static ANSWER: OnceLock<Option<&'static str>> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // Asks CPUID, because /proc/cpuinfo interrupts all CPUs on some kernels.
        let is_virtual = cpuid::is_virtual() == Some(true) || has_sysfs_type;
        why_hidden(root, is_virtual, cpuid::kvm_reports_steal())
    })
}

/// `is_promised`: a KVM promises to report stolen time (KVM_FEATURE_STEAL_TIME).
fn why_hidden(root: &Root, is_virtual: bool, is_promised: bool) -> Option<&'static str> {
    match (is_virtual, is_promised) {
        (false, _) => None,
        (true, false) => Some("the hypervisor reports no stolen time"),
        (true, true) if kernel_uses_kvm(root) => None,
        (true, true) => Some("nothing shows that this kernel reads KVM's report of stolen time"),
    }
}

/// Whether the kernel uses KVM's services for guests, such as the report of stolen time. The option `nopv` turns them off
/// (arch/x86/kernel/cpu/hypervisor.c), and a kernel may be built without them. Only a kernel that uses them has the clock
/// source `kvm-clock`, but an option can turn the clock off. False if nothing is known.
fn kernel_uses_kvm(root: &Root) -> bool {
    let sources = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    let has_clock = root
        .word(sources)
        .is_some_and(|names| names.split_whitespace().any(|name| name == "kvm-clock"));
    has_clock || is_kvm_guest(root)
}

/// The processor's vendor, such as `GenuineIntel`. On the running machine asks CPUID, because reading /proc/cpuinfo
/// interrupts all CPUs on some kernels.
pub(super) fn processor_vendor(root: &Root) -> Option<String> {
    let from_cpuid = if root.is_live() { cpuid::vendor() } else { None };
    from_cpuid.or_else(|| cpu_model(root).vendor)
}

/// Facts from the CPUID instruction alone.
#[cfg(target_arch = "x86_64")]
mod cpuid {
    use std::arch::x86_64::{__cpuid, CpuidResult};

    /// First leaf of the hypervisor's range.
    const HYPERVISOR_BASE: u32 = 0x4000_0000;
    /// Timing leaf of VMware and KVM: the TSC's frequency in EAX, kHz.
    const HYPERVISOR_TIMING: u32 = 0x4000_0010;
    /// Leaf with the ratio of the TSC to the core's crystal clock.
    const CRYSTAL: u32 = 0x15;

    #[allow(unused_unsafe)] // `__cpuid` is an unsafe function up to Rust 1.93
    fn leaf(number: u32) -> CpuidResult {
        // SAFETY: every x86_64 processor has the CPUID instruction, and it touches no memory.
        unsafe { __cpuid(number) }
    }

    /// The vendor of the processor, twelve characters.
    pub(super) fn vendor() -> Option<String> {
        let registers = leaf(0);
        let bytes = [registers.ebx, registers.edx, registers.ecx].map(u32::to_le_bytes).concat();
        String::from_utf8(bytes).ok()
    }

    /// The signature, of up to twelve characters. Meaningful only under a hypervisor.
    pub(super) fn hypervisor_signature() -> Option<String> {
        let registers = leaf(HYPERVISOR_BASE);
        let bytes: Vec<u8> = [registers.ebx, registers.ecx, registers.edx]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(['\0', ' ']);
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Whether a KVM promises to report stolen time, in the features of its own signature.
    pub(super) fn kvm_reports_steal() -> bool {
        const FEATURES: u32 = HYPERVISOR_BASE + 1;
        const STEAL_TIME: u32 = 1 << 5;
        // A KVM with the signature of Hyper-V has its own features elsewhere. Then a stolen tick must show the report.
        hypervisor_signature().as_deref() == Some("KVMKVMKVM")
            && leaf(FEATURES).eax & STEAL_TIME != 0
    }

    /// Whether the processor is virtual, by the flag that no real processor sets.
    pub(super) fn is_virtual() -> Option<bool> {
        Some(leaf(1).ecx & (1 << 31) != 0)
    }

    /// The TSC's frequency, kHz, and its source; `None` if no leaf states it.
    pub(super) fn tsc_khz() -> Option<(u64, &'static str)> {
        if leaf(0).eax >= CRYSTAL {
            // TSC Hz = crystal Hz (ECX) * EBX / EAX; 0 if the processor does not state all of them.
            let registers = leaf(CRYSTAL);
            let product = u64::from(registers.ecx) * u64::from(registers.ebx);
            let hz = product.checked_div(u64::from(registers.eax)).unwrap_or(0);
            if hz > 0 {
                return Some((hz / 1000, "cpuid 0x15"));
            }
        }
        let is_virtual = is_virtual() == Some(true);
        if is_virtual && (HYPERVISOR_TIMING..0x4001_0000).contains(&leaf(HYPERVISOR_BASE).eax) {
            let khz = u64::from(leaf(HYPERVISOR_TIMING).eax);
            return (khz > 0).then_some((khz, "hypervisor"));
        }
        None
    }
}

/// Facts on other processors, which have no such instruction: none.
#[cfg(not(target_arch = "x86_64"))]
mod cpuid {
    pub(super) fn hypervisor_signature() -> Option<String> {
        None
    }

    pub(super) fn vendor() -> Option<String> {
        None
    }

    pub(super) fn kvm_reports_steal() -> bool {
        false
    }

    pub(super) fn is_virtual() -> Option<bool> {
        None
    }

    pub(super) fn tsc_khz() -> Option<(u64, &'static str)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    #[test]
    fn clock_sources_from_a_fake_root() {
        let directory = tempfile::tempdir().unwrap();
        let base = "sys/devices/system/clocksource/clocksource0";
        plant(directory.path(), &format!("{base}/current_clocksource"), "hpet\n");
        plant(directory.path(), &format!("{base}/available_clocksource"), "tsc hpet \n");
        let facts = clock_facts(&Root::new(directory.path()), None);
        assert_eq!(facts.source.as_deref(), Some("hpet"));
        assert_eq!(facts.available, Some(vec!["tsc".to_owned(), "hpet".to_owned()]));
        assert_eq!(facts.tsc_khz, None);
    }

    #[test]
    fn xen_is_told_by_sysfs_and_bare_metal_by_the_flag() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let metal = CpuModel { hypervisor_flag: Some(false), ..CpuModel::default() };
        assert_eq!(hypervisor_facts(&root, &metal).present, Some(false));
        assert_eq!(hypervisor_facts(&root, &CpuModel::default()).present, None);
        plant(directory.path(), "sys/hypervisor/type", "xen\n");
        plant(directory.path(), "sys/class/dmi/id/sys_vendor", "Xen\n");
        let facts = hypervisor_facts(&root, &metal);
        assert_eq!((facts.present, facts.name.as_deref()), (Some(true), Some("Xen")));
        assert_eq!(facts.machine.as_deref(), Some("Xen"));
    }

    /// A KVM offers the report, but the guest's kernel must ask for it.
    #[test]
    fn zeros_are_believed_if_kvm_reports_steal_and_the_kernel_reads_it() {
        let hidden = |command_line: &str, config: &str, sources: &str| {
            let directory = tempfile::tempdir().unwrap();
            let base = "sys/devices/system/clocksource/clocksource0";
            plant(directory.path(), &format!("{base}/available_clocksource"), sources);
            plant(directory.path(), "proc/sys/kernel/osrelease", "6.1.0\n");
            plant(directory.path(), "proc/cmdline", command_line);
            plant(directory.path(), "boot/config-6.1.0", config);
            why_hidden(&Root::new(directory.path()), true, true).is_some()
        };
        let built = "CONFIG_PARAVIRT=y\nCONFIG_KVM_GUEST=y\n";
        assert!(!hidden("quiet", built, "kvm-clock tsc\n"));
        assert!(!hidden("quiet no-kvmclock", built, "tsc\n"));
        assert!(hidden("quiet nopv", built, "tsc\n"));
        assert!(hidden("quiet", "CONFIG_HZ=250\n", "tsc\n"));
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert!(why_hidden(&root, true, true).is_some(), "nothing is known");
        assert!(why_hidden(&root, true, false).is_some(), "not promised");
        assert_eq!(why_hidden(&root, false, false), None);
    }

    #[test]
    fn this_machine_answers_without_panic() {
        let root = Root::default();
        let _ = clock_facts(&root, None);
        let _ = hypervisor_facts(&root, &CpuModel::default());
    }
}
