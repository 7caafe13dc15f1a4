//! `irqlab bench`: irqlab measured by itself. What each bench does: docs/bench.md.

mod chase;
mod compare;
mod model;
mod noise_peers;
mod overhead;
mod signal;
mod sim;
mod sim_repeat;
mod storm;
mod trace_agreement;

use std::process::ExitCode;

use live::host::{Root, host_facts, run_host_block};
use record::{Absence, Column, Kind, Run, SCHEMA, Table, Timestamp};
use serde_json::{Map, Value as Json, json};

use crate::options::OptionalResultArgs;
use crate::run::OpenRun;

/// Measure irqlab itself: what its probes cost, and how accurate they are
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum Which {
    /// What an entry/exit pair of probes costs, compared with other tools on the same loop
    Overhead(overhead::OverheadArgs),
    /// irqlab's times compared with the kernel's own trace of the same interrupts
    TraceAgreement(trace_agreement::TraceAgreementArgs),
    /// Timer, inter-processor and disk interrupts at once: nothing lost, memory flat, user space idle?
    Storm(storm::StormArgs),
    /// The detour loop compared with oslat and cyclictest on the same CPU
    NoisePeers(noise_peers::NoisePeersArgs),
    /// Latencies of this machine's caches, compared with those of models
    Chase(chase::ChaseArgs),
    /// How often compare reports a difference that is none, and finds one that was planted
    Compare(compare::CompareBenchArgs),
    /// How true a model of a processor is: kernels on the processor and in the simulated machine
    Model(Box<model::ModelArgs>),
    /// How fast is the simulated machine, at each level of detail?
    Sim(sim::SimBenchArgs),
    /// How fast is the event simulation of `irqlab signal`?
    Signal(signal::SignalBenchArgs),
    /// Whether a simulated machine repeats a run to the byte
    SimRepeat(Box<sim_repeat::SimRepeatArgs>),
}

/// Runs the bench.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.which {
        Which::Overhead(args) => overhead::run(&args),
        Which::TraceAgreement(args) => trace_agreement::run(&args),
        Which::Storm(args) => storm::run(&args),
        Which::NoisePeers(args) => noise_peers::run(&args),
        Which::Chase(args) => chase::run(&args),
        Which::Compare(args) => compare::run(&args),
        Which::Model(args) => model::run(&args),
        Which::Sim(args) => sim::run(&args),
        Which::Signal(args) => signal::run(&args),
        Which::SimRepeat(args) => sim_repeat::run(&args),
    }
}

/// Opens the run of a bench.
fn open(results: &OptionalResultArgs) -> anyhow::Result<OpenRun> {
    OpenRun::if_asked(results)
}

/// The results of a bench.
#[derive(Default)]
struct Measured {
    settings: Map<String, Json>,
    observer: Map<String, Json>,
    warnings: Vec<String>,
    absent: Vec<(String, String, Option<String>)>,
    tables: Vec<Table>,
    interrupted: bool,
}

/// The run of the bench `name`, started at `started`.
fn run_of(name: &str, started: Timestamp, result: Measured) -> Run {
    let main = result.tables.first().map(|table| table.name.clone()).unwrap_or_default();
    let mut settings = Map::new();
    settings.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
    settings.extend(result.settings);
    let absence = |(what, reason, remedy)| Absence { table: main.clone(), what, reason, remedy };
    Run {
        schema: SCHEMA.to_owned(),
        experiment: name.to_owned(),
        bench: "live".to_owned(),
        started_utc: started.to_string(),
        complete: !result.interrupted,
        host: run_host_block(&host_facts(&Root::default())),
        settings,
        observer: result.observer,
        warnings: result.warnings,
        absent: result.absent.into_iter().map(absence).collect(),
        tables: result.tables,
    }
}

/// Columns from name, kind and doc.
fn columns(of: &[(&str, Kind, &str)]) -> Vec<Column> {
    of.iter().map(|(name, kind, doc)| Column::new(name, *kind, doc)).collect()
}
