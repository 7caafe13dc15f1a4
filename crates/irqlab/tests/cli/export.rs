//! Runs in the formats of other programs. These programs' own readers read them back.

use std::collections::BTreeMap;
use std::process::Command;

use crate::support::{
    CommandOutput, Place, absence, alone, can_measure, check_refused, read_by, rows, timeline,
};
use serde_json::Value as Json;

/// A run that is part of the repository.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../record/tests/golden/run-2");

/// The rows of a table of a run, from its JSON.
fn table(workspace: &Place, run: &str, name: &str) -> Vec<Json> {
    let json = workspace.run(&["show", run, "--json"]).assert_code(0).json();
    rows(&json, name).to_vec()
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn contradictory_options_are_refused() {
    check_refused(&["export", GOLDEN, "--format", "csv"], "-o DIR");
    check_refused(
        &["export", GOLDEN, "--format", "csv", "--weight", "ns"],
        "--weight works only with --format folded",
    );
    check_refused(
        &["export", GOLDEN, "--format", "folded", "--table", "x"],
        "--table works only with --format csv",
    );
    check_refused(&["export", GOLDEN, "--format", "csv", "--table", "x"], "no table \"x\"");
    check_refused(&["export", GOLDEN, "--format", "perfetto"], "no single events with a time");
    check_refused(&["export", GOLDEN, "--format", "hlog"], "--histograms");
    check_refused(
        &["export", GOLDEN, "--format", "prometheus", "--timestamps"],
        "--timestamps works only with --format openmetrics",
    );
    let workspace = Place::new();
    workspace.run(&["export", "absent", "--format", "folded"]).assert_code(1).assert_says("absent");
}

#[test]
fn every_table_is_a_csv_file_in_a_directory_of_its_own() {
    let workspace = Place::new();
    workspace.run(&["export", GOLDEN, "--format", "csv", "-o", "tables"]).assert_code(0);
    let json = workspace.run(&["show", GOLDEN, "--json"]).json();
    let tables: Vec<&String> = json["tables"].as_object().unwrap().keys().collect();
    for name in tables.iter().filter(|name| !rows(&json, name).is_empty()) {
        let text =
            std::fs::read_to_string(workspace.path().join(format!("tables/{name}.csv"))).unwrap();
        assert_eq!(text.lines().count(), rows(&json, name).len() + 1, "{name}");
    }
    let again = workspace.run(&["export", GOLDEN, "--format", "csv", "-o", "tables"]);
    again.assert_code(2).assert_says("not empty");
    let printed = workspace.run(&["export", GOLDEN, "--format", "csv", "--table", "handlers"]);
    let file = std::fs::read_to_string(workspace.path().join("tables/handlers.csv")).unwrap();
    assert_eq!(printed.assert_code(0).out, file);
}

#[test]
fn metrics_of_a_run_are_read_by_prometheus_own_parsers() {
    let workspace = Place::new();
    workspace.run(&["export", GOLDEN, "--format", "openmetrics", "-o", "m"]).assert_code(0);
    let Some(read) = read_by("read_openmetrics.py", &workspace.path().join("m")) else { return };
    assert_eq!(read["irqlab_run_info"]["samples"][0][1]["experiment"], "handlers");
    let columns = &table(&workspace, GOLDEN, "handlers");
    // This run has no sums over CPUs, next to which rows of single CPUs would have no samples.
    let with_mean = columns.iter().filter(|row| row["mean_ns"].is_number()).count();
    let family = &read["irqlab_handlers_mean_seconds"];
    assert_eq!(
        (text(&family["unit"]), family["samples"].as_array().unwrap().len()),
        ("seconds", with_mean)
    );
    let Some(promtool) = needs::tool("prometheus/usr/bin/promtool") else {
        needs::not_run(needs::Need::Prometheus, "tools/setup.sh has need_prometheus");
        return;
    };
    let model =
        ["signal", "model", "--schemes", "interrupt", "--rates", "10k", "-q", "--out", "model"];
    workspace.run(&model).assert_code(0);
    for run in [GOLDEN, "model"] {
        let arguments = ["export", run, "--format", "prometheus", "-o", "m.prom", "--force"];
        workspace.run(&arguments).assert_code(0);
        let mut check = Command::new(&promtool);
        let text = std::fs::File::open(workspace.path().join("m.prom")).unwrap();
        let checked = CommandOutput::of(check.args(["check", "metrics"]).stdin(text));
        assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{run}");
    }
    let arguments = ["export", GOLDEN, "--format", "openmetrics", "--timestamps", "-o", "past"];
    workspace.run(&arguments).assert_code(0);
    let mut fill = Command::new(promtool);
    fill.args(["tsdb", "create-blocks-from", "openmetrics", "past", "blocks"]);
    let ended = CommandOutput::of(fill.current_dir(workspace.path()));
    ended.assert_code(0);
    let samples: usize = read
        .as_object()
        .unwrap()
        .values()
        .map(|family| family["samples"].as_array().unwrap().len())
        .sum();
    let filled = ended.out.lines().last().unwrap_or_default();
    assert!(
        filled.split_whitespace().any(|word| word == samples.to_string()),
        "{samples}: {}",
        ended.out
    );
}

/// Measures two loops for a moment. The run has histograms and single detours.
fn noise(workspace: &Place) {
    let arguments = ["noise", "-q", "-d", "200ms", "--loop", "detour,ftq", "--out", "run"];
    workspace.run(&arguments).assert_code(0);
}

#[test]
fn noise_is_read_by_the_readers_of_each_format() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    noise(&workspace);
    for (format, file) in [("perfetto", "p"), ("folded", "f"), ("hlog", "h"), ("openmetrics", "m")]
    {
        workspace.run(&["export", "run", "--format", format, "-o", file]).assert_code(0);
    }
    check_stacks(&workspace);
    let read = |reader: &str, file: &str| read_by(reader, &workspace.path().join(file));
    let (Some(trace), Some(log)) = (read("read_perfetto.py", "p"), read("read_hlog.py", "h"))
    else {
        return;
    };
    check_trace(&workspace, &trace);
    check_log(&workspace, &log);
    let Some(metrics) = read("read_openmetrics.py", "m") else { return };
    let counts = |cpu: &str| {
        let samples = metrics["irqlab_detour_seconds"]["samples"].as_array().unwrap();
        let is_total = |sample: &&Json| sample[1]["le"] == "+Inf" && sample[1]["cpu"] == cpu;
        samples.iter().find(is_total).and_then(|sample| sample[2].as_f64())
    };
    for row in table(&workspace, "run", "noise").iter().filter(|row| row["traced"] == true) {
        assert_eq!(counts(&row["cpu"].to_string()), row["detour_count"].as_f64(), "{row}");
    }
}

