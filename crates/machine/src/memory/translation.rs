//! Address translation: which pages the TLBs hold, and which page table entries a walk loads.
//!
//! `l1` calls [`Tags::translate_data`] and [`Tags::translate_fetch`] when an access goes to another page
//! than the last one. The plugin's TLB flushes arrive at [`Tags::flush_tlbs`].
//!
//! A tag of a TLB packs, from bit 0: page number, page size, address space or [`GLOBAL`], the guest's page
//! size, [`NESTED`], thread. The constants below must not overlap.

use super::global_pages::{GlobalPages, is_in_kernel_half};
use super::outcome::Step;
use super::tags::{Core, Cpu, Tags};
use super::{Access, AccessKind, PageSize};
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::model::{CacheModel, Replacement};
use crate::system_model::{SystemModel, TlbLevel};
use crate::tag_array::{SetIndex, SlotOfSet, Tag, TagArray};

/// The guest's page sizes as powers of two.
const PAGE_SHIFTS: [u32; 3] = [12, 21, 30];
/// Levels of page tables that lead to a page of 4 KiB.
const TABLE_LEVELS: u32 = 4;
/// Where the page tables lie in the model: no guest has memory there. The real addresses are not known. As in real
/// tables, the entries of adjacent pages are adjacent.
const TABLES: u64 = 1 << 51;
/// Number of bits of a virtual address that are translated.
const ADDRESS_BITS: u32 = 48;
/// The thread's number in a tag starts at this bit: the threads of a core share TLBs, but not translations.
const THREAD_SHIFT: u32 = 58;
/// A tag of a global page has this bit in place of an address space.
const GLOBAL: u64 = 1 << 54;
/// The bits of the address space in a tag start at this one. There are 12, as a PCID (Intel SDM, volume 3,
/// 4.10.1; AMD64 manual, volume 2, 5.5.1).
const SPACE_SHIFT: u32 = 42;
/// The page size in a tag, as a power of two, starts at this bit.
const SIZE_SHIFT: u32 = ADDRESS_BITS - 12;
/// With nested paging, the guest's page size in a tag starts at this bit: the tag's page is a part of
/// a guest page of that size.
const PART_SHIFT: u32 = 55;
/// A tag of the page walk cache or the nested TLB has this bit if it belongs to the hypervisor's translation.
const NESTED: u64 = 1 << 57;
/// Where the hypervisor's page tables lie in the model: see [`TABLES`].
const NESTED_TABLES: u64 = TABLES | 1 << 50;

/// The translations that a processor drops from its TLBs and page walk caches. [`GlobalPages`] are the global ones.
///
/// Intel SDM, volume 3, 4.10.4.1; AMD64 manual, volume 2, 5.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbFlush {
    /// Everything: a write of cr0 or cr4, `invpcid` of type 2.
    All,
    /// All pages that are not global, in all address spaces: `invpcid` of type 3.
    NonGlobal,
    /// All pages of one address space that are not global: a write of cr3, `invpcid` of type 1.
    Space(u16),
    /// The page of an address in an address space.
    Page {
        /// An address in the page.
        virtual_address: VirtualAddress,
        space: u16,
        /// Whether the page is also dropped if it is global: with `invlpg`, but not with `invpcid` of type 0.
        global: bool,
    },
}

/// A virtual page of 4 KiB of one thread of a core: the page's number, and above it the thread's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct ThreadPage(u64);

impl ThreadPage {
    /// Equals no page of any thread.
    pub(super) const NONE: ThreadPage = ThreadPage(u64::MAX);

    /// The page of an address that a thread accesses.
    #[inline(always)]
    pub(super) fn new(virtual_address: VirtualAddress, thread: u64) -> ThreadPage {
        ThreadPage(virtual_address.page() | thread << THREAD_SHIFT)
    }

    /// The page of an address, of the same thread. Only for a page with number 0.
    #[inline(always)]
    pub(super) fn with_page_of(self, virtual_address: VirtualAddress) -> ThreadPage {
        ThreadPage(virtual_address.page() | self.0)
    }

