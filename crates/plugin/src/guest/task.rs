//! Reads from a task's `task_struct` what the task does and what it is.

use attribution::{KernelContext, PID_UNKNOWN};
use plugin_interface::symbols::Offsets;

use crate::guest::memory::GuestMemory;

/// Flags of tasks that never run in user mode (include/linux/sched.h): threads of the kernel, workers of io_uring, and
/// workers that a driver made of a user's thread, such as those of vhost. The workers share the memory of a process.
const PF_KTHREAD: u32 = 0x0020_0000;
const PF_IO_WORKER: u32 = 0x10;
const PF_USER_WORKER: u32 = 0x4000;
/// The first release with `PF_USER_WORKER`. Some earlier ones use the same bit for tasks that load modules.
const USER_WORKER_SINCE: u64 = 6_004;

/// Whether a task that leaves its CPU waits for an event. If not, it could have continued. `task`: the address of its
/// `task_struct`. False if that cannot be read.
///
/// From Linux 6.12 on, a task that waits can stay in the queue of tasks that are ready to run (`DELAY_DEQUEUE`).
pub(crate) fn is_blocked(task: u64, offsets: &Offsets, memory: &mut impl GuestMemory) -> bool {
    let on_rq = offsets.on_rq.and_then(|offset| memory.half_word_at(task.wrapping_add(offset)));
    let delayed = offsets.sched_delayed.map(|offset| task.wrapping_add(offset));
    let delayed = delayed.and_then(|address| memory.bytes_at::<1>(address));
    on_rq == Some(0) || delayed.is_some_and(|[delayed]| delayed != 0)
}

/// The context at the bottom of a task's stack, if the task's entry into the kernel was not seen. `task`: the address of
/// its `task_struct`.
pub(crate) fn bottom_context(
    task: u64,
    pid: Option<u32>,
    offsets: &Offsets,
    memory: &mut impl GuestMemory,
) -> KernelContext {
    let Some(pid) = pid else { return KernelContext::Task(PID_UNKNOWN) };
    if pid == 0 {
        return KernelContext::Idle;
    }
    let flags =
        offsets.task_flags.and_then(|offset| memory.half_word_at(task.wrapping_add(offset)));
    let has_user_workers = offsets.release.is_some_and(|release| release >= USER_WORKER_SINCE);
    let user_worker = if has_user_workers { PF_USER_WORKER } else { 0 };
    let is_kernel_worker = flags.unwrap_or(0) & (PF_KTHREAD | PF_IO_WORKER | user_worker) != 0;
    let user_memory = offsets.mm.and_then(|offset| memory.word_at(task.wrapping_add(offset)));
    // Without user memory of its own, a task cannot run in user mode either.
    if is_kernel_worker || user_memory == Some(0) {
        KernelContext::KernelThread(pid)
    } else {
        KernelContext::Task(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::tests::TestMemory;

    const TASK: u64 = 0xffff_8880_0000_1000;
    const OFFSETS: &str = "task_struct.on_rq 8\ntask_struct.flags 16\ntask_struct.mm 24\n";
    const SCHED_DELAYED: &str = "task_struct.se.sched_delayed 4\n";

    fn offsets(further: &str) -> Offsets {
        Offsets::parse(&format!("{OFFSETS}{further}")).unwrap()
    }

    #[test]
    fn a_task_that_waits_can_stay_queued() {
        let is_blocked = |on_rq: u32, delayed: u8, further| {
            let mut memory = TestMemory::default();
            memory.write(TASK + 8, &on_rq.to_le_bytes());
            // The next bytes belong to other members.
            memory.write(TASK + 4, &[delayed, 1, 1, 1]);
            is_blocked(TASK, &offsets(further), &mut memory)
        };
        assert!(is_blocked(1, 1, SCHED_DELAYED));
        assert!(!is_blocked(1, 0, SCHED_DELAYED), "it was preempted");
        assert!(is_blocked(0, 0, SCHED_DELAYED));
        // Before Linux 6.12
        assert!(is_blocked(0, 1, "") && !is_blocked(1, 1, ""));
    }

    #[test]
    fn workers_with_the_memory_of_a_process_are_threads_of_the_kernel() {
        let context = |flags: u32, mm: u64, release| {
            let mut memory = TestMemory::default();
            memory.write(TASK + 16, &flags.to_le_bytes());
            memory.write(TASK + 24, &mm.to_le_bytes());
            bottom_context(TASK, Some(7), &offsets(release), &mut memory)
        };
        let (thread, task) = (KernelContext::KernelThread(7), KernelContext::Task(7));
        let (old, new) = ("linux release 6003\n", "linux release 6004\n");
        for release in [old, new] {
            assert_eq!(context(0, 0, release), thread);
            assert_eq!(context(0, 0x1000, release), task);
            assert_eq!(context(PF_KTHREAD, 0x1000, release), thread);
            assert_eq!(context(PF_IO_WORKER, 0x1000, release), thread);
        }
        assert_eq!(context(PF_USER_WORKER, 0x1000, new), thread);
        assert_eq!(context(PF_USER_WORKER, 0x1000, old), task, "the bit has another meaning");
        let mut memory = TestMemory::default();
        assert_eq!(bottom_context(TASK, Some(7), &offsets(new), &mut memory), task);
        assert_eq!(bottom_context(TASK, Some(0), &offsets(new), &mut memory), KernelContext::Idle);
        let unknown = bottom_context(TASK, None, &offsets(new), &mut memory);
        assert_eq!(unknown, KernelContext::Task(PID_UNKNOWN));
    }
}
