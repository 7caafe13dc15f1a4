//! The scheduling class and the timer slack of measured threads and wakers.

use rustix::thread::{current_timer_slack, set_current_timer_slack};

use super::settings::Policy;

/// Gives this thread its scheduling class, and the smallest timer slack. Returns why the kernel refused the class. The
/// thread then runs under SCHED_OTHER.
pub(super) fn apply_policy(policy: Policy) -> Option<String> {
    let policy_error = policy.apply().err().map(|error| error.to_string());
    if policy_error.is_some() {
        let _ = Policy::Other.apply(); // irqlab may have been started in a real-time class.
    }
    // A usual thread's timers may expire up to 50 us later than asked, together with others.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    policy_error
}

/// The timer slack of this thread, ns. The kernel reports one for a real-time thread, too, and does not apply it.
pub(super) fn timer_slack_now_ns() -> u64 {
    if Policy::is_real_time_now() { 0 } else { current_timer_slack().unwrap_or(0) }
}
