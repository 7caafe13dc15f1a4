//! Undoes the changes of processes that no longer exist.
//!
//! # Design constraints
//! - An owner is dead if its journal is not locked. A replay locks a journal to test that.
//!   Therefore only one replay at a time runs in a directory, and a locked journal always
//!   has a living owner.
//! - Resources are locked while they are restored. A replay never waits for a resource: the process
//!   that holds it has already replayed the changes that dead processes left (`hold`).

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
use crate::nic::is_elsewhere;

/// Limit of the files that are read in a journal's directory.
const FILES_MAX: usize = 1024;
/// Permissions that only the owner may have.
const OTHERS: u32 = 0o077;
/// Name of the lock file that a replay holds, without its extension.
const REPLAY: &str = "replay";
/// Longest wait for another replay to end.
const REPLAY_WAIT: Duration = Duration::from_secs(5);

/// Undoes the changes that dead processes of this user left, according to their journals. Returns
/// one message for each restored item, for the user. Journals of another user are named, not
/// replayed: otherwise an ordinary user could make root change settings.
#[must_use]
pub fn replay_dead() -> Vec<String> {
    let of_this_user = dir::all_own().into_iter().flat_map(|directory| replay_dead_in(&directory));
    let of_others =
        dir::of_other_users().into_iter().filter_map(|directory| name_dead_in(&directory));
    of_this_user.chain(of_others).collect()
}

/// Returns a message if another user's directory has journals of dead processes.
pub(super) fn name_dead_in(directory: &Path) -> Option<String> {
    let owner = std::fs::symlink_metadata(directory).ok()?.uid();
    let (shown, who) = (directory.display(), dir::name_of(owner));
    let files = std::fs::read_dir(directory).ok()?;
    let is_dead = |path: &Path| {
        let owner = path.file_name().and_then(|name| Owner::of_file_name(name.to_str()?));
        owner.is_some_and(|owner| !owner.may_live_elsewhere(path))
    };
    let mut paths = files.flatten().take(FILES_MAX).map(|file| file.path());
    paths.any(|path| is_dead(&path)).then(|| {
        format!(
            "{shown} has journals of dead processes: irqlab doctor as {who} restores what they hold"
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
    /// A process that prevents this replay from restoring a resource of the caller that a
    /// dead process changed.
    pub waits_for: Option<String>,
}

/// Undoes the changes that dead processes left in a directory. Skips resources that a living
/// process holds, except the resources that this process holds in `held`.
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
    let files: Vec<PathBuf> = files.filter(|path| is_of_replay(path)).collect();
    if files.is_empty() {
        return replayed;
    }
    let _one_at_a_time = match lock_within(&directory.join(format!("{REPLAY}.{LOCK}")), REPLAY_WAIT)
    {
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

fn is_of_replay(path: &Path) -> bool {
    has_extension(path, LOCK) || owner_of(path).is_some_and(|owner| !owner.may_live_unlocked())
}

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
    let all_undone = if has_extension(path, dir::ASIDE) {
        // The journal was never renamed, so the announced changes were never made.
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
    if all_undone && let Err(error) = super::remove_if_there(path) {
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

/// Locks the resources that a dead process changed, unless the caller holds them. `Err` names a
/// holder of such a resource.
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

/// Opens a journal and locks it; `None` if its owner lives, or the journal has been removed.
fn open_locked(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let is_dead = lock_now(&file)? && file.metadata()?.nlink() > 0;
    Ok(is_dead.then_some(file))
}

/// Opens a journal if only this user could write it; `None` if it has been removed.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        other => File::from(other?),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || !dir::is_ours(&metadata) || metadata.mode() & OTHERS != 0 {
        return Err(io::Error::other("it is not a regular file that only this user can access"));
    }
    Ok(Some(file))
}

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

/// Undoes the entries, the last one first. Returns whether the journal is no longer needed. An
/// entry that can never be undone is reported once and dropped; an entry that may be undone
/// later keeps the journal.
fn undo_all(contents: &Contents, pid: u32, messages: &mut Vec<String>) -> bool {
    let same_boot = match contents.is_of_this_boot() {
        Ok(same_boot) => same_boot,
        Err(error) => {
            messages.push(format!("what process {pid} changed is left as it is: {error}"));
            return false;
        }
    };
    let mut all_undone = true;
    for entry in contents.entries.iter().rev() {
        if entry.is_setting() && !same_boot {
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
                all_undone &= !may_work_later(&error);
                messages.push(not_undone(entry, pid, &error));
            }
        }
    }
    all_undone
}

/// Whether another attempt may succeed. Rights may be granted later, and an interface of another
/// network namespace can be set from there. An entry that breaks a rule always fails.
pub(super) fn may_work_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
        || is_elsewhere(error)
}

fn not_undone(entry: &Entry, pid: u32, error: &io::Error) -> String {
    format!("{}, changed by dead process {pid}, is left as it is: {error}", entry.describe())
}