    /// The page of `1 << shift` bytes that contains this page. `shift` is at least 12. Compare the result
    /// only with pages of that size.
    pub(super) fn in_larger_page(self, shift: u32) -> ThreadPage {
        let thread_bits = self.0 >> THREAD_SHIFT << THREAD_SHIFT;
        ThreadPage((self.0 ^ thread_bits) >> (shift - PAGE_SHIFTS[0]) | thread_bits)
    }

    /// A number with the low bits of the page's number.
    #[inline(always)]
    pub(super) fn low_bits(self) -> u64 {
        self.0
    }
}

/// The bits of a tag without the page's number: thread, address space, and kind of page.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct TagOwner(u64);

impl TagOwner {
    /// The owner of a processor's translation of an address.
    fn for_address(virtual_address: VirtualAddress, cpu: &Cpu) -> TagOwner {
        let context = TlbContext::from_cpu(cpu);
        if cpu.global_pages.contain(virtual_address) {
            TagOwner(GLOBAL | context.thread << THREAD_SHIFT)
        } else {
            context.in_space()
        }
    }

    /// Adds further bits of a tag.
    fn with_bits(self, bits: u64) -> TagOwner {
        TagOwner(self.0 | bits)
    }

    /// The tag of the page with this number.
    #[inline(always)]
    fn tag(self, number: u64) -> Tag {
        Tag(number | self.0)
    }
}

/// The core, thread and address space of a processor's translations.
#[derive(Clone, Copy)]
struct TlbContext {
    core: usize,
    thread: u64,
    space: u16,
}

impl TlbContext {
    fn from_cpu(cpu: &Cpu) -> TlbContext {
        let Cpu { core, thread, space, .. } = *cpu;
        TlbContext { core, thread, space }
    }

    /// The owner of pages that are not global.
    fn in_space(self) -> TagOwner {
        TagOwner(u64::from(self.space) << SPACE_SHIFT | self.thread << THREAD_SHIFT)
    }
}

/// The largest page size of the guest that has at most `bytes` bytes.
fn page_of_bytes(bytes: u64) -> PageSize {
    match bytes.ilog2() {
        30.. => PageSize::Huge,
        21.. => PageSize::Large,
        _ => PageSize::Small,
    }
}

/// Number of bits of the address of a table entry that distinguish page tables of different processes.
const TABLE_SPACE_BITS: u32 = 9;

/// Where the entry for an address lies in the tables of a level. `space` identifies the page tables; tables whose
/// numbers agree in the low [`TABLE_SPACE_BITS`] bits lie at one place. `address` has [`ADDRESS_BITS`] bits, so the
/// numbers of entries of 8 bytes end below bit 39.
fn table_entry_address(address: VirtualAddress, level: u32, space: u64) -> PhysicalAddress {
    let entry = address.block_number(12 + 9 * level);
    let space = space % (1 << TABLE_SPACE_BITS);
    PhysicalAddress(TABLES | u64::from(level) << 48 | space << 39 | entry << 3)
}

/// The number of an address's page of `1 << shift` bytes, as a tag holds it.
fn page_number(virtual_address: VirtualAddress, shift: u32) -> u64 {
    VirtualAddress(virtual_address.offset_in_block(ADDRESS_BITS)).block_number(shift)
}

/// The tag of an address's page of `1 << shift` bytes.
#[inline(always)]
fn tag_of(virtual_address: VirtualAddress, shift: u32, owner: TagOwner) -> Tag {
    owner.tag(page_number(virtual_address, shift) | u64::from(shift) << SIZE_SHIFT)
}

/// Looks up an address's page of `1 << shift` bytes in a TLB, and fills it if it is absent. Returns whether it hit.
fn access_tlb(
    tlb: &mut TagArray,
    virtual_address: VirtualAddress,
    shift: u32,
    owner: TagOwner,
) -> bool {
    let index = SetIndex::of_virtual(virtual_address, shift);
    access_tag(tlb, index, tag_of(virtual_address, shift, owner))
}

/// Looks up an entry of a page walk cache or a nested TLB, and fills it if it is absent. Returns whether it hit.
fn access_array(array: &mut TagArray, number: u64, owner: TagOwner) -> bool {
    access_tag(array, SetIndex(number), owner.tag(number))
}

