//! How long a barrier waits for the slowest of many nodes whose detours are independent. `noise scale`
//! (`lab/src/noise/scale`) describes a job of nodes, detours and barriers.
//!
//! A node that has waited at a barrier for the time w is in a detour if the detour began in this time and has not ended.
//! So the delays between two barriers depend on how long the nodes waited at the first of them, which depends on the
//! largest delay before it. The largest delays of successive barriers are therefore a Markov chain. The chain's states
//! are waits. Each state has the distribution of a node's delay after this wait, and of the largest delay of all nodes
//! (order statistics: David & Nagaraja, Order Statistics, ch. 3). The results are means over the chain's stationary
//! distribution. Nothing is sampled, and a million nodes take no longer than two.
//!
//! Two things are approximate. A node that waits is taken to have had the mean delay of the nodes that were not the
//! slowest. And a node's next detour does not depend on when its last one was.

use crate::random::Random;

/// A part of the distribution of a node's delay, by the time at which the node starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The delay of a start at work, or the delay after the rest of the detour of a start in a detour.
    pub low: u64,
    /// The length of the start times.
    pub weight: u64,
    /// Whether the starts are in a detour, whose length is `weight`. Its rest adds to the delay.
    pub is_ramp: bool,
    /// The block of the measurement that contains the piece. Confidence intervals resample blocks.
    pub block: u32,
}

/// Number of waits that are states of the chain. Between them, distributions are interpolated.
const WAITS: usize = 16;
/// Ratio of successive waits. The longest is the longest detour: a longer wait makes no difference.
const WAIT_RATIO: f64 = 2.0;
/// Ratio of successive delays at which distributions are kept.
const VALUE_RATIO: f64 = 1.02;
/// Delays below the largest divided by this number are one interval.
const VALUE_RANGE: f64 = 1e5;
/// If there are no more different delays than this number, all of them are kept exactly.
const EXACT_VALUES_MAX: usize = 64;
/// Number of bootstrap resamples for an interval.
const RESAMPLES: usize = 200;
/// Minimum number of blocks for a confidence interval.
const BLOCKS_MIN: usize = 8;

/// The delays of one node, by the wait before them and by block.
#[derive(Clone, Debug)]
pub struct Delays {
    /// Delays in ascending order. The first is 0.
    values: Vec<f64>,
    /// Waits in ascending order. The first is 0.
    waits: Vec<f64>,
    /// The sums of each block: see [`Sums`].
    blocks: Vec<Sums>,
}

/// Sums over pieces. A piece between two values counts at both, so that its mean is kept.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// Length of the starts at work, by delay.
    at_work: Vec<f64>,
    /// Number of detours, by the delay of a start at the detour's begin.
    detours: Vec<f64>,
    /// The same by the shortest delay of a start in a detour that began no earlier than the wait: wait by wait.
    latest: Vec<f64>,
}

impl Sums {
    fn new(values: usize, waits: usize) -> Sums {
        Sums {
            at_work: vec![0.0; values],
            detours: vec![0.0; values],
            latest: vec![0.0; values * waits],
        }
    }

    fn add(&mut self, other: &Sums, times: f64) {
        let add = |sums: &mut [f64], others: &[f64]| {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum += other * times;
            }
        };
        add(&mut self.at_work, &other.at_work);
        add(&mut self.detours, &other.detours);
        add(&mut self.latest, &other.latest);
    }
}

impl Delays {
    /// The delays that the pieces form; `None` if no piece is a start at work.
    #[must_use]
    pub fn new(pieces: &[Piece]) -> Option<Delays> {
        let count = pieces.iter().map(|piece| piece.block).max()? as usize + 1;
        let values = values_of(pieces);
        let waits = waits_of(pieces);
        let mut blocks = vec![Sums::new(values.len(), waits.len()); count];
        for piece in pieces.iter().filter(|piece| piece.weight > 0) {
            let block = &mut blocks[piece.block as usize];
            let (low, weight) = (piece.low as f64, piece.weight as f64);
            if !piece.is_ramp {
                Position::of(low, &values).add(&mut block.at_work, weight);
                continue;
            }
            Position::of(low + weight, &values).add(&mut block.detours, 1.0);
            for (wait, latest) in waits.iter().zip(block.latest.chunks_mut(values.len())) {
                Position::of(low + (weight - wait).max(0.0), &values).add(latest, 1.0);
            }
        }
        let has_work = |block: &Sums| block.at_work.iter().any(|weight| *weight > 0.0);
        blocks.iter().any(has_work).then_some(Delays { values, waits, blocks })
    }

