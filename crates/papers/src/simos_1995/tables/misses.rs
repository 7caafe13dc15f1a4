//! Table `cache_misses`: misses by size of the cache and class (Figures 4.6, 4.7 and 5.3). Users' programs read the
//! columns: names and order must not change.

use lab::services::counters::INSTRUCTIONS;
use record::{Columns, Table, TableDisplay, column};

use super::super::runs::{MachineRun, Mode, Role, ratio};
use super::{Sides, display_by_workload, run_columns};

const CACHES: [&str; 3] = ["L1I", "L1D", "L2"];
const CLASSES: [&str; 7] =
    ["cold", "self", "other", "true sharing", "false sharing", "device", "untracked"];

/// Misses of a class in a cache, or upgrades.
struct Misses<'s> {
    run: &'s MachineRun,
    cache: &'static str,
    is_user: bool,
    class: &'static str,
    count: u64,
}

fn columns<'s>() -> Columns<'s, Misses<'s>> {
    run_columns().of_ref(|misses: &Misses<'_>| misses.run).and([
        column("cpus", "CPUs of the machine.")
            .priority(96)
            .key()
            .uint(|misses: &Misses<'_>| misses.run.cpus),
        column("cache", "L1I, L1D or L2.")
            .priority(99)
            .key()
            .text(|misses: &Misses<'_>| misses.cache),
        column("cache_bytes", "Size of this cache.")
            .title("size")
            .priority(98)
            .key()
            .uint(|misses: &Misses<'_>| size_of(misses.run, misses.cache)),
        column("mode", "The context that misses: user or kernel.")
            .priority(97)
            .key()
            .text(|misses: &Misses<'_>| if misses.is_user { "user" } else { "kernel" }),
        column(
            "class",
            "cold: first use of the line; self: the same context (the kernel, the process) had \
             evicted the line; other: another context had evicted it; true sharing: another core \
             had written the bytes; false sharing: another core had written other bytes of the \
             line; device: a device had written it; upgrade: a store invalidated the line in \
             other caches; untracked: not known.",
        )
        .priority(95)
        .key()
        .text(|misses: &Misses<'_>| misses.class),
        column("misses", "Misses of the class.")
            .priority(60)
            .uint(|misses: &Misses<'_>| misses.count),
        column(
            "misses_per_kinstruction",
            "Misses per 1,000 instructions of the workload, without the idle task's.",
        )
        .title("per 1,000 instr.")
        .priority(94)
        .real(|misses: &Misses<'_>| {
            ratio(misses.count as f64 * 1000.0, busy_instructions(misses.run)? as f64)
        }),
    ])
}

/// Instructions outside the idle task. `None` if the model does not count instructions.
fn busy_instructions(run: &MachineRun) -> Option<u64> {
    run.sum(INSTRUCTIONS, |service| !Mode::Idle.includes(service))
}

/// Misses in the classes per 1,000 instructions outside the idle task.
pub(in super::super) fn per_kinstruction(
    run: &MachineRun,
    cache: &str,
    is_user: bool,
    classes: &[&str],
) -> Option<f64> {
    let misses = run.class_misses(cache, is_user, classes);
    ratio(misses as f64 * 1000.0, busy_instructions(run)? as f64)
}

/// The size of a cache in bytes. `None` unless the run has the role [`Role::Caches`].
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
    let mut rows = Vec::new();
    for workload in sides.workloads() {
        for cache in CACHES {
            for is_multi in [false, true] {
                for run in sides.cache_sizes(workload, is_multi) {
                    rows.extend(
                        [false, true].into_iter().flat_map(|is_user| classes(run, cache, is_user)),
                    );
                    if cache == "L2" && is_multi {
                        rows.extend(upgrades(run, cache));
                    }
                }
            }
        }
    }
    let display = TableDisplay {
        group_by: vec!["workload".to_owned(), "cache".to_owned()],
        ..display_by_workload("Misses by size and class (Figures 4.6, 4.7, 5.3)")
    };
    columns().table("cache_misses", doc, rows).displayed(display)
}

/// Upgrades: stores to lines that other caches hold, too. Such a store waits, but does not miss.
fn upgrades<'s>(
    run: &'s MachineRun,
    cache: &'static str,
) -> impl Iterator<Item = Misses<'s>> + use<'s> {
    [Mode::Kernel, Mode::User].into_iter().filter_map(move |mode| {
        let (count, is_user) = (run.mode_sum("upgrades", mode)?, mode == Mode::User);
        Some(Misses { run, cache, is_user, class: "upgrade", count })
    })
}

/// A row for each class of misses of a cache in one mode.
fn classes<'s>(
    run: &'s MachineRun,
    cache: &'static str,
    is_user: bool,
) -> impl Iterator<Item = Misses<'s>> + use<'s> {
    let class_row = move |class| {
        let count = run.class_misses(cache, is_user, &[class]);
        Misses { run, cache, is_user, class, count }
    };
    // Leaves out classes without misses, such as sharing misses on a uniprocessor.
    let is_shown =
        |misses: &Misses<'_>| misses.count > 0 || ["cold", "self", "other"].contains(&misses.class);
    CLASSES.into_iter().map(class_row).filter(is_shown)
}
