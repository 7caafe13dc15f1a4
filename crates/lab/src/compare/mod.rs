//! Two runs of an experiment, or several runs on each side, compared cell by cell.
//!
//! **Exact**: a simulated machine and a model give the same figures each time. Any difference is real.
//!
//! **By intervals**: on a live bench, the interval of a difference follows from the intervals of both cells: for means
//! and amounts by Student's t with the degrees of freedom of both (Welch and Satterthwaite), for quantiles by their
//! wide intervals (MOVER: Zou and Donner, Statistics in Medicine 27, 2008). These intervals allow for spans that
//! depend on one another, which a rank test of the spans would not.
//!
//! **By runs**: several runs on each side show how much runs differ (`series.rs`).
//!
//! All intervals hold together in 95 % of comparisons (Bonferroni). Half of the error probability is for the figures of
//! rows with at least [`CPU_SHARE_MIN_RATIO`] of CPU time. From one live run on each side, the other rows are not
//! judged: the other work on the machine decides what they take, and that changes from run to run by factors.

mod cells;
pub mod error_rates;
mod rules;
mod series;
mod tables;

use record::{Column, Role, Run, Table, Value};
use serde_json::Value as Json;

pub use cells::{Figure, Pair};
use cells::{Matched, matched};
pub use rules::{Limit, Rule, RuleError};
pub use series::PAIRS_MIN;
pub use tables::{Listed, tables};

/// The options of a comparison and the rules of its gate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Compares rows that tables hide by default, too: for example, the row of each CPU.
    pub all_rows: bool,
    /// On a live bench, figures that differ by less than this part of the first figure are equal.
    pub margin_ratio: f64,
    /// The gate's rules.
    pub rules: Vec<Rule>,
}

/// The meaning of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A cost grew, or a benefit shrank.
    Worse,
    /// A figure changed that has no better direction.
    Changed,
    /// A cost shrank, or a benefit grew.
    Better,
    /// The interval allows both that the figures are equal and that they differ.
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
    /// Whether both runs have the figure, and it differs.
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
    /// Judged by the 95 % intervals of both figures.
    Intervals,
    /// Judged by the differences of pairs of runs.
    Runs,
    /// Not judged: a cell has no interval.
    NoInterval,
    /// Not judged: one run on each side, of a row that takes less than [`CPU_SHARE_MIN_RATIO`] of CPU time, or of a
    /// quantile whose interval takes the values as independent.
    OneRun,
}

impl Method {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Method::Exact => "exact",
            Method::Intervals => "intervals",
            Method::Runs => "runs",
            Method::NoInterval => "no interval",
            Method::OneRun => "one run",
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
    /// The meaning of the change.
    pub verdict: Verdict,
    /// The probability that the difference is beyond one end of its interval.
    pub tail: f64,
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

/// Whether a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ruling {
    /// The whole interval of a cell is beyond the limit.
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
    /// Whether the rule holds.
    pub ruling: Ruling,
    /// The cell that is farthest from holding: its name, and its change as a part of the first figure.
    pub worst: Option<(String, Option<f64>)>,
}

/// The results of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// Each cell; the worst first.
    pub differences: Vec<Difference<'a>>,
    /// Each rule, in the order given.
    pub outcomes: Vec<Outcome>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    /// Tables that could not be compared: name, and why.
    pub left_out: Vec<(String, &'static str)>,
}

impl Comparison<'_> {
    /// A warning if rules name figures that one run on each side cannot judge.
    fn warning_of_rules(&self) -> Option<String> {
        let is_by_other_work = |difference: &&Difference<'_>| {
            difference.method == Method::Intervals && needs_runs(&difference.pair)
        };
        let count = self.differences.iter().filter(is_by_other_work).count();
        (count > 0).then(|| {
            format!(
                "{count} figures that a rule names change from run to run by more than their intervals: rows below {} % \
                 of CPU time, and quantiles of values that depend on one another (give several runs on each side)",
                100.0 * CPU_SHARE_MIN_RATIO
            )
        })
    }

    /// For the settings of a run: how many figures were compared, and how many of them could not be decided,
    /// whether the tables list them or not.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        let undecided =
            self.differences.iter().filter(|difference| difference.verdict == Verdict::Undecided);
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
    /// The sides have different numbers of runs.
    #[error(
        "the first side has {0} runs and the second {1}: runs are compared in pairs, in the order of their start \
         (give as many on both sides)"
    )]
    RunCounts(usize, usize),
    /// Too few runs to show how much runs differ.
    #[error(
        "{0} runs on each side are too few to tell how much runs differ (take 3 at least, better 8; or one)"
    )]
    FewRuns(usize),
    /// There is nothing that both have.
    #[error("no figure of the first run is comparable (see irqlab show RUN --columns)")]
    Nothing,
    /// A rule is about no cell: a gate that checks nothing must not pass.
    #[error("rule {0:?} is about no figure of the first run{1}")]
    NoCell(String, String),
    /// The second run has none of a rule's cells. The gate would check nothing.
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
        Role::Figure => column.display.priority > 0 && (exact || column.interval.is_some()),
    };
    let is_shown = table.display.filter.as_ref().is_none_or(|filter| filter.keeps(table, row));
    (is_ruled || is_judged) && (plan.all_rows || is_ruled || is_shown)
}

