//! The interface of cores with one thread, and the parts that the in-order and the out-of-order core share. The plugin
//! calls a core as [`AnyCore`] through [`SingleThreadCore`].

use std::ops::Range;

use super::code_tags::{CodeTags, FoundCode};
use super::fill_buffers::{LineFillBuffers, Served};
use super::front_end::{Fetched, FrontEnd, InstructionTimes};
use super::in_order::InOrderCore;
use super::instruction::{Instruction, Special, Template};
use super::model::CoreModel;
use super::out_of_order::OutOfOrderCore;
use super::retirement::Retirement;
use super::store_buffer::StoreBuffer;
use super::{Access, AccessMode, CoreCounts, ExecutedBlock, Latencies, Memory, wait_parts};
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::cycle::Cycle;
use crate::predict::Prediction;

/// A core that executes one thread.
pub trait SingleThreadCore {
    /// Executes the rest of a block from instruction `first` on. The result is as if the core had executed the whole
    /// block at once. `executed` counts instructions from the start of the block, but has only the accesses of the
    /// rest.
    fn run_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    );

    /// Only for the provided methods.
    #[doc(hidden)]
    fn common(&self) -> &CommonParts;

    /// Only for the provided methods.
    #[doc(hidden)]
    fn common_mut(&mut self) -> &mut CommonParts;

    /// Executes a block, or the part that the guest executed.
    fn run<M: Memory>(&mut self, block: &Template, executed: &ExecutedBlock, memory: &mut M) {
        self.run_from(0, block, executed, memory);
    }

    /// Takes an interrupt or exception after the last instruction: flushes the front end.
    fn interrupt(&mut self) {
        self.common_mut().interrupt();
    }

    /// Delays the first instruction of an interrupt handler by `cycles`: the processor itself reads memory at
    /// the entry. Call it after [`SingleThreadCore::interrupt`].
    fn delay_entry(&mut self, cycles: u64) {
        self.common_mut().front.delay(cycles);
    }

    /// Drops the decoded instructions at these physical addresses: the code has changed, or has left all caches.
    fn forget_code(&mut self, physical: Range<PhysicalAddress>) {
        self.common_mut().code.forget_code(physical);
    }

    /// Notes that translations of addresses have changed: the next line is fetched in any case.
    fn flush_translations(&mut self) {
        self.common_mut().code.forget_line();
    }

    /// The cycle of the last retirement. An in-order core retires an instruction after its issue. A blocking core also
    /// waits until the instruction's misses are filled.
    #[must_use]
    #[inline(always)]
    fn time(&self) -> Cycle {
        self.common().retirement.cycle()
    }

    /// The cycles until the last retirement.
    #[must_use]
    #[inline(always)]
    fn cycles(&self) -> u64 {
        self.time() - Cycle::START
    }

    #[must_use]
    fn counts(&self) -> CoreCounts {
        self.common().retirement.counts()
    }
}

/// The parts that every single-thread core has.
#[derive(Clone, Debug)]
pub struct CommonParts {
    pub(super) latencies: Latencies,
    pub(super) code: CodeTags,
    pub(super) front: FrontEnd,
    pub(super) stores: StoreBuffer,
    pub(super) fill_buffers: LineFillBuffers,
    /// No load issues before this cycle.
    pub(super) loads_from: Cycle,
    pub(super) retirement: Retirement,
}

impl CommonParts {
    /// `data_line_bytes` is the line size of the L1D, a power of two.
    pub(super) fn new(model: &CoreModel, data_line_bytes: u64, stores: StoreBuffer) -> CommonParts {
        CommonParts {
            latencies: Latencies::new(model),
            code: CodeTags::new(model),
            front: FrontEnd::new(model),
            stores,
            fill_buffers: LineFillBuffers::new(model.data.mshrs, data_line_bytes),
            loads_from: Cycle::START,
            retirement: Retirement::new(model.width),
        }
    }

