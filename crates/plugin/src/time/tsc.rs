//! The guest's reads of the time-stamp counter, where guest time follows a model. QEMU's clock is set to the
//! model's time only at the end of a slice. So a read within a slice is corrected.

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
    /// A vCPU is about to read the counter, which shows QEMU's clock.
    pub(crate) fn start(vcpu: u32, clock: &Clock) {
        let ahead_ns = clock.ahead_ns(vcpu);
        cpu::with(vcpu, |cpu| cpu.read_clock(ahead_ns));
    }

    /// Replaces the value that a vCPU has read from the counter by the model's time, if the last instruction of its
    /// block read the counter.
    pub(crate) fn correct(&mut self, vcpu: u32, qemu: &mut Qemu, registers: Option<Registers>) {
        let ahead_ns = cpu::with(vcpu, |cpu| cpu.take_clock_ahead());
        if let Some((ahead_ns, registers)) = ahead_ns.zip(registers) {
            let read = qemu.taken_value(registers);
            if qemu.put_value(registers, read.wrapping_add_signed(ahead_ns)).is_none() {
                self.uncorrected += 1;
            }
        }
    }

    /// The number of reads that could not be corrected.
    pub(crate) fn uncorrected(&self) -> u64 {
        self.uncorrected
    }
}
