//! Comparisons of figures that are only bounds.

use record::{Column, IntervalColumns, Kind, Run, Table, Value};

use super::tests::run_of_table;
use super::*;

/// The kind of a figure of [`run`].
#[derive(Clone, Copy)]
enum Is {
    Measured,
    AtMost,
    AtLeast,
}

/// A run of a bench with the lines and the slowdown of one row. Each is `figure`, with the half width 10 of its interval.
/// `lines` can be an upper bound, and `slowdown` a lower bound with an unknown upper end.
fn run(bench: &str, figure: f64, is: Is) -> Run {
    let bounds = |name: &str| {
        let ends = IntervalColumns::bounds(&format!("{name}_low"), &format!("{name}_high"));
        ends.degrees_of_freedom("freedom")
    };
    let columns = vec![
        Column::new("level", Kind::Text, "").key(),
        Column::new("displaced_lines", Kind::Real, "")
            .interval(bounds("displaced_ci95"))
            .bound("is_upper_bound", "≤")
            .cost(),
        Column::new("displaced_ci95_low", Kind::Real, "").detail(),
        Column::new("displaced_ci95_high", Kind::Real, "").detail(),
        Column::new("displaced_bytes", Kind::Real, ""),
        Column::new("is_upper_bound", Kind::Bool, ""),
        Column::new("slowdown_ratio", Kind::Real, "")
            .interval(bounds("slowdown_ci95"))
            .bound("is_lower_bound", "≥")
            .cost(),
        Column::new("slowdown_ci95_low", Kind::Real, "").detail(),
        Column::new("slowdown_ci95_high", Kind::Real, "").detail(),
        Column::new("is_lower_bound", Kind::Bool, ""),
        Column::new("freedom", Kind::Uint, "").detail(),
    ];
    let (low, high) = (Value::from(figure - 10.0), Value::from(figure + 10.0));
    let (is_upper, is_lower) = (matches!(is, Is::AtMost), matches!(is, Is::AtLeast));
    let mut table = Table::new("footprint", "", columns);
    let end = if is_lower { Value::Absent } else { high.clone() };
    table.push(vec![
        "l1d".into(),
        figure.into(),
        low.clone(),
        high,
        (64.0 * figure).into(),
        is_upper.into(),
        figure.into(),
        low,
        end,
        is_lower.into(),
        7_u64.into(),
    ]);
    run_of_table(bench, table)
}

fn plan(rules: &[&str]) -> Plan {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Plan { all_rows: false, margin_ratio: 0.02, rules }
}

/// The difference of a column.
fn of_column<'f, 'a>(found: &'f Comparison<'a>, column: &str) -> &'f Difference<'a> {
    found.differences.iter().find(|found| found.pair.column.name == column).unwrap()
}

const LINES: &str = "displaced_lines";
const SLOWDOWN: &str = "slowdown_ratio";

#[test]
fn two_bounds_of_one_direction_tell_no_change() {
    for bench in ["live", "sim"] {
        for (is, column) in [(Is::AtMost, LINES), (Is::AtLeast, SLOWDOWN)] {
            let (base, new) = (run(bench, 400.0, is), run(bench, 800.0, is));
            let sides = [(&base, &new), (&new, &base), (&base, &base)];
            for (base, new) in sides {
                let found = compare(base, new, &plan(&[])).unwrap();
                let difference = of_column(&found, column);
                let judged = (difference.verdict, difference.method, difference.interval);
                assert_eq!(judged, (Verdict::Undecided, Method::Bound, None), "{bench} {column}");
                assert_eq!(difference.measured_change(), None);
            }
        }
    }
}

