//! [`LiveBench`]: loads the probes, creates the conditions, measures the windows. `lab::handlers` calls
//! [`HandlersBench::measure`] for each condition and each pass; ARCHITECTURE.md follows one interrupt through it.
//!
//! A *pass* is a set of windows with the same programs. The first pass measures times; each further
//! pass reads some PMU events.
//!
//! The order of steps around a window matters: attach, warm up, read the kernel's files, open the gates; then close the
//! gates, read the files, read the maps.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use attribution::{ContextKey, ContextKind};
use lab::cpu_warnings::CpuWarning;
use lab::experiment::Absence;
use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::handlers::{
    Condition, DELAYS, HandlersBench, Party, Pass, ProbeOverhead, SENDERS, SenderMethod, VICTIMS,
    WindowSample, unmeasured_of_senders,
};
use lab::keys;
use lab::timeline;
use serde_json::{Map, json};

use super::agreement::{
    Bracket, CpuCounts, Files, compare, gate_agrees_with_files, nested_threaded_lines,
};
use super::convert::{actions_of, context_stats, sample_of_counter, window_of};
use super::delays::delays_of;
use super::function_names::FunctionNames;
use super::known_contexts::known_contexts;
use super::passes::{LoadedPass, has_probe};
use super::senders::{RunOverhead, SenderFunctions, probe_runs, senders_of};
use super::settings::LiveSettings;
use super::stimuli::Stimuli;
use super::trace::timeline_of;
use super::victims::{ChosenVictims, Naming, victims_of, warning_of_sums};
use super::window_cpus::WindowCpus;
use crate::bpf::kernel_counters::offsets_in_percpu_area;
use crate::bpf::layout::{Config, CpuState, SENDER_OTHERS, SENDER_ROWS_MAX};
use crate::bpf::memory;
use crate::bpf::programs::{
    choose, choose_callbacks, choose_delays, choose_senders, context_of_program, is_of_causes,
    is_of_delays, is_of_senders,
};
use crate::bpf::trace::TracedCpu;
use crate::bpf::{CountedRow, Flavour, KnownContexts, Maps, RowLayout, TraceLayout};
use crate::clock::FrequencyMeasurement;
use crate::footprint::tick::tick_ns;
use crate::host::cpu_facts;
use crate::host::{
    CoreType, EventAbsence, Root, core_types, format_cpu_list, irq_threads, is_any_leaving,
    kernel_facts, kernel_threads_are_visible, last_level_cache_bytes,
};
use crate::perf::{EventGroup, EventPlan, plan_events};
use crate::probe_overhead::events::EventOverheadsByCore;
use crate::probe_overhead::{CALLS, CoreCalibration, ROUNDS, WarmOverhead, calibrate_each};
use crate::window::{
    BenchPhase, HeldCommand, ThrottlingWindow, WaitOutcome, WindowEdge, WindowEnd, set_windows,
    shell_status, wait,
};

/// This machine as a bench for the experiment `handlers`.
pub struct LiveBench {
    pub(super) settings: LiveSettings,
    root: Root,
    flavour: Flavour,
    /// The measured CPUs by the type of their cores.
    core_types: Vec<CoreType>,
    /// How victims are named; `None` if they are not measured.
    naming: Option<Naming>,
    /// The timing pass, then the passes with events. Never empty after `new`.
    pub(super) passes: Vec<LoadedPass>,
    absent: Vec<Absence>,
    warnings: Vec<String>,
    /// The names of all functions that have had rows.
    functions: FunctionNames,
    /// The counter's frequency since the start; `None` without a counter, or if its cycles cannot be compared.
    frequency: Option<FrequencyMeasurement>,
    /// The result of `frequency`, measured once at the end: a frequency in Hz, or the reason for its absence.
    tsc_hz: OnceLock<Result<f64, String>>,
}

/// The table to which the absences belong.
const HANDLERS: &str = "handlers";
/// What an absence says when the run has no cycles.
const CYCLES: &str = "columns in cycles";

