//! The processor that executes one instruction after the other and waits for each miss, for the hot
//! path of a simulator.

use crate::cache::Outcome;
use crate::code::{CodeBlock, LineRun};
use crate::counts::Counts;
use crate::lines::Lines;
use crate::model::MachineModel;
use crate::pages::{Pages, Translations};

/// No page and no line has this number.
const NONE: u64 = u64::MAX;

/// One processor with its caches and TLBs. It counts what [`Hierarchy`] counts, which says what each
/// count means, and takes a nanosecond or two for an access.
///
/// - Its caches are its own and not coherent with those of others: see the crate's page.
/// - Physical addresses come with each block, and for data from the caller, once for each page of
///   4 KiB until [`InOrder::flush_tlbs`]. How often the caller is asked has no bearing on the counts.
/// - LRU is fast with any number of ways, best with 1, 2, 4, 8 and 16. With other replacement each
///   access takes the way of the reference.
///
/// [`Hierarchy`]: crate::Hierarchy
#[derive(Clone, Debug)]
pub struct InOrder {
    l1i: Lines,
    l1d: Lines,
    l2: Lines,
    itlb: Pages,
    dtlb: Pages,
    translations: Translations,
    l1i_shift: u32,
    l1d_shift: u32,
    l2_shift: u32,
    /// Page over line of L1I.
    ipage_line_shift: u32,
    dpage_shift: u32,
    instruction_cycles: u64,
    l2_hit_cycles: u64,
    memory_cycles: u64,
    tlb_miss_cycles: u64,
    /// Page and line of the last fetch.
    last_page: u64,
    last_line: u64,
    /// Loads and stores.
    data_accesses: u64,
    /// All but cycles and loads, which follow from the others.
    counts: Counts,
}

impl InOrder {
    /// Cold caches of a model that [`MachineModel::check`] has accepted.
    #[must_use]
    pub fn new(model: &MachineModel) -> Self {
        let l1i_shift = model.l1i.line_bytes.ilog2();
        InOrder {
            l1i: Lines::new(&model.l1i),
            l1d: Lines::new(&model.l1d),
            l2: Lines::new(&model.l2),
            itlb: Pages::new(&model.itlb),
            dtlb: Pages::new(&model.dtlb),
            translations: Translations::new(),
            l1i_shift,
            l1d_shift: model.l1d.line_bytes.ilog2(),
            l2_shift: model.l2.line_bytes.ilog2(),
            ipage_line_shift: model.itlb.page_bytes.ilog2() - l1i_shift,
            dpage_shift: model.dtlb.page_bytes.ilog2(),
            instruction_cycles: model.instruction_cycles,
            l2_hit_cycles: model.l2_hit_cycles,
            memory_cycles: model.memory_cycles,
            tlb_miss_cycles: model.tlb_miss_cycles,
            last_page: NONE,
            last_line: NONE,
            data_accesses: 0,
            counts: Counts::default(),
        }
    }

    /// Size of an instruction line as a power of two, for [`CodeBlock::new`].
    #[must_use]
    pub fn fetch_line_shift(&self) -> u32 {
        self.l1i_shift
    }

    /// Executes a block, whose loads and stores the caller tells behind it.
    #[inline]
    pub fn block(&mut self, block: &CodeBlock) {
        self.counts.instructions += u64::from(block.instructions);
        self.fetch(&block.first);
        if block.second.count != 0 {
            self.fetch(&block.second);
        }
    }

    /// Takes back the last `instructions` of a block, at most as many as it has, which were not
    /// executed after all: an exception in its middle. What was fetched for them stays.
    #[inline]
    pub fn take_back(&mut self, instructions: u32) {
        self.counts.instructions -= u64::from(instructions);
    }

    /// Loads at `virtual_address`; an access that [crosses](InOrder::crosses) a line is two accesses
    /// of the caller's. `translate` gives the physical address of `virtual_address`, when its page is
    /// not known, or none for a device: see [`Hierarchy::device`]. A device is asked for each time.
    ///
    /// [`Hierarchy::device`]: crate::Hierarchy::device
    #[inline]
    pub fn load(&mut self, virtual_address: u64, translate: impl FnOnce(u64) -> Option<u64>) {
        self.data(virtual_address, false, translate);
    }

    /// Stores at `virtual_address`, as [`InOrder::load`] does.
    #[inline]
    pub fn store(&mut self, virtual_address: u64, translate: impl FnOnce(u64) -> Option<u64>) {
        self.counts.stores += 1;
        self.data(virtual_address, true, translate);
    }

    /// Whether an access of `bytes`, at least 1, touches more than one data line.
    #[inline]
    #[must_use]
    pub fn crosses(&self, virtual_address: u64, bytes: u64) -> bool {
        let last = virtual_address.wrapping_add(bytes - 1);
        (virtual_address ^ last) >> self.l1d_shift != 0
    }

