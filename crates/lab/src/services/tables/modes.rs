//! Table `modes`: time and stalls of user mode, kernel, page walks and idle. Users' programs read the
//! columns: names and order must not change.

use record::{Columns, Table, column};

use super::super::class::Class;
use super::super::counters::{
    BRANCH_STALL, CYCLES, DATA_STALL, FETCH_STALL, INSTRUCTIONS, PIPELINE_STALL,
};
use super::super::sample::{ServiceStats, ServicesSample};
use super::{is_kernel, ratio};

/// How a simulated machine counts instructions. A part of the documentation of columns of instructions: only a simulated
/// machine has these columns.
pub(super) const REPETITIONS_COUNT: &str = "Each repetition of a string instruction (rep movs, rep stos, ...) counts as an \
                                            instruction; a processor counts one for all repetitions.";

/// Whether a service belongs to a mode.
type Belongs = fn(&ServiceStats) -> bool;

/// The mode of page walks. Only some benches measure them.
const PAGE_WALK: &str = "page walk";

/// The mode of irqlab's own programs. Only benches that have such programs measure it.
const PROBES: &str = "probes";

/// The mode of time that may be the kernel's or user mode's. Only some benches have such time.
const UNKNOWN: &str = "unknown";

const MODES: [(&str, Belongs); 6] = [
    ("user", |service| service.class == Class::User),
    ("kernel", is_kernel),
    (PAGE_WALK, |service| service.class == Class::PageWalk),
    (UNKNOWN, |service| service.class == Class::Unknown),
    (PROBES, |service| service.class == Class::Probes),
    ("idle", |service| service.class == Class::Idle),
];

/// The figures of a mode, in ticks.
struct ModeTicks<'s> {
    mode: &'static str,
    sample: &'s ServicesSample,
    belongs: Belongs,
    ticks: Option<u64>,
}

impl ModeTicks<'_> {
    fn sum(&self, counter: &str) -> Option<u64> {
        self.sample.sum(counter, self.belongs)
    }

    /// `ticks` as a share of the mode's time.
    fn share(&self, ticks: Option<u64>) -> Option<f64> {
        ratio(ticks, self.ticks)
    }

    /// Ticks without waits for memory and losses in the pipeline. `None` if the bench does not count a part, or the
    /// parts exceed the total.
    fn execution(&self) -> Option<u64> {
        let stalls = self.sum(FETCH_STALL)? + self.sum(DATA_STALL)?;
        self.sum(CYCLES)?.checked_sub(stalls + self.sum(PIPELINE_STALL).unwrap_or(0))
    }
}

fn columns<'a>() -> Columns<'a, ModeTicks<'a>> {
    type Row<'s> = ModeTicks<'s>;
    Columns::all([
        column("mode", "user, kernel, page walk (by the hardware, for any of them), unknown (user or kernel), probes (irqlab's own programs) or idle.")
            .priority(100)
            .key()
            .text(|row: &Row<'_>| row.mode),
        column("time_ratio", "Share of the time of all CPUs.")
            .shown_as("% time", 99)
            .real(|row: &Row<'_>| ratio(row.ticks, Some(row.sample.window_ticks))),
        column("self_total_ns", "Time, sum over the CPUs.")
            .shown_as("time", 90)
            .real(|row: &Row<'_>| row.ticks.map(|ticks| row.sample.ns_of(ticks as f64))),
        column("self_total_cycles", "self_total_ns in cycles.")
            .detail()
            .uint(|row: &Row<'_>| if row.sample.has_cycles() { row.ticks } else { None }),
        column("instruction_count", &format!("Instructions. {REPETITIONS_COUNT}"))
            .shown_as("instructions", 85)
            .uint(|row: &Row<'_>| row.sum(INSTRUCTIONS)),
        column("cpi_ratio", &format!("Cycles per instruction; halted CPUs do not count. {REPETITIONS_COUNT}"))
            .title("CPI")
            .format(record::Format::Factor)
            .priority(80)
            .real(|row: &Row<'_>| ratio(row.sum(CYCLES), row.sum(INSTRUCTIONS))),
        column(
            "execution_ratio",
            "Share of the mode's time without waits for memory and losses in the pipeline.",
        )
        .shown_as("execution", 70)
        .real(|row: &Row<'_>| row.share(row.execution())),
        column("fetch_stall_ratio", "Share of the mode's time that waits for instructions.")
            .shown_as("I stall", 69)
            .real(|row: &Row<'_>| row.share(row.sum(FETCH_STALL))),
        column("data_stall_ratio", "Share of the mode's time that waits for data.")
            .shown_as("D stall", 68)
            .real(|row: &Row<'_>| row.share(row.sum(DATA_STALL))),
        column(
            "pipeline_stall_ratio",
            "Share of the mode's time that is otherwise lost in the pipeline.",
        )
        .shown_as("pipeline", 67)
        .real(|row: &Row<'_>| row.share(row.sum(PIPELINE_STALL))),
        column(
            "branch_stall_ratio",
            "The part of pipeline_stall_ratio that follows mispredicted branches.",
        )
        .detail()
        .real(|row: &Row<'_>| row.share(row.sum(BRANCH_STALL))),
    ])
}

/// One row for each mode.
pub(in super::super) fn modes(sample: &ServicesSample) -> Table {
    let is_measured = |(mode, belongs): &(&str, Belongs)| match *mode {
        PAGE_WALK | PROBES => sample.services.iter().any(belongs),
        UNKNOWN => sample.ticks(*belongs).is_some_and(|ticks| ticks > 0),
        _ => true,
    };
    let rows = MODES.into_iter().filter(is_measured).map(|(mode, belongs)| ModeTicks {
        mode,
        sample,
        belongs,
        ticks: sample.ticks(belongs),
    });
    let doc =
        "User mode, kernel, irqlab's programs and idle; the times add up to the time of all CPUs.";
    columns().table("modes", doc, rows)
}