impl LiveBench {
    /// Calibrates and loads the probes of every pass. A measurement attaches only the
    /// probes of its own pass.
    ///
    /// Fails with [`BenchError::NothingMeasurable`] without the rights or the tracepoints.
    pub fn new(settings: LiveSettings) -> Result<Self, BenchError> {
        let flavour = settings.flavour.unwrap_or_else(Flavour::of_this_kernel);
        let mut bench = LiveBench {
            settings,
            root: Root::default(),
            flavour,
            core_types: Vec::new(),
            naming: None,
            passes: Vec::new(),
            absent: Vec::new(),
            warnings: Vec::new(),
            functions: FunctionNames::default(),
            frequency: None,
            tsc_hz: OnceLock::new(),
        };
        let by_sysfs = || core_types(&bench.root, &bench.settings.cpus);
        bench.core_types = bench.settings.core_types.clone().unwrap_or_else(by_sysfs);
        if let Some(flaw) = cpu_facts(&bench.root).model.tsc_flaw() {
            let reason = format!("the time-stamp counter {flaw}, so its cycles would not compare");
            bench.absent.push(Absence::new(HANDLERS, CYCLES, reason));
        } else {
            bench.frequency = FrequencyMeasurement::start();
        }
        let timing = bench.load_pass(Pass::default(), None);
        bench.passes.push(timing?);
        let plan = plan_events(&bench.root, &bench.settings.events, &bench.settings.cpus);
        bench.note_absent_events(&plan);
        for group in &plan.groups {
            if bench.settings.stop.is_requested() {
                break;
            }
            let open = EventGroup::open(group, &bench.settings.cpus)
                .map_err(|error| BenchError::Failed(format!("opening events: {error}")))?;
            let pass = bench.load_pass(Pass { events: open.names() }, Some(open))?;
            bench.passes.push(pass);
        }
        Ok(bench)
    }

    /// Frequency of the time-stamp counter, Hz, measured in this run, or the reason why the run has none. `None` without
    /// a counter, or if its cycles cannot be compared.
    fn tsc_hz(&self) -> Option<&Result<f64, String>> {
        let frequency = self.frequency?;
        Some(self.tsc_hz.get_or_init(|| frequency.hz()))
    }

    /// The absence of the columns in cycles, if the counter or the kernel's clock did not run all the time. `None` if both ran, or the run has no cycles.
    fn cycles_absence(&self) -> Option<Absence> {
        let reason = self.tsc_hz()?.as_ref().err()?;
        Some(Absence::new(HANDLERS, CYCLES, reason))
    }

    /// Kernel memory of the maps and programs of all passes, bytes; `None` if the
    /// kernel does not state it.
    fn kernel_memory_bytes(&self) -> Option<u64> {
        let memories = self.passes.iter().map(LoadedPass::kernel_memory);
        memories.reduce(|sum, memory| Some(sum?.with(memory?)))?.map(|memory| memory.bytes())
    }

    /// Adds one absence for all events that are absent for the same reason.
    fn note_absent_events(&mut self, plan: &EventPlan) {
        let mut reasons: Vec<(&EventAbsence, Vec<&str>)> = Vec::new();
        for (name, absence) in &plan.absent {
            match reasons.iter_mut().find(|(known, _)| *known == absence) {
                Some((_, names)) => names.push(name),
                None => reasons.push((absence, vec![name])),
            }
        }
        for (absence, names) in reasons {
            let subject = format!("PMU events {}", names.join(" "));
            let remedy = if absence.is_withheld { self.settings.remedy_pmu.clone() } else { None };
            self.absent.push(Absence::new(HANDLERS, subject, &absence.reason).with_remedy(remedy));
        }
    }

    /// The length of a pass's window. The timing pass gets half of the time if there are event passes,
    /// which share the other half.
    fn window_length(&self, length: Duration, pass: usize) -> Duration {
        match (self.passes.len() as u32 - 1, pass) {
            (0, _) => length,
            (_, 0) => length / 2,
            (event_passes, _) => length / 2 / event_passes,
        }
    }

    /// Tells the observer that a phase starts.
    fn start_phase(&self, phase: BenchPhase) {
        if let Some(at_phase) = self.settings.at_phase {
            at_phase(phase);
        }
    }

