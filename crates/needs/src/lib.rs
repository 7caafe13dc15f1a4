//! For tests of all crates. A test names the programs and rights that it needs on the machine ([`Need`], [`not_run`]).
//! [`at_each_step`] is a harness that kills a test's process at each of its steps.
//!
//! A test that lacks a need calls [`not_run`] with the reason, and passes. It fails if the environment
//! variable `IRQLAB_REQUIRE` names the need, as in `IRQLAB_REQUIRE=qemu,bpf`. `./check` sets the variable to
//! the needs that the machine meets.

#![forbid(unsafe_code)]

mod kill;

pub use kill::{Killed, at_each_step, directory_of_the_killed};

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The variable with the needs that must be met, separated by commas.
pub const VARIABLE: &str = "IRQLAB_REQUIRE";

/// A right or program that some tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Rights to load irqlab's BPF programs, and a kernel that accepts the programs.
    Bpf,
    /// A browser, and the program that drives it (`tools/setup.sh`).
    Browser,
    /// Several CPUs, or a CPU that other processes leave idle.
    Cpus,
    /// A disk that raises interrupts when it is read without the page cache.
    Disk,
    /// Rights to create namespaces, with interfaces or mounts in them.
    Namespaces,
    /// Debian's Open MPI, unpacked ([`cached_tool`]).
    OpenMpi,
    /// The distribution's `perf` program.
    Perf,
    /// The processor's performance counters.
    Pmu,
    /// Debian's prometheus and promtool ([`tool`]).
    Prometheus,
    /// QEMU, and a kernel for its guest.
    Qemu,
    /// Python, with other projects' readers of the formats that `irqlab export` writes ([`tool`]).
    Readers,
    Root,
    Fifo,
    /// Debian's Slurm, unpacked ([`cached_tool`]).
    Slurm,
    /// Debian's openssh-server, unpacked ([`cached_tool`]).
    Sshd,
    /// strace(1), which kills a program at a chosen system call.
    Strace,
    /// The kernel's trace events in tracefs.
    Tracefs,
    /// A time-stamp counter that ticks at a constant rate.
    Tsc,
    /// Anything else, such as an interrupt that can be moved to another CPU.
    Other,
}

impl Need {
    /// The needs' names in [`VARIABLE`].
    const NAMES: [(Need, &str); 19] = [
        (Need::Bpf, "bpf"),
        (Need::Browser, "browser"),
        (Need::Cpus, "cpus"),
        (Need::Disk, "disk"),
        (Need::Namespaces, "namespaces"),
        (Need::OpenMpi, "openmpi"),
        (Need::Perf, "perf"),
        (Need::Pmu, "pmu"),
        (Need::Prometheus, "prometheus"),
        (Need::Qemu, "qemu"),
        (Need::Readers, "readers"),
        (Need::Root, "root"),
        (Need::Fifo, "fifo"),
        (Need::Slurm, "slurm"),
        (Need::Sshd, "sshd"),
        (Need::Strace, "strace"),
        (Need::Tracefs, "tracefs"),
        (Need::Tsc, "tsc"),
        (Need::Other, "other"),
    ];
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Need::NAMES.iter().find(|(need, _)| need == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Need {
    type Err = String;

    fn from_str(text: &str) -> Result<Need, String> {
        let found = Need::NAMES.iter().find(|(_, name)| *name == text);
        let names = || Need::NAMES.map(|(_, name)| name).join(", ");
        found.map(|(need, _)| *need).ok_or_else(|| format!("{text:?}: allowed: {}", names()))
    }
}

/// Finds a program that `tools/setup.sh` installs into irqlab's cache. `path`: the program's path below the
/// cache's directory `tools`, such as `prometheus/usr/bin/promtool`. Otherwise finds a program of that name in
/// `PATH`. `None` if there is neither.
#[must_use]
pub fn tool(path: &str) -> Option<PathBuf> {
    let name = Path::new(path).file_name()?;
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = std::env::split_paths(&in_path).map(|dir| dir.join(name)).collect();
    cached_tool(path).or_else(|| in_path.into_iter().find(|file| file.is_file()))
}

/// Finds a file that `tools/setup.sh` installs into irqlab's cache. `path`: below the cache's directory `tools`.
#[must_use]
pub fn cached_tool(path: &str) -> Option<PathBuf> {
    let home_cache = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home_cache)?;
    Some(cache.join("irqlab/tools").join(path)).filter(|file| file.is_file())
}

/// Parses a list of needs, separated by commas. An empty list is valid.
///
/// Fails if a name names no need.
pub fn parse(list: &str) -> Result<Vec<Need>, String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
}

/// Prints that a test does not run, and why. The test should then return, and passes.
///
/// Panics if [`VARIABLE`] requires the missing need, or contains an unknown name.
#[track_caller]
pub fn not_run(need: Need, reason: impl Display) {
    let list = std::env::var(VARIABLE).unwrap_or_default();
    let required = parse(&list).unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
    assert!(!required.contains(&need), "{need} is required ({VARIABLE}), and missing: {reason}");
    println!("not run: no {need}: {reason}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_needs() {
        assert_eq!(parse("qemu, bpf,"), Ok(vec![Need::Qemu, Need::Bpf]));
        assert_eq!(parse(""), Ok(Vec::new()));
        assert!(
            parse("quemu").unwrap_err().starts_with("\"quemu\": allowed: bpf, browser, cpus, ")
        );
        for (need, name) in Need::NAMES {
            assert_eq!((need.to_string(), name.parse()), (name.to_owned(), Ok(need)));
        }
    }
}
