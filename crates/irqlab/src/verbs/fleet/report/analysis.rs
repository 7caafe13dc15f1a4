//! Judges the figures of one metric: outliers among the hosts, groups, and the best and the worst host.

use std::collections::BTreeSet;

use ::fleet::{
    DifferingFact, GROUP_MIN, GroupComparison, GroupVerdict, OUTLIER_SCORE, RobustScores, Unscored,
    compare_groups, differing_facts, robust_scores, varying_facts,
};
use record::{Column, Role, Run};

use super::Host;
use super::metric::Metric;

/// A fact with more values than this is a measurement, and no setting.
const VALUES_MAX: usize = 12;
/// Number of names of facts that a group has. Facts that change together are one group.
const NAMES_MAX: usize = 3;

/// A comparison of hosts with some facts and all other hosts.
pub struct Group {
    /// The facts that these hosts have in common, and that the other hosts do not have.
    pub facts: String,
    pub comparison: GroupComparison,
}

/// The best and the worst host, by their positions, and what differs between them.
pub struct Extremes {
    pub best: usize,
    pub worst: usize,
    pub differing: Vec<DifferingFact>,
    /// Whether the metric is a cost or a benefit. Otherwise neither end is better.
    pub has_direction: bool,
}

/// The figures of a metric and their judgement. Positions index [`Analysis::hosts`].
pub struct Analysis {
    pub metric: Metric,
    pub column: Column,
    /// Positions of the hosts with a figure in the list of hosts.
    pub hosts: Vec<usize>,
    pub figures: Vec<f64>,
    /// Rows of each host that are not in its figure, because they are bounds or below their detection limit.
    pub left_out_counts: Vec<usize>,
    pub scores: Result<RobustScores, Unscored>,
    pub groups: Vec<Group>,
    /// Number of groups with enough hosts on both sides. It multiplies their probabilities.
    pub comparisons: usize,
    /// `None` if all hosts with a figure have the same figure.
    pub extremes: Option<Extremes>,
}

impl Analysis {
    /// Analyses the metric with this index. `first`: a run with its table.
    pub fn new(metric: &Metric, index: usize, first: &Run, hosts: &[Host]) -> Analysis {
        let mut positions = Vec::new();
        let (mut figures, mut left_out_counts) = (Vec::new(), Vec::new());
        for (position, host) in hosts.iter().enumerate() {
            if let Ok(figure) = host.figures[index] {
                positions.push(position);
                figures.push(figure.value);
                left_out_counts.push(figure.left_out_count);
            }
        }
        let column = metric.figure_column(first);
        let (groups, comparisons) = groups(hosts, &positions, &figures);
        let extremes = extremes(hosts, &positions, &figures, column.role);
        Analysis {
            metric: metric.clone(),
            column,
            scores: robust_scores(&figures),
            hosts: positions,
            figures,
            left_out_counts,
            groups,
            comparisons,
            extremes,
        }
    }

    /// Whether the host at a position of [`Analysis::hosts`] is an outlier. `None` if that cannot be known.
    pub fn is_outlier(&self, position: usize) -> Option<bool> {
        let scores = self.scores.as_ref().ok()?;
        Some(scores.scores[position].abs() > OUTLIER_SCORE)
    }

    /// Positions of the outliers, the most extreme first.
    pub fn outliers(&self) -> Vec<usize> {
        let Ok(scores) = &self.scores else { return Vec::new() };
        let mut outliers: Vec<usize> = (0..self.hosts.len())
            .filter(|position| self.is_outlier(*position) == Some(true))
            .collect();
        let score = |position: &usize| scores.scores[*position].abs();
        outliers.sort_by(|first, second| score(second).total_cmp(&score(first)));
        outliers
    }
}

/// The hosts with a value of a fact, against all others. Facts that divide the hosts in the same way are one group.
/// Also returns the number of comparisons with enough hosts.
fn groups(hosts: &[Host], positions: &[usize], figures: &[f64]) -> (Vec<Group>, usize) {
    let facts: Vec<_> = positions.iter().map(|position| &hosts[*position].facts).collect();
    let mut divisions: Vec<(Vec<bool>, Vec<String>)> = Vec::new();
    for (name, values) in varying_facts(&facts) {
        let distinct: BTreeSet<&str> = values.iter().copied().collect();
        if distinct.len() > VALUES_MAX {
            continue;
        }
        for value in distinct {
            let has_value: Vec<bool> = values.iter().map(|found| *found == value).collect();
            let text = format!("{name}={value}");
            // A division and its inverse are the same comparison.
            let inverse: Vec<bool> = has_value.iter().map(|has_value| !has_value).collect();
            if divisions.iter().any(|(known, _)| *known == inverse) {
                continue;
            }
            match divisions.iter_mut().find(|(known, _)| *known == has_value) {
                Some((_, names)) => names.push(text),
                None => divisions.push((has_value, vec![text])),
            }
        }
    }
    let sides = |has_value: &[bool], wanted: bool| -> Vec<f64> {
        let pairs = figures.iter().zip(has_value);
        pairs.filter(|(_, has_value)| **has_value == wanted).map(|(figure, _)| *figure).collect()
    };
    let is_large = |(has_value, _): &&(Vec<bool>, Vec<String>)| {
        let count = has_value.iter().filter(|has_value| **has_value).count();
        count >= GROUP_MIN && has_value.len() - count >= GROUP_MIN
    };
    let comparisons = divisions.iter().filter(is_large).count();
    let mut groups: Vec<Group> = divisions
        .iter()
        .filter_map(|(has_value, names)| {
            let comparison =
                compare_groups(&sides(has_value, true), &sides(has_value, false), comparisons)?;
            Some(Group { facts: named(names), comparison })
        })
        .collect();
    groups.sort_by(|first, second| rank(first).total_cmp(&rank(second)));
    (groups, comparisons)
}

/// Sorts the surest difference first, and groups with too few hosts last.
fn rank(group: &Group) -> f64 {
    match group.comparison.verdict {
        GroupVerdict::Differ { p_value } | GroupVerdict::NotKnown { p_value } => p_value,
        GroupVerdict::TooFew => 2.0,
    }
}

fn named(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn extremes(hosts: &[Host], positions: &[usize], figures: &[f64], role: Role) -> Option<Extremes> {
    let order = |first: &usize, second: &usize| figures[*first].total_cmp(&figures[*second]);
    let lowest = (0..figures.len()).min_by(order)?;
    let highest = (0..figures.len()).max_by(order)?;
    // With one host, or with equal figures, no host is the best one.
    if figures[lowest] == figures[highest] {
        return None;
    }
    let (best, worst) = if role == Role::Benefit { (highest, lowest) } else { (lowest, highest) };
    let facts = |position: usize| &hosts[positions[position]].facts;
    let differing = differing_facts(facts(best), facts(worst));
    let has_direction = matches!(role, Role::Cost | Role::Benefit);
    Some(Extremes { best, worst, differing, has_direction })
}

#[cfg(test)]
mod tests {
    use super::super::tests::host;
    use super::*;

    #[test]
    fn hosts_with_one_figure_have_no_best_and_no_worst() {
        let mut hosts = ["h0", "h1", "h2"].map(host);
        hosts[2].facts.insert("kernel".to_owned(), "6.12".to_owned());
        let found = |figures: &[f64]| extremes(&hosts, &[0, 1, 2], figures, Role::Cost);
        assert!(found(&[0.454; 3]).is_none());
        let extremes = found(&[0.454, 0.2, 0.9]).unwrap();
        assert_eq!((extremes.best, extremes.worst, extremes.differing.len()), (1, 2, 1));
    }
}
