//! The processor that executes one instruction after the other and waits for each miss, for the hot
//! path of a simulator.

use crate::cache::Outcome;
use crate::code::{CodeBlock, LineRun};
use crate::counts::Counts;
use crate::lines::Lines;
use crate::model::BlockingModel;
use crate::pages::Pages;

/// One processor with its caches and TLBs. It counts what [`Hierarchy`] counts, which says what each
/// count means, and takes a nanosecond or two for an access.
///
/// - Its caches are its own and not coherent with those of others: see the crate's page.
/// - Physical addresses may be any but those of the last 4 KiB of 64 bits. They come with each block, and for data from the caller, once for each page of
///   4 KiB until [`BlockingMachine::flush_tlbs`]. How often the caller is asked has no bearing on the counts.
/// - LRU is fast with any number of ways, best with 1, 2, 4, 8 and 16. With other replacement each
///   access takes the way of the reference.
///
/// [`Hierarchy`]: crate::Hierarchy
#[derive(Clone, Debug)]
pub struct BlockingMachine {
    l1i: Lines,
    l1d: Lines,
    l2: Lines,
    itlb: Pages,
    dtlb: Pages,
    ipage_bytes: u64,
    /// Size of an instruction line as a power of two.
    fetch_shift: u32,
    instruction_cycles: u64,
    l2_hit_cycles: u64,
    memory_cycles: u64,
    tlb_miss_cycles: u64,
    last_fetch: LastFetch,
    /// Loads and stores.
    data_accesses: u64,
    /// All but cycles and loads, which follow from the others.
    counts: Counts,
}

/// Where the last fetch was.
#[derive(Clone, Copy, Debug)]
struct LastFetch {
    /// An address in its page.
    virtual_address: u64,
    /// Where its line begins.
    physical: u64,
    /// Length of its page; zero if there was none since the TLBs were flushed.
    page_bytes: u64,
}

const NO_FETCH: LastFetch = LastFetch { virtual_address: 0, physical: 0, page_bytes: 0 };

impl BlockingMachine {
    /// Cold caches of a model that [`BlockingModel::check`] has accepted.
    #[must_use]
    pub fn new(model: &BlockingModel) -> Self {
        BlockingMachine {
            l1i: Lines::new(&model.l1i),
            l1d: Lines::new(&model.l1d),
            l2: Lines::new(&model.l2),
            itlb: Pages::new(&model.itlb),
            dtlb: Pages::new(&model.dtlb),
            ipage_bytes: model.itlb.page_bytes,
            fetch_shift: model.l1i.line_bytes.ilog2(),
            instruction_cycles: model.instruction_cycles,
            l2_hit_cycles: model.l2_hit_cycles,
            memory_cycles: model.memory_cycles,
            tlb_miss_cycles: model.tlb_miss_cycles,
            last_fetch: NO_FETCH,
            data_accesses: 0,
            counts: Counts::default(),
        }
    }

    /// Size of an instruction line as a power of two, for [`CodeBlock::new`].
    #[must_use]
    pub fn fetch_line_shift(&self) -> u32 {
        self.fetch_shift
    }

    /// Cycles of an instruction that waits for nothing.
    #[must_use]
    pub fn instruction_cycles(&self) -> u64 {
        self.instruction_cycles
    }

    /// Executes a block, whose loads and stores the caller tells behind it.
    #[inline]
    pub fn execute_block(&mut self, block: &CodeBlock) {
        self.counts.instructions += u64::from(block.instructions);
        if !self.fetched_at_once(block) {
            self.fetch_all(block);
        }
    }

    /// Takes back the last `instructions` of a block, at most as many as it has, which were not
    /// executed after all: an exception in its middle. What was fetched for them stays.
    #[inline]
    pub fn uncount_instructions(&mut self, instructions: u32) {
        self.counts.instructions -= u64::from(instructions);
    }

    /// Loads at `virtual_address`; an access that [crosses](BlockingMachine::crosses) a line is two accesses
    /// of the caller's. `translate` gives the physical address of `virtual_address`, when its page is
    /// not known, or none for a device: see [`Hierarchy::device`]. A device is asked for each time.
    ///
    /// [`Hierarchy::device`]: crate::Hierarchy::device
    #[inline]
    pub fn load(&mut self, virtual_address: u64, translate: impl FnOnce(u64) -> Option<u64>) {
        self.data(virtual_address, false, translate);
    }

