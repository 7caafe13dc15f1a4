//! `irqlab noise`: how much of each CPU does the system take, when, and who took it?

mod sim;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use lab::handlers::BenchError;
use lab::noise::in_guest::Inject;
use lab::noise::{Body, Loop, NoiseBench, NoiseOutcome, NoisePlan};
use live::host::{HostFacts, Root, diagnose, format_cpu_list, host_facts, run_host_block};
use live::noise::{Length, LiveNoise, NoiseSettings};
use record::{Run, Timestamp};
use serde_json::{Map, Value as Json, json};

use super::handlers::place::{MadeDirectories, output_directory};
use super::handlers::{On, stop_on_signals};
use super::machine::GuestArgs;
use crate::args::{Printing, Usage, duration, online_cpus, short_time_ns};
use crate::output;

mod pictures;
mod scale;

/// How much of each CPU does the system take, when, and who took it?
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  irqlab noise                              1,000 quanta of 100 us, as in the paper, on every CPU
  irqlab noise -c 1 -d 60s --loop detour    a minute of one CPU's detours, with their causes
  irqlab noise --no-trace --body memory     bare, leaning on the memory
  irqlab noise scale --run RUN              what that does to a parallel job
  irqlab noise --on sim:r4400-1994          in a simulated machine: each cycle has its cause

Ctrl-C stops, prints and records what was measured until then (\"complete\": false), and ends in 0.

Exit codes: 0 done, 1 failed, 2 a mistake in what was typed, 4 nothing can be measured here.")]
pub struct NoiseArgs {
    #[command(subcommand)]
    verb: Option<NoiseVerb>,
    /// Where to measure: live, sim or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// CPUs to measure, as in 0-3,8 [default: all online but those of -H]; on sim, how many the
    /// machine has [default: 1]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// CPUs for irqlab's own thread [default: those not measured]
    #[arg(short = 'H', long, value_name = "LIST")]
    housekeeping: Option<String>,
    /// fwq: fixed work, ftq: fixed time, detour: each gap one by one, with its causes
    #[arg(
        long = "loop",
        value_delimiter = ',',
        default_value = "detour,fwq,ftq",
        value_name = "LIST"
    )]
    loops: Vec<Loop>,
    /// What fwq and ftq do: add, alu, load, branch, memory
    #[arg(long, default_value = "add", value_name = "BODY")]
    body: Body,
    /// Time of a quantum of work and of a slot; 10us to 1s
    #[arg(long, allow_hyphen_values = true, value_parser = short_time_ns, default_value = "100us", value_name = "TIME")]
    quantum: u64,
    /// Length of each loop in quanta [default: 1000, as in the paper]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), conflicts_with = "duration", value_name = "N")]
    repetitions: Option<u64>,
    /// Length of each loop in time
    #[arg(short = 'd', long, allow_hyphen_values = true, value_parser = duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// How long a loop runs before it is measured
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "100ms", value_name = "TIME")]
    warm_up: Duration,
    /// Shortest gap that is a detour [default: 100ns, or what the clock allows]
    #[arg(long, allow_hyphen_values = true, value_parser = short_time_ns, value_name = "TIME")]
    threshold: Option<u64>,
    /// Run the loops under SCHED_FIFO at this priority, 1 to 99. A loop never sleeps, and the kernel
    /// takes real-time tasks that never sleep off their CPU for 50 ms of each second
    /// (kernel.sched_rt_runtime_us): the run then shows that, too
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99), value_name = "PRIO")]
    fifo: Option<u32>,
    /// Run bare: no probes, and no causes
    #[arg(long)]
    no_trace: bool,
    /// On sim, set timers while the detour loop runs, one, then two, up to TIMERS and again, each TIME
    /// later, and tell in table `injected` whether each was found: a check of the bench
    #[arg(long, allow_hyphen_values = true, value_parser = sim::inject, value_name = "TIMERS:TIME")]
    inject: Option<Inject>,
    /// On sim, CPUs that run the loops [default: all]
    #[arg(long, value_name = "LIST")]
    loops_on: Option<String>,
    /// Chooses which single detours are kept of many
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Directory of the run [default: irqlab-runs/UTC-noise]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw what each repetition of fwq took, in the colour of its cause, into this SVG file
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Draw repetitions, sizes of detours and the spectrum of ftq, of what was measured, into the
    /// directory of the run: repetitions.svg, sizes.svg, spectrum.svg
    #[arg(long)]
    pictures: bool,
    #[command(flatten)]
    printing: Printing,
    /// Print every row, too
    #[arg(long)]
    all: bool,
    #[command(flatten, next_help_heading = "On sim")]
    guest: GuestArgs,
}