/// The weights of the stacks add up to the lost time of all causes.
fn check_stacks(workspace: &Place) {
    let folded = std::fs::read_to_string(workspace.path().join("f")).unwrap();
    let weight =
        |line: &str| line.rsplit_once(' ').and_then(|(_, weight)| weight.parse::<u64>().ok());
    let sum: u64 = folded.lines().map(|line| weight(line).unwrap()).sum();
    let causes = table(workspace, "run", "causes");
    assert_eq!(sum, causes.iter().map(|row| row["total_ns"].as_u64().unwrap()).sum::<u64>());
    assert!(folded.lines().all(|line| line.starts_with("CPU ")), "{folded}");
}

/// The CPU of a group of slices that are the detours of table `detours`. On a busy host a CPU can have more detours
/// than its rows in the table. Its heading says so then.
fn cpu_of_detours(group: &str) -> Option<&str> {
    let (cpu, heading) = group.strip_prefix("CPU ")?.split_once(": ")?;
    (heading == "detours" || heading.starts_with("an even sample of the detours")).then_some(cpu)
}

/// Each detour is a slice in the group of its CPU, with its length and cause. Each quantum of fixed time is a value
/// of a counter.
fn check_trace(workspace: &Place, trace: &Json) {
    let slices = trace["slices"].as_array().unwrap();
    let mut found: BTreeMap<(&str, u64), &Json> = BTreeMap::new();
    for slice in slices {
        if let Some(cpu) = cpu_of_detours(text(&slice["group"])) {
            found.insert((cpu, slice["start_ns"].as_u64().unwrap()), slice);
        }
    }
    let detours = table(workspace, "run", "detours");
    assert_eq!(found.len(), detours.len());
    for detour in &detours {
        let cpu = detour["cpu"].to_string();
        let slice = found[&(cpu.as_str(), detour["start_ns"].as_u64().unwrap())];
        assert_eq!(slice["length_ns"], detour["length_ns"], "{slice} {detour}");
        assert_eq!(slice["kinds"][0], detour["largest_kind"], "{slice} {detour}");
        assert_eq!(slice["details"]["attributed_ns"], detour["attributed_ns"], "{slice} {detour}");
    }
    let in_groups =
        |end: &str| slices.iter().filter(|slice| text(&slice["group"]).ends_with(end)).count();
    assert_eq!(in_groups(": the longest detours"), table(workspace, "run", "longest").len());
    let parts = table(workspace, "run", "longest_parts");
    let in_time = parts.iter().filter(|part| part["start_ns"].is_u64()).count();
    assert_eq!(in_groups(": parts of the longest detours"), in_time);
    let counters = trace["counters"].as_array().unwrap();
    let quanta = table(workspace, "run", "ftq_quanta");
    assert_eq!(counters.len(), quanta.len());
    let sum = |rows: &[Json], value: &dyn Fn(&Json) -> Option<i64>| -> i64 {
        rows.iter().map(|row| value(row).unwrap()).sum()
    };
    let run_iterations = sum(&quanta, &|row| row["work_iterations"].as_i64());
    assert_eq!(sum(counters, &|counter| counter[2].as_i64()), run_iterations);
}

