//! The values in the BPF programs' maps. The build script generates the structures from the type
//! information of the compiled objects, and checks the offset of each field at compile time. The keys
//! of contexts are those of [`attribution::key`]; the other numbers are in `constants.rs`.

use zerocopy::FromZeros;

pub use attribution::key::{
    KEY_BENCH, KEY_FAULT_KERNEL, KEY_FAULT_USER, KEY_IRQ, KEY_NAPI, KEY_NMI, KEY_NONE, KEY_SECOND,
    KEY_SOFTIRQ, KEY_VECTOR, KEYS_DENSE,
};

pub use super::constants::*;

mod generated {
    #![allow(missing_docs)] // the headers in bpf/ document the fields

    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}

pub use generated::*;

const _: () = assert!(HISTOGRAM_SLOTS == stats::histogram::SLOTS);

/// Maximum number of rows of a CPU, including the unused row 0.
pub const SLOTS_MAX: u32 = 1 << ROW_BITS;

/// The value of `cpu_states` for a CPU that has counted nothing yet: `overhead_ns` says for a key what a
/// probe pair adds inside its spans, ns; at most 2,097,151 are subtracted.
#[must_use]
pub fn initial_state(overhead_ns: impl Fn(u32) -> u64) -> CpuState {
    let mut state = CpuState::new_zeroed();
    let units_max = u64::from(u32::MAX >> ROW_BITS);
    let word_of = |key| {
        let units = overhead_ns(key).saturating_mul(1 << OVERHEAD_UNIT_SHIFT).min(units_max);
        (units as u32) << ROW_BITS
    };
    for (key, word) in (0..).zip(&mut state.key_words) {
        *word = word_of(key);
    }
    // All keys that are no index are those of IRQ lines.
    state.key_words[KEY_NONE as usize] = word_of(KEYS_DENSE);
    state
}

/// The value of `cpu_states` for a CPU that has counted nothing yet, but knows what a probe pair adds inside
/// spans as `learned` does.
#[must_use]
pub fn state_after(learned: &CpuState) -> CpuState {
    let mut state = CpuState::new_zeroed();
    for (word, learned) in state.key_words.iter_mut().zip(&learned.key_words) {
        *word = learned >> ROW_BITS << ROW_BITS;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overhead_of_a_key_fits_above_its_row() {
        let mut state = initial_state(|key| if key == KEY_IRQ { u64::MAX } else { 40 });
        let unit = 1 << (ROW_BITS + OVERHEAD_UNIT_SHIFT);
        assert_eq!(state.key_words[KEY_SOFTIRQ as usize], 40 * unit);
        assert_eq!(state.key_words[KEY_IRQ as usize], u32::MAX >> ROW_BITS << ROW_BITS);
        state.key_words[KEY_SOFTIRQ as usize] |= 5;
        state.unmatched_exits = 7;
        let after = state_after(&state);
        assert_eq!(after.key_words[KEY_SOFTIRQ as usize], 40 * unit);
        assert_eq!(after.unmatched_exits, 0);
    }
}
