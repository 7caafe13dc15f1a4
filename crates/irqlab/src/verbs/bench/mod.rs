//! `irqlab bench`: irqlab measured by itself. What each bench does: docs/bench.md.

mod chase;
mod noise_peers;
mod overhead;
mod sim;
mod sim_repeat;
mod storm;
mod trace_agreement;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use lab::handlers::BenchError;
use live::host::{Root, diagnose, host_facts, run_host_block};
use live::selfbench::tracefs::{Tracefs, remove_leftovers};
use record::{Absence, Column, Kind, Run, SCHEMA, Table, Timestamp};
use serde_json::{Map, Value as Json, json};

use crate::args::{Printing, Usage};
use crate::output;

/// Measure irqlab itself: what its probes cost, and whether they tell the truth
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum Which {
    /// What an entry/exit pair of probes costs, beside other tools on the same loop
    Overhead(overhead::OverheadArgs),
    /// irqlab's times beside the kernel's own trace of the same interrupts
    TraceAgreement(trace_agreement::TraceAgreementArgs),
    /// Timer, inter-processor and disk interrupts at once: nothing lost, memory flat, user space idle?
    Storm(storm::StormArgs),
    /// The detour loop beside oslat and cyclictest on the same CPU
    NoisePeers(noise_peers::NoisePeersArgs),
    /// Latencies of this machine's caches, beside those of models
    Chase(chase::ChaseArgs),
    /// How fast is the simulated machine, at each level of detail?
    Sim(sim::SimBenchArgs),
    /// Whether a simulated machine does the same again, to the byte
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
        Which::Sim(args) => sim::run(&args),
        Which::SimRepeat(args) => sim_repeat::run(&args),
    }
}

/// Options that all benches have.
#[derive(Debug, clap::Args)]
struct OutputArgs {
    /// Also write a run directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    printing: Printing,
}

impl OutputArgs {
    /// Refuses an output directory that exists, and undoes what killed runs left behind.
    fn prepare(&self) -> anyhow::Result<()> {
        if let Some(out) = &self.out
            && out.exists()
        {
            bail!(Usage(format!("{} exists already; a run never replaces one", out.display())));
        }
        let mut messages = live::journal::replay_dead();
        if let Ok(tracefs) = Tracefs::find() {
            messages.extend(remove_leftovers(&tracefs));
        }
        for message in messages {
            output::say(self.printing.quiet, &format!("left by a run that was killed: {message}"));
        }
        Ok(())
    }

    fn progress(&self, text: &str) {
        output::say(!output::shows_progress(self.printing.quiet), text);
    }

    /// Prints and, if asked for, records.
    fn finish(&self, run: &Run) -> anyhow::Result<ExitCode> {
        let format = self.printing.format();
        let main = run.tables.first().map(|table| table.name.clone()).unwrap_or_default();
        let directory = self.out.as_deref().unwrap_or(Path::new("RUN"));
        let printed = output::print(&output::run_text(run, directory, format, &main, true));
        if let Some(out) = &self.out {
            record::write_run(run, &[], out)?;
            output::say(self.printing.quiet, &format!("run: {}", out.display()));
        }
        printed?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The end of a bench that cannot be had: exit code 4 with the reason, or an error.
fn unavailable(error: BenchError) -> anyhow::Result<ExitCode> {
    match error {
        BenchError::NothingMeasurable { reason, remedy }
        | BenchError::Unavailable { reason, remedy } => {
            let remedy = remedy.or_else(|| {
                let findings = diagnose(&host_facts(&Root::default()));
                let rights = live::host::diagnosis::RIGHTS;
                findings.into_iter().find(|finding| finding.subject == rights)?.unlock
            });
            Ok(output::nothing(&reason, remedy.as_deref()))
        }
        error => bail!(error),
    }
}

/// What a bench hands in.
#[derive(Default)]
struct Measured {
    settings: Map<String, Json>,
    observer: Map<String, Json>,
    warnings: Vec<String>,
    absent: Vec<(String, String, Option<String>)>,
    tables: Vec<Table>,
    interrupted: bool,
}

/// The run of the bench `name`, begun at `started`.
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
