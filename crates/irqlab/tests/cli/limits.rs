//! The command in a process that may use less than the machine has: cpusets, control groups, taskset, and
//! namespaces with clocks and process numbers of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

use crate::support::{CommandOutput, IRQLAB, Place, absence, alone, can_measure_as_root, rows};

/// A day ahead of the kernel's clock.
const DAY_S: u64 = 86_400;

/// A control group of the test's own, which is removed at the end.
struct Group(PathBuf);

impl Group {
    /// A group of version 1 below the root group of a controller, with these settings. `None` where there is
    /// no such hierarchy.
    fn below_root(controller: &str, settings: &[(&str, &str)]) -> Option<Group> {
        let name = format!("irqlab-test-{}-{controller}", std::process::id());
        let directory = Path::new("/sys/fs/cgroup").join(controller).join(name);
        if let Err(error) = fs::create_dir(&directory) {
            needs::not_run(needs::Need::Other, format!("a group of {controller}: {error}"));
            return None;
        }
        let group = Group(directory);
        for (file, text) in settings {
            fs::write(group.0.join(file), text).expect("a setting of the test's own group");
        }
        Some(group)
    }

    /// irqlab with these words in the group.
    fn run(&self, workspace: &Place, arguments: &[&str]) -> CommandOutput {
        let script = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&self.0).arg(IRQLAB).args(arguments);
        CommandOutput::of(command.current_dir(workspace.path()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0); // its processes have ended
    }
}

/// irqlab in new namespaces, with a journal of its own. `None` where they cannot be made.
fn in_namespaces(workspace: &Place, flags: &[&str], arguments: &[&str]) -> Option<CommandOutput> {
    let unshare = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        CommandOutput::of(unshare.arg("-m").args(flags).args(command).current_dir(workspace.path()))
    };
    let tried = unshare(&["true"]);
    if tried.code != Some(0) {
        needs::not_run(needs::Need::Namespaces, format!("unshare {flags:?}: {}", tried.err));
        return None;
    }
    let script = "mkdir -p /run/irqlab && mount -t tmpfs none /run/irqlab && exec \"$@\"";
    Some(unshare(&[&["sh", "-c", script, "sh", IRQLAB], arguments].concat()))
}

/// Two CPUs of this process: the tests restrict it to the second.
fn has_two_cpus() -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let has_both = cpus >= 2 && status.contains("Cpus_allowed_list:\t0-");
    if !has_both {
        needs::not_run(needs::Need::Cpus, "CPUs 0 and 1");
    }
    has_both
}

#[test]
fn in_a_cpuset_the_verbs_measure_its_cpus() {
    if !can_measure_as_root() || !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let Some(group) = Group::below_root("cpuset", &[("cpuset.cpus", "1"), ("cpuset.mems", "0")])
    else {
        return;
    };
    let workspace = Place::new();
    let run = |arguments: &[&str]| group.run(&workspace, arguments);
    for arguments in ["handlers -c 0", "noise -c 0", "watch --once -c 0", "footprint -c 0"] {
        let refused = run(&arguments.split(' ').collect::<Vec<_>>());
        refused.assert_code(2).assert_says("CPU 0 is not in this process's cpuset, which has 1");
    }
    let arguments =
        ["handlers", "-q", "-d", "50ms", "--events", "none", "--stimulus", "timer", "--json"];
    let handlers = run(&arguments).assert_code(0).json();
    assert_eq!(handlers["settings"]["cpus"], "1");
    assert_eq!(handlers["host"]["cpus_allowed"], "1");
    assert_eq!(absence(&handlers, "timer"), None, "{}", handlers["absent"]);
    assert!(!rows(&handlers, "handlers").is_empty(), "{handlers}");
    let noise = run(&["noise", "-q", "-d", "100ms", "--loop", "detour", "--json"]);
    let noise = noise.assert_code(0).json();
    assert_eq!(noise["settings"]["cpus"], "1");
    let watch = run(&["watch", "--once", "-i", "100ms", "-q", "--json"]).assert_code(0).json();
    assert!(rows(&watch, "rates").iter().all(|row| row["cpu"] != "0"), "{watch}");
    run(&["services", "-q", "--json", "--", "true"]).assert_code(0);
    // Sender and receiver need a CPU each.
    let signal = run(&["signal", "run", "--rig", "threads", "-q"]);
    signal.assert_code(4).assert_says("this process may use only one");
    let doctor = run(&["doctor", "--json"]).assert_code(0).json();
    let findings = doctor["findings"].as_array().unwrap();
    let cpus = findings.iter().find(|finding| finding["subject"] == "allowed CPUs").unwrap();
    assert_eq!(cpus["status"], "limited");
    assert!(cpus["says"].as_str().unwrap().starts_with("1 of 0-"), "{cpus}");
}

#[test]
fn under_taskset_its_cpus_are_the_default_and_others_can_be_named() {
    if !can_measure_as_root() || !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new("taskset");
        command.args(["-c", "1", IRQLAB]).args(arguments).current_dir(workspace.path());
        CommandOutput::of(&mut command).assert_code(0).json()
    };
    let arguments = ["noise", "-q", "--no-trace", "-d", "50ms", "--loop", "detour", "--json"];
    assert_eq!(run(&arguments)["settings"]["cpus"], "1");
    let named = run(&[&arguments[..], &["-c", "0"]].concat());
    assert_eq!(
        (&named["settings"]["cpus"], &named["settings"]["observer_cpus"]),
        (&"0".into(), &"1".into())
    );
}

