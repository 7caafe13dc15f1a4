//! The in-order, blocking processor with two levels of caches: the processor of the plugin's level `timed`. Each vCPU
//! has one, and calls it for each block, load and store in QEMU's vCPU thread.
//!
//! Invariant: [`BlockingMachine`] counts exactly what [`MemorySystem`] counts for a model of this kind (see
//! [`SystemModel::blocking`]); a property test compares them. It takes only one or two nanoseconds per access, for
//! three reasons. It fetches a block of code at a time. It translates each page once. And most lookups end at the most
//! recently used line of a set.
//!
//! [`MemorySystem`]: crate::memory::MemorySystem
//! [`SystemModel::blocking`]: crate::SystemModel::blocking

use crate::address::{LineAddress, LineRange, PhysicalAddress, VirtualAddress};
use crate::compact_lru::{Access, Tags};
use crate::counts::{Counts, Instructions};
use crate::memory::{GlobalPages, TRANSFER_BYTES_MAX, TlbFlush};
use crate::model::TlbModel;
use crate::system_model::{BlockingModel, Dma};
use crate::tag_array::{SetIndex, Slot, Tag, TagArray};

/// Code with consecutive virtual and physical addresses, within one page of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSpan {
    /// Virtual address of the first byte.
    pub virtual_address: VirtualAddress,
    /// Physical address of the first byte.
    pub physical: PhysicalAddress,
    pub bytes: u32,
}

/// The instruction lines of a [`CodeSpan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LineRun {
    /// An address in the page.
    virtual_address: VirtualAddress,
    first_line: LineAddress,
    /// The number of lines. Zero for an empty run.
    lines: u32,
}

impl LineRun {
    fn new(line_shift: u32, span: CodeSpan) -> LineRun {
        let Some(length) = span.bytes.checked_sub(1) else { return LineRun::default() };
        let first_line = span.physical.line(line_shift);
        let last = span.physical.plus(length.into()).line(line_shift);
        let lines = last.0 - first_line.0 + 1;
        LineRun { virtual_address: span.virtual_address, first_line, lines: lines as u32 }
    }
}

/// A block of instructions that execute one after the other. It is prepared once, and
/// [`BlockingMachine::execute_block`] reads it at each execution. It must stay small: with the caller's data it fits a
/// cache line of the host.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct CodeBlock {
    instructions: u32,
    first_lines: u32,
    /// Zero if the block lies in one page.
    second_lines: u32,
    /// The distance from `virtual_address` to an address in the second page. A second 64-bit address would not fit.
    second_offset: u32,
    virtual_address: VirtualAddress,
    first_line: LineAddress,
    second_line: LineAddress,
}

impl CodeBlock {
    /// Returns a block of `instructions` in the one or two pages that it spans.
    /// `fetch_line_shift` is [`BlockingMachine::fetch_line_shift`] of the machine that executes it.
    #[must_use]
    pub fn new(
        fetch_line_shift: u32,
        instructions: u32,
        first: CodeSpan,
        second: Option<CodeSpan>,
    ) -> CodeBlock {
        let first = LineRun::new(fetch_line_shift, first);
        let second = second.map_or(LineRun::default(), |span| LineRun::new(fetch_line_shift, span));
        CodeBlock {
            instructions,
            first_lines: first.lines,
            second_lines: second.lines,
            second_offset: second.virtual_address.bytes_after(first.virtual_address) as u32,
            virtual_address: first.virtual_address,
            first_line: first.first_line,
            second_line: second.first_line,
        }
    }

    /// The lines in the first page.
    #[inline(always)]
    fn first_run(&self) -> LineRun {
        LineRun {
            virtual_address: self.virtual_address,
            first_line: self.first_line,
            lines: self.first_lines,
        }
    }

    /// The lines in the second page. Empty if the block lies in one page.
    fn second_run(&self) -> LineRun {
        LineRun {
            virtual_address: self.virtual_address.plus(self.second_offset.into()),
            first_line: self.second_line,
            lines: self.second_lines,
        }
    }

