//! The largest of many independent draws from one distribution. `noise scale` (`lab/src/noise/scale`) uses it for the
//! time that a barrier waits for the slowest of many nodes: a draw is the delay of a node.
//!
//! Mean and quantiles are exact, without sampling. With the survival function S(x), the share of the weight above x,
//! the mean of the largest of n draws is the integral of 1 - (1 - S(x))^n. Here, S consists of steps and straight lines
//! (order statistics: David & Nagaraja, Order Statistics, ch. 3). The functions walk from the largest value down, and
//! keep track of the weight above the present value.

use crate::random::Random;

/// A part of a distribution: a step or a ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The value of a step, or the lower end of a ramp.
    pub low: u64,
    /// The piece's share of the distribution: only the ratios of weights matter. A ramp is `weight` wide.
    pub weight: u64,
    /// Whether the piece is a ramp, with uniform values from `low` to `low + weight`. A step has only the value `low`.
    pub is_ramp: bool,
    /// The block of the measurement that contains the piece. Confidence intervals resample blocks.
    pub block: u32,
}

/// A change of the survival function at one value.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// A step with this weight.
    Step(u64),
    /// The upper end of a ramp.
    RampTop,
    /// The lower end of a ramp.
    RampBottom,
}

/// A distribution, prepared for computing the largest of many draws.
#[derive(Clone, Debug)]
pub struct Extremes {
    /// The value, the change at the value, and the block of the change; in descending order of values.
    changes: Vec<(u64, Change, u32)>,
    /// The position is the block's number.
    by_block: Vec<Block>,
    /// Whether the first draw comes only from the steps. All other draws come from all pieces.
    first_draw_is_from_steps: bool,
}

/// The weight of a block: of all its pieces, and of its steps.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    weight: u64,
    /// Sum of the values times their weights.
    sum: f64,
    steps_weight: u64,
    /// Sum of the steps' values times their weights.
    steps_sum: f64,
}

/// If this number of draws is expected above a value, the largest draw exceeds the value with probability 1 - e^-45.
/// This is 1 in the precision of a double.
const CERTAIN_DRAWS: f64 = 45.0;
/// Number of bootstrap resamples for an interval.
const RESAMPLES: usize = 200;
/// Minimum number of blocks for a confidence interval.
const BLOCKS_MIN: usize = 8;

impl Extremes {
    /// The distribution that the pieces form; `None` when they have no weight.
    #[must_use]
    pub fn new(pieces: &[Piece]) -> Option<Extremes> {
        let blocks = pieces.iter().map(|piece| piece.block).max()? as usize + 1;
        let mut by_block = vec![Block::default(); blocks];
        let mut changes = Vec::with_capacity(pieces.len());
        for piece in pieces.iter().filter(|piece| piece.weight > 0) {
            let (weight, low) = (piece.weight as f64, piece.low as f64);
            let mean = if piece.is_ramp { low + weight / 2.0 } else { low };
            let block = &mut by_block[piece.block as usize];
            block.weight += piece.weight;
            block.sum += mean * weight;
            if !piece.is_ramp {
                block.steps_weight += piece.weight;
                block.steps_sum += mean * weight;
            }
            if piece.is_ramp {
                changes.push((piece.low + piece.weight, Change::RampTop, piece.block));
                changes.push((piece.low, Change::RampBottom, piece.block));
            } else {
                changes.push((piece.low, Change::Step(piece.weight), piece.block));
            }
        }
        changes.sort_by_key(|(value, _, block)| (std::cmp::Reverse(*value), *block));
        (!changes.is_empty()).then(|| Extremes {
            changes: merge_steps(changes),
            by_block,
            first_draw_is_from_steps: false,
        })
    }

    /// A distribution whose first draw comes only from the steps, and all other draws from all pieces. `None` if no
    /// step has a weight.
    #[must_use]
    pub fn with_one_of_steps(pieces: &[Piece]) -> Option<Extremes> {
        let extremes = Extremes::new(pieces)?;
        let has_steps = extremes.by_block.iter().any(|block| block.steps_weight > 0);
        has_steps.then_some(Extremes { first_draw_is_from_steps: true, ..extremes })
    }

    /// The largest value of the distribution.
    #[must_use]
    pub fn greatest(&self) -> u64 {
        self.changes.first().map_or(0, |(value, _, _)| *value)
    }

    /// Mean of the largest of `number` draws. With a single draw, it is the mean of the distribution (of the steps,
    /// after [`Extremes::with_one_of_steps`]).
    #[must_use]
    pub fn mean_of_largest(&self, number: u64) -> f64 {
        self.mean(number, &vec![1; self.by_block.len()])
    }

