//! How often a comparison reports a difference where there is none, and how often it finds a planted difference.
//!
//! `irqlab bench compare` measures the same thing many times, adds each pair of runs to [`ErrorRates`], and prints the
//! tables. This checks the comparison itself.

use std::collections::BTreeMap;

use record::{Columns, IntervalColumns, Run, Table, column};

use super::{
    CompareError, Comparison, Difference, Method, Plan, Verdict, compare_series, verdict_if_changed,
};
use crate::targets::{Target, target_columns};

/// Largest share of comparisons that may report a false difference.
const FALSE_RATIO_MAX: f64 = 0.05;

/// The name of a compared figure.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FigureName {
    table: String,
    row: String,
    column: String,
}

/// The errors of comparisons between runs of the same thing: every reported difference is false.
#[derive(Default)]
pub struct ErrorRates {
    comparisons: u64,
    /// Figures that were judged, summed over all comparisons.
    figures: u64,
    /// Comparisons that reported at least one difference.
    false_comparisons: u64,
    reported: Vec<Reported>,
    planted: BTreeMap<FigureName, Planted>,
}

/// A figure that a comparison reported as different.
struct Reported {
    /// Number of the last pair of the comparison, from 1.
    pair: u64,
    name: FigureName,
    /// Second figure less first, as a part of the first. `None` if the first is 0.
    change: Option<f64>,
    /// Lower and upper end of the interval of `change`.
    low: Option<f64>,
    high: Option<f64>,
}

/// Comparisons of one mean, in which a planted change was added to the second run's mean.
#[derive(Default)]
struct Planted {
    /// Comparisons that judge the mean.
    judged: u64,
    /// Comparisons that report the change.
    found: u64,
}

/// Whether the difference was judged by an interval.
fn is_judged(difference: &&Difference<'_>) -> bool {
    matches!(difference.method, Method::Intervals | Method::Runs)
}

impl ErrorRates {
    /// Compares `new` with `base`, and counts the reported differences. Then judges each mean again as if the second
    /// run's mean had changed by the part `plant` of itself. `pair`: number of the last pair of runs, from 1.
    ///
    /// Fails as [`compare_series`] does.
    ///
    /// # Panics
    /// When a side has no run.
    pub fn add(
        &mut self,
        pair: u64,
        base: &[Run],
        new: &[Run],
        plant: f64,
    ) -> Result<(), CompareError> {
        let plan = Plan { all_rows: false, margin_ratio: 0.02, rules: Vec::new() };
        let comparison = compare_series(base, new, &plan)?;
        self.comparisons += 1;
        let reported_before = self.reported.len();
        self.add_figures(pair, &comparison, &plan, plant);
        self.false_comparisons += u64::from(self.reported.len() > reported_before);
        Ok(())
    }

    /// Adds all judged figures of a comparison: a figure that differs to `reported`, and each mean to `planted`.
    fn add_figures(&mut self, pair: u64, comparison: &Comparison<'_>, plan: &Plan, plant: f64) {
        for difference in comparison.differences.iter().filter(is_judged) {
            self.figures += 1;
            let column = &difference.pair.column.name;
            let name = FigureName {
                table: difference.pair.table.name.clone(),
                row: difference.row_name(),
                column: column.clone(),
            };
            if difference.verdict.is_difference() {
                let ratio = |change: Option<f64>| difference.ratio(change?);
                let (low, high) = difference.interval.unzip();
                let [change, low, high] = [difference.change, low, high].map(ratio);
                self.reported.push(Reported { pair, name: name.clone(), change, low, high });
            }
            if column.contains("_mean") {
                let verdict = verdict_if_changed(difference, plant, plan);
                let planted = self.planted.entry(name).or_default();
                planted.judged += 1;
                planted.found +=
                    u64::from(verdict == Verdict::Worse || verdict == Verdict::Changed);
            }
        }
    }

    /// How many comparisons were added.
    #[must_use]
    pub fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// The tables `pairs`, `planted` and `reported`.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        vec![self.pairs_table(), self.planted_table(), self.reported_table()]
    }

    /// Table `pairs`: how many comparisons and figures there are, and the share of false reports.
    fn pairs_table(&self) -> Table {
        let per_comparison = |count: u64| count as f64 / self.comparisons as f64;
        let rows = [
            Target::unlimited("comparisons", self.comparisons as f64),
            Target::unlimited("figures judged in a comparison", per_comparison(self.figures)),
            Target::unlimited("figures reported as different", self.reported.len() as f64),
            Target::at_most(
                "share of comparisons with such a figure",
                per_comparison(self.false_comparisons),
                FALSE_RATIO_MAX,
            ),
        ];
        let columns = target_columns(
            column("quantity", "Number or share that was found."),
            column("value", "Value of the quantity."),
            column("limit", "Largest value that meets the target."),
        );
        let doc =
            "Comparisons of runs of the same thing: every reported difference is a false one.";
        columns.table("pairs", doc, rows)
    }

    /// Table `planted`: for each mean, how often its planted change was reported.
    fn planted_table(&self) -> Table {
        type Row<'a> = (&'a FigureName, &'a Planted);
        let columns =
            name_columns("Its column, a mean.").of_ref(|(name, _): &Row<'_>| *name).and([
                column("comparisons", "Comparisons that judge it.")
                    .uint(|(_, planted): &Row<'_>| planted.judged),
                column("found_ratio", "Share of these comparisons that report the planted change.")
                    .real(|(_, planted): &Row<'_>| planted.found as f64 / planted.judged as f64),
            ]);
        let doc = "Each mean of the second run made larger by planted_change_ratio: how often that is reported.";
        columns.table("planted", doc, &self.planted)
    }

    /// Table `reported`: a row for each false report.
    fn reported_table(&self) -> Table {
        let [low, high] = ["change_low_ratio", "change_high_ratio"];
        let columns = Columns::all([
            column("pair", "Number of the last pair of the comparison.")
                .uint(|row: &Reported| row.pair),
            name_columns("Its column.").of_ref(|row: &Reported| &row.name),
            column("change_ratio", "(second - first) / first.")
                .interval(IntervalColumns::bounds(low, high))
                .real(|row: &Reported| row.change),
            column(low, "Lower end of its simultaneous 95 % interval.")
                .real(|row: &Reported| row.low),
            column(high, "Upper end of it.").real(|row: &Reported| row.high),
        ]);
        let doc = "Figures that were reported as different.";
        columns.table("reported", doc, &self.reported)
    }
}

/// The columns that name a figure. `column_doc` describes the column `column`.
fn name_columns<'a>(column_doc: &str) -> Columns<'a, FigureName> {
    Columns::all([
        column("table", "Table of the runs.").text(|name: &FigureName| name.table.clone()),
        column("row", "Its row.").text(|name: &FigureName| name.row.clone()),
        column("column", column_doc).text(|name: &FigureName| name.column.clone()),
    ])
}
