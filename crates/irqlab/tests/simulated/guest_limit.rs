//! The limit on guest time: irqlab exits with the code of timeout(1), whatever it measured. Without QEMU the tests
//! say so and pass.

use std::fs;

use crate::support::{Place, can_simulate};
use sim::Cache;
use sim::kernel::{self, Flavour};

/// Asserts that a command reaches the limit, and leaves no file.
#[track_caller]
fn assert_reaches_limit(workspace: &Place, line: &str) {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    workspace.run(&arguments).assert_code(124).assert_says("--guest-limit");
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
}

#[test]
fn experiments_end_with_124_at_the_limit_of_the_guests_time() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for experiment in [
        "services --on sim --guest-limit 1s -q --out run -- sleep 100",
        "handlers --on sim --guest-limit 1s -q --out run -d 20s",
        "handlers --on sim --guest-limit 1s -q --out run -- sleep 100",
        "noise --on sim --guest-limit 1s -q --out run -d 5s --loop detour",
    ] {
        assert_reaches_limit(&workspace, experiment);
    }
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
