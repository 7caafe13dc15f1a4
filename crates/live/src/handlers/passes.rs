//! The BPF programs of a pass. `bench.rs` loads all passes at the start, and attaches a pass only while it is measured:
//! programs of another pass would run inside its spans, and take time there. All passes share the maps of the first
//! one, so each further pass needs memory only for its programs.
//!
//! Invariant: the programs are attached in the order of [`LoadedPass::programs`], exits before entries.

use attribution::context::VECTORS;
use attribution::key::ContextKey;
use lab::experiment::BenchError;
use lab::handlers::Pass;

use crate::bpf::kernel_counters::offsets_in_percpu_area;
use crate::bpf::layout::Config;
use crate::bpf::memory::KernelMemory;
use crate::bpf::programs::{CPU_LEAVES, HOTPLUG_TRACEPOINT};
use crate::bpf::{Attached, BpfError, Flavour, LoadSpec, Maps, Probes, TraceLayout, has_cookies};
use crate::footprint::tick::tick_ns;
use crate::perf::EventGroup;
use crate::probe_overhead::events::EventCalibration;
use crate::probe_overhead::{CoreCalibration, WarmOverhead};

/// The probes of one pass.
pub(super) struct LoadedPass {
    pub(super) pass: Pass,
    pub(super) probes: Probes,
    /// The overhead of a pair of probes in a hot loop, for each type of cores; never empty.
    pub(super) warm: Vec<CoreCalibration>,
    /// The programs of a window, in the order of attachment.
    pub(super) programs: Vec<String>,
    /// Measures the overhead of reading the events in a condition; `None` in a pass without events.
    pub(super) calibration: Option<EventCalibration>,
    /// The events of the pass, which count only during its own windows.
    events: Option<EventGroup>,
    /// A link for each program, while the pass is attached.
    links: Vec<Attached>,
    /// The link of the program that closes the window of a CPU that goes offline, while the pass is
    /// attached. `None` on a kernel without the tracepoint.
    hotplug: Option<Attached>,
    /// Whether the kernel attached the hotplug program at the last attachment.
    sees_hotplug: bool,
}

/// While this value lives, the events of a pass count.
pub(super) struct Counting<'a>(Option<&'a EventGroup>);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(EventGroup::stop);
    }
}

impl LoadedPass {
    /// Loads `programs`, which count in `maps`. With events, the programs read the events on `cpus`. `config`: the
    /// constants of victims. `trace`: also keeps single events.
    pub(super) fn load(
        flavour: Flavour,
        config: Config,
        cpus: &[u32],
        maps: Maps<'_>,
        programs: Vec<String>,
        trace: Option<TraceLayout>,
        (pass, warm, events): (Pass, Vec<CoreCalibration>, Option<EventGroup>),
    ) -> Result<Self, BpfError> {
        let names: Vec<&str> = programs.iter().map(String::as_str).collect();
        let config = Config {
            events: pass.events.len() as u32,
            percpu_offsets: offsets_in_percpu_area(),
            jiffy_ns: tick_ns() as u32,
            times_exits: 1,
            cookies: has_cookies().into(),
            ..config
        };
        let spec = LoadSpec { flavour, config, maps, programs: &names };
        let probes = Probes::load_with(&spec, trace)?;
        events.as_ref().map_or(Ok(()), |group| group.hand_to(&probes, cpus))?;
        let maps = Maps::Shared(&probes);
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

    /// Attaches the programs. Removes the programs that the kernel refuses from the pass, and
    /// returns them with the error.
    pub(super) fn attach_what_can_be(&mut self) -> Vec<(String, BpfError)> {
        let (mut refused, mut links) = (Vec::new(), Vec::new());
        let probes = &self.probes;
        self.programs.retain(|program| match probes.attach_guarded(program) {
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

    /// Attaches the hotplug program, if the kernel has its tracepoint.
    fn attach_hotplug(&mut self) {
        self.hotplug = self.probes.attach_guarded(CPU_LEAVES).ok();
        self.sees_hotplug = self.hotplug.is_some();
    }

    /// Attaches the programs unless they are attached. Must not be called in a window, because it takes some time.
    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        if self.links.is_empty() {
            let links = self.programs.iter().map(|program| self.probes.attach_guarded(program));
            self.links = links.collect::<Result<_, _>>()?;
            self.attach_hotplug();
        }
        Ok(())
    }

    /// The overhead of a pair in a hot loop on the core type of `cpu`, or on the first type if
    /// the CPU's type is not known.
    pub(super) fn warm_on(&self, cpu: u32) -> &WarmOverhead {
        let calibration = self.warm.iter().find(|calibration| calibration.core.cpus.contains(&cpu));
        &calibration.unwrap_or(&self.warm[0]).warm
    }

    /// The kernel memory of the pass's maps and programs; `None` if the kernel does not state it.
    pub(super) fn kernel_memory(&self) -> Option<KernelMemory> {
        let probes = self.probes.kernel_memory()?;
        match &self.calibration {
            Some(calibration) => Some(probes.with(calibration.kernel_memory()?)),
            None => Some(probes),
        }
    }

    /// Detaches the programs, so that they take no time in windows of other passes. The counts stay in the maps, and
    /// [`LoadedPass::hotplug_tracepoint`] still describes the last attachment.
    pub(super) fn detach(&mut self) {
        self.links.clear();
        self.hotplug = None;
    }

    /// The tracepoint that closed the window of a CPU that went offline, at the last attachment. `None` if the kernel
    /// lacks it, and before the first attachment.
    pub(super) fn hotplug_tracepoint(&self) -> Option<&'static str> {
        self.sees_hotplug.then_some(HOTPLUG_TRACEPOINT)
    }

    /// Makes the events of the pass count until the result is dropped.
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

/// Whether the attached programs count spans of `key`.
pub(super) fn has_probe(key: u32, attached: &[String]) -> bool {
    let program = match ContextKey::from_key(key) {
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
