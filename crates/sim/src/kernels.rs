//! Measures the kernels (loops) of the validation suite of models in a simulated machine. The irqlab in the guest
//! runs the code of the live bench and counts cycles of the model, which are compared with cycles of the real
//! processor.

use std::time::Duration;

use lab::experiment::BenchError;
use lab::guest_protocol::Request;
use lab::kernels::KernelSample;
use lab::kernels::in_guest::{KernelsRequest, KernelsResponse};

use crate::forecast::MachineWork;
use crate::guest_run::{Expected, GuestRun};

/// Measurements of a machine.
#[derive(Clone, Debug)]
pub struct SimKernels {
    /// A sample of each kernel.
    pub samples: Vec<KernelSample>,
    /// How long the machine ran on the host's clock.
    pub wall: Duration,
    /// Notices for the reader of the samples.
    pub notices: Vec<String>,
}

/// Returns the work of the machine that [`measure`] starts with these arguments. Starts no machine.
///
/// Fails if the request cannot be written.
pub fn planned(
    guest: &GuestRun,
    label: &str,
    request: KernelsRequest,
) -> Result<MachineWork, BenchError> {
    guest.work(&Request::Kernels(request), &expected(label))
}

/// No length is known before the machine has run.
fn expected(label: &str) -> Expected<'_> {
    Expected { label, window_cycles: None, windows: None, warm_up_cycles: None }
}

/// Starts a machine that measures the kernels of a request; `None` if the user asked to stop.
///
/// Fails when the machine cannot be started, or breaks, and with [`BenchError::TimeLimit`] when a limit ends it.
pub fn measure(
    guest: &GuestRun,
    label: &str,
    request: KernelsRequest,
) -> Result<Option<SimKernels>, BenchError> {
    let outcome = guest.run::<KernelsResponse>(&Request::Kernels(request), expected(label))?;
    let Some(outcome) = outcome else { return Ok(None) };
    // A machine that ended early has measured only some of the kernels: they are dropped.
    let (Some(response), None) = (outcome.response, outcome.early) else {
        return match outcome.early.and_then(|early| guest.limit_text(early)) {
            Some(limit) => Err(BenchError::TimeLimit(limit)),
            None => Ok(None),
        };
    };
    let accounting = outcome.account;
    if let Some(broken) = accounting.broken.first() {
        return Err(BenchError::Failed(format!("the record of the machine is broken: {broken}")));
    }
    let (samples, notices) = (response.samples, accounting.notices);
    Ok(Some(SimKernels { samples, wall: outcome.wall, notices }))
}
