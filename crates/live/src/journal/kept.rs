//! Changes that outlive the process that made them, until a user has them undone.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::entry::UndoResult;
use super::hold::hold;
use super::lock::rename_to_new;
use super::replay::{may_work_later, open, read, resources};
use super::resource::Locks;
use super::{Contents, Journal, JournalError, dir};
use crate::nic::Identity;

/// What the name of such a journal starts with. A number follows, the highest is the latest.
const PREFIX: &str = "kept-";
/// Most journals of this kind in a directory.
const FILES_MAX: usize = 1000;

/// Whose changes, and what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    interface: Identity,
    /// For readers.
    what: String,
}

/// What undoing changes did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoReport {
    /// What was restored, one message each.
    pub restored: Vec<String>,
    /// What could not be restored, and why. It can be tried again, unless its journal was damaged.
    pub failed: Vec<String>,
    /// Interfaces that are gone, and their settings with them.
    pub gone: Vec<String>,
    /// Where another network namespace has changes of an interface with the name that was asked for.
    pub elsewhere: Vec<String>,
    /// Number of changes that had been kept.
    pub journals: usize,
}

impl Journal {
    /// Lets the changes be: no replay undoes them, but [`undo_kept`] does. One rename decides, so that a kill
    /// leaves either a journal that the next start replays, or this one.
    ///
    /// # Errors
    /// When there are too many of them, or the file cannot be written; then everything is undone.
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
        let number = files.last().map_or(1, |last| last.0.saturating_add(1));
        self.rename_to_first_free(&directory, number)?;
        // Nothing is left to undo when this is dropped.
        self.contents.entries.clear();
        self.file = None;
        let _ = File::open(&directory).and_then(|directory| directory.sync_all());
        Ok(())
    }

    /// Gives the journal the first name from this number on that no other one has: an irqlab that keeps
    /// changes of another interface takes one at the same time.
    fn rename_to_first_free(&self, directory: &Path, number: u64) -> Result<(), JournalError> {
        for number in number..number.saturating_add(FILES_MAX as u64) {
            let place = directory.join(format!("{PREFIX}{number}.{}", dir::JOURNAL));
            match rename_to_new(&self.path, &place) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                done => return done.map_err(|source| JournalError::Write { path: place, source }),
            }
        }
        let reason = "there are too many changes to undo (irqlab signal undo)";
        Err(JournalError::Refused { path: directory.to_owned(), reason })
    }
}

/// Journals of kept changes, the earliest first.
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

/// Restores what this user's processes changed and kept, the latest change first; with `interface`, what they
/// changed of that one.
#[must_use]
pub fn undo_kept(interface: Option<&Identity>) -> UndoReport {
    let mut all = UndoReport::default();
    for directory in dir::all_own() {
        undo_in(&directory, interface, &mut all);
    }
    all
}

/// As [`undo_kept`], in a directory of the caller's choice.
#[must_use]
pub fn undo_kept_in(directory: &Path, interface: Option<&Identity>) -> UndoReport {
    let mut all = UndoReport::default();
    undo_in(directory, interface, &mut all);
    all
}

/// The directories of other users that hold kept changes, each with its user.
#[must_use]
pub fn kept_by_others() -> Vec<String> {
    let others = dir::of_other_users().into_iter();
    let with_files = others.filter(|directory| !files_in(directory).is_empty());
    with_files
        .filter_map(|directory| {
            use std::os::unix::fs::MetadataExt;
            Some(dir::name_of(std::fs::symlink_metadata(directory).ok()?.uid()))
        })
        .collect()
}

/// Where this user has kept changes of an interface of that name in other network namespaces: a message for each,
/// which says how to undo them.
#[must_use]
pub fn kept_elsewhere(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for directory in dir::all_own().iter().filter(|directory| dir::check(directory).is_ok()) {
        for (_, path) in files_in(directory) {
            let contents = open(&path).ok().flatten().and_then(|file| read(&file).ok());
            let contents =
                contents.filter(|contents| contents.is_of_this_boot().is_ok_and(|is| is));
            let Some(label) = contents.and_then(|contents| contents.kept) else { continue };
            if label.interface.name == name
                && let Err(error) = label.interface.find()
                && !found.contains(&error.to_string())
            {
                found.push(error.to_string());
            }
        }
    }
    found
}

