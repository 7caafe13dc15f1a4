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
//! **By runs**: several runs on each side show how much runs differ (`series.rs`).
//!
//! In 95 % of comparisons, all intervals hold together (Bonferroni). Half of the error probability is for the figures
//! of rows with at least [`CPU_SHARE_MIN_RATIO`] of CPU time. One live run on each side cannot judge the other rows.
//! Their figures depend on other work on the machine, and change from run to run by factors.

mod buckets;
mod cells;
mod decision;
pub mod error_rates;
mod estimates;
mod readings;
mod rules;
mod run_totals;
mod series;
mod settings;
mod tables;
mod totals;
mod windows;

use crate::kernel_options;
use record::{Column, Role, Run, Table, Value};

pub use cells::{Figure, LeftOutTable, Pair, PairCounts};
use cells::{Matched, ShownRows, Wanted, matched};
pub use decision::Distances;
use decision::{Interval, change, verdict};
pub use readings::{Change, Reading, changes, windows_warning};
pub use rules::{Limit, Rule, RuleError};
pub use run_totals::RunTotal;
pub use series::PAIRS_MIN;
pub use settings::{DifferenceSource, SettingDifference};
pub use tables::{Listed, tables};
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

/// The meaning of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A cost grew, or a benefit shrank.
    Worse,
    /// A figure changed that is neither a cost nor a benefit.
    Changed,
    /// A cost shrank, or a benefit grew.
    Better,
    /// The interval allows both that the figures are equal and that they differ.
    Undecided,
    /// The second run lacks the row, or its figure.
    Missing,
    /// The first run lacks the row, or its figure.
    Added,
    /// No difference. For figures that are not exact: the whole interval of the difference is within the margin.
    Equal,
}

impl Verdict {
    /// The verdict in the table `differences`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Worse => "worse",
            Verdict::Changed => "changed",
            Verdict::Better => "better",
            Verdict::Undecided => "can't tell",
            Verdict::Missing => "missing",
            Verdict::Added => "added",
            Verdict::Equal => "equal",
        }
    }

    /// Whether both runs have the figure, and it differs.
    #[must_use]
    pub fn is_difference(self) -> bool {
        matches!(self, Verdict::Worse | Verdict::Changed | Verdict::Better)
    }
}

/// How a difference is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The runs have no noise: any difference is real.
    Exact,
    /// Judged by the 95 % intervals of both figures.
    Intervals,
    /// Judged by the differences of pairs of runs.
    Runs,
    /// Not judged: a cell has no interval.
    NoInterval,
    /// Not judged, because each side has only one run. The row takes less than [`CPU_SHARE_MIN_RATIO`] of CPU time,
    /// the figure is a delay of work items, or it is a quantile or a mean whose interval assumes independent values.
    OneRun,
    /// Not judged: the figures are totals over windows of different lengths.
    Windows,
    /// Not judged: only one of the runs has the figure, and the figure is not exact.
    OneSide,
}

impl Method {
    /// The method in the table `differences`. `None` if there is nothing to compare.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            Method::Exact => Some("exact"),
            Method::Intervals => Some("intervals"),
            Method::Runs => Some("runs"),
            Method::NoInterval => Some("no interval"),
            Method::OneRun => Some("one run"),
            Method::Windows => Some("windows differ"),
            Method::OneSide => None,
        }
    }
}

/// A compared cell.
#[derive(Clone, Debug)]
pub struct Difference<'a> {
    pub pair: Pair<'a>,
    /// Second figure less first, in the unit of the column. `None` if one of the runs lacks the figure.
    pub change: Option<f64>,
    /// Lower and upper end of the simultaneous interval of `change`. If the runs are exact, both are `change` itself; for a
    /// histogram's quantiles, they are the ends of the changes that the buckets allow.
    pub interval: Option<(f64, f64)>,
    pub method: Method,
    pub verdict: Verdict,
    /// The probability that the true difference is beyond one given end of `interval`.
    pub tail: f64,
    exactness: Exactness,
}

