//! Keeps the cache within its limit: evicts derived entries, the least recently used first. A recently used entry is
//! evicted only after all entries that were used before it.
//!
//! `checkpoint::ready` evicts after it has kept a machine; `irqlab sim cache` lists, limits and prunes. Other
//! processes use the cache at the same time: an entry is removed only under its lock, and disappears under one
//! rename.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use super::{Cache, in_use, remove_directory, reserved_suffix};
use crate::regular_file::read_bounded;
use crate::{Progress, Result, SimError};

/// Default limit of the derived entries together, bytes.
pub const LIMIT_BYTES_DEFAULT: u64 = 16 << 30;
/// The file that holds the limit, in bytes.
const LIMIT_FILE: &str = "limit";
/// How long an entry stays after its last use: a process that has looked it up may not have opened it yet.
const GRACE: Duration = Duration::from_secs(600);
/// Like [`GRACE`], for `irqlab sim cache prune`.
const GRACE_PRUNE: Duration = Duration::from_secs(60);

/// Whether the cache may evict an entry. The prefix of the entry's name determines its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// May be evicted: irqlab makes the entry again when it needs it, within a minute.
    Derived,
    /// Is never evicted: a checkpoint of the user, a download, or the result of a build.
    Kept,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// Its name in the cache's directory.
    pub name: String,
    /// Whether it may be evicted.
    pub kind: EntryKind,
    pub bytes: u64,
    /// Time of the last use. If no use was recorded: the time at which the entry was made.
    pub last_used: SystemTime,
}

/// Prefixes of the names of derived entries.
const DERIVED: [&str; 11] = [
    "ready-",
    "image-",
    "plugin-",
    "model-",
    "kernel-files-",
    "annotated-",
    "facts-",
    "bare-",
    "hash-",
    "rootfs-",
    "times-",
];

