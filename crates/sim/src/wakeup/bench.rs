//! [`SimWakeup`]: the bench itself. The threads of all CPUs run in one machine, whose record shows what delayed them.

use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};

use lab::cpu_warnings::{CpuWarning, CpuWarnings};
use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::guest_protocol::Request;
use lab::noise::KeepDetours;
use lab::wakeup::in_guest::{GuestThread, WakerRun, WakeupRequest, WakeupResponse};
use lab::wakeup::{
    CpuWakeups, SeedOutcome, WakerCounts, Wakeup, WakeupBench, WakeupLedger, WakeupSample,
    shared_waker_warning,
};
use serde_json::{Map, Value as Json, json};

use super::join::{Names, ThreadOnCpu, parts, sent_parts};
use crate::Accounting;
use crate::accounting::CpuUse;
use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, PlannedMachines};
use crate::parallel::{Jobs, for_each};

/// The settings of a [`SimWakeup`].
pub struct SimWakeupSettings {
    /// The machine. Guest time must not follow the host's clock, and transitions must be recorded.
    pub guest: GuestRun,
    pub request: WakeupRequest,
    /// The choice of single wake-ups that are kept of each CPU.
    pub keep: KeepDetours,
    /// Facts that hold for this host or this moment only.
    pub on_host: Map<String, Json>,
    /// How many machines run, with the seeds from that of the request on. `None`: one machine, with the request's seed.
    pub seeds: Option<u32>,
    /// How many machines run at the same time.
    pub jobs: Jobs,
}

/// A machine that has run.
struct Ran {
    sample: WakeupSample,
    notices: Vec<String>,
    /// The limit that shortened the measurement.
    limit: Option<String>,
    wall_ns: u64,
}

/// What is kept of the machine of a seed.
#[derive(Default)]
struct SeedRun {
    outcome: Option<SeedOutcome>,
    /// Whether the window had its whole length.
    is_whole: bool,
    limit: Option<String>,
    cpu_warnings: Vec<CpuWarning>,
}

/// The machines of all seeds.
#[derive(Default)]
struct SeedsSummary {
    outcomes: Vec<SeedOutcome>,
    /// Whether all windows had their whole length.
    is_whole: bool,
    /// The first limit that ended a machine early.
    limit: Option<String>,
    /// The first error of a machine.
    error: Option<BenchError>,
    cpu_warnings: CpuWarnings,
}

impl SeedsSummary {
    fn add(&mut self, seed: u64, ran: Result<SeedRun, BenchError>) {
        let ran = ran.unwrap_or_else(|error| {
            // The guest of a machine that a limit ended does not respond any more.
            let limit = match &error {
                BenchError::TimeLimit(text) => Some(text.clone()),
                _ => None,
            };
            self.error.get_or_insert(error);
            SeedRun { limit, ..SeedRun::default() }
        });
        self.is_whole &= ran.is_whole;
        self.limit = self.limit.take().or(ran.limit);
        for warning in ran.cpu_warnings {
            self.cpu_warnings.add(&format!("seed {seed}"), warning);
        }
        self.outcomes.extend(ran.outcome);
    }
}

/// Time from the opening of the window to the first due time, on the guest's clock.
const START_NS: u64 = 20_000_000;
/// Name of the machine in progress messages.
const LABEL: &str = "wake-ups";
/// Why a run that ended early has no results: the records are in the guest's response.
const NO_RESPONSE: &str = "its wake-ups are lost";
/// What a reader must know of a CPU whose contexts do not cover its wake-ups.
const NOT_COVERED: &str = "broken: the record of contexts does not begin before its wake-ups";

const CLOCKS_DIFFER: &str =
    "broken: the guest's clock and its time-stamp counter advance at different rates";
/// Largest difference of both clocks over a window: this part of it, and some ns of their readings.
const CLOCKS_DIFFER_PARTS: u64 = 10_000;
const CLOCKS_DIFFER_NS: u64 = 1_000;