impl Difference<'_> {
    /// The values of the row's key columns, separated by spaces.
    #[must_use]
    pub fn row_name(&self) -> String {
        row_name(&self.pair)
    }

    /// `difference` as a part of the first figure. `None` if the first figure is 0 or missing.
    #[must_use]
    pub fn ratio(&self, difference: f64) -> Option<f64> {
        let base = self.pair.base?.value;
        (base != 0.0).then(|| difference / base.abs())
    }

    /// Whether the row has too few spans in one of the runs for its figures to mean much.
    #[must_use]
    pub fn has_few_spans(&self) -> bool {
        self.pair.span_count.is_some_and(|count| count < FEW_SPANS)
    }

    /// The effect on CPU time: the relative change, times the share of CPU time of the row's context. The relative change
    /// itself if no table has such a share: only such changes are compared with each other.
    fn effect(&self) -> f64 {
        let ratio =
            self.change.and_then(|change| self.ratio(change)).map_or(f64::INFINITY, f64::abs);
        match self.pair.context_share {
            Some(share) if ratio.is_finite() => ratio * share,
            Some(share) => share,
            None => ratio,
        }
    }
}

/// Whether a rule holds. The worst ruling is first: `outcome` takes the minimum over the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ruling {
    /// The whole interval of a cell is beyond the limit.
    Broken,
    /// A cell is beyond the limit but its interval is not, or only one of the runs has a cell.
    InDoubt,
    /// All cells are within the limit.
    Holds,
}

impl Ruling {
    /// The ruling in the table `rules`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Ruling::Broken => "broken",
            Ruling::InDoubt => "in doubt",
            Ruling::Holds => "holds",
        }
    }
}

/// The result of checking a rule on all cells that it covers.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub rule: Rule,
    /// Cells that were compared.
    pub cells: usize,
    /// Cells that the second run lacks.
    pub missing: usize,
    /// Cells that the first run lacks.
    pub added: usize,
    /// Cells that are totals over windows of different lengths, and an example of them in words.
    other_windows: Option<(usize, String)>,
    pub ruling: Ruling,
    /// The cell that is farthest from holding: its row's name, and its change as a part of the first figure.
    pub worst: Option<(String, Option<f64>)>,
}

/// The results of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// All compared cells: rows with few spans last, then worse and better ones, then by verdict, then by effect on CPU time,
    /// the largest first.
    pub differences: Vec<Difference<'a>>,
    /// Instructions, cycles and the kernel's shares of the whole run: of runs with the table `contexts`.
    pub run_totals: Vec<RunTotal>,
    /// The outcome of each rule, in the order of [`Plan::rules`].
    pub outcomes: Vec<Outcome>,
    pub warnings: Vec<String>,
    /// What differs between the first runs of both sides. Their warnings are in `warnings`, too.
    pub setting_differences: Vec<SettingDifference>,
    pub left_out: Vec<LeftOutTable>,
}

impl Comparison<'_> {
    /// A warning if rules name figures that one run on each side cannot judge.
    fn unreliable_rules_warning(&self) -> Option<String> {
        // Only figures that a rule covers get this far with one run on each side: see `Judge::lacks_runs`.
        let is_unreliable = |difference: &&Difference<'_>| {
            difference.exactness == Exactness::Noisy
                && difference.method == Method::Intervals
                && needs_runs(&difference.pair)
        };
        let count = self.differences.iter().filter(is_unreliable).count();
        (count > 0).then(|| {
            format!(
                "{count} figures that a rule names change from run to run by more than their intervals: rows below {} % \
                 of CPU time, delays of work items, and figures whose intervals assume independent values (give several \
                 runs on each side)",
                100.0 * CPU_SHARE_MIN_RATIO
            )
        })
    }

    /// A warning if some figures are totals over windows of different lengths.
    fn windows_warning(&self) -> Option<String> {
        let unjudged = || self.differences.iter().filter(|found| found.method == Method::Windows);
        let first = unjudged().next()?;
        let example = window_example(first);
        Some(format!(
            "{} figures are totals over windows of different lengths ({example}), so they are not judged (compare rates, \
             shares of CPU time and means)",
            unjudged().count()
        ))
    }

    /// A warning if only the second run has some of the figures.
    fn added_warning(&self) -> Option<String> {
        let is_added = |difference: &&Difference<'_>| difference.verdict == Verdict::Added;
        let count = self.differences.iter().filter(is_added).count();
        (count > 0).then(|| {
            format!(
                "{count} figures are in the second run alone, so they are not compared (verdict added in table differences)"
            )
        })
    }

    /// A warning if some pairs of runs lack figures that are compared.
    fn partial_pairs_warning(&self) -> Option<String> {
        let count = self
            .differences
            .iter()
            .filter(|difference| difference.pair.pair_counts.is_some())
            .count();
        (count > 0).then(|| {
            format!(
                "{count} figures are missing in some of the runs, so they are compared in fewer pairs (column note of \
                 table differences says in how many)"
            )
        })
    }

    /// Settings of the comparison's own run: how many figures were compared, and how many of them are undecided. Both
    /// count figures that the tables do not list, too.
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

