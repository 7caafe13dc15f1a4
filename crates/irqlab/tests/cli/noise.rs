//! `irqlab noise` as a user runs it. No assertion is on a time.

use crate::support::{Place, absence, alone, check_longest, check_refused, only_run, rows};
use serde_json::Value as Json;

#[test]
fn invalid_options_are_named() {
    check_refused(&["noise", "-c", "9999"], "CPU 9999 is not online here; online: ");
    check_refused(&["noise", "-H", "9999"], "CPU 9999 is not online here; online: ");
    check_refused(
        &["noise", "--no-trace", "--on-threshold", "1ms:trace"],
        "which --no-trace leaves out",
    );
    check_refused(&["noise", "-c", "0", "-H", "0"], "CPU 0 is in -c and in -H");
    check_refused(&["noise", "--loop", "hoop"], "allowed: fwq, ftq, detour");
    check_refused(&["noise", "--body", "mind"], "allowed: add, alu, load, branch, memory");
    check_refused(&["noise", "--quantum", "1us"], "allowed: 10us to 1s");
    check_refused(&["noise", "--quantum", "100"], "allowed: 10us to 1s");
    check_refused(&["noise", "--quantum", "1x"], "a number and a unit (ns, us, ms, s, m, h)");
    check_refused(&["noise", "--repetitions", "0"], "1..=1000000000");
    check_refused(&["noise", "--repetitions", "5", "-d", "1s"], "cannot be used with");
    check_refused(&["noise", "--fifo", "100"], "1..=99");
    check_refused(&["noise", "--keep-longest", "0"], "1..=1000");
    check_refused(&["noise", "--keep-longest", "1001"], "1..=1000");
    check_refused(&["noise", "--picture", "a.svg", "--loop", "ftq"], "add fwq to --loop");
    check_refused(
        &["noise", "--on-threshold", "1ms:stop", "--loop", "detour,fwq"],
        "--on-threshold and --flight-record are for detours: --loop detour",
    );
    check_refused(
        &["noise", "--on-threshold", "1ms"],
        "allowed: TIME:stop, TIME:trace, TIME:continue",
    );
    check_refused(
        &["noise", "--on", "sim", "--on-threshold", "1ms:stop"],
        "--on-threshold is for --on live",
    );
    check_refused(&["noise", "--on", "moon"], "allowed: live, sim, sim:MODEL");
    check_refused(&["noise", "--mem", "1G"], "--mem is for a simulated machine; add --on sim");
    check_refused(&["noise", "--inject", "3:1ms"], "--inject is for a simulated machine");
    check_refused(&["noise", "--on", "sim", "--inject", "3"], "allowed: TIMERS:TIME");
    check_refused(&["noise", "--on", "sim", "-H", "0"], "--housekeeping is for --on live");
    check_refused(&["noise", "--on", "sim", "--no-trace"], "--no-trace is for --on live");
    check_refused(
        &["noise", "--on", "sim", "-c", "0-1"],
        "no CPU 1 in the simulated machine: --vcpus is 1",
    );
    check_refused(&["noise", "--on", "sim", "--vcpus", "2"], "without a model, virtual CPUs share");
    check_refused(
        &["noise", "--on", "sim", "--free-running"],
        "the simulated machine's clock, not the host's",
    );
    check_refused(
        &["noise", "--on", "sim", "-d", "1h"],
        "quanta; the guest keeps all records until the end",
    );
    check_refused(&["noise", "--on", "sim:z80"], "no model \"z80\"");
}

#[test]
fn a_threshold_below_the_loop_is_refused_with_the_minimum() {
    let _alone = alone();
    let workspace = Place::new();
    let ended = workspace.run(&["noise", "--threshold", "1ns"]);
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    ended.assert_code(2).assert_says("allowed: from ");
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
}

fn uint(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
}

