//! Totals over windows of different lengths are not judged.

use record::{Column, Kind, Run, Table, Value};

use super::tests::run_of_table;
use super::*;

/// A run with the spans of one context: its total and its mean self time, and how its window ended.
fn run(bench: &str, total_ns: u64, window_ns: u64, ended_by: &str) -> Run {
    let text = |name: &str| Column::new(name, Kind::Text, "");
    let columns = vec![
        text("condition").key(),
        text("name").key(),
        Column::new("self_total_ns", Kind::Uint, "").cost(),
        Column::new("self_mean_ns", Kind::Real, "").cost(),
    ];
    let mut handlers = Table::new("handlers", "", columns);
    handlers.push(vec!["idle".into(), "TIMER".into(), total_ns.into(), 50.0.into()]);
    let length = Column::new("window_ns", Kind::Uint, "").detail();
    let mut conditions =
        Table::new("conditions", "", vec![text("condition").key(), length, text("ended_by")]);
    conditions.push(vec!["idle".into(), window_ns.into(), ended_by.into()]);
    let mut run = run_of_table(bench, handlers);
    run.tables.push(conditions);
    run
}

fn plan(rules: &[&str]) -> Plan {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Plan { all_rows: false, margin_ratio: 0.02, rules }
}

/// The verdict and the method of the total.
fn judged(base: &[Run], new: &[Run]) -> (Verdict, Method) {
    let found = compare_series(base, new, &plan(&[])).unwrap();
    let is_total = |found: &&Difference<'_>| found.pair.column.name == "self_total_ns";
    let total = found.differences.iter().find(is_total).unwrap();
    (total.verdict, total.method)
}

#[test]
fn a_total_over_a_longer_window_is_not_worse() {
    let base = run("sim", 12_902_280, 92_303_645, "enough");
    let new = run("sim", 44_337_260, 300_451_906, "time");
    let found = compare(&base, &new, &plan(&[])).unwrap();
    let total = found.differences.iter().find(|found| found.pair.column.name == "self_total_ns");
    let total = total.unwrap();
    assert_eq!((total.verdict, total.method), (Verdict::Undecided, Method::Windows));
    assert_eq!(total.interval, None);
    let expected = "1 figures are totals over windows of different lengths (handlers.self_total_ns of idle TIMER: 92.3 ms \
                    and 300.5 ms), so they are not judged (compare rates, shares of CPU time and means)";
    assert!(found.warnings.iter().any(|warning| warning == expected), "{:?}", found.warnings);
    let mean = found.differences.iter().find(|found| found.pair.column.name == "self_mean_ns");
    assert_eq!(mean.unwrap().verdict, Verdict::Equal);
}

#[test]
fn a_rule_on_totals_over_other_windows_is_refused_by_name() {
    let base = run("sim", 12_902_280, 92_303_645, "enough");
    let new = run("sim", 44_337_260, 300_451_906, "time");
    let error = compare(&base, &new, &plan(&["handlers.self_total_ns>+5%"])).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("handlers.self_total_ns>+5%"), "{error}");
    assert!(error.contains("92.3 ms and 300.5 ms"), "{error}");
    // A rule that covers other figures, too, warns.
    let with_row = |mut run: Run, condition: &str| {
        run.tables[0].push(vec![condition.into(), "RCU".into(), 5_u64.into(), 1.0.into()]);
        run.tables[1].push(vec![condition.into(), 300_000_000_u64.into(), "time".into()]);
        run
    };
    let (base, new) = (with_row(base, "busy"), with_row(new, "busy"));
    let found = compare(&base, &new, &plan(&["handlers.self_total_ns>+5%"])).unwrap();
    assert_eq!(found.outcomes[0].ruling, Ruling::InDoubt);
    let says = "rule \"handlers.self_total_ns>+5%\" is not checked on 1 of its 2 figures";
    assert!(found.warnings.iter().any(|warning| warning.starts_with(says)), "{:?}", found.warnings);
}

