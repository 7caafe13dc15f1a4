//! Finds the QEMU that runs the machine, and checks its version: the plugin needs QEMU's plugin API 7.
//!
//! The order of search is: the program that `IRQLAB_QEMU` names; `qemu-system-x86_64` of the system, if
//! its version is supported; the private QEMU that [`setup`](crate::setup::setup) installs.

mod content;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use crate::machine::processors::{self, Processors};
use crate::process::{self, which};
use crate::{Cache, Result, SimError, hash};

/// The environment variable that names a QEMU.
pub const VARIABLE: &str = "IRQLAB_QEMU";

const PROGRAM: &str = "qemu-system-x86_64";

/// Packages of the private QEMU, and the release that they are taken from.
pub(crate) const PACKAGES: [&str; 4] =
    ["qemu-system-x86", "qemu-system-data", "qemu-utils", "seabios"];
pub(crate) const RELEASE: &str = "trixie-backports";
/// Version of the steps in [`setup`](crate::setup::setup) that make the private root.
const RECIPE: u32 = 1;

/// Returns the root directory of the private QEMU.
pub(crate) fn private_root(cache: &Cache) -> PathBuf {
    let recipe = format!("{RECIPE} {RELEASE} {}", PACKAGES.join(" "));
    cache.path(&format!("qemu-root-{}", hash::key(&hash::of_bytes(recipe.as_bytes()))))
}

/// Supported major versions, for messages.
const SUPPORTED: &str = "11.x";

/// The first major version with plugin API 7 (interrupt callbacks, memory and register writes).
const MAJOR_MIN: u32 = 11;
/// The last major version that irqlab was tested with; a newer one may have another plugin API.
const MAJOR_MAX: u32 = 11;

/// Version of a QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub micro: u32,
}

