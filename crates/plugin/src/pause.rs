//! The time of a `pause` at the level `fast`.
//!
//! QEMU leaves its loop of blocks at each `pause`, which costs the host as much as hundreds of other
//! instructions. A kernel that waits for its clock, as when it calibrates the local APIC's timer,
//! executes one every 20 instructions: at one nanosecond each, that is half of the host's time of a
//! boot. Real processors wait too: 140 cycles since Skylake (Intel 64 and IA-32 Architectures
//! Optimization Reference Manual, section on PAUSE latency).

use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;

use crate::ffi::NO_REGISTERS;
use crate::options::{Options, Time};
use crate::qemu::{Qemu, TranslatedInstruction};
use crate::qemu_internals::Bias;

/// What a `pause` adds to guest time.
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
        // The slice ends here: QEMU goes from a `pause` to another vCPU, and looks at its timers.
        clock.add(PAUSE_NS);
    }
}
