//! From virtual to physical: which pages the TLBs hold, and what a walk of the tables loads.

use super::bring::{Bringing, For};
use super::store::{DIRTY, Store, WRITABLE, only_if};
use super::system::{Access, MemorySystem, PageSize};
use crate::model::{CacheModel, Replacement};
use crate::schema::{Inclusion, Index, SystemModel, TlbLevel, Walk};

/// Shifts of the guest's pages.
const GUEST_SHIFTS: [u32; 3] = [12, 21, 30];
/// Levels of tables that lead to a page of 4 KiB.
const TABLE_LEVELS: u32 = 4;
/// Where the tables lie for the model: where no guest has memory. Their real places are not asked for;
/// entries of neighbouring pages are neighbours here, too.
const TABLES: u64 = 1 << 51;
/// Bits of a virtual address that pages number.
const ADDRESS_BITS: u32 = 48;

/// A TLB of some page sizes.
#[derive(Clone, Debug)]
struct Tlb {
    store: Store,
}

impl Tlb {
    fn new(level: &TlbLevel) -> Self {
        Tlb { store: Store::new(&level.tlb.as_cache(), Index::Physical) }
    }

    /// Looks a page up, brings it in if it is not there; true when it was.
    fn access(&mut self, page: &Page) -> bool {
        if self.store.used(page.number, page.tag).is_some() {
            return true;
        }
        self.store.place(page.number, page.tag, 0);
        false
    }
}

/// A page as a TLB has it.
#[derive(Clone, Copy, Debug)]
struct Page {
    number: u64,
    /// Number, size and thread: threads of a core share its TLBs, and not their pages.
    tag: u64,
}

impl Page {
    fn new(virtual_address: u64, shift: u32, thread: u64) -> Self {
        let number = virtual_address >> shift;
        Page { number, tag: number & ((1 << 52) - 1) | u64::from(shift) << 52 | thread << 58 }
    }
}

/// The first TLBs of one side, instructions or data.
#[derive(Clone, Debug)]
struct First {
    small: Tlb,
    large: Option<Tlb>,
    /// For each page size of the guest: whether the large one has it, and in which size.
    places: [(bool, u32); 3],
}

impl First {
    fn new(small: &TlbLevel, large: Option<&TlbLevel>) -> Self {
        let places = GUEST_SHIFTS.map(|shift| {
            let in_small = held_as(small, shift);
            let in_large = large.and_then(|large| held_as(large, shift));
            match (in_small, in_large) {
                (small, Some(large)) if small.is_none_or(|small| small < large) => (true, large),
                (Some(small), _) => (false, small),
                // Pages of the model that are larger than those of the guest.
                (None, _) => (false, small.pages_bytes[0].ilog2()),
            }
        });
        First { small: Tlb::new(small), large: large.map(Tlb::new), places }
    }

    fn access(&mut self, virtual_address: u64, size: PageSize, thread: u64) -> bool {
        let (large, shift) = self.places[size as usize];
        let page = Page::new(virtual_address, shift, thread);
        match &mut self.large {
            Some(tlb) if large => tlb.access(&page),
            _ => self.small.access(&page),
        }
    }
}

/// As which pages a TLB has those of `shift`: the largest that are not larger.
fn held_as(level: &TlbLevel, shift: u32) -> Option<u32> {
    let shifts = level.pages_bytes.iter().map(|bytes| bytes.ilog2());
    shifts.filter(|held| *held <= shift).max()
}

/// What a core has to translate addresses.
#[derive(Clone, Debug)]
pub(super) struct Tlbs {
    code: First,
    data: First,
    second: Option<(Tlb, [u32; 3])>,
    walks: bool,
    /// The cache of upper tables: one entry for each table of 512 pages.
    upper: Option<Store>,
}

impl Tlbs {
    pub(super) fn new(model: &SystemModel) -> Self {
        let second = model.stlb.as_ref().map(|level| {
            let smallest = level.pages_bytes[0].ilog2();
            let shifts = GUEST_SHIFTS.map(|shift| held_as(level, shift).unwrap_or(smallest));
            (Tlb::new(level), shifts)
        });
        // Fully associative, as far as there are ways; the rest is sets.
        let entries = model.walk_entries.next_power_of_two();
        let upper = CacheModel {
            size_bytes: u64::from(entries) * 64,
            ways: entries.min(64),
            line_bytes: 64,
            replacement: Replacement::Lru,
        };
        Tlbs {
            code: First::new(&model.itlb, model.itlb_large.as_ref()),
            data: First::new(&model.dtlb, model.dtlb_large.as_ref()),
            second,
            walks: model.walk == Walk::Caches,
            upper: (model.walk_entries > 0).then(|| Store::new(&upper, Index::Physical)),
        }
    }

    fn forget(&mut self, thread: u64) {
        let of_thread = |tag: u64| tag >> 58 == thread;
        for first in [&mut self.code, &mut self.data] {
            first.small.store.remove_if(of_thread);
            if let Some(large) = &mut first.large {
                large.store.remove_if(of_thread);
            }
        }
        if let Some((second, _)) = &mut self.second {
            second.store.remove_if(of_thread);
        }
        if let Some(upper) = &mut self.upper {
            upper.remove_if(of_thread);
        }
    }
}

impl MemorySystem {
    /// A data access to another page than the last one; returns when it is translated. The page that was
    /// used last was used last in its set, too: to use it again would change nothing.
    #[inline(never)]
    pub(super) fn page_of_data(&mut self, access: &Access, page: u64) -> u64 {
        let Cpu { core, thread } = self.thread_of(access.cpu);
        self.cores[core].last_page = page;
        let tlbs = &mut self.cores[core].tlbs;
        if tlbs.data.access(access.virtual_address, access.page, thread) {
            return access.now_cycles;
        }
        self.cpus[access.cpu].counts.basic.dtlb_misses += 1;
        self.second(access)
    }

