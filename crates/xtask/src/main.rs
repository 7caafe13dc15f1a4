//! The program `cargo xtask`: benches for developers of irqlab, which measure the simulator and the models.
//! docs/bench-developers.md describes each bench.

#![forbid(unsafe_code)]

mod bench;
mod results;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Programs for developers of irqlab
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
    live::host::process_cpus(); // reads the process's CPUs before any thread is pinned
    bench.run()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn the_commands_of_the_manual_are_understood() {
        let page = include_str!("../../../docs/bench-developers.md");
        let commands: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("cargo xtask ")?.split("  ").next())
            .collect();
        assert!(commands.len() >= 4, "{commands:?}");
        for command in commands {
            let arguments = std::iter::once("xtask").chain(command.split_whitespace());
            let parsed = super::Cli::try_parse_from(arguments).map(|_| ());
            assert!(parsed.is_ok(), "{command}: {parsed:?}");
        }
    }
}
