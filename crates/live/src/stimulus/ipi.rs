//! The IPI stimulus: membarrier(2) on one CPU interrupts the measured CPUs, on which other threads of the stimulus
//! process spin.

use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

use super::error::WorkerError;
use super::facts::{Facts, facts};
use super::system::{Ticker, other_cpu};
use super::worker_pool::{Worker, WorkerPool};
use super::{Rate, StimulusSettings};

/// Starts a worker that interrupts the measured CPUs, from another CPU, with `membarrier`. A thread spins on each of
/// the measured CPUs, because the kernel interrupts only CPUs that run a thread of this process. Returns the facts of
/// the stimulus.
///
/// Fails with fewer than two CPUs, or if the kernel refuses `membarrier`.
pub(super) fn start(
    settings: &StimulusSettings,
    pool: &mut WorkerPool,
) -> Result<Facts, WorkerError> {
    let caller = other_cpu(settings).ok_or_else(|| {
        WorkerError::unavailable(
            "an inter-processor interrupt needs two CPUs, and this process may use one",
            "run on a machine (or in a guest or cpuset) with at least two CPUs",
        )
    })?;
    membarrier(MembarrierCommand::RegisterPrivateExpedited).map_err(|error| {
        WorkerError::unavailable(
            format!("membarrier(PRIVATE_EXPEDITED) is refused: {error}"),
            "run a kernel since 4.14 with CONFIG_MEMBARRIER=y, outside of a seccomp filter that \
             refuses membarrier",
        )
    })?;
    let targets: Vec<u32> = settings.cpus.iter().copied().filter(|&cpu| cpu != caller).collect();
    for &cpu in &targets {
        pool.spawn("ipi-target", Some(cpu), spin)?;
    }
    let interval = match settings.rate {
        Rate::Low => Some(settings.low_interval),
        Rate::High => None,
    };
    pool.spawn("ipi-caller", Some(caller), move |worker| call(worker, interval))?;
    Ok(facts! {
        "stimulus": "ipi",
        "method": "membarrier PRIVATE_EXPEDITED",
        "interval_ns": interval.map(|interval| interval.as_nanos() as u64),
        "caller_cpu": caller,
        "target_cpus": targets,
    })
}

/// Runs on an interrupted CPU. membarrier interrupts only CPUs that execute this address space at that moment, so the
/// thread spins.
fn spin(worker: &Worker) -> Result<(), WorkerError> {
    worker.report_ready(Facts::new());
    while !worker.is_stopped() {
        std::hint::spin_loop();
    }
    Ok(())
}

/// Runs on the interrupting CPU. An operation is one barrier. It interrupts the targets that run at that moment, and
/// skips preempted ones.
fn call(worker: &Worker, interval: Option<Duration>) -> Result<(), WorkerError> {
    let mut ticker = interval.map(Ticker::new);
    barrier(worker)?;
    worker.report_ready(Facts::new());
    while !worker.is_stopped() {
        if let Some(ticker) = &mut ticker {
            worker.sleep_to_next(ticker);
        }
        barrier(worker)?;
    }
    Ok(())
}

fn barrier(worker: &Worker) -> Result<(), WorkerError> {
    membarrier(MembarrierCommand::PrivateExpedited)
        .map_err(|error| WorkerError::failed(format!("membarrier: {error}")))?;
    worker.count(1, 0);
    Ok(())
}
