//! Downloads Debian packages without a change to the system: apt with a private state. [`super`] installs QEMU and
//! kernels with it, [`crate::rootfs`] gets the packages of images.
//!
//! apt runs with its own sources, lists, cache and an empty dpkg status, so that it downloads a package with
//! all its dependencies, including libc. The host's proxy and authentication settings
//! (`/etc/apt/apt.conf.d`, `auth.conf.d`) still apply, and are not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::mirror;
use crate::process::{output, which};
use crate::{Progress, Result, SimError};

/// Suites that apt uses. QEMU comes from the backports of the current release; the guest's kernel and tools come from
/// the release before it.
const SUITES: [&str; 3] = ["trixie", "trixie-backports", "bookworm"];
/// Keys of the Debian archive, from the package debian-archive-keyring.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// An apt with a private state in a directory, which the caller removes.
pub(crate) struct Apt {
    directory: PathBuf,
}

impl Apt {
    /// Makes the state in `directory` and downloads the package lists.
    pub(crate) fn new(directory: &Path, progress: Progress) -> Result<Apt> {
        let keyring = check_host()?;
        for path in ["sources", "preferences", "lists/partial", "cache/archives/partial"] {
            let path = directory.join(path);
            fs::create_dir_all(&path).map_err(SimError::file(&path))?;
        }
        let mirror = mirror::debian_mirror()?.ok_or_else(|| SimError::Missing {
            what: "no Debian mirror is known: this machine's apt sources name none".to_owned(),
            remedy: format!("export {}=http://MIRROR/debian", mirror::VARIABLE),
        })?;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(SimError::file(&path))
        };
        write("status", "")?;
        let sources = format!(
            "Types: deb\nURIs: {mirror}\nSuites: {}\nComponents: main\nArchitectures: amd64\n\
             Signed-By: {keyring}\n",
            SUITES.join(" ")
        );
        write("sources/irqlab.sources", &sources)?;
        let apt = Apt { directory: directory.to_owned() };
        progress(&format!("downloading Debian's package lists from {mirror}"));
        output(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    /// Downloads packages with all their dependencies and unpacks them into `root`.
    pub(crate) fn install(&self, release: &str, packages: &[&str], root: &Path) -> Result<()> {
        let mut command = self.command("apt-get");
        command.args(["-y", "-qq", "--download-only", "-t", release, "install"]).args(packages);
        output(&mut command)?;
        self.unpack_all(&self.directory.join("cache/archives"), root)
    }

    /// Downloads the archives of packages and of all their dependencies to a directory.
    ///
    /// Fails with [`SimError::Invalid`], which names a package that does not exist.
    pub(crate) fn download(&self, release: &str, packages: &[&str], target: &Path) -> Result<()> {
        let mut command = self.command("apt-get");
        let archives = format!("Dir::Cache::archives={}", target.display());
        // apt needs a lock and a directory there. They are removed after the download.
        let partial = target.join("partial");
        fs::create_dir_all(&partial).map_err(SimError::file(&partial))?;
        command.args(["-o", &archives, "-y", "-qq", "--download-only", "-t", release, "install"]);
        output(command.args(packages)).map_err(|error| unknown_package(error, release))?;
        let _ = fs::remove_file(target.join("lock"));
        crate::cache::remove_directory(&partial)
    }

    /// Downloads one package alone and unpacks it into `root`.
    pub(crate) fn unpack(&self, package: &Package, root: &Path) -> Result<()> {
        let downloads = self.directory.join(format!("download-{}", package.name));
        fs::create_dir_all(&downloads).map_err(SimError::file(&downloads))?;
        let wanted = format!("{}={}", package.name, package.version);
        let mut command = self.command("apt-get");
        output(command.current_dir(&downloads).args(["-qq", "download", &wanted]))?;
        self.unpack_all(&downloads, root)
    }

    /// Looks up a package in the lists of a release.
    ///
    /// Fails when the release does not have it.
    pub(crate) fn package(&self, name: &str, release: &str) -> Result<Package> {
        let wanted = format!("{name}/{release}");
        let mut command = self.command("apt-cache");
        let shown = output(command.args(["show", "--no-all-versions", &wanted]))?;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let field = |key: &str| {
            let mut lines = shown.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).map(str::to_owned)
        };
        let none = || SimError::data(format!("the output of apt about {wanted}"), "no version");
        Ok(Package {
            name: name.to_owned(),
            version: field("Version").ok_or_else(none)?,
            depends: field("Depends").unwrap_or_default(),
        })
    }

