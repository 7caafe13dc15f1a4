//! The processor that the guest of an experiment sees. Without QEMU the tests say so and pass.

use crate::support::{Place, can_simulate, rows};

/// Timers of the window: one every 50 us.
const TIMERS: u64 = 40;
/// Ticks of the window, at most.
const TICKS: u64 = 1;

/// The C library of a guest that sees a Zen 3 fills memory by `rep stosb`. QEMU counts each repetition as an
/// instruction, and the model stores 64 of them in a cycle: within a slice QEMU's clock runs far ahead of the model's
/// time.
#[test]
fn a_timer_is_one_interrupt_while_repeated_string_instructions_run() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let stimulus = ["--load", "busy", "--stimulus", "timer", "--rate", "high", "--events", "none"];
    let window = ["-d", "2ms", "--warm-up", "1ms", "--until", "end", "--user-mode", "detailed"];
    let options = ["handlers", "--on", "sim:zen3", "-q", "--json", "--all"];
    let run = workspace.run(&[&options[..], &stimulus, &window].concat()).assert_code(0).json();
    assert_eq!(run["host"]["identity"], "zen3");
    let timer = |row: &&serde_json::Value| row["name"] == "local_timer" && row["cpu"] == "all";
    let timer = rows(&run, "handlers").iter().find(timer).expect("a row of the timer");
    let count = timer["count"].as_u64().unwrap();
    // The window begins and ends between two timers.
    assert!((TIMERS - 1..=TIMERS + 1 + TICKS).contains(&count), "{timer}");
    // The kernel has chosen as on the processor.
    let mitigations = rows(&run, "mitigations");
    assert!(!mitigations.is_empty());
    assert!(mitigations.iter().all(|row| row["agrees"] != false), "{mitigations:?}");
}

#[test]
fn an_identity_of_ones_own_takes_the_place_of_the_models() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let options = ["handlers", "--on", "sim:zen3", "-q", "--json", "--identity", "x86-64"];
    let window = ["--stimulus", "timer", "--rate", "high", "-d", "5ms", "--events", "none"];
    let run = workspace.run(&[&options[..], &window].concat()).assert_code(0).json();
    assert_eq!(run["host"]["identity"], "x86-64");
}
