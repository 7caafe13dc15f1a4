//! Comparisons of small runs with known differences.

use record::{Column, IntervalColumns, Kind, Run, SCHEMA, Table, Value};

use super::*;

/// A run of a bench with one table.
pub(super) fn run_of_table(bench: &str, table: Table) -> Run {
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "handlers".to_owned(),
        bench: bench.to_owned(),
        started_utc: String::new(),
        complete: true,
        host: serde_json::Map::new(),
        settings: serde_json::Map::new(),
        observer: serde_json::Map::new(),
        warnings: Vec::new(),
        absent: Vec::new(),
        tables: vec![table],
    }
}

/// Degrees of freedom of the intervals of batches: those of the fewest batches.
const BATCHES_FREEDOM: u64 = 7;

/// A column of means whose intervals come from batches of the window, in the columns `half_width` and `freedom`.
fn mean_of_batches(name: &str, half_width: &str, freedom: &str) -> Column {
    Column::new(name, Kind::Real, "")
        .interval(IntervalColumns::half_width(half_width).degrees_of_freedom(freedom))
        .plus_minus(half_width)
        .cost()
}

fn run(bench: &str, rows: &[(&str, f64, Option<f64>)]) -> Run {
    let rows: Vec<_> = rows.iter().map(|(name, mean, half)| (*name, *mean, *half, 7_u64)).collect();
    run_with_counts(bench, &rows)
}

/// A run of `handlers`. Rows: name, mean, half width of its interval, number of spans.
fn run_with_counts(bench: &str, rows: &[(&str, f64, Option<f64>, u64)]) -> Run {
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        mean_of_batches("self_mean_ns", "self_mean_ci95_ns", "self_mean_ci95_dof"),
        Column::new("self_mean_ci95_ns", Kind::Real, "").detail(),
        Column::new("self_mean_ci95_dof", Kind::Uint, "").detail(),
        Column::new("count", Kind::Uint, ""),
    ];
    let mut table = Table::new("handlers", "", columns);
    for (name, mean, half, count) in rows {
        table.push(vec![
            (*name).into(),
            (*mean).into(),
            (*half).into(),
            BATCHES_FREEDOM.into(),
            (*count).into(),
        ]);
    }
    run_of_table(bench, table)
}

fn plan(rules: &[&str]) -> Plan {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Plan { all_rows: false, margin_ratio: 0.02, rules }
}

/// The verdict on the mean of `name`.
fn verdict(comparison: &Comparison<'_>, name: &str) -> Verdict {
    let is = |difference: &&Difference<'_>| {
        difference.pair.row[0].1 == name && difference.pair.column.name == "self_mean_ns"
    };
    comparison.differences.iter().find(is).unwrap().verdict
}

#[test]
fn simulated_figures_differ_by_any_difference() {
    let base = run("sim", &[("a", 1000.0, Some(50.0)), ("b", 10.0, None), ("c", 5.0, None)]);
    let new = run("sim", &[("a", 1000.5, Some(50.0)), ("b", 10.0, None)]);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(verdict(&found, "a"), Verdict::Worse);
    assert_eq!(verdict(&found, "b"), Verdict::Equal);
    assert_eq!(verdict(&found, "c"), Verdict::Missing);
    assert_eq!(found.differences[0].interval, Some((0.5, 0.5)));
    // Counts have no direction, and are compared all the same.
    assert_eq!(found.differences.len(), 6);
}

/// A run of `handlers` in one condition. Rows: name, spans, mean self time, share of CPU time.
fn contexts(condition: &str, rows: &[(&str, u64, f64, f64)]) -> Run {
    let columns = vec![
        Column::new("condition", Kind::Text, "").key(),
        Column::new("kind", Kind::Text, "").key(),
        Column::new("name", Kind::Text, "").key(),
        Column::new("count", Kind::Uint, "").detail(),
        Column::new("self_mean_ns", Kind::Real, "").cost(),
        Column::new("self_cpu_ratio", Kind::Real, "").cpu_share(),
    ];
    let mut table = Table::new("handlers", "", columns);
    for (name, count, mean, share) in rows {
        let keys = [condition, "softirq", name].map(Value::from);
        let figures = [(*count).into(), (*mean).into(), (*share).into()];
        table.push(keys.into_iter().chain(figures).collect());
    }
    run_of_table("sim", table)
}

#[test]
fn runs_with_one_condition_each_are_compared_whatever_its_name() {
    let base = contexts("ambient", &[("TIMER", 100, 50.0, 0.1)]);
    let new = contexts("command", &[("TIMER", 100, 25.0, 0.05)]);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert!(found.differences.iter().all(|difference| difference.verdict != Verdict::Missing));
    assert_eq!(found.warnings, ["condition ambient is compared with condition command"]);
    // Two conditions are told apart by their names.
    let mut two = base.clone();
    two.tables[0].push(contexts("busy", &[("TIMER", 1, 1.0, 0.1)]).tables[0].rows()[0].clone());
    let found = compare(&two, &new, &plan(&[])).unwrap();
    assert!(found.differences.iter().all(|difference| difference.change.is_none()));
}

#[test]
fn repeated_runs_of_one_side_have_one_condition() {
    let run = |condition: &str, mean: f64| contexts(condition, &[("TIMER", 100, mean, 0.1)]);
    let three = |condition: &str, mean: f64| vec![run(condition, mean); 3];
    let (base, mut new) = (three("ambient", 50.0), three("command", 25.0));
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    assert!(found.differences.iter().all(|difference| difference.verdict != Verdict::Missing));
    assert_eq!(found.warnings[0], "condition ambient is compared with condition command");
    // The figures of the third run are of another condition.
    new[2] = run("ambient", 75.0);
    let error = compare_series(&base, &new, &plan(&[])).unwrap_err().to_string();
    let says = "the runs of the second side have different conditions, command and ambient";
    assert!(error.starts_with(says), "{error}");
}

#[test]
fn differences_are_ranked_by_their_effect_and_few_spans_come_last() {
    let base = contexts(
        "a",
        &[("RARE", 3, 100.0, 0.4), ("SMALL", 100, 100.0, 0.001), ("NET_RX", 100, 100.0, 0.3)],
    );
    let new = contexts(
        "a",
        &[("RARE", 3, 900.0, 0.4), ("SMALL", 100, 300.0, 0.001), ("NET_RX", 100, 151.3, 0.3)],
    );
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let worse = found.differences.iter().filter(|found| found.verdict == Verdict::Worse);
    let names: Vec<&str> = worse.map(|found| found.pair.row[2].1.as_str()).collect();
    assert_eq!(names, ["NET_RX", "SMALL", "RARE"]);
    let found = compare(&new, &base, &plan(&[])).unwrap();
    let (tables, _) = tables(&found, &[], Listed::All);
    let finding = |table: &Table, row: usize| match table.get(&table.rows()[row], "finding") {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    };
    assert_eq!(finding(&tables[0], 0), "NET_RX: 33.9 % less CPU time per interrupt");
    assert_eq!((tables[0].name.as_str(), tables[0].rows().len()), ("totals", 2));
    let notes =
        tables[1].rows().iter().map(|row| tables[1].get(row, "note") != Some(&Value::Absent));
    assert_eq!(notes.filter(|is_marked| *is_marked).count(), 2);
}

#[test]
fn only_the_part_of_a_setting_that_differs_is_named() {
    let with = |bytes: u64, wall: u64| {
        let mut run = run("sim", &[("a", 1.0, None)]);
        let model = serde_json::json!({"name": "zen3", "l2": {"bytes": bytes, "ways": 8}});
        run.settings.insert("model".to_owned(), model);
        run.settings.insert("on_host".to_owned(), serde_json::json!({"wall_ns": wall}));
        run
    };
    let (base, new) = (with(1, 5), with(2, 6));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(found.warnings, ["setting model.l2.bytes differs: 1 and 2"]);
}

#[test]
fn a_truth_value_can_name_a_row() {
    let mut base = run("sim", &[]);
    let columns = vec![
        Column::new("bulk", Kind::Bool, "").key(),
        Column::new("self_mean_ns", Kind::Real, "").cost(),
    ];
    base.tables[0] = Table::new("round_trips", "", columns);
    base.tables[0].push(vec![false.into(), 3.0.into()]);
    base.tables[0].push(vec![true.into(), 5.0.into()]);
    let found = compare(&base, &base, &plan(&[])).unwrap();
    assert_eq!(verdict(&found, "false"), Verdict::Equal);
    assert_eq!(verdict(&found, "true"), Verdict::Equal);
}

#[test]
fn measured_figures_differ_beyond_their_intervals() {
    let base =
        run("live", &[("a", 100.0, Some(3.0)), ("b", 100.0, Some(3.0)), ("c", 100.0, Some(0.1))]);
    let new =
        run("live", &[("a", 120.0, Some(4.0)), ("b", 104.0, Some(4.0)), ("c", 100.5, Some(0.1))]);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(verdict(&found, "a"), Verdict::Worse);
    assert_eq!(verdict(&found, "b"), Verdict::Undecided);
    assert_eq!(verdict(&found, "c"), Verdict::Equal);
    // Seven degrees of freedom each: 2.365 standard errors are the half widths, 3 and
    // 3.33 %. The ratio has 13.8 (Welch), and 2.728 standard errors for three figures at once.
    let (low, high) = found.differences[0].interval.unwrap();
    let half_width = f64::hypot(0.03, 4.0 / 120.0) / 2.365 * 2.728;
    assert!((low - (120.0 * f64::exp(-half_width) - 100.0)).abs() < 0.02, "{low}");
    assert!((high - (120.0 * f64::exp(half_width) - 100.0)).abs() < 0.02, "{high}");
    let better = compare(&new, &base, &plan(&[])).unwrap();
    assert_eq!(verdict(&better, "a"), Verdict::Better);
    // The same on a simulated machine, whose figures have no such error.
    let [base, new] = [base, new].map(|run| Run { bench: "sim".to_owned(), ..run });
    assert_eq!(verdict(&compare(&base, &new, &plan(&[])).unwrap(), "b"), Verdict::Worse);
}

