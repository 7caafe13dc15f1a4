//! [`SimWakeup`]: the bench itself. The threads of all CPUs run in one machine, whose record shows what delayed them.

use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};

use attribution::KernelContext;
use lab::cpu_warnings::{CpuWarning, CpuWarnings};
use lab::experiment::{Absence, Bench, BenchError, BenchFacts};
use lab::flight_recorder::{FlightRecorder, Sent};
use lab::flight_table;
use lab::guest_protocol::Request;
use lab::keys;
use lab::noise::{KeepDetours, Mark, What};
use lab::wakeup::in_guest::{GuestThread, WakerRun, WakeupRequest, WakeupResponse};
use lab::wakeup::{
    CpuWakeups, DiskCounts, SeedOutcome, WakerCounts, Wakeup, WakeupBench, WakeupLedger,
    WakeupSample, WorstFunctions, shared_waker_warning,
};
use plugin_interface::options::BlockWindow;
use serde_json::{Map, Value as Json, json};
use simrecord::counters::{L1_MISSES, L2_MISSES};

use super::functions::{self, CountedMisses, WakeupOnCounter};
use super::join::{
    self, DiskInterrupt, Names, Read, ThreadOnCpu, disk_interrupt, parts, read_parts, sent_parts,
    with_counter_at_reading,
};
use crate::accounting::{ContextTransition, CpuUse, RegionUse, SentUse};
use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, PlannedMachines};
use crate::parallel::{Jobs, for_each};
use crate::sent_interrupts::{SentInterrupts, SentNames, sender_name};
use crate::watch::CAUSES;
use crate::{Accounting, Symbols};

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
    /// Length of the flight record: the time before the end of the window. With `seeds`: the time before the due time of the
    /// worst wake-up, at whose end the record ends. `None`: no flight record.
    pub flight_record_ns: Option<u64>,
    /// Symbols of the kernel, for the functions in the worst wake-up of all seeds. `None` if the kernel has none.
    pub symbols: Option<Symbols>,
}

/// Records of a machine besides its wake-ups. They do not change guest time.
#[derive(Clone, Copy, Debug, Default)]
struct Observers {
    /// The time in which the plugin records the executed blocks: around the worst wake-up.
    block_window: Option<BlockWindow>,
    /// The flight record.
    flight: Option<Flight>,
}

/// The time of a flight record.
#[derive(Clone, Copy, Debug)]
enum Flight {
    /// The last ns of the window.
    EndOfWindow(u64),
    /// The ns before the due time of the worst wake-up, and this wake-up.
    WorstWakeup(u64),
}

/// The seed with the latest wake-up so far, and its machine.
struct WorstSeed {
    outcome: SeedOutcome,
    machine: FinishedMachine,
}

/// The results of a machine whose guest has responded.
struct FinishedMachine {
    sample: WakeupSample,
    notices: Vec<String>,
    /// The limit that shortened the measurement.
    limit: Option<String>,
    wall_ns: u64,
    /// The time in which another run of the machine executes the blocks of its worst wake-up. `None` if it is unknown.
    worst_block_window: Option<BlockWindow>,
}

/// Results of the machine of one seed.
#[derive(Default)]
struct SeedRun {
    outcome: Option<SeedOutcome>,
    /// Whether the window had its full length.
    had_full_window: bool,
    limit: Option<String>,
    cpu_warnings: Vec<CpuWarning>,
}

/// Results of the machines of all seeds.
#[derive(Default)]
struct SeedsSummary {
    outcomes: Vec<SeedOutcome>,
    /// Whether all windows had their full length.
    had_full_window: bool,
    /// The first limit that ended a machine early.
    limit: Option<String>,
    /// The first error of a machine.
    error: Option<BenchError>,
    cpu_warnings: CpuWarnings,
}

impl SeedsSummary {
    /// Adds the results of a seed's machine. A machine that failed adds only its error, and the time limit if this ended it.
    fn add(&mut self, seed: u64, seed_run: Result<SeedRun, BenchError>) {
        let seed_run = seed_run.unwrap_or_else(|error| {
            // The guest of a machine that a limit ended does not respond any more.
            let limit = match &error {
                BenchError::TimeLimit(text) => Some(text.clone()),
                _ => None,
            };
            self.error.get_or_insert(error);
            SeedRun { limit, ..SeedRun::default() }
        });
        self.had_full_window &= seed_run.had_full_window;
        self.limit = self.limit.take().or(seed_run.limit);
        for warning in seed_run.cpu_warnings {
            self.cpu_warnings.add(&format!("seed {seed}"), warning);
        }
        self.outcomes.extend(seed_run.outcome);
    }
}

