//! What others count: the kernel, the host, the processor.

use crate::marks::MarkProbes;
use crate::bpf::BpfError;
use crate::host::{Root, StealFacts, smi_count, steal_facts};

/// What others have counted until an edge of a window.
pub struct Seen {
    /// Whether probes were there.
    pub watched: bool,
    steal: StealFacts,
    /// CPU by CPU, where it is known.
    smis: Vec<(u32, u32)>,
    /// Marks for which there was no room.
    pub lost: u64,
    /// Switches to tasks of process 1.
    pub to_first_process: u64,
}

impl Seen {
    /// All of it, now.
    ///
    /// # Errors
    /// When the probes' own counts can't be read.
    pub fn now(root: &Root, cpus: &[u32], probes: Option<&MarkProbes>) -> Result<Seen, BpfError> {
        let smis = cpus.iter().filter_map(|cpu| Some((*cpu, smi_count(root, *cpu).ok()?)));
        Ok(Seen {
            watched: probes.is_some(),
            steal: steal_facts(root),
            smis: smis.collect(),
            lost: probes.map(MarkProbes::lost).transpose()?.unwrap_or(0),
            to_first_process: probes.map_or(0, |p| p.with_marks(|marks| marks.to_first_process)),
        })
    }

    /// System management interrupts until `after`; absent where they are not counted. The register has 32
    /// bits.
    pub fn smis_until(&self, after: &Seen, cpu: u32) -> Option<u64> {
        let of = |seen: &Seen| Some(seen.smis.iter().find(|(on, _)| *on == cpu)?.1);
        Some(of(after)?.wrapping_sub(of(self)?).into())
    }

    /// What the host says it took until `after`, ns; absent when it does not say.
    pub fn stolen_until(&self, after: &Seen, cpu: u32) -> Option<u64> {
        let ticks = |seen: &Seen| {
            let of_cpu = seen.steal.per_cpu.iter().find(|one| one.cpu == cpu);
            of_cpu.map(|one| one.steal_ticks)
        };
        Some(ticks(after)?.saturating_sub(ticks(self)?).saturating_mul(after.steal.tick_ns?))
    }
}
