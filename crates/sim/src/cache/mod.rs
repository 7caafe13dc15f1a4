//! The cache directory: files that can be made again, each complete or absent.
//!
//! All modules of this bench keep downloads, images, saved machines and plugin files here. Several processes share
//! it. A process takes the entry's lock, fills a staging directory (`NAME.aside`), and renames it to its name: no
//! reader sees a partial entry. Every name is a path below the root; [`check_name`] checks names that a user gives.

pub(crate) mod content;
mod eviction;
pub(crate) mod in_use;
pub(crate) mod known_file;
mod owner;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub use eviction::{CacheEntry, EntryKind, LIMIT_BYTES_DEFAULT};

use outputs::Existing;
use rustix::fs::{FlockOperation, flock};

use crate::{Progress, Result, SimError, hash};

/// The directory that holds all files of this bench.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    /// Whether directories that the cache lacks are refused instead of made. See [`ONLY`].
    makes_no_directory: bool,
}

/// Name of the variable that forbids to make directories of the cache: no download, no boot. An empty value counts as unset.
pub const ONLY: &str = "IRQLAB_CACHE_ONLY";

/// The lock of an entry that this process makes. Dropping it releases the lock; the kernel does when irqlab ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// The error of a write into the cache. It names the cache and, if this user may not write into it, what to do.
fn cannot_write(root: &Path, error: io::Error) -> SimError {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => SimError::Missing {
            what: format!("the cache directory {} cannot be written: {error}", root.display()),
            remedy: "IRQLAB_CACHE=DIRECTORY, a directory that only you can write to".to_owned(),
        },
        _ => SimError::file(root)(error),
    }
}

