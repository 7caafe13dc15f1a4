//! The number of detours by length, both on logarithmic scales, by what took most of each.

use record::{Run, Table};

use super::frame::{
    BOTTOM_Y, COLOURS, Causes, LEFT, QUIET, Scale, UNNAMED, axes, cpus, name_of, picture, rows,
    text,
};
use crate::human;

/// Bars per doubling of length.
const BARS: f64 = 2.0;
/// Maximum number of bars: lengths below 2^64.
const BARS_MAX: usize = 128;
/// Colours of causes, and that of no cause.
const LINES: usize = COLOURS.len() + 1;

/// Detours of a CPU by length: how many in all and, of the sample of single detours, how many had
/// which cause.
struct Bars {
    all: Vec<f64>,
    sampled: Vec<[f64; LINES]>,
}

/// The picture of table `detour_histogram`, with the causes that `detours` has; none for a run without it.
#[must_use]
pub fn sizes_svg(run: &Run) -> Option<String> {
    let (sizes, detours) = (run.table("detour_histogram")?, run.table("detours"));
    let shares = detours.into_iter().flat_map(rows).filter_map(|row| {
        let cause = name_of(&row, "largest_name")?;
        Some((cause, row.number("length_ns")?))
    });
    let causes = Causes::largest(shares);
    let panel = |cpu: &str, top: f64| panel(cpu, &bars(cpu, sizes, detours, &causes), top);
    picture(&cpus(sizes), Some((&causes, "all detours")), panel)
}

fn bar_of(length_ns: f64) -> usize {
    ((length_ns.max(1.0).log2() * BARS) as usize).min(BARS_MAX - 1)
}

fn length_of(bar: usize) -> f64 {
    (bar as f64 / BARS).exp2()
}

fn bars(cpu: &str, sizes: &Table, detours: Option<&Table>, causes: &Causes) -> Bars {
    let mut bars = Bars { all: vec![0.0; BARS_MAX], sampled: vec![[0.0; LINES]; BARS_MAX] };
    let mut ends_of_bars: Vec<(f64, usize)> = Vec::new();
    for row in rows(sizes).filter(|row| row.alone("cpu") == cpu) {
        let ends = row.number("bucket_min_ns").zip(row.number("bucket_max_ns"));
        if let (Some((from, to)), Some(count)) = (ends, row.number("detour_count")) {
            let bar = bar_of(from.midpoint(to));
            bars.all[bar] += count;
            ends_of_bars.push((to, bar));
        }
    }
    ends_of_bars.sort_by(|one, other| one.0.total_cmp(&other.0));
    for row in detours.into_iter().flat_map(rows).filter(|row| row.alone("cpu") == cpu) {
        let Some(length_ns) = row.number("length_ns") else { continue };
        let line = name_of(&row, "largest_name").map_or(LINES - 1, |cause| causes.place(&cause));
        // The bar that its bucket of the histogram belongs to.
        let at = ends_of_bars.partition_point(|(end, _)| *end < length_ns);
        if let Some((_, bar)) = ends_of_bars.get(at) {
            bars.sampled[*bar][line] += 1.0;
        }
    }
    bars
}

fn panel(cpu: &str, bars: &Bars, top: f64) -> String {
    let floor = top + BOTTOM_Y;
    let title = format!("CPU {cpu}: detours by length, and by what took most of each");
    let mut svg = axes(top, &title, ["length (logarithmic)", "detours (logarithmic)"]);
    let filled = || (0..BARS_MAX).filter(|&bar| bars.all[bar] > 0.0);
    let (Some(first), Some(last)) = (filled().next(), filled().next_back()) else { return svg };
    let x = Scale::logarithmic(length_of(first), length_of(last + 1));
    let y = Scale::logarithmic(0.5, bars.all.iter().copied().fold(1.0, f64::max) * 1.2);
    for bar in filled() {
        let (left, right) = (x.along(length_of(bar)), x.along(length_of(bar + 1)));
        let height = y.up(floor, bars.all[bar]);
        svg += &format!(
            "<rect x=\"{left:.1}\" y=\"{height:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{QUIET}\"/>\n",
            (right - left - 1.0).max(0.5),
            floor - height
        );
        let sampled: f64 = bars.sampled[bar].iter().sum();
        for (line, of_cause) in bars.sampled[bar].iter().enumerate().filter(|(_, of)| **of > 0.0) {
            // The single detours are an even sample of all.
            let height = y.up(floor, bars.all[bar] * of_cause / sampled);
            let colour = COLOURS.get(line).copied().unwrap_or(UNNAMED);
            let (from, to) = (left + 1.0, right - 2.0);
            svg += &format!(
                "<path d=\"M{from:.1} {height:.1}H{to:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>\n"
            );
        }
    }
    for count in y.decades() {
        svg += &text(LEFT - 6.0, y.up(floor, count) + 4.0, "end", &human::number(count));
    }
    for ns in x.decades() {
        svg += &text(x.along(ns), floor + 16.0, "middle", &human::ns(ns));
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::run_of;

    fn run(detours: &[(u64, Option<&str>)]) -> Run {
        run_of(
            &["cpu", "bucket_min_ns", "bucket_max_ns", "detour_count"],
            "detour_histogram",
            &[&[1, 1000, 1063, 90], &[1, 64_000, 67_999, 3]],
            detours,
        )
    }

    #[test]
    fn bars_are_of_all_and_lines_of_causes() {
        let sampled =
            [(1010, Some("tick")), (1020, Some("tick")), (1030, None), (65_000, Some("a<b>&"))];
        let svg = sizes_svg(&run(&sampled)).expect("a picture");
        // Two bars, and the entry of the legend.
        assert_eq!(svg.matches(&format!("fill=\"{QUIET}\"")).count(), 3);
        assert_eq!(svg.matches("stroke-width=\"3\"").count(), 3, "{svg}");
        assert!(svg.contains(">a&lt;b&gt;&amp;</text>") && svg.contains("CPU 1"));
        assert!(svg.contains(">10.0 µs<"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn without_causes_there_are_bars_alone() {
        let mut run = run(&[]);
        run.tables.truncate(1);
        let svg = sizes_svg(&run).expect("a picture");
        assert!(svg.contains(QUIET) && !svg.contains("stroke-width=\"3\""), "{svg}");
        run.tables.clear();
        assert_eq!(sizes_svg(&run), None);
    }

    #[test]
    fn any_length_has_a_bar() {
        for length_ns in [0.0, 1.0, 1e9, u64::MAX as f64] {
            let bar = bar_of(length_ns);
            assert!(length_of(bar) <= length_ns.max(1.0) && bar < BARS_MAX, "{length_ns}");
        }
    }
}
