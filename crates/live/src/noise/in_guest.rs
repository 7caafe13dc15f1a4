//! Runs the loops inside a simulated machine, with the code of the live bench and without probes: the simulator sees
//! the causes of gaps. The guest's irqlab calls [`execute`] for a request of `sim`, which gets the raw records.

use std::sync::Arc;

use lab::experiment::BenchError;
use lab::noise::Loop;
use lab::noise::in_guest::{
    FailedLoop, GuestClockResolution, LoopRun, NoiseItem, NoiseRequest, pieces,
};

use super::bench::THRESHOLD_NS;
use super::inject::{LoopTimes, TimerSetter, room_for_timers};
use super::loops::{LoopConfig, TRIALS_CYCLES, detour_resolution};
use super::runner::{Runner, RunnerConfig, Stay};
use crate::clock::ClockResolution;
use crate::companion::Companion;
use crate::handlers::in_guest::SHELL;
use crate::host::{Root, guest_cpus, last_level_cache_bytes};
use crate::threads::{self, LockedMemory};
use crate::window::{OnStop, Stop, WindowEdge};

/// Runs the loops of a request one after the other, each on all CPUs. Calls `mark` before and after each loop. If a
/// loop fails, the next ones still run. A stop request ends the running loop, and no other loop starts.
///
/// Fails if no loop can run.
pub fn execute(
    request: &NoiseRequest,
    mark: fn(WindowEdge),
    stop: &Stop,
) -> Result<Vec<NoiseItem>, BenchError> {
    let guest = Guest::new(request)?;
    if let Some(cpu) = request.housekeeping_cpu {
        threads::pin(cpu).map_err(|error| BenchError::Failed(error.to_string()))?;
    }
    let mut items = vec![NoiseItem::Clock(guest.clock())];
    for &looping in &request.loops {
        if stop.is_requested() {
            break;
        }
        match run_loop(request, &guest, looping, mark, stop) {
            Ok(loop_items) => items.extend(loop_items),
            Err(error) => items.push(NoiseItem::Failed(FailedLoop { looping, error })),
        }
    }
    Ok(items)
}

/// The simulated machine, with the properties of its clock.
struct Guest {
    cpus: Vec<u32>,
    clock: ClockResolution,
    threshold_ns: u64,
    cache_bytes: Option<u64>,
}

impl Guest {
    /// Measures the clock, and checks the request's CPUs and threshold.
    fn new(request: &NoiseRequest) -> Result<Guest, BenchError> {
        let root = Root::default();
        let failed = |reason: &str| BenchError::Failed(reason.to_owned());
        let cpus = guest_cpus(&root, request.cpus.as_deref())?;
        let first = cpus.first().copied().ok_or_else(|| failed("the guest has no CPU"))?;
        let clock = detour_resolution(first).map_err(|error| failed(&error.to_string()))?;
        let clock = clock.ok_or_else(|| failed("the guest has no constant time-stamp counter"))?;
        let min_ns = clock.threshold_ns_min();
        let threshold_ns = request.threshold_ns.unwrap_or(THRESHOLD_NS.max(min_ns));
        if threshold_ns < min_ns {
            let reason = format!(
                "--threshold: the loop itself takes up to {min_ns} ns by this clock (give at least \
                 {min_ns}ns)"
            );
            return Err(BenchError::unavailable(reason));
        }
        Ok(Guest { cpus, clock, threshold_ns, cache_bytes: last_level_cache_bytes(&root) })
    }

    fn clock(&self) -> GuestClockResolution {
        let ClockResolution { hz, step_ns, iteration_cycles, .. } = self.clock;
        GuestClockResolution {
            hz,
            step_ns,
            iteration_ns: self.clock.iteration_ns(),
            iteration_cycles,
            threshold_ns: self.threshold_ns,
            threshold_ns_min: self.clock.threshold_ns_min(),
        }
    }

    fn runner_config(&self, request: &NoiseRequest, looping: Loop, cpu: u32) -> RunnerConfig {
        let ends_by_time = looping == Loop::Detour || request.repetitions.is_none();
        let cycles = |ns: u64| self.clock.cycles(ns);
        RunnerConfig {
            loop_config: LoopConfig {
                looping,
                cpu,
                window_cycles: if ends_by_time { cycles(request.duration_ns) } else { u64::MAX },
                repetitions: request.repetitions.unwrap_or(u64::MAX),
                quantum_cycles: cycles(request.quantum_ns).max(1),
                threshold_cycles: cycles(self.threshold_ns),
                iteration_cycles: self.clock.iteration_cycles,
            },
            body: request.body,
            cache_bytes: self.cache_bytes,
            warm_up_cycles: cycles(request.warm_up_ns),
            fifo: request.fifo,
            // The simulator knows the core's clock.
            times_core: false,
        }
    }
}

