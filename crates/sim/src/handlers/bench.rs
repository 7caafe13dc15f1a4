//! [`SimBench`]: the simulated bench of the experiment `handlers`. It runs a machine for each condition, several at
//! the same time, and converts each record to a sample.
//!
//! `lab` calls it by the traits [`Bench`] and [`HandlersBench`]: first `prepare` with all conditions, then `measure`
//! for each. Results do not depend on which machines run at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::experiment::Absence;
use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::guest_protocol::Request;
use lab::handlers::in_guest::{GuestWindow, HandlersRequest, HandlersResponse};
use lab::handlers::{
    Condition, HandlersBench, Load, Pass, ProbeOverhead, Rate, SenderMethod, Stimulus, VICTIMS,
    VictimsBy, WindowSample, unmeasured_of_senders,
};
use lab::services::ServicesSample;
use serde_json::{Map, Value as Json, json};

use super::convert::{Reading, sample_of};
use super::events;
use super::victims::absent_of_victims;
use crate::boot::EarlyReason;
use crate::btf::Btf;
use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, PlannedMachines};
use crate::machine::Timing;
use crate::machine::found::check_cards;
use crate::parallel::{Jobs, for_each};
use crate::services::{self, KernelNames};
use crate::watch::{Detail, User};
use crate::{Accounting, LoadedModule, Symbols};

/// Frequency of the time-stamp counter that QEMU shows to the guest of a model.
const GUEST_TSC_HZ: f64 = 1e9;

/// The settings of a [`SimBench`].
pub struct SimSettings {
    /// The machine. The bench starts another one for each condition.
    pub guest: GuestRun,
    /// The request to the guest; the bench sets its condition.
    pub request: HandlersRequest,
    /// Warm-up of conditions with a stimulus at the low rate, ns. It is not shorter than the request's own.
    pub low_rate_warm_up_ns: u64,
    /// Names of the events to show. An empty list means all events; the name `none` means no events.
    pub events: Vec<String>,
    /// Facts that hold for this host or this moment only. They are under one key of the settings, because all
    /// other settings stay the same when the run is repeated.
    pub on_host: Map<String, Json>,
    /// Whether the table of senders was requested.
    pub senders: bool,
    /// How victims and causes of interrupts are named. Causes are in the record only with senders, and groups with groups.
    /// `None`: victims were not requested.
    pub victims: Option<VictimsBy>,
    /// Memory for single events of a condition, bytes. `None`: no timeline was requested.
    pub trace_bytes_max: Option<u64>,
    /// How many conditions are measured at the same time.
    pub jobs: Jobs,
    /// Symbols and types of the guest's kernel, for the names in tables of misses.
    pub kernel: (Option<Symbols>, Option<Btf>),
}

/// A simulated machine as a bench.
pub struct SimBench {
    pub(super) settings: SimSettings,
    pub(super) reading: Reading,
    /// Requested events that the bench does not count.
    not_counted: Vec<String>,
    /// The last measured condition, with its sample.
    last_sample: Option<(Condition, WindowSample)>,
    /// Outcomes that were measured ahead, by the label of the condition.
    measured_ahead: BTreeMap<String, Result<Option<Outcome>, BenchError>>,
    /// [`SimSettings::on_host`], and the time of each condition on the host's clock.
    on_host: Map<String, Json>,
    notices: Vec<String>,
    /// The limit that ended a machine early.
    limit: Option<String>,
}

/// Warning for a window whose guest did not respond after the request to stop.
const NO_RESPONSE: &str = "its own counts are missing (load, stimulus, irqlab's CPU time)";

/// The record of a machine, and the window in the guest's response.
pub(super) struct Outcome {
    pub(super) accounting: Accounting,
    pub(super) window: GuestWindow,
    /// The modules that the guest loaded; empty unless it booted for this run.
    pub(super) modules: Vec<LoadedModule>,
    wall: Duration,
    /// Why the machine ended before the end of its window.
    pub(super) early: Option<EarlyReason>,
}