#[test]
fn under_a_memory_limit_the_busy_load_fits() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let limit = 512_u64 << 20;
    let text = limit.to_string();
    let Some(group) = Group::below_root("memory", &[("memory.limit_in_bytes", &text)]) else {
        return;
    };
    let workspace = Place::new();
    let arguments = ["handlers", "-q", "-c", "0", "-d", "50ms", "--events", "none", "--json"];
    let arguments =
        [&arguments[..], &["--load", "busy", "--stimulus", "none", "--rate", "low"]].concat();
    let run = group.run(&workspace, &arguments).assert_code(0).json();
    let text = run.to_string();
    assert!(text.contains(&format!("\"memory_limit_bytes\":{limit}")), "{text}");
    assert_eq!(run["host"]["memory_limit_bytes"], limit);
    let arguments = ["footprint", "-q", "-c", "0", "--stimulus", "timer", "--level", "l2"];
    let footprint =
        group.run(&workspace, &[&arguments[..], &["--geometry", "l2=512MiB:16:64"]].concat());
    footprint.assert_code(4).assert_says("a control group's limit of 512 MiB");
}

#[test]
fn a_run_under_a_cpu_quota_says_how_often_it_was_stopped() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let settings = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")];
    let Some(group) = Group::below_root("cpu", &settings) else { return };
    let workspace = Place::new();
    let arguments =
        ["noise", "-q", "--no-trace", "-c", "0", "-d", "400ms", "--loop", "detour", "--json"];
    let run = group.run(&workspace, &arguments).assert_code(0).json();
    assert_eq!(run["host"]["cpu_quota_cpus"], 0.2);
    let text = run.to_string();
    assert!(text.contains("\"cpu_quota_throttled_ns\":"), "{text}");
    // On a machine with much other work the loop may not get its quota.
    let is_stopped = !text.contains("\"cpu_quota_throttled_periods\":0,");
    let warnings = run["warnings"].to_string();
    assert_eq!(warnings.contains("a CPU quota of 0.20 CPUs"), is_stopped, "{text}");
}

/// Asserts that marks and entry latencies explain a part of the time that each CPU's loop lost.
#[track_caller]
fn check_explained(noise: &Json) {
    assert!(noise["settings"]["entry_latency_max_ns"].is_number(), "{}", noise["warnings"]);
    for row in rows(noise, "noise") {
        assert!(row["attributed_ns"].as_u64() > Some(0), "{row}");
        assert!(row["entry_exit_ns"].as_u64() > Some(0), "{row}");
    }
    assert!(!rows(noise, "noise").is_empty(), "{noise}");
}

const NOISE: [&str; 8] = ["noise", "-q", "-c", "0", "-d", "500ms", "--loop", "detour"];

#[test]
fn in_a_time_namespace_marks_and_loops_have_one_clock() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let day = DAY_S.to_string();
    let forked = ["--time", "--monotonic", &day, "--boottime", &day, "--fork"];
    let arguments = [&NOISE[..], &["--json"]].concat();
    let Some(noise) = in_namespaces(&workspace, &forked, &arguments) else { return };
    let noise = noise.assert_code(0).json();
    let settings = &noise["settings"];
    assert_eq!(settings["kernel_clock_offset_ns"], DAY_S * 1_000_000_000, "{settings}");
    assert_eq!(settings["kernel_clock_offset_error_max_ns"], 0, "{settings}");
    check_explained(&noise);
    // The program that unshares may or may not be in the namespace itself.
    let itself = &forked[..forked.len() - 1];
    let noise = in_namespaces(&workspace, itself, &arguments).expect("as before");
    check_explained(&noise.assert_code(0).json());
    let arguments = ["watch", "--once", "-i", "200ms", "-q", "--json"];
    let watch = in_namespaces(&workspace, &forked, &arguments).expect("as before");
    let watch = watch.assert_code(0).json();
    let observed_ns = watch["observer"]["length_ns"].as_u64().unwrap();
    assert!(observed_ns < DAY_S * 1_000_000_000 / 2, "{observed_ns}");
}

#[test]
fn in_a_pid_namespace_the_loops_thread_is_recognised() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let arguments = [&NOISE[..], &["--json"]].concat();
    let flags = ["--pid", "--fork", "--mount-proc"];
    let Some(noise) = in_namespaces(&workspace, &flags, &arguments) else { return };
    check_explained(&noise.assert_code(0).json());
    let arguments = ["handlers", "-q", "-c", "0", "-d", "50ms", "--events", "none", "--json"];
    let arguments = [&arguments[..], &["--stimulus", "none"]].concat();
    let handlers = in_namespaces(&workspace, &flags, &arguments).expect("as before");
    let handlers = handlers.assert_code(0).json();
    let threads = absence(&handlers, "threads of device IRQs");
    assert_eq!(threads, None, "what /proc hides is not absent: {}", handlers["absent"]);
}
