//! A process that is killed at any step of writing a run leaves the whole run with its attachments, or
//! none.

mod common;

use std::fs;
use std::path::Path;

use needs::Killed;
use record::{Attachment, partial_dirs, read_run, remove_leftovers, write_run};

/// Two attachments with different contents.
fn attachments() -> Vec<Attachment> {
    let attachment =
        |name: &str, byte| Attachment { name: name.to_owned(), contents: vec![byte; 70_000] };
    vec![attachment("sizes.svg", b's'), attachment("trace.json", b't')]
}

/// Not a test of its own: the next test runs it as a process, and kills that process.
#[test]
fn writer_that_is_killed() {
    let Some(parent) = needs::directory_of_the_killed() else { return };
    write_run(&common::sample(), &attachments(), &parent.join("run")).unwrap();
}

/// The names of the files in a directory, hidden ones too.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_run_is_whole_with_its_attachments_or_absent_wherever_its_writer_is_killed() {
    let (mut half, mut whole) = (0, 0);
    let check = |Killed { call, step, directory, .. }: Killed| {
        let run = directory.join("run");
        if run.symlink_metadata().is_ok() {
            whole += 1;
            assert_eq!(read_run(&run).unwrap(), common::sample(), "{call} {step}");
            for attachment in attachments() {
                let contents = fs::read(run.join(&attachment.name)).unwrap();
                assert!(contents == attachment.contents, "{call} {step}: {}", attachment.name);
            }
            assert_eq!(names(directory), ["run"], "{call} {step}");
        } else {
            // The remains have a hidden name, and the next start removes them.
            half += partial_dirs(directory).len();
            let removed = remove_leftovers(directory);
            assert!(names(directory).is_empty(), "{call} {step}: {removed:?}");
        }
    };
    let Some(starts) = needs::at_each_step("writer_that_is_killed", check) else { return };
    println!("{starts} starts: {half} left a half of a run, {whole} a whole one");
    // Five files are created, written and made durable. The rename follows.
    assert!(half >= 15, "{half} of {starts} killed while writing");
    assert!(whole >= 2, "{whole} of {starts} killed after the rename, or not at all");
}
