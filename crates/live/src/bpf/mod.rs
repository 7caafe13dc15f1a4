//! The BPF programs: what they share with this crate, loading, attaching, and reading their maps.

pub mod caller;
mod constants;
mod instances;
pub mod kernel_counters;
pub mod layout;
pub mod memory;
pub mod object;
pub mod programs;
pub mod rows;

pub use caller::CallerProgram;
pub use object::{
    Attached, CountedRow, EventErrors, Flavour, LoadSpec, Maps, Probes, has_cookies,
    known_tracepoints,
};
pub use rows::{KnownContexts, RowLayout};

use crate::host::KERNEL_MIN;

/// Why the programs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The process lacks the rights.
    #[error("not permitted: {0}")]
    NotPermitted(String),
    /// The kernel is older than [`KERNEL_MIN`], and its verifier refused the programs.
    #[error("the BPF programs need Linux {}.{}, and this is {release}", KERNEL_MIN.0, KERNEL_MIN.1)]
    KernelTooOld { release: String },
    /// A program was to run on a CPU that is offline.
    #[error("CPU {0} is offline")]
    CpuOffline(u32),
    /// Anything else, with libbpf's and the verifier's messages.
    #[error("{0}")]
    Failed(String),
}
