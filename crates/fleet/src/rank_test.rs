//! The probability of a difference in rank as large as an observed one, if two groups of hosts are alike: the test of Mann
//! and Whitney (Annals of Mathematical Statistics 18, 1947), with ties.
//!
//! Goal: the probability is right for few hosts and for figures that tie, such as bucket midpoints, counts and zeros.
//! Problem: for a group of 4 hosts, the normal approximation can be 7 times too small (with ties) or 300 times too large
//! (among 64 hosts).
//! Rule: the exact distribution over all arrangements of the hosts, where it is affordable. Else the normal approximation if
//! both groups are large and few hosts tie, and random arrangements in all other cases.

use statrs::distribution::{ContinuousCDF, Normal};
use stats::random::Random;

/// Maximum cost of the exact distribution: the product of the number of hosts, the size of the smaller group, and its
/// largest sum of ranks.
const EXACT_COST_MAX: usize = 1 << 30;
/// Least number of hosts in each group for the normal approximation.
const NORMAL_MIN: usize = 30;
/// Least and largest number of random arrangements. The probability is at least 2 divided by their number.
const ARRANGEMENTS: (usize, usize) = (20_000, 200_000);
/// Number of hosts that all random arrangements together draw, unless this means too few arrangements.
const DRAWS: usize = 50_000_000;
/// Seed of the random arrangements: a report of the same figures has the same probability.
const SEED: u64 = 1947;

/// How a probability was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PValueMethod {
    /// From all arrangements of the hosts in two groups.
    Exact,
    /// From 20,000 to 200,000 random arrangements. The observed arrangement counts as a further one, so the test keeps its
    /// level (Phipson and Smyth, Statistical Applications in Genetics and Molecular Biology 9, 2010).
    RandomArrangements,
    /// From the normal distribution with mean and variance of all arrangements, with a correction for continuity.
    NormalApproximation,
}

impl PValueMethod {
    /// The method as a text for tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            PValueMethod::Exact => "exact",
            PValueMethod::RandomArrangements => "random arrangements",
            PValueMethod::NormalApproximation => "normal approximation",
        }
    }
}

/// Two-sided probability that two groups without a difference have ranks that differ by at least as much: twice the
/// probability of the rarer side.
pub(crate) fn p_value(first: &[f64], second: &[f64]) -> (f64, PValueMethod) {
    let ranks = Ranks::new(first, second);
    match ranks.method() {
        PValueMethod::Exact => (ranks.exact(), PValueMethod::Exact),
        PValueMethod::RandomArrangements => (ranks.random(), PValueMethod::RandomArrangements),
        PValueMethod::NormalApproximation => (ranks.normal(), PValueMethod::NormalApproximation),
    }
}

/// The ranks of all hosts as small whole numbers.
struct Ranks {
    /// A rank for each host, ascending. Hosts with equal figures share their mean rank. The smallest rank is 0, and the
    /// ranks have no common divisor: a linear map of the ranks does not change the probability.
    ranks: Vec<usize>,
    /// Hosts of the smaller group.
    count: usize,
    /// Sum of the smaller group's ranks.
    sum: usize,
    /// The largest number of hosts with one figure.
    tied_max: usize,
}

impl Ranks {
    fn new(first: &[f64], second: &[f64]) -> Ranks {
        let (smaller, larger) =
            if first.len() <= second.len() { (first, second) } else { (second, first) };
        let mut all: Vec<(f64, bool)> = smaller.iter().map(|figure| (*figure, true)).collect();
        all.extend(larger.iter().map(|figure| (*figure, false)));
        all.sort_by(|(first, _), (second, _)| first.total_cmp(second));
        let (mut ranks, mut tied_max) = (Vec::with_capacity(all.len()), 0);
        for tied in all.chunk_by(|(first, _), (second, _)| first == second) {
            // The mean of the ranks from `start` on, doubled so that it is whole.
            let doubled_rank = 2 * ranks.len() + tied.len() - 1;
            ranks.extend(tied.iter().map(|_| doubled_rank));
            tied_max = tied_max.max(tied.len());
        }
        let smallest = ranks.first().copied().unwrap_or(0);
        let divisor = ranks.iter().fold(0, |divisor, rank| gcd(rank - smallest, divisor)).max(1);
        ranks.iter_mut().for_each(|rank| *rank = (*rank - smallest) / divisor);
        let of_smaller = all.iter().zip(&ranks).filter(|((_, is_smaller), _)| *is_smaller);
        let sum = of_smaller.map(|(_, rank)| rank).sum();
        Ranks { count: smaller.len(), sum, tied_max, ranks }
    }

