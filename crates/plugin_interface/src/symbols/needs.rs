//! The kernel functions that each part of the tables needs. `sim` asks [`unmet_content`] which content of the tables a
//! kernel cannot have, and tells the user the reasons.

use super::Action;
use super::names::POINTS;
use attribution::context::SOFTIRQS;

/// A part of a recording that needs functions of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Contexts, which are part of every recording.
    Contexts,
    /// Functions of timers, work items, tasklets and RCU.
    Callbacks,
    /// Delays until work runs.
    Delays,
    /// Senders of function calls and interrupts.
    Senders,
    /// Tasks that submit the block requests which complete in an interrupt.
    Requests,
    /// Where an interrupt's return path calls the scheduler.
    Reschedules,
    /// Services of the kernel.
    Services,
    /// Locks that services take.
    Locks,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 8] = [
        Part::Contexts,
        Part::Callbacks,
        Part::Delays,
        Part::Senders,
        Part::Requests,
        Part::Reschedules,
        Part::Services,
        Part::Locks,
    ];
}

/// A part of a recording needs at least one of the symbols `any_of`. Without all of them, it lacks the content `what`.
struct Need {
    part: Part,
    what: &'static str,
    any_of: &'static [&'static str],
}

/// The rows of queued function calls in the table of senders.
const CALLS: &str = "function calls";

/// The causes of interrupts that complete block requests.
const REQUESTS: &str = "causes of BLOCK and of interrupts of disks";

