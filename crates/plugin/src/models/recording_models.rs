//! All models of a recording. Reads them from the files that the options name, and gives each vCPU its model. Passes
//! events of the machine on to the models, and writes their counts to the record. The session has one [`Models`].

use std::path::Path;
use std::ptr::NonNull;

use machine::core::Layout;
use machine::{BlockingMachine, BlockingModel, HostExits, SystemModel};
use simrecord::counters::{MASK_DETAILED_CYCLES, MASK_PLAIN, MASK_TIMED, mask_of};
use simrecord::record::{CountersOf, Detail, Record, SampledPart};

use crate::cpu::{self, Engine};
use crate::files;
use crate::guest::structures::Guest;
use crate::guest::tracker::Discontinuity;
use crate::models::accesses::Write;
use crate::models::entry::Entries;
use crate::models::processors::Processors;
use crate::models::sampling::UnitPart;
use crate::models::shadow_caches::ShadowCacheModels;
use crate::qemu::Qemu;
use crate::writer::Writer;
use plugin_interface::options::Options;

/// All models of a recording.
pub(crate) struct Models {
    cpus: u32,
    /// The model of the level `timed`.
    timed: Option<BlockingModel>,
    /// The logarithm of the length of a line that the model of the level `timed` fetches. `None` at other levels.
    fetch_line_shift: Option<u32>,
    /// The processors of the level `ooo`.
    processors: Option<Processors>,
    /// Shadow caches, which all vCPUs share. They are never freed. `None`: the options ask for none.
    shadow_caches: Option<NonNull<ShadowCacheModels>>,
    /// Finds the accesses that a vCPU makes by itself when it enters a handler.
    entries: Entries,
    /// The counters in use, as bits of the record's header.
    counters: u32,
    /// Whether the options ask for a level of detail that has caches.
    has_caches: bool,
}

impl Models {
    /// Reads the models that the options name.
    ///
    /// Fails if a file cannot be read, is no model, or has a model that does not fit the level.
    pub(crate) fn load(options: &Options, cpus: u32) -> Result<Models, String> {
        let (mut timed, mut processors, mut counters) = (None, None, MASK_PLAIN);
        match (options.detail, options.model.as_deref()) {
            (Detail::Timed, Some(path)) => {
                let parsed =
                    |text: &str| BlockingModel::parse(text).map_err(|error| error.to_string());
                (timed, counters) = (Some(files::parse(path, parsed)?), MASK_TIMED);
            }
            (Detail::Ooo, Some(path)) => {
                let model = system_model(path)?;
                let unknown = if options.sampling.is_some() { MASK_DETAILED_CYCLES } else { 0 };
                counters = mask_of(&model, cpus) & !unknown;
                let mut all_processors = Processors::new(model, cpus)?;
                options.sampling.map(|sampling| all_processors.sample(sampling)).transpose()?;
                processors = Some(all_processors);
            }
            (Detail::Fast, _) => counters = 0,
            _ => {}
        }
        let shadow_caches = shadow_caches(options, cpus)?;
        let has_caches = options.detail.has_model() || shadow_caches.is_some();
        Ok(Models {
            cpus,
            fetch_line_shift: timed
                .as_ref()
                .map(|model| BlockingMachine::new(model).fetch_line_shift()),
            timed,
            processors,
            shadow_caches,
            entries: Entries::find(),
            counters,
            has_caches,
        })
    }

    /// Cycles per second of the model that guest time follows. `None` without such a model.
    pub(crate) fn hz(&self) -> Option<u64> {
        let timed = self.timed.as_ref().map(|model| model.clock_hz);
        timed.or(self.processors.as_ref().map(|processors| processors.hz))
    }

    /// The costs of exits to a hypervisor. `None`: guest code has no such exits.
    pub(crate) fn exits(&self) -> Option<HostExits> {
        self.processors.as_ref().and_then(Processors::exits)
    }

    /// The counters in use, as bits of the record's header.
    pub(crate) fn counters(&self) -> u32 {
        self.counters
    }

    /// Whether the options ask for a level of detail that has caches.
    pub(crate) fn has_caches(&self) -> bool {
        self.has_caches
    }

    pub(crate) fn has_shadow_caches(&self) -> bool {
        self.shadow_caches.is_some()
    }

    /// Whether this QEMU shows the accesses that a vCPU makes when it enters a handler.
    pub(crate) fn follow_entries(&self) -> bool {
        self.entries.are_followed()
    }

    /// The logarithm of the length of a line that the model of the level `timed` fetches. `None` at other levels.
    pub(crate) fn fetch_line_shift(&self) -> Option<u32> {
        self.fetch_line_shift
    }

    /// The layout that templates of blocks depend on. `None` at other levels than `ooo`.
    pub(crate) fn layout(&self) -> Option<Layout> {
        self.processors.as_ref().map(|processors| processors.layout)
    }

    /// Gives a new vCPU its model, or the shadow caches, and sets its level of detail.
    pub(crate) fn give_model(&self, vcpu: u32, level: Detail) {
        cpu::with_vcpu(vcpu, |cpu| {
            cpu.set_engine(self.engine(vcpu));
            cpu.set_exits(self.exits());
            // All vCPUs but the first wait to be started.
            cpu.set_halted(vcpu > 0);
            cpu.set_level(level);
        });
    }

