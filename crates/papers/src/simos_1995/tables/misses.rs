//! Misses by size of the cache and class: Figures 4.6, 4.7 and 5.3.

use lab::services::counters::INSTRUCTIONS;
use record::{Column, Kind, Table, TableDisplay, Value};

use super::super::runs::{MachineRun, Mode, Role, ratio};
use super::{Sides, model_column, real, text, workload_column};

const CACHES: [&str; 3] = ["L1I", "L1D", "L2"];
const CLASSES: [&str; 7] =
    ["cold", "self", "other", "true sharing", "false sharing", "device", "untracked"];

fn columns() -> Vec<Column> {
    vec![
        workload_column(),
        model_column(),
        Column::new("cpus", Kind::Uint, "CPUs of the machine.").priority(96).key(),
        text("cache", "L1I, L1D or L2.").priority(99).key(),
        Column::new("cache_bytes", Kind::Uint, "Size of this cache.")
            .title("size")
            .priority(98)
            .key(),
        text("mode", "The context that misses: user or kernel.").priority(97).key(),
        text(
            "class",
            "cold: first use of the line; self: the same context (the kernel, the process) had \
             evicted the line; other: another context had evicted it; true sharing: another core \
             had written the bytes; false sharing: another core had written other bytes of the \
             line; device: a device had written it; upgrade: a store invalidated the line in \
             other caches; untracked: not known.",
        )
        .priority(95)
        .key(),
        Column::new("misses", Kind::Uint, "Misses of the class.").priority(60),
        real(
            "misses_per_kinstruction",
            "Misses per 1,000 instructions of the workload, without the idle task's.",
        )
        .title("per 1,000 instr.")
        .priority(94),
    ]
}

/// Instructions outside the idle task.
pub(in super::super) fn busy_instructions(run: &MachineRun) -> Option<u64> {
    run.sum(INSTRUCTIONS, |service| !Mode::Idle.holds(service))
}

/// Misses in the classes per 1,000 instructions outside the idle task.
pub(in super::super) fn per_kinstruction(
    run: &MachineRun,
    cache: &str,
    is_user: bool,
    classes: &[&str],
) -> Option<f64> {
    let misses = run.misses_of(cache, is_user, classes);
    ratio(misses as f64 * 1000.0, busy_instructions(run)? as f64)
}

/// The size of a cache in bytes. `None` unless the run chose sizes.
pub(in super::super) fn size_of(run: &MachineRun, cache: &str) -> Option<u64> {
    match run.role {
        Role::Caches { l2_bytes, .. } if cache == "L2" => Some(l2_bytes),
        Role::Caches { l1_bytes, .. } => Some(l1_bytes),
        Role::Machine | Role::InOrder => None,
    }
}

/// A row for each class of misses of a cache of each size.
pub(super) fn cache_misses(sides: &Sides<'_>) -> Table {
    let doc = "Misses of caches of several sizes, by mode and cause: L1I and L1D (Figure 4.6), L2 \
               (Figure 4.7), and both kinds of machines (Figure 5.3). The first and the second \
               level grow together.";
    let display = TableDisplay {
        title: "Misses by size and class (Figures 4.6, 4.7, 5.3)".to_owned(),
        group_by: vec!["workload".to_owned(), "cache".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("cache_misses", doc, columns()).displayed(display);
    for workload in sides.workloads() {
        for cache in CACHES {
            for is_multi in [false, true] {
                for run in sides.cache_sizes(workload, is_multi) {
                    for is_user in [false, true] {
                        push(&mut table, run, cache, is_user);
                    }
                    if cache == "L2" && is_multi {
                        push_upgrades(&mut table, run, cache);
                    }
                }
            }
        }
    }
    table
}

/// Adds the rows of upgrades: stores to lines that other caches hold, too. Such a store waits, but does not miss.
fn push_upgrades(table: &mut Table, run: &MachineRun, cache: &str) {
    for mode in [Mode::Kernel, Mode::User] {
        if let Some(upgrades) = run.mode_sum("upgrades", mode) {
            table.push(row(run, cache, mode == Mode::User, "upgrade", upgrades));
        }
    }
}

fn push(table: &mut Table, run: &MachineRun, cache: &str, is_user: bool) {
    for class in CLASSES {
        let misses = run.misses_of(cache, is_user, &[class]);
        // A uniprocessor has no sharing misses: leave out such rows.
        if misses == 0 && !["cold", "self", "other"].contains(&class) {
            continue;
        }
        table.push(row(run, cache, is_user, class, misses));
    }
}

fn row(run: &MachineRun, cache: &str, is_user: bool, class: &str, misses: u64) -> Vec<Value> {
    let instructions = busy_instructions(run).map(|count| count as f64);
    let rate = instructions.and_then(|count| ratio(misses as f64 * 1000.0, count));
    vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        u64::from(run.cpus).into(),
        cache.into(),
        size_of(run, cache).into(),
        if is_user { "user" } else { "kernel" }.into(),
        class.into(),
        misses.into(),
        rate.into(),
    ]
}