/// A total over windows of different lengths, in words: its table and column, its row, and the lengths.
fn window_example(difference: &Difference<'_>) -> String {
    let Pair { table, column, windows, .. } = &difference.pair;
    let lengths = windows.map_or(String::new(), |windows| windows.text());
    format!("{}.{} of {}: {lengths}", table.name, column.name, difference.row_name())
}

/// Why two runs cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The runs are of different experiments. Fields: the first run's experiment, and a different one.
    #[error("the first run is of {0}, the second of {1} (compare runs of one experiment)")]
    Experiments(String, String),
    /// The sides have different numbers of runs. Fields: first side, second side.
    #[error(
        "the first side has {0} runs and the second {1}: runs are compared in pairs, in the order of their start \
         (give as many on both sides)"
    )]
    RunCounts(usize, usize),
    /// The runs of one side have one condition each, and not the same. Fields: the side, and two conditions.
    #[error(
        "the runs of the {0} side have different conditions, {1} and {2}: their figures are of different things (give runs \
         of one condition)"
    )]
    Conditions(&'static str, String, String),
    /// Too few runs to show how much runs differ.
    #[error(
        "{0} runs on each side are too few to tell how much runs differ (take 3 at least, better 8; or one)"
    )]
    FewRuns(usize),
    /// No figure can be compared.
    #[error("no figure of the first run is comparable (see irqlab show RUN --columns)")]
    Nothing,
    /// A rule covers no cell: a gate that checks nothing must not pass. Fields: the rule, and the reason.
    #[error("rule {0:?} is about no figure of the first run{1}")]
    NoCell(String, String),
    /// The second run lacks all cells of a rule: a gate that checks nothing must not pass.
    #[error(
        "rule {0:?}: the second run has none of its figures (was a row renamed, or not measured?)"
    )]
    AllMissing(String),
    /// All cells of a rule are totals over windows of different lengths. Fields: the rule, and an example.
    #[error(
        "rule {0:?} is about totals over windows of different lengths ({1}): a longer window has a larger total (name a \
         rate, a share of CPU time or a mean, such as rate_hz, self_cpu_ratio or self_mean_ns)"
    )]
    Windows(String, String),
    /// No cell of a rule can be judged.
    #[error(
        "rule {0:?}: none of its figures has an interval (measure longer, give several runs on each side, with different \
         seeds if they are simulated, or choose a figure that has one, such as a mean)"
    )]
    NoInterval(String),
}

/// Whether another run gives exactly these figures: the run is of a simulated machine, or computed.
fn is_repeatable(run: &Run) -> bool {
    run.bench != "live"
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

/// Smallest share of CPU time of a row whose figures are judged by one run on each side. Rows below it belong mostly to
/// other work on the machine. Between runs of the same thing, their means differed by up to 100 % and their rates by up
/// to 300 %. The intervals of a single window do not include this difference (docs/compare.md).
pub const CPU_SHARE_MIN_RATIO: f64 = 0.01;

/// Rows with fewer spans than this are marked, and come last.
pub const FEW_SPANS: u64 = 30;

/// Whether the row of a pair takes enough CPU time to be judged by one run on each side. If the row's table has no
/// shares of CPU time, the share of the row's context counts, from another table. True if no table has one, unless the
/// row is the delay of work items.
fn is_leading(pair: &Pair<'_>) -> bool {
    let share = pair.cpu_share.or(pair.context_share);
    share.is_none_or(|share| share >= CPU_SHARE_MIN_RATIO) && !pair.waits_for_the_scheduler
}

/// Whether the figure changes from run to run by more than its interval, so that several runs are needed to judge it.
fn needs_runs(pair: &Pair<'_>) -> bool {
    !is_leading(pair) || pair.assumes_independence
}

/// Whether a repetition of the compared runs would give other figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exactness {
    /// It would: the runs are of a live bench.
    Noisy,
    /// It would not. The figures are exact, or estimates ([`Pair::is_estimate`]).
    Repeatable,
}

