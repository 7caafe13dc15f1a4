//! Ctrl-C and SIGTERM as a wish to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use live::handlers::Stop;

/// A stop that Ctrl-C and SIGTERM request.
pub fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new().context("cannot make a pipe")?;
    let again = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let writer = stop.writer().context("cannot make a pipe")?;
        // A second Ctrl-C ends the program at once, as if it had no handler.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&again))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&again)))
            .and_then(|_| signal_hook::low_level::pipe::register(signal, writer))
            .context("cannot handle signals")?;
    }
    Ok(stop)
}
