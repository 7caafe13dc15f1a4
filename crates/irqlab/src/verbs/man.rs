//! `irqlab man`: writes the manual pages, one for the command and one for each verb. clap_mangen makes them from the
//! help texts.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::output_file::{self, ForceArgs};

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Directory of the pages; created if it does not exist
    directory: PathBuf,
    #[command(flatten)]
    force: ForceArgs,
}

/// Writes `irqlab.1`, `irqlab-handlers.1` and so on.
pub fn run(args: &ManArgs, command: clap::Command) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let cannot = || format!("cannot write manual pages into {}", directory.display());
    std::fs::create_dir_all(directory).with_context(cannot)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    render(command, &mut pages).with_context(cannot)?;
    // Checks all pages before writing the first, because either all pages are written or none.
    for (name, _) in &pages {
        output_file::check(&directory.join(name), args.force)?;
    }
    for (name, page) in &pages {
        output_file::write(&directory.join(name), page, args.force)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the pages of the command and of its verbs, each with the name of its file.
fn render(command: clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        render(verb.clone(), pages)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((page.get_filename(), text));
    Ok(())
}
