//! Opens and closes the window on each CPU. The calling thread runs on another CPU if there is one.

use lab::experiment::BenchError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::bpf::{BpfError, Probes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEdge {
    Open,
    Close,
}

/// The phase that a bench starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchPhase {
    /// The bench prepares or tidies up. The time of this phase does not matter, and the
    /// caches may be in any state.
    SetUp,
    /// Load and stimulus run before a window opens, and fill the caches. How long single events take does not matter.
    WarmUp,
    /// The bench calibrates, warms up or measures.
    Measurement,
}

/// Opens or closes the gate of every CPU in `cpus`. Returns the CPUs that are offline,
/// on which nothing runs.
///
/// The kernel runs the gate with interrupts off if it has to interrupt the CPU for it, but not if
/// the caller is on that CPU already. Therefore the calling thread first moves to another CPU, and
/// restores its affinity at the end.
///
/// Fails if the kernel refuses.
pub fn move_gates(probes: &Probes, cpus: &[u32], edge: WindowEdge) -> Result<Vec<u32>, BenchError> {
    let allowed = sched_getaffinity(None).ok();
    let mut offline = Vec::new();
    let result: Result<(), BpfError> = cpus.iter().try_for_each(|&cpu| {
        if let Some(allowed) = &allowed {
            leave_cpu(allowed, cpu);
        }
        let moved = match edge {
            WindowEdge::Open => probes.open_gate(cpu),
            WindowEdge::Close => probes.close_gate(cpu),
        };
        match moved {
            Err(BpfError::CpuOffline(_)) => offline.push(cpu),
            other => other?,
        }
        Ok(())
    });
    if let Some(allowed) = &allowed {
        let _ = sched_setaffinity(None, allowed); // the same mask was valid a moment ago
    }
    result?;
    Ok(offline)
}

/// Opens or closes the gate of every CPU in `cpus`.
///
/// Fails if a CPU is offline or the kernel refuses.
pub fn move_all_gates(probes: &Probes, cpus: &[u32], edge: WindowEdge) -> Result<(), BenchError> {
    match move_gates(probes, cpus, edge)?.first() {
        Some(cpu) => Err(BpfError::CpuOffline(*cpu).into()),
        None => Ok(()),
    }
}

/// Moves this thread away from `cpu`, if it may run on another CPU. Ignores errors: on `cpu` itself
/// the gate still works, but with interrupts on.
pub(crate) fn leave_cpu(allowed: &CpuSet, cpu: u32) {
    let mut elsewhere = *allowed;
    if (cpu as usize) < CpuSet::MAX_CPU {
        elsewhere.unset(cpu as usize);
    }
    if elsewhere.count() > 0 {
        let _ = sched_setaffinity(None, &elsewhere);
    }
}
