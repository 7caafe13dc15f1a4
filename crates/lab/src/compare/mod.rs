//! Compares two runs of an experiment, or several runs on each side, cell by cell. `irqlab compare`, `irqlab report`
//! and `irqlab bench compare` use it: runs and a [`Plan`] go in, a [`Comparison`] comes out, and [`tables()`] shows it.
//!
//! **Exact**: a simulated machine and a model give the same figures each time. Any difference is real, except of
//! estimates from a sample or from random numbers (`estimates.rs`).
//!
//! **By intervals**: on a live bench, the interval of a difference follows from the intervals of both cells. Means and
//! amounts use Student's t with the degrees of freedom of both (Welch and Satterthwaite). Quantiles use their wide
//! intervals (MOVER: Zou and Donner, Statistics in Medicine 27, 2008). These intervals allow for spans that depend on
//! one another; a rank test of the spans would not.
//!
//! **Bounds** are no measurements: a figure that is only an upper or a lower bound limits the difference on one side
//! (`bounds.rs`). A figure below the detection limit is an upper bound.
//!
//! **By runs**: several runs on each side show how much runs differ (`series.rs`).
//!
//! In 95 % of comparisons, all intervals hold together (Bonferroni). Half of the error probability is for the figures
//! of rows with at least [`CPU_SHARE_MIN_RATIO`] of CPU time. One live run on each side cannot judge the other rows.
//! Their figures depend on other work on the machine, and change from run to run by factors.

mod bounds;
mod buckets;
mod cells;
mod comparison;
mod decision;
mod difference;
mod error;
pub mod error_rates;
mod estimates;
mod judge;
mod loop_work;
mod outcome;
mod readings;
mod rules;
mod run_totals;
mod self_test;
mod series;
mod settings;
mod tables;
mod totals;
mod verdict;
mod warnings;
mod windows;

use record::{Column, Role, Run, Table, Value};

pub use bounds::Bound;
pub use cells::{Figure, LeftOutTable, Pair, PairCounts};
use cells::{Matched, ShownRows, Wanted, matched};
pub use comparison::Comparison;
use comparison::judge_pairs;
pub use decision::Distances;
pub(crate) use difference::row_name;
pub use difference::{Difference, FEW_SPANS};
pub use error::CompareError;
pub use judge::{CPU_SHARE_MIN_RATIO, verdict_if_changed};
use judge::{Clocks, Exactness};
use outcome::uncovered_tables;
pub use outcome::{Outcome, Ruling};
pub use readings::{Change, Reading, changes, is_below_limit, windows_warning};
pub use rules::{Limit, Rule, RuleError};
pub use run_totals::RunTotal;
pub use self_test::{SelfTest, self_test};
pub use series::PAIRS_MIN;
pub use settings::{DifferenceSource, SettingDifference};
pub use tables::{Listed, tables};
pub use verdict::{Method, Verdict};
use warnings::warnings;
pub use windows::{WindowLengths, has_windows};

/// The options of a comparison and the rules of its gate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether rows that tables hide by default are compared, too: for example, the row of each CPU.
    pub all_rows: bool,
    /// Figures that are not exact are equal if they differ by less than this part of the smaller figure.
    pub margin_ratio: f64,
    /// The gate's rules.
    pub rules: Vec<Rule>,
}

/// Compares the run `new` with the run `base`.
///
/// Fails if the runs are of different experiments or have no figure in common. Fails if a
/// rule names no figure that can be judged.
pub fn compare<'a>(
    base: &'a Run,
    new: &'a Run,
    plan: &Plan,
) -> Result<Comparison<'a>, CompareError> {
    compare_series(std::slice::from_ref(base), std::slice::from_ref(new), plan)
}