/// Differences of real numbers up to this part of them, or of 1, are their rounding. A count below 10¹² is exact.
const ROUNDING_RATIO: f64 = 1e-12;

/// Share of CPU time from which the figures of a row are judged by one run on each side. Rows below it belong mostly
/// to other work on the machine: between runs of the same thing their means differed by up to 100 %, and their rates
/// by up to 300 %, which no window shows (docs/compare.md).
pub const CPU_SHARE_MIN_RATIO: f64 = 0.01;

/// Whether the row of a pair takes enough CPU time to be judged by one run on each side. True for tables without
/// shares of CPU time.
fn is_leading(pair: &Pair<'_>) -> bool {
    pair.cpu_share.is_none_or(|share| share >= CPU_SHARE_MIN_RATIO)
}

/// Whether the intervals of one run on each side do not hold what changes from run to run.
fn needs_runs(pair: &Pair<'_>) -> bool {
    !is_leading(pair) || pair.takes_independent
}

/// How differences are judged.
#[derive(Clone, Copy)]
struct Judge<'p> {
    plan: &'p Plan,
    /// Whether all runs are exact.
    is_exact: bool,
    /// The probability of an error beyond one end of an interval, of rows that [`is_leading`] holds for.
    tail_of_leading: f64,
    /// The probability of an error beyond one end of an interval, of rows that [`is_leading`] does not hold for.
    tail_of_others: f64,
}

impl<'p> Judge<'p> {
    /// Shares the error probability among the figures of `pairs`.
    fn new(pairs: &[Pair<'_>], is_exact: bool, plan: &'p Plan) -> Judge<'p> {
        let mut judge = Judge { plan, is_exact, tail_of_leading: 0.0, tail_of_others: 0.0 };
        let is_judged = |pair: &&Pair<'_>| pair.has_interval() && !judge.lacks_runs(pair);
        let (leading, others): (Vec<&Pair<'_>>, Vec<_>) =
            pairs.iter().filter(is_judged).partition(|pair| is_leading(pair));
        let families = u8::from(!leading.is_empty()) + u8::from(!others.is_empty());
        let tail = |count: usize| FAMILY_TAIL / f64::from(families.max(1)) / count.max(1) as f64;
        (judge.tail_of_leading, judge.tail_of_others) = (tail(leading.len()), tail(others.len()));
        judge
    }

    /// Whether one run on each side does not tell whether the figures differ. A figure that a rule names is judged
    /// all the same: whoever wrote the rule has chosen its limit.
    fn lacks_runs(&self, pair: &Pair<'_>) -> bool {
        let is_ruled = || self.plan.rules.iter().any(|rule| rule.covers(pair));
        !self.is_exact && pair.repeats.is_none() && needs_runs(pair) && !is_ruled()
    }

    fn judge<'a>(&self, pair: Pair<'a>) -> Difference<'a> {
        let tail = if is_leading(&pair) { self.tail_of_leading } else { self.tail_of_others };
        let Some(new) = pair.new else {
            let (method, verdict) = (Method::Exact, Verdict::Missing);
            return Difference { pair, change: None, interval: None, method, verdict, tail };
        };
        let base = pair.base;
        let rounding = ROUNDING_RATIO * base.value.abs().max(1.0);
        let difference = new.value - base.value;
        let change = if difference.abs() > rounding { difference } else { 0.0 };
        let around = |(down, up)| (change - down, change + up);
        let (method, interval) = if pair.repeats.is_some() {
            match pair.distances(tail) {
                Some(distances) => (Method::Runs, Some(around(distances))),
                None => (Method::NoInterval, None),
            }
        } else if self.is_exact {
            (Method::Exact, Some((change, change)))
        } else if self.lacks_runs(&pair) {
            (Method::OneRun, None)
        } else {
            match pair.distances(tail) {
                Some(distances) => (Method::Intervals, Some(around(distances))),
                None => (Method::NoInterval, None),
            }
        };
        let margin = if self.is_exact { 0.0 } else { self.plan.margin_ratio * base.value.abs() };
        let verdict = match (interval, pair.column.role) {
            (None, _) => Verdict::Undecided,
            (Some((low, high)), _) if low >= -margin && high <= margin => Verdict::Equal,
            (Some((low, _)), role) if low > 0.0 => direction(role, true),
            (Some((_, high)), role) if high < 0.0 => direction(role, false),
            _ => Verdict::Undecided,
        };
        Difference { pair, change: Some(change), interval, method, verdict, tail }
    }
}

