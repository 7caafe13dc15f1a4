//! The picture `scale` of `noise scale`: the slowdown of a parallel job by its number of nodes, on logarithmic axes. A
//! line for each time between two barriers.

use record::{Run, Value};

use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Label, Look, room_for};
use crate::picture::palette::SERIES;
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn, draw};

/// Height of the picture without its heading, pixels.
const HEIGHT: f64 = 320.0;
/// Maximum number of lines.
const LINES_MAX: usize = SERIES.len();
/// The vertical axis reaches at most this factor below the largest slowdown.
const AXIS_FACTOR_MAX: f64 = 1e6;

/// A slowdown of a number of nodes.
struct Point {
    nodes: f64,
    slowdown: f64,
    is_lower_bound: bool,
}

/// The slowdowns with one time between two barriers, by ascending number of nodes.
struct Line {
    granularity_ns: f64,
    /// The context whose detours are left out. Empty: none is.
    without: String,
    /// The label: the time between two barriers, and the context that is left out.
    name: String,
    points: Vec<Point>,
}

/// The lines of nodes with independent detours, in the order of table `scale`. Empty without the table.
fn lines_of(run: &Run) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in run.table("scale").into_iter().flat_map(rows) {
        let (Some(granularity_ns), Some(nodes), Some(slowdown)) =
            (row.number("granularity_ns"), row.number("node_count"), row.number("slowdown_ratio"))
        else {
            continue;
        };
        if !row.has_text("detour_times", "independent") || nodes < 1.0 || slowdown <= 0.0 {
            continue;
        }
        let is_lower_bound = *row.get("is_lower_bound") == Value::Bool(true);
        let point = Point { nodes, slowdown, is_lower_bound };
        let without = match row.get("without") {
            Value::Text(context) => context.clone(),
            _ => String::new(),
        };
        let is_its_line =
            |line: &&mut Line| line.granularity_ns == granularity_ns && line.without == without;
        match lines.iter_mut().find(is_its_line) {
            Some(line) => line.points.push(point),
            None => {
                let (name, points) = (String::new(), vec![point]);
                lines.push(Line { granularity_ns, without, name, points });
            }
        }
    }
    let granularities: Vec<f64> = lines.iter().map(|line| line.granularity_ns).collect();
    let granularity_texts = Quantity::Time.distinct_texts(&granularities);
    for (line, granularity) in lines.iter_mut().zip(granularity_texts) {
        line.name = match line.without.as_str() {
            "" => granularity,
            context => format!("{granularity} without {context}"),
        };
        line.points.sort_by(|a, b| a.nodes.total_cmp(&b.nodes));
    }
    lines
}

/// The picture of table `scale`. `None` for a run without slowdowns.
pub fn scale(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let all_lines = lines_of(run);
    let lines = &all_lines[..all_lines.len().min(LINES_MAX)];
    let points = || lines.iter().flat_map(|line| &line.points);
    if points().next().is_none() {
        return Ok(None);
    }
    let mut notes = vec![
        "A line for each time of work between two barriers. Each node has its detours at its own times. Open marks: \
         lower bounds, because detours longer than all measured ones would matter."
            .to_owned(),
    ];
    let (drawn_count, line_count) = (lines.len(), all_lines.len());
    if line_count > drawn_count {
        notes.push(format!("Drawn are {drawn_count} of {line_count} lines; see table scale."));
    }
    let heading = Heading {
        title: "Slowdown of a parallel job by the measured detours".to_owned(),
        notes,
        description: "A line for each time between barriers: the slowdown by the number of nodes. The numbers are in \
                      table scale of the run."
            .to_owned(),
        ..Heading::default()
    };
    let smallest_and_largest = |value: fn(&Point) -> f64| {
        let values = || points().map(value);
        (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
    };
    let (nodes_min, nodes_max) = smallest_and_largest(|point| point.nodes);
    let (slowdown_min, slowdown_max) = smallest_and_largest(|point| point.slowdown);
    let x = Axis::logarithmic("nodes", Quantity::Count, nodes_min, nodes_max);
    let y_min = slowdown_min.max(slowdown_max / AXIS_FACTOR_MAX) / 1.5;
    let y = Axis::logarithmic("slowdown", Quantity::Share, y_min, slowdown_max * 1.5);
    let sheet = draw(&heading, width, HEIGHT, |area| {
        let right = room_for(lines.iter().map(|line| line.name.as_str()));
        let mut chart = Chart::new(area, "", [&x, &y], right)?;
        let mut labels = Vec::new();
        for (number, (line, colour)) in lines.iter().zip(SERIES).enumerate() {
            let look = Look { colour, pattern: number };
            let points: Vec<(f64, f64)> =
                line.points.iter().map(|point| (point.nodes, point.slowdown)).collect();
            chart.line(&points, look, 1.8)?;
            for (point, position) in line.points.iter().zip(&points) {
                chart.mark(*position, look, point.is_lower_bound)?;
            }
            if let Some(&end) = points.last() {
                labels.push(Label { name: line.name.clone(), colour, end });
            }
        }
        chart.label_ends(&labels)
    })?;
    Ok(Some(sheet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{golden, run_of, table};
    use record::Kind;

    #[test]
    fn a_line_for_each_time_between_barriers() {
        let columns = [
            ("granularity_ns", Kind::Uint),
            ("detour_times", Kind::Text),
            ("node_count", Kind::Uint),
            ("slowdown_ratio", Kind::Real),
            ("is_lower_bound", Kind::Bool),
        ];
        let row = |granularity_ns: u64, times: &str, nodes: u64, slowdown: f64, bound: bool| {
            vec![granularity_ns.into(), times.into(), nodes.into(), slowdown.into(), bound.into()]
        };
        let rows = vec![
            row(100_000, "independent", 1, 0.002, false),
            row(100_000, "independent", 4_096, 0.8, false),
            row(100_000, "independent", 1_048_576, 6.0, true),
            row(100_000, "coscheduled", 1_048_576, 0.002, false),
            row(10_000_000, "independent", 1, 0.002, false),
            row(10_000_000, "independent", 1_048_576, 0.07, true),
        ];
        let mut left_out = rows.clone();
        left_out.iter_mut().for_each(|row| row.push(Value::Absent));
        let whole = left_out.len();
        left_out.extend_from_within(..2);
        left_out[whole..].iter_mut().for_each(|row| row[5] = "local_timer".into());
        let with_context: Vec<_> = columns.into_iter().chain([("without", Kind::Text)]).collect();
        let left_out_lines = lines_of(&run_of(vec![table("scale", &with_context, left_out)]));
        let names: Vec<&str> = left_out_lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["100 µs", "10.0 ms", "100 µs without local_timer"]);
        let mut close = rows.clone();
        close.push(row(100_001, "independent", 4_096, 0.9, false));
        let close_lines = lines_of(&run_of(vec![table("scale", &columns, close)]));
        let names: Vec<&str> = close_lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["100 µs", "10.0 ms", "100.001 µs"]);
        let run = run_of(vec![table("scale", &columns, rows)]);
        golden("scale", scale(&run, WIDTH));
        golden("scale_narrow", scale(&run, NARROW));
        assert_eq!(scale(&run_of(vec![]), WIDTH).unwrap(), None);
    }
}
