//! The three loops. Inside: no system call, no allocation, no lock.

use std::sync::atomic::Ordering;

use lab::noise::Loop;

use super::body::Worker;
use super::clock::{now, now_after_work};
use super::ring::Ring;

/// In the third number of a record: it was made on another CPU than it should.
pub const MIGRATED: u64 = 1 << 63;

/// What a loop is told, in cycles of its clock.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Which loop.
    pub looping: Loop,
    /// The CPU on which it should be.
    pub cpu: u32,
    /// Length of the window.
    pub window_cycles: u64,
    /// Quanta after which it ends, however long they took.
    pub repetitions: u64,
    /// Length of a quantum or a slot.
    pub quantum_cycles: u64,
    /// Gaps longer than this are detours.
    pub threshold_cycles: u64,
    /// Time of a turn of the detour loop.
    pub turn_cycles: u64,
}

/// Begin and end of a loop, cycles.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

/// Runs the loop that the order names until its window is over, or the ring says stop.
pub fn run(order: &Order, worker: &mut Worker, turns: u64, ring: &Ring) -> Ran {
    match order.looping {
        Loop::Fwq => fwq(order, worker, turns, ring),
        Loop::Ftq => ftq(order, worker, turns, ring),
        Loop::Detour => detour(order, ring),
    }
}

/// Where this thread is, by a word that the kernel keeps in user memory: no system call.
fn migrated(cpu: u32) -> u64 {
    // SAFETY: sched_getcpu takes no arguments and touches no memory of ours.
    let is = unsafe { libc::sched_getcpu() };
    if i64::from(is) == i64::from(cpu) { 0 } else { MIGRATED }
}

/// Tells the reader when the loop began.
fn begin(start: u64, ring: &Ring) -> u64 {
    ring.started.store(start, Ordering::Relaxed);
    start
}

/// Reads the clock again and again. Records: begin and end of a gap.
fn detour(order: &Order, ring: &Ring) -> Ran {
    let start = begin(now(), ring);
    let mut last = start;
    loop {
        let seen = now();
        // The counters of two CPUs may differ: after a migration time may even go back.
        let gap = seen.saturating_sub(last);
        if gap > order.threshold_cycles {
            // One turn of the gap is the loop's own.
            ring.push([last + order.turn_cycles.min(gap), seen, migrated(order.cpu)]);
        }
        last = seen;
        if seen.wrapping_sub(start) >= order.window_cycles || ring.stop.load(Ordering::Relaxed) {
            return Ran { start, end: seen };
        }
    }
}

/// Fixed work. Records: begin and end of a quantum.
fn fwq(order: &Order, worker: &mut Worker, turns: u64, ring: &Ring) -> Ran {
    let start = begin(now_after_work(), ring);
    let (mut done, mut end) = (0, start);
    while done < order.repetitions
        && end.wrapping_sub(start) < order.window_cycles
        && !ring.stop.load(Ordering::Relaxed)
    {
        let begun = now_after_work();
        worker.work(turns);
        end = now_after_work();
        ring.push([begun, end, migrated(order.cpu)]);
        done += 1;
    }
    Ran { start, end }
}

/// Fixed time. Records: number of the slot, work done, flags. Slots without work have none.
fn ftq(order: &Order, worker: &mut Worker, turns: u64, ring: &Ring) -> Ran {
    let start = begin(now_after_work(), ring);
    let (mut slot, mut work) = (0, 0);
    loop {
        worker.work(turns);
        let seen = now_after_work();
        let at = seen.saturating_sub(start) / order.quantum_cycles;
        if at != slot {
            ring.push([slot, work, migrated(order.cpu)]);
            // What ends in a slot is its work.
            (slot, work) = (at, 0);
        }
        work += 1;
        let is_over = slot >= order.repetitions || seen.wrapping_sub(start) >= order.window_cycles;
        if is_over || ring.stop.load(Ordering::Relaxed) {
            return Ran { start, end: seen };
        }
    }
}

/// Runs in which the best time is looked for.
const TRIES: usize = 12;

/// How many turns of the body take `cycles` when nobody interferes; at least 1.
pub fn turns_of(worker: &mut Worker, cycles: u64) -> u64 {
    let mut turns = 1;
    // First a number that takes a part of it, then twice to the point.
    while turns < 1 << 40 && least(worker, turns) < cycles / 8 {
        turns *= 2;
    }
    for _ in 0..2 {
        let took = least(worker, turns).max(1);
        turns = (u128::from(turns) * u128::from(cycles) / u128::from(took)).max(1) as u64;
    }
    turns
}

fn least(worker: &mut Worker, turns: u64) -> u64 {
    let timed = |_| {
        let begun = now_after_work();
        worker.work(turns);
        now_after_work().saturating_sub(begun)
    };
    (0..TRIES).map(timed).min().unwrap_or(1)
}
