//! Tables of single detours and quanta, the data of figures.

use record::{Kind, Table, Value};

use super::super::sample::{LoopResult, NoiseSample};
use super::super::split::Class;
use super::noise::class_ns;
use super::{column, cpu_column, kind_and_name_or_absent, ledgers, no_rows};

/// An even sample of the detours of each CPU, in order of time.
pub fn detours(samples: &[NoiseSample]) -> Table {
    use Kind::{Text, Uint};
    let columns = vec![
        cpu_column(),
        column("start_ns", Uint, "Start of the detour, from the opening of the window."),
        column("length_ns", Uint, "Length of the detour."),
        column("trigger_kind", Text, "Kind of the context of the detour's first kernel event."),
        column("trigger_name", Text, "Name of the context of the detour's first kernel event."),
        column(
            "largest_kind",
            Text,
            "Kind of the context or task with the largest part of the detour.",
        ),
        column(
            "largest_name",
            Text,
            "Name of the context or task with the largest part of the detour.",
        ),
        column("attributed_ns", Uint, "Part that kernel events attribute to contexts and tasks."),
        column("entry_exit_ns", Uint, "Part attributed to kernel entry and exit."),
        column("unattributed_ns", Uint, "Part that the host or the firmware took, by elimination."),
        column("remainder_ns", Uint, "Part that is not explained; all parts add up to length_ns."),
        column("indirect_ns", Uint, "Part that is the loop's own time, because of colder caches."),
    ];
    let doc = "Single detours: all of them, or an even sample of at most 10,000 per CPU.";
    let mut table = Table::new("detours", doc, columns).displayed(no_rows());
    for (sample, cpu, ledger) in ledgers(samples) {
        let mut detours = ledger.sample.items().to_vec();
        detours.sort_unstable_by_key(|detour| detour.gap.start_ns);
        for detour in detours {
            let mut row: Vec<Value> = vec![
                u64::from(cpu.cpu).into(),
                detour.gap.start_ns.saturating_sub(cpu.start_ns).into(),
                detour.gap.length_ns().into(),
            ];
            row.extend(kind_and_name_or_absent(detour.trigger, &sample.names));
            row.extend(kind_and_name_or_absent(detour.main, &sample.names));
            let sees_every_cycle = sample.traced.map(|traced| traced.whole);
            let sums = sample.traced.map(|_| detour.by_class_ns);
            let class = |class: Class| class_ns(class, sums, sees_every_cycle, ledger);
            row.extend(Class::ALL.map(class));
            table.push(row);
        }
    }
    table
}

/// The first quanta of fixed work of each CPU.
pub fn repetitions(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Text, Uint};
    let columns = vec![
        cpu_column(),
        column("start_ns", Uint, "Start of the quantum, from the opening of the window."),
        column("duration_ns", Uint, "Duration of the quantum."),
        column("attributed_ns", Uint, "Part that kernel events attribute to contexts and tasks."),
        column(
            "largest_kind",
            Text,
            "Kind of the context or task with the largest part of attributed_ns.",
        ),
        column(
            "largest_name",
            Text,
            "Name of the context or task with the largest part of attributed_ns.",
        ),
        column("has_page_fault", Bool, "Whether the loop had a page fault in the quantum."),
    ];
    let doc = "The first quanta of fixed work, at most 10,000 per CPU.";
    let mut table = Table::new("fwq_quanta", doc, columns).displayed(no_rows());
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Quanta(fixed) = &cpu.result else { continue };
            for quantum in &fixed.first {
                let [kind, name] = kind_and_name_or_absent(quantum.main, &sample.names);
                table.push(vec![
                    u64::from(cpu.cpu).into(),
                    quantum.start_ns.saturating_sub(cpu.start_ns).into(),
                    quantum.time_ns.into(),
                    quantum.named_ns.into(),
                    kind,
                    name,
                    quantum.faulted.map_or(Value::Absent, Value::Bool),
                ]);
            }
        }
    }
    table
}

/// The first quanta of fixed time of each CPU.
pub fn slots(samples: &[NoiseSample]) -> Table {
    let columns = vec![
        cpu_column(),
        column("start_ns", Kind::Uint, "Start of the quantum, from the opening of the window."),
        column(
            "work_iterations",
            Kind::Uint,
            "Iterations of the loop body that ended in the quantum.",
        ),
    ];
    let doc = "Work in the first quanta of fixed time, at most 65,536 per CPU.";
    let mut table = Table::new("ftq_quanta", doc, columns).displayed(no_rows());
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Slots(slots) = &cpu.result else { continue };
            for (position, work) in slots.first.iter().enumerate() {
                let start_ns = position as u64 * slots.slot_ns;
                table.push(vec![u64::from(cpu.cpu).into(), start_ns.into(), (*work).into()]);
            }
        }
    }
    table
}
