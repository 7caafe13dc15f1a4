//! [`SimServices`]: the simulated bench of the experiment `services`. It runs a command or a workload in one machine,
//! and converts the record to a sample. Kernel services are system calls, faults and interrupts.

use std::sync::Arc;
use std::time::Duration;

use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::guest_protocol::Request;
use lab::services::in_guest::{ServicesItem, ServicesRequest, ServicesResponse};
use lab::services::{ServicesBench, ServicesSample};
use serde_json::{Map, Value as Json, json};
use simrecord::counters::INSTRUCTIONS;
use simrecord::progress::GuestProgress;

use super::convert::sample_of;
use crate::boot::{EarlyReason, GuestFaults};
use crate::btf::Btf;
use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, MachineState, PlannedMachines};
use crate::machine_times::MachineTimes;
use crate::timeline::timeline_of;
use crate::watch::{Detail, StopRule};
use crate::workload::{self, Outcome, Prepared};
use crate::{Accounting, LoadedModule, Symbols};

/// The measured program in the guest.
pub enum Work {
    /// A command, by the irqlab in the guest.
    Command(ServicesRequest),
    /// A workload, set up in the machine.
    Workload(Box<Prepared>),
}

/// The settings of a [`SimServices`].
pub struct SimServicesSettings {
    /// The machine; its [`crate::watch::Watch::services`] is set.
    pub guest: GuestRun,
    pub work: Work,
    /// Symbols of its kernel, for the names of system calls, functions and variables.
    pub symbols: Option<Symbols>,
    /// Types of its kernel, for the names of members.
    pub btf: Option<Btf>,
    /// Facts that hold for this host or this moment only.
    pub on_host: Map<String, Json>,
    /// The name of the machine, for progress.
    pub label: String,
    /// Memory for single events, bytes. `None`: no timeline was requested.
    pub trace_bytes_max: Option<u64>,
}

/// Notice for a run that ended early without the guest's response.
const NO_RESPONSE: &str = "the guest's own counts are missing (table agreement)";

/// Why a window that has measured enough has no response of the guest: its machine ends with the window.
const ENDED_WITH_WINDOW: &str = "the machine ended with its window";

/// A machine that has run a command or a workload, and its record.
struct MachineResult {
    /// The guest's own counts, or the reason why there are none.
    window: Result<ServicesItem, String>,
    accounting: Accounting,
    wall: Duration,
    modules: Vec<LoadedModule>,
    /// Why the window ended before the command did. `None` if it had measured enough.
    early: Option<EarlyReason>,
    /// Whether the plugin closed the window because it had measured enough.
    had_enough: bool,
}

/// Returns the phases of a machine that runs a command of unknown length.
fn expected_phases(label: &str) -> Expected<'_> {
    Expected { label, window_cycles: None, windows: Some(1), warm_up_cycles: None }
}

/// A simulated machine as a bench.
pub struct SimServices {
    settings: SimServicesSettings,
    notices: Vec<String>,
    /// The limit that ended the machine early.
    limit: Option<String>,
}

impl SimServices {
    /// Makes a bench. Starts no machine yet.
    #[must_use]
    pub fn new(settings: SimServicesSettings) -> SimServices {
        SimServices { settings, notices: Vec::new(), limit: None }
    }

    /// Returns the work of the machine. Starts no machine.
    ///
    /// Fails if the request cannot be written.
    pub fn planned(&self) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let SimServicesSettings { guest, work, label, .. } = &self.settings;
        let work = match work {
            Work::Command(request) => {
                guest.work(&Request::Services(request.clone()), &expected_phases(label))?
            }
            Work::Workload(prepared) => {
                let request = &prepared.request;
                MachineTimes::new(&guest.timed(), "services", request, &expected_phases(label))
                    .work()
            }
        };
        Ok(vec![(label.clone(), work)])
    }

    fn clock_hz(&self) -> u64 {
        let guest = &self.settings.guest;
        guest.watch.clock_hz(guest.machine.timing)
    }

    /// The number of instructions after which the window of a workload ends. `None`: the workload ends it.
    fn instructions_max(&self) -> Option<u64> {
        match self.settings.guest.watch.until?.enough {
            StopRule::Instructions(count) => Some(count),
            StopRule::Spans(_) | StopRule::Interval { .. } => None,
        }
    }

    /// Adds the finished part of a window that ends after a number of instructions.
    fn with_finished_part(&self, state: MachineState) -> MachineState {
        let part = |count: u64| Some((state.instructions? as f64 / count.max(1) as f64).min(1.0));
        MachineState { fraction: self.instructions_max().and_then(part), ..state }
    }
}

