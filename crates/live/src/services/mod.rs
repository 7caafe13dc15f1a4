//! The live bench of the experiment `services`: how long system calls and page faults last and why, the time of
//! interrupts and softirqs, and how each CPU spends its time, while a command runs. A *service* is a kind of kernel
//! work: a system call by number, a softirq, an interrupt vector, and so on.
//!
//! [`LiveServices`] measures on this machine, with BPF programs at tracepoints (`bpf/services.bpf.c`). [`in_guest`]
//! runs the command in a simulated machine, where the simulator measures.

mod bench;
mod fault_ends;
pub mod in_guest;
mod kernel_counts;
mod locks;
mod probes;
mod sums;
#[cfg(test)]
mod tests;
mod time_parts;

pub use bench::{LiveServices, LiveServicesSettings};
