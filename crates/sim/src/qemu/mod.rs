//! Which QEMU runs the machine.
//!
//! In this order: the program that `IRQLAB_QEMU` names; `qemu-system-x86_64` of the system, if its
//! version fits; the private one that [`setup`](crate::setup::setup) makes.

mod version;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use version::Version;

use crate::apt::which;
use crate::{Cache, Result, SimError, process, setup};

/// The environment variable that names a QEMU.
pub const VARIABLE: &str = "IRQLAB_QEMU";

const PROGRAM: &str = "qemu-system-x86_64";

/// Where a QEMU was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Named by the environment.
    Environment,
    /// Installed on the system.
    System,
    /// In irqlab's cache.
    Private,
}

/// A QEMU whose version fits.
#[derive(Clone, Debug)]
pub struct Qemu {
    program: PathBuf,
    before: Vec<OsString>,
    /// Where it was found.
    pub origin: Origin,
    /// Its version.
    pub version: Version,
    /// The first line of `--version`, with the distribution's revision.
    pub version_text: String,
}

impl Qemu {
    /// The program and what always comes first.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.before);
        command
    }

    /// The program that is executed, for messages.
    #[must_use]
    pub fn program(&self) -> &Path {
        match self.origin {
            // The program itself is what the loader is told to run.
            Origin::Private => self.before.get(4).map_or(&self.program, |path| Path::new(path)),
            _ => &self.program,
        }
    }

    fn probe(program: PathBuf, before: Vec<OsString>, origin: Origin) -> Result<Qemu> {
        let none = Version { major: 0, minor: 0, micro: 0 };
        let mut qemu = Qemu { program, before, origin, version: none, version_text: String::new() };
        let said = process::output(qemu.command().arg("--version"))?;
        let said = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned();
        let unfit =
            |why: String| SimError::QemuUnfit { program: qemu.program.display().to_string(), why };
        qemu.version = Version::of_text(&said)
            .ok_or_else(|| unfit(format!("is no QEMU: --version says {said:?}")))?;
        qemu.version.check().map_err(unfit)?;
        qemu.version_text = said;
        Ok(qemu)
    }

    /// The one in the cache: run by its own loader, since it brings its own libc.
    fn private(root: &Path) -> Result<Qemu> {
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let path = format!("{0}:{0}/pulseaudio", libraries.display());
        let mut before: Vec<OsString> = vec![
            "--library-path".into(),
            path.into(),
            "--argv0".into(),
            PROGRAM.into(),
            root.join("usr/bin").join(PROGRAM).into(),
        ];
        for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            before.extend(["-L".into(), root.join(firmware).into()]);
        }
        let loader = root.join("usr/lib64/ld-linux-x86-64.so.2");
        Qemu::probe(loader, before, Origin::Private)
    }
}

/// Finds a QEMU.
///
/// # Errors
/// [`SimError::QemuUnfit`] when `IRQLAB_QEMU` names one that is too old, too new or none;
/// [`SimError::Missing`] when there is none, with what was seen and how to get one.
pub fn find(cache: &Cache) -> Result<Qemu> {
    find_among(std::env::var_os(VARIABLE), which(PROGRAM), &setup::qemu_root(cache))
}

fn find_among(named: Option<OsString>, system: Option<PathBuf>, private: &Path) -> Result<Qemu> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let program = named.to_string_lossy().into_owned();
        return Qemu::probe(named.into(), Vec::new(), Origin::Environment).map_err(|error| {
            let why = match error {
                SimError::QemuUnfit { why, .. } => why,
                other => format!("can't be run: {other}"),
            };
            let remedy = format!("without {VARIABLE}, which names it, irqlab looks for another");
            SimError::QemuUnfit { program, why: format!("{why}\n{remedy}") }
        });
    }
    let mut seen = Vec::new();
    match system.map(|program| Qemu::probe(program, Vec::new(), Origin::System)) {
        Some(Ok(qemu)) => return Ok(qemu),
        Some(Err(error)) => seen.push(error.to_string()),
        None => seen.push(format!("{PROGRAM} is not on the PATH")),
    }
    if private.is_dir() {
        match Qemu::private(private) {
            Ok(qemu) => return Ok(qemu),
            Err(error) => seen.push(error.to_string()),
        }
    }
    Err(SimError::Missing {
        what: format!("no QEMU {} ({})", version::FITTING, seen.join("; ")),
        remedy: format!(
            "irqlab sim setup    (a private one, 190 MB in the cache), or set {VARIABLE}=PROGRAM"
        ),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    pub(crate) fn qemu() -> Qemu {
        Qemu {
            program: "/q".into(),
            before: Vec::new(),
            origin: Origin::System,
            version: Version { major: 11, minor: 1, micro: 3 },
            version_text: "QEMU emulator version 11.1.3".to_owned(),
        }
    }

    /// A program that answers `--version` as QEMU does.
    fn qemu_of_version(directory: &Path, version: &str) -> PathBuf {
        let path = directory.join(format!("qemu-{version}"));
        fs::write(&path, format!("#!/bin/sh\necho 'QEMU emulator version {version} (x)'\n"))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_named_one_comes_first_and_nothing_instead_of_it() {
        let scratch = tempfile::tempdir().unwrap();
        let system = qemu_of_version(scratch.path(), "11.0.1");
        let named = qemu_of_version(scratch.path(), "11.1.3");
        let nowhere = Path::new("/nowhere/at-all");
        let qemu = find_among(Some(named.into()), Some(system.clone()), nowhere).unwrap();
        assert_eq!(qemu.origin, Origin::Environment);
        assert_eq!(qemu.version_text, "QEMU emulator version 11.1.3 (x)");
        let qemu = find_among(None, Some(system.clone()), nowhere).unwrap();
        assert_eq!((qemu.origin, qemu.version.minor), (Origin::System, 0));
        let missing = find_among(Some("/nowhere/qemu".into()), Some(system), nowhere);
        let missing = missing.unwrap_err().to_string();
        assert!(missing.contains("can't be run") && missing.contains(VARIABLE), "{missing}");
    }

    #[test]
    fn one_that_does_not_fit_is_refused_or_passed_over() {
        let scratch = tempfile::tempdir().unwrap();
        let nowhere = Path::new("/nowhere/at-all");
        for (version, word) in [("7.2.19", "too old"), ("99.0.0", "too new"), ("x", "no QEMU")] {
            let program = qemu_of_version(scratch.path(), version);
            let named = find_among(Some(program.clone().into()), None, nowhere).unwrap_err();
            assert!(named.to_string().contains(word), "{named}");
            let passed = find_among(None, Some(program), nowhere).unwrap_err().to_string();
            assert!(passed.contains(word) && passed.contains("irqlab sim setup"), "{passed}");
        }
        let none = find_among(None, None, nowhere).unwrap_err().to_string();
        assert!(none.contains("not on the PATH"), "{none}");
    }
}
