//! The directory of a sweep: `sweep.json` with the plan, `tasks/ID` for each result, `failed/ID` for each failure.
//! `irqlab sweep plan` makes it; all other verbs of `irqlab sweep` open it, some at the same time on several machines.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use outputs::NewDirectory;

use crate::build::ValueBuild;
use crate::error::{SweepError, making};
use crate::files::{FileHashes, read_bounded};
use crate::plan::{PLAN_BYTES_MAX, Plan, SCHEMA, Task, TaskId};
use crate::result::{FAILURE_FILE, Failure};

/// Name of the file with the plan.
const PLAN_FILE: &str = "sweep.json";
/// Name of the directory of results.
const TASKS: &str = "tasks";
/// Name of the directory of failures.
const FAILED: &str = "failed";
/// Name of the directory of built files.
const BUILT: &str = "built";

/// The directory of a sweep: its plan, its tasks' results and its tasks' failures.
#[derive(Debug)]
pub struct SweepDirectory {
    path: PathBuf,
    plan: Plan,
}

/// The state of a task on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The result is recorded.
    Done,
    /// The last execution failed, and nobody has asked for another one.
    Failed,
    /// A process of this user executes the task now.
    Running,
    /// The task has neither a result nor a failure, and no process of this user executes it.
    Missing,
}

impl SweepDirectory {
    /// Writes a new directory with a plan and without results.
    ///
    /// Fails if something of that name exists, or the system refuses.
    pub fn create(path: &Path, plan: &Plan) -> Result<(), SweepError> {
        let text = serde_json::to_vec(plan)
            .map_err(|error| SweepError::Invalid(format!("the plan: {error}")))?;
        if text.len() as u64 > PLAN_BYTES_MAX {
            return Err(SweepError::Invalid(format!(
                "the plan has more than {PLAN_BYTES_MAX} bytes"
            )));
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(SweepError::writing(parent))?;
        }
        let directory = NewDirectory::create(path).map_err(making(path))?;
        for name in [TASKS, FAILED] {
            directory.create_directory(name).map_err(making(path))?;
        }
        directory.write(PLAN_FILE, &text).map_err(making(path))?;
        directory.finish().map_err(making(path))
    }

    /// Reads the plan of a sweep.
    ///
    /// Fails if the directory is no sweep, or its plan is damaged.
    pub fn open(path: &Path) -> Result<SweepDirectory, SweepError> {
        let file = path.join(PLAN_FILE);
        if matches!(fs::metadata(&file), Err(error) if error.kind() == ErrorKind::NotFound) {
            let path = path.display();
            return Err(SweepError::Invalid(format!(
                "{path} is not a sweep: it has no {PLAN_FILE} (irqlab sweep plan makes a sweep)"
            )));
        }
        let bytes = read_bounded(&file, PLAN_BYTES_MAX)?;
        let damaged = |reason: String| SweepError::damaged(&file, reason);
        let schema: SchemaOnly =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if schema.schema != SCHEMA {
            return Err(damaged(format!(
                "schema {:?}; this version reads {SCHEMA}",
                schema.schema
            )));
        }
        let plan: Plan =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        plan.check().map_err(damaged)?;
        Ok(SweepDirectory { path: path.to_owned(), plan })
    }

    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of a task's result. It exists only if the result is recorded.
    #[must_use]
    pub fn task_path(&self, id: &TaskId) -> PathBuf {
        self.path.join(TASKS).join(id.as_str())
    }

    /// How the file of a task is built. `None` if the plan builds no files.
    #[must_use]
    pub fn build_of(&self, task: &Task) -> Option<ValueBuild> {
        self.plan.value_build(task, &self.path.join(BUILT))
    }

    pub(crate) fn failure_path(&self, id: &TaskId) -> PathBuf {
        self.path.join(FAILED).join(id.as_str())
    }

    /// Whether the result of a task is recorded. Does not check the result: `merge` does.
    #[must_use]
    pub fn is_done(&self, task: &Task) -> bool {
        self.task_path(&task.id).is_dir()
    }

    /// Why the last execution of a task failed. `None` if it did not fail.
    ///
    /// Fails if the record of the failure cannot be read.
    pub fn failure(&self, task: &Task) -> Result<Option<Failure>, SweepError> {
        Failure::read(&self.failure_path(&task.id))
    }

