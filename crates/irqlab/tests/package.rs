//! The Debian package is reproducible, and works when installed in a small Debian.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use needs::Need;

const IRQLAB: &str = env!("CARGO_BIN_EXE_irqlab");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Runs a program, which must succeed. A failure shows its stderr.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// Packs `program`, and returns the file of the package.
fn pack(program: &Path, into: &Path) -> PathBuf {
    let mut command = Command::new(root().join("tools/package"));
    command.args(["--fast", "--program"]).arg(program).arg(into);
    let output = run(command.env("SOURCE_DATE_EPOCH", "1700000000").current_dir("/"));
    let text = String::from_utf8(output.stdout).unwrap();
    PathBuf::from(text.lines().last().unwrap())
}

/// Whether packages can be made here.
fn has_dpkg() -> bool {
    let has_dpkg = Command::new("dpkg-shlibdeps").arg("--version").output().is_ok();
    if !has_dpkg {
        needs::not_run(Need::Other, "packages are made with Debian's dpkg-dev");
    }
    has_dpkg
}

#[test]
fn the_same_program_gives_the_same_package() {
    if !has_dpkg() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let first = pack(Path::new(IRQLAB), &directory.path().join("first"));
    // A file with the same contents and another time.
    let copy = directory.path().join("copy");
    fs::copy(IRQLAB, &copy).unwrap();
    let second = pack(&copy, &directory.path().join("second"));
    assert_ne!(fs::metadata(&copy).unwrap().mtime(), fs::metadata(IRQLAB).unwrap().mtime());
    assert_eq!(first.file_name(), second.file_name());
    assert!(fs::read(first).unwrap() == fs::read(second).unwrap(), "the packages differ");
}

/// Installs the package in a view of the small Debian, with the capabilities that `option` of setpriv(1) leaves.
/// Returns the result of each check by name. Returns `None`, and prints the reason, if this is not possible here.
fn installed(option: &str) -> Option<HashMap<String, String>> {
    if !has_dpkg() {
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        needs::not_run(Need::Root, "a package is installed as root");
        return None;
    }
    if !Command::new("unshare")
        .args(["--mount", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        needs::not_run(Need::Namespaces, "unshare makes no mount namespace");
        return None;
    }
    let debian = Command::new(root().join("tools/clean_root")).output().unwrap();
    if !debian.status.success() {
        needs::not_run(Need::Other, String::from_utf8_lossy(&debian.stderr));
        return None;
    }
    let debian = String::from_utf8(debian.stdout).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let package = pack(Path::new(IRQLAB), directory.path());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash"]);
    command.arg(root().join("crates/irqlab/tests/package/install.sh"));
    command.arg(debian.lines().last().unwrap()).arg(directory.path()).arg(package).arg(option);
    let text = String::from_utf8(run(&mut command).stdout).unwrap();
    let tried = text.lines().filter_map(|line| line.split_once(": "));
    Some(tried.map(|(name, what)| (name.to_owned(), what.trim().to_owned())).collect())
}

#[test]
fn an_installed_package_works_and_leaves_nothing() {
    let Some(tried) = installed("--inh-caps=-all") else {
        return needs::not_run(Need::Other, "the package is not installed");
    };
    assert!(tried["doctor"].contains(" ok, "), "{tried:?}");
    assert_eq!(tried["man"], "/usr/share/man/man1/irqlab-handlers.1.gz");
    // The real shells complete the word `hand`.
    assert_eq!(tried["bash"], "handlers");
    assert_eq!(tried["zsh"], "_irqlab");
    assert_eq!(tried["fish"], "handlers");
    assert_eq!((&*tried["left"], &*tried["group-left"]), ("", ""));
    assert_eq!(tried["slots"], "1 2 3 4");
    assert!(tried["unit"].contains("irqlab-watch.service"), "{tried:?}");
    assert_eq!(
        tried["refused"],
        "irqlab: /etc/irqlab/irqlab.conf: MEASURE=nobody: it is group, all or root"
    );
    // If root can measure, the capabilities of the file let members of the group measure, and nobody else.
    if tried["doctor"].contains("`irqlab handlers` runs here") {
        assert_eq!(tried["capabilities"], "/usr/bin/irqlab cap_perfmon,cap_bpf=ep");
        assert_eq!(tried["file"], "root irqlab 750");
        assert!(tried["rights"].starts_with("ok "), "{tried:?}");
        assert!(tried["stranger"].contains("Permission denied"), "{tried:?}");
        // The administrator can let everybody measure, and can limit the number of measurements at a time.
        assert_eq!(tried["all-file"], "root root 755");
        assert!(tried["all-rights"].starts_with("ok "), "{tried:?}");
        assert!(tried["second"].contains("the limit of 1 irqlab processes"), "{tried:?}");
        assert_eq!(tried["root-file"], "root root 755");
    }
}

/// Installs as in a container. There the kernel refuses to start a program whose file has a capability outside the
/// bounding set.
#[test]
fn the_package_installs_and_starts_without_capabilities() {
    let Some(tried) = installed("--bounding-set=-bpf,-perfmon") else {
        return needs::not_run(Need::Other, "the package is not installed");
    };
    assert_eq!(tried["capabilities"], "");
    assert_eq!(tried["file"], "root root 755", "there is no right to keep from anybody");
    assert!(tried["doctor"].contains(" ok, "), "{tried:?}");
}
