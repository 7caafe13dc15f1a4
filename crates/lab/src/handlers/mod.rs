//! The experiment `handlers`: what does each interrupt handler cost, and why? (paper `handlers-ia32`)
//!
//! A plan is a list of conditions. A bench measures each condition in one or more windows, and `tables` makes the
//! tables from these samples. `rates` serves `irqlab watch`, which reads a window that stays open. `probe_check` serves
//! `irqlab sim verify-probes`.

pub mod bench;
pub mod condition;
pub mod delay_rates;
mod delays;
pub mod experiment;
mod hotplug;
pub mod in_guest;
pub mod probe_check;
pub mod rates;
pub mod sample;
pub mod samples;
mod senders;
mod storm;
mod victims;

mod tables;

pub use bench::{HandlersBench, Pass, ProbeOverhead};
pub use condition::{Condition, Load, Rate, Stimulus};
pub use delays::{DELAYS, DelayMethod, DelayStats};
pub use experiment::Plan;
pub use rates::{ContextRates, Rates, SelfTimes};
pub use sample::{
    ALL_DEVICES, Agreement, ContextStats, CpuWindow, EventSums, Timing, WindowSample,
};
pub use samples::{ConditionSamples, Samples};
pub use senders::{
    CallType, SENDERS, Sender, SenderCounts, SenderEvent, SenderKey, SenderMethod, SenderRow,
    SenderStats, unmeasured_of_senders,
};
#[cfg(test)]
pub(crate) use tables::handlers as table_of_contexts;
pub use victims::{
    Cgroup, Party, VICTIMS, VictimStats, Victims, VictimsBy, has_victim, unmeasured_of_victims,
};
