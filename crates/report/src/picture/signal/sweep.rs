//! The pictures `cpu` and `latency` of `signal`: CPU use and latency against the rate of events. They show
//! measurements, with the model's curves if costs were fitted, or the model alone.

use record::{Run, Table, Value};

use super::{
    Extreme, Point, PointSource, Schemes, Series, best, contamination_notes, costs, describe_load,
    draw_series, labels, loads, positive, range, rig, series, text,
};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, room_for};
use crate::picture::rows;
use crate::picture::sheet::{Heading, Pairs, Sheet, Undrawn, draw};
use crate::row::Row;

/// Height of the picture of CPU use, pixels.
const CPU_HEIGHT: f64 = 480.0;
/// Height of a row of panels of latencies, pixels.
const LATENCY_HEIGHT: f64 = 340.0;
/// Lower end of the axis of CPU use. Smaller values are mostly chance.
const CPU_MIN: f64 = 1e-4;

/// The table of the sweep: `rates` of a measurement, or `model` of a computation.
fn sweep(run: &Run) -> Option<&Table> {
    run.table("rates").or_else(|| run.table("model"))
}

/// Divides a sweep by its rates. Returns the rows to draw, whose rates at least one scheme keeps up with, and the rates
/// that no scheme keeps up with, ascending. Rows without a rate are not drawn.
fn drawn_rows_and_too_fast_rates(table: &Table) -> (Vec<Row<'_>>, Vec<f64>) {
    let is_over = |row: &Row<'_>| *row.get("is_over_capacity") == Value::Bool(true);
    let mut rates: Vec<f64> = rows(table).filter_map(|row| positive(&row, "rate_hz")).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let rows_at = |rate: f64| rows(table).filter(move |row| row.number("rate_hz") == Some(rate));
    let is_too_fast = |rate: &f64| rows_at(*rate).all(|row| is_over(&row));
    let too_fast: Vec<f64> = rates.into_iter().filter(is_too_fast).collect();
    let is_drawn =
        |row: &Row<'_>| row.number("rate_hz").is_some_and(|rate| !too_fast.contains(&rate));
    (rows(table).filter(is_drawn).collect(), too_fast)
}

/// A note about the rates with which no scheme keeps up. `None` without such rates.
fn too_fast_note(too_fast: &[f64]) -> Option<String> {
    let first = Quantity::Rate.round_text(*too_fast.first()?);
    Some(format!("From {first} on, no scheme of this run keeps up; those rates are not drawn."))
}

/// How a row was measured or computed. `method_column`: name of the column with the model's method. A row without a
/// method was measured.
fn point_source(row: &Row<'_>, method_column: &str) -> PointSource {
    if *row.get("is_over_capacity") == Value::Bool(true) {
        return PointSource::OverCapacity;
    }
    match text(row, method_column).as_str() {
        "simulation" => PointSource::Simulated,
        "closed-form" => PointSource::ByFormula,
        _ => PointSource::Measured,
    }
}

/// A note that explains the marks of computed rows.
const MARKS: &str = "Lines join the computed rates. Open marks: simulated; without a mark: closed form; \
                     cross: more events than the scheme can handle.";

/// The end of a title that names the best scheme, such as ": least at RATE with SCHEME (VALUE, load busy)". `best`:
/// the scheme with its rate and value. Empty without a best scheme. `superlative`: the word for its property, such as
/// `least`.
fn title_end(
    best: Option<(String, f64, f64)>,
    superlative: &str,
    quantity: Quantity,
    load: Option<&str>,
) -> String {
    best.map_or(String::new(), |(scheme, rate_hz, value)| {
        let load = load.map_or(String::new(), |load| format!(", {}", short_load(load)));
        let (rate, value) = (Quantity::Rate.round_text(rate_hz), quantity.text(value));
        format!(": {superlative} at {rate} with {scheme} ({value}{load})")
    })
}

