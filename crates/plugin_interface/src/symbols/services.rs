//! The kernel functions that show which service the kernel executes: the scheduler, the handling of page faults, locks,
//! and functions that wait. The tables below name them; the plugin acts at their first instruction.
//!
//! To support another kernel, add the names of its functions. The positions in [`WAITS`] are numbers in records.

use attribution::{FaultKind, LockKind};

use super::Action;

/// The meaning of a function for the page fault that calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultStep {
    /// The memory management starts to handle the fault. `rdi` points to the fault's `vm_area_struct`.
    Handle,
    /// The fault is on a page of a file, or of shared memory. `rdi` points to the fault's `vm_fault`.
    FilePage,
    /// The fault has found its page, and starts to read later pages. It does not wait for them.
    ReadAhead,
    /// The fault reads its own page, unless [`FaultStep::ReadAhead`] came before.
    Read,
    /// The fault has this kind, unless a later function shows a more specific kind.
    Is(FaultKind),
}

/// Functions whose first instruction shows the state of a service.
const POINTS: [(&str, Action); 26] = [
    ("__schedule", Action::Schedule),
    ("try_to_wake_up", Action::WakeUp),
    ("handle_mm_fault", Action::Fault(FaultStep::Handle)),
    ("do_fault", Action::Fault(FaultStep::FilePage)),
    // Static functions that compilers inline into their only caller on some kernels.
    ("do_anonymous_page", Action::Fault(FaultStep::Is(FaultKind::DemandZero))),
    ("do_cow_fault", Action::Fault(FaultStep::Is(FaultKind::CopyOnWrite))),
    ("do_huge_pmd_anonymous_page", Action::Fault(FaultStep::Is(FaultKind::DemandZero))),
    ("ptep_set_access_flags", Action::Fault(FaultStep::Is(FaultKind::Spurious))),
    ("huge_pmd_set_accessed", Action::Fault(FaultStep::Is(FaultKind::Spurious))),
    ("spurious_kernel_fault", Action::Fault(FaultStep::Is(FaultKind::Spurious))),
    ("do_wp_page", Action::Fault(FaultStep::Is(FaultKind::Protection))),
    // A huge page. If it has other users, the kernel splits it, and continues in do_wp_page.
    ("do_huge_pmd_wp_page", Action::Fault(FaultStep::Is(FaultKind::Protection))),
    ("wp_page_copy", Action::Fault(FaultStep::Is(FaultKind::CopyOnWrite))),
    // From Linux 6.8 on wp_page_copy, which may be part of do_wp_page, calls it.
    ("folio_prealloc", Action::Fault(FaultStep::Is(FaultKind::CopyOnWrite))),
    // The page cache lacks the page.
    ("page_cache_sync_ra", Action::Fault(FaultStep::Is(FaultKind::File))),
    ("page_cache_ra_order", Action::Fault(FaultStep::Read)),
    // The page cache has the page. A mark on the page requests to read the next pages.
    ("page_cache_async_ra", Action::Fault(FaultStep::ReadAhead)),
    ("filemap_read_folio", Action::Fault(FaultStep::Is(FaultKind::File))),
    // The kernel comes here for each entry of a page table that has no page. The page may be in memory: in the swap cache,
    // or on its way to another address. Only the functions after this one read it from swap.
    ("do_swap_page", Action::Fault(FaultStep::Is(FaultKind::Minor))),
    ("swapin_readahead", Action::Fault(FaultStep::Is(FaultKind::Swap))),
    // The name of swap_read_folio on earlier kernels.
    ("swap_read_folio", Action::Fault(FaultStep::Is(FaultKind::Swap))),
    ("swap_readpage", Action::Fault(FaultStep::Is(FaultKind::Swap))),
    ("__bad_area_nosemaphore", Action::Fault(FaultStep::Is(FaultKind::BadAddress))),
    ("bad_area_nosemaphore", Action::Fault(FaultStep::Is(FaultKind::BadAddress))),
    ("__bad_area", Action::Fault(FaultStep::Is(FaultKind::BadAddress))),
    ("kernelmode_fixup_or_oops", Action::Fault(FaultStep::Is(FaultKind::BadAddress))),
];

