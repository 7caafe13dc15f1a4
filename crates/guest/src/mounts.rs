//! Mounts file systems and loads modules. `main` calls it before anything else runs.

use std::fs;
use std::path::Path;

use crate::sys;

/// File systems in the order of mounting: type and mount point.
const MOUNTS: [(&str, &str); 5] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
];

/// The file with the modules in the order of loading: one file name a line, in the directory of this file.
const MODULE_LIST: &str = "/irqlab/modules";

/// Mounts the file systems. Prints an error on the console for a file system that the kernel lacks, and continues.
pub fn mount_all() {
    for (kind, mount_point) in MOUNTS {
        if let Err(error) = sys::mount(kind, mount_point) {
            eprintln!("guest: cannot mount {kind} on {mount_point}: {error}");
        }
    }
}

/// Loads the modules of the image. Returns the names of the modules that failed to load.
pub fn load_modules() -> Vec<String> {
    let list = fs::read_to_string(MODULE_LIST).unwrap_or_default();
    let mut failed = Vec::new();
    for name in list.lines().filter(|name| !name.is_empty()) {
        let path = Path::new(MODULE_LIST).with_file_name(name);
        if let Err(error) = fs::File::open(path).and_then(|file| sys::load_module(&file)) {
            eprintln!("guest: cannot load module {name}: {error}");
            failed.push(name.to_owned());
        }
    }
    failed
}
