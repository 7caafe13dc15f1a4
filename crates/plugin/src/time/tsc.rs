//! Corrects the guest's reads of the time-stamp counter, where guest time follows a model. QEMU's clock, which the
//! counter shows, is set to the model's time only at the end of a slice. So a value that is read within a slice is
//! corrected.
//!
//! `rdtsc` is the last instruction of its block. `qemu/callbacks.rs` calls [`TscReadings::start`] before the
//! instruction. [`TscReadings::correct`] follows before the next block, or when the vCPU enters a handler.

use crate::cpu;
use crate::qemu::{Qemu, Registers};
use crate::time::clock::Clock;

/// The guest's readings of the time-stamp counter.
#[derive(Debug, Default)]
pub(crate) struct TscReadings {
    /// Reads that could not be corrected. There must be none.
    uncorrected: u64,
}

impl TscReadings {
    /// Notes that a vCPU is about to read the counter, and by how much its value must be corrected.
    pub(crate) fn start(vcpu: u32, clock: &Clock) {
        let ahead_ns = clock.ahead_ns(vcpu);
        cpu::with_vcpu(vcpu, |cpu| cpu.read_clock(ahead_ns));
    }

    /// Adds the correction to the value that a vCPU has read, which is in `edx` and `eax`. Does nothing if its last
    /// block did not read the counter.
    pub(crate) fn correct(&mut self, vcpu: u32, qemu: &mut Qemu, registers: Option<Registers>) {
        let ahead_ns = cpu::with_vcpu(vcpu, |cpu| cpu.take_clock_ahead());
        if let Some((ahead_ns, registers)) = ahead_ns.zip(registers) {
            let read = qemu.edx_eax(registers);
            if qemu.put_edx_eax(registers, read.wrapping_add_signed(ahead_ns)).is_none() {
                self.uncorrected += 1;
            }
        }
    }

    /// The number of reads that could not be corrected.
    pub(crate) fn uncorrected(&self) -> u64 {
        self.uncorrected
    }
}
