//! A comparison as tables of a run: `differences`, and `rules` or `self_test` if the user gave rules. The verbs
//! `compare` and `report` print and write them. Users' programs read the columns: names and order must not change.

use record::{Absence, Columns, Format, Keep, RowFilter, Table, TableDisplay, column};

use super::bounds::bound_text;
use super::judge::Exactness;
use super::{
    CPU_SHARE_MIN_RATIO, Comparison, Difference, LeftOutTable, Limit, Method, Outcome, PairCounts,
    Rule, SelfTest, Verdict, row_name,
};
use super::{run_totals, totals};

/// Maximum number of rows that the terminal shows by default.
const ROWS_SHOWN: u64 = 60;

/// The figures that have a row in the table `differences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Every compared figure.
    All,
    /// Figures that differ, or that only one of the runs has. The terminal shows only these by default, so a comparison of 1,000,000 rows
    /// need not build the other rows.
    Differing,
}

/// The tables of a comparison, and the tables of the runs that were not compared, with reasons. If there are `tests`,
/// the table `self_test` replaces the table `rules`.
#[must_use]
pub fn tables(
    comparison: &Comparison<'_>,
    tests: &[SelfTest],
    listed: Listed,
) -> (Vec<Table>, Vec<Absence>) {
    let mut tables = Vec::new();
    if !tests.is_empty() {
        tables.push(self_test_table(tests));
    } else if !comparison.outcomes.is_empty() {
        tables.push(rules_table(comparison));
    }
    tables.extend(run_totals::table(&comparison.run_totals));
    tables.extend(totals::table(comparison));
    tables.push(differences_table(comparison, listed));
    // What a list of single events lacks in a comparison concerns nobody who gave no rule on it.
    let left_out = comparison.left_out.iter().filter(|table| table.has_judged_figures);
    let absence = |table: &LeftOutTable| {
        Absence::new("differences", format!("table {}", table.name), table.reason.as_str())
    };
    (tables, left_out.map(absence).collect())
}

/// The columns that describe a rule, which the tables `rules` and `self_test` share.
fn rule_columns<'a>() -> Columns<'a, Rule> {
    Columns::all([
        column("rule", "The rule, as it was given.")
            .priority(100)
            .key()
            .text(|rule: &Rule| rule.text.clone()),
        column("limit_ratio", "Its limit, as a part of the first run's figure.").detail().real(
            |rule: &Rule| match rule.limit {
                Limit::Ratio(ratio) => Some(ratio),
                Limit::Absolute(_) => None,
            },
        ),
        column("limit", "Its limit in the unit of the column, where it was given so.")
            .detail()
            .real(|rule: &Rule| match rule.limit {
                Limit::Absolute(limit) => Some(limit),
                Limit::Ratio(_) => None,
            }),
    ])
}

/// Table `rules`: the outcome of each rule.
fn rules_table(comparison: &Comparison<'_>) -> Table {
    let columns = rule_columns().of_ref(|outcome: &Outcome| &outcome.rule).and([
        column(
            "ruling",
            "broken: a figure is beyond the limit, its whole interval where it has one. in \
             doubt: a figure is beyond it and its interval is not, or only one of the runs has a \
             figure, or a figure is a total over windows of different lengths, or bounds do not tell. holds: none is.",
        )
        .priority(99)
        .text(|outcome: &Outcome| outcome.ruling.word()),
        column("cell_count", "Figures that were compared.")
            .shown_as("figures", 80)
            .uint(|outcome: &Outcome| outcome.cells),
        column("missing_count", "Figures that the second run lacks.")
            .shown_as("missing", 70)
            .uint(|outcome: &Outcome| outcome.missing),
        column("worst_row", "The row of the figure that is farthest from holding.")
            .shown_as("worst", 90)
            .text(|outcome: &Outcome| outcome.worst.as_ref().map(|(row, _)| row.clone())),
        column("worst_change_ratio", "Its change, as a part of the first run's figure. Absent for a bound.")
            .shown_as("change", 95)
            .real(|outcome: &Outcome| outcome.worst.as_ref().and_then(|(_, change)| *change)),
        column("added_count", "Figures that the first run lacks.")
            .shown_as("added", 69)
            .uint(|outcome: &Outcome| outcome.added),
    ]);
    columns.table("rules", "What each rule of the gate came to.", &comparison.outcomes)
}

/// Table `self_test`: whether each rule can be broken.
fn self_test_table(tests: &[SelfTest]) -> Table {
    let columns = rule_columns().of_ref(|test: &SelfTest| &test.rule).and([
        column("holds_for_itself", "Whether the rule holds when the run is compared with itself.")
            .priority(99)
            .bool(|test: &SelfTest| test.holds_for_itself),
        column(
            "breaks_from_ratio",
            "Smallest change of the rule's figures, as a part of them, that breaks it: its \
             limit and, on a live bench, half the width of the widened interval of the \
             difference. For quantiles, also the buckets of the histogram. Absent where no change breaks it.",
        )
        .shown_as("breaks from", 98)
        .real(|test: &SelfTest| test.breaks_from_ratio),
    ]);
    columns.table("self_test", "Whether each rule can be broken, and by how small a change.", tests)
}

