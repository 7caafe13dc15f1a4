//! Does the work that is due before a block starts.

use crate::cpu::{self, BeforeBlock};
use crate::devices::held;
use crate::qemu::block::Block;
use crate::session;

/// The work of all levels before a block.
pub(crate) struct WhatIsDue;

impl BeforeBlock for WhatIsDue {
    #[cold]
    #[inline(never)]
    fn before_block(vcpu: u32, block: &Block) {
        do_what_is_due(vcpu, block);
    }
}

/// The running block has written to a device, possibly to the local APIC, which interrupts another vCPU. If the block
/// is the last of its time slice, QEMU leaves its loop after it, so that the other vCPUs run.
pub(crate) fn device_written() {
    let vcpu = cpu::running();
    if cpu::with(vcpu, |cpu| cpu.is_in_last_block())
        && let Some(session) = session::lock().as_mut()
    {
        session.clock.leave_after_slice(vcpu);
    }
}

/// Does the work that is due before `block`: the mode changes, the time slice is over, a PMU counter may have
/// overflowed, the guest has read its clock, a device has written memory, or a followed function returns to `block`.
fn do_what_is_due(vcpu: u32, block: &Block) {
    let (slice_is_over, returns, pmu_is_due, has_read_clock, device_wrote) =
        cpu::with(vcpu, |cpu| {
            cpu.set_mode(block.in_kernel);
            if cpu.is_in_last_block() {
                cpu.set_in_last_block(false);
            }
            let (is_over, pmu_is_due) = (cpu.slice_is_over(), cpu.pmu_is_due());
            let returns = cpu.awaits(block.address);
            (is_over, returns, pmu_is_due, cpu.has_read_clock(), cpu.device_wrote())
        });
    if !slice_is_over && !returns && !pmu_is_due && !has_read_clock && !device_wrote {
        return;
    }
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    if device_wrote {
        session.written();
    }
    if has_read_clock {
        session.tsc.correct(vcpu, &mut session.qemu, session.registers);
    }
    if returns && !session.writer.has_ended() {
        if let Some((tracker, moment)) = session.moment(vcpu, 0) {
            tracker.returned(vcpu as usize, block.address, moment);
        }
        session.tracked(vcpu);
    }
    if pmu_is_due {
        let now = session.pmu_now(vcpu, 0);
        if let Some(pmus) = &mut session.pmus {
            pmus.check(vcpu, &now);
        }
    }
    if slice_is_over {
        session.clock.end_slice(vcpu, block);
        session.close_if_enough(vcpu);
        held::ask();
    }
}
