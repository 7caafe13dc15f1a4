//! Table `contexts`: what each context of a simulated machine executed.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::cpu_warnings::CpuWarnings;
use record::{
    Absence, Column, Kind, RowFilter, Run, SCHEMA, Table, TableDisplay, Timestamp, Value,
};
use serde_json::{Map, Value as Json, json};
use sim::counters::{COUNTERS, CYCLES, INSTRUCTIONS, TIME, name};
use sim::qemu::Qemu;
use sim::watch::{KernelFiles, Watch};
use sim::{Accounting, ContextUse, Machine};

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
    let absent = kernel_files.absent(watch).into_iter().map(|(what, reason)| Absence {
        table: "contexts".to_owned(),
        what,
        reason,
        remedy: None,
    });
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
        absent: absent.collect(),
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

fn table(account: &Accounting) -> Table {
    let mut columns = vec![
        Column::new("region", Kind::Uint, "Region of interest, from 1."),
        Column::new("cpu", Kind::Text, "CPU number, or `all` for the sum over the CPUs."),
        Column::new("context", Kind::Text, "What the CPU executed for, with the name of the task.")
            .priority(100),
        Column::new("self_instructions", Kind::Uint, "Instructions of the context itself.")
            .priority(99),
        Column::new(
            "self_instructions_ratio",
            Kind::Real,
            "self_instructions over all instructions of the row's CPUs.",
        )
        .title("share")
        .priority(80),
        Column::new(
            "inclusive_instructions",
            Kind::Uint,
            "Instructions from entry to exit, without other tasks, of the spans that started and ended \
             in the region.",
        )
        .priority(60),
        Column::new("entry_count", Kind::Uint, "How often the context was entered.")
            .title("entries")
            .priority(90),
        Column::new("span_count", Kind::Uint, "Spans of inclusive_instructions.")
            .title("spans")
            .priority(50),
    ];
    for name in more_counters(account).filter_map(name) {
        let doc = format!("{name} of the context itself, by the model.");
        let column = Column::new(&format!("self_{name}"), Kind::Uint, &doc);
        columns.push(if name == "cycles" { column.priority(85) } else { column.detail() });
        let doc = format!("{name} from entry to exit, by the model.");
        columns.push(Column::new(&format!("inclusive_{name}"), Kind::Uint, &doc).detail());
    }
    let doc =
        "Instructions by context; the self instructions of a CPU add up to all that it executed.";
    let display = TableDisplay {
        headline: "largest: {context}, {self_instructions_ratio} of the instructions, \
                   {entry_count} entries"
            .to_owned(),
        sort_by: Some("self_instructions".to_owned()),
        filter: Some(RowFilter::sums_over_cpus()),
        ..by_region()
    };
    let mut table = Table::new("contexts", doc, columns).displayed(display);
    for (at, region) in account.regions.iter().enumerate() {
        let mut sums: BTreeMap<KernelContext, ContextUse> = BTreeMap::new();
        for used in region.cpus.iter().flat_map(|cpu| &cpu.contexts) {
            sums.entry(used.context).and_modify(|sum| add(sum, used)).or_insert(*used);
        }
        let total = region.cpus.iter().map(|cpu| cpu.used[INSTRUCTIONS]).sum();
        let all = sums.values();
        let mut push = |cpu: &str, total: u64, used: &ContextUse| {
            table.push(row(at as u64 + 1, cpu, total, used, account));
        };
        all.for_each(|used| push("all", total, used));
        for cpu in &region.cpus {
            let number = cpu.cpu.to_string();
            cpu.contexts.iter().for_each(|used| push(&number, cpu.used[INSTRUCTIONS], used));
        }
    }
    table
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

fn row(region: u64, cpu: &str, total: u64, used: &ContextUse, account: &Accounting) -> Vec<Value> {
    let share = (total > 0).then(|| used.self_counts[INSTRUCTIONS] as f64 / total as f64);
    let mut row: Vec<Value> = vec![
        region.into(),
        cpu.into(),
        account.name_of(used.context).into(),
        used.self_counts[INSTRUCTIONS].into(),
        share.into(),
        used.inclusive[INSTRUCTIONS].into(),
        used.entries.into(),
        used.completed.into(),
    ];
    for counter in more_counters(account) {
        row.extend([used.self_counts[counter].into(), used.inclusive[counter].into()]);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        assert_eq!(table(&Accounting::default()).check_display(), Ok(()));
    }
}
