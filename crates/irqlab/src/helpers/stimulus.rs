//! The hidden verb that runs a stimulus or a load of `handlers`, in a process of its own. `live::stimulus` starts it.

use std::process::ExitCode;

/// Run a stimulus for `irqlab handlers`
#[derive(Debug, clap::Args)]
pub struct StimulusArgs {
    /// The request in JSON: see `live::stimulus`
    request: String,
}

/// Runs the stimulus until the parent ends or closes the pipe.
pub fn run(args: &StimulusArgs) -> anyhow::Result<ExitCode> {
    let code = live::stimulus::helper_main(&args.request);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