#[test]
fn the_causes_of_each_cpu_add_up_to_what_it_lost() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["noise", "-d", "300ms", "--keep-longest", "3", "--json"];
    let ended = workspace.run(&arguments);
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    // Three loops and the comparison take longer than `-d`, which is the time of a loop.
    let run = ended.assert_code(0).assert_says("measures for about ").json();
    assert_eq!((&run["experiment"], &run["complete"]), (&"noise".into(), &true.into()));
    for key in ["clock_step_ns", "iteration_ns", "threshold_ns", "threshold_ns_min"] {
        assert!(run["settings"][key].as_f64().is_some_and(|ns| ns > 0.0), "{key}");
    }
    let noise = rows(&run, "noise");
    let traced: Vec<&Json> = noise.iter().filter(|row| row["traced"] == true).collect();
    if let Some(reason) = absence(&run, "the kernel's activity during the loop") {
        assert!(traced.is_empty() && !noise.is_empty());
        return needs::not_run(needs::Need::Bpf, reason);
    }
    assert_eq!(noise.len(), traced.len(), "each CPU once, watched");
    let observer = &run["observer"];
    assert_eq!(observer["compared_pairs"], 16);
    for key in ["bare_lost_ratio", "traced_lost_ratio", "added_lost_ratio"] {
        assert!(observer[key].is_number(), "{key}: {observer}");
    }
    let side = |side: &str| observer[format!("added_lost_ratio_ci95_{side}")].as_f64().unwrap();
    let added = observer["added_lost_ratio"].as_f64().unwrap();
    assert!(side("low") <= added && added <= side("high"), "{observer}");
    for row in &traced {
        let classes = ["attributed_ns", "entry_exit_ns", "unattributed_ns", "remainder_ns"];
        let sum: u64 = classes.iter().map(|class| uint(row, class)).sum();
        assert_eq!(sum, uint(row, "lost_ns"), "{row}");
        let is_on_cpu = |cause: &&Json| cause["cpu"] == row["cpu"];
        let causes: u64 = rows(&run, "causes")
            .iter()
            .filter(is_on_cpu)
            .map(|cause| uint(cause, "total_ns"))
            .sum();
        assert_eq!(causes, uint(row, "lost_ns"), "{row}");
        check_longest(&run, row, 3);
    }
    assert!(!traced.is_empty() && !rows(&run, "detours").is_empty(), "{run}");
    for detour in rows(&run, "detours") {
        let classes = ["attributed_ns", "entry_exit_ns", "unattributed_ns", "remainder_ns"];
        let sum: u64 = classes.iter().map(|class| uint(detour, class)).sum();
        assert_eq!(sum, uint(detour, "length_ns"), "{detour}");
    }
    for table in ["fwq", "ftq", "detour_histogram", "fwq_quanta", "ftq_quanta"] {
        assert!(!rows(&run, table).is_empty(), "{table}");
    }
    let directory = only_run(&workspace);
    let shown = workspace.run(&["show", &directory.display().to_string(), "--json"]);
    assert_eq!(shown.assert_code(0).json(), run);
}

#[test]
fn bare_is_without_causes() {
    let _alone = alone();
    let workspace = Place::new();
    let loops = ["noise", "-q", "--no-trace", "-c", "0", "--repetitions", "200"];
    let arguments = [&loops[..], &["--picture", "a.svg", "--json"]].concat();
    let ended = workspace.run(&arguments);
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    let run = ended.assert_code(0).json();
    assert!(run["tables"].get("causes").is_none());
    let [row] = rows(&run, "noise") else { panic!("{}", run["tables"]) };
    assert_eq!((&row["traced"], &row["attributed_ns"]), (&false.into(), &Json::Null));
    assert_eq!(rows(&run, "fwq")[0]["quantum_count"], 200);
    let picture = std::fs::read_to_string(workspace.path().join("a.svg")).expect("a picture");
    for text in ["<title id=", "CPU 0", "duration (logarithmic)", "within 2 % of the minimum"] {
        assert!(picture.contains(text), "{text}: {picture}");
    }
    workspace.run(&arguments).assert_code(2).assert_says("it exists already (--force replaces it)");
}

#[test]
fn a_command_runs_with_the_loops_and_its_failure_is_the_exit_code() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["noise", "-q", "--no-trace", "-c", "0", "--loop", "ftq", "-d", "300ms", "--"];
    let run = |command: &[&str]| workspace.run(&[&arguments[..], command].concat());
    let ended = run(&["sleep", "600"]);
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    ended.assert_code(0);
    run(&["true"]).assert_code(0).assert_says("the command ended before the loops did");
    run(&["sh", "-c", "exit 9"]).assert_code(9);
}

#[test]
fn the_tick_that_is_found_is_the_kernels() {
    let _alone = alone();
    let workspace = Place::new();
    let ended = workspace.run(&["noise", "-q", "--loop", "detour", "-d", "2s", "--json"]);
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    let run = ended.assert_code(0).json();
    let Some(hz) = run["host"]["hz"].as_f64() else {
        return needs::not_run(needs::Need::Other, "the kernel does not say its HZ");
    };
    let ticks: Vec<&Json> = rows(&run, "periods")
        .iter()
        .filter(|row| {
            row["trigger_name"] == "local_timer" && uint(row, "searched_event_count") >= 100
        })
        .collect();
    if ticks.is_empty() {
        let reason = format!("too few ticks among the detours: {}", run["absent"]);
        return needs::not_run(needs::Need::Other, reason);
    }
    let is_found = |row: &&Json| {
        row["frequency_hz"].as_f64().is_some_and(|found| (found - hz).abs() < hz * 1e-3)
    };
    assert!(ticks.iter().any(is_found), "HZ is {hz}: {ticks:?}");
    // The kernel's clock and its tick have one source. So the statistical uncertainty suffices to compare them. For
    // a comparison with another clock, the uncertainty adds the error of the clock's rate.
    for tick in &ticks {
        let number =
            |column: &str| tick[column].as_f64().unwrap_or_else(|| panic!("{column}: {tick}"));
        let sum = number("period_ci95_ns") + number("period_clock_error_ns");
        assert!((number("period_uncertainty_ns") / sum - 1.0).abs() < 1e-9, "{tick}");
        assert!(number("period_clock_error_ns") > 0.0, "{tick}");
    }
}

