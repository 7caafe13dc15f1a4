//! The experiment on a simulated machine, by the command. Where there is no QEMU, says so and passes.

use std::path::Path;

use crate::support::{Place, can_simulate, names, rows};
use serde_json::Value as Json;

fn measured(place: &Place, out: &str, sources: &str) -> Json {
    let words = ["handlers", "--on", "sim", "-q", "-d", "100ms", "--warm-up", "10ms", "--json"];
    let more = ["--stimulus", sources, "--rate", "low", "--low-interval", "5ms", "--out", out];
    place.run(&[&words[..], &more[..]].concat()).assert_code(0).json()
}

/// The guest's kernel has counted the same, to the last one.
fn agrees_with_the_kernel(run: &Json) {
    let lines = rows(run, "agreement");
    assert!(lines.iter().any(|line| line["line"] == "LOC"), "{lines:?}");
    for line in lines {
        assert_eq!(line["agrees"], true, "{line}");
        assert_eq!(line["irqlab_count"], line["kernel_count"], "{line}");
    }
}

/// A value has an interval by its batches, narrower than the value.
fn has_interval(row: &Json, column: &str) {
    let [value, half_width] =
        [column.to_owned(), format!("{column}_ci95")].map(|name| row[name].as_f64());
    assert!(half_width > Some(0.0) && half_width < value, "{column}: {row}");
    let method = row[format!("{column}_ci95_method")].as_str();
    assert!(method.is_some_and(|method| method.starts_with("batch-means")), "{column}: {row}");
}

/// The row of a source, over all CPUs.
fn row<'a>(run: &'a Json, table: &str, condition: &str, name: &str) -> &'a Json {
    let is_it = |row: &&Json| row["condition"] == condition && row["name"] == name;
    rows(run, table).iter().find(is_it).unwrap_or_else(|| panic!("{condition} {name}: {run}"))
}

fn bytes(run: &Path, table: &str) -> Vec<u8> {
    std::fs::read(run.join("tables").join(table)).unwrap()
}

#[test]
fn the_same_experiment_in_a_machine_that_is_simulated() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let both = measured(&place, "both", "none,timer");
    assert_eq!((both["bench"].as_str(), both["complete"].as_bool()), (Some("sim"), Some(true)));
    // A timer every 5 ms in a window of 100 ms, each an interrupt.
    let count =
        |condition: &str| row(&both, "handlers", condition, "local_timer")["count"].as_u64();
    assert!(count("idle/low/timer") >= Some(19), "{both}");
    assert!(count("idle/none") < count("idle/low/timer"), "{both}");
    let timer = row(&both, "events", "idle/low/timer", "local_timer");
    let mean = timer["self_total"].as_u64().unwrap() / timer["span_count"].as_u64().unwrap();
    assert!((100..100_000).contains(&mean), "{timer}");
    has_interval(timer, "self_mean");
    let timing = row(&both, "handlers", "idle/low/timer", "local_timer");
    assert_eq!(timing["timed_by"], "simulator");
    let [p50, max, incl] =
        ["self_p50_ns", "self_max_ns", "inclusive_p50_ns"].map(|name| &timing[name]);
    assert!(p50.as_u64() > Some(100) && max.as_u64() >= p50.as_u64(), "{timing}");
    assert!(incl.as_u64() >= p50.as_u64(), "{timing}");
    // What no probe does, no probe can clamp: absent, not zero.
    assert!(timing["clamped_count"].is_null() && timing["interrupted_count"].is_u64(), "{timing}");
    agrees_with_the_kernel(&both);

    // The same again, to the byte; what is the host's stands apart.
    let mut first = measured(&place, "first", "timer");
    let mut second = measured(&place, "second", "timer");
    let tables = names(&place.path().join("first/tables"));
    assert!(tables.len() > 4, "{tables:?}");
    for table in tables {
        let of = |run: &str| bytes(&place.path().join(run), &table);
        assert!(of("first") == of("second"), "{table}");
    }
    for run in [&mut first, &mut second] {
        run["started_utc"].take();
        run["settings"]["on_host"].take();
    }
    assert_eq!(first, second);
    let of = |run: &Json| row(run, "handlers", "idle/low/timer", "local_timer").clone();
    assert_eq!(of(&both), of(&first), "conditions do not depend on each other");
}

