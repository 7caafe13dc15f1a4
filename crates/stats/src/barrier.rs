//! How long a barrier waits for the slowest of many nodes whose detours are independent. `noise scale`
//! (`lab/src/noise/scale`) describes a job of nodes and barriers, and tests this file against a replay.
//!
//! A node works between two barriers. A detour is an interruption of this work. The delay of a node is the time that it
//! loses to detours between two barriers. A start is the moment at which a barrier opens: a node starts at work, or in a
//! detour. All times are in ns.
//!
//! A node that has waited for the time w is in a detour if the detour began during w and has not ended. So the delays
//! depend on the wait before them, and the wait depends on the largest delay before it: the waits at successive barriers
//! are a Markov chain. Each wait has the distribution of a node's delay after it, and of the largest delay of all nodes
//! (order statistics: David & Nagaraja, Order Statistics, ch. 3). The results are means over the chain's stationary
//! distribution. They are computed without simulation, so a million nodes take no longer than two. Only confidence
//! intervals use random numbers.
//!
//! What is approximate: every node but the slowest is assumed to have the same delay, the mean over starts at work whose
//! delay is not above the largest; a node's next detour does not depend on when its last one was; and delays and waits
//! lie on grids (`VALUE_RATIO`, `WAIT_RATIO`).

use crate::interval::t_95;
use crate::random::Random;

/// Consecutive start times whose delays are equal, or fall by 1 ns for each ns in a detour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// At work: the delay. In a detour: the delay that follows after the detour has ended.
    pub low: u64,
    /// How long this interval of start times is.
    pub weight: u64,
    /// Whether the starts are in a detour, whose length is `weight`. The rest of the detour adds to the delay.
    pub is_in_detour: bool,
    /// The block of the measurement that contains the piece. Confidence intervals resample blocks.
    pub block: u32,
}

/// Ratio of successive long waits in the grid. It is small, because the probability that none of many nodes is in a detour
/// falls steeply with the wait. The longest wait is just above the longest detour: a longer one makes no difference.
const WAIT_RATIO: f64 = 1.05;
/// Waits below the longest wait divided by this number are short. Their ratio is [`SHORT_WAIT_RATIO`].
const LONG_WAIT_RANGE: f64 = 20.0;
const SHORT_WAIT_RATIO: f64 = 1.6;
/// The grid goes down to the longest wait divided by this number, or further if a detour is shorter, but not below 1 ns.
const WAIT_RANGE: f64 = 1e4;
/// Ratio of successive delays at which distributions are kept.
const VALUE_RATIO: f64 = 1.02;
/// If there are no more different delays than this number, all of them are kept exactly.
const EXACT_VALUES_MAX: usize = 64;
/// Number of bootstrap resamples for an interval.
const RESAMPLES: usize = 200;
/// Minimum number of blocks of each CPU for a confidence interval: blocks are drawn within a CPU.
const BLOCKS_OF_CPU_MIN: usize = 4;
/// Half the width of the normal distribution's 95 % interval, in standard deviations.
const NORMAL_95: f64 = 1.959_964;
/// Minimum number of blocks for a confidence interval. Intervals from fewer blocks are too narrow.
const BLOCKS_MIN: usize = 16;

/// The delays of one node, by the wait before them, by CPU and by block.
#[derive(Clone, Debug)]
pub struct Delays {
    /// Delays in ascending order. The first is 0.
    values: Vec<f64>,
    /// Waits in ascending order. The first is 0.
    waits: Vec<f64>,
    /// The sums of each block of each CPU. A block without work is left out.
    cpus: Vec<Vec<Sums>>,
}

/// Sums over pieces. A piece whose delay is between two values of the grid is divided between them, so
/// that the mean is unchanged.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// Length of the starts at work, by delay.
    at_work: Vec<f64>,
    /// Number of detours, by the delay of a start at the detour's beginning, which is the longest.
    detours: Vec<f64>,
    /// Number of detours, by the shortest delay of a start in the detour if it began during the wait.
    /// `values.len()` numbers for each wait.
    shortest_in_detour: Vec<f64>,
    /// By wait: the number of detours that are at least as long as the wait, times the wait.
    in_longer_detours: Vec<f64>,
}

