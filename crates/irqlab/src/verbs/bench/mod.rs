//! `irqlab bench`: measures irqlab itself. docs/bench.md describes each bench.
//!
//! A file here has the options of a bench and makes its run. `live::selfbench` measures on this machine;
//! `live_tables` and `lab` make the tables.

mod compare;
mod kernel;
mod model;
mod noise_peers;
mod overhead;
mod sim_repeat;
mod storm;
mod trace_agreement;

use std::process::ExitCode;

use live::host::{Root, host_facts, run_host_block};
use record::{Absence, Run, SCHEMA, Table, Timestamp};
use serde_json::{Map, Value as Json};

use crate::options::OptionalResultArgs;
use crate::run::{OpenRun, made_by};

/// Measure irqlab itself: the overhead of its probes, and its accuracy
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab bench overhead             what a pair of probes costs
  irqlab bench model                     how true the model of this processor is")]
pub struct BenchArgs {
    #[command(subcommand)]
    verb: BenchVerb,
}

#[derive(Debug, clap::Subcommand)]
enum BenchVerb {
    /// Measure the overhead of an entry/exit pair of probes, compared with other tools on the same loop
    Overhead(overhead::OverheadArgs),
    /// Compare irqlab's times with the kernel's own trace of the same interrupts
    TraceAgreement(trace_agreement::TraceAgreementArgs),
    /// Raise timer, inter-processor and disk interrupts at once: is nothing lost, memory constant, user space idle?
    Storm(storm::StormArgs),
    /// Compare the detour loop with oslat and cyclictest on the same CPU
    NoisePeers(noise_peers::NoisePeersArgs),
    /// Measure how often compare reports a difference that does not exist, and finds one that was planted
    Compare(compare::CompareBenchArgs),
    /// Measure the error of a processor model: the same kernels on the processor and in the simulated machine
    Model(Box<model::ModelArgs>),
    /// What the kernel costs on this machine and on its model: system calls, interrupt handlers, services
    Kernel(kernel::KernelArgs),
    /// Check that a simulated machine repeats a run to the byte
    SimRepeat(Box<sim_repeat::SimRepeatArgs>),
}

pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.verb {
        BenchVerb::Overhead(args) => overhead::run(&args),
        BenchVerb::TraceAgreement(args) => trace_agreement::run(&args),
        BenchVerb::Storm(args) => storm::run(&args),
        BenchVerb::NoisePeers(args) => noise_peers::run(&args),
        BenchVerb::Compare(args) => compare::run(&args),
        BenchVerb::Model(args) => model::run(&args),
        BenchVerb::Kernel(args) => kernel::run(&args),
        BenchVerb::SimRepeat(args) => sim_repeat::run(&args),
    }
}

/// Opens the run of a bench: it is always printed, and recorded only with `--out`.
fn open(results: &OptionalResultArgs) -> anyhow::Result<OpenRun> {
    OpenRun::if_asked(results)
}

/// The results of a bench.
#[derive(Default)]
struct Measured {
    settings: Map<String, Json>,
    /// The machine whose data were kept. `None` for this machine.
    host: Option<Map<String, Json>>,
    observer: Map<String, Json>,
    warnings: Vec<String>,
    /// Each result that could not be measured: its name, the reason, and the remedy if there is one.
    absent: Vec<(String, String, Option<String>)>,
    tables: Vec<Table>,
    interrupted: bool,
}

/// Makes the run of the bench `name`, with the results of this machine or of kept data. An absence belongs to the first table.
fn run_of(name: &str, started: Timestamp, result: Measured) -> Run {
    let main_table = result.tables.first().map(|table| table.name.clone()).unwrap_or_default();
    let mut settings: Map<String, Json> = made_by().collect();
    settings.extend(result.settings);
    let absence = |(what, reason, remedy): (String, String, Option<String>)| {
        Absence::new(&main_table, what, reason).with_remedy(remedy)
    };
    Run {
        schema: SCHEMA.to_owned(),
        experiment: name.to_owned(),
        bench: "live".to_owned(),
        started_utc: started.to_string(),
        complete: !result.interrupted,
        host: result.host.unwrap_or_else(|| run_host_block(&host_facts(&Root::default()))),
        settings,
        observer: result.observer,
        warnings: result.warnings,
        absent: result.absent.into_iter().map(absence).collect(),
        tables: result.tables,
    }
}
