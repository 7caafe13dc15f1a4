//! The hidden verb by which the first process of a simulated machine has its irqlab execute a request.

use std::process::{Command, ExitCode};

use lab::experiment::BenchError;
use lab::footprint::in_guest::FootprintResponse;
use lab::guest_protocol::{Request, Response, encode};
use lab::handlers::in_guest::HandlersResponse;
use lab::kernels::in_guest::KernelsResponse;
use lab::noise::in_guest::NoiseResponse;
use lab::services::in_guest::ServicesResponse;
use lab::signal::in_guest::SignalResponse;
use live::services::in_guest::Place;
use live::signal::Observer;
use live::window::{BenchPhase, WindowEdge};
use sim::marker::{self, mark};

use crate::console;

/// The verb.
pub const VERB: &str = "__in-guest";

/// This program with this verb, for a process of its own.
pub fn program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(VERB);
    live::program_rights::give_to_helper(&mut command);
    command
}

/// The request.
#[derive(Debug, clap::Args)]
pub struct InGuestArgs {
    /// The request in JSON: see `lab::guest_protocol`
    request: String,
}

/// Executes the request and prints the response: one arm for each experiment.
pub fn run(args: &InGuestArgs) -> anyhow::Result<ExitCode> {
    let request = Request::decode(&args.request);
    if !matches!(request, Ok(Request::Handlers(_) | Request::Signal(_) | Request::Kernels(_))) {
        // The boot may have been recorded in less detail; what loops do before a window counts.
        mark(marker::FULL, 0);
    }
    match request {
        Ok(Request::Handlers(request)) => {
            respond::<HandlersResponse>(live::handlers::in_guest::execute(&request, at, at_phase))
        }
        Ok(Request::Noise(request)) => {
            respond::<NoiseResponse>(live::noise::in_guest::execute(&request, at))
        }
        Ok(Request::Footprint(request)) => {
            respond::<FootprintResponse>(live::footprint::in_guest::execute(&request, at))
        }
        Ok(Request::Kernels(request)) => {
            respond::<KernelsResponse>(live::kernels::execute(&request, at, at_phase, program))
        }
        Ok(Request::Signal(request)) => {
            let observer = Observer { at_edge: at, at_phase };
            respond::<SignalResponse>(live::signal::in_guest::execute(&request, observer))
        }
        Ok(Request::Services(request)) => {
            respond::<ServicesResponse>(live::services::in_guest::execute(&request, at_place))
        }
        Err(error) => respond::<HandlersResponse>(Err(error)),
    }
}

/// Prints the response after all measurements, so that nothing else runs during one.
fn respond<R: Response>(items: Result<Vec<R::Item>, BenchError>) -> anyhow::Result<ExitCode> {
    // The rest is not measured, and less detail takes less of the host's time.
    mark(marker::FAST, 0);
    for line in encode(items) {
        console::print(&(line + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is only prepared takes less of the host's time in less detail. Calibration and warm-up fill the
/// model's caches.
fn at_phase(phase: BenchPhase) {
    match phase {
        BenchPhase::SetUp => mark(marker::FAST, 0),
        BenchPhase::Measurement => mark(marker::FULL, 0),
    }
}

fn at_place(place: Place) {
    match place {
        Place::Reading => mark(marker::READING, 0),
        Place::Edge(edge) => at(edge),
    }
}

fn at(edge: WindowEdge) {
    match edge {
        WindowEdge::Open => mark(marker::OPEN, 0),
        WindowEdge::Close => mark(marker::CLOSE, 0),
    }
}