    /// The delays over all blocks.
    #[must_use]
    pub fn of_a_node(&self) -> Node {
        self.node(&vec![1; self.blocks.len()])
    }

    /// The delays over blocks that are drawn with replacement: resamples for confidence intervals (block bootstrap:
    /// Efron & Tibshirani, ch. 8 and 13). The same `seed` gives the same resamples. `None` with fewer than 8 blocks in
    /// which a node was at work.
    #[must_use]
    pub fn resamples(&self, seed: u64) -> Option<Vec<Node>> {
        let has_work = |block: &Sums| block.at_work.iter().any(|weight| *weight > 0.0);
        let blocks = self.blocks.iter().enumerate();
        let filled: Vec<usize> =
            blocks.filter(|(_, block)| has_work(block)).map(|(index, _)| index).collect();
        if filled.len() < BLOCKS_MIN {
            return None;
        }
        let mut random = Random::new(seed);
        let resample = |_| {
            let mut times = vec![0; self.blocks.len()];
            for _ in &filled {
                times[filled[random.below(filled.len() as u64) as usize]] += 1;
            }
            self.node(&times)
        };
        Some((0..RESAMPLES).map(resample).collect())
    }

    /// The delays of a node, if each block counts as often as `times` says.
    fn node(&self, times: &[u32]) -> Node {
        let mut sums = Sums::new(self.values.len(), self.waits.len());
        for (block, times) in self.blocks.iter().zip(times).filter(|(_, times)| **times > 0) {
            sums.add(block, f64::from(*times));
        }
        let after_waits = sums
            .latest
            .chunks(self.values.len())
            .map(|latest| after_wait(&self.values, &sums, latest))
            .collect();
        Node {
            means_below: means_below(&self.values, &sums.at_work),
            values: self.values.clone(),
            waits: self.waits.clone(),
            after_waits,
        }
    }
}

/// The 95 % interval of the means of resamples: the percentiles.
#[must_use]
pub fn interval_of_resamples(mut means: Vec<f64>) -> Option<(f64, f64)> {
    means.sort_by(f64::total_cmp);
    let cut = means.len() / 40;
    Some((*means.get(cut)?, *means.get(means.len().checked_sub(1 + cut)?)?))
}

/// The delays at which distributions are kept: 0, the largest, and between them geometrically, and the delays of pieces
/// if they are few.
fn values_of(pieces: &[Piece]) -> Vec<f64> {
    let top = |piece: &Piece| piece.low + if piece.is_ramp { piece.weight } else { 0 };
    let mut exact: Vec<u64> = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.weight > 0) {
        for value in [piece.low, top(piece)] {
            if exact.len() <= EXACT_VALUES_MAX && !exact.contains(&value) {
                exact.push(value);
            }
        }
    }
    if exact.len() > EXACT_VALUES_MAX {
        exact.clear();
    }
    let largest = pieces.iter().map(top).max().unwrap_or(0) as f64;
    let mut values: Vec<f64> = exact.into_iter().map(|value| value as f64).collect();
    values.push(0.0);
    let least = (largest / VALUE_RANGE).max(1.0);
    values.extend(descending(largest, VALUE_RATIO).take_while(|value| *value >= least));
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// The waits that are states of the chain.
fn waits_of(pieces: &[Piece]) -> Vec<f64> {
    let detours = pieces.iter().filter(|piece| piece.is_ramp);
    let longest = detours.map(|piece| piece.weight).max().unwrap_or(0) as f64;
    let mut waits: Vec<f64> = descending(longest, WAIT_RATIO)
        .take(WAITS - 1)
        .take_while(|wait| *wait >= 1.0)
        .chain([0.0])
        .collect();
    waits.reverse();
    waits
}

fn descending(largest: f64, ratio: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(largest), move |value| Some(value / ratio))
}

/// A number between two neighbours of an ascending list.
#[derive(Clone, Copy, Debug)]
struct Position {
    lower: usize,
    /// 0 at the lower neighbour, 1 at the upper.
    share: f64,
}

impl Position {
    /// Numbers beyond the end of the list are at the end.
    fn of(number: f64, list: &[f64]) -> Position {
        let lower = list.partition_point(|value| *value <= number).saturating_sub(1);
        let share = match list.get(lower + 1) {
            Some(upper) => ((number - list[lower]) / (upper - list[lower])).clamp(0.0, 1.0),
            None => 0.0,
        };
        Position { lower, share }
    }

    /// Adds `weight` to the two neighbours in `sums`, more to the nearer.
    fn add(self, sums: &mut [f64], weight: f64) {
        sums[self.lower] += weight * (1.0 - self.share);
        if self.share > 0.0 {
            sums[self.lower + 1] += weight * self.share;
        }
    }

