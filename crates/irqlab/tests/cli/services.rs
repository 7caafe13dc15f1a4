//! `irqlab services` on this machine, by the command. What the machine cannot do, the tests say and pass.

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
    let place = Place::new();
    let count = format!("count={BLOCKS}");
    let words =
        ["services", "-q", "--json", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", &count];
    let run = place.run(&words).assert_code(0).json();
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

#[test]
fn options_of_the_simulated_machine_are_refused_here() {
    check_refused(&["services", "--locks", "--", "true"], "add --on sim");
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
    refused(&["progdev", "--verify"], "--verify is for a command");
    refused(&["progdev", "--disk", "nvme"], "--disk: a workload has its own machine");
    refused(&["progdev", "--", "true"], "cannot be used with");
}
