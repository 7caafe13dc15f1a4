//! [`SimNoise`]: the bench itself. Each loop runs in its own machine, whose record shows which contexts took the time.
//!
//! `lab` requests the loops one by one by [`NoiseBench::measure`]. The first request runs the machines of all loops.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::cpu_warnings::CpuWarning;
use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::guest_protocol::Request;
use lab::keys;
use lab::noise::in_guest::{GuestClockResolution, GuestLoop, LoopRun, NoiseRequest, NoiseResponse};
use lab::noise::{
    CpuNoise, Injected, KeepDetours, Loop, LoopResult, NoiseBench, NoiseSample, Part, Traced,
    Visibility,
};
use serde_json::{Map, Value as Json, json};

use super::concurrent::concurrent_activity;
use super::early_close::cut_at_close;
use super::inject::injected;
use super::join::{Detours, Join, slots};
use super::names::Names;
use super::timeline::Timeline;
use crate::accounting::RegionUse;
use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun, PlannedMachines};
use crate::parallel::{Jobs, for_each};
use crate::sent_interrupts::{SentInterrupts, SentNames};
use crate::watch::CAUSES;
use crate::{Accounting, Symbols};

/// The settings of a [`SimNoise`].
pub struct SimNoiseSettings {
    /// The machine. The bench starts another one for each loop. Guest time must not follow the host's clock, and
    /// transitions must be recorded.
    pub guest: GuestRun,
    /// The request for all loops; the guest of each machine gets one of the loops.
    pub request: NoiseRequest,
    /// The choice of single detours that are kept of each CPU.
    pub keep: KeepDetours,
    /// Facts that hold for this host or this moment only.
    pub on_host: Map<String, Json>,
    /// Symbols of the kernel, which name the functions that senders of interrupts call. `None` if the kernel has none.
    pub symbols: Option<Symbols>,
    /// Frequency of the tick of the guest's kernel, Hz. `None` if it is unknown.
    pub tick_hz: Option<u32>,
    /// How many loops are measured at the same time.
    pub jobs: Jobs,
    /// The longest window of the loops `fwq` and `ftq`, ns. If the request's windows are longer, these loops end there instead
    /// of by [`crate::watch::Watch::until`]. `None`: no such limit.
    pub quanta_window_ns_max: Option<u64>,
}

/// Why a run that ended early has no results: the loop's records are in the guest's response.
const NO_RESPONSE: &str = "the records of its loop are lost";

/// Why the numbers of a CPU must not be used.
const DOES_NOT_CLOSE: &str = "broken: the ledger does not close";

/// A note on a CPU whose loop ran on after its window closed early.
const RAN_ON: &str = "the loop began late and ran on after --until had closed its window: iteration_ns, which is taken off \
                      each detour, is from before the window";

/// The warning about a window that outlasts its injected timers.
const FEW_TIMERS: &str = "the injected timers (--inject) end before the window: a guest has room for 3,900, or the loop began late";

/// A simulated machine as a bench.
pub struct SimNoise {
    settings: SimNoiseSettings,
    clock_hz: u64,
    resolution: Option<GuestClockResolution>,
    /// The loops that were not requested yet, with the outcomes of their machines; `None` before the machines have
    /// run.
    outcomes: Option<Vec<(Loop, MachineOutcome)>>,
    notices: Vec<String>,
    /// Number of pairs of a CPU and a loop whose ledger does not close.
    broken: u64,
    /// The limit that ended a machine early.
    limit: Option<String>,
}

/// The record of a loop's machine, with the symbols of its kernel and modules.
#[derive(Clone, Copy)]
struct Record<'a> {
    account: &'a Accounting,
    symbols: Option<&'a Symbols>,
}

/// The outcome of a loop's machine; `None` if the user asked to stop before its window opened.
type MachineOutcome = Result<Option<LoopOutcome>, BenchError>;

/// A loop whose window was opened.
struct LoopOutcome {
    /// `None` if a stop or a limit ended the loop before it had measured anything. An error if the loop failed in the
    /// guest.
    sample: Result<Option<NoiseSample>, BenchError>,
    resolution: Option<GuestClockResolution>,
    notices: Vec<String>,
    /// Host time from the machine's start to its end.
    wall: Duration,
    /// The limit that ended the loop early.
    limit: Option<String>,
}