    /// The state of each task, in the order of the plan. A result counts before all others; a running execution counts
    /// before an earlier failure. An unfinished directory counts as running, unless a dead process of this user left it.
    ///
    /// Fails if a directory of the sweep cannot be read.
    pub fn states(&self) -> Result<Vec<TaskState>, SweepError> {
        let tasks = names_in(&self.path.join(TASKS))?;
        let failed = names_in(&self.path.join(FAILED))?;
        let unused: HashSet<PathBuf> =
            outputs::leftovers(&self.path.join(TASKS)).into_iter().collect();
        let mut running = HashSet::new();
        for name in &tasks {
            let id = name.to_str().and_then(|name| name.strip_prefix('.')?.split_once(".partial-"));
            if let Some((id, _)) = id
                && !unused.contains(&self.path.join(TASKS).join(name))
            {
                running.insert(id.to_owned());
            }
        }
        let state = |task: &Task| {
            let id = task.id.as_str();
            if tasks.contains(&OsString::from(id)) {
                TaskState::Done
            } else if running.contains(id) {
                TaskState::Running
            } else if failed.contains(&OsString::from(id))
                && self.failure_path(&task.id).join(FAILURE_FILE).exists()
            {
                TaskState::Failed
            } else {
                TaskState::Missing
            }
        };
        Ok(self.plan.tasks.iter().map(state).collect())
    }

    /// Removes what killed executions left in the directories of results, failures and built files. Files of running
    /// executions stay. Returns the number of removed directories.
    pub fn remove_leftovers(&self) -> usize {
        outputs::remove_leftovers(&self.path.join(TASKS)).len()
            + outputs::remove_leftovers(&self.path.join(FAILED)).len()
            + outputs::remove_leftovers(&self.path.join(BUILT)).len()
    }

    /// Removes the record of a task's failure, so that the task is missing again. Does nothing if there is no record.
    ///
    /// Fails if the system refuses.
    pub fn forget_failure(&self, task: &Task) -> Result<(), SweepError> {
        let directory = self.failure_path(&task.id);
        // Without this file the rest counts as absent.
        let path = directory.join(FAILURE_FILE);
        unless_absent(fs::remove_file(&path)).map_err(SweepError::writing(&path))?;
        unless_absent(fs::remove_dir_all(&directory)).map_err(SweepError::writing(&directory))
    }

    /// Fails if another version of irqlab than `version` planned the tasks: it may execute them in another way.
    pub fn check_version(&self, version: &str) -> Result<(), SweepError> {
        if self.plan.version == version {
            return Ok(());
        }
        Err(SweepError::Invalid(format!(
            "{} was planned by irqlab {}, and this is {version} (use that version, or plan the sweep again)",
            self.path.display(),
            self.plan.version
        )))
    }

    /// Checks before an execution that the task is still the planned one: its id is the hash of its plan, and the files
    /// that its words name have their contents of that time. `hashes` remembers the hashes for later tasks.
    ///
    /// Fails with the first file that is new, changed or absent.
    pub fn check_task(&self, task: &Task, hashes: &mut FileHashes) -> Result<(), SweepError> {
        self.plan
            .check_id(task)
            .map_err(|reason| SweepError::damaged(&self.path.join(PLAN_FILE), reason))?;
        let present = self.plan.present_files(task, hashes)?;
        if let Some(path) = present.keys().find(|path| !self.plan.files.contains_key(*path)) {
            return Err(SweepError::Invalid(format!(
                "{path} was not there when the sweep was planned (plan another sweep)"
            )));
        }
        for (path, hash) in self.plan.files_of(task) {
            let reason = match present.get(&path) {
                Some(present_hash) if *present_hash == hash => continue,
                Some(_) => {
                    "has changed since the sweep was planned (plan another sweep)".to_owned()
                }
                None => {
                    format!(
                        "is not there (the sweep was planned in the directory {})",
                        self.plan.directory
                    )
                }
            };
            return Err(SweepError::Invalid(format!("{path} {reason}")));
        }
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct SchemaOnly {
    schema: String,
}

/// The result of a removal. A file that is already absent is no error.
fn unless_absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Names in a directory. Empty if the directory does not exist: git and some copies leave out empty directories.
fn names_in(directory: &Path) -> Result<HashSet<OsString>, SweepError> {
    let mut names = HashSet::new();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
        entries => entries.map_err(SweepError::reading(directory))?,
    };
    for entry in entries {
        names.insert(entry.map_err(SweepError::reading(directory))?.file_name());
    }
    Ok(names)
}
