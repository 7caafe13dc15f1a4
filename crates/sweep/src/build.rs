//! Files that a command builds for the values of an axis: a kernel for each commit. `spec` parses the command, and the
//! command line builds a file when the first task needs it. The file of a value is built once for all tasks.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{self, Path, PathBuf};

use outputs::{Existing, MakeDirectoryError, NewDirectory};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{SweepError, making};
use crate::files::{hash_of_bytes, hash_of_file, read_bounded};

/// Stands for the axis's value in the words of the command.
const VALUE_PLACEHOLDER: &str = "{value}";
/// Stands for the path of the file that the command must make.
pub(crate) const FILE_PLACEHOLDER: &str = "{file}";
/// Name of the built file in the directory of the value.
const BUILT_FILE: &str = "file";
/// Name of the record that says how the file was built.
const RECORD_FILE: &str = "build.json";
/// Name of the file whose lock a build holds.
const LOCK_FILE: &str = "lock";
/// Maximum number of words in the command.
const BUILD_WORDS_MAX: usize = 100;
/// Maximum size of a record, bytes.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Hexadecimal digits of the name of a value's directory.
const NAME_DIGITS: usize = 16;

/// How the values of an axis become files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Position of the axis.
    pub axis: usize,
    /// The words of the command, which no shell reads. `{value}` is the value, and `{file}` the path of the file to make.
    pub command: Vec<String>,
}

impl Build {
    /// Checks the command and its axis. `axes`: number of axes.
    ///
    /// The error says what is wrong.
    pub(crate) fn check(&self, axes: usize) -> Result<(), String> {
        if self.axis >= axes {
            return Err("there is no such axis".to_owned());
        }
        if self.command.is_empty() || self.command.len() > BUILD_WORDS_MAX {
            return Err(format!("a command has 1 to {BUILD_WORDS_MAX} words"));
        }
        let lacks = |text: &str| !self.command.iter().any(|word| word.contains(text));
        if lacks(VALUE_PLACEHOLDER) || lacks(FILE_PLACEHOLDER) {
            return Err(format!(
                "the command needs {VALUE_PLACEHOLDER} (the axis's value) and {FILE_PLACEHOLDER} (the file that it makes)"
            ));
        }
        Ok(())
    }

    /// The words of the command for a value. `{file}` stays: the path is not known yet.
    pub(crate) fn words(&self, value: &str) -> Vec<String> {
        self.command.iter().map(|word| word.replace(VALUE_PLACEHOLDER, value)).collect()
    }
}

/// The file of one value, with everything that determines it.
#[derive(Clone, Debug)]
pub struct ValueBuild {
    words: Vec<String>,
    /// The directory of the file.
    directory: PathBuf,
    files: BTreeMap<String, String>,
}

/// How a file was built.
#[derive(Serialize, Deserialize)]
struct BuildRecord {
    command: Vec<String>,
    /// The files that the command names, with their hashes.
    files: BTreeMap<String, String>,
    /// SHA-256 of the built file.
    sha256: String,
}

/// Whether a file can be built now.
#[derive(Debug)]
pub enum BuildStart {
    Ready(BuildExecution),
    /// The path of the file, which is built already.
    Done(PathBuf),
    /// Another build of the sweep is under way: of this file, or of another one.
    Busy,
}

/// A file that is being built. Dropping the execution removes what was written.
#[derive(Debug)]
pub struct BuildExecution {
    words: Vec<String>,
    files: BTreeMap<String, String>,
    directory: NewDirectory,
    path: PathBuf,
    lock: File,
}

impl ValueBuild {
    /// `words`: the command for the value. `files`: the files that it names, with their hashes. `parent`: the directory of
    /// all built files.
    pub(crate) fn new(
        words: Vec<String>,
        files: BTreeMap<String, String>,
        parent: &Path,
    ) -> ValueBuild {
        let identity = json!({ "command": words, "files": files }).to_string();
        let mut name = hash_of_bytes(identity.as_bytes());
        name.truncate(NAME_DIGITS);
        ValueBuild { directory: parent.join(name), words, files }
    }

