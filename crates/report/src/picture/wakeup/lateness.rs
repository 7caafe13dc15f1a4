//! The picture `lateness` of `wakeup`: the share of wake-ups that were later than a time, a line for each CPU, on
//! logarithmic axes.

use std::collections::BTreeMap;

use plotters::style::RGBColor;
use record::Run;

use crate::human::{self, Quantity};
use crate::late_cause::time_ns;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Label, Look, PATTERNS, room_for};
use crate::picture::palette::{GREY, SERIES};
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn, draw};

/// Periods without a lateness: the column of table `wakeup` with their number, and what they are.
const NOT_COUNTED: [(&str, &str); 4] = [
    ("missed_count", "periods that were over before the thread ran again"),
    ("waker_missed_count", "periods without a wake-up, because the waker was late itself"),
    ("not_asleep_count", "periods in which the thread had not gone to sleep"),
    (
        "no_interrupt_count",
        "reads without a kernel event of the disk's interrupt or of the wake-up",
    ),
];
/// Maximum number of CPUs with a line of their own. Further CPUs share a line.
const CPUS_MAX: usize = SERIES.len();
/// Height of the panel, pixels.
const PANEL_HEIGHT: f64 = 380.0;
/// Cells per doubling of lateness. The ends of irqlab's buckets are at least 1/32 apart, and so in different cells.
/// Other buckets may share a cell, which bounds the number of points.
const CELLS_PER_DOUBLING: f64 = 32.0;

/// Wake-ups of similar lateness.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Smallest and largest lateness, ns.
    min_ns: f64,
    max_ns: f64,
    wakeup_count: f64,
}

/// The lateness of all wake-ups of a CPU, or of several CPUs.
#[derive(Clone, Debug, Default)]
struct LateHistogram {
    /// Cells by the logarithm of their largest lateness.
    cells: BTreeMap<u32, Cell>,
}

impl LateHistogram {
    fn add(&mut self, added: Cell) {
        let number = (added.max_ns.max(1.0).log2() * CELLS_PER_DOUBLING) as u32;
        let cell = self.cells.entry(number).or_insert(Cell { wakeup_count: 0.0, ..added });
        cell.min_ns = cell.min_ns.min(added.min_ns);
        cell.max_ns = cell.max_ns.max(added.max_ns);
        cell.wakeup_count += added.wakeup_count;
    }

    fn wakeup_count(&self) -> f64 {
        self.cells.values().map(|cell| cell.wakeup_count).sum()
    }

    /// The smallest and the largest lateness, ns; at least 1, for a logarithmic axis.
    fn ends(&self) -> (f64, f64) {
        let cells = || self.cells.values();
        let min_ns = cells().map(|cell| cell.min_ns).fold(f64::INFINITY, f64::min);
        let max_ns = cells().map(|cell| cell.max_ns).fold(1.0, f64::max);
        (min_ns.clamp(1.0, max_ns), max_ns)
    }

    /// Shortens the last cell to the exact lateness of the worst wake-up, if the cell contains it.
    fn end_at(&mut self, late_max_ns: f64) {
        if let Some(last) = self.cells.values_mut().next_back()
            && (last.min_ns..last.max_ns).contains(&late_max_ns)
        {
            last.max_ns = late_max_ns;
        }
    }

    /// The points of the line: a lateness and the share of wake-ups that were later. The line is level between cells.
    /// It ends at the worst wake-up, with the share of the last cell.
    fn points(&self) -> Vec<(f64, f64)> {
        let wakeup_count = self.wakeup_count();
        let (mut late_ns, _) = self.ends();
        let mut later_count = wakeup_count;
        let mut points = vec![(late_ns, 1.0)];
        for (number, cell) in self.cells.values().enumerate() {
            let share = later_count / wakeup_count;
            // The cells of a damaged file may overlap. A line never goes back.
            let start_ns = cell.min_ns.max(late_ns);
            points.push((start_ns, share));
            late_ns = cell.max_ns.max(start_ns);
            later_count = (later_count - cell.wakeup_count).max(0.0);
            let is_last = number + 1 == self.cells.len();
            points.push((late_ns, if is_last { share } else { later_count / wakeup_count }));
        }
        points.dedup();
        points
    }
}

/// A line of the picture.
struct Curve {
    name: String,
    look: Look,
    points: Vec<(f64, f64)>,
}