    /// The number at this position between `lower` and `upper`.
    fn interpolate(self, lower: f64, upper: f64) -> f64 {
        lower + self.share * (upper - lower)
    }
}

/// The distribution of a delay: probabilities that it is exceeded.
#[derive(Clone, Debug)]
struct Distribution {
    /// By value: the probability of a larger delay.
    above: Vec<f64>,
    /// By value: the probability of a delay of at least the next value. Between the two values it falls linearly.
    at_next: Vec<f64>,
}

/// The distribution of a node's delay after a wait. `latest` is the part of [`Sums`] for this wait.
fn after_wait(values: &[f64], sums: &Sums, latest: &[f64]) -> Distribution {
    let len = values.len();
    let mut in_detour = vec![0.0; len];
    let mut at_work = vec![0.0; len];
    let mut slope = 0.0;
    for index in (0..len - 1).rev() {
        let next = index + 1;
        slope += sums.detours[next] - latest[next];
        in_detour[index] = in_detour[next] + slope * (values[next] - values[index]);
        at_work[index] = at_work[next] + sums.at_work[next];
    }
    // Starts at work with a delay of 0 count, too. In a detour, no start has a delay of 0.
    let total = at_work[0] + sums.at_work[0] + in_detour[0];
    let share = |weight: f64| (weight / total).clamp(0.0, 1.0);
    let next_in_detour = |index: usize| in_detour.get(index + 1).copied().unwrap_or(0.0);
    Distribution {
        above: (0..len).map(|index| share(at_work[index] + in_detour[index])).collect(),
        at_next: (0..len).map(|index| share(at_work[index] + next_in_detour(index))).collect(),
    }
}

/// By value: the mean of the delays up to the value.
fn means_below(values: &[f64], weights: &[f64]) -> Vec<f64> {
    let (mut sum, mut weight_sum) = (0.0, 0.0);
    let mean = |(value, weight): (&f64, &f64)| {
        sum += value * weight;
        weight_sum += weight;
        if weight_sum > 0.0 { sum / weight_sum } else { 0.0 }
    };
    values.iter().zip(weights).map(mean).collect()
}

/// The delays of one node after each wait.
#[derive(Clone, Debug)]
pub struct Node {
    values: Vec<f64>,
    waits: Vec<f64>,
    /// By wait.
    after_waits: Vec<Distribution>,
    /// By value: the mean delay of a node at work whose delay is no larger.
    means_below: Vec<f64>,
}

/// The delay of the slowest of many nodes.
#[derive(Clone, Debug)]
pub struct Slowest {
    values: Vec<f64>,
    distribution: Distribution,
    mean: f64,
}

impl Node {
    /// The delay of the slowest of `nodes` independent nodes between two barriers, each of which opens `barrier_ns`
    /// after the last node has reached it.
    #[must_use]
    pub fn slowest(&self, nodes: u64, barrier_ns: u64) -> Slowest {
        let barrier_ns = barrier_ns as f64;
        let others = nodes.saturating_sub(1) as f64;
        // The last node has waited for the barrier's messages only.
        let last = self.after(barrier_ns);
        let states: Vec<(Distribution, f64)> =
            self.after_waits.iter().map(|other| self.largest(&last, other, others)).collect();
        let chain: Vec<Vec<f64>> = states
            .iter()
            .map(|(distribution, _)| self.waits_after(distribution, barrier_ns))
            .collect();
        let shares = stationary(chain);
        let mix = |part: fn(&Distribution) -> &Vec<f64>| -> Vec<f64> {
            let of_states = |index: usize| {
                let weighted = states.iter().zip(&shares);
                weighted.map(|((state, _), share)| part(state)[index] * share).sum()
            };
            (0..self.values.len()).map(of_states).collect()
        };
        Slowest {
            values: self.values.clone(),
            distribution: Distribution {
                above: mix(|distribution| &distribution.above),
                at_next: mix(|distribution| &distribution.at_next),
            },
            mean: states.iter().zip(&shares).map(|((_, mean), share)| mean * share).sum(),
        }
    }

    /// The delays of a node after any wait.
    fn after(&self, wait_ns: f64) -> Distribution {
        let position = Position::of(wait_ns, &self.waits);
        let lower = &self.after_waits[position.lower];
        let upper = self.after_waits.get(position.lower + 1).unwrap_or(lower);
        let mix = |lower: &[f64], upper: &[f64]| -> Vec<f64> {
            lower.iter().zip(upper).map(|(l, u)| position.interpolate(*l, *u)).collect()
        };
        Distribution {
            above: mix(&lower.above, &upper.above),
            at_next: mix(&lower.at_next, &upper.at_next),
        }
    }