/// The picture of CPU use by scheme. `None` for a run with fewer than two rates.
pub fn cpu(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = sweep(run) else { return Ok(None) };
    let has_value = |row: &Row<'_>| row.number("cpu_ratio").is_some();
    let (rows_to_draw, too_fast) = drawn_rows_and_too_fast_rates(table);
    let drawn_rows = || rows_to_draw.iter().copied();
    let schemes = Schemes::new(run, drawn_rows().filter(has_value).map(|row| text(&row, "scheme")));
    let measured = series(drawn_rows(), &schemes, |row| {
        Some(Point {
            x: positive(row, "rate_hz")?,
            y: positive(row, "cpu_ratio")?,
            half_width: row.number("cpu_ci95_ratio").or(row.number("cpu_half_width_ratio")),
            source: point_source(row, "method"),
        })
    });
    let curves = run.table("curves").map_or(Vec::new(), |table| {
        series(rows(table), &schemes, |row| {
            let (x, y) = (positive(row, "rate_hz")?, positive(row, "cpu_ratio")?);
            Some(Point { x, y, half_width: None, source: PointSource::ByFormula })
        })
    });
    let points = || measured.iter().chain(&curves).flat_map(|series| &series.points);
    let (Some(rates), Some(cpus)) =
        (range(points().map(|point| point.x)), range(points().map(|point| point.y)))
    else {
        return Ok(None);
    };
    if rates.0 == rates.1 {
        return Ok(None);
    }
    let is_model = table.name == "model";
    let low = cpus.0.max(CPU_MIN);
    let is_below_axis = |row: &Row<'_>| row.number("cpu_ratio") < Some(low);
    let hidden_count = drawn_rows().filter(has_value).filter(is_below_axis).count();
    let mut notes = vec![match (is_model, curves.is_empty(), costs(run)) {
        (true, _, Some(costs)) => format!("The model with {costs}. {MARKS}"),
        (true, ..) => MARKS.to_owned(),
        (_, false, Some(costs)) => format!(
            "Points: measured, with 95 % intervals. Lines: the model (closed forms) with the fitted costs, \
             {costs}."
        ),
        _ => {
            "Points: measured, with 95 % intervals, moved sideways a little and joined by lines; the model could \
             not be fitted."
                .to_owned()
        }
    }];
    if !is_model {
        notes[0] = rig(run).unwrap_or_default() + &notes[0];
    }
    if hidden_count > 0 {
        let minimum = Quantity::Share.text(low);
        let all = drawn_rows().filter(has_value).count();
        notes.push(format!(
            "Not drawn: {hidden_count} of {all} points, which are below {minimum} (chance can make them negative)."
        ));
    }
    notes.extend(too_fast_note(&too_fast));
    notes.extend(schemes.note(&table.name));
    notes.extend(contamination_notes(run));
    let heading = Heading {
        title: format!(
            "CPU use by event rate{}",
            title_end(best(&measured, Extreme::Smallest), "least", Quantity::Share, None)
        ),
        notes,
        description: format!(
            "CPU use against the rate of events, both logarithmic, for {}. The numbers are in table {} of \
             the run{}.",
            schemes.names().collect::<Vec<_>>().join(", "),
            table.name,
            if curves.is_empty() { "" } else { ", the curves in table curves" }
        ),
        ..Heading::default()
    };
    let x = Axis::logarithmic("events per second", Quantity::Rate, rates.0, rates.1).padded();
    let y = Axis::logarithmic("CPU use", Quantity::Share, low, cpus.1);
    let sheet = draw(&heading, width, CPU_HEIGHT, |area| {
        let mut chart = Chart::new(area, "", [&x, &y], room_for(schemes.names()))?;
        draw_series(&mut chart, &curves, &schemes, true)?;
        draw_series(&mut chart, &measured, &schemes, is_model || curves.is_empty())?;
        // A label is at the end of the curve, or at the last point of a scheme without a curve.
        let without_curve = measured
            .iter()
            .filter(|points| curves.iter().all(|curve| curve.scheme != points.scheme));
        chart.label_ends(&labels(curves.iter().chain(without_curve), &schemes))
    })?;
    Ok(Some(sheet))
}

