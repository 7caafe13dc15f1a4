//! [`Entry`]: one recorded change, and how to undo it.
//!
//! An entry may come from a file that somebody else wrote. Therefore [`Entry::undo`] checks every rule again: it can
//! only write below [`SETTING_ROOTS`] and to interfaces, and only remove files that irqlab created. The variants and
//! fields are the keys of the journal's JSON, which may not change.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{JournalError, Resource, VALUE_BYTES_MAX};
use crate::host::{Root, online_cpus, parse_cpu_list, parse_cpu_mask};
use crate::nic::{self, Identity};

/// Directories whose files may be restored.
const SETTING_ROOTS: [&str; 4] = ["/proc/sys", "/proc/irq", "/sys/class/net", "/sys/kernel"];
/// Magic numbers of file systems that contain settings: proc, sysfs, debugfs, tracefs.
const SETTING_FILE_SYSTEMS: [u64; 4] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163];
/// Prefix of the names of files that irqlab creates and may later remove by their name.
const OUR_PREFIX: &str = "irqlab-";

/// A change to undo. Its fields identify the changed object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// To undo: remove the file.
    File {
        directory: PathBuf,
        name: PathBuf,
        /// Device and inode; `None` for a file that was recorded before its creation. Then its name has [`OUR_PREFIX`].
        identity: Option<(u64, u64)>,
    },
    /// To undo: remove the directory, which `outputs` did not finish.
    Directory { directory: PathBuf, name: PathBuf },
    /// To undo: write the old value into the setting's file.
    Setting { path: PathBuf, old_value: String },
    /// To undo: give the interface's setting its old value.
    Interface { interface: Identity, setting: nic::Setting, old_value: String },
}

/// The outcome of undoing a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UndoResult {
    Removed(PathBuf),
    /// The setting has its old value again. The text is [`Entry::describe`].
    Restored(String),
    /// There was nothing to undo: the object does not exist, or already is as before.
    Nothing,
}

impl Entry {
    /// A file that is about to be created. Fails if its directory does not exist, or its name has another prefix than
    /// [`OUR_PREFIX`].
    pub fn new_file(path: &Path) -> Result<Self, JournalError> {
        let (directory, name) = split(path)?;
        if !is_our_name(&name) {
            let reason = "the name of a file to be created must start with irqlab-";
            return Err(JournalError::Refused { path: path.to_owned(), reason });
        }
        Ok(Entry::File { directory, name, identity: None })
    }

    /// A directory that `outputs` is about to create.
    pub fn new_directory(path: &Path) -> Result<Self, JournalError> {
        let (directory, name) = split(path)?;
        Ok(Entry::Directory { directory, name })
    }

    /// A file that has been created. Fails if it is not a regular file.
    pub fn existing_file(path: &Path) -> Result<Self, JournalError> {
        let refuse = |reason| JournalError::Refused { path: path.to_owned(), reason };
        let (directory, name) = split(path)?;
        let metadata = std::fs::symlink_metadata(path)
            .map_err(|_| refuse("its metadata cannot be read after it was created"))?;
        if !metadata.is_file() {
            return Err(refuse("it is not a regular file"));
        }
        Ok(Entry::File { directory, name, identity: Some((metadata.dev(), metadata.ino())) })
    }

    /// A kernel setting that is about to be changed. Fails if a replay would refuse the path, or the value is too long.
    pub fn setting(path: &Path, old_value: &str) -> Result<Self, JournalError> {
        let refuse = |reason| JournalError::Refused { path: path.to_owned(), reason };
        if !is_setting(path) {
            return Err(refuse("it is no kernel setting that a replay would restore"));
        }
        if old_value.len() > VALUE_BYTES_MAX {
            return Err(refuse("its value is too long"));
        }
        Ok(Entry::Setting { path: path.to_owned(), old_value: old_value.to_owned() })
    }

