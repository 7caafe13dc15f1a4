//! File systems and modules, which must be there before anything else runs.

use std::fs;
use std::path::Path;

use crate::sys;

/// File systems in the order of mounting: source and type, place.
const MOUNTS: [(&str, &str); 5] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
];

/// Modules to load, one file name a line, in this order.
const MODULE_LIST: &str = "/irqlab/modules";

/// Mounts all file systems that the kernel has; names the others on the console.
pub fn mount_all() {
    for (kind, place) in MOUNTS {
        if let Err(error) = sys::mount(kind, place) {
            eprintln!("guest: cannot mount {kind} on {place}: {error}");
        }
    }
}

/// Loads the modules of the image; returns the names of those that the kernel refused.
pub fn load_modules() -> Vec<String> {
    let list = fs::read_to_string(MODULE_LIST).unwrap_or_default();
    let mut failed = Vec::new();
    for name in list.lines().filter(|name| !name.is_empty()) {
        let path = Path::new(MODULE_LIST).with_file_name(name);
        if let Err(error) = fs::File::open(path).and_then(|file| sys::load_module(&file)) {
            eprintln!("guest: module {name}: {error}");
            failed.push(name.to_owned());
        }
    }
    failed
}