/// Time from the opening of the window to the first due time, on the guest's clock.
pub(super) const START_NS: u64 = 20_000_000;
/// Name of the machine in progress messages.
const LABEL: &str = "wake-ups";
/// Why a run that ended early has no results: the records are in the guest's response.
const NO_RESPONSE: &str = "its wake-ups are lost";
/// What a reader must know of a CPU whose contexts do not cover its wake-ups.
pub(super) const NOT_COVERED: &str =
    "broken: the record of contexts does not begin before its wake-ups";

/// Why there are no functions and no flight record of the worst wake-up.
const WORST_NOT_REPEATED: &str = "the machine with the latest wake-up did not run again";
/// Why there are no functions.
const NO_SYMBOLS: &str = "this kernel has no symbols (CONFIG_KALLSYMS)";
const NO_CONTEXTS: &str = "the record of contexts does not begin before the worst wake-up";
const OTHER_CPU: &str = "the wake-up began on the waker's CPU, whose functions are not recorded (with --waker-cpu on the \
                         measured CPU they are)";
const INTERRUPTED_CPU: &str =
    "the disk interrupted another CPU than the thread's, whose functions are not recorded";
const NO_WAKEUP: &str = "no thread woke in the window";
const TOO_MANY_PARTS: &str = "the wake-up has more parts than irqlab keeps in the order of time";

