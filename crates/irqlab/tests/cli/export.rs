//! Runs in the formats of other programs, read back by those programs' own readers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::{CommandOutput, Place, alone, can_measure, check_refused, rows};
use serde_json::Value as Json;

/// A run that is part of the repository.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../record/tests/golden/run-2");

/// What another program's reader finds in a file, as JSON; `None`, with the reason printed, where it is
/// not installed.
fn read_by(reader: &str, file: &Path) -> Option<Json> {
    let Some(python) =
        needs::tool("readers-1/bin/python").filter(|path| path.ends_with("bin/python"))
    else {
        needs::not_run(needs::Need::Readers, "tools/setup.sh installs them: need_readers");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers").join(reader);
    let ended = CommandOutput::of(Command::new(python).arg(script).arg(file));
    ended.assert_code(0);
    Some(ended.json())
}

/// The rows of a table of a run, from its JSON.
fn table(place: &Place, run: &str, name: &str) -> Vec<Json> {
    let json = place.run(&["show", run, "--json"]).assert_code(0).json();
    rows(&json, name).to_vec()
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn what_makes_no_sense_is_refused() {
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
    check_refused(&["export", GOLDEN, "--format", "perfetto"], "no events in time");
    check_refused(&["export", GOLDEN, "--format", "hlog"], "--histograms");
    let place = Place::new();
    place.run(&["export", "absent", "--format", "folded"]).assert_code(1).assert_says("absent");
}

#[test]
fn every_table_is_a_csv_file_in_a_directory_of_its_own() {
    let place = Place::new();
    place.run(&["export", GOLDEN, "--format", "csv", "-o", "tables"]).assert_code(0);
    let json = place.run(&["show", GOLDEN, "--json"]).json();
    let tables: Vec<&String> = json["tables"].as_object().unwrap().keys().collect();
    for name in tables.iter().filter(|name| !rows(&json, name).is_empty()) {
        let text =
            std::fs::read_to_string(place.path().join(format!("tables/{name}.csv"))).unwrap();
        assert_eq!(text.lines().count(), rows(&json, name).len() + 1, "{name}");
    }
    let again = place.run(&["export", GOLDEN, "--format", "csv", "-o", "tables"]);
    again.assert_code(2).assert_says("not empty");
    let one = place.run(&["export", GOLDEN, "--format", "csv", "--table", "handlers"]);
    let file = std::fs::read_to_string(place.path().join("tables/handlers.csv")).unwrap();
    assert_eq!(one.assert_code(0).out, file);
}

#[test]
fn metrics_of_a_run_are_read_by_prometheus_own_parsers() {
    let place = Place::new();
    place.run(&["export", GOLDEN, "--format", "openmetrics", "-o", "m"]).assert_code(0);
    let Some(read) = read_by("read_openmetrics.py", &place.path().join("m")) else { return };
    assert_eq!(read["irqlab_run_info"]["samples"][0][1]["experiment"], "handlers");
    let columns = &table(&place, GOLDEN, "handlers");
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
    let words = ["export", GOLDEN, "--format", "openmetrics", "--timestamps", "-o", "past"];
    place.run(&words).assert_code(0);
    let mut fill = Command::new(promtool);
    fill.args(["tsdb", "create-blocks-from", "openmetrics", "past", "blocks"]);
    let ended = CommandOutput::of(fill.current_dir(place.path()));
    ended.assert_code(0);
    let samples: usize = read
        .as_object()
        .unwrap()
        .values()
        .map(|one| one["samples"].as_array().unwrap().len())
        .sum();
    let filled = ended.out.lines().last().unwrap_or_default();
    assert!(
        filled.split_whitespace().any(|word| word == samples.to_string()),
        "{samples}: {}",
        ended.out
    );
}

/// Two loops measure for a moment, with histograms and single detours.
fn noise(place: &Place) {
    let words = ["noise", "-q", "-d", "200ms", "--loop", "detour,ftq", "--out", "run"];
    place.run(&words).assert_code(0);
}

#[test]
fn noise_is_read_by_the_readers_of_each_format() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    noise(&place);
    for (format, file) in [("perfetto", "p"), ("folded", "f"), ("hlog", "h"), ("openmetrics", "m")]
    {
        place.run(&["export", "run", "--format", format, "-o", file]).assert_code(0);
    }
    check_stacks(&place);
    let read = |reader: &str, file: &str| read_by(reader, &place.path().join(file));
    let (Some(trace), Some(log)) = (read("read_perfetto.py", "p"), read("read_hlog.py", "h"))
    else {
        return;
    };
    check_trace(&place, &trace);
    check_log(&place, &log);
    let Some(metrics) = read("read_openmetrics.py", "m") else { return };
    let counts = |cpu: &str| {
        let samples = metrics["irqlab_detour_seconds"]["samples"].as_array().unwrap();
        let is_all = |one: &&Json| one[1]["le"] == "+Inf" && one[1]["cpu"] == cpu;
        samples.iter().find(is_all).and_then(|one| one[2].as_f64())
    };
    for row in table(&place, "run", "noise").iter().filter(|row| row["traced"] == true) {
        assert_eq!(counts(&row["cpu"].to_string()), row["detour_count"].as_f64(), "{row}");
    }
}

/// The stacks have all of the lost time, cause by cause.
fn check_stacks(place: &Place) {
    let folded = std::fs::read_to_string(place.path().join("f")).unwrap();
    let line =
        |line: &str| line.rsplit_once(' ').and_then(|(_, weight)| weight.parse::<u64>().ok());
    let sum: u64 = folded.lines().map(|one| line(one).unwrap()).sum();
    let causes = table(place, "run", "causes");
    assert_eq!(sum, causes.iter().map(|row| row["total_ns"].as_u64().unwrap()).sum::<u64>());
    assert!(folded.lines().all(|line| line.starts_with("CPU ")), "{folded}");
}

/// Each detour is a slice of its length in its CPU's group, with its cause; each quantum of fixed time a
/// value of a counter.
fn check_trace(place: &Place, trace: &Json) {
    let slices = trace["slices"].as_array().unwrap();
    let mut found: BTreeMap<(String, u64), &Json> = BTreeMap::new();
    for one in slices.iter().filter(|one| text(&one["group"]).ends_with("detours")) {
        found.insert((text(&one["group"]).to_owned(), one["start_ns"].as_u64().unwrap()), one);
    }
    let detours = table(place, "run", "detours");
    assert_eq!(found.len(), detours.len());
    for detour in &detours {
        let group = format!("CPU {}: detours", detour["cpu"]);
        let slice = found[&(group, detour["start_ns"].as_u64().unwrap())];
        assert_eq!(slice["length_ns"], detour["length_ns"], "{slice} {detour}");
        assert_eq!(slice["kinds"][0], detour["largest_kind"], "{slice} {detour}");
        assert_eq!(slice["details"]["attributed_ns"], detour["attributed_ns"], "{slice} {detour}");
    }
    let counters = trace["counters"].as_array().unwrap();
    let quanta = table(place, "run", "ftq_quanta");
    assert_eq!(counters.len(), quanta.len());
    let sum = |rows: &[Json], at: &dyn Fn(&Json) -> Option<i64>| -> i64 {
        rows.iter().map(|row| at(row).unwrap()).sum()
    };
    let of_run = sum(&quanta, &|row| row["work_iterations"].as_i64());
    assert_eq!(sum(counters, &|one| one[2].as_i64()), of_run);
}

/// The log's quantiles are the run's.
fn check_log(place: &Place, log: &Json) {
    for row in table(place, "run", "noise").iter().filter(|row| row["traced"] == true) {
        let tag = format!("detour_histogram/{}", row["cpu"]);
        let one = log.as_array().unwrap().iter().find(|one| one["tag"] == *tag).unwrap();
        assert_eq!(one["count"], row["detour_count"]);
        let (read, of_run) = (one["p50"].as_f64().unwrap(), row["detour_p50_ns"].as_f64().unwrap());
        // Three significant digits.
        assert!((read / of_run - 1.0).abs() < 2e-3, "{one} {row}");
        assert!(one["length_ms"].as_f64() >= Some(199.0), "{one}");
    }
}