/// A run with one row, whose columns say how uncertain the mean and the quantile are. The names of these columns mean
/// nothing.
fn run_with_spread(mean: f64, quantile: u64, spread: (u64, f64)) -> Run {
    let real = |name: &str| Column::new(name, Kind::Real, "").detail();
    let uint = |name: &str| Column::new(name, Kind::Uint, "").detail();
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        Column::new("mean_ns", Kind::Real, "")
            .interval(IntervalColumns::half_width("b").degrees_of_freedom("c").drift("d"))
            .plus_minus("b")
            .cost(),
        real("b"),
        uint("c"),
        real("d"),
        Column::new("p99_ns", Kind::Uint, "")
            .interval(IntervalColumns::bounds("e", "f").wide_bounds("g", "h"))
            .cost(),
        uint("e"),
        uint("f"),
        uint("g"),
        uint("h"),
        Column::new("rate_hz", Kind::Real, "")
            .interval(IntervalColumns::half_width("i").degrees_of_freedom("c"))
            .priority(40),
        real("i"),
    ];
    let mut table = Table::new("handlers", "", columns);
    table.push(vec![
        "a".into(),
        mean.into(),
        1.96.into(),
        spread.0.into(),
        spread.1.into(),
        quantile.into(),
        (quantile - 1).into(),
        (quantile + 1).into(),
        (quantile - 4).into(),
        (quantile + 8).into(),
        100.0.into(),
        5.0.into(),
    ]);
    run_of_table("live", table)
}

/// The distances of the ends of the interval of the change of a column.
fn distances_of(found: &Comparison<'_>, column: &str) -> (f64, f64) {
    let is_column = |difference: &&Difference<'_>| difference.pair.column.name == column;
    let difference = found.differences.iter().find(is_column).unwrap();
    let (low, high) = difference.interval.unwrap();
    (difference.change.unwrap() - low, high - difference.change.unwrap())
}

#[test]
fn a_name_alone_links_no_interval_and_no_share_of_cpu_time() {
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        Column::new("mean_ns", Kind::Real, "").cost(),
        Column::new("mean_ci95_ns", Kind::Real, "").detail(),
        Column::new("self_cpu_ratio", Kind::Real, "").detail(),
    ];
    let mut table = Table::new("handlers", "", columns);
    table.push(vec!["a".into(), 5.0.into(), 0.1.into(), 0.001.into()]);
    let run = run_of_table("live", table);
    let found = compare(&run, &run, &plan(&[])).unwrap();
    let [mean] = &found.differences[..] else { panic!("{:?}", found.differences) };
    assert_eq!((mean.method, mean.pair.cpu_share), (Method::NoInterval, None));
    let notes = &tables(&found, &[], Listed::All).0[0].display.notes;
    let has_remedy = |note: &String| note.contains("no interval: measure longer (-d)");
    assert!(notes.iter().any(has_remedy), "{notes:?}");
}

#[test]
fn intervals_are_as_wide_as_degrees_of_freedom_and_drift_ask_for() {
    let many = 1_000_000;
    let (base, new) =
        (run_with_spread(100.0, 50, (many, 0.0)), run_with_spread(100.0, 60, (many, 0.0)));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(found.differences.len(), 3, "a rate with an interval is judged too");
    // 2.394 normal deviations for three figures; each mean has a standard error of 1.
    let (down, up) = distances_of(&found, "mean_ns");
    let ratio = f64::exp(0.023_94 * f64::sqrt(2.0));
    assert!((down - 100.0 * (1.0 - 1.0 / ratio)).abs() < 0.01, "{down}");
    assert!((up - 100.0 * (ratio - 1.0)).abs() < 0.01, "{up}");
    // The wide intervals, 3.891 deviations, as wide as 2.394 need: 4 below and 8 above both. Of the 8, the bucket that ends
    // 2 above each quantile is not scaled.
    let (down, up) = distances_of(&found, "p99_ns");
    assert!((down - f64::hypot(4.0, 6.0) * 2.394 / 3.891 - 2.0).abs() < 0.01, "{down}");
    assert!((up - down).abs() < 1e-9, "{up}");
    // A drift of 2 is four times the variance of an error of 1, with seven degrees of freedom.
    let drifting = run_with_spread(100.0, 50, (many, 2.0));
    let found = compare(&drifting, &drifting, &plan(&[])).unwrap();
    let (_, up) = distances_of(&found, "mean_ns");
    assert!(up > 2.394 * f64::sqrt(10.0) * 1.05, "{up}");
    let few = run_with_spread(100.0, 50, (3, 0.0));
    let (of_few, _) = distances_of(&compare(&few, &few, &plan(&[])).unwrap(), "mean_ns");
    assert!(of_few < 2.394 * f64::sqrt(2.0), "the error of 3.182 half widths is smaller: {of_few}");
}

#[test]
fn a_rule_is_broken_beyond_its_limit_alone() {
    let base = run("live", &[("a", 100.0, Some(1.0)), ("b", 100.0, Some(1.0))]);
    let new = run("live", &[("a", 110.0, Some(1.0)), ("b", 90.0, Some(1.0))]);
    let ruling = |rule: &str| compare(&base, &new, &plan(&[rule])).unwrap().outcomes[0].ruling;
    assert_eq!(ruling("handlers.self_mean_ns>+5%"), Ruling::Broken);
    // 10 % with an interval of 1.6: beyond 9 % for all that is measured, and not for all that is known.
    assert_eq!(ruling("handlers.self_mean_ns>+9%"), Ruling::InDoubt);
    assert_eq!(ruling("handlers.self_mean_ns>+20%"), Ruling::Holds);
    assert_eq!(ruling("self_mean_ns>+5"), Ruling::Broken);
    assert_eq!(ruling("handlers[name=b].self_mean_ns>+5%"), Ruling::Holds);
    assert_eq!(ruling("handlers[name=b].self_mean_ns<-5%"), Ruling::Broken);
    let outcome = &compare(&base, &new, &plan(&["handlers.self_mean_ns>+5%"])).unwrap().outcomes[0];
    assert_eq!((outcome.cells, outcome.missing), (2, 0));
    assert_eq!(outcome.worst, Some(("a".to_owned(), Some(0.1))));
}

#[test]
fn a_gate_that_checks_nothing_is_refused() {
    let base = run("live", &[("a", 100.0, Some(1.0))]);
    let error = |rule: &str| compare(&base, &base, &plan(&[rule])).unwrap_err().to_string();
    assert!(error("handlers.self_p99_ns>+5%").contains("about no figure"));
    assert!(
        error("handlers[name=x].self_mean_ns>+5%").contains("no row of handlers has these keys")
    );
    assert!(error("handlers.count>+5%").contains("has an interval"));
    let rule = plan(&["handlers.self_mean_ns>+5%"]);
    let gone = run("live", &[("z", 1.0, Some(0.1))]);
    let error = compare(&base, &gone, &rule).unwrap_err().to_string();
    assert!(error.contains("the second run has none of its figures"), "{error}");
    let both = run("live", &[("a", 100.0, Some(1.0)), ("z", 1.0, Some(0.1))]);
    let found = compare(&both, &gone, &rule).unwrap();
    assert_eq!((found.outcomes[0].ruling, found.outcomes[0].missing), (Ruling::InDoubt, 1));
    let other = Run { experiment: "noise".to_owned(), ..base.clone() };
    assert!(matches!(compare(&base, &other, &plan(&[])), Err(CompareError::Experiments(..))));
    let twice = run("live", &[("a", 1.0, None), ("a", 2.0, None)]);
    assert_eq!(compare(&twice, &twice, &plan(&[])).unwrap_err(), CompareError::Nothing);
}

#[test]
fn the_self_test_finds_from_where_a_rule_breaks() {
    let rules = plan(&["handlers.self_mean_ns>+5%", "handlers.self_mean_ns<-5%"]);
    let exact = self_test(&run("sim", &[("a", 100.0, None)]), &rules).unwrap();
    for test in &exact {
        assert!(test.holds_for_itself);
        assert!((test.breaks_from_ratio.unwrap() - 0.05).abs() < 1e-6, "{test:?}");
    }
    // Two intervals of 3 with seven degrees of freedom each make one of 3.7 % with 14.
    let live = self_test(&run("live", &[("a", 100.0, Some(3.0))]), &rules).unwrap();
    assert!((live[0].breaks_from_ratio.unwrap() - 0.0895).abs() < 2e-4, "{live:?}");
    // No figure can shrink by more than itself.
    let never = plan(&["handlers.self_mean_ns<-100%"]);
    assert_eq!(
        self_test(&run("sim", &[("a", 100.0, None)]), &never).unwrap()[0].breaks_from_ratio,
        None
    );
}

#[test]
fn rules_are_read_or_refused_with_their_form() {
    let rule: Rule = "handlers[name=a>b, kind=irq].self_p99_ns > +2.5%".parse().unwrap();
    assert_eq!(rule.table.as_deref(), Some("handlers"));
    assert_eq!(rule.filter[0], ("name".to_owned(), "a>b".to_owned()));
    assert_eq!((rule.column.as_str(), rule.is_upper), ("self_p99_ns", true));
    assert_eq!(rule.limit, Limit::Ratio(0.025));
    for text in [
        "", "handlers", "a.b>", "a.b>x%", "a.b>inf", "a.b>-2%", "a.b<+2%", "a[b.c>1", "a[b]c>1",
        ".b>1", "a[b].c>1", ">1",
    ] {
        let error = text.parse::<Rule>().expect_err(text).to_string();
        assert!(error.contains("a rule is TABLE.COLUMN>+2%"), "{error}");
    }
}

#[test]
fn what_else_differs_is_said() {
    let mut base = run("live", &[("a", 1.0, Some(0.1))]);
    let mut new = base.clone();
    new.complete = false;
    base.settings.insert("duration_ns".to_owned(), 1.into());
    new.settings.insert("duration_ns".to_owned(), 2.into());
    base.host.insert("kernel".to_owned(), "6.1".into());
    let warnings = compare(&base, &new, &plan(&[])).unwrap().warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[2].contains("setting duration_ns differs: 1 and 2"), "{warnings:?}");
    let mut rows = base.tables[0].rows().to_vec();
    rows.push(vec!["b".into(), 1.0.into(), Value::Absent, Value::Absent, 1_u64.into()]);
    rows.into_iter().skip(1).for_each(|row| new.tables[0].push(row));
    let warnings = compare(&base, &new, &plan(&[])).unwrap().warnings;
    // Without an interval, only the cost of row `b` is compared on a live bench.
    let says = "1 figures are in the second run alone";
    assert!(warnings.last().unwrap().contains(says), "{warnings:?}");
}