    fn method(&self) -> PValueMethod {
        let hosts = self.ranks.len();
        let cost = hosts.saturating_mul(self.count).saturating_mul(self.sum_max() + 1);
        if cost <= EXACT_COST_MAX {
            PValueMethod::Exact
        } else if self.count >= NORMAL_MIN && self.tied_max <= hosts / 2 {
            PValueMethod::NormalApproximation
        } else {
            PValueMethod::RandomArrangements
        }
    }

    /// The largest sum of ranks that the smaller group can have.
    fn sum_max(&self) -> usize {
        self.ranks.iter().rev().take(self.count).sum()
    }

    fn exact(&self) -> f64 {
        let probabilities = self.distribution();
        let below: f64 = probabilities[..=self.sum].iter().sum();
        let above: f64 = probabilities[self.sum..].iter().sum();
        two_sided(below.min(above))
    }

    /// The probability of each sum of the smaller group's ranks, if all arrangements are equally probable.
    fn distribution(&self) -> Vec<f64> {
        let hosts = self.ranks.len();
        let mut totals = vec![0; hosts + 1];
        for (index, rank) in self.ranks.iter().enumerate() {
            totals[index + 1] = totals[index] + rank;
        }
        // The largest sum of `taken` ranks among the first `seen`: the ranks ascend.
        let largest = |seen: usize, taken: usize| totals[seen] - totals[seen - taken];
        // `chances[taken][sum]`: the probability that the hosts so far have `taken` hosts of the smaller group with this sum.
        // Each further host belongs to the smaller group with the share of its open places among the hosts that are left.
        let mut chances: Vec<Vec<f64>> =
            (0..=self.count).map(|taken| vec![0.0; largest(hosts, taken) + 1]).collect();
        chances[0][0] = 1.0;
        for (seen, rank) in self.ranks.iter().enumerate() {
            let remaining = (hosts - seen) as f64;
            let share = |taken: usize| (self.count - taken) as f64 / remaining;
            for taken in (1..=self.count.min(seen + 1)).rev() {
                let (fewer, rest) = chances.split_at_mut(taken);
                let (fewer, row) = (&fewer[taken - 1], &mut rest[0]);
                let stays = 1.0 - share(taken);
                row[..=largest(seen + 1, taken)].iter_mut().for_each(|chance| *chance *= stays);
                let comes = share(taken - 1);
                let from = &fewer[..=largest(seen, taken - 1)];
                row[*rank..]
                    .iter_mut()
                    .zip(from)
                    .for_each(|(chance, from)| *chance += from * comes);
            }
            chances[0][0] *= 1.0 - share(0);
        }
        chances.swap_remove(self.count)
    }

    fn normal(&self) -> f64 {
        let (hosts, count) = (self.ranks.len() as f64, self.count as f64);
        let mean_rank = self.ranks.iter().sum::<usize>() as f64 / hosts;
        let squares: f64 = self.ranks.iter().map(|rank| (*rank as f64 - mean_rank).powi(2)).sum();
        let variance = count * (hosts - count) / (hosts * (hosts - 1.0)) * squares;
        if variance <= 0.0 {
            return 1.0;
        }
        // Sums are whole numbers: half a step is the correction for continuity.
        let distance = ((self.sum as f64 - count * mean_rank).abs() - 0.5).max(0.0);
        two_sided(Normal::standard().cdf(-distance / variance.sqrt()))
    }

    fn random(&self) -> f64 {
        let mut random = Random::new(SEED);
        let mut ranks = self.ranks.clone();
        let arrangements = (DRAWS / self.count.max(1)).clamp(ARRANGEMENTS.0, ARRANGEMENTS.1);
        let (mut below, mut above) = (1_usize, 1_usize);
        for _ in 0..arrangements {
            let mut sum = 0;
            for place in 0..self.count {
                let other = place + random.below((ranks.len() - place) as u64) as usize;
                ranks.swap(place, other);
                sum += ranks[place];
            }
            below += usize::from(sum <= self.sum);
            above += usize::from(sum >= self.sum);
        }
        two_sided(below.min(above) as f64 / (arrangements + 1) as f64)
    }
}

fn two_sided(rarer_side: f64) -> f64 {
    (2.0 * rarer_side).min(1.0)
}

