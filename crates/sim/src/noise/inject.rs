//! Finds which of the injected timers the loop detected. The guest sets timers at known times, so the result shows how
//! well the detour loop detects interrupts.

use lab::noise::Injected;
use lab::noise::in_guest::{Inject, LoopRun};

use super::join::Found;
use super::timeline::Piece;

/// Returns the intervals of other contexts than the loop: start and end, ns of the time-stamp counter.
/// Neighbouring pieces of other contexts are one interval.
fn stalls(window: &[Piece], thread: u32) -> Vec<(u64, u64)> {
    let runs = window.chunk_by(|piece, next| piece.is_of(thread) == next.is_of(thread));
    let others = runs.filter(|run| !run[0].is_of(thread));
    others.filter_map(|run| Some((run.first()?.from_ns, run.last()?.to_ns))).collect()
}

/// Returns the timers on a CPU that were scheduled within the loop's window.
pub(super) fn injected(
    inject: Inject,
    loop_run: &LoopRun,
    window: &[Piece],
    found: &[Found],
) -> Vec<Injected> {
    let Some(set) = loop_run.injected else { return Vec::new() };
    let stalls = stalls(window, loop_run.thread);
    let timer = |number: u64| {
        let planned_ns = set.time(number);
        // The stall that contains the scheduled time, or else the next one.
        let index = stalls.partition_point(|(_, end_ns)| *end_ns <= planned_ns);
        let stall = stalls
            .get(index)
            .filter(|stall| stall.0 < planned_ns.saturating_add(inject.every_ns / 2));
        let detected = stall.and_then(|(interrupt_ns, end_ns)| {
            let after = found.partition_point(|found| found.gap.end_ns < *end_ns);
            found.get(after).filter(|found| found.last_ns <= *interrupt_ns)
        });
        Injected {
            cpu: loop_run.cpu,
            timers: inject.timers_at(number),
            planned_ns,
            interrupt_ns: stall.map(|stall| stall.0),
            stalled_ns: stall.map_or(0, |stall| stall.1 - stall.0),
            found_ns: detected.map(|found| found.gap.length_ns()),
            own_ns: detected.map_or(0, |found| found.loop_ns),
        }
    };
    // Timers in the last half of a period are left out: they may expire after the end.
    let end_ns = loop_run.end.saturating_sub(inject.every_ns / 2);
    let inside = |timer: &Injected| (loop_run.start..end_ns).contains(&timer.planned_ns);
    (1..=set.times.min(1 << 16)).map(timer).filter(inside).collect()
}