/// A simulated machine as a bench.
pub struct SimWakeup {
    settings: SimWakeupSettings,
    notices: Vec<String>,
    /// The limit that ended the machine early.
    limit: Option<String>,
}

impl SimWakeup {
    /// Makes a bench. Starts no machine yet.
    #[must_use]
    pub fn new(settings: SimWakeupSettings) -> SimWakeup {
        SimWakeup { settings, notices: Vec::new(), limit: None }
    }

    /// What is known of the machine before it runs.
    fn expected(&self) -> Expected<'static> {
        let WakeupRequest { warm_up_ns, duration_ns, .. } = self.settings.request;
        let ns = u128::from(START_NS) + u128::from(warm_up_ns) + u128::from(duration_ns);
        let cycles = ns * u128::from(self.settings.guest.clock_hz()) / 1_000_000_000;
        Expected {
            label: LABEL,
            window_cycles: u64::try_from(cycles).ok(),
            windows: Some(1),
            warm_up_cycles: None,
        }
    }

    /// The request to the machine with this seed.
    fn request(&self, seed: Option<u64>) -> Request {
        Request::Wakeup(WakeupRequest { seed, ..self.settings.request.clone() })
    }

    /// The seeds of the machines, in order.
    fn seeds(&self) -> Vec<Option<u64>> {
        let first = self.settings.request.seed;
        match self.settings.seeds {
            None => vec![first],
            Some(count) => {
                let first = first.unwrap_or(1);
                (0..u64::from(count)).map(|number| Some(first.saturating_add(number))).collect()
            }
        }
    }

    /// Returns the work of the machines. Starts no machine.
    ///
    /// Fails if a request cannot be written.
    pub fn planned(&self) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let planned = |seed: Option<u64>| {
            let work = self.settings.guest.work(&self.request(seed), &self.expected())?;
            let label = self.settings.seeds.and(seed).map(|seed| format!("seed {seed}"));
            Ok((label.unwrap_or_else(|| LABEL.to_owned()), work))
        };
        self.seeds().into_iter().map(planned).collect()
    }

    /// Runs the machine of the request. `None` if the user asked to stop before its window opened.
    fn run_one(&mut self) -> Result<Option<WakeupSample>, BenchError> {
        let planned = PlannedMachines { experiment: "wakeup", count: 1, at_once: 1 };
        self.settings.guest.progress.plan(planned);
        let ran = self.run(self.settings.request.seed)?;
        Ok(ran.map(|ran| self.keep(ran)))
    }

    /// Runs the machines of all seeds, then the machine with the worst wake-up once more. `None` after a stop request before
    /// the first window opened.
    ///
    /// Fails if a machine fails, or if the worst wake-up differs in the second run.
    fn run_seeds(&mut self) -> Result<Option<WakeupSample>, BenchError> {
        let (seeds, jobs) = (self.seeds(), self.settings.jobs);
        let planned =
            PlannedMachines { experiment: "wakeup", count: seeds.len() + 1, at_once: jobs.count };
        self.settings.guest.progress.plan(planned);
        // The samples of all machines would need much memory.
        let worst: Mutex<Option<(SeedOutcome, Ran)>> = Mutex::new(None);
        let bench = &*self;
        let run_seed = |_: usize, seed: &Option<u64>| {
            if bench.stop_requested() {
                return Ok(SeedRun::default());
            }
            let Some(ran) = bench.run(*seed)? else { return Ok(SeedRun::default()) };
            let outcome = SeedOutcome::worst_of_window(seed.unwrap_or(0), &ran.sample);
            let seed_run = SeedRun {
                is_whole: !ran.sample.interrupted,
                limit: ran.limit.clone(),
                cpu_warnings: ran.sample.cpu_warnings.clone(),
                outcome: outcome.clone(),
            };
            let mut worst = worst.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(outcome) = outcome
                && worst.as_ref().is_none_or(|(worst, _)| is_worse(&outcome, worst))
            {
                *worst = Some((outcome, ran));
            }
            Ok(seed_run)
        };
        let mut summary = SeedsSummary { is_whole: true, ..SeedsSummary::default() };
        for (seed_run, seed) in for_each(jobs, &seeds, run_seed).into_iter().zip(&seeds) {
            summary.add(seed.unwrap_or(0), seed_run);
        }
        let ended_early = summary.limit.is_some() || self.stop_requested();
        if let Some(error) = summary.error.filter(|_| summary.outcomes.is_empty() || !ended_early) {
            return Err(error);
        }
        let worst = worst.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some((worst, first)) = worst else { return Ok(None) };
        let again = if summary.is_whole && !ended_early { self.run_again(&worst)? } else { None };
        let is_repeated = again.is_some();
        let mut sample = self.keep(again.unwrap_or(first));
        self.limit = self.limit.take().or(summary.limit);
        sample.interrupted |= !is_repeated;
        sample.facts.insert("worst_seed".to_owned(), json!(worst.seed));
        sample.facts.insert("worst_seed_runs".to_owned(), json!(1 + u32::from(is_repeated)));
        if !is_repeated {
            let (done, all) = (summary.outcomes.len(), seeds.len());
            sample.warnings.push(format!(
                "{done} of {all} seeds have results, and the machine with the latest wake-up did not run again"
            ));
        }
        sample.warnings.extend(summary.cpu_warnings.lines());
        sample.cpu_warnings.clear();
        sample.seeds = summary.outcomes;
        Ok(Some(sample))
    }

    /// Runs the machine with the worst wake-up once more. `None` if a stop or a limit ended it.
    ///
    /// Fails if its worst wake-up is not the same again.
    fn run_again(&self, worst: &SeedOutcome) -> Result<Option<Ran>, BenchError> {
        let ran = match self.run(Some(worst.seed)) {
            Err(BenchError::TimeLimit(_)) => return Ok(None),
            Err(_) if self.stop_requested() => return Ok(None),
            ran => ran?.filter(|ran| !ran.sample.interrupted),
        };
        let outcome = |ran: &Ran| SeedOutcome::worst_of_window(worst.seed, &ran.sample);
        match ran {
            Some(ran) if outcome(&ran).as_ref() != Some(worst) => Err(BenchError::Failed(format!(
                "the machine with seed {} was not the same again: its latest wake-up was {} ns late in the first run \
                 (please report this)",
                worst.seed, worst.late_ns
            ))),
            ran => Ok(ran),
        }
    }

    /// Keeps the facts of the machine whose window is reported.
    fn keep(&mut self, ran: Ran) -> WakeupSample {
        self.settings.on_host.insert("wall_ns".to_owned(), json!(ran.wall_ns));
        self.notices = ran.notices;
        self.limit = ran.limit;
        ran.sample
    }

    /// Runs the machine with a seed. `None` if the user asked to stop before its window opened.
    fn run(&self, seed: Option<u64>) -> Result<Option<Ran>, BenchError> {
        let guest = &self.settings.guest;
        let ran = guest.run::<WakeupResponse>(&self.request(seed), self.expected())?;
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
        Ok(Some(Ran {
            wall_ns: u64::try_from(ran.wall.as_nanos()).unwrap_or(u64::MAX),
            notices: ran.account.notices,
            // A limit that came after the threads is not reported: it shortened nothing.
            limit: limit.filter(|_| sample.interrupted),
            sample,
        }))
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
        check_cpus(response, self.settings.request.cpus.as_deref(), region.cpus.len())
            .map_err(|reason| failed(&reason))?;
        for thread in &response.threads {
            let cpu = region.cpus.iter().find(|cpu| cpu.cpu == thread.run.cpu);
            let cpu = cpu.ok_or_else(|| failed("a thread ran on a CPU that there is not"))?;
            let opened = counter_at_start(thread);
            let in_window = cpu.transitions.iter().filter(|transition| transition.tsc >= opened);
            events += in_window.count() as u64;
            facts.insert("scheduler".to_owned(), json!(thread.run.scheduler));
            let starts_ns = cpu.transitions.first().map(|first| first.tsc);
            if !is_covered(thread, starts_ns) {
                cpu_warnings.push(CpuWarning::new(thread.run.cpu, NOT_COVERED));
            }
            if !clocks_agree(thread) {
                cpu_warnings.push(CpuWarning::new(thread.run.cpu, CLOCKS_DIFFER));
            }
            if let Some(error) = &thread.run.refused_policy {
                let problem = format!("the guest refuses the scheduling class ({error})");
                cpu_warnings.push(CpuWarning::new(thread.run.cpu, &problem));
            }
            if let Some(error) = &thread.run.unlocked_memory {
                let problem = format!("the guest's memory is not locked ({error})");
                cpu_warnings.push(CpuWarning::new(thread.run.cpu, &problem));
            }
            if let Some(waker) = &thread.run.waker {
                facts.insert("waker_scheduler".to_owned(), json!(waker.scheduler));
                if let Some(error) = &waker.refused_policy {
                    let problem =
                        format!("the guest refuses the waker's scheduling class ({error})");
                    cpu_warnings.push(CpuWarning::new(thread.run.cpu, &problem));
                }
            }
            cpus.push(self.cpu(thread, cpu, &region.cpus, &mut names, account)?);
        }
        // Known only now: the guest chooses the measured CPUs.
        let measured: Vec<u32> = cpus.iter().map(|cpu| cpu.cpu).collect();
        let waker = response.threads.iter().find_map(|thread| thread.run.waker.as_ref());
        let mut warnings = response.warnings.clone();
        warnings.extend(
            waker.and_then(|waker| shared_waker_warning(&measured, waker.cpu, &waker.scheduler)),
        );
        let runs = || response.threads.iter().map(|thread| &thread.run);
        Ok(WakeupSample {
            cpus,
            unmeasured: Vec::new(),
            names: names.list,
            lost_events: Some(0),
            events: Some(events),
            window_ns: runs().map(|run| run.window_ns).max().unwrap_or(0),
            interrupted: runs().any(|run| run.interrupted),
            warnings,
            cpu_warnings,
            facts,
            flight_record: None,
            seeds: Vec::new(),
            wall_clock: None,
        })
    }

    /// The wake-ups of a thread with their parts.
    fn cpu(
        &self,
        thread: &GuestThread,
        cpu: &CpuUse,
        all_cpus: &[CpuUse],
        names: &mut Names,
        account: &Accounting,
    ) -> Result<CpuWakeups, BenchError> {
        let run = &thread.run;
        let measured = ThreadOnCpu { transitions: &cpu.transitions, thread: run.thread };
        let waker_on_cpu = |waker: &WakerRun| -> Result<ThreadOnCpu<'_>, BenchError> {
            let cpu = all_cpus.iter().find(|cpu| cpu.cpu == waker.cpu).ok_or_else(|| {
                BenchError::Failed("a waker ran on a CPU that there is not".to_owned())
            })?;
            Ok(ThreadOnCpu { transitions: &cpu.transitions, thread: waker.thread })
        };
        let waker = run.waker.as_ref().map(waker_on_cpu).transpose()?;
        let mut ledger = WakeupLedger::new(self.settings.keep);
        for &[due_ns, woke_ns, woke_tsc] in &thread.records {
            let wakeup = Wakeup { due_ns, woke_ns };
            let due_tsc = woke_tsc.saturating_sub(wakeup.late_ns());
            let window = (due_tsc, woke_tsc);
            let mut parts = match waker {
                None => parts(window, &cpu.transitions, run.thread, names, account),
                Some(waker) => sent_parts(window, waker, measured, names, account),
            };
            ledger.add_split(wakeup, &mut parts);
        }
        Ok(CpuWakeups {
            cpu: run.cpu,
            start_ns: run.start_ns,
            ledger,
            missed: run.missed,
            waker: run.waker.as_ref().map(|waker| WakerCounts {
                cpu: waker.cpu,
                missed: waker.missed,
                not_asleep: waker.not_asleep,
            }),
            lost: run.lost,
            page_faults: run.page_faults,
            left: false,
        })
    }
}