fn gcd(first: usize, second: usize) -> usize {
    if second == 0 { first } else { gcd(second, first % second) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the arrangements one by one.
    fn enumerated(first: &[f64], second: &[f64]) -> f64 {
        let all = [first, second].concat();
        let rank = |figure: &f64| {
            let count = |is_counted: fn(&f64, &f64) -> bool| {
                all.iter().filter(|other| is_counted(other, figure)).count()
            };
            2 * count(|other, figure| other < figure) + count(|other, figure| other == figure)
        };
        let ranks: Vec<usize> = all.iter().map(rank).collect();
        let observed: usize = ranks[..first.len()].iter().sum();
        let (mut below, mut above, mut count) = (0_u32, 0_u32, 0_u32);
        for mask in 0_u32..1 << all.len() {
            if mask.count_ones() as usize != first.len() {
                continue;
            }
            let is_first = |position: &usize| mask >> position & 1 == 1;
            let sum: usize = (0..all.len()).filter(is_first).map(|position| ranks[position]).sum();
            count += 1;
            below += u32::from(sum <= observed);
            above += u32::from(sum >= observed);
        }
        (2.0 * f64::from(below.min(above)) / f64::from(count)).min(1.0)
    }

    fn assert_equal(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn the_exact_probability_is_that_of_all_arrangements() {
        let mut random = Random::new(7);
        for (first, second, values) in
            [(4, 4, 100), (4, 4, 2), (4, 11, 3), (7, 5, 4), (6, 6, 50), (1, 3, 2), (9, 4, 6)]
        {
            for _ in 0..8 {
                let mut figures = |count: usize| -> Vec<f64> {
                    (0..count).map(|_| random.below(values) as f64).collect()
                };
                let (first, second) = (figures(first), figures(second));
                let (found, method) = p_value(&first, &second);
                assert_eq!(method, PValueMethod::Exact);
                assert_equal(found, enumerated(&first, &second));
                assert_equal(found, p_value(&second, &first).0);
            }
        }
    }

    #[test]
    fn ties_within_small_groups_do_not_make_the_probability_small() {
        // 2 of C(16, 4) arrangements, and 2 of C(8, 4).
        assert_equal(p_value(&[67.6; 4], &[42.0; 12]).0, 2.0 / 1_820.0);
        assert_equal(p_value(&[1.0; 4], &[2.0; 4]).0, 2.0 / 70.0);
        assert_equal(p_value(&[1.0; 20], &[1.0; 20]).0, 1.0);
    }

    #[test]
    fn a_small_group_among_many_hosts_is_exact() {
        let others: Vec<f64> = (0..60).map(|number| 10.0 + f64::from(number)).collect();
        let (found, method) = p_value(&[1.0, 2.0, 3.0, 3.0], &others);
        // C(64, 4) arrangements.
        assert_eq!(method, PValueMethod::Exact);
        assert_equal(found, 2.0 / 635_376.0);
        let many: Vec<f64> = (0..1_000).map(f64::from).collect();
        assert_eq!(p_value(&[1.5, 2.5, 3.5, 4.5], &many).1, PValueMethod::Exact);
    }

    /// Figures of two groups. Large `values`: few ties.
    fn figures(counts: (usize, usize), values: u64) -> (Vec<f64>, Vec<f64>) {
        let mut random = Random::new(11);
        let mut group =
            |count: usize| (0..count).map(|_| random.below(values) as f64).collect::<Vec<f64>>();
        (group(counts.0), group(counts.1))
    }

    /// The share of arrangements that a test rejects at a level is at most the level, and not far below it.
    #[test]
    fn the_normal_approximation_keeps_its_level_in_large_groups() {
        for (counts, values) in [((30, 30), 1 << 40), ((30, 30), 8), ((30, 90), 20), ((45, 40), 3)]
        {
            let (first, second) = figures(counts, values);
            let mut ranks = Ranks::new(&first, &second);
            let probabilities = ranks.distribution();
            assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for level in [0.05, 0.01, 0.001] {
                let mut rejected = 0.0;
                for (sum, probability) in probabilities.iter().enumerate() {
                    ranks.sum = sum;
                    rejected += if ranks.normal() < level { *probability } else { 0.0 };
                }
                let size = rejected / level;
                assert!((0.6..1.1).contains(&size), "{counts:?} {values} {level}: {size}");
            }
        }
    }

    #[test]
    fn random_arrangements_give_the_exact_probability_within_their_error() {
        for (counts, values) in [((12, 40), 1 << 40), ((12, 40), 2)] {
            let (first, second) = figures(counts, values);
            let ranks = Ranks::new(&first, &second);
            let (exact, random) = (ranks.exact(), ranks.random());
            assert!((exact - random).abs() < 0.01, "{exact} {random}");
        }
    }

    #[test]
    fn the_cost_is_bounded_and_the_method_is_named() {
        let (first, second) = figures((2_000, 3_000), 1 << 40);
        assert_eq!(p_value(&first, &second).1, PValueMethod::NormalApproximation);
        let (first, second) = figures((20, 3_000), 1 << 40);
        let (found, method) = p_value(&first, &second);
        assert_eq!(method, PValueMethod::RandomArrangements);
        assert!(found > 2.0 / ARRANGEMENTS.1 as f64);
        let mostly_zero = |count: usize| -> Vec<f64> {
            (0..count).map(|number| if number % 3 == 0 { number as f64 } else { 0.0 }).collect()
        };
        let method = Ranks::new(&mostly_zero(2_000), &mostly_zero(3_000)).method();
        assert_eq!(method, PValueMethod::RandomArrangements);
    }
}
