//! A file on which the Parquet library panics gives an error, and nothing is printed about the library.

mod common;

use std::fs;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};

use record::{read_run, write_run};

static PRINTED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_panic_of_the_parquet_library_is_an_error_and_is_not_printed() {
    panic::set_hook(Box::new(|_| {
        PRINTED.fetch_add(1, Ordering::Relaxed);
    }));
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("run");
    write_run(&common::sample(), &[], &directory).unwrap();
    let table = directory.join("tables/handlers.parquet");
    let manifest = directory.join("manifest.json");
    let (sound, text) = (fs::read(&table).unwrap(), fs::read_to_string(&manifest).unwrap());
    let old = format!("\"crc32\": {}", crc32fast::hash(&sound));
    assert!(text.contains(&old));
    let mut gave_up = 0;
    // Bytes of the file's last part, its metadata, where a wrong value is taken for a type or a length.
    for place in sound.len() / 2..sound.len() {
        let mut changed = sound.clone();
        changed[place] = 1;
        fs::write(&table, &changed).unwrap();
        let new = format!("\"crc32\": {}", crc32fast::hash(&changed));
        fs::write(&manifest, text.replacen(&old, &new, 1)).unwrap();
        let error = read_run(&directory).err().map(|error| error.to_string());
        gave_up +=
            usize::from(error.is_some_and(|error| error.contains("the Parquet decoder gave up")));
    }
    assert!(gave_up > 0, "none of these files makes the library panic: look for others");
    assert_eq!(PRINTED.load(Ordering::Relaxed), 0);
    // Other panics are still printed.
    assert!(panic::catch_unwind(|| panic!("unexpected")).is_err());
    assert_eq!(PRINTED.load(Ordering::Relaxed), 1);
}