impl Cache {
    /// Opens `$IRQLAB_CACHE`, else `$XDG_CACHE_HOME/irqlab`, else `$HOME/.cache/irqlab`.
    ///
    /// Fails when all three variables are missing, the directory cannot be made, or another user could change its
    /// files.
    pub fn from_environment() -> Result<Cache> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = set("IRQLAB_CACHE")
            .map(PathBuf::from)
            .or_else(|| set("XDG_CACHE_HOME").map(|base| Path::new(&base).join("irqlab")))
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache/irqlab")))
            .ok_or_else(|| {
                SimError::Invalid(
                    "no cache directory is known (set HOME or IRQLAB_CACHE)".to_owned(),
                )
            })?;
        let makes_no_directory = set(ONLY).is_some();
        Ok(Cache { makes_no_directory, ..Cache::at(&root)? })
    }

    /// Opens the cache in the directory `root`, which is created if needed.
    ///
    /// Fails when the directory cannot be created, or another user could change its files.
    pub fn at(root: &Path) -> Result<Cache> {
        fs::create_dir_all(root).map_err(|error| cannot_write(root, error))?;
        let root = fs::canonicalize(root).map_err(SimError::file(root))?;
        owner::check(&root)?;
        Ok(Cache { root, makes_no_directory: false })
    }

    /// Returns the path of an entry. The entry may not exist. The empty name gives the path of the cache itself.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Takes the lock of this name. If another process has it, reports that to `progress` and waits without a time limit;
    /// the kernel releases the lock when that process ends.
    ///
    /// Fails if the file of the lock cannot be written.
    pub(crate) fn lock(&self, name: &str, progress: Progress) -> Result<Lock> {
        let path = self.path(&format!("{name}.lock"));
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| cannot_write(&self.root, error))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            progress(&format!("waiting for another irqlab, which makes {name}"));
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|error| SimError::file(&path)(error.into()))?;
        }
        Ok(Lock { _file: file })
    }

    /// Returns the directory `name`. If it does not exist, `make` fills a staging directory, which then gets the
    /// name.
    ///
    /// If two processes make the same directory, the second one waits for the first one. What a killed process left of
    /// it is removed.
    ///
    /// Fails as `make` does, if the cache cannot be written, and with [`ONLY`] if the directory does not exist.
    pub(crate) fn directory(
        &self,
        name: &str,
        progress: Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        self.find_or_make(name, Path::is_dir, progress, make)
    }

    /// Like [`Cache::directory`], but the directory is not evicted while this process lives.
    pub(crate) fn held_directory(
        &self,
        name: &str,
        progress: Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let directory = self.find_or_make(name, in_use::hold, progress, make)?;
        in_use::hold(&directory);
        Ok(directory)
    }

    /// Like [`Cache::held_directory`], for files whose readers would not notice damage. The directory also
    /// holds a list of the files that `make` wrote. If a file differs from the list, `progress` reports the
    /// damage, and the directory is made again.
    pub(crate) fn checked_directory(
        &self,
        name: &str,
        progress: Progress,
        make: impl Fn(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let make_with_list =
            |staging: &Path| make(staging).and_then(|()| content::write_list(staging));
        let directory = self.held_directory(name, progress, make_with_list)?;
        let Err(damage) = content::check_list(&directory) else { return Ok(directory) };
        // Reports the damage before it takes the lock, which fails in a read-only cache.
        progress(&format!("{name} in the cache is damaged and made again: {damage}"));
        let _lock = self.lock(name, progress)?;
        // Another process may have made it again in the meantime.
        if content::check_list(&directory).is_err() {
            self.replace_directory_locked(name, make_with_list)?;
        }
        in_use::hold(&directory);
        Ok(directory)
    }

    /// Returns the directory if `is_usable` returns true for it. Otherwise `make` makes it, under its lock.
    fn find_or_make(
        &self,
        name: &str,
        is_usable: fn(&Path) -> bool,
        progress: Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let directory = self.path(name);
        if is_usable(&directory) {
            return Ok(directory);
        }
        let _lock = self.lock(name, progress)?;
        // Another process may have made it in the meantime.
        if is_usable(&directory) {
            return Ok(directory);
        }
        self.replace_directory_locked(name, make)
    }

    /// Like [`Cache::directory`], but replaces an existing directory. If `make` fails, the existing one stays.
    pub(crate) fn replace_directory(
        &self,
        name: &str,
        progress: Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let _lock = self.lock(name, progress)?;
        self.replace_directory_locked(name, make)
    }

    /// Makes a directory and replaces an existing one. The caller holds its lock. For a moment between two renames, readers
    /// find neither of them.
    ///
    /// Fails with [`SimError::Missing`] if [`ONLY`] is set.
    fn replace_directory_locked(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        if self.makes_no_directory {
            return Err(SimError::Missing {
                what: format!("{name} is not in the cache, and {ONLY} is set"),
                remedy: format!("irqlab sweep prepare for a sweep, or unset {ONLY}"),
            });
        }
        let directory = self.path(name);
        let staging = self.path(&format!("{name}.aside"));
        let old = self.path(&format!("{name}.old"));
        remove_directory(&staging)?;
        remove_directory(&old)?;
        fs::create_dir(&staging).map_err(SimError::file(&staging))?;
        let result = make(&staging).and_then(|()| {
            if directory.exists() {
                fs::rename(&directory, &old).map_err(SimError::file(&directory))?;
            }
            fs::rename(&staging, &directory).map_err(SimError::file(&directory))
        });
        let cleaned = remove_directory(&staging).and_then(|()| remove_directory(&old));
        result.and(cleaned).map(|()| directory)
    }

    /// Writes a file whose name is `PREFIX-KEY` with the suffix, where the key is a hash of its content.
    /// Returns its path, and the SHA-256 of the content in hexadecimal. The file is not evicted while this
    /// process lives. A file with other content under this name is replaced: it is damaged.
    pub(crate) fn keyed(
        &self,
        prefix: &str,
        suffix: &str,
        bytes: &[u8],
    ) -> Result<(PathBuf, String)> {
        let sha256 = hash::of_bytes(bytes);
        let name = format!("{prefix}-{}{suffix}", hash::key(&sha256));
        let path = self.path(&name);
        let is_current = in_use::hold(&path)
            && fs::metadata(&path).is_ok_and(|file| file.len() == bytes.len() as u64)
            && hash::of_file(&path).is_ok_and(|hash| hash == sha256);
        if !is_current {
            self.file(&name, bytes)?;
            in_use::hold(&path);
        }
        Ok((path, sha256))
    }

    /// Writes a file. Replaces an existing file of this name, in one step: readers find the old content or the new one.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.path(name);
        outputs::write(&path, bytes, Existing::Replaced).map_err(SimError::file(&path))?;
        Ok(path)
    }
}

