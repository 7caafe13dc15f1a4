//! `irqlab handlers` on a simulated machine, checkpoints, and commands in the guest. Without QEMU the tests say so
//! and pass.

use std::path::Path;

use crate::support::{Place, can_simulate, names, rows};
use serde_json::Value as Json;

fn measured(workspace: &Place, out: &str, sources: &str) -> Json {
    let arguments = ["handlers", "--on", "sim", "-q", "-d", "100ms", "--warm-up", "10ms", "--json"];
    let options = ["--stimulus", sources, "--rate", "low", "--low-interval", "5ms", "--pictures"];
    let run = workspace.run(&[&arguments[..], &options[..], &["--out", out]].concat());
    let run = run.assert_code(0).json();
    assert!(workspace.path().join(out).join("costs.svg").is_file(), "--pictures draws");
    run
}

/// Asserts that the counts equal those of the guest's kernel. On a machine with several CPUs, one more or less is
/// allowed if a CPU was inside of the interrupt when another CPU opened or closed the window.
fn agrees_with_the_kernel(run: &Json) {
    let lines = rows(run, "agreement");
    assert!(lines.iter().any(|line| line["line"] == "LOC"), "{lines:?}");
    let is_alone = lines.iter().all(|line| line["cpu"] == 0);
    for line in lines {
        assert_eq!(line["agrees"], true, "{line}");
        let was_inside = !is_alone && line["edge_tolerance_count"] != 0;
        assert!(was_inside || line["irqlab_count"] == line["kernel_count"], "{line}");
    }
}

/// Asserts that a value has a batch-means interval that is narrower than the value.
fn has_interval(row: &Json, column: &str) {
    let [value, half_width] =
        [column.to_owned(), format!("{column}_ci95")].map(|name| row[name].as_f64());
    assert!(half_width > Some(0.0) && half_width < value, "{column}: {row}");
    let method = row[format!("{column}_ci95_method")].as_str();
    assert!(method.is_some_and(|method| method.starts_with("batch-means")), "{column}: {row}");
}

/// The row of a source, over all CPUs.
fn row<'a>(run: &'a Json, table: &str, condition: &str, name: &str) -> &'a Json {
    let is_wanted = |row: &&Json| row["condition"] == condition && row["name"] == name;
    rows(run, table).iter().find(is_wanted).unwrap_or_else(|| panic!("{condition} {name}: {run}"))
}

fn bytes(run: &Path, table: &str) -> Vec<u8> {
    std::fs::read(run.join("tables").join(table)).unwrap()
}

#[test]
fn the_experiment_runs_on_a_simulated_machine() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let both = measured(&workspace, "both", "none,timer");
    assert_eq!((both["bench"].as_str(), both["complete"].as_bool()), (Some("sim"), Some(true)));
    // A timer interrupts every 5 ms in a window of 100 ms.
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
    // Without probes nothing is clamped. So the count is absent, not zero.
    assert!(timing["clamped_count"].is_null() && timing["interrupted_count"].is_u64(), "{timing}");
    agrees_with_the_kernel(&both);

    // A second run is equal to the byte, except for facts of the host.
    let mut first = measured(&workspace, "first", "timer");
    let mut second = measured(&workspace, "second", "timer");
    let tables = names(&workspace.path().join("first/tables"));
    assert!(tables.len() > 4, "{tables:?}");
    for table in tables {
        let table_bytes = |run: &str| bytes(&workspace.path().join(run), &table);
        assert!(table_bytes("first") == table_bytes("second"), "{table}");
    }
    for run in [&mut first, &mut second] {
        run["started_utc"].take();
        run["settings"]["on_host"].take();
    }
    assert_eq!(first, second);
    let timer_row = |run: &Json| row(run, "handlers", "idle/low/timer", "local_timer").clone();
    assert_eq!(timer_row(&both), timer_row(&first), "conditions do not depend on each other");
}

#[test]
fn a_model_gives_cycles_and_misses() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["handlers", "--on", "sim:r4400-1994", "-q", "-d", "50ms", "--warm-up", "10ms"];
    let timers = ["--stimulus", "timer", "--rate", "low", "--low-interval", "2ms"];
    let options = ["--json", "--vcpus", "2", "--out", "model"];
    let run =
        workspace.run(&[&arguments[..], &timers[..], &options[..]].concat()).assert_code(0).json();
    agrees_with_the_kernel(&run);
    assert_eq!(run["settings"]["model"]["clock_hz"], 200_000_000);
    let total = |event: &str| {
        let is_wanted = |row: &&Json| row["name"] == "local_timer" && row["event"] == event;
        let found = rows(&run, "events").iter().find(is_wanted);
        found.unwrap_or_else(|| panic!("{event}: {run}"))["self_total"].as_u64().unwrap()
    };
    assert!(total("cycles") > total("instructions"), "waits take cycles");
    let (loads, misses) = (total("L1-dcache-loads"), total("L1-dcache-load-misses"));
    assert!(0 < misses && misses < loads, "{misses} of {loads}");
    let ratios = row(&run, "ratios", "idle/low/timer", "local_timer");
    has_interval(ratios, "instructions_per_cycle");
    has_interval(ratios, "l1d_miss_ratio");
    assert!(ratios["two_window_ratios"].is_null(), "all events have one window: {ratios}");
    let timer = row(&run, "handlers", "idle/low/timer", "local_timer");
    // The core has 200 MHz, and the guest's time-stamp counter 1 GHz.
    let ratio =
        timer["self_mean_tsc_cycles"].as_f64().unwrap() / timer["self_mean_ns"].as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 1e-9, "{timer}");
}

