//! Steal time from `/proc/stat`, and memory from `/proc/meminfo`. `noise` and the measurement of kernels report the
//! time that the hypervisor took.

use serde::Serialize;

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
}

/// Steal time of one CPU since boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuSteal {
    pub cpu: u32,
    /// Stolen ticks; 0 if the hypervisor does not report them.
    pub steal_ticks: u64,
    /// Ticks of all kinds together: the time during which this CPU was online.
    pub all_ticks: u64,
    /// Stolen share of `all_ticks`, 0 to 1; `None` if no time was counted.
    pub steal_ratio: Option<f64>,
}

impl StealFacts {
    /// Ticks stolen from all CPUs; `None` if /proc/stat has no CPUs.
    #[must_use]
    pub fn steal_ticks(&self) -> Option<u64> {
        let first = self.per_cpu.first()?.steal_ticks;
        Some(self.per_cpu[1..].iter().fold(first, |sum, cpu| sum.saturating_add(cpu.steal_ticks)))
    }

    /// Stolen share of the time of all CPUs together, 0 to 1; `None` if no time was counted.
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
    StealFacts { tick_ns, per_cpu: parse_stat(&text) }
}

/// Parses the `cpuN` lines of /proc/stat. Their columns are user, nice, system, idle, iowait, irq, softirq, steal, and
/// two guest columns, which user and nice already include.
fn parse_stat(text: &str) -> Vec<CpuSteal> {
    let parse_line = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu = fields.next()?.parse().ok()?;
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let steal_ticks = *ticks.get(7)?;
        let all_ticks = ticks.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
        Some(CpuSteal { cpu, steal_ticks, all_ticks, steal_ratio: ratio(steal_ticks, all_ticks) })
    };
    // The first line is the sum over all CPUs: `cpu  1 2 3`.
    text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(parse_line).collect()
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

    proptest! {
        #[test]
        fn any_line_parses_without_panic(
            text in "(cpu[0-9]{0,12}( [0-9]{0,22}){0,12}\n){0,5}\\PC{0,40}",
        ) {
            let facts = StealFacts { tick_ns: None, per_cpu: parse_stat(&text) };
            let _ = (facts.steal_ticks(), facts.steal_ratio());
        }
    }
}
