//! The picture `throughput` of `signal`: TCP throughput against the size of the socket buffers, a panel for each load.

use record::{Run, Table};

use super::{
    Point, PointSource, Schemes, Series, describe_load, draw_series, labels, loads, positive,
    range, rig, series_by_scheme, text,
};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, room_for};
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn, draw, units};
use crate::schemes::{BestScheme, best_scheme};
use crate::winner::Extreme;

/// Height of a panel, pixels.
const PANEL_HEIGHT: f64 = 380.0;
/// The vertical axis is logarithmic if the values differ by more than this factor.
const LINEAR_FACTOR_MAX: f64 = 20.0;

/// The picture of table `throughput`. `None` for a run without this table or with only one size.
pub fn throughput(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("throughput") else { return Ok(None) };
    let schemes = Schemes::new(run, rows(table).map(|row| text(&row, "scheme")));
    let series_of = |load: &str| {
        series_by_scheme(rows(table).filter(|row| text(row, "load") == load), &schemes, |row| {
            Some(Point {
                x: positive(row, "socket_buffer_bytes")?,
                y: positive(row, "throughput_bytes_per_second")?,
                half_width: row.number("throughput_ci95_bytes_per_second"),
                source: PointSource::Measured,
            })
        })
    };
    let panels: Vec<(String, Vec<Series>)> = loads(table)
        .into_iter()
        .map(|load| {
            let series_of_load = series_of(&load);
            (load, series_of_load)
        })
        .filter(|(_, series_of_load)| !series_of_load.is_empty())
        .collect();
    let points = || panels.iter().flat_map(|(_, series)| series).flat_map(|series| &series.points);
    let (Some((size_min, size_max)), Some((rate_min, rate_max))) =
        (range(points().map(|point| point.x)), range(points().map(|point| point.y)))
    else {
        return Ok(None);
    };
    if size_min == size_max {
        return Ok(None);
    }
    let mut notes = vec![format!(
        "{}Bytes received per second, messages of 32 KiB: the mean of the repetitions with its 95 % interval. \
         Points are moved sideways a little; lines join them.",
        rig(run).unwrap_or_default()
    )];
    notes.extend(schemes.note("throughput"));
    let heading = Heading {
        title: title(table),
        notes,
        description: format!(
            "TCP throughput against the size of the socket buffers for {}, one panel for each load. The \
             numbers are in table throughput of the run.",
            schemes.names().collect::<Vec<_>>().join(", ")
        ),
        ..Heading::default()
    };
    let x_title = "size of the socket buffers";
    let x = Axis::doublings(x_title, Quantity::Size, size_min, size_max).padded();
    let upper_ends = points().map(|point| point.y + point.half_width.unwrap_or(0.0));
    let highest = range(upper_ends).map_or(rate_max, |(_, highest)| highest);
    let y = if rate_max / rate_min > LINEAR_FACTOR_MAX {
        Axis::doublings("throughput", Quantity::SizeRate, rate_min, highest)
    } else {
        Axis::linear("throughput", Quantity::SizeRate, 0.0, highest)
    };
    let sheet = draw(&heading, width, PANEL_HEIGHT * panels.len() as f64, |area| {
        for (number, (load, series_of_load)) in panels.iter().enumerate() {
            let top = units(PANEL_HEIGHT) * number as i32;
            let panel_area = area.part((0, top), (units(width) as u32, units(PANEL_HEIGHT) as u32));
            let mut chart =
                Chart::new(&panel_area, &panel_title(load), [&x, &y], room_for(schemes.names()))?;
            draw_series(&mut chart, series_of_load, &schemes, true)?;
            chart.label_ends(&labels(series_of_load.iter(), &schemes))?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// The title of the picture, with the best scheme.
fn title(table: &Table) -> String {
    let (size, rate) = ("socket_buffer_bytes", "throughput_bytes_per_second");
    let best = best_scheme(table, size, rate, Extreme::Largest);
    let end = best.map_or(String::new(), |BestScheme { scheme, load, x, value }| {
        let (bytes, rate) = (Quantity::Size.round_text(x), Quantity::SizeRate.text(value));
        let load = if load.is_empty() { load } else { format!(", load {load}") };
        format!(": most at {bytes} with {scheme} ({rate}{load})")
    });
    format!("TCP throughput by socket buffer{end}")
}

/// The title of a panel: its load, with a capital.
fn panel_title(load: &str) -> String {
    let description = describe_load(load);
    let mut letters = description.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