    /// Fetches the next instruction.
    #[inline(always)]
    pub(super) fn fetch<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
    ) -> Fetched {
        if instruction.starts() {
            return self.fetch_start(block, instruction, memory);
        }
        let counts = &mut self.retirement.counts;
        self.front.fetch(block, instruction, FoundCode::default(), memory, counts)
    }

    /// Fetches the next instruction, which starts a line of code or of decoded instructions.
    #[inline(always)]
    pub(super) fn fetch_start<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
    ) -> Fetched {
        let found = self.code.look_up(block, &block.code_start(0, instruction));
        self.front.fetch(block, instruction, found, memory, &mut self.retirement.counts)
    }

    /// Predicts and counts the branch at the end of a block, and applies its cost to later fetches. `next`: the address
    /// that executed next.
    #[inline]
    pub(super) fn branch(
        &mut self,
        block: &Template,
        next: VirtualAddress,
        times: InstructionTimes,
    ) {
        let Some((kind, address)) = block.summary.branch else { return };
        let counts = &mut self.retirement.counts;
        let predicted = self.code.predict(block, (kind, address), next, counts);
        self.front.branch(kind, predicted, times);
        if predicted.prediction == Prediction::Mispredicted {
            self.retirement.mispredicted(self.front.resumes());
        }
    }

    /// Executes and counts a store of `instruction` that issues at `issued`. Returns when its line has arrived, or when a
    /// combining buffer takes a non-temporal store. No later access starts before `present`.
    pub(super) fn store_of<M: Memory>(
        &mut self,
        instruction: &Instruction,
        store: &Access,
        issued: Cycle,
        present: Cycle,
        memory: &mut M,
    ) -> Served {
        if !instruction.streams() {
            return self.store(store, issued, present, memory);
        }
        self.retirement.counts.stores += 1;
        let wait = memory.access(store, AccessMode::StoreAround, issued);
        Served::without_wait_for_buffer(issued + wait, wait > 0)
    }

    /// Executes and counts a store that issues at `issued`, through the caches. Returns when its line has arrived. No
    /// later access starts before `present`.
    #[inline(always)]
    pub(super) fn store<M: Memory>(
        &mut self,
        store: &Access,
        issued: Cycle,
        present: Cycle,
        memory: &mut M,
    ) -> Served {
        let wait = memory.access(store, AccessMode::Store, issued);
        let parts = wait_parts(memory, wait);
        let served = self.fill_buffers.serve(store, issued, (wait, parts), present);
        self.retirement.counts.stores += 1;
        self.retirement.counts.store_misses += u64::from(served.missed);
        served
    }

    /// Applies the effects of a special instruction to later instructions. It issues or enters at `started`, and is
    /// done at `done`.
    pub(super) fn finish_special(&mut self, special: Special, started: Cycle, done: Cycle) {
        if special.drains() {
            self.front.resume_at(done);
        }
        if special.stops_fetch() {
            self.front.resume_at(started + self.latencies.special(special));
        }
        if special.orders_memory() {
            self.loads_from = self.loads_from.max(done);
        }
    }

    fn interrupt(&mut self) {
        self.retirement.counts.interrupts += 1;
        let (retired, drained) = (self.retirement.cycle(), self.stores.all_left());
        self.front.resume_at(self.latencies.interrupted(retired, drained));
        self.code.forget_line();
    }
}

/// A core with one thread, in order or out of order as its model says.
#[derive(Clone, Debug)]
pub enum AnyCore {
    OutOfOrder(Box<OutOfOrderCore>),
    InOrder(Box<InOrderCore>),
}

impl AnyCore {
    /// Returns a core that has executed nothing, of a model that [`CoreModel::check`] has accepted, or `None` if the
    /// model has threads. `data_line_bytes` is the line size of its L1D, a power of two.
    #[must_use]
    pub fn new(model: &CoreModel, data_line_bytes: u64) -> Option<AnyCore> {
        match OutOfOrderCore::new(model, data_line_bytes) {
            Some(core) => Some(AnyCore::OutOfOrder(Box::new(core))),
            None => {
                let core = InOrderCore::new(model, data_line_bytes)?;
                Some(AnyCore::InOrder(Box::new(core)))
            }
        }
    }
}

impl SingleThreadCore for AnyCore {
    #[inline(always)]
    fn run_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        match self {
            AnyCore::OutOfOrder(core) => core.run_from(first, block, executed, memory),
            AnyCore::InOrder(core) => core.run_from(first, block, executed, memory),
        }
    }

    #[inline(always)]
    fn common(&self) -> &CommonParts {
        match self {
            AnyCore::OutOfOrder(core) => core.common(),
            AnyCore::InOrder(core) => core.common(),
        }
    }

    #[inline(always)]
    fn common_mut(&mut self) -> &mut CommonParts {
        match self {
            AnyCore::OutOfOrder(core) => core.common_mut(),
            AnyCore::InOrder(core) => core.common_mut(),
        }
    }
}
