//! The machine without a kernel. QEMU starts the program `crates/bare` directly. The program runs with interrupts off,
//! except for the interrupts that `footprint` schedules. It writes its results to the serial port, and powers off.
//! `irqlab sim bare` and some reproductions of papers use it as a reference.
//!
//! The program has no symbols, so the plugin counts all its instructions in the context `unknown`. The program
//! runs at addresses of the kernel, so its instructions count as kernel code.

mod footprint;
mod lines;
mod noise;
mod truth;

use std::path::PathBuf;
use std::time::Instant;

use crate::boot::Limits;
use crate::guest::image::frozen;
use crate::machine::Machine;
use crate::machine::vm::{StartConfig, Stream, Vm, VmEvent, describe_exit};
use crate::qemu::Qemu;
use crate::watch::{Detail, KernelFiles, Recording, Watch};
use crate::{Accounting, Cache, Result, SimError};

pub use footprint::{
    By, FootprintSettings, Footprints, Geometry, LINES_MAX, Level, Method, Own, PMU_COUNTERS,
    REPETITIONS_MAX, Repetition, footprint,
};
pub use noise::{BareNoise, BareNoiseSettings};
pub use truth::{Counted, Point, Truth, TruthSettings, displaced};

use lines::Output;

/// The program from the build script; empty if it could not be built.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bare"));
/// Why the program could not be built.
const PROGRAM_MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/bare-missing"));
/// Maximum length of the program's output, bytes.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Memory of the machine, MiB: for the program, its records, and the memory that it walks through.
const MEMORY_MIB: u32 = 320;
/// Maximum size of the memory that the program walks through, bytes; equal to `bare::command::BYTES_MAX`.
pub(crate) const WALK_BYTES_MAX: u64 = 256 << 20;

/// The outcome of a run of the program.
#[derive(Debug)]
struct RunOutcome {
    output: Output,
    accounting: Accounting,
}

/// Returns the program as a file, and its hash.
///
/// Fails when this irqlab was built without it, or the cache cannot be written.
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

/// Returns the machine that runs the program.
fn machine(cache: &Cache) -> Result<Machine> {
    let (program, sha256) = program(cache)?;
    Ok(Machine { memory_mib: MEMORY_MIB, ..Machine::bare(program, sha256) })
}

/// Runs the program with a command line and observes it. Returns `None` if `stop` returned true.
fn run(
    cache: &Cache,
    qemu: &Qemu,
    watch: &Watch,
    pmu: bool,
    command_line: &str,
    limits: Limits,
    stop: &dyn Fn() -> bool,
) -> Result<Option<RunOutcome>> {
    let machine = Machine { pmu, ..machine(cache)? };
    let recording = Recording::new(cache, qemu, &machine, &KernelFiles::nothing(), watch, None)?;
    let mut instrumentation = recording.instrumentation();
    let limit_ns = u64::from(limits.guest_s).saturating_mul(1_000_000_000);
    instrumentation.add_option("limit_ns", &limit_ns.to_string());
    let config = StartConfig {
        command_line: command_line.to_owned(),
        request: "bare".to_owned(),
        state: None,
        instrumentation,
    };
    let mut vm = Vm::start(qemu, &machine, &config)?;
    let Some(output) = follow(&mut vm, limits, stop)? else { return Ok(None) };
    drop(vm);
    let accounting = recording.accounting()?;
    if let Some(broken) = accounting.broken.first() {
        return Err(SimError::data("the record of the machine", broken.clone()));
    }
    Ok(Some(RunOutcome { output, accounting }))
}

/// Follows the machine to its end, and parses the program's output. Returns `None` if `stop` returned true.
fn follow(vm: &mut Vm, limits: Limits, stop: &dyn Fn() -> bool) -> Result<Option<Output>> {
    let deadline = Instant::now() + limits.wall;
    let mut text = Vec::new();
    loop {
        let next_poll = Instant::now() + crate::boot::STOP_POLL;
        let event = vm.next_event(deadline.min(next_poll))?;
        if stop() {
            vm.kill();
            return Ok(None);
        }
        match event {
            Some(VmEvent::Text(Stream::Console, bytes))
                if text.len() + bytes.len() <= OUTPUT_BYTES_MAX =>
            {
                text.extend(bytes);
            }
            Some(VmEvent::Text(Stream::Console, _)) => {
                vm.kill();
                return Err(vm.failure("the program on the bare machine writes too much output"));
            }
            Some(VmEvent::Text(..) | VmEvent::Guest(_) | VmEvent::Held(_)) => {}
            Some(VmEvent::Ended(_)) if vm.reached_limit() => {
                return Err(
                    vm.time_limit("the bare machine has reached its time limit (--guest-limit)")
                );
            }
            Some(VmEvent::Ended(status)) if !status.success() => {
                return Err(vm.failure(&format!("QEMU {}", describe_exit(status))));
            }
            Some(VmEvent::Ended(_)) => break,
            None if Instant::now() < deadline => {}
            None => {
                vm.kill();
                let limit = limits.wall;
                let reason = format!("the bare machine was killed after {limit:?} (--limit)");
                return Err(vm.time_limit(&reason));
            }
        }
    }
    Output::parse(&text).map(Some).map_err(|why| vm.failure(&format!("the bare machine: {why}")))
}

/// Returns what the plugin records: at the level of the model, or instructions alone without a model.
fn watch(model: Option<&crate::models::Model>) -> Watch {
    let detail = model.map_or(Detail::Count, |model| model.detail);
    // Only firmware runs before the program opens its region: that need not be recorded.
    Watch { detail, model: model.cloned(), start_fast: true, ..Watch::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_the_markers_that_the_plugin_looks_for() {
        if PROGRAM.is_empty() {
            return needs::not_run(needs::Need::Qemu, PROGRAM_MISSING);
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
        assert!(machine.device_set().ends_with("2 serial ports"));
    }
}
