//! The picture `repetitions` of `noise` (`--picture`): the duration of each quantum of fixed work against its start,
//! as in the figures of the paper `noise-t1`. Peaks have the colour of their cause.

use std::collections::BTreeMap;

use plotters::style::Color;
use record::{Run, Value};

use super::causes::{Causes, KINDS, colour, draw_cpus, name_in};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, room_for};
use crate::picture::palette::PALE;
use crate::picture::rows;
use crate::picture::sheet::{Area, Heading, Sheet, Undrawn};
use crate::row::Row;

/// A quantum is a peak if it took more than this multiple of its CPU's [`Reference`].
const PEAK_FACTOR: f64 = 1.02;
/// Width and height of a cell, pixels. All quanta in a cell are drawn as one mark.
const CELL_SIZE: f64 = 4.0;

/// A quantum.
struct Quantum {
    start_ns: f64,
    duration_ns: f64,
    /// Kind of the cause that took most of the time lost in it. `None`: the quantum is no peak.
    kind: Option<usize>,
}

/// How long a quantum of a CPU takes without interference: the duration with which pictures compare.
#[derive(Clone, Copy, Debug)]
struct Reference {
    /// Duration of the shortest quantum, ns.
    shortest_ns: f64,
    /// The shortest duration without the time of kernel events, ns. `None` without tracing.
    own_ns: Option<f64>,
    /// Whether the shortest quantum has interference.
    is_disturbed: bool,
}

impl Reference {
    /// The duration with which quanta are compared, ns.
    fn compared_ns(self) -> f64 {
        let own_ns = if self.is_disturbed { self.own_ns } else { None };
        own_ns.unwrap_or(self.shortest_ns)
    }

    /// The earlier reference or `other`, whichever is shorter.
    fn shorter(self, other: Reference) -> Reference {
        let own_ns = match (self.own_ns, other.own_ns) {
            (Some(own_ns), Some(other_ns)) => Some(own_ns.min(other_ns)),
            (own_ns, other_ns) => own_ns.or(other_ns),
        };
        let shortest_ns = self.shortest_ns.min(other.shortest_ns);
        Reference { shortest_ns, own_ns, is_disturbed: self.is_disturbed || other.is_disturbed }
    }
}

/// The picture of table `fwq_quanta`. `None` for a run without this table.
pub fn repetitions(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("fwq_quanta") else { return Ok(None) };
    let causes = Causes::of_run(run);
    let mut references: BTreeMap<String, Reference> = BTreeMap::new();
    for row in rows(table) {
        let Some(shortest_ns) = row.number("duration_ns") else { continue };
        let own_ns = row.number("attributed_ns").map(|taken_ns| shortest_ns - taken_ns);
        let of_row = Reference { shortest_ns, own_ns, is_disturbed: false };
        let reference = references.entry(row.value_text("cpu")).or_insert(of_row);
        *reference = reference.shorter(of_row);
    }
    // Table `fwq` has the exact extremes of all quanta, table `fwq_quanta` only the first quanta.
    let (mut longest_of_all, mut quantum_count) = (0.0_f64, 0.0_f64);
    for row in run.table("fwq").into_iter().flat_map(rows) {
        let Some(reference) = references.get_mut(&row.value_text("cpu")) else { continue };
        let shortest_ns = row.number("min_ns").unwrap_or(reference.shortest_ns);
        let is_disturbed = *row.get("is_lower_bound") == Value::Bool(true);
        *reference = reference.shorter(Reference { shortest_ns, own_ns: None, is_disturbed });
        longest_of_all = longest_of_all.max(row.number("max_ns").unwrap_or(0.0));
        quantum_count += row.number("quantum_count").unwrap_or(0.0);
    }
    let mut quanta: BTreeMap<String, Vec<Quantum>> = BTreeMap::new();
    let (mut used, mut longest, mut last_start_ns) = ([false; KINDS], 0.0_f64, 0.0_f64);
    for row in rows(table) {
        let cpu = row.value_text("cpu");
        let compared_ns = references.get(&cpu).map_or(0.0, |reference| reference.compared_ns());
        let Some(quantum) = quantum(&row, compared_ns, &causes) else { continue };
        longest = longest.max(quantum.duration_ns);
        last_start_ns = last_start_ns.max(quantum.start_ns);
        quantum.kind.into_iter().for_each(|kind| used[kind] = true);
        quanta.entry(cpu).or_default().push(quantum);
    }
    let mut notes = vec![
        "A quantum that took more than 2 % longer than the shortest of its CPU has a stem, in the \
         colour of what took most of the time lost in it."
            .to_owned(),
    ];
    notes.extend(note_on_disturbed(&references));
    let drawn_count: usize = quanta.values().map(Vec::len).sum();
    if quantum_count > drawn_count as f64 {
        let without_longest = if longest_of_all > longest { ", without the longest" } else { "" };
        notes.push(format!(
            "Only the first {} of {} quanta are drawn{without_longest}.",
            crate::human::count(drawn_count as u64),
            crate::human::count(quantum_count as u64),
        ));
    }
    let heading = Heading {
        title: format!(
            "Duration of each quantum of fixed work (FWQ), up to {}",
            Quantity::Time.text(longest.max(longest_of_all))
        ),
        notes,
        legend: causes.legend("within 2 % of the minimum", &used),
        description: "The duration of each quantum of fixed work against its start. ".to_owned(),
    };
    let x = Axis::linear_to("start of the quantum", Quantity::Time, last_start_ns);
    // A peak may be a hundred times the usual duration.
    let shortest =
        references.values().map(|reference| reference.shortest_ns).fold(f64::INFINITY, f64::min);
    let y = Axis::logarithmic("duration", Quantity::Time, shortest, longest);
    draw_cpus(heading, table, width, |area, cpu| {
        panel(area, cpu, [&x, &y], quanta.get(cpu).map_or(&[], Vec::as_slice))
    })
}

