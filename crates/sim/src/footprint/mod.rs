//! The simulated bench of the experiment `footprint`. The irqlab in the guest executes the code of the live bench in
//! one machine for the whole plan. The simulator implements the guest's performance counters, and adds exact misses
//! by context and a trace.

mod trace;
mod windows;

use lab::experiment::Absence;
use lab::experiment::{Bench, BenchError, BenchFacts, Measured, Progress, Step};
use lab::footprint::in_guest::{FootprintRequest, FootprintResponse, NETWORK};
use lab::footprint::{FootprintBench, Geometry, Level, Plan, Samples, Stimulus};
use lab::guest_protocol::Request;
use machine::SystemModel;
use machine::system_model::{LevelModel, Prefetch, TlbLevel};
use serde_json::{Map, Value as Json, json};

use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, PlannedMachines};
use crate::machine::found::check_cards;

/// Size of the pages that fill a first-level TLB, bytes.
const PAGE_BYTES: u64 = 4096;

/// Why a run that ended early has no results: the repetitions are in the guest's response.
const NO_RESPONSE: &str = "its repetitions are lost";

/// The footprint experiment on a simulated machine.
pub struct SimFootprint {
    /// The machine. Its guest has counters, and it runs a model.
    pub guest: GuestRun,
    /// Label of the measurement in progress messages.
    pub label: String,
    /// The request to the guest; [`FootprintBench::measure`] sets its plan.
    pub request: FootprintRequest,
    /// Facts that hold for this host or this moment only.
    pub on_host: Map<String, Json>,
    /// The facts of the bench; complete after the measurement.
    pub facts: BenchFacts,
}

impl Bench for SimFootprint {
    fn facts(&self) -> BenchFacts {
        self.facts.clone()
    }

    fn stop_requested(&self) -> bool {
        self.guest.is_stopped()
    }
}

impl SimFootprint {
    fn expected(&self) -> Expected<'_> {
        Expected { label: &self.label, window_cycles: None, windows: None, warm_up_cycles: None }
    }

    /// Returns the work of the machine. Starts no machine.
    ///
    /// Fails if the request cannot be written.
    pub fn planned(&self) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let request = Request::Footprint(self.request.clone());
        Ok(vec![(self.label.clone(), self.guest.work(&request, &self.expected())?)])
    }

    /// Checks that the messages came over the machine's network cards, if it has any.
    fn check_network(&self, facts: &BenchFacts) -> Result<(), BenchError> {
        let is_net = |stimulus: &Stimulus| matches!(stimulus, Stimulus::Net | Stimulus::NetSignal);
        if !self.request.plan.stimuli.iter().any(is_net) {
            return Ok(());
        }
        let Some(cards) = self.guest.machine.nics else { return Ok(()) };
        let reported = facts.settings.get(NETWORK).and_then(Json::as_object);
        check_cards(cards, reported.unwrap_or(&Map::new())).map_err(BenchError::Failed)
    }
}

