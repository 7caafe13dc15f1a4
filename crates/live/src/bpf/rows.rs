//! The rows of each measured CPU: their number, and their position in the maps. Only measured CPUs
//! have rows, and all objects that share the maps use the same rows.

use std::collections::BTreeMap;

use super::layout::{CpuRows, NestedTimes, ROW_BITS, Row};

/// Most rows of a CPU. The programs have [`ROW_BITS`] bits for a row's number, and 0 means no row.
pub const ROWS_MAX: u32 = (1 << ROW_BITS) - 1;

/// Rows of a CPU where memory is no concern: on a small machine a CPU may get every IRQ line.
const ROWS_AMPLE: u32 = 96;
/// Each CPU has [`ROWS_AMPLE`] rows if the rows of all CPUs together take less than this, bytes.
const AMPLE_BYTES: u64 = 32 << 20;
/// Rows beyond the contexts that a CPU is known to have: lines that are new, or move to it.
const ROWS_SPARE: u32 = 8;
/// Entries of `nested_times` beyond the contexts whose spans are known to have others inside.
const NESTED_SPARE: u32 = 4;

/// The contexts that a CPU is known to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownContexts {
    pub all: u32,
    /// Contexts whose spans can have others inside: softirqs, and threads of IRQ lines.
    pub nesting: u32,
}

/// The rows of all measured CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowLayout {
    of_cpu: BTreeMap<u32, CpuRows>,
}

impl RowLayout {
    /// `rows` on each CPU, at most [`ROWS_MAX`]; any of them may have spans with others inside.
    #[must_use]
    pub fn same(cpus: &[u32], rows: u32) -> Self {
        Self::from_counts(cpus.iter().map(|cpu| (*cpu, rows, rows)))
    }

    /// Sizes the rows by the number of contexts that each CPU is known to have. With few CPUs, each
    /// gets ample rows. With many, each gets the rows that it needs and some spare ones.
    #[must_use]
    pub fn for_contexts(contexts: &BTreeMap<u32, KnownContexts>) -> Self {
        let share = AMPLE_BYTES / size_of::<Row>() as u64 / contexts.len().max(1) as u64;
        let ample = u32::try_from(share).unwrap_or(ROWS_AMPLE).min(ROWS_AMPLE);
        Self::from_counts(contexts.iter().map(|(cpu, known)| {
            let rows = known.all.saturating_add(ROWS_SPARE).max(ample);
            (*cpu, rows, known.nesting.saturating_add(NESTED_SPARE).min(ROWS_MAX))
        }))
    }

    /// Lays out the rows from tuples of CPU, rows, and entries of `nested_times`.
    fn from_counts(counts: impl Iterator<Item = (u32, u32, u32)>) -> Self {
        let (mut base, mut nested_base) = (0, 0);
        let of_cpu = counts.map(|(cpu, rows, nested)| {
            let here = CpuRows { base, rows: rows.min(ROWS_MAX), nested_base, nested };
            base += here.rows;
            nested_base += here.nested;
            (cpu, here)
        });
        RowLayout { of_cpu: of_cpu.collect() }
    }

    /// The rows of a CPU; a CPU that is not measured has none.
    #[must_use]
    pub fn on(&self, cpu: u32) -> CpuRows {
        self.of_cpu.get(&cpu).copied().unwrap_or_default()
    }

    /// The measured CPUs, each with its rows.
    pub fn cpus(&self) -> impl Iterator<Item = (u32, CpuRows)> + '_ {
        self.of_cpu.iter().map(|(cpu, rows)| (*cpu, *rows))
    }

    /// Entries of the map `rows`.
    pub(super) fn entries(&self) -> u32 {
        1 + self.of_cpu.values().map(|range| range.rows).sum::<u32>()
    }

    /// Entries of the map `nested_times`.
    pub(super) fn nested_entries(&self) -> u32 {
        1 + self.of_cpu.values().map(|range| range.nested).sum::<u32>()
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
        RowLayout::for_contexts(&(0..cpus).map(|cpu| (cpu, known(contexts))).collect())
    }

    fn known(all: u32) -> KnownContexts {
        KnownContexts { all, nesting: 10 }
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
        let layout = RowLayout::for_contexts(&contexts);
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
