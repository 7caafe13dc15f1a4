//! Tables of two-bit counters, and the predictors that consist of them.

use super::model::{HistoryModel, TournamentModel};

/// Weakly not taken: an unknown branch is predicted not taken, and taken after it was taken once.
const START: u8 = 1;

/// Two-bit counters: a branch is predicted taken from 2 on.
#[derive(Clone, Debug)]
pub(super) struct Counters(Box<[u8]>);

impl Counters {
    /// `entries` is a power of two.
    pub(super) fn new(entries: usize) -> Counters {
        Counters(vec![START; entries].into())
    }

    fn slot(&self, index: u64) -> usize {
        index as usize & (self.0.len() - 1)
    }

    /// Whether the next other outcome changes the prediction.
    #[inline]
    pub(super) fn is_weak(&self, address: u64) -> bool {
        matches!(self.0[self.slot(address)], 1 | 2)
    }

    #[inline]
    pub(super) fn predicts(&self, index: u64) -> bool {
        self.0[self.slot(index)] >= 2
    }

    #[inline]
    pub(super) fn learn(&mut self, index: u64, taken: bool) {
        let slot = self.slot(index);
        let counter = &mut self.0[slot];
        *counter = if taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
    }

    /// Trains the counter. Returns the prediction before that.
    #[inline]
    pub(super) fn step(&mut self, index: u64, taken: bool) -> bool {
        let predicted = self.predicts(index);
        self.learn(index, taken);
        predicted
    }
}

/// Counters by address and history.
#[derive(Clone, Debug)]
pub(super) struct Gshare {
    counters: Counters,
    history: u64,
    mask: u64,
}

impl Gshare {
    pub(super) fn new(model: &HistoryModel) -> Gshare {
        let mask = (1 << model.history_bits) - 1;
        Gshare { counters: Counters::new(model.entries as usize), history: 0, mask }
    }

    pub(super) fn step(&mut self, address: u64, taken: bool) -> bool {
        let predicted = self.counters.step(address ^ self.history, taken);
        self.history = (self.history << 1 | u64::from(taken)) & self.mask;
        predicted
    }
}

/// A tournament of the local history of each branch and the global history.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    histories: Box<[u64]>,
    local: Counters,
    local_mask: u64,
    global: Counters,
    /// From 2 on, the global history is the better predictor.
    chooser: Counters,
    history: u64,
    global_mask: u64,
}

impl Tournament {
    pub(super) fn new(model: &TournamentModel) -> Tournament {
        Tournament {
            histories: vec![0; model.local_entries as usize].into(),
            local: Counters::new(1 << model.local_history_bits),
            local_mask: (1 << model.local_history_bits) - 1,
            global: Counters::new(1 << model.global_history_bits),
            chooser: Counters::new(1 << model.global_history_bits),
            history: 0,
            global_mask: (1 << model.global_history_bits) - 1,
        }
    }

    pub(super) fn step(&mut self, address: u64, taken: bool) -> bool {
        let entry = address as usize & (self.histories.len() - 1);
        let local = self.local.step(self.histories[entry], taken);
        let global = self.global.step(self.history, taken);
        let by_all = self.chooser.predicts(self.history);
        if local != global {
            self.chooser.learn(self.history, global == taken);
        }
        self.histories[entry] = (self.histories[entry] << 1 | u64::from(taken)) & self.local_mask;
        self.history = (self.history << 1 | u64::from(taken)) & self.global_mask;
        if by_all { global } else { local }
    }
}
