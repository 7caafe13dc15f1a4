//! The processors of the level `ooo`: their memory system, the multithreaded cores that vCPUs share, and the
//! classification of misses. [`Models`](super::Models) has one [`Processors`] at this level.
//!
//! Memory system, cores and trace are never freed, because translated code may use them until the process ends. The
//! pipelines of the vCPUs hold pointers to them.

use attribution::KernelContext;
use machine::core::{AnyCore, CoreModel, Layout, MultithreadedCore};
use machine::memory::{MemorySystem, without_mshr_limit};
use machine::{HostExits, SystemModel};

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

/// All processors of a model.
pub(crate) struct Processors {
    model: SystemModel,
    /// How the core splits code, which the templates of blocks depend on.
    pub(crate) layout: Layout,
    /// Cycles per second of each processor.
    pub(crate) hz: u64,
    system: *mut MemorySystem,
    /// The multithreaded cores. Each thread executes one vCPU. Empty if the model's cores have one thread.
    multithreaded: Vec<*mut MultithreadedCore>,
    /// Counts misses by location. `None` until a region opens that records misses.
    misses: Option<Misses>,
    /// The units that the cores execute in detail throughout the recording. `None`: the recording is not sampled.
    sampling: Option<Sampling>,
    /// The trace of the first vCPU, or null.
    trace: *mut BlockTrace,
}

/// The multithreaded core `number` of a machine with `cpus` vCPUs. Its threads without a vCPU are halted: otherwise
/// the other threads would wait for their instructions, and time would stand still until a queue is full. `None` if
/// the model has no such cores.
fn multithreaded(model: &CoreModel, number: u32, cpus: u32) -> Option<MultithreadedCore> {
    let threads = model.threads?;
    let mut core = MultithreadedCore::new(model)?;
    let with_vcpu = cpus.saturating_sub(number * threads).min(threads);
    (with_vcpu..threads).for_each(|thread| core.set_halted(thread as usize, true));
    Some(core)
}

impl Processors {
    /// Makes the processors of a model for `cpus` vCPUs.
    ///
    /// Fails if the model has no core or does not support `cpus` processors. Also fails if the environment asks for a
    /// trace and the trace cannot be created.
    pub(crate) fn new(model: SystemModel, cpus: u32) -> Result<Processors, String> {
        let core = model
            .core
            .as_ref()
            .ok_or_else(|| format!("{} has no [core], which the level ooo needs", model.name))?;
        model.check_cpus(cpus).map_err(|error| format!("{}: {error}", model.name))?;
        let layout = core.layout(model.l1i.line_bytes);
        let system = MemorySystem::new(&without_mshr_limit(&model), cpus);
        let cores = core.threads.map_or(0, |threads| cpus.div_ceil(threads));
        let multithreaded_core = |number| {
            let core = multithreaded(core, number, cpus)?;
            Some(Box::into_raw(Box::new(core)))
        };
        Ok(Processors {
            layout,
            hz: model.clock_hz,
            // Never freed, because translated code may use the memory system until the process ends.
            system: Box::into_raw(Box::new(system)),
            multithreaded: (0..cores).filter_map(multithreaded_core).collect(),
            misses: None,
            sampling: None,
            trace: BlockTrace::from_environment()?
                .map_or(std::ptr::null_mut(), |trace| Box::into_raw(Box::new(trace))),
            model,
        })
    }

    /// The costs of exits to a hypervisor. `None`: guest code has no such exits.
    pub(crate) fn exits(&self) -> Option<HostExits> {
        self.model.applied_exits()
    }

    /// The trace of the first vCPU, if there is one.
    pub(crate) fn trace(&mut self) -> Option<&mut BlockTrace> {
        // SAFETY: null, or never freed; one thread of the host uses it, and no use is nested in another.
        unsafe { self.trace.as_mut() }
    }

    fn memory(&mut self) -> &mut MemorySystem {
        // SAFETY: never freed; one thread of the host uses it, and no use is nested in another.
        unsafe { &mut *self.system }
    }

    /// Memory was written by a device, or by a store of `vcpu` to a page with code.
    pub(crate) fn observe_write(&mut self, vcpu: u32, write: Write) {
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

    /// Sets the context and the service of a vCPU from now on, for its misses. The caller has retired all earlier
    /// instructions. `ended`: the page faults of the previous task that the last event ended.
    pub(crate) fn set_context(
        &mut self,
        vcpu: u32,
        (context, executing): (KernelContext, Executing),
        ended: impl Iterator<Item = EndedFault>,
        guest: &mut Guest<'_>,
    ) {
        if let Some(mut misses) = self.misses.take() {
            misses.collect(self.memory(), guest);
            let memory_context = context_of(context, executing.process);
            misses.execute(vcpu as usize, executing, ended);
            self.memory().set_context(vcpu as usize, memory_context);
            self.misses = Some(misses);
        }
    }

    /// The rows of the misses in the open region so far. Empty if no misses are recorded.
    pub(crate) fn miss_rows(&mut self, region: u32, guest: &mut Guest<'_>) -> Vec<Record> {
        let Some(mut misses) = self.misses.take() else { return Vec::new() };
        misses.collect(self.memory(), guest);
        let rows = misses.rows(self.memory(), region).into_iter().map(Record::Misses);
        let rows = rows.chain(misses.service_rows(region)).collect();
        self.misses = Some(misses);
        rows
    }

    /// Makes the cores of later pipelines execute sampled units only.
    ///
    /// Fails if the model has no out-of-order core with one thread, or has exits to a hypervisor: no sample predicts them.
    pub(crate) fn sample(&mut self, sampling: Sampling) -> Result<(), String> {
        if self.default_sampling().is_none() {
            return Err(format!(
                "{} has no out-of-order core: sampling saves no time with other cores",
                self.model.name
            ));
        }
        if self.exits().is_some() {
            return Err(format!(
                "{}: host_exits.applied = true needs the level ooo: samples do not predict exits",
                self.model.name
            ));
        }
        self.sampling = Some(sampling);
        Ok(())
    }

    /// The default sampling of the cores. `None` for other cores than out-of-order cores with one thread: sampling
    /// saves no time with them.
    fn default_sampling(&self) -> Option<Sampling> {
        let core = self.model.core.as_ref().filter(|core| core.threads.is_none())?;
        let window = core.window.as_ref()?;
        Some(Sampling::of_core(window.reorder_entries, PERIOD_DEFAULT))
    }

    /// Makes the cores of `cpus` vCPUs execute in detail what `scope` says. Does nothing if the whole recording is
    /// sampled, or if the cores cannot be sampled.
    pub(crate) fn set_scope(&self, scope: Scope, cpus: u32) {
        if self.sampling.is_some() {
            return;
        }
        let Some(sampling) = self.default_sampling() else { return };
        (0..cpus).for_each(|vcpu| cpu::with_vcpu(vcpu, |cpu| cpu.set_scope(scope, sampling)));
    }

    /// Makes the pipeline of a new vCPU. `None` if the model has no core for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_cannot_allocate_in_the_private_caches_of_several_vcpus() {
        let zen3 = include_str!("../../../../machines/zen3.toml");
        let changes = ["dma=allocate", "l3.shared=false", "cpus=1"];
        let text = machine::schema::set(zen3, &changes).unwrap();
        let refused = |cpus| Processors::new(SystemModel::parse(&text).unwrap(), cpus).err();
        assert_eq!(refused(1), None);
        let error = refused(2).unwrap();
        assert!(error.contains("dma: \"allocate\" with a last level"), "{error}");
    }
}
