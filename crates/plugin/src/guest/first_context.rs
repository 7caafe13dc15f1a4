//! Finds the context of a CPU when the tracker starts to follow it, before the CPU's first event. A halted CPU has no
//! event until it wakes up, so all this time would otherwise belong to an unknown context.

use attribution::{KernelContext, PID_UNKNOWN};
use plugin_interface::symbols::{KernelSymbols, Offsets};

use crate::guest::memory::GuestMemory;
use crate::guest::task::bottom_context;
use crate::guest::tracker::is_kernel;
use crate::qemu::qemu_internals::Activity;

/// A task that runs on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunningTask {
    /// The address of its `task_struct`.
    pub(crate) address: u64,
    pub(crate) pid: Option<u32>,
    /// Its context in the kernel.
    bottom: KernelContext,
}

impl RunningTask {
    /// The task that the kernel's pointer to the current task of `cpu` names. `None` if the kernel's memory cannot be
    /// read: it is not mapped while the running vCPU is in user mode with isolated page tables.
    pub(crate) fn on_cpu(
        cpu: usize,
        symbols: &KernelSymbols,
        offsets: &Offsets,
        memory: &mut impl GuestMemory,
    ) -> Option<RunningTask> {
        let (areas, current_task) = (symbols.kernel_counts?.areas, symbols.current_task?);
        let area = memory.word_at(areas.wrapping_add(8 * cpu as u64))?;
        let address = memory.word_at(area.wrapping_add(current_task))?;
        if !is_kernel(address) {
            return None;
        }
        let pid = offsets.pid.and_then(|offset| memory.half_word_at(address.wrapping_add(offset)));
        let bottom = bottom_context(address, pid, offsets, memory);
        Some(RunningTask { address, pid, bottom })
    }
}

/// The context of a CPU before its first event. `activity`: `None` if QEMU does not show what the CPU does. Without it,
/// only the idle task is certain: any other task may be in user mode or in the kernel.
pub(crate) fn first_context(
    activity: Option<Activity>,
    task: Option<RunningTask>,
) -> KernelContext {
    let known_task = task.filter(|task| task.pid.is_some());
    match (activity, known_task) {
        (Some(Activity::UserMode), task) => {
            KernelContext::User(task.and_then(|task| task.pid).unwrap_or(PID_UNKNOWN))
        }
        (Some(Activity::Halted), _) => KernelContext::Idle,
        (Some(Activity::Other), Some(task)) => task.bottom,
        (None, Some(task)) if task.bottom == KernelContext::Idle => KernelContext::Idle,
        _ => KernelContext::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::tests::TestMemory;

    const AREAS: u64 = 0xffff_ffff_8200_0000;
    const AREA: u64 = 0xffff_8880_0400_0000;
    const TASK: u64 = 0xffff_8880_0000_1000;

    /// The task on CPU 1 whose process id is `pid`.
    fn task_with(pid: u32) -> Option<RunningTask> {
        let symbols = "ffffffff82000000 __per_cpu_offset\n\
                       000000000001fb80 current_task\n\
                       ffffffff81000000 __switch_to_asm\n";
        let symbols = KernelSymbols::parse(symbols).unwrap();
        let offsets = Offsets::parse("task_struct.pid 8\ntask_struct.mm 24\n").unwrap();
        let mut memory = TestMemory::default();
        memory.write(AREAS + 8, &AREA.to_le_bytes());
        memory.write(AREA + 0x1_fb80, &TASK.to_le_bytes());
        memory.write(TASK + 8, &pid.to_le_bytes());
        memory.write(TASK + 24, &0x1000_u64.to_le_bytes());
        assert_eq!(RunningTask::on_cpu(0, &symbols, &offsets, &mut memory), None, "not mapped");
        RunningTask::on_cpu(1, &symbols, &offsets, &mut memory)
    }

    #[test]
    fn a_halted_cpu_is_idle_before_its_first_event() {
        assert_eq!(first_context(Some(Activity::Halted), task_with(0)), KernelContext::Idle);
        // Page tables are isolated: the kernel's memory cannot be read.
        assert_eq!(first_context(Some(Activity::Halted), None), KernelContext::Idle);
        // The idle task executes, or QEMU does not show whether it does.
        assert_eq!(first_context(Some(Activity::Other), task_with(0)), KernelContext::Idle);
        assert_eq!(first_context(None, task_with(0)), KernelContext::Idle);
    }

    #[test]
    fn a_cpu_in_user_mode_is_not_in_the_kernel_before_its_first_event() {
        let user = Some(Activity::UserMode);
        assert_eq!(first_context(user, task_with(7)), KernelContext::User(7));
        assert_eq!(first_context(user, None), KernelContext::User(PID_UNKNOWN));
        assert_eq!(first_context(Some(Activity::Other), task_with(7)), KernelContext::Task(7));
    }

    #[test]
    fn a_context_that_nothing_shows_is_unknown() {
        assert_eq!(first_context(None, task_with(7)), KernelContext::Unknown);
        assert_eq!(first_context(None, None), KernelContext::Unknown);
        // Firmware, and a CPU that waits for its start.
        assert_eq!(first_context(Some(Activity::Other), None), KernelContext::Unknown);
    }
}
