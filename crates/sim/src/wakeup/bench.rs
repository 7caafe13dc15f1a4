//! [`SimWakeup`]: the bench itself. The threads of all CPUs run in one machine, whose record shows what delayed them.

use lab::cpu_warnings::CpuWarning;
use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::guest_protocol::Request;
use lab::noise::KeepDetours;
use lab::wakeup::in_guest::{GuestThread, WakeupRequest, WakeupResponse};
use lab::wakeup::{CpuWakeups, Wakeup, WakeupBench, WakeupLedger, WakeupSample};
use serde_json::{Map, Value as Json, json};

use super::join::{Names, parts};
use crate::Accounting;
use crate::accounting::CpuUse;
use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, PlannedMachines};

/// The settings of a [`SimWakeup`].
pub struct SimWakeupSettings {
    /// The machine. Guest time must not follow the host's clock, and transitions must be recorded.
    pub guest: GuestRun,
    pub request: WakeupRequest,
    /// The choice of single wake-ups that are kept of each CPU.
    pub keep: KeepDetours,
    /// Facts that hold for this host or this moment only.
    pub on_host: Map<String, Json>,
}

/// Name of the machine in progress messages.
const LABEL: &str = "wake-ups";
/// Why a run that ended early has no results: the records are in the guest's response.
const NO_RESPONSE: &str = "its wake-ups are lost";
/// What a reader must know of a CPU whose contexts do not cover its wake-ups.
const NOT_COVERED: &str = "broken: the record of contexts does not begin before its wake-ups";

/// A simulated machine as a bench.
pub struct SimWakeup {
    settings: SimWakeupSettings,
    notices: Vec<String>,
    /// The limit that ended the machine early.
    limit: Option<String>,
    broken: u64,
}

impl SimWakeup {
    /// Makes a bench. Starts no machine yet.
    #[must_use]
    pub fn new(settings: SimWakeupSettings) -> SimWakeup {
        SimWakeup { settings, notices: Vec::new(), limit: None, broken: 0 }
    }

    /// What is known of the machine before it runs.
    fn expected(&self) -> Expected<'static> {
        let WakeupRequest { warm_up_ns, duration_ns, .. } = self.settings.request;
        let ns = u128::from(warm_up_ns) + u128::from(duration_ns);
        let cycles = ns * u128::from(self.settings.guest.clock_hz()) / 1_000_000_000;
        Expected {
            label: LABEL,
            window_cycles: u64::try_from(cycles).ok(),
            windows: Some(1),
            warm_up_cycles: None,
        }
    }

    fn request(&self) -> Request {
        Request::Wakeup(self.settings.request.clone())
    }

    /// Returns the work of the machine. Starts no machine.
    ///
    /// Fails if the request cannot be written.
    pub fn planned(&self) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let work = self.settings.guest.work(&self.request(), &self.expected())?;
        Ok(vec![(LABEL.to_owned(), work)])
    }

    /// Runs the machine. `None` if the user asked to stop before its window opened.
    fn run(&mut self) -> Result<Option<WakeupSample>, BenchError> {
        let guest = &self.settings.guest;
        guest.progress.plan(PlannedMachines { experiment: "wakeup", count: 1, at_once: 1 });
        let ran = guest.run::<WakeupResponse>(&self.request(), self.expected())?;
        let Some(ran) = ran else { return Ok(None) };
        let limit = ran.early.and_then(|early| guest.limit_text(early));
        let reason = ran.no_response;
        let response = ran.response.ok_or_else(|| match &limit {
            Some(limit) => BenchError::TimeLimit(format!("{limit}; {reason}: {NO_RESPONSE}")),
            None => BenchError::Failed(format!("{reason}: {NO_RESPONSE}")),
        })?;
        if let Some(broken) = ran.account.broken.first() {
            let reason = format!("the record of the machine is broken: {broken}");
            return Err(BenchError::Failed(reason));
        }
        let sample = self.sample(&response, &ran.account)?;
        let wall_ns = u64::try_from(ran.wall.as_nanos()).unwrap_or(u64::MAX);
        self.settings.on_host.insert("wall_ns".to_owned(), json!(wall_ns));
        self.notices = ran.account.notices;
        // A limit that came after the threads is not reported: it shortened nothing.
        self.limit = limit.filter(|_| sample.interrupted);
        let broken = sample.cpu_warnings.iter().filter(|warning| warning.is_broken()).count();
        self.broken = broken as u64;
        Ok(Some(sample))
    }

    /// Joins the threads with the record, CPU by CPU.
    fn sample(
        &self,
        response: &WakeupResponse,
        account: &Accounting,
    ) -> Result<WakeupSample, BenchError> {
        let failed = |reason: &str| BenchError::Failed(reason.to_owned());
        let region = account.regions.first();
        let region = region.ok_or_else(|| failed("the window was never opened"))?;
        let (mut names, mut facts, mut cpu_warnings) = (Names::default(), Map::new(), Vec::new());
        let (mut cpus, mut events) = (Vec::new(), 0);
        for thread in &response.threads {
            let cpu = region.cpus.iter().find(|cpu| cpu.cpu == thread.run.cpu);
            let cpu = cpu.ok_or_else(|| failed("a thread ran on a CPU that there is not"))?;
            events += cpu.transitions.len() as u64;
            facts.insert("scheduler".to_owned(), json!(thread.run.scheduler));
            let starts_ns = cpu.transitions.first().map(|first| first.tsc);
            if !is_covered(thread, starts_ns) {
                cpu_warnings.push(CpuWarning::new(thread.run.cpu, NOT_COVERED));
            }
            cpus.push(self.cpu(thread, cpu, &mut names, account));
        }
        let runs = || response.threads.iter().map(|thread| &thread.run);
        Ok(WakeupSample {
            cpus,
            unmeasured: Vec::new(),
            names: names.list,
            lost_events: Some(0),
            events: Some(events),
            window_ns: runs().map(|run| run.window_ns).max().unwrap_or(0),
            interrupted: runs().any(|run| run.interrupted),
            warnings: Vec::new(),
            cpu_warnings,
            facts,
        })
    }

    /// The wake-ups of a thread with their parts.
    fn cpu(
        &self,
        thread: &GuestThread,
        cpu: &CpuUse,
        names: &mut Names,
        account: &Accounting,
    ) -> CpuWakeups {
        let run = &thread.run;
        let mut ledger = WakeupLedger::new(self.settings.keep);
        for &[due_ns, woke_ns, woke_tsc] in &thread.records {
            let wakeup = Wakeup { due_ns, woke_ns };
            let due_tsc = woke_tsc.saturating_sub(wakeup.late_ns());
            let window = (due_tsc, woke_tsc);
            let mut parts = parts(window, &cpu.transitions, run.thread, names, account);
            ledger.add_split(wakeup, &mut parts);
        }
        CpuWakeups {
            cpu: run.cpu,
            start_ns: run.start_ns,
            ledger,
            missed: run.missed,
            lost: run.lost,
            page_faults: run.page_faults,
            left: false,
        }
    }
}

