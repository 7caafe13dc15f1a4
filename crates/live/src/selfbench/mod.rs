//! irqlab measured by itself: what its probes cost beside other tools ([`overhead`]), and what
//! that takes: tracefs instances of our own ([`tracefs`]) and other tools as children.

pub mod overhead;
mod peers;
pub mod tracefs;

use lab::handlers::BenchError;

use crate::bpf::BpfError;

fn failed(doing: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("{doing}: {error}"))
}

fn bpf_error(error: BpfError) -> BenchError {
    match error {
        BpfError::NotPermitted(reason) => BenchError::NothingMeasurable {
            reason: format!("loading BPF programs is {reason}"),
            remedy: None,
        },
        BpfError::Failed(reason) => BenchError::Failed(reason),
    }
}
