//! Whether the loop has found the timers that were set for known times.

use lab::noise::Injected;
use lab::noise::in_guest::{Inject, RanOn};

use super::join::Found;
use super::timeline::Piece;

/// Times at which others had the CPU without a break, of the time-stamp counter.
fn taken(window: &[Piece], thread: u32) -> Vec<(u64, u64)> {
    let runs = window.chunk_by(|one, next| one.is_of(thread) == next.is_of(thread));
    let others = runs.filter(|run| !run[0].is_of(thread));
    others.filter_map(|run| Some((run.first()?.from_ns, run.last()?.to_ns))).collect()
}

/// The timers on a CPU that were set for times within the loop's window.
pub(super) fn injected(
    order: Inject,
    ran: &RanOn,
    window: &[Piece],
    found: &[Found],
) -> Vec<Injected> {
    let Some(set) = ran.injected else { return Vec::new() };
    let taken = taken(window, ran.thread);
    let one = |at: u64| {
        let planned_ns = set.time(at);
        // What was under way then has them, or else what came next.
        let place = taken.partition_point(|(_, end_ns)| *end_ns <= planned_ns);
        let of = taken.get(place).filter(|of| of.0 < planned_ns.saturating_add(order.every_ns / 2));
        let noted = of.and_then(|(begun_ns, end_ns)| {
            let behind = found.partition_point(|found| found.gap.end_ns < *end_ns);
            found.get(behind).filter(|found| found.last_ns <= *begun_ns)
        });
        Injected {
            cpu: ran.cpu,
            timers: order.timers_at(at),
            planned_ns,
            begun_ns: of.map(|of| of.0),
            taken_ns: of.map_or(0, |of| of.1 - of.0),
            found_ns: noted.map(|found| found.gap.length_ns()),
            own_ns: noted.map_or(0, |found| found.own_ns),
        }
    };
    // The last half of a distance is left out: what comes there may be behind the end.
    let end_ns = ran.end.saturating_sub(order.every_ns / 2);
    let inside = |one: &Injected| (ran.start..end_ns).contains(&one.planned_ns);
    (1..=set.times.min(1 << 16)).map(one).filter(inside).collect()
}
