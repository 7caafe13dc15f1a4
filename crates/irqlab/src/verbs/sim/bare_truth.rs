//! `irqlab sim bare footprint --sweep`: lines that the methods count, compared with lines displaced.

use record::{Run, Timestamp};
use sim::Cache;
use sim::bare::{FootprintSettings, Truth, TruthSettings};
use sim::qemu::Qemu;
use sim_tables::bare::{accuracy, calibration};

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
    run.tables = vec![accuracy(&points), calibration(truth.curve().points())];
    Ok(Some(run))
}
