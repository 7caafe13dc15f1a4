//! Measurements without the needed rights or hardware. The row is absent with a reason, and the rest runs. If
//! nothing can run, irqlab exits with 4 and prints the line that unlocks it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    CommandOutput, IRQLAB, Place, absence, alone, can_measure, can_measure_as_root, names, rows,
};

const SHORT: [&str; 6] = ["handlers", "-q", "-d", "100ms", "--warm-up", "10ms"];

fn short<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], options].concat()
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
    let workspace = Place::new();
    let (program, work) = for_any_user(&workspace);
    let line = format!("sudo setcap cap_bpf,cap_perfmon+ep {}", program.display());
    for arguments in [&["handlers"][..], &["services", "--", "true"]] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        let ended = CommandOutput::of(command.arg(&program).args(arguments).current_dir(&work));
        let refusal = "irqlab: nothing can be measured: the kernel refuses BPF tracing programs: ";
        ended.assert_code(4).assert_says(refusal);
        ended.assert_says("Operation not permitted").assert_says(&line);
        assert_eq!(ended.out, "");
        assert!(names(&work).is_empty(), "nothing half done: {:?}", names(&work));
    }
}

/// A copy of the program that any user can start, and a directory that belongs to user 65534.
fn for_any_user(workspace: &Place) -> (PathBuf, PathBuf) {
    // Other users may not reach the build directory, but they reach the temporary directory.
    let (program, work) = (workspace.path().join("irqlab"), workspace.path().join("work"));
    std::fs::copy(IRQLAB, &program).unwrap();
    std::fs::create_dir(&work).unwrap();
    for path in [workspace.path(), &program, &work] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::chown(&work, Some(65534), Some(65534)).unwrap();
    (program, work)
}

/// The capability sets by name, from the lines that a program copied from its own /proc/PID/status.
fn capability_sets(file: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(file).unwrap();
    let set = |line: &str| {
        let (name, bits) = line.split_once(":\t")?;
        Some((name.to_owned(), u64::from_str_radix(bits, 16).unwrap()))
    };
    text.lines().filter_map(set).filter(|(name, _)| name != "CapBnd").collect()
}

/// irqlab gets two ambient capabilities, as from a systemd unit. The measured command and QEMU get none.
#[test]
fn programs_that_irqlab_starts_have_none_of_its_capabilities() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let (program, work) = for_any_user(&workspace);
    let qemu = workspace.path().join("qemu");
    let script =
        "#!/bin/sh\ngrep ^Cap /proc/self/status > qemu.sets\necho QEMU emulator version 7.2.0\n";
    std::fs::write(&qemu, script).unwrap();
    std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o755)).unwrap();
    let irqlab = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args(["--inh-caps", "-all,+bpf,+perfmon", "--ambient-caps", "-all,+bpf,+perfmon"]);
        command.arg(&program).args(arguments).current_dir(&work);
        CommandOutput::of(command.env("IRQLAB_QEMU", &qemu).env("HOME", &work))
    };
    let list = |file: &str| format!("grep ^Cap /proc/self/status > {file}.sets");
    let measure = ["-q", "--json", "--", "sh", "-c"];
    for verb in ["services", "handlers"] {
        let line = list(verb);
        let ended = irqlab(&[&[verb], &measure[..], &[line.as_str()]].concat());
        if ended.code == Some(4) {
            return needs::not_run(needs::Need::Bpf, &ended.err);
        }
        ended.assert_code(0);
    }
    // irqlab asks this QEMU for its version, which is too old.
    irqlab(&["sim", "facts"]).assert_says("is version 7.2.0, too old");
    for file in ["services.sets", "handlers.sets", "qemu.sets"] {
        let sets = capability_sets(&work.join(file));
        assert_eq!(sets.len(), 4, "{file}: {sets:?}");
        assert!(sets.iter().all(|(_, bits)| *bits == 0), "{file}: {sets:x?}");
    }
}

/// The file of irqlab has a capability. The code of an MPI library of any user would have it, too.
#[test]
fn an_irqlab_whose_file_has_capabilities_loads_no_mpi_library() {
    if !can_measure_as_root() {
        return;
    }
    let workspace = Place::new();
    let (program, work) = for_any_user(&workspace);
    // As setcap writes it: version 2 with the effective bit, CAP_PERFMON (number 38) is permitted, nothing is inheritable.
    let words: [u32; 5] = [0x0200_0001, 0, 0, 1 << (38 - 32), 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&program, "security.capability", &value, flags) {
        return needs::not_run(needs::Need::Root, format!("files with capabilities: {error}"));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    command.args(["noise", "collective", "--transport", "mpi", "--mpi-library", "/nowhere.so"]);
    command.envs([("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")]);
    let ended = CommandOutput::of(command.current_dir(&work));
    ended
        .assert_code(4)
        .assert_says("irqlab's file has capabilities")
        .assert_says("--transport tcp");
}

/// Root neither executes nor reads files that another user could have changed.
#[test]
fn a_cache_of_another_user_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        return needs::not_run(needs::Need::Root, "files of another user");
    }
    let workspace = Place::new();
    let cache = workspace.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    let sim_cache = || {
        let mut command = workspace.irqlab(&["sim", "cache"]);
        CommandOutput::of(command.env("IRQLAB_CACHE", &cache))
    };
    sim_cache().assert_code(0);
    let plugin = cache.join("plugin-1.so");
    std::fs::write(&plugin, "").unwrap();
    for path in [&plugin, &cache] {
        std::os::unix::fs::chown(path, Some(1000), None).unwrap();
        let ended = sim_cache();
        ended.assert_code(4).assert_says(&format!("{} belongs to user 1000", path.display()));
        ended.assert_says("to unlock it:\n  IRQLAB_CACHE=DIRECTORY");
        std::os::unix::fs::chown(path, Some(0), None).unwrap();
    }
    sim_cache().assert_code(0);
}

