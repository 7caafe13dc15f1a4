//! The BPF programs in `crates/live/bpf`, seen from user space: constants and structures that both sides share,
//! loading, attaching, and reading the programs' maps.
//!
//! [`object`] serves the programs of `handlers`, with which the calibrations and `selfbench` measure, too. The modules
//! `marks` (for `noise` and `footprint`) and `services` load their programs with the functions of [`object`].

pub mod caller;
mod constants;
mod instances;
pub mod kernel_counters;
pub mod layout;
pub mod memory;
pub mod object;
pub mod programs;
pub mod rows;
pub mod trace;

pub use caller::CallerProgram;
pub use object::{
    Attached, CountedRow, EventErrors, Flavour, LoadSpec, Maps, Probes, has_cookies,
    known_tracepoints,
};
pub use rows::{KnownContexts, RowLayout};
pub use trace::TraceLayout;

use lab::experiment::BenchError;

use crate::host::{KERNEL_MIN, KERNEL_REMEDY, remedy_for_tracing_rights};

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

impl From<BpfError> for BenchError {
    fn from(error: BpfError) -> BenchError {
        match error {
            BpfError::NotPermitted(message) => {
                // Drops libbpf's guesses about memory limits. The remedy names the missing rights.
                let refusal = message.split("; ").next().unwrap_or_default();
                BenchError::NothingMeasurable {
                    reason: format!("the kernel refuses BPF tracing programs: {refusal}"),
                    remedy: remedy_for_tracing_rights(),
                }
            }
            BpfError::KernelTooOld { .. } => BenchError::NothingMeasurable {
                reason: error.to_string(),
                remedy: Some(KERNEL_REMEDY.to_owned()),
            },
            BpfError::CpuOffline(_) | BpfError::Failed(_) => BenchError::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All verbs that load BPF programs name the same remedy, because all use this conversion.
    #[test]
    fn a_refused_program_has_a_remedy() {
        let too_old = BenchError::from(BpfError::KernelTooOld { release: "5.4.0".to_owned() });
        assert!(matches!(too_old, BenchError::NothingMeasurable { .. }), "{too_old:?}");
        assert_eq!(too_old.remedy(), Some(KERNEL_REMEDY));

        let message = "loading failed: Operation not permitted; try to raise RLIMIT_MEMLOCK";
        let refused = BenchError::from(BpfError::NotPermitted(message.to_owned()));
        assert_eq!(
            refused.to_string(),
            "the kernel refuses BPF tracing programs: loading failed: Operation not permitted"
        );
        assert_eq!(refused.remedy().map(str::to_owned), remedy_for_tracing_rights());

        let other = BenchError::from(BpfError::Failed("no such map".to_owned()));
        assert_eq!(other, BenchError::Failed("no such map".to_owned()));
    }
}
