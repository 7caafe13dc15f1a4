//! The picture `sizes` of `noise`: the number of detours by length, on logarithmic axes. Grey bars are all detours;
//! lines divide them by the cause that took most of each detour.

use std::collections::BTreeMap;

use plotters::style::Color;
use record::{Run, Table};

use super::causes::{Causes, KINDS, colour, cpus, draw_cpus, name_in};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Look, room_for};
use crate::picture::palette::PALE;
use crate::picture::rows;
use crate::picture::sheet::{Area, Heading, Sheet, Undrawn};

/// Number of bars per doubling of length.
const BARS_PER_DOUBLING: f64 = 2.0;
/// Number of bars for lengths below 2^64 ns.
const BARS_MAX: usize = 128;

/// Detours of a CPU by length.
struct Bars {
    /// The exact number of detours in each bar.
    all: Vec<f64>,
    /// The number of detours in each bar by kind of cause. It is exact, except in runs of an older version, which
    /// know the causes of sampled detours alone.
    by_kind: Vec<[f64; KINDS]>,
}

impl Bars {
    /// The bars with detours.
    fn filled(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..BARS_MAX).filter(|&bar| self.all[bar] > 0.0)
    }
}

/// The picture of table `detour_histogram`, with causes from [`ByCause`]. `None` for a run without this table.
pub fn sizes(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(sizes) = run.table("detour_histogram") else { return Ok(None) };
    let by_cause = ByCause::from_run(run);
    let causes = Causes::of_run(run);
    let mut used = [false; KINDS];
    by_cause.groups().for_each(|group| used[causes.kind(group.cause.as_deref())] = true);
    let total: f64 = rows(sizes).filter_map(|row| row.number("detour_count")).sum();
    let mut notes = vec!["Grey: all detours, exact.".to_owned()];
    if used.contains(&true) {
        notes[0] += by_cause.note();
    }
    let heading = Heading {
        title: format!("Number of detours by length ({} in all)", human::count(total as u64)),
        notes,
        legend: causes.legend("all detours", &used),
        description: "The number of detours by length, in all and by cause. ".to_owned(),
    };
    let all_bars: BTreeMap<String, Bars> = cpus(sizes)
        .into_iter()
        .map(|cpu| {
            let bars = bars(&cpu, sizes, &by_cause, &causes);
            (cpu, bars)
        })
        .collect();
    let axes = axes(all_bars.values());
    draw_cpus(heading, sizes, width, |area, cpu| match all_bars.get(cpu) {
        Some(bars) => panel(area, cpu, [&axes[0], &axes[1]], bars),
        None => Ok(()),
    })
}

/// The axes of all CPUs: lengths, and numbers of detours.
fn axes<'b>(all_bars: impl Iterator<Item = &'b Bars>) -> [Axis; 2] {
    let (mut first, mut last, mut count_max) = (BARS_MAX - 1, 0, 1.0_f64);
    for bars in all_bars {
        for bar in bars.filled() {
            (first, last) = (first.min(bar), last.max(bar));
            count_max = count_max.max(bars.all[bar]);
        }
    }
    let first = first.min(last);
    let x = Axis::logarithmic("length", Quantity::Time, start_of(first), start_of(last + 1));
    // The axis starts below 1, so that the bar of a single detour has a height.
    [x, Axis::logarithmic("detours", Quantity::Count, 0.5, count_max)]
}

/// The table from which the causes come.
enum ByCause<'a> {
    /// Table `detour_histogram_by_cause`, which has all detours.
    All(&'a Table),
    /// Table `detours` of a run of an older version: an even sample of single detours.
    Sample(&'a Table),
    Unknown,
}

/// Detours of a CPU with one length and one cause.
struct DetourGroup {
    cpu: String,
    cause: Option<String>,
    length_ns: f64,
    count: f64,
}

impl<'a> ByCause<'a> {
    fn from_run(run: &'a Run) -> ByCause<'a> {
        match (run.table("detour_histogram_by_cause"), run.table("detours")) {
            (Some(all), _) => ByCause::All(all),
            (None, Some(sample)) => ByCause::Sample(sample),
            (None, None) => ByCause::Unknown,
        }
    }

    /// The detours of all CPUs. A sampled detour is a group of its own.
    fn groups(&self) -> impl Iterator<Item = DetourGroup> + '_ {
        let table = match self {
            ByCause::All(table) | ByCause::Sample(table) => Some(*table),
            ByCause::Unknown => None,
        };
        table.into_iter().flat_map(rows).filter_map(|row| {
            let (length_ns, count) = match self {
                ByCause::All(_) => {
                    let middle =
                        row.number("bucket_min_ns")?.midpoint(row.number("bucket_max_ns")?);
                    (middle, row.number("detour_count")?)
                }
                ByCause::Sample(_) | ByCause::Unknown => (row.number("length_ns")?, 1.0),
            };
            let cause = name_in(&row, "largest_name");
            Some(DetourGroup { cpu: row.value_text("cpu"), cause, length_ns, count })
        })
    }

    /// A sentence for the notes of the picture, with a leading space.
    fn note(&self) -> &'static str {
        match self {
            ByCause::All(_) => " Lines: by what took most of each, exact.",
            ByCause::Sample(_) | ByCause::Unknown => {
                " Lines: by what took most of each, in the proportions of the single detours that were recorded."
            }
        }
    }
}

