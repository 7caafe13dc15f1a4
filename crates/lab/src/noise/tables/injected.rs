//! Table `injected`: timers of known times, and whether the loop found them.

use record::{Kind, Table};

use super::super::sample::NoiseSample;
use super::{column, cpu_column};

/// One row for each time for which timers were set.
pub fn injected(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Uint};
    let columns = vec![
        cpu_column(),
        column("timer_count", Uint, "Timers that were set for this time."),
        column("planned_ns", Uint, "The time, since the window opened."),
        column("late_ns", Uint, "By how much later their interrupt came, as the simulator saw it."),
        column(
            "taken_ns",
            Uint,
            "For how long the loop did not run then, as the simulator saw it.",
        ),
        column("found", Bool, "Whether the loop noted a detour there."),
        column("detour_ns", Uint, "Its length, as the loop noted it."),
        column("own_ns", Uint, "Of that, the loop's own time: colder caches."),
    ];
    let doc = "Timers that were set for known times in the window of the detour loop.";
    let mut table = Table::new("injected", doc, columns);
    for sample in samples {
        for one in &sample.injected {
            let of_cpu = sample.cpus.iter().find(|cpu| cpu.cpu == one.cpu);
            let start_ns = of_cpu.map_or(0, |cpu| cpu.start_ns);
            let late_ns = one.begun_ns.map(|begun_ns| begun_ns.saturating_sub(one.planned_ns));
            table.push(vec![
                u64::from(one.cpu).into(),
                u64::from(one.timers).into(),
                one.planned_ns.saturating_sub(start_ns).into(),
                late_ns.into(),
                one.begun_ns.map(|_| one.taken_ns).into(),
                one.found_ns.is_some().into(),
                one.found_ns.into(),
                one.found_ns.map(|_| one.own_ns).into(),
            ]);
        }
    }
    table
}
