//! How many irqlabs may have probes at the same time. The Debian package has a file for each; a process locks
//! one of them for as long as it lives.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use super::BpfError;

/// The files, which the package makes (`contrib/package/apply-rights`).
const SLOTS: &str = "/var/lib/irqlab/instances";
/// More than the package makes.
const SLOTS_MAX: usize = 10_000;

/// The lock of this process.
static SLOT: Mutex<Option<File>> = Mutex::new(None);

/// Takes one of the places for this process, if it has none yet. Root needs none, and neither does anybody on a
/// machine without the package, or without the right to read its files: the package's program can.
///
/// # Errors
/// [`BpfError::Failed`] when all are taken.
pub(super) fn take_slot() -> Result<(), BpfError> {
    let mut slot = SLOT.lock().unwrap_or_else(PoisonError::into_inner);
    if slot.is_none() && !geteuid().is_root() {
        *slot = free_slot(Path::new(SLOTS))?;
    }
    Ok(())
}

fn free_slot(directory: &Path) -> Result<Option<File>, BpfError> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(None) };
    let mut taken = 0;
    for entry in entries.take(SLOTS_MAX).flatten() {
        let Ok(file) = File::open(entry.path()) else { continue };
        match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
            Ok(()) => return Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => taken += 1,
            Err(_) => {} // a file system without locks
        }
    }
    if taken == 0 {
        return Ok(None);
    }
    Err(BpfError::Failed(format!(
        "{taken} irqlabs have probes already, and no more may (wait until one of them ends, or raise INSTANCES_MAX \
         in /etc/irqlab/irqlab.conf)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_processes_than_files_have_a_place() {
        let place = tempfile::tempdir().unwrap();
        assert!(free_slot(&place.path().join("none")).unwrap().is_none());
        for number in 1..=2 {
            std::fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        let first = free_slot(place.path()).unwrap();
        let second = free_slot(place.path()).unwrap();
        assert!(first.is_some() && second.is_some());
        let error = free_slot(place.path()).unwrap_err().to_string();
        assert!(error.starts_with("2 irqlabs have probes already"), "{error}");
        drop(first);
        assert!(free_slot(place.path()).unwrap().is_some());
    }
}