impl SimBench {
    /// Makes a bench. Starts no machine yet.
    #[must_use]
    pub fn new(settings: SimSettings) -> SimBench {
        let model = settings.guest.watch.model.as_ref();
        let (events, not_counted) = events::choose(
            &settings.events,
            model.map(|model| model.counters(settings.guest.machine.cpus)),
        );
        let has_delays = settings.guest.watch.delays;
        let has_senders = settings.senders && settings.guest.kernel_files.has_symbols();
        let trace_bytes_max = settings.trace_bytes_max;
        let lacks_groups = settings.guest.kernel_files.why_groups_are_unknown().is_some();
        let can_name = |naming: &VictimsBy| *naming != VictimsBy::Cgroup || !lacks_groups;
        let victims = settings.victims.filter(can_name);
        let has_model = model.is_some();
        let clock_hz = settings.guest.watch.clock_hz(settings.guest.machine.timing);
        SimBench {
            on_host: settings.on_host.clone(),
            settings,
            reading: Reading {
                clock_hz,
                events,
                has_delays,
                has_senders,
                victims,
                has_model,
                trace_bytes_max,
            },
            not_counted,
            last_sample: None,
            measured_ahead: BTreeMap::new(),
            notices: Vec::new(),
            limit: None,
        }
    }

    /// Converts cycles to ns.
    pub(super) fn ns_of(&self, cycles: u64) -> f64 {
        cycles as f64 * 1e9 / self.reading.clock_hz as f64
    }

    /// Calls `action` with the request of a condition, and with the expected lengths of
    /// its machine's phases. Returns its result.
    fn with_machine<T>(
        &self,
        condition: Condition,
        action: impl FnOnce(&Request, Expected<'_>) -> T,
    ) -> T {
        let mut request = HandlersRequest { condition, ..self.settings.request.clone() };
        if is_at_low_rate(condition) {
            request.warm_up_ns = request.warm_up_ns.max(self.settings.low_rate_warm_up_ns);
        }
        // A command ends its own window.
        let is_timed = request.command.is_none();
        let to_cycles = |ns: u64| {
            let cycles = u128::from(ns) * u128::from(self.reading.clock_hz) / 1_000_000_000;
            u64::try_from(cycles).unwrap_or(u64::MAX)
        };
        let window_cycles = is_timed.then(|| to_cycles(request.duration_ns));
        let warm_up_cycles = is_timed.then(|| to_cycles(request.warm_up_ns));
        let label = condition.label();
        let expected = Expected { label: &label, window_cycles, windows: Some(1), warm_up_cycles };
        action(&Request::Handlers(request), expected)
    }

    /// Returns the work of the machine of each condition. Starts no machine.
    ///
    /// Fails if a request cannot be written.
    pub fn planned(
        &self,
        conditions: &[Condition],
    ) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let plan_machine = |condition: &Condition| {
            let machine_work = self.with_machine(*condition, |request, expected| {
                self.settings.guest.work(request, &expected)
            });
            Ok((condition.label(), machine_work?))
        };
        conditions.iter().map(plan_machine).collect()
    }

    /// Runs a machine for a condition. Returns `None` when the user asked to stop.
    fn run(&self, condition: Condition) -> Result<Option<Outcome>, BenchError> {
        let outcome = self.with_machine(condition, |request, expected| {
            self.settings.guest.run::<HandlersResponse>(request, expected)
        })?;
        let Some(outcome) = outcome else { return Ok(None) };
        let no_response = outcome.no_response;
        let window = match outcome.response {
            Some(response) => {
                let window = response.window.unwrap_or_default();
                self.check_network(condition, &window)?;
                window
            }
            None => GuestWindow {
                interrupted: true,
                warnings: vec![format!("{no_response}: {NO_RESPONSE}")],
                ..GuestWindow::default()
            },
        };
        let (accounting, modules) = (outcome.account, outcome.modules);
        let (wall, early) = (outcome.wall, outcome.early);
        Ok(Some(Outcome { accounting, window, modules, wall, early }))
    }

    /// Fails if packets of the stimulus went by other interfaces than the machine's
    /// network cards. Machines without cards pass.
    fn check_network(&self, condition: Condition, window: &GuestWindow) -> Result<(), BenchError> {
        if !matches!(condition, Condition::Made { stimulus: Stimulus::Net, .. }) {
            return Ok(());
        }
        let Some(cards) = self.settings.guest.machine.nics else { return Ok(()) };
        let reported = window.facts.get("stimulus").and_then(Json::as_object);
        check_cards(cards, reported.unwrap_or(&Map::new())).map_err(BenchError::Failed)
    }

    /// Runs the machines of several conditions, [`SimSettings::jobs`] at the same time. Keeps each outcome until its
    /// condition is measured. Conditions that did not start because the user asked to stop have no outcome.
    pub fn measure_ahead(&mut self, conditions: &[Condition]) {
        let bench = &*self;
        let mut conditions = conditions.to_vec();
        if bench.settings.jobs.count > 1 {
            // Long conditions start first: a long condition that starts last would run alone.
            conditions.sort_by_key(|&condition| std::cmp::Reverse(amount_of_work(condition)));
        }
        bench.settings.guest.progress.plan(PlannedMachines {
            experiment: "handlers",
            count: conditions.len(),
            at_once: bench.settings.jobs.count,
        });
        let outcomes = for_each(bench.settings.jobs, &conditions, |_, &condition| {
            if bench.stop_requested() { Ok(None) } else { bench.run(condition) }
        });
        let labels = conditions.iter().map(|condition| condition.label());
        let is_finished = |outcome: &Result<_, _>| !matches!(outcome, Ok(None));
        self.measured_ahead =
            labels.zip(outcomes).filter(|(_, outcome)| is_finished(outcome)).collect();
    }

