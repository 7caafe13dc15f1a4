//! `irqlab man`: the manual pages, one for the command and one for each verb.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: irqlab man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// The directory; it is created if there is none
    directory: PathBuf,
}

/// Writes `irqlab.1`, `irqlab-handlers.1` and so on.
pub fn run(args: &ManArgs, command: clap::Command) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let cannot = || format!("cannot write manual pages into {}", directory.display());
    std::fs::create_dir_all(directory).with_context(cannot)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), directory)
        .with_context(cannot)?;
    Ok(ExitCode::SUCCESS)
}
