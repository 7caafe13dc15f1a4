//! Records of executed tasks: the manifest of a result, and the reason of a failure. `execution` writes them;
//! `directory`, `merge` and `status` read them.

use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::SweepError;
use crate::files::{hash_of_bytes, hash_of_file, open_regular, read_bounded};
use crate::plan::TaskId;

/// Name of the manifest in the directory of a result.
pub(crate) const RESULT_FILE: &str = "task.json";
/// Name of the record in the directory of a failure.
pub(crate) const FAILURE_FILE: &str = "failure.json";
/// Name of the file with the output of a task.
pub(crate) const LOG_FILE: &str = "log.txt";
/// Name of the run directory in the directory of a result.
pub(crate) const RUN: &str = "run";

/// Version of the format of a manifest.
const SCHEMA: &str = "irqlab.sweep-task/1";
/// Maximum size of a record, bytes.
const RECORD_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of files in a result.
const FILES_MAX: usize = 4_096;
/// Maximum nesting of directories in a result.
const DEPTH_MAX: usize = 4;
/// Bytes at the end of a log that a failure keeps.
const LOG_END_BYTES: u64 = 16 << 10;
/// Maximum length of a reason, characters.
const REASON_CHARS_MAX: usize = 400;

/// A file of a result, as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ListedFile {
    /// Path from the directory of the result.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// States what a task was and which files are its result. A result that was edited does not match its manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResultManifest {
    pub schema: String,
    pub id: TaskId,
    pub version: String,
    pub arguments: Vec<String>,
    pub exit_code: i32,
    /// `None` in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<TaskCost>,
    /// All files except the manifest, sorted by path.
    pub files: Vec<ListedFile>,
}

/// The time of a task's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCost {
    /// From the start of the task's process to its end.
    pub wall_time_ns: u64,
    /// CPU time of the task's process and of all processes that it waited for. `None`: it could not be read.
    pub cpu_time_ns: Option<u64>,
}

impl ResultManifest {
    /// The manifest of the files in `directory`, with their checksums.
    ///
    /// Fails if a file is not regular or cannot be read, or if there are too many files or levels of directories.
    pub fn new(
        directory: &Path,
        id: &TaskId,
        version: &str,
        arguments: Vec<String>,
        exit_code: i32,
        cost: TaskCost,
    ) -> Result<ResultManifest, SweepError> {
        let (schema, version) = (SCHEMA.to_owned(), version.to_owned());
        let (files, cost) = (listed_files(directory)?, Some(cost));
        Ok(ResultManifest { schema, id: id.clone(), version, arguments, exit_code, cost, files })
    }

    /// Reads the manifest in `directory`. Does not check the listed files.
    ///
    /// Fails if there is none, if it is damaged, or if another version of irqlab wrote it in another format.
    pub fn read(directory: &Path) -> Result<ResultManifest, SweepError> {
        let path = directory.join(RESULT_FILE);
        let manifest: ResultManifest =
            serde_json::from_slice(&read_bounded(&path, RECORD_BYTES_MAX)?)
                .map_err(|error| SweepError::damaged(&path, error.to_string()))?;
        if manifest.schema != SCHEMA {
            let reason = format!("schema {:?}; this version reads {SCHEMA}", manifest.schema);
            return Err(SweepError::damaged(&path, reason));
        }
        Ok(manifest)
    }

    /// Fails if `directory` does not have exactly the listed files with their checksums; names the first other file.
    pub fn check(&self, directory: &Path) -> Result<(), SweepError> {
        let found = listed_files(directory)?;
        let differs = |file: &&ListedFile| !found.contains(file);
        if let Some(file) = self.files.iter().find(differs) {
            let path = directory.join(&file.path);
            let exists = found.iter().any(|present| present.path == file.path);
            let reason = if exists { "was edited: its checksum differs" } else { "is missing" };
            return Err(SweepError::damaged(&path, format!("{reason} (see {RESULT_FILE})")));
        }
        match found.iter().find(|file| !self.files.contains(file)) {
            None => Ok(()),
            Some(file) => {
                let reason = format!("was added after the task ended (see {RESULT_FILE})");
                Err(SweepError::damaged(&directory.join(&file.path), reason))
            }
        }
    }

    /// A hash of the tables. Two executions of a task have equal results if this hash is equal. Start times and logs do
    /// not enter the hash.
    pub fn tables_hash(&self) -> String {
        let start = format!("{RUN}/tables/");
        let tables = self.files.iter().filter(|file| file.path.starts_with(&start));
        let lines: Vec<String> =
            tables.map(|file| format!("{} {}\n", file.sha256, file.path)).collect();
        hash_of_bytes(lines.concat().as_bytes())
    }
}

/// All files of a result except its manifest.
fn listed_files(directory: &Path) -> Result<Vec<ListedFile>, SweepError> {
    let mut files = Vec::new();
    collect_files(directory, "", 0, &mut files)?;
    files.retain(|file| file.path != RESULT_FILE);
    files.sort();
    Ok(files)
}

/// Adds the regular files in `directory` and below it. `start`: the path of `directory`, with which names begin.
fn collect_files(
    directory: &Path,
    start: &str,
    depth: usize,
    files: &mut Vec<ListedFile>,
) -> Result<(), SweepError> {
    for entry in fs::read_dir(directory).map_err(SweepError::reading(directory))? {
        let entry = entry.map_err(SweepError::reading(directory))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(SweepError::reading(&path))?;
        let name = format!("{start}{}", entry.file_name().to_string_lossy());
        if files.len() >= FILES_MAX || depth > DEPTH_MAX {
            let reason = format!("more than {FILES_MAX} files, or directories too deep");
            return Err(SweepError::damaged(directory, reason));
        }
        if kind.is_dir() {
            collect_files(&path, &format!("{name}/"), depth + 1, files)?;
        } else if kind.is_file() {
            let (bytes, sha256) = hash_of_file(&path)?;
            files.push(ListedFile { path: name, bytes, sha256 });
        } else {
            return Err(SweepError::damaged(&path, "is not a regular file"));
        }
    }
    Ok(())
}

