//! The picture `cpu` of `signal`: CPU use against the rate of events, a panel for each load. It shows measurements, with
//! the model's curves if costs were fitted, or the model alone.

use record::{Run, Table};

use super::sweep::{
    MARKS, drawn_rows_and_too_fast_rates, point_source, short_load, sweep, title_end, too_fast_note,
};
use super::{
    Point, PointSource, Schemes, Series, contamination_notes, costs, draw_series, labels, loads,
    positive, range, rig, series_by_scheme, text,
};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, room_for};
use crate::picture::rows;
use crate::picture::sheet::{Area, Heading, Sheet, Undrawn, draw, units};
use crate::row::Row;
use crate::schemes::{FITTED_LOAD, best_scheme};
use crate::winner::Extreme;

/// Height of a panel, pixels.
const PANEL_HEIGHT: f64 = 480.0;
/// Lower end of the axis of CPU use. Smaller values are mostly chance.
const CPU_MIN: f64 = 1e-4;

/// The CPU use under one load.
struct Panel {
    /// Empty for a table without loads.
    load: String,
    measured: Vec<Series>,
    /// The model's curves. The model is fitted to one load, so other loads have none.
    curves: Vec<Series>,
}

impl Panel {
    /// The series whose ends have labels: the curves, and the points of schemes without a curve.
    fn labelled_series(&self) -> impl Iterator<Item = &Series> {
        let has_curve =
            |points: &Series| self.curves.iter().any(|curve| curve.scheme == points.scheme);
        self.curves.iter().chain(self.measured.iter().filter(move |points| !has_curve(points)))
    }

    /// Draws the panel. `is_model`: whether the points are computed. Computed points are joined, and so are measured
    /// points without curves.
    fn draw(
        &self,
        area: &Area<'_>,
        axes: [&Axis; 2],
        schemes: &Schemes,
        is_model: bool,
    ) -> Result<(), Undrawn> {
        let title = if self.load.is_empty() { String::new() } else { short_load(&self.load) };
        let mut chart = Chart::new(area, &title, axes, room_for(schemes.names()))?;
        draw_series(&mut chart, &self.curves, schemes, true)?;
        draw_series(&mut chart, &self.measured, schemes, is_model || self.curves.is_empty())?;
        chart.label_ends(&labels(self.labelled_series(), schemes))
    }
}

/// Whether a row has a CPU use, drawn or not.
fn has_cpu_use(row: &Row<'_>) -> bool {
    row.number("cpu_ratio").is_some()
}

