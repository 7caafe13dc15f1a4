//! Measurements of irqlab itself. [`overhead`] compares the cost of its probes with other tools.
//! [`trace_agreement`] compares its times with the kernel's own trace. [`storm`] checks that it
//! counts all interrupts that the machine can raise. [`noise_peers`] compares its detours with the
//! detours of other tools. [`chase`] measures the latencies of this machine's caches. The first two
//! use separate trace instances ([`tracefs`]).

pub mod chase;
pub mod noise_peers;
pub mod overhead;
mod peers;
pub mod storm;
pub mod trace_agreement;
pub mod tracefs;

use lab::experiment::BenchError;

fn failed(doing: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("{doing}: {error}"))
}
