//! The state of a sweep in numbers, and its failures, for `irqlab sweep status` and `irqlab sweep run`.

use crate::directory::{SweepDirectory, TaskState};
use crate::error::SweepError;
use crate::plan::Task;
use crate::result::Failure;

/// Number of failures whose logs are kept in memory.
const LOGS_MAX: usize = 1_000;

/// Positions of tasks in the plan, by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub done: Vec<usize>,
    pub running: Vec<usize>,
    pub missing: Vec<usize>,
    /// With the reason of each failure. Only the first 1,000 failures have the end of their log.
    pub failed: Vec<(usize, Failure)>,
}

impl Status {
    /// Reads the state of each task from disk. Only the first 1,000 failures have the end of their logs. A failure
    /// whose record disappears in the meantime counts as missing.
    ///
    /// Fails if the sweep cannot be read.
    pub fn read(sweep: &SweepDirectory) -> Result<Status, SweepError> {
        let mut status = Status::default();
        for (index, state) in sweep.states()?.into_iter().enumerate() {
            match state {
                TaskState::Done => status.done.push(index),
                TaskState::Running => status.running.push(index),
                TaskState::Missing => status.missing.push(index),
                TaskState::Failed => match failure_of(sweep, &sweep.plan().tasks[index]) {
                    Some(mut failure) => {
                        if status.failed.len() >= LOGS_MAX {
                            failure.log_end = String::new();
                        }
                        status.failed.push((index, failure));
                    }
                    None => status.missing.push(index),
                },
            }
        }
        Ok(status)
    }
}

/// The record of a task's failure. A damaged record is a failure, too, so that `retry` can remove it.
fn failure_of(sweep: &SweepDirectory, task: &Task) -> Option<Failure> {
    sweep.failure(task).unwrap_or_else(|error| {
        let reason = format!("its record is damaged: {error}");
        let (id, log_end) = (task.id.clone(), String::new());
        Some(Failure { id, exit_code: None, reason, log_end })
    })
}

/// Sorted positions as ranges, as in `0-3,7`. Slurm's `--array` takes this form.
#[must_use]
pub fn index_ranges(indexes: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for index in indexes {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => ranges.push((*index, *index)),
        }
    }
    let text = ranges.iter().map(|(first, last)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
    text.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_become_ranges() {
        assert_eq!(index_ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(index_ranges(&[]), "");
    }
}
