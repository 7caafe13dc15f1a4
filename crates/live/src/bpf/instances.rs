//! Limits how many irqlab processes have BPF programs loaded at the same time, where the Debian package lets users
//! measure without root. The package creates a file for each permitted process, and a process locks one of the files
//! until it ends. `bpf::object` takes the lock before it opens the first program.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use super::BpfError;

/// The directory of the files. The package creates them (`contrib/package/apply-rights`).
const SLOTS: &str = "/var/lib/irqlab/instances";
/// An upper bound on the files that are tried. The package creates fewer.
const SLOTS_MAX: usize = 10_000;

/// The lock of this process.
static SLOT: Mutex<Option<File>> = Mutex::new(None);

/// Locks one of the files for this process, unless this process holds a lock already. Root needs no lock. Neither does
/// a process that cannot read the files, because only the package's users are limited.
///
/// Fails with [`BpfError::Failed`] if other processes hold all locks.
pub(super) fn take_slot() -> Result<(), BpfError> {
    let mut slot = SLOT.lock().unwrap_or_else(PoisonError::into_inner);
    if slot.is_none() && !geteuid().is_root() {
        *slot = free_slot(Path::new(SLOTS))?;
    }
    Ok(())
}

/// Locks a free file of the directory; `None` if there is no file that this process can lock.
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
        "the limit of {taken} irqlab processes with probes is reached (wait until one of them ends, or raise \
         INSTANCES_MAX in /etc/irqlab/irqlab.conf)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_processes_than_files_have_a_place() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_slot(&directory.path().join("none")).unwrap().is_none());
        for number in 1..=2 {
            std::fs::write(directory.path().join(number.to_string()), "").unwrap();
        }
        let first = free_slot(directory.path()).unwrap();
        let second = free_slot(directory.path()).unwrap();
        assert!(first.is_some() && second.is_some());
        let error = free_slot(directory.path()).unwrap_err().to_string();
        assert!(error.starts_with("the limit of 2 irqlab processes"), "{error}");
        drop(first);
        assert!(free_slot(directory.path()).unwrap().is_some());
    }
}
