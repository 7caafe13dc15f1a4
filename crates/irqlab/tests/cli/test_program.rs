//! `tools/test_program`, with which `./check` runs test programs: here it runs tests of this program.

use std::path::{Path, PathBuf};

use crate::support::{CommandOutput, Place};

/// The environment variable with the file that counts the runs of the tests below.
const RUNS: &str = "IRQLAB_TEST_RUNS";

fn runs_with_this() -> usize {
    let file = PathBuf::from(std::env::var_os(RUNS).expect("set by the test that starts this one"));
    let runs = std::fs::read_to_string(&file).unwrap_or_default() + ".";
    std::fs::write(&file, &runs).unwrap();
    runs.len()
}

#[test]
#[ignore = "started by a_test_that_passes_when_it_is_run_again_has_passed"]
fn disturbed_once() {
    assert_eq!(runs_with_this(), 2, "the first run is disturbed");
}

#[test]
#[ignore = "started by a_test_that_fails_again_has_failed"]
fn always_wrong() {
    panic!("run {} is wrong", runs_with_this());
}

/// Runs an ignored test of this program by the script, with these of its options. Returns the number of runs, too.
fn run_by_script(options: &[&str], test: &str) -> (CommandOutput, usize) {
    let place = Place::new();
    let runs = place.path().join("runs");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/test_program");
    let mut command = std::process::Command::new(script);
    command.args(options).arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--ignored", test]).env(RUNS, &runs);
    let output = CommandOutput::of(&mut command);
    (output, std::fs::read_to_string(&runs).unwrap().len())
}

#[test]
fn a_test_that_passes_when_it_is_run_again_has_passed() {
    let (output, runs) = run_by_script(&[], "test_program::disturbed_once");
    assert_eq!((output.code, runs), (Some(0), 2), "{}", output.out);
    assert!(
        output.out.contains("\nsecond run of test_program::disturbed_once: passed\n"),
        "{}",
        output.out
    );
}

#[test]
fn a_test_that_fails_again_has_failed() {
    let (output, runs) = run_by_script(&[], "test_program::always_wrong");
    assert_eq!((output.code, runs), (Some(101), 2), "{}", output.out);
    assert!(
        output.out.contains("\nsecond run of test_program::always_wrong: failed\n"),
        "{}",
        output.out
    );
}

#[test]
fn a_simulated_machine_has_no_second_run() {
    let (output, runs) = run_by_script(&["--once"], "test_program::disturbed_once");
    assert_eq!((output.code, runs), (Some(101), 1), "{}", output.out);
}