    #[must_use]
    pub fn instructions(&self) -> u32 {
        self.instructions
    }
}

/// The smallest page of the guest and of a model, as a power of two.
const PAGE_SHIFT: u32 = 12;
const PAGE_MASK: u64 = !((1 << PAGE_SHIFT) - 1);
/// Number of flushes after which all translations are forgotten. The mark of a translation is the address of its
/// page plus the number of flushes before it. So that number must be less than a page, and the last one is
/// reserved for [`NO_TRANSLATION`].
const FLUSHES_MAX: u64 = !PAGE_MASK;
/// Number of known translations, by the low bits of the page number.
const TRANSLATIONS: usize = 1024;

/// A known translation of a guest's page.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Translation {
    /// The virtual address of the page plus the number of flushes: see [`FLUSHES_MAX`].
    mark: u64,
    /// The physical address of the page plus the slot where the TLB last held the page. The page may have left that slot.
    physical_and_slot: u64,
}

const NO_TRANSLATION: Translation = Translation { mark: u64::MAX, physical_and_slot: 0 };
/// The slot is unknown, or does not fit the low bits of an address.
const NO_SLOT: Slot = !PAGE_MASK as Slot;

impl Translation {
    fn slot(self) -> Slot {
        (self.physical_and_slot & !PAGE_MASK) as Slot
    }

    fn physical(self, virtual_address: VirtualAddress) -> PhysicalAddress {
        PhysicalAddress(self.physical_and_slot & PAGE_MASK | virtual_address.0 & !PAGE_MASK)
    }
}

/// A TLB that also remembers the translations of recently used pages, to call the caller's `translate` rarely. Which
/// translations are known has no influence on hits and misses.
#[derive(Clone, Debug)]
struct TranslatingTlb {
    translations: Box<[Translation; TRANSLATIONS]>,
    entries: TagArray,
    page_shift: u32,
    /// The number of flushes. A translation whose mark has another number is from before a flush.
    flushes: u64,
    global_pages: GlobalPages,
}

impl TranslatingTlb {
    fn new(model: &TlbModel) -> Self {
        TranslatingTlb {
            translations: Box::new([NO_TRANSLATION; TRANSLATIONS]),
            entries: TagArray::without_mru(&model.as_cache()),
            page_shift: model.page_bytes.ilog2(),
            flushes: 0,
            global_pages: GlobalPages::default(),
        }
    }

    /// The fast path. If the translation is known and the TLB still holds the page in its last slot: touches the page,
    /// and returns the physical address. Otherwise does nothing, and the caller uses [`TranslatingTlb::access`]. `now`
    /// must grow from access to access.
    #[inline(always)]
    fn access_known(
        &mut self,
        virtual_address: VirtualAddress,
        now: u64,
    ) -> Option<PhysicalAddress> {
        let known = &self.translations[translation_index(virtual_address)];
        if known.mark != virtual_address.0 & PAGE_MASK | self.flushes
            || known.slot() == NO_SLOT
            || !self.entries.touch_at(known.slot(), self.tag_of(virtual_address), now)
        {
            return None;
        }
        Some(known.physical(virtual_address))
    }

    /// Looks up a page, and fills it if it is absent. Returns whether it hit, and its slot.
    fn access(&mut self, virtual_address: VirtualAddress, now: u64) -> (bool, Slot) {
        self.entries.set_time(now);
        let index = SetIndex::of_virtual(virtual_address, self.page_shift);
        let tag = self.tag_of(virtual_address);
        match self.entries.lookup(index, tag) {
            Some(slot) => (true, slot),
            None => (false, self.entries.insert(index, tag, 0).0),
        }
    }

    /// The tag of the page of an address: the page's number.
    #[inline(always)]
    fn tag_of(&self, virtual_address: VirtualAddress) -> Tag {
        Tag(virtual_address.block_number(self.page_shift))
    }

    /// The physical address, if the translation is known.
    fn translate(&self, virtual_address: VirtualAddress) -> Option<PhysicalAddress> {
        let known = &self.translations[translation_index(virtual_address)];
        (known.mark == virtual_address.0 & PAGE_MASK | self.flushes)
            .then(|| known.physical(virtual_address))
    }

