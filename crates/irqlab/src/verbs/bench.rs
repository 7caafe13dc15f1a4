//! `irqlab bench`: irqlab measured by itself.

use std::process::ExitCode;

/// Measure irqlab itself
#[derive(Debug, clap::Args)]
pub struct BenchArgs {}

/// Runs the bench.
pub fn run(_args: BenchArgs) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
