//! Pictures of a run, as SVG: what each repetition took against when it began (the figures of paper
//! `noise-t1`), a panel for each CPU, peaks in the colour of their cause.

use record::{Run, Table, Value};

use crate::escape::plain;
use crate::human;
use crate::view::Row;

const WIDTH: f64 = 960.0;
const PANEL: f64 = 260.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 40.0;
/// Height of the plot in a panel.
const HEIGHT: f64 = PANEL - TOP - BOTTOM;
/// Most panels: a picture of more is none.
const PANELS_MAX: usize = 64;
/// A repetition is a peak, and has the colour of its cause, when it took so much more than the
/// least.
const PEAK: f64 = 1.02;
/// Colours that people with any sight of colours tell apart (Okabe and Ito, 2008), for the causes
/// that took most; the others share the last.
const COLOURS: [&str; 7] =
    ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666"];
const QUIET: &str = "#bbbbbb";
const UNNAMED: &str = "#000000";

/// A repetition: begin and time in ns, and who took most of it.
struct Point {
    start_ns: f64,
    time_ns: f64,
    cause: Option<String>,
}

/// The picture of table `repetitions`; none for a run without one.
#[must_use]
pub fn repetitions_svg(run: &Run) -> Option<String> {
    let table = run.table("repetitions")?;
    let mut cpus: Vec<String> = rows(table).map(|row| row.cell("cpu")).collect();
    cpus.dedup();
    cpus.truncate(PANELS_MAX);
    if cpus.is_empty() {
        return None;
    }
    let causes = dearest(table);
    let legend = 20.0 * (causes.len() + 2) as f64;
    let height = PANEL * cpus.len() as f64 + legend + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, cpu) in cpus.iter().enumerate() {
        let points: Vec<Point> = rows(table)
            .filter(|row| row.cell("cpu") == *cpu)
            .filter_map(|row| point(&row))
            .collect();
        svg += &panel(cpu, &points, &causes, PANEL * at as f64);
    }
    svg += &legend_of(&causes, PANEL * cpus.len() as f64 + 15.0);
    svg += "</svg>\n";
    Some(svg)
}

fn rows(table: &Table) -> impl Iterator<Item = Row<'_>> {
    table.rows().iter().map(move |values| Row::new(table, values))
}

fn point(row: &Row<'_>) -> Option<Point> {
    let cause = match row.get("main_name") {
        Value::Text(name) => Some(plain(name)),
        _ => None,
    };
    Some(Point { start_ns: row.number("start_ns")?, time_ns: row.number("time_ns")?, cause })
}

