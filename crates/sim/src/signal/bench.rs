//! [`SimSignal`]: the simulated bench of the experiment `signal`. It runs a machine for each window, several at the
//! same time.
//!
//! `lab` announces the windows of a round by `prepare`, and then requests them one by one. The first request runs the
//! machines of several windows ahead.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use lab::experiment::{Absence, Bench, BenchError, BenchFacts};
use lab::guest_protocol::Request;
use lab::keys;
use lab::signal::in_guest::{GuestWindow, MeasuredWindow, SignalRequest, SignalResponse};
use lab::signal::{
    Activity, RatePoint, RateWindow, Rig, RoundTripPoint, RoundTripWindow, SignalBench,
    TransferPoint, TransferWindow, Window,
};
use serde_json::{Map, Value as Json, json};

use super::count::Counted;
use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, PlannedMachines};
use crate::machine::devices::Coalescing;
use crate::machine::found::check_cards;
use crate::parallel::{Jobs, for_each};

/// The settings of a [`SimSignal`].
pub struct SimSignalSettings {
    /// The machine; each window starts one. It has a model, and the cards of the rig.
    pub guest: GuestRun,
    pub rig: Rig,
    pub sender_cpu: u32,
    /// CPU of the receiver; not `sender_cpu`.
    pub receiver_cpu: u32,
    /// Length of a window of guest time.
    pub length: Duration,
    /// Work of the receiver for each event: a number of dependent additions.
    pub work_additions: u64,
    /// How many windows are measured at the same time.
    pub jobs: Jobs,
    /// Facts that hold for this host or this moment only.
    pub on_host: Map<String, Json>,
}

/// Number of windows that are measured ahead, for each machine that runs at the same time. Several windows keep all
/// machines busy, because some windows take longer. A user who stops a run loses at most these.
const ROUNDS_AHEAD: usize = 4;

/// Number of regions of a machine: a control without events, and the window.
const REGIONS: u32 = 2;

/// Result of a window; `None` when the user asked to stop.
type Outcome = Result<Option<WindowRun>, BenchError>;

/// A window that was measured.
struct WindowRun {
    window: GuestWindow,
    notices: Vec<String>,
    wall: Duration,
}

/// A simulated machine as a bench.
pub struct SimSignal {
    settings: SimSignalSettings,
    /// Windows and seeds that will be requested, in this order.
    planned: VecDeque<(Window, u64)>,
    /// Outcomes that were measured before their request, without those of a stop.
    ahead: VecDeque<((Window, u64), Outcome)>,
    /// Settings that the guest of the last requested window reported.
    found: Map<String, Json>,
    notices: Vec<String>,
    /// Number of requested windows; a machine measured each of them.
    machines: u64,
    /// Their time on the host's clock. Machines that ran at the same time add up.
    wall: Duration,
}

impl SimSignal {
    /// Makes a bench. Starts no machine yet.
    #[must_use]
    pub fn new(settings: SimSignalSettings) -> SimSignal {
        SimSignal {
            settings,
            planned: VecDeque::new(),
            ahead: VecDeque::new(),
            found: Map::new(),
            notices: Vec::new(),
            machines: 0,
            wall: Duration::ZERO,
        }
    }

    /// Returns the cycles per second of the model; `None` without a model.
    #[must_use]
    pub fn clock_hz(&self) -> Option<u64> {
        self.settings.guest.watch.model.as_ref().map(|model| model.model.clock_hz)
    }

    /// Checks that the rig can measure a window, before a machine starts for it.
    fn check(&self, window: Window) -> Result<(), BenchError> {
        let rig = self.settings.rig;
        if !rig.has_sockets() && !matches!(window, Window::Rate(_)) {
            return Err(BenchError::Unavailable {
                reason: format!("the rig {} has no sockets", rig.word()),
                remedy: Some("irqlab signal run --rig virtio-net".to_owned()),
            });
        }
        rig.check(window.scheme())?;
        self.check_coalescing(window)
    }