    /// Starts to build the file, unless it exists or a build is under way: a sweep builds one file at a time, because the
    /// commands may work in the same source tree.
    ///
    /// Fails if the file has changed since it was built, or if the system refuses.
    pub fn start(&self) -> Result<BuildStart, SweepError> {
        let path = &self.directory;
        if path.is_dir() {
            return self.built_file().map(BuildStart::Done);
        }
        let Some(lock) = self.lock()? else { return Ok(BuildStart::Busy) };
        let directory = match NewDirectory::create(path) {
            // Built since the look above.
            Err(MakeDirectoryError::Exists) => return self.built_file().map(BuildStart::Done),
            other => other.map_err(making(path))?,
        };
        let (words, files) = (self.words.clone(), self.files.clone());
        Ok(BuildStart::Ready(BuildExecution { words, files, directory, path: path.clone(), lock }))
    }

    /// Locks all builds of the sweep. `None` if a build is under way.
    fn lock(&self) -> Result<Option<File>, SweepError> {
        let parent = self.directory.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(SweepError::writing(parent))?;
        let path = parent.join(LOCK_FILE);
        // The file stays, so that its lock means the same to all.
        match outputs::write(&path, b"", Existing::Stays) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(SweepError::writing(&path)(error));
            }
            _ => {}
        }
        let file = File::open(&path).map_err(SweepError::reading(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(SweepError::writing(&path)(error)),
        }
    }

    /// The path of the built file, after a check that it is the one that was built.
    fn built_file(&self) -> Result<PathBuf, SweepError> {
        let (file, record) = (self.directory.join(BUILT_FILE), self.directory.join(RECORD_FILE));
        let text = read_bounded(&record, RECORD_BYTES_MAX)?;
        let recorded: BuildRecord = serde_json::from_slice(&text)
            .map_err(|error| SweepError::damaged(&record, error.to_string()))?;
        if hash_of_file(&file)?.1 != recorded.sha256 {
            let remedy = format!("remove {}, and it is built again", self.directory.display());
            return Err(SweepError::damaged(
                &file,
                format!("has changed since it was built ({remedy})"),
            ));
        }
        Ok(file)
    }
}

impl BuildExecution {
    /// The words of the command. The path of the file is absolute, so that the command may change its directory.
    ///
    /// Fails if the path is no text.
    pub fn command(&self) -> Result<Vec<String>, SweepError> {
        let file = path::absolute(self.hidden_file()).map_err(SweepError::reading(&self.path))?;
        let Some(file) = file.to_str() else {
            let path = file.display();
            return Err(SweepError::Invalid(format!(
                "{path} is not UTF-8, so no command can name it"
            )));
        };
        Ok(self.words.iter().map(|word| word.replace(FILE_PLACEHOLDER, file)).collect())
    }

    /// An empty file for the command to inherit, as its input for example. No other build starts while any process has it
    /// open: also if irqlab is killed, and the command goes on.
    ///
    /// Fails if the system refuses.
    pub fn lock(&self) -> Result<File, SweepError> {
        self.lock.try_clone().map_err(SweepError::reading(&self.path))
    }

    fn hidden_file(&self) -> PathBuf {
        self.directory.hidden_path().join(BUILT_FILE)
    }