/// The causes that took most, the dearest first: one for each colour but the last.
fn dearest(table: &Table) -> Vec<String> {
    let mut sums: Vec<(String, f64)> = Vec::new();
    for row in rows(table) {
        let (Some(named), Some(point)) = (row.number("named_ns"), point(&row)) else { continue };
        let Some(cause) = point.cause else { continue };
        match sums.iter_mut().find(|(name, _)| *name == cause) {
            Some((_, sum)) => *sum += named,
            None => sums.push((cause, named)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums.truncate(COLOURS.len() - 1);
    sums.into_iter().map(|(name, _)| name).collect()
}

fn colour(cause: Option<&str>, causes: &[String]) -> &'static str {
    let Some(cause) = cause else { return UNNAMED };
    let at = causes.iter().position(|one| one == cause).unwrap_or(COLOURS.len() - 1);
    COLOURS[at.min(COLOURS.len() - 1)]
}

fn panel(cpu: &str, points: &[Point], causes: &[String], top: f64) -> String {
    let most = |of: fn(&Point) -> f64| points.iter().map(of).fold(1.0, f64::max);
    let least_ns = points.iter().map(|point| point.time_ns).fold(f64::INFINITY, f64::min);
    let (last_ns, most_ns) = (most(|point| point.start_ns), most(|point| point.time_ns));
    let (floor, plot) = (top + TOP + HEIGHT, WIDTH - LEFT - RIGHT);
    let x = |start_ns: f64| LEFT + plot * start_ns / last_ns;
    // By the logarithm: a peak may be a hundred times what is usual.
    let (low, high) = ((least_ns * 0.95).max(1.0).ln(), (most_ns * 1.05).ln());
    let y = |ns: f64| floor - HEIGHT * ((ns.max(1.0).ln() - low) / (high - low).max(1e-9));
    let mut svg = format!(
        "<text x=\"{LEFT}\" y=\"{:.1}\">CPU {}: time of each repetition (logarithmic) against when it \
         began</text>\n",
        top + 18.0,
        xml(cpu)
    );
    for point in points {
        let is_peak = point.time_ns > least_ns * PEAK;
        let colour = if is_peak { colour(point.cause.as_deref(), causes) } else { QUIET };
        let (x, y) = (x(point.start_ns), y(point.time_ns));
        if is_peak {
            svg += &format!(
                "<path d=\"M{x:.1} {floor:.1}V{y:.1}\" stroke=\"{colour}\" stroke-width=\"1\"/>\n"
            );
        } else {
            svg += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1\" fill=\"{colour}\"/>\n");
        }
    }
    for ns in [least_ns, most_ns] {
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 6.0,
            y(ns) + 4.0,
            human::ns(ns)
        );
    }
    svg + &format!(
        "<path d=\"M{LEFT} {:.1}V{floor:.1}H{:.1}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{LEFT}\" y=\"{:.1}\">0</text>\n\
         <text x=\"{:.1}\" y=\"{2:.1}\" text-anchor=\"end\">{}</text>\n",
        top + TOP,
        WIDTH - RIGHT,
        floor + 16.0,
        WIDTH - RIGHT,
        human::ns(last_ns)
    )
}

fn legend_of(causes: &[String], top: f64) -> String {
    let named = causes.iter().zip(COLOURS).map(|(name, colour)| (name.as_str(), colour));
    let rest = [("other causes", COLOURS[COLOURS.len() - 1]), ("no cause named", UNNAMED)];
    let line = |(at, (name, colour)): (usize, (&str, &str))| {
        let y = top + 20.0 * at as f64;
        format!(
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            LEFT + 18.0,
            y + 11.0,
            xml(name)
        )
    };
    named.chain(rest).enumerate().map(line).collect()
}

/// Text between tags.
fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Column, Kind};
    use serde_json::Map;

    fn run(points: &[(u64, u64, Option<&str>)]) -> Run {
        let column = |name: &str, kind| Column::new(name, kind, "For a test.");
        let columns = vec![
            column("cpu", Kind::Uint),
            column("start_ns", Kind::Uint),
            column("time_ns", Kind::Uint),
            column("named_ns", Kind::Uint),
            column("main_name", Kind::Text),
        ];
        let mut table = Table::new("repetitions", "For a test.", columns);
        for &(start_ns, time_ns, cause) in points {
            let named = cause.map(|_| time_ns - 100);
            table.push(vec![
                3_u64.into(),
                start_ns.into(),
                time_ns.into(),
                named.into(),
                cause.into(),
            ]);
        }
        Run {
            schema: record::SCHEMA.to_owned(),
            experiment: "noise".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::new(),
            settings: Map::new(),
            observer: Map::new(),
            warnings: vec![],
            absent: vec![],
            tables: vec![table],
        }
    }

    #[test]
    fn peaks_have_the_colour_of_their_cause_and_names_are_text() {
        let peaks =
            [(0, 100, None), (100, 900, Some("a<b>&c")), (200, 500, None), (300, 101, None)];
        let svg = repetitions_svg(&run(&peaks)).expect("a picture");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches(&format!("stroke=\"{}\"", COLOURS[0])).count(), 1);
        assert_eq!(svg.matches(&format!("stroke=\"{UNNAMED}\"")).count(), 1);
        assert!(svg.contains(">a&lt;b&gt;&amp;c</text>") && svg.contains("CPU 3"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn one_repetition_is_a_picture_and_none_is_not() {
        let svg = repetitions_svg(&run(&[(0, 0, None)])).expect("a picture");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(repetitions_svg(&run(&[])), None);
    }
}
