//! The largest of many independent draws from one distribution: the time that a barrier of many
//! nodes waits. The result is exact, without sampling: with survival function S(x), the mean of the largest of n
//! draws is the integral of 1 - (1 - S(x))^n. Here, S consists of steps and straight lines (order statistics:
//! David & Nagaraja, Order Statistics, ch. 3).

use crate::random::Random;

/// A part of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The value of a step, or the lower end of a ramp.
    pub low: u64,
    pub weight: u64,
    /// Whether the piece is a ramp with uniform values from `low` to `low + weight`. Otherwise it is a step: all values
    /// are `low`.
    pub is_ramp: bool,
    /// The block of the measurement that contains the piece; for confidence intervals.
    pub block: u32,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// A weight at one value.
    Step(u64),
    /// The upper end of a ramp.
    RampTop,
    /// The lower end of a ramp.
    RampBottom,
}

/// A distribution whose extremes can be computed.
#[derive(Clone, Debug)]
pub struct Extremes {
    /// In descending order of values.
    changes: Vec<(u64, Change, u32)>,
    by_block: Vec<Block>,
    /// Whether one of the draws comes from the steps only.
    one_of_steps: bool,
}

/// The weight of a block: of all its pieces, and of its steps.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    weight: u64,
    /// Values times their weight.
    sum: f64,
    steps_weight: u64,
    steps_sum: f64,
}

/// With this expected number of draws above a value, the largest draw is not above it with probability e^-45.
const CERTAIN: f64 = 45.0;
/// Resamples of an interval.
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
            changes: joined(changes),
            by_block,
            one_of_steps: false,
        })
    }

    /// A distribution whose first draw comes only from the steps, and all other draws from all pieces. `None` if no step
    /// has a weight.
    #[must_use]
    pub fn with_one_of_steps(pieces: &[Piece]) -> Option<Extremes> {
        let extremes = Extremes::new(pieces)?;
        let has_steps = extremes.by_block.iter().any(|block| block.steps_weight > 0);
        has_steps.then_some(Extremes { one_of_steps: true, ..extremes })
    }

    #[must_use]
    pub fn greatest(&self) -> u64 {
        self.changes.first().map_or(0, |(value, _, _)| *value)
    }

    /// Mean of the largest of `number` draws. With one draw, it is the mean of the distribution.
    #[must_use]
    pub fn mean_of_largest(&self, number: u64) -> f64 {
        self.mean(number, &vec![1; self.by_block.len()])
    }

    /// The quantile of the largest of `number` draws at probability `chance`, in ]0, 1[.
    #[must_use]
    pub fn quantile_of_largest(&self, number: u64, chance: f64) -> f64 {
        let once = vec![1; self.by_block.len()];
        let area = self.area(number, &once);
        let mut state = State { at: self.greatest(), ..State::default() };
        for (value, change, _) in &self.changes {
            let next = state.down_to(*value);
            // Between two values only ramps grow.
            let wanted = area.wanted(chance, state.steps);
            if state.ramps > 0 && next.all as f64 >= wanted {
                return state.at as f64 - (wanted - state.all as f64) / state.ramps as f64;
            }
            state = next;
            state.apply(change, 1);
            if state.all as f64 >= area.wanted(chance, state.steps) {
                return state.at as f64;
            }
        }
        state.at as f64
    }

    /// The 95 % confidence interval of [`Extremes::mean_of_largest`], by resampling blocks with
    /// replacement (block bootstrap, percentiles: Efron & Tibshirani, ch. 8 and 13); `None` with
    /// fewer than 8 blocks that are not empty.
    #[must_use]
    pub fn interval_of_largest(&self, number: u64, seed: u64) -> Option<(f64, f64)> {
        let has_weight = |block: &Block| {
            if self.one_of_steps { block.steps_weight > 0 } else { block.weight > 0 }
        };
        let all = self.by_block.iter().enumerate();
        let filled: Vec<usize> =
            all.filter(|(_, block)| has_weight(block)).map(|(index, _)| index).collect();
        if filled.len() < BLOCKS_MIN {
            return None;
        }
        let mut random = Random::new(seed);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut times = vec![0; self.by_block.len()];
                for _ in &filled {
                    times[filled[random.below(filled.len() as u64) as usize]] += 1;
                }
                self.mean(number, &times)
            })
            .collect();
        means.sort_by(f64::total_cmp);
        let cut = RESAMPLES / 40;
        Some((means[cut], means[RESAMPLES - 1 - cut]))
    }

    fn area(&self, number: u64, times: &[u64]) -> Area {
        let (mut all, mut steps) = (0, 0);
        for (block, times) in self.by_block.iter().zip(times) {
            all += block.weight * times;
            steps += block.steps_weight * times;
        }
        let apart = u64::from(self.one_of_steps);
        let number = (number.max(1) - apart) as f64;
        Area {
            number,
            total: all as f64,
            steps: self.one_of_steps.then_some(steps as f64),
            sum: 0.0,
        }
    }

    /// Mean of the largest of `number` draws, with each block weighted by `times`.
    fn mean(&self, number: u64, times: &[u64]) -> f64 {
        if number <= 1 {
            let weight_and_sum = |block: &Block| {
                if self.one_of_steps {
                    (block.steps_weight, block.steps_sum)
                } else {
                    (block.weight, block.sum)
                }
            };
            let (mut weights, mut sums) = (0.0, 0.0);
            for (block, times) in self.by_block.iter().zip(times) {
                let (weight, sum) = weight_and_sum(block);
                weights += weight as f64 * *times as f64;
                sums += sum * *times as f64;
            }
            // No block with a step was drawn: nothing is known about the steps.
            return if weights > 0.0 { sums / weights } else { 0.0 };
        }
        let mut area = self.area(number, times);
        let mut state = State { at: self.greatest(), ..State::default() };
        for (value, change, block) in &self.changes {
            let next = state.down_to(*value);
            area.add(&state, &next);
            state = next;
            if area.is_certain(state.all as f64) {
                break;
            }
            state.apply(change, times[*block as usize]);
        }
        area.sum + state.at as f64
    }
}

