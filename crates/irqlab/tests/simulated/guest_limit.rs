//! The limit on the guest's time, by the command: its exit code is that of timeout(1), whatever was measured.
//! Where there is no QEMU, says so and passes.

use std::fs;

use crate::support::{Place, can_simulate};
use sim::Cache;
use sim::kernel::{self, Flavour};

/// Runs a command that reaches the limit, and leaves nothing.
#[track_caller]
fn ends(place: &Place, words: &str) {
    let words: Vec<&str> = words.split_whitespace().collect();
    place.run(&words).assert_code(124).assert_says("--guest-limit");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn experiments_end_with_124_at_the_limit_of_the_guests_time() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    for experiment in [
        "services --on sim --guest-limit 1s -q --out run -- sleep 100",
        "handlers --on sim --guest-limit 1s -q --out run -d 20s",
        "handlers --on sim --guest-limit 1s -q --out run -- sleep 100",
        "noise --on sim --guest-limit 1s -q --out run -d 5s --loop detour",
    ] {
        ends(&place, experiment);
    }
}

/// A kernel that halts at once, and sends nothing.
#[test]
fn a_boot_that_comes_to_nothing_ends_with_124_too() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let cache = Cache::from_environment().unwrap();
    let kernel = kernel::debian(&cache, Flavour::Cloud, &|_| {}).unwrap();
    let mut bytes = fs::read(kernel.image).unwrap();
    // Real-mode sectors at 0x1f1, after which the kernel proper starts (boot.rst).
    let start = (usize::from(bytes[0x1f1]) + 1) * 512;
    // `cli; hlt`, after which nothing ever happens.
    bytes[start..].chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&[0xfa, 0xf4]));
    fs::write(place.path().join("bzImage"), bytes).unwrap();
    let words = ["sim", "boot", "-q", "--kernel", "bzImage", "--guest-limit", "1s", "--", "true"];
    let ended = place.run(&words);
    ended.assert_code(124).assert_says("its first process has sent nothing");
}