/// Why an execution failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub id: TaskId,
    /// The exit code, or `None` if a signal ended irqlab.
    pub exit_code: Option<i32>,
    /// How the execution ended, and the last line of its log.
    pub reason: String,
    /// The last lines of the log.
    pub log_end: String,
}

impl Failure {
    /// Describes a failure. `ending`: how the execution ended, such as `exit code 2`. `log`: the file with its output.
    pub(crate) fn new(id: &TaskId, exit_code: Option<i32>, ending: &str, log: &Path) -> Failure {
        let log_end = end_of(log);
        let reason = match telling_line(&log_end) {
            Some(line) => format!("{ending}: {}", line.trim()),
            None => ending.to_owned(),
        };
        let reason = reason.chars().take(REASON_CHARS_MAX).collect();
        Failure { id: id.clone(), exit_code, reason, log_end }
    }

    /// Reads the record of a failure in `directory`. `None` if there is no record.
    ///
    /// Fails if the record is damaged or cannot be read.
    pub(crate) fn read(directory: &Path) -> Result<Option<Failure>, SweepError> {
        let path = directory.join(FAILURE_FILE);
        if matches!(fs::symlink_metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound)
        {
            return Ok(None);
        }
        let bytes = read_bounded(&path, RECORD_BYTES_MAX)?;
        let failure = serde_json::from_slice(&bytes);
        failure.map(Some).map_err(|error| SweepError::damaged(&path, error.to_string()))
    }
}

/// The last error or warning of a log, or else its last line. `None` if the log is empty. The line that names the run's
/// directory does not count, because that directory does not stay.
fn telling_line(log: &str) -> Option<&str> {
    let mut lines = log.lines().rev().filter(|line| !line.trim().is_empty());
    let error = lines.clone().find(|line| line.starts_with("irqlab: "));
    error.or_else(|| lines.find(|line| !line.starts_with("run: ")))
}

/// The end of a log. Empty if the log cannot be read: the failure itself is the error to report.
fn end_of(log: &Path) -> String {
    let read = || -> Option<Vec<u8>> {
        let mut file = open_regular(log).ok()?;
        let bytes = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_END_BYTES))).ok()?;
        let mut end = Vec::new();
        file.take(LOG_END_BYTES).read_to_end(&mut end).ok()?;
        Some(end)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: TaskCost = TaskCost { wall_time_ns: 3, cpu_time_ns: Some(2) };

    fn id() -> TaskId {
        serde_json::from_str("\"0123456789abcdef\"").unwrap()
    }

    #[test]
    fn a_result_that_was_edited_does_not_match_its_manifest() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("run/tables")).unwrap();
        fs::write(path("run/tables/a.parquet"), "1").unwrap();
        fs::write(path("log.txt"), "x").unwrap();
        let manifest =
            ResultManifest::new(directory.path(), &id(), "0.1.0", Vec::new(), 0, COST).unwrap();
        fs::write(path(RESULT_FILE), serde_json::to_vec(&manifest).unwrap()).unwrap();
        let read = ResultManifest::read(directory.path()).unwrap();
        assert_eq!(read, manifest);
        read.check(directory.path()).unwrap();
        let error = || read.check(directory.path()).unwrap_err().to_string();
        fs::write(path("run/tables/a.parquet"), "2").unwrap();
        assert!(error().contains("a.parquet: was edited"), "{}", error());
        fs::write(path("run/tables/a.parquet"), "1").unwrap();
        fs::write(path("run/extra"), "").unwrap();
        assert!(error().contains("was added"), "{}", error());
        fs::remove_file(path("run/extra")).unwrap();
        fs::remove_file(path("log.txt")).unwrap();
        assert!(error().contains("log.txt: is missing"), "{}", error());
        std::os::unix::fs::symlink("/dev/zero", path("log.txt")).unwrap();
        assert!(error().contains("not a regular file"), "{}", error());
    }

    #[test]
    fn errors_of_irqlab_tell_more_than_other_lines() {
        assert_eq!(telling_line("a\nirqlab: why\nb\n"), Some("irqlab: why"));
        assert_eq!(telling_line("a\nb\n\nrun: x\n"), Some("b"));
        assert_eq!(telling_line("\n"), None);
    }

    #[test]
    fn a_failure_has_the_last_line_of_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log.txt");
        fs::write(&log, "one\n".repeat(10_000) + "why\n\n").unwrap();
        let failure = Failure::new(&id(), Some(2), "exit code 2", &log);
        assert_eq!(failure.reason, "exit code 2: why");
        assert_eq!(failure.log_end.len() as u64, LOG_END_BYTES);
        assert_eq!(Failure::read(directory.path()).unwrap(), None);
        fs::write(directory.path().join(FAILURE_FILE), serde_json::to_vec(&failure).unwrap())
            .unwrap();
        assert_eq!(Failure::read(directory.path()).unwrap(), Some(failure));
        let unread = Failure::new(&id(), None, "signal 9", Path::new("/dev/zero"));
        assert_eq!((unread.reason.as_str(), unread.log_end.as_str()), ("signal 9", ""));
    }
}