#[derive(Debug, clap::Subcommand)]
enum NoiseVerb {
    Scale(scale::ScaleArgs),
}

/// Repetitions of the paper.
const REPETITIONS: u64 = 1000;
/// Quanta that can be asked for, ns.
const QUANTUM_NS: std::ops::RangeInclusive<u64> = 10_000..=1_000_000_000;

impl NoiseArgs {
    fn length(&self) -> Length {
        match self.duration {
            Some(time) => Length::Time(time),
            None => Length::Repetitions(self.repetitions.unwrap_or(REPETITIONS)),
        }
    }

    fn loops(&self) -> Vec<Loop> {
        let mut loops: Vec<Loop> = Vec::new();
        for &one in &self.loops {
            if !loops.contains(&one) {
                loops.push(one);
            }
        }
        loops
    }

    /// CPUs to measure, and those for irqlab's own thread.
    fn places(&self, host: &HostFacts) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
        let own = match &self.housekeeping {
            Some(list) => online_cpus(Some(list))?,
            None => Vec::new(),
        };
        let isolated = host.kernel.isolated.clone().unwrap_or_default();
        if let Some(cpu) = own.iter().find(|cpu| isolated.contains(cpu)) {
            let isolated = format_cpu_list(&isolated);
            bail!(Usage(format!(
                "-H: CPU {cpu} is isolated, and housekeeping would end that; isolated: {isolated}"
            )));
        }
        let mut cpus = online_cpus(self.cpus.as_deref())?;
        match (&self.cpus, cpus.iter().find(|cpu| own.contains(cpu))) {
            (Some(_), Some(cpu)) => {
                bail!(Usage(format!("CPU {cpu} is in -c and in -H: measured, or housekeeping?")))
            }
            _ => cpus.retain(|cpu| !own.contains(cpu)),
        }
        if cpus.is_empty() {
            bail!(Usage("-H leaves no CPU to measure".to_owned()));
        }
        Ok((cpus, own))
    }

    fn check(&self) -> anyhow::Result<()> {
        if !QUANTUM_NS.contains(&self.quantum) {
            bail!(Usage("--quantum: allowed: 10us to 1s".to_owned()));
        }
        if let Some(file) = &self.picture {
            if !self.loops.contains(&Loop::Fwq) {
                bail!(Usage("--picture is of repetitions; add fwq to --loop".to_owned()));
            }
            if file.symlink_metadata().is_ok() {
                bail!(Usage(format!(
                    "{} exists already; a picture never replaces one",
                    file.display()
                )));
            }
        }
        Ok(())
    }

    fn settings(&self) -> Map<String, Json> {
        let ns = |time: Duration| json!(time.as_nanos() as u64);
        let (mut settings, length) = (Map::new(), self.length());
        let repetitions = match length {
            Length::Repetitions(number) => Some(number),
            Length::Time(_) => None,
        };
        let words: Vec<&str> = self.loops().iter().map(|one| one.word()).collect();
        let scheduler = match self.fifo {
            Some(priority) => format!("SCHED_FIFO {priority}"),
            None => "SCHED_OTHER".to_owned(),
        };
        settings.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        settings.insert("loops".into(), json!(words));
        settings.insert("quantum_ns".into(), json!(self.quantum));
        settings.insert("repetitions".into(), json!(repetitions));
        settings.insert("duration_ns".into(), json!(self.duration.map(ns)));
        settings.insert("warm_up_ns".into(), ns(self.warm_up));
        settings.insert("scheduler".into(), json!(scheduler));
        settings.insert("trace".into(), json!(!self.no_trace));
        settings.insert("seed".into(), json!(self.seed));
        settings
    }

    fn bench(&self, host: &HostFacts) -> anyhow::Result<Result<LiveNoise, BenchError>> {
        let (cpus, housekeeping) = self.places(host)?;
        let findings = diagnose(host);
        let rights = live::host::diagnosis::RIGHTS;
        let of_rights = findings.iter().find(|finding| finding.subject == rights);
        Ok(LiveNoise::new(NoiseSettings {
            cpus,
            housekeeping,
            body: self.body,
            quantum_ns: self.quantum,
            length: self.length(),
            warm_up: self.warm_up,
            threshold_ns: self.threshold,
            fifo: self.fifo,
            trace: !self.no_trace,
            is_virtual: host.hypervisor.present == Some(true),
            cache_bytes: host.last_level_cache_bytes(),
            seed: self.seed,
            remedy_rights: of_rights.and_then(|finding| finding.unlock.clone()),
            stop: stop_on_signals()?,
        }))
    }
}