    /// Keeps the file after the command has ended well. Returns its path, or why the command has made no file.
    ///
    /// Fails if the system refuses.
    pub fn finish(self) -> Result<Result<PathBuf, String>, SweepError> {
        let (file, path) = (self.hidden_file(), self.path);
        let made = match fs::symlink_metadata(&file) {
            Err(_) => Err("no file"),
            Ok(metadata) if metadata.is_dir() => Err("a directory"),
            Ok(metadata) if metadata.is_symlink() => Err("a symbolic link"),
            Ok(metadata) if !metadata.is_file() => Err("a special file"),
            Ok(metadata) if metadata.len() == 0 => Err("an empty file"),
            Ok(_) => Ok(()),
        };
        if let Err(what) = made {
            return Ok(Err(format!("the build made {what} at its {FILE_PLACEHOLDER}")));
        }
        // The command may have closed the file without writing it to the disk.
        File::open(&file).and_then(|file| file.sync_all()).map_err(SweepError::writing(&file))?;
        let sha256 = hash_of_file(&file)?.1;
        let record = BuildRecord { command: self.words, files: self.files, sha256 };
        let text = serde_json::to_vec_pretty(&record)
            .map_err(|error| SweepError::damaged(&path, error.to_string()))?;
        self.directory.write(RECORD_FILE, &text).map_err(making(&path))?;
        match self.directory.finish() {
            // Another machine finished the file first.
            Ok(()) | Err(MakeDirectoryError::Exists) => Ok(Ok(path.join(BUILT_FILE))),
            Err(error) => Err(making(&path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(parent: &Path, value: &str) -> ValueBuild {
        let command = ["make", "{value}", "-o", "{file}"].map(str::to_owned).to_vec();
        let build = Build { axis: 0, command };
        build.check(1).unwrap();
        ValueBuild::new(build.words(value), BTreeMap::new(), parent)
    }

    fn started(build: &ValueBuild) -> BuildExecution {
        match build.start().unwrap() {
            BuildStart::Ready(execution) => execution,
            other => panic!("{other:?}"),
        }
    }

    /// The file that a command would make.
    fn file_of(execution: &BuildExecution) -> String {
        let command = execution.command().unwrap();
        assert!(Path::new(&command[3]).is_absolute(), "{command:?}");
        command[3].clone()
    }

    #[test]
    fn a_file_is_built_once_and_no_other_at_the_same_time() {
        let parent = tempfile::tempdir().unwrap();
        let (first, other) = (build(parent.path(), "a1"), build(parent.path(), "a2"));
        let execution = started(&first);
        assert_eq!(execution.command().unwrap()[..3], ["make", "a1", "-o"]);
        assert!(matches!(first.start().unwrap(), BuildStart::Busy));
        assert!(matches!(other.start().unwrap(), BuildStart::Busy));
        fs::write(file_of(&execution), "kernel").unwrap();
        // A process of the command that has not ended.
        let inherited = execution.lock().unwrap();
        let path = execution.finish().unwrap().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "kernel");
        assert!(matches!(first.start().unwrap(), BuildStart::Done(found) if found == path));
        assert!(matches!(other.start().unwrap(), BuildStart::Busy));
        drop(inherited);
        drop(started(&other));
        fs::write(&path, "kernels").unwrap();
        let changed = first.start().unwrap_err().to_string();
        assert!(changed.contains("has changed since it was built (remove "), "{changed}");
    }

    #[test]
    fn a_command_that_makes_no_file_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let build = build(parent.path(), "a1");
        let reason = |make: &dyn Fn(&str)| {
            let execution = started(&build);
            make(&file_of(&execution));
            execution.finish().unwrap().unwrap_err()
        };
        assert!(reason(&|_| {}).contains("made no file at its {file}"));
        assert!(reason(&|path| fs::create_dir(path).unwrap()).contains("a directory"));
        assert!(reason(&|path| fs::write(path, "").unwrap()).contains("an empty file"));
        assert!(
            reason(&|path| std::os::unix::fs::symlink("/", path).unwrap()).contains("symbolic")
        );
        let names: Vec<_> = fs::read_dir(parent.path()).unwrap().flatten().collect();
        assert!(names.iter().all(|entry| entry.file_name() == LOCK_FILE), "{names:?}");
    }

    #[test]
    fn commands_without_a_value_or_a_file_are_refused() {
        let check = |words: &[&str]| {
            let command = words.iter().map(|word| (*word).to_owned()).collect();
            Build { axis: 0, command }.check(1)
        };
        assert_eq!(check(&["make", "{value}", "{file}"]), Ok(()));
        assert!(check(&["make", "{value}"]).unwrap_err().contains("{file}"));
        assert!(check(&["make", "{file}"]).is_err() && check(&[]).is_err());
    }
}
