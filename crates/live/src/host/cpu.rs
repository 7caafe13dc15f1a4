//! Facts about the processors: model, CPUs and their topology, drivers and governors of frequency and idle states, from
//! /proc/cpuinfo and /sys/devices/system/cpu.

use serde::Serialize;

use super::cpu_list::parse_cpu_list;
use super::root::Root;

/// Largest /proc/cpuinfo that is read. It has 1 to 2 KiB for each CPU.
const CPUINFO_BYTES_MAX: usize = 32 << 20;

const CPU_DIRECTORY: &str = "sys/devices/system/cpu";

/// Facts about the processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuFacts {
    /// The first processor of /proc/cpuinfo. The others are assumed to be of the same model.
    pub model: CpuModel,
    /// CPUs that are online.
    pub online: Option<Vec<u32>>,
    /// CPUs that may come online before the next boot.
    pub possible: Option<Vec<u32>>,
    /// CPUs that are plugged in.
    pub present: Option<Vec<u32>>,
    /// An entry for each online CPU, ascending.
    pub topology: Vec<CpuTopology>,
    /// The idle driver in use, such as `intel_idle`, `haltpoll`, `none`.
    pub idle_driver: Option<String>,
    /// The idle governor in use, such as `menu`.
    pub idle_governor: Option<String>,
    /// The frequency driver of the first CPU that has one.
    pub frequency_driver: Option<String>,
}

/// The processor's model, and flags that matter for measuring. The numbers have the
/// meaning that x86 processors give them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuModel {
    /// Name of the vendor, such as `GenuineIntel`.
    pub vendor: Option<String>,
    /// Name of the model, for people.
    pub name: Option<String>,
    /// Family of the CPUID signature.
    pub family: Option<u32>,
    /// Model of the CPUID signature.
    pub model: Option<u32>,
    /// Stepping of the CPUID signature.
    pub stepping: Option<u32>,
    /// Microcode revision as /proc/cpuinfo writes it, such as `0x2b000590`.
    pub microcode: Option<String>,
    /// Whether the TSC ticks at the same rate at all frequencies. `None` on processors without x86 flags.
    pub constant_tsc: Option<bool>,
    /// Whether the TSC also ticks in deep idle states. `None` on processors without x86 flags.
    pub nonstop_tsc: Option<bool>,
    /// Whether the processor says that it is virtual.
    pub hypervisor_flag: Option<bool>,
}

/// Position of a CPU in the machine, and its frequency governor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuTopology {
    pub cpu: u32,
    /// Physical package (socket).
    pub package: Option<i32>,
    /// Core, unique within the package.
    pub core: Option<i32>,
    pub node: Option<u32>,
    /// All CPUs of this CPU's core, including this CPU.
    pub smt_siblings: Option<Vec<u32>>,
    /// The cpufreq governor, such as `performance`; `None` if nothing scales the frequency.
    pub governor: Option<String>,
}

/// Reads the model of the first processor. On some kernels, reading /proc/cpuinfo interrupts all CPUs.
pub(super) fn cpu_model(root: &Root) -> CpuModel {
    let text = root.text_up_to("proc/cpuinfo", CPUINFO_BYTES_MAX);
    text.map(|text| parse_cpuinfo(&text)).unwrap_or_default()
}

/// Reads the facts about the processors.
#[must_use]
pub fn cpu_facts(root: &Root) -> CpuFacts {
    let list = |name: &str| {
        root.text(format!("{CPU_DIRECTORY}/{name}")).and_then(|list| parse_cpu_list(&list).ok())
    };
    let online = list("online");
    let topology: Vec<_> = online.iter().flatten().map(|cpu| cpu_topology(root, *cpu)).collect();
    let frequency_driver = online
        .iter()
        .flatten()
        .find_map(|cpu| root.word(format!("{CPU_DIRECTORY}/cpu{cpu}/cpufreq/scaling_driver")));
    CpuFacts {
        model: cpu_model(root),
        possible: list("possible"),
        present: list("present"),
        topology,
        online,
        idle_driver: root.word(format!("{CPU_DIRECTORY}/cpuidle/current_driver")),
        idle_governor: root
            .word(format!("{CPU_DIRECTORY}/cpuidle/current_governor"))
            .or_else(|| root.word(format!("{CPU_DIRECTORY}/cpuidle/current_governor_ro"))),
        frequency_driver,
    }
}

