//! The reference: caches and TLBs of one processor, with what each access makes it wait, written
//! to be read. [`BlockingMachine`](crate::BlockingMachine) counts the same, fast.
//!
//! Blocking, as the paper's 1994 model: the processor does nothing while a miss is served.

use crate::cache::{Cache, Outcome};
use crate::counts::Counts;
use crate::model::BlockingModel;
use crate::tlb::Tlb;

/// What an access is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// An instruction line.
    Fetch,
    /// A load.
    Load,
    /// A store.
    Store,
}

/// One processor's caches and TLBs, physically indexed and tagged.
///
/// They are its own: what another processor writes does not take lines away from them.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    l1i: Cache,
    l1d: Cache,
    l2: Cache,
    itlb: Tlb,
    dtlb: Tlb,
    l1i_shift: u32,
    l1d_shift: u32,
    l2_shift: u32,
    ipage_shift: u32,
    dpage_shift: u32,
    instruction_cycles: u64,
    l2_hit_cycles: u64,
    memory_cycles: u64,
    tlb_miss_cycles: u64,
    /// Page and line of the last fetch, until the TLBs are flushed.
    last_fetch: Option<(u64, u64)>,
    counts: Counts,
}

impl Hierarchy {
    /// Cold caches of a model that [`BlockingModel::check`] has accepted.
    #[must_use]
    pub fn new(model: &BlockingModel) -> Self {
        Hierarchy {
            l1i: Cache::new(&model.l1i),
            l1d: Cache::new(&model.l1d),
            l2: Cache::new(&model.l2),
            itlb: Tlb::new(&model.itlb),
            dtlb: Tlb::new(&model.dtlb),
            l1i_shift: model.l1i.line_bytes.ilog2(),
            l1d_shift: model.l1d.line_bytes.ilog2(),
            l2_shift: model.l2.line_bytes.ilog2(),
            ipage_shift: model.itlb.page_bytes.ilog2(),
            dpage_shift: model.dtlb.page_bytes.ilog2(),
            instruction_cycles: model.instruction_cycles,
            l2_hit_cycles: model.l2_hit_cycles,
            memory_cycles: model.memory_cycles,
            tlb_miss_cycles: model.tlb_miss_cycles,
            last_fetch: None,
            counts: Counts::default(),
        }
    }

    /// Counts `number` instructions that are executed.
    pub fn execute(&mut self, number: u64) {
        self.counts.instructions += number;
        self.counts.cycles += number * self.instruction_cycles;
    }

    /// Takes back `number` instructions that were counted and were not executed after all; what was
    /// fetched for them stays.
    pub fn uncount_instructions(&mut self, number: u64) {
        self.counts.instructions -= number;
        self.counts.cycles -= number * self.instruction_cycles;
    }

    /// Accesses `physical` for the page of `virtual_address`; an access that crosses a line is two
    /// accesses of the caller's. Returns what the processor waits, in cycles.
    ///
    /// A fetch from the line of the last fetch is part of that one, and is not counted: see
    /// [`Counts::fetches`].
    pub fn access(&mut self, kind: AccessKind, virtual_address: u64, physical: u64) -> u64 {
        let stall = match kind {
            AccessKind::Fetch => self.fetch(virtual_address, physical),
            AccessKind::Load => self.data(virtual_address, Some(physical), false),
            AccessKind::Store => self.data(virtual_address, Some(physical), true),
        };
        self.counts.cycles += stall;
        stall
    }

    /// A load or store of a device at `virtual_address`: its page is looked up in the data TLB as any
    /// other. The caches are not asked, and it waits for a round trip as long as that to memory,
    /// `memory_cycles`. Returns what the processor waits, in cycles.
    pub fn access_device(&mut self, virtual_address: u64, write: bool) -> u64 {
        let stall = self.data(virtual_address, None, write);
        self.counts.cycles += stall;
        stall
    }

    fn fetch(&mut self, virtual_address: u64, physical: u64) -> u64 {
        let page = virtual_address >> self.ipage_shift;
        let line = physical >> self.l1i_shift;
        if self.last_fetch == Some((page, line)) {
            return 0;
        }
        self.last_fetch = Some((page, line));
        let mut stall = 0;
        self.counts.fetches += 1;
        if !self.itlb.access(page) {
            self.counts.itlb_misses += 1;
            stall += self.tlb_miss_cycles;
        }
        if self.l1i.access(line, false) != Outcome::Hit {
            self.counts.l1i_misses += 1;
            if self.fill_l2(physical, false) {
                stall += self.l2_hit_cycles;
            } else {
                self.counts.l2_fetch_misses += 1;
                stall += self.memory_cycles;
            }
        }
        self.counts.fetch_stall_cycles += stall;
        stall
    }

    /// `physical` is absent for a device.
    fn data(&mut self, virtual_address: u64, physical: Option<u64>, write: bool) -> u64 {
        let mut stall = 0;
        *(if write { &mut self.counts.stores } else { &mut self.counts.loads }) += 1;
        if !self.dtlb.access(virtual_address >> self.dpage_shift) {
            self.counts.dtlb_misses += 1;
            stall += self.tlb_miss_cycles;
        }
        stall += match physical {
            Some(physical) => self.cached(physical, write),
            None => {
                self.counts.device_accesses += 1;
                self.memory_cycles
            }
        };
        self.counts.data_stall_cycles += stall;
        stall
    }

    /// A data access through the caches; returns the wait.
    fn cached(&mut self, physical: u64, write: bool) -> u64 {
        let Outcome::Miss(evicted) = self.l1d.access(physical >> self.l1d_shift, write) else {
            return 0;
        };
        let misses = match write {
            true => &mut self.counts.l1d_store_misses,
            false => &mut self.counts.l1d_load_misses,
        };
        *misses += 1;
        let in_l2 = self.fill_l2(physical, false);
        self.counts.l2_data_misses += u64::from(!in_l2);
        // A dirty line goes to L2 behind the processor's back.
        if let Some(dirty) = evicted.filter(|line| line.dirty) {
            self.fill_l2(dirty.line << self.l1d_shift, true);
        }
        if in_l2 { self.l2_hit_cycles } else { self.memory_cycles }
    }

    /// Looks up L2 and fills it; true when it hit.
    fn fill_l2(&mut self, physical: u64, write: bool) -> bool {
        match self.l2.access(physical >> self.l2_shift, write) {
            Outcome::Hit => true,
            Outcome::Miss(evicted) => {
                self.counts.l2_writebacks += u64::from(evicted.is_some_and(|line| line.dirty));
                false
            }
        }
    }

    /// Forgets translations, as the processor does when its page tables change. The next fetch is a
    /// new one, whatever its line.
    pub fn flush_tlbs(&mut self) {
        self.itlb.flush();
        self.dtlb.flush();
        self.last_fetch = None;
    }

    /// Length of a line of L1D, bytes.
    pub(crate) fn data_line_bytes(&self) -> u64 {
        1 << self.l1d_shift
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
