//! `irqlab handlers`: what does each interrupt handler cost, and why?

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use lab::handlers::{BenchError, Condition, Load, Outcome, Plan, Rate, Source};
use live::bpf::Flavour;
use live::handlers::perf::PAPER_EVENTS;
use live::handlers::{LiveBench, LiveSettings, Stop, Until};
use live::host::{HostFacts, Root, diagnose, host_facts, run_host_block};
use live::stimulus::StimulusSettings;
use record::{Run, Timestamp};
use serde_json::{Map, Value as Json, json};

use crate::args::{Format, Usage, duration, online_cpus};
use crate::output;

/// Where the experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// This machine
    Live,
}

/// How the probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Attach {
    /// The best that the kernel has
    Auto,
    /// Typed tracepoint programs; need BTF
    #[value(name = "tp_btf")]
    TpBtf,
    /// Raw tracepoint programs, without BTF
    #[value(name = "raw_tp")]
    RawTp,
}

/// What does each interrupt handler cost, and why?
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab handlers -d 30s                                   watch what is there
  irqlab handlers --load idle,busy --rate low,high --source disk,net
  irqlab handlers -- make -j2                              while a command runs

Ctrl-C stops, prints and records what was measured until then (\"complete\": false), and ends in 0.

Exit codes: 0 done, 1 failed, 2 a mistake in what was typed, 4 nothing can be measured here.")]
pub struct HandlersArgs {
    /// Where to measure
    #[arg(long, value_enum, default_value_t = On::Live)]
    on: On,
    /// CPUs to measure, as in 0-3,8 [default: all online]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// CPUs for what must run besides, such as the sender of the net source
    #[arg(short = 'H', long, value_name = "LIST")]
    housekeeping: Option<String>,
    /// How long to measure each condition; with PMU events, half of it without them
    #[arg(short = 'd', long, allow_hyphen_values = true, value_parser = duration, default_value = "10s", value_name = "TIME")]
    duration: Duration,
    /// How long a condition runs before it is measured
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "500ms", value_name = "TIME")]
    warm_up: Duration,
    /// idle, busy: zlib compression on every measured CPU [default: idle]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    load: Vec<Load>,
    /// low, high: how often the source interrupts [default: low,high]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    rate: Vec<Rate>,
    /// disk, net, timer, ipi, none [default: none]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    source: Vec<Source>,
    /// Time between two operations at the low rate
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "50ms", value_name = "TIME")]
    low_interval: Duration,
    /// The other side of the net source, over a real NIC, instead of a veth pair
    #[arg(long, value_name = "HOST[:PORT]")]
    peer: Option<String>,
    /// File or block device that the disk source reads, instead of a scratch file
    #[arg(long, value_name = "FILE")]
    disk_file: Option<PathBuf>,
    /// PMU events, as perf list names them; `none` for none [default: those of the paper]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    events: Vec<String>,
    /// How to attach the probes
    #[arg(long, value_enum, default_value_t = Attach::Auto)]
    attach: Attach,
    /// Also record the histograms' buckets
    #[arg(long)]
    histograms: bool,
    /// Directory of the run [default: irqlab-runs/UTC-handlers]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Short for --format json
    #[arg(long)]
    json: bool,
    /// Print the rows of each CPU, too
    #[arg(long)]
    all: bool,
    /// No progress and no news on stderr
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Measure while this command runs
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

