//! The picture `paper` of `reproduce signal-afterburner`: the paper's tables of throughput next to the measured ones,
//! as factors over the scheme `interrupt`. A row of two panels for each table.

use record::Run;

use super::{
    Point, PointSource, Schemes, Series, draw_series, labels, positive, range, rig,
    series_by_scheme, text,
};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Look, room_for};
use crate::picture::palette::SOFT_INK;
use crate::picture::rows;
use crate::picture::sheet::{Heading, Pairs, Sheet, Undrawn, draw};

/// Height of a row of panels, pixels.
const PANEL_HEIGHT: f64 = 320.0;
/// Maximum number of tables that are drawn.
const TABLES_MAX: usize = 8;

/// A table of the paper.
struct PaperTable {
    number: String,
    load: String,
    /// The published factors.
    published: Vec<Series>,
    /// The factors of the run.
    measured: Vec<Series>,
}

/// The picture of table `paper`. `None` for a run without this table, or with fewer than two sizes of buffers.
pub fn paper(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("paper") else { return Ok(None) };
    let schemes = Schemes::new(run, rows(table).map(|row| text(&row, "scheme")));
    let mut numbers: Vec<String> = rows(table).map(|row| row.value_text("table")).collect();
    numbers.dedup();
    numbers.truncate(TABLES_MAX);
    let paper_table = |number: String| {
        let table_rows = || rows(table).filter(|row| row.value_text("table") == number);
        let load = table_rows().next().map_or(String::new(), |row| text(&row, "load"));
        let factors_of = |column: &str| {
            series_by_scheme(table_rows(), &schemes, |row| {
                let (x, y) = (positive(row, "socket_buffer_bytes")?, positive(row, column)?);
                Some(Point { x, y, half_width: None, source: PointSource::Measured })
            })
        };
        let published = factors_of("published_to_interrupt_ratio");
        let measured = factors_of("measured_to_interrupt_ratio");
        PaperTable { number, load, published, measured }
    };
    let tables: Vec<PaperTable> = numbers.into_iter().map(paper_table).collect();
    let points = || {
        tables
            .iter()
            .flat_map(|table| table.published.iter().chain(&table.measured))
            .flat_map(|series| &series.points)
    };
    let (Some((size_min, size_max)), Some((factor_min, factor_max))) =
        (range(points().map(|point| point.x)), range(points().map(|point| point.y)))
    else {
        return Ok(None);
    };
    if size_min == size_max {
        return Ok(None);
    }
    let heading = Heading {
        title: "TCP throughput as a factor of that with interrupts: published, and here".to_owned(),
        notes: vec![format!(
            "{}The paper used other hardware, so compare the factors. Above 1: more throughput than \
             with interrupts.",
            rig(run).unwrap_or_default()
        )],
        description: format!(
            "Throughput over that with interrupts against the size of the socket buffers: the paper's tables \
             (left) and the same measured (right), for {}. The numbers are in table paper of the run.",
            schemes.names().collect::<Vec<_>>().join(", ")
        ),
        ..Heading::default()
    };
    let x =
        Axis::doublings("size of the socket buffers", Quantity::Size, size_min, size_max).padded();
    let y = Axis::logarithmic("factor", Quantity::Count, factor_min.min(1.0), factor_max.max(1.0));
    let (x_start, x_end) = x.ends();
    let right = room_for(schemes.names());
    let pairs = Pairs { width, height: PANEL_HEIGHT, right };
    let sheet = draw(&heading, width, pairs.height_of(tables.len()), |area| {
        for (index, PaperTable { number, load, published, measured }) in tables.iter().enumerate() {
            let [left_area, right_area] = pairs.areas(area, index);
            let panels = [
                (
                    left_area,
                    pairs.right_of_first(),
                    published,
                    format!("Table {number}, published"),
                ),
                (right_area, right, measured, format!("Here, load {load}")),
            ];
            for (panel_area, room, series, title) in panels {
                let mut chart = Chart::new(&panel_area, &title, [&x, &y], room)?;
                let factor_1 = [(x_start, 1.0), (x_end, 1.0)];
                chart.line(&factor_1, Look { colour: SOFT_INK, pattern: 0 }, 1.0)?;
                draw_series(&mut chart, series, &schemes, true)?;
                if room == right {
                    chart.label_ends(&labels(series.iter(), &schemes))?;
                }
            }
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}
