//! The processors of a model, as the level `ooo` runs them.

use std::ops::Range;

use attribution::KernelContext;
use machine::SystemModel;
use machine::core::{
    CoreCounts, ExecutedBlock, InOrderCore, Layout, Memory, MultithreadedCore, OutOfOrderCore,
    Template, Warmed,
};
use machine::memory::{MemorySystem, without_mshr_limit};

use crate::dma::Write;
use crate::misses::{Misses, context_of};
use crate::pipeline::Pipeline;
use crate::sampling::{Sampler, Sampling};
use crate::service_misses::{EndedFault, Executing};
use crate::structures::Guest;
use simrecord::record::Record;

/// The core that a vCPU executes on.
pub(crate) enum Core {
    /// An in-order core.
    InOrder(Box<InOrderCore>),
    /// An out-of-order core.
    OutOfOrder(Box<OutOfOrderCore>),
    /// A thread of a core that several vCPUs share.
    Thread(Thread),
}

/// A thread of a core.
pub(crate) struct Thread {
    core: *mut MultithreadedCore,
    thread: usize,
}

impl Thread {
    fn core(&mut self) -> &mut MultithreadedCore {
        // SAFETY: lives as long as the process; one thread of the host uses it, and no use is
        // nested in another.
        unsafe { &mut *self.core }
    }

    fn known(&self) -> &MultithreadedCore {
        // SAFETY: as above.
        unsafe { &*self.core }
    }
}

impl Core {
    /// Executes a block from instruction `first` on.
    #[inline(always)]
    pub(crate) fn run_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        match self {
            Core::OutOfOrder(core) => core.run_from(first, block, executed, memory),
            Core::InOrder(core) => core.run_from(first, block, executed, memory),
            Core::Thread(of) => {
                let thread = of.thread;
                of.core().run_from(thread, (first, block), executed, memory);
            }
        }
    }

    /// Executes a block without times: see [`OutOfOrderCore::warm_from`]. Only an out-of-order core can.
    #[inline]
    pub(crate) fn warm_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) -> Warmed {
        match self {
            Core::OutOfOrder(core) => core.warm_from(first, block, executed, memory),
            Core::InOrder(_) | Core::Thread(_) => {
                self.run_from(first, block, executed, memory);
                Warmed::default()
            }
        }
    }

    /// An interrupt or exception is taken after the instruction that was executed last.
    pub(crate) fn interrupt(&mut self) {
        match self {
            Core::OutOfOrder(core) => core.interrupt(),
            Core::InOrder(core) => core.interrupt(),
            Core::Thread(of) => {
                let thread = of.thread;
                of.core().interrupt(thread);
            }
        }
    }

    /// The processor waits so long for what it reads itself before the handler's first instruction.
    pub(crate) fn delay_entry(&mut self, cycles: u64) {
        match self {
            Core::OutOfOrder(core) => core.delay_entry(cycles),
            Core::InOrder(core) => core.delay_entry(cycles),
            Core::Thread(of) => {
                let thread = of.thread;
                of.core().delay_entry(thread, cycles);
            }
        }
    }

    /// Code at these physical addresses may have changed. The threads of a core have no cache of decoded
    /// instructions.
    pub(crate) fn forget_code(&mut self, physical: Range<u64>) {
        match self {
            Core::OutOfOrder(core) => core.forget_code(physical),
            Core::InOrder(core) => core.forget_code(physical),
            Core::Thread(_) => {}
        }
    }

    /// The address translations have changed.
    pub(crate) fn forget_translations(&mut self) {
        match self {
            Core::OutOfOrder(core) => core.flush_translations(),
            Core::InOrder(core) => core.flush_translations(),
            Core::Thread(of) => {
                let thread = of.thread;
                of.core().flush_translations(thread);
            }
        }
    }

    /// Has the threads issue what does not depend on later instructions of each other.
    pub(crate) fn advance(&mut self) {
        if let Core::Thread(of) = self {
            of.core().advance();
        }
    }

    /// Has the threads issue all their instructions, and continue at a common time.
    pub(crate) fn issue_all_threads(&mut self) {
        if let Core::Thread(of) = self {
            of.core().drain();
        }
    }

    /// The vCPU is halted, or no longer is: the other threads of its core then do not wait for it.
    pub(crate) fn set_halted(&mut self, halted: bool) {
        if let Core::Thread(of) = self {
            let thread = of.thread;
            of.core().set_halted(thread, halted);
        }
    }

    /// A thread waits so many cycles before its next instruction; returns whether it is one.
    pub(crate) fn wait_as_thread(&mut self, cycles: u64) -> bool {
        let Core::Thread(of) = self else { return false };
        let thread = of.thread;
        of.core().wait(thread, cycles);
        true
    }

    /// Cycles of the executed instructions; a lower bound for a thread.
    #[inline(always)]
    pub(crate) fn cycles(&self) -> u64 {
        match self {
            Core::OutOfOrder(core) => core.cycles(),
            Core::InOrder(core) => core.cycles(),
            Core::Thread(of) => of.known().cycles(of.thread),
        }
    }

    /// The time at which it asks the memory for what is handed in next: its cycles, and what a
    /// thread of a core was let past.
    pub(crate) fn time(&self) -> u64 {
        match self {
            Core::Thread(of) => of.known().time(of.thread),
            _ => self.cycles(),
        }
    }

    /// The counts.
    pub(crate) fn counts(&self) -> CoreCounts {
        match self {
            Core::OutOfOrder(core) => core.counts(),
            Core::InOrder(core) => core.counts(),
            Core::Thread(of) => of.known().counts(of.thread),
        }
    }
}

