//! The file of a record. It has no name while QEMU writes it, and is complete when a name is given to it.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use outputs::{Existing, NewFile};

use crate::{Cache, Result, SimError};

/// The path at which to keep a record, and how to treat an existing file there.
pub type KeptRecord<'a> = (&'a Path, Existing);

/// Checks before a run that the record can be kept at a path.
pub(crate) fn check_place((path, existing): KeptRecord<'_>) -> Result<()> {
    outputs::check(path, existing).map_err(SimError::file(path))
}

/// Copies the file to a path. The copy appears there complete or not at all.
pub(crate) fn keep(mut file: &File, (path, existing): KeptRecord<'_>) -> Result<()> {
    let copied = file.seek(SeekFrom::Start(0)).and_then(|_| {
        let mut target = NewFile::create(path, existing)?;
        std::io::copy(&mut file, &mut target)?;
        target.finish()
    });
    copied.map_err(SimError::file(path))
}

/// Minimum free space in the cache for a record and the other files of a run, bytes. Most runs need less than 10 MB.
const ROOM_BYTES: u64 = 64 << 20;

/// Creates a file without a name, which ends with its last descriptor. It is in the cache, or in the directory for
/// temporary files if the cache cannot be written or is full.
pub(crate) fn unnamed(cache: &Cache) -> Result<File> {
    let elsewhere = || tempfile::tempfile().map_err(SimError::file(&std::env::temp_dir()));
    match tempfile::tempfile_in(cache.path("")) {
        Ok(file) if has_room(&file) => Ok(file),
        _ => elsewhere(),
    }
}

/// Returns whether the file system of a file has space for a record. True if the file system does not report its
/// space.
fn has_room(file: &File) -> bool {
    rustix::fs::fstatvfs(file)
        .map_or(true, |system| system.f_bavail.saturating_mul(system.f_frsize) >= ROOM_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_full_file_system_has_no_room() {
        let here = tempfile::tempfile().unwrap();
        assert!(has_room(&here), "the directory for temporary files is full");
        // The kernel's own: it says that nothing is free.
        let proc = File::open("/proc/self/status").unwrap();
        assert!(!has_room(&proc));
    }

    #[test]
    fn a_cache_that_is_gone_leaves_the_directory_for_temporary_files() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("cache");
        let cache = Cache::at(&directory).unwrap();
        unnamed(&cache).unwrap().write_all(b"in the cache").unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let mut file = unnamed(&cache).unwrap();
        file.write_all(b"elsewhere").unwrap();
        assert!(!directory.exists());
    }
}
