//! Table `modes`: user mode, kernel and idle, with what the processor waited for.

use record::{Column, Kind, Table, TableDisplay, Value};

use super::super::class::Class;
use super::super::counters::{CYCLES, DATA_STALL, FETCH_STALL, INSTRUCTIONS, PIPELINE_STALL};
use super::super::sample::{ServiceStats, ServicesSample};
use super::{is_kernel, ratio};

/// Whether a service belongs to a mode.
type Belongs = fn(&ServiceStats) -> bool;

/// The mode of page walks, which not every bench counts.
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
        Column::new("mode", Kind::Text, "user, kernel, page walk (by the hardware, for any of them) or idle.").priority(100).key(),
        real("time_ratio", "Share of the time of all CPUs.").title("% time").priority(99),
        real("self_total_ns", "Time, sum over the CPUs.").title("time").priority(90),
        uint("self_total_cycles", "The same in cycles."),
        uint("instruction_count", "Instructions.").title("instructions").priority(85),
        real("cpi_ratio", "Cycles per instruction, without the time for which CPUs are halted.")
            .title("CPI")
            .format(record::Format::Factor)
            .priority(80),
        real("execution_ratio", "Share of the mode's time in which the processor waited neither for memory nor in its pipeline.")
            .title("execution")
            .priority(70),
        real("fetch_stall_ratio", "Share in which it waited for instructions.")
            .title("I stall")
            .priority(69),
        real("data_stall_ratio", "Share in which it waited for data.").title("D stall").priority(68),
        real("pipeline_stall_ratio", "Share lost in the pipeline otherwise.")
            .title("pipeline")
            .priority(67),
    ]
}

/// One row for each mode.
pub(in super::super) fn modes(sample: &ServicesSample) -> Table {
    let doc = "User mode, kernel and idle; the times add up to that of all CPUs.";
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
            ticks.filter(|_| sample.has_cycles()).into(),
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