/// Functions that wait, and the events that they wait for. If several are on the stack, the innermost counts. But the
/// last [`GENERAL_WAITS`] functions, which the others call, count only if no other function is known.
const WAITS: [(&str, &str); 58] = [
    ("pipe_read", "pipe: data"),
    ("pipe_write", "pipe: room"),
    ("pipe_wait_readable", "pipe: data"),
    ("pipe_wait_writable", "pipe: room"),
    ("do_wait", "child process"),
    ("futex_wait_queue", "futex"),
    ("futex_wait_queue_me", "futex"),
    ("do_nanosleep", "sleep"),
    ("do_epoll_wait", "epoll"),
    ("do_select", "select"),
    ("do_sys_poll", "poll"),
    ("do_sigtimedwait", "signal"),
    ("sigsuspend", "signal"),
    ("__do_sys_pause", "signal"),
    ("do_msgrcv", "message queue"),
    ("__do_semtimedop", "semaphore (SysV)"),
    ("do_semtimedop", "semaphore (SysV)"),
    ("unix_stream_read_generic", "unix socket: data"),
    ("__skb_wait_for_more_packets", "datagram socket: data"),
    ("sock_alloc_send_pskb", "socket: room"),
    ("sk_stream_wait_memory", "socket: room"),
    ("sk_wait_data", "socket: data"),
    ("inet_csk_accept", "socket: connection"),
    ("inet_accept", "socket: connection"),
    ("unix_accept", "socket: connection"),
    ("read_events", "asynchronous I/O"),
    ("io_cqring_wait", "io_uring"),
    ("n_tty_read", "terminal: input"),
    ("tty_write", "terminal: room"),
    ("folio_wait_bit_common", "page: read or lock"),
    ("folio_wait_writeback", "page: writeback"),
    ("wait_on_page_bit_common", "page: read or lock"),
    ("submit_bio_wait", "disk"),
    ("blk_io_schedule", "disk"),
    ("jbd2_log_wait_commit", "journal commit"),
    ("__mutex_lock", "mutex"),
    // PREEMPT_RT has its own locks.
    ("rt_mutex_slowlock", "mutex"),
    ("rt_mutex_slowlock_block", "mutex"),
    ("rtlock_slowlock_locked", "spin lock (PREEMPT_RT)"),
    ("__rwbase_read_lock", "rw semaphore: read"),
    ("rwbase_write_lock", "rw semaphore: write"),
    ("__mutex_lock_slowpath", "mutex"),
    ("rwsem_down_read_slowpath", "rw semaphore: read"),
    ("rwsem_down_write_slowpath", "rw semaphore: write"),
    ("__down_common", "semaphore"),
    ("percpu_rwsem_wait", "rw semaphore: per CPU"),
    ("__wait_rcu_gp", "RCU grace period"),
    ("synchronize_rcu", "RCU grace period"),
    ("synchronize_rcu_expedited", "RCU grace period"),
    ("worker_thread", "work"),
    ("smpboot_thread_fn", "work"),
    ("kthread_worker_fn", "work"),
    ("rcu_gp_kthread", "work"),
    ("kswapd", "memory pressure"),
    ("io_schedule", "I/O"),
    ("wait_for_completion", "completion"),
    ("wait_for_completion_state", "completion"),
    ("schedule_timeout", "time or event"),
];

