//! The largest of many independent draws from one distribution: what a barrier of many nodes waits
//! for. Nothing is drawn: with survival S(x), the mean of the largest of n is the integral of
//! 1 - (1 - S(x))^n, and here S is made of steps and straight lines (order statistics: David &
//! Nagaraja, Order Statistics, ch. 3).

use crate::random::Random;

/// A part of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The value, or the least of them.
    pub low: u64,
    /// How much of the whole it is.
    pub weight: u64,
    /// Whether its values are spread evenly over `low..low + weight`, or all are `low`.
    pub is_ramp: bool,
    /// The stretch of the measurement from which it comes; for intervals.
    pub block: u32,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// So much weight at one value.
    Step(u64),
    /// Seen from above, a ramp begins.
    RampTop,
    /// And ends.
    RampBottom,
}

/// A distribution whose extremes can be asked for.
#[derive(Clone, Debug)]
pub struct Extremes {
    /// From the greatest value down.
    changes: Vec<(u64, Change, u32)>,
    by_block: Vec<Block>,
    /// Whether one of the draws is from the steps alone.
    one_of_steps: bool,
}

/// What is in a block: of all pieces, and of its steps.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    weight: u64,
    /// Values times their weight.
    sum: f64,
    steps_weight: u64,
    steps_sum: f64,
}

/// Beyond this many expected draws above a value, the largest of them is above it, too: e^-45.
const CERTAIN: f64 = 45.0;
/// Resamples of an interval.
const RESAMPLES: usize = 200;
/// Fewest blocks from which an interval is drawn.
const BLOCKS_MIN: usize = 8;

impl Extremes {
    /// The distribution that the pieces make; `None` when they weigh nothing.
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

    /// The same, with one of the draws from the steps alone, and the others from all pieces; `None` when
    /// no step weighs anything.
    #[must_use]
    pub fn with_one_of_steps(pieces: &[Piece]) -> Option<Extremes> {
        let extremes = Extremes::new(pieces)?;
        let has_steps = extremes.by_block.iter().any(|block| block.steps_weight > 0);
        has_steps.then_some(Extremes { one_of_steps: true, ..extremes })
    }

    /// The greatest value of all.
    #[must_use]
    pub fn greatest(&self) -> u64 {
        self.changes.first().map_or(0, |(value, _, _)| *value)
    }

    /// Mean of the largest of `number` draws; of one draw, the mean.
    #[must_use]
    pub fn mean_of_largest(&self, number: u64) -> f64 {
        self.mean(number, &vec![1; self.by_block.len()])
    }

    /// What the largest of `number` draws does not exceed with chance `chance`, in ]0, 1[.
    #[must_use]
    pub fn quantile_of_largest(&self, number: u64, chance: f64) -> f64 {
        let once = vec![1; self.by_block.len()];
        let area = self.area(number, &once);
        let mut state = State { at: self.greatest(), ..State::default() };
        for (value, change, _) in &self.changes {
            let next = state.down_to(*value);
            // Within a stretch only ramps grow.
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

    /// The 95 % interval of [`Extremes::mean_of_largest`], by drawing blocks with replacement (block
    /// bootstrap, percentiles: Efron & Tibshirani, ch. 8 and 13); `None` with fewer than 8 blocks that hold
    /// something.
    #[must_use]
    pub fn interval_of_largest(&self, number: u64, seed: u64) -> Option<(f64, f64)> {
        let holds = |block: &Block| match self.one_of_steps {
            true => block.steps_weight > 0,
            false => block.weight > 0,
        };
        let all = self.by_block.iter().enumerate();
        let filled: Vec<usize> = all.filter(|(_, block)| holds(block)).map(|(at, _)| at).collect();
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

    /// With each block taken so many times.
    fn mean(&self, number: u64, times: &[u64]) -> f64 {
        if number <= 1 {
            let of_block = |block: &Block| match self.one_of_steps {
                true => (block.steps_weight, block.steps_sum),
                false => (block.weight, block.sum),
            };
            let (mut weights, mut sums) = (0.0, 0.0);
            for (block, times) in self.by_block.iter().zip(times) {
                let (weight, sum) = of_block(block);
                weights += weight as f64 * *times as f64;
                sums += sum * *times as f64;
            }
            // Blocks without any step, each time: nothing is known of them.
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

/// What weighs above a value: weights are whole numbers, so what is added up is exact.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    at: u64,
    all: u64,
    steps: u64,
    /// Ramps that reach over the value: what is above grows by so much to the next value below.
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

/// Steps of the same value and block as one.
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
    /// Weight of all steps, where one more draw is from them.
    steps: Option<f64>,
    sum: f64,
}

impl Area {
    /// Chance that the largest of `number` is above a value that `above` of the weight is above.
    fn chance(&self, number: f64, above: f64) -> f64 {
        -(number * (-above / self.total).ln_1p()).exp_m1()
    }

    fn is_certain(&self, above: f64) -> bool {
        self.number * above > CERTAIN * self.total
    }

    /// Chance that the draw from the steps alone is above a value that so much of them is above.
    fn apart(&self, steps: u64) -> f64 {
        self.steps.map_or(0.0, |all| steps as f64 / all)
    }

    /// How much must be above a value for the largest to be at most there with that chance, or less.
    fn wanted(&self, chance: f64, steps: u64) -> f64 {
        let left = chance / (1.0 - self.apart(steps));
        if left >= 1.0 {
            return 0.0;
        }
        // (1 - S)^n = left, by U^(1/n), and where that is near to 1 without losing its digits.
        if self.number > 0.0 {
            -(left.ln() / self.number).exp_m1() * self.total
        } else {
            f64::INFINITY
        }
    }

    /// A stretch over which what is above grows evenly.
    fn add(&mut self, from: &State, to: &State) {
        let width = (from.at - to.at) as f64;
        if width == 0.0 {
            return;
        }
        let (above, next) = (from.all as f64, to.all as f64);
        let growth = (next - above) / self.total;
        let of = |above: f64| self.chance(self.number, above);
        let mean = if growth == 0.0 {
            of(above)
        } else if self.number * growth < 1e-2 {
            // Where both ends are nearly alike their difference has no digits left: Simpson's rule.
            (of(above) + 4.0 * of((above + next) / 2.0) + of(next)) / 6.0
        } else {
            let more = self.number + 1.0;
            1.0 - (self.chance(more, next) - self.chance(more, above)) / growth / more
        };
        let apart = self.apart(from.steps);
        self.sum += width * (apart + (1.0 - apart) * mean);
    }
}
