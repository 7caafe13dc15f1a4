//! Table `conditions`: the timing window of each condition, the events that the probes missed, and the load and
//! stimulus. Users' programs read the columns: names and order must not change.

use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};

use super::super::condition::{Condition, Load, Rate, Stimulus};
use super::super::sample::{CpuWindow, StimulusStats};
use super::super::samples::ConditionSamples;
use super::condition_column;

/// Load, rate and stimulus of a condition that irqlab made. `None` for other conditions.
fn factors(row: &ConditionSamples) -> Option<(Load, Rate, Stimulus)> {
    match row.condition {
        Condition::Made { load, rate, stimulus } => Some((load, rate, stimulus)),
        Condition::Ambient | Condition::Command => None,
    }
}

/// The sum of `field` over the CPUs. `None` if a CPU lacks it.
fn sum(row: &ConditionSamples, field: fn(&CpuWindow) -> Option<u64>) -> Option<u64> {
    row.timing.windows.iter().map(field).sum()
}

/// The columns of the operations of a load or a stimulus.
fn work_columns<'a>(source: &str) -> Columns<'a, Option<StimulusStats>> {
    let uint = |suffix: &str, doc: &str, value: fn(&StimulusStats) -> u64| {
        column(&format!("{source}_{suffix}"), &format!("{doc} the {source}, start-up included."))
            .detail()
            .uint(value)
    };
    Columns::all([
        uint("operation_count", "Operations of", |work| work.operations),
        uint("bytes", "Bytes moved by", |work| work.bytes),
        uint("error_count", "Failed operations of", |work| work.errors),
        uint("elapsed_ns", "Running time of", |work| work.elapsed_ns),
    ])
    .optional()
}

fn columns<'a>() -> Columns<'a, ConditionSamples> {
    Columns::all([
        condition_column(100).of(|row: &ConditionSamples| row.condition.label()),
        column("load", "Background load: idle or busy; absent in `ambient`.")
            .detail()
            .text(|row: &ConditionSamples| factors(row).map(|(load, ..)| load.word())),
        column("rate", "Rate of the stimulus: low or high; absent in `ambient`.")
            .detail()
            .text(|row: &ConditionSamples| factors(row).map(|(_, rate, _)| rate.word())),
        column(
            "stimulus",
            "Source of the interrupts: disk, net, timer, ipi or none; absent in `ambient`.",
        )
        .detail()
        .text(|row: &ConditionSamples| factors(row).map(|(.., stimulus)| stimulus.word())),
        column(
            "window_ns",
            "Length of the measurement window, mean over the CPUs that stayed online.",
        )
        .format(Format::Seconds)
        .priority(90)
        .uint(|row: &ConditionSamples| row.timing.length_ns()),
        column(
            "ended_by",
            "What ended the window: `time` (-d; tables of noise and wakeup call it `length`), `command`, `enough` (--until), or \
             `stop`: a request to stop, or a limit.",
        )
        .shown_as("ended by", 35)
        .text(|row: &ConditionSamples| ended_by(row)),
        column("cpu_count", "Number of measured CPUs.")
            .shown_as("CPUs", 40)
            .uint(|row: &ConditionSamples| row.timing.windows.len()),
        column(
            "offline_cpu_count",
            "CPUs that went offline in the window; their window ended then.",
        )
        .detail()
        .uint(|row: &ConditionSamples| {
            row.timing.windows.iter().filter(|cpu| cpu.went_offline).count()
        }),
        column("event_count", "Entry and exit events that the probes handled.")
            .shown_as("events", 80)
            .uint(|row: &ConditionSamples| row.timing.events()),
        column("lost_event_count", "Events lost: dropped by the kernel, or without room in a map.")
            .shown_as("lost", 95)
            .uint(|row: &ConditionSamples| row.timing.lost()),
        column(
            "undelivered_event_count",
            "Interrupts and softirqs that the kernel counted without a call of the probes. Absent if the kernel's exact \
             counts are not known (table agreement).",
        )
        .shown_as("undelivered", 85)
        .uint(|row: &ConditionSamples| row.timing.undelivered()),
        column("unmatched_exit_count", "Exits of spans that had started before the window opened.")
            .detail()
            .uint(|row: &ConditionSamples| sum(row, |cpu| cpu.unmatched_exits)),
        column("unmatched_entry_count", "Entries without a matching exit.")
            .detail()
            .uint(|row: &ConditionSamples| sum(row, |cpu| cpu.abandoned)),
        column(
            "observer_cpu_ns",
            "CPU time that irqlab itself used in user space during the window.",
        )
        .title("irqlab CPU")
        .format(Format::Milliseconds)
        .priority(30)
        .uint(|row: &ConditionSamples| row.timing.user_cpu_ns),
        work_columns("stimulus").of_ref(|row: &ConditionSamples| &row.timing.stimulus_work),
        work_columns("load").of_ref(|row: &ConditionSamples| &row.timing.load_work),
        column("stimulus_rate_hz", "stimulus_operation_count per second of stimulus_elapsed_ns.")
            .shown_as("stimulus", 75)
            .real(|row: &ConditionSamples| {
                per_second(row.timing.stimulus_work, |work| work.operations)
            }),
        column("load_rate_hz", "load_operation_count per second of load_elapsed_ns.")
            .shown_as("load", 60)
            .real(|row: &ConditionSamples| {
                per_second(row.timing.load_work, |work| work.operations)
            }),
        column("load_bytes_per_second", "load_bytes per second of load_elapsed_ns.")
            .shown_as("load data", 50)
            .real(|row: &ConditionSamples| per_second(row.timing.load_work, |work| work.bytes)),
    ])
}

/// Table `conditions`: one row per condition.
pub fn conditions(measured: &[ConditionSamples]) -> Table {
    let doc = "One row per condition: its window, the events that the probes missed, and the load and stimulus.";
    let display = TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() };
    columns().table("conditions", doc, measured).displayed(display)
}

/// The cell of the column `ended_by`.
fn ended_by(row: &ConditionSamples) -> &'static str {
    match row.condition {
        _ if row.timing.had_enough => "enough",
        _ if row.timing.interrupted => "stop",
        Condition::Command => "command",
        Condition::Ambient | Condition::Made { .. } => "time",
    }
}

/// An amount per second of the running time. `None` without a load or stimulus, or if its running time is 0.
fn per_second(work: Option<StimulusStats>, amount: fn(&StimulusStats) -> u64) -> Option<f64> {
    let work = work.filter(|work| work.elapsed_ns > 0)?;
    Some(amount(&work) as f64 * 1e9 / work.elapsed_ns as f64)
}
