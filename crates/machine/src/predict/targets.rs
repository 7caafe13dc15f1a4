//! Targets of branches: the branch target buffer, the return stack, and indirect targets by
//! history.

use super::model::{HistoryModel, TableModel};

/// No branch is at this address: it would end beyond the last address.
const NOBODY: u64 = u64::MAX;

/// The branch target buffer: targets of taken branches by address, the most recently used first in
/// each set.
#[derive(Clone, Debug)]
pub(super) struct Btb {
    /// Address and target of each branch.
    ways: Box<[(u64, u64)]>,
    associativity: usize,
    set_mask: u64,
}

impl Btb {
    pub(super) fn new(model: &TableModel) -> Btb {
        Btb {
            ways: vec![(NOBODY, 0); model.entries as usize].into(),
            associativity: model.ways as usize,
            set_mask: u64::from(model.entries / model.ways) - 1,
        }
    }

    /// Replaces the target of a branch by `target`. Returns the one that was known.
    #[inline]
    pub(super) fn step(&mut self, address: u64, target: u64) -> Option<u64> {
        let first = (address & self.set_mask) as usize * self.associativity;
        let ways = &mut self.ways[first..first + self.associativity];
        if ways[0].0 == address {
            return Some(std::mem::replace(&mut ways[0].1, target));
        }
        // Each entry moves back by one, up to the known one or the last.
        let mut moves = (address, target);
        for way in ways {
            std::mem::swap(way, &mut moves);
            if moves.0 == address {
                return Some(moves.1);
            }
        }
        None
    }
}

/// The return stack; a call beyond its depth replaces the oldest entry.
#[derive(Clone, Debug)]
pub(super) struct ReturnStack {
    addresses: Box<[u64]>,
    /// The index of the next entry.
    top: usize,
    depth: usize,
}

impl ReturnStack {
    pub(super) fn new(entries: u32) -> ReturnStack {
        ReturnStack { addresses: vec![0; entries as usize].into(), top: 0, depth: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, address: u64) {
        self.addresses[self.top] = address;
        self.top = if self.top + 1 == self.addresses.len() { 0 } else { self.top + 1 };
        self.depth = (self.depth + 1).min(self.addresses.len());
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u64> {
        self.depth = self.depth.checked_sub(1)?;
        self.top = self.top.checked_sub(1).unwrap_or(self.addresses.len() - 1);
        Some(self.addresses[self.top])
    }
}

/// Targets of indirect branches by address and by the history of indirect targets.
#[derive(Clone, Debug)]
pub(super) struct Indirect {
    targets: Box<[u64]>,
    history: u64,
    mask: u64,
}

impl Indirect {
    pub(super) fn new(model: &HistoryModel) -> Indirect {
        let mask = (1 << model.history_bits) - 1;
        Indirect { targets: vec![NOBODY; model.entries as usize].into(), history: 0, mask }
    }

    /// Replaces the predicted target by `target`. Returns the prediction before that.
    #[inline]
    pub(super) fn step(&mut self, address: u64, target: u64) -> u64 {
        // The history is in the upper bits of the index, too, where addresses of a program differ
        // little.
        let index = address ^ self.history ^ (self.history << 5);
        let entry = &mut self.targets[index as usize & (self.targets.len() - 1)];
        let predicted = std::mem::replace(entry, target);
        self.history = ((self.history << 3) ^ target ^ (target >> 5)) & self.mask;
        predicted
    }
}
