//! The values in the BPF programs' maps. The build script generates the structures from the type
//! information of the compiled objects, and checks the offset of each field at compile time.
//! [`attribution::key`] defines the keys of contexts; `constants.rs` defines the other numbers.

use stats::{Batches, JointBatch};
use zerocopy::FromZeros;

pub use attribution::key::{
    KEY_BENCH, KEY_FAULT_KERNEL, KEY_FAULT_USER, KEY_IRQ, KEY_IRQ_THREAD, KEY_NAPI, KEY_NMI,
    KEY_NONE, KEY_SECOND, KEY_SOFTIRQ, KEY_VECTOR, KEYS_DENSE,
};

pub use super::constants::*;

mod generated {
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}

pub use generated::*;

const _: () = assert!(HISTOGRAM_SLOTS == stats::histogram::SLOTS);

/// How a CPU's programs learn from their own time what they add, in the units of
/// `cpu_state` in bpf/shared.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learning {
    /// Added inside a span by a probe pair, whatever time its exit program takes, in
    /// 2^-[`OVERHEAD_UNIT_SHIFT`] ns.
    pub inside_fixed: u32,
    /// Added inside a span by a probe pair, as a share of its exit program's time, in
    /// 2^-[`RATIO_SHIFT`]; at 0 the programs learn nothing.
    pub inside_ratio: u32,
    /// Overhead that a pair adds around a span, divided by the overhead inside,
    /// in 2^-[`RATIO_SHIFT`].
    pub outside_ratio: u32,
    /// Limit of the learned overhead, ns.
    pub overhead_max_ns: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuRows {
    /// Row 1 is at `base` + 1 of the map `rows`.
    pub base: u32,
    pub rows: u32,
    /// Its first entry of the map `nested_times` is at `nested_base` + 1.
    pub nested_base: u32,
    /// Its entries there: contexts that can have spans with others inside.
    pub nested: u32,
}

/// The probe overheads to subtract on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOverheads {
    /// Overhead of a pair inside a span until the programs have learned it, ns; 2,097,151 at most.
    pub in_span_ns: u64,
    pub learning: Learning,
    /// Overhead of a pair inside its own span, for each event of the pass.
    pub events: [u64; EVENTS_MAX],
}

impl CpuOverheads {
    /// The value of `cpu_states` for a CPU with these rows that has counted nothing yet.
    #[must_use]
    pub fn initial_state(&self, rows: CpuRows) -> CpuState {
        let mut state = CpuState::new_zeroed();
        (state.row_base, state.rows_max) = (rows.base, rows.rows);
        (state.nested_base, state.nested_max) = (rows.nested_base, rows.nested);
        (state.inside_fixed, state.inside_ratio) =
            (self.learning.inside_fixed, self.learning.inside_ratio);
        (state.outside_ratio, state.overhead_max_ns) =
            (self.learning.outside_ratio, self.learning.overhead_max_ns);
        let units_max = u64::from(u32::MAX >> ROW_BITS);
        let units = self.in_span_ns.saturating_mul(1 << OVERHEAD_UNIT_SHIFT).min(units_max);
        state.key_words.fill((units as u32) << ROW_BITS);
        state
    }
}

impl CpuState {
    /// The learned overhead of a pair inside spans of `key`, ns.
    #[must_use]
    pub fn learned_ns(&self, key: u32) -> u32 {
        let index = if key < KEYS_DENSE { key } else { KEY_NONE };
        self.key_words[index as usize] >> (ROW_BITS + OVERHEAD_UNIT_SHIFT)
    }

    /// How long the window was open, ns.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.disarmed_ns.saturating_sub(self.armed_ns)
    }

    /// Takes over what the programs have learned into a state that has counted nothing yet.
    pub fn learn_from(&mut self, other: &CpuState) {
        for (word, learned) in self.key_words.iter_mut().zip(&other.key_words) {
            *word = learned >> ROW_BITS << ROW_BITS;
        }
    }
}

impl Row {
    /// The sums of the self events by batch, for a window of `length_ns` in a pass
    /// with `events` events.
    #[must_use]
    pub fn event_batches(&self, events: usize, length_ns: u64) -> Batches<JointBatch> {
        let sums = self.slots.chunks_exact(EVENTS_MAX);
        let cells = self.batches.iter().zip(sums).map(|(batch, sums)| JointBatch {
            count: batch.count,
            // The subtraction for probes inside may exceed the count, so a sum may be negative.
            sums: sums.iter().take(events).map(|sum| *sum as i64).collect(),
        });
        let mut batches = Batches { shift: self.batch_shift, cells: cells.collect() };
        batches.cover(length_ns);
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overhead_of_a_key_fits_above_its_row() {
        let large = CpuOverheads { in_span_ns: u64::MAX, ..CpuOverheads::default() };
        let state = large.initial_state(CpuRows::default());
        assert_eq!(state.key_words[KEY_IRQ as usize], u32::MAX >> ROW_BITS << ROW_BITS);
        assert_eq!(state.learned_ns(u32::MAX), 2_097_151);
        let overheads = CpuOverheads { in_span_ns: 40, ..CpuOverheads::default() };
        let mut state = overheads.initial_state(CpuRows::default());
        assert_eq!(state.learned_ns(KEY_SOFTIRQ), 40);
        state.key_words[KEY_SOFTIRQ as usize] |= 5;
        let mut after =
            CpuOverheads::default().initial_state(CpuRows { rows: 3, ..CpuRows::default() });
        after.learn_from(&state);
        assert_eq!((after.learned_ns(KEY_SOFTIRQ), after.rows_max), (40, 3));
        assert_eq!(after.key_words[KEY_SOFTIRQ as usize] & 5, 0, "the row is not taken over");
    }
}