impl SimNoise {
    /// Makes a bench. Starts no machine yet.
    #[must_use]
    pub fn new(settings: SimNoiseSettings) -> SimNoise {
        // Without a model a cycle is an instruction, and takes 1 ns.
        let model = settings.guest.watch.model.as_ref();
        let clock_hz = model.map_or(1_000_000_000, |model| model.model.clock_hz);
        SimNoise {
            settings,
            clock_hz,
            resolution: None,
            outcomes: None,
            notices: Vec::new(),
            broken: 0,
            limit: None,
        }
    }

    /// Returns the number of CPUs that share a core in the model. The guest does not know it.
    fn threads_per_core(&self) -> u32 {
        let model = self.settings.guest.watch.model.as_ref();
        let core = model.and_then(|model| model.model.core.as_ref());
        core.and_then(|core| core.threads).unwrap_or(1)
    }

    /// Returns the length of a loop's window, ns, if [`SimNoiseSettings::quanta_window_ns_max`] shortens it. `None`: the window
    /// keeps its length.
    fn shortened_window_ns(&self, looping: Loop) -> Option<u64> {
        let SimNoiseSettings { request, quanta_window_ns_max, .. } = &self.settings;
        let is_limited = looping != Loop::Detour && request.repetitions.is_none();
        quanta_window_ns_max.filter(|max_ns| is_limited && *max_ns < request.duration_ns)
    }

    /// Returns the request for a loop.
    fn request(&self, looping: Loop) -> NoiseRequest {
        let request = &self.settings.request;
        let duration_ns = self.shortened_window_ns(looping).unwrap_or(request.duration_ns);
        NoiseRequest { loops: vec![looping], duration_ns, ..request.clone() }
    }

    /// Returns the machine for a loop.
    fn guest(&self, looping: Loop) -> GuestRun {
        let mut guest = self.settings.guest.clone();
        if self.shortened_window_ns(looping).is_some() {
            guest.watch.until = None;
        }
        guest
    }

    /// Returns the cycles of a loop's warm-up and window. `None` if a number of repetitions ends the window: its
    /// length is unknown then.
    fn window_cycles(&self, looping: Loop) -> Option<u64> {
        let request = &self.request(looping);
        if request.repetitions.is_some() && looping == Loop::Fwq {
            return None;
        }
        let ns = u128::from(request.warm_up_ns) + u128::from(request.duration_ns);
        u64::try_from(ns * u128::from(self.clock_hz) / 1_000_000_000).ok()
    }

