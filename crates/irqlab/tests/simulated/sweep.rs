//! `irqlab sweep prepare`: tasks with the same machine share it, and no task boots.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::{CommandOutput, Place, can_simulate, wait_until};

/// A word of the guest's command line that no other run of the tests has, so that its machines are not in the cache.
fn own_word(name: &str) -> String {
    format!("irqlab.test={name}.{}", std::process::id())
}

/// Two machines, each for two tasks.
fn spec(word: &str) -> String {
    format!(
        "command = ['handlers', '--on', 'sim', '--stimulus', 'timer', '--rate', 'high', '--warm-up', '4ms', '--append', \
         '{word}']\n[axes]\n'-d' = ['5ms', '10ms']\n'--mem' = ['400M', '410M']\n"
    )
}

fn cache() -> PathBuf {
    let variable =
        |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("IRQLAB_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("irqlab")))
        .or_else(|| Some(variable("HOME")?.join(".cache/irqlab")))
        .expect("a cache directory")
}

/// The machines in the cache whose command line has `word`, removed when the test ends.
struct OwnMachines<'a>(&'a str);

impl OwnMachines<'_> {
    fn find(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(cache()).into_iter().flatten().flatten();
        let has_word = |directory: &PathBuf| {
            let text = fs::read_to_string(directory.join("checkpoint.json")).unwrap_or_default();
            text.contains(self.0)
        };
        let named =
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("ready-"));
        named.map(|entry| entry.path()).filter(has_word).collect()
    }
}

impl Drop for OwnMachines<'_> {
    fn drop(&mut self) {
        for machine in self.find() {
            let _ = fs::remove_dir_all(machine);
        }
    }
}

/// Whether a process with `word` on its command line lives: a simulated machine of the test.
fn a_machine_runs(word: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .any(|line| line.contains(word) && line.contains("qemu"))
}

fn start(workspace: &Place, arguments: &[&str]) -> Child {
    let mut command = workspace.irqlab(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

#[test]
fn tasks_of_a_prepared_sweep_boot_no_machine() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let word = own_word("prepared");
    let machines = OwnMachines(&word);
    fs::write(workspace.path().join("spec.toml"), spec(&word)).expect("a file");
    let planned = workspace.run(&["sweep", "plan", "spec.toml", "-o", "sweep"]);
    planned.assert_code(0);
    let unknown = "core-hours: unknown (task 0: the cache lacks its machine; ";
    assert!(planned.out.contains(unknown), "{}", planned.out);
    assert!(planned.out.contains("memory: unknown"), "{}", planned.out);
    let only_cached = |arguments: &[&str]| {
        let mut command = workspace.irqlab(arguments);
        CommandOutput::of(command.env("IRQLAB_CACHE_ONLY", "1"))
    };
    let refused = only_cached(&["sweep", "run", "sweep", "--index", "0"]);
    refused.assert_code(1).assert_says("is not in the cache");
    workspace.run(&["sweep", "retry", "sweep"]).assert_code(0);
    assert!(machines.find().is_empty(), "a plan boots nothing");

    // A killed preparation leaves no machine, and the next one goes on.
    let mut killed = start(&workspace, &["sweep", "prepare", "sweep"]);
    wait_until("a machine boots", || a_machine_runs(&word));
    killed.kill().and_then(|()| killed.wait()).expect("the process is ours");
    wait_until("the machine ends with irqlab", || !a_machine_runs(&word));
    assert!(machines.find().is_empty());

    let both = [0, 1].map(|_| start(&workspace, &["sweep", "prepare", "sweep"]));
    for prepare in both {
        let ended = CommandOutput::of_output(&prepare.wait_with_output().expect("it ends"));
        ended.assert_code(0);
        let says = "combinations with a machine of their own: 2 (in the cache before: ";
        assert!(ended.out.contains(says) && ended.out.contains(", now: 2)"), "{}", ended.out);
        assert!(ended.out.contains("memory: 9"), "{}", ended.out);
    }
    assert_eq!(machines.find().len(), 2, "each machine is made once");
    only_cached(&["sweep", "run", "sweep"]).assert_code(0).assert_says("done: 4 of 4 tasks");
    assert_eq!(machines.find().len(), 2);
}

#[test]
fn a_machine_that_cannot_be_kept_is_no_prepared_one() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let word = own_word("full");
    let machines = OwnMachines(&word);
    fs::write(workspace.path().join("spec.toml"), spec(&word)).expect("a file");
    workspace.run(&["sweep", "plan", "spec.toml", "-o", "sweep"]).assert_code(0);
    // No file may grow beyond 4 MiB, as on a disk that is almost full.
    let irqlab = workspace.irqlab(&["sweep", "prepare", "sweep"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 8192; exec \"$@\"", "sh"]).arg(irqlab.get_program());
    limited.args(irqlab.get_args()).current_dir(workspace.path()).stdin(Stdio::null());
    let ended = CommandOutput::of(&mut limited);
    ended.assert_code(1).assert_says("task 0 (--mem 400M, -d 5ms) finds no machine: ");
    assert!(ended.out.contains("(in the cache before: 0, now: 0)"), "{}", ended.out);
    assert!(machines.find().is_empty());
}
