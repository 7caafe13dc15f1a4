//! Where an output goes: a directory, opened once, and a name in it. All writers of this crate start from a [`Place`].

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// How to treat an existing regular file at the path of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and nothing is written.
    Stays,
    /// The new file takes its place.
    Replaced,
}

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct Place {
    pub directory: OwnedFd,
    pub directory_path: PathBuf,
    pub name: OsString,
}

impl Place {
    /// Opens the directory of a path.
    ///
    /// Fails when the path has no last name, or its directory does not exist.
    pub fn open(path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory_path = parent.unwrap_or(Path::new(".")).to_owned();
        Ok(Place { directory: open_directory(&directory_path)?, directory_path, name })
    }

    /// Returns the path of a name in the directory, for messages and notes.
    pub fn path(&self, name: &OsStr) -> PathBuf {
        self.directory_path.join(name)
    }

    /// Returns whether the target exists. Fails unless it is absent, or a regular file that `existing` allows to
    /// replace.
    pub fn check(&self, existing: Existing) -> io::Result<bool> {
        let stat = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = match stat {
            Err(Errno::NOENT) => return Ok(false),
            other => FileType::from_raw_mode(other?.st_mode),
        };
        match (kind, existing) {
            (FileType::RegularFile, Existing::Replaced) => Ok(true),
            (FileType::RegularFile, Existing::Stays) => Err(exists()),
            _ => {
                let reason = format!("it is {}; only a regular file is replaced", kind_word(kind));
                Err(io::Error::new(ErrorKind::AlreadyExists, reason))
            }
        }
    }

    /// Renames an entry of the directory to the target. Never replaces a file.
    ///
    /// Fails with [`ErrorKind::AlreadyExists`] if the target exists.
    pub fn rename_to_new(&self, source: &OsStr) -> io::Result<()> {
        let (directory, target) = (&self.directory, self.name.as_os_str());
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(directory, source, directory, target, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(Errno::EXIST) => return Err(exists()),
            other => return Ok(other?),
        }
        // Some file systems cannot rename without replacing. A hard link never replaces anything, either.
        match rustix::fs::linkat(directory, source, directory, target, AtFlags::empty()) {
            Ok(()) => Ok(rustix::fs::unlinkat(directory, source, AtFlags::empty())?),
            Err(Errno::EXIST) => Err(exists()),
            // Directories cannot have hard links, and some file systems have none. Another process may come between
            // the check and the rename.
            Err(_) => {
                self.check(Existing::Stays)?;
                Ok(rustix::fs::renameat(directory, source, directory, target)?)
            }
        }
    }

    /// Makes the names in the directory durable, if possible. Ignores errors: a directory that this process may write
    /// but not read cannot be synchronised.
    pub fn synchronise(&self) {
        let _ = rustix::fs::fsync(&self.directory);
    }
}

/// Checks that [`crate::write`] can write to a path, without writing. Call this before work that takes long.
///
/// Fails when the target exists and may not be replaced, or no file can be created in its directory.
pub fn check(path: &Path, existing: Existing) -> io::Result<()> {
    let target = Place::open(path)?;
    target.check(existing)?;
    crate::can_create_in(&target.directory_path)
}

/// Opens a directory, as the base of relative paths.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, path, flags | OFlags::RDONLY, Mode::empty()) {
        // The directory may be one that this process can write but not read.
        Err(Errno::ACCESS) => {
            Ok(rustix::fs::openat(CWD, path, flags | OFlags::PATH, Mode::empty())?)
        }
        other => Ok(other?),
    }
}

/// Returns the error for a target that exists and may not be replaced.
pub(crate) fn exists() -> io::Error {
    io::Error::new(ErrorKind::AlreadyExists, "it exists already")
}

/// Names a kind of file in a message.
fn kind_word(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no regular file",
    }
}
