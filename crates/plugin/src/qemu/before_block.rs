//! The work that is due before a block starts.

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

/// The block that runs has written to a device: to the local APIC perhaps, which interrupts another vCPU. If it
/// is the last block of a slice, the others run after it.
pub(crate) fn device_written() {
    let vcpu = cpu::running();
    if cpu::with(vcpu, |cpu| cpu.is_in_last_block())
        && let Some(session) = session::lock().as_mut()
    {
        session.clock.leave_after_slice(vcpu);
    }
}

/// The mode changes, the slice is over, a counter of the guest may have run over, a device has written to
/// memory, or a function that is followed returns here.
fn do_what_is_due(vcpu: u32, block: &Block) {
    let (over, returns, looks, corrects, wrote) = cpu::with(vcpu, |cpu| {
        cpu.set_mode(block.in_kernel);
        if cpu.is_in_last_block() {
            cpu.set_in_last_block(false);
        }
        let (over, looks) = (cpu.slice_is_over(), cpu.pmu_is_due());
        (over, cpu.awaits(block.address), looks, cpu.has_read_clock(), cpu.device_wrote())
    });
    if !over && !returns && !looks && !corrects && !wrote {
        return;
    }
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    if wrote {
        session.written();
    }
    if corrects {
        session.tsc.correct(vcpu, &mut session.qemu, session.registers);
    }
    if returns && !session.writer.has_ended() {
        if let Some((tracker, moment)) = session.moment(vcpu, 0) {
            tracker.returned(vcpu as usize, block.address, moment);
        }
        session.tracked(vcpu);
    }
    if looks {
        let now = session.pmu_now(vcpu, 0);
        if let Some(pmus) = &mut session.pmus {
            pmus.check(vcpu, &now);
        }
    }
    if over {
        session.clock.end_slice(vcpu, block);
        held::ask();
    }
}