impl HandlersArgs {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let made = !(self.load.is_empty() && self.rate.is_empty() && self.source.is_empty());
        match (made, self.command.is_empty()) {
            (true, false) => bail!(Usage(
                "--load, --rate and --source make a condition of their own, and so does a \
                 command: leave out one or the other"
                    .to_owned()
            )),
            (false, true) => Ok(vec![Condition::AsFound]),
            (false, false) => Ok(vec![Condition::Command]),
            (true, true) => {
                let or = |given: &[Load]| {
                    if given.is_empty() { vec![Load::Idle] } else { given.to_vec() }
                };
                let rates =
                    if self.rate.is_empty() { Rate::ALL.to_vec() } else { self.rate.clone() };
                let sources =
                    if self.source.is_empty() { vec![Source::None] } else { self.source.clone() };
                Ok(Condition::combinations(&or(&self.load), &rates, &sources))
            }
        }
    }

    /// Refuses what no condition would use, and what no source would take, before anything runs.
    fn check(&self) -> anyhow::Result<()> {
        for (flag, given, source) in [
            ("--peer", self.peer.is_some(), Source::Net),
            ("--disk-file", self.disk_file.is_some(), Source::Disk),
        ] {
            if given && !self.source.contains(&source) {
                bail!(Usage(format!("{flag} is for the {source} source; add --source {source}")));
            }
        }
        if self.events.iter().any(String::is_empty) {
            let allowed = "names as in perf list, or none";
            bail!(Usage(format!("--events: an empty name; allowed: {allowed}")));
        }
        let mut stimulus = StimulusSettings::new(Source::Net, Rate::Low, vec![0]);
        stimulus.peer.clone_from(&self.peer);
        stimulus.low_interval = self.low_interval;
        stimulus.validate().map_err(|error| Usage(error.to_string()))?;
        Ok(())
    }

    fn events(&self, host: &HostFacts) -> Vec<String> {
        if self.events.iter().any(|name| name == "none") {
            return Vec::new();
        }
        if !self.events.is_empty() {
            return self.events.clone();
        }
        // A command is not run several times over unless asked.
        let counts = host.pmu.counts();
        if !self.command.is_empty() && counts == Some(true) {
            return Vec::new();
        }
        PAPER_EVENTS.map(str::to_owned).to_vec()
    }

    fn live_settings(&self, host: &HostFacts) -> anyhow::Result<LiveSettings> {
        let cpus = online_cpus(self.cpus.as_deref())?;
        let until = if self.command.is_empty() {
            Until::Elapsed(self.duration)
        } else {
            let to_stderr = self.format() != Format::Table;
            Until::CommandEnds { words: self.command.clone(), to_stderr }
        };
        let mut settings = LiveSettings::new(cpus, until, stop_on_signals()?);
        if let Some(list) = &self.housekeeping {
            settings.housekeeping = online_cpus(Some(list))?;
        }
        settings.warm_up = self.warm_up;
        settings.events = self.events(host);
        settings.peer.clone_from(&self.peer);
        settings.disk_file.clone_from(&self.disk_file);
        settings.low_interval = Some(self.low_interval);
        settings.flavour = match self.attach {
            Attach::Auto => None,
            Attach::TpBtf => Some(Flavour::Btf),
            Attach::RawTp => Some(Flavour::Raw),
        };
        let findings = diagnose(host);
        let unlock = |subject: &str| {
            findings.iter().find(|finding| finding.subject == subject)?.unlock.clone()
        };
        settings.remedy_rights = unlock(live::host::diagnosis::RIGHTS);
        settings.remedy_pmu = unlock(live::host::diagnosis::PMU);
        Ok(settings)
    }

    fn settings(&self) -> Map<String, Json> {
        let ns = |time: Duration| json!(time.as_nanos() as u64);
        let mut settings = Map::new();
        settings.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        // A command takes its own time.
        let duration = if self.command.is_empty() { ns(self.duration) } else { Json::Null };
        settings.insert("duration_ns".into(), duration);
        settings.insert("warm_up_ns".into(), ns(self.warm_up));
        settings.insert("low_interval_ns".into(), ns(self.low_interval));
        settings.insert("housekeeping".into(), json!(self.housekeeping));
        settings.insert("peer".into(), json!(self.peer));
        settings.insert("disk_file".into(), json!(self.disk_file));
        settings.insert("command".into(), json!(self.command));
        settings
    }
}

/// A stop that Ctrl-C and SIGTERM request.
pub fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new().context("cannot make a pipe")?;
    let again = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let writer = stop.writer().context("cannot make a pipe")?;
        // A second Ctrl-C ends the program at once, as if it had no handler.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&again))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&again)))
            .and_then(|_| signal_hook::low_level::pipe::register(signal, writer))
            .context("cannot handle signals")?;
    }
    Ok(stop)
}