    /// Stores at `virtual_address`, as [`BlockingMachine::load`] does.
    #[inline]
    pub fn store(&mut self, virtual_address: u64, translate: impl FnOnce(u64) -> Option<u64>) {
        self.counts.stores += 1;
        self.data(virtual_address, true, translate);
    }

    /// Loads `bytes` at `virtual_address` as [`BlockingMachine::load`] does, if they lie in one line of a
    /// page that the TLB had when it was used last. Else does nothing and returns false. It calls
    /// nothing that the caller has to come back from, so that a caller can do without a frame.
    #[inline(always)]
    #[must_use]
    pub fn load_fast(&mut self, virtual_address: u64, bytes: u64) -> bool {
        self.data_at_once(virtual_address, bytes, false)
    }

    /// Stores as [`BlockingMachine::load_fast`] loads.
    #[inline(always)]
    #[must_use]
    pub fn store_fast(&mut self, virtual_address: u64, bytes: u64) -> bool {
        self.data_at_once(virtual_address, bytes, true)
    }

    /// Whether an access of `bytes`, at least 1, touches more than one data line.
    #[inline]
    #[must_use]
    pub fn crosses(&self, virtual_address: u64, bytes: u64) -> bool {
        let last = virtual_address.wrapping_add(bytes - 1);
        virtual_address ^ last >= self.l1d.line_bytes()
    }

    /// An address in each data line that an access of `bytes`, at least 1, touches: its own, and the
    /// first of each line behind.
    pub fn data_lines(
        &self,
        virtual_address: u64,
        bytes: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let line_bytes = self.l1d.line_bytes();
        let offset = virtual_address & (line_bytes - 1);
        let further = (offset + (bytes - 1)) / line_bytes;
        let start = virtual_address - offset;
        let behind = (1..=further).map(move |line| start.wrapping_add(line * line_bytes));
        std::iter::once(virtual_address).chain(behind)
    }

