//! SHA-256 of bytes and files, as keys of their content.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::cache::{open_regular, read_bounded};
use crate::{Cache, Result, SimError};

/// Hexadecimal digits of a key in a file name: 64 bits, plenty for names in one directory.
const KEY_DIGITS: usize = 16;
/// Size of an entry of the cache with a hash, at most.
const KNOWN_BYTES_MAX: u64 = 128;
/// Longest step of a file system's clock, seconds (FAT: 2).
const CLOCK_STEP_S_MAX: i64 = 2;

/// Returns the SHA-256 of bytes, in hexadecimal.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns the SHA-256 of a file, in hexadecimal.
pub(crate) fn of_file(path: &Path) -> Result<String> {
    let mut file = open_regular(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(SimError::file(path))? {
            0 => return Ok(hex(&digest.finalize())),
            count => digest.update(&buffer[..count]),
        }
    }
}

/// Returns the SHA-256 of an open file, in hexadecimal.
pub(crate) fn of_open_file(file: &fs::File) -> std::io::Result<String> {
    let (mut digest, mut at) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(hex(&digest.finalize())),
            count => {
                digest.update(&buffer[..count]);
                at += count as u64;
            }
        }
    }
}

/// [`of_file`] of a large file that changes rarely: the cache keeps its hash for as long as the file system
/// says that it is the same file and unchanged.
pub(crate) fn of_known_file(cache: &Cache, path: &Path) -> Result<String> {
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

/// Returns the part of a hash that is used in file names.
pub(crate) fn key(hash: &str) -> &str {
    hash.get(..KEY_DIGITS).unwrap_or(hash)
}

/// FNV-1a, 64 bits: the check sum that the guest computes over each piece that it transfers.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
        assert_eq!(of_known_file(&cache, &path).unwrap(), of_bytes(b"abc"));
        assert_eq!(entries(), 0);
        std::thread::sleep(Duration::from_secs(CLOCK_STEP_S_MAX as u64 + 2));
        assert_eq!(of_known_file(&cache, &path).unwrap(), of_bytes(b"abc"));
        assert_eq!(entries(), 1);
        // It is the cache's hash that is returned, unless the entry is damaged.
        let name = cache.entries()[0].name.clone();
        let other = of_bytes(b"other");
        fs::write(cache.path(&name), known_entry(&name, &other)).unwrap();
        assert_eq!(of_known_file(&cache, &path).unwrap(), other);
        fs::write(cache.path(&name), known_entry(&name, &other).replacen(&other[..1], "x", 1))
            .unwrap();
        assert_eq!(of_known_file(&cache, &path).unwrap(), of_bytes(b"abc"));
        fs::write(&path, b"abd").unwrap();
        assert_eq!(of_known_file(&cache, &path).unwrap(), of_bytes(b"abd"));
    }

    #[test]
    fn files_and_bytes_have_the_same_hash() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::of_bytes(b"abc"), expected);
        assert_eq!(super::of_file(file.path()).unwrap(), expected);
    }
}