/// The verdict on the mean of each row, by the row's name.
fn verdicts_by_row<'f>(found: &'f Comparison<'_>) -> Vec<(String, &'f str)> {
    let is_mean = |difference: &&Difference<'_>| difference.pair.column.name == "self_mean_ns";
    let means = found.differences.iter().filter(is_mean);
    let mut verdicts: Vec<_> =
        means.map(|difference| (difference.row_name(), difference.verdict.word())).collect();
    verdicts.sort();
    verdicts
}

#[test]
fn figures_of_one_run_alone_are_listed_and_counted_in_both_directions() {
    let rows = [("a", 100.0, None), ("b", 100.0, None), ("c", 100.0, None)];
    let (all, mut fewer) = (run("sim", &rows), run("sim", &rows[..2]));
    // Row b has no mean, and c does not exist.
    let column = fewer.tables[0].column("self_mean_ns").unwrap();
    let mut without_mean = Table::new("handlers", "", fewer.tables[0].columns.clone());
    for (index, row) in fewer.tables[0].rows().iter().enumerate() {
        let mut row = row.clone();
        if index == 1 {
            row[column] = Value::Absent;
        }
        without_mean.push(row);
    }
    fewer.tables[0] = without_mean;
    let rule = plan(&["handlers.self_mean_ns>+5%"]);
    for (base, new, verdict, counts) in
        [(&all, &fewer, "missing", (2, 0)), (&fewer, &all, "added", (0, 2))]
    {
        let found = compare(base, new, &rule).unwrap();
        let expected = [("a", "equal"), ("b", verdict), ("c", verdict)];
        assert_eq!(
            verdicts_by_row(&found),
            expected.map(|(row, verdict)| (row.to_owned(), verdict))
        );
        let outcome = &found.outcomes[0];
        assert_eq!((outcome.cells, (outcome.missing, outcome.added)), (1, counts));
        let is_of_one_side = |difference: &&Difference<'_>| difference.change.is_none();
        let mut of_one_side = found.differences.iter().filter(is_of_one_side);
        assert!(of_one_side.all(|difference| difference.method == Method::Exact));
        let [base, new] = [base, new].map(|run| Run { bench: "live".to_owned(), ..run.clone() });
        let live = compare(&base, &new, &plan(&[])).unwrap();
        let mut of_one_side = live.differences.iter().filter(is_of_one_side);
        assert!(of_one_side.all(|difference| difference.method.word().is_none()));
        assert_eq!(
            (outcome.ruling, outcome.worst.clone()),
            (Ruling::InDoubt, Some(("b".to_owned(), None)))
        );
        let is_about_rule = |warning: &String| {
            warning.starts_with(
                "rule \"handlers.self_mean_ns>+5%\" is not checked on 2 of its 3 figures",
            )
        };
        assert!(found.warnings.iter().any(is_about_rule), "{:?}", found.warnings);
        let (tables, _) = tables(&found, &[], Listed::Differing);
        let [rules, differences] = &tables[..] else { panic!("two tables") };
        assert_eq!(rules.get(&rules.rows()[0], "added_count"), Some(&Value::Uint(counts.1 as u64)));
        // Row c has a count, too.
        assert_eq!(differences.rows().len(), 3, "{:?}", differences.rows());
        assert!(differences.display.notes[0].contains(&format!("3 {verdict}")));
        assert_eq!(differences.check_display(), Ok(()));
    }
    let only_added = compare(&fewer, &all, &plan(&["handlers[name=c].self_mean_ns>+5%"]));
    let error = only_added.unwrap_err().to_string();
    assert!(
        error.contains("is about no figure of the first run: only the second run has"),
        "{error}"
    );
}

#[test]
fn a_column_and_a_table_of_the_second_run_alone_are_not_passed_over() {
    let base = run("sim", &[("a", 100.0, None)]);
    let mut new = base.clone();
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        Column::new("self_mean_ns", Kind::Real, "").cost(),
    ];
    let mut table = Table::new("napi", "", columns);
    table.push(vec!["poll".into(), 5.0.into()]);
    new.tables.push(table);
    let reasons = |base: &Run, new: &Run| -> Vec<String> {
        let found = compare(base, new, &plan(&[])).unwrap();
        assert!(found.differences.iter().all(|difference| difference.verdict == Verdict::Equal));
        let (_, absent) = tables(&found, &[], Listed::All);
        absent.into_iter().map(|absence| format!("{}: {}", absence.what, absence.reason)).collect()
    };
    assert_eq!(reasons(&base, &new), ["table napi: the first run does not have it"]);
    assert_eq!(reasons(&new, &base), ["table napi: the second run does not have it"]);
    // A rule without a table is about all tables with the column.
    for (base, new, counts) in [(&base, &new, (0, 1)), (&new, &base, (1, 0))] {
        let found = compare(base, new, &plan(&["self_mean_ns>+5%"])).unwrap();
        let outcome = &found.outcomes[0];
        assert_eq!((outcome.ruling, outcome.cells), (Ruling::InDoubt, 1));
        assert_eq!((outcome.missing, outcome.added), counts);
    }
    // A column of the second run alone.
    let mut with_column = base.clone();
    let mut columns = base.tables[0].columns.clone();
    columns.push(Column::new("self_p99_ns", Kind::Real, "").cost());
    let mut table = Table::new("handlers", "", columns);
    table.push(base.tables[0].rows()[0].iter().cloned().chain([7.0.into()]).collect());
    with_column.tables = vec![table];
    let found = compare(&base, &with_column, &plan(&[])).unwrap();
    let added = found.differences.iter().find(|difference| difference.verdict == Verdict::Added);
    assert_eq!(added.unwrap().pair.column.name, "self_p99_ns");
}

#[test]
fn a_rule_says_which_tables_it_does_not_check() {
    let mut twice = run("sim", &[("a", 1.0, None)]);
    let columns = vec![
        Column::new("cpu", Kind::Uint, "").key(),
        Column::new("self_mean_ns", Kind::Real, "").cost(),
    ];
    let mut table = Table::new("longest", "", columns);
    table.push(vec![0_u64.into(), 5.0.into()]);
    table.push(vec![0_u64.into(), 6.0.into()]);
    twice.tables.push(table);
    let warnings = |rule| compare(&twice, &twice, &plan(&[rule])).unwrap().warnings;
    let expected = "rule \"self_mean_ns>+5%\" does not check all tables with self_mean_ns: table longest is not compared: \
                    several of its rows have the same cpu";
    assert_eq!(warnings("self_mean_ns>+5%"), [expected]);
    assert_eq!(warnings("handlers.self_mean_ns>+5%"), Vec::<String>::new());
}

#[test]
fn no_run_of_a_series_is_passed_over() {
    let with = |names: &[&'static str], start: &str| {
        let rows: Vec<_> = names.iter().map(|name| (*name, 100.0, Some(1.0))).collect();
        Run { started_utc: start.to_owned(), ..run("live", &rows) }
    };
    let base = [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "b", "d"]];
    let new = [&["a", "e"][..], &["a", "b", "d"], &["a", "b"], &["a", "b"]];
    let runs = |sets: [&[&'static str]; 4], start: &str| sets.map(|names| with(names, start));
    let (base, new) = (runs(base, "1"), runs(new, "1"));
    let found = compare_series(&base, &new, &plan(&["handlers.self_mean_ns>+5%"])).unwrap();
    let expected = [
        ("a", "equal"),
        // Three pairs have b, but not the first one.
        ("b", "equal"),
        ("c", "missing"),
        // The sides have d in different pairs.
        ("d", "can't tell"),
        ("e", "added"),
    ];
    assert_eq!(verdicts_by_row(&found), expected.map(|(row, verdict)| (row.to_owned(), verdict)));
    let outcome = &found.outcomes[0];
    assert_eq!((outcome.cells, outcome.missing, outcome.added), (3, 1, 1));
    // The note says in how many pairs a figure is compared.
    let (tables, _) = tables(&found, &[], Listed::All);
    let differences = tables.iter().find(|table| table.name == "differences").unwrap();
    let notes = |row_name: &str| -> Vec<&Value> {
        let is_row =
            |row: &&Vec<Value>| differences.get(row, "row") == Some(&Value::from(row_name));
        let rows = differences.rows().iter().filter(is_row);
        rows.filter_map(|row| differences.get(row, "note")).collect()
    };
    assert_eq!(notes("a"), [&Value::from("few spans")]);
    assert_eq!(notes("b"), [&Value::from("few spans, in 3 of 4 pairs")]);
    assert_eq!(notes("c"), [&Value::from("few spans")]);
    assert_eq!(notes("d"), [&Value::from("few spans, in 0 of 4 pairs")]);
    let says = "2 figures are missing in some of the runs";
    assert!(found.warnings.iter().any(|text| text.starts_with(says)), "{:?}", found.warnings);
}

#[test]
fn a_figure_of_one_side_alone_has_the_mean_over_its_runs() {
    let with = |mean: Option<f64>| {
        let mut rows = vec![("a", 5.0, None)];
        rows.extend(mean.map(|mean| ("b", mean, None)));
        run("live", &rows)
    };
    let base = [Some(10.0), None, Some(40.0)].map(with);
    let new = [None, None, None].map(with);
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    let missing = |difference: &&Difference<'_>| difference.verdict == Verdict::Missing;
    let difference = found.differences.iter().find(missing).unwrap();
    // The geometric mean of 10 and 40.
    assert!((difference.pair.base.unwrap().value - 20.0).abs() < 1e-9, "{difference:?}");
    // The order of the runs does not matter.
    let base = [None, Some(40.0), Some(10.0)].map(with);
    let reordered = compare_series(&base, &new, &plan(&[])).unwrap();
    let difference = reordered.differences.iter().find(missing).unwrap();
    assert!((difference.pair.base.unwrap().value - 20.0).abs() < 1e-9, "{difference:?}");
}

#[test]
fn few_spans_in_any_run_are_noted_whatever_the_order_of_the_runs() {
    let with = |count: u64| run_with_counts("live", &[("a", 100.0, Some(1.0), count)]);
    let base = [100, 100, 100].map(with);
    for counts in [[5, 100, 100], [100, 5, 100], [100, 100, 5]] {
        let new = counts.map(with);
        let found = compare_series(&base, &new, &plan(&[])).unwrap();
        assert!(found.differences.iter().all(Difference::has_few_spans), "{counts:?}");
        assert_eq!(found.differences[0].pair.span_count, Some(5));
    }
    let found = compare_series(&base, &base, &plan(&[])).unwrap();
    assert!(!found.differences.iter().any(Difference::has_few_spans));
}

#[test]
fn spans_are_not_compared_once_for_each_event() {
    let events = |spans: u64| {
        let columns = vec![
            Column::new("name", Kind::Text, "").key(),
            Column::new("event", Kind::Text, "").key(),
            Column::new("span_count", Kind::Uint, ""),
            Column::new("self_mean", Kind::Real, "").cost(),
        ];
        let mut table = Table::new("events", "", columns);
        for event in ["instructions", "cycles"] {
            table.push(vec!["TIMER".into(), event.into(), spans.into(), 5.0.into()]);
        }
        run_of_table("sim", table)
    };
    let (base, new) = (events(10), events(12));
    let columns = |rules: &[&str]| -> Vec<String> {
        let found = compare(&base, &new, &plan(rules)).unwrap();
        found.differences.iter().map(|difference| difference.pair.column.name.clone()).collect()
    };
    assert_eq!(columns(&[]), ["self_mean", "self_mean"]);
    // A rule that names the column has it compared.
    assert_eq!(columns(&["events.span_count>+50%"]).len(), 4);
}

#[test]
fn a_long_comparison_may_list_what_differs_alone() {
    let base = run("sim", &[("a", 1000.0, None), ("b", 10.0, None)]);
    let new = run("sim", &[("a", 1001.0, None), ("b", 10.0, None)]);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let rows = |listed| tables(&found, &[], listed).0[0].rows().len();
    assert_eq!((rows(Listed::All), rows(Listed::Differing)), (4, 1));
    let (tables, _) = tables(&found, &[], Listed::Differing);
    let differences = tables.iter().find(|table| table.name == "differences").unwrap();
    let notes = &differences.display.notes;
    assert!(notes.iter().any(|note| note.starts_with("3 equal or undecided")), "{notes:?}");
}

/// A live run of a timer with most of the CPU time and of a rare softirq, both with narrow intervals.
fn run_with_shares(timer_ns: f64, softirq_ns: f64, started_utc: &str) -> Run {
    let mut run = run("live", &[]);
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        mean_of_batches("self_mean_ns", "self_mean_ci95_ns", "self_mean_ci95_dof"),
        Column::new("self_mean_ci95_ns", Kind::Real, "").detail(),
        Column::new("self_mean_ci95_dof", Kind::Uint, "").detail(),
        Column::new("busy", Kind::Real, "").cpu_share(),
    ];
    let mut table = Table::new("handlers", "", columns);
    for (name, mean, share) in [("timer", timer_ns, 0.1), ("softirq", softirq_ns, 0.001)] {
        let half_width = 0.001 * mean;
        let freedom = BATCHES_FREEDOM.into();
        table.push(vec![name.into(), mean.into(), half_width.into(), freedom, share.into()]);
    }
    run.tables = vec![table];
    run.started_utc = started_utc.to_owned();
    run
}

