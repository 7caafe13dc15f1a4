//! The number of detours by length, both on logarithmic scales, divided by the largest cause of each detour.

use plotters::style::Color;
use record::{Run, Table};

use super::causes::{Causes, KINDS, by_cpu, colour, name_of};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Look, room_for};
use crate::picture::palette::PALE;
use crate::picture::rows;
use crate::picture::sheet::{Area, Heading, Sheet, Undrawn};

/// Bars per doubling of length.
const BARS: f64 = 2.0;
/// Maximum number of bars: lengths below 2^64.
const BARS_MAX: usize = 128;

/// Detours of a CPU by length: the exact number, and the number in the sample of single detours by kind of cause.
struct Bars {
    all: Vec<f64>,
    sampled: Vec<[f64; KINDS]>,
}

/// The picture of table `detour_histogram`, with causes from table `detours`. `None` for a run without a
/// `detour_histogram`.
pub fn sizes(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(sizes) = run.table("detour_histogram") else { return Ok(None) };
    let detours = run.table("detours");
    let shares = detours.into_iter().flat_map(rows).filter_map(|row| {
        let cause = name_of(&row, "largest_name")?;
        Some((cause, row.number("length_ns")?))
    });
    let causes = Causes::largest(shares);
    let mut used = [false; KINDS];
    for row in detours.into_iter().flat_map(rows) {
        used[causes.kind(name_of(&row, "largest_name").as_deref())] = true;
    }
    let total: f64 = rows(sizes).filter_map(|row| row.number("detour_count")).sum();
    let mut notes = vec!["Grey: all detours, exact.".to_owned()];
    if used.contains(&true) {
        notes[0] += " Lines: by what took most of each, in the proportions of the single detours that \
                     were recorded.";
    }
    let heading = Heading {
        title: format!("Number of detours by length ({} in all)", human::count(total as u64)),
        notes,
        legend: causes.legend("all detours", &used),
        description: "The number of detours by length, in all and by cause. ".to_owned(),
    };
    by_cpu(heading, sizes, width, |area, cpu| panel(area, cpu, &bars(cpu, sizes, detours, &causes)))
}

fn bar_of(length_ns: f64) -> usize {
    ((length_ns.max(1.0).log2() * BARS) as usize).min(BARS_MAX - 1)
}

fn length_of(bar: usize) -> f64 {
    (bar as f64 / BARS).exp2()
}

fn bars(cpu: &str, sizes: &Table, detours: Option<&Table>, causes: &Causes) -> Bars {
    let mut bars = Bars { all: vec![0.0; BARS_MAX], sampled: vec![[0.0; KINDS]; BARS_MAX] };
    let mut ends_of_bars: Vec<(f64, usize)> = Vec::new();
    for row in rows(sizes).filter(|row| row.alone("cpu") == cpu) {
        let ends = row.number("bucket_min_ns").zip(row.number("bucket_max_ns"));
        if let (Some((from, to)), Some(count)) = (ends, row.number("detour_count")) {
            let bar = bar_of(from.midpoint(to));
            bars.all[bar] += count;
            ends_of_bars.push((to, bar));
        }
    }
    ends_of_bars.sort_by(|a, b| a.0.total_cmp(&b.0));
    for row in detours.into_iter().flat_map(rows).filter(|row| row.alone("cpu") == cpu) {
        let Some(length_ns) = row.number("length_ns") else { continue };
        let kind = causes.kind(name_of(&row, "largest_name").as_deref());
        // The bar of the histogram bucket that contains this detour.
        let index = ends_of_bars.partition_point(|(end, _)| *end < length_ns);
        if let Some((_, bar)) = ends_of_bars.get(index) {
            bars.sampled[*bar][kind] += 1.0;
        }
    }
    bars
}

fn panel(area: &Area<'_>, cpu: &str, bars: &Bars) -> Result<(), Undrawn> {
    let filled = || (0..BARS_MAX).filter(|&bar| bars.all[bar] > 0.0);
    let (first, last) = (filled().next().unwrap_or(0), filled().next_back().unwrap_or(0));
    let count_max = bars.all.iter().copied().fold(1.0, f64::max);
    let x = Axis::logarithmic("length", Quantity::Time, length_of(first), length_of(last + 1));
    // The axis starts below 1, so that a bar of one detour has a height.
    let y = Axis::logarithmic("detours", Quantity::Count, 0.5, count_max);
    let floor = y.ends().0;
    let right = room_for(std::iter::empty());
    let mut chart = Chart::new(area, &format!("CPU {cpu}"), [&x, &y], right)?;
    for bar in filled() {
        let corners = [(length_of(bar), floor), (length_of(bar + 1), bars.all[bar])];
        chart.block(corners, PALE.mix(0.6).filled())?;
    }
    for kind in 0..KINDS {
        // The single detours are an even sample of all detours.
        let count = |bar: usize| {
            let sampled: f64 = bars.sampled[bar].iter().sum();
            if sampled > 0.0 { bars.all[bar] * bars.sampled[bar][kind] / sampled } else { 0.0 }
        };
        let heights: Vec<f64> = (first..=last).map(count).collect();
        let mut from = first;
        for run in heights.chunk_by(|height, next| (*height > 0.0) == (*next > 0.0)) {
            let start = from;
            from += run.len();
            if run[0] <= 0.0 {
                continue;
            }
            let mut outline = vec![(length_of(start), floor)];
            for (at, height) in run.iter().enumerate() {
                let height = height.max(floor);
                outline.push((length_of(start + at), height));
                outline.push((length_of(start + at + 1), height));
            }
            outline.push((length_of(from), floor));
            chart.line(&outline, Look { colour: colour(kind), pattern: 0 }, 1.8)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::WIDTH;
    use crate::picture::tests::{golden, run_of, table};
    use record::{Kind, Value};

    fn run(detours: &[(u64, Option<&str>)]) -> Run {
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "detour_count"];
        let columns = columns.map(|name| (name, Kind::Uint));
        let buckets = [[1_u64, 1000, 1063, 90], [1, 64_000, 67_999, 3]];
        let buckets = buckets.map(|row| row.map(Value::from).to_vec()).to_vec();
        let detour_columns =
            [("cpu", Kind::Uint), ("length_ns", Kind::Uint), ("largest_name", Kind::Text)];
        let row = |(length_ns, cause): &(u64, Option<&str>)| -> Vec<Value> {
            vec![1_u64.into(), (*length_ns).into(), (*cause).into()]
        };
        let detours = table("detours", &detour_columns, detours.iter().map(row).collect());
        run_of(vec![table("detour_histogram", &columns, buckets), detours])
    }

    #[test]
    fn bars_are_of_all_and_lines_of_causes() {
        let sampled =
            [(1010, Some("tick")), (1020, Some("tick")), (1030, None), (65_000, Some("a<b>&"))];
        golden("sizes", sizes(&run(&sampled), WIDTH));
    }

    #[test]
    fn without_causes_there_are_bars_alone() {
        let mut run = run(&[]);
        run.tables.truncate(1);
        golden("sizes_without_causes", sizes(&run, WIDTH));
        run.tables.clear();
        assert_eq!(sizes(&run, WIDTH).unwrap(), None);
    }

    #[test]
    fn any_length_has_a_bar() {
        for length_ns in [0.0, 1.0, 1e9, u64::MAX as f64] {
            let bar = bar_of(length_ns);
            assert!(length_of(bar) <= length_ns.max(1.0) && bar < BARS_MAX, "{length_ns}");
        }
    }
}
