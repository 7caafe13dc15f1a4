//! Changes that stay after their process has ended: `signal advise --apply` keeps settings of an interface until
//! `signal undo`, and `affinity --apply` keeps CPUs of interrupts until `affinity --undo`.
//!
//! A journal of kept changes has the name `kept-N.json`. Numbers ascend with time. Kept changes of a subject must be
//! undone in the order of descending numbers: a later journal's old values are the values that an earlier one set. A
//! subject is one interface, or the CPUs of all interrupts.

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
/// The reason why no more changes are kept.
const TOO_MANY: &str =
    "there are too many changes to undo (irqlab signal undo, irqlab affinity --undo)";

/// The subject of the kept changes, and a description of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    /// The interface; `None` for the CPUs of interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface: Option<Identity>,
    /// Describes the changes to readers.
    what: String,
}

impl Label {
    /// Whether another journal has changes of the same subject. Names of interfaces may change, so they are not compared.
    fn has_subject_of(&self, other: &Label) -> bool {
        match (&self.interface, &other.interface) {
            (None, None) => true,
            (Some(this), Some(other)) => is_same(this, other),
            _ => false,
        }
    }
}

/// Whether two identities describe one interface. Its name may have changed.
fn is_same(this: &Identity, other: &Identity) -> bool {
    (this.index, &this.namespace) == (other.index, &other.namespace)
}

/// The kept changes to undo.
#[derive(Clone, Copy, Debug)]
enum Wanted<'a> {
    AllInterfaces,
    Interface(&'a Identity),
    Interrupts,
}

impl Wanted<'_> {
    fn of_interface(interface: Option<&Identity>) -> Wanted<'_> {
        interface.map_or(Wanted::AllInterfaces, Wanted::Interface)
    }

    fn includes(self, label: &Label) -> bool {
        match (self, &label.interface) {
            (Wanted::AllInterfaces, Some(_)) | (Wanted::Interrupts, None) => true,
            (Wanted::Interface(wanted), Some(interface)) => is_same(wanted, interface),
            _ => false,
        }
    }
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
    /// Keeps the changes of an interface: no replay undoes them, but [`undo_kept`] does. The decisive step is a single
    /// rename, so a kill leaves either a journal that the next start replays, or a journal of kept changes.
    ///
    /// Fails if there are too many journals of kept changes, or the file cannot be written. Then
    /// dropping the journal undoes all changes.
    pub fn keep(self, interface: &Identity, what: &str) -> Result<(), JournalError> {
        self.keep_as(Label { interface: Some(interface.clone()), what: what.to_owned() })
    }

    /// Like [`Journal::keep`], for the CPUs of interrupts: [`undo_kept_interrupts`] undoes them.
    ///
    /// Fails as [`Journal::keep`] does.
    pub fn keep_interrupts(self, what: &str) -> Result<(), JournalError> {
        self.keep_as(Label { interface: None, what: what.to_owned() })
    }

    fn keep_as(mut self, label: Label) -> Result<(), JournalError> {
        if self.contents.entries.is_empty() {
            return Ok(());
        }
        let directory = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        let files = files_in(&directory);
        let refuse = |reason| JournalError::Refused { path: directory.clone(), reason };
        if files.len() >= FILES_MAX {
            return Err(refuse(TOO_MANY));
        }
        self.contents.kept = Some(label);
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
        Err(JournalError::Refused { path: directory.to_owned(), reason: TOO_MANY })
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

/// Restores the settings of interfaces that this user's processes changed and kept, the latest change first. With
/// `interface`, restores only the settings of that interface.
#[must_use]
pub fn undo_kept(interface: Option<&Identity>) -> UndoReport {
    undo_in_all(&dir::all_own(), Wanted::of_interface(interface))
}

/// Like [`undo_kept`], for journals in `directory`.
#[must_use]
pub fn undo_kept_in(directory: &Path, interface: Option<&Identity>) -> UndoReport {
    undo_in_all(&[directory.to_owned()], Wanted::of_interface(interface))
}

/// Restores the CPUs of interrupts that this user's processes changed and kept, the latest change first.
#[must_use]
pub fn undo_kept_interrupts() -> UndoReport {
    undo_in_all(&dir::all_own(), Wanted::Interrupts)
}

fn undo_in_all(directories: &[PathBuf], wanted: Wanted<'_>) -> UndoReport {
    let mut report = UndoReport::default();
    directories.iter().for_each(|directory| undo_in(directory, wanted, &mut report));
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
            let label = contents.and_then(|contents| contents.kept);
            let Some(interface) = label.and_then(|label| label.interface) else { continue };
            if interface.name == name
                && let Err(error) = interface.find()
                && !messages.contains(&error.to_string())
            {
                messages.push(error.to_string());
            }
        }
    }
    messages
}