/// Whether the record of contexts, which starts at `starts_ns`, begins before the thread's first due time.
fn is_covered(thread: &GuestThread, starts_ns: Option<u64>) -> bool {
    thread.records.first().is_none_or(|&[due_ns, woke_ns, woke_tsc]| {
        let due_tsc = woke_tsc.saturating_sub(woke_ns - due_ns);
        starts_ns.is_some_and(|starts_ns| starts_ns <= due_tsc)
    })
}

impl Bench for SimWakeup {
    fn facts(&self) -> BenchFacts {
        let config = &self.settings;
        let mut settings = Map::new();
        settings.insert("qemu".into(), json!(config.guest.qemu.version_text));
        settings.insert("machine".into(), json!(config.guest.machine.described()));
        let model = config.guest.watch.model.as_ref().map(|model| &model.described);
        settings.insert("model".into(), json!(model));
        settings.insert("cpus".into(), json!(config.request.cpus));
        settings.insert("vcpu_slice_cycles".into(), json!(config.guest.watch.vcpu_slice));
        settings.insert("start".into(), json!(config.guest.start.described()));
        settings.insert("broken".into(), json!(self.broken));
        settings.insert("on_host".into(), Json::Object(config.on_host.clone()));
        let mut observer = Map::new();
        observer.insert("method".into(), json!("QEMU plugin; the guest does not see it"));
        observer.insert("guest_overhead_ns".into(), json!(0));
        BenchFacts {
            bench: "sim".to_owned(),
            settings,
            observer,
            absent: config.guest.kernel_files.absent(&config.guest.watch, "causes"),
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

impl WakeupBench for SimWakeup {
    fn sees_events(&self) -> bool {
        true
    }

    fn measure(&mut self, _traced: bool) -> Result<WakeupSample, BenchError> {
        let stopped = || BenchError::Failed("stopped before the window opened".to_owned());
        self.run()?.ok_or_else(stopped)
    }

    fn can_measure_parts(&self, _parts: u32) -> Result<(), String> {
        Err("the simulator observes from outside, and delays nothing".to_owned())
    }

    fn measure_part(&mut self, traced: bool, _parts: u32) -> Result<WakeupSample, BenchError> {
        self.measure(traced)
    }
}
