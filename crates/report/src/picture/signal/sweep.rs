//! CPU use and latency against the rate of events: measured, with the model's curves, or by the model
//! alone.

use record::{Run, Table, Value};

use super::{
    Extreme, How, Point, Schemes, Series, best, costs, disturbed, draw_series, labels, loads,
    of_load, positive, range, rig, series, text,
};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, room_for};
use crate::picture::rows;
use crate::picture::sheet::{Heading, Pairs, Sheet, Undrawn, draw};
use crate::row::Row;

/// Height of the picture of CPU use, pixels.
const CPU: f64 = 480.0;
/// Height of a row of panels of latencies.
const LATENCY: f64 = 340.0;
/// Least CPU use that has a place: an axis down to chance would show little else.
const CPU_MIN: f64 = 1e-4;

/// Table `rates` of a measurement, or `model` of a computation.
fn sweep(run: &Run) -> Option<&Table> {
    run.table("rates").or_else(|| run.table("model"))
}

/// The rows of a sweep without those of rates that no scheme keeps up with, and these rates.
fn swept(table: &Table) -> (Vec<Row<'_>>, Vec<f64>) {
    let is_over = |row: &Row<'_>| *row.get("is_over_capacity") == Value::Bool(true);
    let mut rates: Vec<f64> = rows(table).filter_map(|row| positive(&row, "rate_hz")).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let at = |rate: f64| rows(table).filter(move |row| row.number("rate_hz") == Some(rate));
    rates.retain(|rate| at(*rate).all(|row| is_over(&row)));
    let keeps = |row: &Row<'_>| row.number("rate_hz").is_some_and(|rate| !rates.contains(&rate));
    (rows(table).filter(keeps).collect(), rates)
}

/// The note on rates that no scheme keeps up with.
fn too_fast(rates: &[f64]) -> Option<String> {
    let first = Quantity::Rate.round_text(*rates.first()?);
    Some(format!("From {first} on, no scheme of this run keeps up; those rates are not drawn."))
}

/// How a row came about; `method`: the column that says how the model computed it.
fn how(row: &Row<'_>, method: &str) -> How {
    if *row.get("is_over_capacity") == Value::Bool(true) {
        return How::OverCapacity;
    }
    match text(row, method).as_str() {
        "simulation" => How::Simulated,
        "closed-form" => How::ByFormula,
        _ => How::Measured,
    }
}

/// What the marks of computed rows mean.
const MARKS: &str = "Lines join the computed rates. Open marks: simulated; without a mark: closed form; \
                     cross: more events than the scheme can handle.";

/// What a title says of a best scheme.
fn at_most(
    best: Option<(String, f64, f64)>,
    word: &str,
    quantity: Quantity,
    load: Option<&str>,
) -> String {
    best.map_or(String::new(), |(scheme, rate_hz, value)| {
        let load = load.map_or(String::new(), |load| format!(", {}", short_load(load)));
        let (rate, value) = (Quantity::Rate.round_text(rate_hz), quantity.text(value));
        format!(": {word} at {rate} with {scheme} ({value}{load})")
    })
}