/// Removes a directory with its content, if it exists.
pub(crate) fn remove_directory(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(SimError::file(directory)(error))
        }
        _ => Ok(()),
    }
}

/// Maximum length of the name of a checkpoint or a root file system.
const NAME_BYTES_MAX: usize = 64;

/// Reserved suffixes of names: the lock of an entry, its staging directory, the directory that it replaces, and a
/// temporary file. No entry's name may end with a reserved suffix.
const RESERVED_SUFFIXES: [&str; 4] = [".lock", ".aside", ".old", outputs::TEMPORARY_SUFFIX];

/// Returns the reserved end of a name; `None` if it has none.
fn reserved_suffix(name: &str) -> Option<&'static str> {
    RESERVED_SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix))
}

/// Checks that a checkpoint may have this name: it becomes the name of a directory of the cache.
pub(crate) fn check_checkpoint_name(name: &str) -> Result<()> {
    check_name(name, "checkpoint")
}

/// Checks that a user may give this name to an entry. `thing`: what the name is for, in the error message.
///
/// Fails with [`SimError::Invalid`], which names the allowed characters or the reserved suffix.
pub(crate) fn check_name(name: &str, thing: &str) -> Result<()> {
    let is_allowed = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_allowed);
    if let (true, Some(suffix)) = (is_name, reserved_suffix(name)) {
        return Err(SimError::Invalid(format!(
            "{name:?} is no name for a {thing}: the cache has other uses for names that end in {suffix}"
        )));
    }
    if is_name && !name.starts_with('.') {
        return Ok(());
    }
    let allowed = "1 to 64 letters, digits, dots, dashes and underscores, not starting with a dot";
    Err(SimError::Invalid(format!("{name:?} is no name for a {thing} (allowed: {allowed})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_write_the_same_file_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let (path, _) = cache.keyed("image", ".cpio", &[7; 100_000]).unwrap();
                        let _ = fs::remove_file(path);
                    }
                });
            }
        });
    }

    #[test]
    fn a_cache_that_cannot_be_written_says_what_to_set() {
        let denied = |kind| cannot_write(Path::new("/of-root"), io::Error::from(kind)).to_string();
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            let text = denied(kind);
            let names_directory = text.contains("the cache directory /of-root cannot be written");
            assert!(names_directory && text.contains("IRQLAB_CACHE="), "{text}");
        }
        // Another directory may be on the same full disk.
        assert!(!denied(ErrorKind::StorageFull).contains("IRQLAB_CACHE"));
        // A file is in the place of the directory, which root notices, too.
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("file"), "").unwrap();
        assert!(Cache::at(&scratch.path().join("file/cache")).is_err());
    }

    #[test]
    fn a_directory_is_whole_or_absent() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let quiet = |_: &str| {};
        let broken = cache.directory("thing", &quiet, |staging| {
            fs::write(staging.join("half"), "x").unwrap();
            Err(SimError::Invalid("no".to_owned()))
        });
        assert!(broken.is_err() && !cache.path("thing").exists());
        assert!(!cache.path("thing.aside").exists());
        // Remains of a killed process are harmless.
        fs::create_dir(cache.path("thing.aside")).unwrap();
        fs::write(cache.path("thing.aside/junk"), "x").unwrap();
        let make = |text: &'static str| {
            move |staging: &Path| {
                fs::write(staging.join("whole"), text).unwrap();
                Ok(())
            }
        };
        let directory = cache.directory("thing", &quiet, make("1")).unwrap();
        cache.directory("thing", &quiet, |_| panic!("made twice")).unwrap();
        assert!(!directory.join("junk").exists());
        cache.replace_directory("thing", &quiet, make("2")).unwrap();
        assert_eq!(fs::read_to_string(directory.join("whole")).unwrap(), "2");
    }

    /// Whatever files it has.
    #[test]
    fn a_checked_directory_that_is_found_is_not_evicted() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let found = cache.checked_directory("facts-1", &|_| {}, |staging| {
            fs::write(staging.join("kallsyms"), "ffffffff81000000 _text\n").unwrap();
            Ok(())
        });
        assert!(in_use::lock_unused(&found.unwrap()).is_err(), "it is in use");
    }

    /// A flipped bit in any byte, a missing file, and an additional file are each reported, and the directory is
    /// made again.
    #[test]
    fn a_checked_directory_that_is_damaged_is_made_again() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let said = std::cell::RefCell::new(Vec::new());
        let find = || {
            let progress = |line: &str| said.borrow_mut().push(line.to_owned());
            let made = cache.checked_directory("facts-1", &progress, |staging| {
                fs::write(staging.join("symbols"), "ffffffff81000000 _text\n").unwrap();
                fs::write(staging.join("offsets"), "pid 4\n").unwrap();
                Ok(())
            });
            let directory = made.unwrap();
            assert_eq!(fs::read(directory.join("offsets")).unwrap(), b"pid 4\n");
            assert_eq!(fs::read(directory.join("symbols")).unwrap().len(), 23);
            (directory, said.take())
        };
        let (directory, _) = find();
        assert!(find().1.is_empty());
        let check = |damage: &dyn Fn(), what: &str| {
            damage();
            let said = find().1;
            assert!(
                said.len() == 1 && said[0].contains("facts-1 in the cache is damaged"),
                "{said:?}"
            );
            assert!(said[0].contains(what), "{said:?}");
            assert!(find().1.is_empty());
        };
        for name in ["symbols", "offsets"] {
            let path = directory.join(name);
            let bytes = fs::read(&path).unwrap();
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                check(&|| fs::write(&path, &damaged).unwrap(), name);
            }
        }
        let list = directory.join(content::LIST);
        check(&|| fs::remove_file(directory.join("offsets")).unwrap(), "offsets");
        check(&|| fs::write(directory.join("more"), "x").unwrap(), "more");
        check(&|| fs::write(&list, "{}").unwrap(), "content.json");
        check(&|| fs::remove_file(&list).unwrap(), "content.json");
        assert!(!directory.join("more").exists());
    }

    /// A checkpoint `x.lock` would be in the place of the lock of `x`, and the cache removes old entries `x.part`.
    #[test]
    fn a_name_with_a_meaning_in_the_cache_is_refused() {
        for suffix in RESERVED_SUFFIXES {
            let error = check_name(&format!("x{suffix}"), "checkpoint").unwrap_err().to_string();
            assert!(error.contains("no name") && error.contains(suffix), "{error}");
            check_name(&format!("x{suffix}.1"), "checkpoint").unwrap();
        }
    }

    #[test]
    fn a_cache_that_makes_no_directory_returns_those_that_it_has() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let quiet = |_: &str| {};
        let only = Cache { makes_no_directory: true, ..cache.clone() };
        let make = |staging: &Path| {
            fs::write(staging.join("file"), "x").unwrap();
            Ok(())
        };
        let error = only.checked_directory("thing", &quiet, make).unwrap_err().to_string();
        assert!(error.contains("thing is not in the cache"), "{error}");
        assert!(!cache.path("thing").exists() && !cache.path("thing.aside").exists());
        cache.checked_directory("thing", &quiet, make).unwrap();
        only.checked_directory("thing", &quiet, |_| panic!("made twice")).unwrap();
    }

    #[test]
    fn a_directory_is_made_once() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let made = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    cache.directory("thing", &|_| {}, |_| {
                        made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(())
                    })
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }
}
