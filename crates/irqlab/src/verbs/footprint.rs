//! `irqlab footprint`: what does an interrupt evict from the caches?

pub mod sim;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use lab::footprint::{
    About, FootprintBench, FootprintFacts, FootprintPlan, Geometry, Level, Measured, Method, Source,
};
use lab::handlers::BenchError;
use live::footprint::{FarEnd, FootprintSettings, LiveFootprint, Watcher};
use live::host::{Root, host_facts, run_host_block};
use record::Timestamp;
use serde_json::{Map, Value as Json, json};

use super::handlers::live::clean_up_after_the_dead;
use super::handlers::place::{MadeDirectories, output_directory};
use super::handlers::{On, stop_on_signals};
use super::machine::GuestArgs;
use crate::args::{Printing, Usage, duration, online_cpus};
use crate::output;

/// What does an interrupt evict from the caches, and what does that cost after the return?
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab footprint                               timer, IPI and disk interrupts; L1d, L1i, L2
  irqlab footprint -c 1 --source disk --level l1d,l2
  irqlab footprint --source timer --method basic,refined
  irqlab footprint --on sim:r4400-1994           in a simulated machine, by its counters

Ctrl-C stops, prints and records what was measured until then (\"complete\": false), and ends in 0.

Exit codes: 0 done, 1 failed, 2 a mistake in what was typed, 4 nothing can be measured here.")]
pub struct FootprintArgs {
    /// Where to measure: live or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// CPU of the loop [default: the last one online]; on sim, how many the machine has [default: 2]
    #[arg(short = 'c', long, value_name = "CPU")]
    cpu: Option<String>,
    /// What interrupts: timer, ipi, disk, disk-event, net, net-signal
    #[arg(long, value_delimiter = ',', default_value = "timer,ipi,disk", value_name = "LIST")]
    source: Vec<Source>,
    /// What is filled: l1d, l1i, l2, l3, dtlb, itlb
    #[arg(long, value_delimiter = ',', default_value = "l1d,l1i,l2", value_name = "LIST")]
    level: Vec<Level>,
    /// refined: touch all lines until the interrupt must have happened; basic: fill, wait, touch
    #[arg(long, value_delimiter = ',', default_value = "refined", value_name = "LIST")]
    method: Vec<Method>,
    /// Size of a level, where the machine does not say it: l1d=48KiB:12:64 (size, ways, line),
    /// dtlb=64:64 (entries, ways)
    #[arg(long, value_parser = live::footprint::geometry::parse, value_name = "LEVEL=SIZE")]
    geometry: Vec<(Level, Geometry)>,
    /// Most repetitions with the interrupt, and as many without; 16 to 100000
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=100_000), default_value_t = 512, value_name = "N")]
    repetitions: u32,
    /// In how many rounds, each with everything made anew: what changes over seconds is then in the
    /// interval; 1 to 100 [default: 5; on sim, where nothing changes, always 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    rounds: Option<u32>,
    /// How long an interrupt is waited for; the basic method always waits so long
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "2ms", value_name = "TIME")]
    window: Duration,
    /// Have the network sources' messages echoed by another machine, on which `irqlab echo` runs
    #[arg(long, value_name = "HOST:PORT")]
    peer: Option<String>,
    /// Watch one repetition of each series, too: which task or handler ran when, as trace.json in the run's
    /// directory, for Perfetto (ui.perfetto.dev)
    #[arg(long)]
    trace: bool,
    /// Move a device's interrupt to the loop's CPU for the run; it goes back afterwards
    #[arg(long)]
    move_irq: bool,
    /// Where misses are counted, tell nothing by time: levels with a long pass are ready sooner
    #[arg(long)]
    counters_only: bool,
    /// Let ticks come in windows: both sorts have as many. For levels with a pass longer than a tick; by
    /// counters only
    #[arg(long, requires = "counters_only")]
    ticks: bool,
    /// Chooses the order of lines and the times of interrupts
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Directory of the run [default: irqlab-runs/UTC-footprint]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    printing: Printing,
    /// Print every row, too
    #[arg(long)]
    all: bool,
    /// Change a field of the model, as in l2.size=4MiB
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    #[command(flatten, next_help_heading = "The simulated machine (--on sim)")]
    guest: GuestArgs,
}

/// Longest window.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// Rounds on live, unless said otherwise.
const ROUNDS: u32 = 5;

fn once<T: PartialEq + Copy>(list: &[T]) -> Vec<T> {
    let mut kept = Vec::new();
    for one in list {
        if !kept.contains(one) {
            kept.push(*one);
        }
    }
    kept
}