    /// Checks that the disks of the machine can hold back completions if the scheme needs it: a disk with the time of a
    /// drive cannot.
    fn check_coalescing(&self, window: Window) -> Result<(), BenchError> {
        let holds_back = self.settings.rig.coalescing(window.scheme()).is_some();
        if holds_back && self.settings.guest.machine.disks.iter().any(|disk| disk.drive.is_some()) {
            return Err(BenchError::Unavailable {
                reason: "a simulated disk with drive= does not hold back completions".to_owned(),
                remedy: Some("--disk nvme,latency=80us".to_owned()),
            });
        }
        Ok(())
    }

    /// Runs a machine for a window. Runs a second machine if the first one fails: a busy host can stop QEMU so long
    /// that it misses a limit on the host's clock. Runs are repeatable, so the second machine gives the result
    /// that the first one would have given, or fails for a reason of its own.
    fn run_or_again(&self, window: Window, seed: u64) -> Outcome {
        match self.run(window, seed) {
            Err(BenchError::Failed(_)) if !self.stop_requested() => self.run(window, seed),
            outcome => outcome,
        }
    }

    fn model_hz(&self) -> Result<u64, BenchError> {
        self.clock_hz().ok_or_else(|| {
            BenchError::Failed("two CPUs need a model: without one they share one time".to_owned())
        })
    }