pub(super) const CLOCKS_DIFFER: &str =
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
        let window_ns = u128::from(START_NS) + u128::from(warm_up_ns) + u128::from(duration_ns);
        let cycles = window_ns * u128::from(self.settings.guest.clock_hz()) / 1_000_000_000;
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
        let first_seed = self.settings.request.seed;
        match self.settings.seeds {
            None => vec![first_seed],
            Some(count) => {
                let first_seed = first_seed.unwrap_or(1);
                (0..u64::from(count))
                    .map(|number| Some(first_seed.saturating_add(number)))
                    .collect()
            }
        }
    }

    /// Returns the work of the machines. Starts no machine.
    ///
    /// Fails if a request cannot be written.
    pub fn planned(&self) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let plan_machine = |seed: Option<u64>| {
            let work = self.settings.guest.work(&self.request(seed), &self.expected())?;
            let label = self.settings.seeds.and(seed).map(|seed| format!("seed {seed}"));
            Ok((label.unwrap_or_else(|| LABEL.to_owned()), work))
        };
        self.seeds().into_iter().map(plan_machine).collect()
    }

    /// Runs the machine of the request. `None` if the user asked to stop before its window opened.
    fn run_one(&mut self) -> Result<Option<WakeupSample>, BenchError> {
        let planned_machines = PlannedMachines { experiment: "wakeup", count: 1, at_once: 1 };
        self.settings.guest.progress.plan(planned_machines);
        let flight = self.settings.flight_record_ns.map(Flight::EndOfWindow);
        let observers = Observers { block_window: None, flight };
        let machine = self.run(self.settings.request.seed, observers)?;
        Ok(machine.map(|machine| self.take_sample(machine)))
    }

    /// Runs the machines of all seeds, then the machine with the worst wake-up once more. The sample is that of the second
    /// run, and of the first run if there is no second. `None` after a stop request before the first window opened.
    ///
    /// Fails if a machine fails, or if the worst wake-up differs in the second run. If a limit or the user ended the
    /// machines early, and a seed has results, failed machines are no error.
    fn run_seeds(&mut self) -> Result<Option<WakeupSample>, BenchError> {
        let seeds = self.seeds();
        let planned_machines = PlannedMachines {
            experiment: "wakeup",
            count: seeds.len() + 1,
            at_once: self.settings.jobs.count,
        };
        self.settings.guest.progress.plan(planned_machines);
        let (summary, worst_seed) = self.run_all_seeds(&seeds);
        let ended_early = summary.limit.is_some() || self.stop_requested();
        let must_fail = summary.outcomes.is_empty() || !ended_early;
        if let Some(error) = summary.error
            && must_fail
        {
            return Err(error);
        }
        let Some(WorstSeed { outcome: worst, machine: first_run }) = worst_seed else {
            return Ok(None);
        };
        let repeated_run = if summary.had_full_window && !ended_early {
            self.repeat_worst(&worst, first_run.worst_block_window)?
        } else {
            None
        };
        let is_repeated = repeated_run.is_some();
        let has_blocks = first_run.worst_block_window.is_some();
        let mut sample = self.take_sample(repeated_run.unwrap_or(first_run));
        self.limit = self.limit.take().or(summary.limit);
        if is_repeated && !has_blocks {
            sample.absent.push(no_functions(NO_CONTEXTS));
        }
        sample.facts.insert("worst_seed".to_owned(), json!(worst.seed));
        sample.facts.insert("worst_seed_runs".to_owned(), json!(1 + u32::from(is_repeated)));
        if !is_repeated {
            note_missing_repetition(&mut sample, summary.outcomes.len(), seeds.len());
        }
        sample.warnings.extend(summary.cpu_warnings.lines());
        // The warnings of all seeds are in the lines above. Only a warning that makes the run broken stays with its CPU.
        sample.cpu_warnings.retain(CpuWarning::is_broken);
        sample.seeds = summary.outcomes;
        Ok(Some(sample))
    }
    /// Runs the machines of all seeds, several at the same time. Returns the results in the order of the seeds, and the
    /// machine with the latest wake-up. It keeps only this machine, because the samples of all machines together are large.
    fn run_all_seeds(&self, seeds: &[Option<u64>]) -> (SeedsSummary, Option<WorstSeed>) {
        let worst_seed: Mutex<Option<WorstSeed>> = Mutex::new(None);
        let run_seed = |_: usize, seed: &Option<u64>| {
            if self.stop_requested() {
                return Ok(SeedRun::default());
            }
            let Some(machine) = self.run(*seed, Observers::default())? else {
                return Ok(SeedRun::default());
            };
            let outcome = SeedOutcome::worst_of_window(seed.unwrap_or(0), &machine.sample);
            let seed_run = SeedRun {
                had_full_window: !machine.sample.interrupted,
                limit: machine.limit.clone(),
                cpu_warnings: machine.sample.cpu_warnings.clone(),
                outcome: outcome.clone(),
            };
            let mut worst_seed = worst_seed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(outcome) = outcome
                && worst_seed.as_ref().is_none_or(|worst| is_worse(&outcome, &worst.outcome))
            {
                *worst_seed = Some(WorstSeed { outcome, machine });
            }
            Ok(seed_run)
        };
        let mut summary = SeedsSummary { had_full_window: true, ..SeedsSummary::default() };
        for (seed_run, seed) in for_each(self.settings.jobs, seeds, run_seed).into_iter().zip(seeds)
        {
            summary.add(seed.unwrap_or(0), seed_run);
        }
        let worst_seed = worst_seed.into_inner().unwrap_or_else(PoisonError::into_inner);
        (summary, worst_seed)
    }

    /// Runs the machine with the worst wake-up once more, with observers. `None` if a stop or a limit ended it.
    /// `block_window`: the time in which it executes the blocks of this wake-up.
    ///
    /// Fails if the worst wake-up of the second run differs from the first.
    fn repeat_worst(
        &self,
        worst: &SeedOutcome,
        block_window: Option<BlockWindow>,
    ) -> Result<Option<FinishedMachine>, BenchError> {
        let flight = self.settings.flight_record_ns.map(Flight::WorstWakeup);
        let observers = Observers { block_window, flight };
        let machine = match self.run(Some(worst.seed), observers) {
            Err(BenchError::TimeLimit(_)) => return Ok(None),
            Err(_) if self.stop_requested() => return Ok(None),
            machine => machine?,
        };
        let Some(machine) = machine.filter(|machine| !machine.sample.interrupted) else {
            return Ok(None);
        };
        let outcome = SeedOutcome::worst_of_window(worst.seed, &machine.sample);
        if outcome.as_ref() != Some(worst) {
            return Err(BenchError::Failed(format!(
                "the machine with seed {} was not the same again: its latest wake-up was {} ns late in the first run \
                 (please report this)",
                worst.seed, worst.late_ns
            )));
        }
        Ok(Some(machine))
    }

    /// Takes over the machine whose window is reported: its host time, notices and limit replace those
    /// of the bench. Returns its sample.
    fn take_sample(&mut self, machine: FinishedMachine) -> WakeupSample {
        self.settings.on_host.insert("wall_ns".to_owned(), json!(machine.wall_ns));
        self.notices = machine.notices;
        self.limit = machine.limit;
        machine.sample
    }

    /// Runs the machine with a seed. `None` if the user asked to stop before its window opened, or if the record had no room
    /// for the blocks that `observers` ask for.
    ///
    /// Fails without the guest's response, and if the record is broken.
    fn run(
        &self,
        seed: Option<u64>,
        observers: Observers,
    ) -> Result<Option<FinishedMachine>, BenchError> {
        let mut guest = self.settings.guest.clone();
        guest.watch.blocks = observers.block_window;
        let ran = guest.run::<WakeupResponse>(&self.request(seed), self.expected())?;
        let Some(ran) = ran else { return Ok(None) };
        let limit = ran.early.and_then(|early| guest.limit_text(early));
        let reason = ran.no_response;
        let response = ran.response.ok_or_else(|| match &limit {
            Some(limit) => BenchError::TimeLimit(format!("{limit}; {reason}: {NO_RESPONSE}")),
            None => BenchError::Failed(format!("{reason}: {NO_RESPONSE}")),
        })?;
        // The first run's record was whole: the blocks found no room in this one.
        if observers.block_window.is_some() && !ran.account.broken.is_empty() {
            return Ok(None);
        }
        if let Some(broken) = ran.account.broken.first() {
            let reason = format!("the record of the machine is broken: {broken}");
            return Err(BenchError::Failed(reason));
        }
        let symbols = self.settings.symbols.as_ref();
        let symbols = guest.with_modules_of_boot(symbols, &ran.modules)?;
        let observed =
            Observed { response: &response, account: &ran.account, symbols: symbols.as_deref() };
        let (mut sample, worst) = self.sample(observed, observers.flight)?;
        if observers.block_window.is_some() {
            match observed.symbols.zip(worst) {
                Some((_, worst)) if is_sent_from_another_cpu(worst.cpu, &response) => {
                    sample.absent.push(no_functions(OTHER_CPU));
                }
                Some((_, worst)) if begins_on_another_cpu(worst, observed) => {
                    sample.absent.push(no_functions(INTERRUPTED_CPU));
                }
                Some((symbols, worst)) => {
                    let functions = functions_of(worst, &sample, &ran.account, symbols);
                    match functions {
                        Some(functions) => sample.worst_functions = Some(functions),
                        None => sample.absent.push(no_functions(TOO_MANY_PARTS)),
                    }
                }
                None => sample.absent.push(no_functions(NO_SYMBOLS)),
            }
        }
        Ok(Some(FinishedMachine {
            worst_block_window: worst.and_then(|worst| {
                let cpu = cpu_of(&ran.account, worst.cpu)?;
                functions::block_window(worst, &cpu.transitions, guest.clock_hz())
            }),
            wall_ns: u64::try_from(ran.wall.as_nanos()).unwrap_or(u64::MAX),
            notices: ran.account.notices,
            // A limit that came after the threads is not reported: it shortened nothing.
            limit: limit.filter(|_| sample.interrupted),
            sample,
        }))
    }

    /// Joins the threads with the record, CPU by CPU. Returns the sample, and its worst wake-up: `None` without a wake-up.
    ///
    /// Fails if the window was never opened, or if threads and CPUs do not match.
    fn sample(
        &self,
        Observed { response, account, symbols }: Observed<'_>,
        flight: Option<Flight>,
    ) -> Result<(WakeupSample, Option<WakeupOnCounter>), BenchError> {
        let failed = |reason: &str| BenchError::Failed(reason.to_owned());
        let region = account.regions.first();
        let region = region.ok_or_else(|| failed("the window was never opened"))?;
        let has_senders = self.settings.guest.watch.senders;
        let sent_names = has_senders.then(|| SentNames::new(account, region, symbols));
        let mut names = Names::with_senders(sent_names);
        let cpus_of_region =
            CpusOfRegion { cpus: &region.cpus, interrupts: SentInterrupts::of_region(region) };
        let (mut facts, mut cpu_warnings) = (Map::new(), Vec::new());
        let (mut cpus, mut event_count) = (Vec::new(), 0);
        check_cpus(response, self.settings.request.cpus.as_deref(), region.cpus.len())
            .map_err(|reason| failed(&reason))?;
        for thread in &response.threads {
            let cpu = region.cpus.iter().find(|cpu| cpu.cpu == thread.run.cpu);
            let cpu = cpu.ok_or_else(|| failed("a thread ran on a CPU that there is not"))?;
            let opened_tsc = counter_at_start(thread);
            let is_in_window = |transition: &&ContextTransition| transition.tsc >= opened_tsc;
            event_count += cpu.transitions.iter().filter(is_in_window).count() as u64;
            facts.insert(keys::SCHEDULER.to_owned(), json!(thread.run.scheduler));
            if let Some(disk) = &thread.run.disk {
                facts.insert("disk".to_owned(), json!(disk.device));
                facts.insert("disk_irqs".to_owned(), json!(disk.irqs));
            }
            if let Some(waker) = &thread.run.waker {
                facts.insert("waker_scheduler".to_owned(), json!(waker.scheduler));
            }
            let record_start_tsc = cpu.transitions.first().map(|first| first.tsc);
            cpu_warnings.extend(warnings_of_thread(thread, record_start_tsc));
            cpus.push(self.cpu(thread, cpu, &cpus_of_region, &mut names, account)?);
        }
        // The guest chooses the measured CPUs, so a waker that shares one of them is known only now.
        let measured: Vec<u32> = cpus.iter().map(|cpu| cpu.cpu).collect();
        let waker = response.threads.iter().find_map(|thread| thread.run.waker.as_ref());
        let mut warnings = response.warnings.clone();
        warnings.extend(
            waker.and_then(|waker| shared_waker_warning(&measured, waker.cpu, &waker.scheduler)),
        );
        let runs = || response.threads.iter().map(|thread| &thread.run);
        let mut sample = WakeupSample {
            cpus,
            unmeasured: Vec::new(),
            names: Vec::new(),
            lost_events: Some(0),
            events: Some(event_count),
            window_ns: runs().map(|run| run.window_ns).max().unwrap_or(0),
            interrupted: runs().any(|run| run.interrupted),
            ended_by_threshold: false,
            ended_by_command: false,
            warnings,
            cpu_warnings,
            facts,
            flight_record: None,
            seeds: Vec::new(),
            worst_functions: None,
            absent: Vec::new(),
            wall_clock: None,
        };
        let worst = worst_wakeup(&sample, response);
        sample.flight_record = flight.and_then(|flight| {
            let clock_hz = self.settings.guest.clock_hz();
            let account = (account, region, clock_hz);
            flight_record(flight, worst, response, &cpus_of_region, &mut names, account)
        });
        let (names, warning) = names.finish();
        sample.names = names;
        sample.warnings.extend(warning);
        if flight.is_some() && sample.flight_record.is_none() {
            sample.absent.push(Absence::new(flight_table::NAME, "all rows", NO_WAKEUP));
        }
        Ok((sample, worst.map(|(worst, _)| worst)))
    }

    /// The wake-ups of a thread with their parts, from the record of its CPU `cpu`, and of its waker's CPU if it has a waker.
    ///
    /// Fails if the machine does not have the waker's CPU.
    fn cpu(
        &self,
        thread: &GuestThread,
        cpu: &CpuUse,
        all_cpus: &CpusOfRegion<'_>,
        names: &mut Names<'_>,
        account: &Accounting,
    ) -> Result<CpuWakeups, BenchError> {
        let run = &thread.run;
        let measured = all_cpus.thread_on(cpu, run.thread);
        let waker_on_cpu = |waker: &WakerRun| -> Result<ThreadOnCpu<'_>, BenchError> {
            let cpu = all_cpus.cpus.iter().find(|cpu| cpu.cpu == waker.cpu).ok_or_else(|| {
                BenchError::Failed("a waker ran on a CPU that there is not".to_owned())
            })?;
            Ok(all_cpus.thread_on(cpu, waker.thread))
        };
        let waker = run.waker.as_ref().map(waker_on_cpu).transpose()?;
        let mut ledger = WakeupLedger::new(self.settings.keep);
        for [due_ns, woke_ns, woke_tsc] in with_counter_at_reading(&thread.records) {
            let wakeup = Wakeup { due_ns, woke_ns };
            let due_tsc = woke_tsc.saturating_sub(wakeup.late_ns());
            let window = (due_tsc, woke_tsc);
            if let Some(disk) = &run.disk {
                let read = Read { began_tsc: due_tsc, woke_tsc, irqs: &disk.irqs };
                let Some((interrupt, interrupted)) = interrupt_of(read, measured, all_cpus.cpus)
                else {
                    ledger.reads.no_interrupt += 1;
                    continue;
                };
                let interrupted = all_cpus.thread_on(interrupted, run.thread);
                let until_interrupt_ns = interrupt.entered_tsc - due_tsc;
                ledger.reads.add(until_interrupt_ns, interrupt.count, due_ns);
                let mut parts =
                    read_parts(interrupt, woke_tsc, interrupted, measured, names, account);
                let wakeup = Wakeup { due_ns: due_ns.saturating_add(until_interrupt_ns), woke_ns };
                ledger.add_split(wakeup, &mut parts);
                continue;
            }
            let mut parts = match waker {
                None => parts(window, measured, names, account),
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
            disk: run.disk.as_ref().map(|disk| DiskCounts { not_asleep: disk.not_asleep }),
            lost: run.lost,
            page_faults: run.page_faults,
            left: false,
            readings: None,
        })
    }
}

