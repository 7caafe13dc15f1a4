//! Hashes of large files that change rarely, such as disk images and packages, kept in the cache.
//! `rootfs` and the disks of a machine use them, so that a run does not read gigabytes again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::hash::{key, of_bytes, of_file};
use crate::regular_file::read_bounded;
use crate::{Cache, Result};

/// Maximum size of a cache entry that holds a hash, bytes.
const KNOWN_BYTES_MAX: u64 = 128;

/// Coarsest resolution of a file system's clock, seconds (FAT: 2).
const CLOCK_STEP_S_MAX: i64 = 2;

/// Returns the SHA-256 of a large file that changes rarely, in hexadecimal. The cache keeps the hash for as
/// long as the file system reports no change of the file.
pub(crate) fn hash_of(cache: &Cache, path: &Path) -> Result<String> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|data| Identity::from_metadata(&data));
    let Some(before) = identity(path) else { return of_file(path) };
    let name = before.name();
    let entry = read_bounded(&cache.path(&name), KNOWN_BYTES_MAX).unwrap_or_default();
    if let Some(hash) = known_hash(&name, &entry) {
        return Ok(hash);
    }
    let hash = of_file(path)?;
    if identity(path) == Some(before) && before.is_old() {
        // The hash is correct also if the cache cannot be written.
        let _ = cache.file(&name, known_entry(&name, &hash).as_bytes());
    }
    Ok(hash)
}

/// Returns the text of the cache entry `name`: a hash, and a check sum of the entry's name and this hash.
fn known_entry(name: &str, hash: &str) -> String {
    format!("{hash} {}", key(&of_bytes(format!("{name} {hash}").as_bytes())))
}

/// Returns the hash in a cache entry; `None` if the entry is empty or damaged.
fn known_hash(name: &str, entry: &[u8]) -> Option<String> {
    let entry = std::str::from_utf8(entry).ok()?;
    let (hash, _) = entry.split_once(' ')?;
    (known_entry(name, hash) == entry).then(|| hash.to_owned())
}

/// Metadata of a file. At least one field changes when the content of the file changes. The names of cache entries are
/// made of the debug text: with another field name all hashes are computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Last change of the content (`modified`) and of content or metadata (`changed`), in seconds and
    /// nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    /// Returns the identity of a file. Returns `None` if the file changed so recently that the next change may
    /// have the same time.
    pub(crate) fn of_unchanged(data: &fs::Metadata) -> Option<Identity> {
        Some(Identity::from_metadata(data)).filter(|identity| identity.is_old())
    }

    fn from_metadata(data: &fs::Metadata) -> Identity {
        Identity {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }

    /// Returns whether a later change certainly has another time. The clocks of file systems advance in steps.
    fn is_old(self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now.as_secs() as i64).saturating_sub(self.changed.0) > CLOCK_STEP_S_MAX
    }

    fn name(self) -> String {
        format!("hash-{}", key(&of_bytes(format!("{self:?}").as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_hash_of_a_known_file_follows_its_content() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(&scratch.path().join("cache")).unwrap();
        let path = scratch.path().join("disk");
        let entries = || cache.entries().len();
        fs::write(&path, b"abc").unwrap();
        // Changed a moment ago: the next change may have the same time.
        assert_eq!(hash_of(&cache, &path).unwrap(), of_bytes(b"abc"));
        assert_eq!(entries(), 0);
        std::thread::sleep(Duration::from_secs(CLOCK_STEP_S_MAX as u64 + 2));
        assert_eq!(hash_of(&cache, &path).unwrap(), of_bytes(b"abc"));
        assert_eq!(entries(), 1);
        // The result is the cache's hash, unless the entry is damaged.
        let name = cache.entries()[0].name.clone();
        let other_hash = of_bytes(b"other");
        fs::write(cache.path(&name), known_entry(&name, &other_hash)).unwrap();
        assert_eq!(hash_of(&cache, &path).unwrap(), other_hash);
        fs::write(
            cache.path(&name),
            known_entry(&name, &other_hash).replacen(&other_hash[..1], "x", 1),
        )
        .unwrap();
        assert_eq!(hash_of(&cache, &path).unwrap(), of_bytes(b"abc"));
        fs::write(&path, b"abd").unwrap();
        assert_eq!(hash_of(&cache, &path).unwrap(), of_bytes(b"abd"));
    }
}