#[test]
fn a_command_runs_in_the_guest_and_missing_devices_are_refused() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["handlers", "--on", "sim", "-q", "--json", "--events", "none"];
    let command = ["--out", "command", "--", "sleep 0.05; exit 7"];
    let run = workspace.run(&[&arguments[..], &command[..]].concat()).assert_code(7).json();
    let warnings = run["warnings"].to_string();
    assert!(warnings.contains("command: the command failed: exit status: 7"), "{warnings}");
    let window_ns = rows(&run, "conditions")[0]["window_ns"].as_u64();
    assert!(window_ns >= Some(50_000_000), "{run}");

    // A machine with two cards uses them instead of a veth pair.
    let net =
        ["--net", "virtio-net", "--stimulus", "net", "--rate", "low", "--low-interval", "10ms"];
    let short = ["-d", "100ms", "--warm-up", "10ms", "--out", "cards"];
    let run = workspace.run(&[&arguments[..], &net[..], &short[..]].concat()).assert_code(0).json();
    for card in ["virtio0-input.0", "virtio1-input.0"] {
        let card_row = row(&run, "handlers", "idle/low/net", card);
        // There is a ping every 10 ms. The edges of the window may add or remove one.
        let count = card_row["count"].as_u64().unwrap();
        assert!((9..=11).contains(&count), "{card_row}");
    }
    agrees_with_the_kernel(&run);
    assert!(run.to_string().contains(r#""driver":"virtio_net""#), "{run}");

    // This kernel has no driver for the card. irqlab must refuse, and not use a veth pair instead.
    let e1000 = ["--net", "e1000", "--stimulus", "net", "-d", "1ms", "--out", "e1000"];
    let refused = workspace.run(&[&arguments[..], &e1000[..]].concat());
    refused
        .assert_code(4)
        .assert_says("network card e1000, and its kernel has no driver for it (CONFIG_E1000");
    refused.assert_says("--flavour full");
    assert!(!workspace.path().join("e1000").exists());
    let lsi = ["sim", "boot", "-q", "--disk", "lsi", "--", "true"];
    workspace
        .run(&lsi)
        .assert_code(4)
        .assert_says("disk lsi, and its kernel has no driver for it (CONFIG_SCSI_SYM53C8XX_2");

    let ipi = ["--stimulus", "ipi", "-d", "1ms", "--warm-up", "1ms"];
    let ended = workspace.run(&[&arguments[..], &ipi[..]].concat());
    ended.assert_code(4).assert_says("an inter-processor interrupt needs two CPUs");
}

#[test]
fn a_command_without_a_record_ends_with_its_status() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["sim", "boot", "-q", "--detail", "fast"];
    let run = |options: &[&str]| workspace.run(&[&arguments[..], options].concat());
    let ended = run(&["--", "echo out of the guest; exit 7"]);
    ended.assert_code(7);
    assert!(ended.out.lines().any(|line| line == "out of the guest"), "{}", ended.out);
    run(&["--json", "--", "true"]).assert_code(2).assert_says("--detail fast");
}

/// A checkpoint. Dropping this removes it.
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
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let checkpoint = Checkpoint { name: format!("test-repeat-{}", std::process::id()) };
    workspace.run(&["sim", "checkpoint", &checkpoint.name, "--vcpus", "2"]).assert_code(0);
    let arguments =
        ["bench", "sim-repeat", "--times", "2", "--vcpus", "2", "--from", &checkpoint.name];
    for options in [&["-q", "--json"][..], &["-q", "--json", "--on", "sim:r4400-1994"]] {
        let run = workspace.run(&[&arguments[..], options].concat()).assert_code(0).json();
        let outcomes = rows(&run, "outcomes");
        assert_eq!((outcomes.len(), outcomes[0]["run_count"].as_u64()), (1, Some(2)), "{run}");
        assert!(outcomes[0]["instructions"].as_u64() > Some(1_000_000), "{run}");
    }
}

#[test]
fn conditions_start_from_a_checkpoint_that_contains_irqlab() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let checkpoint =
        |name: &str| Checkpoint { name: format!("test-{name}-{}", std::process::id()) };
    let (with, without) = (checkpoint("with"), checkpoint("without"));
    workspace.run(&["sim", "checkpoint", &with.name, "--with-irqlab"]).assert_code(0);
    let arguments =
        ["handlers", "--on", "sim", "-q", "--json", "--stimulus", "timer", "--rate", "high"];
    let short = ["-d", "20ms", "--warm-up", "5ms", "--from"];
    let from = |name: &str, out: &str| {
        workspace.run(&[&arguments[..], &short[..], &[name, "--out", out]].concat())
    };
    let run = from(&with.name, "first").assert_code(0).json();
    agrees_with_the_kernel(&run);
    let count = row(&run, "handlers", "idle/high/timer", "local_timer")["count"].as_u64();
    assert!(count > Some(100), "{run}");
    from(&with.name, "second").assert_code(0);
    for table in names(&workspace.path().join("first/tables")) {
        let table_bytes = |run: &str| bytes(&workspace.path().join(run), &table);
        assert!(table_bytes("first") == table_bytes("second"), "{table}");
    }
    workspace.run(&["sim", "checkpoint", &without.name]).assert_code(0);
    let refused = from(&without.name, "refused");
    refused
        .assert_code(1)
        .assert_says("or another version of irqlab): made with")
        .assert_says("--with-irqlab");
    assert!(!workspace.path().join("refused").exists());
}
