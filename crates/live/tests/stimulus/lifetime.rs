//! The ends of stimuli: requested, dropped, killed, orphaned, or never started for lack of rights.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use live::stimulus::{HELPER_VERB, Helper, Rate, Stimulus, StimulusError, start};

use crate::kernel_counts::{children_of, is_alive, kill};
use crate::{alone, helper, helper_program, settings};

const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until `done` returns true, which must happen soon.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_helper_that_is_none_is_an_error() {
    let _alone = alone();
    let settings = settings(Stimulus::Timer, Rate::Low);
    let missing = start(&settings, &Helper::new("/no/such/program"));
    assert!(matches!(missing, Err(StimulusError::Spawn { .. })), "{missing:?}");
    let silent = start(&settings, &Helper::new("/bin/true"));
    assert!(matches!(silent, Err(StimulusError::Died { .. })), "{silent:?}");
    let babbler = start(&settings, &Helper::new("/bin/echo"));
    assert!(matches!(babbler, Err(StimulusError::Failed { .. })), "{babbler:?}");
}

#[test]
fn a_source_that_is_killed_is_noticed() {
    let _alone = alone();
    let mut running = start(&settings(Stimulus::Timer, Rate::Low), &helper()).unwrap();
    running.check().unwrap();
    kill(running.pid().unwrap());
    wait_until("the source is noticed to be dead", || running.check().is_err());
    assert!(matches!(running.stop(), Err(StimulusError::Died { .. })));
}

#[test]
fn dropping_a_source_ends_it() {
    let _alone = alone();
    let running = start(&settings(Stimulus::Timer, Rate::High), &helper()).unwrap();
    let pid = running.pid().unwrap();
    drop(running);
    assert!(!is_alive(pid));
}

/// Runs a source in a program that stands for a user's irqlab, and kills that program.
#[test]
fn nothing_outlives_a_killed_parent() {
    let _alone = alone();
    for source in ["timer", "ipi", "net", "disk", "load"] {
        let mut parent = Command::new(helper_program())
            .args([source, "low", "600", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The program prints the facts once the source runs.
        let mut byte = [0];
        if parent.stdout.take().unwrap().read(&mut byte).unwrap() == 0 {
            let need = match source {
                "disk" => needs::Need::Disk,
                "net" => needs::Need::Namespaces,
                _ => needs::Need::Other,
            };
            needs::not_run(need, format!("{source} does not run"));
            parent.wait().unwrap();
            continue;
        }
        let children = children_of(parent.id());
        assert_eq!(children.len(), 1, "{source}");
        parent.kill().unwrap();
        parent.wait().unwrap();
        wait_until("the source ends after its parent", || !is_alive(children[0]));
    }
}

#[test]
fn an_orphan_refuses_to_start() {
    let _alone = alone();
    let run =
        |order: &str| Command::new(helper_program()).args([HELPER_VERB, order]).output().unwrap();
    let foreign = run(r#"{"parent_pid":4194305,
            "job":{"load":{"cpus":[0],"region_bytes":null,"last_level_cache_bytes":null}}}"#);
    assert_eq!(foreign.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&foreign.stdout).contains("is gone"), "{foreign:?}");
    assert_eq!(run("{}").status.code(), Some(2));
}

/// Without rights, every stimulus reports what it lacks, or uses less, and none panics.
#[test]
fn without_rights_sources_are_unavailable_or_work() {
    let _alone = alone();
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() || !rustix::process::geteuid().is_root() {
        needs::not_run(needs::Need::Root, "needs root and setpriv");
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("stimulus");
    std::fs::copy(helper_program(), &program).unwrap();
    for (source, rate) in
        [("timer", "high"), ("ipi", "high"), ("net", "low"), ("net", "high"), ("disk", "low")]
    {
        let output = Command::new(setpriv)
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(&program)
            .args([source, rate, "0.2", "0"])
            .env("TMPDIR", dir.path())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{source} {rate}: {} {errors}", String::from_utf8_lossy(&output.stdout));
        assert!(!errors.contains("panicked"), "{source}: {errors}");
        assert!(output.status.success() || errors.contains("refused"), "{source}: {errors}");
    }
}