#[test]
fn the_direction_of_a_bound_decides_what_it_tells() {
    use Is::{AtLeast, AtMost, Measured};
    for (column, bound, [low, high], expected) in [
        // At most 400 in the first run, 800 in the second: it has grown, by at least about 400.
        (LINES, [AtMost, Measured], [400.0, 800.0], "worse"),
        // At most 400 in the second run, 800 in the first.
        (LINES, [Measured, AtMost], [800.0, 400.0], "better"),
        (LINES, [Measured, AtMost], [400.0, 800.0], "can't tell"),
        (LINES, [AtMost, Measured], [800.0, 400.0], "can't tell"),
        (SLOWDOWN, [Measured, AtLeast], [400.0, 800.0], "worse"),
        (SLOWDOWN, [AtLeast, Measured], [800.0, 400.0], "better"),
        (SLOWDOWN, [Measured, AtLeast], [800.0, 400.0], "can't tell"),
        // The measured figures are equal to the bound.
        (LINES, [AtMost, Measured], [400.0, 400.0], "can't tell"),
    ] {
        for bench in ["live", "sim"] {
            let (base, new) = (run(bench, low, bound[0]), run(bench, high, bound[1]));
            let found = compare(&base, &new, &plan(&[])).unwrap();
            let difference = of_column(&found, column);
            assert_eq!(difference.verdict.word(), expected, "{bench} {column} {low} {high}");
            assert_eq!(difference.method, Method::Bound);
            let (low, high) = difference.interval.unwrap();
            assert!(low.is_finite() != high.is_finite(), "{low} {high}");
        }
    }
}

#[test]
fn a_lower_bound_above_an_upper_bound_is_a_real_difference() {
    let (mut base, mut new) = (run("live", 400.0, Is::AtMost), run("live", 800.0, Is::AtMost));
    // Another version of irqlab could mark lower bounds in this column.
    let lower = |run: &mut Run| {
        run.tables[0].columns[1] = run.tables[0].columns[1].clone().bound("is_upper_bound", "≥")
    };
    lower(&mut new);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(of_column(&found, LINES).verdict, Verdict::Worse);
    lower(&mut base);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(of_column(&found, LINES).verdict, Verdict::Undecided);
}

#[test]
fn the_same_quantity_in_another_unit_is_a_bound_too() {
    let (base, new) = (run("sim", 400.0, Is::AtMost), run("sim", 800.0, Is::AtMost));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(of_column(&found, "displaced_bytes").method, Method::Bound);
    assert_eq!(of_column(&found, SLOWDOWN).method, Method::Exact);
}

#[test]
fn bounds_of_several_runs_are_bounds() {
    let side = |figure: f64, is: [Is; 3]| -> Vec<Run> {
        let figures = [figure, figure + 1.0, figure + 2.0];
        figures.into_iter().zip(is).map(|(figure, is)| run("live", figure, is)).collect()
    };
    let (measured, at_most) = ([Is::Measured; 3], [Is::AtMost; 3]);
    let some = [Is::Measured, Is::AtMost, Is::Measured];
    for (base, new, expected) in [
        (side(400.0, at_most), side(800.0, at_most), "can't tell"),
        (side(400.0, some), side(800.0, some), "can't tell"),
        (side(400.0, at_most), side(800.0, measured), "worse"),
        (side(400.0, some), side(800.0, measured), "worse"),
        (side(400.0, measured), side(800.0, at_most), "can't tell"),
        (side(800.0, measured), side(400.0, at_most), "better"),
        (side(400.0, measured), side(800.0, measured), "worse"),
    ] {
        let found = compare_series(&base, &new, &plan(&[])).unwrap();
        let difference = of_column(&found, LINES);
        assert_eq!(difference.verdict.word(), expected);
        let has_bound = difference.method == Method::Bound;
        assert_eq!(has_bound, difference.has_bound());
    }
}

#[test]
fn a_rule_on_bounds_alone_is_refused_and_one_on_a_bound_is_in_doubt() {
    let rule = "footprint[level=l1d].displaced_lines>+1%";
    let at_most = |figure: f64| run("live", figure, Is::AtMost);
    let error = compare(&at_most(446.0), &at_most(474.0), &plan(&[rule])).unwrap_err();
    assert!(matches!(error, CompareError::Bounds(..)), "{error}");
    assert!(error.to_string().contains("l1d: both are upper bounds"), "{error}");
    assert!(matches!(self_test(&at_most(446.0), &plan(&[rule])), Err(CompareError::Bounds(..))));
    let ruling = |base: &Run, new: &Run, rule: &str| {
        let found = compare(base, new, &plan(&[rule])).unwrap();
        let outcome = found.outcomes[0].clone();
        let has_warning = found.warnings.iter().any(|text| text.contains("is not checked on 1"));
        assert_eq!(has_warning, outcome.ruling == Ruling::InDoubt, "{:?}", found.warnings);
        assert_eq!(outcome.worst.unwrap().1, None);
        outcome.ruling
    };
    let measured = |figure: f64| run("live", figure, Is::Measured);
    // It has grown from at most 400.
    assert_eq!(ruling(&at_most(400.0), &measured(800.0), rule), Ruling::Broken);
    // It may have grown.
    assert_eq!(ruling(&at_most(400.0), &measured(400.0), rule), Ruling::InDoubt);
    assert_eq!(ruling(&measured(400.0), &at_most(800.0), rule), Ruling::InDoubt);
    // It has not grown.
    assert_eq!(ruling(&measured(800.0), &at_most(400.0), rule), Ruling::Holds);
    let shrinks = "footprint[level=l1d].displaced_lines<-1%";
    assert_eq!(ruling(&measured(800.0), &at_most(400.0), shrinks), Ruling::Broken);
    assert_eq!(ruling(&at_most(400.0), &measured(800.0), shrinks), Ruling::Holds);
}

