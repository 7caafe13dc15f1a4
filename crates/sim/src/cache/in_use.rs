//! Protects entries in use from eviction.
//!
//! A process that uses an entry holds a shared lock on one of its files, whose modification time is the time of the
//! last use. [`super::eviction`] removes an entry only under an exclusive lock of that file.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use super::content;

/// Names of files that stand for their directory. The file's modification time is the time of the directory's
/// last use; a lock on the file shows that the directory is in use.
const USED_FILES: [&str; 3] = ["checkpoint.json", content::LIST, "rootfs.json"];

/// The locks of entries whose paths callers of [`hold`] use. A simulated machine may open a file of such an entry
/// hours later, so this process holds the locks until it ends.
static HELD: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// Returns the file that is locked while an entry is in use. `None` for a directory without such a file.
pub(super) fn used_file(entry: &Path) -> Option<PathBuf> {
    if !entry.is_dir() {
        return Some(entry.to_owned());
    }
    USED_FILES.iter().map(|name| entry.join(name)).find(|path| path.is_file())
}

/// Opens an entry's [`used_file`] with a shared lock, and sets the time of its last use to now. Closing the file
/// releases the lock. `None` if the file does not exist, or if another process removed or replaced the file in this
/// moment.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // Waits while another process removes the entry.
    flock(&file, FlockOperation::LockShared)?;
    let inode = |data: fs::Metadata| (data.dev(), data.ino());
    if fs::metadata(path).ok().map(inode) != Some(file.metadata().map(inode)?) {
        return Ok(None);
    }
    // Ignores a cache that cannot be written, because such a cache evicts nothing.
    let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
    Ok(Some(file))
}

/// Protects an entry from eviction until this process ends. Returns whether the entry exists. A directory
/// without a [`used_file`] needs no protection: it is never evicted, or nobody reads its files.
pub(crate) fn hold(entry: &Path) -> bool {
    let Some(path) = used_file(entry) else { return entry.is_dir() };
    let Ok(Some(file)) = open(&path) else { return false };
    HELD.lock().unwrap_or_else(PoisonError::into_inner).insert(path, file);
    true
}

/// Locks an entry before its removal, until the file is dropped. `Ok(None)` for an entry without a [`used_file`], or whose
/// file cannot be opened: nothing locks it then. `Err` for an entry in use.
pub(super) fn lock_unused(entry: &Path) -> Result<Option<File>, InUse> {
    match used_file(entry).map(File::open) {
        Some(Ok(file)) => match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(_) => Err(InUse),
        },
        _ => Ok(None),
    }
}

/// The error of [`lock_unused`].
pub(super) struct InUse;