/// The disk's interrupt that ended a read, and the interrupted CPU. `None` if the record has no interrupt in the read.
fn interrupt_of<'a>(
    read: Read<'_>,
    measured: ThreadOnCpu<'_>,
    all_cpus: &'a [CpuUse],
) -> Option<(DiskInterrupt, &'a CpuUse)> {
    let interrupt = disk_interrupt(read, measured, all_cpus)?;
    Some((interrupt, all_cpus.iter().find(|cpu| cpu.cpu == interrupt.cpu)?))
}

/// Says in the sample what it lacks, because the machine with the worst wake-up did not run again.
fn note_missing_repetition(sample: &mut WakeupSample, finished_seeds: usize, all_seeds: usize) {
    sample.interrupted = true;
    for table in [flight_table::NAME, "worst_functions"] {
        sample.absent.push(Absence::new(table, "all rows", WORST_NOT_REPEATED));
    }
    sample.warnings.push(format!(
        "{finished_seeds} of {all_seeds} seeds have results, and the machine with the latest wake-up did not run again"
    ));
}

/// The faults of the record or the settings of a thread. `record_start_tsc`: the time-stamp counter where the record
/// of its CPU's contexts starts; `None` if the record is empty.
fn warnings_of_thread(thread: &GuestThread, record_start_tsc: Option<u64>) -> Vec<CpuWarning> {
    let mut problems = Vec::new();
    if !is_covered(thread, record_start_tsc) {
        problems.push(NOT_COVERED.to_owned());
    }
    if !clocks_agree(thread) {
        problems.push(CLOCKS_DIFFER.to_owned());
    }
    if let Some(error) = &thread.run.refused_policy {
        problems.push(format!("the guest refuses the scheduling class ({error})"));
    }
    if let Some(error) = &thread.run.unlocked_memory {
        problems.push(format!("the guest's memory is not locked ({error})"));
    }
    let waker = thread.run.waker.as_ref();
    if let Some(error) = waker.and_then(|waker| waker.refused_policy.as_ref()) {
        problems.push(format!("the guest refuses the waker's scheduling class ({error})"));
    }
    problems.iter().map(|problem| CpuWarning::new(thread.run.cpu, problem)).collect()
}

