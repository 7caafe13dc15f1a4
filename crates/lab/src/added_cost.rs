//! What probes add to a figure, by pairs of windows without and with probes: for the block `observer` of a run, and as a
//! note of a table.
//!
//! Goal: the reader learns what the probes cost, as exactly as it is known.
//! Problem: other work changes from pair to pair, often by more than the probes add. The median of the windows without probes
//! and the median of those with probes can come from different pairs, so their difference says nothing.
//! Rule: the estimate is the median of the pairs' differences. Its interval follows from the order of the differences, for
//! any distribution. If the interval contains 0, the cost is not known.

use serde_json::{Map, Value as Json, json};
use stats::median;

/// What probes add to a figure.
pub(crate) struct AddedCost {
    /// Differences of the pairs, in ascending order.
    differences: Vec<f64>,
    /// Key of the estimate in the block `observer`.
    key: &'static str,
}

/// The words of a note about an [`AddedCost`].
pub(crate) struct NoteWords {
    /// What adds, such as `the probes`.
    pub(crate) probes: &'static str,
    /// What the number is a share of, with a leading space; empty for times.
    pub(crate) whole: &'static str,
    /// The figure, such as `the lost time`.
    pub(crate) figure: &'static str,
}

impl AddedCost {
    /// `differences`: the figure with probes minus the figure without them, of each pair. `None` without pairs.
    pub(crate) fn new(
        key: &'static str,
        differences: impl Iterator<Item = f64>,
    ) -> Option<AddedCost> {
        let mut differences: Vec<f64> = differences.collect();
        differences.sort_unstable_by(f64::total_cmp);
        (!differences.is_empty()).then_some(AddedCost { differences, key })
    }

    /// The 95 % interval of the median difference. `None` with too few pairs.
    fn interval(&self) -> Option<(f64, f64)> {
        let (low, high) = stats::interval::order_95(self.differences.len())?;
        Some((self.differences[low], self.differences[high]))
    }

    /// Adds the estimate and its interval to the block `observer`. The ends are null with too few pairs.
    pub(crate) fn describe(&self, observer: &mut Map<String, Json>) {
        let (low, high) = self.interval().unzip();
        observer.insert(self.key.into(), json!(median(&self.differences)));
        observer.insert(format!("{}_ci95_low", self.key), json!(low));
        observer.insert(format!("{}_ci95_high", self.key), json!(high));
    }

    /// The note of a table. The report replaces names in braces by values of the block `observer`.
    pub(crate) fn note(&self, words: &NoteWords) -> String {
        let NoteWords { probes, whole, figure } = words;
        let key = self.key;
        let pair_count = self.differences.len();
        let interval = format!("{{observer.{key}_ci95_low}} to {{observer.{key}_ci95_high}}");
        match self.interval() {
            None => format!(
                "what {probes} add to {figure} is not known: {pair_count} pairs of windows are too few"
            ),
            Some((low, high)) if low <= 0.0 && high >= 0.0 => format!(
                "what {probes} add to {figure} is not known: {interval}{whole} (95 %, by {pair_count} pairs of windows)"
            ),
            Some(_) => format!(
                "{probes} add {{observer.{key}}}{whole} to {figure} (95 %: {interval}, by {pair_count} pairs of windows)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: NoteWords =
        NoteWords { probes: "the probes", whole: " of the CPU", figure: "the lost time" };

    fn note(differences: &[f64]) -> String {
        AddedCost::new("added_lost_ratio", differences.iter().copied()).unwrap().note(&WORDS)
    }

    #[test]
    fn a_note_has_the_estimate_only_if_its_interval_excludes_zero() {
        let drifting = |number: u32| 0.001 + f64::from(number % 3) * 1e-5;
        let known: Vec<f64> = (0..16).map(drifting).collect();
        assert_eq!(
            note(&known),
            "the probes add {observer.added_lost_ratio} of the CPU to the lost time (95 %: \
             {observer.added_lost_ratio_ci95_low} to {observer.added_lost_ratio_ci95_high}, by 16 pairs of windows)"
        );
        let unknown: Vec<f64> = (0..16).map(|number| f64::from(number) - 8.0).collect();
        assert!(note(&unknown).starts_with("what the probes add to the lost time is not known: {"));
        assert!(note(&known[..5]).ends_with("is not known: 5 pairs of windows are too few"));
        assert!(AddedCost::new("added_lost_ratio", std::iter::empty()).is_none());
    }
}
