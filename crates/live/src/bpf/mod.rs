//! The BPF programs: their layout, loading, and what they cost.

pub mod kernel_counters;
pub mod layout;
pub mod object;

pub use object::{EventFaults, Flavour, LoadSpec, Probes, known_tracepoints};

/// Why the programs could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The kernel refuses for want of rights.
    #[error("not permitted: {0}")]
    NotPermitted(String),
    /// Anything else, with libbpf's and the verifier's messages.
    #[error("{0}")]
    Failed(String),
}