/// The picture of latency by scheme: for each load, a panel of p50 and a panel of p99. `None` for a run with fewer
/// than two rates.
pub fn latency(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = sweep(run) else { return Ok(None) };
    let has_value = |row: &Row<'_>| positive(row, "latency_p99_ns").is_some();
    let (rows_to_draw, too_fast) = drawn_rows_and_too_fast_rates(table);
    let drawn_rows = || rows_to_draw.iter().copied();
    let schemes = Schemes::new(run, drawn_rows().filter(has_value).map(|row| text(&row, "scheme")));
    let series_of = |load: &str, column: &str| {
        series(drawn_rows().filter(|row| text(row, "load") == load), &schemes, |row| {
            let (x, y) = (positive(row, "rate_hz")?, positive(row, column)?);
            Some(Point { x, y, half_width: None, source: point_source(row, "quantiles_method") })
        })
    };
    let panels: Vec<(String, [Vec<Series>; 2])> = loads(table)
        .into_iter()
        .map(|load| {
            let quantiles =
                ["latency_p50_ns", "latency_p99_ns"].map(|column| series_of(&load, column));
            (load, quantiles)
        })
        .filter(|(_, quantiles)| quantiles.iter().any(|all| !all.is_empty()))
        .collect();
    let points = || {
        panels
            .iter()
            .flat_map(|(_, quantiles)| quantiles)
            .flatten()
            .flat_map(|series| &series.points)
    };
    let (Some(rates), Some(times)) =
        (range(points().map(|point| point.x)), range(points().map(|point| point.y)))
    else {
        return Ok(None);
    };
    if rates.0 == rates.1 {
        return Ok(None);
    }
    let is_model = table.name == "model";
    let mut notes = vec![if is_model {
        MARKS.to_owned()
    } else {
        format!(
            "{}From when an event was due until it was handled, all repetitions together. Lines join the \
             measured points.",
            rig(run).unwrap_or_default()
        )
    }];
    notes.extend(too_fast_note(&too_fast));
    notes.extend(schemes.note(&table.name));
    notes.extend(contamination_notes(run));
    let lowest = panels.first().and_then(|(_, quantiles)| best(&quantiles[1], Extreme::Smallest));
    // The title names the load if there are several.
    let load = match &panels[..] {
        [(load, _), _, ..] => Some(load.as_str()),
        _ => None,
    };
    let heading = Heading {
        title: format!(
            "Latency by event rate{}",
            title_end(lowest, "lowest p99", Quantity::Time, load)
        ),
        notes,
        description: format!(
            "Median (left) and 99th percentile (right) of the latency against the rate of events, both \
             logarithmic, for {}. The numbers are in table {} of the run.",
            schemes.names().collect::<Vec<_>>().join(", "),
            table.name
        ),
        ..Heading::default()
    };
    let x = Axis::logarithmic("events per second", Quantity::Rate, rates.0, rates.1).padded();
    let y = Axis::logarithmic("latency", Quantity::Time, times.0, times.1);
    let right = room_for(schemes.names());
    let pairs = Pairs { width, height: LATENCY_HEIGHT, right };
    let sheet = draw(&heading, width, pairs.height_of(panels.len()), |area| {
        for (number, (load, quantiles)) in panels.iter().enumerate() {
            let [first, second] = pairs.areas(area, number);
            let title = |figure: &str| match load.as_str() {
                "" => figure.to_owned(),
                load => format!("{figure}, {}", short_load(load)),
            };
            let mut median_chart =
                Chart::new(&first, &title("p50"), [&x, &y], pairs.right_of_first())?;
            draw_series(&mut median_chart, &quantiles[0], &schemes, true)?;
            let mut tail_chart = Chart::new(&second, &title("p99"), [&x, &y], right)?;
            draw_series(&mut tail_chart, &quantiles[1], &schemes, true)?;
            tail_chart.label_ends(&labels(quantiles[1].iter(), &schemes))?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// Describes a load in a few words.
fn short_load(load: &str) -> String {
    match load {
        "idle" | "background" | "busy" => format!("load {load}"),
        other => describe_load(other),
    }
}
