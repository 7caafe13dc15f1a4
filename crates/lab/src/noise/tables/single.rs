//! Tables of single detours and quanta: `detours`, `fwq_quanta` and `ftq_quanta`. Pictures use them, and `noise scale`
//! reads table `detours`. The terminal shows none of their rows.

use record::{Columns, Table, column};

use super::super::ledger::Detour;
use super::super::quantum::Quantum;
use super::super::sample::{ContextName, CpuNoise, LoopResult, NoiseSample};
use super::super::split::{Class, Part};
use super::noise::class_ns;
use super::{DetourLoop, cpu_column, detour_loops, kind_and_name, no_rows};

/// A part of a detour or quantum, or `None` if it is unknown; and the names of contexts.
pub(super) type Cause<'a> = (Option<Part>, &'a [ContextName]);

/// Kind and name of a cause, in the columns `{prefix}_kind` and `{prefix}_name`. `meaning` describes the cause in the
/// columns' documentation.
pub(super) fn cause_columns<'a>(prefix: &str, meaning: &str) -> Columns<'a, Cause<'a>> {
    let kind =
        |(part, names): &Cause<'_>| kind_and_name((*part)?, names).map(|(kind, _)| kind.to_owned());
    let name = |(part, names): &Cause<'_>| kind_and_name((*part)?, names).map(|(_, name)| name);
    Columns::all([
        column(&format!("{prefix}_kind"), &format!("Kind of the {meaning}.")).text(kind),
        column(&format!("{prefix}_name"), &format!("Name of the {meaning}.")).text(name),
    ])
}

/// The meaning of a detour's largest cause ([`Detour::main`]), for [`cause_columns`].
pub(super) const LARGEST_CAUSE: &str = "context or task with the largest part of the detour; of the host or the firmware, \
                                        if these took more than half of it";

/// Table `detours`: an even sample of the detours of each CPU, in the order of time.
pub fn detours(samples: &[NoiseSample]) -> Table {
    /// A detour, and the loop that recorded it.
    type Row<'a> = (DetourLoop<'a>, Detour);
    let class = |class: Class| {
        move |(detour_loop, detour): &Row<'_>| {
            let sums = detour_loop.sample.traced.map(|_| detour.by_class_ns);
            class_ns(class, sums, detour_loop)
        }
    };
    let trigger = "context of the detour's first kernel event";
    let columns = Columns::all([
        cpu_column(100).of(|(detour_loop, _): &Row<'_>| detour_loop.cpu.cpu),
        column("start_ns", "Start of the detour, from the opening of the window.").uint(
            |(detour_loop, detour): &Row<'_>| detour_loop.since_opening_ns(detour.gap.start_ns),
        ),
        column("length_ns", "Length of the detour.")
            .uint(|(_, detour): &Row<'_>| detour.gap.length_ns()),
        cause_columns("trigger", trigger).of(|(detour_loop, detour): &Row<'_>| {
            (detour.trigger, detour_loop.sample.names.as_slice())
        }),
        cause_columns("largest", LARGEST_CAUSE).of(|(detour_loop, detour): &Row<'_>| {
            (detour.main, detour_loop.sample.names.as_slice())
        }),
        column("attributed_ns", "Part that kernel events attribute to contexts and tasks.")
            .uint(class(Class::Named)),
        column("entry_exit_ns", "Part attributed to kernel entry and exit.")
            .uint(class(Class::Path)),
        column("unattributed_ns", "Part that the host or the firmware took, by elimination.")
            .uint(class(Class::Unattributed)),
        column("remainder_ns", "Part that is not explained; all parts add up to length_ns.")
            .uint(class(Class::Remainder)),
        column("indirect_ns", "Part that is the loop's own time, because of colder caches.")
            .uint(class(Class::Aftermath)),
    ]);
    let rows = detour_loops(samples).into_iter().flat_map(|detour_loop| {
        let mut detours = detour_loop.ledger.sample.items().to_vec();
        detours.sort_unstable_by_key(|detour| detour.gap.start_ns);
        detours.into_iter().map(move |detour| (detour_loop, detour))
    });
    let doc = "Single detours: all of them, or an even sample of at most 10,000 per CPU.";
    columns.table("detours", doc, rows).displayed(no_rows())
}

/// Table `fwq_quanta`: the first quanta of fixed work of each CPU.
pub fn repetitions(samples: &[NoiseSample]) -> Table {
    /// A quantum, with its sample and CPU.
    type Row<'a> = (&'a NoiseSample, &'a CpuNoise, &'a Quantum);
    let columns = Columns::all([
        cpu_column(100).of(|(_, cpu, _): &Row<'_>| cpu.cpu),
        column("start_ns", "Start of the quantum, from the opening of the window.").uint(
            |(sample, _, quantum): &Row<'_>| quantum.start_ns.saturating_sub(sample.opened_ns()),
        ),
        column("duration_ns", "Duration of the quantum.")
            .uint(|(.., quantum): &Row<'_>| quantum.time_ns),
        column(
            "attributed_ns",
            "Part that kernel events attribute to contexts and tasks. Absent on live for a quantum with a page fault, \
             whose end no event shows.",
        )
        .uint(|(.., quantum): &Row<'_>| quantum.attributed_ns),
        cause_columns("largest", "context or task with the largest part of attributed_ns")
            .of(|(sample, _, quantum): &Row<'_>| (quantum.main, sample.names.as_slice())),
        column("has_page_fault", "Whether the loop had a page fault in the quantum.")
            .bool(|(.., quantum): &Row<'_>| quantum.faulted),
    ]);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for sample in samples {
        for cpu in &sample.cpus {
            if let LoopResult::Quanta(fixed) = &cpu.result {
                rows.extend(fixed.first.iter().map(|quantum| (sample, cpu, quantum)));
            }
        }
    }
    let doc = "The first quanta of fixed work, at most 10,000 per CPU.";
    columns.table("fwq_quanta", doc, rows).displayed(no_rows())
}

/// Table `ftq_quanta`: the first quanta of fixed time of each CPU.
pub fn slots(samples: &[NoiseSample]) -> Table {
    /// A CPU, the start of a quantum from the opening of the window, ns, and its work.
    type Row = (u32, u64, u64);
    let columns = Columns::all([
        cpu_column(100).of(|(cpu, ..): &Row| *cpu),
        column("start_ns", "Start of the quantum, from the opening of the window.")
            .uint(|(_, start_ns, _): &Row| *start_ns),
        column(
            "work_iterations",
            "Units of work that ended in the quantum. A unit is iterations_on_cpu_N (in the settings) \
             iterations of the loop body on CPU N.",
        )
        .uint(|(.., work): &Row| *work),
    ]);
    let mut rows: Vec<Row> = Vec::new();
    for sample in samples {
        let opened_ns = sample.opened_ns();
        for cpu in &sample.cpus {
            let LoopResult::Slots(slots) = &cpu.result else { continue };
            let first_ns = cpu.start_ns.saturating_sub(opened_ns);
            let numbered = (0_u64..).zip(&slots.first);
            rows.extend(numbered.map(|(slot, work)| {
                (cpu.cpu, first_ns.saturating_add(slots.start_ns(slot)), *work)
            }));
        }
    }
    let doc = "Work in the first quanta of fixed time, at most 65,536 per CPU.";
    columns.table("ftq_quanta", doc, rows).displayed(no_rows())
}