/// Compares the runs `new` with the runs `base`, in pairs: the caller gives each list in the order of the runs' start.
///
/// Fails as [`compare`] does. Fails if the sides have different numbers of runs, or more than
/// one run but fewer than [`PAIRS_MIN`].
///
/// # Panics
/// When a side has no run.
pub fn compare_series<'a>(
    base: &'a [Run],
    new: &'a [Run],
    plan: &Plan,
) -> Result<Comparison<'a>, CompareError> {
    let first = &base[0];
    let experiment = &first.experiment;
    if let Some(other) = base.iter().chain(new).find(|run| run.experiment != *experiment) {
        return Err(CompareError::Experiments(experiment.clone(), other.experiment.clone()));
    }
    check_conditions("first", base)?;
    check_conditions("second", new)?;
    let exactness = Exactness::of(base.iter().chain(new));
    let selection = Selection { plan, exactness };
    let is_one_run = base.len() == 1 && new.len() == 1;
    let Matched { pairs, left_out } = if is_one_run {
        matched(first, &new[0], &selection, None)
    } else {
        let shown = ShownRows::of_series(base, new, &selection);
        let matched = |base, new| matched(base, new, &selection, Some(&shown));
        series::matched_series(base, new, exactness, matched)?
    };
    let clocks = Clocks::of(base.iter().chain(new));
    let mut comparison = judge_pairs(first, pairs, left_out, exactness, clocks, plan)?;
    comparison.run_totals = run_totals::totals(base, new);
    comparison.setting_differences = settings::differences(&base[0], &new[0]);
    comparison.warnings = warnings(base, new, exactness);
    let differing = comparison.setting_differences.iter();
    comparison.warnings.extend(differing.map(|difference| difference.warning.clone()));
    if clocks == Clocks::Differ {
        let warning = "the models' clocks differ: fewer cycles are not less time, so numbers of cycles are called \
                       changed, neither worse nor better";
        comparison.warnings.push(warning.to_owned());
    }
    comparison.warnings.extend(comparison.windows_warning());
    comparison.warnings.extend(comparison.bounds_warning());
    comparison.warnings.extend(comparison.unreliable_rules_warning());
    comparison.warnings.extend(comparison.added_warning());
    comparison.warnings.extend(comparison.partial_pairs_warning());
    let unchecked = plan
        .rules
        .iter()
        .filter_map(|rule| uncovered_tables(rule, base, new, &comparison.left_out));
    let unchecked: Vec<String> = comparison
        .outcomes
        .iter()
        .flat_map(|outcome| {
            [outcome.unchecked_warning(), outcome.windows_warning(), outcome.bounds_warning()]
        })
        .flatten()
        .chain(unchecked)
        .collect();
    comparison.warnings.extend(unchecked);
    Ok(comparison)
}

/// Checks that the runs of one side are of one condition, if each has only one. Between the sides, conditions match
/// whatever their names are.
fn check_conditions(side: &'static str, runs: &[Run]) -> Result<(), CompareError> {
    let mut conditions = runs.iter().filter_map(cells::sole_condition);
    let Some(first) = conditions.next() else { return Ok(()) };
    match conditions.find(|condition| *condition != first) {
        Some(other) => Err(CompareError::Conditions(side, first.to_owned(), other.to_owned())),
        None => Ok(()),
    }
}

/// Costs and benefits are compared, and other figures that people see and that are repeatable or have an interval. A
/// column that a rule names is always compared, in hidden rows, too.
struct Selection<'p> {
    plan: &'p Plan,
    exactness: Exactness,
}

impl Wanted for Selection<'_> {
    fn includes(&self, table: &Table, column: &Column) -> bool {
        // Each event of a context has the same spans: the table `handlers` counts them once.
        let is_repeated = column.name == "span_count" && table.column("event").is_some();
        match column.role {
            Role::Figure if is_repeated => false,
            Role::Key => false,
            Role::Cost | Role::Benefit => true,
            Role::Figure => {
                let may_be_judged =
                    self.exactness == Exactness::Repeatable || column.interval.is_some();
                column.display.priority > 0 && may_be_judged
            }
        }
    }

    fn shows(&self, table: &Table, row: &[Value]) -> bool {
        let is_kept =
            || table.display.filter.as_ref().is_none_or(|filter| filter.keeps(table, row));
        self.plan.all_rows || is_kept()
    }

    fn is_ruled(&self, table: &Table, column: &Column) -> bool {
        self.plan.rules.iter().any(|rule| rule.is_about(&table.name, &column.name))
    }
}

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod mirror_tests;
#[cfg(test)]
mod same_twice;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;
