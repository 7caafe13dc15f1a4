//! What a killed run left is undone by the next start of any verb, and named where only another user may
//! undo it.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{CommandOutput, IRQLAB, Place, alone};

/// A user that no machine has. Its directory in /tmp is nobody else's.
const USER: u32 = 3_999_999_917;

/// irqlab for [`USER`], with a directory of its own.
struct Home {
    place: Place,
}

impl Home {
    /// `None`, with the reason printed, where this user cannot become another one.
    fn prepared() -> Option<Home> {
        let place = Place::new();
        let is_root = rustix::process::geteuid().is_root();
        let setpriv = Command::new("setpriv").arg("--version").output();
        if !is_root || setpriv.is_err() {
            needs::not_run(needs::Need::Root, "this is another user, or there is no setpriv");
            return None;
        }
        std::fs::copy(IRQLAB, place.path().join("irqlab")).unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let home = Home { place };
        for directory in ["runtime", "work"] {
            home.own_directory(&home.place.path().join(directory));
        }
        Some(home)
    }

    fn own_directory(&self, path: &Path) {
        std::fs::create_dir(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        chown(path, Some(USER), Some(USER)).unwrap();
    }

    fn work(&self) -> PathBuf {
        self.place.path().join("work")
    }

    /// What a killed run of [`USER`] leaves: a file, and the journal in `directory` that names it.
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

    /// The command as [`USER`]; its runtime directory is the home's, or there is none.
    fn run(&self, words: &[&str], has_runtime: bool) -> CommandOutput {
        let user = USER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.arg(self.place.path().join("irqlab")).args(words).current_dir(self.work());
        command.env_remove("XDG_RUNTIME_DIR");
        if has_runtime {
            command.env("XDG_RUNTIME_DIR", self.place.path().join("runtime"));
        }
        CommandOutput::of(&mut command)
    }
}

#[test]
fn every_verb_undoes_what_a_killed_run_left() {
    let _alone = alone();
    let Some(home) = Home::prepared() else { return };
    let journals = home.place.path().join("runtime/irqlab");
    home.own_directory(&journals);
    // Most are refused right after; what they would do is another test's.
    for words in [
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
        let ended = home.run(words, true);
        let says = format!("leftovers of a killed run: removed {}", file.display());
        assert!(ended.err.contains(&says), "{words:?} ({:?}): {}", ended.code, ended.err);
        assert!(!file.exists() && !journal.exists(), "{words:?}: {}", ended.err);
    }
}

/// The directory in /tmp, which this removes again.
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
    // Root's start names the user who can undo it: root trusts no file that another user has written.
    let as_root = home.place.run(&["machines"]);
    let says = format!(
        "{} has journals of dead processes: irqlab doctor as user {USER}",
        journals.0.display()
    );
    as_root.assert_code(0).assert_says(&says);
    assert!(file.exists() && journal.exists());
    // The killed run had no runtime directory, and this one has.
    let ended = home.run(&["machines"], true);
    ended.assert_code(0).assert_says("leftovers of a killed run: removed ");
    assert!(!file.exists() && !journal.exists(), "{}", ended.err);
}