    /// The quantile of the largest of `number` draws: the largest draw is at most this value with probability
    /// `probability`, in ]0, 1[.
    #[must_use]
    pub fn quantile_of_largest(&self, number: u64, probability: f64) -> f64 {
        let each_block_once = vec![1; self.by_block.len()];
        let mean = self.largest_mean(number, &each_block_once);
        let mut above = WeightAbove { value: self.greatest(), ..WeightAbove::default() };
        for (value, change, _) in &self.changes {
            let next = above.down_to(*value);
            // Between two values, only ramps add weight.
            let quantile_weight = mean.weight_above_quantile(probability, above.steps_weight);
            if above.ramps > 0 && next.weight as f64 >= quantile_weight {
                let missing_weight = quantile_weight - above.weight as f64;
                return above.value as f64 - missing_weight / above.ramps as f64;
            }
            above = next;
            above.apply(change, 1);
            if above.weight as f64 >= mean.weight_above_quantile(probability, above.steps_weight) {
                return above.value as f64;
            }
        }
        above.value as f64
    }

    /// The 95 % confidence interval of [`Extremes::mean_of_largest`], by resampling blocks with replacement (block
    /// bootstrap, percentiles: Efron & Tibshirani, ch. 8 and 13). The same `seed` gives the same interval. `None` with
    /// fewer than 8 blocks that are not empty.
    #[must_use]
    pub fn interval_of_largest(&self, number: u64, seed: u64) -> Option<(f64, f64)> {
        let has_weight = |block: &Block| {
            if self.first_draw_is_from_steps { block.steps_weight > 0 } else { block.weight > 0 }
        };
        let blocks = self.by_block.iter().enumerate();
        let filled: Vec<usize> =
            blocks.filter(|(_, block)| has_weight(block)).map(|(index, _)| index).collect();
        if filled.len() < BLOCKS_MIN {
            return None;
        }
        let mut random = Random::new(seed);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut block_counts = vec![0; self.by_block.len()];
                for _ in &filled {
                    block_counts[filled[random.below(filled.len() as u64) as usize]] += 1;
                }
                self.mean(number, &block_counts)
            })
            .collect();
        means.sort_by(f64::total_cmp);
        // Leaves out 2.5 % of the resamples at each end.
        let cut = RESAMPLES / 40;
        Some((means[cut], means[RESAMPLES - 1 - cut]))
    }

    /// The integral for the mean of the largest of `number` draws, before the first interval is added. Each block
    /// counts as often as `block_counts` says.
    fn largest_mean(&self, number: u64, block_counts: &[u64]) -> LargestMean {
        let (mut weight, mut steps_weight) = (0, 0);
        for (block, block_count) in self.by_block.iter().zip(block_counts) {
            weight += block.weight * block_count;
            steps_weight += block.steps_weight * block_count;
        }
        let draws_from_steps = u64::from(self.first_draw_is_from_steps);
        LargestMean {
            number: (number.max(1) - draws_from_steps) as f64,
            total: weight as f64,
            steps_total: self.first_draw_is_from_steps.then_some(steps_weight as f64),
            sum: 0.0,
        }
    }

    /// Mean of the largest of `number` draws. Each block counts as often as `block_counts` says.
    fn mean(&self, number: u64, block_counts: &[u64]) -> f64 {
        if number <= 1 {
            let weight_and_sum = |block: &Block| {
                if self.first_draw_is_from_steps {
                    (block.steps_weight, block.steps_sum)
                } else {
                    (block.weight, block.sum)
                }
            };
            let (mut weights, mut sums) = (0.0, 0.0);
            for (block, block_count) in self.by_block.iter().zip(block_counts) {
                let (weight, sum) = weight_and_sum(block);
                weights += weight as f64 * *block_count as f64;
                sums += sum * *block_count as f64;
            }
            // No block with a step was drawn: nothing is known about the steps.
            return if weights > 0.0 { sums / weights } else { 0.0 };
        }
        let mut mean = self.largest_mean(number, block_counts);
        let mut above = WeightAbove { value: self.greatest(), ..WeightAbove::default() };
        for (value, change, block) in &self.changes {
            let next = above.down_to(*value);
            mean.add_interval(&above, &next);
            above = next;
            if mean.is_exceeded(above.weight as f64) {
                break;
            }
            above.apply(change, block_counts[*block as usize]);
        }
        // From here down to 0, the largest draw exceeds every value: the integrand is 1.
        mean.sum + above.value as f64
    }
}

