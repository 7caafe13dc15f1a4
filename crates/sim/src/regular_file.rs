//! Reads files that other programs or users may have made: only regular files, and only up to a given size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::{Result, SimError};

/// Opens a regular file for reading. Refuses other kinds of files: opening a FIFO would wait for its writer.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path);
    let file = file.map_err(SimError::file(path))?;
    if !file.metadata().map_err(SimError::file(path))?.is_file() {
        return Err(SimError::data(path.display().to_string(), "not a regular file"));
    }
    Ok(file)
}

/// Returns the first file, by name, of a directory whose name starts with `prefix`.
pub(crate) fn first_with_prefix(directory: &Path, prefix: &str) -> Result<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .map_err(SimError::file(directory))?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    let none = || SimError::data(directory.display().to_string(), format!("no {prefix} in it"));
    files.into_iter().next().ok_or_else(none)
}

/// Reads a regular file.
///
/// Fails if it has more than `bytes_max` bytes.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(SimError::file(path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(SimError::data(path.display().to_string(), format!("over {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Reads everything that `reader` has, such as the content of a packed file.
///
/// Fails if that is more than `bytes_max` bytes.
pub(crate) fn read_all(reader: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("over {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reading_is_bounded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), b"abcd").unwrap();
        assert_eq!(read_bounded(file.path(), 4).unwrap(), b"abcd");
        assert!(read_bounded(file.path(), 3).is_err());
    }

    #[test]
    fn what_is_too_long_is_refused_and_not_cut_off() {
        assert_eq!(read_all(&b"abcd"[..], 4).unwrap(), b"abcd");
        assert_eq!(read_all(&b"abcd"[..], 3).unwrap_err().to_string(), "over 3 bytes");
    }

    #[test]
    fn only_regular_files_are_read() {
        let scratch = tempfile::tempdir().unwrap();
        let fifo = scratch.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for path in [fifo.as_path(), scratch.path(), Path::new("/dev/zero")] {
            let error = read_bounded(path, 4).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