#[test]
fn one_run_on_each_side_does_not_judge_rows_that_other_work_decides() {
    let (base, new) = (run_with_shares(100.0, 100.0, "1"), run_with_shares(120.0, 200.0, "2"));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(verdict(&found, "timer"), Verdict::Worse);
    assert_eq!(verdict(&found, "softirq"), Verdict::Undecided);
    let softirq = |difference: &&Difference<'_>| difference.pair.row[0].1 == "softirq";
    let methods = found.differences.iter().filter(softirq).map(|difference| difference.method);
    assert!(methods.into_iter().all(|method| method == Method::OneRun));
    let (tables, _) = tables(&found, &[], Listed::All);
    let differences = tables.iter().find(|table| table.name == "differences").unwrap();
    let notes = &differences.display.notes;
    assert!(notes.iter().any(|note| note.contains("give several runs on each side")), "{notes:?}");
    // Whoever wrote a rule has chosen its limit, and is warned.
    let ruled = compare(&base, &new, &plan(&["handlers[name=softirq].self_mean_ns>+5%"])).unwrap();
    assert_eq!(ruled.outcomes[0].ruling, Ruling::Broken);
    assert!(ruled.warnings.iter().any(|text| text.contains("rows below 1 %")));
}

#[test]
fn one_run_does_not_judge_delays_that_end_when_the_scheduler_runs_a_thread() {
    let run = |start: &str, delay_ns: f64| {
        let mut run = run_with_shares(100.0, 100.0, start);
        let columns = vec![
            Column::new("kind", Kind::Text, "").key(),
            Column::new("name", Kind::Text, "").key(),
            mean_of_batches("delay_mean_ns", "delay_mean_ci95_ns", "delay_mean_ci95_dof"),
            Column::new("delay_mean_ci95_ns", Kind::Real, "").detail(),
            Column::new("delay_mean_ci95_dof", Kind::Uint, "").detail(),
        ];
        let mut table = Table::new("delays", "", columns);
        for (kind, name) in [("softirq", "timer"), ("work", "vmstat_update")] {
            let figures = [delay_ns.into(), (0.001 * delay_ns).into(), BATCHES_FREEDOM.into()];
            table.push([Value::from(kind), name.into()].into_iter().chain(figures).collect());
        }
        run.tables.push(table);
        run
    };
    let (base, new) = (run("1", 100.0), run("2", 1_100.0));
    let judged = |found: &Comparison<'_>, row: &str| {
        let is_row = |difference: &&Difference<'_>| difference.row_name() == row;
        let difference = found.differences.iter().find(is_row).unwrap();
        (difference.verdict, difference.method)
    };
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(judged(&found, "softirq timer"), (Verdict::Worse, Method::Intervals));
    assert_eq!(judged(&found, "work vmstat_update"), (Verdict::Undecided, Method::OneRun));
    let ruled = compare(&base, &new, &plan(&["delays[kind=work].delay_mean_ns>+5%"])).unwrap();
    assert_eq!(ruled.outcomes[0].ruling, Ruling::Broken);
    assert!(ruled.warnings.iter().any(|text| text.contains("delays of work items")));
}

/// A table without shares of CPU time, whose rows are the contexts of `run_with_shares`, with narrow intervals. Rows:
/// context, CPU, instructions per span.
fn table_of_events(rows: &[(&str, &str, f64)]) -> Table {
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        Column::new("cpu", Kind::Text, "").key(),
        Column::new("event", Kind::Text, "").key(),
        mean_of_batches("self_mean", "self_mean_ci95", "self_mean_ci95_dof"),
        Column::new("self_mean_ci95", Kind::Real, "").detail(),
        Column::new("self_mean_ci95_dof", Kind::Uint, "").detail(),
    ];
    let mut table = Table::new("events", "", columns);
    for (context, cpu, mean) in rows {
        let keys = [*context, *cpu, "instructions"].map(Value::from);
        let figures = [(*mean).into(), (0.001 * mean).into(), BATCHES_FREEDOM.into()];
        table.push(keys.into_iter().chain(figures).collect());
    }
    table
}

#[test]
fn one_run_does_not_judge_events_of_contexts_that_other_work_decides() {
    let run = |start: &str, timer: f64, softirq: f64| {
        let mut run = run_with_shares(100.0, 100.0, start);
        let rows =
            [("timer", "all", timer), ("softirq", "all", softirq), ("softirq", "1", softirq)];
        run.tables.push(table_of_events(&rows));
        run
    };
    let (base, new) = (run("1", 50.0, 50.0), run("2", 60.0, 100.0));
    let method = |found: &Comparison<'_>, row: &str| {
        let is_row = |difference: &&Difference<'_>| difference.row_name() == row;
        let difference = found.differences.iter().find(is_row).unwrap();
        (difference.verdict, difference.method)
    };
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(method(&found, "timer all instructions"), (Verdict::Worse, Method::Intervals));
    for row in ["softirq all instructions", "softirq 1 instructions"] {
        assert_eq!(method(&found, row), (Verdict::Undecided, Method::OneRun), "{row}");
    }
    // A rule that names the figure is judged, with a warning.
    let rule = plan(&["events[name=softirq].self_mean>+1%"]);
    let ruled = compare(&base, &new, &rule).unwrap();
    assert_eq!(ruled.outcomes[0].ruling, Ruling::Broken);
    assert!(ruled.warnings.iter().any(|text| text.contains("rows below 1 %")));
}

/// Runs whose figures are these, each with its start.
fn series(figures: &[(f64, f64)], start: &str) -> Vec<Run> {
    let run = |(number, (timer, softirq)): (usize, &(f64, f64))| {
        run_with_shares(*timer, *softirq, &format!("2026-01-01T00:00:{number}{start}Z"))
    };
    figures.iter().enumerate().map(run).collect()
}

#[test]
fn several_runs_on_each_side_show_how_much_runs_differ() {
    // The machine gets slower from run to run, which pairs of runs cancel; softirqs differ by factors.
    let base = series(&[(100.0, 10.0), (110.0, 90.0), (120.0, 20.0), (130.0, 70.0)], "1");
    let new = series(&[(106.0, 80.0), (115.0, 15.0), (127.0, 60.0), (136.0, 30.0)], "2");
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    assert_eq!(verdict(&found, "timer"), Verdict::Worse);
    assert_eq!(verdict(&found, "softirq"), Verdict::Undecided);
    assert!(found.differences.iter().all(|difference| difference.method == Method::Runs));
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    // The ratios 1.06, 1.04545, 1.05833 and 1.04615: mean of the logarithms 0.05106, standard error 0.00378. Two figures
    // of the leading row share half of the error probability: 0.625 % each, 5.04 standard errors with 3 degrees of
    // freedom.
    let timer = |difference: &&Difference<'_>| {
        difference.pair.row[0].1 == "timer" && difference.pair.column.name == "self_mean_ns"
    };
    let difference = found.differences.iter().find(timer).unwrap();
    assert!((difference.tail - 0.025 / 4.0).abs() < 1e-12, "{}", difference.tail);
    let base_mean = f64::powf(100.0 * 110.0 * 120.0 * 130.0, 0.25);
    assert!((difference.pair.base.unwrap().value - base_mean).abs() < 1e-9);
    let logarithms = [1.06_f64, 115.0 / 110.0, 127.0 / 120.0, 136.0 / 130.0].map(f64::ln);
    let mean = logarithms.iter().sum::<f64>() / 4.0;
    let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
    let half_width =
        stats::interval::t_quantile(3.0, 0.025 / 4.0).unwrap() * (squares / 12.0).sqrt();
    let (low, high) = difference.interval.unwrap();
    assert!((low - base_mean * ((mean - half_width).exp() - 1.0)).abs() < 1e-9, "{low}");
    assert!((high - base_mean * ((mean + half_width).exp() - 1.0)).abs() < 1e-9, "{high}");
    // The planted change of the second figures moves the interval with them.
    let slower = verdict_if_changed(difference, -0.06, &plan(&[]));
    assert!(!matches!(slower, Verdict::Worse), "{slower:?}");
}