/// The response and the record of a machine.
#[derive(Clone, Copy)]
struct Observed<'a> {
    response: &'a WakeupResponse,
    account: &'a Accounting,
    /// The symbols of the guest's kernel and modules.
    symbols: Option<&'a Symbols>,
}

/// All CPUs in the window, with their interrupts from other CPUs.
struct CpusOfRegion<'a> {
    cpus: &'a [CpuUse],
    interrupts: SentInterrupts,
}

impl CpusOfRegion<'_> {
    /// A thread with the kernel's number `thread` on a CPU.
    fn thread_on<'a>(&'a self, cpu: &'a CpuUse, thread: u32) -> ThreadOnCpu<'a> {
        let interrupts = self.interrupts.on_cpu(cpu.cpu);
        ThreadOnCpu { transitions: &cpu.transitions, thread, interrupts }
    }
}

/// A CPU in the window. `None` if there is none.
fn cpu_of(account: &Accounting, cpu: u32) -> Option<&CpuUse> {
    account.regions.first()?.cpus.iter().find(|candidate| candidate.cpu == cpu)
}

/// The worst wake-up of a window: by the time-stamp counter, and by the guest's clock. It is the wake-up that
/// [`SeedOutcome::worst_of_window`] finds. `None` without a wake-up.
fn worst_wakeup(
    sample: &WakeupSample,
    response: &WakeupResponse,
) -> Option<(WakeupOnCounter, Wakeup)> {
    let worst_of = |cpu: &CpuWakeups| Some((cpu.cpu, cpu.ledger.worst.sorted().first()?.wakeup));
    let worst_of_cpus = sample.cpus.iter().filter_map(worst_of);
    let (cpu, wakeup) =
        worst_of_cpus.min_by_key(|(cpu, wakeup)| (Reverse(wakeup.late_ns()), *cpu))?;
    let thread = response.threads.iter().find(|thread| thread.run.cpu == cpu)?;
    let is_worst = |record: &[u64; 3]| record[1] == wakeup.woke_ns;
    let [_, _, woke_tsc] = with_counter_at_reading(&thread.records).into_iter().find(is_worst)?;
    let due_tsc = woke_tsc.saturating_sub(wakeup.late_ns());
    Some((WakeupOnCounter { cpu, due_tsc, woke_tsc }, wakeup))
}

