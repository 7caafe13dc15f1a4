//! Finds a line behind L1, and fills the levels on its way.

use super::store::{DIRTY, PREFETCHED, only_if};
use super::system::{MemorySystem, SupplyingLevel};
use crate::schema::{Inclusion, Prefetch};

/// What a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// An instruction fetch.
    Code,
    /// A load or store.
    Data,
    /// Page tables.
    Tables,
    /// Nobody asked for it yet.
    Prefetch,
}

/// A line that is asked for behind L1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bringing {
    pub(super) cpu: usize,
    pub(super) physical: u64,
    /// What is touched of the unit of coherence.
    pub(super) mask: u64,
    /// Whether it is to be written.
    pub(super) exclusive: bool,
    /// The first level that is asked: 0 for L2.
    pub(super) from: usize,
    pub(super) what: For,
    pub(super) at_cycles: u64,
}

/// A line that was brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brought {
    pub(super) supplier: SupplyingLevel,
    pub(super) ready_cycles: u64,
    /// Whether no other core has it.
    pub(super) writable: bool,
    /// Dirty, if it comes so from a level that gave it away.
    pub(super) flags: u8,
    /// A bit for each level below L1 that missed.
    pub(super) missed: u8,
}

impl MemorySystem {
    pub(super) fn bring(&mut self, wish: &Bringing) -> Brought {
        let core = self.core_of(wish.cpu);
        self.cpus[wish.cpu].now_cycles = wish.at_cycles;
        let levels = self.outer.len();
        let (mut level, mut missed, mut flags) = (levels, 0u8, 0);
        let mut other = None;
        let mut asked = false;
        for k in wish.from..=levels {
            if k == self.plan.private_levels && !asked {
                asked = true;
                other = self.ask_others(wish);
                if other.is_some() {
                    level = k;
                    break;
                }
            }
            if k == levels {
                break;
            }
            match self.look_up(k, core, wish) {
                Some(held) => {
                    (level, flags) = (k, held);
                    break;
                }
                None => missed |= 1 << k,
            }
        }
        let mut ready_cycles = match other {
            Some(dirty) => {
                flags |= dirty;
                wish.at_cycles + self.plan.latencies.cache_to_cache_cycles
            }
            None if level == levels => self.read_memory(wish),
            None => wish.at_cycles + self.outer[level].hit_cycles,
        };
        if wish.exclusive && !asked {
            ready_cycles += self.own(wish.cpu, wish.physical, wish.mask);
        }
        self.count_missed(wish, missed);
        let flags = self.fill(wish, level, flags);
        if wish.what != For::Prefetch && missed & 1 != 0 {
            self.prefetch_l2(wish);
        }
        let supplier = match (other, level) {
            (Some(_), _) => SupplyingLevel::OtherCore,
            (None, level) if level == levels => SupplyingLevel::Memory,
            (None, 0) => SupplyingLevel::L2,
            (None, _) => SupplyingLevel::L3,
        };
        let writable = self.is_owner(core, wish.physical);
        Brought { supplier, ready_cycles, writable, flags, missed }
    }

    /// Looks a level up; returns whether the line comes dirty, if it gives it away.
    fn look_up(&mut self, k: usize, core: usize, wish: &Bringing) -> Option<u8> {
        let line = wish.physical >> self.outer[k].shift;
        self.seen_outer(k, core, line);
        let gives_away = self.outer[k].inclusion == Inclusion::Exclusive && wish.what != For::Code;
        let store = self.outer[k].of(core);
        let slot = store.used(line, line)?;
        let flags = store.flags(slot);
        if flags & PREFETCHED != 0 && wish.what != For::Prefetch {
            store.set_flags(slot, flags & !PREFETCHED);
            self.cpus[wish.cpu].counts.prefetches_used += 1;
            if k == 0 {
                self.prefetch_l2(wish);
            }
        }
        if gives_away {
            // Prefetches may have moved it.
            if let Some(slot) = self.outer[k].of(core).find(line, line) {
                self.outer[k].of(core).remove(slot);
            }
            // Others have it, too: none of them is to write it back later.
            if flags & DIRTY != 0 && !self.is_owner(core, wish.physical) {
                self.write_memory(wish.cpu);
                return Some(0);
            }
            return Some(flags & DIRTY);
        }
        Some(0)
    }

    fn read_memory(&mut self, wish: &Bringing) -> u64 {
        let begins = self.bus.take(wish.at_cycles);
        let counts = &mut self.cpus[wish.cpu].counts;
        counts.memory_reads += 1;
        if wish.what != For::Prefetch {
            counts.bus_wait_cycles += begins - wish.at_cycles;
        }
        begins + self.plan.latencies.memory_cycles
    }

    fn count_missed(&mut self, wish: &Bringing, missed: u8) {
        let all = &mut self.cpus[wish.cpu].counts;
        if matches!(wish.what, For::Code | For::Data) {
            all.l3_misses += u64::from(missed >> 1 & 1);
        }
        let counts = &mut all.basic;
        match wish.what {
            For::Code => counts.l2_fetch_misses += u64::from(missed & 1),
            For::Data => counts.l2_data_misses += u64::from(missed & 1),
            For::Tables | For::Prefetch => {}
        }
    }

    /// Fills the levels that missed, the outermost first. What comes dirty stays so in the first level
    /// that takes it; the rest is handed on.
    fn fill(&mut self, wish: &Bringing, level: usize, mut flags: u8) -> u8 {
        let core = self.core_of(wish.cpu);
        for k in (0..level.min(self.outer.len())).rev() {
            if self.outer[k].inclusion == Inclusion::Exclusive && wish.what != For::Code {
                continue;
            }
            let line = wish.physical >> self.outer[k].shift;
            let prefetched = wish.what == For::Prefetch && wish.from > 0 && k == 0;
            let store = self.outer[k].of(core);
            let noted = flags | only_if(prefetched, PREFETCHED);
            if let Some(slot) = store.find(line, line) {
                store.set_flags(slot, store.flags(slot) | flags);
            } else if let (_, Some(old)) = store.place(line, line, noted) {
                self.leave_outer(k, wish.cpu, old);
            }
            if matches!(wish.what, For::Tables | For::Prefetch) {
                self.filled_outer(k, core, line);
            }
            flags = 0;
        }
        flags
    }

    /// Brings the next line into L2.
    fn prefetch_l2(&mut self, wish: &Bringing) {
        let outer = &self.outer[0];
        let next = wish.physical + (1 << outer.shift);
        let same_page = (next ^ wish.physical) >> 12 == 0;
        if outer.prefetch == Prefetch::None || !same_page || outer.inclusion == Inclusion::Exclusive
        {
            return;
        }
        let (line, core) = (next >> outer.shift, self.core_of(wish.cpu));
        if self.outer[0].of(core).find(line, line).is_some() {
            return;
        }
        self.cpus[wish.cpu].counts.prefetches += 1;
        let wish = Bringing {
            physical: next,
            mask: 0,
            exclusive: false,
            from: 1,
            what: For::Prefetch,
            ..*wish
        };
        self.bring(&wish);
    }
}
