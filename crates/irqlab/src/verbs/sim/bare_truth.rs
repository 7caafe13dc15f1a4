//! `irqlab sim bare footprint --sweep`: what the methods find, against what was displaced.

use record::{Column, Kind, Run, Table, Timestamp, Value};
use sim::Cache;
use sim::bare::{FootprintSettings, Point, Truth, TruthSettings};
use sim::qemu::Qemu;

use super::bare_footprint::empty_run;

/// Points of the curve.
const CURVE_POINTS: u64 = 16;
/// Numbers of lines besides fractions of the cache.
const FEW: [u64; 5] = [0, 1, 4, 16, 64];
/// Eighths of the cache.
const EIGHTHS: [u64; 6] = [1, 2, 4, 5, 6, 8];

/// From no lines to all of the cache; none when `stop` says that it is not wanted.
pub fn run(
    cache: &Cache,
    qemu: &Qemu,
    started: Timestamp,
    settings: FootprintSettings,
    stop: &dyn Fn() -> bool,
) -> anyhow::Result<Option<Run>> {
    let lines = settings.geometry().lines();
    let mut run = empty_run(started, &qemu.version_text, &settings);
    let of = TruthSettings { of: settings, curve_points: CURVE_POINTS };
    let Some(truth) = Truth::new(cache, qemu, of, stop)? else { return Ok(None) };
    let mut told: Vec<u64> = FEW.into_iter().filter(|few| *few <= lines).collect();
    told.extend(EIGHTHS.map(|part| lines * part / 8));
    told.sort_unstable();
    told.dedup();
    let mut table = table();
    for told in told {
        let Some(point) = truth.point(told, stop)? else { return Ok(None) };
        table.push(row(&point));
    }
    run.tables = vec![table, curve(&truth)];
    Ok(Some(run))
}

fn table() -> Table {
    let truth =
        "Lines of the program that were displaced, by the handler's own stack, table and code, too";
    let found = "Misses in user mode beyond those of idle repetitions";
    let columns = vec![
        Column::new("told_lines", Kind::Uint, "Lines that the handler was told to touch."),
        Column::new("true_lines", Kind::Uint, &format!("{truth} (basic method).")),
        Column::new("basic_lines", Kind::Int, &format!("{found}, basic method.")),
        Column::new(
            "timed_lines",
            Kind::Real,
            "By how much longer the last touch took (basic method); absent below the limit, and where it \
             took longer than with all lines displaced.",
        ),
        Column::new("timed_error_ratio", Kind::Real, "Found by time less true, over true."),
        Column::new("limit_lines", Kind::Real, "By time, fewer are not told from none."),
        Column::new("refined_true_lines", Kind::Uint, &format!("{truth} (refined method).")),
        Column::new("refined_lines", Kind::Int, &format!("{found}, refined method.")),
        Column::new("refined_holds", Kind::Bool, "The refined count is within 2 lines or 1 %."),
        Column::new("basic_holds", Kind::Bool, "The basic one is."),
        Column::new(
            "time_holds",
            Kind::Bool,
            "Time is within 10 %, or says nothing where nothing can be seen.",
        ),
    ];
    Table::new("bare_truth", "Lines found, against lines displaced.", columns)
}

fn row(point: &Point) -> Vec<Value> {
    vec![
        point.told.into(),
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
        Column::new("lines", Kind::Uint, "Lines that the program displaced by itself."),
        Column::new("excess_ns", Kind::Real, "How much longer the last touch of all took."),
    ];
    let mut table = Table::new("bare_curve", "What displaced lines cost.", columns);
    for (lines, excess_ns) in &truth.curve().points {
        table.push(vec![(*lines).into(), (*excess_ns).into()]);
    }
    table
}
