//! Reading the outputs of a program. It has a test program of its own: a program that is being started holds the locks
//! and sockets of its parent until its `exec`, and the other tests of this crate assert that those are free.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use outputs::output_of_program;

#[test]
fn both_outputs_are_read_while_the_program_writes() {
    let script = "head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero; exit 3";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = output_of_program(&mut shell).unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (200_000, 300_000));
    assert_eq!(output.status.code(), Some(3));
    let mut quiet = Command::new("true");
    quiet.stdout(Stdio::piped());
    assert!(output_of_program(&mut quiet).unwrap().stdout.is_empty());
    let directory = tempfile::tempdir().unwrap();
    let absent = output_of_program(&mut Command::new(directory.path().join("absent")));
    assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
}