fn undo_in(directory: &Path, interface: Option<&Identity>, all: &mut UndoReport) {
    let files = files_in(directory);
    if files.is_empty() {
        return;
    }
    if let Err(reason) = dir::check(directory) {
        let shown = directory.display();
        return all.failed.push(format!("changes in {shown} are not undone: it {reason}"));
    }
    for (_, path) in files.into_iter().rev() {
        undo_file(&path, interface, all);
    }
}

/// A journal of kept changes, and its label. `None` where it was undone meanwhile.
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

fn undo_file(path: &Path, wanted: Option<&Identity>, all: &mut UndoReport) {
    let (contents, label) = match read_kept(path) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return all.failed.push(error),
    };
    // Settings of an earlier boot are gone with it.
    let is_of_this_boot = match contents.is_of_this_boot() {
        Ok(is_of_this_boot) => is_of_this_boot,
        Err(error) => return all.failed.push(format!("{} is left as it is: {error}", label.what)),
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
            all.elsewhere.push(error.to_string());
        }
        return;
    }
    if !is_of_this_boot {
        return remove(path, all);
    }
    // From another network namespace, sysctls look as if they were gone, too.
    match label.interface.find() {
        Ok(Some(_)) => {}
        Ok(None) => all.gone.push(label.interface.name.clone()),
        Err(error) => return all.failed.push(format!("{} is left as it is: {error}", label.what)),
    }
    for _ in 0..FILES_MAX {
        let Some(later) = undo_locked(path, &label, &contents, all) else { return };
        // What was kept since is undone first: its old values are those that this journal's owner set.
        undo_file(&later, wanted, all);
        if later.symlink_metadata().is_ok() {
            // It is among the failures, and nothing is undone out of order.
            return;
        }
    }
}

/// Undoes a journal's entries once no other irqlab changes what they are about. Where another irqlab has kept later
/// changes of the interface meanwhile, undoes nothing and returns their journal.
fn undo_locked(
    path: &Path,
    label: &Label,
    contents: &Contents,
    all: &mut UndoReport,
) -> Option<PathBuf> {
    let mut locks = Locks::new(path.parent().unwrap_or(Path::new("/")));
    for resource in resources(contents) {
        match hold(&mut locks, resource) {
            Ok(restored) => all.restored.extend(restored),
            Err(error) => {
                all.failed.push(format!("{} is left as it is: {error}", label.what));
                return None;
            }
        }
    }
    // Another undo may have been faster.
    if !matches!(read_kept(path), Ok(Some(_))) {
        return None;
    }
    if let Some(later) = later_of(path, label) {
        return Some(later);
    }
    let mut has_served = true;
    for entry in contents.entries.iter().rev() {
        match entry.undo() {
            Ok(UndoResult::Restored(what)) => all.restored.push(what),
            Ok(_) => {}
            Err(error) => {
                has_served &= !may_work_later(&error);
                all.failed.push(format!("{} is left as it is: {error}", entry.describe()));
            }
        }
    }
    all.journals += 1;
    if has_served {
        remove(path, all);
    }
    None
}

/// The latest journal of the same interface, if it is later than this one.
fn later_of(path: &Path, label: &Label) -> Option<PathBuf> {
    let files = files_in(path.parent()?);
    let own = files.iter().position(|(_, file)| file == path)?;
    let is_of_interface = |file: &Path| {
        read_kept(file).ok().flatten().is_some_and(|(_, other)| {
            let (one, other) = (&label.interface, &other.interface);
            (one.index, &one.namespace) == (other.index, &other.namespace)
        })
    };
    let mut later = files[own + 1..].iter().rev().map(|(_, file)| file);
    later.find(|file| is_of_interface(file)).cloned()
}

fn remove(path: &Path, all: &mut UndoReport) {
    if let Err(error) = super::remove_if_there(path) {
        all.failed.push(format!("{}: {error}", path.display()));
    }
}
