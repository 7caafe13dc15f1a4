//! The picture `throughput` of `signal`: TCP throughput against the size of the socket buffers, a panel for each load.

use record::Run;

use super::{
    Point, PointSource, Schemes, Series, describe_load, draw_series, labels, loads, positive,
    range, rig, series, text,
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
        series(rows(table).filter(|row| text(row, "load") == load), &schemes, |row| {
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
            let all = series_of(&load);
            (load, all)
        })
        .filter(|(_, all)| !all.is_empty())
        .collect();
    let points = || panels.iter().flat_map(|(_, all)| all).flat_map(|series| &series.points);
    let (Some(sizes), Some(rates)) =
        (range(points().map(|point| point.x)), range(points().map(|point| point.y)))
    else {
        return Ok(None);
    };
    if sizes.0 == sizes.1 {
        return Ok(None);
    }
    let (size, rate) = ("socket_buffer_bytes", "throughput_bytes_per_second");
    let most = best_scheme(table, size, rate, Extreme::Largest);
    let title_end = most.map_or(String::new(), |BestScheme { scheme, load, x, value }| {
        let (bytes, rate) = (Quantity::Size.round_text(x), Quantity::SizeRate.text(value));
        let load = if load.is_empty() { load } else { format!(", load {load}") };
        format!(": most at {bytes} with {scheme} ({rate}{load})")
    });
    let mut notes = vec![format!(
        "{}Bytes received per second, messages of 32 KiB: the mean of the repetitions with its 95 % interval. \
         Points are moved sideways a little; lines join them.",
        rig(run).unwrap_or_default()
    )];
    notes.extend(schemes.note("throughput"));
    let heading = Heading {
        title: format!("TCP throughput by socket buffer{title_end}"),
        notes,
        description: format!(
            "TCP throughput against the size of the socket buffers for {}, one panel for each load. The \
             numbers are in table throughput of the run.",
            schemes.names().collect::<Vec<_>>().join(", ")
        ),
        ..Heading::default()
    };
    let x =
        Axis::doublings("size of the socket buffers", Quantity::Size, sizes.0, sizes.1).padded();
    let highest = range(points().map(|point| point.y + point.half_width.unwrap_or(0.0)));
    let highest = highest.map_or(rates.1, |(_, high)| high);
    let y = if rates.1 / rates.0 > LINEAR_FACTOR_MAX {
        Axis::doublings("throughput", Quantity::SizeRate, rates.0, highest)
    } else {
        Axis::linear("throughput", Quantity::SizeRate, 0.0, highest)
    };
    let sheet = draw(&heading, width, PANEL_HEIGHT * panels.len() as f64, |area| {
        for (number, (load, all)) in panels.iter().enumerate() {
            let top = units(PANEL_HEIGHT) * number as i32;
            let part = area.part((0, top), (units(width) as u32, units(PANEL_HEIGHT) as u32));
            let mut chart = Chart::new(&part, &title(load), [&x, &y], room_for(schemes.names()))?;
            draw_series(&mut chart, all, &schemes, true)?;
            chart.label_ends(&labels(all.iter(), &schemes))?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// The title of a panel: its load, with a capital.
fn title(load: &str) -> String {
    let description = describe_load(load);
    let mut letters = description.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
