//! `irqlab services` on a simulated machine, by the command. Where there is no QEMU, says so and passes.

use std::path::Path;

use crate::cli_support::{Place, can_simulate, names, rows};
use serde_json::Value as Json;

/// Reads and writes one byte each by dd.
const BYTES: u64 = 300;

fn measured(place: &Place, out: &str, words: &[&str]) -> Json {
    let line = format!(
        "dd if=/dev/zero of=/tmp/x bs=1 count={BYTES}; sleep 0.02; echo a | cat; kill -SEGV $$"
    );
    let all = ["services", "-q", "--json", "--out", out];
    let all = [&all[..], words, &["--", &line]].concat();
    // The command ends by a signal, which is its own business: 128 + 11.
    place.run(&all).assert_code(139).json()
}

fn uint(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
}

fn real(row: &Json, column: &str) -> f64 {
    row[column].as_f64().unwrap_or_else(|| panic!("{column}: {row}"))
}

fn service<'a>(run: &'a Json, class: &str, name: &str) -> &'a Json {
    let is_it = |row: &&Json| row["class"] == class && row["service"] == name;
    let found = rows(run, "services").iter().find(is_it);
    found.unwrap_or_else(|| panic!("{class} {name}: {}", run["tables"]["services"]))
}

/// Every cycle belongs to a service, to user mode or to idle, and latencies are the sum of their parts.
fn closes(run: &Json) {
    let sum: u64 = rows(run, "services").iter().map(|row| uint(row, "self_total_cycles")).sum();
    let modes: u64 = rows(run, "modes").iter().map(|row| uint(row, "self_total_cycles")).sum();
    assert_eq!(sum, modes);
    let shares: f64 = rows(run, "services").iter().map(|row| real(row, "time_ratio")).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    for row in rows(run, "services").iter().filter(|row| row["completed_count"].as_u64() > Some(0))
    {
        let parts = ["computation", "nested", "blocked", "descheduled"];
        let parts: f64 = parts.iter().map(|name| real(row, &format!("{name}_mean_ns"))).sum();
        let latency = real(row, "latency_mean_ns");
        assert!((parts - latency).abs() <= 1e-6 * latency, "{row}");
    }
}

/// The guest has counted the same: page faults, and each system call.
fn agrees(run: &Json, least: usize) {
    let counts = rows(run, "agreement");
    assert!(counts.len() >= least, "{counts:?}");
    for row in counts {
        assert_eq!(row["agrees"], true, "{row}");
    }
    assert!(counts.iter().any(|row| uint(row, "counted_count") > 100), "{counts:?}");
}

fn same_bytes(place: &Path, one: &str, other: &str) {
    let tables = names(&place.join(one).join("tables"));
    assert!(tables.len() >= 4, "{tables:?}");
    for table in tables {
        let of = |run: &str| std::fs::read(place.join(run).join("tables").join(&table)).unwrap();
        assert!(of(one) == of(other), "{table}");
    }
}

#[test]
fn counts_are_those_of_the_guest_and_every_cycle_has_its_service() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["--on", "sim:r4400-1994", "--vcpus", "2", "--verify"];
    let run = measured(&place, "first", &words);
    closes(&run);
    agrees(&run, 20);
    // dd reads and writes each byte by itself; what else reads and writes is little.
    for name in ["read", "write"] {
        let count = uint(service(&run, "syscall", name), "request_count");
        assert!((BYTES..BYTES + 100).contains(&count), "{name}: {count}");
    }
    for kind in ["demand-zero", "copy-on-write", "minor"] {
        assert!(uint(service(&run, "fault", kind), "request_count") > 0, "{kind}");
    }
    let sleep = service(&run, "syscall", "clock_nanosleep");
    assert_eq!(uint(sleep, "completed_count"), 1);
    let blocked = real(sleep, "blocked_mean_ns");
    // It leaves the CPU a little after its timer was set.
    assert!((19e6..25e6).contains(&blocked), "asleep for {blocked} ns");
    assert!(real(sleep, "latency_mean_ns") >= 20e6, "{sleep}");
    let waits = rows(&run, "waits");
    let slept = waits.iter().find(|row| row["service"] == "clock_nanosleep");
    assert_eq!(slept.map(|row| &row["wait"]), Some(&Json::from("sleep")), "{waits:?}");
    // The time of a CPU that is halted is idle: at least one of the two while the command sleeps.
    let idle = real(service(&run, "idle", "idle"), "self_total_ns");
    assert!(idle > 2.0 * blocked, "idle for {idle} ns");
    assert!(real(service(&run, "syscall", "execve"), "cpi_ratio") > 1.0);

    measured(&place, "second", &words);
    same_bytes(place.path(), "first", "second");
}

#[test]
fn without_a_model_there_are_counts_and_no_stalls() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let run = measured(&place, "plain", &["--on", "sim"]);
    closes(&run);
    agrees(&run, 2);
    assert!(rows(&run, "services").iter().all(|row| row["data_mcpi_ratio"].is_null()));
    let absent = run["absent"].as_array().unwrap();
    assert!(absent.iter().any(|one| one["what"] == "memory stalls"), "{absent:?}");
}

/// Two processes write to one file: each write takes the file's semaphore. The place and the service that
/// waits for it are found by name, and the service waits for nothing else.
#[test]
fn a_contended_lock_is_found_by_name() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let writes = "dd if=/dev/zero of=/tmp/x bs=4k count=100 conv=notrunc";
    let line = format!("{writes} & {writes}; wait");
    let words = ["services", "-q", "--json", "--on", "sim", "--vcpus", "2", "--locks", "--", &line];
    let run = place.run(&words).assert_code(0).json();
    closes(&run);
    let contended = |row: &&Json| uint(row, "contended_count") > 10;
    let found: Vec<&Json> = rows(&run, "locks").iter().filter(contended).collect();
    let by_name = |row: &&&Json| {
        let place = row["place"].as_str().unwrap_or_default();
        row["kind"] == "rwsem write" && place.starts_with("generic_file_write_iter+")
    };
    let file = found.iter().find(by_name).unwrap_or_else(|| panic!("{found:?}"));
    assert!(uint(file, "acquire_count") >= 200, "{file}");
    assert!(real(file, "waited_total_ns") > 0.0 && real(file, "held_total_ns") > 0.0, "{file}");
    assert!(uint(service(&run, "lock", "rwsem write (wait)"), "request_count") > 10);
    for row in rows(&run, "locks") {
        assert!(uint(row, "contended_count") <= uint(row, "acquire_count"), "{row}");
    }
}