/// Repeatable runs of one row, each with its mean.
fn repeated(bench: &str, means: [f64; 3], start: &str) -> Vec<Run> {
    let run = |mean| Run { started_utc: start.to_owned(), ..run(bench, &[("a", mean, None)]) };
    means.map(run).to_vec()
}

#[test]
fn repeated_exact_runs_are_compared_as_exactly_as_one() {
    let (base, new) = (repeated("sim", [1_000.0; 3], "1"), repeated("sim", [1_001.0; 3], "2"));
    let found = compare_series(&base, &new, &plan(&["self_mean_ns>+0.05%"])).unwrap();
    let is_mean = |difference: &&Difference<'_>| difference.pair.column.name == "self_mean_ns";
    let difference = found.differences.iter().find(is_mean).unwrap();
    assert_eq!((difference.verdict, difference.method), (Verdict::Worse, Method::Exact));
    assert_eq!((difference.change, difference.interval), (Some(1.0), Some((1.0, 1.0))));
    assert_eq!(found.outcomes[0].ruling, Ruling::Broken);
    assert_eq!(found.warnings, Vec::<String>::new());
    let (tables, _) = tables(&found, &[], Listed::All);
    assert_eq!(tables[1].display.notes, ["2 figures: 1 worse, 1 equal"]);
    // The runs of a side differ, as those of different seeds or models: the interval shows how much, without a margin.
    let base = repeated("sim", [1_000.0, 2_000.0, 3_000.0], "1");
    let new = repeated("sim", [1_001.0, 2_002.1, 3_002.9], "2");
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    let difference = found.differences.iter().find(is_mean).unwrap();
    assert_eq!((difference.verdict, difference.method), (Verdict::Worse, Method::Runs));
    let found = compare_series(&base, &base, &plan(&[])).unwrap();
    assert!(found.differences.iter().all(|difference| difference.verdict == Verdict::Equal));
    // On a live bench, the margin holds, and slow changes of the machine are named.
    let (base, new) = (repeated("live", [1_000.0; 3], "1"), repeated("live", [1_001.0; 3], "2"));
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    assert_eq!(verdict(&found, "a"), Verdict::Equal);
    assert!(found.warnings[0].contains("slow changes of the machine"), "{:?}", found.warnings);
}

#[test]
fn repeated_estimates_are_judged_by_runs_if_their_seeds_differ() {
    let with_seeds = |seeds: [u64; 3], cpu: [f64; 3]| -> Vec<Run> {
        let run = |(seed, cpu): (u64, f64)| {
            let mut run = computed(["simulation"; 2], cpu, (4_479.0, Some(5.3)), 9_000, 1e6);
            run.settings.insert("seed".to_owned(), seed.into());
            run
        };
        seeds.into_iter().zip(cpu).map(run).collect()
    };
    let cpu = |base: &[Run], new: &[Run]| {
        let found = compare_series(base, new, &plan(&[])).unwrap();
        let (_, verdict, method) = verdicts_by_column(&found)[1];
        (verdict, method)
    };
    let base = with_seeds([1, 2, 3], [0.400, 0.402, 0.401]);
    let new = with_seeds([4, 5, 6], [0.600, 0.603, 0.601]);
    assert_eq!(cpu(&base, &new), (Verdict::Worse, Method::Runs));
    // Runs with one seed are one run, and show no error.
    let (base, new) = (with_seeds([1; 3], [0.4; 3]), with_seeds([2; 3], [0.6; 3]));
    assert_eq!(cpu(&base, &new), (Verdict::Undecided, Method::NoInterval));
    // Figures that do not depend on the seed.
    let (base, new) = (with_seeds([1, 2, 3], [0.4; 3]), with_seeds([4, 5, 6], [0.6; 3]));
    assert_eq!(cpu(&base, &new), (Verdict::Worse, Method::Runs));
}

#[test]
fn a_planted_change_is_found_and_a_real_one_is_reported() {
    let run = |mean| run("live", &[("timer", mean, Some(1.0))]);
    let mut error_rates = error_rates::ErrorRates::default();
    error_rates.add(1, &[run(100.0)], &[run(100.0)], 0.2).unwrap();
    error_rates.add(2, &[run(100.0)], &[run(150.0)], 0.2).unwrap();
    assert_eq!(error_rates.comparisons(), 2);
    let [pairs, planted, reported] = &error_rates.tables()[..] else { panic!("three tables") };
    let cell = |table: &Table, row: usize, name: &str| {
        table.get(&table.rows()[row], name).cloned().unwrap()
    };
    assert_eq!([cell(pairs, 3, "value"), cell(pairs, 3, "met")], [0.5.into(), false.into()]);
    assert_eq!(cell(planted, 0, "found_ratio"), Value::Real(1.0));
    assert_eq!(reported.rows().len(), 1);
    assert_eq!(cell(reported, 0, "pair"), Value::Uint(2));
    assert_eq!(cell(reported, 0, "change_ratio"), Value::Real(0.5));
    assert_eq!(reported.check_display(), Ok(()));
}

#[test]
fn series_are_compared_in_pairs_or_refused() {
    let base = series(&[(100.0, 10.0), (101.0, 10.0), (102.0, 10.0)], "1");
    let error = compare_series(&base, &base[..2], &plan(&[])).unwrap_err();
    assert_eq!(error, CompareError::RunCounts(3, 2));
    let error = compare_series(&base[..2], &base[1..], &plan(&[])).unwrap_err();
    assert_eq!(error, CompareError::FewRuns(2));
    let mut later = base.clone();
    later.iter_mut().for_each(|run| run.started_utc = "2027".to_owned());
    let warnings = compare_series(&base, &later, &plan(&[])).unwrap().warnings;
    assert!(warnings.iter().any(|text| text.contains("take the runs of both sides alternately")));
    let mut other = base.clone();
    other[1].experiment = "noise".to_owned();
    let error = compare_series(&base, &other, &plan(&[])).unwrap_err();
    assert!(matches!(error, CompareError::Experiments(..)));
}

#[test]
fn a_quantile_by_the_order_of_dependent_values_needs_several_runs() {
    let with_quantile = |quantile: u64, start: &str| {
        let mut run = run("live", &[]);
        let columns = vec![
            Column::new("name", Kind::Text, "").key(),
            Column::new("p99_ns", Kind::Uint, "")
                .interval(IntervalColumns::bounds("from", "to"))
                .cost(),
            Column::new("from", Kind::Uint, "").detail(),
            Column::new("to", Kind::Uint, "").detail(),
        ];
        let mut table = Table::new("noise", "", columns);
        let ends = [(quantile - 1).into(), (quantile + 1).into()];
        table.push([vec!["a".into(), quantile.into()], ends.to_vec()].concat());
        run.tables = vec![table];
        run.started_utc = start.to_owned();
        run
    };
    let (base, new) = (with_quantile(1_000, "1"), with_quantile(1_500, "2"));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(found.differences[0].method, Method::OneRun);
    let ruled = compare(&base, &new, &plan(&["noise.p99_ns>+5%"])).unwrap();
    assert_eq!((ruled.outcomes[0].ruling, ruled.warnings.len()), (Ruling::Broken, 1));
    let base = ["1", "3", "5", "7"].map(|start| with_quantile(1_000, start));
    let new = [("2", 1_500), ("4", 1_505), ("6", 1_495), ("8", 1_500)];
    let new = new.map(|(start, quantile)| with_quantile(quantile, start));
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    assert_eq!(found.differences[0].verdict, Verdict::Worse);
}

#[test]
fn a_mean_without_degrees_of_freedom_needs_several_live_runs() {
    let with_mean = |bench: &str, mean: f64, start: &str| {
        let columns = vec![
            Column::new("name", Kind::Text, "").key(),
            Column::new("mean_ns", Kind::Real, "").plus_minus("mean_ci95_ns").cost(),
            Column::new("mean_ci95_ns", Kind::Real, "").detail(),
        ];
        let mut table = Table::new("fwq", "", columns);
        table.push(vec!["a".into(), mean.into(), (0.001 * mean).into()]);
        Run { started_utc: start.to_owned(), ..run_of_table(bench, table) }
    };
    let (base, new) = (with_mean("live", 100.0, "1"), with_mean("live", 120.0, "2"));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let difference = &found.differences[0];
    assert_eq!((difference.verdict, difference.method), (Verdict::Undecided, Method::OneRun));
    let ruled = compare(&base, &new, &plan(&["fwq.mean_ns>+5%"])).unwrap();
    assert_eq!((ruled.outcomes[0].ruling, ruled.warnings.len()), (Ruling::Broken, 1));
    // Several runs show how much runs differ.
    let base = ["1", "3", "5", "7"].map(|start| with_mean("live", 100.0, start));
    let new = [("2", 120.0), ("4", 120.5), ("6", 119.5), ("8", 120.0)];
    let new = new.map(|(start, mean)| with_mean("live", mean, start));
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    assert_eq!(found.differences[0].verdict, Verdict::Worse);
    // A simulated machine gives the same figures each time.
    let (base, new) = (with_mean("sim", 100.0, "1"), with_mean("sim", 120.0, "2"));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let difference = &found.differences[0];
    assert_eq!((difference.verdict, difference.method), (Verdict::Worse, Method::Exact));
}