/// Runs one loop on all CPUs, and returns its results and records.
fn run_loop(
    request: &NoiseRequest,
    guest: &Guest,
    looping: Loop,
    mark: fn(WindowEdge),
    stop: &Stop,
) -> Result<Vec<NoiseItem>, BenchError> {
    let start = |&cpu: &u32| Runner::start(guest.runner_config(request, looping, cpu), None);
    let runners = guest.cpus.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    // The runners have mapped all memory of the loops.
    let _locked = LockedMemory::current();
    let inject = if looping == Loop::Detour { request.inject } else { None };
    let hz = guest.clock.hz;
    let trials_ns = (TRIALS_CYCLES as f64 / hz * 1e9) as u64;
    let before_window_ns = request.warm_up_ns.saturating_add(trials_ns);
    let times = LoopTimes { before_window_ns, window_ns: request.duration_ns };
    let room = inject.map(|_| room_for_timers(guest.cpus.len())).transpose();
    let timers_max = room.map_err(BenchError::Failed)?.unwrap_or(0);
    let start =
        |&cpu: &u32| inject.map(|inject| TimerSetter::start(inject, cpu, hz, times, timers_max));
    let started: Vec<_> = guest.cpus.iter().map(start).collect();
    let finish = |setter: Option<Result<TimerSetter, String>>| {
        setter.map(|setter| setter.and_then(TimerSetter::finish)).transpose()
    };
    let injectors = started.into_iter().map(finish).collect::<Result<Vec<_>, _>>();
    let injectors = injectors.map_err(BenchError::Failed)?;
    let hold = |line: &String| {
        let words: Vec<String> =
            SHELL.iter().copied().chain([line.as_str()]).map(str::to_owned).collect();
        Companion::hold(&words, true)
    };
    let command = request.command.as_ref().map(hold).transpose()?;
    let rings: Vec<_> = runners.iter().map(|runner| Arc::clone(&runner.ring)).collect();
    let on_stop = OnStop::call(stop, {
        let rings = rings.clone();
        move || rings.iter().for_each(|ring| ring.stop())
    })?;
    mark(WindowEdge::Open);
    runners.iter().for_each(Runner::start_loop);
    let command = command.map(Companion::released);
    let threads: Vec<(u32, u32)> =
        runners.iter().map(|runner| (runner.cpu, runner.thread)).collect();
    // Only the loops run until they have ended: the rings have room for all records, so nobody reads them before.
    let outcomes: Vec<_> = runners.into_iter().map(Runner::join).collect();
    mark(WindowEdge::Close);
    let status = command.map(Companion::end).transpose()?.flatten();
    if let Some(status) = status {
        let reason = format!("the command ended before the loop did ({status})");
        return Err(BenchError::Failed(reason));
    }
    drop(on_stop);
    let is_interrupted = stop.is_requested();
    let mut items = Vec::new();
    for (((cpu, thread), ran), (ring, injector)) in
        threads.into_iter().zip(outcomes).zip(rings.into_iter().zip(injectors))
    {
        let (_, ran) = ran?;
        if ran.stay != Stay::ToTheEnd {
            let reason = format!("the kernel moved the loop of CPU {cpu} to another CPU");
            return Err(BenchError::Failed(reason));
        }
        items.push(NoiseItem::LoopRun(LoopRun {
            looping,
            cpu,
            thread,
            start: ran.outcome.start,
            end: ran.outcome.end,
            iterations: ran.outcome.iterations,
            recording_cycles: ran.outcome.recording_cycles,
            iteration_cycles: ran.loop_config.iteration_cycles,
            threshold_cycles: ran.loop_config.threshold_cycles,
            body_iterations: ran.body_iterations,
            lost: ring.lost(),
            page_faults: ran.counts.map(|counts| counts.page_faults),
            switches: ran.counts.map(|counts| counts.switches),
            injected: injector.map(|injector| injector.set),
            interrupted: is_interrupted,
        }));
        let mut records = Vec::new();
        ring.drain(|record| records.push(record));
        items.extend(pieces(&records).into_iter().map(NoiseItem::Records));
    }
    Ok(items)
}