impl Exactness {
    /// The exactness of a comparison of these runs.
    fn of<'r>(mut runs: impl Iterator<Item = &'r Run>) -> Exactness {
        if runs.all(is_repeatable) { Exactness::Repeatable } else { Exactness::Noisy }
    }
}

/// Whether the models of all runs have one clock frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clocks {
    Same,
    Differ,
}

impl Clocks {
    /// A run without a model has no clock, and differs from none.
    fn of<'r>(runs: impl Iterator<Item = &'r Run>) -> Clocks {
        let mut clocks = runs.filter_map(run_totals::clock_ghz);
        let first = clocks.next();
        if clocks.any(|clock| Some(clock) != first) { Clocks::Differ } else { Clocks::Same }
    }
}

/// The key column of tables with a row for each event of the processor. Its values are the units of the row's figures.
const EVENT_KEY: &str = "event";

/// Whether the figure of a pair is a number of cycles, or a ratio to cycles: its column or the row's event says so.
fn depends_on_clock(pair: &Pair<'_>) -> bool {
    let names_cycles = |name: &str| name.contains("cycle");
    let mut events = pair.row.iter().filter(|(key, _)| *key == EVENT_KEY);
    names_cycles(&pair.column.name) || events.any(|(_, event)| names_cycles(event))
}

/// Judges each difference of a comparison, with the error probability that one figure may use up.
#[derive(Clone, Copy)]
struct Judge<'p> {
    plan: &'p Plan,
    exactness: Exactness,
    clocks: Clocks,
    /// The probability of an error beyond one end of an interval, for each figure of leading rows ([`is_leading`]).
    leading_row_tail: f64,
    /// The probability of an error beyond one end of an interval, for each figure of the other rows.
    minor_row_tail: f64,
}

impl<'p> Judge<'p> {
    /// Shares the error probability [`FAMILY_TAIL`] among the figures of `pairs` that are judged by an interval.
    /// Leading rows get one half, and the other rows get the other half. Figures within a half get equal parts.
    fn new(
        pairs: &[Pair<'_>],
        (exactness, clocks): (Exactness, Clocks),
        plan: &'p Plan,
    ) -> Judge<'p> {
        let mut judge =
            Judge { plan, exactness, clocks, leading_row_tail: 0.0, minor_row_tail: 0.0 };
        let is_judged = |pair: &&Pair<'_>| {
            let has_noise = !judge.is_exact(pair) || pair.repeats.is_some();
            let is_unjudged = judge.lacks_runs(pair) || pair.has_other_windows();
            pair.has_interval() && !is_unjudged && has_noise
        };
        let (leading, minor): (Vec<&Pair<'_>>, Vec<_>) =
            pairs.iter().filter(is_judged).partition(|pair| is_leading(pair));
        let families = u8::from(!leading.is_empty()) + u8::from(!minor.is_empty());
        let tail = |count: usize| FAMILY_TAIL / f64::from(families.max(1)) / count.max(1) as f64;
        (judge.leading_row_tail, judge.minor_row_tail) = (tail(leading.len()), tail(minor.len()));
        judge
    }

    /// Whether any difference between two runs is real.
    fn is_exact(&self, pair: &Pair<'_>) -> bool {
        self.exactness == Exactness::Repeatable && !pair.is_estimate
    }

    /// Whether the figure is not judged because each side has only one run. A figure that a rule names is always
    /// judged: the author of the rule has chosen its limit.
    fn lacks_runs(&self, pair: &Pair<'_>) -> bool {
        let is_ruled = || self.plan.rules.iter().any(|rule| rule.covers(pair));
        self.exactness == Exactness::Noisy
            && pair.repeats.is_none()
            && needs_runs(pair)
            && !is_ruled()
    }