#[test]
fn the_table_has_no_change_and_no_infinite_end_of_a_bound() {
    let (base, new) = (run("live", 400.0, Is::AtMost), run("live", 800.0, Is::Measured));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert!(found.warnings.iter().any(|text| text.contains("base is an upper bound")));
    let (tables, _) = tables(&found, &[], Listed::All);
    let differences = tables.iter().find(|table| table.name == "differences").unwrap();
    let is_lines = |row: &&Vec<Value>| differences.get(row, "column") == Some(&LINES.into());
    let row = differences.rows().iter().find(is_lines).unwrap();
    let cell = |name: &str| differences.get(row, name).unwrap().clone();
    for absent in ["base_low", "change_ratio", "change", "change_high_ratio"] {
        assert_eq!(cell(absent), Value::Absent, "{absent}");
    }
    assert_eq!(cell("base_high"), 410.0.into());
    let low = cell("change_low_ratio").number().unwrap();
    assert!((0.5..1.0).contains(&low), "{low}");
    assert_eq!(cell("note"), "base is an upper bound".into());
    assert_eq!(cell("method"), "bound".into());
}

#[test]
fn changes_of_a_sweep_are_judged_as_those_of_two_runs() {
    for (is, figures, verdict) in [
        ([Is::AtMost, Is::AtMost], [400.0, 800.0], Verdict::Undecided),
        ([Is::AtMost, Is::Measured], [400.0, 800.0], Verdict::Worse),
    ] {
        let [base, new] = [0, 1].map(|side| run("live", figures[side], is[side]));
        let (table, column) = (&base.tables[0], &base.tables[0].columns[1]);
        let reading =
            |run: &Run| Reading::new(run, table, &run.tables[0].rows()[0], column).unwrap();
        let (base, new) = (reading(&base), reading(&new));
        assert_eq!(base.bound(), Some(Bound::Upper));
        assert_eq!(base.interval(), Some((f64::NEG_INFINITY, 410.0)));
        let change = changes(table, column, &[(&base, &new)], &plan(&[]))[0];
        assert_eq!((change.verdict, change.method), (verdict, Method::Bound));
        assert_eq!(change.difference, None);
        assert_eq!(change.least_difference().is_some(), verdict == Verdict::Worse);
        assert_eq!(change.is_judged(), verdict == Verdict::Worse);
    }
}

/// A run of the live bench with a context: its mean and CPU share, each with a half width, and a mean without one. All are
/// below the detection limit if the context is. `None`: a half width that is not known.
fn run_with_limit(mean_ns: f64, half_width: Option<f64>, is_below: bool) -> Run {
    let columns = vec![
        Column::new("kind", Kind::Text, "").key(),
        Column::new("number", Kind::Text, "").key(),
        Column::new("name", Kind::Text, "").key(),
        Column::new("self_mean_ns", Kind::Real, "")
            .cost()
            .plus_minus("self_mean_ci95_ns")
            .interval(
                IntervalColumns::half_width("self_mean_ci95_ns").degrees_of_freedom("freedom"),
            )
            .below_limit("is_below"),
        Column::new("self_mean_ci95_ns", Kind::Real, "").detail(),
        Column::new("self_cpu_ratio", Kind::Real, "")
            .cpu_share()
            .interval(IntervalColumns::half_width("self_cpu_ci95_ratio"))
            .below_limit("is_below"),
        Column::new("self_cpu_ci95_ratio", Kind::Real, "").detail(),
        Column::new("inclusive_mean_ns", Kind::Real, "").cost().below_limit("is_below"),
        Column::new("is_below", Kind::Bool, "").detail(),
        Column::new("freedom", Kind::Uint, "").detail(),
    ];
    let mut table = Table::new("handlers", "", columns);
    let half_width = Value::from(half_width);
    let share = if is_below { 0.0 } else { mean_ns * 1e-5 };
    let names = ["vector".into(), "".into(), "reschedule".into()];
    let mean = [mean_ns.into(), half_width];
    let others = [share.into(), 0.02.into(), mean_ns.into(), is_below.into(), 7_u64.into()];
    table.push(names.into_iter().chain(mean).chain(others).collect());
    run_of_table("live", table)
}

