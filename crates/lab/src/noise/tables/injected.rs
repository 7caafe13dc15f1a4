//! Table `injected`: timers set for known times, and whether the loop detected them.

use record::{Kind, Table};

use super::super::sample::NoiseSample;
use super::{column, cpu_column, no_rows};

/// One row per time for which timers were set.
pub fn injected(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Uint};
    let columns = vec![
        cpu_column(),
        column("timer_count", Uint, "Timers that were set for this time."),
        column(
            "scheduled_at_ns",
            Uint,
            "The time for which they were set, since the window opened.",
        ),
        column("latency_ns", Uint, "Delay until their interrupt started, as the simulator saw it."),
        column(
            "stalled_ns",
            Uint,
            "Time during which the loop did not run then, as the simulator saw it.",
        ),
        column("detected", Bool, "Whether the loop recorded a detour there."),
        column("detour_length_ns", Uint, "Length of that detour, as the loop recorded it."),
        column(
            "indirect_ns",
            Uint,
            "Part of detour_length_ns that is the loop's own time, with colder caches.",
        ),
    ];
    let doc =
        "Timers set for known times in the window of the detour loop: does the loop detect them?";
    let mut table = Table::new("injected", doc, columns).displayed(no_rows());
    for sample in samples {
        for one in &sample.injected {
            let of_cpu = sample.cpus.iter().find(|cpu| cpu.cpu == one.cpu);
            let start_ns = of_cpu.map_or(0, |cpu| cpu.start_ns);
            let late_ns =
                one.interrupt_ns.map(|interrupt_ns| interrupt_ns.saturating_sub(one.planned_ns));
            table.push(vec![
                u64::from(one.cpu).into(),
                u64::from(one.timers).into(),
                one.planned_ns.saturating_sub(start_ns).into(),
                late_ns.into(),
                one.interrupt_ns.map(|_| one.stalled_ns).into(),
                one.found_ns.is_some().into(),
                one.found_ns.into(),
                one.found_ns.map(|_| one.own_ns).into(),
            ]);
        }
    }
    table
}
