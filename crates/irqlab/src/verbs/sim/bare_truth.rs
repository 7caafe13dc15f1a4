//! `irqlab sim bare footprint --sweep`: the lines that the methods of `footprint` count, compared with the lines that
//! a handler really displaced.

use record::{Run, Timestamp};
use sim::Cache;
use sim::bare::{FootprintSettings, Truth, TruthSettings};
use sim::qemu::Qemu;
use sim_tables::bare::{accuracy, calibration};

use super::bare_run::empty_run;

/// Number of points of the calibration curve.
const CURVE_POINTS: u64 = 16;
/// Small numbers of lines that the handler displaces.
const FEW_LINES: [u64; 5] = [0, 1, 4, 16, 64];
/// Large numbers of lines that the handler displaces, in eighths of the cache.
const EIGHTHS: [u64; 6] = [1, 2, 4, 5, 6, 8];

/// Measures from no displaced lines to all lines of the cache. Returns `None` if `stop` returned true.
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
    let mut line_counts: Vec<u64> =
        FEW_LINES.into_iter().filter(|number| *number <= lines).collect();
    line_counts.extend(EIGHTHS.map(|eighths| lines * eighths / 8));
    line_counts.sort_unstable();
    line_counts.dedup();
    let mut points = Vec::new();
    for displaced_lines in line_counts {
        let Some(point) = truth.point(displaced_lines, stop)? else { return Ok(None) };
        points.push(point);
    }
    run.tables = vec![accuracy(&points), calibration(truth.curve().points())];
    Ok(Some(run))
}
