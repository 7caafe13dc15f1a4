//! Tables of two-bit counters, and the direction predictors that consist only of them. [`Direction`](super::Direction)
//! calls `step` for each executed conditional branch, in program order.

use super::model::{HistoryModel, TournamentModel};

/// Initial counter, weakly not taken: an unknown branch is predicted not taken, and after it was taken once, taken.
const START: u8 = 1;

/// A table of two-bit counters, 0 to 3. From 2 on, a branch is predicted taken.
#[derive(Clone, Debug)]
pub(super) struct Counters(Box<[u8]>);

impl Counters {
    /// `entries` must be a power of two.
    pub(super) fn new(entries: usize) -> Counters {
        Counters(vec![START; entries].into())
    }

    /// Only the low bits of an index select a counter.
    fn slot(&self, index: u64) -> usize {
        index as usize & (self.0.len() - 1)
    }

    /// Whether a single outcome against the prediction would change it.
    #[inline]
    pub(super) fn is_weak(&self, index: u64) -> bool {
        matches!(self.0[self.slot(index)], 1 | 2)
    }

    /// Whether the counter predicts taken.
    #[inline]
    pub(super) fn predicts_taken(&self, index: u64) -> bool {
        self.0[self.slot(index)] >= 2
    }

    /// Trains the counter with an outcome.
    #[inline]
    pub(super) fn learn(&mut self, index: u64, taken: bool) {
        let slot = self.slot(index);
        let counter = &mut self.0[slot];
        *counter = if taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
    }

    /// Trains the counter with an outcome. Returns its earlier prediction: whether the branch is taken.
    #[inline]
    pub(super) fn step(&mut self, index: u64, taken: bool) -> bool {
        let predicted = self.predicts_taken(index);
        self.learn(index, taken);
        predicted
    }
}

/// Counters by address XOR global history.
#[derive(Clone, Debug)]
pub(super) struct Gshare {
    counters: Counters,
    /// The last outcomes of all branches, the most recent in the lowest bit.
    history: u64,
    history_mask: u64,
}

impl Gshare {
    pub(super) fn new(model: &HistoryModel) -> Gshare {
        let history_mask = (1 << model.history_bits) - 1;
        Gshare { counters: Counters::new(model.entries as usize), history: 0, history_mask }
    }

    /// Trains the predictor. Returns its earlier prediction: whether the branch is taken.
    pub(super) fn step(&mut self, address: u64, taken: bool) -> bool {
        let predicted = self.counters.step(address ^ self.history, taken);
        self.history = (self.history << 1 | u64::from(taken)) & self.history_mask;
        predicted
    }
}

/// A tournament of two predictors: by the local history of each branch, and by the global history.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    /// Local histories, by the low bits of a branch's address.
    local_histories: Box<[u64]>,
    local: Counters,
    local_mask: u64,
    global: Counters,
    /// Chooses the global predictor where its counter is 2 or more.
    chooser: Counters,
    global_history: u64,
    global_mask: u64,
}

impl Tournament {
    pub(super) fn new(model: &TournamentModel) -> Tournament {
        Tournament {
            local_histories: vec![0; model.local_entries as usize].into(),
            local: Counters::new(1 << model.local_history_bits),
            local_mask: (1 << model.local_history_bits) - 1,
            global: Counters::new(1 << model.global_history_bits),
            chooser: Counters::new(1 << model.global_history_bits),
            global_history: 0,
            global_mask: (1 << model.global_history_bits) - 1,
        }
    }

    /// Trains the predictor. Returns its earlier prediction: whether the branch is taken.
    pub(super) fn step(&mut self, address: u64, taken: bool) -> bool {
        let entry = address as usize & (self.local_histories.len() - 1);
        let local_history = self.local_histories[entry];
        let local = self.local.step(local_history, taken);
        let global = self.global.step(self.global_history, taken);
        let chooses_global = self.chooser.predicts_taken(self.global_history);
        // The chooser learns only where the two predictors differ.
        if local != global {
            self.chooser.learn(self.global_history, global == taken);
        }
        self.local_histories[entry] = (local_history << 1 | u64::from(taken)) & self.local_mask;
        self.global_history = (self.global_history << 1 | u64::from(taken)) & self.global_mask;
        if chooses_global { global } else { local }
    }
}
