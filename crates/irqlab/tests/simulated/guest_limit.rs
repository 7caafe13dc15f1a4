//! The limit on guest time: irqlab exits with the code of timeout(1), whatever it measured. Without QEMU the tests
//! say so and pass.

use std::fs;

use crate::support::{Place, can_simulate};
use sim::Cache;
use sim::kernel::{self, Flavour};

#[test]
fn experiments_end_with_124_at_the_limit_of_the_guests_time_and_keep_what_they_measured() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (name, experiment, missing) in [
        (
            "services",
            "services --on sim --guest-limit 1s -q --json -- sleep 100",
            "the command after ",
        ),
        ("window", "handlers --on sim --guest-limit 1s -q --json -d 20s", "ambient after "),
        ("command", "handlers --on sim --guest-limit 1s -q --json -- sleep 100", "command after "),
        (
            "noise",
            "noise --on sim --guest-limit 1s -q --json -d 5s --loop detour",
            "loop detour after ",
        ),
    ] {
        let mut arguments: Vec<&str> = experiment.split_whitespace().collect();
        arguments.splice(1..1, ["--out", name]);
        let ended = workspace.run(&arguments);
        ended.assert_code(124).assert_says("--guest-limit");
        let run = ended.json();
        assert_eq!(run["complete"], false, "{name}");
        let warnings = run["warnings"].to_string();
        assert!(warnings.contains(missing), "{name}: {warnings}");
        assert!(workspace.path().join(name).exists());
    }
}

#[test]
fn a_machine_that_is_to_be_repeated_ends_with_124_at_its_limits() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (option, limit) in [("--guest-limit", "1s"), ("--limit", "10ms")] {
        let arguments = ["bench", "sim-repeat", "-q", "--times", "2", option, limit, "--"];
        let ended = workspace.run(&[&arguments[..], &["sleep 100"]].concat());
        ended.assert_code(124).assert_says(&format!("({option})"));
    }
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
}

/// The limit is shorter than the warm-up.
#[test]
fn a_limit_before_the_window_leaves_nothing() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line =
        "handlers --on sim --guest-limit 1s --warm-up 20s --load busy --stimulus none -q --out run";
    let ended = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    ended.assert_code(124).assert_says("(--guest-limit) before its first window opened");
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
}

/// The kernel halts at once, and sends nothing.
#[test]
fn a_boot_that_never_finishes_ends_with_124() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let cache = Cache::from_environment().unwrap();
    let kernel = kernel::debian(&cache, Flavour::Cloud, &|_| {}).unwrap();
    let mut bytes = fs::read(kernel.image).unwrap();
    // The byte at 0x1f1 is the number of real-mode sectors. The kernel proper follows them (boot.rst).
    let start = (usize::from(bytes[0x1f1]) + 1) * 512;
    // `cli; hlt` halts the machine forever.
    bytes[start..].chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&[0xfa, 0xf4]));
    fs::write(workspace.path().join("bzImage"), bytes).unwrap();
    let arguments =
        ["sim", "boot", "-q", "--kernel", "bzImage", "--guest-limit", "1s", "--", "true"];
    let ended = workspace.run(&arguments);
    ended.assert_code(124).assert_says("its first process has sent nothing");
}