    /// Calls `action` with the machine and the request of a loop, and with the expected lengths of the machine's phases.
    fn with_machine<T>(
        &self,
        looping: Loop,
        action: impl FnOnce(&GuestRun, &Request, Expected<'_>) -> T,
    ) -> T {
        let label = label_of(looping);
        let expected = Expected {
            label: &label,
            window_cycles: self.window_cycles(looping),
            windows: Some(1),
            warm_up_cycles: None,
        };
        action(&self.guest(looping), &Request::Noise(self.request(looping)), expected)
    }

    /// Returns the work of the machine of each loop. Starts no machine.
    ///
    /// Fails if a request cannot be written.
    pub fn planned(&self) -> Result<Vec<(String, MachineWork)>, BenchError> {
        let plan_machine = |&looping: &Loop| {
            let machine_work = self
                .with_machine(looping, |guest, request, expected| guest.work(request, &expected));
            Ok((label_of(looping), machine_work?))
        };
        self.settings.request.loops.iter().map(plan_machine).collect()
    }

    /// Runs the machines of all loops, [`SimNoiseSettings::jobs`] at the same time. Returns the outcomes in the order of the
    /// request, and keeps the facts of the machines.
    fn run_machines(&mut self) -> Vec<(Loop, MachineOutcome)> {
        let bench = &*self;
        let SimNoiseSettings { jobs, guest, request, .. } = &bench.settings;
        let mut loops = request.loops.clone();
        if jobs.count > 1 {
            // Long loops start first: a long loop that starts last would run alone.
            loops.sort_by_key(|looping| *looping == Loop::Detour);
        }
        let (experiment, count, at_once) = ("noise", loops.len(), jobs.count);
        guest.progress.plan(PlannedMachines { experiment, count, at_once });
        let outcomes = for_each(*jobs, &loops, |_, &looping| {
            if bench.stop_requested() { Ok(None) } else { bench.run(looping) }
        });
        let mut outcomes: Vec<_> = loops.into_iter().zip(outcomes).collect();
        let position_in_request =
            |looping: Loop| request.loops.iter().position(|requested| *requested == looping);
        outcomes.sort_by_key(|(looping, _)| position_in_request(*looping));
        for (looping, outcome) in &outcomes {
            if let Ok(Some(outcome)) = outcome {
                self.keep_facts(*looping, outcome);
            }
        }
        outcomes
    }

    /// Keeps the facts of a loop's machine that hold for the whole run.
    fn keep_facts(&mut self, looping: Loop, outcome: &LoopOutcome) {
        if let Ok(Some(sample)) = &outcome.sample {
            let warnings = sample.cpu_warnings.iter();
            self.broken += warnings.filter(|warning| warning.is_broken()).count() as u64;
        }
        // The detour loop's resolution comes first: its threshold is the one to report.
        if looping == Loop::Detour || self.resolution.is_none() {
            self.resolution = outcome.resolution.or(self.resolution);
        }
        for notice in &outcome.notices {
            if !self.notices.contains(notice) {
                self.notices.push(notice.clone());
            }
        }
        let wall_ns = u64::try_from(outcome.wall.as_nanos()).unwrap_or(u64::MAX);
        self.settings.on_host.insert(label_of(looping), json!({ "wall_ns": wall_ns }));
        if let Some(limit) = &outcome.limit {
            self.limit.get_or_insert_with(|| limit.clone());
        }
    }

    /// Runs the machine of a loop. Returns `None` when the user asked to stop before its window opened. Fails without the
    /// guest's response, and if the record is broken.
    fn run(&self, looping: Loop) -> MachineOutcome {
        let guest = &self.settings.guest;
        let machine_run = self.with_machine(looping, |machine, request, expected| {
            machine.run::<NoiseResponse>(request, expected)
        })?;
        let Some(machine_run) = machine_run else { return Ok(None) };
        let limit = machine_run.early.and_then(|early| guest.limit_text(early));
        let reason = machine_run.no_response;
        let response = machine_run.response.ok_or_else(|| match &limit {
            Some(limit) => BenchError::TimeLimit(format!("{limit}; {reason}: {NO_RESPONSE}")),
            None => BenchError::Failed(format!("{reason}: {NO_RESPONSE}")),
        })?;
        let symbols = self.settings.symbols.as_ref();
        let symbols = guest.with_modules_of_boot(symbols, &machine_run.modules)?;
        let account = machine_run.account;
        if let Some(broken) = account.broken.first() {
            let message = format!("the record of the machine is broken: {broken}");
            return Err(BenchError::Failed(message));
        }
        let sample = match response.failed.iter().find(|failed| failed.looping == looping) {
            Some(failed) => Err(failed.error.clone()),
            None => {
                let record = Record { account: &account, symbols: symbols.as_deref() };
                Ok(self.join(looping, &response, record, machine_run.early.is_some())?)
            }
        };
        // A limit that came after the loop is not reported: it shortened nothing.
        let is_complete = match &sample {
            Ok(Some(sample)) => !sample.interrupted,
            Ok(None) => false,
            Err(_) => true,
        };
        Ok(Some(LoopOutcome {
            sample,
            resolution: response.clock,
            notices: account.notices,
            wall: machine_run.wall,
            limit: if is_complete { None } else { limit },
        }))
    }

    /// Returns the sample of a loop. `None` if the machine ended early, before the loop had measured anything. If the plugin
    /// closed the window because it had enough, the loop's records are cut at this time.
    fn join(
        &self,
        looping: Loop,
        response: &NoiseResponse,
        record: Record<'_>,
        ended_early: bool,
    ) -> Result<Option<NoiseSample>, BenchError> {
        let guest_loops =
            || response.loops.iter().filter(|guest_loop| guest_loop.run.looping == looping);
        if ended_early && guest_loops().next().is_none() {
            return Ok(None);
        }
        let region = record.account.regions.first().ok_or_else(|| {
            BenchError::Failed(format!("the window of loop {looping} was never opened"))
        })?;
        let sample = if region.had_enough {
            let quantum_ns = self.settings.request.quantum_ns;
            let cut = |guest_loop: &GuestLoop| cut_at_close(guest_loop, region, quantum_ns);
            let cut_loops = guest_loops().map(cut).collect::<Result<Vec<_>, _>>()?;
            let cut_loops = cut_loops.iter().map(|cut| (&cut.guest_loop, cut.ran_on));
            self.sample(looping, cut_loops, record, region)?
        } else {
            let uncut_loops = guest_loops().map(|guest_loop| (guest_loop, false));
            self.sample(looping, uncut_loops, record, region)?
        };
        let longest_ns = sample.cpus.iter().map(|cpu| cpu.window_ns).max().unwrap_or(0);
        // A loop that was stopped in its warm-up has measured nothing.
        let has_measured = !sample.interrupted || longest_ns >= self.settings.request.quantum_ns;
        Ok(has_measured.then_some(sample))
    }

    /// Joins the loops of a window with the record, CPU by CPU. Each loop comes with the answer to [`Join::ran_on`].
    fn sample<'a>(
        &self,
        looping: Loop,
        loops: impl Iterator<Item = (&'a GuestLoop, bool)>,
        Record { account, symbols }: Record<'_>,
        region: &RegionUse,
    ) -> Result<NoiseSample, BenchError> {
        let has_senders = self.settings.guest.watch.senders;
        let sent_names = has_senders.then(|| SentNames::new(account, region, symbols));
        let mut names = Names::with_senders(sent_names);
        let interrupts = SentInterrupts::of_region(region);
        let mut results = LoopResults::default();
        let mut threads = BTreeMap::new();
        let mut interrupted = false;
        for (guest_loop, ran_on) in loops {
            interrupted |= guest_loop.run.interrupted && !region.had_enough;
            threads.insert(guest_loop.run.cpu, guest_loop.run.thread);
            let cpu = region.cpus.iter().find(|cpu| cpu.cpu == guest_loop.run.cpu);
            let no_cpu = || BenchError::Failed("a loop ran on a CPU that there is not".to_owned());
            let timeline = Timeline::new(&cpu.ok_or_else(no_cpu)?.transitions, self.clock_hz);
            let timeline = timeline.map_err(BenchError::Failed)?;
            results.traced.marks += cpu.map_or(0, |cpu| cpu.transitions.len() as u64);
            let join = Join {
                guest_loop,
                ran_on,
                timeline,
                account,
                names: &mut names,
                interrupts: interrupts.on_cpu(guest_loop.run.cpu),
                broken: Vec::new(),
            };
            self.add_cpu(&mut results, join);
        }
        results.traced.whole = true;
        let activity = concurrent_activity(region, &threads, self.threads_per_core());
        let (names, warning) = names.finish();
        Ok(NoiseSample {
            activity,
            names,
            warnings: warning.into_iter().collect(),
            traced: (looping != Loop::Ftq).then_some(results.traced),
            injected: results.injected,
            cpu_warnings: results.cpu_warnings,
            facts: results.facts,
            interrupted,
            had_enough: region.had_enough
                || (!interrupted && self.shortened_window_ns(looping).is_some()),
            tick_hz: self.settings.tick_hz.map(f64::from),
            ..NoiseSample::in_exact_clock(looping, results.cpus)
        })
    }

    /// Adds the results of a loop on a CPU, and the warning if its ledger does not close.
    fn add_cpu(&self, results: &mut LoopResults, mut join: Join<'_, '_>) {
        let guest_loop = join.guest_loop;
        let loop_run = guest_loop.run;
        let result = match loop_run.looping {
            Loop::Ftq => {
                LoopResult::Slots(Box::new(slots(guest_loop, self.settings.request.quantum_ns)))
            }
            Loop::Fwq => LoopResult::Quanta(Box::new(join.quanta())),
            Loop::Detour => {
                let detours = self.detours_of_cpu(results, &mut join);
                LoopResult::Gaps(Box::new(detours.ledger))
            }
        };
        if loop_run.looping != Loop::Detour {
            let name = format!("iterations_on_cpu_{}", loop_run.cpu);
            results.facts.insert(name, json!(loop_run.body_iterations));
        }
        let timer_count = join.timer_count();
        results.cpu_warnings.extend(warn_of_open_ledger(loop_run.cpu, &join.broken));
        results.cpus.push(CpuNoise {
            cpu: loop_run.cpu,
            start_ns: loop_run.start,
            window_ns: loop_run.end.saturating_sub(loop_run.start),
            result: result.calibrated_for(self.settings.request.quantum_ns),
            timer_count,
            external_ns: None,
            lost_records: loop_run.lost,
            left: false,
            page_faults: loop_run.page_faults,
            switches: loop_run.switches,
            steal_ns: None,
            smi_count: None,
        });
    }
    /// Divides the detours of a CPU. Adds their injected timers, facts and warnings to `results`.
    fn detours_of_cpu(&self, results: &mut LoopResults, join: &mut Join<'_, '_>) -> Detours {
        let loop_run = join.guest_loop.run;
        let keep = self.settings.keep.on_cpu(loop_run.cpu);
        let detours = join.detours(loop_run.iteration_cycles, keep);
        if let Some(inject) = self.settings.request.inject {
            let window = join.window();
            results.cpu_warnings.extend(warn_of_few_timers(&loop_run));
            results.injected.extend(injected(inject, &loop_run, &window, &detours.found));
        }
        results.traced.outside += detours.unseen;
        let name_on_cpu = |quantity: &str| format!("{quantity}_on_cpu_{}", loop_run.cpu);
        // The time-stamp counter of this machine counts ns: its cycles are ns.
        results.facts.insert(name_on_cpu("threshold_ns"), json!(loop_run.threshold_cycles));
        results.facts.insert(name_on_cpu("iteration_ns"), json!(detours.iteration_ns));
        if join.ran_on {
            results.cpu_warnings.push(CpuWarning::new(loop_run.cpu, RAN_ON));
        } else {
            let (iterations, ns) = (loop_run.iterations, loop_run.recording_cycles);
            results.facts.insert(name_on_cpu("iterations"), json!(iterations));
            results.facts.insert(name_on_cpu("recording_ns"), json!(ns));
        }
        results.facts.insert(name_on_cpu("taken_ns"), json!(detours.taken_ns));
        results.facts.insert(name_on_cpu("taken_in_detours_ns"), json!(detours.seen_ns));
        let unknown_ns = detours.ledger.parts.get(&Part::Unknown).map_or(0, |part| part.sum);
        if unknown_ns > 0 {
            join.broken.push(format!("{unknown_ns} ns of detours belong to nobody"));
        }
        detours
    }
}

/// Returns the label of a loop's machine.
fn label_of(looping: Loop) -> String {
    format!("loop {looping}")
}

/// Returns the warning for a CPU whose ledger does not close, with the first reason. `None` without reasons.
fn warn_of_open_ledger(cpu: u32, reasons: &[String]) -> Option<CpuWarning> {
    let (first, count) = (reasons.first()?, reasons.len());
    let extent = format!("{count} times, first: {first}");
    Some(CpuWarning::new(cpu, DOES_NOT_CLOSE).with_extent(count as f64, extent))
}

/// Returns a warning if the injected timers of a loop end more than a period before its window. A guest sets a limited
/// number of timers. `None` without injected timers.
fn warn_of_few_timers(loop_run: &LoopRun) -> Option<CpuWarning> {
    let timers = loop_run.injected?;
    let period_ns = timers.last.saturating_sub(timers.from).checked_div(timers.times)?;
    if timers.last.saturating_add(period_ns) >= loop_run.end {
        return None;
    }
    let covered_ns = timers.last.saturating_sub(loop_run.start);
    let extent = format!("{covered_ns} ns");
    Some(CpuWarning::new(loop_run.cpu, FEW_TIMERS).with_extent(covered_ns as f64, extent))
}

/// The results of a loop, collected over its CPUs.
#[derive(Default)]
struct LoopResults {
    cpus: Vec<CpuNoise>,
    injected: Vec<Injected>,
    traced: Traced,
    facts: Map<String, Json>,
    cpu_warnings: Vec<CpuWarning>,
}

impl Bench for SimNoise {
    fn facts(&self) -> BenchFacts {
        let config = &self.settings;
        let mut settings = Map::new();
        settings.insert("qemu".into(), json!(config.guest.qemu.version_text));
        settings.insert("machine".into(), json!(config.guest.machine.described()));
        let model = config.guest.watch.model.as_ref().map(|model| &model.described);
        settings.insert("model".into(), json!(model));
        settings.insert("user_mode".into(), json!(config.guest.watch.user_mode()));
        settings.insert("loops_on".into(), json!(config.request.cpus));
        settings.insert("vcpu_slice_cycles".into(), json!(config.guest.watch.vcpu_slice));
        settings.insert("body".into(), json!(config.request.body.word()));
        settings.insert("inject".into(), json!(config.request.inject));
        settings.insert("start".into(), json!(config.guest.start.described()));
        settings.insert(keys::BROKEN_COUNT.into(), json!(self.broken));
        if let Some(resolution) = self.resolution {
            settings.insert("tsc_hz".into(), json!(resolution.hz));
            settings.insert("clock_step_ns".into(), json!(resolution.step_ns));
            settings.insert("iteration_ns".into(), json!(resolution.iteration_ns));
            settings.insert("threshold_ns".into(), json!(resolution.threshold_ns));
            settings.insert("threshold_ns_min".into(), json!(resolution.threshold_ns_min));
        }
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

impl NoiseBench for SimNoise {
    fn visibility(&self) -> Visibility {
        Visibility::EveryCycle
    }

    fn is_measured(&self, looping: Loop) -> bool {
        let outcomes = self.outcomes.iter().flatten();
        let mut of_loop = outcomes.filter(|(measured, _)| *measured == looping);
        of_loop.any(|(_, outcome)| !matches!(outcome, Ok(None)))
    }

    /// The first request for a loop runs the machines of all loops.
    fn measure(&mut self, looping: Loop, _traced: bool) -> Result<NoiseSample, BenchError> {
        if self.outcomes.is_none() {
            self.outcomes = Some(self.run_machines());
        }
        let outcomes = self.outcomes.get_or_insert_default();
        let position = outcomes.iter().position(|(measured, _)| *measured == looping);
        let outcome = position.map(|position| outcomes.remove(position).1);
        let outcome = outcome.transpose()?.flatten();
        let sample = outcome.map(|outcome| outcome.sample).transpose()?.flatten();
        Ok(sample.unwrap_or_else(|| NoiseSample {
            interrupted: true,
            ..NoiseSample::in_exact_clock(looping, Vec::new())
        }))
    }
}

#[cfg(test)]
mod tests {
    use lab::cpu_warnings::CpuWarnings;
    use lab::noise::in_guest::Injections;

    use super::*;

    #[test]
    fn ledgers_that_do_not_close_are_one_line_of_all_cpus() {
        let reasons = |count: usize| vec!["9 ns of detours belong to nobody".to_owned(); count];
        let mut warnings = CpuWarnings::default();
        for cpu in 0..4 {
            let warning = warn_of_open_ledger(cpu, &reasons(1 + cpu as usize)).unwrap();
            assert!(warning.is_broken());
            warnings.add("detour", warning);
        }
        assert!(warn_of_open_ledger(4, &[]).is_none());
        let line = "broken: detour: CPUs 0-3: the ledger does not close (least: 1 times, first: 9 ns of detours \
                    belong to nobody, CPU 0; most: 4 times, first: 9 ns of detours belong to nobody, CPU 3)";
        assert_eq!(warnings.lines(), [line]);
    }

    #[test]
    fn a_window_that_outlasts_its_timers_is_named() {
        let run = |times: u64| LoopRun {
            looping: Loop::Detour,
            cpu: 3,
            thread: 7,
            start: 1_000,
            end: 2_000,
            iterations: 9,
            recording_cycles: 0,
            iteration_cycles: 1,
            threshold_cycles: 2,
            body_iterations: 1,
            lost: 0,
            page_faults: None,
            switches: None,
            injected: Some(Injections { from: 900, last: 900 + 100 * times, times }),
            interrupted: false,
        };
        let mut warnings = CpuWarnings::default();
        warnings.add("", warn_of_few_timers(&run(9)).unwrap());
        assert_eq!(warnings.lines(), [format!("CPU 3: {FEW_TIMERS} (800 ns)")]);
        assert_eq!(warn_of_few_timers(&run(10)), None);
        assert_eq!(warn_of_few_timers(&LoopRun { injected: None, ..run(9) }), None);
    }
}