fn access_tag(array: &mut TagArray, index: SetIndex, tag: Tag) -> bool {
    let hit = array.lookup(index, tag).is_some();
    if !hit {
        array.insert(index, tag, 0);
    }
    hit
}

fn new_tlb(level: &TlbLevel) -> TagArray {
    TagArray::new(&level.tlb().as_cache())
}

/// The first-level TLBs for instructions or for data.
#[derive(Clone, Debug)]
struct FirstTlb {
    small: TagArray,
    large: Option<TagArray>,
    /// For each page size of the guest: whether the large TLB holds such pages, and the logarithm of the page size of
    /// its entries for them. A smaller entry holds a part of the guest's page.
    held_as: [(bool, u32); 3],
}

impl FirstTlb {
    fn new(small: &TlbLevel, large: Option<&TlbLevel>) -> Self {
        let held_as = PAGE_SHIFTS.map(|shift| {
            let in_small = held_as(small, shift);
            let in_large = large.and_then(|large| held_as(large, shift));
            match (in_small, in_large) {
                (small, Some(large)) if small.is_none_or(|small| small < large) => (true, large),
                (Some(small), _) => (false, small),
                // The model's pages are larger than the guest's.
                (None, _) => (false, small.pages_bytes[0].ilog2()),
            }
        });
        FirstTlb { small: new_tlb(small), large: large.map(new_tlb), held_as }
    }

    /// The TLB for guest pages of a size, and the logarithm of the page size of its entries for them.
    #[inline(always)]
    fn tlb_of(&mut self, size: PageSize) -> (&mut TagArray, u32) {
        let (is_large, shift) = self.held_as[size as usize];
        match &mut self.large {
            Some(large) if is_large => (large, shift),
            _ => (&mut self.small, shift),
        }
    }

    /// The logarithm of the page size of the entries for guest pages of a size.
    fn held_shift(&self, size: PageSize) -> u8 {
        self.held_as[size as usize].1 as u8
    }

    /// Looks up a page, and fills it if it is absent. Returns whether it hit.
    fn access(&mut self, virtual_address: VirtualAddress, size: PageSize, owner: TagOwner) -> bool {
        let (tlb, shift) = self.tlb_of(size);
        access_tlb(tlb, virtual_address, shift, owner)
    }

    /// Touches a page if the TLB holds it. Returns the page's entry.
    #[inline(always)]
    fn touch(
        &mut self,
        virtual_address: VirtualAddress,
        size: PageSize,
        owner: TagOwner,
    ) -> Option<KnownEntry> {
        let (tlb, shift) = self.tlb_of(size);
        let tag = tag_of(virtual_address, shift, owner);
        let index = SetIndex::of_virtual(virtual_address, shift);
        let slot = tlb.lookup(index, tag)?;
        let position = SlotOfSet { set: tlb.set_of(index), slot };
        Some(KnownEntry { tag, position, is_large: self.held_as[size as usize].0 })
    }

    /// Touches the page that was found at an entry, if it is still there. Returns whether it is.
    #[inline(always)]
    fn touch_entry(&mut self, entry: KnownEntry) -> bool {
        let tlb = match &mut self.large {
            Some(large) if entry.is_large => large,
            _ => &mut self.small,
        };
        tlb.touch_in(entry.position, entry.tag)
    }
}

/// The logarithm of the page size of a TLB's entries for guest pages of `1 << shift` bytes: the TLB's largest size that
/// is not larger. `None` if all sizes are larger.
fn held_as(level: &TlbLevel, shift: u32) -> Option<u32> {
    let shifts = level.pages_bytes.iter().map(|bytes| bytes.ilog2());
    shifts.filter(|held_shift| *held_shift <= shift).max()
}

/// The entry where the first TLB for data held a page.
#[derive(Clone, Copy, Debug, Default)]
struct KnownEntry {
    tag: Tag,
    position: SlotOfSet,
    /// Whether the TLB for large pages holds it.
    is_large: bool,
}

/// Number of pages with a known entry.
const KNOWN_PAGES: usize = 64;