impl Cache {
    /// Lists the entries, the most recently used first, without locks and without temporary files and directories.
    #[must_use]
    pub fn entries(&self) -> Vec<CacheEntry> {
        let Ok(entries) = fs::read_dir(self.path("")) else { return Vec::new() };
        let mut found: Vec<CacheEntry> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let is_internal = reserved_suffix(&name).is_some() || name == LIMIT_FILE;
                (!is_internal).then(|| examine(&entry.path(), name))?
            })
            .collect();
        found.sort_by(|first, second| {
            (second.last_used, &second.name).cmp(&(first.last_used, &first.name))
        });
        found
    }

    /// Returns the limit in bytes, over entries of the kind [`EntryKind::Derived`].
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        let text = read_bounded(&self.path(LIMIT_FILE), 64).unwrap_or_default();
        let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
        number.unwrap_or(LIMIT_BYTES_DEFAULT)
    }

    /// Fails when the cache cannot be written.
    pub fn set_limit(&self, bytes: u64) -> Result<()> {
        self.file(LIMIT_FILE, format!("{bytes}\n").as_bytes()).map(drop)
    }

    /// Removes derived entries, the least recently used first, until the others are within the limit. Entries stay if
    /// they are in use or were used within [`GRACE`]; so the cache may stay over its limit. Also removes what killed
    /// processes left.
    pub(crate) fn evict(&self, progress: Progress) {
        self.remove_leftovers();
        let removed = self.shrink(self.limit_bytes(), GRACE);
        if !removed.is_empty() {
            let entries = if removed.len() == 1 { "entry" } else { "entries" };
            progress(&format!("the cache was over its limit: {} {entries} removed", removed.len()));
        }
    }

    /// Removes all derived entries that are not in use, and the temporary files and directories of processes
    /// that were killed. Returns their names.
    #[must_use]
    pub fn prune(&self) -> Vec<String> {
        let mut removed = self.remove_leftovers();
        removed.extend(self.shrink(0, GRACE_PRUNE));
        removed
    }

    /// Removes an entry of any kind, such as `checkpoint-NAME`.
    ///
    /// Fails with [`SimError::Invalid`] when there is no such entry, or when a running irqlab uses it.
    pub fn remove_named(&self, name: &str) -> Result<()> {
        if !self.entries().iter().any(|entry| entry.name == name) {
            return Err(SimError::Invalid(format!(
                "the cache has no entry {name} (irqlab sim cache list prints the names)"
            )));
        }
        if self.remove_if_unused(name, Duration::ZERO) {
            return Ok(());
        }
        Err(SimError::Invalid(format!(
            "{name} stays: a running irqlab uses it, or it cannot be removed"
        )))
    }

    /// Removes temporary files and directories of processes that were killed. Returns the names.
    fn remove_leftovers(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("")) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| self.remove_leftover(name)).collect()
    }

    /// Removes an entry with a temporary name if no process works on it. Returns whether it did.
    fn remove_leftover(&self, name: &str) -> bool {
        if name.ends_with(outputs::TEMPORARY_SUFFIX) {
            // Temporary names are names of files. A directory is a checkpoint of an irqlab that allowed this name.
            return self.path(name).is_file() && self.is_old(name) && self.delete(name);
        }
        let Some(entry) = name.strip_suffix(".aside").or_else(|| name.strip_suffix(".old")) else {
            return false;
        };
        if let Ok(lock) = File::open(self.path(&format!("{entry}.lock"))) {
            // The process that makes an entry holds its lock. This process now holds the lock until the
            // leftover is gone.
            return flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
                && self.delete(name);
        }
        // Without a lock, the entry is a leftover only if its name ends with a number or with the temporary name of
        // `Cache::discard`, and it is old.
        let has_number = Path::new(entry).extension().is_some_and(|end| {
            end.to_str().is_some_and(|end| end.bytes().all(|byte| byte.is_ascii_digit()))
        });
        let is_discarded = entry.ends_with(outputs::TEMPORARY_SUFFIX);
        (has_number || is_discarded) && self.is_old(name) && self.delete(name)
    }

    /// Returns whether an entry was modified longer than [`GRACE`] ago.
    fn is_old(&self, name: &str) -> bool {
        let modified = fs::symlink_metadata(self.path(name)).and_then(|data| data.modified()).ok();
        modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > GRACE)
    }

    fn delete(&self, name: &str) -> bool {
        let path = self.path(name);
        if path.is_dir() { remove_directory(&path).is_ok() } else { fs::remove_file(&path).is_ok() }
    }

    /// Removes derived entries, the least recently used first, until the others have at most `limit_bytes`. Skips
    /// entries that are in use or were used within `grace`. Returns the removed names.
    fn shrink(&self, limit_bytes: u64, grace: Duration) -> Vec<String> {
        let mut derived = self.entries();
        derived.retain(|entry| entry.kind == EntryKind::Derived);
        let mut kept_bytes: u64 = derived.iter().map(|entry| entry.bytes).sum();
        let mut removed = Vec::new();
        // The least recently used entry is the last one.
        for entry in derived.into_iter().rev() {
            if kept_bytes <= limit_bytes {
                break;
            }
            if self.remove_if_unused(&entry.name, grace) {
                kept_bytes -= entry.bytes;
                removed.push(entry.name);
            }
        }
        removed
    }

    /// Removes an entry unless it is in use or was used within `grace`. A last use in the future counts as a use now.
    /// Returns whether the entry was removed.
    fn remove_if_unused(&self, name: &str, grace: Duration) -> bool {
        let path = self.path(name);
        // Another process may have used the entry since the entries were listed.
        let entry = examine(&path, name.to_owned());
        if entry.is_none_or(|entry| entry.last_used.elapsed().unwrap_or_default() < grace) {
            return false;
        }
        // Held until the entry is gone.
        let Ok(_lock) = in_use::lock_unused(&path) else { return false };
        if path.is_dir() { self.discard(name).is_ok() } else { fs::remove_file(&path).is_ok() }
    }

    /// Renames a directory and then removes it. Other processes never find a directory that is half removed.
    pub(crate) fn discard(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        loop {
            let removed_path = self.path(&discarded_name(name));
            return match renameat_with(CWD, &path, CWD, &removed_path, RenameFlags::NOREPLACE) {
                Ok(()) => remove_directory(&removed_path),
                Err(Errno::EXIST) => continue,
                // Another process was faster.
                Err(Errno::NOENT) => Ok(()),
                // Some file systems replace or fail: no directory with entries is replaced.
                Err(Errno::INVAL) => fs::rename(&path, &removed_path)
                    .map_err(SimError::file(&path))
                    .and_then(|()| remove_directory(&removed_path)),
                Err(error) => Err(SimError::file(&path)(error.into())),
            };
        }
    }
}

/// Returns a new name for an entry that is about to be removed. After a kill, [`Cache::remove_leftover`] removes it.
fn discarded_name(name: &str) -> String {
    format!("{name}{}.old", outputs::temporary_name())
}

/// Describes an entry; `None` if it does not exist.
fn examine(path: &Path, name: String) -> Option<CacheEntry> {
    let data = fs::symlink_metadata(path).ok()?;
    let is_derived = DERIVED.iter().any(|prefix| name.starts_with(prefix));
    let kind = if is_derived { EntryKind::Derived } else { EntryKind::Kept };
    let used = in_use::used_file(path).and_then(|path| fs::metadata(path).ok());
    let last_used = used.as_ref().unwrap_or(&data).modified().ok()?;
    let bytes = if data.is_dir() { bytes_in(path) } else { data.len() };
    Some(CacheEntry { name, kind, bytes, last_used })
}