/// The verdict on a difference if the second figure had also changed by a part of itself. Its intervals and the error
/// probability stay as they are.
#[must_use]
pub fn verdict_if_changed(difference: &Difference<'_>, by_ratio: f64, plan: &Plan) -> Verdict {
    let is_exact = difference.method == Method::Exact;
    let (tail_of_leading, tail_of_others) = (difference.tail, difference.tail);
    let judge = Judge { plan, is_exact, tail_of_leading, tail_of_others };
    judge.judge(difference.pair.changed(by_ratio)).verdict
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
/// Fails if the runs are of two experiments or have no figure in common, and if a rule names no
/// figure that can be judged.
pub fn compare<'a>(base: &'a Run, new: &Run, plan: &Plan) -> Result<Comparison<'a>, CompareError> {
    compare_series(std::slice::from_ref(base), std::slice::from_ref(new), plan)
}

/// Compares the runs `new` with the runs `base`: in pairs, each list in the order of their start.
///
/// Fails as [`compare`] does, and if the sides have different numbers of runs, or two to [`PAIRS_MIN`] - 1 runs.
///
/// # Panics
/// When a side has no run.
pub fn compare_series<'a>(
    base: &'a [Run],
    new: &[Run],
    plan: &Plan,
) -> Result<Comparison<'a>, CompareError> {
    let first = &base[0];
    let experiment = &first.experiment;
    if let Some(other) = base.iter().chain(new).find(|run| run.experiment != *experiment) {
        return Err(CompareError::Experiments(experiment.clone(), other.experiment.clone()));
    }
    let is_exact = base.iter().chain(new).all(is_exact);
    let wanted = |table: &Table, column: &Column, row: &[Value]| {
        is_wanted(plan, is_exact, table, column, row)
    };
    let is_one_run = base.len() == 1 && new.len() == 1;
    let Matched { pairs, added, left_out } = if is_one_run {
        matched(first, &new[0], wanted)
    } else {
        series::matched_series(base, new, |base, new| matched(base, new, wanted))?
    };
    let mut comparison = judged_all(first, pairs, is_exact, plan)?;
    comparison.warnings = warnings(base, new);
    comparison.warnings.extend(comparison.warning_of_rules());
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
    is_exact: bool,
    plan: &Plan,
) -> Result<Comparison<'a>, CompareError> {
    if pairs.is_empty() {
        return Err(plan.rules.first().map_or(CompareError::Nothing, |rule| no_cell(rule, base)));
    }
    let judge = Judge::new(&pairs, is_exact, plan);
    let mut differences: Vec<Difference<'_>> =
        pairs.into_iter().map(|pair| judge.judge(pair)).collect();
    let outcomes = plan.rules.iter().map(|rule| outcome(rule, &differences, base));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    let size = |difference: &Difference<'_>| {
        let ratio = difference.change.and_then(|change| difference.ratio(change));
        ratio.map_or(f64::INFINITY, f64::abs)
    };
    differences.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(size(b).total_cmp(&size(a))));
    Ok(Comparison { differences, outcomes, warnings: Vec::new(), left_out: Vec::new() })
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
        differences.iter().filter(|difference| rule.covers(&difference.pair)).collect();
    if covered.is_empty() {
        return Err(no_cell(rule, base));
    }
    let missing = covered.iter().filter(|difference| difference.change.is_none()).count();
    if missing == covered.len() {
        return Err(CompareError::AllMissing(rule.text.clone()));
    }
    let judged =
        |difference: &&Difference<'_>| difference.change.is_some() && difference.interval.is_some();
    if !covered.iter().any(judged) {
        return Err(CompareError::NoInterval(rule.text.clone()));
    }
    let ruling_of = |difference: &Difference<'_>| {
        let first = difference.pair.base.value;
        let is_beyond = |change: f64| rule.is_beyond(change, first);
        match (difference.change, difference.interval) {
            (Some(_), Some((low, high))) if is_beyond(if rule.is_upper { low } else { high }) => {
                Ruling::Broken
            }
            (Some(change), _) if is_beyond(change) => Ruling::InDoubt,
            // A row that is gone may be the one that the gate is for.
            (None, _) => Ruling::InDoubt,
            _ => Ruling::Holds,
        }
    };
    let size = |difference: &&Difference<'_>| {
        let ratio =
            difference.change.and_then(|change| difference.ratio(change)).unwrap_or(f64::INFINITY);
        if rule.is_upper { -ratio } else { ratio }
    };
    let worst = covered
        .iter()
        .copied()
        .min_by(|a, b| ruling_of(a).cmp(&ruling_of(b)).then(size(a).total_cmp(&size(b))));
    let named = |difference: &Difference<'_>| {
        (row_name(&difference.pair), difference.change.and_then(|change| difference.ratio(change)))
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