const MEAN: &str = "self_mean_ns";

#[test]
fn numbers_below_the_detection_limit_are_upper_bounds_or_tell_nothing() {
    let below = |mean: f64| run_with_limit(mean, Some(2_300.0), true);
    let (base, new) = (below(-924.0), below(-253.0));
    let found = compare_all(&base, &new);
    for column in [MEAN, "self_cpu_ratio", "inclusive_mean_ns"] {
        let difference = of_column(&found, column);
        let judged = (difference.verdict, difference.method, difference.measured_change());
        assert_eq!(judged, (Verdict::Undecided, Method::Bound, None), "{column}");
    }
    let shown = |column: &str| of_column(&found, column).pair.base.unwrap().shown_value();
    let shown = [MEAN, "self_cpu_ratio", "inclusive_mean_ns"].map(shown);
    // The mean without a half width has no known end.
    assert_eq!(shown, [Some(1_376.0), Some(0.02), None]);
    let rule = "handlers[name=reschedule].self_mean_ns>+5%";
    let error = compare(&below(-924.0), &below(-253.0), &plan(&[rule])).unwrap_err();
    assert!(matches!(error, CompareError::Bounds(..)), "{error}");
    // The end of the interval is negative, which a time is not, or not known.
    for half_width in [Some(500.0), None] {
        let base = run_with_limit(-982.0, half_width, true);
        let new = run_with_limit(9_000.0, Some(10.0), false);
        let found = compare_all(&base, &new);
        let difference = of_column(&found, MEAN);
        assert_eq!(difference.pair.base.unwrap().bound, Some(Bound::BelowLimit));
        assert_eq!((difference.verdict, difference.interval), (Verdict::Undecided, None));
    }
}

fn compare_all<'a>(base: &'a Run, new: &'a Run) -> Comparison<'a> {
    compare(base, new, &Plan { all_rows: true, ..plan(&[]) }).unwrap()
}

#[test]
fn a_number_above_the_bound_of_one_below_the_detection_limit_has_grown() {
    let (below, measured) =
        (run_with_limit(-924.0, Some(2_300.0), true), run_with_limit(90_000.0, Some(10.0), false));
    let found = compare_all(&below, &measured);
    assert_eq!(of_column(&found, MEAN).verdict, Verdict::Worse);
    let (low, high) = of_column(&found, MEAN).interval.unwrap();
    // The end of 95 % is 1,376 ns. The interval of the change allows for all figures of the comparison, so its end is lower.
    assert!((85_000.0..90_000.0 - 1_376.0).contains(&low) && high == f64::INFINITY, "{low}");
    let found = compare_all(&measured, &below);
    assert_eq!(of_column(&found, MEAN).verdict, Verdict::Better);
    let (other_low, other_high) = of_column(&found, MEAN).interval.unwrap();
    assert_eq!((other_low, other_high), (f64::NEG_INFINITY, -low));
    // No sentence states an amount: nobody knows how much the context's time fell.
    let (tables, _) = tables(&found, &[], Listed::All);
    assert!(tables.iter().all(|table| table.name != "totals"));
}

#[test]
fn a_sweep_has_no_reading_of_a_number_below_the_limit_without_a_bound() {
    let run = run_with_limit(-924.0, Some(2_300.0), true);
    let table = &run.tables[0];
    let reading = |name: &str| {
        let column = &table.columns[table.column(name).unwrap()];
        let row = &table.rows()[0];
        (Reading::new(&run, table, row, column), is_below_limit(table, row, column))
    };
    let (mean, is_unknown) = reading(MEAN);
    let mean = mean.unwrap();
    assert_eq!((mean.value(), mean.bound(), is_unknown), (1_376.0, Some(Bound::Upper), false));
    assert_eq!(mean.interval(), Some((f64::NEG_INFINITY, 1_376.0)));
    assert_eq!(reading("inclusive_mean_ns"), (None, true));
}
