//! The file of a record: it has no name while QEMU writes it, and is complete when it gets one.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use outputs::{Existing, NewFile};

use crate::{Cache, Result, SimError};

/// Path for a kept record, and the treatment of an existing file.
pub type KeptRecord<'a> = (&'a Path, Existing);

/// Checks before a run that a file can be written to a place.
pub(crate) fn check_place((place, existing): KeptRecord<'_>) -> Result<()> {
    outputs::check(place, existing).map_err(SimError::file(place))
}

/// Copies a file to a place; it appears there complete or not at all.
pub(crate) fn keep(mut file: &File, (place, existing): KeptRecord<'_>) -> Result<()> {
    let copied = file.seek(SeekFrom::Start(0)).and_then(|_| {
        let mut to = NewFile::create(place, existing)?;
        std::io::copy(&mut file, &mut to)?;
        to.finish()
    });
    copied.map_err(SimError::file(place))
}

/// Free space that a record and the other files of a run find in the cache, bytes; most take less than 10 MB.
const ROOM_BYTES: u64 = 64 << 20;

/// Creates a file without a name, which ends with its last user: in the cache, or, where that cannot be
/// written or is full, in the directory for temporary files.
pub(crate) fn unnamed(cache: &Cache) -> Result<File> {
    let elsewhere = || tempfile::tempfile().map_err(SimError::file(&std::env::temp_dir()));
    match tempfile::tempfile_in(cache.path("")) {
        Ok(file) if has_room(&file) => Ok(file),
        _ => elsewhere(),
    }
}

/// Whether the file system of a file has space for a record; yes where it does not say.
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
