//! Undoes the changes of processes that no longer live, according to the journals that they left. The command calls
//! [`replay_dead`] before it runs a verb; `hold` replays before a resource is changed.
//!
//! # Design constraints
//! - An owner is dead if its journal is not locked. A replay locks a journal to test that. Therefore only one replay
//!   at a time runs in a directory. Otherwise the lock of one replay would look like a living owner to another replay.
//! - A replay locks resources while it restores them. It never waits for a resource: the process that holds the
//!   resource has already replayed the changes that dead processes made to it (`hold`).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::entry::{Entry, UndoResult};
use super::lock::{Attempt, LOCK, NamedLock, lock_now, lock_within, remove_if_free, try_lock};
use super::owner::Owner;
use super::resource::{Locks, Resource};
use super::{Contents, ENTRIES_MAX, FILE_BYTES_MAX, FORMAT, dir};
use crate::host::Root;
use crate::nic::may_still_exist;

/// Limit of the files of a directory that are examined.
const FILES_MAX: usize = 1024;
/// Permissions of group and others, which a journal may not have.
const MODE_OF_OTHERS: u32 = 0o077;
/// Name of the lock file that a running replay holds, without its extension.
const REPLAY: &str = "replay";
/// Longest wait for another replay to end.
const REPLAY_WAIT: Duration = Duration::from_secs(5);

/// Undoes the changes that dead processes of this user left. Returns a message for the user for each file or setting
/// that was restored or could not be. Journals of another user are only named in a message: otherwise an ordinary user
/// could make root change settings.
#[must_use]
pub fn replay_dead() -> Vec<String> {
    let of_this_user = dir::all_own().into_iter().flat_map(|directory| replay_dead_in(&directory));
    let of_others =
        dir::of_other_users().into_iter().filter_map(|directory| name_dead_in(&directory));
    of_this_user.chain(of_others).collect()
}

/// Returns a message if another user's directory has journals of dead processes. `None` if it has none, or cannot be
/// read.
pub(super) fn name_dead_in(directory: &Path) -> Option<String> {
    let owner = std::fs::symlink_metadata(directory).ok()?.uid();
    let (shown, user) = (directory.display(), dir::name_of(owner));
    let files = std::fs::read_dir(directory).ok()?;
    let is_dead = |path: &Path| {
        let owner = path.file_name().and_then(|name| Owner::of_file_name(name.to_str()?));
        owner.is_some_and(|owner| !owner.may_live_elsewhere(path))
    };
    let mut paths = files.flatten().take(FILES_MAX).map(|file| file.path());
    paths.any(|path| is_dead(&path)).then(|| {
        format!(
            "{shown} has journals of dead processes: irqlab doctor as {user} restores what they hold"
        )
    })
}

/// Like [`replay_dead`], for journals in `directory`.
#[must_use]
pub fn replay_dead_in(directory: &Path) -> Vec<String> {
    replay(directory, &Locks::new(directory)).messages
}

/// The outcome of a replay.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// A message for each restored item, and for each item that could not be restored.
    pub messages: Vec<String>,
    /// A process that prevents this replay from restoring a resource that the caller
    /// holds. The caller should try again.
    pub waits_for: Option<String>,
}

/// Undoes the changes that dead processes recorded in the journals of `directory`. Skips journals with resources that
/// another living process holds. `held`: the resources that the caller holds, which are not locked again.
pub(super) fn replay(directory: &Path, held: &Locks) -> Replayed {
    let mut replayed = Replayed::default();
    if std::fs::symlink_metadata(directory).is_err() {
        return replayed;
    }
    let shown = directory.display();
    if let Err(reason) = dir::check(directory) {
        replayed.messages.push(format!("journals in {shown} are not replayed: it {reason}"));
        return replayed;
    }
    let files = match std::fs::read_dir(directory) {
        Ok(files) => files.flatten().take(FILES_MAX).map(|file| file.path()),
        Err(error) => {
            replayed.messages.push(format!("journals in {shown}: {error}"));
            return replayed;
        }
    };
    let files: Vec<PathBuf> = files.filter(|path| concerns_replay(path)).collect();
    if files.is_empty() {
        return replayed;
    }
    let _replay_lock = match lock_within(&directory.join(format!("{REPLAY}.{LOCK}")), REPLAY_WAIT) {
        Ok(Attempt::Locked(lock)) => lock,
        Ok(Attempt::HeldBy(holder)) => {
            replayed
                .messages
                .push(format!("journals in {shown} are not replayed: {holder} does it"));
            replayed.waits_for = Some(holder);
            return replayed;
        }
        Err(error) => {
            replayed.messages.push(format!("journals in {shown} are not replayed: {error}"));
            return replayed;
        }
    };
    for path in files {
        replay_file(&path, held, &mut replayed);
    }
    replayed
}

