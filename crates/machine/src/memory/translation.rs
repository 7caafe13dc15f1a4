//! Address translation: which pages the TLBs hold, and which page table entries a walk loads.

use super::{Access, MemorySystem, PageSize};
use crate::model::{CacheModel, Replacement};
use crate::schema::{SystemModel, TlbLevel, Walk};
use crate::tag_array::TagArray;

/// The guest's page sizes as powers of two.
const PAGE_SHIFTS: [u32; 3] = [12, 21, 30];
/// Levels of page tables that lead to a page of 4 KiB.
const TABLE_LEVELS: u32 = 4;
/// Where the page tables lie in the model: no guest has memory there. Their real addresses are not
/// known; entries of adjacent pages are adjacent here, too.
const TABLES: u64 = 1 << 51;
/// The bits of a virtual address that are translated.
const ADDRESS_BITS: u32 = 48;
/// The thread's number in a tag starts at this bit: threads of a core share its TLBs, but not their
/// translations.
const THREAD_SHIFT: u32 = 58;
/// The page size in a tag starts at this bit.
const SIZE_SHIFT: u32 = 52;

/// A processor's place in the TLBs.
#[derive(Clone, Copy)]
struct Place {
    core: usize,
    thread: u64,
}

/// Looks a page of `1 << shift` bytes up in a TLB, and fills it if it is absent. Returns whether it
/// hit.
fn access_tlb(tlb: &mut TagArray, virtual_address: u64, shift: u32, thread: u64) -> bool {
    let page = virtual_address >> shift;
    let number = page & ((1 << SIZE_SHIFT) - 1);
    let tag = number | u64::from(shift) << SIZE_SHIFT | thread << THREAD_SHIFT;
    let hit = tlb.lookup(page, tag).is_some();
    if !hit {
        tlb.insert(page, tag, 0);
    }
    hit
}

fn new_tlb(level: &TlbLevel) -> TagArray {
    TagArray::new(&level.tlb.as_cache())
}

/// The first-level TLBs for instructions or for data.
#[derive(Clone, Debug)]
struct FirstTlb {
    small: TagArray,
    large: Option<TagArray>,
    /// For each page size of the guest: whether the large TLB holds it, and as pages of which size.
    holds: [(bool, u32); 3],
}

impl FirstTlb {
    fn new(small: &TlbLevel, large: Option<&TlbLevel>) -> Self {
        let holds = PAGE_SHIFTS.map(|shift| {
            let in_small = held_as(small, shift);
            let in_large = large.and_then(|large| held_as(large, shift));
            match (in_small, in_large) {
                (small, Some(large)) if small.is_none_or(|small| small < large) => (true, large),
                (Some(small), _) => (false, small),
                // The model's pages are larger than the guest's.
                (None, _) => (false, small.pages_bytes[0].ilog2()),
            }
        });
        FirstTlb { small: new_tlb(small), large: large.map(new_tlb), holds }
    }

    fn access(&mut self, virtual_address: u64, size: PageSize, thread: u64) -> bool {
        let (is_large, shift) = self.holds[size as usize];
        let tlb = match &mut self.large {
            Some(large) if is_large => large,
            _ => &mut self.small,
        };
        access_tlb(tlb, virtual_address, shift, thread)
    }
}

/// The size, as a power of two, of the pages as which a TLB holds pages of `1 << shift` bytes: its
/// largest that is not larger.
fn held_as(level: &TlbLevel, shift: u32) -> Option<u32> {
    let shifts = level.pages_bytes.iter().map(|bytes| bytes.ilog2());
    shifts.filter(|held| *held <= shift).max()
}

/// The TLBs of a core.
#[derive(Clone, Debug)]
pub(super) struct Tlbs {
    code: FirstTlb,
    data: FirstTlb,
    /// The second TLB, and for each page size of the guest the size as which it holds pages.
    second: Option<(TagArray, [u32; 3])>,
    walk: Walk,
    /// The page walk cache: an entry for each table of 512 pages.
    walk_cache: Option<TagArray>,
}

impl Tlbs {
    pub(super) fn new(model: &SystemModel) -> Self {
        let second = model.stlb.as_ref().map(|level| {
            let smallest = level.pages_bytes[0].ilog2();
            let shifts = PAGE_SHIFTS.map(|shift| held_as(level, shift).unwrap_or(smallest));
            (new_tlb(level), shifts)
        });
        // Fully associative up to 64 entries.
        let entries = model.walk_entries.next_power_of_two();
        let walk_cache = CacheModel {
            size_bytes: u64::from(entries) * 64,
            ways: entries.min(64),
            line_bytes: 64,
            replacement: Replacement::Lru,
        };
        Tlbs {
            code: FirstTlb::new(&model.itlb, model.itlb_large.as_ref()),
            data: FirstTlb::new(&model.dtlb, model.dtlb_large.as_ref()),
            second,
            walk: model.walk,
            walk_cache: (model.walk_entries > 0).then(|| TagArray::new(&walk_cache)),
        }
    }