    /// An address in each data line that an access of `bytes`, at least 1, touches: its own, and the
    /// first of each line behind.
    pub fn data_lines(
        &self,
        virtual_address: u64,
        bytes: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let shift = self.l1d_shift;
        let offset = virtual_address & ((1 << shift) - 1);
        let further = (offset + (bytes - 1)) >> shift;
        let start = virtual_address - offset;
        let behind = (1..=further).map(move |line| start.wrapping_add(line << shift));
        std::iter::once(virtual_address).chain(behind)
    }

    /// Forgets translations, as the processor does when its page tables change. The next fetch is a
    /// new one, whatever its line.
    pub fn flush_tlbs(&mut self) {
        self.itlb.flush();
        self.dtlb.flush();
        self.translations.flush();
        (self.last_page, self.last_line) = (NONE, NONE);
    }

    /// Cycles so far, waits included.
    #[inline]
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.counts.instructions * self.instruction_cycles
            + self.counts.fetch_stall_cycles
            + self.counts.data_stall_cycles
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let loads = self.data_accesses - self.counts.stores;
        Counts { cycles: self.cycles(), loads, ..self.counts }
    }

    /// Fetches the lines of a run: each is another than the one before it, but for the first.
    #[inline(always)]
    fn fetch(&mut self, run: &LineRun) {
        for at in 0..run.count {
            let page = (run.virtual_line + at) >> self.ipage_line_shift;
            let line = run.line + at;
            if page == self.last_page && line == self.last_line {
                continue;
            }
            self.counts.fetches += 1;
            if page != self.last_page {
                self.last_page = page;
                if !self.itlb.again(page, self.counts.fetches) {
                    self.page_of_code(page);
                }
            }
            self.last_line = line;
            if !self.l1i.again(line, false) {
                self.line_of_code(line);
            }
        }
    }

    #[inline(never)]
    fn page_of_code(&mut self, page: u64) {
        if !self.itlb.access(page, self.counts.fetches) {
            self.counts.itlb_misses += 1;
            self.counts.fetch_stall_cycles += self.tlb_miss_cycles;
        }
    }

    #[inline(never)]
    fn line_of_code(&mut self, line: u64) {
        if self.l1i.access(line, false) == Outcome::Hit {
            return;
        }
        self.counts.l1i_misses += 1;
        let in_l2 = self.fill_l2(line << self.l1i_shift, false);
        self.counts.l2_fetch_misses += u64::from(!in_l2);
        self.counts.fetch_stall_cycles += self.l1_miss_cycles(in_l2);
    }

    #[inline(always)]
    fn data(
        &mut self,
        virtual_address: u64,
        write: bool,
        translate: impl FnOnce(u64) -> Option<u64>,
    ) {
        self.data_accesses += 1;
        let page = virtual_address >> self.dpage_shift;
        if !self.dtlb.again(page, self.data_accesses) {
            self.page_of_data(page);
        }
        let known = self.translations.get(virtual_address);
        let Some(physical) = known.or_else(|| self.learn(virtual_address, translate)) else {
            self.counts.device_accesses += 1;
            self.counts.data_stall_cycles += self.memory_cycles;
            return;
        };
        let line = physical >> self.l1d_shift;
        if !self.l1d.again(line, write) {
            self.line_of_data(line, write);
        }
    }

    #[inline(never)]
    fn page_of_data(&mut self, page: u64) {
        if !self.dtlb.access(page, self.data_accesses) {
            self.counts.dtlb_misses += 1;
            self.counts.data_stall_cycles += self.tlb_miss_cycles;
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(
        &mut self,
        virtual_address: u64,
        translate: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<u64> {
        let physical = translate(virtual_address)?;
        self.translations.put(virtual_address, physical);
        Some(physical)
    }

    #[inline(never)]
    fn line_of_data(&mut self, line: u64, write: bool) {
        let Outcome::Miss(evicted) = self.l1d.access(line, write) else { return };
        let misses = match write {
            true => &mut self.counts.l1d_store_misses,
            false => &mut self.counts.l1d_load_misses,
        };
        *misses += 1;
        let in_l2 = self.fill_l2(line << self.l1d_shift, false);
        self.counts.l2_data_misses += u64::from(!in_l2);
        self.counts.data_stall_cycles += self.l1_miss_cycles(in_l2);
        // A dirty line goes to L2 behind the processor's back.
        if let Some(dirty) = evicted.filter(|line| line.dirty) {
            self.fill_l2(dirty.line << self.l1d_shift, true);
        }
    }

    fn l1_miss_cycles(&self, in_l2: bool) -> u64 {
        if in_l2 { self.l2_hit_cycles } else { self.memory_cycles }
    }

    /// Looks up L2 and fills it; true when it hit.
    #[inline]
    fn fill_l2(&mut self, physical: u64, write: bool) -> bool {
        let line = physical >> self.l2_shift;
        if self.l2.again(line, write) {
            return true;
        }
        match self.l2.access(line, write) {
            Outcome::Hit => true,
            Outcome::Miss(evicted) => {
                self.counts.l2_writebacks += u64::from(evicted.is_some_and(|line| line.dirty));
                false
            }
        }
    }
}