/// Whether a wake-up is later than another; of equally late ones, that of the smaller seed.
fn is_worse(one: &SeedOutcome, other: &SeedOutcome) -> bool {
    (one.late_ns, Reverse(one.seed)) > (other.late_ns, Reverse(other.seed))
}

/// Checks that each CPU of the request has one thread; without a request, each of the machine's `count` CPUs.
fn check_cpus(
    response: &WakeupResponse,
    requested: Option<&[u32]>,
    count: usize,
) -> Result<(), String> {
    let mut cpus: Vec<u32> = response.threads.iter().map(|thread| thread.run.cpu).collect();
    cpus.sort_unstable();
    let mut expected = match requested {
        Some(cpus) => cpus.to_vec(),
        None => (0..count as u32).collect(),
    };
    expected.sort_unstable();
    if cpus == expected {
        return Ok(());
    }
    Err(format!("the guest measured CPUs {cpus:?} instead of {expected:?}"))
}

/// The time-stamp counter at the opening of the thread's window. 0 without a wake-up.
fn counter_at_start(thread: &GuestThread) -> u64 {
    let start_ns = thread.run.start_ns;
    let first = thread.records.first();
    first.map_or(0, |&[_, woke_ns, counter]| {
        counter.saturating_sub(woke_ns.saturating_sub(start_ns))
    })
}

