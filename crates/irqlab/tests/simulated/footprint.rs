//! `irqlab footprint` on simulated machines, by the command. Where there is no QEMU, says so and passes.

use serde_json::Value as Json;

use crate::support::{Place, can_simulate, loop_stalled_by, rows};

/// By which part two numbers are apart.
fn apart(row: &Json, one: &str, other: &str) -> f64 {
    let number = |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column}: {row}"));
    (number(one) / number(other) - 1.0).abs()
}

/// The paper's findings, where what is counted is exact: the network displaces more than the disk; a
/// handler displaces what it misses; and times agree with counters.
///
/// The second level is not direct-mapped here: there, what a handler displaces of it depends on physical
/// addresses, each such line costs the time of several of the first level, and lines by time are an upper
/// bound.
#[test]
fn in_a_simulated_machine_counters_and_time_agree() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["footprint", "-q", "--json", "--on", "sim:r4400-1994", "--set", "l2.ways=8"];
    let more = ["--level", "l1d,l1i", "--stimulus", "disk,net", "--repetitions", "48", "--trace"];
    let run = place.run(&[&words[..], &more, &["--out", "run"]].concat()).assert_code(0).json();
    assert_eq!(run["bench"], "sim");
    let table = rows(&run, "footprint");
    assert_eq!(table.len(), 4);
    for row in table {
        assert!(row["accepted_treatment_count"].as_u64() >= Some(16), "{row}");
        assert!(apart(row, "displaced_lines", "user_misses") < 0.05, "{row}");
    }
    let of = |source: &str| {
        table.iter().find(|row| row["stimulus"] == source && row["level"] == "l1d").unwrap()
    };
    let (disk, net) = (of("disk"), of("net"));
    for row in [disk, net] {
        assert!(apart(row, "kernel_misses", "user_misses") < 0.3, "{row}");
    }
    assert!(net["user_misses"].as_f64() > disk["user_misses"].as_f64(), "{disk} {net}");
    for source in ["disk", "net"] {
        let inside = loop_stalled_by(&run, source);
        let sort = if source == "disk" { "irq" } else { "softirq" };
        assert!(inside.iter().any(|one| one.1 == sort), "{source}: {inside:?}");
    }
    check_modes(&run);
}

/// In sets with tree pseudo-LRU replacement, a conflicting line may make several lines of a loop miss in
/// each pass, if they were filled in any order: 493 misses were counted here once for a handler's 201.
#[test]
fn a_pseudo_lru_cache_loses_what_the_handler_misses() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["footprint", "-q", "--json", "--on", "sim:p3-600", "--level", "l1d"];
    let more = ["--stimulus", "disk", "--counters-only", "--repetitions", "24", "--out", "run"];
    let run = place.run(&[&words[..], &more].concat()).assert_code(0).json();
    let row = &rows(&run, "footprint")[0];
    assert!(row["accepted_treatment_count"].as_u64() >= Some(16), "{row}");
    assert!(apart(row, "user_misses", "kernel_misses") < 0.15, "{row}");
}

/// With cards in the machine, messages come over them, one interrupt of the near card each; nothing of what
/// the far end does comes to the loop's CPU.
#[test]
fn cards_of_a_simulated_machine_interrupt_the_loop() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["footprint", "-q", "--json", "--on", "sim:r4400-1994", "--level", "l1d"];
    let more = ["--stimulus", "net", "--net", "virtio-net", "--counters-only", "--out", "run"];
    let some = ["--repetitions", "24", "--trace"];
    let run = place.run(&[&words[..], &more, &some].concat()).assert_code(0).json();
    let row = &rows(&run, "footprint")[0];
    assert!(row["accepted_treatment_count"].as_u64() >= Some(16), "{row}");
    assert!(row["raised_by"].as_str().unwrap().contains("from the other card"), "{row}");
    let contexts = rows(&run, "by_context");
    let irqs: Vec<&Json> =
        contexts.iter().filter(|row| row["context"].as_str().unwrap().starts_with("irq")).collect();
    assert_eq!(irqs.len(), 1, "{contexts:?}");
    assert!(irqs[0]["context"].as_str().unwrap().contains("input"), "{contexts:?}");
    assert_eq!(irqs[0]["mean_entries"], 1.0, "{contexts:?}");
    let inside = loop_stalled_by(&run, "net");
    let kinds: Vec<&str> = inside.iter().map(|one| one.1.as_str()).collect();
    assert!(kinds.contains(&"irq") && kinds.contains(&"softirq"), "{inside:?}");
}

/// What the simulator counts of a window is what the guest's counters say, but for the calls that start
/// and stop them.
fn check_modes(run: &Json) {
    let modes = rows(run, "modes");
    for (source, mode) in [("disk", "user"), ("disk", "kernel + exception"), ("net", "user")] {
        let row =
            modes.iter().find(|row| row["stimulus"] == source && row["mode"] == mode).unwrap();
        assert!(apart(row, "misses", "guest_counter_misses") < 0.03, "{row}");
    }
    let of = |source: &str, mode: &str| {
        let row = modes.iter().find(|row| row["stimulus"] == source && row["mode"] == mode);
        row.unwrap()["misses"].as_f64().unwrap()
    };
    assert!(of("disk", "kernel") > of("disk", "exception") && of("disk", "exception") > 0.0);
    let contexts = rows(run, "by_context");
    let has =
        |words: &str| contexts.iter().any(|row| row["context"].as_str().unwrap().contains(words));
    assert!(has("irq") && has("softirq NET_RX") && has("interrupt"), "{contexts:?}");
}
