//! Coherence: which core holds which granule, and which copies a store of another core invalidates.
//! The module `fill` asks here when the private caches of a core miss, and the module `l1` before a core writes.
//!
//! A coherence granule has the size of the longest line of a private cache. The directory stands for
//! the bus or the directory of the machine: it knows all granules that cores hold. A granule has
//! either one owner, and no other core holds it, or any number of sharers. The owner may write the
//! granule without a request. [`Tags::verify`] checks these invariants in tests.

use rustc_hash::FxHashMap;

use super::classification::{CacheName, Classifier};
use super::fill::{FillRequest, Purpose};
use super::tags::Tags;
use crate::address::{LineRange, PhysicalAddress};
use crate::system_model::{Inclusion, Protocol};
use crate::tag_array::{DIRTY, WRITABLE};

/// The number of a coherence granule: a physical address divided by the granule's size. Lines may be shorter than
/// granules, or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(super) struct CoherenceGranule(pub(super) u64);

/// The cores that hold a granule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holders {
    /// A bit for each core.
    cores: u64,
    /// The core that may write without a request.
    owner: Option<u8>,
}

/// The cores that hold each granule. The directory has no more entries than the private caches have
/// lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    granules: FxHashMap<CoherenceGranule, Holders>,
}

impl Directory {
    fn is_owner(&self, core: usize, granule: CoherenceGranule) -> bool {
        self.granules.get(&granule).is_some_and(|holders| holders.owner == Some(core as u8))
    }

    /// Notes that a core fills a granule, to write it if `is_exclusive`. Returns the previous holders.
    fn fill(
        &mut self,
        core: usize,
        granule: CoherenceGranule,
        is_exclusive: bool,
        protocol: Protocol,
    ) -> Holders {
        let this_core = 1u64 << core;
        let holders = self.granules.entry(granule).or_default();
        let before = *holders;
        let is_alone = before.cores & !this_core == 0;
        let owns = before.owner == Some(core as u8) || protocol == Protocol::Mesi && is_alone;
        *holders = if is_exclusive {
            Holders { cores: this_core, owner: Some(core as u8) }
        } else {
            Holders { cores: before.cores | this_core, owner: owns.then_some(core as u8) }
        };
        before
    }

    /// Makes a core the owner of a granule. Returns the other cores that held it, a bit for each. `None` if the core
    /// owns it already.
    fn upgrade(&mut self, core: usize, granule: CoherenceGranule) -> Option<u64> {
        let holders = self.granules.entry(granule).or_default();
        if holders.owner == Some(core as u8) {
            return None;
        }
        let others = holders.cores & !(1 << core);
        *holders = Holders { cores: 1 << core, owner: Some(core as u8) };
        Some(others)
    }

    /// Notes that a core no longer holds any part of a granule.
    fn release(&mut self, core: usize, granule: CoherenceGranule) {
        if let Some(holders) = self.granules.get_mut(&granule) {
            holders.cores &= !(1 << core);
            holders.owner = holders.owner.filter(|owner| usize::from(*owner) != core);
            if holders.cores == 0 {
                self.granules.remove(&granule);
            }
        }
    }
}

impl Tags {
    /// Whether a core may write the granule of an address without a request. Always true without a directory.
    pub(super) fn is_owner(&self, core: usize, physical: PhysicalAddress) -> bool {
        let Some(directory) = &self.directory else { return true };
        directory.is_owner(core, self.config.granule(physical))
    }

    /// Asks the other cores for a line that the private caches of a core missed. If another core owns the granule,
    /// that core supplies the line: returns [`DIRTY`] if the requesting core has to keep it dirty, else 0. `None`:
    /// no other core owns the granule. Copies of other cores are invalidated if the request is exclusive.
    pub(super) fn snoop(&mut self, request: &FillRequest) -> Option<u8> {
        let core = self.core_of(request.cpu);
        let granule = self.config.granule(request.physical);
        let protocol = self.config.protocol;
        let directory = self.directory.as_mut()?;
        let before = directory.fill(core, granule, request.is_exclusive, protocol);
        let Some(owner) = before.owner.filter(|owner| usize::from(*owner) != core) else {
            if request.is_exclusive {
                self.invalidate_all(before.cores & !(1 << core), granule, core, request.mask);
            }
            return None;
        };
        let is_counted = matches!(request.purpose, Purpose::Fetch | Purpose::Data);
        self.cpus[request.cpu].counts.cache_to_cache += u64::from(is_counted);
        let dirty = if request.is_exclusive {
            self.invalidate(usize::from(owner), granule, core, request.mask)
        } else {
            self.downgrade(usize::from(owner), granule)
        };
        if dirty == 0 || request.is_exclusive && self.config.private_levels == self.outer.len() {
            return Some(dirty);
        }
        // A shared level takes the dirty content, so the line itself comes clean.
        self.write_back_granule(request.cpu, granule);
        Some(0)
    }

