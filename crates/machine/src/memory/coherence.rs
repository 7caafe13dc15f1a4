//! How the caches of several cores agree: who has which unit (the longest line of a private cache), and
//! what others lose when it is written.
//!
//! A directory stands for the bus or directory of the machine: it knows all that the cores hold. A core
//! either owns a unit, and then no other has it, or it has it as others may. Who owns a unit may write
//! it without asking.

use super::bring::Bringing;
use super::miss::CacheName;
use super::store::{DIRTY, WRITABLE};
use super::system::MemorySystem;
use crate::hash::NumberMap;
use crate::schema::Protocol;

/// Cores that have a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holders {
    /// A bit for each core.
    cores: u64,
    /// The one that may write.
    owner: Option<u8>,
}

/// Who has what. There are no more entries than lines in private caches.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    units: NumberMap<Holders>,
}

impl MemorySystem {
    /// Whether a core may write the unit of an address without asking.
    pub(super) fn is_owner(&self, core: usize, physical: u64) -> bool {
        let Some(directory) = &self.directory else { return true };
        let unit = physical >> self.plan.unit_shift;
        directory.units.get(&unit).is_some_and(|unit| unit.owner == Some(core as u8))
    }

    /// A core's private caches have not got a line: asks the others. If one of them owns it, that one
    /// hands it over: then returns whether it comes dirty.
    pub(super) fn ask_others(&mut self, wish: &Bringing) -> Option<u8> {
        let core = self.core_of(wish.cpu);
        let me = 1u64 << core;
        let unit = wish.physical >> self.plan.unit_shift;
        let protocol = self.plan.protocol;
        let holders = self.directory.as_mut()?.units.entry(unit).or_default();
        let before = *holders;
        let others = before.cores & !me;
        let mine = before.owner == Some(core as u8) || protocol == Protocol::Mesi && others == 0;
        *holders = match wish.exclusive {
            true => Holders { cores: me, owner: Some(core as u8) },
            false => Holders { cores: before.cores | me, owner: mine.then_some(core as u8) },
        };
        let owner = before.owner.filter(|owner| usize::from(*owner) != core);
        let Some(owner) = owner else {
            if wish.exclusive {
                self.invalidate_all(others, unit, core, wish.mask);
            }
            return None;
        };
        self.cpus[wish.cpu].counts.cache_to_cache += 1;
        let dirty = match wish.exclusive {
            true => self.invalidate(usize::from(owner), unit, core, wish.mask),
            false => self.downgrade(usize::from(owner), unit),
        };
        if dirty == 0 || wish.exclusive && self.plan.private_levels == self.outer.len() {
            return Some(dirty);
        }
        self.hand_back(wish.cpu, unit);
        Some(0)
    }

    /// Makes the core of a processor the owner of a line that it has, or writes past; returns what that
    /// takes.
    pub(super) fn own(&mut self, cpu: usize, physical: u64, mask: u64) -> u64 {
        let core = self.core_of(cpu);
        let unit = physical >> self.plan.unit_shift;
        let Some(directory) = &mut self.directory else { return 0 };
        let holders = directory.units.entry(unit).or_default();
        if holders.owner == Some(core as u8) {
            return 0;
        }
        let others = holders.cores & !(1 << core);
        *holders = Holders { cores: 1 << core, owner: Some(core as u8) };
        self.cpus[cpu].counts.upgrades += 1;
        if self.invalidate_all(others, unit, core, mask) != 0 {
            self.hand_back(cpu, unit);
        }
        self.plan.latencies.upgrade_cycles
    }

    /// What another core wrote goes to the first level that all share.
    fn hand_back(&mut self, cpu: usize, unit: u64) {
        if self.plan.private_levels < self.outer.len() {
            self.put(self.plan.private_levels, cpu, unit << self.plan.unit_shift, DIRTY);
        } else {
            self.write_memory(cpu);
        }
    }

    fn invalidate_all(&mut self, cores: u64, unit: u64, by: usize, mask: u64) -> u8 {
        let mut dirty = 0;
        let mut left = cores;
        while left != 0 {
            dirty |= self.invalidate(left.trailing_zeros() as usize, unit, by, mask);
            left &= left - 1;
        }
        dirty
    }

    /// Takes a unit away from a core, of which another writes what `mask` says; returns whether it was
    /// dirty.
    fn invalidate(&mut self, core: usize, unit: u64, by: usize, mask: u64) -> u8 {
        let (start, bytes) = (unit << self.plan.unit_shift, 1u64 << self.plan.unit_shift);
        let (mut dirty, mut lines) = (0, 0);
        for at in (start..start + bytes).step_by(1 << self.plan.l1d_shift) {
            if let Some(held) = self.take_l1d(core, at) {
                self.invalidated(CacheName::L1d, core, held.line);
                dirty |= held.flags & DIRTY;
                lines += 1;
            }
        }
        if !self.plan.trace {
            for at in (start..start + bytes).step_by(1 << self.plan.l1i_shift) {
                if let Some(held) = self.take_l1i(core, at) {
                    self.invalidated(CacheName::L1i, core, held.line);
                    lines += 1;
                }
            }
        }
        for k in 0..self.plan.private_levels {
            for at in (start..start + bytes).step_by(1 << self.outer[k].shift) {
                if let Some(held) = self.take_outer(k, core, at) {
                    self.invalidated(CacheName::outer(k), core, held.line);
                    dirty |= held.flags & DIRTY;
                    lines += 1;
                }
            }
        }
        self.lost(core, unit, by, mask);
        if let Some(cpu) = self.cpus.iter_mut().find(|cpu| cpu.core == core) {
            cpu.counts.invalidated += lines;
        }
        dirty
    }

