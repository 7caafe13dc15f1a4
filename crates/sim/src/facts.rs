//! Facts of a guest's kernel: symbols, types, tick rate, configuration.
//!
//! irqlab boots each kernel once to read them, and keeps them in the cache under the kernel's hash. The guest fills a
//! buffer in memory, the *window*, and reports its physical addresses; the monitor's command `pmemsave` copies it.
//! This works with every kernel, without a device or a driver. [`crate::watch`] and annotations use the facts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::boot::{self, Limits};
use crate::guest::btf::Btf;
use crate::guest::image::{self, Tools};
use crate::guest::kernel::Kernel;
use crate::guest::loaded::{LoadedModule, with_modules};
use crate::machine::agent::{GuestReport, Message};
use crate::machine::vm::{GuestEvent, Vm, VmEvent};
use crate::machine::{Machine, Timing};
use crate::qemu::Qemu;
use crate::regular_file::{read_all, read_bounded};
use crate::{Cache, Progress, Result, SimError, Symbols, hash};

/// Maximum size of a file that the guest transfers, bytes.
const FILE_BYTES_MAX: usize = 256 << 20;
/// Maximum number of pieces of the window, each physically contiguous.
const RUNS_MAX: usize = 4096;
/// Version of the cached directory's content. Increase it when the content changes.
const RECIPE: u32 = 2;
const LIMITS: Limits = Limits { wall: Duration::from_secs(300), guest_s: 200 };
const MONITOR_TIMEOUT: Duration = Duration::from_secs(30);
/// Names of the files that the guest transfers, which are also their names in the cache.
const NAMES: [&str; 3] = ["kallsyms", "btf", "config"];
/// Name of the file in the cache with the kernel's release and tick rate, as JSON.
const REPORT: &str = "release-and-hz";

/// Facts of a guest's kernel; absent where the kernel does not provide them.
#[derive(Clone, Debug)]
pub struct GuestFacts {
    /// Release, as `uname -r` prints it.
    pub release: String,
    /// Symbols with addresses (without address randomisation).
    pub symbols: Option<Symbols>,
    pub btf: Option<Btf>,
    /// Timer ticks per second (`CONFIG_HZ`).
    pub hz: Option<u32>,
    /// Configuration as text, from the kernel itself or from a file next to it.
    pub config: Option<String>,
}

impl GuestFacts {
    /// Adds the symbols of the modules that a guest has loaded.
    ///
    /// Fails when a module's file cannot be read.
    pub fn add_modules(&mut self, kernel: &Kernel, loaded: &[LoadedModule]) -> Result<()> {
        if let Some(symbols) = &mut self.symbols {
            *symbols = with_modules(symbols, kernel, loaded)?;
        }
        Ok(())
    }
}

/// Returns the facts of a kernel, from the cache or from a boot of some seconds.
///
/// Fails when the kernel does not start the first process, or transferred data is damaged.
pub fn guest_facts(
    cache: &Cache,
    qemu: &Qemu,
    kernel: &Kernel,
    progress: Progress,
) -> Result<GuestFacts> {
    let name = format!("facts-{RECIPE}-{}", hash::key(&kernel.sha256));
    let directory = cache.checked_directory(&name, progress, |staging| {
        progress("reading symbols and types from the guest (once per kernel)");
        probe(cache, qemu, kernel, staging)
    })?;
    read(&directory, kernel)
}

/// Reads the facts from a directory of the cache.
fn read(directory: &Path, kernel: &Kernel) -> Result<GuestFacts> {
    let file = |name: &str| -> Result<Option<Vec<u8>>> {
        let path = directory.join(name);
        path.exists().then(|| read_bounded(&path, FILE_BYTES_MAX as u64)).transpose()
    };
    let report = file(REPORT)?.unwrap_or_default();
    let (release, hz): (String, Option<u32>) = serde_json::from_slice(&report)
        .map_err(|error| SimError::data(REPORT, error.to_string()))?;
    let config = match (file("config")?, &kernel.config) {
        (Some(packed), _) => Some(unpack(&packed)?),
        (None, Some(path)) => Some(read_bounded(path, FILE_BYTES_MAX as u64)?),
        (None, None) => None,
    };
    Ok(GuestFacts {
        release,
        symbols: file("kallsyms")?.map(|text| Symbols::parse(&text)).transpose()?,
        btf: file("btf")?.map(Btf::parse).transpose()?,
        hz,
        config: config.map(|text| String::from_utf8_lossy(&text).into_owned()),
    })
}

/// Unpacks the kernel's configuration, which the guest transfers as it is in `/proc/config.gz`.
fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    read_all(flate2::read::GzDecoder::new(packed), FILE_BYTES_MAX as u64)
        .map_err(|error| SimError::data("the guest's config.gz", error.to_string()))
}

