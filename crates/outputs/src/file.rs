//! A file that gets its name when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::names::{self, Temporary, TemporaryNote};
use crate::place::{Existing, Place, exists, open_directory};

/// Maximum number of attempts to find a free temporary name. The names are unpredictable, so the first one is free.
const NAME_TRIES: u32 = 8;

/// A file that is being written. Without [`NewFile::finish`] it is removed.
#[derive(Debug)]
pub struct NewFile {
    place: Place,
    file: File,
    existing: Existing,
    /// `None` while the file has no name.
    temporary: Option<TemporaryName>,
}

/// A temporary name of a file. Dropping it removes the name.
struct TemporaryName {
    name: OsString,
    directory: std::os::fd::OwnedFd,
    /// Whether the name does not exist any more: the file was renamed.
    is_gone: bool,
    _note: Option<TemporaryNote>,
}

impl std::fmt::Debug for TemporaryName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("TemporaryName").field(&self.name).finish()
    }
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        if !self.is_gone {
            // The error of the removal is ignored: the caller has an error to report.
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

impl NewFile {
    /// Creates a file for the target `path`. Its permissions are 0666 without the bits of the umask.
    ///
    /// Fails when the path names something that `existing` does not allow to be replaced, or
    /// anything but a regular file; when its directory does not exist or cannot be written.
    pub fn create(path: &Path, existing: Existing) -> io::Result<NewFile> {
        let target = Place::open(path)?;
        target.check(existing)?;
        if let Some(file) = unnamed_in(&target.directory)? {
            return Ok(NewFile { place: target, file, existing, temporary: None });
        }
        NewFile::with_temporary_name(target, existing)
    }

    /// Creates a file with a temporary name, on a file system that has no files without a name.
    fn with_temporary_name(place: Place, existing: Existing) -> io::Result<NewFile> {
        let (temporary, file) = with_temporary_name(&place, |name| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let mode = Mode::from_raw_mode(0o666);
            rustix::fs::openat(&place.directory, name, flags | OFlags::CLOEXEC, mode)
        })?;
        Ok(NewFile { place, file: File::from(file), existing, temporary: Some(temporary) })
    }

    /// Sets the length. Added bytes read as zeros.
    ///
    /// Fails if `ftruncate` fails, for instance because the file system does not allow such a length.
    pub fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    /// Makes the file durable and gives it its name.
    ///
    /// Fails if the content cannot be written or the file cannot be renamed, or if the name was taken meanwhile. The file is
    /// absent then, unless the only failure is that the name could not be made durable.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let is_there = self.place.check(self.existing)?;
        if self.temporary.is_none() && !is_there {
            match link(&self.file, &self.place, &self.place.name) {
                // The name was taken since the check.
                Err(Errno::EXIST) if self.existing == Existing::Replaced => {}
                Err(Errno::EXIST) => return Err(exists()),
                other => {
                    other?;
                    self.place.synchronise();
                    return Ok(());
                }
            }
        }
        let mut temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => with_temporary_name(&self.place, |name| link(&self.file, &self.place, name))?.0,
        };
        self.rename(&temporary.name)?;
        temporary.is_gone = true;
        self.place.synchronise();
        Ok(())
    }

    /// Renames the file from its temporary name to the target, and replaces an existing file if that is allowed.
    fn rename(&self, temporary_name: &OsStr) -> io::Result<()> {
        if !self.place.check(self.existing)? {
            match self.place.rename_to_new(temporary_name) {
                // The name was taken since the check.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.place.check(self.existing)?;
                }
                other => return other,
            }
        }
        let directory = &self.place.directory;
        Ok(rustix::fs::renameat(directory, temporary_name, directory, &self.place.name)?)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file: it appears at `path` complete, or not at all.
///
/// Fails if `path` may not be replaced, or if the file cannot be created, written or renamed.
pub fn write(path: &Path, contents: &[u8], existing: Existing) -> io::Result<()> {
    let mut file = NewFile::create(path, existing)?;
    file.write_all(contents)?;
    file.finish()
}

/// Checks that a file can be created in a directory, and leaves nothing there.
///
/// Fails when no file can be created.
pub fn can_create_in(directory: &Path) -> io::Result<()> {
    let opened = open_directory(directory)?;
    if unnamed_in(&opened)?.is_some() {
        return Ok(());
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    Ok(rustix::fs::accessat(CWD, directory, access, AtFlags::EACCESS)?)
}

/// Creates a file without a name (`O_TMPFILE`). `None` if the file system or the kernel does not support this, or if
/// /proc is missing: the file gets its name through /proc.
fn unnamed_in(directory: &impl std::os::fd::AsFd) -> io::Result<Option<File>> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, ".", flags, Mode::from_raw_mode(0o666)) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(file) => {
            let file = File::from(file);
            let can_be_named = Path::new(&path_of_descriptor(&file)).exists();
            Ok(can_be_named.then_some(file))
        }
    }
}