    /// Calibrates a pass and loads its programs. The first pass finds out which
    /// programs can be attached.
    fn load_pass(
        &mut self,
        pass: Pass,
        events: Option<EventGroup>,
    ) -> Result<LoadedPass, BenchError> {
        let calls = self.settings.calibration_calls;
        self.start_phase(BenchPhase::Measurement);
        let (cores, stop) = (&self.core_types, &self.settings.stop);
        let calibration = calibrate_each(self.flavour, cores, events.as_ref(), calls, stop);
        self.start_phase(BenchPhase::SetUp);
        let calibration = calibration?;
        if calibration.is_empty() {
            return Err(BenchError::nothing_measurable("no CPU to measure"));
        }
        let load = |programs, config, trace| {
            let pass = (pass, calibration, events);
            // All passes count in the maps of the first one.
            let mut contexts = known_contexts(&self.root, &self.settings.cpus);
            if self.settings.callbacks {
                contexts.values_mut().for_each(KnownContexts::add_functions);
            }
            if self.settings.delays {
                contexts.values_mut().for_each(KnownContexts::add_delays);
            }
            let rows = RowLayout::for_contexts(&contexts, self.settings.rows_max);
            let first = self.passes.first().map(|first| Maps::Shared(&first.probes));
            let maps = first.unwrap_or(Maps::New(&rows));
            LoadedPass::load(self.flavour, config, &self.settings.cpus, maps, programs, trace, pass)
                .map_err(BenchError::from)
        };
        if let Some(first) = self.passes.first() {
            let is_of_all_passes = |program: &&String| {
                !is_of_delays(program) && !is_of_senders(program) && !is_of_causes(program)
            };
            let programs = first.programs.iter().filter(is_of_all_passes);
            return load(programs.cloned().collect(), Config::default(), None);
        }
        // If /proc hides kernel threads, IRQ threads may exist.
        let may_have_threads =
            !kernel_threads_are_visible(&self.root) || !irq_threads(&self.root).is_empty();
        let mut trace = None;
        match trace_layout(&self.settings, self.flavour) {
            Some(Ok(layout)) => trace = Some(layout),
            Some(Err(reason)) => {
                self.absent.push(Absence::new(timeline::table::NAME, "single events", reason));
            }
            None => {}
        }
        // The program of threads also records which task has a CPU.
        let mut chosen = choose(self.flavour, may_have_threads || trace.is_some());
        if self.settings.callbacks {
            let is_realtime = kernel_facts(&self.root).preemption.realtime == Some(true);
            chosen.add_callbacks(choose_callbacks(self.flavour, is_realtime));
        }
        let mut absent_delays = Vec::new();
        if self.settings.delays {
            let delays = choose_delays(self.flavour, &offsets_in_percpu_area(), may_have_threads);
            absent_delays = chosen.add_delays(delays);
        }
        let mut absent_senders = Vec::new();
        let victims = ChosenVictims::choose(&self.settings, self.flavour, &self.root);
        chosen.programs.extend(victims.programs);
        self.absent.extend(victims.absent);
        self.naming = victims.naming;
        if self.settings.senders || self.naming.is_some() {
            let cpus = libbpf_rs::num_possible_cpus().unwrap_or(usize::MAX);
            let senders = choose_senders(self.flavour, &offsets_in_percpu_area(), cpus);
            absent_senders = chosen.add_senders(senders);
            if absent_senders.is_empty() && self.settings.senders {
                self.absent.extend(unmeasured_of_senders(SenderMethod::Probes));
            }
        }
        let mut loaded = load(chosen.programs, victims.config, trace)?;
        self.absent.push(Absence::new(
            HANDLERS,
            "exceptions other than page faults",
            "this kernel has no tracepoints for them",
        ));
        let chosen = chosen.absent.into_iter();
        self.absent.extend(chosen.map(|(context, reason)| Absence::new(HANDLERS, context, reason)));
        let absent_delays = absent_delays.into_iter();
        self.absent
            .extend(absent_delays.map(|(context, reason)| Absence::new(DELAYS, context, reason)));
        for (context, reason) in absent_senders {
            let subjects = self.subjects_of_senders(&context).into_iter();
            let absences =
                subjects.map(|(table, subject)| Absence::new(table, subject, reason.clone()));
            self.absent.extend(absences);
        }
        let mut refused = Vec::new();
        for (program, error) in loaded.attach_what_can_be() {
            let context = context_of_program(&program);
            let subjects = match &*program {
                program if is_of_senders(program) => self.subjects_of_senders(&context),
                program if is_of_delays(program) => vec![(DELAYS, context)],
                program if is_of_causes(program) => vec![(VICTIMS, context)],
                _ => vec![(HANDLERS, context)],
            };
            let absence = BenchError::from(error).absence(HANDLERS, "");
            refused.extend(subjects.into_iter().map(|(table, subject)| {
                Absence::new(table, subject, absence.reason.clone())
                    .with_remedy(absence.remedy.clone())
            }));
        }
        if loaded.programs.is_empty() {
            return Err(BenchError::NothingMeasurable {
                reason: "none of the probes could be attached".to_owned(),
                remedy: refused.into_iter().find_map(|absence| absence.remedy),
            });
        }
        self.absent.extend(refused);
        Ok(loaded)
    }