    /// The difference of a pair with its interval and verdict. A difference within the rounding error counts as 0.
    fn judge<'a>(&self, pair: Pair<'a>) -> Difference<'a> {
        let tail = if is_leading(&pair) { self.leading_row_tail } else { self.minor_row_tail };
        let exactness = self.exactness;
        let (Some(base), Some(new)) = (pair.base, pair.new) else {
            let verdict = if pair.new.is_none() { Verdict::Missing } else { Verdict::Added };
            let method = if self.is_exact(&pair) { Method::Exact } else { Method::OneSide };
            return Difference {
                pair,
                change: None,
                interval: None,
                method,
                verdict,
                tail,
                exactness,
            };
        };
        let figures = (base.value, new.value);
        let change = change(base.value, new.value);
        let (method, distances) = self.method_and_distances(&pair, change, tail);
        let is_exact = method == Method::Exact || self.is_exact(&pair);
        let margin_ratio = if is_exact { 0.0 } else { self.plan.margin_ratio };
        let role = match self.clocks {
            // Cycles of different lengths: fewer of them are no better.
            Clocks::Differ if depends_on_clock(&pair) => Role::Figure,
            Clocks::Differ | Clocks::Same => pair.column.role,
        };
        let windows = pair.windows;
        let interval = distances.map(|distances| Interval::new(figures, distances, windows));
        let verdict = interval
            .map_or(Verdict::Undecided, |interval| verdict(&interval, margin_ratio, role, windows));
        let interval = interval.map(|interval| interval.ends);
        Difference { pair, change: Some(change), interval, method, verdict, tail, exactness }
    }

    /// How the difference `change` of a pair is judged, and the distances to the ends of its interval if the method gives one.
    fn method_and_distances(
        &self,
        pair: &Pair<'_>,
        change: f64,
        tail: f64,
    ) -> (Method, Option<Distances>) {
        if pair.has_other_windows() {
            return (Method::Windows, None);
        }
        let (down, up) = pair.bucket_distances();
        let has_buckets = down > 0.0 || up > 0.0;
        // Equal runs give equal estimates. Quantiles in one bucket may differ.
        let are_equal = self.exactness == Exactness::Repeatable && change == 0.0 && !has_buckets;
        let method = if pair.repeats.is_some() {
            Method::Runs
        } else if self.is_exact(pair) || are_equal {
            return (Method::Exact, Some(Distances::Linear { down, up }));
        } else if self.lacks_runs(pair) {
            return (Method::OneRun, None);
        } else {
            Method::Intervals
        };
        match pair.distances(tail) {
            Some(distances) => (method, Some(distances)),
            None => (Method::NoInterval, None),
        }
    }
}

/// The verdict on `difference` if the second figure had also changed by the part `by_ratio` of itself. The widths of
/// the intervals and the error probability stay as they are.
#[must_use]
pub fn verdict_if_changed(difference: &Difference<'_>, by_ratio: f64, plan: &Plan) -> Verdict {
    let exactness = difference.exactness;
    let (leading_row_tail, minor_row_tail) = (difference.tail, difference.tail);
    let clocks = Clocks::Same;
    let judge = Judge { plan, exactness, clocks, leading_row_tail, minor_row_tail };
    judge.judge(difference.pair.changed_by(by_ratio)).verdict
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
        .flat_map(|outcome| [outcome.unchecked_warning(), outcome.windows_warning()])
        .flatten()
        .chain(unchecked)
        .collect();
    comparison.warnings.extend(unchecked);
    Ok(comparison)
}

/// A warning if `rule` names no table, and is about a column of tables that are not compared.
fn uncovered_tables(
    rule: &Rule,
    base: &[Run],
    new: &[Run],
    left_out: &[LeftOutTable],
) -> Option<String> {
    let has_column = |run: &Run, table: &LeftOutTable| {
        run.table(&table.name).is_some_and(|table| table.column(&rule.column).is_some())
    };
    let is_in_both = |table: &&LeftOutTable| {
        has_column(&base[0], table) && has_column(&new[0], table) && rule.table.is_none()
    };
    let reasons: Vec<String> = left_out
        .iter()
        .filter(is_in_both)
        .map(|table| format!("table {} is not compared: {}", table.name, table.reason))
        .collect();
    (!reasons.is_empty()).then(|| {
        format!(
            "rule {:?} does not check all tables with {}: {}",
            rule.text,
            rule.column,
            reasons.join("; ")
        )
    })
}

impl Outcome {
    /// A warning if the rule could not be checked on all of its figures, because only one of the runs has them.
    fn unchecked_warning(&self) -> Option<String> {
        let Outcome { rule, cells, missing, added, .. } = self;
        let unchecked = missing + added;
        (unchecked > 0).then(|| {
            format!(
                "rule {:?} is not checked on {unchecked} of its {} figures: the second run lacks {missing}, the first run \
                 lacks {added}",
                rule.text,
                cells + unchecked
            )
        })
    }

