//! A directory that gets its name when it is complete: the directory of a run, or of an export.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::leftovers;
use crate::names::{self, Temporary, TemporaryNote, unpredictable};
use crate::place::{Existing, Place, exists};

/// Maximum number of attempts to find a free hidden name.
const NAME_TRIES: u32 = 8;
/// Maximum nesting of directories in a directory that is removed.
const DEPTH_MAX: u32 = 8;

/// Why a directory was not made.
#[derive(Debug)]
pub enum MakeDirectoryError {
    /// Something of that name exists; it was not changed.
    Exists,
    /// The operating system refused.
    Io { path: PathBuf, source: io::Error },
}

/// A directory that is being filled, under a hidden name. Without [`NewDirectory::finish`] it is removed.
///
/// The directory's lock shows other processes that the directory is in use, even in another PID namespace, where the
/// process id in the name means something else.
pub struct NewDirectory {
    /// The place that [`NewDirectory::finish`] moves the directory to.
    place: Place,
    /// The directory's name while it is being filled.
    hidden: OsString,
    /// The open directory, with its lock.
    directory: File,
    is_finished: bool,
    note: Option<TemporaryNote>,
}

impl std::fmt::Debug for NewDirectory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("NewDirectory").field(&self.place).field(&self.hidden).finish()
    }
}

impl NewDirectory {
    /// Creates a directory under a hidden name. [`NewDirectory::finish`] renames it to `path`. The parent must exist.
    ///
    /// Fails if something of that name exists, or if the directory cannot be created or locked.
    pub fn create(path: &Path) -> Result<NewDirectory, MakeDirectoryError> {
        let failed = |source| MakeDirectoryError::Io { path: path.to_owned(), source };
        let target = Place::open(path).map_err(failed)?;
        refuse_existing(&target, path)?;
        for _ in 0..NAME_TRIES {
            let hidden = leftovers::hidden_name(&target.name, unpredictable());
            let note = names::note(&target.path(&hidden), Temporary::Directory);
            let failed = |source| MakeDirectoryError::Io { path: target.path(&hidden), source };
            match open_new(&target, &hidden) {
                Ok(Some(directory)) => {
                    return Ok(NewDirectory {
                        place: target,
                        hidden,
                        directory,
                        is_finished: false,
                        note,
                    });
                }
                Ok(None) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(ErrorKind::AlreadyExists.into()))
    }

    /// Returns the path of the directory while it is being filled.
    #[must_use]
    pub fn hidden_path(&self) -> PathBuf {
        self.place.path(&self.hidden)
    }

    /// Creates the directory `name` in this directory. `name` may be a path below directories that this directory has.
    ///
    /// Fails if `mkdir` fails, for instance because the name exists.
    pub fn create_directory(&self, name: &str) -> Result<(), MakeDirectoryError> {
        let made = rustix::fs::mkdirat(&self.directory, name, Mode::from_raw_mode(0o777));
        made.map_err(|error| self.failed(name, error.into()))
    }

    /// Writes a file into this directory, durably. `path` is a name, or a name in directories that
    /// [`NewDirectory::create_directory`] created.
    ///
    /// Fails if a file of this name exists, or if the file cannot be created or written.
    pub fn write(&self, path: &str, contents: &[u8]) -> Result<(), MakeDirectoryError> {
        self.try_write(path, contents).map_err(|error| self.failed(path, error))
    }

    fn try_write(&self, path: &str, contents: &[u8]) -> io::Result<()> {
        let mut file = self.open_new_file(path)?;
        file.write_all(contents)?;
        file.sync_all()
    }

    /// Creates the file of a path in the directory. Each directory of the path must be one, and no link.
    fn open_new_file(&self, path: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
        let Some((parents, name)) = path.rsplit_once('/') else {
            return Ok(File::from(rustix::fs::openat(&self.directory, path, flags, mode)?));
        };
        let mut names = parents.split('/').map(OsStr::new);
        let first = names.next().unwrap_or_default();
        let parent = open_below(&self.directory, first)?;
        let parent = names.try_fold(parent, |parent, name| open_below(&parent, name))?;
        Ok(File::from(rustix::fs::openat(&parent, name, flags, mode)?))
    }

    /// Creates an empty file in this directory, for content that does not fit in memory. The caller makes the content
    /// durable. `path` is a name, or a name in directories that [`NewDirectory::create_directory`] created.
    ///
    /// Fails if a file of this name exists, or if the file cannot be created.
    pub fn create_file(&self, path: &str) -> Result<File, MakeDirectoryError> {
        self.open_new_file(path).map_err(|error| self.failed(path, error))
    }

    /// Makes the names in the subdirectory `name` durable.
    ///
    /// Fails if the subdirectory cannot be opened, or if `fsync` fails.
    pub fn synchronise(&self, name: &str) -> Result<(), MakeDirectoryError> {
        let synced = open_below(&self.directory, OsStr::new(name))
            .and_then(|subdirectory| sync(&subdirectory));
        synced.map_err(|error| self.failed(name, error))
    }

    /// Makes the directory durable and gives it its name.
    ///
    /// Fails when the name was taken meanwhile, another directory is under the hidden name, or the system refuses.
    /// Nothing remains then.
    pub fn finish(mut self) -> Result<(), MakeDirectoryError> {
        sync(&self.directory).map_err(|error| self.failed("", error))?;
        let target = self.place.path(&self.place.name);
        let failed = |source| MakeDirectoryError::Io { path: target.clone(), source };
        let replaced_error = || {
            let reason = "another directory was put in its place while it was written";
            failed(io::Error::other(reason))
        };
        if !self.has_name(&self.hidden) {
            return Err(replaced_error());
        }
        refuse_existing(&self.place, &target)?;
        self.place.rename_to_new(&self.hidden).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => MakeDirectoryError::Exists,
            _ => failed(error),
        })?;
        self.is_finished = true;
        if !self.has_name(&self.place.name) {
            return Err(replaced_error());
        }
        self.place.synchronise();
        Ok(())
    }

    /// Returns whether this name in the parent directory still belongs to the directory that is being filled.
    fn has_name(&self, name: &OsStr) -> bool {
        has_name(&self.place, name, &self.directory)
    }

    /// Returns an error about a path in the directory; an empty path is the directory itself.
    fn failed(&self, path: &str, source: io::Error) -> MakeDirectoryError {
        let directory = self.place.path(&self.hidden);
        let path = if path.is_empty() { directory } else { directory.join(path) };
        MakeDirectoryError::Io { path, source }
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if !self.is_finished {
            // The error of the removal is ignored: the caller has an error to report, and the next start removes the
            // rest.
            let _ = remove(&self.place.directory, &self.hidden, &self.directory);
        }
        // Only now, after the name is gone: a kill before leaves the note, and the next start removes the directory.
        self.note.take();
    }
}

