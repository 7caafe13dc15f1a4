//! [`LiveBench`]: loads the probes, makes the conditions, measures the windows.

use std::time::{Duration, Instant};

use lab::handlers::{BenchError, BenchFacts, Condition, HandlersBench, Pass, WindowSample};
use serde_json::{Map, json};

use super::agreement::{Bracket, CpuCounts, Files, compare, gate_agrees_with_files};
use super::calibrate::{CALLS, Calibration, ROUNDS, calibrate};
use super::convert::{sample_of, sample_of_counter, window_of};
use super::faults::warnings_of;
use super::gates::{Edge, move_gates};
use super::in_place::{InPlace, described};
use super::perf::{EventGroup, EventPlan, UNKNOWN_EVENT, plan_events};
use super::programs::{choose, thing_of};
use super::settings::{LiveSettings, WindowEdge};
use super::stimuli::Stimuli;
use super::tsc::Reading;
use super::wait::{Ended, Until, Workload, wait};
use crate::bpf::kernel_counters::percpu_offsets;
use crate::bpf::layout::{Config, EVENTS_MAX, Inside, KEY_IRQ, KEY_SOFTIRQ, KEY_VECTOR, Row};
use crate::bpf::{BpfError, Flavour, LoadSpec, Probes};
use crate::host::{Root, format_cpu_list, last_level_cache_bytes};

/// Rows per CPU: fixed contexts, and the device interrupts that one CPU takes.
const SLOTS: u32 = 96;

/// The probes of one pass, attached.
struct LoadedPass {
    pass: Pass,
    probes: Probes,
    calibration: Calibration,
    /// Programs that are attached.
    attached: Vec<String>,
    /// Its events, off but for its own windows.
    events: Option<EventGroup>,
}

/// This machine as a bench.
pub struct LiveBench {
    settings: LiveSettings,
    root: Root,
    flavour: Flavour,
    passes: Vec<LoadedPass>,
    in_place: Option<InPlace>,
    /// What is subtracted in the condition that is measured.
    inside: Inside,
    absent: Vec<(String, String, Option<String>)>,
    warnings: Vec<String>,
    started: Option<Reading>,
}

fn bench_error(error: BpfError) -> BenchError {
    match error {
        BpfError::NotPermitted(reason) => BenchError::NothingMeasurable {
            // What libbpf adds guesses at memory limits; the remedy says what is lacking.
            reason: format!(
                "the kernel refuses BPF tracing programs: {}",
                reason.split("; ").next().unwrap_or_default()
            ),
            remedy: None,
        },
        BpfError::Failed(reason) => BenchError::Failed(reason),
    }
}

impl LiveBench {
    /// Calibrates, loads and attaches the probes of every pass.
    ///
    /// # Errors
    /// [`BenchError::NothingMeasurable`] without the rights or the tracepoints.
    pub fn new(settings: LiveSettings) -> Result<Self, BenchError> {
        let flavour = settings.flavour.unwrap_or_else(Flavour::of_this_kernel);
        let mut bench = LiveBench {
            settings,
            root: Root::default(),
            flavour,
            passes: Vec::new(),
            in_place: None,
            inside: Inside::default(),
            absent: Vec::new(),
            warnings: Vec::new(),
            started: Reading::now(),
        };
        let timing = bench.load_pass(Pass::default(), None);
        bench.passes.push(timing.map_err(|error| bench.with_remedy(error))?);
        let hot_ns = bench.passes.first().map_or(0, |timing| timing.calibration.inside_ns);
        bench.inside = Inside::same(hot_ns);
        let in_place = InPlace::load(flavour, &bench.settings.cpus, hot_ns).map_err(bench_error)?;
        bench.in_place = Some(in_place);
        let plan = plan_events(&bench.root, &bench.settings.events, &bench.settings.cpus);
        bench.note_absent_events(&plan);
        for group in &plan.groups {
            let open = EventGroup::open(group, &bench.settings.cpus)
                .map_err(|error| BenchError::Failed(format!("opening events: {error}")))?;
            let pass = bench.load_pass(Pass { events: open.names() }, Some(open))?;
            bench.passes.push(pass);
        }
        Ok(bench)
    }

