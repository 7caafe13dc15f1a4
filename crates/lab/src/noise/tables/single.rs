//! Tables of single detours, repetitions and slots: what the pictures are made of.

use record::{Kind, Table, Value};

use super::super::sample::{NoiseSample, Work};
use super::super::split::Class;
use super::noise::class_ns;
use super::{column, cpu_column, ledgers, words_or_absent};

/// An even sample of the detours of each CPU, in the order of time.
pub fn detours(samples: &[NoiseSample]) -> Table {
    use Kind::{Text, Uint};
    let columns = vec![
        cpu_column(),
        column("start_ns", Uint, "When it began, since the window opened."),
        column("length_ns", Uint, "Its length."),
        column("trigger_kind", Text, "What the kernel named first in it: kind."),
        column("trigger_name", Text, "And name."),
        column("main_kind", Text, "What took most of it, of what has a name: kind."),
        column("main_name", Text, "And name."),
        column("named_ns", Uint, "Time by class: see table noise."),
        column("path_ns", Uint, "The same."),
        column("host_ns", Uint, "The same."),
        column("remainder_ns", Uint, "The same; all of these add up to length_ns."),
        column("aftermath_ns", Uint, "The same."),
    ];
    let doc = "Single detours: all of them, or an even sample of at most 10,000 a CPU.";
    let mut table = Table::new("detours", doc, columns);
    for (sample, cpu, ledger) in ledgers(samples) {
        let mut kept = ledger.kept.kept().to_vec();
        kept.sort_unstable_by_key(|detour| detour.gap.start_ns);
        for detour in kept {
            let mut row: Vec<Value> = vec![
                u64::from(cpu.cpu).into(),
                detour.gap.start_ns.saturating_sub(cpu.start_ns).into(),
                detour.gap.length_ns().into(),
            ];
            row.extend(words_or_absent(detour.trigger, &sample.names));
            row.extend(words_or_absent(detour.main, &sample.names));
            let whole = sample.traced.map(|traced| traced.whole);
            let sums = sample.traced.map(|_| detour.by_class_ns);
            let class = |class: Class| class_ns(class, sums, whole);
            row.extend(Class::ALL.map(class));
            table.push(row);
        }
    }
    table
}

/// The first repetitions of fixed work of each CPU.
pub fn repetitions(samples: &[NoiseSample]) -> Table {
    use Kind::{Bool, Text, Uint};
    let columns = vec![
        cpu_column(),
        column("start_ns", Uint, "When it began, since the window opened."),
        column("time_ns", Uint, "What it took."),
        column("named_ns", Uint, "Time in it that the kernel's events name."),
        column("main_kind", Text, "What took most of that: kind."),
        column("main_name", Text, "And name."),
        column("page_faulted", Bool, "Whether the loop took a page fault in it."),
        column("migrated", Bool, "Whether it ended on another CPU."),
    ];
    let doc = "The first repetitions of the fixed work, at most 10,000 a CPU.";
    let mut table = Table::new("repetitions", doc, columns);
    for sample in samples {
        for cpu in &sample.cpus {
            let Work::Quanta(fixed) = &cpu.work else { continue };
            for quantum in &fixed.first {
                let [kind, name] = words_or_absent(quantum.main, &sample.names);
                table.push(vec![
                    u64::from(cpu.cpu).into(),
                    quantum.start_ns.saturating_sub(cpu.start_ns).into(),
                    quantum.time_ns.into(),
                    quantum.named_ns.into(),
                    kind,
                    name,
                    quantum.faulted.map_or(Value::Absent, Value::Bool),
                    quantum.migrated.into(),
                ]);
            }
        }
    }
    table
}

/// The first slots of fixed time of each CPU.
pub fn slots(samples: &[NoiseSample]) -> Table {
    let columns = vec![
        cpu_column(),
        column("start_ns", Kind::Uint, "When the slot began, since the window opened."),
        column("work", Kind::Uint, "Turns of the body that ended in it."),
    ];
    let doc = "The work of the first slots of fixed time, at most 65,536 a CPU.";
    let mut table = Table::new("slots", doc, columns);
    for sample in samples {
        for cpu in &sample.cpus {
            let Work::Slots(slots) = &cpu.work else { continue };
            for (at, work) in slots.first.iter().enumerate() {
                let start_ns = at as u64 * slots.slot_ns;
                table.push(vec![u64::from(cpu.cpu).into(), start_ns.into(), (*work).into()]);
            }
        }
    }
    table
}
