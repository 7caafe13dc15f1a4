//! `irqlab sim bare footprint --sweep`: lines that the methods count, compared with lines displaced.

use record::{Column, Kind, Run, Table, Timestamp, Value};
use sim::Cache;
use sim::bare::{FootprintSettings, Point, Truth, TruthSettings};
use sim::qemu::Qemu;

use super::bare_run::empty_run;

/// Points of the curve.
const CURVE_POINTS: u64 = 16;
/// Numbers of lines in addition to fractions of the cache.
const FEW: [u64; 5] = [0, 1, 4, 16, 64];
/// Eighths of the cache.
const EIGHTHS: [u64; 6] = [1, 2, 4, 5, 6, 8];

/// Measures from no lines to all lines of the cache; `None` if `stop` returned true.
pub fn run(
    cache: &Cache,
    qemu: &Qemu,
    started: Timestamp,
    settings: FootprintSettings,
    stop: &dyn Fn() -> bool,
) -> anyhow::Result<Option<Run>> {
    let lines = settings.geometry().lines();
    let mut run = empty_run(started, &qemu.version_text, &settings);
    let truth_settings = TruthSettings { of: settings, curve_points: CURVE_POINTS };
    let Some(truth) = Truth::new(cache, qemu, truth_settings, stop)? else { return Ok(None) };
    let mut numbers: Vec<u64> = FEW.into_iter().filter(|number| *number <= lines).collect();
    numbers.extend(EIGHTHS.map(|part| lines * part / 8));
    numbers.sort_unstable();
    numbers.dedup();
    let mut table = table();
    for lines in numbers {
        let Some(point) = truth.point(lines, stop)? else { return Ok(None) };
        table.push(row(&point));
    }
    run.tables = vec![table, curve(&truth)];
    Ok(Some(run))
}

fn table() -> Table {
    let truth = "Exact number of displaced lines of the program, including those displaced by the \
                 handler's own stack, table and code";
    let found = "Misses in user mode, treatment minus control";
    let columns = vec![
        Column::new("handler_lines", Kind::Uint, "Lines that the handler touches."),
        Column::new("displaced_basic_lines", Kind::Uint, &format!("{truth} (basic method).")),
        Column::new("counted_basic_lines", Kind::Int, &format!("{found}, basic method.")),
        Column::new(
            "timed_lines",
            Kind::Real,
            "Lines by the extra time of the last pass (basic method); absent below the detection limit, \
             and where the pass took longer than with all lines displaced.",
        ),
        Column::new(
            "timed_error_ratio",
            Kind::Real,
            "timed_lines over displaced_basic_lines, minus 1.",
        ),
        Column::new(
            "detection_limit_lines",
            Kind::Real,
            "Detection limit by time: fewer lines are not distinguishable from none.",
        ),
        Column::new("displaced_refined_lines", Kind::Uint, &format!("{truth} (refined method).")),
        Column::new("counted_refined_lines", Kind::Int, &format!("{found}, refined method.")),
        Column::new(
            "refined_is_accurate",
            Kind::Bool,
            "Whether counted_refined_lines is within 2 lines or 1 % of the exact number.",
        ),
        Column::new(
            "basic_is_accurate",
            Kind::Bool,
            "Whether counted_basic_lines is within 2 lines or 1 % of the exact number.",
        ),
        Column::new(
            "timed_is_accurate",
            Kind::Bool,
            "Whether timed_lines is within 10 %, or absent where fewer lines are below the limit.",
        ),
    ];
    Table::new("bare_accuracy", "Lines counted by each method, and lines displaced.", columns)
}

fn row(point: &Point) -> Vec<Value> {
    vec![
        point.handler_lines.into(),
        point.basic.truth.into(),
        Value::Int(point.basic.found),
        point.timed.into(),
        point.timed_error_ratio().into(),
        point.limit.into(),
        point.refined.truth.into(),
        Value::Int(point.refined.found),
        point.refined.holds().into(),
        point.basic.holds().into(),
        point.time_holds().into(),
    ]
}

fn curve(truth: &Truth<'_>) -> Table {
    let columns = vec![
        Column::new("displaced_lines", Kind::Uint, "Lines that the program itself displaced."),
        Column::new("excess_ns", Kind::Real, "Extra time of the last pass over all lines, median."),
        Column::new(
            "excess_ci95_ns",
            Kind::Real,
            "Half width of the 95 % confidence interval of excess_ns.",
        ),
    ];
    let mut table =
        Table::new("bare_calibration", "Calibration: the cost of displaced lines.", columns);
    for point in truth.curve().points() {
        let excess = [point.excess_cycles, point.half_width_cycles()].map(Value::real);
        table.push([&[point.lines.into()][..], &excess].concat());
    }
    table
}
