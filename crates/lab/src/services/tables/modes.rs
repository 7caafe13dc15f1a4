//! Table `modes`: time and stalls of user mode, kernel and idle.

use record::{Column, Kind, Table, TableDisplay, Value};

use super::super::class::Class;
use super::super::counters::{CYCLES, DATA_STALL, FETCH_STALL, INSTRUCTIONS, PIPELINE_STALL};
use super::super::sample::{ServiceStats, ServicesSample};
use super::{is_kernel, ratio};

/// Whether a service belongs to a mode.
type Belongs = fn(&ServiceStats) -> bool;

/// The mode of page walks. Only some benches measure them.
const PAGE_WALK: &str = "page walk";

const MODES: [(&str, Belongs); 4] = [
    ("user", |service| service.class == Class::User),
    ("kernel", is_kernel),
    (PAGE_WALK, |service| service.class == Class::PageWalk),
    ("idle", |service| service.class == Class::Idle),
];

fn columns() -> Vec<Column> {
    let real = |name: &str, doc: &str| Column::new(name, Kind::Real, doc);
    let uint = |name: &str, doc: &str| Column::new(name, Kind::Uint, doc).detail();
    vec![
        Column::new(
            "mode",
            Kind::Text,
            "user, kernel, page walk (by the hardware, for any of them) or idle.",
        )
        .priority(100)
        .key(),
        real("time_ratio", "Share of the time of all CPUs.").title("% time").priority(99),
        real("self_total_ns", "Time, sum over the CPUs.").title("time").priority(90),
        uint("self_total_cycles", "self_total_ns in cycles."),
        uint("instruction_count", "Instructions.").title("instructions").priority(85),
        real("cpi_ratio", "Cycles per instruction; halted CPUs do not count.")
            .title("CPI")
            .format(record::Format::Factor)
            .priority(80),
        real(
            "execution_ratio",
            "Share of the mode's time without waits for memory and losses in the pipeline.",
        )
        .title("execution")
        .priority(70),
        real("fetch_stall_ratio", "Share of the mode's time that waits for instructions.")
            .title("I stall")
            .priority(69),
        real("data_stall_ratio", "Share of the mode's time that waits for data.")
            .title("D stall")
            .priority(68),
        real(
            "pipeline_stall_ratio",
            "Share of the mode's time that is otherwise lost in the pipeline.",
        )
        .title("pipeline")
        .priority(67),
    ]
}

/// One row for each mode.
pub(in super::super) fn modes(sample: &ServicesSample) -> Table {
    let doc = "User mode, kernel and idle; the times add up to the time of all CPUs.";
    let mut table = Table::new("modes", doc, columns()).displayed(TableDisplay::default());
    for (mode, is_in) in MODES {
        if mode == PAGE_WALK && !sample.services.iter().any(is_in) {
            continue;
        }
        let ticks = sample.ticks(is_in);
        let sum = |name| sample.sum(name, is_in);
        let stalls = [FETCH_STALL, DATA_STALL, PIPELINE_STALL].map(sum);
        let share = |part| ratio(part, ticks);
        let execution = || {
            let stalls = stalls[0]? + stalls[1]? + stalls[2].unwrap_or(0);
            sum(CYCLES)?.checked_sub(stalls)
        };
        let row: Vec<Value> = vec![
            mode.into(),
            ratio(ticks, Some(sample.window_ticks)).into(),
            ticks.map(|ticks| sample.ns_of(ticks as f64)).into(),
            if sample.has_cycles() { ticks.into() } else { Value::Absent },
            sum(INSTRUCTIONS).into(),
            ratio(sum(CYCLES), sum(INSTRUCTIONS)).into(),
            share(execution()).into(),
            share(stalls[0]).into(),
            share(stalls[1]).into(),
            share(stalls[2]).into(),
        ];
        table.push(row);
    }
    table
}