/// The record of what ran on the CPUs with a thread. Adds the contexts to `names`. `None` without a wake-up.
fn flight_record(
    flight: Flight,
    worst: Option<(WakeupOnCounter, Wakeup)>,
    response: &WakeupResponse,
    all_cpus: &CpusOfRegion<'_>,
    names: &mut Names<'_>,
    (account, region, clock_hz): (&Accounting, &RegionUse, u64),
) -> Option<FlightRecorder> {
    let (_, worst) = worst?;
    let (length_ns, end_ns) = match flight {
        Flight::EndOfWindow(length_ns) => (length_ns, None),
        Flight::WorstWakeup(before_ns) => {
            (before_ns.saturating_add(worst.late_ns()), Some(worst.woke_ns))
        }
    };
    let cpus: Vec<u32> = response.threads.iter().map(|thread| thread.run.cpu).collect();
    let mut recorder = FlightRecorder::new(length_ns, &cpus);
    for thread in &response.threads {
        // The guest's clock and the counter advance at the same rate, so one reading of both gives their offset.
        let readings = with_counter_at_reading(&thread.records);
        let is_worst = |record: &&[u64; 3]| record[1] == worst.woke_ns;
        let reading = readings.iter().find(is_worst).or(readings.first());
        let cpu = all_cpus.cpus.iter().find(|cpu| cpu.cpu == thread.run.cpu);
        let (Some(&[_, woke_ns, woke_tsc]), Some(cpu)) = (reading, cpu) else {
            continue;
        };
        let offset_ns = woke_ns.wrapping_sub(woke_tsc);
        let on_cpu = all_cpus.thread_on(cpu, thread.run.thread);
        let mut marks = join::marks(on_cpu, offset_ns, names, account);
        if let Some(end_ns) = end_ns {
            marks.retain(|mark| mark.at_ns < end_ns);
            // The end of no context: the record goes on until then.
            marks.push(Mark { at_ns: end_ns, what: What::Leave(u32::MAX) });
        }
        let marks: Vec<(u32, Mark)> = marks.into_iter().map(|mark| (cpu.cpu, mark)).collect();
        recorder.record(&marks);
        let to_cpu = region.senders.sent.iter().filter(|sent| sent.target == cpu.cpu);
        recorder.add_sent(to_cpu.filter_map(|sent| sent_at(sent, offset_ns, clock_hz, account)));
    }
    // The guest closes the recorded region some time after the window.
    let runs = response.threads.iter().map(|thread| &thread.run);
    let ends = runs.map(|run| run.start_ns.saturating_add(run.window_ns));
    recorder.end_at(end_ns.or_else(|| ends.max()).unwrap_or(u64::MAX));
    Some(recorder)
}

