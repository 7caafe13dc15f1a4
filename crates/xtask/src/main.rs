//! `cargo xtask`: what developers of irqlab run. docs/bench-developers.md describes each bench.

#![forbid(unsafe_code)]

mod bench;
mod results;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What developers of irqlab run
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measure the simulator and the models
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> anyhow::Result<ExitCode> {
    let Task::Bench(bench) = Cli::parse().task;
    live::host::process_cpus(); // before any thread is pinned
    bench.run()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
