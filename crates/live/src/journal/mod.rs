//! Records the changes that a running irqlab must undo: files that it created, and kernel settings that it changed.
//!
//! Code that changes the machine opens a [`Journal`], and records each change *before* it makes the change. Users are
//! `nic::Session`, the route of interrupts in `footprint`, scratch files, and temporary files of `outputs`. Dropping
//! the journal undoes the changes, the last one first, and removes the journal's file. After a SIGKILL the file
//! remains. The next start of irqlab undoes its changes: the command calls [`replay_dead`] before it runs a verb.
//!
//! `signal advise --apply` and `affinity --apply` keep their changes ([`Journal::keep`], [`Journal::keep_interrupts`]).
//! Journals of kept changes have other names, which replays ignore; `signal undo` calls [`undo_kept`], and `affinity
//! --undo` calls [`undo_kept_interrupts`].
//!
//! The file's format must stay readable: an irqlab of another version may have written the file. The fields of
//! `Contents` and `Entry` are its keys.
//!
//! # Design constraints
//! - Each journal is a JSON file with a unique name. Its owner holds the file locked (flock(2)) while it lives. Process
//!   numbers and start times cannot identify an owner: they differ between namespaces, and numbers are reused.
//! - A resource ([`Resource`]) is locked before its values are read, and until they are restored. Otherwise another
//!   irqlab would take changed values for the values to restore.
//! - The content of a journal is not trusted. The file must be small, belong to this user, and be in a directory that
//!   only this user can write. A replay restores only kernel settings under a few known paths, and removes only
//!   regular files that irqlab recognisably created.
//! - A reboot discards settings, so a replay does not restore settings from an earlier boot. It removes files.

mod dir;
mod entry;
mod hold;
mod kept;
mod lock;
mod owner;
mod replay;
mod resource;
#[cfg(test)]
mod tests_processes;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use outputs::{Temporary, TemporaryNote};
use serde::{Deserialize, Serialize};

use crate::nic::{Identity, Setting};

pub use dir::default_dir;
use entry::Entry;
pub use kept::{
    UndoReport, kept_by_others, kept_elsewhere, undo_kept, undo_kept_in, undo_kept_interrupts,
};
pub use replay::{replay_dead, replay_dead_in};
use resource::Locks;
pub use resource::Resource;

/// Version of the journal's file format.
const FORMAT: u32 = 1;
/// Maximum number of entries of a journal.
const ENTRIES_MAX: usize = 4096;
/// Largest journal file that is read or written, in bytes.
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest value of a setting, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// Why a change cannot be journalled, and therefore must not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The journal's directory cannot be created, or others can write it.
    #[error("the journal directory {path}: {reason}")]
    Directory {
        path: PathBuf,
        /// The flaw of the directory, as a clause.
        reason: String,
    },
    /// The journal cannot be written.
    #[error("the journal {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
    /// An entry that a replay would refuse.
    #[error("{path} cannot be journalled: {reason}")]
    Refused {
        path: PathBuf,
        /// The rule that the entry breaks.
        reason: &'static str,
    },
    /// Another irqlab changes the resource, or restores the changes that a killed process made to it.
    #[error("{what} is being changed by {holder} (wait until that has ended)")]
    Busy {
        /// The interface, interrupt or setting.
        what: String,
        /// Names the other process.
        holder: String,
    },
}

/// The journal file's contents.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    format: u32,
    /// `/proc/sys/kernel/random/boot_id` at the time of writing.
    boot_id: String,
    entries: Vec<Entry>,
    /// The subject and a description, for changes that are kept after their process has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<kept::Label>,
}

impl Contents {
    /// Whether the changes were made since the last boot.
    fn is_of_this_boot(&self) -> std::io::Result<bool> {
        Ok(self.boot_id == owner::boot_id()?)
    }
}

/// Changes that this process must undo. A process may have several journals at once, each with its own file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    contents: Contents,
    /// The file at `path`, locked. `None` while there are no entries.
    file: Option<File>,
    /// The resources that this journal's owner may change.
    locks: Locks,
}