/// The weight above a value. Weights are whole numbers, so sums are exact.
#[derive(Clone, Copy, Debug, Default)]
struct WeightAbove {
    value: u64,
    /// Weight of all pieces above the value.
    weight: u64,
    /// Weight of the steps above the value.
    steps_weight: u64,
    /// Number of ramps that contain the value. Per unit below the value, the weight above grows by this number.
    ramps: u64,
}

impl WeightAbove {
    /// The weight above a lower value, if nothing changes between the two values.
    fn down_to(&self, value: u64) -> WeightAbove {
        let weight = self.weight + self.ramps * (self.value - value);
        WeightAbove { value, weight, ..*self }
    }

    /// Passes a change, whose block counts `block_count` times.
    fn apply(&mut self, change: &Change, block_count: u64) {
        match change {
            Change::Step(weight) => {
                self.weight += weight * block_count;
                self.steps_weight += weight * block_count;
            }
            Change::RampTop => self.ramps += block_count,
            Change::RampBottom => self.ramps -= block_count,
        }
    }
}

/// Merges neighbouring steps with the same value and block.
fn merge_steps(changes: Vec<(u64, Change, u32)>) -> Vec<(u64, Change, u32)> {
    let mut merged: Vec<(u64, Change, u32)> = Vec::with_capacity(changes.len());
    for change in changes {
        if let (
            Some((value, Change::Step(sum), block)),
            (next_value, Change::Step(weight), next_block),
        ) = (merged.last_mut(), &change)
            && (*value, *block) == (*next_value, *next_block)
        {
            *sum += weight;
        } else {
            merged.push(change);
        }
    }
    merged
}

/// The mean of the largest draw, as an integral over all values from the largest down. The integrand is 1 - (1 - S)^n,
/// or 1 - (1 - T)(1 - S)^n if one more draw comes only from the steps. T is the survival function of the steps.
struct LargestMean {
    /// Number of draws from all pieces: n.
    number: f64,
    /// Weight of all pieces.
    total: f64,
    /// Weight of all steps. `None`: no draw comes only from the steps.
    steps_total: Option<f64>,
    /// The integral over the intervals that were added.
    sum: f64,
}

impl LargestMean {
    /// Probability that the largest of `number` draws exceeds a value with the weight `weight_above` above it.
    fn exceedance(&self, number: f64, weight_above: f64) -> f64 {
        -(number * (-weight_above / self.total).ln_1p()).exp_m1()
    }

    /// Whether the largest draw exceeds a value with certainty: see [`CERTAIN_DRAWS`].
    fn is_exceeded(&self, weight_above: f64) -> bool {
        self.number * weight_above > CERTAIN_DRAWS * self.total
    }

    /// Probability that the draw from the steps exceeds a value with the weight `steps_weight` of steps above it. 0 if
    /// no draw comes only from the steps.
    fn steps_exceedance(&self, steps_weight: u64) -> f64 {
        self.steps_total.map_or(0.0, |steps_total| steps_weight as f64 / steps_total)
    }

    /// The weight above the value that the largest draw does not exceed with probability `probability`.
    fn weight_above_quantile(&self, probability: f64, steps_weight: u64) -> f64 {
        let others_probability = probability / (1.0 - self.steps_exceedance(steps_weight));
        if others_probability >= 1.0 {
            return 0.0;
        }
        // Solves (1 - S)^n = others_probability for S, without cancellation when S is close to 0.
        if self.number > 0.0 {
            -(others_probability.ln() / self.number).exp_m1() * self.total
        } else {
            f64::INFINITY
        }
    }

    /// Adds the integral over an interval in which the weight above grows linearly.
    fn add_interval(&mut self, upper: &WeightAbove, lower: &WeightAbove) {
        let width = (upper.value - lower.value) as f64;
        if width == 0.0 {
            return;
        }
        let (upper_weight, lower_weight) = (upper.weight as f64, lower.weight as f64);
        let growth = (lower_weight - upper_weight) / self.total;
        let exceedance = |weight_above: f64| self.exceedance(self.number, weight_above);
        let mean = if growth == 0.0 {
            exceedance(upper_weight)
        } else if self.number * growth < 1e-2 {
            // Simpson's rule avoids the cancellation when both ends are nearly equal.
            let middle_weight = (upper_weight + lower_weight) / 2.0;
            (exceedance(upper_weight) + 4.0 * exceedance(middle_weight) + exceedance(lower_weight))
                / 6.0
        } else {
            let exponent = self.number + 1.0;
            let difference =
                self.exceedance(exponent, lower_weight) - self.exceedance(exponent, upper_weight);
            1.0 - difference / growth / exponent
        };
        let steps_exceedance = self.steps_exceedance(upper.steps_weight);
        self.sum += width * (steps_exceedance + (1.0 - steps_exceedance) * mean);
    }
}