/// When a call or a reschedule interrupt was sent and served, on the guest's clock. `offset_ns`: this clock minus the
/// time-stamp counter. `None` if it was not served in the region.
///
/// The clocks of two CPUs can differ by a time slice. So the time of the sending comes from the recorded delay.
fn sent_at(sent: &SentUse, offset_ns: u64, clock_hz: u64, account: &Accounting) -> Option<Sent> {
    let run = sent.run?;
    let served_ns = run.tsc.wrapping_add(offset_ns);
    let delay_ns = u128::from(run.delay_cycles) * 1_000_000_000 / u128::from(clock_hz.max(1));
    let delay_ns = u64::try_from(delay_ns).unwrap_or(u64::MAX);
    Some(Sent {
        cpu: sent.cpu,
        at_ns: served_ns.saturating_sub(delay_ns),
        sender: sender_name(sent, account),
        target_cpu: sent.target,
        served_ns,
    })
}

/// The functions in the worst wake-up of the sample, `worst`. `None` if its parts are not known.
fn functions_of(
    worst: WakeupOnCounter,
    sample: &WakeupSample,
    account: &Accounting,
    symbols: &Symbols,
) -> Option<WorstFunctions> {
    let ledger = &sample.cpus.iter().find(|cpu| cpu.cpu == worst.cpu)?.ledger;
    let wakeups = ledger.worst.sorted();
    // The parts of a wake-up with very many of them are not all in the order of time.
    let worst_wakeup = wakeups.first().filter(|wakeup| wakeup.later.is_empty())?;
    let has_counter = |counter: usize| account.counters & (1 << counter) != 0;
    let counted = CountedMisses {
        l1_misses: L1_MISSES.into_iter().all(has_counter),
        l2_misses: L2_MISSES.into_iter().all(has_counter),
    };
    let blocks = &cpu_of(account, worst.cpu)?.blocks;
    let code_at = |address| functions::code_at(symbols, address);
    let functions = functions::functions(worst, &worst_wakeup.parts, blocks, counted, code_at);
    Some(WorstFunctions { cpu: worst.cpu, functions })
}