    /// The largest delay of the last node and `others` other nodes: its distribution and mean.
    fn largest(
        &self,
        last: &Distribution,
        other: &Distribution,
        others: f64,
    ) -> (Distribution, f64) {
        let exceeded = |last: f64, other: f64| last + (1.0 - last) * exceedance(other, others);
        let each = |last: &[f64], other: &[f64]| -> Vec<f64> {
            last.iter().zip(other).map(|(last, other)| exceeded(*last, *other)).collect()
        };
        let mut mean = 0.0;
        for (index, bounds) in self.values.windows(2).enumerate() {
            let (at_value, at_next) = (other.above[index], other.at_next[index]);
            let last = (last.above[index] + last.at_next[index]) / 2.0;
            let between = last + (1.0 - last) * mean_exceedance(at_value, at_next, others);
            mean += (bounds[1] - bounds[0]) * between;
        }
        let distribution = Distribution {
            above: each(&last.above, &other.above),
            at_next: each(&last.at_next, &other.at_next),
        };
        (distribution, mean)
    }

    /// The probability of each wait of a node that is not the last, at the next barrier, from the distribution of the
    /// largest delay before it.
    fn waits_after(&self, largest: &Distribution, barrier_ns: f64) -> Vec<f64> {
        let mut probabilities = vec![0.0; self.waits.len()];
        let mut add = |value: f64, index: usize, probability: f64| {
            let wait = barrier_ns + (value - self.means_below[index]).max(0.0);
            Position::of(wait, &self.waits).add(&mut probabilities, probability.max(0.0));
        };
        add(0.0, 0, 1.0 - largest.above[0]);
        for (index, bounds) in self.values.windows(2).enumerate() {
            let middle = (bounds[0] + bounds[1]) / 2.0;
            add(middle, index, largest.above[index] - largest.at_next[index]);
            add(bounds[1], index + 1, largest.at_next[index] - largest.above[index + 1]);
        }
        probabilities
    }
}

/// The probability that at least one of `number` delays is exceeded, of which each is with `probability`.
fn exceedance(probability: f64, number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { -(number * (-probability).ln_1p()).exp_m1() }
}

/// The mean of [`exceedance`] while the probability falls linearly from `high` to `low`.
fn mean_exceedance(high: f64, low: f64, number: f64) -> f64 {
    let growth = high - low;
    if number * growth < 1e-2 {
        // Simpson's rule avoids the cancellation when both ends are nearly equal.
        let middle = exceedance((high + low) / 2.0, number);
        return (exceedance(high, number) + 4.0 * middle + exceedance(low, number)) / 6.0;
    }
    let exponent = number + 1.0;
    1.0 - (exceedance(high, exponent) - exceedance(low, exponent)) / growth / exponent
}

/// The stationary distribution of a Markov chain, from each state's probabilities of the next state, by the elimination
/// of Grassmann, Taksar and Heyman (1985), which subtracts nothing.
fn stationary(mut chain: Vec<Vec<f64>>) -> Vec<f64> {
    let count = chain.len();
    // No state from here on leads to an earlier one, so the earlier ones are left for good.
    let mut first = 0;
    for last in (1..count).rev() {
        let leaves: f64 = chain[last][..last].iter().sum();
        if leaves <= 0.0 {
            first = last;
            break;
        }
        let from_last = chain[last].clone();
        for row in &mut chain[..last] {
            row[last] /= leaves;
            let to_last = row[last];
            for (entry, onward) in row[..last].iter_mut().zip(&from_last) {
                *entry += to_last * onward;
            }
        }
    }
    let mut shares = vec![0.0; count];
    shares[first] = 1.0;
    for state in first + 1..count {
        shares[state] = (first..state).map(|from| shares[from] * chain[from][state]).sum();
    }
    let total: f64 = shares.iter().sum();
    shares.iter().map(|share| share / total).collect()
}

impl Slowest {
    /// The mean of the slowest node's delay, ns.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The delay, in ns, that the slowest node does not exceed with `probability`, in ]0, 1[.
    #[must_use]
    pub fn quantile(&self, probability: f64) -> f64 {
        let exceeded = 1.0 - probability;
        let Distribution { above, at_next } = &self.distribution;
        for (index, bounds) in self.values.windows(2).enumerate() {
            if above[index] <= exceeded {
                return bounds[0];
            }
            if at_next[index] <= exceeded {
                let share = (above[index] - exceeded) / (above[index] - at_next[index]);
                return bounds[0] + share * (bounds[1] - bounds[0]);
            }
        }
        self.values.last().copied().unwrap_or(0.0)
    }
}