    fn length_ns(&self) -> u64 {
        u64::try_from(self.settings.length.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the machine of a window. The disk of `coalesced` holds back its completions; the guest's devices are the
    /// same for all schemes.
    fn guest(&self, window: Window) -> Cow<'_, GuestRun> {
        let Some((count, delay_ns)) = self.settings.rig.coalescing(window.scheme()) else {
            return Cow::Borrowed(&self.settings.guest);
        };
        let mut guest = self.settings.guest.clone();
        for disk in &mut guest.machine.disks {
            disk.coalescing = Some(Coalescing { count, delay_ns });
        }
        Cow::Owned(guest)
    }

    /// Returns the request to the guest for a window.
    fn request(&self, window: Window, seed: u64) -> Request {
        let settings = &self.settings;
        Request::Signal(SignalRequest {
            rig: settings.rig,
            window,
            sender_cpu: settings.sender_cpu,
            receiver_cpu: settings.receiver_cpu,
            length_ns: self.length_ns(),
            work_additions: settings.work_additions,
            seed,
        })
    }

    fn expected<'a>(&self, label: &'a str, clock_hz: u64) -> Expected<'a> {
        let cycles = u128::from(self.length_ns()) * u128::from(clock_hz) / 1_000_000_000;
        let window_cycles = Some(u64::try_from(cycles).unwrap_or(u64::MAX));
        Expected { label, window_cycles, windows: Some(REGIONS), warm_up_cycles: None }
    }

    /// Returns how many windows are measured at the same time.
    #[must_use]
    pub fn at_once(&self) -> usize {
        self.settings.jobs.count
    }

    /// Returns the work of the machine of each window. Starts no machine.
    ///
    /// Fails without a model, or if a request cannot be written.
    pub fn planned(&self, windows: &[Window]) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let clock_hz = self.model_hz()?;
        let work = |window: &Window| {
            let (request, label) = (self.request(*window, 0), window.label());
            let work = self.guest(*window).work(&request, &self.expected(&label, clock_hz))?;
            Ok((label, work))
        };
        windows.iter().map(work).collect()
    }

    /// Runs a machine for a window.
    fn run(&self, window: Window, seed: u64) -> Outcome {
        self.check(window)?;
        let settings = &self.settings;
        let clock_hz = self.model_hz()?;
        let (request, label) = (self.request(window, seed), window.label());
        let expected = self.expected(&label, clock_hz);
        let outcome = self.guest(window).run::<SignalResponse>(&request, expected)?;
        let Some(outcome) = outcome else { return Ok(None) };
        // A window that ended early is no sample.
        let (Some(response), None) = (outcome.response, outcome.early) else {
            return match outcome.early.and_then(|early| settings.guest.limit_text(early)) {
                Some(limit) => Err(BenchError::TimeLimit(limit)),
                None => Ok(None),
            };
        };
        let accounting = outcome.account;
        let mut guest_report = response
            .window
            .filter(|guest_window| guest_window.measured.window() == window)
            .ok_or_else(another_window)?;
        if let Some(cards) = settings.guest.machine.nics {
            check_cards(cards, &guest_report.facts).map_err(BenchError::Failed)?;
        }
        let counted = Counted::find(&accounting, settings.receiver_cpu, clock_hz);
        let irqs = irqs(guest_report.facts.remove(lab::signal::in_guest::DEVICE_IRQS));
        let counted = counted.map_err(BenchError::Failed)?;
        counted.add_to(activity(&mut guest_report.measured), settings.rig, &irqs);
        Ok(Some(WindowRun {
            window: guest_report,
            notices: accounting.notices,
            wall: outcome.wall,
        }))
    }

    /// Runs the machines of the next planned windows, several at the same time, and removes the windows from the plan.
    fn measure_ahead(&mut self) {
        let count = self.settings.jobs.count * ROUNDS_AHEAD;
        let windows: Vec<(Window, u64)> =
            self.planned.drain(..count.min(self.planned.len())).collect();
        let bench = &*self;
        let outcomes = for_each(bench.settings.jobs, &windows, |_, &(window, seed)| {
            if bench.stop_requested() { Ok(None) } else { bench.run_or_again(window, seed) }
        });
        let measured = windows.into_iter().zip(outcomes);
        self.ahead.extend(measured.filter(|(_, outcome)| !matches!(outcome, Ok(None))));
    }

    /// Returns the measurement of a window. If the window is planned, first measures the next planned windows, several at a
    /// time; `lab` requests them in the planned order, so this one is among them. A window that is not planned, or whose
    /// measurement was stopped, is measured alone.
    ///
    /// Fails as [`SimSignal::run_or_again`] does, and if the user asks to stop.
    fn measured_window(&mut self, window: Window, seed: u64) -> Result<MeasuredWindow, BenchError> {
        let key = (window, seed);
        if self.planned.contains(&key) {
            self.measure_ahead();
        }
        let position = self.ahead.iter().position(|(known, _)| *known == key);
        let outcome = match position.and_then(|position| self.ahead.remove(position)) {
            Some((_, outcome)) => outcome,
            None => self.run_or_again(window, seed),
        };
        let window_run = outcome?.ok_or_else(|| BenchError::Failed("stopped".to_owned()))?;
        self.add_facts(&window_run);
        Ok(window_run.window.measured)
    }

    /// Adds a requested window to the facts of the run. Windows that were measured and never requested do not count.
    fn add_facts(&mut self, window_run: &WindowRun) {
        self.machines += 1;
        self.wall += window_run.wall;
        self.found = window_run.window.facts.clone();
        for notice in &window_run.notices {
            if !self.notices.contains(notice) {
                self.notices.push(notice.clone());
            }
        }
    }
}

/// Returns the counts of the receiving CPU in a window of any kind.
fn activity(measured: &mut MeasuredWindow) -> &mut Activity {
    match measured {
        MeasuredWindow::Rate(window) => &mut window.activity,
        MeasuredWindow::Transfer(window) => &mut window.activity,
        MeasuredWindow::RoundTrip(window) => &mut window.activity,
    }
}

/// Returns the IRQ lines of the receiving card or of the disk, as the guest reports them.
fn irqs(named: Option<Json>) -> Vec<u32> {
    named.and_then(|json| serde_json::from_value(json).ok()).unwrap_or_default()
}

