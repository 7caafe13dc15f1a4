//! The programs of a pass: loaded at the start, and attached only while their pass is measured. The
//! programs of another pass would run inside its spans: they count nothing, but take time. The programs
//! of all passes count in the same maps, so a pass more needs memory for its programs alone.

use attribution::context::VECTORS;
use attribution::key::ContextKey;
use lab::experiment::BenchError;
use lab::handlers::Pass;

use crate::bpf::kernel_counters::percpu_offsets;
use crate::bpf::layout::Config;
use crate::bpf::memory::KernelMemory;
use crate::bpf::programs::{CPU_LEAVES, HOTPLUG_TRACEPOINT};
use crate::bpf::{Attached, BpfError, Flavour, LoadSpec, Maps, Probes, has_cookies};
use crate::perf::EventGroup;
use crate::probe_overhead::events::EventCalibration;
use crate::probe_overhead::{CoreCalibration, WarmOverhead};

/// The probes of one pass.
pub(super) struct LoadedPass {
    pub(super) pass: Pass,
    pub(super) probes: Probes,
    /// What a pair adds in a hot loop, for each type of cores; at least one.
    pub(super) warm: Vec<CoreCalibration>,
    /// The programs of a window, in the order of attachment.
    pub(super) programs: Vec<String>,
    /// Measures in a condition what reading the events adds to them, in a pass that has any.
    pub(super) calibration: Option<EventCalibration>,
    /// Its events, which count during its own windows only.
    events: Option<EventGroup>,
    /// One for each program while the pass is attached.
    links: Vec<Attached>,
    /// The program that closes the window of a CPU that leaves, while the pass is attached; `None` on a kernel
    /// without the tracepoint.
    hotplug: Option<Attached>,
    /// Whether that program could be attached the last time.
    sees_hotplug: bool,
}

/// The events of a pass count until this is dropped.
pub(super) struct Counting<'a>(Option<&'a EventGroup>);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(EventGroup::stop);
    }
}

impl LoadedPass {
    /// Loads `programs`, which count in `maps` and read the events, if any, on `cpus`.
    pub(super) fn load(
        flavour: Flavour,
        cpus: &[u32],
        maps: Maps<'_>,
        programs: Vec<String>,
        (pass, warm, events): (Pass, Vec<CoreCalibration>, Option<EventGroup>),
    ) -> Result<Self, BpfError> {
        let names: Vec<&str> = programs.iter().map(String::as_str).collect();
        let config = Config {
            events: pass.events.len() as u32,
            percpu_offsets: percpu_offsets(),
            times_exits: 1,
            cookies: has_cookies().into(),
            ..Config::default()
        };
        let probes = Probes::load(&LoadSpec { flavour, config, maps, programs: &names })?;
        events.as_ref().map_or(Ok(()), |group| group.hand_to(&probes, cpus))?;
        let maps = Maps::Of(&probes);
        let calibration =
            events.as_ref().map(|group| EventCalibration::load(flavour, cpus, maps, &warm, group));
        let calibration = calibration.transpose()?;
        Ok(LoadedPass {
            pass,
            probes,
            warm,
            programs,
            calibration,
            events,
            links: Vec::new(),
            hotplug: None,
            sees_hotplug: false,
        })
    }

    /// Attaches the programs, drops those that the kernel refuses, and returns them with the error.
    pub(super) fn attach_what_can_be(&mut self) -> Vec<(String, BpfError)> {
        let (mut refused, mut links) = (Vec::new(), Vec::new());
        let probes = &self.probes;
        self.programs.retain(|program| match probes.link(program) {
            Ok(link) => {
                links.push(link);
                true
            }
            Err(error) => {
                refused.push((program.clone(), error));
                false
            }
        });
        self.links = links;
        self.attach_hotplug();
        refused
    }

    fn attach_hotplug(&mut self) {
        self.hotplug = self.probes.link(CPU_LEAVES).ok();
        self.sees_hotplug = self.hotplug.is_some();
    }

    /// Attaches the programs, unless they are attached. Takes a while: call it with windows closed.
    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        if self.links.is_empty() {
            let links = self.programs.iter().map(|program| self.probes.link(program));
            self.links = links.collect::<Result<_, _>>()?;
            self.attach_hotplug();
        }
        Ok(())
    }

    /// The hot loop's result on the type of cores that a CPU has; of the first type, where that is not known.
    pub(super) fn warm_on(&self, cpu: u32) -> &WarmOverhead {
        let of_cpu = self.warm.iter().find(|one| one.core.cpus.contains(&cpu));
        &of_cpu.unwrap_or(&self.warm[0]).warm
    }

    /// The kernel memory of its maps and programs; `None` where the kernel does not state it.
    pub(super) fn kernel_memory(&self) -> Option<KernelMemory> {
        let probes = self.probes.kernel_memory()?;
        match &self.calibration {
            Some(calibration) => Some(probes.with(calibration.kernel_memory()?)),
            None => Some(probes),
        }
    }

    pub(super) fn detach(&mut self) {
        self.links.clear();
        self.hotplug = None;
    }

    /// The tracepoint by which the window of a CPU ends that goes offline; `None` where the kernel lacks it.
    pub(super) fn hotplug_tracepoint(&self) -> Option<&'static str> {
        self.sees_hotplug.then_some(HOTPLUG_TRACEPOINT)
    }

    /// Starts counting the events.
    pub(super) fn count(&self) -> Result<Counting<'_>, BenchError> {
        let events = self.events.as_ref();
        events.map_or(Ok(()), EventGroup::start).map_err(|error| {
            BenchError::Failed(format!(
                "cannot count the events {}: {error}",
                self.pass.events.join(" ")
            ))
        })?;
        Ok(Counting(events))
    }
}

/// Whether spans of that key are counted by the attached programs.
pub(super) fn has_probe(key: u32, attached: &[String]) -> bool {
    let program = match ContextKey::of(key) {
        Some(ContextKey::Irq(_)) => "irq_handler_in".to_owned(),
        Some(ContextKey::Softirq(_)) => "softirq_in".to_owned(),
        Some(ContextKey::Vector(number)) => match VECTORS.get(number as usize) {
            Some(vector) => format!("{vector}_in"),
            None => return false,
        },
        _ => return false,
    };
    attached.contains(&program)
}