const fn need(part: Part, what: &'static str, any_of: &'static [&'static str]) -> Need {
    Need { part, what, any_of }
}

const NEEDS: [Need; 55] = [
    need(Part::Requests, REQUESTS, &["submit_bio_noacct"]),
    need(Part::Requests, REQUESTS, &["bio_endio"]),
    need(Part::Requests, REQUESTS, &["blk_update_request"]),
    need(Part::Contexts, "all rows of softirqs", &["handle_softirqs", "__do_softirq"]),
    need(
        Part::Contexts,
        "all rows of IRQ lines",
        &["__handle_irq_event_percpu", "handle_irq_event_percpu"],
    ),
    need(Part::Contexts, "system calls", &["entry_SYSCALL_64"]),
    need(Part::Contexts, "which task runs", &["__switch_to_asm"]),
    need(Part::Contexts, "which task runs", &["current_task", "pcpu_hot"]),
    need(Part::Contexts, "ends of tasks", &["do_task_dead"]),
    need(Part::Contexts, "idle time", &["cpu_startup_entry"]),
    need(Part::Contexts, "when CPUs go offline (they are idle then)", &["cpuhp_report_idle_dead"]),
    need(Part::Contexts, "interrupts of devices", &["irq_entries_start"]),
    need(Part::Contexts, "interrupts of devices", &["spurious_entries_start"]),
    need(Part::Contexts, "timer interrupts", &["asm_sysvec_apic_timer_interrupt"]),
    need(Part::Contexts, "page faults", &["asm_exc_page_fault"]),
    need(Part::Callbacks, "rows of hrtimer functions", &["__run_hrtimer", "__hrtimer_run_queues"]),
    need(
        Part::Callbacks,
        "rows of timer functions",
        &["call_timer_fn", "expire_timers", "__run_timers"],
    ),
    need(Part::Callbacks, "rows of work functions", &["process_one_work"]),
    need(Part::Callbacks, "rows of tasklet functions", &["tasklet_action_common"]),
    need(Part::Callbacks, "rows of rcu functions", &["rcu_do_batch"]),
    need(Part::Delays, "delays of softirqs", &["__raise_softirq_irqoff"]),
    need(Part::Delays, "delays of work items", &["__queue_work"]),
    need(Part::Delays, "delays of work items", &["process_one_work"]),
    need(Part::Delays, "delays of threads of device IRQs", &["__irq_wake_thread"]),
    need(
        Part::Delays,
        "delays of high-resolution timers",
        &["__run_hrtimer", "__hrtimer_run_queues"],
    ),
    need(Part::Delays, "delays of high-resolution timers", &["tk_fast_mono"]),
    need(Part::Delays, "delays of timers", &["call_timer_fn", "expire_timers", "__run_timers"]),
    need(Part::Delays, "delays of timers", &["jiffies_64"]),
    need(Part::Delays, "delays of timers", &["clocksource_jiffies"]),
    need(Part::Senders, CALLS, &["llist_add_batch"]),
    need(Part::Senders, CALLS, &["call_single_queue"]),
    need(Part::Senders, CALLS, &["__per_cpu_offset"]),
    need(
        Part::Senders,
        CALLS,
        &["__flush_smp_call_function_queue", "flush_smp_call_function_queue"],
    ),
    need(
        Part::Senders,
        "call sites of function calls to one CPU",
        &["generic_exec_single", "__smp_call_single_queue"],
    ),
    need(
        Part::Senders,
        "call sites of function calls to several CPUs",
        &["smp_call_function_many_cond"],
    ),
    need(Part::Senders, "runs of irq_work that is queued to another CPU", &["irq_work_single"]),
    need(Part::Senders, "runs of queued wake-ups", &["sched_ttwu_pending"]),
    need(Part::Senders, "interrupts reschedule", &["native_smp_send_reschedule"]),
    need(Part::Senders, "interrupts call_function_single", &["native_send_call_func_single_ipi"]),
    need(Part::Senders, "interrupts call_function", &["native_send_call_func_ipi"]),
    need(Part::Senders, "interrupts irq_work", &["arch_irq_work_raise"]),
    need(
        Part::Reschedules,
        "time of the scheduler at the end of an interrupt (it is in the interrupt's)",
        &["__schedule"],
    ),
    need(Part::Services, "names of system calls", &["sys_call_table"]),
    need(Part::Services, "the scheduler", &["__schedule"]),
    need(Part::Services, "ends of waits", &["try_to_wake_up"]),
    need(Part::Services, "kinds of page faults", &["handle_mm_fault"]),
    need(Part::Services, "page faults: minor", &["do_fault"]),
    need(Part::Services, "page faults: file", &["filemap_read_folio", "page_cache_sync_ra"]),
    need(Part::Services, "page faults: protection", &["do_wp_page"]),
    need(
        Part::Services,
        "page faults: copy on write (they are in protection)",
        &["wp_page_copy", "folio_prealloc"],
    ),
    need(Part::Services, "waits for a mutex", &["__mutex_lock", "rt_mutex_slowlock_block"]),
    need(Part::Locks, "spin locks", &["_raw_spin_lock"]),
    need(Part::Locks, "waits for a spin lock", &["native_queued_spin_lock_slowpath"]),
    need(
        Part::Locks,
        "waits for mutexes and semaphores",
        &["__mutex_lock", "rwsem_down_read_slowpath"],
    ),
    need(Part::Locks, "how long a spin lock is held", &["_raw_spin_unlock"]),
];

/// Functions of kernels with locks that the plugin does not follow.
pub(super) const UNFOLLOWED: [&str; 1] = ["rt_spin_lock"];
/// The content that tables of such kernels lack, and the reason.
const UNFOLLOWED_WHAT: &str = "spin locks that sleep";
const UNFOLLOWED_WHY: &str = "irqlab does not follow the spin locks of PREEMPT_RT (rt_spin_lock)";

/// The content that a part lacks, each with the reason. `has` tells whether the kernel has a function, by the
/// function's name in the source.
#[must_use]
pub fn unmet_content(part: Part, has: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let is_met = |any_of: &[&str]| any_of.iter().any(|name| has(name));
    let reason = |names: &[&str]| {
        let names = names.join(" or ");
        format!("this kernel has no symbol {names}, and no usable copy of that function")
    };
    let needs = NEEDS.iter().filter(|need| need.part == part && !is_met(need.any_of));
    let mut unmet: Vec<(String, String)> =
        needs.map(|need| (need.what.to_owned(), reason(need.any_of))).collect();
    if part == Part::Contexts {
        for (number, name) in (0_u8..).zip(SOFTIRQS) {
            let handlers = POINTS.iter().filter(|point| point.1 == Action::SoftirqEntry(number));
            let handlers: Vec<&str> = handlers.map(|point| point.0).collect();
            if !is_met(&handlers) {
                unmet.push((format!("softirq {name}"), reason(&handlers)));
            }
        }
    }
    if part == Part::Locks && UNFOLLOWED.iter().any(|name| has(name)) {
        unmet.push((UNFOLLOWED_WHAT.to_owned(), UNFOLLOWED_WHY.to_owned()));
    }
    unmet
}

#[cfg(test)]
mod tests {
    use super::super::wanted_symbols;
    use super::*;

    #[test]
    fn all_that_is_needed_is_wanted() {
        let names: Vec<&str> = wanted_symbols().map(|wanted| wanted.name).collect();
        for need in NEEDS {
            assert!(need.any_of.iter().all(|name| names.contains(name)), "{}", need.what);
        }
    }

    #[test]
    fn a_kernel_without_a_function_is_said_to_lack_the_rows() {
        for part in Part::ALL {
            let has_all = |name: &str| !UNFOLLOWED.contains(&name);
            assert_eq!(unmet_content(part, has_all), []);
        }
        let without = |absent: &[&str], part| -> Vec<String> {
            let unmet =
                unmet_content(part, |name| !absent.contains(&name) && !UNFOLLOWED.contains(&name));
            unmet.into_iter().map(|(content, reason)| format!("{content}: {reason}")).collect()
        };
        assert!(without(&["__do_softirq"], Part::Contexts).is_empty());
        let both = without(&["handle_softirqs", "__do_softirq"], Part::Contexts);
        assert!(both[0].starts_with("all rows of softirqs: this kernel has no symbol"), "{both:?}");
        let softirq = without(&["net_rx_action"], Part::Contexts);
        assert!(softirq[0].starts_with("softirq NET_RX: ") && softirq.len() == 1, "{softirq:?}");
        let preempt_rt = unmet_content(Part::Locks, |_| true);
        assert_eq!(preempt_rt[0].0, "spin locks that sleep");
    }
}
