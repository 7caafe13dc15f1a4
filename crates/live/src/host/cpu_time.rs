//! Times of CPUs from `/proc/stat`, steal time among them, and memory from `/proc/meminfo`. `noise` and the measurement of kernels report the
//! time that the hypervisor took.

use std::collections::BTreeMap;

use serde::Serialize;

use super::clock::why_steal_may_be_hidden;
use super::root::Root;

/// Largest /proc/stat that is read. It has a line for each CPU and a number for each IRQ.
const STAT_BYTES_MAX: usize = 16 << 20;

/// Steal time: the time during which the hypervisor did not run a virtual CPU that wanted to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StealFacts {
    /// Length of a tick of /proc/stat in ns, nearly always 10 ms. It does not depend on the kernel's HZ.
    pub tick_ns: Option<u64>,
    /// An entry for each CPU of /proc/stat.
    pub per_cpu: Vec<CpuSteal>,
    /// Why the stolen ticks are not known, if they are not: /proc/stat has 0 for each CPU of a virtual machine whose
    /// hypervisor reports none, or whose kernel does not read the report.
    pub unreported: Option<String>,
}

/// Steal time of one CPU since boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuSteal {
    pub cpu: u32,
    /// Stolen ticks; `None` if the hypervisor does not report them.
    pub steal_ticks: Option<u64>,
    /// Ticks of all kinds together: the time during which this CPU was online.
    pub all_ticks: u64,
    /// Stolen share of `all_ticks`, 0 to 1; `None` if no time was counted, or the stolen ticks are not known.
    pub steal_ratio: Option<f64>,
}

impl StealFacts {
    /// Ticks stolen from all CPUs; `None` if /proc/stat has no CPUs, or the hypervisor does not report them.
    #[must_use]
    pub fn steal_ticks(&self) -> Option<u64> {
        let ticks = self.per_cpu.iter().map(|cpu| cpu.steal_ticks);
        ticks.reduce(|sum, ticks| Some(sum?.saturating_add(ticks?)))?
    }

    /// Stolen share of the time of all CPUs together, 0 to 1; `None` if no time was counted, or as above.
    #[must_use]
    pub fn steal_ratio(&self) -> Option<f64> {
        let all_ticks =
            self.per_cpu.iter().fold(0u64, |sum, cpu| sum.saturating_add(cpu.all_ticks));
        ratio(self.steal_ticks()?, all_ticks)
    }
}

fn ratio(part: u64, sum: u64) -> Option<f64> {
    (sum > 0).then(|| part as f64 / sum as f64)
}

/// Reads the steal time; empty without /proc/stat.
#[must_use]
pub fn steal_facts(root: &Root) -> StealFacts {
    let text = root.text_up_to("proc/stat", STAT_BYTES_MAX).unwrap_or_default();
    // From the auxiliary vector of this process, without a system call.
    let ticks_per_second = root.is_live().then(rustix::param::clock_ticks_per_second);
    let tick_ns = ticks_per_second.and_then(|number| 1_000_000_000u64.checked_div(number));
    let mut facts = StealFacts { tick_ns, per_cpu: parse_stat(&text), unreported: None };
    // A single stolen tick shows that the hypervisor reports them. Otherwise 0 may mean that nothing was stolen.
    let hidden = if facts.steal_ticks() == Some(0) { why_steal_may_be_hidden(root) } else { None };
    if let Some(reason) = hidden {
        facts.unreported = Some(format!("{reason} (/proc/stat has 0 since boot)"));
        for cpu in &mut facts.per_cpu {
            (cpu.steal_ticks, cpu.steal_ratio) = (None, None);
        }
    }
    facts
}

/// Ticks of /proc/stat of a CPU since boot, or in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTicks {
    /// Programs, also nice ones, and guests of a hypervisor.
    pub user: u64,
    pub system: u64,
    /// Interrupts and softirqs.
    pub interrupts: u64,
    /// Idle, also while tasks wait for a disk.
    pub idle: u64,
    /// The hypervisor ran something else.
    pub steal: u64,
}

impl CpuTicks {
    /// Ticks of all kinds together: the time during which the CPU was online.
    pub fn all(self) -> u64 {
        [self.idle, self.steal].into_iter().fold(self.busy(), u64::saturating_add)
    }

    /// Ticks of programs, the kernel, interrupts and softirqs.
    pub fn busy(self) -> u64 {
        self.user.saturating_add(self.system).saturating_add(self.interrupts)
    }

    /// The ticks since `before`, an earlier reading of the same CPU.
    pub fn since(self, before: CpuTicks) -> CpuTicks {
        CpuTicks {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            interrupts: self.interrupts.saturating_sub(before.interrupts),
            idle: self.idle.saturating_sub(before.idle),
            steal: self.steal.saturating_sub(before.steal),
        }
    }

