//! `irqlab sim bare`: the machine without any kernel.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use lab::handlers::BenchError;
use lab::noise::{Body, Loop, NoiseOutcome, NoisePlan};
use record::Timestamp;
use serde_json::{Map, Value as Json, json};
use sim::bare::{BareNoise, BareNoiseSettings};
use sim::boot::Limits;
use sim::watch::Detail;
use sim::{Cache, models, qemu};

use super::bare_footprint::BareFootprintArgs;
use crate::args::{Printing, Usage, duration, short_time_ns};
use crate::output;
use crate::verbs::handlers::place::output_directory;
use crate::verbs::handlers::stop_on_signals;

/// What runs on the machine without a kernel.
#[derive(Debug, clap::Subcommand)]
pub enum BareVerb {
    Noise(BareNoiseArgs),
    Footprint(BareFootprintArgs),
}

/// The loops of `irqlab noise` where nobody takes anything from them: the reference
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sim bare noise                               1,000 quanta of 100 us
  irqlab sim bare noise --loop fwq --turns 1999       as many turns a quantum as a run under a kernel had
  irqlab sim bare noise --model r4400-1994 --json     on a model of a processor

Exit codes: 0 done, 1 failed, 2 a mistake in what was typed, 4 nothing can be measured here.")]
pub struct BareNoiseArgs {
    /// fwq: fixed work, ftq: fixed time, detour: gaps of the clock
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
    /// Time of a quantum of work and of a slot, on the machine's clock; 10us to 1s
    #[arg(long, allow_hyphen_values = true, value_parser = short_time_ns, default_value = "100us", value_name = "TIME")]
    quantum: u64,
    /// Turns of the body in a quantum [default: as many as take --quantum]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), value_name = "N")]
    turns: Option<u64>,
    /// Quanta, and slots
    #[arg(long, default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=BareNoise::REPETITIONS_MAX), value_name = "N")]
    repetitions: u64,
    /// Shortest gap that is a detour [default: 100ns; with a model twice a slice of its clock]
    #[arg(long, allow_hyphen_values = true, value_parser = short_time_ns, value_name = "TIME")]
    threshold: Option<u64>,
    /// Model of the processor, by name or file [default: none; an instruction takes 1 ns]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Longest time of the machine's own
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "10m", value_name = "TIME")]
    guest_limit: Duration,
    /// Longest time on this host's clock
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "30m", value_name = "TIME")]
    limit: Duration,
    /// Chooses which single detours are kept of many
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Directory of the run [default: irqlab-runs/UTC-noise]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    printing: Printing,
}

/// Quanta that can be asked for, ns.
const QUANTUM_NS: std::ops::RangeInclusive<u64> = 10_000..=1_000_000_000;
/// The shortest gap that is a detour, where the clock counts instructions.
const THRESHOLD_NS: u64 = 100;

/// Runs what was asked for.
pub fn run(cache: &Cache, verb: &BareVerb) -> anyhow::Result<ExitCode> {
    match verb {
        BareVerb::Noise(args) => noise(cache, args),
        BareVerb::Footprint(args) => super::bare_footprint::run(cache, args),
    }
}

impl BareNoiseArgs {
    fn bench_settings(&self, cache: &Cache) -> anyhow::Result<BareNoiseSettings> {
        if !QUANTUM_NS.contains(&self.quantum) {
            bail!(Usage("--quantum: allowed: 10us to 1s".to_owned()));
        }
        let found = self
            .model
            .as_ref()
            .map(|name| models::find(cache, name, &[], Detail::Timed))
            .transpose();
        let model = found.map_err(|error| Usage(error.to_string()))?;
        // The model's time shows at the ends of slices.
        let slice_ns = model.as_ref().map(|model| {
            sim::watch::QUANTUM_DEFAULT.saturating_mul(1_000_000_000) / model.model.clock_hz.max(1)
        });
        let threshold_ns = slice_ns.map_or(THRESHOLD_NS, |slice_ns| 2 * slice_ns.max(THRESHOLD_NS));
        if let (Some(asked), Some(slice_ns)) = (self.threshold, slice_ns)
            && asked <= slice_ns
        {
            let words = "--threshold: the model's time shows at the ends of slices; at least";
            bail!(Usage(format!("{words} {}ns", slice_ns + 1)));
        }
        Ok(BareNoiseSettings {
            body: self.body,
            quantum_ns: self.quantum,
            turns: self.turns,
            repetitions: self.repetitions,
            threshold_ns: self.threshold.unwrap_or(threshold_ns),
            model,
            limits: Limits { wall: self.limit, guest_s: self.guest_limit.as_secs().max(1) as u32 },
            seed: self.seed,
        })
    }

    fn settings(&self) -> Map<String, Json> {
        let mut settings = Map::new();
        let loops: Vec<&str> = self.loops.iter().map(|one| one.word()).collect();
        settings.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        settings.insert("loops".into(), json!(loops));
        settings.insert("quantum_ns".into(), json!(self.quantum));
        settings.insert("repetitions".into(), json!(self.repetitions));
        settings.insert("trace".into(), json!(false));
        settings.insert("seed".into(), json!(self.seed));
        settings
    }
}

fn noise(cache: &Cache, args: &BareNoiseArgs) -> anyhow::Result<ExitCode> {
    let settings = args.bench_settings(cache)?;
    let qemu = qemu::find(cache)?;
    let started = Timestamp::now();
    let (directory, _made) = output_directory("noise", args.out.as_deref(), started)?;
    let stop = stop_on_signals()?;
    let is_stopped = || stop.is_requested();
    let mut bench = BareNoise::new(cache.clone(), qemu, settings, &is_stopped);
    let plan = NoisePlan {
        loops: args.loops.clone(),
        trace: false,
        started_utc: started.to_string(),
        host: Map::new(),
        settings: args.settings(),
    };
    let mut progress = |label: &str| {
        output::say(!output::shows_progress(args.printing.quiet), &format!("loop {label}"))
    };
    let run = match lab::noise::run(&plan, &mut bench, &mut progress) {
        Ok(NoiseOutcome::Ran(run)) => run,
        Ok(NoiseOutcome::Nothing { reason, remedy })
        | Err(BenchError::NothingMeasurable { reason, remedy }) => {
            return Ok(output::nothing(&reason, remedy.as_deref()));
        }
        Err(error) => bail!(error),
    };
    let Some(main) = run.tables.first() else { bail!("stopped; nothing was written") };
    let format = args.printing.format();
    let printed = output::print(&output::run_text(&run, &directory, format, &main.name, false));
    record::write_run(&run, &[], &directory)
        .context("the results above are not recorded (--out writes elsewhere)")?;
    printed?;
    output::say(args.printing.quiet, &format!("run: {}", directory.display()));
    Ok(ExitCode::SUCCESS)
}