    /// Remembers a translation, and the slot of its page in the TLB.
    fn remember(&mut self, virtual_address: VirtualAddress, physical: PhysicalAddress, slot: Slot) {
        // Without LRU, a touch of a known slot would not update the replacement state.
        let slot = if self.entries.is_lru() { slot } else { NO_SLOT };
        self.translations[translation_index(virtual_address)] = Translation {
            mark: virtual_address.0 & PAGE_MASK | self.flushes,
            physical_and_slot: physical.0 & PAGE_MASK | slot.min(NO_SLOT) as u64,
        };
    }

    fn flush(&mut self, flush: TlbFlush) {
        let pages = self.global_pages;
        let is_global = |Tag(page): Tag| pages.contain(VirtualAddress(page << self.page_shift));
        match flush {
            TlbFlush::All => self.entries.clear(),
            TlbFlush::NonGlobal | TlbFlush::Space(_) => {
                self.entries.remove_if(|page| !is_global(page));
            }
            TlbFlush::Page { virtual_address, global, .. } => {
                let flushed = self.tag_of(virtual_address);
                self.entries.remove_if(|page| page == flushed && (global || !is_global(page)));
            }
        }
        self.flushes += 1;
        if self.flushes == FLUSHES_MAX {
            self.translations.fill(NO_TRANSLATION);
            self.flushes = 0;
        }
    }
}

#[inline(always)]
fn translation_index(virtual_address: VirtualAddress) -> usize {
    virtual_address.block_number(PAGE_SHIFT) as usize % TRANSLATIONS
}

/// The line of the last fetch. Further fetches from the line belong to that fetch, and are not counted.
#[derive(Clone, Copy, Debug)]
struct LastFetch {
    /// An address in the page of the line.
    virtual_address: VirtualAddress,
    line: LineAddress,
    /// The size of the page. Zero if nothing was fetched since the last flush of the TLBs: then
    /// no address is in the page.
    page_bytes: u64,
}

/// No line has this number.
const NO_LINE: LineAddress = LineAddress(u64::MAX);

const NO_FETCH: LastFetch =
    LastFetch { virtual_address: VirtualAddress(0), line: LineAddress(0), page_bytes: 0 };

impl LastFetch {
    /// Whether the lines of `run` are in the page of this fetch.
    #[inline(always)]
    fn is_in_page_of(&self, run: &LineRun) -> bool {
        run.virtual_address.0 ^ self.virtual_address.0 < self.page_bytes
    }
}

/// An in-order processor that executes one instruction at a time and waits for each miss, with its L1I, L1D, L2 and TLBs.
///
/// - The caches are private and not coherent. Several processors are several machines, without misses caused by others.
/// - Physical addresses may have any value below the last 4 KiB of 64 bits. A block of code contains its physical
///   addresses. For data, the caller translates each page of 4 KiB about once until [`BlockingMachine::flush_tlbs`].
///   How often the caller is asked has no influence on counts.
#[derive(Clone, Debug)]
pub struct BlockingMachine {
    l1i: Tags,
    l1d: Tags,
    l2: Tags,
    itlb: TranslatingTlb,
    dtlb: TranslatingTlb,
    /// The page size of the instruction TLB.
    itlb_page_bytes: u64,
    /// Line sizes as powers of two.
    fetch_shift: u32,
    data_shift: u32,
    l2_shift: u32,
    instruction_cycles: u64,
    l2_hit_cycles: u64,
    memory_cycles: u64,
    tlb_miss_cycles: u64,
    dma_policy: Dma,
    last_fetch: LastFetch,
    /// Number of loads and stores so far: the clock of the data TLB.
    data_accesses: u64,
    /// All counts except `cycles` and `loads`, which [`BlockingMachine::counts`] computes.
    counts: Counts,
}

