//! Pictures of `signal`: what schemes cost and delay, measured and by the model. This file has the common parts: the
//! looks of schemes, and series of points. A scheme has the same look in all pictures of a run.

mod paper;
mod regions;
mod sweep;
mod throughput;

use std::collections::{BTreeMap, BTreeSet};

use plotters::style::RGBColor;
use record::{Run, Table, Value};

pub use paper::paper;
pub use regions::regions;
pub use sweep::{cpu, latency};
pub use throughput::throughput;

use crate::escape::plain;
use crate::human::Quantity;
use crate::picture::chart::{Chart, Label, Look, gap_share};
use crate::picture::palette::{BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::Undrawn;
use crate::row::Row;
use crate::winner::{Extreme, Figure, candidates};

/// Maximum number of schemes of a picture, because more names have no room next to a panel.
const SCHEMES_MAX: usize = 16;

/// Sideways distance between the points of neighbouring schemes, pixels. It keeps their intervals from overlapping.
const SIDEWAYS_STEP: f64 = 4.0;

/// Shares of a kind's colour, mixed with white, for the schemes of the kind in the order of their names.
const SHADES: [f64; 3] = [1.0, 0.7, 0.5];
/// Factor that darkens the colours of further schemes of a kind, once for each use of all [`SHADES`].
const DARKER_FACTOR: f64 = 0.6;
/// Maximum number of times that a colour is made darker.
const DARKER_STEPS_MAX: usize = 4;

/// The tables of the pictures of `signal`. All have a column `scheme`.
const TABLES: [&str; 6] = ["rates", "model", "curves", "regions", "throughput", "paper"];

/// Kinds of schemes (the name before the colon), and their colours.
const KIND_COLOURS: [(&str, RGBColor); 8] = [
    ("interrupt", VERMILION),
    ("drain", ORANGE),
    ("spin", BLUE),
    ("yield", GREY),
    ("clocked", GREEN),
    ("deferred", PURPLE),
    ("coalesced", SKY),
    ("hybrid", BLACK),
];

/// The schemes of a picture, in the order of their rows, each with its look.
struct Schemes {
    looks: Vec<(String, Look)>,
    /// Number of further schemes, which the picture does not draw.
    left_out: usize,
}

impl Schemes {
    /// Collects the schemes from the names in the drawn rows. A name may repeat.
    fn new(run: &Run, names: impl Iterator<Item = String>) -> Schemes {
        let mut drawn: Vec<String> = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        for name in names {
            if drawn.contains(&name) || left_out.contains(&name) {
                continue;
            }
            if drawn.len() >= SCHEMES_MAX {
                left_out.push(name);
            } else {
                drawn.push(name);
            }
        }
        let mut all = run_looks(run);
        let looks = drawn.into_iter().filter_map(|name| all.remove_entry(&name)).collect();
        Schemes { looks, left_out: left_out.len() }
    }

    fn look(&self, scheme: &str) -> Option<Look> {
        self.looks.iter().find(|(name, _)| name == scheme).map(|(_, look)| *look)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.looks.iter().map(|(name, _)| name.as_str())
    }

    /// A note about the schemes that are not drawn, or `None` if all are drawn.
    fn note(&self, table: &str) -> Option<String> {
        let left_out = self.left_out;
        (left_out > 0).then(|| format!("{left_out} more schemes are not drawn: see table {table}."))
    }
}

/// The looks of all schemes in the tables of a run. Pictures take their looks from here, so that a scheme has one look
/// in all of them.
fn run_looks(run: &Run) -> BTreeMap<String, Look> {
    let tables = TABLES.iter().filter_map(|table| run.table(table));
    looks_of(tables.flat_map(rows).map(|row| text(&row, "scheme")).collect())
}

/// The looks of schemes. They follow the order of names, not of rows.
fn looks_of(names: BTreeSet<String>) -> BTreeMap<String, Look> {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut looks = BTreeMap::new();
    for name in names {
        let kind_index = KIND_COLOURS.iter().position(|(known, _)| *known == kind(&name));
        let colour = kind_index.map_or(GREY, |index| KIND_COLOURS[index].1);
        let number = numbers.entry(kind(&name).to_owned()).or_default();
        // Kinds differ in the pattern too, so that lines on one another can be told apart.
        let pattern = kind_index.unwrap_or(KIND_COLOURS.len()) + *number;
        looks.insert(name, Look { colour: shade(colour, *number), pattern });
        *number += 1;
    }
    looks
}

/// The colour of scheme `number` of a kind: the kind's colour, then lighter ones, then darker ones.
fn shade(RGBColor(red, green, blue): RGBColor, number: usize) -> RGBColor {
    // A lighter black would be the grey of another kind.
    let is_black = RGBColor(red, green, blue) == BLACK;
    let share = if is_black { 1.0 } else { SHADES[number % SHADES.len()] };
    let darker = DARKER_FACTOR.powi((number / SHADES.len()).min(DARKER_STEPS_MAX) as i32);
    let part = |part: u8| {
        let lighter = f64::from(part) * share + 255.0 * (1.0 - share);
        (lighter * darker).round() as u8
    };
    RGBColor(part(red), part(green), part(blue))
}

/// A scheme's name without its parameters.
fn kind(scheme: &str) -> &str {
    scheme.split(':').next().unwrap_or(scheme)
}

/// The text in a column, escaped. Empty if the value is no text.
fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        Value::Text(text) => plain(text),
        _ => String::new(),
    }
}

