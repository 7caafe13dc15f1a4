//! The structures in the BPF programs' maps, as Rust types, and what user space computes from and for them.
//!
//! The build script generates the structures from the type information of the compiled programs, with a check of each
//! field's offset at compile time. The headers in `bpf/` document the fields. [`attribution::key`] defines the keys of
//! contexts; `constants.rs` defines the other numbers.

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

/// Parameters with which a CPU's programs learn their overhead: they time their exit programs, and compute the overhead
/// inside spans from that time. Units as in `cpu_state` (bpf/shared.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learning {
    /// The part of a probe pair's overhead inside a span that does not depend on the time of its exit program, in
    /// 2^-[`OVERHEAD_UNIT_SHIFT`] ns.
    pub inside_fixed: u32,
    /// The other part of the overhead inside a span, divided by the time of the exit program, in 2^-[`RATIO_SHIFT`].
    /// At 0 the programs learn nothing.
    pub inside_ratio: u32,
    /// A pair's overhead before and after a span, divided by the overhead inside, in 2^-[`RATIO_SHIFT`].
    pub outside_ratio: u32,
    /// The programs ignore a larger overhead, ns.
    pub overhead_max_ns: u32,
}

/// The parts of the maps `rows` and `nested_times` that belong to one CPU. By default the CPU has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuRows {
    /// The CPU's row 1 is at `base` + 1 of the map `rows`.
    pub base: u32,
    /// Number of rows.
    pub rows: u32,
    /// The CPU's first entry of the map `nested_times` is at `nested_base` + 1.
    pub nested_base: u32,
    /// Number of entries of `nested_times`: contexts whose spans may have other spans inside.
    pub nested: u32,
}

/// The probe overheads to subtract on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOverheads {
    /// Overhead of a pair inside a span until the programs have learned it, ns; 2,097,151 at most.
    pub in_span_ns: u64,
    pub learning: Learning,
    /// The counts that a pair adds to each event of the pass inside its own span. Unused events are 0.
    pub events: [u64; EVENTS_MAX],
}

impl CpuOverheads {
    /// The state of a CPU with these rows before the programs count: no counts, a closed window.
    #[must_use]
    pub fn initial_state(&self, rows: CpuRows) -> CpuState {
        let mut state = CpuState::new_zeroed();
        (state.row_base, state.rows_max) = (rows.base, rows.rows);
        (state.nested_base, state.nested_max) = (rows.nested_base, rows.nested);
        (state.inside_fixed, state.inside_ratio) =
            (self.learning.inside_fixed, self.learning.inside_ratio);
        (state.outside_ratio, state.overhead_max_ns) =
            (self.learning.outside_ratio, self.learning.overhead_max_ns);
        let overhead_max = u64::from(u32::MAX >> ROW_BITS);
        let overhead = self.in_span_ns.saturating_mul(1 << OVERHEAD_UNIT_SHIFT).min(overhead_max);
        state.key_words.fill((overhead as u32) << ROW_BITS);
        state
    }
}

impl CpuState {
    /// The overhead of a pair inside spans of `key` that the programs subtract now, ns, rounded down. Keys that are no
    /// index share the word of `KEY_NONE`.
    #[must_use]
    pub fn learned_ns(&self, key: u32) -> u32 {
        let index = if key < KEYS_DENSE { key } else { KEY_NONE };
        self.key_words[index as usize] >> (ROW_BITS + OVERHEAD_UNIT_SHIFT)
    }

    /// How long the window was open, ns; 0 while it is open.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.disarmed_ns.saturating_sub(self.armed_ns)
    }

    /// Copies the learned overheads of `other` into a state whose programs have not counted yet. Rows are not copied.
    pub fn learn_from(&mut self, other: &CpuState) {
        for (word, learned) in self.key_words.iter_mut().zip(&other.key_words) {
            *word = learned >> ROW_BITS << ROW_BITS;
        }
    }
}

impl Row {
    /// Sum of the spans' inclusive times, ns, plus the missing self time of spans around others. At least the sum of their
    /// self times.
    #[must_use]
    pub fn inclusive_sum_ns(&self) -> u64 {
        self.sum.saturating_add(self.nested_extra)
    }

    /// The sums of the self events in each batch of a window of `length_ns`. `events`: number of events of the pass.
    /// In a pass with events, `slots` holds these sums instead of a histogram (bpf/shared.h).
    #[must_use]
    pub fn event_batches(&self, events: usize, length_ns: u64) -> Batches<JointBatch> {
        let sums = self.slots.chunks_exact(EVENTS_MAX);
        let cells = self.batches.iter().zip(sums).map(|(batch, sums)| JointBatch {
            count: batch.count,
            // The programs subtract the overhead of probes inside, so a sum may be negative.
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
