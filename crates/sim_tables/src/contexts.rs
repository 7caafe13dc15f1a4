//! Table `contexts`: instructions, cycles and misses of each context of a simulated machine. Column names and their
//! order are public: a recorded run has them.

use std::collections::BTreeMap;

use record::{Absence, Columns, RowFilter, Table, TableDisplay, column};
use sim::counters::{COUNTERS, CYCLES, INSTRUCTIONS, MASK_DETAILED_CYCLES, TIME, name};
use sim::{Accounting, ContextUse, CpuUse, KernelContext};

use crate::REPETITIONS_COUNT;
use crate::regions::{by_region, cpu_column, region_column};

/// Instructions, cycles and misses of one CPU, or of all, in a context.
struct Row<'a> {
    /// From 1.
    region: u32,
    cpu: String,
    /// Instructions of the row's CPUs in all contexts.
    total: u64,
    used: &'a ContextUse,
}

/// Returns the columns of the table. Counters of the model have columns only if a model counted them.
fn columns(accounting: &Accounting) -> Columns<'_, Row<'_>> {
    let counters = model_counters(accounting).filter_map(|counter| {
        let name = name(counter)?;
        let self_counts = column(
            &format!("self_{name}"),
            &format!("{name} of the context itself, by the model."),
        );
        let self_counts =
            if name == "cycles" { self_counts.priority(85).cost() } else { self_counts.detail() };
        let doc = format!("{name} from entry to exit, by the model.");
        let inclusive = column(&format!("inclusive_{name}"), &doc).detail();
        Some(Columns::all([
            self_counts.uint(move |row: &Row<'_>| row.used.self_counts[counter]),
            inclusive.uint(move |row: &Row<'_>| row.used.inclusive[counter]),
        ]))
    });
    Columns::all([
        region_column().of_ref(|row: &Row<'_>| &row.region),
        cpu_column().of_ref(|row: &Row<'_>| &row.cpu),
        column("context", "What the CPU executed for, with the name of the task.")
            .priority(100)
            .key()
            .text(|row: &Row<'_>| accounting.name_of(row.used.context)),
        column(
            "mode",
            "Mode of the CPU: user, kernel or idle. Absent before the first task is known.",
        )
        .priority(70)
        .text(|row: &Row<'_>| mode(row.used.context)),
        column(
            "self_instructions",
            &format!("Instructions of the context itself. {REPETITIONS_COUNT}"),
        )
        .priority(99)
        .cost()
        .uint(|row: &Row<'_>| row.used.self_counts[INSTRUCTIONS]),
        column(
            "self_instructions_ratio",
            "self_instructions over all instructions of the row's CPUs.",
        )
        .shown_as("share", 80)
        .real(|row: &Row<'_>| {
            (row.total > 0).then(|| row.used.self_counts[INSTRUCTIONS] as f64 / row.total as f64)
        }),
        column(
            "inclusive_instructions",
            "Instructions from entry to exit, without other tasks, of the spans that started \
             and ended in the region; counted as self_instructions are.",
        )
        .priority(60)
        .uint(|row: &Row<'_>| row.used.inclusive[INSTRUCTIONS]),
        column("entry_count", "How often the context was entered.")
            .shown_as("entries", 90)
            .uint(|row: &Row<'_>| row.used.entries),
        column("span_count", "Spans of inclusive_instructions.")
            .shown_as("spans", 50)
            .uint(|row: &Row<'_>| row.used.completed),
    ])
    .and(counters)
}

/// The mode of the CPU in a context. `None` if it is unknown.
fn mode(context: KernelContext) -> Option<&'static str> {
    match context {
        KernelContext::Unknown => None,
        KernelContext::User(_) => Some("user"),
        KernelContext::Idle => Some("idle"),
        _ => Some("kernel"),
    }
}

/// Returns the table. In each region, the sums over all CPUs come before the rows of single CPUs.
#[must_use]
pub fn table(accounting: &Accounting) -> Table {
    let doc = "Instructions by context; the self instructions of a CPU add up to all that it \
             executed.";
    let display = TableDisplay {
        headline: "largest: {context}, {self_instructions_ratio} of the instructions, \
                   {entry_count} entries"
            .to_owned(),
        sort_by: Some("self_instructions".to_owned()),
        filter: Some(RowFilter::sums_over_cpus()),
        ..by_region()
    };
    let sums: Vec<BTreeMap<KernelContext, ContextUse>> =
        accounting.regions.iter().map(|region| sums(&region.cpus)).collect();
    let mut rows = Vec::new();
    for ((number, region), sums) in (1..).zip(&accounting.regions).zip(&sums) {
        let mut push = |cpu: &str, total, used| {
            rows.push(Row { region: number, cpu: cpu.to_owned(), total, used });
        };
        let total = region.cpus.iter().map(|cpu| cpu.used[INSTRUCTIONS]).sum();
        sums.values().for_each(|used| push("all", total, used));
        for cpu in &region.cpus {
            let number = cpu.cpu.to_string();
            cpu.contexts.iter().for_each(|used| push(&number, cpu.used[INSTRUCTIONS], used));
        }
    }
    columns(accounting).table("contexts", doc, rows).displayed(display)
}

/// Returns the counters of each context, summed over the CPUs.
fn sums(cpus: &[CpuUse]) -> BTreeMap<KernelContext, ContextUse> {
    let mut sums: BTreeMap<KernelContext, ContextUse> = BTreeMap::new();
    for used in cpus.iter().flat_map(|cpu| &cpu.contexts) {
        sums.entry(used.context).and_modify(|sum| sum.add(used)).or_insert(*used);
    }
    sums
}

/// Returns the counters that only a model has. Without a model there are none: a cycle is an instruction then.
fn model_counters(accounting: &Accounting) -> impl Iterator<Item = usize> {
    // The cycles of a sampled run are estimates: the table `sampled_cycles` has them with intervals.
    let is_estimated = |counter: usize| accounting.is_sampled && counter == CYCLES;
    let has_columns =
        move |counter: usize| ![TIME, INSTRUCTIONS].contains(&counter) && !is_estimated(counter);
    (0..COUNTERS).filter(move |counter| {
        accounting.has_model() && accounting.counts(*counter) && has_columns(*counter)
    })
}

/// Returns the columns that the table of a sampled run lacks. A run of level `ooo` has them.
#[must_use]
pub fn absences(accounting: &Accounting) -> Vec<Absence> {
    if !accounting.is_sampled {
        return Vec::new();
    }
    let absent_columns = |counter: usize| {
        let reason = match counter {
            CYCLES => {
                "the core executed only samples in detail; table sampled_cycles has estimates"
            }
            _ => "the core executed only samples in detail; --detail ooo counts them",
        };
        let columns =
            name(counter).map(|name| [format!("self_{name}"), format!("inclusive_{name}")]);
        columns.into_iter().flatten().map(move |column| Absence::new("contexts", column, reason))
    };
    let is_absent = |counter: &usize| (MASK_DETAILED_CYCLES | 1 << CYCLES) & (1 << counter) != 0;
    (0..COUNTERS).filter(is_absent).flat_map(absent_columns).collect()
}

#[cfg(test)]
mod tests {
    use record::Value;
    use sim::RegionUse;
    use sim::counters::Counts;

    use super::*;

    #[test]
    fn a_context_has_a_row_for_all_cpus_and_for_each() {
        let cpu = |cpu: u32, instructions: u64| {
            let mut used = CpuUse { cpu, ..CpuUse::default() };
            used.used[INSTRUCTIONS] = 2 * instructions;
            let mut self_counts = Counts::default();
            self_counts[INSTRUCTIONS] = instructions;
            let (context, inclusive) = (KernelContext::Interrupt(0xec), self_counts);
            used.contexts =
                vec![ContextUse { context, self_counts, inclusive, entries: 1, completed: 1 }];
            used
        };
        let region = RegionUse { cpus: vec![cpu(0, 10), cpu(1, 30)], ..RegionUse::default() };
        let table = table(&Accounting { regions: vec![region], ..Accounting::default() });
        let cells = |name: &str| -> Vec<Value> {
            table.rows().iter().filter_map(|row| table.get(row, name).cloned()).collect()
        };
        assert_eq!(cells("cpu"), ["all", "0", "1"].map(Value::from));
        assert_eq!(cells("mode"), ["kernel"; 3].map(Value::from));
        assert_eq!(cells("self_instructions"), [40, 10, 30].map(Value::Uint));
        assert_eq!(cells("self_instructions_ratio"), [0.5; 3].map(Value::Real));
    }

    #[test]
    fn a_context_has_a_mode_and_system_calls_have_their_names() {
        let contexts = [
            KernelContext::User(7),
            KernelContext::Idle,
            KernelContext::Syscall(59),
            KernelContext::Unknown,
        ];
        let modes = contexts.map(mode);
        assert_eq!(modes, [Some("user"), Some("idle"), Some("kernel"), None]);
        let name = |number| Accounting::default().name_of(KernelContext::Syscall(number));
        assert_eq!([name(59), name(9_999)], ["syscall execve", "syscall 9999"]);
    }

    #[test]
    fn a_sampled_run_names_the_columns_that_it_lacks() {
        let everything = Accounting { counters: (1 << COUNTERS) - 1, ..Accounting::default() };
        assert_eq!(absences(&everything), []);
        let counters = everything.counters & !MASK_DETAILED_CYCLES;
        let sampled = Accounting { counters, is_sampled: true, ..Accounting::default() };
        let columns_of = |accounting: &Accounting| -> Vec<String> {
            table(accounting).columns.iter().map(|column| column.name.clone()).collect()
        };
        let present = columns_of(&sampled);
        let mut missing = columns_of(&everything);
        missing.retain(|column| !present.contains(column));
        let named: Vec<String> =
            absences(&sampled).into_iter().map(|absence| absence.what).collect();
        assert_eq!((named.len(), named), (18, missing));
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        assert_eq!(table(&Accounting::default()).check_display(), Ok(()));
    }
}
