//! What this machine, or these rights, do not give: the row is absent with its reason, the rest
//! runs; and when nothing is left, exit code 4 with the line that unlocks it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{
    CommandOutput, IRQLAB, Place, absence, alone, can_measure, can_measure_as_root, names, rows,
};

const SHORT: [&str; 6] = ["handlers", "-q", "-d", "100ms", "--warm-up", "10ms"];

fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

/// The conditions that have rows in table `conditions`.
fn conditions(run: &serde_json::Value) -> Vec<&str> {
    rows(run, "conditions").iter().filter_map(|row| row["condition"].as_str()).collect()
}

#[test]
fn without_rights_nothing_is_measured_and_the_setcap_line_is_given() {
    if !can_measure_as_root() {
        return;
    }
    let place = Place::new();
    // Where this user can get at it, wherever the build directory is.
    let program = place.path().join("irqlab");
    std::fs::copy(IRQLAB, &program).unwrap();
    let work = place.path().join("work");
    std::fs::create_dir(&work).unwrap();
    for (path, mode) in [(place.path(), 0o755), (&program, 0o755), (&work, 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let ended = CommandOutput::of(command.arg(&program).arg("handlers").current_dir(&work));
    let line = format!("sudo setcap cap_bpf,cap_perfmon+ep {}", program.display());
    ended.assert_code(4).assert_says("irqlab: nothing can be measured: ");
    ended.assert_says("Operation not permitted").assert_says(&line);
    assert_eq!(ended.out, "");
    assert!(names(&work).is_empty(), "nothing half done: {:?}", names(&work));
}

/// The command without the rights of the net stimulus and without a user namespace: a process in a
/// chroot may not make one.
fn without_namespaces(place: &Place, root: &Path, words: &[&str]) -> CommandOutput {
    let script = "mount --rbind / \"$1\" && root=$1 && shift && exec chroot \"$root\" \
                  setpriv --bounding-set=-sys_admin,-net_admin,-sys_chroot \
                  --inh-caps=-sys_admin,-net_admin,-sys_chroot \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(root).arg(IRQLAB).args(words);
    CommandOutput::of(command.current_dir(place.path()))
}

#[test]
fn refused_namespaces_leave_the_other_conditions() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let (place, root) = (Place::new(), Place::new());
    let out = place.path().join("run").display().to_string();
    let words = short(&["--stimulus", "net,none", "--rate", "low", "--json", "--out", &out]);
    let ended = without_namespaces(&place, root.path(), &words);
    let run = ended.assert_code(0).json();
    assert_eq!(conditions(&run), ["idle/none"]);
    let reason = absence(&run, "idle/low/net").expect("the net condition is absent");
    assert!(!reason.is_empty());
    assert_eq!(run["complete"], true, "what is absent for a reason does not cut a run short");

    let out = place.path().join("none").display().to_string();
    let words = short(&["--stimulus", "net", "--out", &out]);
    let ended = without_namespaces(&place, root.path(), &words);
    ended.assert_code(4).assert_says("irqlab: nothing can be measured: idle/low/net: ");
    assert_eq!(place.names(), ["run"]);
}

#[test]
fn a_disk_that_cannot_be_read_leaves_the_other_conditions() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let words = short(&[
        "--stimulus",
        "disk,none",
        "--disk-file",
        "/nonexistent",
        "--json",
        "--rate",
        "low",
    ]);
    let run = place.run(&words).assert_code(0).json();
    assert_eq!(conditions(&run), ["idle/none"]);
    let reason = absence(&run, "idle/low/disk").expect("the disk condition is absent");
    assert_eq!(reason, "cannot read /nonexistent: No such file or directory (os error 2)");

    let ended = place.run(&short(&["--stimulus", "disk", "--disk-file", "/nonexistent"]));
    ended.assert_code(4).assert_says("idle/low/disk: cannot read /nonexistent");
    ended.assert_says("to unlock it:\n  set TMPDIR to a directory on a disk, or name an existing");
}

#[test]
fn a_disk_that_is_memory_is_refused() {
    let Ok(mut file) = tempfile::NamedTempFile::new_in("/dev/shm") else {
        return needs::not_run(needs::Need::Other, "no /dev/shm");
    };
    if !can_measure() {
        return;
    }
    std::io::Write::write_all(&mut file, &[0; 1 << 16]).unwrap();
    let place = Place::new();
    let path = file.path().display().to_string();
    let ended = place.run(&short(&["--stimulus", "disk", "--disk-file", &path]));
    ended.assert_code(4).assert_says("is memory: reading it raises no disk interrupt");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn ipis_to_one_measured_cpu() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let ended = place.run(&short(&["-c", "0", "--stimulus", "ipi", "--rate", "high", "--json"]));
    if ended.code == Some(4) {
        ended.assert_says("idle/high/ipi: ");
        return needs::not_run(needs::Need::Cpus, &ended.err);
    }
    let run = ended.assert_code(0).json();
    assert_eq!(conditions(&run), ["idle/high/ipi"]);
    assert!(rows(&run, "conditions")[0]["stimulus_operation_count"].as_u64() > Some(0));
    let handlers = rows(&run, "handlers");
    assert!(!handlers.is_empty(), "{run}");
    assert!(handlers.iter().all(|row| row["cpu"] == "all" || row["cpu"] == "0"), "{run}");
}

#[test]
fn an_unknown_event_is_absent_and_the_rest_is_counted() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let events = "cpu-clock,context-switches,no-such-event,nor-this/one/";
    // Timers, so that also an idle machine has spans enough for an interval.
    let words = ["--stimulus", "timer", "--rate", "high", "-c", "0", "--events", events, "--json"];
    let run = place.run(&short(&words)).assert_code(0).json();
    let absent = absence(&run, "PMU events no-such-event nor-this/one/");
    assert_eq!(absent, Some("this machine has no events of these names"));
    let counted = rows(&run, "events");
    assert!(counted.iter().any(|row| row["event"] == "cpu-clock" && row["self_total"] != 0));
    assert!(rows(&run, "ratios").is_empty(), "no ratio is made of these events");
    // The mean of each has an interval, or the reason why it has none.
    for row in counted {
        let (half_width, method) = (&row["self_mean_ci95"], row["self_mean_ci95_method"].as_str());
        let is_interval = method.is_some_and(|method| method.starts_with("batch-means"));
        assert!(half_width.is_f64() == is_interval && method.is_some(), "{row}");
    }
    let mut clock = counted.iter().filter(|row| row["event"] == "cpu-clock");
    assert!(clock.any(|row| row["self_mean_ci95"].is_f64()), "{counted:?}");
}
