//! The loops inside a simulated machine: bare, by the code of the live bench. Who took the time is seen
//! from outside.

use std::sync::Arc;

use lab::handlers::BenchError;
use lab::noise::Loop;
use lab::noise::in_guest::{GuestGrain, NoiseLine, NoiseOrder, RanOn, pieces};

use super::bench::THRESHOLD_NS;
use super::clock::{Grain, grain_on};
use super::collect::{Runner, Start};
use super::inject::Injector;
use super::loops::Order;
use crate::threads::LockedMemory;
use crate::window::WindowEdge;
use crate::host::{Root, last_level_cache_bytes, parse_cpu_list};

/// Runs the loops of the order, one after the other on all CPUs; `mark` is called before and behind
/// each. What came of it goes to `say`, with [`NoiseLine::Done`] as the last.
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

/// A machine with a clock that is good enough.
struct Guest {
    cpus: Vec<u32>,
    grain: Grain,
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
        let grain = grain_on(first);
        let grain = grain.ok_or_else(|| failed("the guest has no constant time-stamp counter"))?;
        let least_ns = grain.threshold_ns_min();
        let threshold_ns = order.threshold_ns.unwrap_or(THRESHOLD_NS.max(least_ns));
        if threshold_ns < least_ns {
            let reason = format!(
                "--threshold: below what the loop itself takes on this clock; at least {least_ns}ns"
            );
            return Err(BenchError::Unavailable { reason, remedy: None });
        }
        Ok(Guest { cpus, grain, threshold_ns, cache_bytes: last_level_cache_bytes(&root) })
    }

    fn grain(&self) -> GuestGrain {
        let Grain { hz, step_ns, turn_cycles } = self.grain;
        GuestGrain {
            hz,
            step_ns,
            turn_ns: self.grain.turn_ns(),
            turn_cycles,
            threshold_ns: self.threshold_ns,
            threshold_ns_min: self.grain.threshold_ns_min(),
        }
    }

    fn start(&self, order: &NoiseOrder, looping: Loop, cpu: u32) -> Start {
        let by_time = looping == Loop::Detour || order.repetitions.is_none();
        let cycles = |ns: u64| self.grain.cycles(ns);
        Start {
            order: Order {
                looping,
                cpu,
                window_cycles: if by_time { cycles(order.duration_ns) } else { u64::MAX },
                repetitions: order.repetitions.unwrap_or(u64::MAX),
                quantum_cycles: cycles(order.quantum_ns).max(1),
                threshold_cycles: cycles(self.threshold_ns),
                turn_cycles: self.grain.turn_cycles,
            },
            body: order.body,
            cache_bytes: self.cache_bytes,
            warm_up_cycles: cycles(order.warm_up_ns),
            fifo: order.fifo,
            // The simulator sees all that the loop's thread does.
            times_core: false,
        }
    }
}

/// The CPUs that run loops, of those that there are.
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
    say(NoiseLine::Grain(guest.grain()));
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
    let start = |&cpu: &u32| Runner::start(guest.start(order, looping, cpu));
    let runners = guest.cpus.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    // All that the loops touch is there now.
    let _locked = LockedMemory::current();
    let wanted = order.inject.filter(|_| looping == Loop::Detour);
    // How long it takes until the loops begin is not known: timers beyond the window do no harm.
    let times = (order.warm_up_ns, order.duration_ns.saturating_mul(2));
    let inject = |&cpu: &u32| {
        let inject = |wanted| Injector::start(wanted, cpu, guest.grain.hz, times);
        wanted.map(inject).transpose().map_err(BenchError::Failed)
    };
    let injectors = guest.cpus.iter().map(inject).collect::<Result<Vec<_>, _>>()?;
    let rings: Vec<_> = runners.iter().map(|runner| Arc::clone(&runner.ring)).collect();
    mark(WindowEdge::Open);
    runners.iter().for_each(Runner::let_go);
    let threads: Vec<(u32, u32)> = runners.iter().map(|one| (one.cpu, one.thread)).collect();
    // Nothing of ours runs until they have ended: the rings have room for all.
    let backs: Vec<_> = runners.into_iter().map(Runner::back).collect();
    mark(WindowEdge::Close);
    for (((cpu, thread), back), (ring, injector)) in
        threads.into_iter().zip(backs).zip(rings.into_iter().zip(injectors))
    {
        let (_, back) = back?;
        say(NoiseLine::Ran(RanOn {
            looping,
            cpu,
            thread,
            start: back.ran.start,
            end: back.ran.end,
            turns: back.ran.turns,
            noting: back.ran.noting,
            turn_cycles: back.order.turn_cycles,
            threshold_cycles: back.order.threshold_cycles,
            turns_of_body: back.turns,
            lost: ring.lost(),
            page_faults: back.counted.map(|counted| counted.page_faults),
            switches: back.counted.map(|counted| counted.switches),
            injected: injector.map(|injector| injector.set),
        }));
        let mut records = Vec::new();
        ring.drain(|record| records.push(record));
        pieces(&records).into_iter().for_each(|piece| say(NoiseLine::Records(piece)));
    }
    Ok(())
}