    /// A warning if the rule could not be checked on some of its figures, because they are totals over windows of different
    /// lengths.
    fn windows_warning(&self) -> Option<String> {
        let (count, example) = self.other_windows.as_ref()?;
        Some(format!(
            "rule {:?} is not checked on {count} of its {} figures: they are totals over windows of different lengths \
             ({example}) (name a rate, a share of CPU time or a mean)",
            self.rule.text, self.cells
        ))
    }
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

/// Probability, for each end, that at least one difference of a comparison is beyond that end of its interval. Both
/// ends together give 5 %.
const FAMILY_TAIL: f64 = 0.025;

/// Judges all pairs and checks the rules of the plan. The caller adds warnings and totals to the result.
fn judge_pairs<'a>(
    base: &Run,
    pairs: Vec<Pair<'a>>,
    left_out: Vec<LeftOutTable>,
    exactness: Exactness,
    clocks: Clocks,
    plan: &Plan,
) -> Result<Comparison<'a>, CompareError> {
    if pairs.iter().all(|pair| pair.base.is_none()) {
        let no_cell = |rule: &Rule| no_cell(rule, base, &left_out);
        return Err(plan.rules.first().map_or(CompareError::Nothing, no_cell));
    }
    let judge = Judge::new(&pairs, (exactness, clocks), plan);
    let mut differences: Vec<Difference<'_>> =
        pairs.into_iter().map(|pair| judge.judge(pair)).collect();
    let outcomes = plan.rules.iter().map(|rule| outcome(rule, &differences, base, &left_out));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    differences.sort_by(|earlier, later| {
        let by_few_spans = earlier.has_few_spans().cmp(&later.has_few_spans());
        let has_no_share = |difference: &Difference<'_>| difference.pair.context_share.is_none();
        let by_share = has_no_share(earlier).cmp(&has_no_share(later));
        let by_effect = later.effect().total_cmp(&earlier.effect());
        // Worse and better figures stand together, the largest effect first.
        let rank = |difference: &Difference<'_>| match difference.verdict {
            Verdict::Worse | Verdict::Better => 0,
            other => 1 + other as u8,
        };
        let by_rank = rank(earlier).cmp(&rank(later));
        by_few_spans.then(by_rank).then(by_share).then(by_effect)
    });
    Ok(Comparison {
        differences,
        run_totals: Vec::new(),
        outcomes,
        warnings: Vec::new(),
        setting_differences: Vec::new(),
        left_out,
    })
}

/// The error for a rule that covers no cell of `base`: says which part of the rule matches nothing, or why the
/// rule's tables are left out.
fn no_cell(rule: &Rule, base: &Run, left_out: &[LeftOutTable]) -> CompareError {
    let tables = base.tables.iter().filter(|table| {
        rule.table.as_ref().is_none_or(|name| *name == table.name)
            && table.column(&rule.column).is_some()
    });
    let names: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
    let reason = |name: &&str| left_out.iter().find(|table| table.name == **name);
    let not_compared: Vec<String> = names
        .iter()
        .filter_map(reason)
        .map(|table| format!("table {} is not compared: {}", table.name, table.reason))
        .collect();
    let why = match (names.is_empty(), rule.filter.is_empty()) {
        (true, _) => format!("{} (see irqlab show RUN --columns)", similar_columns(rule, base)),
        _ if !not_compared.is_empty() && not_compared.len() == names.len() => format!(
            ": {} (name a table that is compared; irqlab compare BASE NEW without --fail-on lists them)",
            not_compared.join(", ")
        ),
        (false, false) => {
            let mut keys: Vec<&str> =
                names.iter().filter_map(|name| base.table(name)).flat_map(cells::keys).collect();
            keys.sort_unstable();
            keys.dedup();
            let (names, keys) = (names.join(", "), keys.join(", "));
            format!(
                ": no row of {names} has these keys (its keys are {keys}; irqlab show RUN lists their values)"
            )
        }
        (false, true) => format!(": {} has no such row", names.join(", ")),
    };
    CompareError::NoCell(rule.text.clone(), why)
}

