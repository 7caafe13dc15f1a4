//! The processors of the level `ooo`: their memory system, the cores that vCPUs share, and the classification of
//! misses.

use attribution::KernelContext;
use machine::SystemModel;
use machine::core::{AnyCore, Layout, MultithreadedCore};
use machine::memory::{MemorySystem, without_mshr_limit};

use crate::cpu;
use crate::guest::memory_context::context_of;
use crate::guest::misses::Misses;
use crate::guest::service_misses::{EndedFault, Executing};
use crate::guest::structures::Guest;
use crate::models::accesses::Write;
use crate::models::block_trace::BlockTrace;
use crate::models::cores::{Core, Thread};
use crate::models::pipeline::Pipeline;
use crate::models::sampling::{Sampler, Scope};
use plugin_interface::sampling::{PERIOD_DEFAULT, Sampling};
use simrecord::record::Record;

/// A model with all its processors.
pub(crate) struct Processors {
    model: SystemModel,
    /// The layout that templates depend on.
    pub(crate) layout: Layout,
    /// Cycles per second of each processor.
    pub(crate) hz: u64,
    system: *mut MemorySystem,
    /// Cores with several threads. Each thread is a vCPU.
    multithreaded: Vec<*mut MultithreadedCore>,
    /// The classes of misses, once a region that records them was opened.
    misses: Option<Misses>,
    /// The units that the cores execute in detail. `None`: they execute everything.
    sampling: Option<Sampling>,
    /// The trace of the first vCPU, or null. It is never freed.
    trace: *mut BlockTrace,
}

impl Processors {
    /// Processors of a model for `cpus` vCPUs.
    pub(crate) fn new(model: SystemModel, cpus: u32) -> Result<Processors, String> {
        let core = model
            .core
            .as_ref()
            .ok_or_else(|| format!("{} has no [core], which the level ooo needs", model.name))?;
        let layout = core.layout(model.l1i.line_bytes);
        let system = MemorySystem::new(&without_mshr_limit(&model), cpus);
        let cores = core.threads.map_or(0, |threads| cpus.div_ceil(threads));
        let multithreaded_core =
            || MultithreadedCore::new(core).map(|core| Box::into_raw(Box::new(core)));
        Ok(Processors {
            layout,
            hz: model.clock_hz,
            // Never freed, because translated code may use the memory system until the process ends.
            system: Box::into_raw(Box::new(system)),
            multithreaded: (0..cores).filter_map(|_| multithreaded_core()).collect(),
            misses: None,
            sampling: None,
            trace: BlockTrace::from_environment()?
                .map_or(std::ptr::null_mut(), |trace| Box::into_raw(Box::new(trace))),
            model,
        })
    }

    /// The trace of the first vCPU, if there is one.
    pub(crate) fn trace(&mut self) -> Option<&mut BlockTrace> {
        // SAFETY: as in `memory`.
        unsafe { self.trace.as_mut() }
    }

    fn memory(&mut self) -> &mut MemorySystem {
        // SAFETY: never freed; one thread of the host uses it, and no use is nested in another.
        unsafe { &mut *self.system }
    }

    /// Memory was written by a device, or by a store of `vcpu` to a page with code.
    pub(crate) fn written(&mut self, vcpu: u32, write: Write) {
        if write.by_device {
            self.memory().dma_write(write.physical, write.bytes);
        } else {
            self.memory().code_written(vcpu as usize, write.physical, write.bytes);
        }
    }

    /// Classifies misses from now on.
    pub(crate) fn watch_misses(&mut self, with_services: bool) {
        self.misses = Some(Misses::begin(self.memory(), with_services));
    }

    /// Sets the context and the service of a vCPU from now on. Earlier instructions have executed, and the
    /// faults of the previous task have ended.
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
    /// Fails when the model has no out-of-order core.
    pub(crate) fn sample(&mut self, sampling: Sampling) -> Result<(), String> {
        if self.usual_sampling().is_none() {
            return Err(format!(
                "{} has no out-of-order core: sampling saves no time with other cores",
                self.model.name
            ));
        }
        self.sampling = Some(sampling);
        Ok(())
    }

    /// The default sampling of the cores. `None`: sampling would save no time, because only out-of-order cores with one
    /// thread are slow in detail.
    fn usual_sampling(&self) -> Option<Sampling> {
        let core = self.model.core.as_ref().filter(|core| core.threads.is_none())?;
        let window = core.window.as_ref()?;
        Some(Sampling::of_core(window.reorder_entries, PERIOD_DEFAULT))
    }

    /// Has the cores of `cpus` vCPUs execute in detail what `scope` says. Does nothing where a recording is sampled, or
    /// nothing can be.
    pub(crate) fn set_scope(&self, scope: Scope, cpus: u32) {
        let Some(sampling) = self.usual_sampling().filter(|_| self.sampling.is_none()) else {
            return;
        };
        (0..cpus).for_each(|vcpu| cpu::with(vcpu, |cpu| cpu.set_scope(scope, sampling)));
    }

    pub(crate) fn pipeline(&self, vcpu: u32) -> Option<Pipeline> {
        let model = self.model.core.as_ref()?;
        let line_bytes = self.model.l1d.line_bytes;
        let core = match model.threads {
            Some(threads) => Core::Thread(Thread {
                core: *self.multithreaded.get((vcpu / threads) as usize)?,
                thread: (vcpu % threads) as usize,
            }),
            None => Core::Single(AnyCore::new(model, line_bytes)?),
        };
        let sampler = self.sampling.map(|sampling| Sampler::new(sampling, vcpu));
        let trace = if vcpu == 0 { self.trace } else { std::ptr::null_mut() };
        Some(Pipeline::new(core, model.width, self.system, vcpu as usize, sampler, trace))
    }
}
