//! Kernels in several processes: where code and data lie, and so which of them meet in caches and predictors, differs
//! from process to process.

use std::process::{Command, Stdio};

use lab::experiment::BenchError;
use lab::guest_protocol::{Request, decode};
use lab::kernels::in_guest::{KernelsRequest, KernelsResponse};
use lab::kernels::{KernelSample, middle_of_processes};

use super::KernelsObserver;

/// Measures the kernels of a request in as many processes as it asks for, one after the other. `program` is a command
/// that executes the request that is added to it as an argument and prints the response. Returns the middle process of
/// each kernel. A stop ends it after a process.
///
/// # Errors
/// When a process cannot be started, and as [`super::measure`] in one.
pub fn measure_in_processes(
    request: &KernelsRequest,
    observer: &dyn KernelsObserver,
    program: impl Fn() -> Command,
) -> Result<Vec<KernelSample>, BenchError> {
    let of_one = Request::Kernels(KernelsRequest { processes: 1, ..request.clone() });
    let line = of_one.encode()?;
    let count = request.processes as usize;
    let mut processes = Vec::new();
    for number in 1..=count {
        if observer.stop_requested() {
            break;
        }
        observer.next(number, count, "process");
        processes.push(measure_in_process(program().arg(&line))?);
    }
    Ok(middle_of_processes(processes))
}

fn measure_in_process(command: &mut Command) -> Result<Vec<KernelSample>, BenchError> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| {
        BenchError::Failed(format!("cannot start a process that measures: {error}"))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(decode::<KernelsResponse>(text.lines())?.samples)
}