/// Functions that take the lock at the address in `rdi`.
const LOCK_TAKERS: [(&str, LockKind); 22] = [
    ("_raw_spin_lock", LockKind::Spin),
    ("_raw_spin_lock_irqsave", LockKind::Spin),
    ("_raw_spin_lock_irq", LockKind::Spin),
    ("_raw_spin_lock_bh", LockKind::Spin),
    ("_raw_read_lock", LockKind::SpinRead),
    ("_raw_read_lock_irqsave", LockKind::SpinRead),
    ("_raw_read_lock_irq", LockKind::SpinRead),
    ("_raw_read_lock_bh", LockKind::SpinRead),
    ("_raw_write_lock", LockKind::SpinWrite),
    ("_raw_write_lock_nested", LockKind::SpinWrite),
    ("_raw_write_lock_irqsave", LockKind::SpinWrite),
    ("_raw_write_lock_irq", LockKind::SpinWrite),
    ("_raw_write_lock_bh", LockKind::SpinWrite),
    ("mutex_lock", LockKind::Mutex),
    ("mutex_lock_io", LockKind::Mutex),
    ("mutex_lock_interruptible", LockKind::Mutex),
    ("mutex_lock_killable", LockKind::Mutex),
    ("down_read", LockKind::SemaphoreRead),
    ("down_read_interruptible", LockKind::SemaphoreRead),
    ("down_read_killable", LockKind::SemaphoreRead),
    ("down_write", LockKind::SemaphoreWrite),
    ("down_write_killable", LockKind::SemaphoreWrite),
];

/// Slow paths of the locks above, and whether the slow path can sleep. Slow paths that can sleep are waits as well.
const SLOW_PATHS: [(&str, bool); 6] = [
    ("native_queued_spin_lock_slowpath", false),
    ("queued_read_lock_slowpath", false),
    ("queued_write_lock_slowpath", false),
    ("__mutex_lock", true),
    ("rwsem_down_read_slowpath", true),
    ("rwsem_down_write_slowpath", true),
];

/// Functions that release a lock that one task holds. After `downgrade_write` the task keeps the lock to read; how long
/// readers hold a lock is not followed.
const LOCK_RELEASERS: [&str; 11] = [
    "_raw_spin_unlock",
    "_raw_spin_unlock_irqrestore",
    "_raw_spin_unlock_irq",
    "_raw_spin_unlock_bh",
    "_raw_write_unlock",
    "_raw_write_unlock_irqrestore",
    "_raw_write_unlock_irq",
    "_raw_write_unlock_bh",
    "mutex_unlock",
    "up_write",
    "downgrade_write",
];

/// How many functions at the end of [`WAITS`] count only if no other function is known.
const GENERAL_WAITS: usize = 4;

/// The kernel's table of its system calls.
pub(super) const SYSCALL_TABLE: &str = "sys_call_table";

/// The action at the first instruction of a function.
pub(super) fn action_of(name: &str) -> Option<Action> {
    let point = POINTS.iter().find(|point| point.0 == name).map(|point| point.1);
    point.or_else(|| {
        let position = WAITS.iter().position(|wait| wait.0 == name)?;
        let is_general = position >= WAITS.len() - GENERAL_WAITS;
        Some(Action::Wait { number: position as u8 + 1, is_general })
    })
}

/// The action for locks at the first instruction of a function.
pub(super) fn lock_action_of(name: &str) -> Option<Action> {
    let taker = LOCK_TAKERS.iter().find(|taker| taker.0 == name);
    let slow_path = || SLOW_PATHS.iter().find(|path| path.0 == name);
    taker.map(|(_, kind)| Action::TakeLock(*kind)).or_else(|| {
        let contends = slow_path().map(|(_, sleeps)| Action::ContendLock { sleeps: *sleeps });
        contends.or_else(|| LOCK_RELEASERS.contains(&name).then_some(Action::ReleaseLock))
    })
}