/// The index of the bar for a length.
fn bar_of(length_ns: f64) -> usize {
    ((length_ns.max(1.0).log2() * BARS_PER_DOUBLING) as usize).min(BARS_MAX - 1)
}

/// The length at which a bar starts, ns.
fn start_of(bar: usize) -> f64 {
    (bar as f64 / BARS_PER_DOUBLING).exp2()
}

/// Counts the detours of a CPU by length and kind. `sizes` has the exact counts; `by_cause` has those of the detours
/// with a known cause.
fn bars(cpu: &str, sizes: &Table, by_cause: &ByCause<'_>, causes: &Causes) -> Bars {
    let mut bars = Bars { all: vec![0.0; BARS_MAX], by_kind: vec![[0.0; KINDS]; BARS_MAX] };
    let mut bucket_ends: Vec<(f64, usize)> = Vec::new();
    for row in rows(sizes).filter(|row| row.value_text("cpu") == cpu) {
        let ends = row.number("bucket_min_ns").zip(row.number("bucket_max_ns"));
        if let (Some((shortest, longest)), Some(count)) = (ends, row.number("detour_count")) {
            let bar = bar_of(shortest.midpoint(longest));
            bars.all[bar] += count;
            bucket_ends.push((longest, bar));
        }
    }
    bucket_ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    for group in by_cause.groups().filter(|group| group.cpu == cpu) {
        let kind = causes.kind(group.cause.as_deref());
        // A bucket of the histogram may cross the edge of a bar. Counts the detours in the bar of their bucket.
        let index = bucket_ends.partition_point(|(end, _)| *end < group.length_ns);
        if let Some((_, bar)) = bucket_ends.get(index) {
            bars.by_kind[*bar][kind] += group.count;
        }
    }
    bars
}

/// Draws the histogram of a CPU, with the axes of all CPUs: pale bars for all detours, and an outline for each kind.
fn panel(area: &Area<'_>, cpu: &str, axes: [&Axis; 2], bars: &Bars) -> Result<(), Undrawn> {
    let (first, last) = (bars.filled().next().unwrap_or(0), bars.filled().next_back().unwrap_or(0));
    let floor = axes[1].ends().0;
    let right = room_for(std::iter::empty());
    let mut chart = Chart::new(area, &format!("CPU {cpu}"), axes, right)?;
    for bar in bars.filled() {
        let corners = [(start_of(bar), floor), (start_of(bar + 1), bars.all[bar])];
        chart.block(corners, PALE.mix(0.6).filled())?;
    }
    for kind in 0..KINDS {
        // The kinds get their proportions of the exact bar. An even sample has the proportions of all detours.
        let count = |bar: usize| {
            let sum_of_kinds: f64 = bars.by_kind[bar].iter().sum();
            if sum_of_kinds > 0.0 {
                bars.all[bar] * bars.by_kind[bar][kind] / sum_of_kinds
            } else {
                0.0
            }
        };
        let heights: Vec<f64> = (first..=last).map(count).collect();
        // Each stretch of bars with detours of this kind gets a closed outline.
        let mut next_bar = first;
        for stretch in heights.chunk_by(|height, next| (*height > 0.0) == (*next > 0.0)) {
            let start = next_bar;
            next_bar += stretch.len();
            if stretch[0] <= 0.0 {
                continue;
            }
            let mut outline = vec![(start_of(start), floor)];
            for (index, height) in stretch.iter().enumerate() {
                let height = height.max(floor);
                outline.push((start_of(start + index), height));
                outline.push((start_of(start + index + 1), height));
            }
            outline.push((start_of(next_bar), floor));
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
    fn lines_of_causes_have_all_detours_where_the_run_has_them() {
        let mut run = run(&[(65_000, Some("not drawn"))]);
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "detour_count"];
        let columns = columns.map(|name| (name, Kind::Uint));
        let columns = [&columns[..], &[("largest_name", Kind::Text)]].concat();
        let row = |from_ns: u64, to_ns: u64, count: u64, cause: &str| -> Vec<Value> {
            vec![1_u64.into(), from_ns.into(), to_ns.into(), count.into(), cause.into()]
        };
        let rows = vec![
            row(1000, 1063, 80, "tick"),
            row(1000, 1063, 10, "make"),
            row(64_000, 67_999, 3, "stall"),
        ];
        run.tables.push(table("detour_histogram_by_cause", &columns, rows));
        golden("sizes_by_cause", sizes(&run, WIDTH));
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
    fn cpus_have_one_scale() {
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "detour_count"];
        let columns = columns.map(|name| (name, Kind::Uint));
        let buckets = [[0_u64, 1000, 1063, 9], [1, 64_000, 67_999, 3_000]];
        let buckets = buckets.map(|row| row.map(Value::from).to_vec()).to_vec();
        let run = run_of(vec![table("detour_histogram", &columns, buckets)]);
        let sheet = sizes(&run, WIDTH).unwrap().unwrap();
        let [first, second] = sheet.plots() else { panic!("two CPUs") };
        assert_eq!(first.axis, second.axis);
        assert_eq!(sheet.file().matches(">\n1,000\n<").count(), 2, "at both vertical axes");
    }

    #[test]
    fn any_length_has_a_bar() {
        for length_ns in [0.0, 1.0, 1e9, u64::MAX as f64] {
            let bar = bar_of(length_ns);
            assert!(start_of(bar) <= length_ns.max(1.0) && bar < BARS_MAX, "{length_ns}");
        }
    }
}
