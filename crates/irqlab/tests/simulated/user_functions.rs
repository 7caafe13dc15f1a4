//! Functions of user programs by name, wherever misses are listed by function. Where there is no QEMU, says so and passes.

use std::path::Path;
use std::process::Command;

use crate::support::{Place, can_simulate, rows};
use serde_json::Value as Json;

/// L1D misses of `walk.S`: it misses each line of 16 bytes in each round but the first. Before the first round, the
/// kernel has just zeroed the page.
const MISSES: std::ops::Range<u64> = 28_000..33_500;

/// A line for the guest's shell that writes `tests/simulated/SOURCE` as the program `path`, assembled with `options`
/// by `cc`, which has linked this test, too. The line is short: a request of a guest has at most 4,096 bytes.
pub(crate) fn write_program(
    workspace: &Path,
    source: &str,
    options: &[&str],
    path: &str,
) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulated").join(source);
    let program = workspace.join("program");
    let linked = "-Wl,--build-id=none,-z,noseparate-code";
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-no-pie", linked]).args(options).arg("-o").arg(&program);
    let status = cc.arg(source).status().expect("cc starts");
    assert!(status.success(), "cc cannot assemble {program:?}");
    let mut packed = Command::new("sh");
    packed.args(["-c", "gzip -9nc \"$0\" | base64 -w0"]).arg(program);
    let packed = String::from_utf8(packed.output().unwrap().stdout).unwrap();
    format!("echo {packed} | base64 -d | gunzip > {path}; chmod +x {path}")
}

/// The misses of each function in L1D.
fn misses<'a>(run: &'a Json, name: &str) -> (u64, Vec<&'a Json>) {
    let functions: Vec<&Json> =
        rows(run, "miss_functions").iter().filter(|row| row["cache"] == "L1D").collect();
    let column = if functions[0]["misses"].is_u64() { "misses" } else { "miss_count" };
    let of_name = functions.iter().filter(|row| row["function"] == name);
    (of_name.filter_map(|row| row[column].as_u64()).sum(), functions)
}

#[track_caller]
fn check(run: &Json, name: &str) {
    let (count, functions) = misses(run, name);
    assert!(MISSES.contains(&count), "{name}: {count}: {functions:?}");
}

/// Three programs are the same code at the same addresses, two of them at the same time on two CPUs. Each has its
/// own name; the one without symbols has that of its file.
#[test]
fn functions_of_programs_at_the_same_addresses_are_not_confused() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let programs = [
        ("/tmp/first", &["-DWALK=walk_first"][..]),
        ("/tmp/second", &["-DWALK=walk_second"]),
        ("/tmp/stripped", &["-DWALK=walk_first", "-s"]),
    ];
    let written =
        programs.map(|(path, options)| write_program(workspace.path(), "walk.S", options, path));
    let written = written.join("; ");
    let command = "/tmp/first & /tmp/second & wait; /tmp/stripped";
    let arguments =
        ["services", "-q", "--json", "--on", "sim:r4400-smp8", "--vcpus", "2", "--misses"];
    let more = ["--warm-up-command", &written, "--", command];
    let run = workspace.run(&[&arguments[..], &more[..]].concat()).assert_code(0).json();
    for name in ["walk_first [first]", "walk_second [second]", "[stripped]"] {
        check(&run, name);
    }
    let (_, functions) = misses(&run, "");
    let is_wrong = |row: &&&Json| {
        let name = row["function"].as_str().unwrap_or_default();
        name.starts_with("walk_first") && name != "walk_first [first]"
            || name.starts_with("walk_second") && name != "walk_second [second]"
    };
    let wrong: Vec<_> = functions.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // Nearly all user code belongs to a file.
    let (unknown, _) = misses(&run, "[unknown]");
    assert!(unknown < MISSES.start / 100, "{unknown}: {functions:?}");
}

#[test]
fn functions_of_programs_are_named_by_each_verb_that_lists_functions() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let options = ["-DWALK=walk_first"];
    let written = write_program(workspace.path(), "walk.S", &options, "/tmp/first");
    let command = format!("{written}; /tmp/first");
    let boot = ["sim", "boot", "-q", "--json", "--detail", "ooo", "--on", "sim:r4400-smp8"];
    let more = ["--misses", "--", &command];
    let run = workspace.run(&[&boot[..], &more[..]].concat()).assert_code(0).json();
    check(&run, "walk_first [first]");

    let handlers =
        ["handlers", "-q", "--json", "--on", "sim:r4400-smp8", "--misses", "--out", "run"];
    let more = ["--warm-up", "10ms", "--", &command];
    let run = workspace.run(&[&handlers[..], &more[..]].concat()).assert_code(0).json();
    check(&run, "walk_first [first]");
}
