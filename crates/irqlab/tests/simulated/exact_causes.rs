//! `wakeup --senders`, `noise --senders` and `handlers --by task` on the simulated bench, next to programs that interrupt the
//! measured CPU. The simulator sees each sender, so the names are exact, and all other numbers are as without the
//! option. Without QEMU the tests say so and pass.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::support::{Place, can_simulate, rows, uint};
use crate::user_functions::write_program;

/// Runs irqlab with the words of `line`, and with `more` words.
fn run(workspace: &Place, line: &str, more: &[&str]) -> Json {
    let words: Vec<&str> = line.split_whitespace().chain(more.iter().copied()).collect();
    workspace.run(&words).assert_code(0).json()
}

fn name(row: &Json) -> &str {
    row["name"].as_str().unwrap_or_default()
}

/// Sums of `causes` by the columns of text, where a sender's rows count for its vector.
fn sums(run: &Json) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in rows(run, "causes") {
        let vector = name(row).split(" from ").next().expect("a name").to_owned();
        let key = ["loop", "cpu", "class", "stage", "kind"].map(|column| row[column].to_string());
        *sums.entry(format!("{key:?} {vector}")).or_default() += uint(row, "total_ns");
    }
    sums
}

/// Checks that the cause of each function call is the program `task` in membarrier(2) on CPU 0, and that the run is as
/// the run `plain` without senders, but for the names in `tables_with_names`.
fn check_names(run: &Json, plain: &Json, task: &str, tables_with_names: &[&str]) {
    let is_call = |row: &&Json| name(row).starts_with("call_function");
    let calls: Vec<&Json> = rows(run, "causes").iter().filter(is_call).collect();
    assert!(!calls.is_empty(), "{:#?}", rows(run, "causes"));
    for call in calls {
        let cause = call["cause"].as_str().expect("a cause");
        let vector = name(call).strip_suffix(&format!(" from {task} (membarrier)"));
        let vector = vector.unwrap_or_else(|| panic!("{call}"));
        let process = cause.strip_prefix(&format!("{vector} from {task}["));
        let process = process.and_then(|rest| rest.strip_suffix("] (membarrier) on CPU 0"));
        let process: u32 = process.and_then(|text| text.parse().ok()).unwrap_or(0);
        assert!(process > 1, "{cause}");
    }
    let plain_calls = rows(plain, "causes").iter().filter(is_call);
    assert!(plain_calls.clone().count() > 0);
    assert!(plain_calls.clone().all(|row| !name(row).contains(" from ")));
    assert_eq!(sums(run), sums(plain));
    let others = |run: &Json| {
        let mut tables = run["tables"].as_object().expect("tables").clone();
        tables.retain(|name, _| !tables_with_names.contains(&name.as_str()));
        tables
    };
    assert!(others(run).len() >= 2, "{:?}", others(run).keys());
    assert_eq!(others(run), others(plain));
    assert_eq!(run["absent"], plain["absent"]);
}

/// The stimulus calls membarrier(2) on CPU 0, and has a thread on CPU 1.
#[test]
fn late_wake_ups_name_the_exact_sender_and_keep_their_times() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for bench in ["sim:r4400-smp8", "sim:zen3"] {
        let line = format!("wakeup -q --json --on {bench} --vcpus 2 -c 1 --stimulus ipi -d 20ms");
        let [with, plain] = [&["--senders"][..], &[]].map(|more| run(&workspace, &line, more));
        check_names(&with, &plain, "irqlab-ipi-call", &["causes", "worst_parts"]);
        let parts = rows(&with, "worst_parts").iter();
        let named = parts.filter(|row| row.to_string().contains("from irqlab-ipi-call["));
        assert!(named.count() > 0, "{:#?}", rows(&with, "worst_parts"));
    }
}

