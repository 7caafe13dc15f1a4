//! Opens and closes the window of BPF programs on each CPU, for `handlers`, `services` and the calibration. The gate
//! is a BPF program that the kernel runs once on the CPU (bpf/gate.h).

use lab::experiment::BenchError;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::bpf::{BpfError, Probes};
use crate::threads::affinity;

/// The start or the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEdge {
    Open,
    Close,
}

/// The phase that a bench starts. A simulator that runs this machine chooses its level of detail by the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchPhase {
    /// The bench prepares or tidies up. Neither the time of this phase nor the state of the caches matters.
    SetUp,
    /// Load and stimulus run before a window opens, and fill the caches. The time of single events does not matter.
    WarmUp,
    /// The bench measures, calibrates, or warms up in full detail. Times matter.
    Measurement,
}

/// Opens or closes the window on every CPU in `cpus`. Returns the CPUs that are offline, and have no window.
///
/// The kernel runs the gate with interrupts off only if it must interrupt the CPU for it: the calling
/// thread must run on another CPU. Therefore this function moves the thread away from each CPU first, and
/// restores its affinity at the end.
///
/// Fails if the kernel refuses.
pub fn set_windows(
    probes: &Probes,
    cpus: &[u32],
    edge: WindowEdge,
) -> Result<Vec<u32>, BenchError> {
    let allowed = affinity(None).ok();
    let mut offline = Vec::new();
    let result: Result<(), BpfError> = cpus.iter().try_for_each(|&cpu| {
        if let Some(allowed) = &allowed {
            leave_cpu(allowed, cpu);
        }
        let result = match edge {
            WindowEdge::Open => probes.open_gate(cpu),
            WindowEdge::Close => probes.close_gate(cpu),
        };
        match result {
            Err(BpfError::CpuOffline(_)) => offline.push(cpu),
            other => other?,
        }
        Ok(())
    });
    if let Some(allowed) = &allowed {
        // An error is not expected, because this affinity was valid before.
        let _ = sched_setaffinity(None, allowed);
    }
    result?;
    Ok(offline)
}

/// Like [`set_windows`], for callers that need every CPU.
///
/// Fails if a CPU is offline or the kernel refuses.
pub fn set_all_windows(probes: &Probes, cpus: &[u32], edge: WindowEdge) -> Result<(), BenchError> {
    match set_windows(probes, cpus, edge)?.first() {
        Some(cpu) => Err(BpfError::CpuOffline(*cpu).into()),
        None => Ok(()),
    }
}

/// Moves this thread away from `cpu`, if it may run on another CPU of `allowed`. Ignores errors: on `cpu` itself the
/// gate still works, but with interrupts on.
pub(crate) fn leave_cpu(allowed: &CpuSet, cpu: u32) {
    let mut elsewhere = *allowed;
    if (cpu as usize) < CpuSet::MAX_CPU {
        elsewhere.unset(cpu as usize);
    }
    if elsewhere.count() > 0 {
        let _ = sched_setaffinity(None, &elsewhere);
    }
}
