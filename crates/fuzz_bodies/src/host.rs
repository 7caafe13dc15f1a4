//! Fuzz target for the readers of facts about the host: files of /proc, /sys and /boot of another machine.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use live::host::{self, Root};

use crate::scratch;

/// A line with this prefix starts the next file in an input. The rest of the line is the file's path.
pub(crate) const FILE: &str = "==> ";

/// Maximum number of files in one input.
const FILES_MAX: usize = 32;

/// Reads any bytes as the files of a machine. A line such as `==> proc/cpuinfo` precedes the contents of each file.
pub(crate) fn host_files(bytes: &[u8]) {
    let directory = scratch();
    write_files(directory.path(), bytes);
    let root = Root::new(directory.path());
    let facts = host::host_facts(&root);
    black_box(host::diagnose(&facts));
    black_box(serde_json::to_string(&facts).expect("facts are JSON"));
    black_box((host::irq_threads(&root), host::core_types(&root, &[0, 1])));
}

/// Writes the files of an input below a directory. Omits lines before the first path, and files without a plain path.
fn write_files(directory: &Path, bytes: &[u8]) {
    let mut open: Option<(&str, Vec<u8>)> = None;
    let mut files = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let path =
            line.strip_prefix(FILE.as_bytes()).and_then(|path| std::str::from_utf8(path).ok());
        match (path, &mut open) {
            (Some(path), _) => files.extend(open.replace((path.trim_end(), Vec::new()))),
            (None, Some((_, contents))) => contents.extend(line),
            (None, None) => {}
        }
    }
    files.extend(open);
    for (path, contents) in files.into_iter().take(FILES_MAX).filter(|(path, _)| is_plain(path)) {
        let path = directory.join(path);
        // This can fail: an input may have a file and a directory with one name.
        let parent_created = path.parent().map(fs::create_dir_all);
        if parent_created.is_some_and(|created| created.is_ok()) {
            let _ = fs::write(path, contents);
        }
    }
}

/// Whether a path is relative, short, of plain characters, and stays within the directory.
fn is_plain(path: &str) -> bool {
    let is_part = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        !part.is_empty()
            && part.len() < 64
            && part != "."
            && part != ".."
            && part.bytes().all(is_allowed)
    };
    path.len() < 256 && path.split('/').all(is_part)
}