#[test]
fn totals_of_one_piece_of_work_and_of_windows_of_one_length_are_judged() {
    let judged_pair = |base: (u64, u64), new: (u64, u64), ended_by: &str| {
        let run = |(total_ns, window_ns)| run("sim", total_ns, window_ns, ended_by);
        judged(&[run(base)], &[run(new)])
    };
    assert_eq!(judged_pair((100, 1_000), (130, 3_000), "command"), (Verdict::Worse, Method::Exact));
    assert_eq!(judged_pair((100, 1_000), (130, 1_000), "time"), (Verdict::Worse, Method::Exact));
    // Windows that end by time differ by what waking irqlab takes. A total that differs by less is equal.
    assert_eq!(judged_pair((100_000, 1_000_000), (130_000, 1_001_000), "time").0, Verdict::Worse);
    assert_eq!(judged_pair((100_000, 1_000_000), (100_050, 1_001_000), "time").0, Verdict::Equal);
    assert_eq!(
        judged_pair((100, 1_000), (130, 1_020), "time"),
        (Verdict::Undecided, Method::Windows)
    );
    // A command on one side alone is other work.
    let (ambient, command) = (run("sim", 100, 1_000, "time"), run("sim", 130, 3_000, "command"));
    assert_eq!(judged(&[ambient], &[command]).1, Method::Windows);
    // Nothing is nothing in a window of any length.
    assert_eq!(judged_pair((0, 1_000), (0, 3_000), "time"), (Verdict::Equal, Method::Exact));
}

#[test]
fn one_pair_of_runs_with_other_windows_is_enough_to_judge_no_total() {
    let three = |lengths: [u64; 3]| lengths.map(|length| run("live", length / 10, length, "time"));
    let base = three([1_000_000, 1_000_100, 1_000_000]);
    let new = three([1_000_200, 1_000_000, 1_000_300]);
    assert_eq!(judged(&base, &new), (Verdict::Equal, Method::Runs));
    // A run that lacks the row has no total: the windows of the other pairs count.
    let mut without = three([1_000_200, 1_000_000, 1_000_300]);
    let conditions = without[1].tables[1].clone();
    without[1].tables.truncate(1);
    without[1].tables[0] = Table::new("handlers", "", without[1].tables[0].columns.clone());
    without[1].tables.push(conditions);
    assert_eq!(judged(&base, &without).1, Method::NoInterval);
    let cut = three([1_000_200, 500_000, 1_000_300]);
    assert_eq!(judged(&base, &cut), (Verdict::Undecided, Method::Windows));
}

#[test]
fn a_sweep_does_not_judge_totals_over_other_windows() {
    let change = |base: &Run, new: &Run| {
        let reading = |run: &Run| {
            let table = &run.tables[0];
            Reading::new(run, table, &table.rows()[0], &table.columns[2]).unwrap()
        };
        let (base_reading, new_reading) = (reading(base), reading(new));
        let table = &base.tables[0];
        let pairs = [(&base_reading, &new_reading)];
        let change = changes(table, &table.columns[2], &pairs, &plan(&[]))[0];
        (change.verdict, change.method)
    };
    let base = run("sim", 100, 1_000, "enough");
    assert_eq!(
        change(&base, &run("sim", 300, 3_000, "time")),
        (Verdict::Undecided, Method::Windows)
    );
    assert_eq!(change(&base, &run("sim", 300, 1_000, "time")).0, Verdict::Worse);
    let warning = |news: &[Run]| {
        let table = &base.tables[0];
        let reading = |run: &Run| {
            Reading::new(run, &run.tables[0], &run.tables[0].rows()[0], &table.columns[2]).unwrap()
        };
        let readings: Vec<Reading> = std::iter::once(&base).chain(news).map(reading).collect();
        windows_warning(table, &table.columns[2], &readings.iter().collect::<Vec<_>>())
    };
    assert_eq!(warning(&[run("sim", 300, 1_000, "time")]), None);
    let text =
        warning(&[run("sim", 300, 1_000, "time"), run("sim", 1, 3_000_000, "time")]).unwrap();
    assert!(text.starts_with("handlers.self_total_ns is a total over a window"), "{text}");
    assert!(text.contains("0.0 ms and 3.0 ms"), "{text}");
}

