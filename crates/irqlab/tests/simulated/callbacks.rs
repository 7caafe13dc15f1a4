//! `irqlab handlers --callbacks`: rows of the functions of timers, tasklets, work items and RCU. Without QEMU the tests
//! say so and pass.

use std::collections::BTreeMap;

use crate::support::{Place, can_simulate, check_refused, csv_fields};

/// The rows over all CPUs in the CSV of table `handlers`: kind and name, and the columns by name.
type Rows = BTreeMap<(String, String), BTreeMap<String, String>>;

fn rows(csv: &str) -> Rows {
    let mut lines = csv
        .lines()
        .map(csv_fields)
        .skip_while(|row| row.first().is_none_or(|name| name != "condition"));
    let header = lines.next().unwrap_or_else(|| panic!("no table: {csv}"));
    let mut rows = Rows::new();
    for row in lines.filter(|row| row.len() == header.len()) {
        let columns: BTreeMap<String, String> = header.iter().cloned().zip(row).collect();
        if columns["cpu"] == "all" {
            rows.insert((columns["kind"].clone(), columns["name"].clone()), columns);
        }
    }
    rows
}

fn number(columns: &BTreeMap<String, String>, name: &str) -> f64 {
    columns[name].parse().unwrap_or_else(|error| panic!("{name}: {error}: {columns:?}"))
}

const CALLBACKS: [&str; 5] = ["hrtimer", "timer", "work", "tasklet", "rcu"];

fn is_callback(kind: &str) -> bool {
    CALLBACKS.contains(&kind)
}

#[test]
fn callbacks_cannot_be_combined_with_misses() {
    check_refused(
        &["handlers", "--on", "sim:r4400-1994", "--misses", "--callbacks"],
        "cannot be combined",
    );
}

/// The option adds rows, and moves self time to them. Nothing else changes: the guest does the same.
#[test]
fn functions_have_rows_and_all_other_times_are_as_without_them() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = |options: &[&str]| {
        let line = "handlers --on sim -q --load idle --rate high --stimulus disk -d 100ms \
                    --disk virtio-blk,latency=100us --format csv --table handlers";
        let line: Vec<&str> = line.split_whitespace().chain(options.iter().copied()).collect();
        let run = workspace.run(&line);
        run.assert_code(0);
        rows(&run.out)
    };
    let (with, without) = (run(&["--callbacks"]), run(&[]));
    assert!(without.keys().all(|(kind, _)| !is_callback(kind)), "{:?}", without.keys());
    for (key, columns) in &without {
        let same = with.get(key).unwrap_or_else(|| panic!("no row {key:?}"));
        for column in ["count", "inclusive_total_ns", "inclusive_max_ns"] {
            assert_eq!(same[column], columns[column], "{key:?} {column}");
        }
    }
    let timer = number(&with[&key("vector", "local_timer")], "self_total_ns");
    let before = number(&without[&key("vector", "local_timer")], "self_total_ns");
    let hrtimers = with.iter().filter(|((kind, _), _)| kind == "hrtimer");
    let nested: f64 = hrtimers.map(|(_, columns)| number(columns, "inclusive_total_ns")).sum();
    assert!(nested > 0.0 && timer < before, "{timer} of {before}, {nested} in functions");
    // Without softirq HRTIMER, all high-resolution timers expire in the interrupt. Times are rounded to ns per span.
    if !with.contains_key(&key("softirq", "HRTIMER")) {
        let count = number(&with[&key("vector", "local_timer")], "count");
        let gap = (before - timer - nested).abs();
        assert!(gap <= 0.001 * before + 3.0 * count, "{before} - {timer} - {nested}");
    }
    for kind in ["hrtimer", "work"] {
        let names: Vec<&String> =
            with.keys().filter(|key| key.0 == kind).map(|key| &key.1).collect();
        assert!(!names.is_empty(), "no {kind}: {:?}", with.keys());
        assert!(names.iter().all(|name| !name.starts_with("0x")), "{names:?}");
    }
}

fn key(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

/// The live bench in the simulated machine, whose kernel has no cookies of links.
#[test]
fn the_live_bench_measures_functions_in_a_guest() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let inside = "irqlab handlers -q --callbacks --stimulus timer --rate high -d 200ms --format csv \
                  --table handlers";
    let ended = workspace.run(&["sim", "boot", "-q", "--with-irqlab", "--", inside]);
    ended.assert_code(0);
    let rows = rows(&ended.out);
    let hrtimers = rows.iter().filter(|((kind, _), _)| kind == "hrtimer");
    let (mut calls, mut nested) = (0.0, 0.0);
    for (_, columns) in hrtimers {
        calls += number(columns, "count");
        nested += number(columns, "inclusive_total_ns");
    }
    let timer = &rows[&key("vector", "local_timer")];
    assert!(calls > 50.0, "{:?}", rows.keys());
    assert!(nested > 0.0 && nested < number(timer, "inclusive_total_ns"));
}