impl Curve {
    fn new(name: String, colour: RGBColor, pattern: usize, histogram: &LateHistogram) -> Curve {
        Curve { name, look: Look { colour, pattern }, points: histogram.points() }
    }

    /// The end of the line, above its fall to zero.
    fn end(&self) -> (f64, f64) {
        self.points.last().copied().unwrap_or((1.0, 1.0))
    }
}

/// The histogram of each CPU in table `late_histogram`, up to the exact maximum in table `wakeup`. The CPU with the
/// worst wake-up is first.
fn histograms_by_cpu(run: &Run) -> Vec<(String, LateHistogram)> {
    let mut by_cpu: BTreeMap<String, LateHistogram> = BTreeMap::new();
    for row in run.table("late_histogram").into_iter().flat_map(rows) {
        let bucket = time_ns(&row, "bucket_min_ns").zip(time_ns(&row, "bucket_max_ns"));
        // A count has the bounds of a time: 0 to u64::MAX.
        let wakeup_count = time_ns(&row, "wakeup_count").filter(|count| *count >= 1.0);
        if let (Some((min_ns, max_ns)), Some(wakeup_count)) = (bucket, wakeup_count) {
            let cell = Cell { min_ns, max_ns: max_ns.max(min_ns), wakeup_count };
            by_cpu.entry(row.value_text("cpu")).or_default().add(cell);
        }
    }
    for row in run.table("wakeup").into_iter().flat_map(rows) {
        if let (Some(histogram), Some(late_max_ns)) =
            (by_cpu.get_mut(&row.value_text("cpu")), time_ns(&row, "late_max_ns"))
        {
            histogram.end_at(late_max_ns);
        }
    }
    let mut histograms: Vec<(String, LateHistogram)> = by_cpu.into_iter().collect();
    // The sort is stable, so names decide between equally late CPUs.
    histograms.sort_by(|(_, a), (_, b)| {
        let ((_, a_max_ns), (_, b_max_ns)) = (a.ends(), b.ends());
        b_max_ns.total_cmp(&a_max_ns)
    });
    histograms
}

/// The lines of the CPUs with the worst wake-ups, and a grey line for all other CPUs together.
fn curves_of(histograms: &[(String, LateHistogram)]) -> Vec<Curve> {
    let (single_cpus, other_cpus) = histograms.split_at(histograms.len().min(CPUS_MAX));
    let mut single_cpus: Vec<&(String, LateHistogram)> = single_cpus.iter().collect();
    // Colours and patterns are in the order of CPUs.
    single_cpus.sort_by_key(|(cpu, _)| (cpu.parse::<u64>().unwrap_or(u64::MAX), cpu));
    let coloured_cpus = single_cpus.into_iter().zip(SERIES).enumerate();
    let mut curves: Vec<Curve> = coloured_cpus
        .map(|(number, ((cpu, histogram), colour))| {
            Curve::new(format!("CPU {cpu}"), colour, number % PATTERNS, histogram)
        })
        .collect();
    if !other_cpus.is_empty() {
        let mut sum_of_others = LateHistogram::default();
        let cells = other_cpus.iter().flat_map(|(_, histogram)| histogram.cells.values());
        cells.for_each(|cell| sum_of_others.add(*cell));
        let noun = if other_cpus.len() == 1 { "CPU" } else { "CPUs" };
        curves.push(Curve::new(
            format!("{} other {noun}", other_cpus.len()),
            GREY,
            0,
            &sum_of_others,
        ));
    }
    curves
}

/// The title: how late the worst wake-up was. `worst_cpu`: the CPU with this wake-up by the histograms.
fn title(run: &Run, wakeup_count: f64, worst_cpu: &str, worst_histogram: &LateHistogram) -> String {
    let exact_maxima = run
        .table("wakeup")
        .into_iter()
        .flat_map(rows)
        .filter_map(|row| Some((time_ns(&row, "late_max_ns")?, row.value_text("cpu"))));
    let (lateness, cpu) = match exact_maxima.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((late_ns, cpu)) => (human::ns(late_ns), cpu),
        None => (format!("at most {}", human::ns(worst_histogram.ends().1)), worst_cpu.to_owned()),
    };
    let count = human::count(wakeup_count as u64);
    format!("The worst of {count} wake-ups was {lateness} late, on CPU {cpu}")
}