impl CpuModel {
    /// Why cycles of the time-stamp counter cannot be compared between CPUs, loads and frequencies, as the rest of a
    /// sentence about the counter. `None` if the counter is constant and never stops (Intel SDM volume 3, section on
    /// the invariant TSC; the kernel's flags `constant_tsc` and `nonstop_tsc`).
    #[must_use]
    pub fn tsc_flaw(&self) -> Option<&'static str> {
        match (self.constant_tsc, self.nonstop_tsc) {
            (Some(true), Some(true)) => None,
            (Some(true), Some(false)) => Some("stops in deep idle states"),
            (Some(false), _) => Some("follows the CPU's frequency"),
            _ => Some("is not described by this kernel"),
        }
    }
}

impl CpuFacts {
    /// Number of different values of a property over the online CPUs; `None` if a value
    /// is unknown, or there are no CPUs.
    fn distinct<T: Ord>(&self, property: impl Fn(&CpuTopology) -> Option<T>) -> Option<usize> {
        let values: Option<std::collections::BTreeSet<T>> =
            self.topology.iter().map(property).collect();
        values.map(|values| values.len()).filter(|count| *count > 0)
    }

    /// Number of packages (sockets) with an online CPU. `None` if the kernel does not report the package of a CPU.
    #[must_use]
    pub fn packages(&self) -> Option<usize> {
        self.distinct(|cpu| cpu.package)
    }

    /// Number of cores with an online CPU. `None` if the kernel does not report the core of a CPU.
    #[must_use]
    pub fn cores(&self) -> Option<usize> {
        self.distinct(|cpu| Some((cpu.package?, cpu.core?)))
    }

    /// Number of NUMA nodes with an online CPU. `None` if the kernel does not report the node of a CPU.
    #[must_use]
    pub fn nodes(&self) -> Option<usize> {
        self.distinct(|cpu| cpu.node)
    }

