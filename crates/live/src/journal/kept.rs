//! Changes that `signal advise --apply` keeps after its process has ended, until `signal undo` restores them.
//!
//! A journal of kept changes has the name `kept-N.json`. Numbers ascend with time. Kept changes of an interface must be
//! undone in the order of descending numbers: a later journal's old values are the values that an earlier one set.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::entry::UndoResult;
use super::hold::hold;
use super::lock::rename_to_new;
use super::replay::{may_be_undone_later, open, read, resources};
use super::resource::Locks;
use super::{Contents, Journal, JournalError, dir};
use crate::nic::Identity;

/// Prefix of the names of journals of kept changes. A number follows.
const PREFIX: &str = "kept-";
/// Largest number of journals of kept changes in a directory.
const FILES_MAX: usize = 1000;

/// The interface with the kept changes, and a description of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    interface: Identity,
    /// Describes the changes to readers.
    what: String,
}

/// The outcome of undoing kept changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoReport {
    /// A message for each restored setting.
    pub restored: Vec<String>,
    /// A message for each setting or journal that could not be restored, with the reason. Another attempt is possible,
    /// unless the journal is damaged.
    pub failed: Vec<String>,
    /// Names of interfaces that no longer exist, so their settings need no undo.
    pub gone: Vec<String>,
    /// Messages about changes in other network namespaces, to interfaces with the requested name.
    pub elsewhere: Vec<String>,
    /// Number of journals that were undone.
    pub journals: usize,
}

impl Journal {
    /// Keeps the changes: no replay undoes them, but [`undo_kept`] does. The decisive step is a single rename, so a
    /// kill leaves either a journal that the next start replays, or a journal of kept changes.
    ///
    /// Fails if there are too many journals of kept changes, or the file cannot be written. Then
    /// dropping the journal undoes all changes.
    pub fn keep(mut self, interface: &Identity, what: &str) -> Result<(), JournalError> {
        if self.contents.entries.is_empty() {
            return Ok(());
        }
        let directory = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        let files = files_in(&directory);
        let refuse = |reason| JournalError::Refused { path: directory.clone(), reason };
        if files.len() >= FILES_MAX {
            return Err(refuse("there are too many changes to undo (irqlab signal undo)"));
        }
        self.contents.kept = Some(Label { interface: interface.clone(), what: what.to_owned() });
        self.save()?;
        let next_number = files.last().map_or(1, |last| last.0.saturating_add(1));
        self.rename_to_first_free(&directory, next_number)?;
        // From here on, dropping this value undoes nothing.
        self.contents.entries.clear();
        self.file = None;
        let _ = File::open(&directory).and_then(|directory| directory.sync_all());
        Ok(())
    }

    /// Renames the journal's file to the first free name whose number is at least `number_min`. Another irqlab, which
    /// keeps changes of another interface, may take a name at the same time. `self.path` stays the old path.
    ///
    /// Fails if the next [`FILES_MAX`] names are taken, or if the file cannot be renamed.
    fn rename_to_first_free(&self, directory: &Path, number_min: u64) -> Result<(), JournalError> {
        for number in number_min..number_min.saturating_add(FILES_MAX as u64) {
            let new_path = directory.join(format!("{PREFIX}{number}.{}", dir::JOURNAL));
            match rename_to_new(&self.path, &new_path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                result => {
                    return result.map_err(|source| JournalError::Write { path: new_path, source });
                }
            }
        }
        let reason = "there are too many changes to undo (irqlab signal undo)";
        Err(JournalError::Refused { path: directory.to_owned(), reason })
    }
}

/// Lists the journals of kept changes with their numbers, the earliest first.
fn files_in(directory: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |path: &Path| -> Option<u64> {
        let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
        name.strip_suffix(dir::JOURNAL)?.strip_suffix('.')?.parse().ok()
    };
    let paths = entries.map(|entry| entry.path());
    let mut files: Vec<_> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
    files.sort_unstable();
    files
}

/// Restores the settings that this user's processes changed and kept, the latest change first. With
/// `interface`, restores only the settings of that interface.
#[must_use]
pub fn undo_kept(interface: Option<&Identity>) -> UndoReport {
    let mut report = UndoReport::default();
    for directory in dir::all_own() {
        undo_in(&directory, interface, &mut report);
    }
    report
}

/// Like [`undo_kept`], for journals in `directory`.
#[must_use]
pub fn undo_kept_in(directory: &Path, interface: Option<&Identity>) -> UndoReport {
    let mut report = UndoReport::default();
    undo_in(directory, interface, &mut report);
    report
}

/// The other users whose directories contain journals of kept changes.
#[must_use]
pub fn kept_by_others() -> Vec<String> {
    let directories = dir::of_other_users().into_iter();
    let with_journals = directories.filter(|directory| !files_in(directory).is_empty());
    with_journals
        .filter_map(|directory| {
            use std::os::unix::fs::MetadataExt;
            Some(dir::name_of(std::fs::symlink_metadata(directory).ok()?.uid()))
        })
        .collect()
}

/// Finds this user's kept changes of interfaces with the name `name` in other network namespaces. Returns a message for
/// each interface, which says how to undo the changes.
#[must_use]
pub fn kept_elsewhere(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    for directory in dir::all_own().iter().filter(|directory| dir::check(directory).is_ok()) {
        for (_, path) in files_in(directory) {
            let contents = open(&path).ok().flatten().and_then(|file| read(&file).ok());
            let contents =
                contents.filter(|contents| contents.is_of_this_boot().is_ok_and(|is| is));
            let Some(label) = contents.and_then(|contents| contents.kept) else { continue };
            if label.interface.name == name
                && let Err(error) = label.interface.find()
                && !messages.contains(&error.to_string())
            {
                messages.push(error.to_string());
            }
        }
    }
    messages
}

