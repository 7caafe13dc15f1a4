//! Coherence: which core holds which granule, and what the others lose when it is written.
//!
//! The coherence granule is the longest line of a private cache. The directory stands for the bus
//! or the directory of the machine: it knows all granules that cores hold. A granule has one owner,
//! and then no other core holds it, or any number of sharers. The owner may write it without a
//! request.

use rustc_hash::FxHashMap;

use super::classification::{CacheName, Classifier};
use super::fill::FillRequest;
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
    /// The core that may write.
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

    /// A core fills a granule. Returns the holders before.
    fn fill(
        &mut self,
        core: usize,
        granule: CoherenceGranule,
        exclusive: bool,
        protocol: Protocol,
    ) -> Holders {
        let this = 1u64 << core;
        let holders = self.granules.entry(granule).or_default();
        let before = *holders;
        let alone = before.cores & !this == 0;
        let owns = before.owner == Some(core as u8) || protocol == Protocol::Mesi && alone;
        *holders = match exclusive {
            true => Holders { cores: this, owner: Some(core as u8) },
            false => Holders { cores: before.cores | this, owner: owns.then_some(core as u8) },
        };
        before
    }

    /// Makes a core the owner of a granule. Returns the other cores that held it; none if the core
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

    /// A core holds nothing of a granule any more.
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
    /// Whether a core may write the granule of an address without a request.
    pub(super) fn is_owner(&self, core: usize, physical: PhysicalAddress) -> bool {
        let Some(directory) = &self.directory else { return true };
        directory.is_owner(core, self.config.granule(physical))
    }

    /// The private caches of a core missed: asks the other cores. If one of them owns the granule,
    /// it supplies the line: then returns [`DIRTY`] if it comes dirty, else 0.
    pub(super) fn snoop(&mut self, request: &FillRequest) -> Option<u8> {
        let core = self.core_of(request.cpu);
        let granule = self.config.granule(request.physical);
        let protocol = self.config.protocol;
        let directory = self.directory.as_mut()?;
        let before = directory.fill(core, granule, request.exclusive, protocol);
        let Some(owner) = before.owner.filter(|owner| usize::from(*owner) != core) else {
            if request.exclusive {
                self.invalidate_all(before.cores & !(1 << core), granule, core, request.mask);
            }
            return None;
        };
        self.cpus[request.cpu].counts.cache_to_cache += 1;
        let dirty = if request.exclusive {
            self.invalidate(usize::from(owner), granule, core, request.mask)
        } else {
            self.downgrade(usize::from(owner), granule)
        };
        if dirty == 0 || request.exclusive && self.config.private_levels == self.outer.len() {
            return Some(dirty);
        }
        self.write_back_granule(request.cpu, granule);
        Some(0)
    }

    /// Makes the core of a processor the owner of a granule that it holds or writes through.
    /// Returns whether it has to wait for that.
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
        self.cpus[cpu].counts.upgrades += 1;
        if self.invalidate_all(others, granule, core, mask) != 0 {
            self.write_back_granule(cpu, granule);
        }
        true
    }

    /// Writes what another core wrote to the first level that all cores share.
    fn write_back_granule(&mut self, cpu: usize, granule: CoherenceGranule) {
        let level = self.config.private_levels;
        if level < self.outer.len() {
            let (start, _) = self.range_of(granule);
            self.insert_victim(level, cpu, start, DIRTY);
        } else {
            self.write_memory(cpu);
        }
    }

    fn invalidate_all(
        &mut self,
        cores: u64,
        granule: CoherenceGranule,
        by: usize,
        mask: u64,
    ) -> u8 {
        let mut dirty = 0;
        let mut remaining = cores;
        while remaining != 0 {
            dirty |= self.invalidate(remaining.trailing_zeros() as usize, granule, by, mask);
            remaining &= remaining - 1;
        }
        dirty
    }

    /// Removes a granule from the private caches of `core`, because core `by` writes the bytes in `mask`.
    /// Returns [`DIRTY`] if the granule was dirty.
    fn invalidate(&mut self, core: usize, granule: CoherenceGranule, by: usize, mask: u64) -> u8 {
        let (start, bytes) = self.range_of(granule);
        let (mut dirty, mut lines) = (0, 0);
        for cache in self.caches_of(core, self.config.private_levels) {
            let range = LineRange::touched_by(start, bytes, self.line_shift(cache.name));
            let report = |classifier: &mut Classifier, line| classifier.invalidated(cache, line);
            let removed = self.remove_lines(cache, range, report);
            lines += removed.lines;
            dirty |= removed.dirty;
        }
        self.classifier.lost(core, granule, by, mask);
        if let Some(cpu) = self.cpus.iter_mut().find(|cpu| cpu.core == core) {
            cpu.counts.invalidated += lines;
        }
        dirty
    }

    /// Takes the right to write a granule from a core. Returns [`DIRTY`] if it was dirty.
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

    /// A line left a private cache of a core. If the core holds nothing else of its granule, the
    /// directory forgets it.
    pub(super) fn release(&mut self, core: usize, granule: CoherenceGranule) {
        if self.directory.is_none() || self.holds_granule(core, granule) {
            return;
        }
        if let Some(directory) = &mut self.directory {
            directory.release(core, granule);
        }
    }

    /// The address and size of a granule.
    fn range_of(&self, granule: CoherenceGranule) -> (PhysicalAddress, u64) {
        let shift = self.config.granule_shift;
        (PhysicalAddress(granule.0 << shift), 1 << shift)
    }

    /// Whether the private caches of a core hold anything of the granule of an address.
    pub(super) fn holds(&self, core: usize, physical: PhysicalAddress) -> bool {
        self.holds_granule(core, self.config.granule(physical))
    }

    fn holds_granule(&self, core: usize, granule: CoherenceGranule) -> bool {
        let (start, bytes) = self.range_of(granule);
        // The largest cache first, because it holds most.
        self.caches_of(core, self.config.private_levels).rev().any(|cache| {
            let lines = LineRange::touched_by(start, bytes, self.line_shift(cache.name));
            self.cache(cache).find_first(lines).is_some()
        })
    }

    /// Where a line that holds an address is dirty: newer than in memory. Each cache by its name and
    /// its number, which is that of the core, or 0 for a shared level.
    pub(super) fn dirty_copies(&self, physical: PhysicalAddress) -> Vec<(CacheName, usize)> {
        let caches = self.all_caches().into_iter().filter(|cache| {
            let slot = self.cache(*cache).find_physical(physical.line(self.line_shift(cache.name)));
            cache.name != CacheName::L1i
                && slot.is_some_and(|slot| self.cache(*cache).flags(slot) & DIRTY != 0)
        });
        caches.map(|cache| (cache.name, cache.number)).collect()
    }

    /// Checks the invariants: a core that may write a granule is the only one that holds it, the
    /// directory knows all granules that cores hold, and inclusive levels include.
    ///
    /// The error is the invariant that is broken, in words.
    pub(super) fn verify(&self) -> Result<(), String> {
        for core in 0..self.cores.len() {
            for cache in self.caches_of(core, self.config.private_levels) {
                let outer = match cache.name {
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
                    self.verify_included(core, physical, outer)?;
                }
            }
        }
        Ok(())
    }

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

    fn verify_known(&self, core: usize, physical: PhysicalAddress) -> Result<(), String> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let holders = directory.granules.get(&self.config.granule(physical));
        if holders.is_some_and(|holders| holders.cores >> core & 1 == 1) {
            return Ok(());
        }
        Err(format!("the directory does not know that core {core} has {physical:#x}"))
    }

    fn verify_included(
        &self,
        core: usize,
        physical: PhysicalAddress,
        from: usize,
    ) -> Result<(), String> {
        for (level, outer) in self.outer.iter().enumerate().skip(from) {
            let cache = &outer.caches[outer.number_for(core)];
            let is_in = cache.contains(physical.line(outer.line_shift));
            if outer.inclusion == Inclusion::Inclusive && !is_in {
                return Err(format!("L{} does not include {physical:#x}", level + 2));
            }
        }
        Ok(())
    }
}