impl Sums {
    fn new(values: usize, waits: usize) -> Sums {
        Sums {
            at_work: vec![0.0; values],
            detours: vec![0.0; values],
            shortest_in_detour: vec![0.0; values * waits],
            in_longer_detours: vec![0.0; waits],
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
        add(&mut self.shortest_in_detour, &other.shortest_in_detour);
        add(&mut self.in_longer_detours, &other.in_longer_detours);
    }
}

impl Delays {
    /// Builds the sums from the pieces of each CPU. A node is any of the CPUs, with equal probability. A block without a
    /// start at work is left out, with its detours. `None` without a CPU, or if a CPU has no start at work.
    #[must_use]
    pub fn new(cpus: &[Vec<Piece>]) -> Option<Delays> {
        let values = values_of(cpus);
        let waits = waits_of(cpus);
        let sums_of_blocks = |pieces: &Vec<Piece>| {
            let count = pieces.iter().map(|piece| piece.block).max()? as usize + 1;
            let mut blocks = vec![Sums::new(values.len(), waits.len()); count];
            for piece in pieces.iter().filter(|piece| piece.weight > 0) {
                let block = &mut blocks[piece.block as usize];
                let (low, weight) = (piece.low as f64, piece.weight as f64);
                if !piece.is_in_detour {
                    Position::in_list(low, &values).add(&mut block.at_work, weight);
                    continue;
                }
                Position::in_list(low + weight, &values).add(&mut block.detours, 1.0);
                // A detour that began during the wait has lasted for at most the wait.
                let by_wait = block.shortest_in_detour.chunks_mut(values.len());
                for ((wait, sums), longer) in
                    waits.iter().zip(by_wait).zip(&mut block.in_longer_detours)
                {
                    Position::in_list(low + (weight - wait).max(0.0), &values).add(sums, 1.0);
                    *longer += if weight >= *wait { *wait } else { 0.0 };
                }
            }
            blocks.retain(|block| block.at_work.iter().any(|weight| *weight > 0.0));
            (!blocks.is_empty()).then_some(blocks)
        };
        let cpus = cpus.iter().map(sums_of_blocks).collect::<Option<Vec<_>>>()?;
        (!cpus.is_empty()).then_some(Delays { values, waits, cpus })
    }

    /// The delays over all blocks.
    #[must_use]
    pub fn of_a_node(&self) -> Node {
        self.node_from_blocks(|blocks| vec![1; blocks])
    }

    /// The delays over blocks that are drawn with replacement within each CPU: resamples for confidence intervals (block
    /// bootstrap: Efron & Tibshirani, ch. 8 and 13). The same `seed` gives the same resamples. `None` with fewer than 16
    /// blocks of all CPUs, or fewer than 4 of one.
    #[must_use]
    pub fn resamples(&self, seed: u64) -> Option<Resamples> {
        let blocks: usize = self.cpus.iter().map(Vec::len).sum();
        let fewest = self.cpus.iter().map(Vec::len).min()?;
        if blocks < BLOCKS_MIN || fewest < BLOCKS_OF_CPU_MIN {
            return None;
        }
        let mut random = Random::new(seed);
        let mut draw = |blocks: usize| {
            let mut times = vec![0; blocks];
            (0..blocks).for_each(|_| times[random.below(blocks as u64) as usize] += 1);
            times
        };
        let nodes = (0..RESAMPLES).map(|_| self.node_from_blocks(&mut draw)).collect();
        // Draws within a CPU vary less than its blocks do, by this factor.
        let small_sample = (fewest as f64 / (fewest - 1) as f64).sqrt();
        let widening = t_95((blocks - self.cpus.len()) as u64)? / NORMAL_95 * small_sample;
        Some(Resamples { nodes, widening })
    }