/// Fails if anything has the name of the target.
pub(crate) fn refuse_existing(place: &Place, path: &Path) -> Result<(), MakeDirectoryError> {
    match place.check(Existing::Stays) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(MakeDirectoryError::Exists),
        Err(source) => Err(MakeDirectoryError::Io { path: path.to_owned(), source }),
        Ok(_) => Ok(()),
    }
}

/// Returns whether a name in the parent directory belongs to this open directory.
fn has_name(place: &Place, name: &OsStr, directory: &File) -> bool {
    let named = rustix::fs::statat(&place.directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let opened = rustix::fs::fstat(directory);
    matches!((named, opened), (Ok(named), Ok(opened))
        if (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino))
}

/// Creates a directory, opens it and locks it. `None` if the name was taken, or if another process replaced or removed
/// the directory before it was locked.
fn open_new(place: &Place, name: &OsStr) -> io::Result<Option<File>> {
    match rustix::fs::mkdirat(&place.directory, name, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) => return Ok(None),
        other => other?,
    }
    let directory = match open_below(&place.directory, name) {
        Ok(directory) => File::from(directory),
        // Another irqlab removed it as a leftover before it was locked.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let _ = rustix::fs::unlinkat(&place.directory, name, AtFlags::REMOVEDIR);
            return Err(error);
        }
    };
    // Some file systems have no locks. There, only the process id in the name shows that the directory is in use.
    let is_locked_by_others =
        matches!(directory.try_lock(), Err(std::fs::TryLockError::WouldBlock));
    let is_own_user = rustix::fs::fstat(&directory)?.st_uid == rustix::process::geteuid().as_raw();
    let is_usable = is_own_user && !is_locked_by_others && has_name(place, name, &directory);
    if is_locked_by_others {
        // Another irqlab looks whether it is a leftover. It is empty, and nobody else would remove it soon.
        let _ = rustix::fs::unlinkat(&place.directory, name, AtFlags::REMOVEDIR);
    }
    Ok(is_usable.then_some(directory))
}

