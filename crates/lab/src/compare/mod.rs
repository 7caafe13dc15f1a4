//! Two runs of an experiment, compared cell by cell.
//!
//! **Exact**: a simulated machine and a model give the same figures each time, so that any difference is
//! one. **By intervals**: on a live bench, the interval of a difference follows from the two cells' own: means and
//! amounts by Student's t with the degrees of freedom of both (Welch and Satterthwaite), quantiles by their wide
//! intervals (MOVER: Zou and Donner, Statistics in Medicine 27, 2008). Each interval is as wide as is needed for all
//! to hold together in 95 % of comparisons (Bonferroni). The cells' intervals take into account that spans of an
//! interrupt are not independent, which a rank test on the spans would not. What differs between two starts of
//! a machine (memory layout, clock frequency) is in no interval: limits of a gate must be wider than that.

mod cells;
mod rules;
mod tables;

use record::{Column, Role, Run, Table, Value};
use serde_json::Value as Json;

pub use cells::{Figure, Pair};
use cells::{Matched, distances, has_interval, matched};
pub use rules::{Limit, Rule, RuleError};
pub use tables::{Listed, tables};

/// What is compared, and what the gate asks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Also the rows that tables hide by default, such as those of each CPU.
    pub all_rows: bool,
    /// By intervals: figures that differ by less than this part of the first are equal.
    pub margin_ratio: f64,
    /// The gate's rules.
    pub rules: Vec<Rule>,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A cost grew, or a benefit shrank.
    Worse,
    /// A figure changed of which neither more nor less is better.
    Changed,
    /// A cost shrank, or a benefit grew.
    Better,
    /// By intervals: neither equal nor different.
    Undecided,
    /// The second run lacks the row, or its figure.
    Missing,
    /// No difference; by intervals: within the margin.
    Equal,
}

impl Verdict {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Worse => "worse",
            Verdict::Changed => "changed",
            Verdict::Better => "better",
            Verdict::Undecided => "can't tell",
            Verdict::Missing => "missing",
            Verdict::Equal => "equal",
        }
    }
}

impl Verdict {
    /// Whether figures that both runs have differ, for all that is known.
    #[must_use]
    pub fn is_difference(self) -> bool {
        matches!(self, Verdict::Worse | Verdict::Changed | Verdict::Better)
    }
}

/// How a difference is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Any difference is one.
    Exact,
    /// By the 95 % intervals of both.
    Intervals,
    /// Not: a cell has no interval.
    NoInterval,
}

impl Method {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Method::Exact => "exact",
            Method::Intervals => "intervals",
            Method::NoInterval => "no interval",
        }
    }
}

/// A compared cell.
#[derive(Clone, Debug)]
pub struct Difference<'a> {
    /// The cell.
    pub pair: Pair<'a>,
    /// Second less first, in the unit of the column; absent where it is missing.
    pub change: Option<f64>,
    /// Ends of its simultaneous interval; both the change itself where it is exact.
    pub interval: Option<(f64, f64)>,
    /// How it was judged.
    pub method: Method,
    /// What it means.
    pub verdict: Verdict,
}

impl Difference<'_> {
    /// The values of the row's key columns, in words.
    #[must_use]
    pub fn row_name(&self) -> String {
        row_name(&self.pair)
    }

    /// A difference as a part of the first figure; absent where that is 0.
    #[must_use]
    pub fn ratio(&self, difference: f64) -> Option<f64> {
        (self.pair.base.value != 0.0).then(|| difference / self.pair.base.value.abs())
    }
}

/// What a rule came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ruling {
    /// A cell is beyond the limit, for all that is known.
    Broken,
    /// A cell is beyond it, and may be within it.
    InDoubt,
    /// All cells are within it.
    Holds,
}

impl Ruling {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Ruling::Broken => "broken",
            Ruling::InDoubt => "in doubt",
            Ruling::Holds => "holds",
        }
    }
}

/// A rule, and the cells that it is about.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub rule: Rule,
    /// Cells that were compared.
    pub cells: usize,
    /// Cells that the second run lacks.
    pub missing: usize,
    /// What it came to.
    pub ruling: Ruling,
    /// The cell that is farthest from holding: its name, and its change as a part of the first figure.
    pub worst: Option<(String, Option<f64>)>,
}

