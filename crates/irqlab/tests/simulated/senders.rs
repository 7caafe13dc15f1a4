//! `irqlab handlers --senders` on a simulated machine. Without QEMU the tests say so and pass.

use serde_json::Value as Json;

use crate::support::{Place, can_simulate, rows, uint};
use crate::user_functions::write_program;

/// How often `senders.S` calls membarrier(2) and munmap(2), and makes CPU 1 reschedule.
const CALLS: u64 = 200;
const UNMAPS: u64 = 100;
const RESCHEDULES: u64 = 50;

/// Runs `senders.S` on two vCPUs, with `options`.
fn run_program(workspace: &Place, options: &[&str]) -> Json {
    let written = write_program(workspace.path(), "senders.S", &[], "/tmp/sends");
    let command = format!("{written}; /tmp/sends");
    let arguments = ["handlers", "-q", "--json", "--on", "sim", "--vcpus", "2"];
    let arguments = [&arguments[..], options, &["--", &command]].concat();
    workspace.run(&arguments).assert_code(0).json()
}

/// The rows of the program's calls of a function.
fn calls_of<'a>(run: &'a Json, function: &str) -> Vec<&'a Json> {
    let is_call =
        |row: &&Json| row["kind"] == "call" && row["name"] == function && row["sender"] == "sends";
    rows(run, "senders").iter().filter(is_call).collect()
}

/// Further calls of the program: the kernel may flush its memory on the other CPU when the program starts or ends.
const FURTHER: u64 = 10;

/// Each planted call has its run, its sender, its times, and an arrow in the timeline. A call is not queued while CPU 1 runs another task for a
/// while, so there may be fewer than system calls.
#[test]
fn each_planted_call_is_joined_to_its_run() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    // A timeline has the arrows of senders, so it switches them on.
    let run = run_program(&workspace, &["--trace", "1MiB"]);
    for (function, site, planted) in [
        ("ipi_mb", "membarrier_private_expedited", CALLS),
        ("flush_tlb_func", "on_each_cpu_cond_mask", UNMAPS),
    ] {
        let calls = calls_of(&run, function);
        let senders = rows(&run, "senders");
        let [call] = calls[..] else { panic!("{function}: {senders:#?}") };
        let count = uint(call, "count");
        assert!((planted / 4..=planted + FURTHER).contains(&count), "{planted}: {call}");
        assert_eq!(uint(call, "joined_count"), count, "{call}");
        assert_eq!(uint(call, "unjoined_count"), 0, "{call}");
        assert_eq!(call["sender_kind"], "task", "{call}");
        assert_eq!(call["call_site"], site, "{call}");
        assert_eq!(call["waits"], true, "{call}");
        assert!(call["target_cpus"].as_str().is_some_and(|cpus| cpus.contains('1')), "{call}");
        assert!(call["run_mean_ns"].as_f64() > Some(0.0), "{call}");
        assert!(call["completion_mean_ns"].as_f64() > call["run_mean_ns"].as_f64(), "{call}");
        assert!(call["probe_overhead_mean_ns"].is_null(), "nothing is subtracted: {call}");
    }
    // Each call has an arrow to the vector that executes it.
    let events = rows(&run, "timeline");
    let calls: Vec<&Json> =
        events.iter().filter(|row| row["kind"] == "call" && row["name"] == "ipi_mb").collect();
    assert_eq!(calls.len() as u64, uint(calls_of(&run, "ipi_mb")[0], "count"));
    for call in calls {
        let target = events.iter().find(|row| row["event"] == call["to_event"]).expect("a target");
        assert_eq!(target["name"], "call_function_single", "{call}");
        assert_eq!((uint(call, "cpu"), uint(target, "cpu")), (0, 1), "{call}");
    }
    // A call that is queued while no other call waits has its own interrupt.
    let interrupts: u64 = rows(&run, "senders")
        .iter()
        .filter(|row| row["kind"] == "interrupt" && row["name"] == "call_function_single")
        .map(|row| uint(row, "count"))
        .sum();
    let handled: u64 = rows(&run, "handlers")
        .iter()
        .filter(|row| row["name"] == "call_function_single" && row["cpu"] == "all")
        .map(|row| uint(row, "count"))
        .sum();
    // One may be sent before the window, and interrupts that are sent while one is pending merge.
    assert!(handled <= interrupts + 1, "{interrupts} sent, {handled} handled");
    assert!(handled * 100 >= interrupts * 95, "{interrupts} sent, {handled} handled");
}

