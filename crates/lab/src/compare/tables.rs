//! A comparison as tables of a run.

use record::{Absence, Column, Format, Keep, Kind, RowFilter, Table, TableDisplay, Value};

use super::{
    CPU_SHARE_MIN_RATIO, Comparison, Difference, Limit, Method, SelfTest, Verdict, row_name,
};

/// Rows that people see without asking for more.
const ROWS_SHOWN: u64 = 60;

fn column(name: &str, kind: Kind, doc: &str) -> Column {
    Column::new(name, kind, doc)
}

/// The figures that have a row in the table `differences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Every compared figure.
    All,
    /// Figures that differ or are missing. People see these by default, so a comparison of 1,000,000 rows need not
    /// build the other rows.
    Differing,
}

/// The table `differences`, the table `rules` if there are rules, and the tables that were left out.
#[must_use]
pub fn tables(
    comparison: &Comparison<'_>,
    tests: &[SelfTest],
    listed: Listed,
) -> (Vec<Table>, Vec<Absence>) {
    let mut tables = Vec::new();
    if !tests.is_empty() {
        tables.push(self_tests(tests));
    } else if !comparison.outcomes.is_empty() {
        tables.push(rules(comparison));
    }
    tables.push(differences(comparison, listed));
    let absence = |(table, why): &(String, &'static str)| Absence {
        table: "differences".to_owned(),
        what: format!("table {table}"),
        reason: (*why).to_owned(),
        remedy: None,
    };
    (tables, comparison.left_out.iter().map(absence).collect())
}

fn limit_values(limit: Limit) -> [Value; 2] {
    match limit {
        Limit::Ratio(ratio) => [ratio.into(), Value::Absent],
        Limit::Absolute(by) => [Value::Absent, by.into()],
    }
}

fn rule_columns() -> Vec<Column> {
    vec![
        column("rule", Kind::Text, "The rule, as it was given.").priority(100).key(),
        column("limit_ratio", Kind::Real, "Its limit, as a part of the first run's figure.")
            .detail(),
        column("limit", Kind::Real, "Its limit in the unit of the column, where it was given so.")
            .detail(),
    ]
}

fn rules(comparison: &Comparison<'_>) -> Table {
    let mut columns = rule_columns();
    columns.extend([
        column(
            "ruling",
            Kind::Text,
            "broken: a figure is beyond the limit, its whole interval where it has one. in doubt: a figure is \
             beyond it and its interval is not, or a row is missing. holds: none is.",
        )
        .priority(99),
        column("cell_count", Kind::Uint, "Figures that were compared.").shown_as("figures", 80),
        column("missing_count", Kind::Uint, "Figures that the second run lacks.")
            .shown_as("missing", 70),
        column("worst_row", Kind::Text, "The row of the figure that is farthest from holding.")
            .shown_as("worst", 90),
        column("worst_change_ratio", Kind::Real, "Its change, as a part of the first run's figure.")
            .shown_as("change", 95),
    ]);
    let mut table = Table::new("rules", "What each rule of the gate came to.", columns);
    for outcome in &comparison.outcomes {
        let mut row: Vec<Value> = vec![outcome.rule.text.clone().into()];
        row.extend(limit_values(outcome.rule.limit));
        let worst = outcome.worst.clone();
        row.extend([
            outcome.ruling.word().into(),
            (outcome.cells as u64).into(),
            (outcome.missing as u64).into(),
            worst.as_ref().map(|(row, _)| row.clone()).into(),
            worst.and_then(|(_, change)| change).into(),
        ]);
        table.push(row);
    }
    table
}

fn self_tests(tests: &[SelfTest]) -> Table {
    let mut columns = rule_columns();
    columns.extend([
        column(
            "holds_for_itself",
            Kind::Bool,
            "Whether the rule holds when the run is compared with itself.",
        )
        .priority(99),
        column(
            "breaks_from_ratio",
            Kind::Real,
            "Smallest change of the rule's figures, as a part of them, that breaks it: its limit and, on a live \
             bench, half the width of the widened interval of the difference. Absent where no change breaks it.",
        )
        .shown_as("breaks from", 98),
    ]);
    let doc = "Whether each rule can be broken, and by how small a change.";
    let mut table = Table::new("self_test", doc, columns);
    for test in tests {
        let mut row: Vec<Value> = vec![test.rule.text.clone().into()];
        row.extend(limit_values(test.rule.limit));
        row.extend([test.holds_for_itself.into(), test.breaks_from_ratio.into()]);
        table.push(row);
    }
    table
}