    /// A setting of an interface that is about to be changed.
    pub fn interface(
        interface: &Identity,
        setting: nic::Setting,
        old_value: &str,
    ) -> Result<Self, JournalError> {
        let (interface, old_value) = (interface.clone(), old_value.to_owned());
        let entry = Entry::Interface { interface, setting, old_value };
        match &entry {
            Entry::Interface { old_value, .. } if old_value.len() > VALUE_BYTES_MAX => {
                Err(JournalError::Refused { path: entry.path(), reason: "its value is too long" })
            }
            _ => Ok(entry),
        }
    }

    /// The path of the file or setting. For a setting of an interface, its description, for error messages.
    pub fn path(&self) -> PathBuf {
        match self {
            Entry::File { directory, name, .. } | Entry::Directory { directory, name } => {
                directory.join(name)
            }
            Entry::Setting { path, .. } => path.clone(),
            Entry::Interface { .. } => PathBuf::from(self.describe()),
        }
    }

    /// Names the file or setting in messages.
    pub fn describe(&self) -> String {
        match self {
            Entry::Interface { interface, setting, .. } => {
                format!("{setting} of {}", interface.name)
            }
            _ => self.path().display().to_string(),
        }
    }

    /// Whether the entry is about the file or setting at `path`; false for settings of interfaces.
    pub fn is_about(&self, path: &Path) -> bool {
        match self {
            Entry::File { .. } | Entry::Directory { .. } => {
                split(path).is_ok_and(|(dir, name)| self.path() == dir.join(name))
            }
            Entry::Setting { path: setting, .. } => setting == path,
            Entry::Interface { .. } => false,
        }
    }

    /// The resource that must be locked before the change. `None` for a file, which belongs to this process alone.
    pub fn resource(&self) -> Option<Resource> {
        match self {
            Entry::File { .. } | Entry::Directory { .. } => None,
            Entry::Setting { path, .. } => Some(Resource::setting(path)),
            Entry::Interface { interface, .. } => Some(Resource::interface(interface)),
        }
    }

    /// Whether the entry is about a setting, which a reboot discards.
    pub fn is_setting(&self) -> bool {
        matches!(self, Entry::Setting { .. } | Entry::Interface { .. })
    }

    /// Whether the entry is about an interrupt whose old CPUs are all offline: the kernel then refuses the old value with
    /// EINVAL (`write_irq_affinity` in kernel/irq/proc.c). False if the online CPUs are not known.
    pub fn waits_for_cpus(&self, root: &Root) -> bool {
        let Entry::Setting { path, old_value } = self else { return false };
        if !path.starts_with("/proc/irq") {
            return false;
        }
        let cpus = match path.file_name().and_then(OsStr::to_str) {
            Some("smp_affinity_list") => parse_cpu_list(old_value).ok(),
            Some("smp_affinity") => parse_cpu_mask(old_value),
            _ => None,
        };
        let Some((cpus, online)) = cpus.zip(online_cpus(root)) else { return false };
        !cpus.is_empty() && !cpus.iter().any(|cpu| online.contains(cpu))
    }

    /// Undoes the change. Checks every rule again, because the entry may come from a file.
    ///
    /// Fails if a rule is broken, or the kernel refuses.
    pub fn undo(&self) -> io::Result<UndoResult> {
        match self {
            Entry::File { directory, name, identity } => remove_file(directory, name, *identity),
            // `outputs` removes only an unfinished directory of this user.
            Entry::Directory { directory, name } => {
                let is_removed = outputs::remove_leftover(directory, name.as_os_str())?;
                let path = directory.join(name);
                Ok(if is_removed { UndoResult::Removed(path) } else { UndoResult::Nothing })
            }
            Entry::Setting { path, old_value } => restore_setting(path, old_value),
            Entry::Interface { interface, setting, old_value } => {
                if restore_interface(interface, *setting, old_value)? {
                    Ok(UndoResult::Restored(self.describe()))
                } else {
                    Ok(UndoResult::Nothing)
                }
            }
        }
    }
}

