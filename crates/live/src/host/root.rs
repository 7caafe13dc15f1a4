//! [`Root`]: bounded reads of files of /proc, /sys and /boot, below a root directory. All readers of facts use it, so a
//! test can build its own `/proc` and `/sys`.

use std::fs::{File, OpenOptions, read_dir};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Largest file that [`Root::text`] reads. Nearly all files of /proc and /sys are far smaller. Readers of larger files
/// (interrupt counts of big machines, BTF) choose their own limit.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Largest table of mounts that is read. A line has about 150 bytes; hosts of containers have many thousands.
pub(super) const MOUNTS_BYTES_MAX: usize = 64 << 20;

/// Largest number of entries of a directory that are read.
const DIRECTORY_ENTRIES_MAX: usize = 65_536;

/// The directory that contains `proc`, `sys` and `boot`; `/` on the machine itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// A root at `path`. Any path but `/` counts as a copy of some machine's files. Then facts from system calls and
    /// instructions (`perf_event_open`, `uname`, CPUID) are absent.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Root(path.into())
    }

    /// Whether this is the root of the running machine, which system calls describe, too.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The path of `relative` below this root. A leading `/` of `relative` is ignored.
    pub fn path(&self, relative: impl AsRef<str>) -> PathBuf {
        self.0.join(relative.as_ref().trim_start_matches('/'))
    }

    /// Whether a file or directory exists at `relative`.
    pub fn exists(&self, relative: impl AsRef<str>) -> bool {
        self.path(relative).exists()
    }

    /// Reads the whole file; `None` if it cannot be read or is larger than `bytes_max`, because
    /// half a file would be a wrong fact.
    pub fn bytes(&self, relative: impl AsRef<str>, bytes_max: usize) -> Option<Vec<u8>> {
        // Opens without blocking: a FIFO in place of a file must not hang the caller.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file: File = options.open(self.path(relative)).ok()?;
        let mut content = Vec::new();
        let limit = u64::try_from(bytes_max).ok()?.checked_add(1)?;
        file.take(limit).read_to_end(&mut content).ok()?;
        (content.len() <= bytes_max).then_some(content)
    }

    /// Reads the file as text of at most 1 MiB; replaces bytes that are not UTF-8.
    pub fn text(&self, relative: impl AsRef<str>) -> Option<String> {
        self.text_up_to(relative, TEXT_BYTES_MAX)
    }

    /// Reads the file as text of at most `bytes_max` bytes.
    pub fn text_up_to(&self, relative: impl AsRef<str>, bytes_max: usize) -> Option<String> {
        let content = self.bytes(relative, bytes_max)?;
        Some(String::from_utf8_lossy(&content).into_owned())
    }

    /// Reads the file's text without white space at its start and end; `None` if nothing remains.
    pub fn word(&self, relative: impl AsRef<str>) -> Option<String> {
        let text = self.text(relative)?;
        let word = text.trim();
        (!word.is_empty()).then(|| word.to_owned())
    }

    /// Reads and parses a file that contains a single value; `None` if it does not parse.
    pub fn number<T: FromStr>(&self, relative: impl AsRef<str>) -> Option<T> {
        self.word(relative)?.parse().ok()
    }

    /// The names in a directory, sorted; `None` if the directory cannot be read.
    pub fn names(&self, relative: impl AsRef<str>) -> Option<Vec<String>> {
        let entries = read_dir(self.path(relative)).ok()?;
        let mut names: Vec<String> = entries
            .take(DIRECTORY_ENTRIES_MAX)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Some(names)
    }
}

/// Writes a file and its directories below `root`.
#[cfg(test)]
pub(crate) fn plant(root: &Path, relative: &str, content: impl AsRef<[u8]>) {
    let path = root.join(relative);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_too_large_and_empty_are_absent() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        plant(directory.path(), "sys/a", "12\n");
        plant(directory.path(), "sys/empty", " \n");
        assert_eq!(root.number::<u32>("/sys/a"), Some(12));
        assert_eq!(root.word("sys/empty"), None);
        assert_eq!(root.text("sys/none"), None);
        assert_eq!(root.text("sys"), None, "a directory is not a file");
        assert_eq!(root.bytes("sys/a", 2), None);
        assert_eq!(root.bytes("sys/a", 3), Some(b"12\n".to_vec()));
        assert_eq!(root.names("sys"), Some(vec!["a".to_owned(), "empty".to_owned()]));
        assert!(!root.is_live() && Root::default().is_live());
    }
}
