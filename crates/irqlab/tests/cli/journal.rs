//! The next start of any verb undoes the leftovers of a killed run. If only another user may undo them, it names
//! them.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{CommandOutput, IRQLAB, Place, alone};

/// A user that no machine has. So nobody else uses its directory in /tmp.
const USER: u32 = 3_999_999_917;

/// A directory where [`USER`] can run irqlab.
struct Home {
    workspace: Place,
}

impl Home {
    /// Returns `None`, and prints the reason, if this user cannot become another user.
    fn prepared() -> Option<Home> {
        let workspace = Place::new();
        let is_root = rustix::process::geteuid().is_root();
        let setpriv = Command::new("setpriv").arg("--version").output();
        if !is_root || setpriv.is_err() {
            needs::not_run(needs::Need::Root, "this is another user, or there is no setpriv");
            return None;
        }
        std::fs::copy(IRQLAB, workspace.path().join("irqlab")).unwrap();
        std::fs::set_permissions(workspace.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let home = Home { workspace };
        for directory in ["runtime", "work"] {
            home.own_directory(&home.workspace.path().join(directory));
        }
        Some(home)
    }

    fn own_directory(&self, path: &Path) {
        std::fs::create_dir(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        chown(path, Some(USER), Some(USER)).unwrap();
    }

    fn work(&self) -> PathBuf {
        self.workspace.path().join("work")
    }

    /// Makes the leftovers of a killed run of [`USER`]: a file, and a journal in `directory` that names the file.
    fn leave(&self, directory: &Path) -> (PathBuf, PathBuf) {
        let (file, journal) = (self.work().join("irqlab-left"), directory.join("journal-1-0.json"));
        std::fs::write(&file, "x").unwrap();
        let work = self.work();
        let entry = format!(
            r#"{{"file":{{"directory":"{}","name":"irqlab-left","identity":null}}}}"#,
            work.display()
        );
        let text = format!(r#"{{"format":1,"boot_id":"","entries":[{entry}]}}"#);
        std::fs::write(&journal, text).unwrap();
        std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(0o600)).unwrap();
        for path in [&file, &journal] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        (file, journal)
    }

    /// Runs the command as [`USER`], with a runtime directory if `has_runtime`.
    fn run(&self, arguments: &[&str], has_runtime: bool) -> CommandOutput {
        let user = USER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.arg(self.workspace.path().join("irqlab")).args(arguments).current_dir(self.work());
        command.env_remove("XDG_RUNTIME_DIR");
        if has_runtime {
            command.env("XDG_RUNTIME_DIR", self.workspace.path().join("runtime"));
        }
        CommandOutput::of(&mut command)
    }
}

#[test]
fn every_verb_undoes_what_a_killed_run_left() {
    let _alone = alone();
    let Some(home) = Home::prepared() else { return };
    let journals = home.workspace.path().join("runtime/irqlab");
    home.own_directory(&journals);
    // After the cleanup, irqlab refuses most verbs of this list. Other tests run these verbs.
    for arguments in [
        &["doctor"][..],
        &["handlers", "--out", "."],
        &["noise", "--out", "."],
        &["footprint", "--out", "."],
        &["echo", "--listen", "192.0.2.1:7007"],
        &["reproduce", "footprint-1999", "--out", "."],
        &["show", "/none"],
        &["sim", "diff", "/none", "/none"],
        &["machines"],
        &["bench", "overhead", "--out", "."],
    ] {
        let (file, journal) = home.leave(&journals);
        let ended = home.run(arguments, true);
        let says = format!("leftovers of a killed run: removed {}", file.display());
        assert!(ended.err.contains(&says), "{arguments:?} ({:?}): {}", ended.code, ended.err);
        assert!(!file.exists() && !journal.exists(), "{arguments:?}: {}", ended.err);
    }
}

/// A directory in /tmp. Dropping this removes the directory.
struct InTmp(PathBuf);

impl Drop for InTmp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn journals_of_another_user_are_named_and_those_of_another_session_are_replayed() {
    let _alone = alone();
    let Some(home) = Home::prepared() else { return };
    let journals = InTmp(PathBuf::from(format!("/tmp/irqlab-{USER}")));
    home.own_directory(&journals.0);
    let (file, journal) = home.leave(&journals.0);
    // Root only names the user who can undo it, because root trusts no file of another user.
    let as_root = home.workspace.run(&["machines"]);
    let says = format!(
        "{} has journals of dead processes: irqlab doctor as user {USER}",
        journals.0.display()
    );
    as_root.assert_code(0).assert_says(&says);
    assert!(file.exists() && journal.exists());
    // The killed run had no runtime directory, but this run has.
    let ended = home.run(&["machines"], true);
    ended.assert_code(0).assert_says("leftovers of a killed run: removed ");
    assert!(!file.exists() && !journal.exists(), "{}", ended.err);
}
