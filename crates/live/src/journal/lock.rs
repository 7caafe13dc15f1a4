//! Locks on files (flock(2)), for journals and resources. A held lock proves that its owner lives.
//!
//! The kernel releases a lock when its process ends, however it ends. A lock has the same meaning in every PID and time
//! namespace, while the number and the start time of a process differ between namespaces.
//!
//! A forked child shares the locks of its parent until exec(2), which closes all lock files. Therefore a child that
//! irqlab forks must execute a program soon, or die with its parent.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::{Errno, retry_on_intr};

use crate::host::pid_namespace;

/// Extension of a file that only serves as a lock.
pub(super) const LOCK: &str = "lock";
/// Permissions of locks and journals. A user who may open a lock's file may also hold the lock.
const PRIVATE: u32 = 0o600;
/// Time between two attempts to take a lock.
const RETRY: Duration = Duration::from_millis(10);
/// Largest part of a lock's text that is read, in bytes. The text names the holder.
const HOLDER_BYTES_MAX: u64 = 64;

/// A file with a known name that this process holds locked. Dropping this releases the lock
/// and removes the file.
#[derive(Debug)]
pub(super) struct NamedLock {
    path: PathBuf,
    _file: File,
}

impl Drop for NamedLock {
    fn drop(&mut self) {
        // The file is closed, and so unlocked, after its removal. If it cannot be removed, the next
        // start removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The outcome of an attempt to lock.
#[derive(Debug)]
pub(super) enum Attempt {
    Locked(NamedLock),
    /// Another process holds the lock. The text names that process for a message.
    HeldBy(String),
}

/// Creates a file and locks it. The file that this returns has been locked ever since another process could find it, or
/// no other process found it.
///
/// Fails if the file exists already, or its file system has no locks.
pub(super) fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::options().write(true).create_new(true).mode(PRIVATE).open(path)?;
        retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
        // Between both calls, a replay may have locked the file, taken it for a dead process's file,
        // and removed it. Then this loop creates another one.
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Takes a lock if it becomes free within `wait`. Creates the file if it does not exist.
///
/// Fails if the file cannot be created, is not a regular file of this user, or cannot be locked.
pub(super) fn lock_within(path: &Path, wait: Duration) -> io::Result<Attempt> {
    let deadline = Instant::now() + wait;
    loop {
        match try_lock(path)? {
            Attempt::HeldBy(_) if Instant::now() < deadline => std::thread::sleep(RETRY),
            attempt => return Ok(attempt),
        }
    }
}

/// Takes a lock if it is free now. Creates the file if it does not exist.
///
/// Fails if the file cannot be created, is not a regular file of this user, or cannot be locked.
pub(super) fn try_lock(path: &Path) -> io::Result<Attempt> {
    loop {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(PRIVATE);
        let mut file = File::from(rustix::fs::open(path, flags | OFlags::CLOEXEC, mode)?);
        if !lock_now(&file)? {
            return Ok(Attempt::HeldBy(read_holder(&mut file)));
        }
        let metadata = file.metadata()?;
        // The last holder may have removed the file after this process opened it. A lock on a removed
        // file excludes nobody.
        if metadata.nlink() == 0 {
            continue;
        }
        if !metadata.is_file() || !super::dir::is_ours(&metadata) {
            return Err(io::Error::other("it is not a regular file of this user"));
        }
        // The text only serves messages, so a lock without it is valid, too.
        let _ = file.set_len(0).and_then(|()| file.write_all(holder_text().as_bytes()));
        return Ok(Attempt::Locked(NamedLock { path: path.to_owned(), _file: file }));
    }
}

/// Removes a lock's file if no process holds the lock.
pub(super) fn remove_if_free(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => File::from(opened?),
    };
    if lock_now(&file)? && file.metadata()?.nlink() > 0 {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Locks a file exclusively without waiting. Returns whether the file is locked now; false
/// if another process holds the lock.
///
/// Fails if the file system has no locks.
pub(super) fn lock_now(file: &File) -> io::Result<bool> {
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

/// Renames a file to a name that must not exist.
///
/// Fails with `AlreadyExists` if the name is taken.
pub(super) fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot rename without replacing. There a hard link serves, which does not
        // replace a file either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        other => Ok(other?),
    }
}

/// The text that this process writes into its locks: its number, and the inode of the PID namespace of that number.
fn holder_text() -> String {
    format!("{} {}\n", std::process::id(), pid_namespace().unwrap_or(0))
}

/// Reads a lock's text from the file's position, which must be its start, and names the holder for a message: by its
/// number, or as "another irqlab" if the text has no number.
fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    let mut fields = text.split_whitespace();
    let pid = fields.next().and_then(|field| field.parse::<u32>().ok());
    let namespace = fields.next().and_then(|field| field.parse::<u64>().ok());
    match pid {
        Some(pid) if namespace == pid_namespace() => format!("irqlab process {pid}"),
        Some(pid) => format!("irqlab process {pid} of another PID namespace"),
        None => "another irqlab".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_names_its_holder_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.lock");
        let Attempt::Locked(held) = try_lock(&path).unwrap() else { panic!("it is free") };
        let Attempt::HeldBy(holder) = try_lock(&path).unwrap() else { panic!("it is held") };
        assert_eq!(holder, format!("irqlab process {}", std::process::id()));
        remove_if_free(&path).unwrap();
        assert!(path.exists(), "it is held");
        drop(held);
        assert!(!path.exists());
        // A file that a killed process leaves is free, whatever process number it contains.
        std::fs::write(&path, "1 4026531836\n").unwrap();
        assert!(matches!(try_lock(&path).unwrap(), Attempt::Locked(_)));
        std::fs::write(&path, "1 1\n").unwrap();
        remove_if_free(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn threads_hold_a_lock_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.lock");
        let count = directory.path().join("count");
        std::fs::write(&count, "0").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let attempt = lock_within(&path, Duration::from_secs(60)).unwrap();
                        let Attempt::Locked(_held) = attempt else { panic!("{attempt:?}") };
                        let number: u32 = std::fs::read_to_string(&count).unwrap().parse().unwrap();
                        std::fs::write(&count, (number + 1).to_string()).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "200");
        assert!(!path.exists());
    }

    #[test]
    fn a_new_name_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
        std::fs::write(&from, "new").unwrap();
        std::fs::write(&to, "old").unwrap();
        let error = rename_to_new(&from, &to).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "old");
        std::fs::remove_file(&to).unwrap();
        rename_to_new(&from, &to).unwrap();
        assert!(!from.exists() && to.exists());
    }
}
