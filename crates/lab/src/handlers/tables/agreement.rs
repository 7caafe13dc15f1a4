//! Table `agreement`: our counts beside the kernel's own.

use record::{Column, Kind, Table, Value};

use super::super::experiment::Measured;
use super::super::sample::Agreement;

/// One row a counter line and CPU of the timing pass.
pub fn agreement(measured: &[Measured]) -> Table {
    let columns = vec![
        Column::new("condition", Kind::Text, "Condition."),
        Column::new("cpu", Kind::Uint, "CPU."),
        Column::new(
            "line",
            Kind::Text,
            "Line of /proc/interrupts or /proc/softirqs; `devices`: all IRQ lines.",
        ),
        Column::new("name", Kind::Text, "What the line is of."),
        Column::new("counted", Kind::Uint, "Entries that the probes saw in the window."),
        Column::new(
            "kernel_exact",
            Kind::Uint,
            "The kernel's own counter, read on that CPU with interrupts off as the window opened and closed.",
        ),
        Column::new(
            "kernel_min",
            Kind::Uint,
            "Least by the files: readings just inside the window.",
        ),
        Column::new(
            "kernel_max",
            Kind::Uint,
            "Most by the files: readings just outside the window.",
        ),
        Column::new(
            "edge_max",
            Kind::Uint,
            "By how much the window's edges alone may set `counted` apart.",
        ),
        Column::new(
            "agrees",
            Kind::Bool,
            "Counted is the kernel's, within edge_max or within the files' bounds.",
        ),
    ];
    let doc = "The kernel's counters beside ours, for every line that either of them moved.";
    let mut table = Table::new("agreement", doc, columns);
    for one in measured {
        for line in one.timing.agreement.iter().filter(|line| moved(line)) {
            let row: Vec<Value> = vec![
                one.condition.label().into(),
                u64::from(line.cpu).into(),
                line.line.clone().into(),
                line.name.clone().into(),
                line.counted.into(),
                line.kernel_exact.into(),
                line.kernel_min.into(),
                line.kernel_max.into(),
                line.edge_max.into(),
                agrees(line).into(),
            ];
            table.push(row);
        }
    }
    table
}

fn moved(line: &Agreement) -> bool {
    [line.counted, line.kernel_exact, line.kernel_max].into_iter().flatten().any(|count| count > 0)
}

/// `None` where there is nothing to compare.
fn agrees(line: &Agreement) -> Option<bool> {
    let counted = line.counted?;
    if let Some(exact) = line.kernel_exact {
        return Some(counted.abs_diff(exact) <= line.edge_max);
    }
    Some(line.kernel_min? <= counted && counted <= line.kernel_max?)
}