    /// Leaves a unit to its owner for reading only; returns whether it was dirty.
    fn downgrade(&mut self, core: usize, unit: u64) -> u8 {
        let (start, bytes) = (unit << self.plan.unit_shift, 1u64 << self.plan.unit_shift);
        let shift = self.plan.l1d_shift;
        let mut dirty = 0;
        for at in (start..start + bytes).step_by(1 << shift) {
            if let Some(slot) = self.cores[core].l1d.find_physical(at >> shift, shift) {
                self.tell_written(core, slot, at);
                let store = &mut self.cores[core].l1d;
                dirty |= store.flags(slot) & DIRTY;
                store.set_flags(slot, store.flags(slot) & !(DIRTY | WRITABLE));
            }
        }
        for k in 0..self.plan.private_levels {
            let shift = self.outer[k].shift;
            for at in (start..start + bytes).step_by(1 << shift) {
                let store = self.outer[k].of(core);
                if let Some(slot) = store.find(at >> shift, at >> shift) {
                    dirty |= store.flags(slot) & DIRTY;
                    store.set_flags(slot, store.flags(slot) & !DIRTY);
                }
            }
        }
        dirty
    }

    /// A line left a private cache of a core: if that was all it had of the unit, it has it no more.
    pub(super) fn gone(&mut self, core: usize, physical: u64) {
        if self.directory.is_none() || self.holds(core, physical) {
            return;
        }
        let unit = physical >> self.plan.unit_shift;
        let Some(directory) = &mut self.directory else { return };
        if let Some(holders) = directory.units.get_mut(&unit) {
            holders.cores &= !(1 << core);
            holders.owner = holders.owner.filter(|owner| usize::from(*owner) != core);
            if holders.cores == 0 {
                directory.units.remove(&unit);
            }
        }
    }

    /// Whether a core has anything of the unit of an address in its private caches.
    #[must_use]
    pub fn holds(&self, core: usize, physical: u64) -> bool {
        let unit = physical >> self.plan.unit_shift;
        let (start, bytes) = (unit << self.plan.unit_shift, 1u64 << self.plan.unit_shift);
        let of = &self.cores[core];
        let in_l1 = |store: &super::store::Store, shift: u32| {
            let mut lines = (start..start + bytes).step_by(1 << shift);
            lines.any(|at| store.find_physical(at >> shift, shift).is_some())
        };
        in_l1(&of.l1d, self.plan.l1d_shift)
            || !self.plan.trace && in_l1(&of.l1i, self.plan.l1i_shift)
            || self.outer[..self.plan.private_levels].iter().any(|outer| {
                let mut lines = (start..start + bytes).step_by(1 << outer.shift);
                let store = &outer.stores[outer.at(core)];
                lines.any(|at| store.find(at >> outer.shift, at >> outer.shift).is_some())
            })
    }

    /// Checks what must always hold of the caches: who may write a unit is the only one to have it, the
    /// directory knows all that cores hold, and a level that includes others does so.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn verify(&self) -> Result<(), String> {
        for (number, core) in self.cores.iter().enumerate() {
            for held in core.l1d.lines() {
                let physical = held.line << self.plan.l1d_shift;
                if held.flags & DIRTY != 0 && held.flags & WRITABLE == 0 {
                    return Err(format!("core {number} has {physical:#x} dirty, not writable"));
                }
                if held.flags & WRITABLE != 0 {
                    self.verify_owner(number, physical)?;
                }
                self.verify_known(number, physical)?;
                self.verify_included(number, physical, 0)?;
            }
            for held in core.l1i.lines().take_while(|_| !self.plan.trace) {
                let physical = held.line << self.plan.l1i_shift;
                self.verify_known(number, physical)?;
                self.verify_included(number, physical, 0)?;
            }
            for (k, outer) in self.outer.iter().enumerate().take(self.plan.private_levels) {
                for held in outer.stores[number].lines() {
                    let physical = held.line << outer.shift;
                    self.verify_known(number, physical)?;
                    self.verify_included(number, physical, k + 1)?;
                }
            }
        }
        Ok(())
    }

    fn verify_owner(&self, core: usize, physical: u64) -> Result<(), String> {
        let other =
            (0..self.cores.len()).find(|other| *other != core && self.holds(*other, physical));
        match other {
            Some(other) => Err(format!("core {core} may write {physical:#x}, and {other} has it")),
            None if self.is_owner(core, physical) => Ok(()),
            None => Err(format!("core {core} may write {physical:#x}, and does not own it")),
        }
    }

    fn verify_known(&self, core: usize, physical: u64) -> Result<(), String> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let holders = directory.units.get(&(physical >> self.plan.unit_shift));
        match holders.is_some_and(|holders| holders.cores >> core & 1 == 1) {
            true => Ok(()),
            false => Err(format!("nobody knows that core {core} has {physical:#x}")),
        }
    }

    fn verify_included(&self, core: usize, physical: u64, from: usize) -> Result<(), String> {
        for (k, outer) in self.outer.iter().enumerate().skip(from) {
            let line = physical >> outer.shift;
            let there = outer.stores[outer.at(core)].find(line, line).is_some();
            if outer.inclusion == crate::schema::Inclusion::Inclusive && !there {
                return Err(format!("level {} does not include {physical:#x}", k + 2));
            }
        }
        Ok(())
    }
}
