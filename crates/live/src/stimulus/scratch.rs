//! Files that the disk stimulus reads: a scratch file that vanishes with the process, or a file or block device that
//! the user names. A user's file is opened read-only.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::error::WorkerError;
use super::system::random_from_clock;
use crate::journal::Journal;

const MIB: u64 = 1024 * 1024;
/// Free space that must remain for others after the scratch file is written.
const SPARE_BYTES: u64 = 64 * MIB;
/// Memory file systems. Reading their files raises no disk interrupt, although
/// some accept `O_DIRECT`.
const MEMORY_FILE_SYSTEMS: [(u64, &str); 3] =
    [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs"), (0x9584_58f6, "hugetlbfs")];

pub(super) const REMEDY: &str = "set TMPDIR to a directory on a disk, or name an existing file or block \
                      device with --disk-file";

/// A file to read from the disk.
pub(super) struct Target {
    pub file: File,
    /// Path or description of the file, for the facts.
    pub place: String,
    /// Number of readable bytes.
    pub size_bytes: u64,
    /// Block size of the file's file system in bytes.
    pub block_bytes: u64,
    /// Whether reads bypass the page cache (`O_DIRECT`).
    pub is_direct: bool,
}

/// The first of `TMPDIR`, `/var/tmp` and the working directory that is on a disk and accepts
/// `O_DIRECT`. If none is, the system's temporary directory.
#[must_use]
pub fn default_scratch_dir() -> PathBuf {
    let candidates =
        [std::env::var_os("TMPDIR").map(PathBuf::from), Some("/var/tmp".into()), Some(".".into())];
    let suitable = candidates.into_iter().flatten().find(|dir| {
        unnamed_file(dir).is_ok_and(|file| memory_file_system(&file).is_none() && set_direct(&file))
    });
    suitable.unwrap_or_else(std::env::temp_dir)
}

/// Creates a scratch file of random bytes in `dir`. Its data are on the disk and not in the page cache.
pub(super) fn make(dir: &Path, size_bytes: u64) -> Result<Target, WorkerError> {
    let shown = dir.display().to_string();
    let refuse = |reason: String| WorkerError::unavailable(reason, REMEDY);
    let mut file = new_file(dir)
        .map_err(|error| refuse(format!("cannot make a scratch file in {shown}: {error}")))?;
    refuse_memory(&file, &shown)?;
    check_space(&file, &shown, size_bytes)?;
    fill(&mut file, size_bytes)
        .map_err(|error| refuse(format!("cannot write a scratch file in {shown}: {error}")))?;
    target(file, format!("unnamed file in {shown}"), size_bytes)
}

/// Opens a user's file or block device, for reading only.
pub(super) fn open(path: &Path) -> Result<Target, WorkerError> {
    let shown = path.display().to_string();
    let refuse = |reason: String| WorkerError::unavailable(reason, REMEDY);
    let failed = |error: &dyn std::fmt::Display| refuse(format!("cannot read {shown}: {error}"));
    // Opens without blocking, because opening a FIFO must not hang.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(&error))?;
    let mut file = File::from(fd);
    let kind = file.metadata().map_err(|error| failed(&error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(refuse(format!("{shown} is neither a file nor a block device")));
    }
    if kind.is_file() {
        refuse_memory(&file, &shown)?;
    }
    let size_bytes = file.seek(SeekFrom::End(0)).map_err(|error| failed(&error))?;
    target(file, shown, size_bytes)
}

/// Completes a target: reads the block size, and switches the page cache off if the file system permits.
fn target(file: File, place: String, size_bytes: u64) -> Result<Target, WorkerError> {
    let stat = rustix::fs::fstatvfs(&file)
        .map_err(|error| WorkerError::failed(format!("statfs of {place}: {error}")))?;
    let is_direct = set_direct(&file);
    Ok(Target { file, place, size_bytes, block_bytes: stat.f_bsize, is_direct })
}

/// Creates an unnamed file. If the file system has none, creates a named file and unlinks it at once. The journal has
/// the name in between, so that the next start removes the file after a kill.
fn new_file(dir: &Path) -> io::Result<File> {
    match unnamed_file(dir) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        created => return Ok(created?),
    }
    let path = dir.join(outputs::temporary_name());
    let mut journal = Journal::open().map_err(io::Error::other)?;
    journal.will_create_file(&path).map_err(io::Error::other)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::unlinkat(CWD, &path, AtFlags::empty())?;
    journal.forget(&path).map_err(io::Error::other)?;
    Ok(File::from(fd))
}

fn unnamed_file(dir: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Switches `O_DIRECT` on. Returns whether the file system accepts it.
fn set_direct(file: &File) -> bool {
    rustix::fs::fcntl_getfl(file)
        .and_then(|flags| rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT))
        .is_ok()
}

/// The name of the file's file system if it is one of [`MEMORY_FILE_SYSTEMS`].
fn memory_file_system(file: &File) -> Option<&'static str> {
    let magic = rustix::fs::fstatfs(file).ok()?.f_type as u64;
    MEMORY_FILE_SYSTEMS.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

fn refuse_memory(file: &File, place: &str) -> Result<(), WorkerError> {
    match memory_file_system(file) {
        Some(name) => Err(WorkerError::unavailable(
            format!("{place} is on {name}, which is memory: reading it raises no disk interrupt"),
            REMEDY,
        )),
        None => Ok(()),
    }
}

/// Fails if the file system would have less than [`SPARE_BYTES`] free space after the file is written.
fn check_space(file: &File, place: &str, size_bytes: u64) -> Result<(), WorkerError> {
    let Ok(stat) = rustix::fs::fstatvfs(file.as_fd()) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= size_bytes.saturating_add(SPARE_BYTES) {
        return Ok(());
    }
    let reason = format!(
        "{place} has {} MiB free, and a scratch file of {} MiB must leave {} MiB",
        free / MIB,
        size_bytes / MIB,
        SPARE_BYTES / MIB
    );
    Err(WorkerError::unavailable(reason, REMEDY))
}

/// Writes random bytes to an empty file, flushes them to the disk and drops them from the page cache.
fn fill(file: &mut File, size_bytes: u64) -> io::Result<()> {
    let mut random = random_from_clock();
    let mut buffer = vec![0; MIB as usize];
    let mut unwritten = size_bytes;
    while unwritten > 0 {
        let length = unwritten.min(MIB) as usize;
        random.fill(&mut buffer[..length]);
        file.write_all(&buffer[..length])?;
        unwritten -= length as u64;
    }
    file.sync_all()?;
    drop_cached(file, 0, 0);
    // Checks the size: the last byte can be read.
    file.read_exact_at(&mut buffer[..1], size_bytes.saturating_sub(1))
}

/// Drops a range from the page cache; `length` 0 means up to the file's end. The kernel may ignore this hint.
pub(super) fn drop_cached(file: &File, offset: u64, length: u64) {
    let length = std::num::NonZeroU64::new(length);
    let _ = rustix::fs::fadvise(file, offset, length, rustix::fs::Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_a_disk_is_refused_with_a_reason() {
        for path in ["/dev/null", "/dev", "/no/such/file"] {
            let error = open(Path::new(path)).err().expect(path);
            assert!(matches!(error, WorkerError::Unavailable { .. }), "{path}: {error:?}");
        }
        let error = make(Path::new("/no/such/dir"), MIB).err().unwrap();
        assert!(matches!(error, WorkerError::Unavailable { .. }), "{error:?}");
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_before_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let Err(WorkerError::Unavailable { reason, .. }) = make(dir.path(), u64::MAX / 2) else {
            panic!("must not fit");
        };
        assert!(reason.contains("free") || reason.contains("memory"), "{reason}");
    }

    #[test]
    fn a_scratch_file_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        match make(dir.path(), MIB) {
            Ok(target) => assert_eq!(target.size_bytes, MIB),
            Err(error) => needs::not_run(needs::Need::Disk, format!("{error:?}")),
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
