//! Finds and removes partly filled directories ([`crate::NewDirectory`]) that a killed process left. irqlab does so
//! at its start, in the directory of its runs and in the directory for temporary files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;

use crate::directory::{open_below, remove};
use crate::place::open_directory;

/// The part of a hidden name after the target's name: `.NAME.partial-PID-NUMBER`. The number is unpredictable.
const NAME_MARK: &str = ".partial-";
/// Maximum length of the target's name in a hidden name, bytes: file systems allow names of 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// Returns the hidden name under which this process fills the directory `name`.
pub(crate) fn hidden_name(name: &OsStr, number: u64) -> OsString {
    let bytes = name.as_bytes();
    let mut hidden = OsString::from(".");
    hidden.push(OsStr::from_bytes(&bytes[..bytes.len().min(NAME_BYTES_MAX)]));
    hidden.push(format!("{NAME_MARK}{}-{number:016x}", process::id()));
    hidden
}

/// Returns the unfinished directories of this user in `parent` that no process fills any more.
#[must_use]
pub fn leftovers(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut found: Vec<_> = names
        .filter(|name| open_leftover(parent, name).is_some())
        .map(|name| parent.join(name))
        .collect();
    found.sort();
    found
}

/// Removes the directories that [`leftovers`] finds. Returns the removed ones.
pub fn remove_leftovers(parent: &Path) -> Vec<PathBuf> {
    let is_removed = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| remove_leftover(parent, name).is_ok_and(|is_removed| is_removed))
    };
    leftovers(parent).into_iter().filter(is_removed).collect()
}

/// Removes an unfinished directory in `parent` that no process fills any more. Returns whether there was one.
///
/// Fails if `parent` cannot be opened, or a file in the directory cannot be removed.
pub fn remove_leftover(parent: &Path, name: &OsStr) -> io::Result<bool> {
    // The lock is held until the directory is gone.
    let Some(directory) = open_leftover(parent, name) else { return Ok(false) };
    remove(&open_directory(parent)?, name, &directory)?;
    Ok(true)
}

/// Opens and locks an unfinished directory of this user. `None` if there is no such directory, or if a process still
/// fills it: that process holds the directory's lock.
///
/// On a file system without locks, the process in the name must not run. Its id may be the id of this process, because
/// ids are reused, in containers quickly.
fn open_leftover(parent: &Path, name: &OsStr) -> Option<File> {
    let pid = process_id_in_name(name)?;
    let directory = open_below(&open_directory(parent).ok()?, name).ok()?;
    let directory = File::from(directory);
    let is_own_user = directory.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
    let is_unused = match directory.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => pid == process::id() || !is_alive(pid),
    };
    (is_own_user && is_unused).then_some(directory)
}

/// Returns the process id in a hidden name, or `None` for any other name. The number after the id may be missing, as in
/// names that earlier versions of irqlab wrote.
fn process_id_in_name(name: &OsStr) -> Option<u32> {
    let name = name.to_string_lossy();
    if name.contains('/') {
        return None;
    }
    let (_, pid_and_number) = name.strip_prefix('.')?.rsplit_once(NAME_MARK)?;
    match pid_and_number.split_once('-') {
        None => pid_and_number.parse().ok(),
        Some((pid, number)) if number.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            pid.parse().ok()
        }
        Some(_) => None,
    }
}

fn is_alive(pid: u32) -> bool {
    // Without /proc it is unknown whether the process exists. It counts as alive, so nothing is removed.
    !Path::new("/proc/self").exists() || Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unfinished_directories_are_leftovers() {
        let parent = tempfile::tempdir().unwrap();
        let dead = u32::MAX; // beyond any pid_max
        let make = |name: String| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::create_dir(path.join("tables")).unwrap();
            fs::write(path.join("tables/x"), "{").unwrap();
            path
        };
        let mut expected =
            [make(format!(".a.partial-{dead}")), make(format!(".a.partial-{dead}-0f"))];
        expected.sort();
        let others = [
            make("a.partial-2".to_owned()),
            make(format!("c.partial-{dead}")),
            make(format!(".c.partial-{dead}-x")),
            make(".d.partial-".to_owned()),
        ];
        fs::write(parent.path().join(format!(".file.partial-{dead}")), "").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("mine"), "").unwrap();
        let link = parent.path().join(format!(".link.partial-{dead}"));
        std::os::unix::fs::symlink(elsewhere.path(), link).unwrap();

        assert_eq!(leftovers(parent.path()), expected);
        assert_eq!(remove_leftovers(parent.path()), expected);
        assert!(!expected[0].exists() && !expected[1].exists());
        assert!(others.iter().all(|path| path.exists()));
        assert!(elsewhere.path().join("mine").exists());
        assert!(remove_leftovers(parent.path()).is_empty());
        assert!(remove_leftovers(&parent.path().join("absent")).is_empty());
    }

    #[test]
    fn a_locked_directory_is_no_leftover() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join(hidden_name(OsStr::new("x"), 7));
        fs::create_dir(&path).unwrap();
        let directory = File::open(&path).unwrap();
        directory.lock().unwrap();
        assert!(leftovers(parent.path()).is_empty());
        drop(directory);
        assert_eq!(leftovers(parent.path()), [path]);
    }
}