/// A run that can be measured.
struct Begun {
    plan: NoisePlan,
    directory: PathBuf,
    _made: MadeDirectories,
}

impl Begun {
    /// After a check that it can be written.
    fn new(args: &NoiseArgs, host: Map<String, Json>) -> anyhow::Result<Begun> {
        let started = Timestamp::now();
        let (directory, made) = output_directory("noise", args.out.as_deref(), started)?;
        let plan = NoisePlan {
            loops: args.loops(),
            trace: !args.no_trace,
            started_utc: started.to_string(),
            host,
            settings: args.settings(),
        };
        Ok(Begun { plan, directory, _made: made })
    }

    /// Measures, prints, records.
    fn measure(&self, args: &NoiseArgs, bench: &mut dyn NoiseBench) -> anyhow::Result<ExitCode> {
        let mut progress = |label: &str| {
            output::say(!output::shows_progress(args.printing.quiet), &format!("loop {label}"));
        };
        match lab::noise::run(&self.plan, bench, &mut progress)? {
            NoiseOutcome::Nothing { reason, remedy } => {
                Ok(output::nothing(&reason, remedy.as_deref()))
            }
            NoiseOutcome::Ran(run) => finish(args, &run, &self.directory),
        }
    }
}

/// Measures, prints, records.
pub fn run(args: &NoiseArgs) -> anyhow::Result<ExitCode> {
    if let Some(NoiseVerb::Scale(args)) = &args.verb {
        return scale::run(args);
    }
    args.check()?;
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => sim::run(args, model.as_deref()),
    }
}

fn run_live(args: &NoiseArgs) -> anyhow::Result<ExitCode> {
    if let Some(flag) = args
        .guest
        .first_given()
        .or(args.inject.map(|_| "--inject"))
        .or(args.loops_on.as_ref().map(|_| "--loops-on"))
    {
        bail!(Usage(format!("{flag} is for a simulated machine; add --on sim")));
    }
    let host = host_facts(&Root::default());
    args.places(&host)?;
    let begun = Begun::new(args, run_host_block(&host))?;
    let mut bench = match args.bench(&host)? {
        Ok(bench) => bench,
        Err(BenchError::NothingMeasurable { reason, remedy }) => {
            return Ok(output::nothing(&reason, remedy.as_deref()));
        }
        Err(error) => bail!(error),
    };
    if let Some(least_ns) = bench.threshold_too_low() {
        bail!(Usage(format!(
            "--threshold: below what the loop itself takes on this clock; at least {least_ns}ns"
        )));
    }
    begun.measure(args, &mut bench)
}

fn finish(args: &NoiseArgs, run: &Run, directory: &Path) -> anyhow::Result<ExitCode> {
    let Some(main) = run.tables.first() else {
        bail!("stopped before anything was measured; nothing was written");
    };
    let printed = output::print(&output::run_text(
        run,
        directory,
        args.printing.format(),
        &main.name,
        args.all,
    ));
    // Recorded even when nobody could read it: the minutes are not lost.
    record::write_run(run, &[], directory)
        .context("the results above are not recorded (--out writes elsewhere)")?;
    if let Some(file) = &args.picture {
        pictures::draw(run, file)?;
    }
    if args.pictures {
        pictures::draw_all(run, directory)?;
    }
    printed?;
    let more = "the same again, other tables and formats: irqlab show";
    output::say(args.printing.quiet, &format!("run: {}  ({more} {0})", directory.display()));
    if run.settings.get("broken").and_then(Json::as_u64).is_some_and(|broken| broken > 0) {
        eprintln!("irqlab: broken: do not use these tables (see the warnings)");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
