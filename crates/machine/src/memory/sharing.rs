//! What others wrote of a unit since a core lost it: true sharing and false.

use crate::hash::NumberMap;

/// Units that are followed; each takes some 8 bytes a core.
const UNITS_MAX: usize = 1 << 20;

/// Bits of units that were written by others since each core lost them.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    cores: usize,
    units: NumberMap<Box<[u64]>>,
}

impl Sharing {
    pub(super) fn new(cores: usize) -> Self {
        Sharing { cores, units: NumberMap::default() }
    }

    /// A core loses a unit because another writes `mask` of it.
    pub(super) fn lost(&mut self, core: usize, unit: u64, by: usize, mask: u64) {
        if !self.units.contains_key(&unit) {
            if self.units.len() == UNITS_MAX {
                return;
            }
            self.units.insert(unit, vec![0; self.cores].into());
        }
        self.wrote(by, unit, mask);
        if let Some(masks) = self.units.get_mut(&unit) {
            masks[core] = mask;
        }
    }

    /// A core wrote into a unit.
    pub(super) fn wrote(&mut self, by: usize, unit: u64, mask: u64) {
        if let Some(masks) = self.units.get_mut(&unit) {
            for (core, written) in masks.iter_mut().enumerate() {
                *written |= if core == by { 0 } else { mask };
            }
        }
    }

    /// Whether others wrote some of `mask` since a core lost a unit; none if that was not followed.
    pub(super) fn is_true(&self, core: usize, unit: u64, mask: u64) -> Option<bool> {
        Some(self.units.get(&unit)?[core] & mask != 0)
    }
}
