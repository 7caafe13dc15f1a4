//! A fleet of real hosts: sshds on loopback addresses, with a load during two of the measurements.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::Value as Json;

use crate::support::{
    CommandOutput, IRQLAB, Place, alone, can_measure, can_mount_in_namespaces, rows,
};

/// Makes the hosts, and collects from them twice.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fleet/hosts.sh");
/// Number of hosts with an sshd, of hosts at the same time, and the duration of a measurement. The manual has the figures
/// of 64 hosts.
const HOSTS: [&str; 3] = ["9", "8", "500ms"];
/// Time after which the test gives up, seconds. All processes of the namespaces are killed then.
const GIVE_UP_S: &str = "240";
/// The namespaces of the hosts, besides that of the mounts, as options of `unshare`.
const NAMESPACES: [&str; 5] = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

#[test]
fn of_nine_hosts_the_two_with_a_load_are_found() {
    let Some(sshd) = needs::cached_tool("openssh-1/usr/sbin/sshd") else {
        needs::not_run(
            needs::Need::Sshd,
            "tools/setup.sh has not unpacked Debian's openssh-server",
        );
        return;
    };
    if !geteuid().is_root() {
        needs::not_run(needs::Need::Root, "only root can start sshds in namespaces");
        return;
    }
    if !can_measure() || !can_mount_in_namespaces(&NAMESPACES) {
        return;
    }
    let _alone = alone();
    let packages = sshd.ancestors().nth(3).expect("the directory of the packages");
    let workspace = Place::new();
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", GIVE_UP_S, "unshare", "--mount"]).args(NAMESPACES);
    command.args(["sh", SCRIPT, IRQLAB]).arg(packages).args(HOSTS);
    command.current_dir(workspace.path()).stdin(Stdio::null());
    CommandOutput::of(&mut command).assert_code(0);

    let read = |name: &str| fs::read_to_string(workspace.path().join(name)).expect("text");
    let report: Json = serde_json::from_str(&read("report.json")).expect("JSON");
    let hosts = rows(&report, "hosts");
    let of_state = |state: &str| -> Vec<&str> {
        let rows = hosts.iter().filter(|row| row["state"] == state);
        rows.map(|row| row["host"].as_str().expect("a name")).collect()
    };
    assert_eq!(of_state("done").len(), 8, "{hosts:?}");
    assert_eq!(of_state("refused-version"), [read("older.txt").trim()]);
    assert_eq!(of_state("unreachable"), [read("absent.txt").trim()]);
    assert!(of_state("failed").is_empty(), "{hosts:?}");
    for row in hosts.iter().filter(|row| row["state"] == "done") {
        assert_eq!(row["address"], row["host"], "the host has an address of its own");
    }
    // Other processes of this machine may make further outliers. The load makes the largest ones.
    let mut figures: Vec<&Json> = rows(&report, "handlers_self_cpu_ratio").iter().collect();
    let score = |row: &Json| row["robust_z"].as_f64().expect("a score");
    figures.sort_by(|first, second| score(second).total_cmp(&score(first)));
    assert!(figures[..2].iter().all(|row| row["is_outlier"] == true), "{figures:?}");
    let mut found: Vec<&str> =
        figures[..2].iter().map(|row| row["host"].as_str().expect("a name")).collect();
    found.sort_unstable();
    let loaded = read("loaded.txt");
    let mut loaded: Vec<&str> = loaded.lines().collect();
    loaded.sort_unstable();
    assert_eq!(found, loaded, "{figures:?}");

    assert_eq!((read("code.txt").trim(), read("second-code.txt").trim()), ("1", "1"));
    let second = read("second.txt");
    assert!(second.contains("8 of 10 hosts are done already"), "{second}");
    assert_eq!(read("left.txt"), "", "nothing is left on the hosts");
    assert!(read("fleet.html").contains("irqlab fleet report"));
}