/// Names the CPUs whose shortest quantum has interference. `None` without any.
fn note_on_disturbed(references: &BTreeMap<String, Reference>) -> Option<String> {
    let disturbed = references.iter().filter(|(_, reference)| reference.is_disturbed);
    let (cpus, known): (Vec<&str>, Vec<bool>) =
        disturbed.map(|(cpu, reference)| (cpu.as_str(), reference.own_ns.is_some())).unzip();
    let compared = if known.iter().all(|is_known| *is_known) {
        "its quanta are compared with the shortest time without that of kernel events"
    } else {
        "its pale quanta have interference, too"
    };
    let cpus = cpus.join(", ");
    (!cpus.is_empty())
        .then(|| format!("CPU {cpus}: also the shortest quantum has interference; {compared}."))
}

/// The quantum of a row. `None` if its start or duration is absent. `compared_ns`: the duration with which the picture
/// compares, see [`Reference`].
fn quantum(row: &Row<'_>, compared_ns: f64, causes: &Causes) -> Option<Quantum> {
    let (start_ns, duration_ns) = (row.number("start_ns")?, row.number("duration_ns")?);
    let cause = name_in(row, "largest_name");
    let is_peak = duration_ns > compared_ns * PEAK_FACTOR;
    Some(Quantum { start_ns, duration_ns, kind: is_peak.then(|| causes.kind(cause.as_deref())) })
}

/// Duration (ns) and kind of the longest quantum in a cell. `None` if the cell has no quantum.
type Cell = Option<(f64, Option<usize>)>;