/// What a comparison found.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// Each cell; the worst first.
    pub differences: Vec<Difference<'a>>,
    /// Each rule, in the order given.
    pub outcomes: Vec<Outcome>,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// Tables that could not be compared: name, and why.
    pub left_out: Vec<(String, &'static str)>,
    /// The probability that a difference is beyond one end of its interval.
    pub tail: f64,
}

impl Comparison<'_> {
    /// For the settings of a run: how many figures were compared, and how many of them could not be decided,
    /// whether the tables list them or not.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        let undecided = self.differences.iter().filter(|one| one.verdict == Verdict::Undecided);
        [
            ("figure_count", self.differences.len() as u64),
            ("undecided_count", undecided.count() as u64),
        ]
    }
}

/// Why two runs cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They asked different questions.
    #[error("the first run is of {0}, the second of {1} (compare runs of one experiment)")]
    Experiments(String, String),
    /// There is nothing that both have.
    #[error("no figure of the first run is comparable (see irqlab show RUN --columns)")]
    Nothing,
    /// A rule is about no cell: a gate that checks nothing must not pass.
    #[error("rule {0:?} is about no figure of the first run{1}")]
    NoCell(String, String),
    /// The second run has none of a rule's cells, for the same reason.
    #[error(
        "rule {0:?}: the second run has none of its figures (was a row renamed, or not measured?)"
    )]
    AllMissing(String),
    /// No cell of a rule can be judged.
    #[error(
        "rule {0:?}: none of its figures has an interval on a live bench (choose one that has, such as a mean)"
    )]
    NoInterval(String),
}

/// Whether the run's figures are the same each time: a simulated machine's, or computed ones.
fn is_exact(run: &Run) -> bool {
    run.bench != "live"
}

fn is_wanted(plan: &Plan, exact: bool, table: &Table, column: &Column, row: &[Value]) -> bool {
    let is_ruled = plan.rules.iter().any(|rule| rule.is_about(&table.name, &column.name));
    let is_judged = match column.role {
        Role::Key => false,
        Role::Cost | Role::Benefit => true,
        Role::Figure => column.display.priority > 0 && (exact || has_interval(table, column)),
    };
    let is_shown = table.display.filter.as_ref().is_none_or(|filter| filter.keeps(table, row));
    (is_ruled || is_judged) && (plan.all_rows || is_ruled || is_shown)
}

/// Differences of real numbers up to this part of them, or of 1, are their rounding. A count below 10¹² is exact.
const ROUNDING_RATIO: f64 = 1e-12;

fn judged<'a>(pair: Pair<'a>, exact: bool, plan: &Plan, tail: f64) -> Difference<'a> {
    let Some(new) = pair.new else {
        let (method, verdict) = (Method::Exact, Verdict::Missing);
        return Difference { pair, change: None, interval: None, method, verdict };
    };
    let base = pair.base;
    let rounding = ROUNDING_RATIO * base.value.abs().max(1.0);
    let change = Some(new.value - base.value).filter(|by| by.abs() > rounding).unwrap_or(0.0);
    let (method, interval) = match (exact, distances(&base, &new, tail)) {
        (true, _) => (Method::Exact, Some((change, change))),
        (false, Some((down, up))) => (Method::Intervals, Some((change - down, change + up))),
        (false, None) => (Method::NoInterval, None),
    };
    let margin = if exact { 0.0 } else { plan.margin_ratio * base.value.abs() };
    let verdict = match (interval, pair.column.role) {
        (None, _) => Verdict::Undecided,
        (Some((low, high)), _) if low >= -margin && high <= margin => Verdict::Equal,
        (Some((low, _)), role) if low > 0.0 => direction(role, true),
        (Some((_, high)), role) if high < 0.0 => direction(role, false),
        _ => Verdict::Undecided,
    };
    Difference { pair, change: Some(change), interval, method, verdict }
}

/// What a difference would mean if the second figure had also changed by this part of itself, with its intervals as
/// they are and all other figures of the comparison.
#[must_use]
pub fn verdict_if_changed(
    difference: &Difference<'_>,
    by_ratio: f64,
    comparison: &Comparison<'_>,
    plan: &Plan,
) -> Verdict {
    let exact = difference.method == Method::Exact;
    judged(difference.pair.changed(by_ratio), exact, plan, comparison.tail).verdict
}

fn direction(role: Role, grew: bool) -> Verdict {
    match (role, grew) {
        (Role::Cost, true) | (Role::Benefit, false) => Verdict::Worse,
        (Role::Cost, false) | (Role::Benefit, true) => Verdict::Better,
        (Role::Figure | Role::Key, _) => Verdict::Changed,
    }
}