impl FootprintArgs {
    fn cpu(&self) -> anyhow::Result<(u32, Vec<u32>)> {
        let online = online_cpus(None)?;
        let wanted = match &self.cpu {
            Some(list) => online_cpus(Some(list))?,
            None => online.last().copied().into_iter().collect(),
        };
        match wanted[..] {
            [cpu] => Ok((cpu, online)),
            _ => bail!(Usage("-c: one CPU: the loop has one thread".to_owned())),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.window > WINDOW_MAX {
            bail!(Usage("--window: allowed: up to 1s".to_owned()));
        }
        let is_net = |source: &Source| matches!(source, Source::Net | Source::NetSignal);
        if self.peer.is_some() && !self.source.iter().any(is_net) {
            bail!(Usage(
                "--peer is for the sources net and net-signal; add --source net".to_owned()
            ));
        }
        Ok(())
    }

    fn plan(&self) -> FootprintPlan {
        FootprintPlan {
            levels: once(&self.level),
            sources: once(&self.source),
            methods: once(&self.method),
            repetitions_max: self.repetitions as usize,
            trace: self.trace,
            rounds: self.rounds() as usize,
        }
    }

    fn rounds(&self) -> u32 {
        match self.on {
            On::Live => self.rounds.unwrap_or(ROUNDS),
            On::Sim(_) => 1,
        }
    }

    fn settings(&self) -> Map<String, Json> {
        let mut settings = Map::new();
        settings.insert("rounds".into(), json!(self.rounds()));
        settings.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        settings.insert("repetitions_max".into(), json!(self.repetitions));
        settings.insert("seed".into(), json!(self.seed));
        settings.insert("move_irq".into(), json!(self.move_irq));
        settings.insert("counters_only".into(), json!(self.counters_only));
        settings.insert("ticks".into(), json!(self.ticks));
        settings
    }
}

/// Measures, prints, records.
pub fn run(args: &FootprintArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => sim::run(args, model.as_deref()),
    }
}

fn run_live(args: &FootprintArgs) -> anyhow::Result<ExitCode> {
    let set = (!args.set.is_empty()).then_some("--set");
    if let Some(flag) = args.guest.first_given().or(set) {
        bail!(Usage(format!("{flag} is for a simulated machine; add --on sim")));
    }
    let (cpu, others) = args.cpu()?;
    let host = host_facts(&Root::default());
    let begun = Begun::new(args, run_host_block(&host))?;
    clean_up_after_the_dead(args.printing.quiet);
    let settings = FootprintSettings {
        cpu,
        others,
        by_hand: args.geometry.iter().copied().collect(),
        window: args.window,
        device: None,
        far: args.peer.clone().map_or(FarEnd::Veth, FarEnd::Peer),
        move_irq: args.move_irq,
        is_virtual: host.hypervisor.present == Some(true),
        seed: args.seed,
        watcher: Watcher::Probes,
        counters_only: args.counters_only,
        ticks: args.ticks,
        mark: None,
        stop: stop_on_signals()?,
    };
    let mut bench = match LiveFootprint::new(settings) {
        Ok(bench) => bench,
        Err(error) => return nothing_or(error),
    };
    let mut progress =
        |label: &str| output::say(!output::shows_progress(args.printing.quiet), label);
    let measured = lab::footprint::measure(&args.plan(), &mut bench, &mut progress)?;
    begun.finish(args, bench.facts(), &measured)
}

/// Exit code 4 when nothing can be measured here; else the error.
pub fn nothing_or(error: BenchError) -> anyhow::Result<ExitCode> {
    match error {
        BenchError::NothingMeasurable { reason, remedy } => {
            Ok(output::nothing(&reason, remedy.as_deref()))
        }
        other => bail!(other),
    }
}

/// A run that has a place, and what is known of it before it is measured.
struct Begun {
    about: About,
    directory: PathBuf,
    _made: MadeDirectories,
}

impl Begun {
    fn new(args: &FootprintArgs, host: Map<String, Json>) -> anyhow::Result<Begun> {
        let started = Timestamp::now();
        let (directory, made) = output_directory("footprint", args.out.as_deref(), started)?;
        let settings = args.settings();
        let about = About { started_utc: started.to_string(), host, settings };
        Ok(Begun { about, directory, _made: made })
    }

    /// Prints and records.
    fn finish(
        self,
        args: &FootprintArgs,
        facts: FootprintFacts,
        measured: &Measured,
    ) -> anyhow::Result<ExitCode> {
        let run = lab::footprint::assemble(&self.about, facts, measured);
        let Some(main) = run.tables.first() else {
            let words = |one: &record::Absence| format!("{}: {}", one.what, one.reason);
            let reasons: Vec<String> = run.absent.iter().map(words).collect();
            let remedy = run.absent.iter().find_map(|one| one.remedy.as_deref());
            return Ok(output::nothing(&reasons.join("; "), remedy));
        };
        let (directory, format) = (&self.directory, args.printing.format());
        let printed =
            output::print(&output::run_text(&run, directory, format, &main.name, args.all));
        // Recorded even when nobody could read it: the minutes are not lost.
        record::write_run(&run, &[], directory)
            .context("the results above are not recorded (--out writes elsewhere)")?;
        let traced = trace::write(measured, directory, args.printing.quiet);
        printed?;
        traced?;
        let more = "the same again, other tables and formats: irqlab show";
        output::say(args.printing.quiet, &format!("run: {}  ({more} {0})", directory.display()));
        Ok(ExitCode::SUCCESS)
    }
}
