//! placeholder
use std::process::ExitCode;
/// Report
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab fleet report monday")]
pub struct ReportArgs {
    dir: std::path::PathBuf,
}
pub fn run(_args: &ReportArgs) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