#[test]
fn a_model_gives_cycles_and_misses() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["handlers", "--on", "sim:r4400-1994", "-q", "-d", "50ms", "--warm-up", "10ms"];
    let timers = ["--stimulus", "timer", "--rate", "low", "--low-interval", "2ms"];
    let more = ["--json", "--vcpus", "2", "--out", "model"];
    let run = place.run(&[&words[..], &timers[..], &more[..]].concat()).assert_code(0).json();
    agrees_with_the_kernel(&run);
    assert_eq!(run["settings"]["model"]["clock_hz"], 200_000_000);
    let of = |event: &str| {
        let is_it = |row: &&Json| row["name"] == "local_timer" && row["event"] == event;
        let found = rows(&run, "events").iter().find(is_it);
        found.unwrap_or_else(|| panic!("{event}: {run}"))["self_total"].as_u64().unwrap()
    };
    assert!(of("cycles") > of("instructions"), "waits take cycles");
    let (loads, misses) = (of("L1-dcache-loads"), of("L1-dcache-load-misses"));
    assert!(0 < misses && misses < loads, "{misses} of {loads}");
    let ratios = row(&run, "ratios", "idle/low/timer", "local_timer");
    has_interval(ratios, "instructions_per_cycle");
    has_interval(ratios, "l1d_miss_ratio");
    assert!(ratios["two_window_ratios"].is_null(), "all events are of one window: {ratios}");
    let timer = row(&run, "handlers", "idle/low/timer", "local_timer");
    // 5 ns a cycle.
    let ratio =
        timer["self_mean_tsc_cycles"].as_f64().unwrap() / timer["self_mean_ns"].as_f64().unwrap();
    assert!((ratio - 0.2).abs() < 1e-9, "{timer}");
}

#[test]
fn a_command_in_the_guest_and_what_the_guest_has_not() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["handlers", "--on", "sim", "-q", "--json", "--events", "none"];
    let command = ["--out", "command", "--", "sleep 0.05; exit 7"];
    let run = place.run(&[&words[..], &command[..]].concat()).assert_code(7).json();
    let warnings = run["warnings"].to_string();
    assert!(warnings.contains("command: the command failed: exit status: 7"), "{warnings}");
    let window_ns = rows(&run, "conditions")[0]["window_ns"].as_u64();
    assert!(window_ns >= Some(50_000_000), "{run}");

    // Its cards, if it has two, take the place of the veth pair.
    let net =
        ["--net", "virtio-net", "--stimulus", "net", "--rate", "low", "--low-interval", "10ms"];
    let short = ["-d", "100ms", "--warm-up", "10ms", "--out", "cards"];
    let run = place.run(&[&words[..], &net[..], &short[..]].concat()).assert_code(0).json();
    for card in ["virtio0-input.0", "virtio1-input.0"] {
        let of_card = row(&run, "handlers", "idle/low/net", card);
        // A ping each 10 ms, and one more or less by where the window's edges are.
        let count = of_card["count"].as_u64().unwrap();
        assert!((9..=11).contains(&count), "{of_card}");
    }
    agrees_with_the_kernel(&run);
    assert!(run.to_string().contains(r#""driver":"virtio_net""#), "{run}");

    // This kernel has no driver for it: not a veth pair in its place, whatever the verb.
    let e1000 = ["--net", "e1000", "--stimulus", "net", "-d", "1ms", "--out", "e1000"];
    let refused = place.run(&[&words[..], &e1000[..]].concat());
    refused.assert_code(4).assert_says("network card e1000 (PCI device 8086:100e)");
    refused.assert_says("--flavour full");
    assert!(!place.path().join("e1000").exists());
    let lsi = ["sim", "boot", "-q", "--disk", "lsi", "--", "true"];
    place.run(&lsi).assert_code(4).assert_says("disk lsi (PCI device 1000:0012)");

    let ipi = ["--stimulus", "ipi", "-d", "1ms", "--warm-up", "1ms"];
    let ended = place.run(&[&words[..], &ipi[..]].concat());
    ended.assert_code(4).assert_says("an inter-processor interrupt needs two CPUs");
}

#[test]
fn a_command_without_a_record_ends_with_its_status() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["sim", "boot", "-q", "--detail", "fast"];
    let run = |more: &[&str]| place.run(&[&words[..], more].concat());
    let ended = run(&["--", "echo out of the guest; exit 7"]);
    ended.assert_code(7);
    assert!(ended.out.lines().any(|line| line == "out of the guest"), "{}", ended.out);
    run(&["--json", "--", "true"]).assert_code(2).assert_says("--detail fast");
}

