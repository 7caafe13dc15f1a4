//! `irqlab handlers`: what does each interrupt handler cost, and why?

pub mod live;
pub mod place;
pub mod sim;
pub mod stop;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use ::live::stimulus::StimulusSettings;
use anyhow::{Context, bail};
use clap::ValueEnum;
use lab::handlers::{Condition, HandlersBench, Load, Outcome, Plan, Rate, Source};
use record::{Run, Timestamp};
use serde_json::{Map, Value as Json, json};

use self::place::{MadeDirectories, output_directory};
pub use self::stop::stop_on_signals;
use crate::args::{Printing, Usage, duration};
use crate::output;
use crate::verbs::machine::{GuestArgs, ModelDetail};

/// Where the experiment runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// This machine.
    Live,
    /// A simulated machine, under a model of a processor if one is named.
    Sim(Option<String>),
}

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<On, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("live", "") if !text.contains(':') => Ok(On::Live),
            ("sim", "") if !text.contains(':') => Ok(On::Sim(None)),
            ("sim", model) if !model.is_empty() => Ok(On::Sim(Some(model.to_owned()))),
            _ => Err("allowed: live, sim, sim:MODEL".to_owned()),
        }
    }
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
  irqlab handlers --on sim -d 1s --source timer            in a simulated machine

Ctrl-C stops, prints and records what was measured until then (\"complete\": false), and ends in 0.

Exit codes: 0 done, 1 failed, 2 a mistake in what was typed, 4 nothing can be measured here.")]
pub struct HandlersArgs {
    /// Where to measure: live, sim or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// CPUs to measure, as in 0-3,8 [default: all online]; on sim, how many the machine has
    /// [default: 1]
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
    /// File or block device that the disk source reads, instead of a scratch file or, on sim, the
    /// guest's first disk
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
    #[command(flatten)]
    printing: Printing,
    /// Print the rows of each CPU, too
    #[arg(long)]
    all: bool,
    /// On sim: cycles of a CPU's turn, with two or more CPUs [default: 1000]
    #[arg(long, value_name = "N")]
    quantum: Option<u64>,
    /// On sim, with a model: how it is run [default: timed]
    #[arg(long, value_enum)]
    detail: Option<ModelDetail>,
    /// On sim, with a model: change a field of it, as in l2.size=4MiB; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    #[command(flatten, next_help_heading = "On sim")]
    guest: GuestArgs,
    /// Measure while this command runs; on sim, the guest's shell runs it
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

impl HandlersArgs {
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

    /// The plan, and the place for the run, after a check that it can be made.
    fn begin(&self, host: Map<String, Json>) -> anyhow::Result<Begun> {
        let started = Timestamp::now();
        let (directory, made) = output_directory("handlers", self.out.as_deref(), started)?;
        for removed in directory.parent().map(record::remove_leftovers).unwrap_or_default() {
            let removed = removed.display();
            output::say(
                self.printing.quiet,
                &format!("removed what a killed run had half written: {removed}"),
            );
        }
        let plan = Plan {
            conditions: self.conditions()?,
            started_utc: started.to_string(),
            host,
            settings: self.settings(),
            histograms: self.histograms,
        };
        Ok(Begun { plan, directory, _made: made })
    }
}

/// A run that can be measured.
struct Begun {
    plan: Plan,
    directory: PathBuf,
    _made: MadeDirectories,
}

impl Begun {
    /// Measures, prints, records.
    fn measure(
        self,
        args: &HandlersArgs,
        bench: &mut dyn HandlersBench,
    ) -> anyhow::Result<ExitCode> {
        let number = self.plan.conditions.len();
        let mut at = 0;
        let mut progress = |label: &str| {
            at += usize::from(!label.contains("events"));
            output::say(
                !output::shows_progress(args.printing.quiet),
                &format!("[{at}/{number}] {label}"),
            );
        };
        match lab::handlers::run(&self.plan, bench, &mut progress)? {
            Outcome::Nothing { reason, remedy } => Ok(output::nothing(&reason, remedy.as_deref())),
            Outcome::Ran(run) => self.finish(&run, args),
        }
    }

    fn finish(&self, run: &Run, args: &HandlersArgs) -> anyhow::Result<ExitCode> {
        if run.table("conditions").is_none_or(|table| table.rows().is_empty()) {
            bail!("stopped before anything was measured; nothing was written");
        }
        let directory = &self.directory;
        let text = output::run_text(run, directory, args.printing.format(), "handlers", args.all);
        let printed = output::print(&text);
        // Recorded even when nobody could read it: the minutes are not lost.
        record::write_run(run, &[], directory)
            .context("the results above are not recorded (--out writes elsewhere)")?;
        let lost = run.observer.get("events_lost").and_then(Json::as_u64).unwrap_or(0);
        if lost > 0 {
            eprintln!("irqlab: {lost} events were lost: counts are too low by that much");
        }
        let more = "the same again, other tables and formats: irqlab show";
        printed?;
        output::say(args.printing.quiet, &format!("run: {}  ({more} {0})", directory.display()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Measures, prints, records.
pub fn run(args: &HandlersArgs) -> anyhow::Result<ExitCode> {
    args.conditions()?;
    args.check()?;
    match &args.on {
        On::Live => live::run(args),
        On::Sim(model) => sim::run(args, model.as_deref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches() {
        assert_eq!("live".parse(), Ok(On::Live));
        assert_eq!("sim".parse(), Ok(On::Sim(None)));
        assert_eq!("sim:r4400-1994".parse(), Ok(On::Sim(Some("r4400-1994".to_owned()))));
        for nonsense in ["", "sim:", "live:", "live:x", "moon", ":", "Sim"] {
            assert!(nonsense.parse::<On>().is_err(), "{nonsense}");
        }
    }
}