/// Whether CLOCK_MONOTONIC and the time-stamp counter advanced by the same time between the first and the last wake-up.
fn clocks_agree(thread: &GuestThread) -> bool {
    let Some((first, last)) = thread.records.first().zip(thread.records.last()) else {
        return true;
    };
    let passed_ns = last[1].saturating_sub(first[1]);
    let difference_ns = last[2].saturating_sub(first[2]).abs_diff(passed_ns);
    difference_ns <= passed_ns / CLOCKS_DIFFER_PARTS + CLOCKS_DIFFER_NS
}

/// Whether the record of contexts, which starts at `starts_ns`, begins before the thread's first due time.
fn is_covered(thread: &GuestThread, starts_ns: Option<u64>) -> bool {
    thread.records.first().is_none_or(|&[due_ns, woke_ns, woke_tsc]| {
        let due_tsc = woke_tsc.saturating_sub(woke_ns.saturating_sub(due_ns));
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
        settings.insert("user_mode".into(), json!(config.guest.watch.user_mode()));
        settings.insert("cpus".into(), json!(config.request.cpus));
        let waker_cpu = config.request.waker_cpu.map(|cpu| cpu.to_string());
        settings.insert("waker_cpus".into(), json!(waker_cpu));
        settings.insert("vcpu_slice_cycles".into(), json!(config.guest.watch.vcpu_slice));
        settings.insert("start".into(), json!(config.guest.start.described()));
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
        // Stopped before the window opened: nothing was measured.
        let sample = if self.settings.seeds.is_some() { self.run_seeds() } else { self.run_one() };
        Ok(sample?.unwrap_or_else(|| WakeupSample {
            cpus: Vec::new(),
            unmeasured: Vec::new(),
            names: Vec::new(),
            lost_events: None,
            events: None,
            window_ns: 0,
            interrupted: true,
            warnings: Vec::new(),
            cpu_warnings: Vec::new(),
            facts: Map::new(),
            flight_record: None,
            seeds: Vec::new(),
            wall_clock: None,
        }))
    }

    fn can_measure_parts(&self, _parts: u32) -> Result<(), String> {
        Err("the simulator observes from outside, and delays nothing".to_owned())
    }

    fn measure_part(&mut self, traced: bool, _parts: u32) -> Result<WakeupSample, BenchError> {
        self.measure(traced)
    }
}
