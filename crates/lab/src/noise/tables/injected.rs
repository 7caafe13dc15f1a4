//! Table `injected`: timers for known times, and whether the loop detected them.

use record::{Kind, Table};

use super::super::sample::NoiseSample;
use super::{column, cpu_column, no_rows};

/// One row per time of timers.
pub fn injected(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Uint};
    let columns = vec![
        cpu_column(),
        column("timer_count", Uint, "Number of timers for the time."),
        column(
            "scheduled_at_ns",
            Uint,
            "Time that the timers were set for, from the opening of the window.",
        ),
        column(
            "latency_ns",
            Uint,
            "Delay until the timers' interrupt started, as the simulator saw it.",
        ),
        column(
            "stalled_ns",
            Uint,
            "Time that the interrupt stalled the loop, as the simulator saw it.",
        ),
        column("detected", Bool, "Whether the loop recorded a detour at the interrupt."),
        column("detour_length_ns", Uint, "Length of the detour, as the loop recorded it."),
        column(
            "indirect_ns",
            Uint,
            "Part of detour_length_ns that is the loop's own time, because of colder caches.",
        ),
    ];
    let doc = "Timers for known times in the window of the detour loop, and whether the loop \
               detects them.";
    let mut table = Table::new("injected", doc, columns).displayed(no_rows());
    for sample in samples {
        for injected in &sample.injected {
            let loop_on_cpu = sample.cpus.iter().find(|cpu| cpu.cpu == injected.cpu);
            let start_ns = loop_on_cpu.map_or(0, |cpu| cpu.start_ns);
            let late_ns = injected
                .interrupt_ns
                .map(|interrupt_ns| interrupt_ns.saturating_sub(injected.planned_ns));
            table.push(vec![
                u64::from(injected.cpu).into(),
                u64::from(injected.timers).into(),
                injected.planned_ns.saturating_sub(start_ns).into(),
                late_ns.into(),
                injected.interrupt_ns.map(|_| injected.stalled_ns).into(),
                injected.found_ns.is_some().into(),
                injected.found_ns.into(),
                injected.found_ns.map(|_| injected.own_ns).into(),
            ]);
        }
    }
    table
}
