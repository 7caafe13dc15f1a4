//! The hidden verb by which irqlab starts its interrupt sources as processes of their own.

use std::process::ExitCode;

/// A source of interrupts, started by `handlers`
#[derive(Debug, clap::Args)]
pub struct StimulusArgs {
    /// The order
    order: String,
}

/// Runs the source until the parent ends or closes the pipe.
pub fn run(args: &StimulusArgs) -> anyhow::Result<ExitCode> {
    let code = live::stimulus::helper_main(&args.order);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