    /// The delays of a node whose blocks count several times or not at all. `times_of_blocks` returns for a CPU with this many
    /// blocks how often each of them counts.
    fn node_from_blocks(&self, mut times_of_blocks: impl FnMut(usize) -> Vec<u32>) -> Node {
        let share = 1.0 / self.cpus.len() as f64;
        let nothing = Distribution {
            above: vec![0.0; self.values.len()],
            from_next: vec![0.0; self.values.len()],
        };
        let mut after_waits = vec![nothing; self.waits.len()];
        let mut at_work = vec![0.0; self.values.len()];
        for blocks in &self.cpus {
            let mut sums = Sums::new(self.values.len(), self.waits.len());
            let times_of_blocks = times_of_blocks(blocks.len());
            for (block, times) in blocks.iter().zip(times_of_blocks).filter(|(_, times)| *times > 0)
            {
                sums.add(block, f64::from(times));
            }
            let length_at_work: f64 = sums.at_work.iter().sum();
            at_work
                .iter_mut()
                .zip(&sums.at_work)
                .for_each(|(sum, weight)| *sum += weight / length_at_work);
            let by_wait = sums.shortest_in_detour.chunks(self.values.len());
            let parts_by_wait = by_wait.zip(&sums.in_longer_detours);
            for (mixed, (shortest, in_longer_detours)) in after_waits.iter_mut().zip(parts_by_wait)
            {
                mixed.add(
                    &delay_after_wait(&self.values, &sums, shortest, *in_longer_detours),
                    share,
                );
            }
        }
        Node {
            means_up_to: means_up_to(&self.values, &at_work),
            values: self.values.clone(),
            waits: self.waits.clone(),
            after_waits,
        }
    }
}

/// Resamples of the delays of a node.
#[derive(Clone, Debug)]
pub struct Resamples {
    nodes: Vec<Node>,
    /// How much wider than the percentiles an interval is, because blocks are few: by Student's t, and because draws vary
    /// less than the blocks do.
    widening: f64,
}

impl Resamples {
    /// The 95 % interval of the mean of [`Node::slowest`], whose estimate is `mean`. `None` without resamples.
    #[must_use]
    pub fn interval(&self, nodes: u64, barrier_ns: u64, mean: f64) -> Option<(f64, f64)> {
        let slowest = self.nodes.iter().map(|node| node.slowest(nodes, barrier_ns).mean());
        let mut means: Vec<f64> = slowest.collect();
        means.sort_by(f64::total_cmp);
        let cut = means.len() / 40;
        let (low, high) = (*means.get(cut)?, *means.get(means.len().checked_sub(1 + cut)?)?);
        let widened = |end: f64| mean + (end - mean) * self.widening;
        Some((widened(low).max(0.0).min(mean), widened(high).max(mean)))
    }
}

/// The grid of delays: 0, a geometric series from the longest delay to somewhat below the shortest, and the
/// exact delays if they are few.
fn values_of(cpus: &[Vec<Piece>]) -> Vec<f64> {
    let pieces = || cpus.iter().flatten().filter(|piece| piece.weight > 0);
    let largest_delay =
        |piece: &Piece| piece.low + if piece.is_in_detour { piece.weight } else { 0 };
    let mut distinct_values: Vec<u64> = Vec::new();
    let (mut shortest, mut longest) = (u64::MAX, 0);
    for value in pieces().flat_map(|piece| [piece.low, largest_delay(piece)]) {
        longest = longest.max(value);
        shortest = if value > 0 { shortest.min(value) } else { shortest };
        if distinct_values.len() <= EXACT_VALUES_MAX && !distinct_values.contains(&value) {
            distinct_values.push(value);
        }
    }
    if distinct_values.len() > EXACT_VALUES_MAX {
        distinct_values.clear();
    }
    let mut values: Vec<f64> = distinct_values.into_iter().map(|value| value as f64).collect();
    values.push(0.0);
    // Rests of detours are shorter than the shortest detour.
    let smallest_value = shortest as f64 / VALUE_RATIO.powi(40);
    values.extend(
        descending(longest as f64, VALUE_RATIO)
            .take_while(|value| *value >= smallest_value.max(1.0)),
    );
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// The grid of waits: the states of the chain.
fn waits_of(cpus: &[Vec<Piece>]) -> Vec<f64> {
    let lengths = || cpus.iter().flatten().filter(|piece| piece.is_in_detour && piece.weight > 0);
    let longest = lengths().map(|piece| piece.weight).max().unwrap_or(0) as f64;
    let shortest = lengths().map(|piece| piece.weight).min().unwrap_or(0) as f64;
    let longest_short = longest / LONG_WAIT_RANGE;
    let long_waits =
        descending(longest, WAIT_RATIO).take_while(|wait| *wait > longest_short && *wait >= 1.0);
    let smallest_wait = (shortest / SHORT_WAIT_RATIO).min(longest / WAIT_RANGE).max(1.0);
    let short_waits =
        descending(longest_short, SHORT_WAIT_RATIO).take_while(|wait| *wait >= smallest_wait);
    // After the longest of these, every detour that began during the wait can have ended.
    let beyond_longest = (longest > 0.0).then_some(longest * WAIT_RATIO);
    let mut waits: Vec<f64> =
        beyond_longest.into_iter().chain(long_waits).chain(short_waits).chain([0.0]).collect();
    waits.reverse();
    waits
}

/// The infinite geometric series from `largest` down: each number is the one before divided by `ratio`.
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
    fn in_list(number: f64, list: &[f64]) -> Position {
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

/// The distribution of a delay.
#[derive(Clone, Debug)]
struct Distribution {
    /// By value: the probability of a larger delay.
    above: Vec<f64>,
    /// By value: the probability of a delay of at least the next value. Between the two values, the probability falls
    /// linearly from `above` to this.
    from_next: Vec<f64>,
}

impl Distribution {
    /// Adds `other`, multiplied by `share`.
    fn add(&mut self, other: &Distribution, share: f64) {
        let add = |sums: &mut [f64], others: &[f64]| {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other * share);
        };
        add(&mut self.above, &other.above);
        add(&mut self.from_next, &other.from_next);
    }
}

/// The distribution of a node's delay after a wait. `shortest` and `in_longer_detours` are the parts of [`Sums`] for this
/// wait: `shortest` by value, as `values`.
fn delay_after_wait(
    values: &[f64],
    sums: &Sums,
    shortest: &[f64],
    in_longer_detours: f64,
) -> Distribution {
    let value_count = values.len();
    // By value: the length of the starts with a larger delay.
    let mut in_detour = vec![0.0; value_count];
    let mut at_work = vec![0.0; value_count];
    // The number of detours that have starts with delays between a value and the next.
    let mut detour_count = 0.0;
    for index in (0..value_count - 1).rev() {
        let next = index + 1;
        detour_count += sums.detours[next] - shortest[next];
        in_detour[index] = in_detour[next] + detour_count * (values[next] - values[index]);
        at_work[index] = at_work[next] + sums.at_work[next];
    }
    // `at_work[0]` lacks starts with a delay of 0. In a detour, every delay is above 0.
    let (all_at_work, all_in_detour) = (at_work[0] + sums.at_work[0], in_detour[0]);
    // Probability that a node is at work when the barrier opens. A detour at least as long as the wait that begins during
    // the wait still runs then. Detours begin at random while the node works, so none of these has begun with the
    // probability e^-(mean number). A shorter detour runs with the probability that it has at any time: its share of the time.
    let in_shorter_detours = (all_in_detour - in_longer_detours).max(0.0);
    let work_probability =
        (-in_longer_detours / all_at_work).exp() * all_at_work / (all_at_work + in_shorter_detours);
    let work_scale = work_probability / all_at_work;
    let detour_scale =
        if all_in_detour > 0.0 { (1.0 - work_probability) / all_in_detour } else { 0.0 };
    let share =
        |work: f64, detour: f64| (work * work_scale + detour * detour_scale).clamp(0.0, 1.0);
    let next_in_detour = |index: usize| in_detour.get(index + 1).copied().unwrap_or(0.0);
    Distribution {
        above: (0..value_count).map(|index| share(at_work[index], in_detour[index])).collect(),
        from_next: (0..value_count)
            .map(|index| share(at_work[index], next_in_detour(index)))
            .collect(),
    }
}

/// By value: the mean of the delays up to the value.
fn means_up_to(values: &[f64], weights: &[f64]) -> Vec<f64> {
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
    means_up_to: Vec<f64>,
}

/// The delay of the slowest of many nodes.
#[derive(Clone, Debug)]
pub struct Slowest {
    values: Vec<f64>,
    distribution: Distribution,
    mean: f64,
}

impl Node {
    /// The largest delay of `nodes` independent nodes from one barrier to the next. A barrier opens `barrier_ns` after the
    /// last node has reached it, which is no part of the delay. No nodes count as one.
    #[must_use]
    pub fn slowest(&self, nodes: u64, barrier_ns: u64) -> Slowest {
        let barrier_ns = barrier_ns as f64;
        let other_count = nodes.saturating_sub(1) as f64;
        // The node that reached the barrier last has waited for `barrier_ns` only.
        let last = self.delay_after(barrier_ns);
        if other_count == 0.0 {
            let (distribution, mean) = self.largest_delay(&last, &last, other_count);
            return Slowest { values: self.values.clone(), distribution, mean };
        }
        let states: Vec<(Distribution, f64)> = self
            .after_waits
            .iter()
            .map(|other| self.largest_delay(&last, other, other_count))
            .collect();
        let next_waits = self.next_waits(barrier_ns);
        let transitions: Vec<Vec<f64>> = states
            .iter()
            .map(|(distribution, _)| self.waits_after(distribution, &next_waits))
            .collect();
        let shares = stationary_distribution(transitions);
        let nothing = Distribution {
            above: vec![0.0; self.values.len()],
            from_next: vec![0.0; self.values.len()],
        };
        let mut slowest = Slowest { values: self.values.clone(), distribution: nothing, mean: 0.0 };
        for ((distribution, mean), share) in states.iter().zip(&shares) {
            slowest.distribution.add(distribution, *share);
            slowest.mean += mean * share;
        }
        slowest
    }

    /// The delays of a node after any wait.
    fn delay_after(&self, wait_ns: f64) -> Distribution {
        let position = Position::in_list(wait_ns, &self.waits);
        let lower = &self.after_waits[position.lower];
        let upper = self.after_waits.get(position.lower + 1).unwrap_or(lower);
        let mix = |lower: &[f64], upper: &[f64]| -> Vec<f64> {
            lower.iter().zip(upper).map(|(l, u)| position.interpolate(*l, *u)).collect()
        };
        Distribution {
            above: mix(&lower.above, &upper.above),
            from_next: mix(&lower.from_next, &upper.from_next),
        }
    }

    /// The largest delay of the last node and `other_count` other nodes, from the distributions of a node's delay: its
    /// distribution and mean, ns.
    fn largest_delay(
        &self,
        last: &Distribution,
        other: &Distribution,
        other_count: f64,
    ) -> (Distribution, f64) {
        let value_count = self.values.len();
        let (mut above, mut from_next) = (vec![0.0; value_count], vec![0.0; value_count]);
        let mut mean = 0.0;
        for index in 0..value_count {
            let probabilities = [other.above[index], other.from_next[index]];
            let exceedances = probabilities.map(|probability| exceedance(probability, other_count));
            // The probability that the last node's delay is larger, or that of any other node.
            let any_larger = |of_last: f64, of_others: f64| of_last + (1.0 - of_last) * of_others;
            above[index] = any_larger(last.above[index], exceedances[0]);
            from_next[index] = any_larger(last.from_next[index], exceedances[1]);
            if let Some(next_value) = self.values.get(index + 1) {
                let of_last = (last.above[index] + last.from_next[index]) / 2.0;
                let of_others = mean_exceedance(probabilities, exceedances, other_count);
                mean += (next_value - self.values[index]) * any_larger(of_last, of_others);
            }
        }
        (Distribution { above, from_next }, mean)
    }

    /// By value: how long the other nodes wait if the largest delay is this value, and if it is
    /// between this value and the next.
    fn next_waits(&self, barrier_ns: f64) -> Vec<[Position; 2]> {
        let wait = |value: f64, index: usize| {
            Position::in_list(barrier_ns + (value - self.means_up_to[index]).max(0.0), &self.waits)
        };
        let of_value = |(index, value): (usize, &f64)| {
            let next = self.values.get(index + 1).unwrap_or(value);
            [wait(*value, index), wait((value + next) / 2.0, index)]
        };
        self.values.iter().enumerate().map(of_value).collect()
    }

    /// The probability of each wait of a node that is not the last, at the next barrier, from the distribution of the
    /// largest delay before it.
    fn waits_after(&self, largest: &Distribution, next_waits: &[[Position; 2]]) -> Vec<f64> {
        let mut probabilities = vec![0.0; self.waits.len()];
        let mut add = |position: Position, probability: f64| {
            position.add(&mut probabilities, probability.max(0.0));
        };
        let mut at_least = 1.0;
        for (index, [of_value, between]) in next_waits.iter().enumerate() {
            add(*of_value, at_least - largest.above[index]);
            add(*between, largest.above[index] - largest.from_next[index]);
            at_least = largest.from_next[index];
        }
        probabilities
    }
}

/// The probability that at least one of `number` independent delays is above a value, if each is
/// above it with `probability`.
fn exceedance(probability: f64, number: f64) -> f64 {
    if number == 0.0 || probability == 0.0 {
        0.0
    } else {
        // The mean over several CPUs can be rounded to more than 1.
        -(number * (-probability.min(1.0)).ln_1p()).exp_m1()
    }
}

/// The mean of [`exceedance`] while the probability falls linearly from the first to the second of `probabilities`.
/// `exceedances`: its values at the two ends.
fn mean_exceedance(probabilities: [f64; 2], exceedances: [f64; 2], number: f64) -> f64 {
    let growth = probabilities[0] - probabilities[1];
    if number * growth < 1e-2 {
        // Nearly linear. The formula below would subtract nearly equal numbers.
        return exceedances.iter().sum::<f64>() / 2.0;
    }
    // The exceedance for `number + 1` delays.
    let with_one_more =
        |end: usize| exceedances[end] + (1.0 - exceedances[end]) * probabilities[end];
    1.0 - (with_one_more(0) - with_one_more(1)) / growth / (number + 1.0)
}

/// The stationary distribution of a Markov chain: the share of time in each state. `chain`: from each state's row the
/// probabilities of the next state. Uses the elimination of Grassmann, Taksar and Heyman (1985), which subtracts nothing.
fn stationary_distribution(mut chain: Vec<Vec<f64>>) -> Vec<f64> {
    let state_count = chain.len();
    let mut first_state = 0;
    for last_state in (1..state_count).rev() {
        let leaving_probability: f64 = chain[last_state][..last_state].iter().sum();
        if leaving_probability <= 0.0 {
            // It never leads to an earlier state, not even through later ones. So the earlier ones are left for good.
            first_state = last_state;
            break;
        }
        let last_row = chain[last_state].clone();
        for row in &mut chain[..last_state] {
            row[last_state] /= leaving_probability;
            let to_last = row[last_state];
            for (entry, onward) in row[..last_state].iter_mut().zip(&last_row) {
                *entry += to_last * onward;
            }
        }
    }
    let mut shares = vec![0.0; state_count];
    shares[first_state] = 1.0;
    for state in first_state + 1..state_count {
        shares[state] = (first_state..state).map(|from| shares[from] * chain[from][state]).sum();
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

    /// The delay, in ns, that the slowest node does not exceed with `probability`, which is
    /// between 0 and 1, both excluded.
    #[must_use]
    pub fn quantile(&self, probability: f64) -> f64 {
        let exceeded = 1.0 - probability;
        let Distribution { above, from_next } = &self.distribution;
        for (index, bounds) in self.values.windows(2).enumerate() {
            if above[index] <= exceeded {
                return bounds[0];
            }
            if from_next[index] <= exceeded {
                let share = (above[index] - exceeded) / (above[index] - from_next[index]);
                return bounds[0] + share * (bounds[1] - bounds[0]);
            }
        }
        self.values.last().copied().unwrap_or(0.0)
    }
}