/// Whether a waker on another CPU wakes the thread of a CPU.
fn is_sent_from_another_cpu(cpu: u32, response: &WakeupResponse) -> bool {
    let of_cpu = response.threads.iter().filter(|thread| thread.run.cpu == cpu);
    of_cpu.filter_map(|thread| thread.run.waker.as_ref()).any(|waker| waker.cpu != cpu)
}

/// Whether the disk's interrupt, which begins a wake-up, came to another CPU than the thread's.
fn begins_on_another_cpu(worst: WakeupOnCounter, observed: Observed<'_>) -> bool {
    let run = observed.response.threads.iter().find(|thread| thread.run.cpu == worst.cpu);
    let Some(disk) = run.and_then(|thread| thread.run.disk.as_ref()) else { return false };
    let is_start = |transition: &ContextTransition| {
        transition.tsc == worst.due_tsc
            && matches!(transition.context, KernelContext::Irq(irq) if disk.irqs.contains(&irq))
    };
    let cpu = cpu_of(observed.account, worst.cpu);
    cpu.is_none_or(|cpu| !cpu.transitions.iter().any(is_start))
}

/// The table of functions is absent for this reason.
fn no_functions(reason: &str) -> Absence {
    Absence::new("worst_functions", "all rows", reason)
}

/// Whether a wake-up is later than another. Of two equally late ones, the one of the smaller seed is worse.
fn is_worse(wakeup: &SeedOutcome, other_wakeup: &SeedOutcome) -> bool {
    (wakeup.late_ns, Reverse(wakeup.seed)) > (other_wakeup.late_ns, Reverse(other_wakeup.seed))
}

/// Checks that each CPU of the request has one thread, in any order. Without a request, each of the machine's `count` CPUs.
fn check_cpus(
    response: &WakeupResponse,
    requested: Option<&[u32]>,
    cpu_count: usize,
) -> Result<(), String> {
    let mut cpus: Vec<u32> = response.threads.iter().map(|thread| thread.run.cpu).collect();
    cpus.sort_unstable();
    let mut expected = match requested {
        Some(cpus) => cpus.to_vec(),
        None => (0..cpu_count as u32).collect(),
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
    let first = with_counter_at_reading(&thread.records).into_iter().next();
    first
        .map_or(0, |[_, woke_ns, counter]| counter.saturating_sub(woke_ns.saturating_sub(start_ns)))
}

/// Whether CLOCK_MONOTONIC and the time-stamp counter advanced by the same time between the first and the last wake-up.
pub(super) fn clocks_agree(thread: &GuestThread) -> bool {
    let readings = with_counter_at_reading(&thread.records);
    let Some((first, last)) = readings.first().zip(readings.last()) else {
        return true;
    };
    let elapsed_ns = last[1].saturating_sub(first[1]);
    let difference_ns = last[2].saturating_sub(first[2]).abs_diff(elapsed_ns);
    difference_ns <= elapsed_ns / CLOCKS_DIFFER_PARTS + CLOCKS_DIFFER_NS
}

/// Whether the record of contexts, which starts at `starts_ns` on the time-stamp counter, begins before the thread's first
/// due time. `true` without a wake-up.
pub(super) fn is_covered(thread: &GuestThread, record_start_tsc: Option<u64>) -> bool {
    let first = with_counter_at_reading(&thread.records).into_iter().next();
    first.is_none_or(|[due_ns, woke_ns, woke_tsc]| {
        let due_tsc = woke_tsc.saturating_sub(woke_ns.saturating_sub(due_ns));
        record_start_tsc.is_some_and(|record_start_tsc| record_start_tsc <= due_tsc)
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
            absent: config.guest.kernel_files.absences(&config.guest.watch, CAUSES),
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
            ended_by_threshold: false,
            ended_by_command: false,
            warnings: Vec::new(),
            cpu_warnings: Vec::new(),
            facts: Map::new(),
            flight_record: None,
            seeds: Vec::new(),
            worst_functions: None,
            absent: Vec::new(),
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