/// Undoes the journals in `directory`, the latest one first, and adds to `report`.
fn undo_in(directory: &Path, wanted: Wanted<'_>, report: &mut UndoReport) {
    let files = files_in(directory);
    if files.is_empty() {
        return;
    }
    if let Err(reason) = dir::check(directory) {
        let shown = directory.display();
        return report.failed.push(format!("changes in {shown} are not undone: it {reason}"));
    }
    for (_, path) in files.into_iter().rev() {
        undo_file(&path, wanted, report);
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

/// Undoes a journal of kept changes, and before it all later journals of the same subject. Does nothing for a journal
/// of another subject than `wanted`.
fn undo_file(path: &Path, wanted: Wanted<'_>, report: &mut UndoReport) {
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
    if !wanted.includes(&label) {
        if let (Wanted::Interface(wanted), Some(interface)) = (wanted, &label.interface)
            && wanted.name == interface.name
            && is_of_this_boot
            && let Err(error) = interface.find()
        {
            report.elsewhere.push(error.to_string());
        }
        return;
    }
    if !is_of_this_boot {
        return remove(path, report);
    }
    // In another network namespace, the sysctls of the interface's namespace would seem not to exist.
    if let Some(interface) = &label.interface {
        match interface.find() {
            Ok(Some(_)) => {}
            Ok(None) => report.gone.push(interface.name.clone()),
            Err(error) => {
                return report.failed.push(format!("{} is left as it is: {error}", label.what));
            }
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
/// of the same subject, undoes nothing, and returns the path of that journal.
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

/// The latest journal of the subject in `label` among the journals after `path` in its directory. `None` if there is
/// none, or if `path` no longer exists.
fn later_journal(path: &Path, label: &Label) -> Option<PathBuf> {
    let files = files_in(path.parent()?);
    let position = files.iter().position(|(_, file)| file == path)?;
    let is_of_subject = |file: &Path| {
        let read = read_kept(file).ok().flatten();
        read.is_some_and(|(_, file_label)| label.has_subject_of(&file_label))
    };
    let mut later = files[position + 1..].iter().rev().map(|(_, file)| file);
    later.find(|file| is_of_subject(file)).cloned()
}

/// Removes a journal that is no longer needed.
fn remove(path: &Path, report: &mut UndoReport) {
    if let Err(error) = super::remove_if_exists(path) {
        report.failed.push(format!("{}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt;

    use super::super::Resource;
    use super::*;

    /// A setting that each network namespace has separately.
    const TTL: &str = "/proc/sys/net/ipv4/ip_default_ttl";

    /// Changes the setting, and keeps the change as one of interrupts.
    fn change(directory: &Path, value: &str) {
        let mut journal = Journal::open_in(directory).unwrap();
        journal.lock(Resource::setting(Path::new(TTL))).unwrap();
        journal.will_write(Path::new(TTL), ttl().trim()).unwrap();
        std::fs::write(TTL, value).unwrap();
        journal.keep_interrupts("the CPUs of interrupt lines").unwrap();
    }

    fn ttl() -> String {
        std::fs::read_to_string(TTL).unwrap().trim().to_owned()
    }

    #[test]
    fn kept_changes_of_interrupts_are_undone_apart_from_those_of_interfaces() {
        // SAFETY: only the network namespace of this thread changes.
        let result =
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) };
        if let Err(error) = result {
            return needs::not_run(needs::Need::Namespaces, error);
        }
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("journal");
        std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        let former = ttl();
        change(&directory, "71");
        change(&directory, "72");
        assert_eq!(super::super::replay_dead_in(&directory), Vec::<String>::new());
        assert_eq!(undo_kept_in(&directory, None), UndoReport::default());
        assert_eq!(ttl(), "72", "neither a start nor `signal undo` restores it");
        let undone = undo_in_all(std::slice::from_ref(&directory), Wanted::Interrupts);
        assert_eq!((undone.journals, undone.failed), (2, Vec::new()));
        assert_eq!(ttl(), former, "the earlier change is undone last");
        let again = undo_in_all(std::slice::from_ref(&directory), Wanted::Interrupts);
        assert_eq!(again, UndoReport::default());
    }

    /// Earlier versions wrote only changes of interfaces.
    #[test]
    fn labels_of_earlier_versions_have_an_interface() {
        let interrupts = Label { interface: None, what: "lines".to_owned() };
        let text = serde_json::to_string(&interrupts).unwrap();
        assert_eq!(text, r#"{"what":"lines"}"#);
        assert_eq!(serde_json::from_str::<Label>(&text).unwrap(), interrupts);
        assert!(interrupts.has_subject_of(&interrupts) && Wanted::Interrupts.includes(&interrupts));
        assert!(!Wanted::AllInterfaces.includes(&interrupts));
    }
}
