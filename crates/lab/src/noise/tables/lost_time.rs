//! Table `lost_time`: the lost time in the course of the window, by cause. Pictures use it.

use record::{Columns, Table, column};

use super::super::lost_time::LostInterval;
use super::{DetourLoop, NoiseSample, cpu_column, detour_loops, kind_and_name, no_rows};

/// A detour loop, and the time that one cause took in one interval.
type Row<'a> = (DetourLoop<'a>, LostInterval);

/// Kind and name of the cause. `None` without tracing.
fn cause(row: &Row<'_>) -> Option<(String, String)> {
    let (DetourLoop { sample, .. }, lost_interval) = row;
    sample.traced?;
    kind_and_name(lost_interval.part, &sample.names).map(|(kind, name)| (kind.to_owned(), name))
}

/// Table `lost_time`: a row for each interval of a CPU's window and each cause that took time in the interval.
pub fn lost_time(samples: &[NoiseSample]) -> Table {
    let columns = Columns::all([
        cpu_column(100).of(|row: &Row<'_>| row.0.cpu.cpu),
        column("start_ns", "Start of the interval, from the opening of the window.").uint(
            |(detour_loop, lost): &Row<'_>| {
                detour_loop.since_opening_ns(lost.start_ns.max(detour_loop.cpu.start_ns))
            },
        ),
        column("end_ns", "End of the interval, from the opening of the window.").uint(
            |(detour_loop, lost): &Row<'_>| {
                let cpu = detour_loop.cpu;
                let window_end_ns = cpu.start_ns.saturating_add(cpu.window_ns);
                detour_loop.since_opening_ns(lost.end_ns.clamp(cpu.start_ns, window_end_ns))
            },
        ),
        column("kind", "Kind of the cause, as in table causes.")
            .text(|row: &Row<'_>| cause(row).map(|(kind, _)| kind)),
        column("name", "Name of the cause, as in table causes.")
            .text(|row: &Row<'_>| cause(row).map(|(_, name)| name)),
        column("lost_ns", "Time that the cause took in the interval.")
            .uint(|row: &Row<'_>| row.1.lost_ns),
    ]);
    let rows = detour_loops(samples).into_iter().flat_map(|detour_loop| {
        detour_loop.ledger.lost_time.intervals().map(move |lost| (detour_loop, lost))
    });
    let doc = "The lost time in the course of the window, by cause. The rows of a CPU add up to \
               its lost_ns exactly.";
    columns.table("lost_time", doc, rows).displayed(no_rows())
}