impl Journal {
    /// Creates an empty journal in [`default_dir`]. Writes nothing before the first entry.
    ///
    /// Fails if the directory cannot be created or others can write it, or `/proc` cannot be read.
    pub fn open() -> Result<Self, JournalError> {
        Self::open_in(&default_dir())
    }

    /// Like [`Journal::open`], in `directory`, which is created with mode 0755
    /// if it does not exist.
    ///
    /// Fails as [`Journal::open`] does.
    pub fn open_in(directory: &Path) -> Result<Self, JournalError> {
        dir::prepare(directory)?;
        let failed = |source| JournalError::Write { path: directory.to_owned(), source };
        let name = owner::new_file_name().map_err(failed)?;
        let boot_id = owner::boot_id().map_err(failed)?;
        let contents = Contents { format: FORMAT, boot_id, entries: Vec::new(), kept: None };
        let path = directory.join(name);
        Ok(Journal { path, contents, file: None, locks: Locks::new(directory) })
    }

    /// Locks a resource for this process until the journal is dropped, and undoes the changes that killed processes
    /// left. Read the values to restore only afterwards. Returns a message for each undone change.
    ///
    /// Does nothing if this journal has the resource already. Fails with [`JournalError::Busy`] if another irqlab holds the
    /// resource for more than 3 s.
    pub fn lock(&mut self, resource: Resource) -> Result<Vec<String>, JournalError> {
        hold::hold(&mut self.locks, resource)
    }

    /// Records that a file is about to be created. Its name must start with `irqlab-`: by this prefix a replay
    /// recognises a file of irqlab. For other names see [`Journal::created_file`].
    ///
    /// Fails if the directory does not exist, the name has another prefix, or the journal cannot be
    /// written. Then do not create the file.
    pub fn will_create_file(&mut self, path: &Path) -> Result<(), JournalError> {
        self.add(Entry::new_file(path)?)
    }

    /// Records that a file has been created. A replay recognises the file by its device and inode, so it may have any
    /// name. If irqlab is killed between the creation and this call, the file remains.
    ///
    /// Fails if it is not a regular file, or the journal cannot be written. Then the caller must remove the file.
    pub fn created_file(&mut self, path: &Path) -> Result<(), JournalError> {
        self.add(Entry::existing_file(path)?)
    }

    /// Records that a kernel setting is about to be changed from `old_value`, which was read after
    /// [`Journal::lock`]. Only paths under `/proc/sys`, `/proc/irq`, `/sys/class/net` and
    /// `/sys/kernel` are accepted.
    ///
    /// Fails if a replay would refuse the path or the value, the setting is not locked, or the
    /// journal cannot be written. Then do not change the setting.
    pub fn will_write(&mut self, path: &Path, old_value: &str) -> Result<(), JournalError> {
        self.add(Entry::setting(path, old_value)?)
    }

    /// Records that a setting of an interface is about to be changed from `old_value`, which was
    /// read after [`Journal::lock`].
    ///
    /// Fails if the value is too long, the interface is not locked, or the journal cannot be
    /// written. Then do not change the setting.
    pub fn will_set(
        &mut self,
        interface: &Identity,
        setting: Setting,
        old_value: &str,
    ) -> Result<(), JournalError> {
        self.add(Entry::interface(interface, setting, old_value)?)
    }

    /// Removes all entries about `path`, so the journal will not undo these changes. Does nothing if there is none.
    ///
    /// Fails if the journal cannot be written. Its file may then still have the entries: after a kill, the next start undoes
    /// the changes.
    pub fn forget(&mut self, path: &Path) -> Result<(), JournalError> {
        self.contents.entries.retain(|entry| !entry.is_about(path));
        self.save()
    }

    /// Adds an entry, and writes the journal. After an error the journal is without the entry, and its file, too, unless
    /// the disk refuses the second attempt to write it.
    fn add(&mut self, entry: Entry) -> Result<(), JournalError> {
        if self.contents.entries.len() == ENTRIES_MAX {
            let path = entry.path();
            return Err(JournalError::Refused { path, reason: "the journal is full" });
        }
        if entry.resource().is_some_and(|resource| !self.locks.has(&resource)) {
            let path = entry.path();
            return Err(JournalError::Refused { path, reason: "another irqlab may change it" });
        }
        self.contents.entries.push(entry);
        let result = self.save();
        if result.is_err() {
            self.contents.entries.pop();
            // The file has the entry if only the sync of the directory failed.
            let _ = self.save();
        }
        result
    }

