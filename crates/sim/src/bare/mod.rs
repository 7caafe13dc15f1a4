//! The machine without any kernel: QEMU starts a program of ours (`crates/bare`) directly, which runs
//! with interrupts off, says on the serial port what it found, and powers the machine off.
//!
//! It has no symbols: the plugin counts all of it as one context, `unknown`, which is the program and
//! nothing else. It runs where kernels do, so it counts as kernel.

mod footprint;
mod lines;
mod noise;
mod truth;

use std::path::PathBuf;
use std::time::Instant;

use crate::boot::Limits;
use crate::guest::image::frozen;
use crate::machine::Machine;
use crate::machine::vm::{StartConfig, Vm, VmEvent, ending};
use crate::qemu::Qemu;
use crate::watch::{Annotated, Detail, Recording, Watch};
use crate::{Accounting, Cache, Result, SimError};

pub use footprint::{
    By, FootprintSettings, Footprints, Geometry, LINES_MAX, Level, Method, Own, PMU_COUNTERS,
    REPETITIONS_MAX, Repetition, footprint,
};
pub use noise::{BareNoise, BareNoiseSettings};
pub use truth::{Counted, Point, Truth, TruthSettings, displaced};

use lines::Said;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bare"));
/// Why it could not be built.
const PROGRAM_MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/bare-missing"));
/// Most that the program may say, bytes.
const SAID_BYTES_MAX: usize = 16 << 20;
/// Memory of the machine, MiB: the program, its records, and what it walks through.
const MEMORY_MIB: u32 = 320;
/// Most memory that the program walks through, bytes; as `bare::command::BYTES_MAX`.
pub(crate) const WALK_BYTES_MAX: u64 = 256 << 20;

/// What came of a run of the program.
#[derive(Debug)]
struct Ran {
    said: Said,
    account: Accounting,
}

/// The program as a file, and its hash.
///
/// # Errors
/// When this irqlab was built without it, or the cache can't be written.
fn program(cache: &Cache) -> Result<(PathBuf, String)> {
    if PROGRAM.is_empty() {
        return Err(SimError::Missing {
            what: format!("this irqlab has no program for a bare machine: {PROGRAM_MISSING}"),
            remedy: "build irqlab on x86-64 Linux".to_owned(),
        });
    }
    let frozen = frozen("bare")?;
    cache.keyed("bare", "", frozen.as_deref().unwrap_or(PROGRAM))
}

/// The machine that runs it.
fn machine(cache: &Cache) -> Result<Machine> {
    let (program, sha256) = program(cache)?;
    Ok(Machine { memory_mib: MEMORY_MIB, ..Machine::bare(program, sha256) })
}

/// Runs the program with a command line, watched; none when `stop` says that it is not wanted.
fn run(
    cache: &Cache,
    qemu: &Qemu,
    watch: &Watch,
    pmu: bool,
    command_line: &str,
    limits: Limits,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Ran>> {
    let machine = Machine { pmu, ..machine(cache)? };
    let recording = Recording::new(cache, qemu, &machine, &Annotated::nothing(), watch, None)?;
    let mut instrumentation = recording.instrumentation();
    let limit_ns = u64::from(limits.guest_s).saturating_mul(1_000_000_000);
    instrumentation.add_option("limit_ns", &limit_ns.to_string());
    let config = StartConfig {
        command_line: command_line.to_owned(),
        request: "bare".to_owned(),
        instrumentation,
    };
    let mut vm = Vm::start(qemu, &machine, &config)?;
    let Some(said) = follow(&mut vm, limits, stop)? else { return Ok(None) };
    drop(vm);
    let account = recording.account()?;
    if let Some(broken) = account.broken.first() {
        return Err(SimError::data("the record of the machine", broken.clone()));
    }
    Ok(Some(Ran { said, account }))
}

/// Follows the machine to its end, and takes what the program said.
fn follow(vm: &mut Vm, limits: Limits, stop: &dyn Fn() -> bool) -> Result<Option<Said>> {
    let deadline = Instant::now() + limits.wall;
    let mut text = Vec::new();
    loop {
        let soon = Instant::now() + crate::boot::STOP_POLL;
        let event = vm.next(deadline.min(soon))?;
        if stop() {
            vm.kill();
            return Ok(None);
        }
        match event {
            Some(VmEvent::Console(bytes)) if text.len() + bytes.len() <= SAID_BYTES_MAX => {
                text.extend(bytes);
            }
            Some(VmEvent::Console(_)) => {
                vm.kill();
                return Err(vm.failure("the program on the bare machine says too much"));
            }
            Some(VmEvent::Guest(_) | VmEvent::Held(_)) => {}
            Some(VmEvent::Ended(_)) if vm.reached_limit() => {
                return Err(vm.failure("the time of the bare machine is up (--guest-limit)"));
            }
            Some(VmEvent::Ended(status)) if !status.success() => {
                return Err(vm.failure(&format!("QEMU {}", ending(status))));
            }
            Some(VmEvent::Ended(_)) => break,
            None if Instant::now() < deadline => {}
            None => {
                vm.kill();
                let seconds = limits.wall.as_secs_f64();
                let what = format!("the bare machine was killed after {seconds:.0} s (--limit)");
                return Err(vm.failure(&what));
            }
        }
    }
    Said::parse(&text).map(Some).map_err(|why| vm.failure(&format!("the bare machine: {why}")))
}

/// The level at which a machine is watched: with a model its own, else instructions.
fn watch(model: Option<&crate::models::Model>) -> Watch {
    let detail = model.map_or(Detail::Count, |model| model.detail);
    // Until the program opens its region there is firmware.
    Watch { detail, model: model.cloned(), start_fast: true, ..Watch::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_the_markers_that_the_plugin_looks_for() {
        if PROGRAM.is_empty() {
            return println!("not run: {PROGRAM_MISSING}");
        }
        let bytes = simrecord::marker::BYTES;
        let marks = PROGRAM.windows(bytes.len()).filter(|window| *window == bytes).count();
        assert!(marks >= 3, "{marks} markers");
    }

    #[test]
    fn a_machine_without_an_initramfs_is_given_none() {
        let machine = Machine::bare("/b".into(), "aa".to_owned());
        let command = machine.command(&crate::qemu::tests::qemu(), "noise", "bare").unwrap();
        assert!(command.get_args().all(|argument| argument != "-initrd"));
    }
}
