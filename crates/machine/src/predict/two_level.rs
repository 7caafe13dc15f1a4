//! A history for each branch, and counters by it that are the branch's own.

use super::model::TwoLevelModel;

/// No branch is at this address: it would end beyond the last address.
const NOBODY: u64 = u64::MAX;
/// All counters weakly taken, since the branch was taken. An estimate: no manual says how P6's start.
const START: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// One branch.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    /// The last directions, the most recent lowest.
    history: u64,
    /// Two bits for each history.
    counters: u64,
}

/// Branches with their histories, the most recently used first in each set.
#[derive(Clone, Debug)]
pub(super) struct TwoLevel {
    entries: Box<[Entry]>,
    associativity: usize,
    set_mask: u64,
    history_mask: u64,
}

impl TwoLevel {
    pub(super) fn new(model: &TwoLevelModel) -> TwoLevel {
        let nobody = Entry { address: NOBODY, history: 0, counters: START };
        TwoLevel {
            entries: vec![nobody; model.entries as usize].into(),
            associativity: model.ways as usize,
            set_mask: u64::from(model.entries / model.ways) - 1,
            history_mask: (1 << model.history_bits) - 1,
        }
    }

    /// Trains the predictor. Returns the prediction before that; none for a branch without a place, which
    /// gets one if it was taken.
    #[inline]
    pub(super) fn step(&mut self, address: u64, taken: bool) -> Option<bool> {
        let first = (address & self.set_mask) as usize * self.associativity;
        let set = &mut self.entries[first..first + self.associativity];
        let Some(at) = set.iter().position(|entry| entry.address == address) else {
            if taken {
                set.rotate_right(1);
                set[0] = Entry { address, history: 1 & self.history_mask, counters: START };
            }
            return None;
        };
        set[..=at].rotate_right(1);
        let entry = &mut set[0];
        let shift = 2 * entry.history;
        let counter = entry.counters >> shift & 3;
        let learnt = if taken { (counter + 1).min(3) } else { counter.saturating_sub(1) };
        entry.counters = entry.counters & !(3 << shift) | learnt << shift;
        entry.history = (entry.history << 1 | u64::from(taken)) & self.history_mask;
        Some(counter >= 2)
    }
}
