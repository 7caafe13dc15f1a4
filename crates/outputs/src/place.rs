//! Where an output goes: its directory, opened once, and its name in it.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// How to treat a regular file that has the name already.
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
    pub fn open(path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory_path = parent.unwrap_or(Path::new(".")).to_owned();
        Ok(Place { directory: open_directory(&directory_path)?, directory_path, name })
    }

    pub fn path(&self, name: &OsStr) -> PathBuf {
        self.directory_path.join(name)
    }

    /// Refuses a target that is there and may not be replaced. Returns whether there is one.
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
                let reason = format!("it is {}; only a regular file is replaced", described(kind));
                Err(io::Error::new(ErrorKind::AlreadyExists, reason))
            }
        }
    }

    /// Renames an entry of the directory to the target, which does not exist.
    pub fn rename_to_new(&self, from: &OsStr) -> io::Result<()> {
        let (directory, to) = (&self.directory, self.name.as_os_str());
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(directory, from, directory, to, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(Errno::EXIST) => return Err(exists()),
            other => return Ok(other?),
        }
        // Some file systems cannot rename like that. A link never replaces anything, either.
        match rustix::fs::linkat(directory, from, directory, to, AtFlags::empty()) {
            Ok(()) => Ok(rustix::fs::unlinkat(directory, from, AtFlags::empty())?),
            Err(Errno::EXIST) => Err(exists()),
            // Directories have no links, nor has any file on some file systems.
            Err(_) => {
                self.check(Existing::Stays)?;
                Ok(rustix::fs::renameat(directory, from, directory, to)?)
            }
        }
    }

    /// Makes the names of the directory durable, where that is possible: a directory that may be written and not
    /// read cannot be synchronised.
    pub fn synchronise(&self) {
        let _ = rustix::fs::fsync(&self.directory);
    }
}

/// Refuses a path that [`crate::write`] would refuse: to be asked before work that takes long.
///
/// Fails when the target is there and may not be replaced, or no file can be created in its
/// directory.
pub fn check(path: &Path, existing: Existing) -> io::Result<()> {
    let place = Place::open(path)?;
    place.check(existing)?;
    crate::can_create_in(&place.directory_path)
}

pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, path, flags | OFlags::RDONLY, Mode::empty()) {
        // It may be one that can be written and not read.
        Err(Errno::ACCESS) => {
            Ok(rustix::fs::openat(CWD, path, flags | OFlags::PATH, Mode::empty())?)
        }
        other => Ok(other?),
    }
}

pub(crate) fn exists() -> io::Error {
    io::Error::new(ErrorKind::AlreadyExists, "it exists already")
}

fn described(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no regular file",
    }
}
