//! Targets of branches: the branch target buffer, the return stack, and indirect targets by
//! history.

use super::model::{HistoryModel, TableModel};

/// No branch is at this address: it would end beyond the last address.
const NOBODY: u64 = u64::MAX;

/// Lines of the code that share a place in the BTB, if it is kept by lines.
const LINE_SHIFT: u32 = 6;

/// A branch whose target is known.
#[derive(Clone, Copy, Debug)]
struct KnownBranch {
    address: u64,
    target: u64,
}

/// A place of the BTB: one or two branches of a line, the most recently used first.
#[derive(Clone, Copy, Debug)]
struct Way([KnownBranch; 2]);

const NO_WAY: Way = Way([KnownBranch { address: NOBODY, target: 0 }; 2]);

impl Way {
    #[inline]
    fn has(&self, address: u64) -> bool {
        self.0.iter().any(|branch| branch.address == address)
    }

    /// Whether it has one branch of the line of an address, and room for another.
    #[inline]
    fn has_room(&self, address: u64) -> bool {
        let [first, second] = self.0;
        second.address == NOBODY && first.address >> LINE_SHIFT == address >> LINE_SHIFT
    }

    /// Replaces the target of a branch of the line. Returns the one that was known.
    #[inline]
    fn replace(&mut self, address: u64, target: u64) -> Option<u64> {
        let [first, second] = &mut self.0;
        if first.address == address {
            return Some(std::mem::replace(&mut first.target, target));
        }
        let known = (second.address == address).then_some(second.target);
        (*first, *second) = (KnownBranch { address, target }, *first);
        known
    }
}

/// The branch target buffer: targets of taken branches by address, the most recently used first in
/// each set.
#[derive(Clone, Debug)]
pub(super) struct Btb {
    ways: Box<[Way]>,
    associativity: usize,
    set_mask: u64,
    by_lines: bool,
}

impl Btb {
    pub(super) fn new(model: &TableModel, by_lines: bool) -> Btb {
        let places = model.entries >> u32::from(by_lines);
        Btb {
            ways: vec![NO_WAY; places as usize].into(),
            associativity: model.ways as usize,
            set_mask: u64::from(places / model.ways) - 1,
            by_lines,
        }
    }

    /// Replaces the target of a branch by `target`. Returns the one that was known.
    #[inline]
    pub(super) fn step(&mut self, address: u64, target: u64) -> Option<u64> {
        let line = address >> LINE_SHIFT;
        let hash = if self.by_lines { line ^ line >> 7 ^ line >> 15 } else { address };
        let first = (hash & self.set_mask) as usize * self.associativity;
        let ways = &mut self.ways[first..first + self.associativity];
        if ways[0].0[0].address == address {
            return ways[0].replace(address, target);
        }
        let known = ways.iter().position(|way| way.has(address));
        let known = known.or_else(|| {
            // A line with more than two branches has several places.
            let shares = |way: &Way| self.by_lines && way.has_room(address);
            ways.iter().position(shares)
        });
        // Each entry moves back by one way, up to the known entry or the last way.
        let mut moves = known.map_or(NO_WAY, |way| ways[way]);
        let result = moves.replace(address, target);
        for way in &mut ways[..=known.unwrap_or(self.associativity - 1)] {
            std::mem::swap(way, &mut moves);
        }
        result
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

/// Targets of indirect branches by address and by the history of indirect targets, or of the
/// directions of conditional branches.
#[derive(Clone, Debug)]
pub(super) struct Indirect {
    targets: Box<[u64]>,
    /// The last target by address alone, which is at hand earlier.
    last: Box<[u64]>,
    history: u64,
    mask: u64,
    by_directions: bool,
}

impl Indirect {
    pub(super) fn new(model: &HistoryModel, by_directions: bool) -> Indirect {
        let mask = (1 << model.history_bits) - 1;
        let targets = vec![NOBODY; model.entries as usize];
        Indirect {
            last: targets.clone().into(),
            targets: targets.into(),
            history: 0,
            mask,
            by_directions,
        }
    }

    /// A conditional branch was taken or not.
    #[inline]
    pub(super) fn conditional(&mut self, taken: bool) {
        if self.by_directions {
            self.history = (self.history << 1 | u64::from(taken)) & self.mask;
        }
    }

    /// Replaces the predicted target by `target`. Returns the prediction before that, and whether it overruled the
    /// last target.
    #[inline]
    pub(super) fn step(&mut self, address: u64, target: u64) -> (u64, bool) {
        let last = &mut self.last[address as usize & (self.targets.len() - 1)];
        let last = std::mem::replace(last, target);
        // The history is in the upper bits of the index, too, where addresses of a program differ
        // little.
        let index = address ^ self.history ^ (self.history << 5);
        let entry = &mut self.targets[index as usize & (self.targets.len() - 1)];
        let predicted = std::mem::replace(entry, target);
        if !self.by_directions {
            self.history = ((self.history << 3) ^ target ^ (target >> 5)) & self.mask;
        }
        (predicted, predicted != last)
    }
}
