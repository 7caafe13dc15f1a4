//! The comparison of B with A is the mirror image of the comparison of A with B.

use proptest::prelude::*;
use record::{Column, IntervalColumns, Kind, Table};

use super::tests::run_of_table;
use super::*;

/// Midpoints of adjacent buckets of a histogram, and one far away.
const MIDPOINTS: [u64; 5] = [1_007, 1_055, 5_247, 5_503, 90_111];

/// Means that differ by the margin of 2 %, by rounding, and by more.
const MEANS: [f64; 8] = [100.0, 102.0, 98.0, 100.000_000_000_01, 0.1, 0.102, 0.0, 117.3];

/// The figures of a row: a mean, the half width of its interval, and two quantiles, one of them with wide bounds.
#[derive(Clone, Copy, Debug)]
struct Row {
    mean: f64,
    half_width: f64,
    quantile: u64,
    distance: u64,
}

fn rows() -> impl Strategy<Value = Row> {
    let half_widths = prop::sample::select(vec![0.0, 0.01, 0.5, 2.0]);
    let means = prop_oneof![prop::sample::select(&MEANS[..]), 0.0..200.0];
    (means, half_widths, prop::sample::select(&MIDPOINTS[..]), 16_u64..400).prop_map(
        |(mean, half_width, quantile, distance)| Row { mean, half_width, quantile, distance },
    )
}

fn run_of(bench: &str, row: Row) -> Run {
    let uint = |name: &str| Column::new(name, Kind::Uint, "").detail();
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        Column::new("self_mean_ns", Kind::Real, "")
            .interval(IntervalColumns::half_width("half").degrees_of_freedom("freedom"))
            .cost(),
        Column::new("half", Kind::Real, "").detail(),
        uint("freedom"),
        Column::new("self_p50_ns", Kind::Uint, "exact within 1/16").benefit(),
        Column::new("self_p99_ns", Kind::Uint, "exact within 1/16")
            .interval(IntervalColumns::bounds("low", "high").wide_bounds("low", "high"))
            .cost(),
        uint("low"),
        uint("high"),
        Column::new("self_p90_ns", Kind::Uint, "exact within 1/16")
            .interval(IntervalColumns::half_width("half").degrees_of_freedom("freedom"))
            .cost(),
    ];
    let mut table = Table::new("handlers", "", columns);
    let Row { mean, half_width, quantile, distance } = row;
    table.push(vec![
        "TIMER".into(),
        mean.into(),
        half_width.into(),
        7_u64.into(),
        quantile.into(),
        quantile.into(),
        (quantile - distance).into(),
        (quantile + distance).into(),
        quantile.into(),
    ]);
    run_of_table(bench, table)
}

fn mirrored(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Worse => Verdict::Better,
        Verdict::Better => Verdict::Worse,
        Verdict::Missing => Verdict::Added,
        Verdict::Added => Verdict::Missing,
        Verdict::Changed | Verdict::Undecided | Verdict::Equal => verdict,
    }
}

/// The differences by column.
fn by_column<'f>(found: &'f Comparison<'_>) -> Vec<&'f Difference<'f>> {
    let mut differences: Vec<_> = found.differences.iter().collect();
    differences.sort_by_key(|difference| &difference.pair.column.name);
    differences
}

fn check_mirror(base: &[Run], new: &[Run]) -> Result<(), TestCaseError> {
    let plan = Plan { all_rows: true, margin_ratio: 0.02, rules: Vec::new() };
    let (found, mirror) =
        (compare_series(base, new, &plan).unwrap(), compare_series(new, base, &plan).unwrap());
    prop_assert_eq!(found.differences.len(), 4);
    for (difference, mirror) in by_column(&found).into_iter().zip(by_column(&mirror)) {
        let name = &difference.pair.column.name;
        prop_assert_eq!(
            mirrored(difference.verdict),
            mirror.verdict,
            "{}: {:?} {:?}",
            name,
            difference,
            mirror
        );
        prop_assert_eq!(difference.method, mirror.method);
        let change = difference.change.unwrap();
        prop_assert_eq!(change, -mirror.change.unwrap());
        if let Some((low, high)) = difference.interval {
            let (mirror_low, mirror_high) = mirror.interval.unwrap();
            prop_assert!(low <= change && change <= high, "{}: {} {} {}", name, low, change, high);
            prop_assert_eq!(low > 0.0, mirror_high < 0.0, "{}", name);
            prop_assert_eq!(high < 0.0, mirror_low > 0.0, "{}", name);
        }
        for figure in [difference.pair.base, difference.pair.new].into_iter().flatten() {
            let (low, high) = figure.interval.unwrap_or((figure.value, figure.value));
            prop_assert!(low <= figure.value && figure.value <= high, "{}: {:?}", name, figure);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn one_run_on_each_side_has_a_mirror_image(base in rows(), new in rows()) {
        for bench in ["live", "sim"] {
            check_mirror(&[run_of(bench, base)], &[run_of(bench, new)])?;
        }
    }

    #[test]
    fn several_runs_on_each_side_have_a_mirror_image(
        rows in prop::collection::vec((rows(), rows()), 1..4),
        repeats in any::<bool>(),
    ) {
        for bench in ["live", "sim"] {
            // Three equal runs, or three runs that differ.
            let row = |index: usize| rows[if repeats { 0 } else { index % rows.len() }];
            let base: Vec<Run> = (0..3).map(|index| run_of(bench, row(index).0)).collect();
            let new: Vec<Run> = (0..3).map(|index| run_of(bench, row(index).1)).collect();
            check_mirror(&base, &new)?;
        }
    }
}

#[test]
fn quantiles_in_adjacent_buckets_are_undecided_in_both_directions() {
    let run =
        |quantile: u64| run_of("live", Row { mean: 1.0, half_width: 0.1, quantile, distance: 20 });
    let (base, new) = (vec![run(5_503); 3], vec![run(5_247); 3]);
    let plan = Plan { all_rows: true, margin_ratio: 0.02, rules: Vec::new() };
    for (base, new) in [(&base, &new), (&new, &base)] {
        let found = compare_series(base, new, &plan).unwrap();
        let median =
            by_column(&found).into_iter().find(|found| found.pair.column.name == "self_p50_ns");
        let median = median.unwrap();
        assert_eq!(median.verdict, Verdict::Undecided);
        let value = median.pair.base.unwrap().value;
        assert_eq!(median.pair.base.unwrap().interval, Some((value, value)));
        let (low, high) = median.interval.unwrap();
        assert!(low == 0.0 || high == 0.0, "{low} {high}");
    }
}

#[test]
fn a_change_of_the_limit_but_for_rounding_breaks_no_rule() {
    let run =
        |mean: f64| run_of("sim", Row { mean, half_width: 0.1, quantile: 1_007, distance: 20 });
    let rule: Rule = "handlers.self_mean_ns>+10%".parse().unwrap();
    let ruling = |mean: f64| {
        let plan = Plan { all_rows: true, margin_ratio: 0.02, rules: vec![rule.clone()] };
        compare(&run(1.2), &run(mean), &plan).unwrap().outcomes[0].ruling
    };
    // Rounding makes the difference 1.32 - 1.2 larger than the limit, 0.1 * 1.2.
    assert_eq!(ruling(1.32), Ruling::Holds);
    assert_eq!(ruling(1.321), Ruling::Broken);
}