    /// The table and the subject of each absence that a missing program of senders causes. It may serve two
    /// tables: `senders` and `victims`.
    fn subjects_of_senders(&self, context: &str) -> Vec<(&'static str, String)> {
        let of_victims = self.naming.is_some().then(|| (VICTIMS, format!("causes: {context}")));
        let of_senders = self.settings.senders.then(|| (SENDERS, context.to_owned()));
        of_victims.into_iter().chain(of_senders).collect()
    }

    /// Attaches the programs of one pass, and detaches all others.
    pub(super) fn attach_only(&mut self, pass: usize) -> Result<(), BenchError> {
        let others = self.passes.iter_mut().enumerate().filter(|(index, _)| *index != pass);
        others.for_each(|(_, other)| other.detach());
        Ok(self.passes[pass].attach()?)
    }

    /// Waits for the warm-up of the condition, and uses the time for calibration. In the timing pass the probes learn
    /// their overhead on times. In a pass with events, the overhead of reading the events is measured, and returned.
    ///
    /// A command has no warm-up: the probes learn during its window, and its events get the overhead of the warm loop.
    fn warm_up(
        &self,
        condition: Condition,
        pass: usize,
        cpus: &[u32],
    ) -> Result<EventOverheadsByCore, BenchError> {
        let loaded = &self.passes[pass];
        let deadline = Instant::now() + self.settings.warm_up;
        let wait_for_warm_up = || {
            wait(Some(deadline), None, &self.settings.stop);
        };
        let overheads = |cpu| loaded.warm_on(cpu).overheads();
        loaded.probes.clear_for_each(overheads)?;
        match (&loaded.calibration, condition) {
            (None, Condition::Command) => Ok(EventOverheadsByCore::default()),
            (Some(calibration), Condition::Command) => Ok(calibration.warm()),
            (Some(calibration), _) => {
                let measured = calibration.measure(wait_for_warm_up)?;
                // The calibration counted in the maps of the window.
                loaded.probes.clear_for_each(overheads)?;
                Ok(measured)
            }
            (None, _) => {
                // A CPU that is offline during the warm-up learns nothing.
                set_windows(&loaded.probes, cpus, WindowEdge::Open)?;
                wait_for_warm_up();
                set_windows(&loaded.probes, cpus, WindowEdge::Close)?;
                loaded.probes.clear_counts(overheads)?;
                Ok(EventOverheadsByCore::default())
            }
        }
    }