impl BlockingMachine {
    /// Returns a machine with cold caches, of a model that [`BlockingModel::check`] has accepted.
    #[must_use]
    pub fn new(model: &BlockingModel) -> Self {
        BlockingMachine {
            l1i: Tags::new(&model.l1i),
            l1d: Tags::new(&model.l1d),
            l2: Tags::new(&model.l2),
            itlb: TranslatingTlb::new(&model.itlb),
            dtlb: TranslatingTlb::new(&model.dtlb),
            itlb_page_bytes: model.itlb.page_bytes,
            fetch_shift: model.l1i.line_bytes.ilog2(),
            data_shift: model.l1d.line_bytes.ilog2(),
            l2_shift: model.l2.line_bytes.ilog2(),
            instruction_cycles: model.instruction_cycles,
            l2_hit_cycles: model.l2_hit_cycles,
            memory_cycles: model.memory_cycles,
            tlb_miss_cycles: model.tlb_miss_cycles,
            dma_policy: model.dma,
            last_fetch: NO_FETCH,
            data_accesses: 0,
            counts: Counts::default(),
        }
    }

    /// The size of an instruction line as a power of two, for [`CodeBlock::new`].
    #[must_use]
    pub fn fetch_line_shift(&self) -> u32 {
        self.fetch_shift
    }

    /// The cycles of an instruction that waits for nothing.
    #[must_use]
    pub fn instruction_cycles(&self) -> u64 {
        self.instruction_cycles
    }

    /// Fetches and counts a block. The caller reports the block's loads and stores afterwards.
    #[inline]
    pub fn execute_block(&mut self, block: &CodeBlock) {
        self.counts.instructions += u64::from(block.instructions);
        if !self.fetch_fast(block) {
            self.fetch_block(block);
        }
    }

    /// Subtracts the last `instructions` of a block because an exception came before them. `instructions` is at
    /// most the block's length. The fetches for these instructions stay counted.
    #[inline]
    pub fn uncount_instructions(&mut self, instructions: u32) {
        self.counts.instructions -= u64::from(instructions);
    }

    /// Loads from `virtual_address`, within a line. The caller splits a load that
    /// [crosses](BlockingMachine::crosses) lines. `translate` returns the physical address, or `None` for a device.
    /// It is called if the page is not known, and for each access to a device. Such an access looks up the data
    /// TLB, bypasses the caches and takes the latency of memory.
    #[inline]
    pub fn load(
        &mut self,
        virtual_address: VirtualAddress,
        translate: impl FnOnce(VirtualAddress) -> Option<PhysicalAddress>,
    ) {
        self.access_data(virtual_address, false, translate);
    }

    /// Stores to `virtual_address`, within a line. The caller splits a store that
    /// [crosses](BlockingMachine::crosses) lines. [`BlockingMachine::load`] says when `translate` is called. No
    /// data is written: only tags, counts and stalls change.
    #[inline]
    pub fn store(
        &mut self,
        virtual_address: VirtualAddress,
        translate: impl FnOnce(VirtualAddress) -> Option<PhysicalAddress>,
    ) {
        self.counts.stores += 1;
        self.access_data(virtual_address, true, translate);
    }

    /// The fast path of [`BlockingMachine::load`]: loads `bytes` bytes if they lie in one line of a page with a
    /// known translation. Otherwise does nothing and returns false. Inlined, so that the caller needs no stack
    /// frame in the common case.
    #[inline(always)]
    #[must_use]
    pub fn load_fast(&mut self, virtual_address: VirtualAddress, bytes: u64) -> bool {
        self.access_data_fast(virtual_address, bytes, false)
    }

    /// The fast path of [`BlockingMachine::store`]: stores `bytes` bytes if they lie in one line of a page with a known
    /// translation. Otherwise does nothing and returns false.
    #[inline(always)]
    #[must_use]
    pub fn store_fast(&mut self, virtual_address: VirtualAddress, bytes: u64) -> bool {
        self.access_data_fast(virtual_address, bytes, true)
    }

    /// Whether an access of `bytes`, at least 1, touches more than one data line.
    #[inline]
    #[must_use]
    pub fn crosses(&self, virtual_address: VirtualAddress, bytes: u64) -> bool {
        let last = virtual_address.plus(bytes - 1);
        virtual_address.block_number(self.data_shift) != last.block_number(self.data_shift)
    }