impl Version {
    /// Parses the first line of `qemu-system-x86_64 --version`.
    fn parse(text: &str) -> Option<Version> {
        let version = text.split_once("QEMU emulator version ")?.1;
        let mut numbers = version.split([' ', '.', '-', '(']).map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Version { major: next()?, minor: next()?, micro: next()? })
    }

    /// Checks that irqlab supports this version; the error says why it does not.
    fn check(self) -> std::result::Result<(), String> {
        if self.major < MAJOR_MIN {
            Err(format!("is version {self}, too old: {SUPPORTED} has the plugin interface (API 7)"))
        } else if self.major > MAJOR_MAX {
            Err(format!("is version {self}, too new: this irqlab was tested with {SUPPORTED}"))
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

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

/// The environment variable with settings of the GNU C library.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Makes large allocations use huge pages where the kernel permits that (`madvise` in
/// /sys/kernel/mm/transparent_hugepage/enabled). The plugin's tables of a model have some megabytes and are accessed
/// at random: small pages would miss in the host's TLB.
const HUGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// Adds [`HUGE_PAGES`] to the user's settings, unless they set huge pages themselves.
fn with_huge_pages(user_settings: Option<String>) -> String {
    match user_settings {
        Some(user_settings) if user_settings.contains("glibc.malloc.hugetlb") => user_settings,
        Some(user_settings) if !user_settings.is_empty() => format!("{user_settings}:{HUGE_PAGES}"),
        _ => HUGE_PAGES.to_owned(),
    }
}

/// A QEMU of a supported version.
#[derive(Clone, Debug)]
pub struct Qemu {
    program: PathBuf,
    /// Arguments that must come first. The private QEMU has the arguments of its dynamic loader here.
    first_arguments: Vec<OsString>,
    /// Where it was found.
    pub origin: Origin,
    pub version: Version,
    /// The first line of `--version`, with the distribution's revision.
    pub version_text: String,
    /// See [`Qemu::processors`]. Empty until it is asked.
    processors: Arc<OnceLock<Processors>>,
    /// See [`Qemu::content_sha256`]. Empty until it is asked.
    content_sha256: Arc<OnceLock<String>>,
}

impl Qemu {
    /// Returns a command that starts QEMU, with the first arguments and the environment that every start needs.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.first_arguments);
        command.env(TUNABLES, with_huge_pages(std::env::var(TUNABLES).ok()));
        command
    }

    /// Returns the path of the QEMU program, for messages.
    #[must_use]
    pub fn program(&self) -> &Path {
        match self.origin {
            // `program` is the dynamic loader. QEMU is its argument at this position: see [`Qemu::private`].
            Origin::Private => {
                self.first_arguments.get(4).map_or(&self.program, |path| Path::new(path))
            }
            _ => &self.program,
        }
    }

    /// Returns QEMU's processors by name, each with the features that QEMU's translator does not execute.
    ///
    /// Asks QEMU at the first call. Fails with [`SimError::Program`] if QEMU does not answer within a few seconds.
    pub(crate) fn processors(&self) -> Result<&Processors> {
        if let Some(known) = self.processors.get() {
            return Ok(known);
        }
        let asked = processors::ask(self)?;
        Ok(self.processors.get_or_init(|| asked))
    }

    /// Runs a program with `--version`, and checks that it is a supported QEMU.
    fn probe(program: PathBuf, first_arguments: Vec<OsString>, origin: Origin) -> Result<Qemu> {
        let unknown_version = Version { major: 0, minor: 0, micro: 0 };
        let mut qemu = Qemu {
            program,
            first_arguments,
            origin,
            version: unknown_version,
            version_text: String::new(),
            processors: Arc::default(),
            content_sha256: Arc::default(),
        };
        let output = process::output(qemu.command().arg("--version"))?;
        let line = String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned();
        let unfit =
            |why: String| SimError::QemuUnfit { program: qemu.program.display().to_string(), why };
        qemu.version = Version::parse(&line)
            .ok_or_else(|| unfit(format!("is not QEMU: --version prints {line:?}")))?;
        qemu.version.check().map_err(unfit)?;
        qemu.version_text = line;
        Ok(qemu)
    }

    /// Probes the QEMU in the cache. Its own dynamic loader runs it, because it has its own libc.
    fn private(root: &Path) -> Result<Qemu> {
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let path = format!("{0}:{0}/pulseaudio", libraries.display());
        let mut first_arguments: Vec<OsString> = vec![
            "--library-path".into(),
            path.into(),
            "--argv0".into(),
            PROGRAM.into(),
            root.join("usr/bin").join(PROGRAM).into(),
        ];
        for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            first_arguments.extend(["-L".into(), root.join(firmware).into()]);
        }
        let loader = root.join("usr/lib64/ld-linux-x86-64.so.2");
        Qemu::probe(loader, first_arguments, Origin::Private)
    }
}

/// Finds a QEMU.
///
/// Fails with [`SimError::QemuUnfit`] if `IRQLAB_QEMU` names a program that is not a supported QEMU. Fails with
/// [`SimError::Missing`] if no QEMU is found; the error says which programs were found and how to get QEMU.
pub fn find(cache: &Cache) -> Result<Qemu> {
    find_among(std::env::var_os(VARIABLE), which(PROGRAM), &private_root(cache))
}

