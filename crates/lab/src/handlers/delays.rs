//! Delays of one window, as a bench reports them: how long work waits from the event that asks for it to its run.

use attribution::Context;
use stats::Distribution;

/// The name of the table.
pub const DELAYS: &str = "delays";

/// How a delay is measured, in words for the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayMethod {
    /// The event that begins the delay.
    pub begins: &'static str,
    /// The event that ends the delay.
    pub ends: &'static str,
    /// Delays that the bench does not see.
    pub not_seen: &'static str,
}

/// The delays of one kind of work that ended on one CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayStats {
    pub cpu: u32,
    /// The delayed softirq, thread, or function of work items or timers.
    pub context: Context,
    pub method: DelayMethod,
    /// The delays in ns, by the time at which they ended.
    pub delays: Distribution,
    /// Events that would end a delay, without a begin in the window that can be joined to them.
    pub unjoined_end_count: u64,
    /// Events that would begin a delay, without an end that can be joined to them. A begin that still waits when the
    /// window closes does not count.
    pub unjoined_begin_count: u64,
    /// Requests that found the thread awake: it ran or was ready to run, so it did not wait for them. `None`
    /// for softirqs, work items and timers.
    pub awake_count: Option<u64>,
}