/// The number in a column, if a logarithmic axis can show it: positive and finite.
fn positive(row: &Row<'_>, column: &str) -> Option<f64> {
    row.number(column).filter(|number| number.is_finite() && *number > 0.0)
}

/// The loads of a table, in order of their first rows.
fn loads(table: &Table) -> Vec<String> {
    let mut loads: Vec<String> = Vec::new();
    for row in rows(table) {
        let load = text(&row, "load");
        if !loads.contains(&load) {
            loads.push(load);
        }
    }
    loads
}

/// Describes a load in the title of a panel.
fn describe_load(load: &str) -> String {
    match load {
        "idle" => "receiving CPU otherwise idle".to_owned(),
        "background" => {
            "a job of the lowest priority on the receiving CPU (load background)".to_owned()
        }
        "busy" => "a job of the receiver's priority on the receiving CPU (load busy)".to_owned(),
        other => format!("load {other}"),
    }
}

/// The rig that carried the events, as a sentence with a trailing space. `None` if the run does not state it.
fn rig(run: &Run) -> Option<String> {
    let rig = run.settings.get("rig")?.as_str()?;
    Some(format!("Rig {}. ", plain(rig)))
}

/// Notes with the warnings of the run about contaminated windows.
fn contamination_notes(run: &Run) -> impl Iterator<Item = String> {
    let warnings = run.warnings.iter().filter(|warning| warning.contains("contaminated"));
    warnings.map(|warning| {
        let warning = plain(warning);
        let first_part = warning.split(" (first row").next().unwrap_or(&warning);
        format!("Warning of the run: {first_part}.")
    })
}

/// The smallest and the largest number. `None` without numbers.
fn range(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.fold(None, |range, number| {
        let (low, high) = range.unwrap_or((number, number));
        Some((low.min(number), high.max(number)))
    })
}

/// The points of a scheme, in ascending order of x.
struct Series {
    scheme: String,
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    x: f64,
    y: f64,
    /// Half the width of the interval of `y`.
    half_width: Option<f64>,
    source: PointSource,
}

/// How a point was measured or computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PointSource {
    Measured,
    ByFormula,
    Simulated,
    OverCapacity,
}

