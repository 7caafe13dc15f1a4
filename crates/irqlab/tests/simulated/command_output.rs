//! `irqlab sim boot` passes a command's output on unchanged, and adds nothing. Without QEMU the tests say so and pass.

use std::fs;
use std::process::{Output, Stdio};

use crate::machine::Checkpoint;
use crate::support::{Place, can_simulate};

/// Ends with its status. Neither stream ends with a newline, and they alternate.
const INTERLEAVED: &str = r#"for i in 1 2 3; do printf "out $i\n"; printf "err $i\n" >&2; done; printf "a\r\nb\t" ; printf "c" >&2; exit 7"#;
const INTERLEAVED_STDOUT: &[u8] = b"out 1\nout 2\nout 3\na\r\nb\t";
const INTERLEAVED_STDERR: &[u8] = b"err 1\nerr 2\nerr 3\nc";

/// Writes all 256 values of a byte 4096 times.
const ALL_VALUES: &str = r#"i=0; while [ $i -lt 256 ]; do printf "\\$(printf %03o $i)"; i=$((i+1)); done > /tmp/a; \
    for i in 1 2 3 4 5 6; do cat /tmp/a /tmp/a /tmp/a /tmp/a > /tmp/b; mv /tmp/b /tmp/a; done; cat /tmp/a; \
    printf "%s" "$(stat -c %s /tmp/a)" >&2"#;

/// The output of a command, as bytes. `-q` keeps irqlab's own lines off stderr.
fn boot(workspace: &Place, options: &[&str], command: &str) -> Output {
    let arguments = [&["sim", "boot", "-q"], options, &["--", command]].concat();
    workspace.irqlab(&arguments).stdin(Stdio::null()).output().expect("irqlab starts")
}

#[track_caller]
fn check_interleaved(ended: &Output) {
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(7), "{text}");
    assert_eq!(ended.stdout, INTERLEAVED_STDOUT, "{}", String::from_utf8_lossy(&ended.stdout));
    assert_eq!(ended.stderr, INTERLEAVED_STDERR, "{text}");
}

#[test]
fn both_streams_come_apart_as_they_were_written() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    check_interleaved(&boot(&workspace, &[], INTERLEAVED));
    check_interleaved(&boot(&workspace, &["--free-running", "--vcpus", "2"], INTERLEAVED));
    // A program that does not exist is the shell's message.
    let missing = boot(&workspace, &[], "no-such-program");
    let (out, err) = (missing.stdout, String::from_utf8_lossy(&missing.stderr).into_owned());
    assert_eq!((missing.status.code(), out.is_empty()), (Some(127), true), "{err}");
    assert_eq!(err, "sh: no-such-program: not found\n");
}

#[test]
fn a_million_bytes_of_all_values_come_through() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let values: Vec<u8> = (0..=255).collect();
    let expected = values.repeat(4096);
    for options in [&[][..], &["--on", "sim:r4400-1994", "--boot", "fast", "--json"]] {
        let ended = boot(&workspace, options, ALL_VALUES);
        let err = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{err}");
        // Where stdout is for the results, both streams go to stderr.
        if options.is_empty() {
            assert!(ended.stdout == expected, "{} bytes of stdout", ended.stdout.len());
            assert_eq!(err, "1048576");
        } else {
            serde_json::from_slice::<serde_json::Value>(&ended.stdout).expect("one document");
            assert_eq!(ended.stderr.len(), expected.len() + "1048576".len());
            assert!(ended.stderr.starts_with(&expected[..1 << 19]));
        }
    }
}

#[test]
fn the_console_goes_to_its_file_or_with_v_to_stderr() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let console = ["--console", "console.txt"];
    check_interleaved(&boot(&workspace, &console, INTERLEAVED));
    let text = fs::read(workspace.path().join("console.txt")).unwrap();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("Linux version") && text.contains("Power down"), "{text}");
    assert!(!text.contains("out 1") && !text.contains("err 1"), "{text}");

    let refused = boot(&workspace, &console, INTERLEAVED);
    let err = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{err}");
    assert!(err.contains("console.txt") && err.contains("--force replaces it"), "{err}");
    check_interleaved(&boot(&workspace, &[&console[..], &["--force"]].concat(), INTERLEAVED));

    let verbose = workspace.run(&["sim", "boot", "-v", "--", "echo out; echo err >&2"]);
    verbose.assert_code(0).assert_says("Linux version").assert_says("err\n");
    assert_eq!(verbose.out, "out\n");

    // A machine without a command has a console, too, and a failure leaves the file.
    workspace.run(&["sim", "boot", "-q", "--console", "alone.txt"]).assert_code(0);
    let panicked = ["sim", "boot", "-q", "--console", "panic.txt", "--append", "rdinit=/nothing"];
    let panicked = workspace.run(&[&panicked[..], &["--append", "root=/dev/none"]].concat());
    panicked.assert_code(1).assert_says("the guest's kernel panicked");
    for name in ["alone.txt", "panic.txt"] {
        let text = fs::read(workspace.path().join(name)).unwrap();
        assert!(String::from_utf8_lossy(&text).contains("Linux version"), "{name}");
    }
}

#[test]
fn a_machine_from_a_checkpoint_writes_the_same() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let checkpoint = Checkpoint { name: format!("test-output-{}", std::process::id()) };
    workspace.run(&["sim", "checkpoint", &checkpoint.name]).assert_code(0);
    check_interleaved(&boot(&workspace, &["--from", &checkpoint.name], INTERLEAVED));

    // A machine that is saved in the middle of its command writes the rest to the same streams.
    let middle = Checkpoint { name: format!("test-output-middle-{}", std::process::id()) };
    let annotation = format!("loadavg_proc_show: checkpoint {}", middle.name);
    let command = format!("echo before; cat /proc/loadavg > /dev/null; {INTERLEAVED}");
    let options = ["--detail", "count", "--annotate", &annotation, "--json"];
    let saved = boot(&workspace, &options, &command);
    assert_eq!(saved.status.code(), Some(7), "{}", String::from_utf8_lossy(&saved.stderr));
    let from = ["sim", "boot", "-q", "--from", &middle.name];
    let continued = workspace.irqlab(&from).stdin(Stdio::null()).output().expect("irqlab starts");
    check_interleaved(&continued);
}