/// How to read the picture, with an example, and what it leaves out.
fn notes_of(run: &Run, worst_cpu: &str, cpu_count: usize) -> Vec<String> {
    let per_cpu = || run.table("wakeup").into_iter().flat_map(rows);
    let worst_row = per_cpu().find(|row| row.value_text("cpu") == worst_cpu);
    let example_sentence = worst_row.and_then(|row| {
        let worst_ns = time_ns(&row, "late_max_ns")?;
        // With few wake-ups, a high quantile equals the worst wake-up: no wake-up was later.
        let is_exceeded = |late_ns: &f64| *late_ns < worst_ns;
        let quantiles = [("1 %", "late_p99_ns"), ("half", "late_p50_ns")];
        let exceeded_quantile = quantiles
            .into_iter()
            .find_map(|(share, column)| Some((share, time_ns(&row, column).filter(is_exceeded)?)));
        let (share, late_ns) = exceeded_quantile?;
        let late_text = human::ns(late_ns);
        Some(format!(
            " For example, {share} of the wake-ups on CPU {worst_cpu} were later than {late_text}."
        ))
    });
    let example_sentence = example_sentence.unwrap_or_default();
    let mut notes = vec![format!(
        "The height of a line is the share of wake-ups that were later than the time below it.{example_sentence}"
    )];
    let not_counted: Vec<String> = NOT_COUNTED
        .into_iter()
        .filter_map(|(column, what)| {
            let count: f64 = per_cpu().filter_map(|row| time_ns(&row, column)).sum();
            (count > 0.0).then(|| format!("{} {what}", human::count(count as u64)))
        })
        .collect();
    if !not_counted.is_empty() {
        notes.push(format!("Not counted: {}.", not_counted.join("; ")));
    }
    if cpu_count > CPUS_MAX {
        notes.push(format!(
            "The {CPUS_MAX} CPUs with the worst wake-ups have lines of their own. Table late_histogram has all CPUs."
        ));
    }
    notes
}

