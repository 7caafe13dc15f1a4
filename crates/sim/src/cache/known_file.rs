//! Hashes of large files that change rarely, kept in the cache.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::hash::{key, of_bytes, of_file};
use crate::regular_file::read_bounded;
use crate::{Cache, Result};

/// Size of an entry of the cache with a hash, at most.
const KNOWN_BYTES_MAX: u64 = 128;

/// Longest step of a file system's clock, seconds (FAT: 2).
const CLOCK_STEP_S_MAX: i64 = 2;

/// [`of_file`] of a large file that changes rarely: the cache keeps its hash for as long as the file system
/// says that it is the same file and unchanged.
pub(crate) fn hash_of(cache: &Cache, path: &Path) -> Result<String> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|data| Identity::of(&data));
    let Some(before) = identity(path) else { return of_file(path) };
    let name = before.name();
    let kept = read_bounded(&cache.path(&name), KNOWN_BYTES_MAX).unwrap_or_default();
    if let Some(hash) = known_hash(&name, &kept) {
        return Ok(hash);
    }
    let hash = of_file(path)?;
    if identity(path) == Some(before) && before.is_old() {
        // A cache that cannot be written is of no use here, and reported where it is needed.
        let _ = cache.file(&name, known_entry(&name, &hash).as_bytes());
    }
    Ok(hash)
}

/// The content of an entry of the cache: a hash, and a check sum of it.
fn known_entry(name: &str, hash: &str) -> String {
    format!("{hash} {}", key(&of_bytes(format!("{name} {hash}").as_bytes())))
}

fn known_hash(name: &str, entry: &[u8]) -> Option<String> {
    let entry = std::str::from_utf8(entry).ok()?;
    let (hash, _) = entry.split_once(' ')?;
    (known_entry(name, hash) == entry).then(|| hash.to_owned())
}

/// What changes with the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of the last change of the content, and of anything.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    /// Returns the identity of a file, unless that changed so recently that its next change may leave the
    /// same.
    pub(crate) fn of_unchanged(data: &fs::Metadata) -> Option<Identity> {
        Some(Identity::of(data)).filter(|identity| identity.is_old())
    }

    fn of(data: &fs::Metadata) -> Identity {
        Identity {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }

    /// Whether a later change certainly gives the file another time: the clocks of file systems have steps.
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
        // It is the cache's hash that is returned, unless the entry is damaged.
        let name = cache.entries()[0].name.clone();
        let other = of_bytes(b"other");
        fs::write(cache.path(&name), known_entry(&name, &other)).unwrap();
        assert_eq!(hash_of(&cache, &path).unwrap(), other);
        fs::write(cache.path(&name), known_entry(&name, &other).replacen(&other[..1], "x", 1))
            .unwrap();
        assert_eq!(hash_of(&cache, &path).unwrap(), of_bytes(b"abc"));
        fs::write(&path, b"abd").unwrap();
        assert_eq!(hash_of(&cache, &path).unwrap(), of_bytes(b"abd"));
    }
}