/// CPU use against event rate by scheme; none for a run without at least two rates.
///
/// # Errors
/// When plotters fails.
pub fn cpu(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = sweep(run) else { return Ok(None) };
    let has_value = |row: &Row<'_>| row.number("cpu_ratio").is_some();
    let (kept, lost) = swept(table);
    let rows_kept = || kept.iter().copied();
    let schemes = Schemes::of(rows_kept().filter(has_value).map(|row| text(&row, "scheme")));
    let measured = series(rows_kept(), &schemes, |row| {
        Some(Point {
            x: positive(row, "rate_hz")?,
            y: positive(row, "cpu_ratio")?,
            half_width: row.number("cpu_ci95_ratio"),
            how: how(row, "method"),
        })
    });
    let curves = run.table("curves").map_or(Vec::new(), |table| {
        series(rows(table), &schemes, |row| {
            let (x, y) = (positive(row, "rate_hz")?, positive(row, "cpu_ratio")?);
            Some(Point { x, y, half_width: None, how: How::ByFormula })
        })
    });
    let points = || measured.iter().chain(&curves).flat_map(|one| &one.points);
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
    let hidden = rows_kept().filter(has_value).filter(|row| row.number("cpu_ratio") < Some(low));
    let hidden = hidden.count();
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
    if hidden > 0 {
        let least = Quantity::Share.text(low);
        let all = rows_kept().filter(has_value).count();
        notes.push(format!(
            "Not drawn: {hidden} of {all} points, which are below {least} (chance can make them negative)."
        ));
    }
    notes.extend(too_fast(&lost));
    notes.extend(schemes.note(&table.name));
    notes.extend(disturbed(run));
    let heading = Heading {
        title: format!(
            "CPU use by event rate{}",
            at_most(best(&measured, Extreme::Smallest), "least", Quantity::Share, None)
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
    let sheet = draw(&heading, width, CPU, |area| {
        let mut chart = Chart::new(area, "", [&x, &y], room_for(schemes.names()))?;
        draw_series(&mut chart, &curves, &schemes, true)?;
        draw_series(&mut chart, &measured, &schemes, is_model || curves.is_empty())?;
        // At the curve where there is one, or at the points.
        let others =
            measured.iter().filter(|one| curves.iter().all(|curve| curve.scheme != one.scheme));
        chart.label_ends(&labels(curves.iter().chain(others), &schemes))
    })?;
    Ok(Some(sheet))
}

/// Latency against event rate by scheme, p50 and p99 next to one another, a row of panels for each load.
///
/// # Errors
/// When plotters fails.
pub fn latency(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = sweep(run) else { return Ok(None) };
    let has_value = |row: &Row<'_>| positive(row, "latency_p99_ns").is_some();
    let (kept, lost) = swept(table);
    let rows_kept = || kept.iter().copied();
    let schemes = Schemes::of(rows_kept().filter(has_value).map(|row| text(&row, "scheme")));
    let of = |load: &str, column: &str| {
        series(rows_kept().filter(|row| text(row, "load") == load), &schemes, |row| {
            let (x, y) = (positive(row, "rate_hz")?, positive(row, column)?);
            Some(Point { x, y, half_width: None, how: how(row, "quantiles_method") })
        })
    };
    let panels: Vec<(String, [Vec<Series>; 2])> = loads(table)
        .into_iter()
        .map(|load| {
            let both = ["latency_p50_ns", "latency_p99_ns"].map(|column| of(&load, column));
            (load, both)
        })
        .filter(|(_, both)| both.iter().any(|all| !all.is_empty()))
        .collect();
    let points = || panels.iter().flat_map(|(_, both)| both).flatten().flat_map(|one| &one.points);
    let (Some(rates), Some(times)) =
        (range(points().map(|point| point.x)), range(points().map(|point| point.y)))
    else {
        return Ok(None);
    };
    if rates.0 == rates.1 {
        return Ok(None);
    }
    let is_model = table.name == "model";
    let mut notes = vec![match is_model {
        true => MARKS.to_owned(),
        false => format!(
            "{}From when an event was due until it was handled, all repetitions together. Lines join the \
             measured points.",
            rig(run).unwrap_or_default()
        ),
    }];
    notes.extend(too_fast(&lost));
    notes.extend(schemes.note(&table.name));
    notes.extend(disturbed(run));
    let lowest = panels.first().and_then(|(_, both)| best(&both[1], Extreme::Smallest));
    // Which of several loads the figure is of.
    let load = panels.first().filter(|_| panels.len() > 1).map(|(load, _)| load.as_str());
    let heading = Heading {
        title: format!(
            "Latency by event rate{}",
            at_most(lowest, "lowest p99", Quantity::Time, load)
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
    let pairs = Pairs { width, height: LATENCY, right };
    let sheet = draw(&heading, width, pairs.height_of(panels.len()), |area| {
        for (number, (load, both)) in panels.iter().enumerate() {
            let [first, second] = pairs.areas(area, number);
            let title = |figure: &str| match load.as_str() {
                "" => figure.to_owned(),
                load => format!("{figure}, {}", short_load(load)),
            };
            let mut left = Chart::new(&first, &title("p50"), [&x, &y], pairs.right_of_first())?;
            draw_series(&mut left, &both[0], &schemes, true)?;
            let mut last = Chart::new(&second, &title("p99"), [&x, &y], right)?;
            draw_series(&mut last, &both[1], &schemes, true)?;
            last.label_ends(&labels(both[1].iter(), &schemes))?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// What a load is, where there is room for little.
fn short_load(load: &str) -> String {
    match load {
        "idle" | "background" | "busy" => format!("load {load}"),
        other => of_load(other),
    }
}