/// Returns the error for another window than requested. [`SimSignal::run`] refuses it; so no caller gets another kind.
fn another_window() -> BenchError {
    BenchError::Failed("the guest measured another window".to_owned())
}

impl Bench for SimSignal {
    fn facts(&self) -> BenchFacts {
        let config = &self.settings;
        let mut on_host = config.on_host.clone();
        let wall_ns = u64::try_from(self.wall.as_nanos()).unwrap_or(u64::MAX);
        on_host.insert("wall_ns".into(), json!(wall_ns));
        let model = config.guest.watch.model.as_ref();
        let settings = [
            ("qemu", json!(config.guest.qemu.version_text)),
            ("machine", json!(config.guest.machine.described())),
            ("model", json!(model.map(|model| &model.described))),
            ("vcpu_slice_cycles", json!(config.guest.watch.vcpu_slice)),
            ("start", json!(config.guest.start.described())),
            (keys::RIG, json!(config.rig.word())),
            ("sender_cpu", json!(config.sender_cpu)),
            ("receiver_cpu", json!(config.receiver_cpu)),
            ("window_ns", json!(u64::try_from(config.length.as_nanos()).unwrap_or(u64::MAX))),
            ("work_additions", json!(config.work_additions)),
            ("machines", json!(self.machines)),
            ("on_host", Json::Object(on_host)),
        ];
        let mut settings: Map<String, Json> =
            settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        settings.extend(self.found.clone());
        let observer = [
            ("method", json!("QEMU plugin; the guest does not see it")),
            ("guest_overhead_ns", json!(0)),
        ];
        let mut absent = Vec::new();
        if config.rig.has_sockets() {
            let reason = "the simulator counts softirqs, not NAPI's polls";
            absent.push(Absence::new("rates", "NAPI polls", reason));
        }
        absent.extend(config.guest.kernel_files.absences(&config.guest.watch, "rates"));
        BenchFacts {
            bench: "sim".to_owned(),
            settings,
            observer: observer.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
            absent,
            warnings: self.notices.clone(),
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.guest.is_stopped()
    }

    fn limit_reached(&self) -> Option<String> {
        self.settings.guest.reached_deadline()
    }
}

impl SignalBench for SimSignal {
    /// Each window runs on its own machine. The first request starts machines for several windows.
    fn prepare(&mut self, windows: &[(Window, u64)], further_rounds: u32) {
        // No machine starts for a window that the rig cannot measure.
        let in_round = windows.iter().filter(|(window, _)| self.check(*window).is_ok()).count();
        self.settings.guest.progress.plan(PlannedMachines {
            experiment: "signal run",
            count: in_round * (1 + further_rounds as usize),
            at_once: self.settings.jobs.count,
        });
        self.planned = windows.iter().copied().collect();
        self.ahead.clear();
    }

    fn is_measured(&self, window: Window, seed: u64) -> bool {
        self.ahead.iter().any(|(known, _)| *known == (window, seed))
    }

    /// Chance changes nothing: equal windows give equal numbers.
    fn has_chance(&self) -> bool {
        false
    }

    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError> {
        match self.measured_window(Window::Rate(*point), seed)? {
            MeasuredWindow::Rate(window) => Ok(window),
            _ => Err(another_window()),
        }
    }

    fn transfer_window(
        &mut self,
        point: &TransferPoint,
        seed: u64,
    ) -> Result<TransferWindow, BenchError> {
        match self.measured_window(Window::Transfer(*point), seed)? {
            MeasuredWindow::Transfer(window) => Ok(window),
            _ => Err(another_window()),
        }
    }

    fn round_trip_window(
        &mut self,
        point: &RoundTripPoint,
        seed: u64,
    ) -> Result<RoundTripWindow, BenchError> {
        match self.measured_window(Window::RoundTrip(*point), seed)? {
            MeasuredWindow::RoundTrip(window) => Ok(window),
            _ => Err(another_window()),
        }
    }
}