    fn with_remedy(&self, error: BenchError) -> BenchError {
        match error {
            BenchError::NothingMeasurable { reason, remedy: None } => {
                BenchError::NothingMeasurable {
                    reason,
                    remedy: self.settings.remedy_rights.clone(),
                }
            }
            other => other,
        }
    }

    /// One absence for all events that lack for the same reason.
    fn note_absent_events(&mut self, plan: &EventPlan) {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, reason) in &plan.absent {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, names)) => names.push(name),
                None => reasons.push((reason, vec![name])),
            }
        }
        for (reason, names) in reasons {
            let what = format!("PMU events {}", names.join(" "));
            let remedy = self.settings.remedy_pmu.clone().filter(|_| reason != UNKNOWN_EVENT);
            self.absent.push((what, reason.to_owned(), remedy));
        }
    }

    /// With events to read, half of the time is the timing pass's, the rest the event passes'.
    fn window_length(&self, length: Duration, pass: usize) -> Duration {
        match (self.passes.len() as u32 - 1, pass) {
            (0, _) => length,
            (_, 0) => length / 2,
            (event_passes, _) => length / 2 / event_passes,
        }
    }

    fn load_pass(
        &mut self,
        pass: Pass,
        events: Option<EventGroup>,
    ) -> Result<LoadedPass, BenchError> {
        let cpu = *self.settings.cpus.first().ok_or_else(|| nothing("no CPU to measure"))?;
        let calibration = calibrate(self.flavour, cpu, events.as_ref()).map_err(bench_error)?;
        let chosen = choose(self.flavour);
        let names: Vec<&str> = chosen.programs.iter().map(String::as_str).collect();
        let spec = LoadSpec {
            flavour: self.flavour,
            config: Config {
                inside_events: whole_events(&calibration.events),
                slots: SLOTS,
                events: pass.events.len() as u32,
                percpu_offsets: percpu_offsets(),
                ..Config::default()
            },
            programs: &names,
        };
        let mut probes = Probes::load(&spec).map_err(bench_error)?;
        if let Some(group) = &events {
            for &cpu in &self.settings.cpus {
                for (event, fd) in group.descriptors(cpu).enumerate() {
                    let fd = std::os::fd::AsFd::as_fd(fd);
                    probes.set_event(event as u32, cpu, fd).map_err(bench_error)?;
                }
            }
        }
        let first = self.passes.is_empty();
        if first {
            self.absent.push((
                "exceptions other than page faults".to_owned(),
                "this kernel has no tracepoints for them".to_owned(),
                None,
            ));
            let absent = chosen.absent.iter();
            self.absent.extend(absent.map(|(what, reason)| (what.clone(), reason.clone(), None)));
        }
        let mut attached = Vec::new();
        for name in names {
            match probes.attach(name) {
                Ok(()) => attached.push(name.to_owned()),
                Err(error) if first => {
                    self.absent.push((thing_of(name), error.to_string(), None));
                }
                Err(_) => {} // said in the first pass
            }
        }
        if attached.is_empty() {
            return Err(nothing("none of the probes could be attached"));
        }
        Ok(LoadedPass { pass, probes, calibration, attached, events })
    }

    /// Lets the condition warm up, and measures meanwhile what the probes cost in it. A command is
    /// not warmed up: it gets what the hot loop said.
    fn warm_up(&mut self, condition: Condition, pass: usize) -> Result<(), BenchError> {
        let hot_ns = self.passes.first().map_or(0, |timing| timing.calibration.inside_ns);
        let deadline = Instant::now() + self.settings.warm_up;
        let pass_time = || {
            wait(Some(deadline), None, &self.settings.stop);
        };
        match (condition, &self.in_place) {
            (Condition::Command, _) | (_, None) => self.inside = Inside::same(hot_ns),
            (_, Some(in_place)) if pass == 0 => self.inside = in_place.measure(pass_time)?,
            _ => pass_time(), // as in the timing pass of this condition
        }
        Ok(())
    }

    /// Opens and closes the window around the wait.
    fn window(&self, pass: usize, sample: &mut WindowSample) -> Result<Bracket, BenchError> {
        let loaded = &self.passes[pass];
        let mut bracket = Bracket { before: Files::read(&self.root), ..Bracket::default() };
        let workload = match &self.settings.until {
            Until::Elapsed(_) => None,
            Until::CommandEnds { words, to_stderr } => Some(Workload::start(words, *to_stderr)?),
        };
        move_gates(&loaded.probes, &self.settings.cpus, Edge::Open)?;
        let tell = |edge| self.settings.at_edge.map_or((), |at_edge| at_edge(edge));
        tell(WindowEdge::Open);
        let deadline = match self.settings.until {
            Until::Elapsed(length) => Some(Instant::now() + self.window_length(length, pass)),
            Until::CommandEnds { .. } => None,
        };
        bracket.opened = Files::read(&self.root);
        let cpu_before = own_cpu_ns();
        let ended = wait(deadline, workload.as_ref(), &self.settings.stop);
        sample.user_cpu_ns = own_cpu_ns().saturating_sub(cpu_before);
        bracket.closing = Files::read(&self.root);
        tell(WindowEdge::Close);
        move_gates(&loaded.probes, &self.settings.cpus, Edge::Close)?;
        bracket.after = Files::read(&self.root);
        sample.interrupted = ended == Ended::Stopped;
        if let Some(workload) = workload {
            let status = workload.finish(ended)?;
            if ended == Ended::Done && !status.success() {
                sample.warnings.push(format!("it failed: {status}"));
            }
            sample.facts.insert("command_ended".to_owned(), json!(status.to_string()));
        }
        Ok(bracket)
    }

    fn collect(
        &self,
        loaded: &LoadedPass,
        bracket: &Bracket,
        sample: &mut WindowSample,
    ) -> Result<(), BenchError> {
        let states = loaded.probes.states().map_err(bench_error)?;
        let rows = loaded.probes.rows().map_err(bench_error)?;
        let has_probe = |key: u32| has_probe(key, &loaded.attached);
        for &cpu in &self.settings.cpus {
            let Some(state) = states.get(cpu as usize) else { continue };
            let window = window_of(cpu, state);
            let of_cpu: Vec<&Row> =
                rows.iter().filter(|(on, _)| *on == cpu).map(|(_, row)| &**row).collect();
            let events = loaded.pass.events.len();
            sample.sources.extend(
                of_cpu
                    .iter()
                    .filter_map(|r| sample_of(cpu, r, window.length_ns, events, &self.root)),
            );
            let use_exact = gate_agrees_with_files(cpu, state, bracket);
            if !use_exact {
                sample.warnings.push(format!(
                    "CPU {cpu}: the kernel's own counters were not found where its BTF says; counts \
                     are compared with /proc alone"
                ));
            }
            let counts = CpuCounts { cpu, state, rows: of_cpu, has_probe: &has_probe };
            let lines = compare(&counts, bracket, use_exact);
            sample.sources.extend(lines.iter().filter_map(sample_of_counter));
            sample.agreement.extend(lines);
            sample.windows.push(window);
        }
        let faults = loaded.probes.event_faults().map_err(bench_error)?;
        sample.warnings.extend(warnings_of(&faults));
        Ok(())
    }
}

