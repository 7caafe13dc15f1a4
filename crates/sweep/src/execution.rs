//! One execution of a task: from a free name to a recorded result or a recorded failure.
//!
//! The caller starts irqlab with `--out` [`Execution::run_path`] and its output in [`Execution::open_log`]. Until
//! [`Execution::finish`], everything is in a hidden directory that is removed if the execution does not finish. So an
//! execution that is killed leaves nothing that counts.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;

use outputs::{MakeDirectoryError, NewDirectory, Reservation};
use record::StoredRun;

use crate::directory::SweepDirectory;
use crate::error::{SweepError, making};
use crate::plan::{Task, TaskId};
use crate::result::{FAILURE_FILE, Failure, LOG_FILE, RESULT_FILE, RUN, ResultManifest, TaskCost};

/// Whether a task can be executed now.
#[derive(Debug)]
pub enum Start {
    Ready(Box<Execution>),
    /// The result is recorded already.
    Done,
    /// Another process on this machine executes the task.
    Elsewhere,
}

/// How the process of a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    Exited(i32),
    KilledBySignal(i32),
}

/// The record that an execution left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    Result,
    /// Another process recorded the result first. Its tables are equal, or differ, as in two measurements.
    OtherResult {
        is_equal: bool,
    },
    Failure(Failure),
}

/// A task that is being executed. Dropping it removes everything that was written.
#[derive(Debug)]
pub struct Execution {
    id: TaskId,
    version: String,
    arguments: Vec<String>,
    directory: NewDirectory,
    result_path: PathBuf,
    failure_path: PathBuf,
    /// Keeps other processes of this machine from the task.
    _reservation: Reservation,
}

impl Execution {
    /// Starts an execution, unless the result exists or another process of this machine executes the task. Two machines
    /// with a shared directory may execute a task at the same time; the first result is kept.
    ///
    /// Fails if the system refuses.
    pub fn start(sweep: &SweepDirectory, task: &Task) -> Result<Start, SweepError> {
        let path = sweep.task_path(&task.id);
        let reservation = match Reservation::new(&path) {
            Err(MakeDirectoryError::Exists) => return Ok(Start::Done),
            other => other.map_err(making(&path))?,
        };
        let Some(reservation) = reservation else { return Ok(Start::Elsewhere) };
        let directory = match NewDirectory::create(&path) {
            Err(MakeDirectoryError::Exists) => return Ok(Start::Done),
            other => other.map_err(making(&path))?,
        };
        directory.write(LOG_FILE, b"").map_err(making(&path))?;
        Ok(Start::Ready(Box::new(Execution {
            id: task.id.clone(),
            version: sweep.plan().version.clone(),
            arguments: sweep.plan().arguments(&task.values),
            directory,
            result_path: path,
            failure_path: sweep.failure_path(&task.id),
            _reservation: reservation,
        })))
    }

    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The run directory that the task must write.
    #[must_use]
    pub fn run_path(&self) -> PathBuf {
        self.directory.hidden_path().join(RUN)
    }

    /// Opens the log for the task's output.
    ///
    /// Fails if the system refuses.
    pub fn open_log(&self) -> Result<File, SweepError> {
        let path = self.log_path();
        OpenOptions::new().append(true).open(&path).map_err(SweepError::writing(&path))
    }

    fn log_path(&self) -> PathBuf {
        self.directory.hidden_path().join(LOG_FILE)
    }

    /// Records the result, or the failure. `recorded_codes`: exit codes with which irqlab has recorded a whole run. A task
    /// failed if a signal killed it, if it has another exit code, or if its run is absent or incomplete.
    ///
    /// Fails if the system refuses.
    pub fn finish(
        self,
        end: TaskEnd,
        recorded_codes: &[i32],
        cost: TaskCost,
    ) -> Result<Recorded, SweepError> {
        match self.failure_of(end, recorded_codes) {
            Some(failure) => self.record_failure(failure),
            None => {
                let code = match end {
                    TaskEnd::Exited(code) => code,
                    TaskEnd::KilledBySignal(signal) => 128 + signal,
                };
                self.record_result(code, cost)
            }
        }
    }

    /// Records a failure before the task started. `exit_code`: of the command that failed instead; `None` if there was none.
    ///
    /// Fails if the system refuses.
    pub fn finish_failed(
        self,
        exit_code: Option<i32>,
        reason: &str,
    ) -> Result<Recorded, SweepError> {
        let failure = Failure::new(&self.id, exit_code, reason, &self.log_path());
        self.record_failure(failure)
    }

    /// Why the execution failed. `None` if it left a complete run.
    fn failure_of(&self, end: TaskEnd, recorded_codes: &[i32]) -> Option<Failure> {
        let failure =
            |code, ending: &str| Some(Failure::new(&self.id, code, ending, &self.log_path()));
        let code = match end {
            TaskEnd::KilledBySignal(signal) => {
                return failure(None, &format!("killed by signal {signal}"));
            }
            TaskEnd::Exited(code) => code,
        };
        if !recorded_codes.contains(&code) {
            return failure(Some(code), &format!("exit code {code}"));
        }
        match StoredRun::open(&self.run_path()) {
            Ok(run) if run.outline().complete => None,
            Ok(_) => failure(Some(code), "its run is incomplete"),
            Err(error) => failure(Some(code), &format!("it left no run ({error})")),
        }
    }

    /// Writes the record of a failure. An earlier record, as of another machine, stays.
    fn record_failure(self, failure: Failure) -> Result<Recorded, SweepError> {
        let path = &self.failure_path;
        let text = serde_json::to_vec_pretty(&failure)
            .map_err(|error| SweepError::damaged(path, error.to_string()))?;
        let directory = match NewDirectory::create(path) {
            // Another machine executed the task, too, and recorded its failure.
            Err(MakeDirectoryError::Exists) if path.join(FAILURE_FILE).exists() => {
                return Ok(Recorded::Failure(failure));
            }
            // A killed `retry` left it.
            Err(MakeDirectoryError::Exists) => {
                std::fs::remove_dir_all(path).map_err(SweepError::writing(path))?;
                NewDirectory::create(path).map_err(making(path))?
            }
            other => other.map_err(making(path))?,
        };
        directory.write(LOG_FILE, failure.log_end.as_bytes()).map_err(making(path))?;
        directory.write(FAILURE_FILE, &text).map_err(making(path))?;
        match directory.finish() {
            Ok(()) | Err(MakeDirectoryError::Exists) => Ok(Recorded::Failure(failure)),
            Err(error) => Err(making(path)(error)),
        }
    }

    /// Completes the directory of the result. If another process was faster, its result stays, and this one is dropped.
    fn record_result(self, exit_code: i32, cost: TaskCost) -> Result<Recorded, SweepError> {
        let path = self.result_path;
        let hidden = self.directory.hidden_path();
        let manifest =
            ResultManifest::new(&hidden, &self.id, &self.version, self.arguments, exit_code, cost)?;
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| SweepError::damaged(&path, error.to_string()))?;
        self.directory.write(RESULT_FILE, &text).map_err(making(&path))?;
        match self.directory.finish() {
            Ok(()) => Ok(Recorded::Result),
            Err(MakeDirectoryError::Exists) => {
                let recorded = ResultManifest::read(&path)?;
                let is_equal = recorded.tables_hash() == manifest.tables_hash();
                Ok(Recorded::OtherResult { is_equal })
            }
            Err(error) => Err(making(&path)(error)),
        }
    }
}
