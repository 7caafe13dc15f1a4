//! The scheduling class and the timer slack of measured threads and wakers.

use std::io;
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use rustix::thread::{CapabilitySet, capabilities, current_timer_slack, set_current_timer_slack};

use super::settings::{DeadlineTimes, Policy};
use crate::host::diagnosis::setcap_line_for;
use crate::host::{Root, format_cpu_list, host_facts};
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::pin;

/// Time between two tries to get the class SCHED_DEADLINE.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Gives this thread its scheduling class, and the smallest timer slack. Returns why the kernel refused the class. The
/// thread then runs under SCHED_OTHER. `None`: the kernel accepted it.
pub(super) fn apply_policy(policy: Policy) -> Option<String> {
    let applied = match policy {
        Policy::Deadline(times) => apply_deadline(policy, times),
        _ => policy.apply(),
    };
    let policy_error = applied.err().map(|error| error.to_string());
    if policy_error.is_some() {
        let _ = Policy::Other.apply(); // irqlab may have been started in a real-time class.
    }
    // A usual thread's timers may expire up to 50 us later than asked, together with others.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    policy_error
}

/// Gives this thread a class SCHED_DEADLINE. The kernel keeps the CPU time of a thread that has ended reserved for up to a
/// period, so this tries for two periods.
fn apply_deadline(policy: Policy, times: DeadlineTimes) -> io::Result<()> {
    let until = Instant::now() + Duration::from_nanos(2 * times.period_ns).max(10 * TRY_AGAIN);
    loop {
        match policy.apply() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(TRY_AGAIN);
            }
            result => return result,
        }
    }
}

/// Checks that pinned threads on these CPUs can have the class. Only SCHED_DEADLINE is checked: without another class, the
/// threads run under SCHED_OTHER.
///
/// Fails with the remedy if a thread cannot have the class.
pub(super) fn check_policy(policy: Policy, cpus: &[u32]) -> Result<(), BenchError> {
    if !policy.is_deadline() {
        return Ok(());
    }
    for &cpu in cpus {
        let try_class = move || pin(cpu).map(|()| apply_policy(policy));
        let thread = spawn_thread("irqlab-class", try_class).map_err(no_thread)?;
        let died = || BenchError::Failed(format!("a thread on CPU {cpu} died"));
        // The CPU may be offline, which the measurement says.
        let Ok(refused) = thread.join().map_err(|_| died())? else { continue };
        if let Some(reason) = refused {
            return Err(refused_deadline(policy, cpu, &reason));
        }
    }
    Ok(())
}

/// The error for a thread on this CPU that cannot have the class SCHED_DEADLINE. `reason`: the kernel's.
pub(super) fn refused_deadline(policy: Policy, cpu: u32, reason: &str) -> BenchError {
    let may_set_classes = capabilities(None)
        .is_ok_and(|capabilities| capabilities.effective.contains(CapabilitySet::SYS_NICE));
    let reason = format!("{policy} is refused on CPU {cpu}: {reason}");
    let is_denied = reason.contains("os error 1)");
    let (reason, remedy) = if is_denied && may_set_classes {
        let why = "the kernel lets a thread of this class stay on one CPU only if its root domain has no other CPU";
        let partition = format!(
            "start irqlab in a cpuset partition that has only CPU {} (cpuset.cpus.partition = root)",
            format_cpu_list(&[cpu])
        );
        let remedy = format!(
            "{partition}, or for the time of the run sysctl kernel.sched_rt_runtime_us=-1, which switches off the kernel's \
             limits of real-time classes; or use --on sim, or --policy fifo:99"
        );
        (format!("{reason}; {why}"), Some(remedy))
    } else if is_denied {
        let facts = host_facts(&Root::default());
        (reason, Some(setcap_line_for(&facts, &["cap_sys_nice"])))
    } else {
        (reason, None)
    };
    BenchError::NothingMeasurable { reason, remedy }
}

/// The timer slack of this thread, ns. The kernel reports one for a real-time thread, too, and does not apply it.
pub(super) fn timer_slack_now_ns() -> u64 {
    if Policy::is_real_time_now() { 0 } else { current_timer_slack().unwrap_or(0) }
}
