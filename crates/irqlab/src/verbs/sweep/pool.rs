//! Executes many tasks, several at the same time, and reports their progress.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use live::window::Stop;
use sweep::{Recorded, SweepDirectory};

use super::execute::{Outcome, execute};
use super::values_text;
use crate::console::{self, rounded};
use crate::parallel::for_each;

/// Least time between two progress lines.
const LINES_APART: Duration = Duration::from_secs(1);
/// Sweeps with at most this number of tasks have a line for each task.
const EACH_TASK_MAX: usize = 100;

/// Numbers of tasks by the way that they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub done: usize,
    pub failed: usize,
    /// Another process executes them.
    pub elsewhere: usize,
    /// The sweep was stopped before their end.
    pub stopped: usize,
}

/// The tasks of a pool.
pub struct Pool<'a> {
    pub sweep: &'a SweepDirectory,
    /// Positions of the tasks in the plan.
    pub tasks: &'a [usize],
    /// Tasks at the same time, at least 1.
    pub jobs: usize,
    /// More options for each task, which do not change the results.
    pub options: &'a [String],
    pub stop: &'a Stop,
}

/// The state that the threads of a pool share.
struct Progress {
    counts: Counts,
    started: Instant,
    last_line: Option<Instant>,
    error: Option<anyhow::Error>,
}

impl Pool<'_> {
    /// Executes the tasks.
    ///
    /// Fails if the system refuses to start or record a task. Tasks that are running then still end.
    pub fn execute(&self) -> anyhow::Result<Counts> {
        let progress = Mutex::new(Progress {
            counts: Counts::default(),
            started: Instant::now(),
            last_line: None,
            error: None,
        });
        for_each(self.tasks.len(), self.jobs, |position| {
            let index = self.tasks[position];
            let outcome = self.execute_task(index);
            let next = self.record_outcome(&progress, index, outcome);
            if self.stop.is_requested() { ControlFlow::Break(()) } else { next }
        })?;
        let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        match progress.error {
            Some(error) => Err(error),
            None => Ok(progress.counts),
        }
    }

    fn execute_task(&self, index: usize) -> anyhow::Result<Outcome> {
        execute(self.sweep, &self.sweep.plan().tasks[index], self.options, self.stop)
    }

    /// Counts the outcome of a task, and prints the progress. After a failed task the others go on. After an error of the
    /// system, and after a stop, no further task may start; the first error is kept for the end.
    fn record_outcome(
        &self,
        progress: &Mutex<Progress>,
        index: usize,
        outcome: anyhow::Result<Outcome>,
    ) -> ControlFlow<()> {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                progress.error.get_or_insert(error);
                return ControlFlow::Break(());
            }
        };
        let task = &self.sweep.plan().tasks[index];
        let name = format!("task {index} ({})", values_text(self.sweep.plan(), task));
        match outcome {
            Outcome::Stopped => {
                progress.counts.stopped += 1;
                return ControlFlow::Break(());
            }
            Outcome::Elsewhere => progress.counts.elsewhere += 1,
            Outcome::WasDone | Outcome::Recorded(Recorded::Result) => progress.counts.done += 1,
            Outcome::Recorded(Recorded::OtherResult { is_equal }) => {
                progress.counts.done += 1;
                let tables = if is_equal { "equal tables" } else { "other tables" };
                console::say(&format!(
                    "{name} was also executed by another process, with {tables}; the first result is kept"
                ));
            }
            Outcome::Recorded(Recorded::Failure(failure)) => {
                progress.counts.failed += 1;
                console::warn(&format!("{name} failed: {}", failure.reason));
            }
        }
        self.print_progress(&mut progress, &name);
        ControlFlow::Continue(())
    }

    /// Prints a line with the tasks that have ended and a forecast. In sweeps of more than [`EACH_TASK_MAX`] tasks, prints at
    /// most one line per [`LINES_APART`], and always the last one.
    fn print_progress(&self, progress: &mut Progress, name: &str) {
        let now = Instant::now();
        let Counts { done, failed, elsewhere, stopped } = progress.counts;
        let ended = done + failed + elsewhere + stopped;
        let is_early =
            progress.last_line.is_some_and(|line| now.duration_since(line) < LINES_APART);
        let is_last = ended == self.tasks.len();
        if is_early && !is_last && self.tasks.len() > EACH_TASK_MAX {
            return;
        }
        progress.last_line = Some(now);
        let elapsed = now.duration_since(progress.started).as_secs_f64();
        let remaining_s = elapsed / ended as f64 * (self.tasks.len() - ended) as f64;
        let remaining = Duration::try_from_secs_f64(remaining_s).unwrap_or(Duration::MAX);
        let forecast =
            if is_last { String::new() } else { format!(", about {} left", rounded(remaining)) };
        let tasks = self.tasks.len();
        console::say(&format!("{ended} of {tasks}: {name}; {failed} failed{forecast}"));
    }
}
