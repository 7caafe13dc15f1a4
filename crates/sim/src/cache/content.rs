//! Records the size and check sum of the cache's files when they are made, to detect damage. Checkpoints and
//! directories made by [`super::Cache::checked_directory`] have such a list.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::regular_file::{open_regular, read_bounded};
use crate::{Result, SimError};

/// Name of the file that lists the content of the other files in its directory.
pub(super) const LIST: &str = "content.json";
/// Maximum size of a list, bytes.
const LIST_BYTES_MAX: u64 = 64 * 1024;

/// The content of a file: its size and its CRC-32. This detects damage, not an attack, because a process that
/// can write to the cache can write the list, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
}

impl Content {
    /// Reads a file, and returns its size and its CRC-32.
    pub(crate) fn of_file(path: &Path) -> Result<Content> {
        let mut file = open_regular(path)?;
        let mut digest = crc32fast::Hasher::new();
        let mut bytes = 0;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).map_err(SimError::file(path))? {
                0 => return Ok(Content { bytes, crc32: digest.finalize() }),
                count => {
                    digest.update(&buffer[..count]);
                    bytes += count as u64;
                }
            }
        }
    }

    /// Checks that a file of a directory still has this content.
    ///
    /// Fails with [`SimError::Data`] and the file's name if the content differs, and with [`SimError::File`] if the
    /// file cannot be read.
    pub(crate) fn check(self, directory: &Path, name: &str) -> Result<()> {
        let found = Content::of_file(&directory.join(name))?;
        if found == self {
            return Ok(());
        }
        let reason = format!(
            "{} bytes with CRC-32 {:08x} instead of {} with {:08x}",
            found.bytes, found.crc32, self.bytes, self.crc32
        );
        Err(SimError::data(name, reason))
    }
}

/// Writes the list of a directory's files. The list does not include files of subdirectories.
pub(super) fn write_list(directory: &Path) -> Result<()> {
    let mut list = BTreeMap::new();
    for name in file_names(directory)? {
        list.insert(name.clone(), Content::of_file(&directory.join(name))?);
    }
    let text = serde_json::to_string_pretty(&list)
        .map_err(|error| SimError::data(LIST, error.to_string()))?;
    let path = directory.join(LIST);
    fs::write(&path, text + "\n").map_err(SimError::file(&path))
}

/// Checks that a directory has the files of its list, with their content, and no others.
pub(super) fn check_list(directory: &Path) -> Result<()> {
    let text = read_bounded(&directory.join(LIST), LIST_BYTES_MAX)?;
    let list: BTreeMap<String, Content> =
        serde_json::from_slice(&text).map_err(|error| SimError::data(LIST, error.to_string()))?;
    // Only names that the directory has are opened: a damaged list could name any path.
    let names = file_names(directory)?;
    if let Some(name) = list.keys().find(|name| !names.contains(*name)) {
        return Err(SimError::data(name, "is missing"));
    }
    names.iter().try_for_each(|name| match list.get(name) {
        Some(content) => content.check(directory, name),
        None => Err(SimError::data(LIST, format!("does not name the file {name:?}"))),
    })
}

/// Returns the names of the files in a directory, without the list and without directories.
fn file_names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).map_err(SimError::file(directory))?;
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name != LIST).collect())
}
