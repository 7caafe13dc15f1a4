//! The simulated bench of the experiment `footprint`. The irqlab in the guest executes the code of the live bench, in a
//! machine of its own for each level. The simulator implements the guest's performance counters, and adds exact misses
//! by context and a trace.

mod trace;
mod windows;

use std::cmp::Reverse;
use std::time::Duration;

use lab::cpus::add_once;
use lab::experiment::{
    Absence, Bench, BenchError, BenchFacts, Experiment, Measured, Progress, Step,
};
use lab::footprint::in_guest::{FootprintRequest, FootprintResponse, NETWORK};
use lab::footprint::{FootprintBench, Geometry, Level, Plan, Samples, Stimulus};
use lab::guest_protocol::Request;
use machine::SystemModel;
use machine::system_model::{LevelModel, Prefetch, TlbLevel};
use serde_json::{Map, Value as Json, json};

use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, PlannedMachines};
use crate::machine::found::check_cards;
use crate::parallel::{Jobs, for_each};

/// Size of the pages that fill a first-level TLB, bytes.
const PAGE_BYTES: u64 = 4096;

/// Why a run that ended early has no results: the repetitions are in the guest's response.
const NO_RESPONSE: &str = "its repetitions are lost";

/// The footprint experiment on a simulated machine.
pub struct SimFootprint {
    /// The machine. Its guest has counters, and it runs a model. The bench starts another one for each level.
    pub guest: GuestRun,
    /// Label of the measurement in progress messages. The name of a level follows it.
    pub label: String,
    /// How many levels are measured at the same time.
    pub jobs: Jobs,
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

    fn limit_reached(&self) -> Option<String> {
        self.guest.reached_deadline()
    }
}

impl SimFootprint {
    /// Number of lines of a level; `None` for a level that the machine lacks.
    fn lines(&self, level: Level) -> Option<u64> {
        let geometry = self.request.geometry.iter().find(|(listed, _)| *listed == level);
        geometry.map(|(_, geometry)| geometry.lines())
    }

    /// Fails for a level that the model lacks, or that no loop can fill. Its machine would find the size that QEMU reports
    /// to every guest, and fill a cache that the model does not have.
    fn check_level(&self, level: Level) -> Result<(), BenchError> {
        match (&self.guest.watch.model, self.lines(level)) {
            (Some(model), None) => Err(unfillable(&model.model, level)),
            _ => Ok(()),
        }
    }

