//! `services` on this machine: how long system calls and page faults last and why, what interrupts and softirqs
//! take, and what each CPU does all the time, by BPF programs at tracepoints.

mod bench;
mod fault_ends;
pub mod in_guest;
mod probes;
mod sums;
#[cfg(test)]
mod tests;
mod time_parts;

pub use bench::{LiveServices, LiveServicesSettings};
