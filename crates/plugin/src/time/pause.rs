//! Gives a `pause` a longer guest time at the level `fast`, which `sim` uses for boots. Other levels do not use this
//! file.
//!
//! QEMU leaves its loop of translated blocks at each `pause`, which costs the host far more than another instruction. A
//! kernel that waits for its clock, for example to calibrate the local APIC's timer, executes mostly `pause`. If a
//! `pause` took one nanosecond, such waits would be half of the host's time of a boot (docs/validation.md). Real
//! processors wait longer, too: up to 140 cycles from Skylake on (Intel 64 and IA-32 Architectures Optimization
//! Reference Manual, section on PAUSE latency).

use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;

use crate::qemu::ffi::NO_REGISTERS;
use crate::qemu::qemu_internals::Bias;
use crate::qemu::{Qemu, TranslatedInstruction};
use plugin_interface::options::{Options, Time};

/// Guest time of a `pause`.
const PAUSE_NS: i64 = 250;

/// QEMU's clock, if it counts instructions and can be advanced.
static CLOCK: OnceLock<Option<Bias>> = OnceLock::new();

/// Finds QEMU's clock. Call it before the machine runs.
pub(crate) fn find_clock(options: &Options) {
    CLOCK.get_or_init(|| if options.time == Time::Host { None } else { Bias::find() });
}

/// Makes the `pause` at `instruction` take [`PAUSE_NS`].
pub(crate) fn watch(qemu: &Qemu, instruction: TranslatedInstruction) {
    qemu.on_instruction_with(instruction, on_pause, NO_REGISTERS, std::ptr::null_mut());
}

/// Called before each `pause`.
extern "C" fn on_pause(_: c_uint, _: *mut c_void) {
    if let Some(Some(clock)) = CLOCK.get() {
        // `Bias::add` may be called where a slice ends. A `pause` ends the slice: QEMU leaves the vCPU there, and
        // checks its timers.
        clock.add(PAUSE_NS);
    }
}
