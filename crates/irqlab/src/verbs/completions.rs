//! `irqlab completions`: completion scripts for shells.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::console;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab completions bash > /etc/bash_completion.d/irqlab
  irqlab completions zsh > ~/.zfunc/_irqlab
  irqlab completions fish > ~/.config/fish/completions/irqlab.fish")]
pub struct CompletionsArgs {
    /// The shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &CompletionsArgs, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "irqlab", &mut script);
    console::print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}