/// Splits a path into its directory, as an absolute path without symbolic links, and the name in the directory.
fn split(path: &Path) -> Result<(PathBuf, PathBuf), JournalError> {
    let refuse = |reason| JournalError::Refused { path: path.to_owned(), reason };
    let name = path.file_name().ok_or_else(|| refuse("it names no file"))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = std::fs::canonicalize(directory)
        .map_err(|_| refuse("its directory does not exist or cannot be entered"))?;
    Ok((directory, PathBuf::from(name)))
}

fn is_our_name(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().starts_with(OUR_PREFIX.as_bytes())
}

/// Whether the path is absolute, has no `.` or `..`, and lies below one of [`SETTING_ROOTS`].
fn is_setting(path: &Path) -> bool {
    let is_straight =
        path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    is_straight
        && SETTING_ROOTS.iter().any(|root| path.starts_with(root) && path != Path::new(root))
}

/// Writes the old value into a setting's file. A setting that does not exist any more, or that cannot be written and has its
/// old value, needs no undo.
///
/// Fails if the path is no setting, or the kernel refuses the value.
fn restore_setting(path: &Path, old_value: &str) -> io::Result<UndoResult> {
    if !is_setting(path) || old_value.len() > VALUE_BYTES_MAX {
        return Err(io::Error::other("this is no kernel setting that irqlab changes"));
    }
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        // An interface or interrupt that no longer exists has no settings to restore.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(UndoResult::Nothing),
        other => other?,
    };
    // A path below /sys could lead to another file system that is mounted there.
    let file_system = rustix::fs::fstatfs(&file)?.f_type as u64;
    if !SETTING_FILE_SYSTEMS.contains(&file_system) {
        return Err(io::Error::other("this is not on a file system of the kernel's settings"));
    }
    match file.write_all(old_value.as_bytes()) {
        // Some settings cannot be written, such as the affinity of an interrupt that the kernel
        // manages. There is nothing to undo if such a setting has its old value.
        Err(_) if has_value(path, old_value) => Ok(UndoResult::Nothing),
        other => other.map(|()| UndoResult::Restored(path.display().to_string())),
    }
}

/// Restores the old value of an interface's setting. Returns false if there was nothing to restore: the interface or
/// the setting no longer exists, or the setting has its old value.
fn restore_interface(
    interface: &Identity,
    setting: nic::Setting,
    old_value: &str,
) -> io::Result<bool> {
    if old_value.len() > VALUE_BYTES_MAX {
        return Err(io::Error::other("its value is too long"));
    }
    let Some(found) = interface.find()? else { return Ok(false) };
    match setting.read(&found) {
        Ok(value) if value == old_value => Ok(false),
        // A NAPI instance ends when its interface is switched off.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        _ => setting.write(&found, old_value).map(|()| true),
    }
}

/// Whether the setting at `path` has this value. False if it cannot be read.
fn has_value(path: &Path, value: &str) -> bool {
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut text = String::new();
    let read = file.take(VALUE_BYTES_MAX as u64 + 1).read_to_string(&mut text);
    read.is_ok() && text.trim() == value.trim()
}

/// Removes a file that irqlab created; nothing to undo if it does not exist. Opens the directory first, so nobody can exchange
/// the directory between check and removal.
///
/// Fails if the name now belongs to another file than the recorded one.
fn remove_file(
    directory: &Path,
    name: &Path,
    identity: Option<(u64, u64)>,
) -> io::Result<UndoResult> {
    let mut parts = name.components();
    let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if !is_plain || !directory.is_absolute() {
        return Err(io::Error::other("this is no file name"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory_file = match rustix::fs::open(directory, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(UndoResult::Nothing),
        other => File::from(other?),
    };
    let file: &OsStr = name.as_os_str();
    let stat = match rustix::fs::statat(&directory_file, file, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(UndoResult::Nothing),
        other => other?,
    };
    let is_recorded = match identity {
        Some(identity) => identity == (stat.st_dev, stat.st_ino),
        None => is_our_name(name),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !is_recorded {
        return Err(io::Error::other("this is not the file that was recorded"));
    }
    rustix::fs::unlinkat(&directory_file, file, AtFlags::empty())?;
    Ok(UndoResult::Removed(directory.join(name)))
}
