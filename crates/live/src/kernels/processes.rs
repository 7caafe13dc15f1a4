//! Measures kernels in several processes, on a real machine or in a simulated one. Processes differ in the addresses of
//! their code and data, and therefore in conflicts in caches and predictors. The middle of several processes depends
//! less on chance. Requests and responses have the format of the guest protocol (`lab::guest_protocol`).

use std::process::{Command, Stdio};

use lab::experiment::BenchError;
use lab::guest_protocol::{Request, decode};
use lab::kernels::in_guest::{KernelsRequest, KernelsResponse};
use lab::kernels::{KernelSample, middle_of_processes};

use super::KernelsObserver;
use crate::spawn::with_reached_limit;

/// Measures the kernels of a request in `request.processes` processes, one after the other. Returns the sample of the
/// middle process for each kernel. After a request to stop, uses the processes that have ended so far.
///
/// `program`: a command that takes the request as an additional argument, executes it and prints the
/// response (the verb `__in-guest`).
///
/// Fails if a process cannot be started, or [`super::measure`] fails in it.
pub fn measure_in_processes(
    request: &KernelsRequest,
    observer: &dyn KernelsObserver,
    program: impl Fn() -> Command,
) -> Result<Vec<KernelSample>, BenchError> {
    let one_process = Request::Kernels(KernelsRequest { processes: 1, ..request.clone() });
    let line = one_process.encode()?;
    let count = request.processes as usize;
    let mut processes = Vec::new();
    for number in 1..=count {
        if observer.stop_requested() {
            break;
        }
        observer.next(number, count, "process");
        match measure_in_process(program().arg(&line)) {
            Ok(samples) => processes.push(samples),
            // Ctrl-C also ends the measuring process, so its error is no failure.
            Err(_) if observer.stop_requested() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(middle_of_processes(processes))
}

fn measure_in_process(command: &mut Command) -> Result<Vec<KernelSample>, BenchError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let output = outputs::output_of_program(command);
    let output = output.map_err(|error| {
        let error = with_reached_limit(error);
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

    /// Requests a stop after this number of questions.
    struct StopAfter(Cell<u32>);

    impl KernelsObserver for StopAfter {
        fn stop_requested(&self) -> bool {
            let questions_left = self.0.get();
            self.0.set(questions_left.saturating_sub(1));
            questions_left == 0
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