/// A checkpoint that is removed in the end.
pub struct Checkpoint {
    pub name: String,
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        let Ok(cache) = sim::Cache::from_environment() else { return };
        let _ = std::fs::remove_dir_all(cache.path(&format!("checkpoint-{}", self.name)));
        let _ = std::fs::remove_file(cache.path(&format!("checkpoint-{}.lock", self.name)));
    }
}

#[test]
fn a_machine_with_two_cpus_does_the_same_from_a_checkpoint_again_and_again() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let checkpoint = Checkpoint { name: format!("test-repeat-{}", std::process::id()) };
    place.run(&["sim", "checkpoint", &checkpoint.name, "--vcpus", "2"]).assert_code(0);
    let words = ["bench", "sim-repeat", "--times", "2", "--vcpus", "2", "--from", &checkpoint.name];
    for more in [&["-q", "--json"][..], &["-q", "--json", "--model", "r4400-1994"]] {
        let run = place.run(&[&words[..], more].concat()).assert_code(0).json();
        let outcomes = rows(&run, "outcomes");
        assert_eq!((outcomes.len(), outcomes[0]["run_count"].as_u64()), (1, Some(2)), "{run}");
        assert!(outcomes[0]["instructions"].as_u64() > Some(1_000_000), "{run}");
    }
}

#[test]
fn conditions_go_on_from_a_checkpoint_that_has_irqlab_in_it() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let checkpoint =
        |name: &str| Checkpoint { name: format!("test-{name}-{}", std::process::id()) };
    let (with, without) = (checkpoint("with"), checkpoint("without"));
    place.run(&["sim", "checkpoint", &with.name, "--with-irqlab"]).assert_code(0);
    let words =
        ["handlers", "--on", "sim", "-q", "--json", "--stimulus", "timer", "--rate", "high"];
    let short = ["-d", "20ms", "--warm-up", "5ms", "--from"];
    let from = |name: &str, out: &str| {
        place.run(&[&words[..], &short[..], &[name, "--out", out]].concat())
    };
    let run = from(&with.name, "first").assert_code(0).json();
    agrees_with_the_kernel(&run);
    let count = row(&run, "handlers", "idle/high/timer", "local_timer")["count"].as_u64();
    assert!(count > Some(100), "{run}");
    from(&with.name, "second").assert_code(0);
    for table in names(&place.path().join("first/tables")) {
        let of = |run: &str| bytes(&place.path().join(run), &table);
        assert!(of("first") == of("second"), "{table}");
    }
    place.run(&["sim", "checkpoint", &without.name]).assert_code(0);
    let refused = from(&without.name, "refused");
    refused.assert_code(1).assert_says("initramfs: made with").assert_says("--with-irqlab");
    assert!(!place.path().join("refused").exists());
}