/// Columns of the rule's table, or of all tables, whose names contain the column of a rule that does not exist: for
/// `self_mean`, `: is it self_mean_ns?`. Empty if there are none.
fn similar_columns(rule: &Rule, base: &Run) -> String {
    let is_named =
        |table: &&record::Table| rule.table.as_ref().is_none_or(|name| *name == table.name);
    let columns = base.tables.iter().filter(is_named).flat_map(|table| &table.columns);
    let mut names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    names.retain(|name| !rule.column.is_empty() && name.contains(&rule.column));
    names.sort_unstable_by_key(|name| (name.len(), *name));
    names.dedup();
    names.truncate(3);
    if names.is_empty() { String::new() } else { format!(": is it {}?", names.join(", ")) }
}

/// Checks one rule on all judged cells. Fails if the rule covers no cell that can be judged.
fn outcome(
    rule: &Rule,
    differences: &[Difference<'_>],
    base: &Run,
    left_out: &[LeftOutTable],
) -> Result<Outcome, CompareError> {
    let covered: Vec<&Difference<'_>> =
        differences.iter().filter(|difference| rule.covers(&difference.pair)).collect();
    if covered.is_empty() {
        return Err(no_cell(rule, base, left_out));
    }
    let count = |verdict: Verdict| {
        covered.iter().filter(|difference| difference.verdict == verdict).count()
    };
    let (missing, added) = (count(Verdict::Missing), count(Verdict::Added));
    if added == covered.len() {
        let why = ": only the second run has them (compare the runs in the other order, or make the first run again)";
        return Err(CompareError::NoCell(rule.text.clone(), why.to_owned()));
    }
    if missing + added == covered.len() {
        return Err(CompareError::AllMissing(rule.text.clone()));
    }
    let has_interval =
        |difference: &&Difference<'_>| difference.change.is_some() && difference.interval.is_some();
    let with_other_windows = || covered.iter().filter(|found| found.method == Method::Windows);
    let window_example = with_other_windows().next().map(|first| window_example(first));
    if !covered.iter().any(has_interval) {
        let text = rule.text.clone();
        return Err(match window_example {
            Some(example) => CompareError::Windows(text, example),
            None => CompareError::NoInterval(text),
        });
    }
    let cell_ruling = |difference: &Difference<'_>| {
        let first_figure = difference.pair.base.map_or(0.0, |base| base.value);
        let is_beyond = |change: f64| rule.is_beyond(change, first_figure);
        match (difference.change, difference.interval) {
            (Some(_), Some((low, high))) if is_beyond(if rule.is_upper { low } else { high }) => {
                Ruling::Broken
            }
            (Some(change), _) if is_beyond(change) => Ruling::InDoubt,
            // A row that only one of the runs has may be the reason for the gate.
            (None, _) => Ruling::InDoubt,
            // The change of a total says nothing if the windows differ.
            _ if difference.method == Method::Windows => Ruling::InDoubt,
            _ => Ruling::Holds,
        }
    };
    // The change in the unit of the limit. The smallest value is the change farthest in the direction that the rule
    // forbids. A cell that only one of the runs has precedes all cells of its ruling.
    let signed_change = |difference: &&Difference<'_>| {
        let Some(change) = difference.change else { return f64::NEG_INFINITY };
        let change = match rule.limit {
            Limit::Absolute(_) => change,
            // A change from 0 is larger than any part of the first figure.
            Limit::Ratio(_) if change == 0.0 => 0.0,
            Limit::Ratio(_) => difference.ratio(change).unwrap_or(f64::INFINITY.copysign(change)),
        };
        if rule.is_upper { -change } else { change }
    };
    let worst = covered.iter().copied().min_by(|first, second| {
        let by_change = signed_change(first).total_cmp(&signed_change(second));
        cell_ruling(first).cmp(&cell_ruling(second)).then(by_change)
    });
    let name_and_ratio = |difference: &Difference<'_>| {
        (row_name(&difference.pair), difference.change.and_then(|change| difference.ratio(change)))
    };
    Ok(Outcome {
        rule: rule.clone(),
        cells: covered.len() - missing - added,
        missing,
        added,
        other_windows: window_example.map(|example| (with_other_windows().count(), example)),
        ruling: worst.map_or(Ruling::Holds, cell_ruling),
        worst: worst.map(name_and_ratio),
    })
}