    fn flush(&mut self, thread: u64) {
        let first = [&mut self.code, &mut self.data];
        let arrays = first.into_iter().flat_map(|tlb| [Some(&mut tlb.small), tlb.large.as_mut()]);
        let second = self.second.as_mut().map(|(second, _)| second);
        for tlb in arrays.chain([second, self.walk_cache.as_mut()]).flatten() {
            tlb.remove_if(|tag| tag >> THREAD_SHIFT == thread);
        }
    }

    /// The range of levels, from the last to the first, whose tables a walk loads: level 0 has the
    /// entries of pages of 4 KiB.
    fn walk_levels(&mut self, address: u64, page: PageSize, thread: u64) -> (u32, u32) {
        let last = page as u32;
        let mut first = TABLE_LEVELS - 1;
        if let Some(walk_cache) = &mut self.walk_cache {
            let table = address >> (PAGE_SHIFTS[page as usize] + 9);
            let tag = table | u64::from(last) << SIZE_SHIFT | thread << THREAD_SHIFT;
            if walk_cache.lookup(table, tag).is_some() {
                first = last;
            } else {
                walk_cache.insert(table, tag, 0);
            }
        }
        (last, first)
    }
}

impl MemorySystem {
    /// Translates a data access to another page than the last one. Returns when it is translated.
    /// The page of the last access is the most recently used one of its set: a further lookup would
    /// change nothing.
    #[inline(never)]
    pub(super) fn translate_data(&mut self, access: &Access, page: u64) -> u64 {
        let Place { core, thread } = self.place_of(access.cpu);
        self.cores[core].last_data_page = page;
        let tlbs = &mut self.cores[core].tlbs;
        if tlbs.data.access(access.virtual_address, access.page, thread) {
            return access.now_cycles;
        }
        self.cpus[access.cpu].counts.basic.dtlb_misses += 1;
        self.translate_miss(access)
    }

    /// Translates a fetch from another page than the last one. Returns when it is translated.
    #[inline(never)]
    pub(super) fn translate_fetch(&mut self, access: &Access) -> u64 {
        let Place { core, thread } = self.place_of(access.cpu);
        let tlbs = &mut self.cores[core].tlbs;
        if tlbs.code.access(access.virtual_address, access.page, thread) {
            return access.now_cycles;
        }
        self.cpus[access.cpu].counts.basic.itlb_misses += 1;
        self.translate_miss(access)
    }

    fn place_of(&self, cpu: usize) -> Place {
        Place { core: self.cpus[cpu].core, thread: self.cpus[cpu].thread }
    }

    /// Translates after a miss of the first TLB.
    fn translate_miss(&mut self, access: &Access) -> u64 {
        let Place { core, thread } = self.place_of(access.cpu);
        let tlbs = &mut self.cores[core].tlbs;
        let mut now = access.now_cycles;
        if let Some((second, shifts)) = &mut tlbs.second {
            let shift = shifts[access.page as usize];
            now += self.config.latencies.stlb_hit_cycles;
            if access_tlb(second, access.virtual_address, shift, thread) {
                self.cpus[access.cpu].counts.stlb_hits += 1;
                return now;
            }
        }
        let walk = tlbs.walk;
        now += self.config.latencies.tlb_miss_cycles;
        if walk == Walk::Caches { self.walk(access, now) } else { now }
    }

    /// Loads the page table entries that lead to a page, one after the other.
    fn walk(&mut self, access: &Access, mut now: u64) -> u64 {
        let Place { core, thread } = self.place_of(access.cpu);
        let address = access.virtual_address & ((1 << ADDRESS_BITS) - 1);
        let (last, first) = self.cores[core].tlbs.walk_levels(address, access.page, thread);
        // All address spaces share the kernel's half.
        let is_user = address >> (ADDRESS_BITS - 1) == 0;
        let space = if is_user { self.cpus[access.cpu].address_space } else { 0 };
        for level in (last..=first).rev() {
            let entry = address >> (12 + 9 * level);
            let physical = TABLES | u64::from(level) << 48 | (space % 512) << 39 | entry << 3;
            let physical = physical & !(3 << 46) | (entry >> 33 & 3) << 46;
            now = self.load_table_entry(access.cpu, physical, now);
        }
        now
    }

    /// Drops the translations of a processor, as it does when its page tables change. The next
    /// fetch is counted whichever line it is from.
    pub fn flush_tlbs(&mut self, cpu: usize) {
        let Place { core, thread } = self.place_of(cpu);
        self.cores[core].tlbs.flush(thread);
        self.cores[core].last_data_page = u64::MAX;
        self.cpus[cpu].last_fetch = None;
    }

    /// A processor switches to another address space, whose page tables lie elsewhere. `space` is
    /// any number that names it, such as cr3. Translations stay: see [`MemorySystem::flush_tlbs`].
    pub fn set_address_space(&mut self, cpu: usize, space: u64) {
        self.cpus[cpu].address_space = (space >> 12) ^ (space >> 21);
    }
}
