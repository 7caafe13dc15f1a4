//! Does the work that is due before a block starts. The callbacks of blocks in `cpu` call it when
//! `Cpu::is_due` finds that there is any: at mode changes, ends of time slices and other rare events. It takes the lock
//! of the session, so it must not be called for each block.

use crate::cpu::{self, BeforeBlock};
use crate::devices::held;
use crate::qemu::block::Block;
use crate::session::{self, Session};

/// The work before a block, for all levels of detail.
pub(crate) struct DueWork;

impl BeforeBlock for DueWork {
    #[cold]
    #[inline(never)]
    fn before_block(vcpu: u32, block: &Block) {
        do_due_work(vcpu, block);
    }
}

/// Handles that the running block has written to a device. If the block is the last of its time slice, QEMU leaves its
/// loop after the block, so that other vCPUs run: a write to the local APIC may have interrupted one of them.
pub(crate) fn device_written() {
    let vcpu = cpu::running_vcpu();
    if cpu::with_vcpu(vcpu, |cpu| cpu.is_in_last_block())
        && let Some(session) = session::lock().as_mut()
    {
        session.clock.leave_after_slice(vcpu);
    }
}

/// Does the work that is due before `block`: the mode changes, the time slice is over, or a PMU counter may have
/// overflowed. Or the guest has read its clock, a device has written memory, the block before has an event that is handled at its
/// end, or a followed function returns to `block`. Or blocks are recorded.
///
/// Order matters: devices' writes reach the caches first. The end of the slice comes last: it may close the region.
fn do_due_work(vcpu: u32, block: &Block) {
    let is_return = || cpu::with_vcpu(vcpu, |cpu| cpu.is_awaited_address(block.address));
    let (slice_is_over, pmu_is_due, has_read_clock, device_wrote, is_recorded, block_has_event) =
        cpu::with_vcpu(vcpu, |cpu| {
            cpu.set_mode(block.in_kernel);
            if cpu.is_in_last_block() {
                cpu.leave_last_block();
            }
            let (is_over, pmu_is_due) = (cpu.slice_is_over(block), cpu.pmu_is_due());
            let (has_read_clock, device_wrote) = (cpu.has_read_clock(), cpu.device_wrote());
            let is_recorded = cpu.records_blocks();
            let block_has_event = cpu.has_event_at_block_end();
            (is_over, pmu_is_due, has_read_clock, device_wrote, is_recorded, block_has_event)
        });
    let changes_nothing = !slice_is_over && !is_return() && !pmu_is_due && !block_has_event;
    if changes_nothing && !has_read_clock && !device_wrote && !is_recorded {
        return;
    }
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    if device_wrote {
        session.pass_device_writes();
    }
    if has_read_clock {
        session.tsc.correct(vcpu, &mut session.qemu, session.registers);
    }
    if block_has_event {
        session.complete_block_event(vcpu);
    }
    // Asked after a return from an interrupt, which may have come where a followed function had just returned.
    if is_return() && !session.writer.has_ended() {
        session.handle_return(vcpu, block.address);
    }
    if is_recorded {
        session.record_block(vcpu, block);
    }
    if pmu_is_due {
        let now = session.pmu_counts(vcpu, 0);
        let Session { pmus, writer, .. } = session;
        if let Some(pmus) = pmus {
            pmus.check(vcpu, &now, writer);
        }
    }
    if slice_is_over {
        session.withhold(vcpu);
        session.clock.end_slice(vcpu, block);
        session.close_if_enough(vcpu);
        held::hold_if_requested();
    }
}
