//! Undoes the changes of processes that no longer exist.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use super::entry::{Entry, UndoResult};
use super::process::{ProcessName, boot_id};
use super::{Contents, ENTRIES_MAX, FILE_BYTES_MAX, FORMAT, dir};
use crate::nic::is_elsewhere;

/// Maximum number of files read in the journal's directory.
const FILES_MAX: usize = 1024;
/// Permissions that nobody but the owner may have.
const OTHERS: u32 = 0o077;

/// Undoes what dead processes of this user left according to their journals; returns one message per
/// restored item, for the user. Journals of another user are named, not replayed: an
/// ordinary user could have root change settings.
#[must_use]
pub fn replay_dead() -> Vec<String> {
    let own = dir::all_own().into_iter().flat_map(|directory| replay_dead_in(&directory));
    let others = dir::of_other_users().into_iter().filter_map(|directory| name_dead_in(&directory));
    own.chain(others).collect()
}

/// Says that a directory of another user has journals of dead processes.
pub(super) fn name_dead_in(directory: &Path) -> Option<String> {
    let owner = std::fs::symlink_metadata(directory).ok()?.uid();
    let (shown, who) = (directory.display(), dir::name_of(owner));
    let files = std::fs::read_dir(directory).ok()?;
    let is_dead = |name: &str| ProcessName::of_file_name(name).is_some_and(|one| !one.lives());
    let mut names = files.flatten().take(FILES_MAX).map(|file| file.file_name());
    names.any(|name| name.to_str().is_some_and(is_dead)).then(|| {
        format!(
            "{shown} has journals of dead processes: irqlab doctor as {who} restores what they hold"
        )
    })
}

/// As [`replay_dead`], in a directory of the caller's choice.
#[must_use]
pub fn replay_dead_in(directory: &Path) -> Vec<String> {
    let mut messages = Vec::new();
    if std::fs::symlink_metadata(directory).is_err() {
        return messages;
    }
    if let Err(reason) = dir::check(directory) {
        return vec![format!("journals in {} are not replayed: it {reason}", directory.display())];
    }
    let files = match std::fs::read_dir(directory) {
        Ok(files) => files,
        Err(error) => return vec![format!("journals in {}: {error}", directory.display())],
    };
    for file in files.flatten().take(FILES_MAX) {
        let name = file.file_name();
        let process = name.to_str().and_then(ProcessName::of_file_name);
        if let Some(process) = process.filter(|process| !process.lives()) {
            replay_file(&file.path(), process, &mut messages);
        }
    }
    messages
}

fn replay_file(path: &Path, process: ProcessName, messages: &mut Vec<String>) {
    let shown = path.display();
    if path.extension().is_some_and(|extension| extension == dir::ASIDE) {
        // It was never renamed, so what it announces was never done.
        if let Err(error) = super::remove_if_there(path) {
            messages.push(format!("{shown}: {error}"));
        }
        return;
    }
    let file = match open_locked(path) {
        Ok(Some(file)) => file,
        Ok(None) => return,
        Err(error) => return messages.push(format!("journal {shown} is not replayed: {error}")),
    };
    let all_undone = match read(&file) {
        Ok(contents) => undo_all(&contents, process.pid(), messages),
        Err(error) => {
            messages.push(format!("journal {shown} of a dead process is damaged: {error}"));
            true
        }
    };
    if all_undone && let Err(error) = super::remove_if_there(path) {
        messages.push(format!("{shown}: {error}"));
    }
}

/// Opens a journal for one replay at a time; `None` when another replay has it or had it.
pub(super) fn open_locked(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        other => File::from(other?),
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let metadata = file.metadata()?;
    if metadata.nlink() == 0 {
        return Ok(None);
    }
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

/// Undoes the entries, the last one first. Returns whether the journal has served: an entry that
/// can never be undone is reported once and dropped, one that may be undone later is kept.
fn undo_all(contents: &Contents, pid: u32, messages: &mut Vec<String>) -> bool {
    let same_boot = contents.boot_id == boot_id();
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

/// Rights may be granted later, and an interface of another network namespace is set from there; an entry
/// that breaks a rule always does.
pub(super) fn may_work_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
        || is_elsewhere(error)
}

fn not_undone(entry: &Entry, pid: u32, error: &io::Error) -> String {
    format!("{}, changed by dead process {pid}, is left as it is: {error}", entry.describe())
}