/// The series of the rows, by scheme. `point` makes the point of a row, or `None` to leave the row out. Schemes without
/// points are left out.
fn series<'r>(
    rows: impl Iterator<Item = Row<'r>>,
    schemes: &Schemes,
    point: impl Fn(&Row<'r>) -> Option<Point>,
) -> Vec<Series> {
    let empty_series = |name: &str| Series { scheme: name.to_owned(), points: Vec::new() };
    let mut all: Vec<Series> = schemes.names().map(empty_series).collect();
    for row in rows {
        let scheme = text(&row, "scheme");
        if let Some(series) = all.iter_mut().find(|series| series.scheme == scheme) {
            series.points.extend(point(&row));
        }
    }
    for series in &mut all {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    all.retain(|series| !series.points.is_empty());
    all
}

/// Draws series: lines if `is_joined`, intervals, and marks by the source of each point. If series with intervals are
/// joined, points are moved sideways a little. Points that are compared with a curve are not joined, and stay in place.
fn draw_series(
    chart: &mut Chart<'_>,
    all: &[Series],
    schemes: &Schemes,
    is_joined: bool,
) -> Result<(), Undrawn> {
    let has_interval =
        all.iter().flat_map(|series| &series.points).any(|point| point.half_width.is_some());
    let mut indexed: Vec<(usize, &Series, Look)> = all
        .iter()
        .enumerate()
        .filter_map(|(index, series)| Some((index, series, schemes.look(&series.scheme)?)))
        .collect();
    // The lines with the widest gaps are drawn last, so that lines below them can be seen.
    indexed.sort_by(|a, b| gap_share(a.2).total_cmp(&gap_share(b.2)));
    for (index, series, look) in indexed {
        let sideways = if is_joined && has_interval {
            SIDEWAYS_STEP * (index as f64 - (all.len() - 1) as f64 / 2.0)
        } else {
            0.0
        };
        let moved: Vec<Point> = series
            .points
            .iter()
            .map(|point| Point { x: chart.moved_right(point.x, sideways), ..*point })
            .collect();
        if is_joined {
            let line: Vec<(f64, f64)> = moved.iter().map(|point| (point.x, point.y)).collect();
            chart.line(&line, look, 1.8)?;
        }
        for point in &moved {
            if let Some(half_width) = point.half_width {
                chart.whisker(point.x, (point.y - half_width, point.y + half_width), look)?;
            }
            match point.source {
                PointSource::Measured => chart.mark((point.x, point.y), look, false)?,
                PointSource::Simulated => chart.mark((point.x, point.y), look, true)?,
                PointSource::OverCapacity => chart.cross((point.x, point.y), look)?,
                PointSource::ByFormula => {}
            }
        }
    }
    Ok(())
}

/// The labels at the ends of series.
fn labels<'s>(all: impl Iterator<Item = &'s Series>, schemes: &Schemes) -> Vec<Label> {
    let label = |series: &Series| {
        let (last, look) = (series.points.last()?, schemes.look(&series.scheme)?);
        Some(Label { name: series.scheme.clone(), colour: look.colour, end: (last.x, last.y) })
    };
    all.filter_map(label).collect()
}

/// The scheme with the smallest or largest value at the largest x, with this x and value. `None` if the interval of
/// another scheme overlaps its interval.
fn best(all: &[Series], extreme: Extreme) -> Option<(String, f64, f64)> {
    let (_, largest_x) = range(all.iter().flat_map(|series| &series.points).map(|point| point.x))?;
    let ends = all.iter().filter_map(|series| {
        let point = series.points.last().filter(|point| point.x == largest_x)?;
        (point.source != PointSource::OverCapacity).then_some((series, point))
    });
    let ends: Vec<(&Series, &Point)> = ends.collect();
    let figure = |(_, point): &(&Series, &Point)| match point.source {
        PointSource::ByFormula => Figure::exact(point.y),
        _ => Figure::measured(point.y, point.half_width),
    };
    match candidates(&ends.iter().map(figure).collect::<Vec<_>>(), extreme)[..] {
        [winner] => {
            let (series, point) = ends[winner];
            Some((series.scheme.clone(), point.x, point.y))
        }
        _ => None,
    }
}