    /// Makes the core of a processor the owner of a granule that it holds or writes through.
    /// Returns whether the core has to wait for this upgrade. The upgrade counts only if another core held the granule.
    pub(super) fn acquire_ownership(
        &mut self,
        cpu: usize,
        physical: PhysicalAddress,
        mask: u64,
    ) -> bool {
        let core = self.core_of(cpu);
        let granule = self.config.granule(physical);
        let Some(directory) = &mut self.directory else { return false };
        let Some(others) = directory.upgrade(core, granule) else { return false };
        self.cpus[cpu].counts.upgrades += u64::from(others != 0);
        if self.invalidate_all(others, granule, core, mask) != 0 {
            self.write_back_granule(cpu, granule);
        }
        true
    }

    /// Writes the dirty content of another core's copy to the first level that all cores share, or to memory.
    fn write_back_granule(&mut self, cpu: usize, granule: CoherenceGranule) {
        let level = self.config.private_levels;
        if level < self.outer.len() {
            let (start, _) = self.range_of(granule);
            self.insert_victim(level, cpu, start, DIRTY);
        } else {
            self.write_memory(cpu);
        }
    }

    /// Removes a granule from the private caches of each core whose bit is set in `cores`, because core `writer` writes
    /// the parts in `mask`. Returns [`DIRTY`] if any copy was dirty, else 0.
    fn invalidate_all(
        &mut self,
        cores: u64,
        granule: CoherenceGranule,
        writer: usize,
        mask: u64,
    ) -> u8 {
        let mut dirty = 0;
        let mut remaining = cores;
        while remaining != 0 {
            dirty |= self.invalidate(remaining.trailing_zeros() as usize, granule, writer, mask);
            remaining &= remaining - 1;
        }
        dirty
    }

    /// Removes a granule from the private caches of `core`, because core `writer` writes the parts in `mask`.
    /// Returns [`DIRTY`] if the granule was dirty. Leaves the directory to the caller.
    fn invalidate(
        &mut self,
        core: usize,
        granule: CoherenceGranule,
        writer: usize,
        mask: u64,
    ) -> u8 {
        let (start, bytes) = self.range_of(granule);
        let (mut dirty, mut lines) = (0, 0);
        for cache in self.caches_of(core, self.config.private_levels) {
            let range = LineRange::touched_by(start, bytes, self.line_shift(cache.name));
            let report = |classifier: &mut Classifier, line| classifier.invalidated(cache, line);
            let removed = self.remove_lines(cache, range, report);
            lines += removed.lines;
            dirty |= removed.dirty;
        }
        self.classifier.lost(core, granule, writer, mask);
        if let Some(cpu) = self.cpus.iter_mut().find(|cpu| cpu.core == core) {
            cpu.counts.invalidated += lines;
        }
        dirty
    }

    /// Takes from a core the right to write a granule. The core keeps its lines of the granule, and they become clean.
    /// Returns [`DIRTY`] if any of them was dirty, else 0.
    fn downgrade(&mut self, core: usize, granule: CoherenceGranule) -> u8 {
        let (start, bytes) = self.range_of(granule);
        let mut dirty = 0;
        for cache in self.caches_of(core, self.config.private_levels) {
            if cache.name == CacheName::L1i {
                continue;
            }
            let shift = self.line_shift(cache.name);
            let mut lines = LineRange::touched_by(start, bytes, shift);
            while let Some((line, slot)) = self.cache(cache).find_first(lines.clone()) {
                lines.skip_through(line);
                if cache.name == CacheName::L1d {
                    self.report_written(core, slot, PhysicalAddress::of_line(line, shift));
                }
                let tags = self.cache_mut(cache);
                dirty |= tags.flags(slot) & DIRTY;
                tags.set_flags(slot, tags.flags(slot) & !(DIRTY | WRITABLE));
            }
        }
        dirty
    }

    /// Called after a line of the granule left a private cache of a core. If the core holds no other line of the
    /// granule, the directory forgets that core.
    pub(super) fn release(&mut self, core: usize, granule: CoherenceGranule) {
        if self.directory.is_none() || self.holds_granule(core, granule) {
            return;
        }
        if let Some(directory) = &mut self.directory {
            directory.release(core, granule);
        }
    }

