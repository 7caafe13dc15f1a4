//! The picture `latency` of `signal`: p50 and p99 of the latency against the rate of events, measured or computed.

use record::Run;

use super::sweep::{
    MARKS, drawn_rows_and_too_fast_rates, point_source, short_load, sweep, title_end, too_fast_note,
};
use super::{
    Point, Schemes, Series, contamination_notes, draw_series, labels, loads, positive, range, rig,
    series_by_scheme, text,
};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, room_for};
use crate::picture::sheet::{Heading, Pairs, Sheet, Undrawn, draw};
use crate::row::Row;
use crate::schemes::best_scheme;
use crate::winner::Extreme;

/// Height of a row of panels, pixels.
const PANELS_HEIGHT: f64 = 340.0;

/// A load's two panels: latencies by rate, a series for each scheme.
struct LoadPanels {
    /// Empty for a run with one load.
    load: String,
    p50: Vec<Series>,
    p99: Vec<Series>,
}

impl LoadPanels {
    fn series(&self) -> impl Iterator<Item = &Series> {
        self.p50.iter().chain(&self.p99)
    }

    /// The title of the panel of `figure`.
    fn title(&self, figure: &str) -> String {
        match self.load.as_str() {
            "" => figure.to_owned(),
            load => format!("{figure}, {}", short_load(load)),
        }
    }
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
        series_by_scheme(drawn_rows().filter(|row| text(row, "load") == load), &schemes, |row| {
            let (x, y) = (positive(row, "rate_hz")?, positive(row, column)?);
            Some(Point { x, y, half_width: None, source: point_source(row, "quantiles_method") })
        })
    };
    let load_panels: Vec<LoadPanels> = loads(table)
        .into_iter()
        .map(|load| {
            let p50 = series_of(&load, "latency_p50_ns");
            let p99 = series_of(&load, "latency_p99_ns");
            LoadPanels { load, p50, p99 }
        })
        .filter(|panels| panels.series().next().is_some())
        .collect();
    let points =
        || load_panels.iter().flat_map(LoadPanels::series).flat_map(|series| &series.points);
    let (Some((rate_min, rate_max)), Some((latency_min, latency_max))) =
        (range(points().map(|point| point.x)), range(points().map(|point| point.y)))
    else {
        return Ok(None);
    };
    if rate_min == rate_max {
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
    let lowest = best_scheme(table, "rate_hz", "latency_p99_ns", Extreme::Smallest);
    let heading = Heading {
        title: format!("Latency by event rate{}", title_end(lowest, "lowest p99", Quantity::Time)),
        notes,
        description: format!(
            "Median (left) and 99th percentile (right) of the latency against the rate of events, both \
             logarithmic, for {}. The numbers are in table {} of the run.",
            schemes.names().collect::<Vec<_>>().join(", "),
            table.name
        ),
        ..Heading::default()
    };
    let x = Axis::logarithmic("events per second", Quantity::Rate, rate_min, rate_max).padded();
    let y = Axis::logarithmic("latency", Quantity::Time, latency_min, latency_max);
    let right = room_for(schemes.names());
    let pairs = Pairs { width, height: PANELS_HEIGHT, right };
    let sheet = draw(&heading, width, pairs.height_of(load_panels.len()), |area| {
        for (number, panels) in load_panels.iter().enumerate() {
            let [left_area, right_area] = pairs.areas(area, number);
            let mut median_chart =
                Chart::new(&left_area, &panels.title("p50"), [&x, &y], pairs.right_of_first())?;
            draw_series(&mut median_chart, &panels.p50, &schemes, true)?;
            let mut tail_chart = Chart::new(&right_area, &panels.title("p99"), [&x, &y], right)?;
            draw_series(&mut tail_chart, &panels.p99, &schemes, true)?;
            tail_chart.label_ends(&labels(panels.p99.iter(), &schemes))?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}