    /// Calls `action` with the request for one level of the plan, and the known facts about its machine.
    fn with_machine<T>(&self, level: Level, action: impl FnOnce(&Request, Expected<'_>) -> T) -> T {
        let plan = Plan { levels: vec![level], ..self.request.plan.clone() };
        let request = FootprintRequest { plan, ..self.request.clone() };
        let label = format!("{}{level}", self.label);
        let expected =
            Expected { label: &label, window_cycles: None, windows: None, warm_up_cycles: None };
        action(&Request::Footprint(request), expected)
    }

    /// The work of each level's machine. Starts no machine.
    ///
    /// Fails if a request cannot be written.
    pub fn planned(&self) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let work = |&level: &Level| {
            self.with_machine(level, |request, expected| {
                Ok((expected.label.to_owned(), self.guest.work(request, &expected)?))
            })
        };
        let levels = self.request.plan.levels.iter();
        levels.filter(|level| self.check_level(**level).is_ok()).map(work).collect()
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

    /// Measures one level in a machine of its own. `None` if the user asked to stop before it had measured anything. Series
    /// whose trace the record does not have become absences.
    ///
    /// Fails without the guest's response, and if the record is broken.
    fn run(&self, level: Level) -> Result<Option<LevelOutcome>, BenchError> {
        let machine_run = self.with_machine(level, |request, expected| {
            self.guest.run::<FootprintResponse>(request, expected)
        })?;
        let Some(machine_run) = machine_run else { return Ok(None) };
        let limit_text = machine_run.early.and_then(|reason| self.guest.limit_text(reason));
        let reason = machine_run.no_response;
        let response = machine_run.response.ok_or_else(|| match &limit_text {
            Some(limit_text) => {
                BenchError::TimeLimit(format!("{limit_text}; {reason}: {NO_RESPONSE}"))
            }
            None => BenchError::Failed(format!("{reason}: {NO_RESPONSE}")),
        })?;
        let account = machine_run.account;
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
        facts.warnings.extend(account.notices);
        // A plan that was complete when the stop came lacks nothing.
        if !measured.complete {
            measured.time_limit = measured.time_limit.or(limit_text);
        }
        Ok(Some(LevelOutcome { measured, facts, wall: machine_run.wall }))
    }

    /// The facts of all machines together, and of this bench.
    fn complete_facts(&mut self, mut facts: BenchFacts) {
        facts.bench = "sim".to_owned();
        if let Some(model) = &self.guest.watch.model {
            facts.warnings.extend(prefetch_warning(&model.model, &self.request.plan.levels));
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
    }
}

/// The measurements of a level's machine.
struct LevelOutcome {
    measured: Measured<Samples>,
    /// Facts of the bench in the guest, with the plugin's notices.
    facts: BenchFacts,
    /// Host time from the machine's start to its end.
    wall: Duration,
}

impl FootprintBench for SimFootprint {
    /// Measures each level of the plan in a machine of its own, so the others do not change its result; several machines
    /// run at the same time. Levels whose machines fail are missing from the result; the first failure is an error only
    /// if no level has a result.
    fn measure(
        &mut self,
        plan: &Plan,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError> {
        self.request.plan = plan.clone();
        let (levels, at_once) = (&plan.levels, self.jobs.count);
        let bench = &*self;
        let is_fillable = |level: &&Level| bench.check_level(**level).is_ok();
        let machine_count = levels.iter().filter(is_fillable).count();
        let label = format!("{machine_count} simulated machines, one for each level");
        progress.start(&Step { number: 1, count: 1, label, expected: None });
        let experiment = "footprint";
        let planned = PlannedMachines { experiment, count: machine_count, at_once };
        self.guest.progress.plan(planned);
        let mut levels_by_size = levels.clone();
        // Large levels start first: a large level that starts last would run alone.
        levels_by_size.sort_by_key(|level| Reverse(bench.lines(*level)));
        let outcomes = for_each(self.jobs, &levels_by_size, |_, &level| {
            bench.check_level(level)?;
            if bench.stop_requested() { Ok(None) } else { bench.run(level) }
        });
        let mut outcomes: Vec<_> = levels_by_size.into_iter().zip(outcomes).collect();
        outcomes.sort_by_key(|(level, _)| levels.iter().position(|planned| planned == level));
        let mut measured = Measured::<Samples>::default();
        let mut facts = BenchFacts::default();
        let mut failed_levels = Vec::new();
        for (level, outcome) in outcomes {
            match outcome {
                Ok(Some(outcome)) => {
                    let wall_ns = u64::try_from(outcome.wall.as_nanos()).unwrap_or(u64::MAX);
                    self.on_host.insert(level.to_string(), json!({ "wall_ns": wall_ns }));
                    measured.append(outcome.measured);
                    add_facts(&mut facts, outcome.facts);
                }
                Ok(None) => measured.left_out(level.to_string()),
                Err(error) => failed_levels.push((level.to_string(), error)),
            }
        }
        // The failure of a machine says more than a level that is not available.
        failed_levels.sort_by_key(|(_, error)| !is_failure(error));
        for (level, error) in failed_levels {
            if measured.samples.series.is_empty() && is_failure(&error) {
                return Err(error);
            }
            measured.part_failed(Plan::NAME, level, error)?;
        }
        self.complete_facts(facts);
        Ok(measured)
    }
}

/// Whether a machine did not end as it should.
fn is_failure(error: &BenchError) -> bool {
    matches!(error, BenchError::Failed(_) | BenchError::TimeLimit(_))
}

/// The error for a level that is not among [`geometries`].
fn unfillable(model: &SystemModel, level: Level) -> BenchError {
    let why = match level {
        Level::L1i if model.l1i.trace => {
            "is a trace cache, which no loop can fill: lines start where code is entered"
        }
        Level::Dtlb | Level::Itlb => "does not hold the loop's pages of 4 KiB",
        Level::L3 if model.l3.is_some() => {
            "has slices that a hash selects: no range of consecutive lines fills all its sets"
        }
        _ => "does not exist",
    };
    BenchError::unavailable(format!("{level} of the model {} {why}", model.name))
}

/// Adds the facts of the guest of another level. Settings that differ keep the value of the first guest.
fn add_facts(facts: &mut BenchFacts, of_level: BenchFacts) {
    for (name, value) in of_level.settings {
        facts.settings.entry(name).or_insert(value);
    }
    add_once(&mut facts.absent, of_level.absent);
    add_once(&mut facts.warnings, of_level.warnings);
}

/// Returns the caches and TLBs of a model that the experiment can fill, with their geometries.
#[must_use]
pub fn geometries(model: &SystemModel) -> Vec<(Level, Geometry)> {
    let caches = [
        (Level::L1d, Some(&model.l1d)),
        (Level::L1i, Some(&model.l1i).filter(|cache| !cache.trace)),
        (Level::L2, model.l2.as_ref()),
        // The loop fills a cache by consecutive lines, which a hash spreads over slices unevenly.
        (Level::L3, model.l3.as_ref().filter(|cache| cache.cache().slices() == 1)),
    ];
    let tlbs = [(Level::Dtlb, &model.dtlb), (Level::Itlb, &model.itlb)];
    let caches = caches.into_iter().filter_map(|(level, model)| Some((level, cache(model?)?)));
    let tlbs = tlbs.into_iter().filter_map(|(level, model)| Some((level, tlb(model)?)));
    caches.chain(tlbs).collect()
}

/// Returns a warning for the levels with a prefetcher: a displaced line that the prefetcher fills again does not miss.
fn prefetch_warning(model: &SystemModel, levels: &[Level]) -> Option<String> {
    let is_prefetched = |level: &&Level| match level {
        Level::L1d => model.l1d.prefetch != Prefetch::None,
        Level::L1i => model.l1i.prefetch != Prefetch::None,
        Level::L2 => model.l2.as_ref().is_some_and(|level| level.prefetch != Prefetch::None),
        Level::L3 => model.l3.as_ref().is_some_and(|level| level.prefetch != Prefetch::None),
        Level::Dtlb | Level::Itlb => false,
    };
    let level_names: Vec<String> =
        levels.iter().filter(is_prefetched).map(ToString::to_string).collect();
    let level_names = level_names.join(", ");
    (!level_names.is_empty()).then(|| {
        format!(
            "{level_names}: the model prefetches; displaced lines that are prefetched again are no misses"
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
    use std::sync::Arc;

    use super::*;
    use machine::schema;

    use crate::Cache;
    use crate::boot::{EarlyReason, Limits};
    use crate::checkpoint::Start;
    use crate::guest::kernel::Kernel;
    use crate::guest_run::{Deadline, MachinePhase, MachineProgress, MachineState};
    use crate::models;
    use crate::watch::{Detail, KernelFiles, Watch};

    #[test]
    fn a_level_that_the_model_lacks_is_not_available() {
        let reason = |model: &str, level| {
            let model = SystemModel::parse(&models::text(model).unwrap()).unwrap();
            assert!(geometries(&model).iter().all(|(known, _)| *known != level));
            let error = unfillable(&model, level);
            assert!(matches!(error, BenchError::Unavailable { .. }), "{error}");
            error.to_string()
        };
        assert_eq!(reason("r4400-1994", Level::L3), "l3 of the model r4400-1994 does not exist");
        assert!(reason("p4-1800", Level::L1i).contains("p4-1800 is a trace cache"));
        let text = models::text("zen3").unwrap();
        let sliced = schema::set(&text, &["l3.size=36MiB", "l3.ways=12"]).unwrap();
        let sliced = SystemModel::parse(&sliced).unwrap();
        assert!(geometries(&sliced).iter().all(|(known, _)| *known != Level::L3));
        assert!(unfillable(&sliced, Level::L3).to_string().contains("has slices"));
    }

    struct NoProgress;

    impl MachineProgress for NoProgress {
        fn plan(&self, _: PlannedMachines) {}
        fn start(&self, _: &str, _: MachineWork) {}
        fn update(&self, _: &str, _: MachineState) {}
        fn ends_early(&self, _: &str, _: MachinePhase, _: EarlyReason) {}
        fn done(&self, _: &str) {}
    }

    /// A bench on `r4400-1994`, which ends before any machine starts: by the user, or by the deadline.
    fn ended(cache: &Cache, is_stopped: bool, levels: &[Level]) -> SimFootprint {
        let text = models::text("r4400-1994").unwrap();
        let model = models::of_text(cache, "r4400-1994", &text, Detail::Timed).unwrap();
        let plan = Plan { levels: levels.to_vec(), ..Plan::default() };
        let geometry = geometries(&model.model);
        let kernel = Kernel {
            image: "/k/bzImage".into(),
            sha256: "aa".to_owned(),
            modules: None,
            config: None,
        };
        SimFootprint {
            guest: GuestRun {
                cache: cache.clone(),
                qemu: crate::qemu::tests::qemu(),
                machine: crate::machine::tests::machine(),
                kernel,
                kernel_files: KernelFiles::nothing(),
                start: Start::Boot,
                limits: Limits::default(),
                deadline: Some(Deadline::after(Duration::ZERO)),
                watch: Watch { model: Some(model), ..Watch::default() },
                stop: Arc::new(move || is_stopped),
                progress: Arc::new(NoProgress),
            },
            label: String::new(),
            jobs: Jobs { count: 1, limited_by_memory: false },
            request: FootprintRequest { plan, geometry, ..FootprintRequest::default() },
            on_host: Map::new(),
            facts: BenchFacts::default(),
        }
    }

    #[test]
    fn no_machine_measures_a_level_that_the_model_lacks() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let levels = [Level::L3, Level::L1d];
        let mut bench = ended(&cache, true, &levels);
        let plan = bench.request.plan.clone();
        let measured = bench.measure(&plan, &mut |_: &Step| {}).unwrap();
        assert_eq!(measured.missing, ["l1d"]);
        let reason = "l3 of the model r4400-1994 does not exist";
        assert_eq!((measured.absent.len(), measured.absent[0].reason.as_str()), (1, reason));
        // A size that the user gives is used.
        let geometry = Geometry { size_bytes: 1 << 20, line_bytes: 64, ways: 1 };
        bench.request.geometry.push((Level::L3, geometry));
        assert!(bench.check_level(Level::L3).is_ok());
    }

    /// The deadline passes before the machine of a level starts: nothing else says so.
    #[test]
    fn a_deadline_between_two_machines_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        for is_stopped in [true, false] {
            let mut bench = ended(&cache, is_stopped, &[Level::L1d]);
            let plan = bench.request.plan.clone();
            let mut measured = bench.measure(&plan, &mut |_: &Step| {}).unwrap();
            measured.note_limit(&bench);
            assert_eq!(measured.missing, ["l1d"]);
            let limit = measured.time_limit.unwrap_or_default();
            assert_eq!(limit.contains("(--limit)"), !is_stopped, "{limit}");
        }
    }

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
        let warning = prefetch_warning(&model, Level::ALL).unwrap();
        // The front end's fetches ahead of execution miss like any other fetch.
        assert!(warning.starts_with("l1d, l2: "), "{warning}");
        let model = SystemModel::parse(&models::text("ultra-1").unwrap()).unwrap();
        assert_eq!(prefetch_warning(&model, Level::ALL), None);
        let levels = geometries(&model);
        let l1d = levels.iter().find(|(level, _)| *level == Level::L1d).unwrap().1;
        // The paper counts the halves of this cache's lines.
        assert_eq!((l1d.size_bytes, l1d.line_bytes, l1d.ways), (16 << 10, 16, 1));
    }
}