/// Each planted reschedule interrupt has the interrupt that CPU 1 took, its sender and its delay, and an arrow in the
/// timeline. Its sender does not wait.
#[test]
fn each_planted_reschedule_interrupt_is_joined_to_its_span() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = run_program(&workspace, &["--trace", "1MiB"]);
    let is_reschedule = |row: &&Json| row["kind"] == "interrupt" && row["name"] == "reschedule";
    let senders = rows(&run, "senders");
    let planted: Vec<&Json> =
        senders.iter().filter(is_reschedule).filter(|row| row["sender"] == "sends").collect();
    let sum = |rows: &[&Json], column: &str| rows.iter().map(|row| uint(row, column)).sum::<u64>();
    let count = sum(&planted, "count");
    // An interrupt is not sent while CPU 1 is about to reschedule anyway.
    assert!((RESCHEDULES / 4..=RESCHEDULES + FURTHER).contains(&count), "{senders:#?}");
    for row in planted {
        assert_eq!(row["joined_count"], row["count"], "{row}");
        assert_eq!(uint(row, "unjoined_count"), 0, "{row}");
        assert!(row["delay_mean_ns"].is_number(), "{row}");
        for column in ["run_mean_ns", "completion_mean_ns", "waits"] {
            assert!(row[column].is_null(), "{column}: {row}");
        }
    }
    let joined = sum(&senders.iter().filter(is_reschedule).collect::<Vec<_>>(), "joined_count");
    let events = rows(&run, "timeline");
    let arrows: Vec<&Json> = events.iter().filter(|row| row["kind"] == "send").collect();
    assert_eq!(arrows.len() as u64, joined, "{senders:#?}");
    for arrow in arrows {
        let target = events.iter().find(|row| row["event"] == arrow["to_event"]).expect("a target");
        assert_eq!((&arrow["name"], &target["name"]), (&"reschedule".into(), &"reschedule".into()));
        assert_ne!(arrow["cpu"], target["cpu"], "{arrow}");
    }
}

/// The option only observes: the guest does the same at the same times, and all other tables stay as they are. So does
/// `--delays` on an out-of-order model. A core of several threads shows instructions that issue earlier.
#[test]
fn senders_change_no_other_table() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let tables = |bench: &str, options: &[&str]| {
        let line =
            "handlers -q --json --vcpus 2 --load idle --rate high --stimulus ipi -d 10ms --on";
        let words = line.split_whitespace().chain([bench]).chain(options.iter().copied());
        let run = workspace.run(&words.collect::<Vec<_>>()).assert_code(0).json();
        run["tables"].as_object().expect("tables").clone()
    };
    let observers: [(&str, &[&str]); 3] = [
        ("sim", &["senders", "delays"]),
        ("sim:zen3", &["senders", "delays"]),
        ("sim:t1", &["senders"]),
    ];
    for (bench, observed) in observers {
        let options: Vec<String> = observed.iter().map(|table| format!("--{table}")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut with = tables(bench, &options);
        for table in observed {
            let observed = with.remove(*table).unwrap_or_else(|| panic!("no table {table}"));
            assert!(!observed.as_array().expect("rows").is_empty() && with.len() > 2, "{with:?}");
        }
        assert_eq!(with, tables(bench, &[]), "{bench}");
    }
}
