//! The needs of tests: programs and rights on the machine that runs them.
//!
//! A test that needs what the machine does not have calls [`not_run`], says why, and passes. That is an
//! error where the environment variable `IRQLAB_REQUIRE` names the need, as in `IRQLAB_REQUIRE=qemu,bpf`:
//! `./check` sets it to what it knows that the machine has.

#![forbid(unsafe_code)]

mod kill;

pub use kill::{Killed, at_each_step, directory_of_the_killed};

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The variable with the needs that must be met, separated by commas.
pub const VARIABLE: &str = "IRQLAB_REQUIRE";

/// A need of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To load irqlab's BPF programs: the rights, and a kernel that accepts them.
    Bpf,
    /// A browser, and what drives it (`tools/setup.sh`).
    Browser,
    /// Several CPUs, or one that other processes leave to the test.
    Cpus,
    /// A disk whose reads, past the page cache, raise interrupts.
    Disk,
    /// Namespaces of the test's own, with a network or mounts in them.
    Namespaces,
    /// The distribution's `perf` program.
    Perf,
    /// The processor's performance counters.
    Pmu,
    /// Debian's prometheus and promtool ([`tool`]).
    Prometheus,
    /// QEMU, and a kernel for its guest.
    Qemu,
    /// Python with others' readers of the formats that `irqlab export` writes ([`tool`]).
    Readers,
    Root,
    Fifo,
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
    const NAMES: [(Need, &str); 16] = [
        (Need::Bpf, "bpf"),
        (Need::Browser, "browser"),
        (Need::Cpus, "cpus"),
        (Need::Disk, "disk"),
        (Need::Namespaces, "namespaces"),
        (Need::Perf, "perf"),
        (Need::Pmu, "pmu"),
        (Need::Prometheus, "prometheus"),
        (Need::Qemu, "qemu"),
        (Need::Readers, "readers"),
        (Need::Root, "root"),
        (Need::Fifo, "fifo"),
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

/// A program that `tools/setup.sh` keeps in irqlab's cache, by its path under `tools`, as in
/// `prometheus/usr/bin/promtool`; or one of that name in `PATH`. `None` where there is neither.
#[must_use]
pub fn tool(path: &str) -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let kept = cache.map(|cache| cache.join("irqlab/tools").join(path));
    let name = Path::new(path).file_name()?;
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = std::env::split_paths(&in_path).map(|dir| dir.join(name)).collect();
    kept.into_iter().chain(in_path).find(|file| file.is_file())
}

/// Parses a list of needs; an empty one has none.
///
/// Fails if a name names no need.
pub fn parse(list: &str) -> Result<Vec<Need>, String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
}

/// Says that a test does not run, and why.
///
/// # Panics
/// Where [`VARIABLE`] requires the missing need, or contains an unknown name.
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