#[test]
fn the_change_of_several_runs_is_in_the_middle_of_its_interval() {
    // One figure of the second side is negative: all means are arithmetic, as the interval is.
    let figures = [(100.0, 90.0), (400.0, -10.0), (100.0, 80.0), (400.0, 300.0)];
    let runs = |side: fn(&(f64, f64)) -> f64, start: &str| {
        series(&figures.map(|pair| (side(&pair), 10.0)), start)
    };
    let (base, new) = (runs(|pair| pair.0, "1"), runs(|pair| pair.1, "2"));
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    let timer = |difference: &&Difference<'_>| {
        difference.pair.row[0].1 == "timer" && difference.pair.column.name == "self_mean_ns"
    };
    let difference = found.differences.iter().find(timer).unwrap();
    assert!(
        (difference.pair.base.unwrap().value - 250.0).abs() < 1e-9,
        "{:?}",
        difference.pair.base
    );
    // The mean of the differences -10, -410, -20 and -100.
    assert!((difference.change.unwrap() + 135.0).abs() < 1e-9, "{:?}", difference.change);
    let (low, high) = difference.interval.unwrap();
    assert!((f64::midpoint(low, high) + 135.0).abs() < 1e-9, "{low} {high}");
    let (first_low, first_high) = difference.pair.base.unwrap().interval.unwrap();
    assert!((f64::midpoint(first_low, first_high) - 250.0).abs() < 1e-9);
}

#[test]
fn the_worst_cell_is_the_same_for_both_directions() {
    let worst =
        |base: &[(&str, f64, Option<f64>)], new: &[(&str, f64, Option<f64>)], rule: &str| {
            let (base, new) = (run("sim", base), run("sim", new));
            compare(&base, &new, &plan(&[rule])).unwrap().outcomes[0].worst.clone().unwrap()
        };
    // A missing row is in doubt, and the figures hold.
    let base = [("a", 100.0, None), ("b", 100.0, None)];
    for rule in ["self_mean_ns>+5%", "self_mean_ns<-5%"] {
        assert_eq!(worst(&base, &base[..1], rule), ("b".to_owned(), None), "{rule}");
    }
    // On a live bench, figures beyond the limit are in doubt too: the missing row comes first.
    let live = |rows: &[(&str, f64, Option<f64>)]| run("live", rows);
    let base = [("a", 100.0, Some(9.0)), ("b", 100.0, Some(9.0))];
    for (rule, figure) in [("self_mean_ns>+5%", 107.0), ("self_mean_ns<-5%", 93.0)] {
        let (base, new) = (live(&base), live(&[("a", figure, Some(9.0))]));
        let found = compare(&base, &new, &plan(&[rule])).unwrap();
        assert_eq!(found.outcomes[0].ruling, Ruling::InDoubt);
        assert_eq!(found.outcomes[0].worst, Some(("b".to_owned(), None)), "{rule}");
    }
    // A figure that stays 0 is not the worst.
    let base = [("a", 0.0, None), ("b", 100.0, None)];
    let new = |changed: f64| [("a", 0.0, None), ("b", changed, None)];
    assert_eq!(worst(&base, &new(104.0), "self_mean_ns>+5%"), ("b".to_owned(), Some(0.04)));
    assert_eq!(worst(&base, &new(96.0), "self_mean_ns<-5%"), ("b".to_owned(), Some(-0.04)));
    // A figure that grows from 0 is the worst of `>`, and holds for `<`.
    let grown = [("a", 3.0, None), ("b", 106.0, None)];
    assert_eq!(worst(&base, &grown, "self_mean_ns>+5%"), ("a".to_owned(), None));
    assert_eq!(worst(&base, &grown, "self_mean_ns<-5%"), ("b".to_owned(), Some(0.06)));
    // A limit in the unit of the column: 90 is nearer to 100 than 50, though a smaller part of its figure.
    let base = [("a", 10.0, None), ("b", 1000.0, None)];
    let new = [("a", 60.0, None), ("b", 1090.0, None)];
    assert_eq!(worst(&base, &new, "self_mean_ns>+100"), ("b".to_owned(), Some(0.09)));
}

#[test]
fn a_setting_of_the_second_run_alone_is_said() {
    let base = run("live", &[("a", 1.0, Some(0.1))]);
    let mut new = base.clone();
    new.settings.insert("warm_up_ns".to_owned(), 5.into());
    new.settings.insert("out".to_owned(), "new".into());
    let expected = ["setting warm_up_ns differs: absent and 5"];
    assert_eq!(compare(&base, &new, &plan(&[])).unwrap().warnings, expected);
    let expected = ["setting warm_up_ns differs: 5 and absent"];
    assert_eq!(compare(&new, &base, &plan(&[])).unwrap().warnings, expected);
}

/// A run of `sim boot` with sampled cycles. Rows: context, cycles, half of the interval's width or NaN without an interval.
fn sampled(rows: &[(&str, f64, f64)]) -> Run {
    let columns = vec![
        Column::new("context", Kind::Text, "").key(),
        Column::new("self_cycles", Kind::Real, "").plus_minus("half_width").cost(),
        Column::new("half_width", Kind::Real, "").detail(),
    ];
    let mut table = Table::new("sampled_cycles", "", columns);
    for (context, cycles, half) in rows {
        let half = if half.is_nan() { Value::Absent } else { (*half).into() };
        table.push(vec![(*context).into(), (*cycles).into(), half]);
    }
    run_of_table("sim", table)
}

#[test]
fn estimates_of_a_sample_are_judged_by_their_intervals() {
    let run = |all: f64, idle: f64, stat: f64| {
        let user = ("user", 500.0, 90.0);
        sampled(&[("all", all, 100.0), ("idle", idle, 1.0), user, ("stat", stat, f64::NAN)])
    };
    let (base, new) = (run(1000.0, 1000.0, 18_641.0), run(1010.0, 2000.0, 40_737.0));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let verdict = |name: &str| {
        let is_row = |difference: &&Difference<'_>| difference.row_name() == name;
        let difference = found.differences.iter().find(is_row).unwrap();
        (difference.verdict, difference.method)
    };
    assert_eq!(verdict("all"), (Verdict::Undecided, Method::Intervals));
    assert_eq!(verdict("idle"), (Verdict::Worse, Method::Intervals));
    // A repetition gives equal figures: they are equal.
    assert_eq!(verdict("user"), (Verdict::Equal, Method::Exact));
    // Too few units for an interval.
    assert_eq!(verdict("stat"), (Verdict::Undecided, Method::NoInterval));
}

/// A run of `signal model` with one row: the method of its figures and of its quantiles, CPU use, mean latency with half
/// the width of its interval, 99th percentile, and capacity.
fn computed(
    [method, quantiles_method]: [&str; 2],
    cpu_ratio: f64,
    (latency_ns, half_ns): (f64, Option<f64>),
    p99_ns: u64,
    capacity_hz: f64,
) -> Run {
    let columns = vec![
        Column::new("scheme", Kind::Text, "").key(),
        Column::new("method", Kind::Text, ""),
        Column::new("cpu_ratio", Kind::Real, "").cpu_share().cost(),
        Column::new("latency_mean_ns", Kind::Real, "").plus_minus("half_ns").cost(),
        Column::new("half_ns", Kind::Real, "").detail(),
        Column::new("latency_p99_ns", Kind::Uint, "").cost(),
        Column::new("quantiles_method", Kind::Text, "").detail(),
        Column::new("capacity_hz", Kind::Real, "").priority(40),
    ];
    let mut table = Table::new("model", "", columns);
    table.push(vec![
        "poll".into(),
        method.into(),
        cpu_ratio.into(),
        latency_ns.into(),
        half_ns.into(),
        p99_ns.into(),
        quantiles_method.into(),
        capacity_hz.into(),
    ]);
    run_of_table("model", table)
}

/// The verdict and the method of each column, in the order of their names.
fn verdicts_by_column<'f>(found: &'f Comparison<'_>) -> Vec<(&'f str, Verdict, Method)> {
    let verdict = |difference: &'f Difference<'_>| {
        (difference.pair.column.name.as_str(), difference.verdict, difference.method)
    };
    let mut verdicts: Vec<_> = found.differences.iter().map(verdict).collect();
    verdicts.sort_by_key(|(column, ..)| *column);
    verdicts
}

#[test]
fn figures_of_an_event_simulation_are_estimates() {
    let simulated =
        |cpu, latency, p99| computed(["simulation"; 2], cpu, (latency, Some(5.3)), p99, 250_000.0);
    let (base, new) = (simulated(0.4, 4_479.0, 9_000), simulated(0.401, 4_481.0, 9_100));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let not_judged = (Verdict::Undecided, Method::NoInterval);
    assert_eq!(
        verdicts_by_column(&found),
        [
            ("capacity_hz", Verdict::Equal, Method::Exact),
            ("cpu_ratio", not_judged.0, not_judged.1),
            ("latency_mean_ns", Verdict::Equal, Method::Intervals),
            ("latency_p99_ns", not_judged.0, not_judged.1),
        ]
    );
    let notes = &tables(&found, &[], Listed::All).0[0].display.notes;
    assert!(notes.iter().any(|note| note.contains("with different seeds")), "{notes:?}");
    let ruling = |rule: &str, new: &Run| {
        compare(&base, new, &plan(&[rule])).map(|found| found.outcomes[0].ruling)
    };
    assert_eq!(ruling("model.latency_mean_ns>+0.01%", &new), Ok(Ruling::InDoubt));
    let rule = "model.cpu_ratio>+0.01%";
    assert_eq!(ruling(rule, &new), Err(CompareError::NoInterval(rule.to_owned())));
    // A difference beyond the intervals is real, and so is that of a figure that a formula gives.
    let slower = computed(["simulation"; 2], 0.5, (5_479.0, Some(5.3)), 9_000, 200_000.0);
    assert_eq!(ruling("model.latency_mean_ns>+5%", &slower), Ok(Ruling::Broken));
    let found = compare(&base, &slower, &plan(&[])).unwrap();
    assert_eq!(verdicts_by_column(&found)[0], ("capacity_hz", Verdict::Changed, Method::Exact));
    // The same seed gives the same figures.
    let found = compare(&base, &base, &plan(&[])).unwrap();
    let exactly_equal = |difference: &Difference<'_>| {
        (difference.verdict, difference.method) == (Verdict::Equal, Method::Exact)
    };
    assert!(found.differences.iter().all(exactly_equal));
}

#[test]
fn a_formula_is_exact_and_its_simulated_quantiles_are_not() {
    let formula =
        |cpu, latency, p99| computed(["closed-form", "simulation"], cpu, (latency, None), p99, 1e6);
    let (base, new) = (formula(0.4, 4_479.0, 9_000), formula(0.401, 4_480.0, 9_100));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let verdicts = verdicts_by_column(&found);
    assert_eq!(verdicts[1], ("cpu_ratio", Verdict::Worse, Method::Exact));
    assert_eq!(verdicts[2], ("latency_mean_ns", Verdict::Worse, Method::Exact));
    assert_eq!(verdicts[3], ("latency_p99_ns", Verdict::Undecided, Method::NoInterval));
    // A formula on one side and a simulation on the other.
    let simulated = computed(["simulation"; 2], 0.401, (4_480.0, Some(5.3)), 9_100, 1e6);
    let found = compare(&base, &simulated, &plan(&[])).unwrap();
    assert!(found.differences.iter().all(|difference| !difference.verdict.is_difference()));
}