/// Runs the command without the rights of the net stimulus. It cannot make a user namespace to get them, because
/// it runs in a chroot.
fn without_namespaces(workspace: &Place, root: &Path, arguments: &[&str]) -> CommandOutput {
    let script = "mount --rbind / \"$1\" && root=$1 && shift && exec chroot \"$root\" \
                  setpriv --bounding-set=-sys_admin,-net_admin,-sys_chroot \
                  --inh-caps=-sys_admin,-net_admin,-sys_chroot \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(root).arg(IRQLAB).args(arguments);
    CommandOutput::of(command.current_dir(workspace.path()))
}

#[test]
fn refused_namespaces_leave_the_other_conditions() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let (workspace, root) = (Place::new(), Place::new());
    let out = workspace.path().join("run").display().to_string();
    let arguments = short(&["--stimulus", "net,none", "--rate", "low", "--json", "--out", &out]);
    let ended = without_namespaces(&workspace, root.path(), &arguments);
    let run = ended.assert_code(0).json();
    assert_eq!(conditions(&run), ["idle/none"]);
    let reason = absence(&run, "idle/low/net").expect("the net condition is absent");
    assert!(!reason.is_empty());
    assert_eq!(run["complete"], true, "a run with an absent row is complete");

    let out = workspace.path().join("none").display().to_string();
    let arguments = short(&["--stimulus", "net", "--out", &out]);
    let ended = without_namespaces(&workspace, root.path(), &arguments);
    ended.assert_code(4).assert_says("irqlab: nothing can be measured: idle/low/net: ");
    assert_eq!(workspace.names(), ["run"]);
}

#[test]
fn a_disk_that_cannot_be_read_leaves_the_other_conditions() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let arguments = short(&[
        "--stimulus",
        "disk,none",
        "--disk-file",
        "/nonexistent",
        "--json",
        "--rate",
        "low",
    ]);
    let run = workspace.run(&arguments).assert_code(0).json();
    assert_eq!(conditions(&run), ["idle/none"]);
    let reason = absence(&run, "idle/low/disk").expect("the disk condition is absent");
    assert_eq!(reason, "cannot read /nonexistent: No such file or directory (os error 2)");

    let ended = workspace.run(&short(&["--stimulus", "disk", "--disk-file", "/nonexistent"]));
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
    let workspace = Place::new();
    let path = file.path().display().to_string();
    let ended = workspace.run(&short(&["--stimulus", "disk", "--disk-file", &path]));
    ended.assert_code(4).assert_says("is memory: reading it raises no disk interrupt");
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
}

#[test]
fn ipis_to_one_measured_cpu() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let ended =
        workspace.run(&short(&["-c", "0", "--stimulus", "ipi", "--rate", "high", "--json"]));
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
    let workspace = Place::new();
    let events = "cpu-clock,context-switches,no-such-event,nor-this/one/";
    // Timers give even an idle machine enough spans for an interval.
    let arguments =
        ["--stimulus", "timer", "--rate", "high", "-c", "0", "--events", events, "--json"];
    let run = workspace.run(&short(&arguments)).assert_code(0).json();
    let absent = absence(&run, "PMU events no-such-event nor-this/one/");
    assert_eq!(absent, Some("this machine has no events of these names"));
    let counted = rows(&run, "events");
    assert!(counted.iter().any(|row| row["event"] == "cpu-clock" && row["self_total"] != 0));
    assert!(rows(&run, "ratios").is_empty(), "these events have no ratio");
    // Each mean has an interval or a reason for its absence.
    for row in counted {
        let (half_width, method) = (&row["self_mean_ci95"], row["self_mean_ci95_method"].as_str());
        let is_interval = method.is_some_and(|method| method.starts_with("batch-means"));
        assert!(half_width.is_f64() == is_interval && method.is_some(), "{row}");
    }
    let mut clock = counted.iter().filter(|row| row["event"] == "cpu-clock");
    assert!(clock.any(|row| row["self_mean_ci95"].is_f64()), "{counted:?}");
}
