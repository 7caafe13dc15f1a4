//! Names of new run directories, and leftovers of runs whose process was killed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process;

use jiff::Timestamp;

/// Name of the directory of a run that starts now, such as `20261121T075041Z-handlers`.
#[must_use]
pub fn default_dir_name(experiment: &str, now: Timestamp) -> String {
    format!("{}-{experiment}", now.strftime("%Y%m%dT%H%M%SZ"))
}

/// The directory in `parent` for a run that starts now. When there is one of that name already,
/// `-2`, `-3` and so on are appended.
#[must_use]
pub fn default_dir(parent: &Path, experiment: &str, now: Timestamp) -> PathBuf {
    let name = default_dir_name(experiment, now);
    let mut dir = parent.join(&name);
    let mut number = 2_u32;
    // Ends: a directory has fewer entries than there are numbers.
    while fs::symlink_metadata(&dir).is_ok() {
        dir = parent.join(format!("{name}-{number}"));
        number += 1;
    }
    dir
}

/// Unfinished run directories in `parent` whose processes no longer exist.
#[must_use]
pub fn partial_dirs(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut leftovers: Vec<_> = paths.filter(|path| is_leftover(path)).collect();
    leftovers.sort();
    leftovers
}

/// Removes what [`partial_dirs`] finds; returns what it removed.
pub fn remove_leftovers(parent: &Path) -> Vec<PathBuf> {
    let leftovers = partial_dirs(parent).into_iter();
    leftovers.filter(|path| fs::remove_dir_all(path).is_ok()).collect()
}

/// Directory and name of a run directory.
pub(crate) fn parent_and_name(dir: &Path) -> Option<(PathBuf, OsString)> {
    let name = dir.file_name()?.to_owned();
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    Some((parent.unwrap_or(Path::new(".")).to_owned(), name))
}

/// The hidden name under which this process writes the run directory `name`.
pub(crate) fn partial_name(name: &OsStr) -> OsString {
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(format!(".partial-{}", process::id()));
    partial
}

/// Whether `path` is an unfinished run directory that no process writes any more: the process in its
/// name is gone, or is this one (process ids are reused, in containers quickly), and its lock is
/// free.
pub(crate) fn is_leftover(path: &Path) -> bool {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    let Some(pid) = partial_pid(path) else { return false };
    is_dir && (pid == process::id() || !is_alive(pid)) && !is_locked(path)
}

fn partial_pid(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix('.')?;
    let (_, pid) = name.rsplit_once(".partial-")?;
    pid.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    // Without /proc it is unknown whether the process exists: nothing is removed.
    !Path::new("/proc/self").exists() || Path::new("/proc").join(pid.to_string()).exists()
}

fn is_locked(path: &Path) -> bool {
    let Ok(dir) = File::open(path) else { return false };
    matches!(dir.try_lock(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_name_is_the_time_and_the_experiment() {
        let now: Timestamp = "2026-11-21T07:50:41.9Z".parse().unwrap();
        assert_eq!(default_dir_name("handlers", now), "20261121T075041Z-handlers");
    }

    #[test]
    fn a_taken_default_name_gets_a_number() {
        let parent = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-11-21T07:50:41Z".parse().unwrap();
        for expected in ["20261121T075041Z-noise", "20261121T075041Z-noise-2"] {
            let dir = default_dir(parent.path(), "noise", now);
            assert_eq!(dir, parent.path().join(expected));
            fs::create_dir(dir).unwrap();
        }
        let third = default_dir(parent.path(), "noise", now);
        assert!(third.ends_with("20261121T075041Z-noise-3"));
    }

    #[test]
    fn only_directories_of_dead_processes_are_leftovers() {
        let parent = tempfile::tempdir().unwrap();
        let dead = u32::MAX; // beyond any pid_max
        let make = |name: String| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("manifest.json"), "{").unwrap();
            path
        };
        let left = make(format!(".a.partial-{dead}"));
        let others = [
            make(".b.partial-1".to_owned()),
            make("a.partial-2".to_owned()),
            make(format!("c.partial-{dead}")),
            make(".d.partial-".to_owned()),
        ];
        fs::write(parent.path().join(format!(".file.partial-{dead}")), "").unwrap();

        assert_eq!(partial_dirs(parent.path()), std::slice::from_ref(&left));
        assert_eq!(remove_leftovers(parent.path()), std::slice::from_ref(&left));
        assert!(!left.exists());
        assert!(others.iter().all(|path| path.exists()));
        assert!(remove_leftovers(parent.path()).is_empty());
        assert!(remove_leftovers(&parent.path().join("absent")).is_empty());
    }

    #[test]
    fn a_locked_directory_is_no_leftover() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join(partial_name(OsStr::new("x")));
        fs::create_dir(&path).unwrap();
        let dir = File::open(&path).unwrap();
        dir.lock().unwrap();
        assert!(partial_dirs(parent.path()).is_empty());
        drop(dir);
        assert_eq!(partial_dirs(parent.path()), [path]);
    }
}