/// Returns a path that leads to an open file.
fn path_of_descriptor(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives an unnamed file a name. Fails with [`Errno::EXIST`] if the name is taken.
fn link(file: &File, place: &Place, name: &OsStr) -> Result<(), Errno> {
    let source = path_of_descriptor(file);
    rustix::fs::linkat(CWD, source, &place.directory, name, AtFlags::SYMLINK_FOLLOW)
}

/// Calls `create` with new temporary names until one of them is free. Notes each name before `create` uses it.
fn with_temporary_name<T>(
    place: &Place,
    create: impl Fn(&OsStr) -> Result<T, Errno>,
) -> io::Result<(TemporaryName, T)> {
    for _ in 0..NAME_TRIES {
        let name = OsString::from(names::temporary_name());
        let directory = place.directory.try_clone()?;
        let note = names::note(&place.path(&name), Temporary::File);
        match create(&name) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
            Ok(created) => {
                return Ok((
                    TemporaryName { name, directory, is_gone: false, _note: note },
                    created,
                ));
            }
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Writes a file on a file system on which a file can be without a name, or cannot.
    fn written(path: &Path, contents: &[u8], existing: Existing, is_named: bool) -> io::Result<()> {
        if !is_named {
            return write(path, contents, existing);
        }
        let place = Place::open(path)?;
        place.check(existing)?;
        let mut file = NewFile::with_temporary_name(place, existing)?;
        file.write_all(contents)?;
        file.finish()
    }

    #[test]
    fn a_file_is_written_and_nothing_else_is_left() {
        for is_named in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("one.svg");
            let content = || (fs::read_to_string(&file).unwrap(), names(directory.path()));
            let only = |text: &str| (text.to_owned(), vec!["one.svg".to_owned()]);
            written(&file, b"one", Existing::Stays, is_named).unwrap();
            assert_eq!(content(), only("one"));
            let error = written(&file, b"two", Existing::Stays, is_named).unwrap_err();
            assert_eq!((error.kind(), content()), (ErrorKind::AlreadyExists, only("one")));
            written(&file, b"two", Existing::Replaced, is_named).unwrap();
            assert_eq!(content(), only("two"));
        }
    }

    #[test]
    fn what_is_no_regular_file_is_neither_followed_nor_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("victim"), "mine").unwrap();
        symlink("victim", path("link")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, path("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let before = names(directory.path());
        for existing in [Existing::Stays, Existing::Replaced] {
            for target in ["link", "dangling", "directory", "fifo"] {
                for is_named in [false, true] {
                    let error = written(&path(target), b"x", existing, is_named).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{target}: {error}");
                }
                crate::check(&path(target), existing).unwrap_err();
            }
            let error = write(Path::new("/dev/full"), b"x", existing).unwrap_err().to_string();
            assert_eq!(error, "it is a device; only a regular file is replaced");
        }
        assert_eq!(names(directory.path()), before);
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "mine");
        assert!(path("link").is_symlink() && path("dangling").is_symlink());
    }

    /// Somebody creates the target between the check and the end.
    #[test]
    fn what_appears_meanwhile_is_not_replaced() {
        for (is_named, existing) in [
            (false, Existing::Stays),
            (true, Existing::Stays),
            (false, Existing::Replaced),
            (true, Existing::Replaced),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let target = directory.path().join("target");
            let file = if is_named {
                NewFile::with_temporary_name(Place::open(&target).unwrap(), existing).unwrap()
            } else {
                NewFile::create(&target, existing).unwrap()
            };
            symlink("victim", &target).unwrap();
            file.finish().unwrap_err();
            assert_eq!(names(directory.path()), ["target"]);
            assert!(target.is_symlink());
        }
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        let mut file =
            NewFile::with_temporary_name(Place::open(&target).unwrap(), Existing::Stays).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(names(directory.path()).len(), 1);
        drop(file);
        drop(NewFile::create(&target, Existing::Stays).unwrap());
        can_create_in(directory.path()).unwrap();
        assert!(names(directory.path()).is_empty());
        can_create_in(&directory.path().join("none")).unwrap_err();
    }

    /// An unnamed file has no name to predict, and a named one has another each time.
    #[test]
    fn a_temporary_name_that_somebody_took_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        let place = Place::open(&target).unwrap();
        let taken = with_temporary_name(&place, |_| Err::<(), Errno>(Errno::EXIST));
        assert_eq!(taken.err().unwrap().kind(), ErrorKind::AlreadyExists);
        assert!(names(directory.path()).is_empty());
    }
}
