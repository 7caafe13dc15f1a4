//! Table `injected` of `noise`. A simulated machine sets timers for known times, and the table says whether the detour loop
//! detected the interrupt of each.

use record::{Columns, Table, column};

use super::super::sample::{Injected, NoiseSample};
use super::{cpu_column, no_rows};

/// Table `injected`: one row for each time for which timers were set.
pub fn injected(samples: &[NoiseSample]) -> Table {
    /// The time at which the window opened, ns, and the timers for one time.
    type Row<'a> = (u64, &'a Injected);
    let columns = Columns::all([
        cpu_column(100).of(|(_, injected): &Row<'_>| injected.cpu),
        column("timer_count", "Number of timers for the time.")
            .uint(|(_, injected): &Row<'_>| injected.timers),
        column(
            "scheduled_at_ns",
            "Time for which the timers were set, since the window opened.",
        )
        .uint(|(opened_ns, injected): &Row<'_>| injected.planned_ns.saturating_sub(*opened_ns)),
        column("latency_ns", "Time from scheduled_at_ns to the timers' interrupt, as the simulator saw it.")
            .uint(|(_, injected): &Row<'_>| {
                injected
                    .interrupt_ns
                    .map(|interrupt_ns| interrupt_ns.saturating_sub(injected.planned_ns))
            }),
        column("stalled_ns", "Time that the interrupt stalled the loop, as the simulator saw it.")
            .uint(|(_, injected): &Row<'_>| injected.interrupt_ns.map(|_| injected.stalled_ns)),
        column("detected", "Whether the loop recorded a detour at the interrupt.")
            .bool(|(_, injected): &Row<'_>| injected.found_ns.is_some()),
        column("detour_length_ns", "Length of the detour, as the loop recorded it.")
            .uint(|(_, injected): &Row<'_>| injected.found_ns),
        column(
            "indirect_ns",
            "Part of detour_length_ns in which the loop itself ran, more slowly because of colder caches.",
        )
        .uint(|(_, injected): &Row<'_>| injected.found_ns.map(|_| injected.own_ns)),
    ]);
    let rows = samples.iter().flat_map(|sample| {
        let opened_ns = sample.opened_ns();
        sample.injected.iter().map(move |injected| (opened_ns, injected))
    });
    let doc = "Timers for known times in the window of the detour loop, and whether the loop \
               detects them.";
    columns.table("injected", doc, rows).displayed(no_rows())
}