/// The values of the row's key columns, separated by spaces; empty values are left out.
pub(crate) fn row_name(pair: &Pair<'_>) -> String {
    let values = pair.row.iter().map(|(_, value)| value.as_str());
    values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Warnings about incomplete runs, runs that were not taken alternately, differences between the runs of each side, and
/// differences of bench, condition and kernel options between the first runs of both sides. The caller adds the differences of
/// host and settings between these two.
fn warnings(base: &[Run], new: &[Run], exactness: Exactness) -> Vec<String> {
    let mut warnings = Vec::new();
    for (runs, side) in [(base, "first"), (new, "second")] {
        let incomplete = runs.iter().filter(|run| !run.complete).count();
        match (incomplete, runs.len()) {
            (0, _) => {}
            (_, 1) => warnings.push(format!("the {side} run was cut short")),
            (_, all) => {
                warnings
                    .push(format!("{incomplete} of {all} runs of the {side} side were cut short"));
            }
        }
    }
    // A repeatable run has no slow changes of the machine.
    if exactness == Exactness::Noisy && series::is_one_side_first(base, new) {
        warnings.push(
            "all runs of one side were taken before those of the other: slow changes of the machine are in the \
             differences (take the runs of both sides alternately)"
                .to_owned(),
        );
    }
    for (runs, side) in [(base, "first"), (new, "second")] {
        warnings.extend(settings::differences_within(side, runs));
    }
    // Runs of a side that differ are named above: the first pair stands for the other pairs.
    let (base, new) = (&base[0], &new[0]);
    if base.bench != new.bench {
        warnings.push(format!("the benches differ: {} and {}", base.bench, new.bench));
    }
    if let (Some(base), Some(new)) = (cells::sole_condition(base), cells::sole_condition(new))
        && base != new
    {
        warnings.push(format!("condition {base} is compared with condition {new}"));
    }
    let places = ["in the first", "in the second"];
    warnings.extend(kernel_options::difference(places, [&base.host, &new.host]));
    warnings
}

/// Whether a rule works as a gate: it holds for the run compared with itself, and a change can break it.
#[derive(Clone, Debug)]
pub struct SelfTest {
    pub rule: Rule,
    /// Whether the rule holds for the run compared with itself.
    pub holds_for_itself: bool,
    /// The smallest change that breaks the rule, if all of its figures change by this part of themselves. `None` if no
    /// change up to 100-fold does.
    pub breaks_from_ratio: Option<f64>,
}

/// Largest change that a self-test tries, as a part of a figure.
const CHANGE_MAX: f64 = 100.0;

/// Tests each rule of `plan`: compares `run` with itself, and with `run` after a change of the rule's figures.
///
/// Fails as [`compare`] does.
pub fn self_test(run: &Run, plan: &Plan) -> Result<Vec<SelfTest>, CompareError> {
    let self_comparison = compare(run, run, plan)?;
    let exactness = Exactness::of(std::iter::once(run));
    let pairs: Vec<Pair<'_>> =
        self_comparison.differences.iter().map(|difference| difference.pair.clone()).collect();
    let test = |outcome: &Outcome| -> Result<SelfTest, CompareError> {
        let rule = &outcome.rule;
        let is_broken = |ratio: f64| -> Result<bool, CompareError> {
            let signed_ratio = if rule.is_upper { ratio } else { -ratio };
            let changed = pairs
                .iter()
                .map(|pair| pair.changed_by(if rule.covers(pair) { signed_ratio } else { 0.0 }));
            let comparison =
                judge_pairs(run, changed.collect(), Vec::new(), exactness, Clocks::Same, plan)?;
            let changed_outcome = comparison.outcomes.iter().find(|outcome| outcome.rule == *rule);
            Ok(changed_outcome.is_some_and(|outcome| outcome.ruling == Ruling::Broken))
        };
        // A figure can shrink to 0 and no further.
        let ratio_max = if rule.is_upper { CHANGE_MAX } else { 1.0 };
        let mut breaks_from_ratio = None;
        if is_broken(ratio_max)? {
            let (mut low, mut high) = (0.0, ratio_max);
            // Bisection: 40 steps find the ratio to within 10⁻¹² of CHANGE_MAX.
            for _ in 0..40 {
                let middle = f64::midpoint(low, high);
                if is_broken(middle)? { high = middle } else { low = middle }
            }
            breaks_from_ratio = Some(high);
        }
        let holds_for_itself = outcome.ruling == Ruling::Holds;
        Ok(SelfTest { rule: rule.clone(), holds_for_itself, breaks_from_ratio })
    };
    self_comparison.outcomes.iter().map(test).collect()
}

#[cfg(test)]
mod mirror_tests;
#[cfg(test)]
mod same_twice;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;
