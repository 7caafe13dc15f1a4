//! Table `conditions`: one window per condition, the events that the probes missed, and the load and stimulus.

use record::limits::ROWS_MAX;
use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::condition::Condition;
use super::super::sample::{StimulusStats, WindowSample};
use super::super::samples::ConditionSamples;
use super::condition_column;

fn columns() -> Vec<Column> {
    let uint = |name: &str, doc: &str| Column::new(name, Kind::Uint, doc);
    let mut columns = vec![
        condition_column().priority(100),
        Column::new("load", Kind::Text, "Background load: idle or busy; absent in `ambient`.")
            .detail(),
        Column::new("rate", Kind::Text, "Rate of the stimulus: low or high; absent in `ambient`.")
            .detail(),
        Column::new(
            "stimulus",
            Kind::Text,
            "Source of the interrupts: disk, net, timer, ipi or none; absent in `ambient`.",
        )
        .detail(),
        uint(
            "window_ns",
            "Length of the measurement window, mean over the CPUs that stayed online.",
        )
        .format(Format::Seconds)
        .priority(90),
        uint("cpu_count", "Number of measured CPUs.").title("CPUs").priority(40),
        uint("offline_cpu_count", "CPUs that went offline in the window; their window ended then.")
            .detail(),
        uint("event_count", "Entry and exit events that the probes handled.")
            .title("events")
            .priority(80),
        uint("lost_event_count", "Events lost: dropped by the kernel, or without room in a map.")
            .title("lost")
            .priority(95),
        uint(
            "undelivered_event_count",
            "Interrupts and softirqs that the kernel counted without a call of the probes.",
        )
        .title("undelivered")
        .priority(85),
        uint("unmatched_exit_count", "Exits of spans that had started before the window opened.")
            .detail(),
        uint("unmatched_entry_count", "Entries without a matching exit.").detail(),
        uint(
            "observer_cpu_ns",
            "CPU time that irqlab itself used in user space during the window.",
        )
        .title("irqlab CPU")
        .format(Format::Milliseconds)
        .priority(30),
    ];
    for source in ["stimulus", "load"] {
        for (suffix, doc) in [
            ("operation_count", "Operations of"),
            ("bytes", "Bytes moved by"),
            ("error_count", "Failed operations of"),
            ("elapsed_ns", "Running time of"),
        ] {
            let name = format!("{source}_{suffix}");
            columns.push(uint(&name, &format!("{doc} the {source}, start-up included.")).detail());
        }
    }
    let real = |name: &str, doc: &str| Column::new(name, Kind::Real, doc);
    columns.extend([
        real("stimulus_rate_hz", "stimulus_operation_count per second of stimulus_elapsed_ns.")
            .title("stimulus")
            .priority(75),
        real("load_rate_hz", "load_operation_count per second of load_elapsed_ns.")
            .title("load")
            .priority(60),
        real("load_bytes_per_second", "load_bytes per second of load_elapsed_ns.")
            .title("load data")
            .priority(50),
    ]);
    columns
}

/// Table `conditions`: one row per condition.
pub fn conditions(measured: &[ConditionSamples]) -> Table {
    let doc = "One row per condition: its window, the events that the probes missed, and the load and stimulus.";
    let display = TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() };
    let mut table = Table::new("conditions", doc, columns()).displayed(display);
    for condition in measured {
        table.push(row(condition.condition, &condition.timing));
    }
    table
}

fn row(condition: Condition, window: &WindowSample) -> Vec<Value> {
    let (load, rate, stimulus) = match condition {
        Condition::Made { load, rate, stimulus } => (Some(load), Some(rate), Some(stimulus)),
        Condition::Ambient | Condition::Command => (None, None, None),
    };
    let sum = |field: fn(&super::super::sample::CpuWindow) -> Option<u64>| {
        window.windows.iter().map(field).sum::<Option<u64>>()
    };
    let mut row: Vec<Value> = vec![
        condition.label().into(),
        load.map(|load| load.word()).into(),
        rate.map(|rate| rate.word()).into(),
        stimulus.map(|stimulus| stimulus.word()).into(),
        window.length_ns().into(),
        (window.windows.len() as u64).into(),
        (window.windows.iter().filter(|cpu| cpu.went_offline).count() as u64).into(),
        window.events().into(),
        window.lost().into(),
        window.undelivered().into(),
        sum(|cpu| cpu.unmatched_exits).into(),
        sum(|cpu| cpu.abandoned).into(),
        window.user_cpu_ns.into(),
    ];
    row.extend(statistics(window.stimulus_work));
    row.extend(statistics(window.load_work));
    row.extend([
        per_second(window.stimulus_work, |work| work.operations),
        per_second(window.load_work, |work| work.operations),
        per_second(window.load_work, |work| work.bytes),
    ]);
    row
}

/// An amount per second of the running time.
fn per_second(work: Option<StimulusStats>, amount: fn(&StimulusStats) -> u64) -> Value {
    work.filter(|work| work.elapsed_ns > 0)
        .map(|work| amount(&work) as f64 * 1e9 / work.elapsed_ns as f64)
        .into()
}

fn statistics(work: Option<StimulusStats>) -> [Value; 4] {
    [
        work.map(|work| work.operations).into(),
        work.map(|work| work.bytes).into(),
        work.map(|work| work.errors).into(),
        work.map(|work| work.elapsed_ns).into(),
    ]
}
