//! Judges each difference: chooses the method and the error probability, and gives the verdict.

use record::{Role, Run};

use super::cells::Pair;
use super::decision::{Distances, Interval, change, verdict};
use super::{Difference, Method, Plan, Verdict, run_totals};

/// Smallest share of CPU time of a row whose figures are judged by one run on each side. Rows below it belong mostly to
/// other work on the machine. Between runs of the same thing, their means differed by up to 100 % and their rates by up
/// to 300 %. The intervals of a single window do not include this difference (docs/compare.md).
pub const CPU_SHARE_MIN_RATIO: f64 = 0.01;

/// Whether the row of a pair takes enough CPU time to be judged by one run on each side. If the row's table has no
/// shares of CPU time, the share of the row's context counts, from another table. True if no table has one, unless the
/// row is the delay of work items.
fn is_leading(pair: &Pair<'_>) -> bool {
    let share = pair.cpu_share.or(pair.context_share);
    share.is_none_or(|share| share >= CPU_SHARE_MIN_RATIO) && !pair.waits_for_the_scheduler
}

/// Whether the figure changes from run to run by more than its interval, so that several runs are needed to judge it.
pub(super) fn needs_runs(pair: &Pair<'_>) -> bool {
    !is_leading(pair) || pair.assumes_independence
}

/// Whether a repetition of the compared runs would give other figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exactness {
    /// It would: the runs are of a live bench.
    Noisy,
    /// It would not. The figures are exact, or estimates ([`Pair::is_estimate`]).
    Repeatable,
}

impl Exactness {
    /// The exactness of a comparison of these runs.
    pub(super) fn of<'r>(mut runs: impl Iterator<Item = &'r Run>) -> Exactness {
        if runs.all(is_repeatable) { Exactness::Repeatable } else { Exactness::Noisy }
    }
}

/// Whether the models of all runs have one clock frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clocks {
    Same,
    Differ,
}

impl Clocks {
    /// A run without a model has no clock, and differs from none.
    pub(super) fn of<'r>(runs: impl Iterator<Item = &'r Run>) -> Clocks {
        let mut clocks = runs.filter_map(run_totals::clock_ghz);
        let first = clocks.next();
        if clocks.any(|clock| Some(clock) != first) { Clocks::Differ } else { Clocks::Same }
    }
}

/// Whether another run gives exactly these figures: the run is of a simulated machine, or computed.
pub(super) fn is_repeatable(run: &Run) -> bool {
    run.bench != "live"
}

/// Probability, for each end, that at least one difference of a comparison is beyond that end of its interval. Both
/// ends together give 5 %.
const FAMILY_TAIL: f64 = 0.025;

/// The key column of tables with a row for each event of the processor. Its values are the units of the row's figures.
pub(super) const EVENT_KEY: &str = "event";

/// Whether the figure of a pair is a number of cycles, or a ratio to cycles: its column or the row's event says so.
fn depends_on_clock(pair: &Pair<'_>) -> bool {
    let names_cycles = |name: &str| name.contains("cycle");
    let mut events = pair.row.iter().filter(|(key, _)| *key == EVENT_KEY);
    names_cycles(&pair.column.name) || events.any(|(_, event)| names_cycles(event))
}

/// Judges each difference of a comparison, with the error probability that one figure may use up.
#[derive(Clone, Copy)]
pub(super) struct Judge<'p> {
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
    pub(super) fn new(
        pairs: &[Pair<'_>],
        (exactness, clocks): (Exactness, Clocks),
        plan: &'p Plan,
    ) -> Judge<'p> {
        let mut judge =
            Judge { plan, exactness, clocks, leading_row_tail: 0.0, minor_row_tail: 0.0 };
        let is_judged = |pair: &&Pair<'_>| {
            let has_noise = !judge.is_exact(pair) || pair.repeats.is_some();
            let is_unjudged =
                judge.lacks_runs(pair) || pair.has_other_windows() || pair.open_sides().are_both();
            pair.has_interval() && !is_unjudged && has_noise
        };
        let (leading, minor): (Vec<&Pair<'_>>, Vec<_>) =
            pairs.iter().filter(is_judged).partition(|pair| is_leading(pair));
        let families = u8::from(!leading.is_empty()) + u8::from(!minor.is_empty());
        let tail = |count: usize| FAMILY_TAIL / f64::from(families.max(1)) / count.max(1) as f64;
        (judge.leading_row_tail, judge.minor_row_tail) = (tail(leading.len()), tail(minor.len()));
        judge
    }

    pub(super) fn with_clocks(self, clocks: Clocks) -> Judge<'p> {
        Judge { clocks, ..self }
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
    pub(super) fn judge<'a>(&self, pair: Pair<'a>) -> Difference<'a> {
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
        let open_sides = pair.open_sides();
        let interval = distances
            .map(|distances| Interval::new(figures, distances, windows).opened(open_sides));
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
        let open_sides = pair.open_sides();
        if open_sides.are_both() {
            return (Method::Bound, None);
        }
        let (method, distances) = self.method_of_measurements(pair, change, tail);
        let is_bound = open_sides.is_any() && distances.is_some();
        (if is_bound { Method::Bound } else { method }, distances)
    }

    /// [`Judge::method_and_distances`] if no figure were only a bound.
    fn method_of_measurements(
        &self,
        pair: &Pair<'_>,
        change: f64,
        tail: f64,
    ) -> (Method, Option<Distances>) {
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