    /// `part` as a share of all ticks, 0 to 1. `None` without ticks.
    pub fn ratio(self, part: u64) -> Option<f64> {
        ratio(part, self.all())
    }
}

/// Reads the ticks of each CPU; empty without /proc/stat.
pub(super) fn cpu_ticks(root: &Root) -> BTreeMap<u32, CpuTicks> {
    parse_ticks(&root.text_up_to("proc/stat", STAT_BYTES_MAX).unwrap_or_default()).collect()
}

/// Parses the `cpuN` lines of /proc/stat. Their columns are user, nice, system, idle, iowait, irq, softirq, steal, and
/// two guest columns, which user and nice already include.
fn parse_ticks(text: &str) -> impl Iterator<Item = (u32, CpuTicks)> + '_ {
    let parse_line = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu = fields.next()?.parse().ok()?;
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, io_wait, irq, softirq, steal] = ticks[..] else {
            return None;
        };
        let ticks = CpuTicks {
            user: user.saturating_add(nice),
            system,
            interrupts: irq.saturating_add(softirq),
            idle: idle.saturating_add(io_wait),
            steal,
        };
        Some((cpu, ticks))
    };
    // The first line is the sum over all CPUs: `cpu  1 2 3`.
    text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(parse_line)
}

fn parse_stat(text: &str) -> Vec<CpuSteal> {
    let steal = |(cpu, ticks): (u32, CpuTicks)| CpuSteal {
        cpu,
        steal_ticks: Some(ticks.steal),
        all_ticks: ticks.all(),
        steal_ratio: ticks.ratio(ticks.steal),
    };
    parse_ticks(text).map(steal).collect()
}

/// Memory of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryFacts {
    /// Memory that the kernel manages.
    pub total_bytes: Option<u64>,
    /// Memory available without swapping.
    pub available_bytes: Option<u64>,
}

/// Reads the totals of /proc/meminfo.
#[must_use]
pub fn memory_facts(root: &Root) -> MemoryFacts {
    let text = root.text("proc/meminfo").unwrap_or_default();
    let value = |name: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    MemoryFacts { total_bytes: value("MemTotal"), available_bytes: value("MemAvailable") }
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steal_and_memory_from_a_fake_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(steal_facts(&root).steal_ticks(), None);
        assert_eq!(memory_facts(&root), MemoryFacts::default());
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 70 1 1 0 25 3 0\n\
                    cpu3 0 0 0 100 0 0 0 0\ncpu4 1 2\nintr 5 cpu1\n";
        plant(directory.path(), "proc/stat", stat);
        plant(directory.path(), "proc/meminfo", "MemTotal:  16 kB\nMemFree: 1 kB\n");
        let facts = steal_facts(&root);
        assert_eq!(facts.per_cpu.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(facts.per_cpu[0].steal_ratio, Some(0.25));
        assert_eq!((facts.steal_ticks(), facts.steal_ratio()), (Some(25), Some(0.125)));
        assert_eq!(memory_facts(&root).total_bytes, Some(16_384));
        assert_eq!(memory_facts(&root).available_bytes, None);
    }

    /// A hypervisor may report no stolen time at all; then the kernel writes zeros.
    #[test]
    fn zeros_of_a_virtual_machine_are_absent_until_one_tick_is_stolen() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let steal = |flags: &str, ticks: u64| {
            let stat = format!("cpu0 1 1 1 70 1 1 0 0\ncpu1 0 0 0 100 0 0 0 {ticks}\n");
            plant(directory.path(), "proc/stat", stat);
            let cpuinfo = format!("processor\t: 0\nflags\t\t: {flags}\n");
            plant(directory.path(), "proc/cpuinfo", cpuinfo);
            steal_facts(&root)
        };
        let virtual_machine = steal("tsc hypervisor", 0);
        assert_eq!((virtual_machine.steal_ticks(), virtual_machine.steal_ratio()), (None, None));
        assert!(virtual_machine.unreported.is_some());
        assert!(virtual_machine.per_cpu.iter().all(|cpu| cpu.steal_ticks.is_none()));
        let stolen = steal("tsc hypervisor", 1);
        assert_eq!((stolen.steal_ticks(), stolen.unreported), (Some(1), None));
        assert_eq!(stolen.per_cpu[0].steal_ticks, Some(0));
        let real = steal("tsc", 0);
        assert_eq!((real.steal_ticks(), real.steal_ratio()), (Some(0), Some(0.0)));
    }

    proptest! {
        #[test]
        fn any_line_parses_without_panic(
            text in "(cpu[0-9]{0,12}( [0-9]{0,22}){0,12}\n){0,5}\\PC{0,40}",
        ) {
            let facts = StealFacts { per_cpu: parse_stat(&text), ..StealFacts::default() };
            let _ = (facts.steal_ticks(), facts.steal_ratio());
        }
    }
}