/// The costs of the model in words: fitted costs as `C = 3.5 µs`, and costs from the settings as the user wrote them.
/// `None` for a run without costs.
fn costs(run: &Run) -> Option<String> {
    let symbol = |cost: &str| match cost {
        "interrupt" | "interrupt_cost" => Some("C"),
        "tick" | "tick_cost" => Some("C of a tick"),
        "event" | "event_cost" => Some("alpha"),
        _ => None,
    };
    let fitted = run.table("costs").into_iter().flat_map(rows).filter_map(|row| {
        let value = Quantity::Time.text(row.number("value_ns")?);
        Some(format!("{} = {value}", symbol(&text(&row, "cost"))?))
    });
    let configured = ["interrupt_cost", "tick_cost", "event_cost"].into_iter().filter_map(|key| {
        Some(format!("{} = {}", symbol(key)?, plain(run.settings.get(key)?.as_str()?)))
    });
    let costs: Vec<String> = fitted.chain(configured).collect();
    (!costs.is_empty()).then(|| costs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::chart::LINE_PATTERNS;
    use crate::picture::palette::hex;
    use crate::picture::tests::{checked, golden, run_of, table};
    use crate::picture::{NARROW, WIDTH};
    use record::Kind;
    use serde_json::json;

    const RATES: [u64; 4] = [1_000, 5_000, 20_000, 100_000];

    /// A sweep as `signal run` measures it: CPU use under load `background`, latencies under both.
    fn rates(schemes: &[&str]) -> Table {
        rates_within(schemes, 0.001)
    }

    /// As [`rates`], with intervals of this half width as a part of the figure.
    fn rates_within(schemes: &[&str], interval: f64) -> Table {
        let columns = [
            ("load", Kind::Text),
            ("scheme", Kind::Text),
            ("rate_hz", Kind::Uint),
            ("cpu_ratio", Kind::Real),
            ("cpu_ci95_ratio", Kind::Real),
            ("latency_p50_ns", Kind::Uint),
            ("latency_p99_ns", Kind::Uint),
        ];
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for load in ["idle", "background"] {
            for (number, scheme) in schemes.iter().enumerate() {
                for rate_hz in RATES {
                    let cpu = (load == "background")
                        .then(|| 0.001 * (number + 1) as f64 + rate_hz as f64 * 2e-6);
                    let p50_ns = 5_000 * (number as u64 + 1);
                    rows.push(vec![
                        load.into(),
                        (*scheme).into(),
                        rate_hz.into(),
                        cpu.into(),
                        cpu.map(|cpu| cpu * interval).into(),
                        p50_ns.into(),
                        (p50_ns * 9).into(),
                    ]);
                }
            }
        }
        table("rates", &columns, rows)
    }

    /// The model's curves between those points.
    fn curves(schemes: &[&str]) -> Table {
        let columns = [("scheme", Kind::Text), ("rate_hz", Kind::Uint), ("cpu_ratio", Kind::Real)];
        let point = |scheme: &str, step: u64| -> Vec<Value> {
            let rate_hz = 1_000 + step * 4_950;
            vec![scheme.into(), rate_hz.into(), (0.001 + rate_hz as f64 * 2e-6).into()]
        };
        let points_of =
            |scheme: &&str| (0..=20).map(|step| point(scheme, step)).collect::<Vec<_>>();
        table("curves", &columns, schemes.iter().flat_map(points_of).collect())
    }

    const SCHEMES: [&str; 3] = ["interrupt", "drain", "clocked:1ms"];

    #[test]
    fn cpu_use_has_a_curve_and_points_for_each_scheme() {
        let mut run = run_of(vec![rates(&SCHEMES), curves(&SCHEMES)]);
        run.warnings.push("3 of 9 rows have only contaminated windows (first row: x); more".into());
        golden("cpu", cpu(&run, WIDTH));
    }

    #[test]
    fn a_title_names_no_best_scheme_where_intervals_overlap() {
        let overlapping = run_of(vec![rates_within(&SCHEMES, 0.1)]);
        let title = |sheet: Option<crate::picture::Sheet>| sheet.unwrap().heading.title;
        assert_eq!(title(cpu(&overlapping, WIDTH).unwrap()), "CPU use by event rate");
        // Quantiles of a measurement have no intervals.
        assert_eq!(title(latency(&overlapping, WIDTH).unwrap()), "Latency by event rate");
    }

    #[test]
    fn without_a_fit_the_points_are_joined() {
        golden("cpu_without_a_fit", cpu(&run_of(vec![rates(&["spin"])]), WIDTH));
    }

    #[test]
    fn what_has_no_place_on_a_logarithmic_axis_is_counted() {
        let mut table = rates(&["interrupt"]);
        let mut rows = table.rows().to_vec();
        rows[4][3] = Value::Real(-0.002);
        let columns = table.columns.clone();
        table = Table::new("rates", "For a test.", columns);
        rows.into_iter().for_each(|row| table.push(row));
        golden("cpu_below_zero", cpu(&run_of(vec![table]), WIDTH));
    }

    #[test]
    fn latencies_have_two_panels_for_each_load() {
        golden("latency", latency(&run_of(vec![rates(&SCHEMES)]), WIDTH));
    }

    #[test]
    fn names_are_text_and_many_are_left_out() {
        let names: Vec<String> = (0..40).map(|index| format!("clocked:<{index}>&\"'us")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let run = run_of(vec![rates(&names), curves(&names)]);
        golden("cpu_of_many_schemes", cpu(&run, WIDTH));
        golden("latency_of_many_schemes", latency(&run, WIDTH));
        checked(&latency(&run, WIDTH).unwrap().expect("a picture").file());
    }

    #[test]
    fn computed_rows_show_how_they_were_computed() {
        let columns = [
            ("rate_hz", Kind::Uint),
            ("scheme", Kind::Text),
            ("method", Kind::Text),
            ("cpu_ratio", Kind::Real),
            ("is_over_capacity", Kind::Bool),
        ];
        let row = |rate_hz: u64, method: &str, cpu: f64, over: bool| -> Vec<Value> {
            vec![rate_hz.into(), "spin".into(), method.into(), cpu.into(), over.into()]
        };
        let rows = vec![
            row(1_000, "closed-form", 0.1, false),
            row(2_000, "simulation", 0.2, false),
            row(5_000, "simulation", 0.5, false),
            row(10_000, "simulation", 1.0, true),
        ];
        let mut run = run_of(vec![table("model", &columns, rows)]);
        run.settings.insert("interrupt_cost".into(), json!("4us"));
        golden("cpu_computed", cpu(&run, WIDTH));
    }

    #[test]
    fn schemes_of_a_kind_have_looks_of_their_own() {
        let names: Vec<String> = (1..=9).map(|ms| format!("clocked:{ms}ms")).collect();
        let looks = looks_of(names.iter().chain(&["spin".to_owned()]).cloned().collect());
        let all: Vec<&Look> = looks.values().collect();
        for (index, look) in all.iter().enumerate() {
            let others = &all[..index];
            assert!(others.iter().all(|other| other.colour != look.colour), "{look:?}");
        }
    }

    #[test]
    fn kinds_of_schemes_have_patterns_of_their_own() {
        let looks = looks_of(KIND_COLOURS.iter().map(|(kind, _)| (*kind).to_owned()).collect());
        let patterns: BTreeSet<usize> =
            looks.values().map(|look| look.pattern % LINE_PATTERNS).collect();
        assert_eq!(patterns.len(), KIND_COLOURS.len());
        assert_eq!(looks["interrupt"], Look { colour: VERMILION, pattern: 0 });
    }

    #[test]
    fn a_scheme_has_one_look_in_all_pictures_of_a_run() {
        // The latency table leaves out schemes that the other tables have.
        let mut run = run_of(vec![rates(&["clocked:2ms", "hybrid"])]);
        let columns = [
            ("rate_hz", Kind::Uint),
            ("scheme", Kind::Text),
            ("bound_from_ns", Kind::Real),
            ("bound_to_ns", Kind::Real),
        ];
        let row = |rate_hz: u64, scheme: &str, from: f64, to: f64| -> Vec<Value> {
            vec![rate_hz.into(), scheme.into(), from.into(), to.into()]
        };
        let region_rows = [1_000, 9_000, 90_000].iter().flat_map(|rate_hz| {
            [
                row(*rate_hz, "hybrid", 1e3, 1e5),
                row(*rate_hz, "clocked:1ms", 1e5, 1e7),
                row(*rate_hz, "clocked:2ms", 1e7, 1e9),
            ]
        });
        run.tables.push(table("regions", &columns, region_rows.collect()));
        let schemes = Schemes::new(&run, ["clocked:2ms", "hybrid"].map(str::to_owned).into_iter());
        let second = Look { colour: shade(GREEN, 1), pattern: 5 };
        assert_eq!(schemes.look("clocked:2ms"), Some(second));
        for sheet in [cpu(&run, WIDTH), latency(&run, WIDTH), regions(&run, WIDTH)] {
            let svg = sheet.unwrap().unwrap().file();
            for colour in [BLACK, second.colour] {
                assert!(svg.contains(&hex(colour)), "{colour:?}");
            }
        }
    }

    #[test]
    fn throughput_has_a_panel_for_each_load() {
        let columns = [
            ("load", Kind::Text),
            ("scheme", Kind::Text),
            ("socket_buffer_bytes", Kind::Uint),
            ("throughput_bytes_per_second", Kind::Real),
            ("throughput_ci95_bytes_per_second", Kind::Real),
        ];
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for load in ["idle", "busy"] {
            for scheme in SCHEMES {
                for kib in [1_u64, 16, 256] {
                    let rate = kib as f64 * 1e6;
                    rows.push(vec![
                        load.into(),
                        scheme.into(),
                        (kib * 1024).into(),
                        rate.into(),
                        (rate * 3.0).into(),
                    ]);
                }
            }
        }
        let run = run_of(vec![table("throughput", &columns, rows)]);
        golden("throughput", throughput(&run, WIDTH));
        golden("throughput_narrow", throughput(&run, NARROW));
    }

    #[test]
    fn a_papers_tables_are_next_to_the_measured_ones() {
        let columns = [
            ("table", Kind::Uint),
            ("load", Kind::Text),
            ("socket_buffer_bytes", Kind::Uint),
            ("scheme", Kind::Text),
            ("published_to_interrupt_ratio", Kind::Real),
            ("measured_to_interrupt_ratio", Kind::Real),
        ];
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for number in 1..=3_u64 {
            for kib in [1_u64, 16, 256] {
                for (scheme, factor) in [("drain", 1.0), ("clocked:1ms", 2.5)] {
                    // Not measured for one size.
                    let here = (kib != 16).then_some(factor * 0.8);
                    rows.push(vec![
                        number.into(),
                        "idle".into(),
                        (kib * 1024).into(),
                        scheme.into(),
                        factor.into(),
                        here.into(),
                    ]);
                }
            }
        }
        golden("paper", paper(&run_of(vec![table("paper", &columns, rows)]), WIDTH));
        assert_eq!(paper(&run_of(vec![]), WIDTH).unwrap(), None);
    }

    #[test]
    fn regions_are_areas_with_names() {
        let columns = [
            ("rate_hz", Kind::Uint),
            ("scheme", Kind::Text),
            ("bound_from_ns", Kind::Real),
            ("bound_to_ns", Kind::Real),
            ("statistic", Kind::Text),
            ("method", Kind::Text),
        ];
        let row = |rate_hz: u64, scheme: &str, from: f64, to: Option<f64>| -> Vec<Value> {
            let labels = ["p99", "closed-form"].map(Value::from);
            let numbers = [rate_hz.into(), scheme.into(), from.into(), to.into()];
            numbers.into_iter().chain(labels).collect()
        };
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for step in 0..30_u32 {
            let rate_hz = 1_000 * u64::from(step + 1);
            rows.push(row(rate_hz, "spin", 1e3, Some(5e4)));
            // Another scheme wins at high rates.
            let slow = if step < 20 { "drain" } else { "clocked:1ms" };
            rows.push(row(rate_hz, slow, 5e4, None));
        }
        let mut run = run_of(vec![table("regions", &columns, rows)]);
        run.settings.insert("latency_bound_ns".into(), json!(200_000));
        golden("regions", regions(&run, WIDTH));
    }

    #[test]
    fn one_rate_or_none_is_no_picture() {
        let mut single = rates(&["spin"]);
        let rows: Vec<Vec<Value>> =
            single.rows().iter().filter(|row| row[2] == 1_000.into()).cloned().collect();
        single = Table::new("rates", "For a test.", single.columns.clone());
        rows.into_iter().for_each(|row| single.push(row));
        for run in [run_of(vec![single]), run_of(vec![rates(&[])]), run_of(vec![])] {
            for svg in [
                cpu(&run, WIDTH),
                latency(&run, WIDTH),
                throughput(&run, WIDTH),
                regions(&run, WIDTH),
            ] {
                assert_eq!(svg.unwrap(), None);
            }
        }
    }
}