#[test]
fn figures_of_a_measured_processor_are_not_exact() {
    let run = |experiment: &str, host: f64, model: f64| {
        let columns = vec![
            Column::new("path", Kind::Text, "").key(),
            Column::new("host_cost", Kind::Real, "").priority(90),
            Column::new("model_cost", Kind::Real, "").priority(90),
            Column::new("error_factor", Kind::Real, "").cost(),
        ];
        let mut table = Table::new("kernel_costs", "", columns);
        table.push(vec!["read".into(), host.into(), model.into(), (model / host).into()]);
        Run { experiment: experiment.to_owned(), ..run_of_table("sim", table) }
    };
    let verdicts = |base: &Run, new: &Run| -> Vec<Verdict> {
        let found = compare(base, new, &plan(&[])).unwrap();
        verdicts_by_column(&found).into_iter().map(|(_, verdict, _)| verdict).collect()
    };
    let sides = |experiment| [run(experiment, 100.0, 120.0), run(experiment, 101.0, 130.0)];
    let [base, new] = sides("bench-kernel");
    let (unjudged, changed) = (Verdict::Undecided, Verdict::Changed);
    assert_eq!(verdicts(&base, &new), [unjudged, unjudged, changed]);
    // Kept data of the processor are the same each time.
    let [base, mut new] = sides("bench-model");
    assert_eq!(verdicts(&base, &new), [Verdict::Worse, changed, changed]);
    new.settings.insert("cpu".to_owned(), 3.into());
    assert_eq!(verdicts(&base, &new), [unjudged, unjudged, changed]);
}

/// A run of `sim boot` on a model with this clock. `contexts`: name, cycles, misses of L2.
fn of_contexts(clock: &str, contexts: &[(&str, u64, u64)]) -> Run {
    let columns = vec![
        Column::new("context", Kind::Text, "").key(),
        Column::new("cpu", Kind::Text, "").key(),
        Column::new("self_cycles", Kind::Uint, "").cost(),
        Column::new("self_l2_data_misses", Kind::Uint, ""),
    ];
    let mut table = Table::new("contexts", "", columns);
    for &(context, cycles, misses) in contexts {
        table.push(vec![context.into(), "all".into(), cycles.into(), misses.into()]);
    }
    let mut run = run_of_table("sim", table);
    let model = serde_json::json!({ "clock": clock });
    run.settings.insert("model".to_owned(), model);
    run
}

#[test]
fn contexts_of_a_machine_are_ranked_by_their_part_of_the_change() {
    let base = of_contexts("3 GHz", &[("sort", 900_000, 100), ("RCU", 3_000, 5), ("idle", 0, 0)]);
    let new = of_contexts("3 GHz", &[("sort", 990_000, 400), ("RCU", 9_000, 5), ("idle", 0, 0)]);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let worse = found.differences.iter().filter(|difference| difference.verdict == Verdict::Worse);
    let names: Vec<String> = worse.map(|difference| difference.row_name()).collect();
    // RCU tripled, but sort took fifteen times as many cycles more.
    assert_eq!(names, ["sort all", "RCU all"]);
    let total = |name: &str| {
        let total = found.run_totals.iter().find(|total| total.name == name).unwrap();
        (total.base, total.new)
    };
    // The totals say what the additional cycles may be due to.
    assert_eq!(total("L2 misses of data"), (105.0, 405.0));
    assert_eq!(found.warnings, Vec::<String>::new());
}

#[test]
fn fewer_cycles_of_a_slower_clock_are_not_better() {
    let base = of_contexts("4.7 GHz", &[("sort", 900_000, 100)]);
    let new = of_contexts("3.2 GHz", &[("sort", 880_000, 100)]);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let cycles =
        found.differences.iter().find(|difference| difference.pair.column.name == "self_cycles");
    assert_eq!(cycles.unwrap().verdict, Verdict::Changed);
    let is_about_clocks = |warning: &String| warning.starts_with("the models' clocks differ");
    assert!(found.warnings.iter().any(is_about_clocks), "{:?}", found.warnings);
}

#[test]
fn a_rule_on_a_table_that_cannot_be_compared_says_why() {
    let two_rows = sampled(&[("all", 1000.0, 1.0), ("all", 2000.0, 1.0)]);
    let error = |run: &Run, rule: &str| compare(run, run, &plan(&[rule])).unwrap_err().to_string();
    let text = error(&two_rows, "sampled_cycles.self_cycles>+1%");
    let why = "table sampled_cycles is not compared: several of its rows have the same context";
    assert!(text.contains(why), "{text}");
    let text = error(&two_rows, "sampled_cycles.cycles>+1%");
    assert!(text.contains("the first run: is it self_cycles? (see"), "{text}");
    // The table has costs: that it is not compared is said without a rule, too.
    let mut run_with_cost = run("sim", &[("a", 1.0, None)]);
    run_with_cost.tables.extend(two_rows.tables);
    let mut log = Table::new("detours", "", vec![Column::new("start_ns", Kind::Uint, "")]);
    log.push(vec![5_u64.into()]);
    run_with_cost.tables.push(log);
    let found = compare(&run_with_cost, &run_with_cost, &plan(&[])).unwrap();
    let (_, absent) = tables(&found, &[], Listed::All);
    let [absent] = &absent[..] else { panic!("{absent:?}") };
    assert_eq!(absent.what, "table sampled_cycles");
    let text = error(&sampled(&[("all", 1.0, 1.0)]), "sampled_cycles[name=all].self_cycles>+1%");
    assert!(
        text.contains("no row of sampled_cycles has these keys (its keys are context"),
        "{text}"
    );
}

/// A run of `noise` with one row, whose share of the lost time decides whether the table shows the row.
fn causes(lost_ratio: f64, mean_ns: f64) -> Run {
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        Column::new("lost_ratio", Kind::Real, ""),
        Column::new("mean_ns", Kind::Real, "").cost(),
    ];
    let mut table = Table::new("causes", "", columns);
    table.display.filter = Some(record::RowFilter {
        column: "lost_ratio".to_owned(),
        keep: record::Keep::AtLeast(0.001),
        others: String::new(),
    });
    table.push(vec!["kworker".into(), lost_ratio.into(), mean_ns.into()]);
    run_of_table("live", table)
}

#[test]
fn a_row_that_either_run_shows_is_compared() {
    for (base, new) in [(0.0009, 0.6), (0.6, 0.0009)] {
        let (base, new) = (causes(base, 5.0), causes(new, 5.0));
        let found = compare(&base, &new, &plan(&[])).unwrap();
        let columns: Vec<&str> =
            found.differences.iter().map(|found| found.pair.column.name.as_str()).collect();
        assert_eq!(columns, ["mean_ns"]);
    }
    let hidden = causes(0.0009, 5.0);
    assert_eq!(compare(&hidden, &hidden, &plan(&[])).unwrap_err(), CompareError::Nothing);
}

#[test]
fn a_row_that_some_runs_of_a_series_show_is_compared_in_all_pairs() {
    // The mean and the share of a cause rise and fall together, and both sides have the same ones.
    let (high, low) = ((0.002, 200.0), (0.0005, 50.0));
    let runs = |figures: [(f64, f64); 4]| figures.map(|(share, mean)| causes(share, mean));
    let base = runs([high, low, high, low]);
    let new = runs([low, high, low, high]);
    for (base, new) in [(&base, &new), (&new, &base)] {
        let found = compare_series(base, new, &plan(&[])).unwrap();
        let [difference] = &found.differences[..] else { panic!("{:?}", found.differences) };
        assert_eq!((difference.verdict, difference.pair.pair_counts), (Verdict::Undecided, None));
        assert_eq!(difference.pair.base.unwrap().value.round(), 100.0);
    }
    // One run of the second side shows the row.
    let base = runs([low; 4]);
    let new = runs([low, low, low, high]);
    let found = compare_series(&base, &new, &plan(&[])).unwrap();
    assert_eq!((found.differences.len(), found.differences[0].pair.pair_counts), (1, None));
}

/// A run of `handlers` with one row: mean self time, and a quantile that is the midpoint of a histogram's bucket.
fn with_bucketed(bench: &str, mean: f64, quantile: u64) -> Run {
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        Column::new("self_mean_ns", Kind::Real, "").cost(),
        Column::new("self_p99_ns", Kind::Uint, "Took at most this time; exact within 1/16.").cost(),
    ];
    let mut table = Table::new("handlers", "", columns);
    table.push(vec!["TIMER".into(), mean.into(), quantile.into()]);
    run_of_table(bench, table)
}

/// The difference of the quantile of [`with_bucketed`]: its verdict, and its interval as parts of the first figure.
fn bucketed_change(found: &Comparison<'_>) -> (Verdict, f64, f64) {
    let is_quantile = |difference: &&Difference<'_>| difference.pair.column.name == "self_p99_ns";
    let difference = found.differences.iter().find(is_quantile).unwrap();
    let (low, high) = difference.interval.unwrap();
    (difference.verdict, difference.ratio(low).unwrap(), difference.ratio(high).unwrap())
}