    /// The address and the size, in bytes, of a granule.
    fn range_of(&self, granule: CoherenceGranule) -> (PhysicalAddress, u64) {
        let shift = self.config.granule_shift;
        (PhysicalAddress(granule.0 << shift), 1 << shift)
    }

    /// Whether the private caches of a core hold any line of the granule that an address lies in.
    pub(super) fn holds(&self, core: usize, physical: PhysicalAddress) -> bool {
        self.holds_granule(core, self.config.granule(physical))
    }

    fn holds_granule(&self, core: usize, granule: CoherenceGranule) -> bool {
        let (start, bytes) = self.range_of(granule);
        // The largest cache first, because it is the most likely to hold a line.
        self.caches_of(core, self.config.private_levels).rev().any(|cache| {
            let lines = LineRange::touched_by(start, bytes, self.line_shift(cache.name));
            self.cache(cache).find_first(lines).is_some()
        })
    }

    /// The caches with a dirty copy of an address's line: newer than memory. Each has its name and its number: the
    /// number of its core, or 0 for a shared level.
    pub(super) fn dirty_copies(&self, physical: PhysicalAddress) -> Vec<(CacheName, usize)> {
        let caches = self.all_caches().into_iter().filter(|cache| {
            let slot = self.cache(*cache).find_physical(physical.line(self.line_shift(cache.name)));
            cache.name != CacheName::L1i
                && slot.is_some_and(|slot| self.cache(*cache).flags(slot) & DIRTY != 0)
        });
        caches.map(|cache| (cache.name, cache.number)).collect()
    }

    /// Checks the invariants. A core that may write a granule is the only core that holds it. The directory knows all
    /// granules that cores hold. Inclusive levels hold all lines of the levels above.
    ///
    /// The error describes the broken invariant.
    pub(super) fn verify(&self) -> Result<(), String> {
        for core in 0..self.cores.len() {
            for cache in self.caches_of(core, self.config.private_levels) {
                let first_level = match cache.name {
                    CacheName::L1i | CacheName::L1d => 0,
                    CacheName::L2 => 1,
                    CacheName::L3 => 2,
                };
                for line in self.cache(cache).lines() {
                    let physical = PhysicalAddress::of_line(line.line, self.line_shift(cache.name));
                    if cache.name == CacheName::L1d {
                        if line.flags & DIRTY != 0 && line.flags & WRITABLE == 0 {
                            let problem = "has a dirty line that is not writable";
                            return Err(format!("core {core} {problem}: {physical:#x}"));
                        }
                        if line.flags & WRITABLE != 0 {
                            self.verify_owner(core, physical)?;
                        }
                    }
                    self.verify_known(core, physical)?;
                    self.verify_included(core, physical, first_level)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that `core` owns the granule of `physical`, the address of a line that `core` may write, and that no other
    /// core holds the granule. Without a directory, only the second check can fail.
    fn verify_owner(&self, core: usize, physical: PhysicalAddress) -> Result<(), String> {
        let mut other_cores = (0..self.cores.len()).filter(|other_core| *other_core != core);
        match other_cores.find(|other_core| self.holds(*other_core, physical)) {
            Some(other) => {
                Err(format!("core {core} may write {physical:#x}, which core {other} holds"))
            }
            None if self.is_owner(core, physical) => Ok(()),
            None => Err(format!("core {core} may write {physical:#x} and does not own it")),
        }
    }

    /// Checks that the directory knows a line that `core` holds.
    fn verify_known(&self, core: usize, physical: PhysicalAddress) -> Result<(), String> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let holders = directory.granules.get(&self.config.granule(physical));
        if holders.is_some_and(|holders| holders.cores >> core & 1 == 1) {
            return Ok(());
        }
        Err(format!("the directory does not know that core {core} has {physical:#x}"))
    }

    /// Checks that the inclusive levels from `first_level` on hold a line that `core` holds above them.
    fn verify_included(
        &self,
        core: usize,
        physical: PhysicalAddress,
        first_level: usize,
    ) -> Result<(), String> {
        for (level, outer) in self.outer.iter().enumerate().skip(first_level) {
            let cache = &outer.caches[outer.number_for(core)];
            let is_in = cache.contains(physical.line(outer.line_shift));
            if outer.inclusion == Inclusion::Inclusive && !is_in {
                return Err(format!("L{} does not include {physical:#x}", level + 2));
            }
        }
        Ok(())
    }
}