/// Compares `new` with `base`.
///
/// # Errors
/// Where the runs are of two experiments or have nothing in common, and where a rule is about nothing that
/// can be judged.
pub fn compare<'a>(base: &'a Run, new: &Run, plan: &Plan) -> Result<Comparison<'a>, CompareError> {
    if base.experiment != new.experiment {
        return Err(CompareError::Experiments(base.experiment.clone(), new.experiment.clone()));
    }
    let exact = is_exact(base) && is_exact(new);
    let Matched { pairs, added, left_out } =
        matched(base, new, |table, column, row| is_wanted(plan, exact, table, column, row));
    let mut comparison = judged_all(base, pairs, exact, plan)?;
    comparison.warnings = warnings(base, new);
    if added > 0 {
        let more = format!("{added} rows are in the second run alone; they are not compared");
        comparison.warnings.push(more);
    }
    comparison.left_out = left_out;
    Ok(comparison)
}

/// The probability that any of all differences is beyond the same end of its interval.
const FAMILY_TAIL: f64 = 0.025;

fn judged_all<'a>(
    base: &Run,
    pairs: Vec<Pair<'a>>,
    exact: bool,
    plan: &Plan,
) -> Result<Comparison<'a>, CompareError> {
    if pairs.is_empty() {
        return Err(plan.rules.first().map_or(CompareError::Nothing, |rule| no_cell(rule, base)));
    }
    let is_judged = |pair: &&Pair<'_>| {
        pair.base.interval.is_some() && pair.new.is_some_and(|new| new.interval.is_some())
    };
    let judged_count = pairs.iter().filter(is_judged).count().max(1);
    let tail = FAMILY_TAIL / judged_count as f64;
    let mut differences: Vec<Difference<'_>> =
        pairs.into_iter().map(|pair| judged(pair, exact, plan, tail)).collect();
    let outcomes = plan.rules.iter().map(|rule| outcome(rule, &differences, base));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    let size = |one: &Difference<'_>| {
        one.change.and_then(|change| one.ratio(change)).map_or(f64::INFINITY, f64::abs)
    };
    differences.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(size(b).total_cmp(&size(a))));
    Ok(Comparison { differences, outcomes, warnings: Vec::new(), left_out: Vec::new(), tail })
}

fn no_cell(rule: &Rule, base: &Run) -> CompareError {
    let tables = base.tables.iter().filter(|table| {
        rule.table.as_ref().is_none_or(|name| *name == table.name)
            && table.column(&rule.column).is_some()
    });
    let names: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
    let why = match (names.is_empty(), rule.filter.is_empty()) {
        (true, _) => " (see irqlab show RUN --columns)".to_owned(),
        (false, false) => format!(": no row of {} has these keys", names.join(", ")),
        (false, true) => format!(": {} has no such row or no keys", names.join(", ")),
    };
    CompareError::NoCell(rule.text.clone(), why)
}

fn outcome(
    rule: &Rule,
    differences: &[Difference<'_>],
    base: &Run,
) -> Result<Outcome, CompareError> {
    let covered: Vec<&Difference<'_>> =
        differences.iter().filter(|one| rule.covers(&one.pair)).collect();
    if covered.is_empty() {
        return Err(no_cell(rule, base));
    }
    let missing = covered.iter().filter(|one| one.change.is_none()).count();
    if missing == covered.len() {
        return Err(CompareError::AllMissing(rule.text.clone()));
    }
    let judged = |one: &&Difference<'_>| one.change.is_some() && one.method != Method::NoInterval;
    if !covered.iter().any(judged) {
        return Err(CompareError::NoInterval(rule.text.clone()));
    }
    let ruling_of = |one: &Difference<'_>| {
        let first = one.pair.base.value;
        let beyond = |by: f64| rule.is_beyond(by, first);
        match (one.change, one.interval) {
            (Some(_), Some((low, high))) if beyond(if rule.is_upper { low } else { high }) => {
                Ruling::Broken
            }
            (Some(change), _) if beyond(change) => Ruling::InDoubt,
            // A row that is gone may be the one that the gate is for.
            (None, _) => Ruling::InDoubt,
            _ => Ruling::Holds,
        }
    };
    let size = |one: &&Difference<'_>| {
        let ratio = one.change.and_then(|change| one.ratio(change)).unwrap_or(f64::INFINITY);
        if rule.is_upper { -ratio } else { ratio }
    };
    let worst = covered
        .iter()
        .copied()
        .min_by(|a, b| ruling_of(a).cmp(&ruling_of(b)).then(size(a).total_cmp(&size(b))));
    let named = |one: &Difference<'_>| {
        (row_name(&one.pair), one.change.and_then(|change| one.ratio(change)))
    };
    Ok(Outcome {
        rule: rule.clone(),
        cells: covered.len() - missing,
        missing,
        ruling: worst.map_or(Ruling::Holds, ruling_of),
        worst: worst.map(named),
    })
}

