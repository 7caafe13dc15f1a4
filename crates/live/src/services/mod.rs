//! `services` on this machine: how long system calls last and why, how often pages fault, what interrupts
//! and softirqs take, by BPF programs at tracepoints.

mod bench;
pub mod in_guest;
mod probes;

pub use bench::{LiveServices, LiveServicesSettings};
