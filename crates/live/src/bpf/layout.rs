//! The values in the BPF programs' maps. The build script generates the structures from the type
//! information of the compiled objects, and checks the offset of each field at compile time. The keys
//! of contexts are those of [`attribution::key`]; the other numbers are in `constants.rs`.

use std::collections::BTreeMap;

use zerocopy::FromZeros;

pub use attribution::key::{
    KEY_BENCH, KEY_FAULT_KERNEL, KEY_FAULT_USER, KEY_IRQ, KEY_IRQ_THREAD, KEY_NAPI, KEY_NMI,
    KEY_NONE, KEY_SECOND, KEY_SOFTIRQ, KEY_VECTOR, KEYS_DENSE,
};

pub use super::constants::*;
use super::rows::CpuRows;

mod generated {
    #![allow(missing_docs)] // the headers in bpf/ document the fields

    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}

pub use generated::*;

const _: () = assert!(HISTOGRAM_SLOTS == stats::histogram::SLOTS);

/// What a probe pair adds inside its own span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeOverhead {
    /// Whether it was measured where the spans are, and not in a hot loop.
    pub in_situ: bool,
    /// In every span, ns; at most 16,383 are subtracted.
    pub base_ns: u64,
    /// In addition where the span's own work has cooled the code and data of the exit program, ns; at
    /// most 8,188, and at most an eighth of the span, are subtracted.
    pub cold_exit_ns: u64,
}

impl ProbeOverhead {
    /// What a pair takes in and around a span with this much self time, ns: the outer part equals the inner
    /// one (`release_span` in span_stack.h).
    #[must_use]
    pub fn pair_ns(self, self_ns: u64) -> u64 {
        2 * (self.base_ns + self.cold_exit_ns.min(self_ns >> COLD_EXIT_SHIFT))
    }

    /// The bits of `key_words` above the row.
    fn key_word(self) -> u32 {
        let fits = |value: u64, bits: u32| value.min((1 << bits) - 1) as u32;
        let cold_exit_bits = u32::BITS - ROW_BITS - OVERHEAD_BITS;
        let cold_exit = fits(self.cold_exit_ns >> COLD_EXIT_UNIT_SHIFT, cold_exit_bits);
        (cold_exit << OVERHEAD_BITS | fits(self.base_ns, OVERHEAD_BITS)) << ROW_BITS
    }
}

/// What a probe pair adds inside its own span, by context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeOverheads {
    /// In spans of these keys.
    pub by_key: BTreeMap<u32, ProbeOverhead>,
    /// In spans of other vectors.
    pub vector: ProbeOverhead,
    /// In spans of other softirqs.
    pub softirq: ProbeOverhead,
    /// In spans of other device IRQs.
    pub irq: ProbeOverhead,
}

/// What is subtracted on one CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuOverheads<'a> {
    /// From times.
    pub times: &'a ProbeOverheads,
    /// What a pair adds to each event of the pass, inside its own span.
    pub events: [u64; EVENTS_MAX],
}

impl ProbeOverheads {
    /// The same overhead in all contexts, ns.
    #[must_use]
    pub fn same(ns: u64) -> Self {
        let same = ProbeOverhead { base_ns: ns, ..ProbeOverhead::default() };
        ProbeOverheads { vector: same, softirq: same, irq: same, by_key: BTreeMap::new() }
    }

    /// The overhead in spans of a key.
    #[must_use]
    pub fn of(&self, key: u32) -> ProbeOverhead {
        let of_kind = match key {
            key if key >= KEY_IRQ => self.irq,
            key if key >= KEY_SOFTIRQ => self.softirq,
            _ => self.vector,
        };
        self.by_key.get(&key).copied().unwrap_or(of_kind)
    }

    /// The value of `cpu_states` for a CPU with these rows that has counted nothing yet.
    #[must_use]
    pub fn initial_state(&self, rows: CpuRows) -> CpuState {
        let mut state = CpuState::new_zeroed();
        (state.row_base, state.rows_max) = (rows.base, rows.rows);
        (state.nested_base, state.nested_max) = (rows.nested_base, rows.nested);
        for (key, word) in (0..).zip(&mut state.key_words) {
            *word = self.of(key).key_word();
        }
        // All keys that are no index are those of IRQ lines.
        state.key_words[KEY_NONE as usize] = self.irq.key_word();
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_takes_as_much_around_a_span_as_in_it() {
        let overhead = ProbeOverhead { base_ns: 40, cold_exit_ns: 100, in_situ: true };
        // At most an eighth of the span is a cold exit's.
        assert_eq!(overhead.pair_ns(0), 80);
        assert_eq!(overhead.pair_ns(400), 2 * (40 + 50));
        assert_eq!(overhead.pair_ns(10_000), 2 * (40 + 100));
    }

    #[test]
    fn the_overhead_of_a_key_fits_above_its_row() {
        let mut overheads = ProbeOverheads::same(40);
        let large = ProbeOverhead { base_ns: 100_000, cold_exit_ns: 100_000, in_situ: true };
        overheads.by_key.insert(KEY_IRQ, large);
        let words = overheads.initial_state(CpuRows::default()).key_words;
        assert_eq!(words[KEY_SOFTIRQ as usize], 40 << ROW_BITS);
        assert_eq!(words[KEY_IRQ as usize], u32::MAX << ROW_BITS);
    }
}
