//! The experiment `services` on this machine, with BPF programs at tracepoints: how long
//! system calls and page faults last and why, the time of interrupts and softirqs, and what
//! each CPU does all the time.

mod bench;
mod fault_ends;
pub mod in_guest;
mod kernel_counts;
mod probes;
mod sums;
#[cfg(test)]
mod tests;
mod time_parts;

pub use bench::{LiveServices, LiveServicesSettings};