/// The owner of a journal, from its file's name.
fn owner_of(path: &Path) -> Option<Owner> {
    Owner::of_file_name(path.file_name()?.to_str()?)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Whether a replay must look at the file: a lock file, or a journal whose owner may be dead.
fn concerns_replay(path: &Path) -> bool {
    has_extension(path, LOCK) || owner_of(path).is_some_and(|owner| !owner.may_live_unlocked())
}

/// Removes a lock file that nobody holds, or undoes a dead owner's journal and removes it. The journal stays if some of
/// its changes may be undone later.
fn replay_file(path: &Path, held: &Locks, replayed: &mut Replayed) {
    let shown = path.display();
    let messages = &mut replayed.messages;
    if has_extension(path, LOCK) {
        if let Err(error) = remove_if_free(path) {
            messages.push(format!("{shown}: {error}"));
        }
        return;
    }
    let file = match open_locked(path) {
        Ok(Some(file)) => file,
        Ok(None) => return,
        Err(error) => return messages.push(format!("journal {shown} is not replayed: {error}")),
    };
    let pid = owner_of(path).map_or(0, Owner::pid);
    let is_journal_done = if has_extension(path, dir::ASIDE) {
        // The process was killed before it renamed the journal, so it did not make the change.
        true
    } else {
        match read(&file) {
            Ok(contents) => match lock_all(&contents, path, held) {
                Ok(_locks) => undo_all(&contents, pid, messages),
                Err(busy) => {
                    if held.has_any(&resources(&contents)) {
                        replayed.waits_for = Some(busy);
                    }
                    return;
                }
            },
            Err(error) => {
                messages.push(format!("journal {shown} of a dead process is damaged: {error}"));
                true
            }
        }
    };
    if is_journal_done && let Err(error) = super::remove_if_exists(path) {
        messages.push(format!("{shown}: {error}"));
    }
}

/// The resources that a journal's entries change, each once.
pub(super) fn resources(contents: &Contents) -> Vec<Resource> {
    let mut all: Vec<Resource> = Vec::new();
    for resource in contents.entries.iter().filter_map(Entry::resource) {
        if !all.contains(&resource) {
            all.push(resource);
        }
    }
    all
}

/// Locks the resources that the dead owner of a journal changed, except the resources that the caller holds. The error
/// names the process that holds one of them.
fn lock_all(contents: &Contents, journal: &Path, held: &Locks) -> Result<Vec<NamedLock>, String> {
    let directory = journal.parent().unwrap_or(Path::new("/"));
    let not_held = resources(contents).into_iter().filter(|resource| !held.has(resource));
    let lock = |resource: Resource| match try_lock(&resource.lock_file(directory)) {
        Ok(Attempt::Locked(lock)) => Ok(lock),
        Ok(Attempt::HeldBy(holder)) => Err(holder),
        Err(error) => Err(error.to_string()),
    };
    not_held.map(lock).collect()
}

/// Opens and locks the journal of a dead owner. `None` if the owner lives, or the journal has been removed.
fn open_locked(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let is_dead = lock_now(&file)? && file.metadata()?.nlink() > 0;
    Ok(is_dead.then_some(file))
}

/// Opens a journal. `None` if it has been removed.
///
/// Fails if another user can access the journal, or it is not a regular file.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        other => File::from(other?),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || !dir::is_ours(&metadata) || metadata.mode() & MODE_OF_OTHERS != 0 {
        return Err(io::Error::other("it is not a regular file that only this user can access"));
    }
    Ok(Some(file))
}

/// Reads and checks a journal's contents.
///
/// Fails if they are too large, no JSON of this format, or have too many entries.
pub(super) fn read(file: &File) -> io::Result<Contents> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is too large"));
    }
    let contents: Contents = serde_json::from_slice(&bytes)?;
    if contents.format != FORMAT {
        let found = contents.format;
        return Err(io::Error::other(format!("its format is {found}, not {FORMAT}")));
    }
    if contents.entries.len() > ENTRIES_MAX {
        return Err(io::Error::other("it has too many entries"));
    }
    Ok(contents)
}