/// Searches in order: the program that the user names, the system's, the private one. A named program that is not
/// supported is an error; it is not skipped.
fn find_among(named: Option<OsString>, system: Option<PathBuf>, private: &Path) -> Result<Qemu> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let program = named.to_string_lossy().into_owned();
        return Qemu::probe(named.into(), Vec::new(), Origin::Environment).map_err(|error| {
            let why = match error {
                SimError::QemuUnfit { why, .. } => why,
                other => format!("cannot be run: {other}"),
            };
            let remedy = format!("unset {VARIABLE}, which names it, to search elsewhere");
            SimError::QemuUnfit { program, why: format!("{why} ({remedy})") }
        });
    }
    let mut reasons = Vec::new();
    match system.map(|program| Qemu::probe(program, Vec::new(), Origin::System)) {
        Some(Ok(qemu)) => return Ok(qemu),
        Some(Err(error)) => reasons.push(error.to_string()),
        None => reasons.push(format!("{PROGRAM} is not on the PATH")),
    }
    if private.is_dir() {
        match Qemu::private(private) {
            Ok(qemu) => return Ok(qemu),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(SimError::Missing {
        what: format!("no QEMU {} ({})", SUPPORTED, reasons.join("; ")),
        remedy: format!(
            "irqlab sim setup    (installs a private QEMU, 190 MB in the cache), or set {VARIABLE}=PROGRAM"
        ),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A QEMU that has this processor, without these features.
    pub(crate) fn qemu_with(processor: &str, missing: &[&str]) -> Qemu {
        let qemu = qemu();
        let missing = missing.iter().map(|name| (*name).to_owned()).collect();
        let _ = qemu.processors.set(Processors::from([(processor.to_owned(), missing)]));
        qemu
    }

    /// A QEMU with this hash of its content.
    pub(crate) fn qemu_with_content(sha256: &str) -> Qemu {
        Qemu { content_sha256: Arc::new(OnceLock::from(sha256.to_owned())), ..qemu() }
    }

    pub(crate) fn qemu() -> Qemu {
        Qemu {
            program: "/q".into(),
            first_arguments: Vec::new(),
            origin: Origin::System,
            processors: Arc::default(),
            content_sha256: Arc::new(OnceLock::from("ab".to_owned())),
            version: Version { major: 11, minor: 1, micro: 3 },
            version_text: "QEMU emulator version 11.1.3".to_owned(),
        }
    }

    #[test]
    fn huge_pages_are_added_to_the_users_settings() {
        let with = |users: &str| with_huge_pages(Some(users.to_owned()));
        assert_eq!(with_huge_pages(None), HUGE_PAGES);
        assert_eq!(with(""), HUGE_PAGES);
        assert_eq!(
            with("glibc.malloc.arena_max=1"),
            format!("glibc.malloc.arena_max=1:{HUGE_PAGES}")
        );
        assert_eq!(with("glibc.malloc.hugetlb=0"), "glibc.malloc.hugetlb=0");
    }

    /// Writes a program. This process never has the file open for writing: another test's child would inherit the open
    /// file until its exec, and the program could not be executed meanwhile ("Text file busy").
    pub(crate) fn write_program(path: &Path, text: &str) {
        let script = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let mut shell = Command::new("sh");
        assert!(shell.args(["-c", script]).arg(path).arg(text).status().unwrap().success());
    }

    /// A program that answers `--version` as QEMU does.
    fn qemu_of_version(directory: &Path, version: &str) -> PathBuf {
        let path = directory.join(format!("qemu-{version}"));
        write_program(&path, &format!("#!/bin/sh\necho 'QEMU emulator version {version} (x)'\n"));
        path
    }

    #[test]
    fn only_the_named_program_is_used_when_one_is_named() {
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
        assert!(missing.contains("cannot be run") && missing.contains(VARIABLE), "{missing}");
    }

    #[test]
    fn an_unsupported_qemu_is_refused_if_named_and_skipped_otherwise() {
        let scratch = tempfile::tempdir().unwrap();
        let nowhere = Path::new("/nowhere/at-all");
        for (version, word) in [("7.2.19", "too old"), ("99.0.0", "too new"), ("x", "not QEMU")] {
            let program = qemu_of_version(scratch.path(), version);
            let named = find_among(Some(program.clone().into()), None, nowhere).unwrap_err();
            assert!(named.to_string().contains(word), "{named}");
            let passed = find_among(None, Some(program), nowhere).unwrap_err().to_string();
            assert!(passed.contains(word) && passed.contains("irqlab sim setup"), "{passed}");
        }
        let none = find_among(None, None, nowhere).unwrap_err().to_string();
        assert!(none.contains("not on the PATH"), "{none}");
    }

    #[test]
    fn versions_of_distributions() {
        let debian = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)";
        let version = Version::parse(debian).unwrap();
        assert_eq!(version.to_string(), "11.1.3");
        assert!(version.check().is_ok());
        assert_eq!(Version::parse("QEMU emulator version 9.0.50-dirty").unwrap().micro, 50);
        for nonsense in ["", "QEMU emulator version", "QEMU emulator version 11", "bash 5.2.15"] {
            assert_eq!(Version::parse(nonsense), None, "{nonsense}");
        }
    }
}
