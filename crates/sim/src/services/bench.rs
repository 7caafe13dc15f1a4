//! [`SimServices`]: runs the command in a machine, and makes a sample of its record.

use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::guest_protocol::Request;
use lab::services::in_guest::{ServicesItem, ServicesRequest, ServicesResponse};
use lab::services::{ServicesBench, ServicesSample};
use serde_json::{Map, Value as Json, json};

use super::convert::sample_of;
use crate::boot::GuestExit;
use crate::btf::Btf;
use crate::guest_run::{Expected, GuestRun, MachinePhase};
use crate::watch::Detail;
use crate::workload::{self, Outcome, Prepared};
use crate::{Accounting, Symbols};

/// The measured program in the guest.
pub enum Work {
    /// A command, by the irqlab in the guest.
    Command(ServicesRequest),
    /// A workload, set up in the machine.
    Workload(Box<Prepared>),
}

/// How to measure.
pub struct SimServicesSettings {
    /// The machine; its [`crate::watch::Watch::services`] is set.
    pub guest: GuestRun,
    pub work: Work,
    /// Symbols of its kernel, for the names of system calls, functions and variables.
    pub symbols: Option<Symbols>,
    /// Types of its kernel, for the names of members.
    pub btf: Option<Btf>,
    /// Settings that are true only for this host or at this moment.
    pub on_host: Map<String, Json>,
    /// The name of the machine, for progress.
    pub label: String,
}

/// A simulated machine as a bench.
pub struct SimServices {
    settings: SimServicesSettings,
    notices: Vec<String>,
}

impl SimServices {
    /// A bench; nothing is started yet.
    #[must_use]
    pub fn new(settings: SimServicesSettings) -> SimServices {
        SimServices { settings, notices: Vec::new() }
    }

    fn clock_hz(&self) -> u64 {
        let guest = &self.settings.guest;
        guest.watch.clock_hz(guest.machine.timing)
    }
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
            absent: guest.kernel_files.absent(&guest.watch, "services"),
            warnings: self.notices.clone(),
        }
    }

    fn stop_requested(&self) -> bool {
        (self.settings.guest.stop)()
    }
}

impl SimServices {
    /// Runs a workload, and checks its results. Also returns the guest's own counts.
    fn run_workload(
        &self,
        prepared: &Prepared,
    ) -> Result<Option<(Option<ServicesItem>, GuestExit, Accounting)>, BenchError> {
        let guest = &self.settings.guest;
        let stop = || {
            guest.progress.update(&self.settings.label, MachinePhase::Window(1), None);
            (guest.stop)()
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
        guest.progress.done(&self.settings.label);
        let Some(outcome) = result? else { return Ok(None) };
        if let Some(failure) = outcome.failure() {
            return Err(if outcome.reached_limit() {
                BenchError::TimeLimit(failure)
            } else {
                BenchError::Failed(failure)
            });
        }
        let Outcome { exit, accounting, .. } = outcome;
        let window = exit.faults.map(|faults| {
            let counts = [("pgfault", faults.all), ("pgmajfault", faults.major)];
            ServicesItem {
                command_ended: "its results are right".to_owned(),
                vmstat: counts.map(|(name, count)| (name.to_owned(), count)).into(),
                ..ServicesItem::default()
            }
        });
        Ok(Some((window, exit, accounting)))
    }
}

impl SimServices {
    /// Measures, and also returns the record, which contains more than services.
    ///
    /// Fails as [`ServicesBench::measure`] does.
    pub fn measure_recorded(&mut self) -> Result<Option<(ServicesSample, Accounting)>, BenchError> {
        let settings = &self.settings;
        let measured = match &settings.work {
            Work::Command(request) => {
                let request = Request::Services(request.clone());
                let expected = Expected { label: &settings.label, window_cycles: None };
                let measured = settings.guest.run::<ServicesResponse>(&request, expected)?;
                measured.map(|(response, exit, account)| (response.window, exit, account))
            }
            Work::Workload(prepared) => self.run_workload(prepared)?,
        };
        let Some((window, exit, account)) = measured else { return Ok(None) };
        self.notices.clone_from(&account.notices);
        if let Work::Workload(prepared) = &settings.work {
            self.notices.extend(prepared.other_sources.clone());
        }
        let wall_ns = u64::try_from(exit.wall.as_nanos()).unwrap_or(u64::MAX);
        let modules = exit.report.map_or_else(Vec::new, |report| report.modules);
        let symbols = settings.guest.with_modules_of_boot(settings.symbols.as_ref(), &modules)?;
        let kernel = (symbols.as_deref(), settings.btf.as_ref());
        let watch = &settings.guest.watch;
        let sample = sample_of(&account, window.as_ref(), kernel, self.clock_hz(), watch);
        self.settings.on_host.insert("command".to_owned(), json!({ "wall_ns": wall_ns }));
        let sample = sample.map_err(BenchError::Failed)?;
        Ok(Some((sample, account)))
    }
}

impl ServicesBench for SimServices {
    fn measure(&mut self) -> Result<Option<ServicesSample>, BenchError> {
        Ok(self.measure_recorded()?.map(|(sample, _)| sample))
    }
}