/// Undoes the entries, the last one first. Returns whether the journal is no longer needed: false if an entry may be
/// undone later. An entry that can never be undone is only reported.
fn undo_all(contents: &Contents, pid: u32, messages: &mut Vec<String>) -> bool {
    let is_same_boot = match contents.is_of_this_boot() {
        Ok(is_same_boot) => is_same_boot,
        Err(error) => {
            messages.push(format!("the changes of process {pid} are not undone: {error}"));
            return false;
        }
    };
    let mut is_journal_done = true;
    for entry in contents.entries.iter().rev() {
        if entry.is_setting() && !is_same_boot {
            continue;
        }
        match entry.undo() {
            Ok(UndoResult::Nothing) => {}
            Ok(UndoResult::Removed(path)) => messages.push(format!(
                "removed {}, left by process {pid}, which no longer lives",
                path.display()
            )),
            Ok(UndoResult::Restored(what)) => messages
                .push(format!("restored {what}, changed by process {pid}, which no longer lives")),
            Err(error) => {
                is_journal_done &= !may_be_undone_later(entry, &error);
                messages.push(not_undone_message(entry, pid, &error));
            }
        }
    }
    is_journal_done
}

/// Whether another attempt to undo may succeed: with more rights, from the network namespace of the interface, or when
/// the kernel has descriptors or memory again, or the device is no longer busy or suspended. An entry that breaks a rule
/// always fails.
fn may_work_later(error: &io::Error) -> bool {
    use io::ErrorKind::{
        Interrupted, NetworkDown, OutOfMemory, PermissionDenied, ReadOnlyFilesystem, ResourceBusy,
        WouldBlock,
    };
    // These error numbers have no kind.
    let number = error.raw_os_error().unwrap_or(0);
    matches!(
        error.kind(),
        PermissionDenied
            | ReadOnlyFilesystem
            | Interrupted
            | WouldBlock
            | ResourceBusy
            | OutOfMemory
            | NetworkDown
    ) || matches!(number, libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENODEV)
        || may_still_exist(error)
}

/// Whether another attempt to undo the entry may succeed, after `error`: see [`may_work_later`]. An interrupt's affinity
/// can be restored when one of its CPUs is online again.
pub(super) fn may_be_undone_later(entry: &Entry, error: &io::Error) -> bool {
    let is_refused_value = error.raw_os_error() == Some(libc::EINVAL);
    may_work_later(error) || (is_refused_value && entry.waits_for_cpus(&Root::default()))
}

fn not_undone_message(entry: &Entry, pid: u32, error: &io::Error) -> String {
    format!("{}, changed by dead process {pid}, is left as it is: {error}", entry.describe())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{online_cpus, plant};

    /// Such an error must not cost the journal, which has the first values.
    #[test]
    fn a_lack_that_may_end_does_not_end_the_attempts() {
        let may_work = |number| may_work_later(&io::Error::from_raw_os_error(number));
        for number in [
            libc::EACCES,
            libc::EROFS,
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOMEM,
            libc::ENOBUFS,
            libc::EINTR,
            libc::EAGAIN,
            libc::EBUSY,
            libc::ENODEV,
            libc::ENETDOWN,
        ] {
            assert!(may_work(number), "{}", io::Error::from_raw_os_error(number));
        }
        for number in [libc::EINVAL, libc::EIO, libc::EOPNOTSUPP] {
            assert!(!may_work(number), "{}", io::Error::from_raw_os_error(number));
        }
        assert!(!may_work_later(&io::Error::other("it breaks a rule")));
    }

    /// The kernel refuses an affinity without an online CPU, and accepts it when the CPU is back.
    #[test]
    fn an_affinity_to_offline_cpus_stays_to_be_restored() {
        let directory = tempfile::tempdir().unwrap();
        plant(directory.path(), "sys/devices/system/cpu/online", "0-1\n");
        let waits = |path: &str, old_value: &str| {
            let entry = Entry::setting(Path::new(path), old_value).unwrap();
            entry.waits_for_cpus(&Root::new(directory.path()))
        };
        assert!(waits("/proc/irq/30/smp_affinity_list", "2-3"));
        assert!(waits("/proc/irq/30/smp_affinity", "00000001,0000000c"));
        assert!(!waits("/proc/irq/30/smp_affinity_list", "1-3"), "CPU 1 is online");
        assert!(!waits("/proc/irq/30/smp_affinity", "2"));
        assert!(!waits("/proc/irq/30/smp_affinity_list", "all"), "no list");
        assert!(!waits("/proc/sys/kernel/pid_max", "7"));
        // No machine has this CPU.
        let absent_cpu = (crate::host::CPU_MAX - 1).to_string();
        let affinity = Path::new("/proc/irq/30/smp_affinity_list");
        let entry = Entry::setting(affinity, &absent_cpu).unwrap();
        let invalid = io::Error::from_raw_os_error(libc::EINVAL);
        if online_cpus(&Root::default()).is_some() {
            assert!(may_be_undone_later(&entry, &invalid));
        }
        let other_setting = Entry::setting(Path::new("/proc/sys/kernel/pid_max"), "7").unwrap();
        assert!(!may_be_undone_later(&other_setting, &invalid));
    }
}