/// Undoes the journals in `directory`, the latest one first, and adds to `report`.
fn undo_in(directory: &Path, interface: Option<&Identity>, report: &mut UndoReport) {
    let files = files_in(directory);
    if files.is_empty() {
        return;
    }
    if let Err(reason) = dir::check(directory) {
        let shown = directory.display();
        return report.failed.push(format!("changes in {shown} are not undone: it {reason}"));
    }
    for (_, path) in files.into_iter().rev() {
        undo_file(&path, interface, report);
    }
}

/// Reads a journal of kept changes; returns its contents and its label. `None` if the journal does not exist any more,
/// because another process undid it.
///
/// The error is a message for the user.
fn read_kept(path: &Path) -> Result<Option<(Contents, Label)>, String> {
    let shown = path.display();
    let file = match open(path) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(None),
        Err(error) => return Err(format!("journal {shown} is not undone: {error}")),
    };
    let contents = read(&file).map_err(|error| format!("journal {shown} is damaged: {error}"))?;
    match contents.kept.clone() {
        Some(label) => Ok(Some((contents, label))),
        None => Err(format!("journal {shown} is not one of kept changes")),
    }
}

/// Undoes a journal of kept changes, and before it all later journals of the same interface. Does nothing for a journal
/// of another interface than `wanted`. `None`: every interface.
fn undo_file(path: &Path, wanted: Option<&Identity>, report: &mut UndoReport) {
    let (contents, label) = match read_kept(path) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return report.failed.push(error),
    };
    // A reboot discards settings, so changes from an earlier boot need no undoing.
    let is_of_this_boot = match contents.is_of_this_boot() {
        Ok(is_of_this_boot) => is_of_this_boot,
        Err(error) => {
            return report.failed.push(format!("{} is left as it is: {error}", label.what));
        }
    };
    let is_wanted = wanted.is_none_or(|wanted| {
        wanted.index == label.interface.index && wanted.namespace == label.interface.namespace
    });
    if !is_wanted {
        let has_same_name = wanted.is_some_and(|wanted| wanted.name == label.interface.name);
        if has_same_name
            && is_of_this_boot
            && let Err(error) = label.interface.find()
        {
            report.elsewhere.push(error.to_string());
        }
        return;
    }
    if !is_of_this_boot {
        return remove(path, report);
    }
    // In another network namespace, the sysctls of the interface's namespace would seem not to exist.
    match label.interface.find() {
        Ok(Some(_)) => {}
        Ok(None) => report.gone.push(label.interface.name.clone()),
        Err(error) => {
            return report.failed.push(format!("{} is left as it is: {error}", label.what));
        }
    }
    for _ in 0..FILES_MAX {
        let Some(later) = undo_locked(path, &label, &contents, report) else { return };
        // Undoes the later changes first, because their old values are the values that this journal's owner set.
        undo_file(&later, wanted, report);
        if later.symlink_metadata().is_ok() {
            // The later journal could not be undone, so this one must wait.
            return;
        }
    }
}

/// Locks the resources of a journal, undoes its entries, and adds the outcome to `report`. If there is a later journal
/// of the same interface, undoes nothing, and returns the path of that journal.
fn undo_locked(
    path: &Path,
    label: &Label,
    contents: &Contents,
    report: &mut UndoReport,
) -> Option<PathBuf> {
    let mut locks = Locks::new(path.parent().unwrap_or(Path::new("/")));
    for resource in resources(contents) {
        match hold(&mut locks, resource) {
            Ok(restored) => report.restored.extend(restored),
            Err(error) => {
                report.failed.push(format!("{} is left as it is: {error}", label.what));
                return None;
            }
        }
    }
    // Another process may have undone the journal before this one had the locks.
    if !matches!(read_kept(path), Ok(Some(_))) {
        return None;
    }
    if let Some(later) = later_journal(path, label) {
        return Some(later);
    }
    let mut is_journal_done = true;
    for entry in contents.entries.iter().rev() {
        match entry.undo() {
            Ok(UndoResult::Restored(what)) => report.restored.push(what),
            Ok(_) => {}
            Err(error) => {
                is_journal_done &= !may_be_undone_later(entry, &error);
                report.failed.push(format!("{} is left as it is: {error}", entry.describe()));
            }
        }
    }
    report.journals += 1;
    if is_journal_done {
        remove(path, report);
    }
    None
}

/// The latest journal of the interface in `label` among the journals after `path` in its directory. `None` if there is
/// none, or if `path` no longer exists.
fn later_journal(path: &Path, label: &Label) -> Option<PathBuf> {
    let files = files_in(path.parent()?);
    let position = files.iter().position(|(_, file)| file == path)?;
    let is_of_interface = |file: &Path| {
        read_kept(file).ok().flatten().is_some_and(|(_, file_label)| {
            // Names may change, so they are not compared.
            let (this, other) = (&label.interface, &file_label.interface);
            (this.index, &this.namespace) == (other.index, &other.namespace)
        })
    };
    let mut later = files[position + 1..].iter().rev().map(|(_, file)| file);
    later.find(|file| is_of_interface(file)).cloned()
}

/// Removes a journal that is no longer needed.
fn remove(path: &Path, report: &mut UndoReport) {
    if let Err(error) = super::remove_if_exists(path) {
        report.failed.push(format!("{}: {error}", path.display()));
    }
}