#[test]
fn an_exact_change_within_the_buckets_of_a_histogram_is_undecided() {
    // 1,020 and 1,026 ns differ by 0.6 %, and the midpoints of their buckets by 4.8 %.
    let quantile = |value: u64| {
        let mut histogram = stats::histogram::LogLinear::default();
        (0..200).for_each(|_| histogram.record(value));
        histogram.quantile(50_000)
    };
    assert_eq!([1_020, 1_026].map(quantile), [Some(1_007), Some(1_055)]);
    assert_eq!([995, 1_023].map(quantile), [Some(1_007); 2]);
    let [base, near, far] = [(1.0, 1_007), (1.1, 1_055), (1.2, 1_119)]
        .map(|(mean, quantile)| with_bucketed("sim", mean, quantile));
    let rule = plan(&["handlers.self_p99_ns>+2%"]);
    let found = compare(&base, &near, &rule).unwrap();
    let (verdict, low, high) = bucketed_change(&found);
    assert_eq!(verdict, Verdict::Undecided);
    assert!(low <= 0.006 && high >= 0.006, "{low} {high}");
    assert_eq!(found.outcomes[0].ruling, Ruling::InDoubt);
    let (tables, _) = tables(&found, &[], Listed::All);
    let notes = &tables.last().unwrap().display.notes;
    assert!(notes.iter().any(|note| note.starts_with("1 quantiles are within")), "{notes:?}");
    let found = compare(&base, &far, &rule).unwrap();
    assert_eq!(bucketed_change(&found).0, Verdict::Worse);
    assert_eq!(found.outcomes[0].ruling, Ruling::Broken);
    // 995 and 1,023 ns differ by 2.8 %, and have one bucket.
    let same_bucket = with_bucketed("sim", 1.1, 1_007);
    let found = compare(&base, &same_bucket, &rule).unwrap();
    let (verdict, low, high) = bucketed_change(&found);
    assert_eq!(verdict, Verdict::Undecided);
    assert!(low < -0.028 && high > 0.028, "{low} {high}");
    // A repetition has equal figures in the whole row.
    let found = compare(&base, &base, &rule).unwrap();
    assert_eq!(bucketed_change(&found), (Verdict::Equal, 0.0, 0.0));
    assert_eq!(found.outcomes[0].ruling, Ruling::Holds);
    // A gate breaks where the change is beyond the limit and both buckets.
    let breaks_from = self_test(&base, &rule).unwrap()[0].breaks_from_ratio.unwrap();
    assert!((breaks_from - (0.02 + 32.0 / 1_007.0)).abs() < 1e-6, "{breaks_from}");
}

#[test]
fn several_runs_with_equal_buckets_do_not_decide_a_change_within_them() {
    for bench in ["live", "sim"] {
        let runs = |quantiles: [u64; 4], mean: f64| -> Vec<Run> {
            let run = |(number, quantile): (u32, u64)| {
                with_bucketed(bench, mean + f64::from(number), quantile)
            };
            (1..).zip(quantiles).map(run).collect()
        };
        let base = runs([1_007; 4], 10.0);
        let change = |new: &[Run]| {
            let found = compare_series(&base, new, &plan(&[])).unwrap();
            bucketed_change(&found)
        };
        let (verdict, low, high) = change(&runs([1_055; 4], 11.0));
        assert_eq!(verdict, Verdict::Undecided, "{bench}");
        assert!(low <= 0.006 && high >= 0.006, "{low} {high}");
        let (verdict, low, high) = change(&runs([1_007; 4], 11.0));
        assert_eq!(verdict, Verdict::Undecided, "{bench}");
        assert!(low < -0.028 && high > 0.028, "{low} {high}");
        assert_eq!(change(&runs([1_183; 4], 11.0)).0, Verdict::Worse, "{bench}");
        // Runs of the sides are repetitions of each other.
        assert_eq!(change(&base), (Verdict::Equal, 0.0, 0.0), "{bench}");
    }
}

#[test]
fn an_interval_of_one_run_contains_whole_buckets() {
    // All values of a window are in one bucket: its wide interval is the bucket.
    let run = |quantile: u64, (low, high): (u64, u64)| {
        let columns = vec![
            Column::new("name", Kind::Text, "").key(),
            Column::new("p99_ns", Kind::Uint, "")
                .interval(IntervalColumns::bounds("low", "high").wide_bounds("low", "high"))
                .cost(),
            Column::new("low", Kind::Uint, "").detail(),
            Column::new("high", Kind::Uint, "").detail(),
        ];
        let mut table = Table::new("handlers", "", columns);
        table.push(vec!["a".into(), quantile.into(), low.into(), high.into()]);
        run_of_table("live", table)
    };
    let (base, new) = (run(1_007, (992, 1_023)), run(1_055, (1_024, 1_087)));
    let found = compare(&base, &new, &plan(&[])).unwrap();
    assert_eq!(found.differences[0].verdict, Verdict::Undecided);
    let far = run(1_119, (1_088, 1_151));
    let found = compare(&base, &far, &plan(&[])).unwrap();
    assert_eq!(found.differences[0].verdict, Verdict::Worse);
}

/// A live run with one mean and its interval's method.
fn with_method(mean: f64, method: &str) -> Run {
    let columns = vec![
        Column::new("name", Kind::Text, "").key(),
        Column::new("self_mean_ns", Kind::Real, "")
            .interval(
                IntervalColumns::half_width("half")
                    .degrees_of_freedom("freedom")
                    .drift("drift")
                    .method("how"),
            )
            .cost(),
        Column::new("half", Kind::Real, "").detail(),
        Column::new("freedom", Kind::Uint, "").detail(),
        Column::new("drift", Kind::Real, "").detail(),
        Column::new("how", Kind::Text, "").detail(),
    ];
    let mut table = Table::new("handlers", "", columns);
    let uncertainty = [0.1.into(), 999_u64.into(), 0.0.into(), method.into()];
    table.push(["a".into(), mean.into()].into_iter().chain(uncertainty).collect());
    run_of_table("live", table)
}

#[test]
fn a_mean_over_too_few_batches_needs_several_runs() {
    let method = |base: &str, new: &str| {
        let (base, new) = (with_method(100.0, base), with_method(120.0, new));
        compare(&base, &new, &plan(&[])).unwrap().differences[0].method
    };
    assert_eq!(method("batch-means", "batch-means"), Method::Intervals);
    for (base, new) in [("independent", "batch-means"), ("batch-means", "independent")] {
        assert_eq!(method(base, new), Method::OneRun, "{base} {new}");
    }
    let (base, new) = (with_method(100.0, "independent"), with_method(120.0, "batch-means"));
    let ruled = compare(&base, &new, &plan(&["self_mean_ns>+5%"])).unwrap();
    assert!(ruled.warnings[0].starts_with("1 figures that a rule names"), "{:?}", ruled.warnings);
}

#[test]
fn cycles_of_an_event_and_ratios_to_cycles_depend_on_the_clock() {
    let run = |clock: &str, cycles: f64, instructions_per_cycle: f64| {
        let key = |name: &str| Column::new(name, Kind::Text, "").key();
        let columns =
            vec![key("name"), key("event"), Column::new("self_mean", Kind::Real, "").cost()];
        let mut events = Table::new("events", "", columns);
        events.push(vec!["TIMER".into(), "cycles".into(), cycles.into()]);
        events.push(vec!["TIMER".into(), "instructions".into(), cycles.into()]);
        let columns =
            vec![key("name"), Column::new("instructions_per_cycle", Kind::Real, "").benefit()];
        let mut ratios = Table::new("ratios", "", columns);
        ratios.push(vec!["TIMER".into(), instructions_per_cycle.into()]);
        let mut run = run_of_table("sim", events);
        run.tables.push(ratios);
        run.settings.insert("model".to_owned(), serde_json::json!({ "clock": clock }));
        run
    };
    let found_with = |clock: &str| {
        let (base, new) = (run("4 GHz", 900.0, 1.0), run(clock, 800.0, 1.5));
        let found = compare(&base, &new, &plan(&[])).unwrap();
        let mut verdicts: Vec<(String, Verdict)> = found
            .differences
            .iter()
            .map(|difference| (difference.row_name(), difference.verdict))
            .collect();
        verdicts.sort();
        verdicts.into_iter().map(|(_, verdict)| verdict).collect::<Vec<_>>()
    };
    // In the order of rows: the ratio, the event cycles, the event instructions.
    assert_eq!(found_with("4 GHz"), [Verdict::Better; 3]);
    assert_eq!(found_with("2 GHz"), [Verdict::Changed, Verdict::Changed, Verdict::Better]);
}

#[test]
fn a_headline_contains_only_known_changes() {
    let in_conditions = |rows: [(&str, f64, f64); 2]| {
        let columns = vec![
            Column::new("condition", Kind::Text, "").key(),
            Column::new("name", Kind::Text, "").key(),
            mean_of_batches("self_mean_ns", "half", "freedom"),
            Column::new("half", Kind::Real, "").detail(),
            Column::new("freedom", Kind::Uint, "").detail(),
            Column::new("count", Kind::Uint, ""),
        ];
        let mut table = Table::new("handlers", "", columns);
        for (condition, mean, half) in rows {
            let freedom = BATCHES_FREEDOM.into();
            let figures = [mean.into(), half.into(), freedom, 1_000_u64.into()];
            table.push([condition.into(), "NET_RX".into()].into_iter().chain(figures).collect());
        }
        run_of_table("live", table)
    };
    let base = in_conditions([("idle", 100.0, 0.1), ("busy", 100.0, 90.0)]);
    let new = in_conditions([("idle", 105.0, 0.1), ("busy", 214.2, 200.0)]);
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let (tables, _) = tables(&found, &[], Listed::All);
    let finding = tables[0].get(&tables[0].rows()[0], "finding").unwrap();
    let expected = "NET_RX: 5.00 % more CPU time per interrupt in 1 of 2 conditions";
    assert_eq!(*finding, Value::from(expected));
}

#[test]
fn settings_of_every_run_of_a_series_are_compared() {
    let run = |seconds: u64, seed: u64, start: &str| {
        let mut run = run("live", &[("a", 100.0, Some(1.0))]);
        run.started_utc = start.to_owned();
        run.settings.insert("duration_s".to_owned(), seconds.into());
        run.settings.insert("seed".to_owned(), seed.into());
        run
    };
    let base: Vec<Run> = (1..=8).map(|seed| run(10, seed, "1")).collect();
    let new: Vec<Run> =
        (1..=8).map(|seed| run(if seed == 1 { 10 } else { 1 }, seed, "1")).collect();
    let warnings = compare_series(&base, &new, &plan(&[])).unwrap().warnings;
    let expected = "7 of 8 runs of the second side differ from its first run: setting duration_s differs: 10 and 1";
    assert_eq!(warnings, [expected]);
    // The number of warnings is bounded.
    let with_settings = |value: u64| {
        let mut run = run(10, 1, "1");
        let settings = (0..100).map(|number| (format!("setting_{number:03}"), value.into()));
        run.settings.extend(settings);
        run
    };
    let many = [1, 2, 1].map(with_settings);
    let warnings =
        compare_series(&many, &[1, 1, 1].map(with_settings), &plan(&[])).unwrap().warnings;
    assert_eq!(warnings.len(), 13);
    let last = warnings.last().unwrap();
    assert_eq!(last, "the runs of the first side differ in 88 more settings");
}
