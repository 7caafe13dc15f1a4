//! The file of a record: it has no name while QEMU writes it, and is complete when it gets one.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::{Cache, Result, SimError};

/// Returns the temporary name of a file that is to be at `place`.
fn aside(place: &Path) -> PathBuf {
    let mut aside = place.to_owned().into_os_string();
    aside.push(".aside");
    PathBuf::from(aside)
}

/// Checks before a run that a file can be written to a place.
pub(crate) fn check_place(place: &Path) -> Result<()> {
    let aside = aside(place);
    File::create(&aside).and_then(|_| fs::remove_file(&aside)).map_err(SimError::file(place))
}

/// Copies a file to a place; it appears there complete or not at all.
pub(crate) fn keep(mut file: &File, place: &Path) -> Result<()> {
    let aside = aside(place);
    let copied =
        file.seek(SeekFrom::Start(0)).and_then(|_| File::create(&aside)).and_then(|mut to| {
            std::io::copy(&mut file, &mut to)?;
            to.sync_data()?;
            fs::rename(&aside, place)
        });
    copied.map_err(|source| {
        // The first error is reported.
        let _ = fs::remove_file(&aside);
        SimError::file(place)(source)
    })
}

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    options.open(path).map_err(SimError::file(path))
}

/// Free space that a record and the other files of a run find in the cache, bytes; most take less than 10 MB.
const ROOM_BYTES: u64 = 64 << 20;

/// Creates a file without a name, which ends with its last user: in the cache, or, where that cannot be
/// written or is full, in the directory for temporary files.
pub(crate) fn unnamed(cache: &Cache) -> Result<File> {
    static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = cache.path(&format!("record-{number}.{}.aside", std::process::id()));
    let elsewhere = || tempfile::tempfile().map_err(SimError::file(&std::env::temp_dir()));
    let Ok(file) = open(&path) else { return elsewhere() };
    fs::remove_file(&path).map_err(SimError::file(&path))?;
    if has_room(&file) { Ok(file) } else { elsewhere() }
}

/// Whether the file system of a file has space for a record; yes where it does not say.
fn has_room(file: &File) -> bool {
    rustix::fs::fstatvfs(file)
        .map_or(true, |system| system.f_bavail.saturating_mul(system.f_frsize) >= ROOM_BYTES)
}

#[cfg(test)]
mod tests {
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
        let place = scratch.path().join("cache");
        let cache = Cache::at(&place).unwrap();
        unnamed(&cache).unwrap().write_all(b"in the cache").unwrap();
        fs::remove_dir_all(&place).unwrap();
        let mut file = unnamed(&cache).unwrap();
        file.write_all(b"elsewhere").unwrap();
        assert!(!place.exists());
    }
}