/// Opens a directory in another one. Refuses a symbolic link.
pub(crate) fn open_below(parent: &impl std::os::fd::AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

/// Makes the names in a directory durable.
fn sync(directory: &impl std::os::fd::AsFd) -> io::Result<()> {
    match rustix::fs::fsync(directory) {
        // This error means that the file system cannot synchronise directories.
        Err(Errno::INVAL) => Ok(()),
        other => Ok(other?),
    }
}

/// Removes the content of an open directory, and then the directory `name` of `parent`, which must be empty.
pub(crate) fn remove(
    parent: &impl std::os::fd::AsFd,
    name: &OsStr,
    directory: &impl std::os::fd::AsFd,
) -> io::Result<()> {
    remove_content(directory, DEPTH_MAX)?;
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes the content of an open directory, down to `depth_max` levels of directories. Does not follow links.
fn remove_content(directory: &impl std::os::fd::AsFd, depth_max: u32) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        } else if depth_max > 0 {
            remove_content(&open_below(directory, name)?, depth_max - 1)?;
            rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

impl From<MakeDirectoryError> for io::Error {
    fn from(error: MakeDirectoryError) -> io::Error {
        match error {
            MakeDirectoryError::Exists => exists(),
            MakeDirectoryError::Io { source, .. } => source,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn begun(parent: &Path) -> NewDirectory {
        let directory = NewDirectory::create(&parent.join("run")).unwrap();
        directory.create_directory("tables").unwrap();
        directory.write("tables/one", b"1").unwrap();
        directory
    }

    fn names(directory: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_directory_appears_whole_and_an_unfinished_one_does_not() {
        let parent = tempfile::tempdir().unwrap();
        drop(begun(parent.path()));
        assert!(names(parent.path()).is_empty());
        begun(parent.path()).finish().unwrap();
        assert_eq!(names(parent.path()), ["run"]);
        assert_eq!(fs::read(parent.path().join("run/tables/one")).unwrap(), b"1");
        let again = NewDirectory::create(&parent.path().join("run"));
        assert!(matches!(again, Err(MakeDirectoryError::Exists)));
    }

    #[test]
    fn files_below_several_directories_are_written_and_links_are_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let victim = tempfile::tempdir().unwrap();
        let directory = NewDirectory::create(&parent.path().join("run")).unwrap();
        directory.create_directory("host").unwrap();
        directory.create_directory("host/tables").unwrap();
        directory.create_file("host/tables/one").unwrap().write_all(b"1").unwrap();
        assert!(directory.create_file("host/tables/one").is_err(), "it exists");
        symlink(victim.path(), directory.hidden_path().join("host/link")).unwrap();
        assert!(directory.create_file("host/link/one").is_err(), "a link");
        directory.finish().unwrap();
        assert_eq!(fs::read(parent.path().join("run/host/tables/one")).unwrap(), b"1");
        assert!(names(victim.path()).is_empty());
    }

    /// The owner of the parent puts a link to a victim, or a directory, under the hidden name.
    #[test]
    fn a_directory_that_was_swapped_is_neither_written_nor_named() {
        for is_link in [false, true] {
            let parent = tempfile::tempdir().unwrap();
            let victim = tempfile::tempdir().unwrap();
            fs::write(victim.path().join("mine"), "mine").unwrap();
            let directory = begun(parent.path());
            let hidden = parent.path().join(&directory.hidden);
            fs::rename(&hidden, parent.path().join("away")).unwrap();
            if is_link {
                symlink(victim.path(), &hidden).unwrap();
            } else {
                fs::create_dir(&hidden).unwrap();
                fs::write(hidden.join("mine"), "mine").unwrap();
            }
            directory.write("more", b"2").unwrap();
            let error = io::Error::from(directory.finish().unwrap_err()).to_string();
            assert!(error.contains("another directory was put in its place"), "{error}");
            assert_eq!(names(victim.path()), ["mine"]);
            assert!(!parent.path().join("run").exists());
            assert_eq!(hidden.is_symlink(), is_link);
            assert!(is_link || names(&hidden) == ["mine"]);
            assert!(names(&parent.path().join("away")).is_empty(), "emptied by descriptor");
        }
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_is_not_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let directory = begun(parent.path());
        // A plain rename would replace an empty directory.
        fs::create_dir(parent.path().join("run")).unwrap();
        assert!(matches!(directory.finish(), Err(MakeDirectoryError::Exists)));
        assert_eq!(names(parent.path()), ["run"]);
        assert!(names(&parent.path().join("run")).is_empty());
    }

    #[test]
    fn a_long_name_has_a_hidden_name_too() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("x".repeat(255));
        NewDirectory::create(&path).unwrap().finish().unwrap();
        assert!(path.is_dir());
    }
}