fn nothing(reason: &str) -> BenchError {
    BenchError::NothingMeasurable { reason: reason.to_owned(), remedy: None }
}

/// Whether spans of that key are counted by the attached programs.
fn has_probe(key: u32, attached: &[String]) -> bool {
    let program = match key {
        key if key >= KEY_IRQ => "irq_handler_in".to_owned(),
        key if key >= KEY_SOFTIRQ => "softirq_in".to_owned(),
        key => {
            let at = key.saturating_sub(KEY_VECTOR) as usize;
            match attribution::context::VECTORS.get(at) {
                Some(vector) => format!("{vector}_in"),
                None => return false,
            }
        }
    };
    attached.contains(&program)
}

/// What reading adds to each event, as the programs know it.
fn whole_events(added: &[f64]) -> [u64; EVENTS_MAX] {
    let mut whole = [0; EVENTS_MAX];
    for (to, added) in whole.iter_mut().zip(added) {
        *to = added.max(0.0).round() as u64;
    }
    whole
}

/// CPU time of this process, all threads, ns.
pub(super) fn own_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

impl HandlersBench for LiveBench {
    fn facts(&self) -> BenchFacts {
        let timing =
            self.passes.first().map(|loaded| loaded.calibration.clone()).unwrap_or_default();
        let mut settings = Map::new();
        settings.insert("attachment".into(), json!(self.flavour.label()));
        settings.insert("cpus".into(), json!(format_cpu_list(&self.settings.cpus)));
        settings.insert("clock".into(), json!("CLOCK_MONOTONIC (bpf_ktime_get_ns)"));
        settings.insert("cycles".into(), json!("ns times the TSC frequency measured in this run"));
        settings.insert("histogram_error_max_ratio".into(), json!(1.0 / 16.0));
        let tsc_hz = self.started.and_then(Reading::frequency_hz);
        settings.insert("tsc_hz".into(), json!(tsc_hz));
        let mut observer = Map::new();
        let method = "A/B on a pinned getppid loop: an empty program, and ours behind it";
        observer.insert("method".into(), json!(method));
        observer.insert("rounds".into(), json!(ROUNDS));
        observer.insert("calls_per_round".into(), json!(CALLS));
        observer.insert("added_ns_per_span_min".into(), json!(timing.added_range_ns.0));
        observer.insert("added_ns_per_span_max".into(), json!(timing.added_range_ns.1));
        BenchFacts {
            bench: "live".to_owned(),
            tsc_hz,
            inside_ns: timing.inside_ns,
            added_ns: timing.added_ns,
            event_overheads: self
                .passes
                .iter()
                .map(|pass| pass.calibration.events.clone())
                .collect(),
            settings,
            observer,
            absent: self.absent.clone(),
            warnings: self.warnings.clone(),
        }
    }

