//! `irqlab sim bare`: programs on the simulated machine without any kernel, where nothing disturbs them. This file
//! has `sim bare noise`, the reference of `irqlab noise`; `bare_footprint` has `sim bare footprint`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::noise::{Body, KeepDetours, Loop, Plan};
use serde_json::{Map, Value as Json, json};
use sim::bare::{BareNoise, BareNoiseSettings};
use sim::boot::Limits;
use sim::{Cache, qemu};

use super::bare_footprint::BareFootprintArgs;
use crate::console::Redraw;
use crate::options::{
    On, ResultArgs, Usage, duration, duration_between, help_with_exit_codes, ns, unique,
};
use crate::run::{OpenRun, STATUS_LIMIT, stop_on_signals};
use crate::simulated;

/// A program for the machine without a kernel.
#[derive(Debug, clap::Subcommand)]
pub enum BareVerb {
    Noise(BareNoiseArgs),
    Footprint(BareFootprintArgs),
}

/// The loops of `irqlab noise` on a machine where nothing interrupts them: the reference
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[STATUS_LIMIT], "Examples:
  irqlab sim bare noise                               1,000 quanta of 100 us
  irqlab sim bare noise --loop fwq --iterations 1999  as many per quantum as in a run under a kernel
  irqlab sim bare noise --on sim:r4400-1994 --json    on a model of a processor"))]
pub struct BareNoiseArgs {
    /// fwq: fixed work, ftq: fixed time, detour: gaps of the clock
    #[arg(
        long = "loop",
        value_delimiter = ',',
        default_value = "detour,fwq,ftq",
        value_name = "LIST"
    )]
    loops: Vec<Loop>,
    /// Operation in the loops of fwq and ftq: add, alu, load, branch, memory
    #[arg(long, default_value = "add", value_name = "BODY")]
    body: Body,
    /// Time of a quantum of work (fwq) and of time (ftq), on the machine's clock; 10us to 1s
    #[arg(long, allow_hyphen_values = true, value_parser = duration_between("10us", "1s"),
          default_value = "100us", value_name = "TIME")]
    quantum: Duration,
    /// Iterations of the body in a quantum [default: the number that takes --quantum]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), value_name = "N")]
    iterations: Option<u64>,
    /// Number of quanta
    #[arg(long, default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=BareNoise::REPETITIONS_MAX), value_name = "N")]
    repetitions: u64,
    /// Shortest gap that is a detour [default: 100ns; with a model twice a slice of its clock]
    #[arg(long, allow_hyphen_values = true, value_parser = duration_between("1ns", "10s"),
          value_name = "TIME")]
    threshold: Option<Duration>,
    /// Where the loops run: sim, where an instruction takes 1 ns, or sim:MODEL
    #[arg(long, value_name = "BENCH", default_value = "sim")]
    on: On,
    /// Kill the machine after this time on its own clock, without a result: status 124
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "10m", value_name = "TIME")]
    guest_limit: Duration,
    /// Kill the machine after this time on the host's clock, without a result: status 124
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "30m", value_name = "TIME")]
    limit: Duration,
    /// Chooses which single detours are recorded of many
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
}

/// Default of the shortest gap that is a detour, without a model: the clock counts instructions.
const THRESHOLD_NS: u64 = 100;

pub fn run(cache: &Cache, verb: &BareVerb) -> anyhow::Result<ExitCode> {
    match verb {
        BareVerb::Noise(args) => run_noise(cache, args),
        BareVerb::Footprint(args) => super::bare_footprint::run(cache, args),
    }
}

impl BareNoiseArgs {
    /// The settings of the bench.
    ///
    /// Fails when the model is unknown, or `--threshold` is not longer than a slice of the model's clock.
    fn bench_settings(&self, cache: &Cache) -> anyhow::Result<BareNoiseSettings> {
        let model = self.on.simulated_model("a machine without a kernel")?;
        let model = model.map(|name| simulated::model(cache, name, &[], None)).transpose()?;
        // With a model, the guest's clock advances only at the end of each time slice, so a slice is its resolution.
        let slice_ns = model.as_ref().map(|model| {
            sim::watch::VCPU_SLICE_DEFAULT.saturating_mul(1_000_000_000)
                / model.model.clock_hz.max(1)
        });
        let threshold_ns = slice_ns.map_or(THRESHOLD_NS, |slice_ns| 2 * slice_ns.max(THRESHOLD_NS));
        if let (Some(requested_ns), Some(slice_ns)) = (self.threshold.map(ns), slice_ns)
            && requested_ns <= slice_ns
        {
            bail!(Usage(format!(
                "--threshold must be at least {}ns: the model's clock advances only at the end of each slice",
                slice_ns + 1
            )));
        }
        Ok(BareNoiseSettings {
            body: self.body,
            quantum_ns: ns(self.quantum),
            iterations: self.iterations,
            repetitions: self.repetitions,
            threshold_ns: self.threshold.map_or(threshold_ns, ns),
            model,
            limits: Limits { wall: self.limit, guest_s: self.guest_limit.as_secs().max(1) as u32 },
            keep: KeepDetours::with_seed(self.seed),
        })
    }

    /// The options of the command, for the settings of the run.
    fn settings(&self) -> Map<String, Json> {
        let mut settings = Map::new();
        let loops: Vec<&str> = self.loops.iter().map(|noise_loop| noise_loop.word()).collect();
        settings.insert("version".into(), json!(crate::VERSION));
        settings.insert("loops".into(), json!(loops));
        settings.insert("quantum_ns".into(), json!(ns(self.quantum)));
        settings.insert("repetitions".into(), json!(self.repetitions));
        settings.insert("trace".into(), json!(false));
        settings.insert("seed".into(), json!(self.seed));
        settings
    }
}

fn run_noise(cache: &Cache, args: &BareNoiseArgs) -> anyhow::Result<ExitCode> {
    let settings = args.bench_settings(cache)?;
    let open = OpenRun::new("noise", &args.results)?;
    let qemu = qemu::find(cache)?;
    let stop = stop_on_signals()?;
    let stop = Box::new(move || stop.is_requested());
    let mut bench = BareNoise::new(cache.clone(), qemu, settings, stop);
    let plan = Plan { loops: unique(&args.loops), trace: false, seed: 0 };
    let context = open.context(Map::new(), args.settings());
    let measured = open.measure(&plan, context, &mut bench, Redraw::EverySecond, |_, _| Vec::new());
    Ok(measured?.0)
}
