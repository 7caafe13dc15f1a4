//! Measurements of irqlab itself, for `irqlab bench`. They return figures, and the crate `live_tables` makes the
//! tables.
//!
//! - [`overhead`]: the cost of irqlab's probes, compared with other tools
//! - [`trace_agreement`]: irqlab's times, compared with the kernel's own trace
//! - [`storm`]: whether irqlab counts all interrupts at the highest rate of the machine
//! - [`noise_peers`]: irqlab's detours, compared with other noise tools
//! - [`chase`]: the latencies of this machine's caches
//! - [`tracefs`]: separate trace instances, for the first two

pub mod chase;
pub mod noise_peers;
pub mod overhead;
mod peers;
pub mod storm;
pub mod trace_agreement;
pub mod tracefs;

use lab::experiment::BenchError;

fn failed(action: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("{action}: {error}"))
}