/// The panels of all loads with a point or a curve. `drawn_rows`: the rows of the sweep that are drawn.
fn panels(run: &Run, table: &Table, drawn_rows: &[Row<'_>], schemes: &Schemes) -> Vec<Panel> {
    let curve_rows = || run.table("curves").into_iter().flat_map(rows);
    let panel = |load: String| {
        let load_rows = drawn_rows.iter().copied().filter(|row| text(row, "load") == load);
        let measured = series_by_scheme(load_rows, schemes, |row| {
            Some(Point {
                x: positive(row, "rate_hz")?,
                y: positive(row, "cpu_ratio")?,
                half_width: row.number("cpu_ci95_ratio").or(row.number("cpu_half_width_ratio")),
                source: point_source(row, "method"),
            })
        });
        let is_fitted = load.is_empty() || load == FITTED_LOAD;
        let curves = series_by_scheme(curve_rows().filter(|_| is_fitted), schemes, |row| {
            let (x, y) = (positive(row, "rate_hz")?, positive(row, "cpu_ratio")?);
            Some(Point { x, y, half_width: None, source: PointSource::ByFormula })
        });
        Panel { load, measured, curves }
    };
    let is_filled = |panel: &Panel| !panel.measured.is_empty() || !panel.curves.is_empty();
    loads(table).into_iter().map(panel).filter(is_filled).collect()
}

/// The note that explains the points and lines.
fn source_note(run: &Run, is_model: bool, has_curves: bool) -> String {
    let rig = rig(run).unwrap_or_default();
    let costs = costs(run);
    match (is_model, has_curves) {
        (true, _) => {
            let model = costs.map_or(String::new(), |costs| format!("The model with {costs}. "));
            format!("{model}{MARKS}")
        }
        (false, true) => {
            let costs = costs.map_or(String::new(), |costs| format!(", {costs}"));
            format!(
                "{rig}Points: measured, with 95 % intervals. Lines: the model (closed forms) with the fitted costs{costs}."
            )
        }
        (false, false) => format!(
            "{rig}Points: measured, with 95 % intervals, moved sideways a little and joined by lines; the model could \
             not be fitted."
        ),
    }
}

/// A note about loads without the model's curves. `None` if all panels have curves, or none has.
fn unfitted_note(panels: &[Panel]) -> Option<String> {
    let is_fitted = |panel: &Panel| !panel.curves.is_empty();
    let is_mixed = panels.iter().any(is_fitted) && !panels.iter().all(is_fitted);
    is_mixed.then(|| {
        format!(
            "The model is fitted to load {FITTED_LOAD}: under other loads, lines join the points, which are moved sideways a little."
        )
    })
}

/// A note about the points below `low`, the lower end of the axis. `None` without such points.
fn hidden_note(drawn_rows: &[Row<'_>], low: f64) -> Option<String> {
    let uses = || drawn_rows.iter().filter_map(|row| row.number("cpu_ratio"));
    let hidden_count = uses().filter(|cpu| *cpu < low).count();
    (hidden_count > 0).then(|| {
        let (all, minimum) = (uses().count(), Quantity::Share.text(low));
        format!(
            "Not drawn: {hidden_count} of {all} points, which are below {minimum} (chance can make them negative)."
        )
    })
}

/// The picture of CPU use by scheme. `None` for a run with fewer than two rates.
pub fn cpu(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = sweep(run) else { return Ok(None) };
    let (drawn_rows, too_fast) = drawn_rows_and_too_fast_rates(table);
    let rows_with_use = drawn_rows.iter().filter(|row| has_cpu_use(row));
    let schemes = Schemes::new(run, rows_with_use.map(|row| text(row, "scheme")));
    let panels = panels(run, table, &drawn_rows, &schemes);
    let all_series = || panels.iter().flat_map(|panel| panel.measured.iter().chain(&panel.curves));
    let points = || all_series().flat_map(|series| &series.points);
    let (Some(rates), Some(cpus)) =
        (range(points().map(|point| point.x)), range(points().map(|point| point.y)))
    else {
        return Ok(None);
    };
    if rates.0 == rates.1 {
        return Ok(None);
    }
    let is_model = table.name == "model";
    let has_curves = panels.iter().any(|panel| !panel.curves.is_empty());
    let low = cpus.0.max(CPU_MIN);
    let mut notes = vec![source_note(run, is_model, has_curves)];
    notes.extend(unfitted_note(&panels));
    notes.extend(hidden_note(&drawn_rows, low));
    notes.extend(too_fast_note(&too_fast));
    notes.extend(schemes.note(&table.name));
    notes.extend(contamination_notes(run));
    let least = best_scheme(table, "rate_hz", "cpu_ratio", Extreme::Smallest);
    let heading = Heading {
        title: format!("CPU use by event rate{}", title_end(least, "least", Quantity::Share)),
        notes,
        description: format!(
            "CPU use against the rate of events, both logarithmic, for {}. The numbers are in table {} of \
             the run{}.",
            schemes.names().collect::<Vec<_>>().join(", "),
            table.name,
            if has_curves { ", the curves in table curves" } else { "" }
        ),
        ..Heading::default()
    };
    let x = Axis::logarithmic("events per second", Quantity::Rate, rates.0, rates.1).padded();
    let y = Axis::logarithmic("CPU use", Quantity::Share, low, cpus.1);
    let sheet = draw(&heading, width, PANEL_HEIGHT * panels.len() as f64, |area| {
        for (number, panel) in panels.iter().enumerate() {
            let top = units(PANEL_HEIGHT) * number as i32;
            let part = area.part((0, top), (units(width) as u32, units(PANEL_HEIGHT) as u32));
            panel.draw(&part, [&x, &y], &schemes, is_model)?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}
