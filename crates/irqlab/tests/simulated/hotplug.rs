//! The live benches in a machine whose CPU goes offline and comes back during a measurement. Without QEMU, prints that
//! the tests did not run, and passes.

use serde_json::Value as Json;

use crate::support::{CommandOutput, Place, can_simulate, rows};

/// Line that comes before the document of a run.
const MARK: &str = "=== ";

/// Waits until CPU 1 has taken three more timer interrupts.
const INTERRUPTED: &str = "\
count() { awk '/LOC:/ { print $3 }' /proc/interrupts; }
last=$(( $(count) + 3 ))
while [ $(count) -lt $last ]; do taskset 2 /bin/busybox sleep 0.01; done
";

/// The common part of all scripts. Nothing in it depends on how fast the machine is: each part waits for what it
/// needs. `loop_runs` is true once the loop on CPU 1 has run for 50 ms, `measures` once footprint repeats in its third
/// round.
const SETUP: &str = "\
c=/sys/devices/system/cpu/cpu1/online
sh='/bin/busybox sh -c'
off() { echo 0 > $c; }
on() { echo 1 > $c; }
show() { echo; echo \"=== $1\"; }
run() { show $1; irqlab show $1 --json; }
wait_for() { tries=0; until $1 || [ $tries = 3000 ]; do tries=$((tries+1)); sleep 0.02; done; }
loop_runs() { cat /proc/[0-9]*/task/*/stat 2> /dev/null |
  awk '$2 == \"(irqlab-loop)\" && $39 == 1 && $14 + $15 >= 5 { runs = 1 } END { exit !runs }'; }
measures() { grep -sq '\\[3/' /tmp/steps; }
";

/// `handlers` and `services` measure a command that takes CPU 1 away, and a command that also brings CPU 1 back.
/// `watch` loses CPU 1 after a line with its rates. `noise` and `footprint` lose CPU 1 in a window, and cannot pin to
/// it after the window. Footprint prints each round's start on stderr, and CPU 1 goes long before the last of its 100
/// rounds.
const SCRIPT: &str = "\
irqlab handlers -q --events none --out away -- $sh \". /tmp/interrupted; echo 0 > $c\" > /dev/null; run away; on
irqlab handlers -q --events none --out back -- $sh \". /tmp/interrupted; echo 0 > $c; echo 1 > $c\" > /dev/null
run back
irqlab services -q --out served -- $sh \". /tmp/interrupted; echo 0 > $c; ls / > /dev/null\" > /dev/null; run served; on
irqlab services -q --out again -- $sh \". /tmp/interrupted; echo 0 > $c; echo 1 > $c\" > /dev/null; run again
part=seen; irqlab watch --json -i 100ms -d 60s | while read -r line; do
  case $part:$line in
  seen:*'\"cpu\":\"1\"'*) show seen; echo \"$line\"; off; part=leaves;;
  leaves:*'\"complete\":false'*) part=lost;;
  lost:*) show lost; echo \"$line\"; break;;
  esac; done; on
(wait_for loop_runs; off) &
irqlab noise -q --no-trace --loop detour,fwq -d 800ms --warm-up 10ms --out noise > /dev/null; wait; run noise; on
(wait_for measures; off) &
irqlab footprint -v -c 1 --level l1d --stimulus timer --rounds 100 --out footprint > /dev/null 2> /tmp/steps
wait; run footprint
";

/// The document of the run of that name.
fn run(console: &str, name: &str) -> Json {
    let start = format!("{MARK}{name}");
    let after = console.lines().skip_while(|line| line.trim_end() != start).skip(1);
    let text: Vec<&str> = after.take_while(|line| !line.starts_with(MARK)).collect();
    let text = text.join("\n");
    let mut documents = serde_json::Deserializer::from_str(&text).into_iter::<Json>();
    match documents.next() {
        Some(Ok(document)) => document,
        other => panic!("{name}: {other:?} in {console}"),
    }
}

/// The warning with these words.
#[track_caller]
fn warning<'a>(run: &'a Json, arguments: &str) -> &'a str {
    let warnings = run["warnings"].as_array().expect("warnings");
    let found = warnings.iter().filter_map(Json::as_str).find(|text| text.contains(arguments));
    found.unwrap_or_else(|| panic!("no warning has {arguments:?}: {warnings:?}"))
}

/// The CPU's row of a context in table `handlers`.
fn context<'a>(run: &'a Json, cpu: &str, name: &str) -> &'a Json {
    let is_it = |row: &&Json| row["cpu"] == cpu && row["name"] == name;
    rows(run, "handlers").iter().find(is_it).unwrap_or_else(|| panic!("{cpu} {name}: {run}"))
}

/// CPU 1 was measured until it left, CPU 0 to the end, and what both count is what the kernel counts.
fn measured_until_it_left(run: &Json) {
    assert_eq!(run["complete"], false);
    assert_eq!(rows(run, "conditions")[0]["offline_cpu_count"], 1);
    assert!(context(run, "0", "local_timer")["offline_after_ns"].is_null());
    let timer = context(run, "1", "local_timer");
    let number = |column: &str| timer[column].as_f64().expect("a number");
    let observed_ns = number("offline_after_ns");
    let window_ns = rows(run, "conditions")[0]["window_ns"].as_f64().expect("a window");
    assert!(observed_ns > 0.0 && observed_ns < window_ns, "{observed_ns} of {window_ns}");
    let share = number("self_total_ns") / observed_ns;
    assert!((number("self_cpu_ratio") / share - 1.0).abs() < 1e-9, "{timer}");
    let rate_hz = number("count") * 1e9 / observed_ns;
    assert!((number("rate_hz") / rate_hz - 1.0).abs() < 1e-9, "{timer}");
    let lines = rows(run, "agreement");
    let of_cpu_1 = lines.iter().filter(|line| line["cpu"] == 1 && line["kernel_count"].is_u64());
    assert!(of_cpu_1.count() >= 3, "{lines:?}");
    assert!(lines.iter().all(|line| line["agrees"] != false), "{lines:?}");
    let offline_warning = warning(run, "CPU 1: went offline in the window: measured until then");
    let after = format!("(after {:.3} s)", observed_ns / 1e9);
    assert!(offline_warning.ends_with(&after), "{offline_warning}: {after}");
}

/// The time of CPU 1 until it left is in the rows, to the nanosecond.
fn served_until_it_left(run: &Json) {
    assert_eq!(run["complete"], false);
    let lines = rows(run, "agreement");
    assert!(!lines.is_empty() && lines.iter().all(|line| line["agrees"] == true), "{lines:?}");
    let time_ns = |cpu: &str, part: &str| {
        let is_it = |row: &&Json| row["cpu"] == cpu && row["part"] == part;
        let row = rows(run, "cpu_times").iter().find(is_it).unwrap_or_else(|| panic!("{run}"));
        row["self_total_ns"].as_u64().expect("a time")
    };
    let [stayed, left] = ["0", "1"].map(|cpu| time_ns(cpu, "window"));
    assert!(0 < left && left < stayed, "{left} {stayed}");
    assert_eq!(left, time_ns("1", "sum"));
    let after = format!("(after {:.3} s)", left as f64 / 1e9);
    let offline_warning = warning(run, "CPU 1: went offline in the window: measured until then");
    assert!(offline_warning.ends_with(&after), "{offline_warning}: {after}");
    let warnings = run["warnings"].as_array().expect("warnings");
    let is_of_gate = |text: &Json| text.as_str().is_some_and(|text| text.contains("did not close"));
    assert!(!warnings.iter().any(is_of_gate), "{warnings:?}");
}

/// Rows and time of CPU 1 end, so the rates of all CPUs are the rates of CPU 0.
fn watched_until_it_left(console: &str) {
    let first = run(console, "seen");
    assert!(rows(&first, "rates").iter().any(|row| row["cpu"] == "1"), "{first}");
    assert_eq!(first["complete"], true);
    // The previous line is the line of the interval when the CPU left.
    let last = run(console, "lost");
    assert!(rows(&last, "rates").iter().all(|row| row["cpu"] != "1"), "{last}");
    assert_eq!(last["complete"], false);
    let of_all = |row: &&Json| row["cpu"] == "all" && row["name"] == "local_timer";
    let all = rows(&last, "rates").iter().find(of_all).expect("a timer");
    let counted = all["count"].as_f64().expect("a count") * 1e9;
    let length_ns = last["observer"]["length_ns"].as_f64().expect("a length");
    assert!((all["rate_hz"].as_f64().expect("a rate") * length_ns / counted - 1.0).abs() < 1e-9);
    warning(&last, "CPU 1: went offline in the window");
}

fn looped_until_it_left(run: &Json) {
    assert_eq!(run["complete"], false);
    let window_ns = |cpu: u64| {
        let row = rows(run, "noise").iter().find(|row| row["cpu"] == cpu).expect("a row");
        (row["window_ns"].as_u64().expect("a window"), row["migration_count"].as_u64())
    };
    let ((whole_ns, stayed), (part_ns, left)) = (window_ns(0), window_ns(1));
    assert!(whole_ns >= 799_000_000 && part_ns < whole_ns, "{part_ns} of {whole_ns}");
    assert_eq!((stayed, left), (Some(0), Some(1)));
    warning(run, "detour: CPU 1: went offline in the window");
    // The next loop has a window on the other CPU.
    let cpus: Vec<_> = rows(run, "fwq").iter().map(|row| row["cpu"].as_u64()).collect();
    assert_eq!(cpus, [Some(0)]);
    let absent = run["absent"].as_array().expect("absences");
    assert!(absent.iter().any(|absence| absence["what"] == "CPU 1"), "{absent:?}");
}

/// The measured part of a run stays, and it has nothing from another CPU.
fn filled_until_it_left(run: &Json) {
    assert_eq!(run["complete"], false);
    assert!(!rows(run, "footprint").is_empty(), "{run}");
    let absent = run["absent"].as_array().expect("absences");
    let lost = |absence: &Json| {
        absence["reason"]
            .as_str()
            .is_some_and(|why| why.contains("CPU 1 was lost while it was measured"))
    };
    assert_eq!(absent.iter().filter(|absence| lost(absence)).count(), 1, "{absent:?}");
    let offline = |absence: &Json| absence["reason"] == "CPU 1 is offline";
    assert!(absent.iter().any(offline), "{absent:?}");
}

/// The console of a machine of two CPUs that has executed a script.
fn in_guest(workspace: &Place, kernel: &[&str], script: &str) -> CommandOutput {
    let script = format!("{SETUP}cat > /tmp/interrupted <<'END'\n{INTERRUPTED}END\n{script}");
    let machine = ["sim", "boot", "-q", "--vcpus", "2", "--with-irqlab", "--append", "quiet"];
    let ended = workspace.run(&[&machine[..], kernel, &["--", &script]].concat());
    ended.assert_code(0);
    ended
}

#[test]
fn a_cpu_that_goes_offline_is_measured_until_then() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let ended = in_guest(&workspace, &[], SCRIPT);
    let away = run(&ended.out, "away");
    measured_until_it_left(&away);
    assert_eq!(away["settings"]["offline_cpus_seen_by"], "cpuhp_enter");
    let back = run(&ended.out, "back");
    measured_until_it_left(&back);
    warning(&back, "command: CPU 1: came online in the window");
    served_until_it_left(&run(&ended.out, "served"));
    let again = run(&ended.out, "again");
    served_until_it_left(&again);
    warning(&again, "CPU 1: came online in the window");
    watched_until_it_left(&ended.out);
    looped_until_it_left(&run(&ended.out, "noise"));
    filled_until_it_left(&run(&ended.out, "footprint"));
}

/// The first window loses no CPU. A softirq that is preempted loses its end, and is counted: when one is preempted depends on
/// the program's length, so a few may be.
const REAL_TIME_SCRIPT: &str = "\
irqlab services -q --out whole -- $sh \"ls -lR /proc/sys > /dev/null\" > /dev/null; run whole
irqlab services -q --out served -- $sh \". /tmp/interrupted; echo 0 > $c\" > /dev/null; run served; on
irqlab handlers -q --events none --out away -- $sh \". /tmp/interrupted; echo 0 > $c\" > /dev/null; run away
";

#[test]
fn a_kernel_with_preempt_rt_measures_a_cpu_until_then_too() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let kernel = workspace.run(&["sim", "facts", "--flavour", "rt", "handle_softirqs"]);
    if kernel.code != Some(0) {
        return needs::not_run(needs::Need::Qemu, &kernel.err);
    }
    let ended = in_guest(&workspace, &["--flavour", "rt"], REAL_TIME_SCRIPT);
    let complete = run(&ended.out, "whole");
    assert!(complete["host"].to_string().contains("-rt-"), "{}", complete["host"]);
    assert_eq!(complete["complete"], true);
    let observed = |key: &str| complete["observer"][key].as_u64().expect(key);
    assert!(observed("events_lost") * 100 <= observed("events"), "{}", complete["observer"]);
    assert_eq!(complete["warnings"], serde_json::json!([]), "{complete}");
    assert!(rows(&complete, "agreement").iter().all(|line| line["agrees"] == true), "{complete}");
    served_until_it_left(&run(&ended.out, "served"));
    measured_until_it_left(&run(&ended.out, "away"));
}

/// Takes CPU 1 away and brings it back.
fn away_and_back() -> String {
    format!(
        "c=/sys/devices/system/cpu/cpu1/online\n{INTERRUPTED}echo 0 > $c; sleep 0.01; echo 1 > $c; sleep 0.01"
    )
}

#[test]
fn the_simulator_measures_a_cpu_until_it_goes_offline() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let command = away_and_back();
    let measured = |verb: &[&str]| {
        let arguments = [verb, &["-q", "--vcpus", "2", "--json", "--", &command]].concat();
        workspace.run(&arguments).assert_code(0).json()
    };
    let handlers = measured(&["handlers", "--on", "sim"]);
    measured_until_it_left(&handlers);
    warning(&handlers, "command: CPU 1: came online in the window");

    // All of CPU 1's time before it went offline has a service, and its time afterwards has no service.
    let services = measured(&["services", "--on", "sim"]);
    assert_eq!(services["complete"], false);
    warning(&services, "CPU 1: went offline in the window: measured until then");
    warning(&services, "CPU 1: came online in the window");
    let sum = |table: &str| {
        let ticks = rows(&services, table).iter().map(|row| row["self_total_cycles"].as_u64());
        ticks.sum::<Option<u64>>().expect("cycles")
    };
    assert_eq!(sum("services"), sum("modes"));
    let lines = rows(&services, "agreement");
    assert!(lines.iter().all(|line| line["agrees"] == true), "{lines:?}");

    let contexts = measured(&["sim", "boot", "--detail", "count"]);
    assert_eq!(contexts["complete"], false);
    warning(&contexts, "CPU 1: went offline in the window: measured until then");
    let of_cpu = |cpu: &str| {
        let of_cpu = rows(&contexts, "contexts").iter().filter(|row| row["cpu"] == cpu);
        of_cpu.map(|row| row["self_instructions"].as_u64().expect("a count")).sum::<u64>()
    };
    assert!(0 < of_cpu("1") && of_cpu("1") < of_cpu("0"), "{contexts}");
}

#[test]
fn a_cpu_that_the_warm_up_takes_offline_is_named() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let off = "echo 0 > /sys/devices/system/cpu/cpu1/online";
    let options = ["services", "--on", "sim", "-q", "--vcpus", "2", "--json"];
    let arguments = [&options[..], &["--warm-up-command", off, "--", "true"]].concat();
    let services = workspace.run(&arguments).assert_code(0).json();
    warning(&services, "CPU 1 was offline when the window opened");
}