    /// Makes the model of a new vCPU.
    fn engine(&self, vcpu: u32) -> Engine {
        if let Some(model) = &self.timed {
            return Engine::Timed(Box::new(BlockingMachine::new(model)));
        }
        let pipeline = self.processors.as_ref().and_then(|processors| processors.pipeline(vcpu));
        match (pipeline, self.shadow_caches) {
            (Some(pipeline), _) => Engine::Ooo(Box::new(pipeline)),
            (None, Some(shadow_caches)) => Engine::ShadowCaches(shadow_caches),
            (None, None) => Engine::Absent,
        }
    }

    /// Passes writes to memory on to the caches of each vCPU and to the shared caches.
    pub(crate) fn pass_writes(&mut self, writes: &[Write]) {
        for vcpu in 0..self.cpus {
            cpu::with_vcpu(vcpu, |cpu| writes.iter().for_each(|write| cpu.observe_write(*write)));
        }
        let vcpu = cpu::running_vcpu();
        for write in writes {
            if let Some(processors) = &mut self.processors {
                processors.observe_write(vcpu, *write);
            }
            if let Some(shadow_caches) = self.shadow_caches() {
                shadow_caches.observe_write(vcpu as usize, *write);
            }
        }
    }

    /// Passes the accesses that a vCPU itself makes as it enters a handler to its caches. The tracker has already
    /// entered the handler's context, so the accesses count for the handler.
    pub(crate) fn enter_handler(&mut self, vcpu: u32, entry: Discontinuity, qemu: &mut Qemu) {
        if self.has_caches {
            let accesses = self.entries.enter(vcpu, entry, qemu);
            cpu::with_vcpu(vcpu, |cpu| cpu.enter_handler(vcpu, entry, &accesses));
        }
    }

    /// Prepares the models for a new region. `misses`: whether misses are classified. `services`: whether misses are
    /// also counted by service.
    pub(crate) fn open_region(&mut self, misses: bool, services: bool) {
        if let Some(shadow_caches) = self.shadow_caches() {
            shadow_caches.open_region();
        }
        if misses && let Some(processors) = &mut self.processors {
            processors.watch_misses(services);
        }
    }

    /// The processors of the level `ooo`. `None` at other levels.
    pub(crate) fn processors(&mut self) -> Option<&mut Processors> {
        self.processors.as_mut()
    }

    /// Tells the samplers of all vCPUs which region is open. `None`: no region is open.
    pub(crate) fn set_sampled_region(&self, region: Option<u32>) {
        for vcpu in 0..self.cpus {
            cpu::with_vcpu(vcpu, |cpu| cpu.set_sampled_region(region));
        }
    }

    /// Writes the parts of sampled units that have ended since the last call.
    pub(crate) fn write_sampled(&self, writer: &mut Writer) {
        for cpu in 0..self.cpus {
            for UnitPart { region, unit, code, counts } in
                cpu::with_vcpu(cpu, |cpu| cpu.take_sampled())
            {
                writer.write(&Record::SampledPart(SampledPart { cpu, region, code, unit }));
                writer.counters_without_zeros(cpu, CountersOf::SampledPart, &counts);
            }
        }
    }

    /// Writes the misses in the open region so far, and the names of all known structures and functions of the guest.
    pub(crate) fn write_misses(&mut self, region: u32, guest: &mut Guest<'_>, writer: &mut Writer) {
        if let Some(processors) = &mut self.processors {
            let rows = processors.miss_rows(region, guest);
            rows.iter().for_each(|row| writer.write(row));
        }
        guest.structures.names().for_each(|name| writer.write(&name));
        guest.structures.user_functions.names().for_each(|name| writer.write(&name));
    }

    /// Writes the rest of the block trace, if there is one, because QEMU ends.
    pub(crate) fn finish_trace(&mut self) {
        if let Some(trace) = self.processors.as_mut().and_then(Processors::trace) {
            trace.finish();
        }
    }

    /// Writes the counts of shadow caches in the open region so far.
    pub(crate) fn write_shadow_caches(&mut self, region: u32, writer: &mut Writer) {
        let Some(shadow_caches) = self.shadow_caches() else { return };
        for (row, counts) in shadow_caches.rows(region) {
            writer.write(&Record::ShadowCaches(row));
            writer.counters(0, CountersOf::ShadowCaches, &counts);
        }
        for point in shadow_caches.points(region) {
            writer.write(&Record::MissCurvePoint(point));
        }
    }

    fn shadow_caches(&mut self) -> Option<&mut ShadowCacheModels> {
        // SAFETY: valid until the process ends; no use is nested in another.
        self.shadow_caches.as_mut().map(|shadow_caches| unsafe { shadow_caches.as_mut() })
    }
}

fn system_model(path: &Path) -> Result<SystemModel, String> {
    files::parse(path, |text| SystemModel::parse(text).map_err(|error| error.to_string()))
}

/// Makes the shadow caches that the options ask for. `None` if they ask for none.
fn shadow_caches(
    options: &Options,
    cpus: u32,
) -> Result<Option<NonNull<ShadowCacheModels>>, String> {
    if !options.has_shadow_caches() {
        return Ok(None);
    }
    let models: Result<Vec<_>, _> = options.also.iter().map(|path| system_model(path)).collect();
    let models = models?;
    for model in &models {
        model.check_cpus(cpus).map_err(|error| format!("{}: {error}", model.name))?;
    }
    let shadow_caches = ShadowCacheModels::new(&models, options.curves, cpus);
    // Never freed, because translated code may use the caches until the process ends.
    Ok(Some(NonNull::from(Box::leak(Box::new(shadow_caches)))))
}