    /// Returns the outcome of a condition, which is measured now unless it was measured ahead. Returns `None`
    /// when the user asked to stop.
    pub(super) fn take(&mut self, condition: Condition) -> Result<Option<Outcome>, BenchError> {
        let early_outcome = self.measured_ahead.remove(&condition.label());
        early_outcome.unwrap_or_else(|| self.run(condition))
    }

    /// Returns what the tables lack, with the reasons.
    fn absences(&self) -> Vec<Absence> {
        let guest = &self.settings.guest;
        let mut absences = guest.kernel_files.absences(&guest.watch, "handlers");
        let groups = guest.kernel_files.why_groups_are_unknown();
        match (self.settings.victims, self.reading.victims, groups) {
            (Some(_), None, Some(reason)) => {
                absences.push(Absence::new(VICTIMS, "victims and causes", reason));
            }
            (Some(_), ..) => absences.extend(absent_of_victims()),
            (None, ..) => {}
        }
        if self.settings.senders {
            absences.extend(unmeasured_of_senders(SenderMethod::Simulator));
        }
        if !self.not_counted.is_empty() {
            let events = format!("events {}", self.not_counted.join(" "));
            let reason = match self.settings.guest.watch.model {
                Some(_) => "the model does not count them",
                None => "instructions alone are counted without a model (--on sim:MODEL)",
            };
            absences.push(Absence::new("handlers", events, reason));
        }
        absences
    }

    /// Measures a condition with all events. Keeps its limit, its notices and its time on the host's clock for the facts.
    /// After a stop request the sample is empty and interrupted.
    fn measure_all(&mut self, condition: Condition) -> Result<WindowSample, BenchError> {
        let Some(outcome) = self.take(condition)? else {
            return Ok(WindowSample { interrupted: true, ..WindowSample::default() });
        };
        // A window that closed by itself just before the limit is complete.
        let had_enough = outcome.accounting.regions.first().is_some_and(|region| region.had_enough);
        let is_cut = outcome.window.interrupted && !had_enough;
        let early_reason = if is_cut { outcome.early } else { None };
        if let Some(limit) = early_reason.and_then(|reason| self.settings.guest.limit_text(reason))
        {
            self.limit.get_or_insert(limit);
        }
        let wall_ns = u64::try_from(outcome.wall.as_nanos()).unwrap_or(u64::MAX);
        self.on_host.insert(condition.label(), json!({ "wall_ns": wall_ns }));
        for notice in &outcome.accounting.notices {
            if !self.notices.contains(notice) {
                self.notices.push(notice.clone());
            }
        }
        let services = self.services(&outcome)?;
        let settings = &self.settings;
        let symbols = settings.kernel.0.as_ref();
        let symbols = settings.guest.with_modules_of_boot(symbols, &outcome.modules)?;
        let (accounting, window) = (&outcome.accounting, outcome.window);
        let sample = sample_of(accounting, window, &self.reading, symbols.as_deref());
        sample.map(|sample| WindowSample { services, ..sample }).map_err(BenchError::Failed)
    }

    /// Returns the times and misses of the services; `None` if they were not recorded.
    fn services(&self, outcome: &Outcome) -> Result<Option<Box<ServicesSample>>, BenchError> {
        let settings = &self.settings;
        let watch = &settings.guest.watch;
        if !watch.services {
            return Ok(None);
        }
        let symbols = settings.kernel.0.as_ref();
        let symbols = settings.guest.with_modules_of_boot(symbols, &outcome.modules)?;
        let kernel: KernelNames<'_> = (symbols.as_deref(), settings.kernel.1.as_ref());
        let accounting = &outcome.accounting;
        let sample = services::sample_of(accounting, None, kernel, self.reading.clock_hz, watch);
        sample.map(|sample| Some(Box::new(sample))).map_err(BenchError::Failed)
    }
}

