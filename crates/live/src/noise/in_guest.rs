//! The loops inside a simulated machine, by the code of the live bench and without probes: the simulator
//! sees the causes from outside.

use std::sync::Arc;

use lab::experiment::BenchError;
use lab::noise::Loop;
use lab::noise::in_guest::{GuestClockResolution, LoopRun, NoiseLine, NoiseOrder, pieces};

use super::bench::THRESHOLD_NS;
use super::inject::Injector;
use super::loops::{LoopConfig, detour_resolution};
use super::runner::{Runner, RunnerConfig};
use crate::clock::ClockResolution;
use crate::host::{Root, last_level_cache_bytes, parse_cpu_list};
use crate::threads::LockedMemory;
use crate::window::WindowEdge;

/// Runs the requested loops one after the other on all CPUs, and calls `mark` before and after each. The
/// results go to `say`, with [`NoiseLine::Done`] as the last.
pub fn carry_out(order: &NoiseOrder, mark: fn(WindowEdge), say: &mut dyn FnMut(NoiseLine)) {
    let ended = run_all(order, mark, say);
    say(match ended {
        Ok(()) => NoiseLine::Done,
        Err(BenchError::Failed(reason)) => NoiseLine::Failed(reason),
        Err(
            BenchError::Unavailable { reason, .. } | BenchError::NothingMeasurable { reason, .. },
        ) => NoiseLine::Unavailable(reason),
    });
}

/// The simulated machine, with a clock that the loops can use.
struct Guest {
    cpus: Vec<u32>,
    clock: ClockResolution,
    threshold_ns: u64,
    cache_bytes: Option<u64>,
}

impl Guest {
    fn look(order: &NoiseOrder) -> Result<Guest, BenchError> {
        let root = Root::default();
        let failed = |reason: &str| BenchError::Failed(reason.to_owned());
        let online = root.text("sys/devices/system/cpu/online");
        let online = online.ok_or_else(|| failed("the guest does not say which CPUs it has"))?;
        let cpus = parse_cpu_list(online.trim()).map_err(|error| failed(&error.to_string()))?;
        let cpus = chosen(cpus, order.cpus.as_deref())?;
        let first = cpus.first().copied().ok_or_else(|| failed("the guest has no CPU"))?;
        let clock = detour_resolution(first);
        let clock = clock.ok_or_else(|| failed("the guest has no constant time-stamp counter"))?;
        let least_ns = clock.threshold_ns_min();
        let threshold_ns = order.threshold_ns.unwrap_or(THRESHOLD_NS.max(least_ns));
        if threshold_ns < least_ns {
            let reason = format!(
                "--threshold: the loop itself takes up to {least_ns} ns by this clock (give at least \
                 {least_ns}ns)"
            );
            return Err(BenchError::Unavailable { reason, remedy: None });
        }
        Ok(Guest { cpus, clock, threshold_ns, cache_bytes: last_level_cache_bytes(&root) })
    }

    fn clock(&self) -> GuestClockResolution {
        let ClockResolution { hz, step_ns, iteration_cycles } = self.clock;
        GuestClockResolution {
            hz,
            step_ns,
            iteration_ns: self.clock.iteration_ns(),
            iteration_cycles,
            threshold_ns: self.threshold_ns,
            threshold_ns_min: self.clock.threshold_ns_min(),
        }
    }

    fn runner_config(&self, order: &NoiseOrder, looping: Loop, cpu: u32) -> RunnerConfig {
        let by_time = looping == Loop::Detour || order.repetitions.is_none();
        let cycles = |ns: u64| self.clock.cycles(ns);
        RunnerConfig {
            looping: LoopConfig {
                looping,
                cpu,
                window_cycles: if by_time { cycles(order.duration_ns) } else { u64::MAX },
                repetitions: order.repetitions.unwrap_or(u64::MAX),
                quantum_cycles: cycles(order.quantum_ns).max(1),
                threshold_cycles: cycles(self.threshold_ns),
                iteration_cycles: self.clock.iteration_cycles,
            },
            body: order.body,
            cache_bytes: self.cache_bytes,
            warm_up_cycles: cycles(order.warm_up_ns),
            fifo: order.fifo,
            // The simulator sees everything that the loop's thread does.
            times_core: false,
        }
    }
}

/// The CPUs that run loops.
fn chosen(mut cpus: Vec<u32>, wanted: Option<&[u32]>) -> Result<Vec<u32>, BenchError> {
    let Some(wanted) = wanted else { return Ok(cpus) };
    if let Some(absent) = wanted.iter().find(|cpu| !cpus.contains(cpu)) {
        return Err(BenchError::Failed(format!("the guest has no CPU {absent}")));
    }
    cpus.retain(|cpu| wanted.contains(cpu));
    Ok(cpus)
}

fn run_all(
    order: &NoiseOrder,
    mark: fn(WindowEdge),
    say: &mut dyn FnMut(NoiseLine),
) -> Result<(), BenchError> {
    let guest = Guest::look(order)?;
    say(NoiseLine::ClockResolution(guest.clock()));
    for &looping in &order.loops {
        run_one(order, &guest, looping, mark, say)?;
    }
    Ok(())
}

fn run_one(
    order: &NoiseOrder,
    guest: &Guest,
    looping: Loop,
    mark: fn(WindowEdge),
    say: &mut dyn FnMut(NoiseLine),
) -> Result<(), BenchError> {
    let start = |&cpu: &u32| Runner::start(guest.runner_config(order, looping, cpu));
    let runners = guest.cpus.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    // All memory that the loops touch is mapped now.
    let _locked = LockedMemory::current();
    let wanted = order.inject.filter(|_| looping == Loop::Detour);
    // The time until the loops start is not known: timers after the window do no harm.
    let times = (order.warm_up_ns, order.duration_ns.saturating_mul(2));
    let inject = |&cpu: &u32| {
        let inject = |wanted| Injector::start(wanted, cpu, guest.clock.hz, times);
        wanted.map(inject).transpose().map_err(BenchError::Failed)
    };
    let injectors = guest.cpus.iter().map(inject).collect::<Result<Vec<_>, _>>()?;
    let rings: Vec<_> = runners.iter().map(|runner| Arc::clone(&runner.ring)).collect();
    mark(WindowEdge::Open);
    runners.iter().for_each(Runner::start_loop);
    let threads: Vec<(u32, u32)> = runners.iter().map(|one| (one.cpu, one.thread)).collect();
    // Nothing else of irqlab runs until the loops have ended: the rings have room for all records.
    let outcomes: Vec<_> = runners.into_iter().map(Runner::join).collect();
    mark(WindowEdge::Close);
    for (((cpu, thread), ran), (ring, injector)) in
        threads.into_iter().zip(outcomes).zip(rings.into_iter().zip(injectors))
    {
        let (_, ran) = ran?;
        say(NoiseLine::LoopRun(LoopRun {
            looping,
            cpu,
            thread,
            start: ran.outcome.start,
            end: ran.outcome.end,
            iterations: ran.outcome.iterations,
            recording_cycles: ran.outcome.recording_cycles,
            iteration_cycles: ran.looping.iteration_cycles,
            threshold_cycles: ran.looping.threshold_cycles,
            body_iterations: ran.body_iterations,
            lost: ring.lost(),
            page_faults: ran.counts.map(|counts| counts.page_faults),
            switches: ran.counts.map(|counts| counts.switches),
            injected: injector.map(|injector| injector.set),
        }));
        let mut records = Vec::new();
        ring.drain(|record| records.push(record));
        pieces(&records).into_iter().for_each(|piece| say(NoiseLine::Records(piece)));
    }
    Ok(())
}
