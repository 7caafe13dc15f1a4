//! Caches and TLBs of one processor, with what each access makes it wait.
//!
//! Blocking, as the paper's 1994 model: the processor does nothing while a miss is served.

use crate::cache::{Cache, Outcome};
use crate::model::MachineModel;
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

/// What was counted. All are sums since the start; a region of interest is the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions.
    pub instructions: u64,
    /// Cycles, waits included.
    pub cycles: u64,
    /// Instruction lines fetched.
    pub fetches: u64,
    /// Of these, not in L1I.
    pub l1i_misses: u64,
    /// Data accesses: a line each.
    pub data_accesses: u64,
    /// Of these, not in L1D.
    pub l1d_misses: u64,
    /// L1 misses, of both sorts, that were not in L2.
    pub l2_misses: u64,
    /// Dirty lines of L2 that left for memory.
    pub l2_writebacks: u64,
    /// Pages not in the instruction TLB.
    pub itlb_misses: u64,
    /// Pages not in the data TLB.
    pub dtlb_misses: u64,
    /// Cycles waited for instructions.
    pub fetch_stall_cycles: u64,
    /// Cycles waited for data.
    pub data_stall_cycles: u64,
}

impl Counts {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            instructions: self.instructions - earlier.instructions,
            cycles: self.cycles - earlier.cycles,
            fetches: self.fetches - earlier.fetches,
            l1i_misses: self.l1i_misses - earlier.l1i_misses,
            data_accesses: self.data_accesses - earlier.data_accesses,
            l1d_misses: self.l1d_misses - earlier.l1d_misses,
            l2_misses: self.l2_misses - earlier.l2_misses,
            l2_writebacks: self.l2_writebacks - earlier.l2_writebacks,
            itlb_misses: self.itlb_misses - earlier.itlb_misses,
            dtlb_misses: self.dtlb_misses - earlier.dtlb_misses,
            fetch_stall_cycles: self.fetch_stall_cycles - earlier.fetch_stall_cycles,
            data_stall_cycles: self.data_stall_cycles - earlier.data_stall_cycles,
        }
    }
}

/// One processor's caches and TLBs, physically indexed and tagged.
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
    counts: Counts,
}

impl Hierarchy {
    /// Cold caches of a model that [`MachineModel::parse`] has accepted.
    #[must_use]
    pub fn new(model: &MachineModel) -> Self {
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
            counts: Counts::default(),
        }
    }

    /// Size of an instruction line as a power of two, so that the caller can feed whole lines.
    #[must_use]
    pub fn fetch_line_shift(&self) -> u32 {
        self.l1i_shift
    }

    /// Counts `number` instructions that are executed.
    pub fn execute(&mut self, number: u64) {
        self.counts.instructions += number;
        self.counts.cycles += number * self.instruction_cycles;
    }

    /// Accesses `physical` for the page of `virtual_address`; an access that crosses a line is two
    /// accesses of the caller's. Returns what the processor waits, in cycles.
    pub fn access(&mut self, kind: AccessKind, virtual_address: u64, physical: u64) -> u64 {
        let stall = match kind {
            AccessKind::Fetch => self.fetch(virtual_address, physical),
            AccessKind::Load => self.data(virtual_address, physical, false),
            AccessKind::Store => self.data(virtual_address, physical, true),
        };
        self.counts.cycles += stall;
        stall
    }

    fn fetch(&mut self, virtual_address: u64, physical: u64) -> u64 {
        let mut stall = 0;
        self.counts.fetches += 1;
        if !self.itlb.access(virtual_address >> self.ipage_shift) {
            self.counts.itlb_misses += 1;
            stall += self.tlb_miss_cycles;
        }
        if self.l1i.access(physical >> self.l1i_shift, false) != Outcome::Hit {
            self.counts.l1i_misses += 1;
            stall += self.below_l1(physical, false);
        }
        self.counts.fetch_stall_cycles += stall;
        stall
    }

    fn data(&mut self, virtual_address: u64, physical: u64, write: bool) -> u64 {
        let mut stall = 0;
        self.counts.data_accesses += 1;
        if !self.dtlb.access(virtual_address >> self.dpage_shift) {
            self.counts.dtlb_misses += 1;
            stall += self.tlb_miss_cycles;
        }
        if let Outcome::Miss(evicted) = self.l1d.access(physical >> self.l1d_shift, write) {
            self.counts.l1d_misses += 1;
            stall += self.below_l1(physical, false);
            // A dirty line goes to L2 behind the processor's back.
            if let Some(dirty) = evicted.filter(|line| line.dirty) {
                self.fill_l2(dirty.line << self.l1d_shift, true);
            }
        }
        self.counts.data_stall_cycles += stall;
        stall
    }

    /// Serves an L1 miss; returns the wait.
    fn below_l1(&mut self, physical: u64, write: bool) -> u64 {
        if self.fill_l2(physical, write) {
            self.l2_hit_cycles
        } else {
            self.counts.l2_misses += 1;
            self.memory_cycles
        }
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

    /// Forgets translations, as the processor does when its page tables change.
    pub fn flush_tlbs(&mut self) {
        self.itlb.flush();
        self.dtlb.flush();
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
