//! Files that a command builds for the values of an axis: a kernel for each commit. `spec` parses the command, and the
//! command line builds a file when the first task needs it. The file of a value is built once for all tasks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use outputs::{MakeDirectoryError, NewDirectory, Reservation};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{SweepError, making};
use crate::files::hash_of_bytes;

/// Stands for the axis's value in the words of the command.
const VALUE: &str = "{value}";
/// Stands for the path of the file that the command must make.
const FILE: &str = "{file}";
/// Name of the built file.
const BUILT_FILE: &str = "file";
/// Name of the record that says how the file was built.
const RECORD_FILE: &str = "build.json";
/// Maximum number of words in the command.
const WORDS_MAX: usize = 100;
/// Hexadecimal digits of the name of a build.
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
    /// Checks the words of a command.
    ///
    /// The error says what is wrong.
    pub(crate) fn check(&self, axes: usize) -> Result<(), String> {
        let lacks = |text: &str| !self.command.iter().any(|word| word.contains(text));
        if self.axis >= axes || self.command.is_empty() || self.command.len() > WORDS_MAX {
            return Err(format!("a command of 1 to {WORDS_MAX} words is allowed for an axis"));
        }
        if lacks(VALUE) || lacks(FILE) {
            return Err(format!(
                "the command needs {VALUE} (the axis's value) and {FILE} (the file that it makes)"
            ));
        }
        Ok(())
    }

    /// The words of the command for a value. The file has no name yet.
    pub(crate) fn words(&self, value: &str) -> Vec<String> {
        self.command.iter().map(|word| word.replace(VALUE, value)).collect()
    }
}

/// The file of one value, with everything that determines it.
#[derive(Clone, Debug)]
pub struct ValueBuild {
    words: Vec<String>,
    directory: PathBuf,
    files: BTreeMap<String, String>,
}

/// Whether a file can be built now.
#[derive(Debug)]
pub enum BuildStart {
    Ready(BuildExecution),
    /// The path of the file, which is built already.
    Done(PathBuf),
    /// Another thread or process builds the file.
    Elsewhere,
}

/// A file that is being built. Dropping it removes what was written.
#[derive(Debug)]
pub struct BuildExecution {
    words: Vec<String>,
    files: BTreeMap<String, String>,
    directory: NewDirectory,
    path: PathBuf,
    /// Keeps others from the build.
    _reservation: Reservation,
}

impl ValueBuild {
    /// `words`: the command for the value. `files`: the files that it names, with their hashes. `parent`: the directory of
    /// all built files.
    pub(crate) fn new(
        words: Vec<String>,
        files: BTreeMap<String, String>,
        parent: &Path,
    ) -> ValueBuild {
        let mut name =
            hash_of_bytes(json!({ "command": words, "files": files }).to_string().as_bytes());
        name.truncate(NAME_DIGITS);
        ValueBuild { directory: parent.join(name), words, files }
    }

    /// Starts to build the file, unless it exists or is being built.
    ///
    /// Fails if the system refuses.
    pub fn start(&self) -> Result<BuildStart, SweepError> {
        let path = &self.directory;
        let done = || BuildStart::Done(path.join(BUILT_FILE));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(SweepError::writing(parent))?;
        }
        let reservation = match Reservation::new(path) {
            Err(MakeDirectoryError::Exists) => return Ok(done()),
            other => other.map_err(making(path))?,
        };
        let Some(reservation) = reservation else { return Ok(BuildStart::Elsewhere) };
        let directory = match NewDirectory::create(path) {
            Err(MakeDirectoryError::Exists) => return Ok(done()),
            other => other.map_err(making(path))?,
        };
        Ok(BuildStart::Ready(BuildExecution {
            words: self.words.clone(),
            files: self.files.clone(),
            directory,
            path: path.clone(),
            _reservation: reservation,
        }))
    }
}

impl BuildExecution {
    /// The words of the command.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let file = self.hidden_file().display().to_string();
        self.words.iter().map(|word| word.replace(FILE, &file)).collect()
    }

    fn hidden_file(&self) -> PathBuf {
        self.directory.hidden_path().join(BUILT_FILE)
    }

    /// Keeps the file after the command has ended well. Returns its path, or why the command has made no file.
    ///
    /// Fails if the system refuses.
    pub fn finish(self) -> Result<Result<PathBuf, String>, SweepError> {
        let file = self.hidden_file();
        let is_made = fs::symlink_metadata(&file)
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        if !is_made {
            return Ok(Err(format!("the build made no file at its {FILE}")));
        }
        // The command may have closed the file without writing it to the disk.
        File::open(&file).and_then(|file| file.sync_all()).map_err(SweepError::writing(&file))?;
        let record = json!({ "command": self.words, "files": self.files });
        let path = self.path;
        let text = format!("{record:#}\n");
        self.directory.write(RECORD_FILE, text.as_bytes()).map_err(making(&path))?;
        match self.directory.finish() {
            // Another machine has built the file, too.
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

    #[test]
    fn a_file_is_built_once_and_stays() {
        let parent = tempfile::tempdir().unwrap();
        let first = build(parent.path(), "a1");
        let execution = started(&first);
        assert!(matches!(first.start().unwrap(), BuildStart::Elsewhere));
        let command = execution.command();
        assert_eq!(command[..3], ["make", "a1", "-o"]);
        fs::write(&command[3], "kernel").unwrap();
        let path = execution.finish().unwrap().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "kernel");
        assert!(matches!(first.start().unwrap(), BuildStart::Done(found) if found == path));
        let other = build(parent.path(), "a2");
        assert!(matches!(other.start().unwrap(), BuildStart::Ready(_)));
    }

    #[test]
    fn a_command_that_makes_no_file_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let build = build(parent.path(), "a1");
        let reason = started(&build).finish().unwrap().unwrap_err();
        assert!(reason.contains("made no file"), "{reason}");
        drop(started(&build));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
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
