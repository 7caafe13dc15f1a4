//! All differences of a comparison, judged and sorted, with what must be said about them.

use record::Run;

use super::cells::{LeftOutTable, Pair};
use super::judge::{CPU_SHARE_MIN_RATIO, Clocks, Exactness, Judge, needs_runs};
use super::outcome::{bound_example, no_cell, outcome, window_example};
use super::{
    CompareError, Difference, Method, Outcome, Plan, Rule, RunTotal, SettingDifference, Verdict,
};

/// The results of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// All compared cells: rows with few spans last, then worse and better ones, then by verdict, then by effect on
    /// CPU time, the largest first.
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
    pub(super) fn unreliable_rules_warning(&self) -> Option<String> {
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
    pub(super) fn windows_warning(&self) -> Option<String> {
        let unjudged = || self.differences.iter().filter(|found| found.method == Method::Windows);
        let first = unjudged().next()?;
        let example = window_example(first);
        Some(format!(
            "{} figures are totals over windows of different lengths ({example}), so they are not judged (compare rates, \
             shares of CPU time and means)",
            unjudged().count()
        ))
    }

    /// A warning if some figures are only bounds.
    pub(super) fn bounds_warning(&self) -> Option<String> {
        let bounds = || self.differences.iter().filter(|found| found.method == Method::Bound);
        let first = bounds().next()?;
        Some(format!(
            "{} figures are only bounds ({}): they tell no change, unless a lower bound is above an upper bound or a \
             measurement is beyond a bound",
            bounds().count(),
            bound_example(first)
        ))
    }

    /// A warning if only the second run has some of the figures.
    pub(super) fn added_warning(&self) -> Option<String> {
        let is_added = |difference: &&Difference<'_>| difference.verdict == Verdict::Added;
        let count = self.differences.iter().filter(is_added).count();
        (count > 0).then(|| {
            format!(
                "{count} figures are in the second run alone, so they are not compared (verdict added in table differences)"
            )
        })
    }

    /// A warning if some pairs of runs lack figures that are compared.
    pub(super) fn partial_pairs_warning(&self) -> Option<String> {
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

/// Judges all pairs and checks the rules of the plan. The caller adds warnings and totals to the result.
pub(super) fn judge_pairs<'a>(
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