/// The names of all functions above. Slow paths that can sleep are among the waits.
pub(super) fn wanted_functions() -> impl Iterator<Item = &'static str> {
    let points = POINTS.iter().map(|point| point.0);
    let waits = WAITS.iter().map(|wait| wait.0);
    let takers = LOCK_TAKERS.iter().map(|taker| taker.0);
    let slow = SLOW_PATHS.iter().filter(|path| !path.1).map(|path| path.0);
    points.chain(waits).chain(takers).chain(slow).chain(LOCK_RELEASERS)
}

/// The event that a function waits for; `number` is that of [`Action::Wait`]. `None` for 0 and unknown numbers.
#[must_use]
pub fn wait_name(number: u32) -> Option<&'static str> {
    let position = usize::try_from(number.checked_sub(1)?).ok()?;
    WAITS.get(position).map(|wait| wait.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_all_waits_call_say_it_last() {
        let is_general = |name| match action_of(name) {
            Some(Action::Wait { is_general, .. }) => Some(is_general),
            _ => None,
        };
        assert_eq!(is_general("pipe_read"), Some(false));
        assert_eq!(is_general("kswapd"), Some(false));
        assert_eq!(is_general("io_schedule"), Some(true));
        assert_eq!(is_general("schedule_timeout"), Some(true));
        assert_eq!(is_general("__schedule"), None);
    }

    #[test]
    fn a_page_that_is_in_memory_is_not_read_from_swap() {
        let kind = |name| match action_of(name) {
            Some(Action::Fault(FaultStep::Is(kind))) => Some(kind),
            _ => None,
        };
        // The fault of a page that moves reaches the first function only.
        assert_eq!(kind("do_swap_page"), Some(FaultKind::Minor));
        for reads in ["swapin_readahead", "swap_read_folio", "swap_readpage"] {
            assert_eq!(kind(reads), Some(FaultKind::Swap));
            assert!(wanted_functions().any(|name| name == reads));
        }
        assert_eq!(kind("do_huge_pmd_wp_page"), Some(FaultKind::Protection));
    }

    #[test]
    fn a_downgrade_ends_the_hold_of_a_writer() {
        assert_eq!(lock_action_of("downgrade_write"), Some(Action::ReleaseLock));
        assert_eq!(lock_action_of("down_write"), Some(Action::TakeLock(LockKind::SemaphoreWrite)));
        assert!(wanted_functions().any(|name| name == "downgrade_write"));
    }

    /// The endings of the functions of spin locks and rwlocks: those in the symbols of Debian's kernels 6.1 and 6.12, whose
    /// names start with `_raw_` (include/linux/rwlock_api_smp.h, spinlock_api_smp.h).
    const FORMS: [&str; 4] = ["", "_irqsave", "_irq", "_bh"];

    #[test]
    fn every_form_of_a_spinning_lock_is_followed() {
        let kinds = [
            ("spin", LockKind::Spin),
            ("read", LockKind::SpinRead),
            ("write", LockKind::SpinWrite),
        ];
        for (name, kind) in kinds {
            for form in FORMS {
                let taker = format!("_raw_{name}_lock{form}");
                assert_eq!(lock_action_of(&taker), Some(Action::TakeLock(kind)), "{taker}");
                assert!(wanted_functions().any(|wanted| wanted == taker), "{taker}");
                // How long readers hold a lock is not followed.
                let releaser = format!("_raw_{name}_unlock{}", form.replace("save", "restore"));
                let release = (kind != LockKind::SpinRead).then_some(Action::ReleaseLock);
                assert_eq!(lock_action_of(&releaser), release, "{releaser}");
            }
        }
        let nested = lock_action_of("_raw_write_lock_nested");
        assert_eq!(nested, Some(Action::TakeLock(LockKind::SpinWrite)));
    }

    #[test]
    fn waits_have_names_by_number() {
        let Some(Action::Wait { number, .. }) = action_of("do_wait") else { panic!("no wait") };
        assert_eq!(wait_name(number.into()), Some("child process"));
        assert_eq!((wait_name(0), wait_name(WAITS.len() as u32 + 1)), (None, None));
    }
}
