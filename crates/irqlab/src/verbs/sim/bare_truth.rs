//! `irqlab sim bare footprint --sweep`: lines that the methods count, compared with lines displaced.

use lab::footprint::curve::CurvePoint;
use record::{Columns, IntervalColumns, Run, Table, Timestamp, column};
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
    let mut points = Vec::new();
    for lines in numbers {
        let Some(point) = truth.point(lines, stop)? else { return Ok(None) };
        points.push(point);
    }
    let doc = "Lines counted by each method, and lines displaced.";
    run.tables = vec![columns().table("bare_accuracy", doc, points), curve(&truth)];
    Ok(Some(run))
}

fn columns<'a>() -> Columns<'a, Point> {
    let truth = "Exact number of displaced lines of the program, including those displaced by the \
                 handler's own stack, table and code";
    let found = "Misses in user mode, treatment minus control";
    Columns::all([
        column("handler_lines", "Lines that the handler touches.")
            .uint(|point: &Point| point.handler_lines),
        column("displaced_basic_lines", &format!("{truth} (basic method)."))
            .uint(|point: &Point| point.basic.truth),
        column("counted_basic_lines", &format!("{found}, basic method."))
            .int(|point: &Point| point.basic.found),
        column(
            "timed_lines",
            "Lines by the extra time of the last pass (basic method); absent below the \
             detection limit, and where the pass took longer than with all lines displaced.",
        )
        .real(|point: &Point| point.timed),
        column("timed_error_ratio", "timed_lines over displaced_basic_lines, minus 1.")
            .real(|point: &Point| point.timed_error_ratio()),
        column(
            "detection_limit_lines",
            "Detection limit by time: fewer lines are not distinguishable from none.",
        )
        .real(|point: &Point| point.limit),
        column("displaced_refined_lines", &format!("{truth} (refined method)."))
            .uint(|point: &Point| point.refined.truth),
        column("counted_refined_lines", &format!("{found}, refined method."))
            .int(|point: &Point| point.refined.found),
        column(
            "refined_is_accurate",
            "Whether counted_refined_lines is within 2 lines or 1 % of the exact number.",
        )
        .bool(|point: &Point| point.refined.holds()),
        column(
            "basic_is_accurate",
            "Whether counted_basic_lines is within 2 lines or 1 % of the exact number.",
        )
        .bool(|point: &Point| point.basic.holds()),
        column(
            "timed_is_accurate",
            "Whether timed_lines is within 10 %, or absent where fewer lines are below the \
             limit.",
        )
        .bool(|point: &Point| point.time_holds()),
    ])
}

fn curve(truth: &Truth<'_>) -> Table {
    let columns = Columns::all([
        column("displaced_lines", "Lines that the program itself displaced.")
            .uint(|point: &CurvePoint| point.lines),
        column("excess_ns", "Extra time of the last pass over all lines, median.")
            .interval(IntervalColumns::half_width("excess_ci95_ns"))
            .real(|point: &CurvePoint| point.excess_cycles),
        column("excess_ci95_ns", "Half width of the 95 % confidence interval of excess_ns.")
            .real(|point: &CurvePoint| point.half_width_cycles()),
    ]);
    let doc = "Calibration: the cost of displaced lines.";
    columns.table("bare_calibration", doc, truth.curve().points())
}