impl Bench for SimBench {
    fn facts(&self) -> BenchFacts {
        let config = &self.settings;
        let mut settings = Map::new();
        settings.insert("qemu".into(), json!(config.guest.qemu.version_text));
        settings.insert("machine".into(), json!(config.guest.machine.described()));
        settings.insert("cpus".into(), json!(cpu_list(config.guest.machine.cpus)));
        settings.insert("clock".into(), json!(describe_clock(config)));
        settings.insert("vcpu_slice_cycles".into(), json!(config.guest.watch.vcpu_slice));
        settings.insert("user_mode".into(), json!(config.guest.watch.user_mode()));
        let model = config.guest.watch.model.as_ref();
        settings.insert("model".into(), json!(model.map(|model| &model.described)));
        settings.insert("start".into(), json!(config.guest.start.described()));
        settings.insert("on_host".into(), Json::Object(self.on_host.clone()));
        let mut observer = Map::new();
        observer.insert("method".into(), json!("QEMU plugin; the guest does not see it"));
        let warnings = self.notices.clone();
        BenchFacts {
            bench: "sim".to_owned(),
            settings,
            observer,
            absent: self.absences(),
            warnings,
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.guest.is_stopped()
    }

    fn limit_reached(&self) -> Option<String> {
        self.limit.clone().or_else(|| self.settings.guest.reached_deadline())
    }
}

impl HandlersBench for SimBench {
    fn probe_overhead(&self) -> ProbeOverhead {
        let model = self.settings.guest.watch.model.as_ref();
        ProbeOverhead {
            tsc_hz: model.map(|_| GUEST_TSC_HZ),
            events: vec![Vec::new(), vec![0.0; self.reading.events.len()]],
            ..ProbeOverhead::default()
        }
    }

    fn passes(&self) -> Vec<Pass> {
        let names = self.reading.events.iter().map(|(name, _)| (*name).to_owned()).collect();
        let events = Pass { events: names };
        let mut passes = vec![Pass::default()];
        passes.extend(Some(events).filter(|pass| !pass.events.is_empty()));
        passes
    }

    /// Each condition runs on its own machine.
    fn prepare(&mut self, conditions: &[Condition]) {
        self.measure_ahead(conditions);
    }

    fn is_measured(&self, condition: Condition) -> bool {
        self.measured_ahead.contains_key(&condition.label())
    }

    /// All passes share one run of the machine, because counting does not disturb the guest.
    fn measure(&mut self, condition: Condition, pass: usize) -> Result<WindowSample, BenchError> {
        let is_same = |(measured, _): &(Condition, WindowSample)| *measured == condition;
        if pass > 0
            && let Some((_, sample)) = self.last_sample.take().filter(is_same)
        {
            // The first pass has reported the warnings and the timeline.
            return Ok(WindowSample { warnings: Vec::new(), timeline: None, ..sample });
        }
        let sample = self.measure_all(condition)?;
        self.last_sample = Some((condition, sample.clone()));
        Ok(sample)
    }
}

/// Returns a rank of how much the guest executes in a window. A load keeps the guest from being idle; a high
/// rate keeps it busy with the stimulus.
fn amount_of_work(condition: Condition) -> u32 {
    match condition {
        Condition::Ambient | Condition::Command => 0,
        Condition::Made { load, rate, .. } => {
            u32::from(load == Load::Busy) + u32::from(rate == Rate::High)
        }
    }
}

/// Returns whether a stimulus makes interrupts at the low rate.
fn is_at_low_rate(condition: Condition) -> bool {
    match condition {
        Condition::Ambient | Condition::Command => false,
        Condition::Made { rate, stimulus, .. } => rate == Rate::Low && stimulus != Stimulus::None,
    }
}

/// Returns the numbers of all CPUs, as in `0-3`.
fn cpu_list(cpus: u32) -> String {
    if cpus == 1 { "0".to_owned() } else { format!("0-{}", cpus.saturating_sub(1)) }
}

/// The sentence on guest time in the settings of a run: what it follows, and how fast.
fn describe_clock(settings: &SimSettings) -> String {
    match (&settings.guest.watch.model, settings.guest.machine.timing) {
        (Some(model), _) => {
            let (name, hz) = (&model.model.name, model.model.clock_hz);
            let level = if model.detail == Detail::Ooo { " at level ooo" } else { "" };
            let sampled = match settings.guest.watch.user {
                User::Sampled => ", user mode sampled",
                User::Detailed => "",
            };
            format!(
                "guest time by the cycles of model {name}{level}, {} MHz{sampled}",
                hz / 1_000_000
            )
        }
        (None, Timing::Instructions { shift }) => {
            let ns = 1 << shift;
            format!("guest time, {ns} ns an instruction")
        }
        // Verbs with this bench refuse this clock.
        (None, Timing::HostClock) => "the host's clock".to_owned(),
    }
}