/// The key values of a row, in words.
pub(crate) fn row_name(pair: &Pair<'_>) -> String {
    let values = pair.row.iter().map(|(_, value)| value.as_str());
    values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Facts of the host and settings whose change is a reason for a difference.
const HOST_FACTS: [&str; 6] = ["kernel", "cpu_model", "cpus_online", "hz", "virtualized", "pmu"];

fn warnings(base: &Run, new: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    for (run, which) in [(base, "first"), (new, "second")] {
        if !run.complete {
            warnings.push(format!("the {which} run was cut short"));
        }
    }
    if base.bench != new.bench {
        warnings.push(format!("the benches differ: {} and {}", base.bench, new.bench));
    }
    let mut differ = |what: &str, name: &str, one: Option<&Json>, other: Option<&Json>| {
        if one != other {
            let text = |value: Option<&Json>| value.map_or("absent".to_owned(), Json::to_string);
            warnings.push(format!(
                "{what} {name} differs: {:.80} and {:.80}",
                text(one),
                text(other)
            ));
        }
    };
    for fact in HOST_FACTS {
        differ("the host's", fact, base.host.get(fact), new.host.get(fact));
    }
    // What was set for each condition holds measured values, too.
    let not_compared = ["out", "command_line", "conditions", "tsc_hz"];
    for (name, value) in
        base.settings.iter().filter(|(name, _)| !not_compared.contains(&name.as_str()))
    {
        differ("setting", name, Some(value), new.settings.get(name));
    }
    warnings
}

/// What proves that a rule can be broken.
#[derive(Clone, Debug)]
pub struct SelfTest {
    pub rule: Rule,
    /// Whether it holds for the run compared with itself.
    pub holds_for_itself: bool,
    /// The smallest change of all of its figures, as a part of them, that breaks it; absent where none does, of
    /// those up to 100-fold.
    pub breaks_from_ratio: Option<f64>,
}

/// Largest change that is tried.
const CHANGE_MAX: f64 = 100.0;

/// Compares a run with itself, and with what it would be if the figures of a rule had changed.
///
/// # Errors
/// As [`compare`].
pub fn self_test(run: &Run, plan: &Plan) -> Result<Vec<SelfTest>, CompareError> {
    let itself = compare(run, run, plan)?;
    let exact = is_exact(run);
    let pairs: Vec<Pair<'_>> = itself.differences.iter().map(|one| one.pair.clone()).collect();
    let test = |outcome: &Outcome| -> Result<SelfTest, CompareError> {
        let rule = &outcome.rule;
        let is_broken = |by: f64| -> Result<bool, CompareError> {
            let by = if rule.is_upper { by } else { -by };
            let changed =
                pairs.iter().map(|pair| pair.changed(if rule.covers(pair) { by } else { 0.0 }));
            let again = judged_all(run, changed.collect(), exact, plan)?;
            let same = again.outcomes.iter().find(|one| one.rule == *rule);
            Ok(same.is_some_and(|one| one.ruling == Ruling::Broken))
        };
        // A figure can shrink to 0 and no further.
        let most = if rule.is_upper { CHANGE_MAX } else { 1.0 };
        let mut breaks_from_ratio = None;
        if is_broken(most)? {
            let (mut low, mut high) = (0.0, most);
            for _ in 0..40 {
                let middle = f64::midpoint(low, high);
                if is_broken(middle)? { high = middle } else { low = middle }
            }
            breaks_from_ratio = Some(high);
        }
        let holds_for_itself = outcome.ruling == Ruling::Holds;
        Ok(SelfTest { rule: rule.clone(), holds_for_itself, breaks_from_ratio })
    };
    itself.outcomes.iter().map(test).collect()
}

#[cfg(test)]
mod same_twice;
#[cfg(test)]
mod tests;
