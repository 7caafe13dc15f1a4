//! Whether hosts with a setting have other figures than the other hosts: the test of Mann and Whitney.

use statrs::distribution::{ContinuousCDF, Normal};
use stats::median::median;

/// Least number of hosts on each side of a comparison.
pub const GROUP_MIN: usize = 4;
/// Probability of any false difference in a report.
const LEVEL: f64 = 0.05;
/// Up to this number of hosts on each side, the distribution of the test is exact.
const EXACT_MAX: usize = 30;

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
    let verdict = if hosts.len() < GROUP_MIN || others.len() < GROUP_MIN {
        GroupVerdict::TooFew
    } else {
        let p_value = (p_value(hosts, others) * comparisons.max(1) as f64).min(1.0);
        if p_value < LEVEL {
            GroupVerdict::Differ { p_value }
        } else {
            GroupVerdict::NotKnown { p_value }
        }
    };
    Some(GroupComparison {
        count: hosts.len(),
        median: middle(hosts)?,
        others_count: others.len(),
        others_median: middle(others)?,
        verdict,
    })
}

/// Two-sided probability of the statistic of Mann and Whitney (Annals of Mathematical Statistics 18, 1947): exact without
/// ties among few hosts, otherwise by the normal approximation with corrections for ties and continuity.
fn p_value(first: &[f64], second: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = first.iter().map(|figure| (*figure, true)).collect();
    all.extend(second.iter().map(|figure| (*figure, false)));
    all.sort_by(|(first, _), (second, _)| first.total_cmp(second));
    let (mut rank_sum, mut ties, mut start) = (0.0, 0.0, 0);
    for group in all.chunk_by(|(first, _), (second, _)| first == second) {
        let length = group.len() as f64;
        let mean_rank = start as f64 + (length + 1.0) / 2.0;
        rank_sum += mean_rank * group.iter().filter(|(_, is_first)| *is_first).count() as f64;
        ties += length.powi(3) - length;
        start += group.len();
    }
    let (count, others) = (first.len() as f64, second.len() as f64);
    let statistic = rank_sum - count * (count + 1.0) / 2.0;
    let smaller = statistic.min(count * others - statistic);
    if ties == 0.0 && first.len() <= EXACT_MAX && second.len() <= EXACT_MAX {
        return exact_p_value(smaller as usize, first.len(), second.len());
    }
    let total = count + others;
    let variance = count * others / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let score = ((smaller - count * others / 2.0 + 0.5) / variance.sqrt()).min(0.0);
    (2.0 * Normal::standard().cdf(score)).min(1.0)
}

/// Twice the share of all arrangements of two groups whose statistic is at most `statistic`.
fn exact_p_value(statistic: usize, first: usize, second: usize) -> f64 {
    let statistics = first * second + 1;
    // `arrangements[n][u]` counts the orders of n hosts of the first group and of the second group's hosts so far that
    // have the statistic u. Either the largest figure belongs to the second group, or it belongs to the first group and is
    // above all hosts of the second group.
    let mut arrangements = vec![vec![0.0; statistics]; first + 1];
    arrangements.iter_mut().for_each(|counts| counts[0] = 1.0);
    for others in 1..=second {
        for hosts in 1..=first {
            for value in (0..statistics).rev() {
                let above = value
                    .checked_sub(others)
                    .map_or(0.0, |statistic| arrangements[hosts - 1][statistic]);
                arrangements[hosts][value] += above;
            }
        }
    }
    let counts = &arrangements[first];
    let below: f64 = counts[..=statistic].iter().sum();
    (2.0 * below / counts.iter().sum::<f64>()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts all arrangements one by one.
    fn enumerated(statistic: usize, first: usize, second: usize) -> f64 {
        let total = first + second;
        let (mut below, mut all) = (0, 0);
        for mask in 0_u32..1 << total {
            if mask.count_ones() as usize != first {
                continue;
            }
            all += 1;
            let is_first = |position: usize| mask >> position & 1 == 1;
            let pairs = (0..total).filter(|position| is_first(*position));
            let value: usize =
                pairs.map(|position| (0..position).filter(|below| !is_first(*below)).count()).sum();
            below += usize::from(value <= statistic);
        }
        (2.0 * f64::from(u32::try_from(below).unwrap()) / f64::from(all)).min(1.0)
    }

    #[test]
    fn the_exact_probability_is_that_of_all_arrangements() {
        for (first, second) in [(4, 4), (4, 7), (6, 5), (1, 3)] {
            for statistic in 0..=first * second / 2 {
                let exact = exact_p_value(statistic, first, second);
                let expected = enumerated(statistic, first, second);
                assert!((exact - expected).abs() < 1e-12, "{first} {second} {statistic}");
            }
        }
    }

    #[test]
    fn groups_that_do_not_overlap_differ() {
        let low = [0.02, 0.021, 0.022, 0.019];
        let high = [0.31, 0.30, 0.32, 0.29, 0.33];
        let found = compare_groups(&low, &high, 1).unwrap();
        assert_eq!((found.median, found.others_median), (0.0205, 0.31));
        // 2 of the 126 arrangements are as extreme.
        assert_eq!(found.verdict, GroupVerdict::Differ { p_value: 2.0 / 126.0 });
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

    #[test]
    fn the_approximation_continues_the_exact_probability() {
        let first: Vec<f64> = (0..EXACT_MAX).map(|number| 2.0 * number as f64).collect();
        let second: Vec<f64> = (0..EXACT_MAX).map(|number| 2.0 * number as f64 + 13.0).collect();
        let exact = p_value(&first, &second);
        let with_tie =
            p_value(&[&first[..], &[2.0 * 40.0]].concat(), &[&second[..], &[80.0]].concat());
        assert!((exact - with_tie).abs() < 0.02, "{exact} {with_tie}");
    }
}