/// The quantiles of the log agree with the run.
fn check_log(workspace: &Place, log: &Json) {
    for row in table(workspace, "run", "noise").iter().filter(|row| row["traced"] == true) {
        let tag = format!("detour_histogram/{}", row["cpu"]);
        let mut histograms = log.as_array().unwrap().iter();
        let histogram = histograms.find(|histogram| histogram["tag"] == *tag).unwrap();
        assert_eq!(histogram["count"], row["detour_count"]);
        let log_median = histogram["p50"].as_f64().unwrap();
        let run_median = row["detour_p50_ns"].as_f64().unwrap();
        // Three significant digits.
        assert!((log_median / run_median - 1.0).abs() < 2e-3, "{histogram} {row}");
        assert!(histogram["length_ms"].as_f64() >= Some(199.0), "{histogram}");
    }
}

/// The last 200 ms of a thread that sleeps for 1 ms at a time.
#[test]
fn the_flight_record_and_the_worst_wake_ups_are_slices_and_arrows() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["wakeup", "-q", "--no-comparison", "-c", "0", "-d", "600ms", "--out", "run"];
    let ended = workspace.run(&[&arguments[..], &["--flight-record", "200ms", "--json"]].concat());
    let run = ended.assert_code(0).json();
    if let Some(reason) = absence(&run, "the last seconds") {
        return needs::not_run(needs::Need::Bpf, reason);
    }
    workspace.run(&["export", "run", "--format", "perfetto", "-o", "p"]).assert_code(0);
    let Some(trace) = read_by("read_perfetto.py", &workspace.path().join("p")) else { return };
    let slices = trace["slices"].as_array().unwrap();
    let in_group = |name: &str| slices.iter().filter(|slice| slice["group"] == name).count();
    assert_eq!(in_group("CPU 0: flight record"), rows(&run, "flight_record").len());
    assert_eq!(in_group("CPU 0: the worst wake-ups"), rows(&run, "worst").len());
    assert!(in_group("CPU 0: parts of the worst wake-ups") > 0);
    let numbers = |side: &str| -> Vec<u64> {
        let arrows = trace["arrows"][side].as_array().unwrap();
        arrows.iter().map(|arrow| arrow[0].as_u64().unwrap()).collect()
    };
    let (mut starts, mut ends) = (numbers("starts"), numbers("ends"));
    starts.sort_unstable();
    ends.sort_unstable();
    assert!(!starts.is_empty() && starts == ends, "{starts:?} {ends:?}");
    for arrow in trace["arrows"]["ends"].as_array().unwrap() {
        assert_eq!(arrow[1], "the measured thread");
    }
}

/// A live timeline adds up to table `handlers`, and the published schema reads its slices, arrows and counters.
#[test]
fn the_timeline_of_handlers_adds_up_to_its_table() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let line = "handlers -q --callbacks --stimulus ipi --rate low -d 500ms --events none --trace 40MiB --out run";
    workspace.run(&line.split_whitespace().collect::<Vec<_>>()).assert_code(0);
    let run = workspace.run(&["show", "run", "--json"]).assert_code(0).json();
    if let Some(reason) = absence(&run, "single events") {
        return needs::not_run(needs::Need::Bpf, reason);
    }
    let facts = &run["settings"]["conditions"]["idle/low/ipi"];
    assert_eq!(facts["trace_lost_events"], 0, "{facts}");
    assert!(facts["trace_event_cost_ns"].as_f64() > Some(0.0), "{facts}");
    timeline::check_table(&run);
    assert!(timeline::arrows(&run, "raise") > 0);
    workspace.run(&["export", "run", "--format", "perfetto", "-o", "p"]).assert_code(0);
    let Some(trace) = read_by("read_perfetto.py", &workspace.path().join("p")) else { return };
    timeline::check_trace(&run, &trace);
}
