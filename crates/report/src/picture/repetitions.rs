//! The duration of each quantum of fixed work against its start time (the figures of paper
//! `noise-t1`), a panel for each CPU, peaks in the colour of their cause.

use record::Run;

use super::frame::{
    BOTTOM_Y, Causes, LEFT, PLOT, QUIET, Scale, axes, cpus, name_of, picture, rows, text,
};
use crate::human;
use crate::row::Row;

/// A quantum is a peak, and has the colour of its cause, when it took so many times the minimum.
const PEAK: f64 = 1.02;

/// A quantum: start and duration in ns, and what took most of the time lost in it.
struct Point {
    start_ns: f64,
    time_ns: f64,
    cause: Option<String>,
}

/// The picture of table `fwq_quanta`; none for a run without one.
#[must_use]
pub fn repetitions_svg(run: &Run) -> Option<String> {
    let table = run.table("fwq_quanta")?;
    let causes = Causes::largest(rows(table).filter_map(|row| {
        let cause = name_of(&row, "largest_name")?;
        Some((cause, row.number("attributed_ns")?))
    }));
    let panel = |cpu: &str, top: f64| {
        let of_cpu = rows(table).filter(|row| row.alone("cpu") == cpu);
        let points: Vec<Point> = of_cpu.filter_map(|row| point(&row)).collect();
        panel(cpu, &points, &causes, top)
    };
    picture(&cpus(table), Some((&causes, "within 2 % of the minimum")), panel)
}

fn point(row: &Row<'_>) -> Option<Point> {
    let cause = name_of(row, "largest_name");
    Some(Point { start_ns: row.number("start_ns")?, time_ns: row.number("duration_ns")?, cause })
}

fn panel(cpu: &str, points: &[Point], causes: &Causes, top: f64) -> String {
    let most = |of: fn(&Point) -> f64| points.iter().map(of).fold(1.0, f64::max);
    let least_ns = points.iter().map(|point| point.time_ns).fold(f64::INFINITY, f64::min);
    let (last_ns, most_ns) = (most(|point| point.start_ns), most(|point| point.time_ns));
    let floor = top + BOTTOM_Y;
    let x = |start_ns: f64| LEFT + PLOT * start_ns / last_ns;
    // Logarithmic: a peak may be a hundred times the usual duration.
    let y = Scale::logarithmic(least_ns * 0.95, most_ns * 1.05);
    let title = format!("CPU {cpu}: duration of each quantum of fixed work (FWQ)");
    let mut svg = axes(top, &title, ["start time", "duration (logarithmic)"]);
    for point in points {
        let is_peak = point.time_ns > least_ns * PEAK;
        let colour = if is_peak { causes.colour(point.cause.as_deref()) } else { QUIET };
        let (x, y) = (x(point.start_ns), y.up(floor, point.time_ns));
        if is_peak {
            svg += &format!(
                "<path d=\"M{x:.1} {floor:.1}V{y:.1}\" stroke=\"{colour}\" stroke-width=\"1\"/>\n"
            );
        } else {
            svg += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1\" fill=\"{colour}\"/>\n");
        }
    }
    for ns in [least_ns, most_ns] {
        svg += &text(LEFT - 6.0, y.up(floor, ns) + 4.0, "end", &human::ns(ns));
    }
    svg += &text(LEFT, floor + 16.0, "start", "0");
    svg + &text(LEFT + PLOT, floor + 16.0, "end", &human::ns(last_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::frame::{COLOURS, UNNAMED};
    use record::{Column, Kind, Table};
    use serde_json::Map;

    fn run(points: &[(u64, u64, Option<&str>)]) -> Run {
        let column = |name: &str, kind| Column::new(name, kind, "For a test.");
        let columns = vec![
            column("cpu", Kind::Uint),
            column("start_ns", Kind::Uint),
            column("duration_ns", Kind::Uint),
            column("attributed_ns", Kind::Uint),
            column("largest_name", Kind::Text),
        ];
        let mut table = Table::new("fwq_quanta", "For a test.", columns);
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
