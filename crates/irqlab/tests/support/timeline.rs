//! Checks that a timeline adds up to the tables of its run, as table and as Perfetto's published schema reads it.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{rows, uint};

/// CPU, kind, number and name of a context.
type ContextOfCpu = [String; 4];

fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn key(row: &Json) -> ContextOfCpu {
    ["cpu", "kind", "number", "name"].map(|column| text(&row[column]))
}

/// Checks counts, self times, nesting and arrows of a run of `handlers` whose timeline lost nothing.
pub fn check_table(run: &Json) {
    let timeline = rows(run, "timeline");
    check_sums(timeline, rows(run, "handlers"));
    check_nesting(timeline);
    check_arrows(timeline);
}

/// Counts of each context on each CPU equal table `handlers`, and so do self times. On the live bench a span shorter than
/// the probe overhead has a self time of 0 in the timeline, and a negative one in the total.
fn check_sums(timeline: &[Json], handlers: &[Json]) {
    let mut sums: BTreeMap<ContextOfCpu, (u64, u64)> = BTreeMap::new();
    for span in timeline.iter().filter(|row| row["count"] == 1) {
        let (count, self_ns) = sums.entry(key(span)).or_default();
        (*count, *self_ns) = (*count + 1, *self_ns + uint(span, "self_ns"));
    }
    // Page faults on the live bench, for example, have no times.
    let is_timed = |row: &&Json| row["timed_by"] != "none" && row["cpu"] != "all";
    let counted = handlers.iter().filter(is_timed).filter(|row| uint(row, "count") > 0);
    let mut row_count = 0;
    for row in counted {
        row_count += 1;
        let (count, self_ns) = sums.remove(&key(row)).unwrap_or_default();
        assert_eq!(count, uint(row, "count"), "{row}");
        let total_ns = uint(row, "self_total_ns");
        // Absent on the simulated bench, which subtracts nothing.
        if row["clamped_count"].as_u64().unwrap_or(0) == 0 {
            assert_eq!(self_ns, total_ns, "{row}");
        } else {
            assert!(self_ns >= total_ns, "{self_ns} ns in the timeline of {row}");
        }
    }
    assert!(row_count > 3, "{handlers:?}");
    assert!(sums.is_empty(), "{sums:?}");
}

/// Two intervals of a CPU are apart, or one contains the other.
pub fn check_nesting(timeline: &[Json]) {
    let mut by_cpu: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for row in timeline.iter().filter(|row| row["kind"] != "lost") {
        let start_ns = uint(row, "start_ns");
        let times = (start_ns, start_ns + uint(row, "length_ns"));
        by_cpu.entry(uint(row, "cpu")).or_default().push(times);
    }
    for mut intervals in by_cpu.into_values() {
        intervals.sort_by_key(|(start, end)| (*start, u64::MAX - end));
        let mut open: Vec<u64> = Vec::new();
        for (start, end) in intervals {
            open.retain(|open_end| *open_end > start);
            assert!(open.iter().all(|open_end| end <= *open_end), "{start} to {end} in {open:?}");
            open.push(end);
        }
    }
}

/// Each arrow points at a span of the requested context. The span ends after the request.
fn check_arrows(timeline: &[Json]) {
    for (position, row) in timeline.iter().enumerate() {
        assert_eq!(uint(row, "event"), position as u64 + 1);
        if row["to_event"].is_null() {
            continue;
        }
        let target = &timeline[uint(row, "to_event") as usize - 1];
        let ended_ns = uint(target, "start_ns") + uint(target, "length_ns");
        assert!(uint(row, "start_ns") <= ended_ns, "{row} {target}");
        match text(&row["kind"]).as_str() {
            "raise" => {
                assert_eq!(target["kind"], "softirq");
                assert_eq!((&row["name"], &row["cpu"]), (&target["name"], &target["cpu"]));
            }
            "call" => assert!(text(&target["name"]).starts_with("call_function"), "{target}"),
            "send" => {
                assert_eq!((&target["name"], &target["kind"]), (&row["name"], &"vector".into()))
            }
            kind => panic!("an arrow from {kind}"),
        }
    }
}

/// The number of arrows of this kind.
pub fn arrows(run: &Json, kind: &str) -> u64 {
    let is_arrow = |row: &&Json| row["kind"] == kind && !row["to_event"].is_null();
    rows(run, "timeline").iter().filter(is_arrow).count() as u64
}

/// Checks an exported trace that the published schema has read: each row is a slice with its times, and each arrow starts
/// and ends.
pub fn check_trace(run: &Json, trace: &Json) {
    let slice_key =
        |group: String, kind: String, name: String, start: u64, length: u64, self_ns: &Json| {
            (group, kind, name, start, length, self_ns.as_u64())
        };
    let mut expected: Vec<_> = rows(run, "timeline")
        .iter()
        .map(|row| {
            let group = format!("CPU {}: timeline, {}", row["cpu"], text(&row["condition"]));
            let (kind, name) = (text(&row["kind"]), text(&row["name"]));
            let name = if row["to_event"].is_null() { name } else { format!("{kind} {name}") };
            slice_key(
                group,
                kind,
                name,
                uint(row, "start_ns"),
                uint(row, "length_ns"),
                &row["self_ns"],
            )
        })
        .collect();
    let slices = trace["slices"].as_array().expect("slices");
    let mut found: Vec<_> = slices
        .iter()
        .map(|slice| {
            let (start, length) = (uint(slice, "start_ns"), uint(slice, "length_ns"));
            let self_ns = &slice["details"]["self_ns"];
            let (kind, name) = (text(&slice["kinds"][0]), text(&slice["name"]));
            slice_key(text(&slice["group"]), kind, name, start, length, self_ns)
        })
        .collect();
    expected.sort();
    found.sort();
    assert!(
        !found.is_empty() && found == expected,
        "{} slices, {} rows",
        found.len(),
        expected.len()
    );
    let numbers = |side: &str| -> Vec<u64> {
        let arrows = trace["arrows"][side].as_array().expect("arrows");
        let mut numbers: Vec<u64> =
            arrows.iter().map(|arrow| arrow[0].as_u64().expect("a number")).collect();
        numbers.sort_unstable();
        numbers
    };
    let arrow_count = ["raise", "call", "send"].map(|kind| arrows(run, kind)).iter().sum::<u64>();
    assert_eq!(numbers("starts").len() as u64, arrow_count);
    assert_eq!(numbers("starts"), numbers("ends"));
    let units = trace["counters"].as_array().expect("counters").iter().map(|value| text(&value[0]));
    assert!(units.into_iter().any(|unit| unit == "1/s"), "no rate");
}
