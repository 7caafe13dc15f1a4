//! What is known of a guest's kernel: symbols, types, tick rate, configuration.
//!
//! They are read from the running guest, once for each kernel, and kept under the kernel's hash.
//! The guest fills a buffer and says where it lies in its memory; the monitor's `pmemsave` copies
//! it out. That works with every kernel, without a device or a driver for it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::boot::{self, Limits};
use crate::cache::read_bounded;
use crate::guest::btf::Btf;
use crate::guest::image::{self, Tools};
use crate::guest::kernel::Kernel;
use crate::machine::agent::{GuestReport, Message};
use crate::machine::vm::{GuestEvent, Vm, VmEvent};
use crate::machine::{Machine, Timing};
use crate::qemu::Qemu;
use crate::{Cache, Progress, Result, SimError, Symbols, hash};

/// Most bytes of a file that the guest hands over.
const FILE_BYTES_MAX: usize = 256 << 20;
/// Most pieces of the window.
const RUNS_MAX: usize = 4096;
/// Changes with the files in the directory.
const RECIPE: u32 = 1;
const LIMITS: Limits = Limits { wall: Duration::from_secs(300), guest_s: 200 };
const MONITOR_TIMEOUT: Duration = Duration::from_secs(30);
/// Names that the guest may hand over; also names of files in the cache.
const NAMES: [&str; 3] = ["kallsyms", "btf", "config"];
const REPORT: &str = "release-and-hz";

/// Facts of a guest's kernel. What a kernel does not have is absent.
#[derive(Clone, Debug)]
pub struct GuestFacts {
    /// Release, as `uname -r` has it.
    pub release: String,
    /// Symbols with addresses (without address randomisation).
    pub symbols: Option<Symbols>,
    /// Types.
    pub btf: Option<Btf>,
    /// Ticks per second.
    pub hz: Option<u32>,
    /// Configuration as text, from the kernel itself or the file beside it.
    pub config: Option<String>,
}

/// Facts of a kernel, from the cache or from a boot of some seconds.
///
/// # Errors
/// When the kernel does not boot to our first process, or what it hands over is damaged.
pub fn guest_facts(
    cache: &Cache,
    qemu: &Qemu,
    kernel: &Kernel,
    progress: Progress,
) -> Result<GuestFacts> {
    let name = format!("facts-{RECIPE}-{}", hash::key(&kernel.sha256));
    let directory = cache.directory(&name, progress, |aside| {
        progress("reading symbols and types from the guest, once for this kernel");
        probe(cache, qemu, kernel, aside)
    })?;
    read(&directory, kernel)
}

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
        (None, Some(beside)) => Some(read_bounded(beside, FILE_BYTES_MAX as u64)?),
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

fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let unpacked = flate2::read::GzDecoder::new(packed);
    unpacked
        .take(FILE_BYTES_MAX as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| SimError::data("the guest's config.gz", error.to_string()))?;
    Ok(bytes)
}

/// Boots the kernel and writes what it hands over.
fn probe(cache: &Cache, qemu: &Qemu, kernel: &Kernel, into: &Path) -> Result<()> {
    // Without modules: their symbols would be in the way of other images of the same kernel.
    let bare = Kernel { modules: None, ..kernel.clone() };
    let mut machine = Machine::new(&bare, &image::build(cache, &bare, Tools::None)?);
    machine.timing = Timing::HostClock;
    let mut vm = boot::start(qemu, &machine, "probe", LIMITS)?;
    let handed = receive(&mut vm, into)?;
    for (name, bytes) in &handed.files {
        let path = into.join(name);
        fs::write(&path, bytes).map_err(SimError::file(&path))?;
    }
    let report = json!([handed.report.release, handed.report.hz]).to_string();
    let path = into.join(REPORT);
    fs::write(&path, report).map_err(SimError::file(&path))
}

#[derive(Debug, Default)]
struct Handed {
    report: GuestReport,
    files: BTreeMap<&'static str, Vec<u8>>,
}

/// Follows the guest until it has handed over everything.
fn receive(vm: &mut Vm, scratch: &Path) -> Result<Handed> {
    let deadline = Instant::now() + LIMITS.wall;
    let mut handed = Handed::default();
    let mut window = Vec::new();
    loop {
        let message = match vm.next(deadline)? {
            Some(VmEvent::Guest(GuestEvent(message))) => message,
            Some(VmEvent::Console(_) | VmEvent::Held(_)) => continue,
            Some(VmEvent::Ended(_)) => return Err(vm.failure("the guest ended while it was asked")),
            None => return Err(vm.failure("the guest does not answer")),
        };
        match message {
            Message::Facts(report) => handed.report = report,
            Message::Window { runs } => window = check_window(runs)?,
            Message::Chunk { name, bytes, fnv1a, last: _ } => {
                let known = NAMES.into_iter().find(|known| *known == name);
                let known = known.ok_or_else(|| handed_bad(&name, "is not what was asked for"))?;
                let chunk = copy(vm, &window, bytes, &scratch.join("piece"))?;
                if format!("{:016x}", hash::fnv1a(&chunk)) != fnv1a {
                    return Err(handed_bad(&name, "was damaged on the way"));
                }
                let file = handed.files.entry(known).or_default();
                file.extend(chunk);
                if file.len() > FILE_BYTES_MAX {
                    return Err(handed_bad(&name, "is too large"));
                }
                vm.answer_guest()?;
            }
            Message::Exit { status } if status != 0 => {
                return Err(vm.failure("the guest cannot hand over what it knows"));
            }
            Message::Shared | Message::Exit { .. } => {
                vm.quit()?;
                return Ok(handed);
            }
            Message::Ready | Message::Limit | Message::Said { .. } => {}
        }
    }
}

fn handed_bad(name: &str, reason: &str) -> SimError {
    SimError::data(format!("{name:?} of the guest"), reason)
}

fn check_window(runs: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>> {
    let sum = runs.iter().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
    if runs.is_empty() || runs.len() > RUNS_MAX || sum.is_none_or(|sum| sum > 64 << 20) {
        return Err(handed_bad("window", "has an absurd size"));
    }
    Ok(runs)
}

/// The first `bytes` of the window.
fn copy(vm: &mut Vm, window: &[(u64, u64)], bytes: u64, piece: &Path) -> Result<Vec<u8>> {
    let mut left = bytes;
    let mut copied = Vec::new();
    for (address, length) in window {
        let length = left.min(*length);
        if length == 0 {
            break;
        }
        let name = piece.display().to_string();
        let arguments = json!({ "val": address, "size": length, "filename": name });
        vm.command("pmemsave", &arguments, MONITOR_TIMEOUT)?;
        copied.extend(read_bounded(piece, length)?);
        left -= length;
    }
    // The last piece; the next look-up writes it anew.
    let _ = fs::remove_file(piece);
    if copied.len() as u64 != bytes {
        return Err(handed_bad("window", "is shorter than what is in it"));
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
