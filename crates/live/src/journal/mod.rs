//! What a running irqlab has to undo: files it made, kernel settings it changed.
//!
//! Every entry is on disk *before* the change is made. Dropping the [`Journal`] undoes its entries,
//! the last one first, and removes its file; after a SIGKILL the file remains, and the next start
//! calls [`replay_dead`].
//!
//! # Design constraints
//! - One JSON file per process, named by pid and start time, so that a reused pid is recognised.
//! - A journal is read with suspicion: bounded in size, owned by us, in a directory that only we
//!   can write. It can restore nothing but kernel settings under a few known paths, and remove
//!   nothing but regular files that are recognisably ours.
//! - Settings of an earlier boot are gone with it and are not restored; files are removed.

mod dir;
mod entry;
mod process;
mod replay;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use dir::default_dir;
use entry::Entry;
use process::ProcessName;
pub use replay::{replay_dead, replay_dead_in};

/// Version of the journal's file format.
const FORMAT: u32 = 1;
/// Most entries a journal may have.
const ENTRIES_MAX: usize = 4096;
/// Largest journal that is read or written, in bytes.
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest old value of a setting, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// Why a change cannot be journalled (and so must not be made).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The journal's directory cannot be made, or is not ours alone.
    #[error("the journal directory {path}: {reason}")]
    Directory {
        /// Which directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The journal cannot be written.
    #[error("the journal {path}: {source}")]
    Write {
        /// Its file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An entry that a replay would refuse.
    #[error("{path} cannot be journalled: {reason}")]
    Refused {
        /// File or setting.
        path: PathBuf,
        /// The rule it breaks.
        reason: &'static str,
    },
}

/// The journal file's contents.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    format: u32,
    /// `/proc/sys/kernel/random/boot_id` at the time of writing.
    boot_id: String,
    entries: Vec<Entry>,
}

/// The journal of this process. A process may have several at once (each under its own number).
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    contents: Contents,
}

impl Journal {
    /// A new, empty journal in [`default_dir`]. Nothing is written before the first entry.
    ///
    /// # Errors
    /// When the directory cannot be made or isn't ours alone, or `/proc` cannot be read.
    pub fn open() -> Result<Self, JournalError> {
        Self::open_in(&default_dir())
    }

    /// As [`Journal::open`], in a directory of the caller's choice (made if it does not exist, with
    /// mode 0700).
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_in(directory: &Path) -> Result<Self, JournalError> {
        dir::prepare(directory)?;
        let name = ProcessName::own()
            .map_err(|source| JournalError::Write { path: directory.to_owned(), source })?;
        let contents =
            Contents { format: FORMAT, boot_id: process::boot_id(), entries: Vec::new() };
        Ok(Journal { path: directory.join(name.next_file_name()), contents })
    }

    /// Says that a file is about to be created. Its name must start with `irqlab-`, for that is
    /// what lets a replay remove it; see [`Journal::created_file`] for other names.
    ///
    /// # Errors
    /// When the path has no directory or another name, or the journal cannot be written; then
    /// don't create the file.
    pub fn will_create_file(&mut self, path: &Path) -> Result<(), JournalError> {
        self.add(Entry::new_file(path)?)
    }

    /// Says that a file has been created; it is recognised by its device and inode, so it may have
    /// any name.
    ///
    /// # Errors
    /// When it is not a regular file, or the journal cannot be written.
    pub fn created_file(&mut self, path: &Path) -> Result<(), JournalError> {
        self.add(Entry::existing_file(path)?)
    }

    /// Says that a kernel setting is about to be changed from `old_value`. Only paths under
    /// `/proc/sys`, `/proc/irq`, `/sys/class/net` and `/sys/kernel` are accepted.
    ///
    /// # Errors
    /// When the path or the value would be refused by a replay, or the journal cannot be written;
    /// then don't change the setting.
    pub fn will_write(&mut self, path: &Path, old_value: &str) -> Result<(), JournalError> {
        self.add(Entry::setting(path, old_value)?)
    }

    /// Takes back what was said of `path`: nothing is to be undone there any more.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn forget(&mut self, path: &Path) -> Result<(), JournalError> {
        self.contents.entries.retain(|entry| !entry.is_about(path));
        self.save()
    }

    fn add(&mut self, entry: Entry) -> Result<(), JournalError> {
        if self.contents.entries.len() == ENTRIES_MAX {
            let path = entry.path();
            return Err(JournalError::Refused { path, reason: "the journal is full" });
        }
        self.contents.entries.push(entry);
        let saved = self.save();
        if saved.is_err() {
            self.contents.entries.pop();
        }
        saved
    }

    /// Brings the entries to the disk: a new file, renamed over the old one. No entry, no file.
    fn save(&self) -> Result<(), JournalError> {
        let result = if self.contents.entries.is_empty() {
            remove_if_there(&self.path)
        } else {
            self.write_aside()
        };
        result.map_err(|source| JournalError::Write { path: self.path.clone(), source })
    }

    fn write_aside(&self) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(&self.contents)?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(std::io::Error::other("too large"));
        }
        let aside = self.path.with_extension(dir::ASIDE);
        remove_if_there(&aside)?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&aside, &self.path)?;
        match self.path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Journal {
    /// Undoes everything. What cannot be undone stays in the journal, for the next start's replay.
    fn drop(&mut self) {
        let mut kept = Vec::new();
        for entry in self.contents.entries.drain(..).rev() {
            if entry.undo().is_err() {
                kept.push(entry);
            }
        }
        kept.reverse();
        self.contents.entries = kept;
        // A journal that can't be rewritten still has every entry, and undoing twice is harmless.
        let _ = self.save();
    }
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