/// Entries of recently accessed pages. An entry is checked before it is used. A page keeps its size until translations
/// are dropped; that empties the list.
#[derive(Clone, Debug)]
struct KnownPages([(ThreadPage, KnownEntry); KNOWN_PAGES]);

impl Default for KnownPages {
    fn default() -> Self {
        KnownPages([(ThreadPage::NONE, KnownEntry::default()); KNOWN_PAGES])
    }
}

impl KnownPages {
    #[inline(always)]
    fn get(&self, page: ThreadPage) -> Option<KnownEntry> {
        let (known, entry) = self.0[page.low_bits() as usize % KNOWN_PAGES];
        (known == page).then_some(entry)
    }

    fn insert(&mut self, page: ThreadPage, entry: KnownEntry) {
        self.0[page.low_bits() as usize % KNOWN_PAGES] = (page, entry);
    }
}

/// A core's TLBs, and its caches of page table entries.
#[derive(Clone, Debug)]
pub(super) struct Tlbs {
    known: KnownPages,
    code: FirstTlb,
    data: FirstTlb,
    /// The second TLB, and for each page size of the guest the logarithm of the page size of its entries.
    second: Option<(TagArray, [u32; 3])>,
    /// The page walk cache: an entry names a table of 512 pages, so that a walk starts there.
    walk_cache: Option<TagArray>,
    nested: Option<NestedTlb>,
}

/// The levels of page tables whose entries a walk loads. Level 0 has the entries of pages of 4 KiB.
struct WalkLevels {
    /// The level that is loaded first: the highest.
    first: u32,
    /// The level that is loaded last: the lowest.
    last: u32,
}

impl WalkLevels {
    /// The levels in the order of their loads.
    fn in_order(self) -> impl Iterator<Item = u32> {
        (self.last..=self.first).rev()
    }
}

/// The second translation of a virtual machine (nested paging).
#[derive(Clone, Debug)]
struct NestedTlb {
    /// The hypervisor's page size.
    page: PageSize,
    /// The nested TLB: pages that hold the guest's page tables. `None`: the processor has none.
    tables: Option<TagArray>,
}

/// An LRU array with `entries` entries, rounded up to a power of two; fully associative up to 64. `None` for 0.
fn array_of(entries: u32) -> Option<TagArray> {
    if entries == 0 {
        return None;
    }
    let entries = entries.next_power_of_two();
    let cache = CacheModel {
        size_bytes: u64::from(entries) * 64,
        ways: entries.min(64),
        line_bytes: 64,
        replacement: Replacement::Lru,
    };
    Some(TagArray::new(&cache))
}

impl Tlbs {
    pub(super) fn new(model: &SystemModel) -> Self {
        let second = model.stlb.as_ref().map(|level| {
            let smallest = level.pages_bytes[0].ilog2();
            let shifts = PAGE_SHIFTS.map(|shift| held_as(level, shift).unwrap_or(smallest));
            (new_tlb(level), shifts)
        });
        let nested = model.nested.as_ref().map(|nested| NestedTlb {
            page: page_of_bytes(nested.page_bytes),
            tables: array_of(nested.entries),
        });
        Tlbs {
            known: KnownPages::default(),
            code: FirstTlb::new(&model.itlb, model.itlb_large.as_ref()),
            data: FirstTlb::new(&model.dtlb, model.dtlb_large.as_ref()),
            second,
            walk_cache: array_of(model.walk_entries),
            nested,
        }
    }

    pub(super) fn has_second(&self) -> bool {
        self.second.is_some()
    }

