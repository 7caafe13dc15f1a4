//! The benches of `cargo xtask bench`. Each module has the options of one bench, and a function `run` that measures,
//! prints and records.

mod chase;
mod hostile;
mod signal;
mod sim;

use std::process::ExitCode;

use anyhow::Context;
use live::window::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};

#[derive(Debug, clap::Subcommand)]
pub enum Bench {
    /// Compare the latencies of this machine's caches with the latencies of models
    Chase(chase::ChaseArgs),
    /// Check that simulated machines repeat a run to the byte while the host disturbs QEMU
    Hostile(hostile::HostileArgs),
    /// Measure the speed of the event simulation of `irqlab signal`
    Signal(signal::SignalArgs),
    /// Measure the speed of the simulated machine at each level of detail
    Sim(sim::SimArgs),
}

impl Bench {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Bench::Chase(args) => chase::run(args),
            Bench::Hostile(args) => hostile::run(args),
            Bench::Signal(args) => signal::run(args),
            Bench::Sim(args) => sim::run(args),
        }
    }
}

/// Prints a message on stderr.
fn say(text: &str) {
    eprintln!("{text}");
}

/// Returns a [`Stop`] that Ctrl-C and SIGTERM request.
fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new().context("cannot create a pipe")?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, stop.writer()?)
            .context("cannot install signal handlers")?;
    }
    Ok(stop)
}
