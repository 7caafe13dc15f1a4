//! Files of /proc, /sys and /boot, as of a machine that is not this one.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use live::host::{self, Root};

use crate::scratch;

/// Starts the next file: the rest of the line is its path.
pub(crate) const FILE: &str = "==> ";

/// Most files of one input.
const FILES_MAX: usize = 32;

/// Any bytes as files of a machine: a line `==> proc/cpuinfo` comes before the contents of each.
pub(crate) fn host_files(bytes: &[u8]) {
    let directory = scratch();
    plant(directory.path(), bytes);
    let root = Root::new(directory.path());
    let facts = host::host_facts(&root);
    black_box(host::diagnose(&facts));
    black_box(serde_json::to_string(&facts).expect("facts are JSON"));
    black_box((host::irq_threads(&root), host::core_types(&root, &[0, 1])));
}

fn plant(directory: &Path, bytes: &[u8]) {
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
        // Two files of one input may contradict each other: a file and a directory of one name.
        let parent = path.parent().map(fs::create_dir_all);
        if parent.is_some_and(|made| made.is_ok()) {
            let _ = fs::write(path, contents);
        }
    }
}

/// A path that stays in the directory.
fn is_plain(path: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        !part.is_empty()
            && part.len() < 64
            && part != "."
            && part != ".."
            && part.bytes().all(is_plain)
    };
    path.len() < 256 && path.split('/').all(is_part)
}
