//! Table `conditions`: what each window was, and what could not be attributed in it.

use record::{Column, Kind, Table, Value};

use super::super::condition::Condition;
use super::super::experiment::Measured;
use super::super::sample::{WindowSample, Work};

fn columns() -> Vec<Column> {
    let mut columns = vec![
        Column::new("condition", Kind::Text, "Condition."),
        Column::new("load", Kind::Text, "idle or busy; absent as found."),
        Column::new("rate", Kind::Text, "low or high; absent as found."),
        Column::new("source", Kind::Text, "disk, net, timer, ipi or none; absent as found."),
        Column::new("window_ns", Kind::Uint, "How long the window was open, mean over the CPUs."),
        Column::new("cpus", Kind::Uint, "Measured CPUs."),
        Column::new("event_count", Kind::Uint, "Events that the probes handled."),
        Column::new(
            "lost_count",
            Kind::Uint,
            "Events lost: dropped by the kernel or without a place.",
        ),
        Column::new(
            "undelivered_count",
            Kind::Uint,
            "Counted by the kernel, not handed to the probes.",
        ),
        Column::new("unmatched_exit_count", Kind::Uint, "Spans begun before the window opened."),
        Column::new("abandoned_count", Kind::Uint, "Spans whose exit was not seen."),
        Column::new("user_cpu_ns", Kind::Uint, "CPU time of the measuring process meanwhile."),
    ];
    for (prefix, what) in [("stimulus", "the stimulus"), ("load", "the load")] {
        for (suffix, doc) in [
            ("operations", "Operations of"),
            ("bytes", "Bytes moved by"),
            ("errors", "Failed operations of"),
            ("elapsed_ns", "Running time of"),
        ] {
            let name = format!("{prefix}_{suffix}");
            columns.push(Column::new(
                &name,
                Kind::Uint,
                &format!("{doc} {what}, its start-up included."),
            ));
        }
    }
    columns
}

/// One row a condition.
pub fn conditions(measured: &[Measured]) -> Table {
    let mut table = Table::new("conditions", "One row for each condition.", columns());
    for one in measured {
        table.push(row(one.condition, &one.timing));
    }
    table
}

fn row(condition: Condition, window: &WindowSample) -> Vec<Value> {
    let (load, rate, source) = match condition {
        Condition::Made { load, rate, source } => (Some(load), Some(rate), Some(source)),
        Condition::AsFound | Condition::Command => (None, None, None),
    };
    let sum = |field: fn(&super::super::sample::CpuWindow) -> Option<u64>| {
        window.windows.iter().map(field).sum::<Option<u64>>()
    };
    let mut row: Vec<Value> = vec![
        condition.label().into(),
        load.map(|load| load.word()).into(),
        rate.map(|rate| rate.word()).into(),
        source.map(|source| source.word()).into(),
        window.length_ns().into(),
        (window.windows.len() as u64).into(),
        window.events().into(),
        window.lost().into(),
        window.undelivered().into(),
        sum(|cpu| cpu.unmatched_exits).into(),
        sum(|cpu| cpu.abandoned).into(),
        window.user_cpu_ns.into(),
    ];
    row.extend(work(window.stimulus_work));
    row.extend(work(window.load_work));
    row
}

fn work(work: Option<Work>) -> [Value; 4] {
    [
        work.map(|work| work.operations).into(),
        work.map(|work| work.bytes).into(),
        work.map(|work| work.errors).into(),
        work.map(|work| work.elapsed_ns).into(),
    ]
}
