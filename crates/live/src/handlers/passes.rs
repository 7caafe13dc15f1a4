//! The programs of a pass: loaded at the start, and attached while no other pass is. Those of other
//! passes would run inside of its spans, and though they count nothing then, they take time.

use lab::handlers::{BenchError, Pass};
use libbpf_rs::Link;

use super::calibrate::Calibration;
use super::in_place::InPlace;
use super::perf::EventGroup;
use crate::bpf::kernel_counters::percpu_offsets;
use crate::bpf::layout::{Config, EVENTS_MAX, KEY_IRQ, KEY_SOFTIRQ, KEY_VECTOR};
use crate::bpf::{BpfError, Flavour, LoadSpec, Probes};

/// Rows per CPU: fixed contexts, and the device interrupts that one CPU takes.
const SLOTS: u32 = 96;

/// The probes of one pass.
pub(super) struct LoadedPass {
    pub(super) pass: Pass,
    pub(super) probes: Probes,
    pub(super) calibration: Calibration,
    /// The programs that are attached for a window, in that order.
    pub(super) programs: Vec<String>,
    /// What measures these in a condition.
    pub(super) in_place: InPlace,
    /// Its events, off but for its own windows.
    events: Option<EventGroup>,
    /// While it is attached: one for each program.
    links: Vec<Link>,
}

/// The events of a pass count until this is dropped.
pub(super) struct Counting<'a>(Option<&'a EventGroup>);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(EventGroup::stop);
    }
}

impl LoadedPass {
    /// Loads `programs`, which read the events, if any, on `cpus`.
    pub(super) fn load(
        flavour: Flavour,
        cpus: &[u32],
        programs: Vec<String>,
        (pass, calibration, events): (Pass, Calibration, Option<EventGroup>),
    ) -> Result<Self, BpfError> {
        let names: Vec<&str> = programs.iter().map(String::as_str).collect();
        let config = Config {
            inside_events: whole_events(&calibration.events),
            slots: SLOTS,
            events: pass.events.len() as u32,
            percpu_offsets: percpu_offsets(),
            ..Config::default()
        };
        let probes = Probes::load(&LoadSpec { flavour, config, programs: &names })?;
        events.as_ref().map_or(Ok(()), |group| group.hand_to(&probes, cpus))?;
        let in_place = InPlace::load(flavour, cpus, &calibration, events.as_ref())?;
        Ok(LoadedPass { pass, probes, calibration, programs, in_place, events, links: Vec::new() })
    }

    /// Attaches the programs, and forgets those that the kernel refuses: these, and why.
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
        refused
    }

    /// Attaches the programs, if they aren't. This takes a while: call it with windows closed.
    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        if self.links.is_empty() {
            let links = self.programs.iter().map(|program| self.probes.link(program));
            self.links = links.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    pub(super) fn detach(&mut self) {
        self.links.clear();
    }

    /// Starts the events.
    pub(super) fn count(&self) -> Result<Counting<'_>, BenchError> {
        let events = self.events.as_ref();
        events.map_or(Ok(()), EventGroup::start).map_err(|error| {
            BenchError::Failed(format!("events {}: {error}", self.pass.events.join(" ")))
        })?;
        Ok(Counting(events))
    }
}

/// Whether spans of that key are counted by the attached programs.
pub(super) fn has_probe(key: u32, attached: &[String]) -> bool {
    let program = match key {
        key if key >= KEY_IRQ => "irq_handler_in".to_owned(),
        key if key >= KEY_SOFTIRQ => "softirq_in".to_owned(),
        key => {
            let at = key.saturating_sub(KEY_VECTOR) as usize;
            match attribution::context::VECTORS.get(at) {
                Some(vector) => format!("{vector}_in"),
                None => return false,
            }
        }
    };
    attached.contains(&program)
}

/// What reading adds to each event, as the programs know it.
fn whole_events(added: &[f64]) -> [u64; EVENTS_MAX] {
    let mut whole = [0; EVENTS_MAX];
    for (to, added) in whole.iter_mut().zip(added) {
        *to = added.max(0.0).round() as u64;
    }
    whole
}