/// Measures, prints, records.
pub fn run(args: &HandlersArgs) -> anyhow::Result<ExitCode> {
    let started = Timestamp::now();
    let On::Live = args.on;
    let conditions = args.conditions()?;
    args.check()?;
    let root = Root::default();
    let host = host_facts(&root);
    let settings = args.live_settings(&host)?;
    let (directory, _made) = output_directory(args.out.as_deref(), started)?;
    clean_up_after_the_dead(&directory, args.quiet);
    let mut plan = Plan {
        conditions,
        started_utc: started.to_string(),
        host: run_host_block(&host),
        settings: args.settings(),
        histograms: args.histograms,
    };
    plan.settings.insert("out".into(), json!(directory));
    output::say(!output::shows_progress(args.quiet), "measuring what the probes themselves cost");
    let mut bench = match LiveBench::new(settings) {
        Ok(bench) => bench,
        Err(BenchError::NothingMeasurable { reason, remedy }) => {
            return Ok(output::nothing(&reason, remedy.as_deref()));
        }
        Err(error) => bail!(error),
    };
    let number = plan.conditions.len();
    let mut at = 0;
    let mut progress = |label: &str| {
        at += usize::from(!label.contains("events"));
        output::say(!output::shows_progress(args.quiet), &format!("[{at}/{number}] {label}"));
    };
    match lab::handlers::run(&plan, &mut bench, &mut progress)? {
        Outcome::Nothing { reason, remedy } => Ok(output::nothing(&reason, remedy.as_deref())),
        Outcome::Ran(run) => finish(&run, &directory, args),
    }
}

fn finish(run: &Run, directory: &Path, args: &HandlersArgs) -> anyhow::Result<ExitCode> {
    if run.table("conditions").is_none_or(|table| table.rows().is_empty()) {
        bail!("stopped before anything was measured; nothing was written");
    }
    let printed =
        output::print(&output::run_text(run, directory, args.format(), "handlers", args.all));
    // Recorded even when nobody could read it: the minutes are not lost.
    record::write_run(run, directory)
        .context("the results above are not recorded (--out writes elsewhere)")?;
    let lost = run.observer.get("events_lost").and_then(Json::as_u64).unwrap_or(0);
    if lost > 0 {
        eprintln!("irqlab: {lost} events were lost: counts are too low by that much");
    }
    let more = "the same again, other tables and formats: irqlab show";
    printed?;
    output::say(args.quiet, &format!("run: {}  ({more} {0})", directory.display()));
    Ok(ExitCode::SUCCESS)
}

/// Directories made for a run; those that are still empty at the end are removed.
struct MadeDirectories(Vec<PathBuf>);

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        for directory in &self.0 {
            // It is not empty when there is a run in it, by us or by others: then it stays.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// The directory to write, after a check that it can be made: better now than after the minutes.
fn output_directory(
    out: Option<&Path>,
    started: Timestamp,
) -> anyhow::Result<(PathBuf, MadeDirectories)> {
    let parent = match out {
        Some(out) => match out.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        },
        None => PathBuf::from("irqlab-runs"),
    };
    if let Some(out) = out.filter(|out| out.symlink_metadata().is_ok()) {
        bail!(Usage(format!("{} exists already; a run never replaces one", out.display())));
    }
    let missing = parent.ancestors().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let made = MadeDirectories(missing.map(Path::to_owned).collect());
    let cannot = || format!("cannot write runs into {}", parent.display());
    std::fs::create_dir_all(&parent).with_context(cannot)?;
    let probe = parent.join(format!(".irqlab-probe-{}", std::process::id()));
    std::fs::create_dir(&probe).with_context(cannot)?;
    std::fs::remove_dir(&probe).with_context(cannot)?;
    let directory = match out {
        Some(out) => out.to_owned(),
        None => record::default_dir(&parent, "handlers", started),
    };
    Ok((directory, made))
}

/// Undoes what killed runs left behind, and says so.
fn clean_up_after_the_dead(directory: &Path, quiet: bool) {
    for message in live::journal::replay_dead() {
        output::say(quiet, &format!("left by a run that was killed: {message}"));
    }
    for removed in directory.parent().map(record::remove_leftovers).unwrap_or_default() {
        let removed = removed.display();
        output::say(quiet, &format!("removed what a killed run had half written: {removed}"));
    }
}
