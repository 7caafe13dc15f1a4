//! Runs that were written in the current schema stay readable.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use record::{read_run, write_run};

const FILES: [&str; 3] = ["manifest.json", "tables/handlers.parquet", "tables/empty.parquet"];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/run-2")
}

#[test]
fn schema_2_is_read() {
    assert_eq!(read_run(&golden()).unwrap(), common::sample());
}

/// A failure after an update of the parquet crate alone may be accepted: delete `golden/run-2`, run
/// `cargo test -p record --test golden -- --ignored`, and say so in the commit. A failure of
/// `schema_2_is_read` may not.
#[test]
fn the_same_run_gives_the_same_bytes() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run-2");
    write_run(&common::sample(), &[], &dir).unwrap();
    for file in FILES {
        let written = fs::read(dir.join(file)).unwrap();
        assert!(written == fs::read(golden().join(file)).unwrap(), "{file} differs");
    }
}

#[test]
#[ignore = "writes the golden run, when there is none"]
fn bless() {
    write_run(&common::sample(), &[], &golden()).unwrap();
}
