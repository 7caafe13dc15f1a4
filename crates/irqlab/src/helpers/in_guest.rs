//! The hidden verb that executes a request of the host inside a simulated machine. The guest's first process
//! (`crates/guest`) starts it.
//!
//! It runs the same loads, stimuli and loops as the live bench. Markers tell the plugin where windows open and close,
//! and how much to record. The response, printed on stdout, must come after the last window.

use std::process::{Command, ExitCode};

use lab::experiment::BenchError;
use lab::footprint::in_guest::FootprintResponse;
use lab::guest_protocol::{Request, Response, encode};
use lab::handlers::in_guest::HandlersResponse;
use lab::kernels::in_guest::KernelsResponse;
use lab::noise::in_guest::NoiseResponse;
use lab::services::in_guest::ServicesResponse;
use lab::signal::in_guest::SignalResponse;
use lab::wakeup::in_guest::WakeupResponse;
use live::services::in_guest::Place;
use live::signal::Observer;
use live::window::{BenchPhase, WindowEdge};
use sim::marker::{self, mark};

use crate::console;
use crate::run::stop_on_signals;

pub const VERB: &str = "__in-guest";

/// The command that runs this program with this verb in a process of its own.
pub fn program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(VERB);
    live::program_rights::give_to_helper(&mut command);
    command
}

#[derive(Debug, clap::Args)]
pub struct InGuestArgs {
    /// The request in JSON: see `lab::guest_protocol`
    request: String,
}

/// Executes the request of one experiment and prints the response.
pub fn run(args: &InGuestArgs) -> anyhow::Result<ExitCode> {
    let request = Request::decode(&args.request);
    // The first process sends SIGTERM when the run is to end early.
    let stop = stop_on_signals()?;
    if !matches!(request, Ok(Request::Handlers(_) | Request::Signal(_) | Request::Kernels(_))) {
        // The boot may have run in less detail. These experiments report no phases, and need detail before a window.
        mark(marker::FULL, 0);
    }
    match request {
        Ok(Request::Handlers(request)) => respond::<HandlersResponse>(
            live::handlers::in_guest::execute(&request, at_edge, at_phase, &stop),
        ),
        Ok(Request::Noise(request)) => {
            respond::<NoiseResponse>(live::noise::in_guest::execute(&request, at_edge, &stop))
        }
        Ok(Request::Wakeup(request)) => respond::<WakeupResponse>(live::wakeup::in_guest::execute(
            &request, at_edge, at_phase, &stop,
        )),
        Ok(Request::Footprint(request)) => respond::<FootprintResponse>(
            live::footprint::in_guest::execute(&request, at_edge, &stop),
        ),
        Ok(Request::Kernels(request)) => {
            respond::<KernelsResponse>(live::kernels::execute(&request, at_edge, at_phase, program))
        }
        Ok(Request::Signal(request)) => {
            let observer = Observer { at_edge, at_phase };
            respond::<SignalResponse>(live::signal::in_guest::execute(&request, observer, &stop))
        }
        Ok(Request::Services(request)) => respond::<ServicesResponse>(
            live::services::in_guest::execute(&request, at_place, &stop),
        ),
        Err(error) => respond::<HandlersResponse>(Err(error)),
    }
}

/// Prints the response. All measurements are over by then, so printing does not disturb them.
fn respond<R: Response>(items: Result<Vec<R::Item>, BenchError>) -> anyhow::Result<ExitCode> {
    // Printing is not measured, so it needs no detail. That saves host time.
    mark(marker::FAST, 0);
    for line in encode(items) {
        console::print(&(line + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Requests the level of recording that a phase needs: little for set-up, caches and predictors for a warm-up, all for
/// a measurement. Less recording saves host time.
fn at_phase(phase: BenchPhase) {
    match phase {
        BenchPhase::SetUp => mark(marker::FAST, 0),
        BenchPhase::WarmUp => mark(marker::WARM, 0),
        BenchPhase::Measurement => mark(marker::FULL, 0),
    }
}

fn at_place(place: Place) {
    match place {
        Place::Reading => mark(marker::READING, 0),
        Place::Edge(edge) => at_edge(edge),
    }
}

fn at_edge(edge: WindowEdge) {
    match edge {
        WindowEdge::Open => mark(marker::OPEN, 0),
        WindowEdge::Close => mark(marker::CLOSE, 0),
    }
}
