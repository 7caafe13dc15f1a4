//! Counts of the kernel, the hypervisor and the processor at the edges of a window: stolen time, system management
//! interrupts (SMIs), lost marks. `bench.rs` reads them before and after the loops.

use std::time::Instant;

use lab::noise::sent::OtherSenders;

use crate::bpf::BpfError;
use crate::host::{Root, StealFacts, smi_count, steal_facts};
use crate::marks::MarkProbes;

/// Counts of the kernel, the hypervisor and the firmware at an edge of a window.
pub struct ExternalCounts {
    read_at: Instant,
    steal: StealFacts,
    /// CPU and its number of SMIs, for CPUs that count them.
    smis: Vec<(u32, u32)>,
    /// Marks dropped because the ring was full; `None` without probes.
    pub lost: Option<u64>,
    /// Switches to threads of process 1.
    pub switches_to_init: u64,
    /// Interrupts whose senders share a cause.
    pub other_senders: OtherSenders,
}

impl ExternalCounts {
    /// Reads all counts now.
    ///
    /// Fails if the probes' counts cannot be read.
    pub fn now(root: &Root, cpus: &[u32], probes: Option<&MarkProbes>) -> Result<Self, BpfError> {
        let smis = cpus.iter().filter_map(|cpu| Some((*cpu, smi_count(root, *cpu).ok()?)));
        Ok(ExternalCounts {
            read_at: Instant::now(),
            steal: steal_facts(root),
            smis: smis.collect(),
            lost: probes.map(MarkProbes::lost).transpose()?,
            switches_to_init: probes.map_or(0, MarkProbes::switches_to_init),
            other_senders: probes.map(MarkProbes::other_senders).unwrap_or_default(),
        })
    }

    /// Number of SMIs until the later reading `after`; `None` if the CPU does not count them. The difference wraps,
    /// because the register has 32 bits.
    pub fn smis_until(&self, after: &Self, cpu: u32) -> Option<u64> {
        let count_in = |counts: &Self| {
            Some(counts.smis.iter().find(|(counted_cpu, _)| *counted_cpu == cpu)?.1)
        };
        Some(count_in(after)?.wrapping_sub(count_in(self)?).into())
    }

    /// Time until the later reading `after`, ns. `None` if neither stolen time nor SMIs of the CPU are counted.
    pub fn external_ns(&self, after: &Self, cpu: u32) -> Option<u64> {
        self.stolen_until(after, cpu).or(self.smis_until(after, cpu))?;
        u64::try_from(after.read_at.saturating_duration_since(self.read_at).as_nanos()).ok()
    }

    /// Time that the host reports as stolen until the later reading `after`, ns. `None` if the host reports none, or the
    /// CPU was offline at a reading.
    pub fn stolen_until(&self, after: &Self, cpu: u32) -> Option<u64> {
        let steal_in = |counts: &Self| {
            let steal = counts.steal.per_cpu.iter().find(|steal| steal.cpu == cpu);
            steal.map(|steal| steal.steal_ticks)
        };
        // Before the first stolen tick it is not known that the host reports them: then there were none.
        let before_ticks = steal_in(self)?.unwrap_or(0);
        let ticks = steal_in(after)??.saturating_sub(before_ticks);
        Some(ticks.saturating_mul(after.steal.tick_ns?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::CpuSteal;

    #[test]
    fn the_first_stolen_tick_counts_and_none_is_absent() {
        let counts = |steal_ticks: Option<u64>| {
            let per_cpu = vec![CpuSteal { cpu: 1, steal_ticks, ..CpuSteal::default() }];
            let steal = StealFacts { tick_ns: Some(10), per_cpu, unreported: None };
            let (read_at, smis) = (Instant::now(), Vec::new());
            ExternalCounts {
                read_at,
                steal,
                smis,
                lost: None,
                switches_to_init: 0,
                other_senders: OtherSenders::default(),
            }
        };
        assert_eq!(counts(None).stolen_until(&counts(None), 1), None);
        assert_eq!(counts(None).stolen_until(&counts(Some(3)), 1), Some(30));
        assert_eq!(counts(Some(2)).stolen_until(&counts(Some(3)), 1), Some(10));
        assert_eq!(counts(Some(2)).stolen_until(&counts(Some(3)), 0), None);
    }
}
