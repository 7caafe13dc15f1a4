//! `irqlab sim bare`: a simulated machine without a kernel. Without QEMU the tests say so and pass.

use crate::support::{Place, rows};

#[test]
fn invalid_options_are_named() {
    let workspace = Place::new();
    let check = |arguments: &[&str], says: &str| {
        workspace.run(&[&["sim", "bare"][..], arguments].concat()).assert_code(2).assert_says(says);
    };
    check(&["noise", "--quantum", "1us"], "allowed: 10us to 1s");
    check(&["noise", "--repetitions", "131073"], "1..=131072");
    check(&["noise", "--on", "sim:z80"], "no model");
    check(&["noise", "--on", "sim:r4400-1994", "--threshold", "1us"], "at least 5001ns");
    check(&["footprint", "--data", "32769"], "0..=32768");
    check(&["footprint", "--delay", "5s"], "allowed: 1ns to 4s");
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
}

#[test]
fn the_reference_has_the_tables_of_the_experiment() {
    let workspace = Place::new();
    let arguments =
        ["sim", "bare", "noise", "-q", "--repetitions", "50", "--json", "--out", "bare"];
    let ended = workspace.run(&arguments);
    if ended.code != Some(0) {
        return needs::not_run(needs::Need::Qemu, &ended.err);
    }
    let run = ended.json();
    assert_eq!((&run["bench"], &run["settings"]["system"]), (&"sim".into(), &"none".into()));
    assert_eq!(rows(&run, "noise")[0]["detour_count"], 0);
    assert_eq!(rows(&run, "fwq")[0]["quantum_count"], 50);
    assert_eq!(rows(&run, "ftq")[0]["empty_quantum_count"], 0);
    let arguments = ["sim", "bare", "footprint", "--data", "64", "--repetitions", "2", "--json"];
    let run = workspace.run(&arguments).assert_code(0).json();
    let handled = |row: &serde_json::Value| row["handled_count"].as_u64();
    let all: Vec<_> = rows(&run, "bare_footprint").iter().map(handled).collect();
    assert_eq!(all, [Some(0), Some(1), Some(0), Some(1)]);
}

/// The machine has one vCPU, and the model's core four threads. Time stood still until the first thread's queue was full.
#[test]
fn threads_without_a_vcpu_do_not_stop_the_clock_of_the_others() {
    let workspace = Place::new();
    let options = ["sim", "bare", "noise", "--on", "sim:t1", "--loop", "detour"];
    let ended = workspace.run(&[&options[..], &["--repetitions", "20", "-q", "--json"]].concat());
    if ended.code != Some(0) {
        return needs::not_run(needs::Need::Qemu, &ended.err);
    }
    let run = ended.json();
    let noise = &rows(&run, "noise")[0];
    assert_eq!(noise["detour_count"], 0, "{noise}");
}