    /// Forgets translations, as the processor does when its page tables change. The next fetch is a
    /// new one, whatever its line.
    pub fn flush_tlbs(&mut self) {
        self.itlb.flush();
        self.dtlb.flush();
        self.last_fetch = NO_FETCH;
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

    /// Fetches a block of one page, whose page is known or that of the last fetch. Of its lines it
    /// fetches those that were each used last in their sets, for which no cache has to note anything,
    /// and leaves the rest to [`BlockingMachine::fetch_rest`]. Does nothing for other blocks.
    #[inline(always)]
    fn fetched_at_once(&mut self, block: &CodeBlock) -> bool {
        let run = block.first();
        if block.second().bytes != 0 || run.bytes == 0 {
            return false;
        }
        let line_bytes = self.l1i.line_bytes();
        let (mut line, end) = (run.physical, run.physical + u64::from(run.bytes));
        let fetches = self.counts.fetches;
        if run.virtual_address ^ self.last_fetch.virtual_address >= self.last_fetch.page_bytes {
            if self.itlb.again(run.virtual_address, fetches + 1).is_none() {
                return false;
            }
            self.last_fetch.virtual_address = run.virtual_address;
            self.last_fetch.page_bytes = self.ipage_bytes;
        } else if line == self.last_fetch.physical {
            line += line_bytes;
        }
        self.last_fetch.physical = end - line_bytes;
        self.counts.fetches = fetches + ((end - line) >> self.fetch_shift);
        while line != end {
            if !self.l1i.is_first(line) {
                self.fetch_rest(line, end);
                break;
            }
            line += line_bytes;
        }
        true
    }

    /// Looks up the lines from `line` to `end`, which are counted already.
    #[inline(never)]
    fn fetch_rest(&mut self, mut line: u64, end: u64) {
        while line != end {
            if !self.l1i.again(line, false) {
                self.line_of_code(line);
            }
            line += self.l1i.line_bytes();
        }
    }

    #[inline(never)]
    fn fetch_all(&mut self, block: &CodeBlock) {
        self.fetch(&block.first());
        self.fetch(&block.second());
    }

    /// Fetches the lines of a run: all but the first, if that is the line of the last fetch.
    fn fetch(&mut self, run: &LineRun) {
        if run.bytes == 0 {
            return;
        }
        let last = self.last_fetch;
        let end = run.physical + u64::from(run.bytes);
        let mut line = run.physical;
        if run.virtual_address ^ last.virtual_address >= last.page_bytes {
            self.page_of_code(run.virtual_address);
        } else if line == last.physical {
            line += self.l1i.line_bytes();
        }
        self.counts.fetches += (end - line) >> self.fetch_shift;
        self.last_fetch = LastFetch {
            virtual_address: run.virtual_address,
            physical: end - self.l1i.line_bytes(),
            page_bytes: self.ipage_bytes,
        };
        self.fetch_rest(line, end);
    }

    /// Goes to another page than that of the last fetch.
    #[inline(always)]
    fn page_of_code(&mut self, virtual_address: u64) {
        // Each page that is gone to has a fetch, so this number grows; zero is for never.
        let now = self.counts.fetches + 1;
        if self.itlb.again(virtual_address, now).is_none() {
            self.find_page_of_code(virtual_address, now);
        }
    }

    #[inline(never)]
    fn find_page_of_code(&mut self, virtual_address: u64, now: u64) {
        let found = self.itlb.access(virtual_address, now);
        if !found.hit {
            self.counts.itlb_misses += 1;
            self.counts.fetch_stall_cycles += self.tlb_miss_cycles;
        }
        // Where it lies is the block's affair.
        self.itlb.remember(virtual_address, virtual_address, &found);
    }

    #[inline(never)]
    fn line_of_code(&mut self, physical: u64) {
        if self.l1i.access(physical, false) == Outcome::Hit {
            return;
        }
        self.counts.l1i_misses += 1;
        let in_l2 = self.fill_l2(physical, false);
        self.counts.l2_fetch_misses += u64::from(!in_l2);
        self.counts.fetch_stall_cycles += self.l1_miss_cycles(in_l2);
    }

    #[inline(always)]
    fn data_at_once(&mut self, virtual_address: u64, bytes: u64, write: bool) -> bool {
        if self.crosses(virtual_address, bytes) {
            return false;
        }
        let accesses = self.data_accesses + 1;
        let Some(physical) = self.dtlb.again(virtual_address, accesses) else { return false };
        self.data_accesses = accesses;
        self.counts.stores += u64::from(write);
        if !self.l1d.again(physical, write) {
            self.line_of_data(physical, write);
        }
        true
    }

    #[inline(always)]
    fn data(
        &mut self,
        virtual_address: u64,
        write: bool,
        translate: impl FnOnce(u64) -> Option<u64>,
    ) {
        self.data_accesses += 1;
        let known = self.dtlb.again(virtual_address, self.data_accesses);
        let Some(physical) = known.or_else(|| self.find_page_of_data(virtual_address, translate))
        else {
            return;
        };
        if !self.l1d.again(physical, write) {
            self.line_of_data(physical, write);
        }
    }

    /// The physical address of `virtual_address`; none for a device, whose access is then done with.
    #[inline(never)]
    fn find_page_of_data(
        &mut self,
        virtual_address: u64,
        translate: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<u64> {
        let found = self.dtlb.access(virtual_address, self.data_accesses);
        if !found.hit {
            self.counts.dtlb_misses += 1;
            self.counts.data_stall_cycles += self.tlb_miss_cycles;
        }
        let known = self.dtlb.translate(virtual_address);
        let Some(physical) = known.or_else(|| translate(virtual_address)) else {
            self.counts.device_accesses += 1;
            self.counts.data_stall_cycles += self.memory_cycles;
            return None;
        };
        self.dtlb.remember(virtual_address, physical, &found);
        Some(physical)
    }

    #[inline(never)]
    fn line_of_data(&mut self, physical: u64, write: bool) {
        let Outcome::Miss(evicted) = self.l1d.access(physical, write) else { return };
        let misses = match write {
            true => &mut self.counts.l1d_store_misses,
            false => &mut self.counts.l1d_load_misses,
        };
        *misses += 1;
        let in_l2 = self.fill_l2(physical, false);
        self.counts.l2_data_misses += u64::from(!in_l2);
        self.counts.data_stall_cycles += self.l1_miss_cycles(in_l2);
        // A dirty line goes to L2 behind the processor's back.
        if let Some(dirty) = evicted.filter(|line| line.dirty) {
            self.fill_l2(dirty.line, true);
        }
    }

    fn l1_miss_cycles(&self, in_l2: bool) -> u64 {
        if in_l2 { self.l2_hit_cycles } else { self.memory_cycles }
    }

    /// Looks up L2 and fills it; true when it hit.
    #[inline(never)]
    fn fill_l2(&mut self, physical: u64, write: bool) -> bool {
        if self.l2.again(physical, write) {
            return true;
        }
        match self.l2.access(physical, write) {
            Outcome::Hit => true,
            Outcome::Miss(evicted) => {
                self.counts.l2_writebacks += u64::from(evicted.is_some_and(|line| line.dirty));
                false
            }
        }
    }
}