    /// An address in each data line that an access of `bytes`, at least 1, touches: its own address, then the first
    /// address of each further line.
    pub fn data_lines(
        &self,
        virtual_address: VirtualAddress,
        bytes: u64,
    ) -> impl Iterator<Item = VirtualAddress> + use<> {
        let line_bytes = 1 << self.data_shift;
        let offset = virtual_address.offset_in_block(self.data_shift);
        let further_count = (offset + (bytes - 1)) / line_bytes;
        let start = virtual_address.block_start(self.data_shift);
        let further_lines = (1..=further_count).map(move |line| start.plus(line * line_bytes));
        std::iter::once(virtual_address).chain(further_lines)
    }

    /// Drops translations, as the processor does when its page tables change. The next fetch is counted in any
    /// case. The machine does not distinguish address spaces: a flush of any address space drops all
    /// translations that are not global.
    pub fn flush_tlbs(&mut self, flush: TlbFlush) {
        self.itlb.flush(flush);
        self.dtlb.flush(flush);
        self.last_fetch = NO_FETCH;
    }

    /// Sets the pages whose translations stay over a write of cr3. A change drops all translations.
    pub fn set_global_pages(&mut self, pages: GlobalPages) {
        if self.dtlb.global_pages != pages {
            (self.itlb.global_pages, self.dtlb.global_pages) = (pages, pages);
            self.flush_tlbs(TlbFlush::All);
        }
    }

    /// Applies a device's write of `bytes` bytes from `physical` on. Takes no time, and counts nothing.
    ///
    /// With [`Dma::Update`] the cached lines take the new content, so nothing changes. Otherwise all caches drop the
    /// lines, dirty ones without a write-back. Bytes beyond the first 2^30 have no effect.
    pub fn dma_write(&mut self, physical: PhysicalAddress, bytes: u64) {
        if self.dma_policy == Dma::Update {
            return;
        }
        self.drop_lines(physical, bytes.min(TRANSFER_BYTES_MAX));
    }

    /// Flushes the line of an address from all caches (`clflush`), without taking time. The flushed line has the length of
    /// the longest line of a cache.
    pub fn flush_line(&mut self, physical: PhysicalAddress) {
        let shift = self.fetch_shift.max(self.data_shift).max(self.l2_shift);
        self.drop_lines(physical.block_start(shift), 1 << shift);
    }

    /// Removes all lines that hold any of `bytes` bytes from `physical` on.
    fn drop_lines(&mut self, physical: PhysicalAddress, bytes: u64) {
        let shifts = [self.fetch_shift, self.data_shift, self.l2_shift];
        for (cache, shift) in [&mut self.l1i, &mut self.l1d, &mut self.l2].into_iter().zip(shifts) {
            cache.remove(LineRange::touched_by(physical, bytes, shift));
        }
        let code_lines = LineRange::touched_by(physical, bytes, self.fetch_shift);
        if code_lines.holds(self.last_fetch.line) {
            // The next fetch from this line looks it up in L1I again.
            self.last_fetch.line = NO_LINE;
        }
    }

