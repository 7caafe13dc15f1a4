//! SHA-256 of bytes and files, for keys of the cache; and the check sum of transfers from the guest.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::regular_file::open_regular;
use crate::{Result, SimError};

/// Hexadecimal digits of a key in a file name: 64 bits, enough for names in one directory.
const KEY_DIGITS: usize = 16;

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
    let (mut digest, mut offset) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read_at(&mut buffer, offset)? {
            0 => return Ok(hex(&digest.finalize())),
            count => {
                digest.update(&buffer[..count]);
                offset += count as u64;
            }
        }
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
    use super::*;

    #[test]
    fn files_and_bytes_have_the_same_hash() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_bytes(b"abc"), expected);
        assert_eq!(of_file(file.path()).unwrap(), expected);
    }
}