#[test]
fn the_loops_of_noise_have_a_window_on_each_cpu() {
    let noise = |lost_ns: u64, window_ns: u64| {
        let columns = vec![
            Column::new("cpu", Kind::Uint, "").key(),
            Column::new("window_ns", Kind::Uint, "").detail(),
            Column::new("lost_ns", Kind::Uint, "").cost(),
        ];
        let mut table = Table::new("noise", "", columns);
        table.push(vec![3_u64.into(), window_ns.into(), lost_ns.into()]);
        let columns = vec![
            Column::new("cpu", Kind::Uint, "").key(),
            Column::new("name", Kind::Text, "").key(),
            Column::new("total_ns", Kind::Uint, "").cost(),
        ];
        let mut causes = Table::new("causes", "", columns);
        causes.push(vec![3_u64.into(), Value::from("TIMER"), lost_ns.into()]);
        let mut run = run_of_table("sim", table);
        run.tables.push(causes);
        run.experiment = "noise".to_owned();
        run
    };
    let found_methods = |base: &Run, new: &Run| {
        let found = compare(base, new, &plan(&[])).unwrap();
        let costs =
            found.differences.into_iter().filter(|found| found.pair.column.name != "window_ns");
        costs.map(|found| found.method).collect::<Vec<_>>()
    };
    let base = noise(100, 1_000);
    assert_eq!(found_methods(&base, &noise(300, 3_000)), [Method::Windows; 2]);
    assert_eq!(found_methods(&base, &noise(300, 1_000)), [Method::Exact; 2]);
}

/// The totals of an event that two passes of `handlers --events` count, and the length of their windows. The timing pass has
/// a window of 2 s.
fn run_of_events(total: u64, pass_ns: Option<u64>, ended_by: &str) -> Run {
    let mut run = run("sim", 100, 2_000_000_000, ended_by);
    let mut columns = vec![
        Column::new("condition", Kind::Text, "").key(),
        Column::new("event", Kind::Text, "").key(),
        Column::new("pass", Kind::Uint, ""),
        Column::new("self_total", Kind::Uint, ""),
    ];
    let mut row = vec!["idle".into(), "cycles".into(), 1_u64.into(), total.into()];
    if let Some(pass_ns) = pass_ns {
        columns.push(Column::new("window_ns", Kind::Uint, "").detail());
        row.push(pass_ns.into());
    }
    let mut events = Table::new("events", "", columns);
    events.push(row);
    run.tables.push(events);
    run
}

/// Each pass has its own window, whose length depends on the number of passes.
#[test]
fn totals_of_events_are_judged_by_the_window_of_their_pass() {
    let judged = |base: &Run, new: &Run| {
        let found = compare(base, new, &plan(&[])).unwrap();
        let mut found = found.differences.into_iter();
        let total = found.find(|found| found.pair.column.name == "self_total").unwrap();
        (total.verdict, total.method)
    };
    let one_pass = run_of_events(200, Some(2_000_000_000), "time");
    let two_passes = run_of_events(100, Some(1_000_000_000), "time");
    assert_eq!(judged(&one_pass, &two_passes), (Verdict::Undecided, Method::Windows));
    let fewer = run_of_events(100, Some(2_000_000_000), "time");
    assert_eq!(judged(&one_pass, &fewer), (Verdict::Changed, Method::Exact));
    // An older run does not say how long the window of its pass was.
    let old = |ended_by: &str| run_of_events(100, None, ended_by);
    assert_eq!(judged(&one_pass, &old("time")), (Verdict::Undecided, Method::Windows));
    assert_eq!(judged(&old("time"), &old("time")).1, Method::Windows);
    // Each pass of a command executes all of it.
    let whole = run_of_events(200, Some(2_000_000_000), "command");
    assert_eq!(judged(&whole, &old("command")), (Verdict::Changed, Method::Exact));
    // The window of the other tables is that of the condition.
    let found = compare(&one_pass, &two_passes, &plan(&[])).unwrap();
    let total = found.differences.iter().find(|found| found.pair.column.name == "self_total_ns");
    assert_eq!(total.unwrap().verdict, Verdict::Equal);
}