    /// Cycles so far, stalls included.
    #[inline]
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.counts.instructions * self.instruction_cycles
            + self.counts.fetch_stall_cycles
            + self.counts.data_stall_cycles
    }

    /// Instructions executed so far.
    #[inline(always)]
    #[must_use]
    pub fn instructions(&self) -> Instructions {
        Instructions(self.counts.instructions)
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        let loads = self.data_accesses - self.counts.stores;
        Counts { cycles: self.cycles(), loads, ..self.counts }
    }

    /// The fast path of [`BlockingMachine::fetch_block`], for a block in one page that is the page of the last fetch or
    /// has a known translation. Otherwise does nothing and returns false.
    #[inline(always)]
    fn fetch_fast(&mut self, block: &CodeBlock) -> bool {
        let run = block.first_run();
        if block.second_lines != 0 || run.lines == 0 {
            return false;
        }
        let mut lines = LineRange::new(run.first_line, run.lines.into());
        if !self.last_fetch.is_in_page_of(&run) {
            if self.itlb.access_known(run.virtual_address, self.counts.fetches + 1).is_none() {
                return false;
            }
            self.last_fetch.virtual_address = run.virtual_address;
            self.last_fetch.page_bytes = self.itlb_page_bytes;
        } else if run.first_line == self.last_fetch.line {
            // This line was fetched already.
            lines.skip_through(run.first_line);
        }
        self.last_fetch.line = lines.last_line();
        self.counts.fetches += lines.lines();
        while let Some(line) = lines.peek() {
            if !self.l1i.is_mru(line) {
                self.fetch_lines(lines);
                break;
            }
            lines.skip_through(line);
        }
        true
    }

    /// Fetches a block that may cross lines and pages.
    #[inline(never)]
    fn fetch_block(&mut self, block: &CodeBlock) {
        self.fetch_run(&block.first_run());
        self.fetch_run(&block.second_run());
    }

    /// Fetches the lines of a run, except its first line if that is the line of the last fetch.
    fn fetch_run(&mut self, run: &LineRun) {
        if run.lines == 0 {
            return;
        }
        let last = self.last_fetch;
        let mut lines = LineRange::new(run.first_line, run.lines.into());
        if !last.is_in_page_of(run) {
            self.translate_fetch(run.virtual_address);
        } else if run.first_line == last.line {
            lines.skip_through(run.first_line);
        }
        self.counts.fetches += lines.lines();
        self.last_fetch = LastFetch {
            virtual_address: run.virtual_address,
            line: lines.last_line(),
            page_bytes: self.itlb_page_bytes,
        };
        self.fetch_lines(lines);
    }

    /// Looks up lines in L1I. Their fetches are already counted.
    #[inline(never)]
    fn fetch_lines(&mut self, lines: LineRange) {
        for line in lines {
            if !self.l1i.is_mru(line) {
                self.fetch_line(line);
            }
        }
    }

    /// Looks up the page of a fetch in the instruction TLB, and counts a miss.
    fn translate_fetch(&mut self, virtual_address: VirtualAddress) {
        // Grows from lookup to lookup, because each change of the page also has a fetch.
        let now = self.counts.fetches + 1;
        if self.itlb.access_known(virtual_address, now).is_some() {
            return;
        }
        let (hit, slot) = self.itlb.access(virtual_address, now);
        if !hit {
            self.counts.itlb_misses += 1;
            self.counts.fetch_stall_cycles += self.tlb_miss_cycles;
            self.counts.fetch_walk_cycles += self.tlb_miss_cycles;
        }
        // The block has its physical address, so only the slot matters.
        self.itlb.remember(virtual_address, PhysicalAddress::default(), slot);
    }

    /// Looks up a line of L1I that is not the most recently used one, and counts misses and stalls.
    #[inline(never)]
    fn fetch_line(&mut self, line: LineAddress) {
        if self.l1i.access(line, false) == Access::Hit {
            return;
        }
        self.counts.l1i_misses += 1;
        let l2_hit = self.access_l2(line.in_longer_line(self.l2_shift - self.fetch_shift), false);
        self.counts.l2_fetch_misses += u64::from(!l2_hit);
        self.counts.fetch_stall_cycles += self.l1_miss_cycles(l2_hit);
    }

    /// The fast path of a load, or of a store if `is_write`. Makes and counts the access if it lies in one line of a page
    /// with a known translation. Returns whether it did so.
    #[inline(always)]
    fn access_data_fast(
        &mut self,
        virtual_address: VirtualAddress,
        bytes: u64,
        is_write: bool,
    ) -> bool {
        if self.crosses(virtual_address, bytes) {
            return false;
        }
        let accesses = self.data_accesses + 1;
        let Some(physical) = self.dtlb.access_known(virtual_address, accesses) else {
            return false;
        };
        self.data_accesses = accesses;
        self.counts.stores += u64::from(is_write);
        self.access_data_line(physical.line(self.data_shift), is_write);
        true
    }

    /// Makes a load, or a store if `is_write`. The caller has counted the store.
    #[inline(always)]
    fn access_data(
        &mut self,
        virtual_address: VirtualAddress,
        is_write: bool,
        translate: impl FnOnce(VirtualAddress) -> Option<PhysicalAddress>,
    ) {
        self.data_accesses += 1;
        let known = self.dtlb.access_known(virtual_address, self.data_accesses);
        if let Some(physical) = known.or_else(|| self.translate_data(virtual_address, translate)) {
            self.access_data_line(physical.line(self.data_shift), is_write);
        }
    }

    /// Looks up a page in the data TLB, when the fast path did not apply. Returns the physical address. `None` for a
    /// device: the access is then complete and counted.
    #[inline(never)]
    fn translate_data(
        &mut self,
        virtual_address: VirtualAddress,
        translate: impl FnOnce(VirtualAddress) -> Option<PhysicalAddress>,
    ) -> Option<PhysicalAddress> {
        let (hit, slot) = self.dtlb.access(virtual_address, self.data_accesses);
        if !hit {
            self.counts.dtlb_misses += 1;
            self.counts.data_stall_cycles += self.tlb_miss_cycles;
            self.counts.data_walk_cycles += self.tlb_miss_cycles;
        }
        let known = self.dtlb.translate(virtual_address);
        let Some(physical) = known.or_else(|| translate(virtual_address)) else {
            self.counts.device_accesses += 1;
            self.counts.data_stall_cycles += self.memory_cycles;
            return None;
        };
        self.dtlb.remember(virtual_address, physical, slot);
        Some(physical)
    }

    /// Looks up a line in L1D.
    #[inline(always)]
    fn access_data_line(&mut self, line: LineAddress, is_write: bool) {
        if !self.l1d.access_mru(line, is_write) {
            self.access_data_line_slow(line, is_write);
        }
    }

    /// Looks up a line of L1D that is not the most recently used one, and counts misses and stalls.
    #[inline(never)]
    fn access_data_line_slow(&mut self, line: LineAddress, is_write: bool) {
        let access = self.l1d.access(line, is_write);
        if access == Access::Hit {
            return;
        }
        let misses = if is_write {
            &mut self.counts.l1d_store_misses
        } else {
            &mut self.counts.l1d_load_misses
        };
        *misses += 1;
        let to_l2 = self.l2_shift - self.data_shift;
        let l2_hit = self.access_l2(line.in_longer_line(to_l2), false);
        self.counts.l2_data_misses += u64::from(!l2_hit);
        self.counts.data_stall_cycles += self.l1_miss_cycles(l2_hit);
        // The processor does not wait for the write-back.
        if let Access::MissWritesBack(dirty) = access {
            self.access_l2(dirty.in_longer_line(to_l2), true);
        }
    }

    /// The stall of an L1 miss.
    fn l1_miss_cycles(&self, l2_hit: bool) -> u64 {
        if l2_hit { self.l2_hit_cycles } else { self.memory_cycles }
    }

    /// Looks up a line in L2, fills it if it is absent, and marks it dirty if `is_write`. Returns whether it hit.
    #[inline(never)]
    fn access_l2(&mut self, line: LineAddress, is_write: bool) -> bool {
        match self.l2.access(line, is_write) {
            Access::Hit => true,
            Access::MissWritesBack(_) => {
                self.counts.l2_writebacks += 1;
                false
            }
            Access::Miss => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_lines_that_its_bytes_touch() {
        let lines = |address: u64, bytes: u32| {
            let virtual_address = VirtualAddress(address);
            let physical = PhysicalAddress(address + 4096);
            let run = LineRun::new(4, CodeSpan { virtual_address, physical, bytes });
            assert!(bytes == 0 || run.first_line == LineAddress((address + 4096) / 16));
            run.lines
        };
        assert_eq!([lines(0, 0), lines(0, 1), lines(0, 16), lines(0, 17)], [0, 1, 1, 2]);
        assert_eq!([lines(15, 1), lines(15, 2), lines(15, 17), lines(15, 18)], [1, 2, 2, 3]);
    }
}