/// Returns the bytes of all files below a directory. Does not follow links.
fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_in(&entry.path()),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |data| data.len()),
        _ => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        (scratch, cache)
    }

    /// Makes a machine of this size that was used some hours ago.
    fn add(cache: &Cache, name: &str, bytes: usize, hours: u64) {
        let directory = cache.path(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("state"), vec![7; bytes]).unwrap();
        fs::write(directory.join("checkpoint.json"), "").unwrap();
        let used = SystemTime::now() - Duration::from_secs(hours * 3600);
        let file = File::options().write(true).open(directory.join("checkpoint.json")).unwrap();
        file.set_times(FileTimes::new().set_modified(used)).unwrap();
    }

    fn names(cache: &Cache) -> Vec<String> {
        cache.entries().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn an_entry_of_any_kind_is_removed_by_its_name_unless_it_is_in_use() {
        let (_scratch, cache) = cache();
        add(&cache, "checkpoint-mine", 10, 0);
        add(&cache, "ready-1", 10, 0);
        let refused = |name: &str| cache.remove_named(name).unwrap_err().to_string();
        assert!(refused("absent").contains("no entry absent"));
        assert!(refused("../elsewhere").contains("no entry"));
        let used = in_use::lock_unused(&cache.path("checkpoint-mine")).ok();
        assert!(used.is_some());
        assert!(refused("checkpoint-mine").contains("a running irqlab uses it"));
        drop(used);
        cache.remove_named("checkpoint-mine").unwrap();
        assert_eq!(names(&cache), ["ready-1"]);
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let (_scratch, cache) = cache();
        for (name, hours) in [("ready-b", 2), ("ready-a", 1), ("ready-c", 3), ("checkpoint-x", 9)] {
            add(&cache, name, 1000, hours);
        }
        fs::write(cache.path("ready-d.lock"), "").unwrap();
        assert_eq!(cache.limit_bytes(), LIMIT_BYTES_DEFAULT);
        cache.set_limit(2500).unwrap();
        let lines = std::cell::RefCell::new(Vec::new());
        cache.evict(&|line| lines.borrow_mut().push(line.to_owned()));
        assert_eq!(names(&cache), ["ready-a", "ready-b", "checkpoint-x"]);
        assert!(lines.borrow()[0].contains("1 entry removed"), "{lines:?}");
        cache.evict(&|line| panic!("{line}"));
    }

    #[test]
    fn a_large_entry_is_not_evicted_before_a_small_one_that_was_used_earlier() {
        let (_scratch, cache) = cache();
        for (name, bytes, hours) in
            [("ready-new", 3000, 1), ("ready-large", 20_000, 2), ("ready-old", 1000, 3)]
        {
            add(&cache, name, bytes, hours);
        }
        assert_eq!(cache.shrink(23_000, GRACE), ["ready-old"]);
        add(&cache, "ready-old", 1000, 3);
        assert_eq!(cache.shrink(16_000, GRACE), ["ready-old", "ready-large"]);
        assert_eq!(names(&cache), ["ready-new"]);
    }

    #[test]
    fn what_is_in_use_or_new_stays() {
        let (_scratch, cache) = cache();
        add(&cache, "ready-used", 1000, 5);
        add(&cache, "ready-idle", 1000, 4);
        add(&cache, "ready-new", 1000, 0);
        let used = File::open(cache.path("ready-used/checkpoint.json")).unwrap();
        flock(&used, FlockOperation::LockShared).unwrap();
        assert_eq!(cache.prune(), ["ready-idle"]);
        assert_eq!(names(&cache), ["ready-new", "ready-used"]);
        drop(used);
        assert_eq!(cache.prune(), ["ready-used"]);
    }

    /// Sets the time of the last use back by this time.
    fn age(path: &Path, hours: u64) {
        let used = SystemTime::now() - Duration::from_secs(hours * 3600);
        File::open(path).unwrap().set_times(FileTimes::new().set_modified(used)).unwrap();
    }

    #[test]
    fn what_this_process_was_given_stays() {
        let (_scratch, cache) = cache();
        let (image, _) = cache.keyed("image", ".cpio", b"in use").unwrap();
        let symbols = |staging: &Path| {
            fs::write(staging.join("symbols"), "0 a\n").unwrap();
            Ok(())
        };
        let files = cache.held_directory("kernel-files-1", &|_| {}, symbols).unwrap();
        let unused = cache.file("model-1.toml", b"unused").unwrap();
        for path in [&image, &files.join("symbols"), &unused] {
            age(path, 5);
        }
        assert_eq!(cache.prune(), ["model-1.toml"]);
        assert!(image.is_file() && files.join("symbols").is_file());
        // A directory that is found in the cache is in use, too, and its last use is now.
        cache.held_directory("kernel-files-1", &|_| {}, |_| panic!("made twice")).unwrap();
        assert_eq!(names(&cache)[0], "kernel-files-1");
    }

    #[test]
    fn a_file_that_another_process_uses_stays() {
        let (_scratch, cache) = cache();
        let path = cache.file("plugin-1.so", b"used").unwrap();
        let used = in_use::open(&path).unwrap().unwrap();
        age(&path, 5);
        assert!(cache.prune().is_empty());
        drop(used);
        assert_eq!(cache.prune(), ["plugin-1.so"]);
        assert!(in_use::open(&path).unwrap().is_none());
    }

    #[test]
    fn what_killed_processes_left_is_removed() {
        let (_scratch, cache) = cache();
        let old = SystemTime::now() - Duration::from_secs(24 * 3600);
        let directories = [
            "ready-a.aside",
            "ready-b.aside",
            "ready-c.77.old",
            "ready-d.78.old",
            "checkpoint-1.5.aside",
        ];
        for name in directories {
            fs::create_dir(cache.path(name)).unwrap();
            fs::write(cache.path(name).join("state"), "half").unwrap();
        }
        for name in ["image-e.cpio.79.aside", "image-f.cpio.80.aside"] {
            fs::write(cache.path(name), "half").unwrap();
        }
        for name in ["ready-c.77.old", "image-e.cpio.79.aside", "checkpoint-1.5.aside"] {
            let times = FileTimes::new().set_modified(old);
            File::open(cache.path(name)).unwrap().set_times(times).unwrap();
        }
        let _makes_a = cache.lock("ready-a", &|_| {}).unwrap();
        drop(cache.lock("ready-b", &|_| {}).unwrap());
        let makes_checkpoint = cache.lock("checkpoint-1.5", &|_| {}).unwrap();
        let mut removed = cache.prune();
        removed.sort();
        assert_eq!(removed, ["image-e.cpio.79.aside", "ready-b.aside", "ready-c.77.old"]);
        let stays =
            ["ready-a.aside", "ready-d.78.old", "image-f.cpio.80.aside", "checkpoint-1.5.aside"];
        assert!(stays.iter().all(|name| cache.path(name).exists()));
        drop(makes_checkpoint);
        assert_eq!(cache.prune(), ["checkpoint-1.5.aside"]);
    }

    /// A process was killed between the renaming and the removal of an entry without a lock.
    #[test]
    fn a_discarded_directory_that_a_kill_left_is_removed() {
        let (_scratch, cache) = cache();
        let [old, new] = [discarded_name("ready-a"), discarded_name("ready-b")];
        for name in [&old, &new] {
            fs::create_dir(cache.path(name)).unwrap();
            fs::write(cache.path(name).join("state"), "half").unwrap();
        }
        age(&cache.path(&old), 1);
        assert_eq!(cache.prune(), [old.as_str()]);
        assert!(!cache.path(&old).exists() && cache.path(&new).exists());
        add(&cache, "ready-c", 1000, 1);
        cache.discard("ready-c").unwrap();
        assert!(!cache.path("ready-c").exists() && cache.prune().is_empty());
    }

    /// Earlier versions of irqlab allowed this name.
    #[test]
    fn a_checkpoint_with_the_end_of_a_temporary_name_stays() {
        let (_scratch, cache) = cache();
        add(&cache, "checkpoint-x.part", 1000, 24);
        age(&cache.path("checkpoint-x.part"), 24);
        fs::write(cache.path("irqlab-0.part"), "half").unwrap();
        age(&cache.path("irqlab-0.part"), 24);
        assert_eq!(cache.prune(), ["irqlab-0.part"]);
        assert!(cache.path("checkpoint-x.part/state").is_file());
    }

    #[test]
    fn a_limit_that_is_no_number_is_the_default() {
        let (_scratch, cache) = cache();
        for nonsense in ["", "x", "-1", "1e9"] {
            fs::write(cache.path(LIMIT_FILE), nonsense).unwrap();
            assert_eq!(cache.limit_bytes(), LIMIT_BYTES_DEFAULT, "{nonsense}");
        }
    }
}
