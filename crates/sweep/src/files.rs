//! Files that arguments name, such as a kernel or a model, and the hashes of their contents. `plan` records the hashes,
//! and `directory` compares them before a task is executed. `result` hashes and reads the files of a result.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::SweepError;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 16;

/// SHA-256 hashes of files by the path in the arguments. Each file is read once.
#[derive(Debug, Default)]
pub struct FileHashes {
    /// `None`: no regular file has this path.
    known: BTreeMap<String, Option<String>>,
}

impl FileHashes {
    /// The files that the arguments name, with their hashes. Relative paths start in the working directory.
    ///
    /// Fails if a file exists but cannot be read.
    pub fn named_by(
        &mut self,
        arguments: &[String],
    ) -> Result<BTreeMap<String, String>, SweepError> {
        let mut found = BTreeMap::new();
        for path in arguments.iter().flat_map(|argument| FileHashes::parts(argument)) {
            if let Some(hash) = self.hash(path)? {
                found.insert(path.to_owned(), hash);
            }
        }
        Ok(found)
    }

    /// The parts of an argument that may be a path.
    pub(crate) fn parts(argument: &str) -> Vec<&str> {
        possible_paths(argument)
    }

    fn hash(&mut self, path: &str) -> Result<Option<String>, SweepError> {
        if let Some(known) = self.known.get(path) {
            return Ok(known.clone());
        }
        let file = Path::new(path);
        let is_file = fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
        let hash = if is_file { Some(hash_of_file(file)?.1) } else { None };
        self.known.insert(path.to_owned(), hash.clone());
        Ok(hash)
    }
}

/// The parts of an argument that may be a path: `FILE`, `--option=FILE`, `sim:FILE`, `virtio-blk,drive=FILE`.
fn possible_paths(argument: &str) -> Vec<&str> {
    let mut parts = vec![argument];
    for sign in [',', '=', ':'] {
        let pieces: Vec<&str> = parts
            .iter()
            .filter(|part| part.contains(sign))
            .flat_map(|part| part.split(sign).chain(part.split_once(sign).map(|pair| pair.1)))
            .collect();
        parts.extend(pieces);
    }
    parts.retain(|part| !part.is_empty());
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// Size in bytes and SHA-256 in hexadecimal of a regular file.
pub(crate) fn hash_of_file(path: &Path) -> Result<(u64, String), SweepError> {
    let mut file = open_regular(path)?;
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer).map_err(SweepError::reading(path))? {
            0 => return Ok((bytes, hexadecimal(&digest.finalize()))),
            count => {
                bytes += count as u64;
                digest.update(&buffer[..count]);
            }
        }
    }
}

/// Opens a regular file. Fails for a FIFO or a device, from which a read could block forever.
pub(crate) fn open_regular(path: &Path) -> Result<File, SweepError> {
    let metadata = fs::metadata(path).map_err(SweepError::reading(path))?;
    if !metadata.is_file() {
        let error = io::Error::other("it is not a regular file");
        return Err(SweepError::reading(path)(error));
    }
    File::open(path).map_err(SweepError::reading(path))
}

/// Reads a regular file of at most `bytes_max` bytes.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, SweepError> {
    let mut bytes = Vec::new();
    let file = open_regular(path)?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(SweepError::reading(path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(SweepError::damaged(path, format!("more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// SHA-256 of bytes, in hexadecimal.
pub(crate) fn hash_of_bytes(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_within_arguments() {
        let found = |argument| possible_paths(argument);
        assert!(found("--kernel=a/bzImage").contains(&"a/bzImage"));
        assert!(found("sim:./m.toml").contains(&"./m.toml"));
        assert!(found("--on=sim:./m.toml").contains(&"./m.toml"));
        assert!(found("virtio-blk,drive=./d.toml,size=3").contains(&"./d.toml"));
        assert!(found("--arrivals=trace:a=b").contains(&"a=b"));
        assert!(found("").is_empty());
    }

    #[test]
    fn hashes_follow_the_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel");
        let argument = [format!("--kernel={}", path.display())];
        assert!(FileHashes::default().named_by(&argument).unwrap().is_empty());
        fs::write(&path, "1").unwrap();
        let first = FileHashes::default().named_by(&argument).unwrap();
        assert_eq!(first.len(), 1);
        fs::write(&path, "2").unwrap();
        assert_ne!(FileHashes::default().named_by(&argument).unwrap(), first);
        assert_eq!(
            hash_of_bytes(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