/// The warning about a window that ended after a number of instructions, before the workload ended.
fn part_warning(executed: u64) -> String {
    format!(
        "the window has the first {:.1} million instructions of the workload: all shares, means and times are of this part, \
         and later parts may differ; the results of the workload were not checked (--until end measures the whole workload)",
        executed as f64 / 1e6
    )
}

impl Bench for SimServices {
    fn facts(&self) -> BenchFacts {
        let guest = &self.settings.guest;
        let model = guest.watch.model.as_ref();
        let clock = match model {
            Some(model) => {
                let level = if model.detail == Detail::Ooo { " at level ooo" } else { "" };
                format!("cycles of model {}{level}", model.model.name)
            }
            None => "a cycle is an instruction".to_owned(),
        };
        let pairs = [
            ("qemu", json!(guest.qemu.version_text)),
            ("machine", json!(guest.machine.described())),
            ("clock", json!(clock)),
            ("clock_hz", json!(self.clock_hz())),
            ("vcpu_slice_cycles", json!(guest.watch.vcpu_slice)),
            ("model", json!(model.map(|model| &model.described))),
            ("start", json!(guest.start.described())),
            ("on_host", Json::Object(self.settings.on_host.clone())),
        ];
        let method = json!("QEMU plugin; the guest does not see it");
        BenchFacts {
            bench: "sim".to_owned(),
            settings: pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            observer: Map::from_iter([("method".to_owned(), method)]),
            absent: guest.kernel_files.absences(&guest.watch, "services"),
            warnings: self.notices.clone(),
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.guest.is_stopped()
    }

    fn limit_reached(&self) -> Option<String> {
        self.limit.clone().or_else(|| self.settings.guest.reached_deadline())
    }
}

impl SimServices {
    /// Runs a workload and checks its results. Ends the machine without the check if the plugin closes the window because it
    /// has measured enough. Returns `None` if the user stopped it before it had a result.
    ///
    /// Fails if the workload fails, with [`BenchError::TimeLimit`] if a limit ended it. A record with a region that can be
    /// read is a result although the machine ended early.
    fn run_workload(&self, prepared: &Prepared) -> Result<Option<MachineResult>, BenchError> {
        let guest = &self.settings.guest;
        let label = self.settings.label.as_str();
        let expected = expected_phases(label);
        let timed = MachineTimes::new(&guest.timed(), "services", &prepared.request, &expected);
        guest.progress.start(label, guest.bounded(timed.work()));
        let stop = |progress: GuestProgress| {
            let state = self.with_finished_part(expected.state(progress, self.clock_hz()));
            timed.observe(state);
            guest.progress.update(label, state);
            if progress.had_enough {
                return true;
            }
            if guest.is_stopped() {
                guest.progress.ends_early(label, state.phase, EarlyReason::Stopped);
                return true;
            }
            false
        };
        let result = workload::run(
            &guest.cache,
            &guest.qemu,
            prepared,
            &guest.kernel_files,
            &guest.watch,
            guest.limits,
            None,
            &mut |_| {},
            &stop,
        );
        guest.progress.done(label);
        let outcome = result?;
        let had_enough = outcome.accounting.regions.first().is_some_and(|region| region.had_enough);
        if had_enough || (outcome.early.is_none() && outcome.failure().is_none()) {
            timed.keep(&guest.cache, outcome.exit.wall);
        }
        if had_enough {
            if let Some(broken) = outcome.accounting.broken.first() {
                let message =
                    format!("the record is broken, its numbers must not be used: {broken}");
                return Err(BenchError::Failed(message));
            }
            return Ok(Some(MachineResult {
                window: Err(ENDED_WITH_WINDOW.to_owned()),
                wall: outcome.exit.wall,
                modules: outcome.exit.report.map_or_else(Vec::new, |report| report.modules),
                accounting: outcome.accounting,
                early: None,
                had_enough,
            }));
        }
        // The deadline of the whole command stops the machine as a user would.
        let early_reason = match outcome.early {
            Some(EarlyReason::Stopped) if guest.reached_deadline().is_some() => {
                Some(EarlyReason::HostLimit)
            }
            reason => reason,
        };
        match (early_reason, outcome.failure()) {
            // The record until the early end is a result.
            (Some(_), _) if outcome.has_readable_region() => {}
            (Some(EarlyReason::Stopped), _) => return Ok(None),
            (Some(_), Some(failure)) => return Err(BenchError::TimeLimit(failure)),
            (None, Some(failure)) => return Err(BenchError::Failed(failure)),
            (_, None) => {}
        }
        let Outcome { exit, accounting, .. } = outcome;
        let faults = if early_reason.is_none() { exit.faults } else { None };
        let window_of = |faults: GuestFaults| {
            let counts = [("pgfault", faults.all), ("pgmajfault", faults.major)];
            ServicesItem {
                command_ended: "its results are right".to_owned(),
                vmstat: counts.map(|(name, count)| (name.to_owned(), count)).into(),
                ..ServicesItem::default()
            }
        };
        let window = faults.map(window_of).ok_or_else(|| "the workload did not end".to_owned());
        let modules = exit.report.map_or_else(Vec::new, |report| report.modules);
        Ok(Some(MachineResult {
            window,
            accounting,
            wall: exit.wall,
            modules,
            early: early_reason,
            had_enough,
        }))
    }
}

impl SimServices {
    /// Measures, and also returns the record, which contains more than services. `None` if the user stopped the machine
    /// before its window opened. Keeps notices, limit and host time for the facts.
    ///
    /// Fails as [`ServicesBench::measure`] does.
    pub fn measure_recorded(&mut self) -> Result<Option<(ServicesSample, Accounting)>, BenchError> {
        let settings = &self.settings;
        let (experiment, count, at_once) = ("services", 1, 1);
        settings.guest.progress.plan(PlannedMachines { experiment, count, at_once });
        let result = match &settings.work {
            Work::Command(request) => {
                let request = Request::Services(request.clone());
                let expected = expected_phases(&settings.label);
                let machine_run = settings.guest.run::<ServicesResponse>(&request, expected)?;
                machine_run.map(|outcome| MachineResult {
                    window: outcome
                        .response
                        .and_then(|response| response.window)
                        .ok_or(outcome.no_response),
                    accounting: outcome.account,
                    wall: outcome.wall,
                    modules: outcome.modules,
                    early: outcome.early,
                    had_enough: false,
                })
            }
            Work::Workload(prepared) => self.run_workload(prepared)?,
        };
        let Some(result) = result else { return Ok(None) };
        let MachineResult { window, accounting, wall, modules, early: early_reason, had_enough } =
            result;
        // A command that ended by itself just before the stop is complete.
        let was_cut = window.as_ref().map_or(early_reason.is_some(), |window| window.interrupted);
        let cut_reason = if was_cut { early_reason } else { None };
        self.limit = cut_reason.and_then(|reason| settings.guest.limit_text(reason));
        self.notices.clone_from(&accounting.notices);
        if let Work::Workload(prepared) = &settings.work {
            self.notices.extend(prepared.other_sources.clone());
        }
        if let Err(reason) = &window
            && (early_reason.is_some() || had_enough)
        {
            self.notices.push(format!("{reason}: {NO_RESPONSE}"));
        }
        let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let symbols = settings.guest.with_modules_of_boot(settings.symbols.as_ref(), &modules)?;
        let kernel = (symbols.as_deref(), settings.btf.as_ref());
        let watch = &settings.guest.watch;
        let sample = sample_of(&accounting, window.as_ref().ok(), kernel, self.clock_hz(), watch);
        let mut sample = sample.map_err(BenchError::Failed)?;
        sample.interrupted = was_cut;
        if had_enough {
            sample.facts.insert("ended_by".to_owned(), json!("enough"));
            let regions = accounting.regions.iter().take(1);
            let executed =
                regions.flat_map(|region| &region.cpus).map(|cpu| cpu.used[INSTRUCTIONS]);
            sample.warnings.insert(0, part_warning(executed.sum()));
        }
        if let Some((region, bytes_max)) = accounting.regions.first().zip(settings.trace_bytes_max)
        {
            let clock_hz = u128::from(self.clock_hz().max(1));
            let ns = |cycles| {
                let ns = u128::from(cycles) * 1_000_000_000 / clock_hz;
                u64::try_from(ns).unwrap_or(u64::MAX)
            };
            let cpus = region.cpus.iter();
            let timeline =
                timeline_of(cpus, &region.senders, &accounting, symbols.as_deref(), bytes_max, ns);
            sample.timeline = Some(Arc::new(timeline));
        }
        self.settings.on_host.insert("command".to_owned(), json!({ "wall_ns": wall_ns }));
        Ok(Some((sample, accounting)))
    }
}

impl ServicesBench for SimServices {
    fn measure(&mut self) -> Result<Option<ServicesSample>, BenchError> {
        Ok(self.measure_recorded()?.map(|(sample, _)| sample))
    }
}
