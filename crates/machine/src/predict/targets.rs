//! Where branches lead: the branch target buffer, the return stack, and targets by history.

use super::model::{HistoryModel, TableModel};

/// No branch is at this address: it would end beyond the last one.
const NOBODY: u64 = u64::MAX;

/// Targets of taken branches by their addresses, the last used first in each set.
#[derive(Clone, Debug)]
pub(super) struct Btb {
    /// Branch and target.
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

    /// The target that is known, before `target` takes its place.
    #[inline]
    pub(super) fn step(&mut self, address: u64, target: u64) -> Option<u64> {
        let first = (address & self.set_mask) as usize * self.associativity;
        let ways = &mut self.ways[first..first + self.associativity];
        if ways[0].0 == address {
            return Some(std::mem::replace(&mut ways[0].1, target));
        }
        // Each moves on by a place, as far as the one that was known, or the last.
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

/// Return addresses; a call beyond its depth takes the place of the oldest.
#[derive(Clone, Debug)]
pub(super) struct ReturnStack {
    addresses: Box<[u64]>,
    /// Where the next goes.
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

/// Targets of indirect branches by address and by the targets of indirect branches before.
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

    /// What was predicted, before `target` takes its place.
    #[inline]
    pub(super) fn step(&mut self, address: u64, target: u64) -> u64 {
        // The history in the upper bits of the index, too, where addresses of a program are alike.
        let index = address ^ self.history ^ (self.history << 5);
        let entry = &mut self.targets[index as usize & (self.targets.len() - 1)];
        let predicted = std::mem::replace(entry, target);
        self.history = ((self.history << 3) ^ target ^ (target >> 5)) & self.mask;
        predicted
    }
}
