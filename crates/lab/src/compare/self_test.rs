//! Tests whether a rule works as a gate.

use record::Run;

use super::cells::Pair;
use super::comparison::judge_pairs;
use super::judge::{Clocks, Exactness};
use super::{CompareError, Outcome, Plan, Rule, Ruling, compare};

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
