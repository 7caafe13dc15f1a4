//! Table `contexts`: what each context of a simulated machine executed.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::cpu_warnings::CpuWarnings;
use record::{Columns, RowFilter, Run, SCHEMA, Table, TableDisplay, Timestamp, column};
use serde_json::{Map, Value as Json, json};
use sim::counters::{COUNTERS, CYCLES, INSTRUCTIONS, TIME, name};
use sim::qemu::Qemu;
use sim::watch::{KernelFiles, Watch};
use sim::{Accounting, ContextUse, CpuUse, Machine};

use super::by_region::by_region;
use super::sampled;

/// The run of a watched machine.
pub fn run(
    started: Timestamp,
    qemu: &Qemu,
    machine: &Machine,
    (kernel_files, watch): (&KernelFiles, &Watch),
    account: &Accounting,
) -> Run {
    let absent = kernel_files.absent(watch, "contexts");
    let mut of_cpus = CpuWarnings::default();
    for (number, region) in (1..).zip(&account.regions) {
        let label =
            if account.regions.len() > 1 { format!("region {number}") } else { String::new() };
        let hotplug = region.hotplug_warnings(watch.clock_hz(machine.timing));
        hotplug.into_iter().for_each(|warning| of_cpus.add(&label, warning));
    }
    let mut observer = Map::new();
    observer.insert("instructions".into(), json!(account.instructions));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "boot".to_owned(),
        bench: "sim".to_owned(),
        started_utc: started.to_string(),
        complete: (account.ended_by_guest || account.stopped)
            && account.broken.is_empty()
            && !account.lacks_cpus(),
        host: Map::new(),
        settings: settings(qemu, machine),
        observer,
        warnings: [of_cpus.lines(), account.notices.clone(), account.broken.clone()].concat(),
        absent,
        tables: sampled::table(account).into_iter().chain([table(account)]).collect(),
    }
}

fn settings(qemu: &Qemu, machine: &Machine) -> Map<String, Json> {
    let machine = serde_json::to_value(machine).unwrap_or_default();
    let pairs = [
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("qemu", json!(qemu.version_text)),
        ("machine", machine),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Instructions, cycles and misses of one CPU, or of all, in a context.
struct Row<'a> {
    /// From 1.
    region: usize,
    cpu: String,
    /// Instructions of the CPUs in all contexts.
    total: u64,
    used: &'a ContextUse,
}

fn columns(account: &Accounting) -> Columns<'_, Row<'_>> {
    let counters = more_counters(account).filter_map(|counter| {
        let name = name(counter)?;
        let self_counts = column(
            &format!("self_{name}"),
            &format!("{name} of the context itself, by the model."),
        );
        let self_counts =
            if name == "cycles" { self_counts.priority(85) } else { self_counts.detail() };
        let doc = format!("{name} from entry to exit, by the model.");
        let inclusive = column(&format!("inclusive_{name}"), &doc).detail();
        Some(Columns::all([
            self_counts.uint(move |row: &Row<'_>| row.used.self_counts[counter]),
            inclusive.uint(move |row: &Row<'_>| row.used.inclusive[counter]),
        ]))
    });
    Columns::all([
        column("region", "Region of interest, from 1.").uint(|row: &Row<'_>| row.region),
        column("cpu", "CPU number, or `all` for the sum over the CPUs.")
            .text(|row: &Row<'_>| row.cpu.clone()),
        column("context", "What the CPU executed for, with the name of the task.")
            .priority(100)
            .text(|row: &Row<'_>| account.name_of(row.used.context)),
        column("self_instructions", "Instructions of the context itself.")
            .priority(99)
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
             and ended in the region.",
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

fn table(account: &Accounting) -> Table {
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
        account.regions.iter().map(|region| sums(&region.cpus)).collect();
    let mut rows = Vec::new();
    for (at, region) in account.regions.iter().enumerate() {
        let mut push = |cpu: &str, total, used| {
            rows.push(Row { region: at + 1, cpu: cpu.to_owned(), total, used });
        };
        let total = region.cpus.iter().map(|cpu| cpu.used[INSTRUCTIONS]).sum();
        sums[at].values().for_each(|used| push("all", total, used));
        for cpu in &region.cpus {
            let number = cpu.cpu.to_string();
            cpu.contexts.iter().for_each(|used| push(&number, cpu.used[INSTRUCTIONS], used));
        }
    }
    columns(account).table("contexts", doc, rows).displayed(display)
}

/// The uses of each context, summed over the CPUs.
fn sums(cpus: &[CpuUse]) -> BTreeMap<KernelContext, ContextUse> {
    let mut sums: BTreeMap<KernelContext, ContextUse> = BTreeMap::new();
    for used in cpus.iter().flat_map(|cpu| &cpu.contexts) {
        sums.entry(used.context).and_modify(|sum| add(sum, used)).or_insert(*used);
    }
    sums
}

/// Counters that only a model has. Without a model, a cycle is an instruction.
fn more_counters(account: &Accounting) -> impl Iterator<Item = usize> {
    // A sample has cycles with intervals, in a table of its own.
    let estimated = |counter: usize| account.is_sampled && counter == CYCLES;
    let wanted =
        move |counter: usize| ![TIME, INSTRUCTIONS].contains(&counter) && !estimated(counter);
    (0..COUNTERS)
        .filter(move |counter| account.has_model() && account.counts(*counter) && wanted(*counter))
}

fn add(sum: &mut ContextUse, used: &ContextUse) {
    sum.self_counts.iter_mut().zip(used.self_counts).for_each(|(sum, count)| *sum += count);
    sum.inclusive.iter_mut().zip(used.inclusive).for_each(|(sum, count)| *sum += count);
    sum.entries += used.entries;
    sum.completed += used.completed;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        assert_eq!(table(&Accounting::default()).check_display(), Ok(()));
    }
}
