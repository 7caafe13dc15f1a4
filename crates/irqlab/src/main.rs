//! irqlab: a laboratory for interrupts. This file parses the command line and calls the verb.
//!
//! Each verb has a file in `verbs/`. The verbs share `options`, `console`, `run` (from the output directory to the exit
//! code) and `simulated` (the options and the preparation of a simulated machine).

#![forbid(unsafe_code)]

mod child;
mod console;
mod dry_run;
mod expected_time;
mod help;
mod helpers;
mod identity;
mod kernels;
mod options;
mod output_file;
mod parallel;
mod pictures;
mod run;
mod sampling;
mod simulated;
mod threshold;
mod until;
mod verbs;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// The version of the program; release builds from a Git work tree add the commit (`build.rs`).
const VERSION: &str = env!("IRQLAB_VERSION");

/// Measures what interrupts and the operating system cost
#[derive(Debug, Parser)]
#[command(version = VERSION, about, propagate_version = true)]
#[command(after_help = "Examples:
  irqlab doctor                          what can be measured on this machine
  irqlab handlers -d 30s                 what each interrupt costs
  irqlab noise -c 1 -d 60s               who takes time from a program
  irqlab signal advise --rate 50k --latency-bound 200us --interrupt-cost 4us --event-cost 500ns")]
struct Cli {
    #[command(flatten)]
    console: console::ConsoleArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Doctor(verbs::doctor::DoctorArgs),
    Handlers(Box<verbs::handlers::HandlersArgs>),
    Noise(Box<verbs::noise::NoiseArgs>),
    Wakeup(Box<verbs::wakeup::WakeupArgs>),
    Footprint(Box<verbs::footprint::FootprintArgs>),
    Services(Box<verbs::services::ServicesArgs>),
    Signal(verbs::signal::SignalArgs),
    Affinity(Box<verbs::affinity::AffinityArgs>),
    Echo(verbs::echo::EchoArgs),
    Reproduce(verbs::reproduce::ReproduceArgs),
    Watch(verbs::watch::WatchArgs),
    Show(verbs::show::ShowArgs),
    Compare(verbs::compare::CompareArgs),
    Report(verbs::report::ReportArgs),
    Export(verbs::export::ExportArgs),
    /// The simulated machine: set it up, boot it, save its state
    Sim(Box<verbs::sim::SimArgs>),
    Machines(verbs::machines::MachinesArgs),
    Sweep(verbs::sweep::SweepArgs),
    Fleet(verbs::fleet::FleetArgs),
    Bench(verbs::bench::BenchArgs),
    /// Print a completion script for a shell
    Completions(verbs::completions::CompletionsArgs),
    Man(verbs::man::ManArgs),
}

impl Verb {
    /// Whether a user runs this verb for its results. `false` for the end of a conversation on a host, completion scripts and
    /// manual pages.
    fn has_results(&self) -> bool {
        match self {
            Verb::Fleet(args) => !args.is_host(),
            Verb::Completions(_) | Verb::Man(_) => false,
            _ => true,
        }
    }
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| run::failure(&error))
}

/// Prepares the process, parses the command line and runs the verb.
///
/// The order matters. Rights are withheld before any program can start. The console is set up before anything is
/// printed. What killed runs left changed on this machine is restored before a verb measures.
fn run() -> anyhow::Result<ExitCode> {
    live::program_rights::keep_from_programs()
        .context("cannot withhold capabilities from the programs that irqlab starts")?;
    live::spawn::end_with_parent().context("the irqlab that started this one has ended")?;
    live::host::process_cpus(); // reads the affinity now, before any thread is pinned
    outputs::note_names_by(live::journal::note_temporary);
    sim::name_process_limits_by(live::spawn::with_reached_limit);
    if let Some(verb) = helpers::parse(std::env::args_os()) {
        return verb.run();
    }
    let command = help::arrange(Cli::command());
    let matches = command.clone().try_get_matches().unwrap_or_else(|error| {
        let arguments: Vec<String> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        options::with_replacement(error, &arguments).exit();
    });
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    console::set_up(cli.console);
    options::check_bench(&command, &matches)?;
    if cli.verb.has_results() {
        run::restore_after_killed_runs();
    }
    match cli.verb {
        Verb::Doctor(args) => verbs::doctor::run(args),
        Verb::Handlers(args) => verbs::handlers::run(&args),
        Verb::Noise(args) => verbs::noise::run(&args),
        Verb::Wakeup(args) => verbs::wakeup::run(&args),
        Verb::Footprint(args) => verbs::footprint::run(&args),
        Verb::Services(args) => verbs::services::run(&args),
        Verb::Signal(args) => verbs::signal::run(&args),
        Verb::Affinity(args) => verbs::affinity::run(&args),
        Verb::Echo(args) => verbs::echo::run(&args),
        Verb::Reproduce(args) => verbs::reproduce::run(&args),
        Verb::Watch(args) => verbs::watch::run(&args),
        Verb::Show(args) => verbs::show::run(args),
        Verb::Compare(args) => verbs::compare::run(&args),
        Verb::Report(args) => verbs::report::run(&args),
        Verb::Export(args) => verbs::export::run(&args),
        Verb::Sim(args) => verbs::sim::run(*args),
        Verb::Machines(args) => verbs::machines::run(&args),
        Verb::Sweep(args) => verbs::sweep::run(&args, command),
        Verb::Fleet(args) => verbs::fleet::run(&args, command),
        Verb::Bench(args) => verbs::bench::run(args),
        Verb::Completions(args) => verbs::completions::run(&args, command),
        Verb::Man(args) => verbs::man::run(&args, command),
    }
}