    /// Undoes all changes, the last one first. A change that cannot be undone stays in the journal, and the next start
    /// tries again. Returns a message for each of them.
    fn undo_all(&mut self) -> Vec<String> {
        let (mut not_undone, mut messages) = (Vec::new(), Vec::new());
        for entry in self.contents.entries.drain(..).rev() {
            if let Err(error) = entry.undo() {
                let what = entry.describe();
                messages.push(format!(
                    "{what} was not restored: {error} (the next start of irqlab tries again)"
                ));
                not_undone.push(entry);
            }
        }
        not_undone.reverse();
        self.contents.entries = not_undone;
        // If this fails, the file still has every entry. Undoing a change twice is harmless.
        let _ = self.save();
        messages
    }

    /// Writes the entries to the disk. Removes the file if there are no entries.
    fn save(&mut self) -> Result<(), JournalError> {
        let result = match (self.contents.entries.is_empty(), &self.file) {
            (false, _) => self.replace_file(),
            (true, None) => Ok(()),
            (true, Some(_)) => remove_if_exists(&self.path).map(|()| self.file = None),
        };
        result.map_err(|source| JournalError::Write { path: self.path.clone(), source })
    }

    /// Writes the contents to a new, locked file, and renames it over the old one. A kill leaves either the old or the
    /// new journal, and the file is locked at every moment.
    ///
    /// If the directory cannot be synced, this fails after the rename: the file then is the new one.
    fn replace_file(&mut self) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(&self.contents)?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(std::io::Error::other("too large"));
        }
        let new_path = self.path.with_extension(dir::ASIDE);
        remove_if_exists(&new_path)?;
        let mut file = lock::create_locked(&new_path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        match self.file {
            Some(_) => std::fs::rename(&new_path, &self.path)?,
            None => lock::rename_to_new(&new_path, &self.path)?,
        }
        // Releases the lock of the old file. The new file has been locked since its creation.
        self.file = Some(file);
        // Makes the rename durable.
        match self.path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        for message in self.undo_all() {
            // The run's warnings are written already. Without stderr, the next start's message must do.
            let _ = writeln!(std::io::stderr(), "irqlab: {message}");
        }
    }
}

/// Records a temporary file or directory that [`outputs`] is about to create; `main` registers this function there.
/// Dropping the note removes the file or directory if it still has this name. After a kill, the next start removes it.
///
/// Fails as [`Journal::open`] or [`Journal::will_create_file`] does.
pub fn note_temporary(path: &Path, temporary: Temporary) -> std::io::Result<TemporaryNote> {
    let mut journal = Journal::open().map_err(std::io::Error::other)?;
    let result = match temporary {
        Temporary::File => journal.will_create_file(path),
        Temporary::Directory => Entry::new_directory(path).and_then(|entry| journal.add(entry)),
    };
    result.map_err(std::io::Error::other)?;
    Ok(Box::new(journal))
}

