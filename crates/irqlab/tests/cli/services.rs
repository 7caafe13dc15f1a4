//! `irqlab services` on this machine, by the command. What the machine cannot do, the tests say and pass.

use std::collections::BTreeSet;

use crate::support::{Place, alone, can_measure, check_refused, rows};
use serde_json::Value as Json;

/// Reads and writes of one block each.
const BLOCKS: u64 = 2_000;

fn row<'a>(run: &'a Json, class: &str, service: &str) -> &'a Json {
    let is_it = |row: &&Json| row["class"] == class && row["service"] == service;
    let found = rows(run, "services").iter().find(is_it);
    found.unwrap_or_else(|| panic!("{class} {service}: {}", run["tables"]["services"]))
}

#[test]
fn system_calls_of_a_command_are_counted_and_timed() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let count = format!("count={BLOCKS}");
    let arguments =
        ["services", "-q", "--json", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", &count];
    let run = workspace.run(&arguments).assert_code(0).json();
    assert_eq!(run["bench"], "live");
    for name in ["read", "write"] {
        let row = row(&run, "syscall", name);
        assert!(row["request_count"].as_u64() >= Some(BLOCKS), "{row}");
        assert!(row["completed_count"].as_u64() <= row["request_count"].as_u64(), "{row}");
        let [computation, latency] =
            ["computation_mean_ns", "latency_mean_ns"].map(|column| row[column].as_f64().unwrap());
        assert!(computation > 0.0 && computation <= latency, "{row}");
        assert!(row["cpi_ratio"].is_null(), "what is not measured is absent: {row}");
    }
    // It forks and execs, which faults.
    assert!(row(&run, "fault", "in user mode")["request_count"].as_u64() > Some(0));
    assert!(run["observer"]["probe_overhead_ns"].as_f64().is_some(), "{}", run["observer"]);
    assert!(run["absent"].as_array().is_some_and(|absent| absent.len() >= 4), "{}", run["absent"]);
}

/// The sum of a column of whole numbers over some rows.
fn sum<'a>(rows: impl IntoIterator<Item = &'a Json>, column: &str) -> u64 {
    let number = |row: &Json| {
        let number = row[column].as_f64().unwrap_or(0.0);
        assert_eq!(number.fract(), 0.0, "{row}");
        number as u64
    };
    rows.into_iter().map(number).sum()
}

#[test]
fn the_times_of_all_rows_add_up_to_that_of_the_cpus() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    // In user mode for some ticks, asleep for some, with faults and new processes.
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.05; ls / > /dev/null";
    let run = workspace
        .run(&["services", "-q", "--json", "--", "sh", "-c", script])
        .assert_code(0)
        .json();
    let times = rows(&run, "cpu_times");
    let cpus: BTreeSet<&str> = times.iter().filter_map(|row| row["cpu"].as_str()).collect();
    assert!(cpus.len() >= 2 && cpus.contains("all"), "{cpus:?}");
    for cpu in cpus {
        let of_cpu = || times.iter().filter(move |row| row["cpu"] == cpu);
        let part = |name: &str| of_cpu().find(|row| row["part"] == name).unwrap();
        let is_part = |row: &&Json| row["part"] != "sum" && row["part"] != "window";
        let window = part("window")["self_total_ns"].as_u64().unwrap();
        assert!(window > 50_000_000, "{window}");
        assert_eq!(sum(of_cpu().filter(is_part), "self_total_ns"), window, "CPU {cpu}");
        assert_eq!(part("sum")["self_total_ns"].as_u64(), Some(window));
        assert!(part("user mode")["self_total_ns"].as_u64() > Some(0), "CPU {cpu}");
        assert!(of_cpu().all(|row| row["method"].as_str().is_some_and(|text| !text.is_empty())));
    }
    let all = times.iter().find(|row| row["cpu"] == "all" && row["part"] == "window").unwrap();
    for table in ["services", "modes"] {
        assert_eq!(Some(sum(rows(&run, table), "self_total_ns")), all["self_total_ns"].as_u64());
    }
    assert_eq!(rows(&run, "agreement")[0]["agrees"], true);
}

#[test]
fn options_of_the_simulated_machine_are_refused_here() {
    check_refused(&["services", "--verify", "--", "true"], "add --on sim");
    check_refused(&["services"], "CMD");
    check_refused(&["services", "--workload", "progdev"], "add --on sim");
}

#[test]
fn a_workload_is_known_and_has_its_own_machine() {
    let on_sim = ["services", "--on", "sim", "--workload"];
    let refused = |more: &[&str], says: &str| check_refused(&[&on_sim, more].concat(), says);
    refused(&["nosuch"], "no workload \"nosuch\"; there are: ");
    refused(&["progdev", "--vcpus", "3"], "no form for 3 CPUs; there are: 1, 8");
    refused(&["progdev", "--verify"], "--verify cannot be combined with --workload");
    refused(
        &["progdev", "--disk", "nvme"],
        "--disk cannot be used: a workload defines its own machine",
    );
    refused(&["progdev", "--", "true"], "cannot be used with");
    refused(&["progdev", "--until", "1M-instructions"], "--until needs a model");
    refused(&["progdev", "--until", "5%"], "N-instructions");
    for of_workload in [&["--until", "end"][..], &["--short"]] {
        let with_command = [&["services", "--on", "sim"], of_workload, &["--", "true"]].concat();
        check_refused(&with_command, "cannot be used with");
    }
}