/// A model with all its processors.
pub(crate) struct Processors {
    model: SystemModel,
    /// What templates need to know.
    pub(crate) layout: Layout,
    /// Cycles per second.
    pub(crate) hz: u64,
    system: *mut MemorySystem,
    /// Cores whose threads are vCPUs.
    shared: Vec<*mut MultithreadedCore>,
    /// The classes of misses, once a region that records them was opened.
    misses: Option<Misses>,
    /// Which units the cores execute; absent if they execute all.
    sampling: Option<Sampling>,
}

impl Processors {
    /// Processors of a model for so many vCPUs.
    pub(crate) fn new(model: SystemModel, cpus: u32) -> Result<Processors, String> {
        let core = model
            .core
            .as_ref()
            .ok_or_else(|| format!("{} has no [core], which the level ooo needs", model.name))?;
        let layout = Layout::of(core, model.l1i.cache.line_bytes);
        let system = MemorySystem::new(&without_mshr_limit(&model), cpus);
        let cores = core.threads.map_or(0, |threads| cpus.div_ceil(threads));
        let threads = || MultithreadedCore::new(core).map(|core| Box::into_raw(Box::new(core)));
        Ok(Processors {
            layout,
            hz: model.clock_hz,
            // They live as long as the process, as the code that uses them may.
            system: Box::into_raw(Box::new(system)),
            shared: (0..cores).filter_map(|_| threads()).collect(),
            misses: None,
            sampling: None,
            model,
        })
    }

    fn memory(&mut self) -> &mut MemorySystem {
        // SAFETY: lives as long as the process; one thread of the host uses it, and no use is
        // nested in another.
        unsafe { &mut *self.system }
    }

    /// Memory was written, if not by a device then by a store of `vcpu` to a page with code.
    pub(crate) fn written(&mut self, vcpu: u32, write: Write) {
        match write.by_device {
            true => self.memory().dma_write(write.physical, write.bytes),
            false => self.memory().code_written(vcpu as usize, write.physical, write.bytes),
        }
    }

    /// Classifies misses from now on.
    pub(crate) fn watch_misses(&mut self, with_services: bool) {
        self.misses = Some(Misses::begin(self.memory(), with_services));
    }

    /// Sets the context in which a vCPU executes from now on, and its service; earlier instructions
    /// have executed, and faults of the task that ran until now have ended.
    pub(crate) fn set_context(
        &mut self,
        vcpu: u32,
        (context, executing): (KernelContext, Executing),
        ended: impl Iterator<Item = EndedFault>,
        guest: &mut Guest<'_>,
    ) {
        if let Some(mut misses) = self.misses.take() {
            misses.collect(self.memory(), guest);
            misses.execute(vcpu as usize, executing, ended);
            self.memory().set_context(vcpu as usize, context_of(context));
            self.misses = Some(misses);
        }
    }

    /// The misses of the region that is open.
    pub(crate) fn miss_rows(&mut self, region: u32, guest: &mut Guest<'_>) -> Vec<Record> {
        let Some(mut misses) = self.misses.take() else { return Vec::new() };
        misses.collect(self.memory(), guest);
        let rows = misses.rows(self.memory(), region).into_iter().map(Record::Misses);
        let rows = rows.chain(misses.service_rows(region)).collect();
        self.misses = Some(misses);
        rows
    }

    /// Has the cores execute sampled units only.
    ///
    /// # Errors
    /// When the model has no out-of-order core.
    pub(crate) fn sample(&mut self, sampling: Sampling) -> Result<(), String> {
        let model = self.model.core.as_ref();
        if model.is_none_or(|model| model.window.is_none() || model.threads.is_some()) {
            return Err(format!(
                "{} has no out-of-order core: only such a core costs so much that it pays to sample it",
                self.model.name
            ));
        }
        self.sampling = Some(sampling);
        Ok(())
    }

    /// What executes for a vCPU.
    pub(crate) fn pipeline(&self, vcpu: u32) -> Option<Pipeline> {
        let model = self.model.core.as_ref()?;
        let line_bytes = self.model.l1d.cache.line_bytes;
        let core = match model.threads {
            Some(threads) => Core::Thread(Thread {
                core: *self.shared.get((vcpu / threads) as usize)?,
                thread: (vcpu % threads) as usize,
            }),
            None if model.window.is_some() => {
                Core::OutOfOrder(Box::new(OutOfOrderCore::new(model, line_bytes)?))
            }
            None => Core::InOrder(Box::new(InOrderCore::new(model, line_bytes)?)),
        };
        let sampler = self.sampling.map(|sampling| Sampler::new(sampling, vcpu));
        Some(Pipeline::new(core, model.width, self.system, vcpu as usize, sampler))
    }
}