    /// Starts load and stimulus on the CPUs that are online.
    fn start_stimuli(&self, condition: Condition) -> Result<(WindowCpus, Stimuli), BenchError> {
        loop {
            let cpus = WindowCpus::online_now(&self.root, &self.settings.cpus);
            if cpus.measured.is_empty() {
                let reason = "every CPU to measure is offline".to_owned();
                return Err(BenchError::unavailable(reason));
            }
            let settings = LiveSettings { cpus: cpus.measured.clone(), ..self.settings.clone() };
            match Stimuli::start(condition, &settings, last_level_cache_bytes(&self.root)) {
                Ok(stimuli) => return Ok((cpus, stimuli)),
                // A CPU went offline meanwhile: tries again without it. Each attempt has fewer CPUs, so the loop ends.
                Err(_) if is_any_leaving(&self.root, &cpus.measured) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the window, waits for its end, and closes it. Returns the kernel's files around both edges.
    fn window(
        &self,
        pass: usize,
        cpus: &mut WindowCpus,
        sample: &mut WindowSample,
    ) -> Result<Bracket, BenchError> {
        let loaded = &self.passes[pass];
        let mut bracket = Bracket { before: Files::read(&self.root), ..Bracket::default() };
        let held = match &self.settings.until {
            WindowEnd::Elapsed(_) => None,
            WindowEnd::CommandEnds { words, to_stderr } => {
                Some(HeldCommand::new(words, *to_stderr)?)
            }
        };
        let notify = |edge| self.settings.at_edge.map_or((), |at_edge| at_edge(edge));
        notify(WindowEdge::Open);
        let offline = set_windows(&loaded.probes, &cpus.measured, WindowEdge::Open)?;
        cpus.never_opened(&offline);
        let deadline = match self.settings.until {
            WindowEnd::Elapsed(length) => Some(Instant::now() + self.window_length(length, pass)),
            WindowEnd::CommandEnds { .. } => None,
        };
        bracket.opened = Files::read(&self.root);
        let cpu_before = own_cpu_ns();
        // The command executes its first instruction only now, with all gates open.
        let command = held.map(HeldCommand::release).transpose();
        let outcome = match &command {
            Ok(command) => wait(deadline, command.as_ref(), &self.settings.stop),
            Err(_) => WaitOutcome::Completed, // The gates must close before the error is returned.
        };
        sample.user_cpu_ns = Some(own_cpu_ns().saturating_sub(cpu_before));
        bracket.closing = Files::read(&self.root);
        // If a CPU has gone offline, its window closed then.
        set_windows(&loaded.probes, &cpus.measured, WindowEdge::Close)?;
        notify(WindowEdge::Close);
        bracket.after = Files::read(&self.root);
        sample.interrupted = outcome == WaitOutcome::Stopped;
        if let Some(command) = command? {
            let status = command.finish(outcome)?;
            if outcome == WaitOutcome::Completed && !status.success() {
                sample.warnings.push(format!("the command failed: {status}"));
            }
            sample.facts.insert(keys::COMMAND_ENDED.to_owned(), json!(status.to_string()));
            sample.facts.insert(keys::COMMAND_STATUS.to_owned(), json!(shell_status(status)));
        }
        Ok(bracket)
    }

    /// The time that the probes of a row took, ns. Computed from the overhead inside the row's spans, and for contexts
    /// with a single probe (poll, NMI, fault) from half the overhead of a pair.
    fn probe_ns(row: &CountedRow, warm: &WarmOverhead) -> u64 {
        let pair_overhead_ns =
            row.overhead_ns as f64 * warm.total_ns as f64 / warm.in_span_ns.max(1) as f64;
        let has_single_probe = matches!(
            ContextKey::from_key(row.key),
            Some(
                ContextKey::Napi
                    | ContextKey::Nmi
                    | ContextKey::FaultUser
                    | ContextKey::FaultKernel
                    | ContextKey::Callback(ContextKind::Rcu)
            )
        );
        let is_delay_of_timers = matches!(
            ContextKey::from_key(row.key),
            Some(ContextKey::DelayOfFunctions(ContextKind::Hrtimer | ContextKind::Timer))
        );
        let is_delay = matches!(
            ContextKey::from_key(row.key),
            Some(
                ContextKey::DelayOfSoftirq(_)
                    | ContextKey::DelayOfFunctions(_)
                    | ContextKey::DelayOfIrqThread(_)
            )
        );
        if has_single_probe {
            row.count * warm.total_ns / 2
        } else if is_delay_of_timers {
            (row.count + row.special) * warm.total_ns / 2
        } else if is_delay {
            // A program at each end, of half the overhead of a pair. Further raises are not counted.
            (row.count + row.special) * warm.total_ns
        } else {
            pair_overhead_ns.round() as u64
        }
    }

    /// Adds the counts in the maps to a sample: for each CPU its window, the statistics of its contexts,
    /// and the time of the probes.
    pub(super) fn add_counts(
        &self,
        loaded: &LoadedPass,
        event_overheads: &EventOverheadsByCore,
        (states, rows): (&[CpuState], &[CountedRow]),
        cpus: &[u32],
        sample: &mut WindowSample,
    ) {
        let functions = self.functions.name(&self.root, rows, &mut sample.warnings);
        let has_delays = self.settings.delays && loaded.pass.events.is_empty();
        sample.delays = has_delays.then(Vec::new);
        for &cpu in cpus {
            let Some(state) = states.get(cpu as usize) else { continue };
            let window = window_of(cpu, state);
            let cpu_rows = || rows.iter().filter(|row| row.cpu == cpu);
            let overheads = event_overheads.on(cpu);
            let contexts = cpu_rows()
                .map(|row| context_stats(row, &window, overheads, &self.root, &functions));
            sample.contexts.extend(contexts.flatten());
            if let Some(delays) = &mut sample.delays {
                delays.extend(cpu_rows().filter_map(|row| delays_of(row, &window, &functions)));
            }
            let warm = loaded.warm_on(cpu);
            let probe_ns: u64 = cpu_rows().map(|row| Self::probe_ns(row, warm)).sum();
            sample.probe_ns = Some(sample.probe_ns.unwrap_or(0) + probe_ns);
            sample.windows.push(window);
        }
    }

    /// Adds the senders of interrupts to a sample, and the time of their probes.
    fn add_senders(
        &self,
        loaded: &LoadedPass,
        sample: &mut WindowSample,
    ) -> Result<(), BenchError> {
        if !loaded.programs.iter().any(|program| is_of_senders(program)) {
            return Ok(());
        }
        let rows = loaded.probes.senders()?;
        let warm = &loaded.warm[0].warm;
        let probe_ns = probe_runs(&rows) * warm.total_ns / 2;
        sample.probe_ns = Some(sample.probe_ns.unwrap_or(0) + probe_ns);
        if !self.settings.senders {
            return Ok(());
        }
        let functions = SenderFunctions::find(&self.root, &rows);
        if functions.unnamed > 0 {
            sample.warnings.push(format!(
                "{} functions and call sites of senders have an address instead of a name, because /proc/kallsyms did \
                 not list them after the window (it shows addresses to root, if kernel.kptr_restrict is not 2)",
                functions.unnamed
            ));
        }
        let others: u64 = rows
            .iter()
            .filter(|(key, _)| key.context == SENDER_OTHERS)
            .map(|(_, row)| row.count)
            .sum();
        if others > 0 {
            sample.warnings.push(format!(
                "{others} calls and interrupts are in the rows (other senders): there were more than {SENDER_ROWS_MAX} \
                 senders"
            ));
        }
        let overhead = RunOverhead::of_window(&sample.contexts, warm.in_span_ns);
        let actions = |irq| actions_of(&self.root, irq);
        sample.senders = Some(senders_of(&rows, &functions, overhead, actions));
        Ok(())
    }

    /// Adds the victims of interrupts to the sample of a timing window.
    fn add_victims(
        &self,
        loaded: &LoadedPass,
        sample: &mut WindowSample,
    ) -> Result<(), BenchError> {
        let Some(naming) = self.naming else { return Ok(()) };
        if !loaded.pass.events.is_empty() {
            return Ok(());
        }
        let cells = loaded.probes.victims()?;
        let victims = victims_of(&cells, naming, &sample.contexts, &loaded.programs, &self.root);
        let others: u64 = victims
            .rows
            .iter()
            .filter(|row| row.victim == Party::Others)
            .map(|row| row.count)
            .sum();
        if others > 0 {
            sample.warnings.push(format!(
                "{others} spans are in the rows (other) of table victims: there were more than {} victims and causes of \
                 contexts",
                self.settings.victim_cells_max
            ));
        }
        sample.warnings.extend(warning_of_sums(&victims, &sample.contexts));
        sample.victims = Some(victims);
        Ok(())
    }

    /// Adds the single events to the sample of a timing window.
    fn add_timeline(
        &self,
        loaded: &LoadedPass,
        rows: &[CountedRow],
        sample: &mut WindowSample,
    ) -> Result<(), BenchError> {
        let Some(bytes_max) = self.settings.trace_bytes_max else { return Ok(()) };
        let traced = loaded.probes.traced()?;
        if traced.is_empty() {
            return Ok(());
        }
        let written = |cpu: &TracedCpu| cpu.lost + cpu.events.len() as u64;
        let events: u64 = traced.iter().map(written).sum();
        let timeline = timeline_of(traced, rows, &sample.windows, &self.root, bytes_max);
        let cost_ns = timeline.event_cost_ns.unwrap_or(0.0) * events as f64;
        sample.probe_ns = Some(sample.probe_ns.unwrap_or(0) + cost_ns as u64);
        sample.timeline = Some(Arc::new(timeline));
        Ok(())
    }

    /// Reads the maps after a window, and adds to the sample: the counts, the CPUs without a window, and the comparison
    /// with the kernel's counts.
    fn collect(
        &self,
        loaded: &LoadedPass,
        event_overheads: &EventOverheadsByCore,
        bracket: &Bracket,
        mut cpus: WindowCpus,
        sample: &mut WindowSample,
    ) -> Result<(), BenchError> {
        let states = loaded.probes.states()?;
        let rows = loaded.probes.rows_of(&states)?;
        cpus.leave_out_unclosed(&states);
        cpus.describe(&self.root, &states, sample);
        self.add_counts(loaded, event_overheads, (&states, &rows), &cpus.measured, sample);
        self.add_senders(loaded, sample)?;
        self.add_victims(loaded, sample)?;
        self.add_timeline(loaded, &rows, sample)?;
        let has_probe = |key: u32| has_probe(key, &loaded.programs);
        let nested_threaded = nested_threaded_lines(&self.root, bracket);
        for &cpu in &cpus.measured {
            let Some(state) = states.get(cpu as usize) else { continue };
            let has_exact_counts = gate_agrees_with_files(cpu, state, bracket);
            if !has_exact_counts {
                sample.cpu_warnings.push(CpuWarning::new(
                    cpu,
                    "the kernel's counters are not where its BTF locates them; counts are compared with \
                     /proc only",
                ));
            }
            let cpu_rows = rows.iter().filter(|row| row.cpu == cpu);
            let counts = CpuCounts {
                cpu,
                state,
                rows: cpu_rows.map(|row| &*row.row).collect(),
                has_probe: &has_probe,
                nested_threaded: &nested_threaded,
            };
            let lines = compare(&counts, bracket, has_exact_counts);
            sample.contexts.extend(lines.iter().filter_map(sample_of_counter));
            sample.agreement.extend(lines);
        }
        let errors = loaded.probes.event_errors()?;
        sample.warnings.extend(errors.warnings());
        Ok(())
    }
}

/// Where single events are kept, or the reason why none can be kept. `None` if they were not requested.
fn trace_layout(
    settings: &LiveSettings,
    flavour: Flavour,
) -> Option<Result<TraceLayout, &'static str>> {
    let bytes_max = settings.trace_bytes_max?;
    Some(match flavour {
        Flavour::Raw => Err("this kernel has no type information"),
        Flavour::Btf if settings.victims.is_some() => {
            Err("the programs that sum times by victim keep no events")
        }
        Flavour::Btf => Ok(TraceLayout::new(&settings.cpus, bytes_max)),
    })
}

/// CPU time of this process, all threads, ns.
pub(super) fn own_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

impl Bench for LiveBench {
    fn facts(&self) -> BenchFacts {
        let warm = self.passes.first().map(|loaded| &loaded.warm[..]).unwrap_or_default();
        let timing = warm.first().map(|first| first.warm.clone()).unwrap_or_default();
        let mut settings = Map::new();
        settings.insert(keys::ATTACHMENT.into(), json!(self.flavour.label()));
        settings.insert("cpus".into(), json!(format_cpu_list(&self.settings.cpus)));
        let hotplug = self.passes.first().and_then(LoadedPass::hotplug_tracepoint);
        settings.insert("offline_cpus_seen_by".into(), json!(hotplug));
        settings.insert("clock".into(), json!("CLOCK_MONOTONIC (bpf_ktime_get_ns)"));
        settings.insert("cycles".into(), json!("ns times the TSC frequency measured in this run"));
        if self.settings.delays {
            settings.insert("jiffy_ns".into(), json!(tick_ns()));
        }
        settings.insert("histogram_error_max_ratio".into(), json!(1.0 / 16.0));
        settings.insert("tsc_hz".into(), json!(self.tsc_hz().and_then(|hz| hz.as_ref().ok())));
        let mut observer = Map::new();
        let method = "A/B on a pinned getppid loop: an empty program, then the same followed by a probe pair";
        observer.insert("method".into(), json!(method));
        observer.insert("rounds".into(), json!(ROUNDS));
        observer.insert("calls_per_round".into(), json!(CALLS));
        observer.insert("probe_overhead_min_ns".into(), json!(timing.total_range_ns.0));
        observer.insert("probe_overhead_max_ns".into(), json!(timing.total_range_ns.1));
        let by_core: Vec<_> = warm.iter().map(CoreCalibration::to_json).collect();
        observer.insert("core_types".into(), json!(by_core));
        observer.insert("kernel_memory_bytes".into(), json!(self.kernel_memory_bytes()));
        observer.insert("kernel_memory_method".into(), json!(memory::METHOD));
        BenchFacts {
            bench: "live".to_owned(),
            settings,
            observer,
            absent: self.absent.iter().cloned().chain(self.cycles_absence()).collect(),
            warnings: self.warnings.clone(),
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }

    fn expected_step(&self) -> Option<Duration> {
        match self.settings.until {
            WindowEnd::Elapsed(length) => {
                Some(self.settings.warm_up + length / self.passes.len().max(1) as u32)
            }
            WindowEnd::CommandEnds { .. } => None,
        }
    }
}

impl HandlersBench for LiveBench {
    fn probe_overhead(&self) -> ProbeOverhead {
        let first = |pass: &LoadedPass| pass.warm.first().map(|first| first.warm.clone());
        let timing = self.passes.first().and_then(first).unwrap_or_default();
        ProbeOverhead {
            tsc_hz: self.tsc_hz().and_then(|hz| hz.as_ref().ok().copied()),
            in_span_ns: timing.in_span_ns,
            total_ns: timing.total_ns,
            events: self.passes.iter().map(|pass| first(pass).unwrap_or_default().events).collect(),
        }
    }

    fn passes(&self) -> Vec<Pass> {
        self.passes.iter().map(|loaded| loaded.pass.clone()).collect()
    }

    fn measure(&mut self, condition: Condition, pass: usize) -> Result<WindowSample, BenchError> {
        if pass >= self.passes.len() {
            return Err(BenchError::nothing_measurable("no such pass"));
        }
        let mut sample = WindowSample::default();
        let (mut cpus, mut stimuli) = self.start_stimuli(condition)?;
        sample.facts.extend(stimuli.facts());
        // Attached before the warm-up: the calibration then runs with the programs that the window has.
        self.attach_only(pass)?;
        let loaded = &self.passes[pass];
        let counting = loaded.count()?;
        self.start_phase(BenchPhase::Measurement);
        let event_overheads = self.warm_up(condition, pass, &cpus.measured)?;
        if self.stop_requested() {
            return Ok(WindowSample { interrupted: true, ..sample });
        }
        let missed_before = loaded.probes.misses()?;
        let throttling = ThrottlingWindow::open(&self.root);
        let bracket = self.window(pass, &mut cpus, &mut sample);
        throttling.report(&self.root, &mut sample.facts, &mut sample.warnings);
        self.start_phase(BenchPhase::SetUp);
        drop(counting);
        let bracket = bracket?;
        // Checked before the stop, and reported after it: the processes end in any case.
        let still_run = if sample.interrupted { Ok(()) } else { stimuli.check() };
        let finished = stimuli.stop();
        still_run?;
        sample.missed = loaded.probes.misses()?.saturating_sub(missed_before);
        self.collect(loaded, &event_overheads, &bracket, cpus, &mut sample)?;
        (sample.load_work, sample.stimulus_work) = (finished.load, finished.stimulus);
        if !sample.interrupted {
            sample.warnings.extend(finished.warnings);
        }
        Ok(sample)
    }
}
