//! `irqlab affinity` on this machine, where no line is moved. `simulated/affinity.rs` moves lines in a guest.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{CommandOutput, IRQLAB, Place, check_refused, names};

/// A run that is part of the repository.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../record/tests/golden/run-2");

#[test]
fn options_that_cannot_be_combined_and_runs_without_a_boot_are_refused() {
    check_refused(&["affinity", "--undo", "--apply"], "--apply");
    check_refused(&["affinity", "--undo", "--run", "x"], "--run");
    check_refused(&["affinity", "--run", GOLDEN], "does not name its boot");
}

/// A user who may not move lines learns it before anything is measured.
#[test]
fn without_rights_no_line_is_moved() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || Command::new("setpriv").arg("--version").output().is_err() {
        return needs::not_run(needs::Need::Root, "this is another user, or there is no setpriv");
    }
    let workspace = Place::new();
    let (program, work) = (workspace.path().join("irqlab"), workspace.path().join("work"));
    std::fs::copy(IRQLAB, &program).unwrap();
    std::fs::create_dir(&work).unwrap();
    for path in [workspace.path(), &program, &work] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&program).args(["affinity", "--apply", "-d", "1h"]).current_dir(&work);
    CommandOutput::of(&mut command).assert_code(4).assert_says("no setting was changed: ");
    assert!(names(&work).is_empty(), "{:?}", names(&work));
}