fn warnings(base: &[Run], new: &[Run]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (runs, which) in [(base, "first"), (new, "second")] {
        let incomplete = runs.iter().filter(|run| !run.complete).count();
        match (incomplete, runs.len()) {
            (0, _) => {}
            (_, 1) => warnings.push(format!("the {which} run was cut short")),
            (_, all) => {
                warnings
                    .push(format!("{incomplete} of {all} runs of the {which} side were cut short"));
            }
        }
    }
    if series::is_one_side_first(base, new) {
        warnings.push(
            "all runs of one side were taken before those of the other: slow changes of the machine are in the \
             differences (take the runs of both sides alternately)"
                .to_owned(),
        );
    }
    let (base, new) = (&base[0], &new[0]);
    if base.bench != new.bench {
        warnings.push(format!("the benches differ: {} and {}", base.bench, new.bench));
    }
    let mut differ = |what: &str, name: &str, of_base: Option<&Json>, of_new: Option<&Json>| {
        if of_base != of_new {
            let text = |value: Option<&Json>| value.map_or("absent".to_owned(), Json::to_string);
            warnings.push(format!(
                "{what} {name} differs: {:.80} and {:.80}",
                text(of_base),
                text(of_new)
            ));
        }
    };
    for fact in HOST_FACTS {
        differ("the host's", fact, base.host.get(fact), new.host.get(fact));
    }
    // The setting `conditions` also holds measured values.
    let not_compared = ["out", "command_line", "conditions", "tsc_hz"];
    for (name, value) in
        base.settings.iter().filter(|(name, _)| !not_compared.contains(&name.as_str()))
    {
        differ("setting", name, Some(value), new.settings.get(name));
    }
    warnings
}

/// The proof that a rule can be broken.
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
/// Fails as [`compare`] does.
pub fn self_test(run: &Run, plan: &Plan) -> Result<Vec<SelfTest>, CompareError> {
    let itself = compare(run, run, plan)?;
    let exact = is_exact(run);
    let pairs: Vec<Pair<'_>> =
        itself.differences.iter().map(|difference| difference.pair.clone()).collect();
    let test = |outcome: &Outcome| -> Result<SelfTest, CompareError> {
        let rule = &outcome.rule;
        let is_broken = |ratio: f64| -> Result<bool, CompareError> {
            let signed_ratio = if rule.is_upper { ratio } else { -ratio };
            let changed = pairs
                .iter()
                .map(|pair| pair.changed(if rule.covers(pair) { signed_ratio } else { 0.0 }));
            let again = judged_all(run, changed.collect(), exact, plan)?;
            let same = again.outcomes.iter().find(|outcome| outcome.rule == *rule);
            Ok(same.is_some_and(|outcome| outcome.ruling == Ruling::Broken))
        };
        // A figure can shrink to 0 and no further.
        let ratio_max = if rule.is_upper { CHANGE_MAX } else { 1.0 };
        let mut breaks_from_ratio = None;
        if is_broken(ratio_max)? {
            let (mut low, mut high) = (0.0, ratio_max);
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
