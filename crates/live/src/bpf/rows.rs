//! Sizes and lays out the maps `rows` and `nested_times` of the BPF programs: which part of them each measured CPU has.
//! A row holds the counts of one context on one CPU. Other CPUs have no rows.
//!
//! The bench of `handlers` makes the layout from the contexts that each CPU is known to have; the loader
//! (`bpf::object`) applies it. All objects that share maps use the same layout.

use std::collections::BTreeMap;

use super::layout::{CpuRows, NestedTimes, ROW_BITS, Row};

/// Largest number of rows of a CPU: a row's number has [`ROW_BITS`] bits, and 0 means no row.
pub const ROWS_MAX: u32 = (1 << ROW_BITS) - 1;

/// Rows of a CPU on a machine with few CPUs, where a CPU may get every IRQ line.
const ROWS_AMPLE: u32 = 96;
/// Memory for ample rows of all CPUs together. With many CPUs, each gets fewer than [`ROWS_AMPLE`].
const AMPLE_BYTES: u64 = 32 << 20;
/// Rows for further contexts of a CPU: IRQ lines that are new, or move to this CPU.
const ROWS_SPARE: u32 = 8;
/// Entries of `nested_times` for further contexts whose spans have other spans inside.
const NESTED_SPARE: u32 = 4;
/// Rows of a CPU for functions that timers, tasklets, work items and RCU call.
const ROWS_OF_FUNCTIONS: u32 = 80;

/// How many contexts a CPU is known to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownContexts {
    pub all: u32,
    /// Contexts whose spans can have other spans inside: softirqs, and threads of IRQ lines.
    pub nesting: u32,
    /// Threads of IRQ lines. `all` and `nesting` include them.
    pub irq_threads: u32,
}

/// Rows of a CPU for delays: of each softirq, and of the functions of work items and timers. Each thread of
/// an IRQ line has one, too.
const ROWS_OF_DELAYS: u32 = 10 + ROWS_OF_FUNCTIONS;

impl KnownContexts {
    /// Adds rows for delays.
    pub fn add_delays(&mut self) {
        self.all = self.all.saturating_add(ROWS_OF_DELAYS).saturating_add(self.irq_threads);
    }

    /// Adds rows for functions, whose number is not known in advance. An interrupt may be nested in any of them.
    pub fn add_functions(&mut self) {
        self.all = self.all.saturating_add(ROWS_OF_FUNCTIONS);
        self.nesting = ROWS_MAX;
    }
}

/// The rows of all measured CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowLayout {
    by_cpu: BTreeMap<u32, CpuRows>,
}

impl RowLayout {
    /// Gives each CPU `rows` rows, at most [`ROWS_MAX`]. Any row may have spans with other spans inside.
    #[must_use]
    pub fn same(cpus: &[u32], rows: u32) -> Self {
        Self::from_counts(cpus.iter().map(|cpu| (*cpu, rows, rows)))
    }

    /// Gives each CPU rows for the contexts that it is known to have, and some spare rows. On a machine with few CPUs,
    /// each CPU gets at least `ROWS_AMPLE` rows. No CPU gets more than `rows_max`.
    #[must_use]
    pub fn for_contexts(contexts: &BTreeMap<u32, KnownContexts>, rows_max: u32) -> Self {
        let share = AMPLE_BYTES / size_of::<Row>() as u64 / contexts.len().max(1) as u64;
        let ample = u32::try_from(share).unwrap_or(ROWS_AMPLE).min(ROWS_AMPLE);
        Self::from_counts(contexts.iter().map(|(cpu, known)| {
            let rows = known.all.saturating_add(ROWS_SPARE).max(ample);
            (*cpu, rows.min(rows_max), known.nesting.saturating_add(NESTED_SPARE).min(ROWS_MAX))
        }))
    }

    /// Lays out the rows from tuples of CPU, rows, and entries of `nested_times`.
    fn from_counts(counts: impl Iterator<Item = (u32, u32, u32)>) -> Self {
        let (mut base, mut nested_base) = (0, 0);
        let by_cpu = counts.map(|(cpu, rows, nested)| {
            let cpu_rows = CpuRows { base, rows: rows.min(ROWS_MAX), nested_base, nested };
            base += cpu_rows.rows;
            nested_base += cpu_rows.nested;
            (cpu, cpu_rows)
        });
        RowLayout { by_cpu: by_cpu.collect() }
    }

    /// The rows of a CPU; a CPU that is not measured has none.
    #[must_use]
    pub fn on(&self, cpu: u32) -> CpuRows {
        self.by_cpu.get(&cpu).copied().unwrap_or_default()
    }

    /// The measured CPUs, each with its rows.
    pub fn cpus(&self) -> impl Iterator<Item = (u32, CpuRows)> + '_ {
        self.by_cpu.iter().map(|(cpu, rows)| (*cpu, *rows))
    }

    /// Size of the map `rows`. Entry 0 is unused, because row 0 means no row.
    pub(super) fn entries(&self) -> u32 {
        1 + self.by_cpu.values().map(|range| range.rows).sum::<u32>()
    }

    /// Size of the map `nested_times`. Entry 0 is unused.
    pub(super) fn nested_entries(&self) -> u32 {
        1 + self.by_cpu.values().map(|range| range.nested).sum::<u32>()
    }

    /// Bytes of the rows and their histograms, all measured CPUs together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.entries()) * size_of::<Row>() as u64
            + u64::from(self.nested_entries()) * size_of::<NestedTimes>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The layout of a machine with `cpus` CPUs that have `contexts` contexts each.
    fn machine(cpus: u32, contexts: u32) -> RowLayout {
        let contexts = (0..cpus).map(|cpu| (cpu, known(contexts))).collect();
        RowLayout::for_contexts(&contexts, ROWS_MAX)
    }

    fn known(all: u32) -> KnownContexts {
        KnownContexts { all, nesting: 10, irq_threads: 0 }
    }

    #[test]
    fn a_small_machine_has_ample_rows_and_a_large_one_what_it_needs() {
        assert_eq!(machine(2, 40).on(1).rows, ROWS_AMPLE);
        assert_eq!(machine(512, 40).on(511).rows, 40 + ROWS_SPARE);
        assert_eq!(machine(512, 1_000).on(0).rows, ROWS_MAX);
        assert_eq!(machine(4, 40).on(4), CpuRows::default(), "not measured");
    }

    #[test]
    fn ranges_of_cpus_do_not_overlap_and_end_in_the_maps() {
        let contexts = BTreeMap::from(
            [(3, 30), (0, 200), (7, 30), (1_000, 99)].map(|(cpu, all)| (cpu, known(all))),
        );
        let layout = RowLayout::for_contexts(&contexts, ROWS_MAX);
        let (mut rows, mut nested) = (1, 1);
        for (_, cpu) in layout.cpus() {
            assert_eq!((cpu.base + 1, cpu.nested_base + 1), (rows, nested));
            rows += cpu.rows;
            nested += cpu.nested;
        }
        assert_eq!((layout.entries(), layout.nested_entries()), (rows, nested));
    }

    #[test]
    fn the_memory_of_a_large_machine_is_bounded() {
        // Softirqs, vectors and four lines with their calibration: 38.
        assert!(machine(512, 38).bytes() < 400 * MIB, "{}", machine(512, 38).bytes());
        assert!(machine(256, 38).bytes() < 200 * MIB);
        assert!(machine(64, 38).bytes() < 50 * MIB);
        // Even where every CPU needs all rows that it can have.
        assert!(machine(512, 1_000).bytes() < 1_000 * MIB);
    }
}