/// Draws the panel of a CPU, with the axes of all CPUs. The plot is a grid of cells, column by column from below.
fn panel(
    area: &Area<'_>,
    cpu: &str,
    [x, y]: [&Axis; 2],
    quanta: &[Quantum],
) -> Result<(), Undrawn> {
    let right = room_for(std::iter::empty());
    let mut chart = Chart::new(area, &format!("CPU {cpu}"), [x, y], right)?;
    let (width, height) = chart.size();
    let cell_count = |length: f64| ((length / CELL_SIZE).floor() as usize).max(1);
    let (columns, lines) = (cell_count(width), cell_count(height));
    let cell_index = |share: f64, count: usize| ((share * count as f64) as usize).min(count - 1);
    let mut grid: Vec<Cell> = vec![None; columns * lines];
    for quantum in quanta {
        let column = cell_index(x.share(quantum.start_ns), columns);
        let cell = &mut grid[column * lines + cell_index(y.share(quantum.duration_ns), lines)];
        if cell.is_none_or(|(duration_ns, _)| duration_ns < quantum.duration_ns) {
            *cell = Some((quantum.duration_ns, quantum.kind));
        }
    }
    let edge = |axis: &Axis, cell: usize, count: usize| axis.value_at(cell as f64 / count as f64);
    for (column, cells) in grid.chunks(lines).enumerate() {
        // The longest peak of the column gets a stem, drawn before the marks so that they are on top.
        if let Some((duration_ns, Some(kind))) = cells.iter().rev().flatten().next() {
            let middle = x.value_at((column as f64 + 0.5) / columns as f64);
            let stem = colour(*kind).mix(0.45).stroke_width(4);
            chart.stroke(&[(middle, y.ends().0), (middle, *duration_ns)], stem)?;
        }
        // Neighbouring cells of one kind are drawn as one block.
        let mut first_line = 0;
        for same_kind in
            cells.chunk_by(|cell, next| cell.map(|(_, kind)| kind) == next.map(|(_, kind)| kind))
        {
            let end_line = first_line + same_kind.len();
            let corners = [
                (edge(x, column, columns), edge(y, first_line, lines)),
                (edge(x, column + 1, columns), edge(y, end_line, lines)),
            ];
            first_line = end_line;
            let Some((_, kind)) = same_kind[0] else { continue };
            chart.block(corners, kind.map_or(PALE, colour).filled())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::WIDTH;
    use crate::picture::tests::{checked, golden, run_of, table};
    use record::Kind;

    /// A run of CPU 3 with quanta from start, duration, and cause.
    fn run(points: impl IntoIterator<Item = (u64, u64, Option<String>)>) -> Run {
        let columns = [
            ("cpu", Kind::Uint),
            ("start_ns", Kind::Uint),
            ("duration_ns", Kind::Uint),
            ("attributed_ns", Kind::Uint),
            ("largest_name", Kind::Text),
        ];
        let row = |(start_ns, time_ns, cause): (u64, u64, Option<String>)| -> Vec<Value> {
            let named = cause.as_ref().map(|_| time_ns - 100);
            let cause = cause.map_or(Value::Absent, Value::from);
            vec![3_u64.into(), start_ns.into(), time_ns.into(), named.into(), cause]
        };
        run_of(vec![table("fwq_quanta", &columns, points.into_iter().map(row).collect())])
    }

    fn drawn(run: &Run) -> String {
        repetitions(run, WIDTH).unwrap().expect("a picture").file()
    }

    #[test]
    fn peaks_have_the_colour_of_their_cause_and_names_are_text() {
        let named = Some("a<b>&\"c\"\u{1b}\u{ffff}".to_owned());
        let peaks = [(0, 100, None), (100, 900, named), (200, 500, None), (300, 101, None)];
        golden("repetitions", repetitions(&run(peaks), WIDTH));
    }

    #[test]
    fn cpus_have_one_scale() {
        let columns = ["cpu", "start_ns", "duration_ns"].map(|name| (name, Kind::Uint));
        let rows =
            [[0_u64, 0, 100_000], [0, 4_000_000, 100_500], [1, 0, 50_000], [1, 9_000, 90_000_000]];
        let rows = rows.map(|row| row.map(Value::from).to_vec()).to_vec();
        let run = run_of(vec![table("fwq_quanta", &columns, rows)]);
        let sheet = repetitions(&run, WIDTH).unwrap().unwrap();
        let [first, second] = sheet.plots() else { panic!("two CPUs") };
        assert_eq!(first.axis, second.axis);
        assert_eq!(sheet.file().matches(">\n100 µs\n<").count(), 2, "at both vertical axes");
    }

    #[test]
    fn the_title_has_the_longest_of_all_quanta_though_only_the_first_are_drawn() {
        let mut run = run([(0, 100_000, None), (100_000, 101_500, None)]);
        let columns = ["cpu", "quantum_count", "min_ns", "max_ns"].map(|name| (name, Kind::Uint));
        let row = [3_u64, 5_000, 99_000, 36_100_000].map(Value::from).to_vec();
        run.tables.push(table("fwq", &columns, vec![row]));
        let sheet = repetitions(&run, WIDTH).unwrap().unwrap();
        assert!(sheet.heading.title.ends_with("up to 36.1 ms"), "{}", sheet.heading.title);
        let note = sheet.heading.notes.last().unwrap();
        assert!(note.starts_with("Only the first 2 of ") && note.contains("without the longest"));
    }

    #[test]
    fn quanta_that_tasks_interrupted_are_not_pale_where_the_shortest_one_was_interrupted_too() {
        let task = |taken_ns: u64| (0, 100_000 + taken_ns, Some("stallprog".to_owned()));
        let quanta = || [task(97_000), task(98_000)];
        let with_flag = |is_bound: bool| {
            let mut run = run(quanta());
            let columns = [("cpu", Kind::Uint), ("is_lower_bound", Kind::Bool)];
            run.tables.push(table("fwq", &columns, vec![vec![3_u64.into(), is_bound.into()]]));
            let heading = repetitions(&run, WIDTH).unwrap().unwrap().heading;
            (heading.legend.len(), heading.notes.join(" "))
        };
        let (pale_alone, notes) = with_flag(false);
        assert!(!notes.contains("interference"), "{notes}");
        let (with_cause, notes) = with_flag(true);
        assert!(notes.contains("CPU 3: also the shortest quantum has interference"), "{notes}");
        assert!(with_cause > pale_alone, "the cause of the quanta is in the legend");
    }

    #[test]
    fn one_repetition_is_a_picture_and_none_is_not() {
        checked(&drawn(&run([(0, 0, None)])));
        assert_eq!(repetitions(&run([]), WIDTH).unwrap(), None);
    }

    /// Draws quanta of 100 us with ticks, and quanta whose neighbours all differ.
    #[test]
    fn a_picture_does_not_grow_with_the_number_of_quanta() {
        let ticks = |count: u64| {
            let quantum = move |index: u64| match index % 40 {
                0 => (index * 100_000, 108_000 + index % 997, Some("tick".to_owned())),
                _ => (index * 100_000, 100_000 + index % 777, None),
            };
            drawn(&run((0..count).map(quantum)))
        };
        let (few, many) = (ticks(10_000), ticks(1_000_000));
        assert!(few.len() < 60_000 && many.len() < 60_000, "{} {}", few.len(), many.len());
        checked(&many);
        let mut state = 1_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let worst = (0..1_000_000_u64).map(|index| {
            let time = 100_000.0 * (random() as f64 / 2_f64.powi(31) * 7.0).exp();
            (index * 100_000, time as u64, Some(format!("cause {}", random() % 8)))
        });
        let run = run(worst);
        let svg = drawn(&run);
        assert!(svg.len() < 1_000_000, "{}", svg.len());
        checked(&svg);
        assert!(svg == drawn(&run), "the same, to the byte");
    }
}