/// Removes a file; no error if it does not exist.
fn remove_if_exists(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    use super::*;

    /// A setting that each network namespace has separately.
    const TTL: &str = "/proc/sys/net/ipv4/ip_default_ttl";

    fn ttl() -> Resource {
        Resource::setting(Path::new(TTL))
    }

    fn private_dir(root: &Path) -> PathBuf {
        let dir = root.join("journal");
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        dir
    }

    fn files_in(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    /// Moves this thread into a new network namespace, so that no other thread sees its sysctls.
    fn own_network() -> bool {
        // SAFETY: only the network namespace of this thread changes.
        let result =
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) };
        if let Err(error) = result {
            needs::not_run(needs::Need::Namespaces, error);
        }
        result.is_ok() && Path::new(TTL).exists()
    }

    /// The text of all journals in a directory.
    fn all_text(dir: &Path) -> String {
        let files = fs::read_dir(dir).into_iter().flatten().flatten();
        let journals =
            files.filter(|file| file.path().extension().is_some_and(|end| end == "json"));
        journals.map(|file| fs::read_to_string(file.path()).unwrap()).collect()
    }

    #[test]
    fn drop_undoes_in_reverse_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("made");
        let file = root.path().join("irqlab-a");
        let mut journal = Journal::open_in(&dir).unwrap();
        assert_eq!(files_in(&dir), 0, "no entry, no file");
        journal.will_create_file(&file).unwrap();
        assert_eq!(files_in(&dir), 1, "the entry is there before the file");
        fs::write(&file, "x").unwrap();
        drop(journal);
        assert!(!file.exists());
        assert_eq!(files_in(&dir), 0);
    }

    #[test]
    fn a_change_that_stays_is_named_and_stays_recorded() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        let file = root.path().join("irqlab-changed");
        let mut journal = Journal::open_in(&dir).unwrap();
        fs::write(&file, "").unwrap();
        journal.created_file(&file).unwrap();
        // Another file has the name now, so the recorded one cannot be removed.
        fs::write(root.path().join("other"), "").unwrap();
        fs::rename(root.path().join("other"), &file).unwrap();
        let messages = journal.undo_all();
        assert_eq!(messages.len(), 1);
        assert!(messages[0].contains("irqlab-changed was not restored"), "{messages:?}");
        assert_eq!((journal.contents.entries.len(), files_in(&dir)), (1, 1));
        journal.contents.entries.clear();
        journal.save().unwrap();
    }

    #[test]
    fn a_forgotten_entry_is_not_undone() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        let file = root.path().join("irqlab-a");
        let mut journal = Journal::open_in(&dir).unwrap();
        journal.will_create_file(&file).unwrap();
        fs::write(&file, "x").unwrap();
        journal.forget(&file).unwrap();
        assert_eq!(files_in(&dir), 0);
        drop(journal);
        assert!(file.exists());
    }

    /// Makes this thread subject to the permissions of files, also as root.
    fn drop_file_capabilities() {
        use rustix::thread::CapabilitySet;
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        rustix::thread::set_capabilities(None, sets).unwrap();
    }

    #[test]
    fn an_entry_that_is_refused_is_not_in_the_file() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        let names = ["irqlab-a", "irqlab-b"].map(|name| root.path().join(name));
        let mut journal = Journal::open_in(&dir).unwrap();
        journal.will_create_file(&names[0]).unwrap();
        drop_file_capabilities();
        // Files can be renamed in the directory, but it cannot be opened for a sync.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o300)).unwrap();
        let error = journal.will_create_file(&names[1]).unwrap_err();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(matches!(error, JournalError::Write { .. }), "{error}");
        assert_eq!(journal.contents.entries.len(), 1);
        let text = all_text(&dir);
        assert!(text.contains("irqlab-a") && !text.contains("irqlab-b"), "{text}");
    }

    #[test]
    fn settings_are_restored_the_first_value_last() {
        if !own_network() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        let old = fs::read_to_string(TTL).unwrap();
        let mut journal = Journal::open_in(&dir).unwrap();
        assert_eq!(journal.lock(ttl()).unwrap(), Vec::<String>::new());
        for value in ["71", "72"] {
            journal.will_write(Path::new(TTL), &fs::read_to_string(TTL).unwrap()).unwrap();
            fs::write(TTL, value).unwrap();
        }
        drop(journal);
        assert_eq!(fs::read_to_string(TTL).unwrap(), old);
        assert_eq!(files_in(&dir), 0);
    }

    /// Makes changes, and undoes them.
    fn change_and_undo(root: &Path, changes_setting: bool) {
        let mut journal = Journal::open_in(&root.join("journal")).unwrap();
        let file = root.join("irqlab-left");
        journal.will_create_file(&file).unwrap();
        fs::write(&file, "x").unwrap();
        let freely_named = root.join("any-name");
        fs::write(&freely_named, "x").unwrap();
        journal.created_file(&freely_named).unwrap();
        journal.will_create_file(&root.join("irqlab-never-made")).unwrap();
        let values: &[&str] = if changes_setting { &["71", "72"] } else { &[] };
        if changes_setting {
            journal.lock(ttl()).unwrap();
        }
        for value in values {
            journal.will_write(Path::new(TTL), &fs::read_to_string(TTL).unwrap()).unwrap();
            fs::write(TTL, value).unwrap();
        }
        drop(journal);
        assert!(!file.exists() && !freely_named.exists());
    }

    /// Not a test of its own: the test after the next one starts this as a process and kills it.
    #[test]
    fn child_that_is_killed() {
        let Some(root) = needs::directory_of_the_killed() else { return };
        change_and_undo(&root, false);
    }

    /// Like `child_that_is_killed`, in the network namespace that the parent created.
    #[test]
    fn child_that_is_killed_in_a_network() {
        let Some(root) = needs::directory_of_the_killed() else { return };
        change_and_undo(&root, true);
    }

    #[test]
    fn the_next_start_undoes_what_a_process_left_that_was_killed_at_any_step() {
        let own_network = own_network();
        let old = fs::read_to_string(TTL).unwrap_or_default();
        let (mut found_changed, mut found_file) = (0, 0);
        let check = |killed: needs::Killed| {
            let (dir, call, step) = (killed.directory.join("journal"), killed.call, killed.step);
            let is_changed = fs::read_to_string(TTL).unwrap_or_default() != old;
            found_changed += u32::from(is_changed);
            let [file, other] = ["irqlab-left", "any-name"].map(|name| killed.directory.join(name));
            found_file += u32::from(file.exists());
            // After the creation of a file with another name, and before its entry, no
            // journal knows of the file.
            let is_recorded = all_text(&dir).contains("any-name");
            let messages = replay_dead_in(&dir);
            assert_eq!(
                fs::read_to_string(TTL).unwrap_or_default(),
                old,
                "{call} {step}: {messages:?}"
            );
            assert!(!file.exists(), "{call} {step}: {messages:?}");
            assert!(!is_recorded || !other.exists(), "{call} {step}: {messages:?}");
            assert!(!dir.exists() || files_in(&dir) == 0, "{call} {step}: {messages:?}");
            assert_eq!(replay_dead_in(&dir), Vec::<String>::new(), "once is enough");
            assert!(!killed.finished || !is_changed && messages.is_empty(), "{messages:?}");
        };
        let suffix = if own_network { "_in_a_network" } else { "" };
        let test = &format!("journal::tests::child_that_is_killed{suffix}");
        let Some(starts) = needs::at_each_step(test, check) else { return };
        println!(
            "{starts} starts: {found_file} left the file, {found_changed} the setting changed"
        );
        assert!(found_file >= 5, "{found_file} of {starts}");
        assert!(!own_network || found_changed >= 5, "{found_changed} of {starts}");
    }

    #[test]
    fn a_living_process_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        let file = root.path().join("irqlab-a");
        let mut journal = Journal::open_in(&dir).unwrap();
        journal.will_create_file(&file).unwrap();
        fs::write(&file, "x").unwrap();
        assert_eq!(replay_dead_in(&dir), Vec::<String>::new());
        assert!(file.exists());
    }

    /// Names of journals whose owners are dead. A living process has the number in the first
    /// name, but holds no lock. The second name is from an earlier version, with a number
    /// that no process can have.
    const DEAD: [&str; 2] = ["journal-1-0.json", "4194305-1-0.json"];

    /// Writes a journal of a dead process with these entries.
    fn plant(dir: &Path, entries: &str, boot: &str) -> PathBuf {
        plant_as(DEAD[0], dir, entries, boot)
    }

    fn plant_as(name: &str, dir: &Path, entries: &str, boot: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, format!(r#"{{"format":1,"boot_id":"{boot}","entries":[{entries}]}}"#))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn journals_of_another_user_are_named_and_left() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        assert_eq!(replay::name_dead_in(&dir), None);
        if !crate::host::in_first_pid_namespace() {
            return needs::not_run(needs::Need::Other, "locks of other processes are not visible");
        }
        let entry = r#"{"setting":{"path":"/proc/sys/kernel/no_such_thing","old_value":"1"}}"#;
        for name in DEAD {
            let journal = plant_as(name, &dir, entry, "another boot");
            let message = replay::name_dead_in(&dir).unwrap();
            let says = "has journals of dead processes: irqlab doctor as ";
            assert!(message.contains(says), "{message}");
            fs::remove_file(journal).unwrap();
        }
        // A journal whose owner lives is not of a dead process, although only its
        // owner could try its lock.
        let mut journal = Journal::open_in(&dir).unwrap();
        journal.will_create_file(&root.path().join("irqlab-a")).unwrap();
        assert_eq!(replay::name_dead_in(&dir), None);
    }

    #[test]
    fn a_forged_journal_can_do_no_harm() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        let victim = root.path().join("victim");
        fs::write(&victim, "x").unwrap();
        symlink(&victim, root.path().join("irqlab-link")).unwrap();
        let shown = root.path().display();
        let setting = |path: &str| format!(r#"{{"setting":{{"path":"{path}","old_value":"1"}}}}"#);
        let file = |name: &str| {
            format!(r#"{{"file":{{"directory":"{shown}","name":"{name}","identity":null}}}}"#)
        };
        let wrong_identity =
            format!(r#"{{"file":{{"directory":"{shown}","name":"victim","identity":[1,1]}}}}"#);
        for entry in [
            setting("/etc/passwd"),
            setting("/proc/sys/../../etc/passwd"),
            setting("/proc/sys"),
            setting("proc/sys/vm/swappiness"),
            setting(&format!("{shown}/victim")),
            file("victim"),
            file("irqlab-link"),
            file("../victim"),
            file("irqlab-x/../victim"),
            wrong_identity,
        ] {
            let journal = plant(&dir, &entry, &owner::boot_id().unwrap());
            let messages = replay_dead_in(&dir);
            assert_eq!(messages.len(), usize::from(!entry.contains("irqlab-x")).max(1), "{entry}");
            assert!(messages[0].contains("left as it is"), "{entry}: {messages:?}");
            assert!(!journal.exists(), "an unrestorable setting is reported once");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "x");
            assert!(root.path().join("irqlab-link").is_symlink());
        }
    }

    #[test]
    fn a_damaged_journal_is_reported_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        for contents in ["", "{", "[]", r#"{"format":9,"boot_id":"","entries":[]}"#] {
            let path = dir.join(DEAD[0]);
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let messages = replay_dead_in(&dir);
            assert!(messages.len() == 1 && messages[0].contains("damaged"), "{messages:?}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn settings_of_an_earlier_boot_are_not_restored() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        let entry = r#"{"setting":{"path":"/proc/sys/kernel/no_such_thing","old_value":"1"}}"#;
        for name in DEAD {
            let journal = plant_as(name, &dir, entry, "another boot");
            assert_eq!(replay_dead_in(&dir), Vec::<String>::new());
            assert!(!journal.exists());
        }
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_trusted() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Journal::open_in(&dir), Err(JournalError::Directory { .. })));
        assert!(replay_dead_in(&dir)[0].contains("not replayed"));
        let link = root.path().join("link");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&dir, &link).unwrap();
        assert!(matches!(Journal::open_in(&link), Err(JournalError::Directory { .. })));
    }

    #[test]
    fn what_a_replay_would_refuse_is_refused_at_once() {
        let root = tempfile::tempdir().unwrap();
        let dir = private_dir(root.path());
        let mut journal = Journal::open_in(&dir).unwrap();
        assert!(journal.will_create_file(&root.path().join("name")).is_err());
        assert!(journal.will_create_file(Path::new("/no/such/dir/irqlab-x")).is_err());
        assert!(journal.created_file(root.path()).is_err());
        assert!(journal.will_write(Path::new("/etc/passwd"), "x").is_err());
        assert!(journal.will_write(Path::new("/proc/sys/vm/../x"), "x").is_err());
        assert!(journal.will_write(Path::new("/proc/sys/vm/x"), &"x".repeat(5000)).is_err());
        // The setting is not locked, so another irqlab may be about to change it.
        let error = journal.will_write(Path::new("/proc/sys/vm/x"), "x").unwrap_err().to_string();
        assert!(error.contains("another irqlab may change it"), "{error}");
        assert_eq!(files_in(&dir), 0);
    }
}
