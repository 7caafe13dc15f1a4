//! Result files outside of runs: whole, or not there.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// What becomes of a file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and nothing is written.
    Stays,
    /// The new one takes its place.
    Replaced,
}

/// Writes the file under a hidden name next to its place, makes it durable, and gives it its name: a full disk or
/// a killed process leaves no half of it there.
pub fn write(path: &Path, contents: &[u8], existing: Existing) -> io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?;
    let hidden = format!(".{}.{}", name.to_string_lossy(), std::process::id());
    let hidden = path.with_file_name(hidden);
    let written = File::create_new(&hidden)
        .and_then(|mut file| file.write_all(contents).and_then(|()| file.sync_all()))
        .and_then(|()| match existing {
            Existing::Replaced => fs::rename(&hidden, path),
            Existing::Stays => rename_to_new(&hidden, path),
        });
    if written.is_err() {
        // The error that led here is the one to report.
        let _ = fs::remove_file(&hidden);
    }
    written
}

/// A link never replaces a file, unlike a new name.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            // Some file systems have no links.
            if to.symlink_metadata().is_ok() {
                return Err(ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        Err(error) => Err(error),
        Ok(()) => fs::remove_file(from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &Path) -> Vec<String> {
        let entries = fs::read_dir(of).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_written_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("one.svg");
        write(&file, b"one", Existing::Stays).unwrap();
        assert_eq!(
            (fs::read(&file).unwrap(), names(directory.path())),
            (b"one".into(), vec!["one.svg".to_owned()])
        );
        let error = write(&file, b"two", Existing::Stays).unwrap_err();
        assert_eq!(
            (error.kind(), fs::read(&file).unwrap()),
            (ErrorKind::AlreadyExists, b"one".into())
        );
        write(&file, b"two", Existing::Replaced).unwrap();
        assert_eq!(
            (fs::read(&file).unwrap(), names(directory.path())),
            (b"two".into(), vec!["one.svg".to_owned()])
        );
    }

    #[test]
    fn what_cannot_be_finished_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        // The name is taken by a directory: writing succeeds, and giving it the name does not.
        fs::create_dir(directory.path().join("taken")).unwrap();
        let taken = directory.path().join("taken");
        for existing in [Existing::Stays, Existing::Replaced] {
            write(&taken, b"x", existing).unwrap_err();
            assert_eq!(names(directory.path()), ["taken"]);
        }
    }
}
