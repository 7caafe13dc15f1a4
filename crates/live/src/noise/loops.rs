//! The three loops. Inside: no system call, no allocation, no lock.

use std::sync::atomic::Ordering;

use lab::noise::Loop;
use loop_bodies::ATTEMPTS;

use super::body::Worker;
use crate::clock::{now, now_after_work};
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
    /// Turns of the detour loop in which no gap was noted; 0 of the others.
    pub turns: u64,
    /// What turns took in which a gap was noted, those in no gap.
    pub noting: u64,
}

/// Runs the loop that the order names until its window is over, or the ring says stop.
///
/// There is one of it: what was tried with it holds for the next call from the same place.
#[inline(never)]
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

/// A turn in which a gap is noted, and the one behind it, may take so many times what the shortest
/// such turn took: noting goes through lines of memory that the loop does not, and takes their place
/// in a cache. What takes longer is a gap itself.
const NOTING_RATIO_MAX: u64 = 4;
/// The turns that a note takes.
const NOTE_TURNS: u32 = 2;

/// Reads the clock again and again. Records: begin and end of a gap; flags, and below them what was
/// taken off at its begin as the loop's own.
fn detour(order: &Order, ring: &Ring) -> Ran {
    let is_tried = order.threshold_cycles == u64::MAX;
    let start = if is_tried { now() } else { begin(now(), ring) };
    let (mut last, mut turns, mut noting) = (start, 0, 0);
    // Turns until a note is over: the one in which it is made, and one that finds its own code again.
    let mut notes = 0_u32;
    let mut noting_least = u64::MAX;
    loop {
        let seen = now();
        // The counters of two CPUs may differ: after a migration time may even go back.
        let gap = seen.saturating_sub(last);
        let (mut own, mut limit) = (order.turn_cycles, order.threshold_cycles);
        if notes == NOTE_TURNS {
            noting_least = noting_least.min(gap);
            own = noting_least;
        }
        if notes > 0 {
            limit = limit.saturating_add(NOTING_RATIO_MAX.saturating_mul(noting_least));
        }
        let is_gap = gap > limit;
        turns += u64::from(notes == 0);
        if notes > 0 && !is_gap {
            noting += gap;
        }
        if is_gap {
            let own = own.min(gap);
            ring.push([last + own, seen, migrated(order.cpu) | own]);
        }
        (last, notes) = (seen, if is_gap { NOTE_TURNS } else { notes.saturating_sub(1) });
        if seen.wrapping_sub(start) >= order.window_cycles || ring.stop.load(Ordering::Relaxed) {
            return Ran { start, end: seen, turns, noting };
        }
    }
}

/// How long a try of the detour loop is, cycles.
const TRY_CYCLES: u64 = 100_000;

impl Order {
    /// A try of the detour loop, which notes nothing.
    #[must_use]
    pub fn tried(self) -> Order {
        let window_cycles = TRY_CYCLES;
        Order { looping: Loop::Detour, window_cycles, threshold_cycles: u64::MAX, ..self }
    }

    /// With what a turn takes where the loop runs, by the best of some tries. The code or the memory of
    /// the loop may be such that it takes longer there than elsewhere; the threshold is then two turns.
    #[must_use]
    pub fn with_turn(self, tries: &[Ran]) -> Order {
        let turn = |ran: &Ran| ran.end.saturating_sub(ran.start).div_ceil(ran.turns.max(1));
        let turn_cycles = tries.iter().map(turn).min().unwrap_or(self.turn_cycles).max(1);
        let threshold_cycles = self.threshold_cycles.max(2 * turn_cycles);
        Order { turn_cycles, threshold_cycles, ..self }
    }
}

/// What a turn of the detour loop takes when nobody interferes, cycles; at least 1.
pub fn turn_of_detour(cpu: u32) -> u64 {
    let order = Order {
        looping: Loop::Detour,
        cpu,
        window_cycles: 0,
        repetitions: u64::MAX,
        quantum_cycles: 1,
        threshold_cycles: 0,
        turn_cycles: 1,
    };
    let ring = Ring::new(1);
    let tries = [(); ATTEMPTS].map(|()| detour(&order.tried(), &ring));
    order.with_turn(&tries).turn_cycles
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
    Ran { start, end, turns: 0, noting: 0 }
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
            return Ran { start, end: seen, turns: 0, noting: 0 };
        }
    }
}

/// How many turns of the body take `cycles` when nobody interferes; at least 1.
pub fn turns_of(worker: &mut Worker, cycles: u64) -> u64 {
    loop_bodies::iterations_for(cycles, |turns| {
        let begun = now_after_work();
        worker.work(turns);
        now_after_work().saturating_sub(begun)
    })
}
