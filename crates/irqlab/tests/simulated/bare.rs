//! The machine without a kernel, by the command. Where there is no QEMU, says so and passes.

use crate::support::{Place, rows};

#[test]
fn what_is_typed_wrong_is_named() {
    let place = Place::new();
    let check = |words: &[&str], says: &str| {
        place.run(&[&["sim", "bare"][..], words].concat()).assert_code(2).assert_says(says);
    };
    check(&["noise", "--quantum", "1us"], "allowed: 10us to 1s");
    check(&["noise", "--repetitions", "131073"], "1..=131072");
    check(&["noise", "--model", "z80"], "no model");
    check(&["noise", "--model", "r4400-1994", "--threshold", "1us"], "at least 5001ns");
    check(&["footprint", "--data", "32769"], "0..=32768");
    check(&["footprint", "--delay", "5s"], "allowed: 1ns to 4s");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn the_reference_has_the_tables_of_the_experiment() {
    let place = Place::new();
    let words = ["sim", "bare", "noise", "-q", "--repetitions", "50", "--json", "--out", "bare"];
    let ended = place.run(&words);
    if ended.code != Some(0) {
        return needs::not_run(needs::Need::Qemu, &ended.err);
    }
    let run = ended.json();
    assert_eq!((&run["bench"], &run["settings"]["system"]), (&"sim".into(), &"none".into()));
    assert_eq!(rows(&run, "noise")[0]["detour_count"], 0);
    assert_eq!(rows(&run, "fwq")[0]["quantum_count"], 50);
    assert_eq!(rows(&run, "ftq")[0]["empty_quantum_count"], 0);
    let words = ["sim", "bare", "footprint", "--data", "64", "--repetitions", "2", "--json"];
    let run = place.run(&words).assert_code(0).json();
    let handled = |row: &serde_json::Value| row["handled_count"].as_u64();
    let all: Vec<_> = rows(&run, "bare_footprint").iter().map(handled).collect();
    assert_eq!(all, [Some(0), Some(1), Some(0), Some(1)]);
}