    /// A fetch from another page than the last one; returns when it is translated.
    #[inline(never)]
    pub(super) fn page_of_code(&mut self, access: &Access) -> u64 {
        let Cpu { core, thread } = self.thread_of(access.cpu);
        let tlbs = &mut self.cores[core].tlbs;
        if tlbs.code.access(access.virtual_address, access.page, thread) {
            return access.now_cycles;
        }
        self.cpus[access.cpu].counts.basic.itlb_misses += 1;
        self.second(access)
    }

    fn thread_of(&self, cpu: usize) -> Cpu {
        Cpu { core: self.cpus[cpu].core, thread: self.cpus[cpu].thread }
    }

    /// A miss of the first TLB.
    fn second(&mut self, access: &Access) -> u64 {
        let Cpu { core, thread } = self.thread_of(access.cpu);
        let tlbs = &mut self.cores[core].tlbs;
        let mut now = access.now_cycles;
        if let Some((second, shifts)) = &mut tlbs.second {
            let shift = shifts[access.page as usize];
            now += self.plan.latencies.stlb_hit_cycles;
            if second.access(&Page::new(access.virtual_address, shift, thread)) {
                self.cpus[access.cpu].counts.stlb_hits += 1;
                return now;
            }
        }
        now += self.plan.latencies.tlb_miss_cycles;
        if self.cores[core].tlbs.walks { self.walk(access, now) } else { now }
    }

    /// Loads the tables that lead to a page, one behind the other.
    fn walk(&mut self, access: &Access, mut now: u64) -> u64 {
        let Cpu { core, thread } = self.thread_of(access.cpu);
        let address = access.virtual_address & ((1 << ADDRESS_BITS) - 1);
        // Level 0 has the entries of pages of 4 KiB.
        let last = access.page as u32;
        let mut first = TABLE_LEVELS - 1;
        if let Some(upper) = &mut self.cores[core].tlbs.upper {
            let table = address >> (GUEST_SHIFTS[access.page as usize] + 9);
            let tag = table | u64::from(last) << 52 | thread << 58;
            if upper.used(table, tag).is_some() {
                first = last;
            } else {
                upper.place(table, tag, 0);
            }
        }
        // The kernel's half is the same in all address spaces.
        let user = address >> (ADDRESS_BITS - 1) == 0;
        let space = if user { self.cpus[access.cpu].space } else { 0 };
        for level in (last..=first).rev() {
            let entry = address >> (12 + 9 * level);
            let physical = TABLES | u64::from(level) << 48 | (space % 512) << 39 | entry << 3;
            now = self.load_table(access.cpu, physical & !(3 << 46) | (entry >> 33 & 3) << 46, now);
        }
        now
    }

    /// A load by the walker: through L1D, as other loads.
    fn load_table(&mut self, cpu: usize, physical: u64, now: u64) -> u64 {
        let core = self.core_of(cpu);
        self.cpus[cpu].counts.walk_loads += 1;
        let hit = now + self.plan.latencies.l1_hit_cycles;
        let line = physical >> self.plan.l1d_shift;
        let part = self.plan.part(physical);
        if let Some(slot) = self.cores[core].l1d.used(line, line)
            && self.cores[core].parts.get(slot).is_none_or(|parts| parts & part != 0)
        {
            return hit;
        }
        let brought = self.bring(&Bringing {
            cpu,
            physical,
            mask: self.plan.mask(physical, 8),
            exclusive: false,
            from: 0,
            what: For::Tables,
            at_cycles: hit,
        });
        // Where L2 has what left L1, the line would be nowhere else.
        let flags = (brought.flags & DIRTY) | only_if(brought.writable, WRITABLE);
        debug_assert!(self.outer[0].inclusion == Inclusion::Exclusive || flags & DIRTY == 0);
        self.table_into_l1d(cpu, physical, flags);
        brought.ready_cycles
    }

    fn table_into_l1d(&mut self, cpu: usize, physical: u64, flags: u8) {
        let core = self.core_of(cpu);
        let line = physical >> self.plan.l1d_shift;
        let part = self.plan.part(physical);
        let of = &mut self.cores[core];
        if let Some(slot) = of.l1d.find(line, line) {
            if let Some(parts) = of.parts.get_mut(slot) {
                *parts |= part;
            }
            return;
        }
        let (slot, old) = of.l1d.place(line, line, flags);
        if let Some(old) = old {
            self.leave_l1d(cpu, slot, old);
        }
        let of = &mut self.cores[core];
        if let Some(parts) = of.parts.get_mut(slot) {
            *parts = part;
        }
        if let Some(written) = of.written.get_mut(slot) {
            *written = 0;
        }
        self.filled(super::miss::CacheName::L1d, core, line);
    }

    /// Forgets the translations of a processor, as it does when its page tables change. The next fetch
    /// is a new one, whatever its line.
    pub fn flush_tlbs(&mut self, cpu: usize) {
        let Cpu { core, thread } = self.thread_of(cpu);
        self.cores[core].tlbs.forget(thread);
        self.cores[core].last_page = u64::MAX;
        self.cpus[cpu].last_fetch = None;
    }

    /// A processor goes to another address space, whose tables lie elsewhere; `space` is any number of
    /// it, as cr3. Translations are not forgotten: see [`MemorySystem::flush_tlbs`].
    pub fn set_address_space(&mut self, cpu: usize, space: u64) {
        self.cpus[cpu].space = (space >> 12) ^ (space >> 21);
    }
}

/// Where a processor's translations are.
struct Cpu {
    core: usize,
    thread: u64,
}