/// Boots the kernel and writes the files that it transfers to the directory `target`.
fn probe(cache: &Cache, qemu: &Qemu, kernel: &Kernel, target: &Path) -> Result<()> {
    // Boots without modules, because other images of the same kernel may have other modules.
    let without_modules = Kernel { modules: None, ..kernel.clone() };
    let mut machine =
        Machine::new(&without_modules, &image::build(cache, &without_modules, Tools::None)?);
    machine.timing = Timing::HostClock;
    let mut vm = boot::start(qemu, &machine, "probe", LIMITS)?;
    let received = receive(&mut vm, target)?;
    for (name, bytes) in &received.files {
        let path = target.join(name);
        fs::write(&path, bytes).map_err(SimError::file(&path))?;
    }
    let report = json!([received.report.release, received.report.hz]).to_string();
    let path = target.join(REPORT);
    fs::write(&path, report).map_err(SimError::file(&path))
}

/// The report and the files that the guest transferred.
#[derive(Debug, Default)]
struct Received {
    report: GuestReport,
    files: BTreeMap<&'static str, Vec<u8>>,
}

/// Follows the guest until it has transferred all files.
fn receive(vm: &mut Vm, scratch: &Path) -> Result<Received> {
    let deadline = Instant::now() + LIMITS.wall;
    let mut received = Received::default();
    let mut window = Vec::new();
    loop {
        let message = match vm.next_event(deadline)? {
            Some(VmEvent::Guest(GuestEvent(message))) => message,
            Some(VmEvent::Text(..) | VmEvent::Held(_)) => continue,
            Some(VmEvent::Ended(_)) => {
                return Err(vm.failure("the guest ended before it had transferred its files"));
            }
            None => return Err(vm.failure("the guest does not reply")),
        };
        match message {
            Message::Facts(report) => received.report = report,
            Message::Window { runs } => window = check_window(runs)?,
            Message::Chunk { name, bytes, fnv1a, last: _ } => {
                let requested = NAMES.into_iter().find(|known| *known == name);
                let requested = requested.ok_or_else(|| bad(&name, "was not requested"))?;
                let chunk = copy(vm, &window, bytes, &scratch.join("piece"))?;
                if format!("{:016x}", hash::fnv1a(&chunk)) != fnv1a {
                    return Err(bad(&name, "was damaged in transfer"));
                }
                let file = received.files.entry(requested).or_default();
                file.extend(chunk);
                if file.len() > FILE_BYTES_MAX {
                    return Err(bad(&name, "is too large"));
                }
                vm.answer_guest()?;
            }
            Message::Exit { status } if status != 0 => {
                return Err(vm.failure("the guest cannot transfer its files"));
            }
            Message::Shared | Message::Exit { .. } => {
                vm.quit()?;
                return Ok(received);
            }
            Message::Ready
            | Message::Modules { .. }
            | Message::Limit
            | Message::Step { .. }
            | Message::Faults { .. }
            | Message::Output { .. } => {}
        }
    }
}

fn bad(name: &str, reason: &str) -> SimError {
    SimError::data(format!("{name:?} of the guest"), reason)
}

/// Checks the pieces of the window, each a physical address and a length.
fn check_window(runs: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>> {
    let sum = runs.iter().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
    if runs.is_empty() || runs.len() > RUNS_MAX || sum.is_none_or(|sum| sum > 64 << 20) {
        return Err(bad("window", "has an absurd size"));
    }
    Ok(runs)
}

/// Copies the first `bytes` bytes of the window. QEMU writes each part to the file `piece`, which is removed.
fn copy(vm: &mut Vm, window: &[(u64, u64)], bytes: u64, piece: &Path) -> Result<Vec<u8>> {
    let mut remaining_bytes = bytes;
    let mut copied = Vec::new();
    for (address, length) in window {
        let length = remaining_bytes.min(*length);
        if length == 0 {
            break;
        }
        let name = piece.display().to_string();
        let arguments = json!({ "val": address, "size": length, "filename": name });
        vm.command("pmemsave", &arguments, MONITOR_TIMEOUT)?;
        copied.extend(read_bounded(piece, length)?);
        remaining_bytes -= length;
    }
    let _ = fs::remove_file(piece);
    if copied.len() as u64 != bytes {
        return Err(bad("window", "is shorter than its content"));
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_windows_are_refused() {
        for runs in [vec![], vec![(0, u64::MAX), (0, 2)], vec![(0, 1); RUNS_MAX + 1]] {
            assert!(check_window(runs).is_err());
        }
        assert!(check_window(vec![(4096, 4096)]).is_ok());
    }

    #[test]
    fn a_configuration_that_is_damaged_is_an_error() {
        assert!(unpack(b"no gzip").is_err());
    }
}