    /// Drops translations of a thread from all TLBs and from the page walk cache.
    fn flush(&mut self, thread: u64, flush: TlbFlush) {
        let is_of_thread = |Tag(tag): Tag| tag >> THREAD_SHIFT == thread;
        let is_global = |Tag(tag): Tag| tag & GLOBAL != 0;
        let is_in_space =
            |Tag(tag): Tag, space: u16| tag >> SPACE_SHIFT & 0xfff == u64::from(space);
        // Compares pages of the guest's size: `invlpg` drops all parts of the guest's page.
        let is_page = |Tag(tag): Tag, address: VirtualAddress| {
            let shift = (tag >> SIZE_SHIFT & 63) as u32;
            let page_shift = PAGE_SHIFTS[(tag >> PART_SHIFT & 3) as usize].max(shift);
            let number = tag & ((1 << SIZE_SHIFT) - 1);
            number >> (page_shift - shift) == page_number(address, page_shift)
        };
        let first = [&mut self.code, &mut self.data];
        let arrays = first.into_iter().flat_map(|tlb| [Some(&mut tlb.small), tlb.large.as_mut()]);
        let second = self.second.as_mut().map(|(second, _)| second);
        for tlb in arrays.chain([second]).flatten() {
            tlb.remove_if(|tag| {
                is_of_thread(tag)
                    && match flush {
                        TlbFlush::All => true,
                        TlbFlush::NonGlobal => !is_global(tag),
                        TlbFlush::Space(space) => !is_global(tag) && is_in_space(tag, space),
                        TlbFlush::Page { virtual_address, space, global } => {
                            is_page(tag, virtual_address)
                                && (if is_global(tag) { global } else { is_in_space(tag, space) })
                        }
                    }
            });
        }
        // A guest's flush keeps translations of the hypervisor. Entries of page walk caches are never global. A flush
        // of one page drops all entries of its address space.
        if let Some(walk_cache) = &mut self.walk_cache {
            walk_cache.remove_if(|tag| {
                is_of_thread(tag)
                    && tag.0 & NESTED == 0
                    && match flush {
                        TlbFlush::All | TlbFlush::NonGlobal => true,
                        TlbFlush::Space(space) | TlbFlush::Page { space, .. } => {
                            is_in_space(tag, space)
                        }
                    }
            });
        }
    }

    /// The page size of a TLB entry for a guest page, and the tag bits that note the guest's page size. With nested
    /// paging, an entry holds at most a page of the hypervisor.
    fn part_of(&self, page: PageSize) -> (PageSize, u64) {
        match &self.nested {
            Some(nested) if (nested.page as u8) < page as u8 => {
                (nested.page, (page as u64) << PART_SHIFT)
            }
            _ => (page, 0),
        }
    }

    /// The levels of the hypervisor's tables that a walk loads to translate an address of the guest's memory. `is_table`:
    /// a page table of the guest lies at the address. `None` without nested paging, or if the nested TLB holds the page.
    fn nested_levels(
        &mut self,
        physical: PhysicalAddress,
        thread: u64,
        is_table: bool,
    ) -> Option<WalkLevels> {
        let nested = self.nested.as_mut()?;
        let (last, shift) = (nested.page as u32, PAGE_SHIFTS[nested.page as usize]);
        let owner = TagOwner(NESTED | thread << THREAD_SHIFT);
        if is_table
            && let Some(tables) = &mut nested.tables
            && access_array(tables, physical.block_number(shift), owner)
        {
            return None;
        }
        let table = physical.block_number(shift + 9);
        let owner = owner.with_bits(u64::from(last) << SIZE_SHIFT);
        let is_table_known =
            self.walk_cache.as_mut().is_some_and(|cache| access_array(cache, table, owner));
        Some(WalkLevels { first: if is_table_known { last } else { TABLE_LEVELS - 1 }, last })
    }

    /// The levels of the guest's tables that a walk loads: only the last one if the page walk cache knows its table.
    fn walk_levels(
        &mut self,
        address: VirtualAddress,
        page: PageSize,
        context: TlbContext,
    ) -> WalkLevels {
        let last = page as u32;
        let mut first = TABLE_LEVELS - 1;
        if let Some(walk_cache) = &mut self.walk_cache {
            let table = address.block_number(PAGE_SHIFTS[page as usize] + 9);
            let owner = context.in_space().with_bits(u64::from(last) << SIZE_SHIFT);
            if access_array(walk_cache, table, owner) {
                first = last;
            }
        }
        WalkLevels { first, last }
    }
}