#[test]
fn the_loss_of_a_parallel_job_is_computed_from_a_run() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["noise", "-q", "--no-trace", "-c", "0", "-d", "200ms", "--loop", "detour,ftq"];
    let ended = workspace.run(&[&arguments[..], &["--pictures", "--out", "measured"]].concat());
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    ended.assert_code(0);
    for name in ["sizes.svg", "spectrum.svg"] {
        let picture = std::fs::read_to_string(workspace.path().join("measured").join(name));
        let picture = picture.expect("a picture");
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"), "{name}");
    }
    assert!(!workspace.path().join("measured/repetitions.svg").exists(), "there was no fwq");
    let scale = ["noise", "scale", "-q", "--run", "measured", "--json"];
    let with = |options: &[&str]| workspace.run(&[&scale[..], options].concat());
    let run = with(&["--nodes", "1,64", "--granularity", "10us,100us", "--out", "scaled"]);
    let run = run.assert_code(0).json();
    let rows = rows(&run, "scale");
    assert_eq!((&run["experiment"], rows.len()), (&"scale".into(), 8));
    let line = run["settings"]["command_line"].as_str().unwrap();
    assert!(line.starts_with("irqlab noise scale --run measured"), "{line}");
    for row in rows {
        assert!(row["slowdown_ratio"].as_f64().is_some_and(|ratio| ratio >= 0.0), "{row}");
        assert!(
            row["is_lower_bound"] == false || row["slowdown_ci95_high_ratio"].is_null(),
            "{row}"
        );
    }
    let again = with(&["--nodes", "1,64", "--granularity", "10us,100us", "--out", "again"]);
    assert_eq!(again.assert_code(0).json()["tables"], run["tables"]);
    with(&["--granularity", "1s"]).assert_code(2).assert_says("a tenth of the CPU time measured");
    with(&["--granularity", "10ms..1ms"])
        .assert_code(2)
        .assert_says("allowed: times of 1us to 10s");
    with(&["--nodes", "0"]).assert_code(2).assert_says("1 to 1000000000");
    with(&["--arrivals", "never"]).assert_code(2).assert_says("allowed: measured, random");
    let nowhere = workspace.run(&["noise", "scale", "--run", "nowhere"]);
    nowhere.assert_code(1).assert_says("nowhere");
    let no_detours = workspace.run(&["noise", "scale", "--run", "scaled"]);
    no_detours.assert_code(2).assert_says("it needs detours");
}

/// Every detour is longer than 1 ns. None takes an hour.
#[test]
fn a_threshold_ends_the_window_or_counts_the_detours() {
    let _alone = alone();
    let workspace = Place::new();
    let run = |length: &str, thresholds: &[&str]| {
        let options = thresholds.iter().flat_map(|threshold| ["--on-threshold", threshold]);
        let arguments = ["noise", "-q", "-c", "0", "-d", length, "--json"].into_iter();
        workspace.run(&arguments.chain(options).collect::<Vec<_>>())
    };
    let ended = run("3s", &["1ns:run=touch over-{cpu}", "3600s:run=touch never"]);
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    let stopped = ended.assert_code(3).assert_says("a detour on CPU 0 took ").json();
    assert_eq!(stopped["complete"], true);
    assert_eq!(stopped["settings"]["on_threshold_ns"], 1);
    let [row] = rows(&stopped, "noise") else { panic!("{stopped}") };
    assert_eq!(row["ended_by"], "threshold");
    assert_eq!(uint(row, "over_threshold_count"), uint(row, "detour_count"));
    assert!(workspace.path().join("over-0").exists() && !workspace.path().join("never").exists());

    let ended = run("400ms", &["1ns:continue", "1ns:run=touch went-on"]);
    let counted = ended.assert_code(3).assert_says("the window went on (--on-threshold)").json();
    let [row] = rows(&counted, "noise") else { panic!("{counted}") };
    assert_eq!(row["ended_by"], "length");
    assert!(uint(row, "over_threshold_count") > 0, "{row}");
    assert_eq!(uint(row, "over_threshold_count"), uint(row, "detour_count"));
    assert!(workspace.path().join("went-on").exists());

    let within = run("100ms", &["3600s:stop"]).assert_code(0).json();
    assert_eq!(uint(&rows(&within, "noise")[0], "over_threshold_count"), 0);
}

#[test]
fn the_flight_record_has_the_loop_and_what_interrupts_it() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["noise", "-q", "-c", "0", "-d", "400ms", "--flight-record", "100ms", "--json"];
    let ended = workspace.run(&arguments);
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    let run = ended.assert_code(0).json();
    if let Some(reason) = absence(&run, "the last seconds") {
        return needs::not_run(needs::Need::Bpf, reason);
    }
    assert_eq!(uint(&run["settings"], "flight_record_length_ns"), 100_000_000);
    let record = rows(&run, "flight_record");
    let has = |kind: &str| record.iter().any(|row| row["kind"] == kind);
    assert!(has("thread") && (has("vector") || has("task")), "{record:?}");
    assert!(rows(&run, "fwq").is_empty(), "only the loop detour runs");
}
