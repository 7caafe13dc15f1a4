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

use crate::bpf::BpfError;
use crate::host::KERNEL_REMEDY;
use crate::stimulus::StimulusError;

fn failed(doing: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("{doing}: {error}"))
}

fn bpf_error(error: BpfError) -> BenchError {
    match error {
        BpfError::NotPermitted(reason) => BenchError::NothingMeasurable {
            reason: format!("loading BPF programs is {reason}"),
            remedy: None,
        },
        BpfError::KernelTooOld { .. } => BenchError::NothingMeasurable {
            reason: error.to_string(),
            remedy: Some(KERNEL_REMEDY.to_owned()),
        },
        BpfError::CpuOffline(_) | BpfError::Failed(_) => BenchError::Failed(error.to_string()),
    }
}

fn stimulus_error(error: StimulusError) -> BenchError {
    match error {
        StimulusError::Unavailable { reason, remedy } => {
            BenchError::Unavailable { reason, remedy: (!remedy.is_empty()).then_some(remedy) }
        }
        other => BenchError::Failed(other.to_string()),
    }
}
