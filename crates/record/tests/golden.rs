//! Runs that were written in the current schema stay readable.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use record::{read_run, write_run};

const FILES: [&str; 3] = ["manifest.json", "tables/handlers.parquet", "tables/empty.parquet"];

/// The run as an earlier version wrote it: its columns do not name the columns of their intervals.
const WITHOUT_LINKS: &str = "run-2";
const CURRENT: &str = "run-2-links";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn schema_2_is_read() {
    for name in [WITHOUT_LINKS, CURRENT] {
        assert_eq!(read_run(&golden(name)).unwrap(), common::sample(), "{name}");
    }
}

/// A failure after an update of the parquet crate alone may be accepted: delete `golden/run-2-links`, run
/// `cargo test -p record --test golden -- --ignored`, and say so in the commit. A failure of
/// `schema_2_is_read` may not.
#[test]
fn the_same_run_gives_the_same_bytes() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join(CURRENT);
    write_run(&common::sample(), &[], &dir).unwrap();
    for file in FILES {
        let written = fs::read(dir.join(file)).unwrap();
        assert!(written == fs::read(golden(CURRENT).join(file)).unwrap(), "{file} differs");
    }
}

#[test]
#[ignore = "writes the golden run, when there is none"]
fn bless() {
    write_run(&common::sample(), &[], &golden(CURRENT)).unwrap();
}