impl Core {
    /// For a data access to another page than the last one: touches the page if the first TLB still holds it at its
    /// known entry. Returns whether it does. Otherwise the caller tries [`Core::holds_page`].
    #[inline(always)]
    pub(super) fn holds_known_page(&mut self, page: ThreadPage) -> bool {
        let Some(entry) = self.tlbs.known.get(page) else { return false };
        let is_held = self.tlbs.data.touch_entry(entry);
        if is_held {
            self.last_data_page = page;
        }
        is_held
    }

    /// For a data access to another page than the last one: touches the page if the first TLB holds
    /// it. Returns whether it does.
    #[inline(never)]
    pub(super) fn holds_page(
        &mut self,
        cpu: &Cpu,
        virtual_address: VirtualAddress,
        page: ThreadPage,
        size: PageSize,
    ) -> bool {
        let owner = TagOwner::for_address(virtual_address, cpu);
        let entry = self.tlbs.data.touch(virtual_address, size, owner);
        if let Some(entry) = entry {
            self.tlbs.known.insert(page, entry);
            self.last_data_page = page;
        }
        entry.is_some()
    }
}

impl Tags {
    /// Translates a data access to another page than the last one. The page of the last access is the most recently
    /// used page of its set, so a further lookup would change nothing.
    #[inline(never)]
    pub(super) fn translate_data(&mut self, access: &Access, page: ThreadPage) {
        let context = self.context_of(access.cpu);
        let core = &mut self.cores[context.core];
        let (size, part) = core.tlbs.part_of(access.page);
        let cpu = &self.cpus[access.cpu];
        let owner = TagOwner::for_address(access.virtual_address, cpu).with_bits(part);
        core.last_data_page = page;
        if core.tlbs.data.access(access.virtual_address, size, owner) {
            // The translation may be under way, for an earlier access.
            return self.outcome.push(Step::Page(page));
        }
        let held_shift = core.tlbs.data.held_shift(size);
        self.cpus[access.cpu].counts.basic.dtlb_misses += 1;
        self.translate_miss(access);
        self.outcome.push(Step::Translated { page, held_shift });
    }

    /// Translates a fetch from another page than the last one.
    #[inline(never)]
    pub(super) fn translate_fetch(&mut self, access: &Access) {
        let context = self.context_of(access.cpu);
        let tlbs = &mut self.cores[context.core].tlbs;
        let (size, part) = tlbs.part_of(access.page);
        let cpu = &self.cpus[access.cpu];
        let owner = TagOwner::for_address(access.virtual_address, cpu).with_bits(part);
        if !tlbs.code.access(access.virtual_address, size, owner) {
            self.cpus[access.cpu].counts.basic.itlb_misses += 1;
            self.translate_miss(access);
        }
    }

    fn context_of(&self, cpu: usize) -> TlbContext {
        TlbContext::from_cpu(&self.cpus[cpu])
    }

    /// Translates after a miss of the first TLB: by the second TLB or a page walk.
    fn translate_miss(&mut self, access: &Access) {
        let context = self.context_of(access.cpu);
        let tlbs = &mut self.cores[context.core].tlbs;
        let (size, part) = tlbs.part_of(access.page);
        let cpu = &self.cpus[access.cpu];
        let owner = TagOwner::for_address(access.virtual_address, cpu).with_bits(part);
        let page = ThreadPage::new(access.virtual_address, context.thread);
        let mut second_shift = None;
        if let Some((second, shifts)) = &mut tlbs.second {
            let shift = shifts[size as usize];
            self.outcome.push(Step::SecondTlb);
            self.cpus[access.cpu].latency_cycles += self.config.stlb_hit_cycles;
            if access_tlb(second, access.virtual_address, shift, owner) {
                self.cpus[access.cpu].counts.stlb_hits += 1;
                // The translation may be under way, for an earlier access.
                return self.outcome.push(Step::SecondTlbHit(page));
            }
            second_shift = Some(shift as u8);
        }
        self.outcome.push(Step::StartWalk);
        self.add_latency(access.cpu, self.config.tlb_miss_cycles);
        if self.config.has_page_walks {
            self.walk(access);
        }
        self.outcome.push(Step::EndWalk { is_fetch: access.kind == AccessKind::Fetch });
        if let Some(held_shift) = second_shift {
            self.outcome.push(Step::IntoSecondTlb { page, held_shift });
        }
    }

