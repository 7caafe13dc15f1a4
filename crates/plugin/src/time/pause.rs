//! The time of a `pause` at the level `fast`.
//!
//! QEMU leaves its loop of blocks at each `pause`, which costs the host far more than another
//! instruction. A kernel that waits for its clock, as when it calibrates the local APIC's timer, does
//! little else: where a `pause` takes one nanosecond, such waits are half of the host's time of a
//! boot (docs/validation.md). Real processors wait longer, too: up to 140 cycles from Skylake on
//! (Intel 64 and IA-32 Architectures Optimization Reference Manual, section on PAUSE latency).

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

/// Looks for QEMU's clock. To be called before the machine runs.
pub(crate) fn begin(options: &Options) {
    CLOCK.get_or_init(|| if options.time == Time::Host { None } else { Bias::find() });
}

/// Has a `pause` take its time.
pub(crate) fn watch(qemu: &Qemu, instruction: TranslatedInstruction) {
    qemu.on_instruction_with(instruction, on_pause, NO_REGISTERS, std::ptr::null_mut());
}

extern "C" fn on_pause(_: c_uint, _: *mut c_void) {
    if let Some(Some(clock)) = CLOCK.get() {
        // `Bias::add` wants the end of a slice. A `pause` is one: QEMU leaves the vCPU there, whatever
        // is left of its slice, and checks its timers.
        clock.add(PAUSE_NS);
    }
}
