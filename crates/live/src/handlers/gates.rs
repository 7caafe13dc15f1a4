//! Opens and closes the window on each CPU, from another CPU where there is one.

use lab::handlers::BenchError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::bpf::{BpfError, Probes};

/// Which edge of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// It opens.
    Open,
    /// It closes.
    Close,
}

/// Moves the gate of every CPU in `cpus`.
///
/// The kernel runs the gate with interrupts off when it has to interrupt the CPU for it, but not
/// when the caller is on that CPU already: so the calling thread moves out of the way first, and
/// back to where it was allowed to run at the end.
///
/// # Errors
/// When a CPU went offline or the kernel refuses.
pub fn move_gates(probes: &Probes, cpus: &[u32], edge: Edge) -> Result<(), BenchError> {
    let allowed = sched_getaffinity(None).ok();
    let result = cpus.iter().try_for_each(|&cpu| {
        if let Some(allowed) = &allowed {
            step_aside(allowed, cpu);
        }
        match edge {
            Edge::Open => probes.open_gate(cpu),
            Edge::Close => probes.close_gate(cpu),
        }
    });
    if let Some(allowed) = &allowed {
        let _ = sched_setaffinity(None, allowed); // we were allowed all of it a moment ago
    }
    result.map_err(|error: BpfError| BenchError::Failed(error.to_string()))
}

/// Leaves `cpu`, if there is another one to run on. Best effort: on the CPU itself the gate still
/// works, only not with interrupts off.
fn step_aside(allowed: &CpuSet, cpu: u32) {
    let mut elsewhere = *allowed;
    if (cpu as usize) < CpuSet::MAX_CPU {
        elsewhere.unset(cpu as usize);
    }
    if elsewhere.count() > 0 {
        let _ = sched_setaffinity(None, &elsewhere);
    }
}
