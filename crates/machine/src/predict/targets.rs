//! Targets of branches: the branch target buffer, the return stack, and indirect targets by history.
//! [`Predictor`](super::Predictor) asks them for each taken branch, in program order; each answer also trains.

use super::model::{HistoryModel, TableModel};
use crate::address::VirtualAddress;

/// Marks an unused entry. No branch has this address, because it would end beyond the last address.
const NO_BRANCH: VirtualAddress = VirtualAddress(u64::MAX);

/// The logarithm of the line size of a BTB by lines.
const LINE_SHIFT: u32 = 6;

/// A branch whose target is known.
#[derive(Clone, Copy, Debug)]
struct KnownBranch {
    address: VirtualAddress,
    target: VirtualAddress,
}

/// A way of a set of the BTB: a branch, or in a BTB by lines up to two branches of a line, the most recently used
/// first.
#[derive(Clone, Copy, Debug)]
struct Way([KnownBranch; 2]);

const EMPTY_WAY: Way = Way([KnownBranch { address: NO_BRANCH, target: VirtualAddress(0) }; 2]);

impl Way {
    #[inline]
    fn holds(&self, address: VirtualAddress) -> bool {
        self.0.iter().any(|branch| branch.address == address)
    }

    /// Whether the way has one branch of the line of an address, and room for another.
    #[inline]
    fn has_room(&self, address: VirtualAddress) -> bool {
        let [first, second] = self.0;
        second.address == NO_BRANCH && first.address.is_in_block_of(address, LINE_SHIFT)
    }

    /// Sets the target of a branch, and makes the branch the most recently used one. Returns the known target. `None`
    /// if neither branch of the way is this one.
    #[inline]
    fn replace(
        &mut self,
        address: VirtualAddress,
        target: VirtualAddress,
    ) -> Option<VirtualAddress> {
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
    /// See [`PredictorModel::btb_by_lines`](super::PredictorModel::btb_by_lines).
    by_lines: bool,
}

impl Btb {
    pub(super) fn new(model: &TableModel, by_lines: bool) -> Btb {
        // A line uses two entries, which are one way here.
        let ways = model.entries >> u32::from(by_lines);
        Btb {
            ways: vec![EMPTY_WAY; ways as usize].into(),
            associativity: model.ways as usize,
            set_mask: u64::from(ways / model.ways) - 1,
            by_lines,
        }
    }

    /// Sets the target of a branch to `target`. Returns the known target. `None` if the BTB did not hold the branch.
    #[inline]
    pub(super) fn step(
        &mut self,
        address: VirtualAddress,
        target: VirtualAddress,
    ) -> Option<VirtualAddress> {
        let line = address.block_number(LINE_SHIFT);
        let hash = if self.by_lines { line ^ line >> 7 ^ line >> 15 } else { address.0 };
        let first = (hash & self.set_mask) as usize * self.associativity;
        let ways = &mut self.ways[first..first + self.associativity];
        if ways[0].0[0].address == address {
            return ways[0].replace(address, target);
        }
        let known = ways.iter().position(|way| way.holds(address));
        let known = known.or_else(|| {
            // Else a way with another branch of the line. A line with more than two branches has several ways.
            let has_room = |way: &Way| self.by_lines && way.has_room(address);
            ways.iter().position(has_room)
        });
        // The way moves to the front; all ways before its old position, or all ways of the set, move back by one.
        let mut moved = known.map_or(EMPTY_WAY, |way| ways[way]);
        let known_target = moved.replace(address, target);
        ways.copy_within(..known.unwrap_or(self.associativity - 1), 1);
        ways[0] = moved;
        known_target
    }
}

/// The return stack. A call beyond its depth replaces the oldest entry.
#[derive(Clone, Debug)]
pub(super) struct ReturnStack {
    addresses: Box<[VirtualAddress]>,
    /// The index of the next entry; the entries form a ring.
    top: usize,
    /// The number of valid entries.
    depth: usize,
}

impl ReturnStack {
    pub(super) fn new(entries: u32) -> ReturnStack {
        let addresses = vec![VirtualAddress::default(); entries as usize].into();
        ReturnStack { addresses, top: 0, depth: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, address: VirtualAddress) {
        self.addresses[self.top] = address;
        self.top = if self.top + 1 == self.addresses.len() { 0 } else { self.top + 1 };
        self.depth = (self.depth + 1).min(self.addresses.len());
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<VirtualAddress> {
        self.depth = self.depth.checked_sub(1)?;
        self.top = self.top.checked_sub(1).unwrap_or(self.addresses.len() - 1);
        Some(self.addresses[self.top])
    }
}

/// Targets of indirect branches, by address and history. The history holds indirect targets, or the directions of
/// conditional branches.
#[derive(Clone, Debug)]
pub(super) struct Indirect {
    targets: Box<[VirtualAddress]>,
    /// The last target of each branch, by its address alone: a faster prediction.
    last_targets: Box<[VirtualAddress]>,
    history: u64,
    history_mask: u64,
    /// Whether the history holds directions of conditional branches.
    by_directions: bool,
}

impl Indirect {
    pub(super) fn new(model: &HistoryModel, by_directions: bool) -> Indirect {
        let history_mask = (1 << model.history_bits) - 1;
        let targets = vec![NO_BRANCH; model.entries as usize];
        Indirect {
            last_targets: targets.clone().into(),
            targets: targets.into(),
            history: 0,
            history_mask,
            by_directions,
        }
    }

    /// Notes the direction of a conditional branch.
    #[inline]
    pub(super) fn conditional(&mut self, taken: bool) {
        if self.by_directions {
            self.history = (self.history << 1 | u64::from(taken)) & self.history_mask;
        }
    }

    /// Learns the target of an indirect branch. Returns the earlier prediction, and whether it differs from the last
    /// target.
    #[inline]
    pub(super) fn step(
        &mut self,
        address: VirtualAddress,
        target: VirtualAddress,
    ) -> (VirtualAddress, bool) {
        let last_entry = &mut self.last_targets[address.0 as usize & (self.targets.len() - 1)];
        let last = std::mem::replace(last_entry, target);
        // The history also goes into the upper bits of the index, because addresses differ little there.
        let index = address.0 ^ self.history ^ (self.history << 5);
        let entry = &mut self.targets[index as usize & (self.targets.len() - 1)];
        let predicted = std::mem::replace(entry, target);
        if !self.by_directions {
            self.history = ((self.history << 3) ^ target.0 ^ (target.0 >> 5)) & self.history_mask;
        }
        (predicted, predicted != last)
    }
}
