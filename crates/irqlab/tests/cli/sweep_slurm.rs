//! A real Slurm with one node. A sweep is its job array: tasks are cancelled, put back, and killed, and the controller
//! restarts. A fleet is measured by its job steps.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::Value as Json;

use crate::support::{CommandOutput, IRQLAB, Place, alone, can_measure, can_mount_in_namespaces};

/// Executes the array and a local run, and merges both.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slurm/one_node.sh");
/// 24 tasks of some tenths of a second.
const SPEC: &str = "command = ['signal', 'model', '--schemes', 'interrupt', '--rates', '100k', '--simulate']\n\
    [axes]\n'--events' = [4000000]\n'--seed' = { from = 1, to = 24 }\n";
/// Time after which the test gives up, seconds. All processes of the namespaces are killed then.
const GIVE_UP_S: &str = "400";
/// The namespaces of the Slurm, besides that of the mounts, as options of `unshare`.
const NAMESPACES: [&str; 7] =
    ["--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"];

#[test]
fn an_array_of_slurm_that_is_disturbed_has_the_results_of_a_local_run() {
    // A Slurm that is installed on the machine has its files elsewhere, and may have another version.
    let Some(controller) = needs::cached_tool("slurm-1/usr/sbin/slurmctld-wlm") else {
        needs::not_run(needs::Need::Slurm, "tools/setup.sh has not unpacked Debian's Slurm");
        return;
    };
    if !geteuid().is_root() {
        needs::not_run(needs::Need::Root, "only root can start a Slurm in namespaces");
        return;
    }
    if !can_mount_in_namespaces(&NAMESPACES) {
        return;
    }
    // Other tests of this program load the CPUs. The script's waits have time limits.
    let _alone = alone();
    let slurm = controller.ancestors().nth(3).expect("the directory of the packages");
    let workspace = Place::new();
    fs::write(workspace.path().join("spec.toml"), SPEC).expect("a file");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", GIVE_UP_S, "unshare", "--mount"]).args(NAMESPACES);
    command
        .args(["sh", SCRIPT, IRQLAB])
        .arg(slurm)
        .arg("spec.toml")
        .current_dir(workspace.path())
        .stdin(Stdio::null());
    CommandOutput::of(&mut command).assert_code(0);

    let document = |name: &str| -> Json {
        let text = fs::read_to_string(workspace.path().join(name)).expect("text");
        serde_json::from_str(&text).expect("JSON")
    };
    let disturbed = document("disturbed.json");
    let missing = disturbed["missing_indexes"].as_str().expect("a text");
    assert!(missing.ends_with("20-22"), "the cancelled tasks are missing: {disturbed}");
    let status = document("status.json");
    assert_eq!((&status["done"], &status["tasks"]), (&24.into(), &24.into()), "{status}");
    let bytes = |data: &str| {
        let file = Path::new(data).join("model/data.parquet");
        fs::read(workspace.path().join(file)).expect("a table")
    };
    assert!(bytes("data") == bytes("local-data"), "the tables are equal to the byte");

    let hosts = document("fleet/hosts.json");
    let states: Vec<&Json> =
        hosts.as_array().expect("a list").iter().map(|host| &host["state"]).collect();
    let measured = if can_measure() { "done" } else { "failed" };
    assert_eq!(states, [measured, "unreachable"], "{hosts}");
    let code = fs::read_to_string(workspace.path().join("fleet-code.txt")).expect("text");
    assert_eq!(code.trim(), "1", "one host is not done");
}