impl FootprintBench for SimFootprint {
    /// One machine measures the whole plan.
    fn measure(
        &mut self,
        plan: &Plan,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError> {
        self.request.plan = plan.clone();
        let label = "a simulated machine measures all series".to_owned();
        progress.start(&Step { number: 1, count: 1, label, expected: None });
        let request = Request::Footprint(self.request.clone());
        let (experiment, count, at_once) = ("footprint", 1, 1);
        self.guest.progress.plan(PlannedMachines { experiment, count, at_once });
        let outcome = self.guest.run::<FootprintResponse>(&request, self.expected())?;
        let Some(outcome) = outcome else {
            return Ok(Measured { complete: false, ..Measured::default() });
        };
        let limit = outcome.early.and_then(|early| self.guest.limit_text(early));
        let reason = outcome.no_response;
        let response = outcome.response.ok_or_else(|| match &limit {
            Some(limit) => BenchError::TimeLimit(format!("{limit}; {reason}: {NO_RESPONSE}")),
            None => BenchError::Failed(format!("{reason}: {NO_RESPONSE}")),
        })?;
        let account = outcome.account;
        let FootprintResponse { mut measured, facts, .. } = response;
        let mut facts = facts.unwrap_or_default();
        self.check_network(&facts)?;
        if let Some(broken) = account.broken.first() {
            let reason = format!("the record of the machine is broken: {broken}");
            return Err(BenchError::Failed(reason));
        }
        let Measured { samples, absent, .. } = &mut measured;
        samples.traces.retain_mut(|trace| match trace::fill(trace, &account) {
            Ok(()) => true,
            Err(reason) => {
                let series = format!("trace of {}, {}", trace.level, trace.stimulus);
                absent.push(Absence::new("footprint", series, reason));
                false
            }
        });
        samples.windows = windows::windows(&account, self.request.cpu);
        let wall_ns = u64::try_from(outcome.wall.as_nanos()).unwrap_or(u64::MAX);
        self.on_host.insert("wall_ns".into(), json!(wall_ns));
        facts.bench = "sim".to_owned();
        facts.warnings.extend(account.notices.iter().cloned());
        if let Some(model) = &self.guest.watch.model {
            facts.warnings.extend(prefetched(&model.model, &self.request.plan.levels));
        }
        let model = self.guest.watch.model.as_ref().map(|model| &model.described);
        facts.settings.extend([
            ("qemu".to_owned(), json!(self.guest.qemu.version_text)),
            ("machine".to_owned(), json!(self.guest.machine.described())),
            ("model".to_owned(), json!(model)),
            ("detail".to_owned(), json!(format!("{:?}", self.guest.watch.detail).to_lowercase())),
            ("on_host".to_owned(), Json::Object(self.on_host.clone())),
        ]);
        self.facts = facts;
        // A plan that was complete before the stop lacks nothing, so no limit is reported.
        if !measured.complete {
            measured.time_limit = measured.time_limit.or(limit);
        }
        Ok(measured)
    }
}

/// Returns the caches and TLBs of a model that the experiment can fill, with their geometries.
#[must_use]
pub fn geometries(model: &SystemModel) -> Vec<(Level, Geometry)> {
    let caches = [
        (Level::L1d, Some(&model.l1d)),
        (Level::L1i, Some(&model.l1i).filter(|cache| !cache.trace)),
        (Level::L2, Some(&model.l2)),
        (Level::L3, model.l3.as_ref()),
    ];
    let tlbs = [(Level::Dtlb, &model.dtlb), (Level::Itlb, &model.itlb)];
    let caches = caches.into_iter().filter_map(|(level, model)| Some((level, cache(model?)?)));
    let tlbs = tlbs.into_iter().filter_map(|(level, model)| Some((level, tlb(model)?)));
    caches.chain(tlbs).collect()
}

/// Returns a warning for the levels with a prefetcher: a displaced line that the prefetcher fills again does not miss.
fn prefetched(model: &SystemModel, levels: &[Level]) -> Option<String> {
    let is_prefetched = |level: &&Level| match level {
        Level::L1d => model.l1d.prefetch != Prefetch::None,
        Level::L1i => model.l1i.prefetch != Prefetch::None,
        Level::L2 => model.l2.prefetch != Prefetch::None,
        Level::L3 => model.l3.as_ref().is_some_and(|level| level.prefetch != Prefetch::None),
        Level::Dtlb | Level::Itlb => false,
    };
    let names: Vec<String> = levels.iter().filter(is_prefetched).map(ToString::to_string).collect();
    let names = names.join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "{names}: the model prefetches; displaced lines that are prefetched again are no misses"
        )
    })
}

/// Returns the geometry of a cache. Where a miss fills only a part of a line, each part counts as a line.
fn cache(model: &LevelModel) -> Option<Geometry> {
    let line_bytes = u32::try_from(model.fill_bytes()).ok()?;
    Some(Geometry { size_bytes: model.size_bytes, line_bytes, ways: model.ways })
}

/// Returns the geometry of a TLB as if each page were a line. `None` unless its first page size is [`PAGE_BYTES`].
fn tlb(level: &TlbLevel) -> Option<Geometry> {
    if level.pages_bytes.first() != Some(&PAGE_BYTES) {
        return None;
    }
    let (entries, ways) = (level.entries, level.tlb().ways);
    let line_bytes = PAGE_BYTES as u32;
    Some(Geometry { size_bytes: u64::from(entries) * PAGE_BYTES, line_bytes, ways })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;

    #[test]
    fn each_model_has_levels_that_can_be_filled() {
        for name in models::names() {
            let model = SystemModel::parse(&models::text(name).unwrap()).unwrap();
            let levels = geometries(&model);
            assert!(levels.iter().any(|(level, _)| *level == Level::L1d), "{name}");
            for (level, geometry) in levels {
                assert!(geometry.lines() > 0 && geometry.sets() > 0, "{name} {level}");
            }
        }
        let model = SystemModel::parse(&models::text("zen3").unwrap()).unwrap();
        let warning = prefetched(&model, Level::ALL).unwrap();
        // The front end's fetches ahead of execution miss like any other fetch.
        assert!(warning.starts_with("l1d, l2: "), "{warning}");
        let model = SystemModel::parse(&models::text("ultra-1").unwrap()).unwrap();
        assert_eq!(prefetched(&model, Level::ALL), None);
        let levels = geometries(&model);
        let l1d = levels.iter().find(|(level, _)| *level == Level::L1d).unwrap().1;
        // The paper counts the halves of this cache's lines.
        assert_eq!((l1d.size_bytes, l1d.line_bytes, l1d.ways), (16 << 10, 16, 1));
    }
}
