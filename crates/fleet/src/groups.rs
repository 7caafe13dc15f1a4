//! Whether hosts with a setting have other figures than the other hosts: the test of Mann and Whitney.

use stats::median::median;

use crate::rank_test::{PValueMethod, p_value};

/// Least number of hosts on each side of a comparison.
pub const GROUP_MIN: usize = 4;
/// Probability of any false difference in a report.
const LEVEL: f64 = 0.05;

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GroupVerdict {
    /// The figures differ. The probability, corrected for all comparisons of the report, that equal groups look so.
    Differ { p_value: f64 },
    /// The figures may be equal.
    NotKnown { p_value: f64 },
    /// A side has fewer than [`GROUP_MIN`] hosts.
    TooFew,
}

/// The figures of hosts with a setting, and of all other hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupComparison {
    pub count: usize,
    pub median: f64,
    pub others_count: usize,
    pub others_median: f64,
    pub verdict: GroupVerdict,
    /// How the probability was computed. `None` without a probability.
    pub method: Option<PValueMethod>,
}

/// Compares the figures of hosts with the figures of all other hosts. `comparisons`: number of comparisons in the report,
/// which multiplies the probability (Bonferroni). `None` if a side is empty.
#[must_use]
pub fn compare_groups(
    hosts: &[f64],
    others: &[f64],
    comparisons: usize,
) -> Option<GroupComparison> {
    let middle = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        median(&values)
    };
    let (verdict, method) = if hosts.len() < GROUP_MIN || others.len() < GROUP_MIN {
        (GroupVerdict::TooFew, None)
    } else {
        let (p_value, method) = p_value(hosts, others);
        let p_value = (p_value * comparisons.max(1) as f64).min(1.0);
        let verdict = if p_value < LEVEL {
            GroupVerdict::Differ { p_value }
        } else {
            GroupVerdict::NotKnown { p_value }
        };
        (verdict, Some(method))
    };
    Some(GroupComparison {
        count: hosts.len(),
        median: middle(hosts)?,
        others_count: others.len(),
        others_median: middle(others)?,
        verdict,
        method,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_do_not_overlap_differ() {
        let low = [0.02, 0.021, 0.022, 0.019];
        let high = [0.31, 0.30, 0.32, 0.29, 0.33];
        let found = compare_groups(&low, &high, 1).unwrap();
        assert_eq!((found.median, found.others_median), (0.0205, 0.31));
        // 2 of the 126 arrangements are as extreme.
        let GroupVerdict::Differ { p_value } = found.verdict else { panic!("{found:?}") };
        assert!((p_value * 126.0 / 2.0 - 1.0).abs() < 1e-9, "{p_value}");
        assert_eq!(found.method, Some(PValueMethod::Exact));
        // With ten comparisons, such an arrangement is expected too often.
        let many = compare_groups(&low, &high, 10).unwrap().verdict;
        assert!(matches!(many, GroupVerdict::NotKnown { p_value } if p_value > 0.15));
    }

    #[test]
    fn few_hosts_and_equal_figures_say_nothing() {
        let too_few = compare_groups(&[1.0, 1.0, 1.0], &[5.0; 60], 1).unwrap();
        assert_eq!(too_few.verdict, GroupVerdict::TooFew);
        let equal = compare_groups(&[1.0; 20], &[1.0; 20], 1).unwrap();
        assert_eq!(equal.verdict, GroupVerdict::NotKnown { p_value: 1.0 });
        assert_eq!(compare_groups(&[], &[1.0], 1), None);
    }

    /// 4 hosts against 4 have 70 arrangements, so their difference cannot pass two comparisons.
    #[test]
    fn ties_make_no_difference_surer_than_the_number_of_arrangements_allows() {
        let verdict = compare_groups(&[42.0; 4], &[67.6; 4], 3).unwrap().verdict;
        let GroupVerdict::NotKnown { p_value } = verdict else { panic!("{verdict:?}") };
        assert!((p_value - 3.0 * 2.0 / 70.0).abs() < 1e-9, "{p_value}");
    }
}