    /// The governors in use, each once, sorted; empty if nothing scales the frequency.
    #[must_use]
    pub fn governors(&self) -> Vec<&str> {
        let mut names: Vec<_> =
            self.topology.iter().filter_map(|cpu| cpu.governor.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Statements of the machine about a CPU's frequency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateFacts {
    /// How often, since boot, the CPU's core or package was throttled because it was too hot.
    /// `None` except on Intel's processors.
    pub throttled: Option<u64>,
    /// The highest frequency that cpufreq states, Hz.
    pub highest_hz: Option<u64>,
}

/// Reads the statements of the machine about a CPU's frequency.
#[must_use]
pub fn rate_facts(root: &Root, cpu: u32) -> RateFacts {
    let directory = format!("{CPU_DIRECTORY}/cpu{cpu}");
    let count =
        |counter: &str| root.number::<u64>(format!("{directory}/thermal_throttle/{counter}"));
    let counts = [count("core_throttle_count"), count("package_throttle_count")];
    let khz = root.number::<u64>(format!("{directory}/cpufreq/cpuinfo_max_freq"));
    RateFacts {
        throttled: counts.into_iter().flatten().reduce(u64::saturating_add),
        highest_hz: khz.filter(|khz| *khz > 0).map(|khz| khz.saturating_mul(1000)),
    }
}

/// All CPUs of the core of `cpu`, `cpu` among them. `None` if the machine does not say.
pub(super) fn smt_siblings(root: &Root, cpu: u32) -> Option<Vec<u32>> {
    let list = |name| root.text(format!("{CPU_DIRECTORY}/cpu{cpu}/topology/{name}"));
    let mut lists = ["core_cpus_list", "thread_siblings_list"].into_iter().filter_map(list);
    lists.find_map(|list| parse_cpu_list(&list).ok())
}

/// The position of a CPU, and its governor.
fn cpu_topology(root: &Root, cpu: u32) -> CpuTopology {
    let directory = format!("{CPU_DIRECTORY}/cpu{cpu}");
    let node = root
        .names(&directory)
        .and_then(|names| names.iter().find_map(|name| name.strip_prefix("node")?.parse().ok()));
    CpuTopology {
        cpu,
        package: root.number(format!("{directory}/topology/physical_package_id")),
        core: root.number(format!("{directory}/topology/core_id")),
        node,
        smt_siblings: smt_siblings(root, cpu),
        governor: root.word(format!("{directory}/cpufreq/scaling_governor")),
    }
}

/// Parses the first processor of /proc/cpuinfo, whose lines have the form `key : value` (x86, Arm and others).
#[must_use]
pub fn parse_cpuinfo(text: &str) -> CpuModel {
    let value = |key: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = pairs.find(|(name, _)| name.trim() == key)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let flags = value("flags");
    let has_flag =
        |name: &str| flags.as_ref().map(|all| all.split_whitespace().any(|flag| flag == name));
    // Arm identifies implementer and part by numbers.
    let arm_name =
        || Some(format!("implementer {} part {}", value("CPU implementer")?, value("CPU part")?));
    CpuModel {
        vendor: value("vendor_id").or_else(|| value("CPU implementer")),
        name: value("model name").or_else(|| value("cpu model")).or_else(arm_name),
        family: value("cpu family").and_then(|number| number.parse().ok()),
        model: value("model").and_then(|number| number.parse().ok()),
        stepping: value("stepping").and_then(|number| number.parse().ok()),
        microcode: value("microcode"),
        constant_tsc: has_flag("constant_tsc"),
        nonstop_tsc: has_flag("nonstop_tsc"),
        hypervisor_flag: has_flag("hypervisor"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cycles_need_a_counter_that_is_constant_and_never_stops() {
        let flaw = |flags: &str| parse_cpuinfo(&format!("flags\t\t: fpu {flags}\n")).tsc_flaw();
        assert_eq!(flaw("constant_tsc nonstop_tsc"), None);
        assert_eq!(flaw("constant_tsc"), Some("stops in deep idle states"));
        assert_eq!(flaw("nonstop_tsc"), Some("follows the CPU's frequency"));
        let without_flags = parse_cpuinfo("processor\t: 0\nCPU implementer : 0x41\n");
        assert_eq!(without_flags.tsc_flaw(), Some("is not described by this kernel"));
    }

    #[test]
    fn two_threads_of_one_core() {
        let directory = tempfile::tempdir().unwrap();
        let write_file = |path: &str, text: &str| plant(directory.path(), path, text);
        write_file(
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
             model name\t: Xeon: X\nflags\t\t: fpu constant_tsc\n\nprocessor : 1\n",
        );
        write_file("sys/devices/system/cpu/online", "0-1\n");
        for cpu in 0..2 {
            let base = format!("sys/devices/system/cpu/cpu{cpu}");
            write_file(&format!("{base}/topology/core_id"), "4\n");
            write_file(&format!("{base}/topology/physical_package_id"), "0\n");
            write_file(&format!("{base}/topology/thread_siblings_list"), "0-1\n");
            write_file(&format!("{base}/node1/x"), "");
            write_file(&format!("{base}/cpufreq/scaling_governor"), "powersave\n");
        }
        let facts = cpu_facts(&Root::new(directory.path()));
        assert_eq!(facts.model.name.as_deref(), Some("Xeon: X"));
        assert_eq!((facts.model.family, facts.model.model), (Some(6), Some(143)));
        assert_eq!(facts.model.constant_tsc, Some(true));
        assert_eq!(facts.model.nonstop_tsc, Some(false));
        assert_eq!((facts.packages(), facts.cores(), facts.nodes()), (Some(1), Some(1), Some(1)));
        assert_eq!(facts.governors(), ["powersave"]);
        assert_eq!(facts.topology[1].smt_siblings, Some(vec![0, 1]));
        assert_eq!(facts.topology[1].node, Some(1));
    }

    #[test]
    fn a_throttled_core_says_how_often() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(rate_facts(&root, 3), RateFacts::default());
        let base = "sys/devices/system/cpu/cpu3";
        let write_file =
            |path: &str, text: &str| plant(directory.path(), &format!("{base}/{path}"), text);
        write_file("thermal_throttle/core_throttle_count", "5\n");
        write_file("thermal_throttle/package_throttle_count", "2\n");
        write_file("cpufreq/cpuinfo_max_freq", "4700000\n");
        let facts = RateFacts { throttled: Some(7), highest_hz: Some(4_700_000_000) };
        assert_eq!(rate_facts(&root, 3), facts);
        write_file("cpufreq/cpuinfo_max_freq", "<unknown>\n");
        assert_eq!(rate_facts(&root, 3).highest_hz, None);
    }

    #[test]
    fn nothing_is_known_of_an_empty_root() {
        let directory = tempfile::tempdir().unwrap();
        let facts = cpu_facts(&Root::new(directory.path()));
        assert_eq!(facts, CpuFacts::default());
        assert_eq!((facts.packages(), facts.cores()), (None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_cpuinfo(&String::from_utf8_lossy(&bytes));
        }
    }
}