    /// Loads the page table entries that lead to a page, one after the other. With nested paging, first translates the
    /// address of each entry, and in the end the address of the page.
    fn walk(&mut self, access: &Access) {
        let context = self.context_of(access.cpu);
        let address = VirtualAddress(access.virtual_address.offset_in_block(ADDRESS_BITS));
        let tlbs = &mut self.cores[context.core].tlbs;
        let levels = tlbs.walk_levels(address, access.page, context);
        // All address spaces share the kernel's half.
        let space = if is_in_kernel_half(address) { 0 } else { self.cpus[access.cpu].page_tables };
        for level in levels.in_order() {
            let physical = table_entry_address(address, level, space);
            self.translate_nested(access.cpu, physical, true);
            self.load_table_entry(access.cpu, physical);
        }
        self.translate_nested(access.cpu, access.physical, false);
    }

    /// With nested paging: translates an address of the guest's memory by the hypervisor's tables.
    fn translate_nested(&mut self, cpu: usize, physical: PhysicalAddress, is_table: bool) {
        let TlbContext { core, thread, .. } = self.context_of(cpu);
        let tlbs = &mut self.cores[core].tlbs;
        let Some(levels) = tlbs.nested_levels(physical, thread, is_table) else { return };
        for level in levels.in_order() {
            let entry = physical.block_number(12 + 9 * level);
            let entry_address =
                PhysicalAddress(NESTED_TABLES | u64::from(level) << 48 | entry << 3);
            self.load_table_entry(cpu, entry_address);
        }
    }

    /// See [`MemorySystem::flush_tlbs`](super::MemorySystem::flush_tlbs).
    pub(super) fn flush_tlbs(&mut self, cpu: usize, flush: TlbFlush) {
        let TlbContext { core, thread, .. } = self.context_of(cpu);
        self.cores[core].tlbs.flush(thread, flush);
        self.forget_last_pages(cpu);
    }

    /// See [`MemorySystem::set_global_pages`](super::MemorySystem::set_global_pages).
    pub(super) fn set_global_pages(&mut self, cpu: usize, pages: GlobalPages) {
        if self.cpus[cpu].global_pages != pages {
            self.cpus[cpu].global_pages = pages;
            self.flush_tlbs(cpu, TlbFlush::All);
        }
    }

    /// See [`MemorySystem::set_address_space`](super::MemorySystem::set_address_space).
    pub(super) fn set_address_space(
        &mut self,
        cpu: usize,
        space: u16,
        page_tables: PhysicalAddress,
    ) {
        self.cpus[cpu].space = space & 0xfff;
        self.cpus[cpu].page_tables = page_tables.page() ^ page_tables.block_number(21);
        self.forget_last_pages(cpu);
    }

    /// Forgets the shortcuts that skip a TLB lookup, after translations have changed.
    fn forget_last_pages(&mut self, cpu: usize) {
        let core = self.core_of(cpu);
        self.cores[core].last_data_page = ThreadPage::NONE;
        self.cores[core].tlbs.known = KnownPages::default();
        self.cpus[cpu].last_fetch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn entries_of_different_tables_and_pages_lie_at_different_places() {
        // The lowest and highest pages, and pages that differ in a single bit of the address.
        let one_bit = (12..ADDRESS_BITS).map(|bit| 1_u64 << bit);
        let addresses: Vec<u64> = one_bit.chain([0, (1 << ADDRESS_BITS) - 1]).collect();
        let mut entries = BTreeSet::new();
        for space in 0..1 << TABLE_SPACE_BITS {
            for address in &addresses {
                let entry = table_entry_address(VirtualAddress(*address), 0, space);
                assert!(entries.insert(entry), "{space}: {address:#x}");
            }
        }
        for level in 1..TABLE_LEVELS {
            let entry = table_entry_address(VirtualAddress(0), level, 0);
            assert!(entries.insert(entry), "{level}");
        }
        let end = PhysicalAddress(NESTED_TABLES);
        assert!(entries.iter().all(|entry| (TABLES..end.0).contains(&entry.0)));
    }
}