    fn passes(&self) -> Vec<Pass> {
        self.passes.iter().map(|loaded| loaded.pass.clone()).collect()
    }

    fn measure(&mut self, condition: Condition, pass: usize) -> Result<WindowSample, BenchError> {
        if pass >= self.passes.len() {
            return Err(nothing("no such pass"));
        }
        let mut sample = WindowSample::default();
        let mut stimuli =
            Stimuli::start(condition, &self.settings, last_level_cache_bytes(&self.root))?;
        sample.facts.extend(stimuli.facts());
        self.warm_up(condition, pass)?;
        if self.stop_requested() {
            return Ok(WindowSample { interrupted: true, ..sample });
        }
        sample.facts.insert("probes_inside_ns".to_owned(), described(&self.inside));
        let loaded = &self.passes[pass];
        loaded.probes.clear_for(&self.inside).map_err(bench_error)?;
        let missed_before = loaded.probes.misses().map_err(bench_error)?;
        let events = loaded.events.as_ref();
        events.map_or(Ok(()), EventGroup::start).map_err(|error| {
            BenchError::Failed(format!("events {}: {error}", loaded.pass.events.join(" ")))
        })?;
        let bracket = self.window(pass, &mut sample);
        events.into_iter().for_each(EventGroup::stop);
        let bracket = bracket?;
        let alive = if sample.interrupted { Ok(()) } else { stimuli.check() };
        let done = stimuli.stop();
        alive?;
        sample.missed = loaded.probes.misses().map_err(bench_error)?.saturating_sub(missed_before);
        self.collect(loaded, &bracket, &mut sample)?;
        (sample.load_work, sample.stimulus_work) = (done.load, done.stimulus);
        if !sample.interrupted {
            sample.warnings.extend(done.warnings);
        }
        Ok(sample)
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }
}