/// The weight above a value. Weights are whole numbers, so that sums are exact.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    at: u64,
    all: u64,
    steps: u64,
    /// Number of ramps that contain the value. Per unit below it, the weight above grows by this number.
    ramps: u64,
}

impl State {
    fn down_to(&self, value: u64) -> State {
        State { at: value, all: self.all + self.ramps * (self.at - value), ..*self }
    }

    fn apply(&mut self, change: &Change, times: u64) {
        match change {
            Change::Step(weight) => {
                self.all += weight * times;
                self.steps += weight * times;
            }
            Change::RampTop => self.ramps += times,
            Change::RampBottom => self.ramps -= times,
        }
    }
}

/// Merges steps of the same value and block.
fn joined(changes: Vec<(u64, Change, u32)>) -> Vec<(u64, Change, u32)> {
    let mut joined: Vec<(u64, Change, u32)> = Vec::with_capacity(changes.len());
    for change in changes {
        if let (Some((value, Change::Step(sum), block)), (next, Change::Step(weight), of)) =
            (joined.last_mut(), &change)
            && (*value, *block) == (*next, *of)
        {
            *sum += weight;
        } else {
            joined.push(change);
        }
    }
    joined
}

/// The integral of 1 - (1 - S)^n, or of 1 - (1 - T)(1 - S)^n with T the survival of the steps.
struct Area {
    number: f64,
    total: f64,
    /// Weight of all steps. `None`: no draw comes only from the steps.
    steps: Option<f64>,
    sum: f64,
}

impl Area {
    /// Probability that the largest of `number` draws exceeds a value with `above` of the weight above it.
    fn chance(&self, number: f64, above: f64) -> f64 {
        -(number * (-above / self.total).ln_1p()).exp_m1()
    }

    fn is_certain(&self, above: f64) -> bool {
        self.number * above > CERTAIN * self.total
    }

    /// Probability that the draw from the steps exceeds a value, if steps of weight `steps` are above it.
    fn apart(&self, steps: u64) -> f64 {
        self.steps.map_or(0.0, |all| steps as f64 / all)
    }

    /// The weight above the value that the largest draw does not exceed with probability `chance`.
    fn wanted(&self, chance: f64, steps: u64) -> f64 {
        let chance_of_others = chance / (1.0 - self.apart(steps));
        if chance_of_others >= 1.0 {
            return 0.0;
        }
        // Solves (1 - S)^n = chance_of_others for S, without cancellation when S is close to 0.
        if self.number > 0.0 {
            -(chance_of_others.ln() / self.number).exp_m1() * self.total
        } else {
            f64::INFINITY
        }
    }

    /// Adds the integral over an interval with linear growth of the weight above.
    fn add(&mut self, from: &State, to: &State) {
        let width = (from.at - to.at) as f64;
        if width == 0.0 {
            return;
        }
        let (above, next) = (from.all as f64, to.all as f64);
        let growth = (next - above) / self.total;
        let chance_above = |above: f64| self.chance(self.number, above);
        let mean = if growth == 0.0 {
            chance_above(above)
        } else if self.number * growth < 1e-2 {
            // Simpson's rule avoids the cancellation when both ends are nearly equal.
            (chance_above(above) + 4.0 * chance_above((above + next) / 2.0) + chance_above(next))
                / 6.0
        } else {
            let more = self.number + 1.0;
            1.0 - (self.chance(more, next) - self.chance(more, above)) / growth / more
        };
        let apart = self.apart(from.steps);
        self.sum += width * (apart + (1.0 - apart) * mean);
    }
}
