//! Verbs in a control group that allows few processes and threads: a result, or an error that names the limit.
//! Never a panic, and never a wait without end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{CommandOutput, IRQLAB, Place, alone, can_measure_as_root, wait_until};

/// A control group of this test.
struct Group(PathBuf);

impl Group {
    /// A group with this limit; `None`, with the reason printed, where none can be made.
    fn allowing(limit: u64) -> Option<Group> {
        let name = format!("irqlab-test-{}-{limit}", std::process::id());
        for mount in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
            let group = Group(Path::new(mount).join(&name));
            if std::fs::create_dir(&group.0).is_ok()
                && std::fs::write(group.0.join("pids.max"), limit.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        needs::not_run(needs::Need::Other, "no control group with a limit of processes");
        None
    }

    /// Runs irqlab in this group.
    fn run(&self, workspace: &Place, arguments: &[&str]) -> CommandOutput {
        let join = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", join]).arg(&self.0).arg(IRQLAB).args(arguments);
        command.current_dir(workspace.path()).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("irqlab ends", || child.try_wait().unwrap().is_some());
        CommandOutput::of_output(&child.wait_with_output().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0); // with a process in it, which a failed assertion left, it stays
    }
}

#[test]
fn few_threads_are_an_error_with_the_limit_or_a_result() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let noise = ["noise", "-q", "--no-trace", "-c", "0", "--loop", "ftq", "-d", "20ms"];
    let signal = ["signal", "run", "-q", "-d", "10ms", "--repetitions", "1", "--rates", "100"];
    let threads = [&signal[..], &["--rig", "threads"]].concat();
    let veth = [&signal[..], &["--rig", "veth"]].concat();
    let timer = ["handlers", "-q", "-d", "20ms", "--events", "none", "--stimulus", "timer"];
    let command = ["handlers", "-q", "--events", "none", "--", "true"];
    let verbs: [(&[&str], u64); 5] =
        [(&noise, 2), (&threads, 4), (&veth, 4), (&timer, 4), (&command, 2)];
    for limit in 1..=4 {
        let Some(group) = Group::allowing(limit) else { return };
        for (arguments, _) in verbs.iter().filter(|(_, most)| limit <= *most) {
            let workspace = Place::new();
            let ended = group.run(&workspace, arguments);
            let says = &ended.err;
            assert!(!says.contains("panicked"), "{limit}: {arguments:?}: {says}");
            let is_result = ended.code == Some(0);
            assert!(is_result || says.contains("pids.max = "), "{limit}: {arguments:?}: {says}");
            // One thread for its loop, and one to start the others.
            assert!(
                limit > 1 || !is_result,
                "{arguments:?}: nothing can be measured by one thread"
            );
        }
    }
}
