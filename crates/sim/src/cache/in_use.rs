//! What is in use is not evicted: a shared lock on a file of each entry, and the time of its last use.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

/// The file of a directory whose time of modification is that of the last use, and whose lock says that it
/// is in use.
const USED_FILES: [&str; 4] = ["checkpoint.json", "symbols", "offsets", "rootfs.json"];

/// The locks of entries whose paths were given to a caller. A simulated machine may open a file of them
/// hours later, so they are held until the process ends.
static HELD: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// The file of an entry, a file or a directory, that is locked while it is in use. `None` for a directory
/// without one.
pub(super) fn used_file(entry: &Path) -> Option<PathBuf> {
    if !entry.is_dir() {
        return Some(entry.to_owned());
    }
    USED_FILES.iter().map(|name| entry.join(name)).find(|path| path.is_file())
}

/// Opens an entry's [`used_file`] with a shared lock, which lasts as long as the file is open, and notes
/// that it is used now. `None` if it does not exist, or if another process removed or replaced it in this
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
    // A cache that cannot be written evicts nothing.
    let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
    Ok(Some(file))
}

/// Keeps an entry, a file or a directory, until this process ends. Returns whether it is there. A directory
/// without a [`used_file`] is not kept: it is not evicted, or nothing in it is read.
pub(crate) fn hold(entry: &Path) -> bool {
    let Some(path) = used_file(entry) else { return entry.is_dir() };
    let Ok(Some(file)) = open(&path) else { return false };
    HELD.lock().unwrap_or_else(PoisonError::into_inner).insert(path, file);
    true
}

/// Locks an entry for removing it. `Err` if it is in use.
pub(super) fn lock_unused(entry: &Path) -> Result<Option<File>, InUse> {
    match used_file(entry).map(File::open) {
        Some(Ok(file)) => match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(_) => Err(InUse),
        },
        _ => Ok(None),
    }
}

/// An entry is in use.
pub(super) struct InUse;