/// The picture of table `late_histogram`. `None` for a run without wake-ups.
pub fn lateness(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let histograms = histograms_by_cpu(run);
    let Some((worst_cpu, worst_histogram)) = histograms.first() else { return Ok(None) };
    let curves = curves_of(&histograms);
    let wakeup_count: f64 = histograms.iter().map(|(_, histogram)| histogram.wakeup_count()).sum();
    let heading = Heading {
        title: title(run, wakeup_count, worst_cpu, worst_histogram),
        notes: notes_of(run, worst_cpu, histograms.len()),
        description:
            "A falling line for each CPU: the share of its wake-ups that were later than a time. The \
             numbers are in table late_histogram of the run."
                .to_owned(),
        ..Heading::default()
    };
    let ends = || histograms.iter().map(|(_, histogram)| histogram.ends());
    let earliest_ns = ends().map(|(min_ns, _)| min_ns).fold(f64::INFINITY, f64::min);
    let worst_ns = ends().map(|(_, max_ns)| max_ns).fold(1.0, f64::max);
    let lowest_share =
        curves.iter().map(|curve| curve.end()).map(|(_, share)| share).fold(1.0, f64::min);
    let x = Axis::logarithmic("later than", Quantity::Time, earliest_ns, worst_ns);
    // The axis starts below the lowest line, so that the line is not on the frame.
    let y = Axis::logarithmic("share of wake-ups", Quantity::Share, lowest_share / 2.0, 1.0);
    let (floor, _) = y.ends();
    let sheet = draw(&heading, width, PANEL_HEIGHT, |area| {
        let right = room_for(curves.iter().map(|curve| curve.name.as_str()));
        let mut chart = Chart::new(area, "", [&x, &y], right)?;
        let mut labels = Vec::new();
        for curve in &curves {
            let end = curve.end();
            // No wake-up is later than the worst: the line falls to the end of the axis, which has no zero.
            let (end_ns, _) = end;
            let points = [&curve.points[..], &[(end_ns, floor)]].concat();
            chart.line(&points, curve.look, 1.8)?;
            labels.push(Label { name: curve.name.clone(), colour: curve.look.colour, end });
        }
        chart.label_ends(&labels)
    })?;
    Ok(Some(sheet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{checked, golden, run_of, table};
    use record::{Kind, Table, Value};

    /// Table `late_histogram` of buckets: CPU, smallest and largest lateness, wake-ups.
    fn histogram(buckets: impl Iterator<Item = [u64; 4]>) -> Table {
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "wakeup_count"];
        let columns = columns.map(|name| (name, Kind::Uint));
        table(
            "late_histogram",
            &columns,
            buckets.map(|row| row.map(Value::from).to_vec()).collect(),
        )
    }

    /// Ten thousand wake-ups of a CPU, one of them much later.
    fn buckets(cpu: u64, scale: u64) -> impl Iterator<Item = [u64; 4]> {
        let bucket = move |(index, count): (u64, u64)| {
            [cpu, scale * (16 + index) * 1_024, scale * (17 + index) * 1_024 - 1, count]
        };
        let counts = [4_000, 3_000, 2_000, 800, 150, 40, 9];
        let worst = [cpu, scale * 278_528, scale * 294_911, 1];
        (0..).zip(counts).map(bucket).chain([worst])
    }

    fn per_cpu(rows: &[[u64; 4]]) -> Table {
        let columns = ["cpu", "late_p99_ns", "late_max_ns", "missed_count"];
        let columns = columns.map(|name| (name, Kind::Uint));
        table("wakeup", &columns, rows.iter().map(|row| row.map(Value::from).to_vec()).collect())
    }

    #[test]
    fn a_line_of_each_cpu_ends_at_its_worst_wakeup() {
        let late = histogram(buckets(1, 1).chain(buckets(0, 3)));
        let run = run_of(vec![
            per_cpu(&[[0, 61_000, 850_000, 7], [1, 20_000, 280_000, 0]]),
            late.clone(),
        ]);
        golden("lateness", lateness(&run, WIDTH));
        golden("lateness_narrow", lateness(&run, NARROW));
        let alone = lateness(&run_of(vec![late]), WIDTH).unwrap().expect("a picture").file();
        assert!(alone.contains("The worst of 20,000 wake-ups was at most 885 µs late, on CPU 0"));
        assert_eq!(lateness(&run_of(vec![]), WIDTH).unwrap(), None);
        assert_eq!(lateness(&run_of(vec![histogram([].into_iter())]), WIDTH).unwrap(), None);
    }

    #[test]
    fn the_share_is_exact_at_the_ends_of_buckets() {
        let mut late = LateHistogram::default();
        for [_, min, max, count] in buckets(0, 1) {
            let [min_ns, max_ns, wakeup_count] = [min, max, count].map(|number| number as f64);
            late.add(Cell { min_ns, max_ns, wakeup_count });
        }
        assert_eq!(late.cells.len(), 8, "no bucket shares a cell with another");
        let points = late.points();
        assert_eq!(points[..2], [(16_384.0, 1.0), (17_407.0, 0.6)]);
        assert_eq!(points[points.len() - 2..], [(278_528.0, 1e-4), (294_911.0, 1e-4)]);
        assert!(points.windows(2).all(|pair| pair[1].0 >= pair[0].0 && pair[1].1 <= pair[0].1));
    }

    #[test]
    fn further_cpus_share_a_line() {
        let late = histogram((0..100).flat_map(|cpu| buckets(cpu, 1 + cpu % 9)));
        golden("lateness_of_many_cpus", lateness(&run_of(vec![late]), WIDTH));
    }

    #[test]
    fn any_buckets_make_a_picture_of_bounded_size() {
        let many = (1..200_000_u64).map(|index| [0, index * 7_919, index * 7_919 + 3, index]);
        let svg = lateness(&run_of(vec![histogram(many)]), WIDTH).unwrap().unwrap().file();
        checked(&svg);
        assert!(svg.len() < 100_000, "{}", svg.len());
        let overlapping = [[0, 0, u64::MAX, u64::MAX], [0, 9, 3, 1], [1, 5, 5, 0], [2, 0, 0, 1]];
        checked(
            &lateness(&run_of(vec![histogram(overlapping.into_iter())]), NARROW)
                .unwrap()
                .unwrap()
                .file(),
        );
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "wakeup_count"];
        let columns = columns.map(|name| (name, Kind::Real));
        let strange = [f64::NAN, f64::INFINITY, -1.0, 1e300, 0.5];
        let row = |number: &f64| vec![Value::Real(*number); 4];
        let run =
            run_of(vec![table("late_histogram", &columns, strange.iter().map(row).collect())]);
        assert_eq!(lateness(&run, WIDTH).unwrap(), None);
    }
}