/// The columns of table `differences` that every comparison has. The names are part of the run's format.
fn difference_columns<'a>() -> Columns<'a, Difference<'a>> {
    Columns::all([
        column("differs", "Whether the figures differ, or only one of the runs has the figure.")
            .detail()
            .bool(|difference: &Difference<'_>| differs(difference.verdict)),
        column(
            "verdict",
            "worse, better: a cost or a benefit changed. changed: a figure that is neither. \
             equal: exactly, or by intervals within the margin. can't tell: neither. missing: \
             the second run lacks it. added: the first run lacks it.",
        )
        .priority(99)
        .text(|difference: &Difference<'_>| difference.verdict.word()),
        column("table", "Table of the runs.")
            .priority(60)
            .key()
            .text(|difference: &Difference<'_>| difference.pair.table.name.clone()),
        column("row", "Its row: the values of its key columns.")
            .priority(98)
            .wrapped()
            .key()
            .text(|difference: &Difference<'_>| row_name(&difference.pair)),
        column("column", "Its column.")
            .priority(100)
            .key()
            .text(|difference: &Difference<'_>| difference.pair.column.name.clone()),
        column(
            "base",
            "The first run's figure, in the unit of the column. Below the detection limit: the upper end of its 95 % \
             interval, or absent if that is not known. With several runs on each side: the mean over the first \
             side's runs, the geometric mean if all figures of both sides are positive.",
        )
            .digits(5)
            .priority(94)
            .real(|difference: &Difference<'_>| difference.pair.base?.shown_value()),
        column("base_low", "Lower end of its 95 % interval.").detail().real(
            |difference: &Difference<'_>| {
                difference.pair.base.and_then(|base| base.interval).and_then(|(low, _)| known(low))
            },
        ),
        column("base_high", "Upper end of that interval.").detail().real(
            |difference: &Difference<'_>| {
                difference.pair.base.and_then(|base| base.interval).and_then(|(_, high)| known(high))
            },
        ),
        column(
            "new",
            "The second run's figure. With several runs on each side: the mean over the second side's runs, of the kind \
             of base.",
        )
            .digits(5)
            .priority(93)
            .real(|difference: &Difference<'_>| difference.pair.new?.shown_value()),
        column("new_low", "Lower end of its 95 % interval.").detail().real(
            |difference: &Difference<'_>| {
                difference.pair.new.and_then(|new| new.interval).and_then(|(low, _)| known(low))
            },
        ),
        column("new_high", "Upper end of that interval.").detail().real(
            |difference: &Difference<'_>| {
                difference.pair.new.and_then(|new| new.interval).and_then(|(_, high)| known(high))
            },
        ),
        column(
            "change_ratio",
            "(new - base) / base; absent where base is 0, or a figure is only a bound.",
        )
        .shown_as("change", 97)
        .real(|difference: &Difference<'_>| difference.ratio(difference.measured_change()?)),
        column(
            "change_low_ratio",
            "Lower end of the simultaneous 95 % interval of change_ratio; the change itself \
             where it is exact, and for quantiles the smallest change that the histogram's buckets allow. Absent where \
             a bound leaves the change open.",
        )
        .shown_as("ci95 from", 90)
        .real(|difference: &Difference<'_>| difference.ratio(known(difference.interval?.0)?)),
        column("change_high_ratio", "Upper end of that interval.")
            .shown_as("to", 89)
            .real(|difference: &Difference<'_>| difference.ratio(known(difference.interval?.1)?)),
        column("change", "new - base, in the unit of the column.")
            .format(Format::Auto)
            .detail()
            .real(|difference: &Difference<'_>| difference.measured_change()),
        column(
            "method",
            "exact: any difference is real, of quantiles any beyond the histogram's buckets. intervals: Student's t of means and amounts, MOVER \
             of quantiles, with Bonferroni's confidence for all figures together. runs: \
             Student's t of the differences of pairs of runs, of their logarithms if all figures \
             are positive. bound: a figure is only a bound, so the change is known on one side at most. no interval, one run: not judged. windows differ: not judged, a total over windows of different \
             lengths. Absent: only one of the runs has the \
             figure, and figures are not exact.",
        )
        .priority(50)
        .text(|difference: &Difference<'_>| difference.method.word()),
        column(
            "note",
            "few spans: one of the runs has fewer than 30 spans of the row. in 3 of 4 pairs: the other pairs of runs lack \
             the figure. base is an upper bound, both are lower bounds, new is below the detection limit: the figure is no measurement.",
        )
        .priority(96)
        .text(note),
    ])
}

/// An end of an interval. `None` if it is infinite, because a bound leaves the interval open.
fn known(end: f64) -> Option<f64> {
    end.is_finite().then_some(end)
}

/// The note on a difference: few spans, pairs of runs that lack the figure, and bounds. `None` without any.
fn note(difference: &Difference<'_>) -> Option<String> {
    let few_spans = difference.has_few_spans().then(|| "few spans".to_owned());
    let pairs = difference
        .pair
        .pair_counts
        .map(|PairCounts { compared, all }| format!("in {compared} of {all} pairs"));
    let bounds = bound_text(difference.pair.base, difference.pair.new);
    let notes: Vec<String> = few_spans.into_iter().chain(pairs).chain(bounds).collect();
    (!notes.is_empty()).then(|| notes.join(", "))
}

/// Whether the table lists the figure by default: it differs, or only one of the runs has it.
fn differs(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Equal | Verdict::Undecided)
}

/// Table `differences`: a row for each listed figure.
fn differences_table(comparison: &Comparison<'_>, listed: Listed) -> Table {
    let display = TableDisplay {
        title: "What changed".to_owned(),
        filter: Some(RowFilter {
            column: "differs".to_owned(),
            keep: Keep::Bool(true),
            others: "equal or undecided".to_owned(),
        }),
        rows_max: Some(ROWS_SHOWN),
        notes: differences_notes(comparison, listed),
        ..TableDisplay::default()
    };
    let doc = "Each figure of the runs: rows with few spans last, worse and better ones first, then by effect on CPU time.";
    let is_listed =
        |difference: &&Difference<'_>| listed == Listed::All || differs(difference.verdict);
    let rows = comparison.differences.iter().filter(is_listed);
    difference_columns().table("differences", doc, rows).displayed(display)
}

/// The confidence of an interval with the probability `tail` beyond each end, in percent. It has as many decimals as
/// distinguish it from 100 %, and at least 4.
fn confidence_text(tail: f64) -> String {
    let error_percent = 200.0 * tail;
    // The first decimal in which the error is at least 1.
    let decimals = (-error_percent.log10()).ceil().clamp(4.0, 15.0) as usize;
    format!("{:.decimals$} %", 100.0 - error_percent)
}

/// The notes below the table `differences`: figures by verdict, confidence of the intervals, and
/// figures that are not judged or not listed.
fn differences_notes(comparison: &Comparison<'_>, listed: Listed) -> Vec<String> {
    let count = |verdict: Verdict| {
        comparison.differences.iter().filter(|difference| difference.verdict == verdict).count()
    };
    let verdicts = [
        Verdict::Worse,
        Verdict::Changed,
        Verdict::Better,
        Verdict::Undecided,
        Verdict::Missing,
        Verdict::Added,
        Verdict::Equal,
    ];
    let counts: Vec<String> = verdicts
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
    let mut confidences: Vec<String> =
        judged.map(|difference| confidence_text(difference.tail)).collect();
    confidences.sort();
    confidences.dedup();
    if !confidences.is_empty() {
        notes.push(format!(
            "each interval of a difference holds with {}, so that all hold together in 95 % of \
             comparisons",
            confidences.join(" or ")
        ));
    }
    let unjudged = comparison
        .differences
        .iter()
        .filter(|difference| difference.method == Method::OneRun)
        .count();
    if unjudged > 0 {
        notes.push(format!(
            "{unjudged} figures are not judged by one run on each side, of rows below {} % \
             of CPU time, of delays of work items, or with an interval that assumes independent \
             values: they change from run to run; give several runs on each side",
            100.0 * CPU_SHARE_MIN_RATIO
        ));
    }
    let is_within_buckets = |difference: &&Difference<'_>| {
        difference.method == Method::Exact && difference.verdict == Verdict::Undecided
    };
    let within_buckets = comparison.differences.iter().filter(is_within_buckets).count();
    if within_buckets > 0 {
        notes.push(format!(
            "{within_buckets} quantiles are within the buckets of their histograms, which are up to 1/16 wide: whether \
             they differ is not known"
        ));
    }
    let has_no_interval = |difference: &&Difference<'_>| difference.method == Method::NoInterval;
    let without_interval: Vec<&Difference<'_>> =
        comparison.differences.iter().filter(has_no_interval).collect();
    if let Some(first) = without_interval.first() {
        let remedy = match first.exactness {
            Exactness::Noisy => "measure longer (-d), or give several runs on each side",
            Exactness::Repeatable => "give several runs on each side, with different seeds",
        };
        notes.push(format!(
            "{} figures are not judged, because a figure has no interval: {remedy}",
            without_interval.len()
        ));
    }
    let unlisted =
        comparison.differences.iter().filter(|difference| !differs(difference.verdict)).count();
    if listed == Listed::Differing && unlisted > 0 {
        notes.push(format!("{unlisted} equal or undecided ones are not listed; --all lists them"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_confidence_is_rounded_to_certainty() {
        let text = |figures: f64| confidence_text(0.025 / figures);
        assert_eq!(text(1.0), "95.0000 %");
        assert_eq!(text(3.0), "98.3333 %");
        assert_eq!(text(10_000.0), "99.9995 %");
        assert_eq!(text(60_000.0), "99.99992 %");
        assert_eq!(text(1_000_000.0), "99.999995 %");
    }
}