/// Each call that the stimulus sends to the measured CPU is in the flight record, with the interrupt that serves it. Without
/// senders, the record has the same rows, but for the names.
#[test]
fn a_flight_record_has_what_other_cpus_send() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "wakeup -q --json --on sim:r4400-smp8 --vcpus 2 -c 1 --stimulus ipi -d 20ms --flight-record 10ms";
    let [with, plain] = [&["--senders"][..], &[]].map(|more| run(&workspace, line, more));
    let is_send = |row: &&Json| row["kind"] == "send";
    let (sent, others): (Vec<&Json>, Vec<&Json>) =
        rows(&with, "flight_record").iter().partition(is_send);
    assert_eq!(others.len(), rows(&plain, "flight_record").len());
    let calls = || others.iter().filter(|row| name(row).starts_with("call_function"));
    assert!(calls().count() > 10, "{others:#?}");
    for call in calls() {
        let (start_ns, length_ns) = (uint(call, "start_ns"), uint(call, "length_ns"));
        let is_for_call =
            |row: &&&Json| (start_ns..=start_ns + length_ns).contains(&uint(row, "served_ns"));
        let of_call: Vec<_> = sent.iter().filter(is_for_call).collect();
        let [send] = &of_call[..] else { panic!("{call}: {of_call:#?}") };
        assert_eq!((&send["cpu"], &send["target_cpu"]), (&0.into(), &1.into()), "{send}");
        assert_eq!(name(send), "irqlab-ipi-call");
        assert!(uint(send, "start_ns") <= uint(send, "served_ns"), "{send}");
    }
    assert!(!rows(&plain, "flight_record").iter().any(|row| row["kind"] == "send"));
}

/// The tables of `noise` that name causes.
const TABLES_WITH_NAMES: [&str; 6] =
    ["causes", "detour_histogram_by_cause", "detours", "longest", "longest_parts", "lost_time"];

/// `senders.S` calls membarrier(2) on CPU 0, and has a thread on CPU 1.
#[test]
fn detours_name_the_exact_sender_and_keep_their_times() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    // The program goes on until it is ended.
    let calls_max = ["-Wa,--defsym,CALLS=2000000000"];
    let written = write_program(workspace.path(), "senders.S", &calls_max, "/tmp/sends");
    let command = format!("{written}; exec /tmp/sends");
    // The program's first membarrier(2) waits for a grace period of RCU.
    let line = "noise -q --json --on sim:zen3 --vcpus 2 -c 1 --loop detour -d 80ms --until end \
                --user-mode sampled";
    let [with, plain] = [&["--senders"][..], &[]]
        .map(|options| run(&workspace, line, &[options, &["--", &command]].concat()));
    check_names(&with, &plain, "sends", &TABLES_WITH_NAMES);
    // The names change no time.
    let lost_ns: u64 = rows(&with, "causes").iter().map(|row| uint(row, "total_ns")).sum();
    assert_eq!(lost_ns, uint(&rows(&with, "noise")[0], "lost_ns"));
}

/// A command that ends before the loop would leave a part of the window without it.
#[test]
fn a_command_that_ends_before_the_loop_is_an_error() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "noise -q --on sim --loop detour -d 20ms -- true";
    let ended = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    assert_ne!(ended.code, Some(0));
    ended.assert_says("the command ended before the loop did");
}

/// The cause of function calls and reschedule interrupts is the program, the victim is its thread on CPU 1, and the
/// times add up to table `handlers`, which is as without the option.
#[test]
fn the_cause_of_an_interrupt_from_another_cpu_is_its_sender() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let written = write_program(workspace.path(), "senders.S", &[], "/tmp/sends");
    let command = format!("{written}; /tmp/sends");
    let line = "handlers -q --json --on sim --vcpus 2";
    let [with, plain] = [&["--by", "task"][..], &[]]
        .map(|options| run(&workspace, line, &[options, &["--", &command]].concat()));
    assert_eq!(rows(&with, "handlers"), rows(&plain, "handlers"));
    assert!(with["tables"]["senders"].is_null(), "the table is an option of its own");
    let victims = rows(&with, "victims");
    for vector in ["call_function_single", "reschedule"] {
        let of_vector = || victims.iter().filter(move |row| row["name"] == vector);
        let planted = of_vector().find(|row| row["victim"] == "sends" && row["cause"] == "sends");
        let planted = planted.unwrap_or_else(|| panic!("{victims:#?}"));
        assert!(uint(planted, "count") > 10 && uint(planted, "self_total_ns") > 0, "{planted}");
        assert!(planted["cause_method"].is_string(), "{planted}");
        let sum: u64 = of_vector().map(|row| uint(row, "self_total_ns")).sum();
        let is_vector = |row: &&Json| row["name"] == vector && row["cpu"] == "all";
        let row = rows(&with, "handlers").iter().find(is_vector).expect("a row of the vector");
        assert_eq!(sum, uint(row, "self_total_ns"), "{victims:#?}");
    }
    let timer = victims.iter().find(|row| row["name"] == "local_timer").expect("ticks");
    assert!(timer["cause_method"].is_null() && timer["cause"] == "(unknown)", "{timer}");
}
