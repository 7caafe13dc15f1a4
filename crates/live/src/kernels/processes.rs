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
        match measure_in_process(program().arg(&line)) {
            Ok(samples) => processes.push(samples),
            // Ctrl-C ends the process, too.
            Err(_) if observer.stop_requested() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(middle_of_processes(processes))
}

fn measure_in_process(command: &mut Command) -> Result<Vec<KernelSample>, BenchError> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| {
        BenchError::Failed(format!("cannot start a process that measures: {error}"))
    })?;
    if !output.status.success() {
        let why = format!("a process that measures kernels ended early: {}", output.status);
        return Err(BenchError::Failed(why));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(decode::<KernelsResponse>(text.lines())?.samples)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Asks to stop once it was asked this often.
    struct StopAfter(Cell<u32>);

    impl KernelsObserver for StopAfter {
        fn stop_requested(&self) -> bool {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            left == 0
        }
    }

    fn measure_by(script: &str, observer: &StopAfter) -> Result<Vec<KernelSample>, BenchError> {
        let only = vec!["add_chain".to_owned()];
        let request =
            KernelsRequest { only, windows: 3, window_cycles: 5_000, cpu: 0, processes: 3 };
        measure_in_processes(&request, observer, || {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        })
    }

    #[test]
    fn a_process_that_ends_early_is_named_with_its_end() {
        for (script, words) in [("kill -9 $$", "signal: 9"), ("exit 3", "exit status: 3")] {
            let error = measure_by(script, &StopAfter(Cell::new(9))).unwrap_err().to_string();
            assert!(error.contains("ended early") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_process_that_ends_because_the_user_stopped_is_no_error() {
        let samples = measure_by("kill -2 $$", &StopAfter(Cell::new(1))).unwrap();
        assert_eq!(samples, []);
    }
}