    /// Unpacks all packages of a directory into `root`.
    fn unpack_all(&self, archives: &Path, root: &Path) -> Result<()> {
        let mut packages: Vec<PathBuf> = fs::read_dir(archives)
            .map_err(SimError::file(archives))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        packages.sort();
        for package in &packages {
            output(Command::new("dpkg").arg("-x").args([package, root]))?;
        }
        Ok(())
    }

    /// Returns a command of apt with the options for its private state.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path_of = |name: &str| self.directory.join(name).display().to_string();
        for (key, value) in [
            ("Dir::Etc::sourcelist", "/dev/null".to_owned()),
            ("Dir::Etc::sourceparts", path_of("sources")),
            ("Dir::Etc::preferences", "/dev/null".to_owned()),
            ("Dir::Etc::preferencesparts", path_of("preferences")),
            ("Dir::State::lists", path_of("lists")),
            ("Dir::State::status", path_of("status")),
            ("Dir::Cache", path_of("cache")),
            ("APT::Architecture", "amd64".to_owned()),
            ("APT::Architectures", "amd64".to_owned()),
            // The cache belongs to the current user and not to the user _apt.
            ("APT::Sandbox::User", "root".to_owned()),
            ("APT::Install-Recommends", "0".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            ("Acquire::Retries", "3".to_owned()),
            ("Acquire::http::Timeout", "30".to_owned()),
        ] {
            command.arg("-o").arg(format!("{key}={value}"));
        }
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// A package in apt's lists.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    depends: String,
}

impl Package {
    /// Returns the first dependency whose name starts with `prefix`.
    pub(crate) fn dependency(&self, prefix: &str) -> Option<&str> {
        let names = self
            .depends
            .split([',', '|'])
            .filter_map(|alternative| alternative.split_whitespace().next());
        names.into_iter().find(|name| name.starts_with(prefix))
    }
}

/// Replaces apt's error for an unknown package by one that names the package. Returns any other error unchanged.
fn unknown_package(error: SimError, release: &str) -> SimError {
    let text = error.to_string();
    let after = |marker: &str| text.split_once(marker).map(|(_, remainder)| remainder);
    let name = after("Unable to locate package ")
        .and_then(|remainder| remainder.split_whitespace().next())
        .or_else(|| Some(after("Package '")?.split_once("' has no installation candidate")?.0));
    match name {
        Some(name) => SimError::Invalid(format!(
            "no package {name} in Debian {release} (https://packages.debian.org/{release}/ has their names)"
        )),
        None => error,
    }
}

/// Checks that this machine can install Debian packages; returns the keyring.
fn check_host() -> Result<&'static str> {
    let missing = |need: &str, remedy: &str| SimError::Missing {
        what: need.to_owned(),
        remedy: remedy.to_owned(),
    };
    if std::env::consts::ARCH != "x86_64" {
        return Err(missing(
            "irqlab installs QEMU from Debian's packages on x86-64 hosts only",
            "install QEMU 11 from your distribution, or set IRQLAB_QEMU=/path/qemu-system-x86_64",
        ));
    }
    for program in ["apt-get", "apt-cache", "dpkg"] {
        if which(program).is_none() {
            return Err(missing(
                &format!("no {program} on this machine, which Debian's packages need"),
                "Fedora: dnf install qemu-system-x86-core; Arch: pacman -S qemu-system-x86; \
                 openSUSE: zypper install qemu-x86 (QEMU 11 is needed); kernel: --kernel bzImage",
            ));
        }
    }
    KEYRINGS.into_iter().find(|path| Path::new(path).exists()).ok_or_else(|| {
        missing("no keys to check Debian's packages with", "apt install debian-archive-keyring")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_by_prefix() {
        let package = Package {
            name: "linux-image-amd64".to_owned(),
            version: "6.1.1-1".to_owned(),
            depends: "kmod, linux-image-6.1.0-1-amd64 (= 6.1.1-1)".to_owned(),
        };
        assert_eq!(package.dependency("linux-image-"), Some("linux-image-6.1.0-1-amd64"));
        assert_eq!(package.dependency("nothing-"), None);
    }
}