fn difference_columns() -> Vec<Column> {
    let real = |name: &str, doc: &str| column(name, Kind::Real, doc);
    vec![
        column(
            "differs",
            Kind::Bool,
            "Whether the figures differ, or the second run lacks its figure.",
        )
        .detail(),
        column(
            "verdict",
            Kind::Text,
            "worse, better: a cost or a benefit changed. changed: a figure that is neither. equal: exactly, or by \
             intervals within the margin. can't tell: neither. missing: the second run lacks it.",
        )
        .priority(99),
        column("table", Kind::Text, "Table of both runs.").priority(60).key(),
        column("row", Kind::Text, "Its row: the values of its key columns.").priority(98).key(),
        column("column", Kind::Text, "Its column.").priority(100).key(),
        real("base", "The first run's figure, in the unit of the column.").digits(5).priority(94),
        real("base_low", "Lower end of its 95 % interval.").detail(),
        real("base_high", "Upper end of that interval.").detail(),
        real("new", "The second run's figure.").digits(5).priority(93),
        real("new_low", "Lower end of its 95 % interval.").detail(),
        real("new_high", "Upper end of that interval.").detail(),
        real("change_ratio", "Second less first, as a part of the first; absent where that is 0.")
            .shown_as("change", 97),
        real(
            "change_low_ratio",
            "Lower end of the simultaneous 95 % interval of change_ratio; the change itself where it is exact.",
        )
        .shown_as("ci95 from", 90),
        real("change_high_ratio", "Upper end of that interval.").shown_as("to", 89),
        real("change", "Second less first, in the unit of the column.").format(Format::Auto).detail(),
        column(
            "method",
            Kind::Text,
            "exact: any difference is one. intervals: Student's t of means and amounts, MOVER of quantiles, with \
             Bonferroni's confidence for all figures together. runs: Student's t of the differences of pairs of runs. \
             no interval, one run: not judged.",
        )
        .priority(50),
    ]
}

fn differs(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Equal | Verdict::Undecided)
}

fn differences(comparison: &Comparison<'_>, listed: Listed) -> Table {
    let count = |verdict: Verdict| {
        comparison.differences.iter().filter(|difference| difference.verdict == verdict).count()
    };
    let all = [
        Verdict::Worse,
        Verdict::Changed,
        Verdict::Better,
        Verdict::Undecided,
        Verdict::Missing,
        Verdict::Equal,
    ];
    let counts: Vec<String> = all
        .into_iter()
        .filter(|verdict| count(*verdict) > 0)
        .map(|verdict| format!("{} {}", count(verdict), verdict.word()))
        .collect();
    let mut notes =
        vec![format!("{} figures: {}", comparison.differences.len(), counts.join(", "))];
    let is_by_interval = |difference: &&Difference<'_>| {
        matches!(difference.method, Method::Intervals | Method::Runs)
    };
    let judged = comparison.differences.iter().filter(is_by_interval);
    let mut confidences: Vec<String> = judged
        .map(|difference| format!("{:.4} %", 100.0 * (1.0 - 2.0 * difference.tail)))
        .collect();
    confidences.sort();
    confidences.dedup();
    if !confidences.is_empty() {
        notes.push(format!(
            "each interval of a difference holds with {}, so that all hold together in 95 % of comparisons",
            confidences.join(" or ")
        ));
    }
    let by_one_run = comparison
        .differences
        .iter()
        .filter(|difference| difference.method == Method::OneRun)
        .count();
    if by_one_run > 0 {
        notes.push(format!(
            "{by_one_run} figures are not judged by one run on each side, of rows below {} % of CPU time or quantiles of \
             values that depend on one another: they change from run to run; give several runs on each side",
            100.0 * CPU_SHARE_MIN_RATIO
        ));
    }
    let left_out =
        comparison.differences.iter().filter(|difference| !differs(difference.verdict)).count();
    if listed == Listed::Differing && left_out > 0 {
        notes.push(format!("{left_out} equal or undecided ones are not listed; --all lists them"));
    }
    let others = "equal or undecided".to_owned();
    let display = TableDisplay {
        title: "What changed".to_owned(),
        filter: Some(RowFilter { column: "differs".to_owned(), keep: Keep::Bool(true), others }),
        rows_max: Some(ROWS_SHOWN),
        notes,
        ..TableDisplay::default()
    };
    let doc = "Each figure of both runs, the worst first.";
    let mut table = Table::new("differences", doc, difference_columns()).displayed(display);
    for difference in &comparison.differences {
        if listed == Listed::Differing && !differs(difference.verdict) {
            continue;
        }
        let (base, new) = (difference.pair.base, difference.pair.new);
        let ends = |interval: Option<(f64, f64)>| {
            [interval.map(|(low, _)| low).into(), interval.map(|(_, high)| high).into()]
        };
        let [base_low, base_high] = ends(base.interval);
        let [new_low, new_high] = ends(new.and_then(|new| new.interval));
        let ratio =
            |change: Option<f64>| Value::from(change.and_then(|change| difference.ratio(change)));
        table.push(vec![
            differs(difference.verdict).into(),
            difference.verdict.word().into(),
            difference.pair.table.name.clone().into(),
            row_name(&difference.pair).into(),
            difference.pair.column.name.clone().into(),
            base.value.into(),
            base_low,
            base_high,
            new.map(|new| new.value).into(),
            new_low,
            new_high,
            ratio(difference.change),
            ratio(difference.interval.map(|(low, _)| low)),
            ratio(difference.interval.map(|(_, high)| high)),
            difference.change.into(),
            difference.method.word().into(),
        ]);
    }
    table
}
