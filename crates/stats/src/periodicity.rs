//! Periods in a stream of events. `noise` searches the detours of a CPU for clocks, such as the
//! timer tick (table `periods`).
//!
//! If events follow a clock with period P, their phases are concentrated. The phase is the fraction of P at which an
//! event comes. Phases are treated as unit vectors. The length of their mean is the mean resultant length R: 1 if all
//! phases are equal, about 0 if they are uniform (Mardia and Jupp, Directional Statistics, ch. 6: Rayleigh's test).
//!
//! The search has four steps. The Fourier transform of the stream gives candidates. The exact times of the events
//! refine each candidate. A clock also has harmonics: the fundamental is the lowest frequency that is nearly as strong
//! as the strongest. A slow clock has more harmonics than there are candidates, so integer fractions of the lowest of
//! them are tried, too. The events that follow this clock are removed, and the search starts again with the rest.

use std::f64::consts::TAU;

use crate::fourier::power;
use crate::random::Random;

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Time in ns, from any origin.
    pub at_ns: u64,
    /// Weight of the event, such as its length: at least 0. 1 if all events count equally.
    pub weight: f64,
}

/// The range of a search, and the limits that a reported period keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The shortest period, ns.
    pub period_ns_min: u64,
    /// The longest period of a candidate, ns. A slower clock is found by its harmonics. It is reported if its period is
    /// at most an eighth of the stream's length.
    pub period_ns_max: u64,
    /// Maximum number of periods to find.
    pub periods_max: usize,
    /// The smallest mean resultant length R of a period that is reported.
    pub resultant_length_min: f64,
    /// The largest p-value of a period that is reported.
    pub p_value_max: f64,
}

impl Search {
    /// Length of the part of a stream that the search covers, from the first event, ns. The search ignores later events.
    #[must_use]
    pub fn covered_ns(&self) -> u64 {
        let periods = CELLS_MAX as u64 / 2 / CELLS_PER_PERIOD_MIN;
        self.period_ns_min.saturating_mul(periods)
    }
}

/// A period that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    pub period_ns: f64,
    /// Half the width of the period's 95 % confidence interval, ns.
    pub half_width_ns: f64,
    /// Mean resultant length R of the phases of all events searched, 0 to 1.
    pub mean_resultant_length: f64,
    /// Probability of such an R by chance, corrected for the number of frequencies searched.
    pub p_value: f64,
    /// Number of events searched. Events that follow a stronger period are not searched again.
    pub searched: usize,
    /// Indices of the searched events that follow this period, in the stream that the caller gave.
    pub locked: Vec<usize>,
}

/// Minimum number of events for a search.
pub const EVENTS_MIN: usize = 8;
/// Maximum number of cells of the transform, to bound time and memory. Half of them are padding.
const CELLS_MAX: usize = 1 << 18;
/// Number of cells of the transform in the shortest period.
const CELLS_PER_PERIOD_MIN: u64 = 4;
/// Maximum number of candidate frequencies that are refined.
const CANDIDATES_MAX: usize = 24;
/// A lower frequency is the fundamental if it has at least this share of the greatest strength.
const FUNDAMENTAL_STRENGTH_MIN: f64 = 0.45;
/// Mean number of events that a fraction of a frequency is first tried with.
const FRACTION_EVENTS: usize = 1 << 10;
/// Minimum number of a clock's periods in the stream, if the clock is reported.
const REPORTED_PERIODS_MIN: f64 = 8.0;
/// Minimum number of a clock's periods in the stream, if its harmonics are to be recognised and left out.
const RECOGNISED_PERIODS_MIN: f64 = 3.0;
/// Minimum mean resultant length of a clock with fewer than [`REPORTED_PERIODS_MIN`] periods in the stream. Events at
/// constant density have up to 0.1 at 3 periods.
const FEW_PERIODS_RESULTANT_LENGTH_MIN: f64 = 0.3;
/// Bounds of a clock's window, as fractions of the period. An event follows the clock if its distance from the clock's
/// phase is within the window.
const WINDOW_MAX: f64 = 0.125;
const WINDOW_MIN: f64 = 0.01;

/// The periods of a stream, the strongest first. All searches cover the same part of the stream: the first
/// [`Search::covered_ns`].
#[must_use]
pub fn periods(events: &[Event], search: &Search) -> Vec<Period> {
    let Some(first_ns) = events.iter().map(|event| event.at_ns).min() else { return Vec::new() };
    let is_covered = |index: &usize| events[*index].at_ns - first_ns < search.covered_ns();
    let mut remaining_events: Vec<usize> = (0..events.len()).filter(is_covered).collect();
    let mut periods = Vec::new();
    for _ in 0..search.periods_max {
        let Some(stream) = Stream::new(events, &remaining_events, search) else { break };
        let Some(period) = stream.strongest_period(search) else { break };
        remaining_events.retain(|index| !period.locked.contains(index));
        // A slower clock is removed with its harmonics, but too few of its periods are known.
        if period.period_ns * REPORTED_PERIODS_MIN <= 1.01e9 * stream.length_s {
            periods.push(period);
        }
    }
    periods
}

/// An event of one search.
#[derive(Clone, Copy)]
struct StreamEvent {
    /// Index in the stream that the caller gave.
    index: usize,
    /// Time since the first event of the search, s.
    at_s: f64,
    weight: f64,
}

/// The events of one search: events that follow a period from an earlier search are absent.
struct Stream {
    events: Vec<StreamEvent>,
    /// Time of the last event since the first, s.
    length_s: f64,
    /// Length of a cell of the transform, s.
    cell_s: f64,
    /// Sum of the squared weights.
    squares: f64,
    /// Sum of the weights.
    weights: f64,
}

impl Stream {
    /// The `remaining` events, by their indices. The cells of the transform must cover them all. `None` with too few
    /// events, or if they have no weight or come at a single time.
    fn new(events: &[Event], remaining: &[usize], search: &Search) -> Option<Stream> {
        let first_ns = remaining.iter().map(|&index| events[index].at_ns).min()?;
        let cell_s = search.period_ns_min as f64 / CELLS_PER_PERIOD_MIN as f64 / 1e9;
        let since_first = |&index: &usize| {
            let at_s = (events[index].at_ns - first_ns) as f64 / 1e9;
            StreamEvent { index, at_s, weight: events[index].weight }
        };
        let events: Vec<StreamEvent> = remaining.iter().map(since_first).collect();
        let length_s = events.iter().map(|event| event.at_s).fold(0.0, f64::max);
        let squares: f64 = events.iter().map(|event| event.weight * event.weight).sum();
        let weights: f64 = events.iter().map(|event| event.weight).sum();
        let is_enough = events.len() >= EVENTS_MIN && squares > 0.0 && length_s > 0.0;
        is_enough.then_some(Stream { events, length_s, cell_s, squares, weights })
    }

    /// The sum of all phases at a frequency, as unit vectors times weights. Returns its length, and its direction as a
    /// fraction of the period.
    fn phase_sum(&self, hz: f64) -> (f64, f64) {
        phase_sum(&self.events, hz)
    }

    /// Rayleigh's statistic at a frequency. Without a period, its distribution is about exponential with mean 1.
    fn strength(&self, hz: f64) -> f64 {
        self.phase_sum(hz).0.powi(2) / self.squares
    }

    /// The fundamental of the strongest clock. Its period can be longer than an eighth of the stream. `None` if no
    /// period keeps the limits of `search`.
    fn strongest_period(&self, search: &Search) -> Option<Period> {
        let hz_min = (1e9 / search.period_ns_max as f64).max(REPORTED_PERIODS_MIN / self.length_s);
        let hz_max = 1e9 / search.period_ns_min as f64;
        // Frequencies that differ by less than one over the length are not independent.
        let independent_frequencies = (hz_max - hz_min) * self.length_s;
        if independent_frequencies < 1.0 {
            return None;
        }
        let p_value = |strength: f64| (independent_frequencies * (-strength).exp()).min(1.0);
        let refined_candidates: Vec<(f64, f64)> =
            self.candidates(hz_min, hz_max).into_iter().map(|hz| self.refine(hz)).collect();
        let strength_max =
            refined_candidates.iter().map(|(_, strength)| *strength).fold(0.0, f64::max);
        let strength_min = FUNDAMENTAL_STRENGTH_MIN * strength_max;
        let nearly_strongest =
            refined_candidates.into_iter().filter(|(_, strength)| *strength >= strength_min);
        let lowest = nearly_strongest.min_by(|(hz, _), (other_hz, _)| hz.total_cmp(other_hz))?;
        let (lowest_hz, _) = lowest;
        let is_fundamental = |&(hz, strength): &(f64, f64)| {
            let has_few_periods = hz * self.length_s < REPORTED_PERIODS_MIN;
            let resultant_length = self.resultant_length(strength);
            strength >= strength_min
                && p_value(strength) <= search.p_value_max
                && (!has_few_periods || resultant_length >= FEW_PERIODS_RESULTANT_LENGTH_MIN)
        };
        let mut integer_fractions =
            self.fractions(lowest_hz, self.resultant_length(strength_min) / 2.0);
        let (hz, strength) = integer_fractions.find(is_fundamental).unwrap_or(lowest);
        let period = self.period_of_clock(hz, p_value(strength));
        let is_significant = period.p_value <= search.p_value_max;
        (is_significant && period.mean_resultant_length >= search.resultant_length_min)
            .then_some(period)
    }

    /// The mean resultant length of a frequency with this strength.
    fn resultant_length(&self, strength: f64) -> f64 {
        (strength * self.squares).sqrt() / self.weights
    }

    /// Integer fractions of a refined frequency, with their strengths, the lowest frequency first. They need no
    /// refinement: the error of a fraction is the same fraction of the error.
    ///
    /// Leaves out fractions at which a random sample of the events has a mean resultant length below
    /// `sample_length_min`. There can be ten thousand fractions, and as many events.
    fn fractions(&self, hz: f64, sample_length_min: f64) -> impl Iterator<Item = (f64, f64)> {
        let divisor_max = (hz * self.length_s / RECOGNISED_PERIODS_MIN) as u32;
        let mut random = Random::new(1);
        let sampled_ratio = FRACTION_EVENTS as f64 / self.events.len() as f64;
        let is_sampled = |_: &&StreamEvent| random.unit() <= sampled_ratio;
        let sample: Vec<StreamEvent> = self.events.iter().filter(is_sampled).copied().collect();
        let sample_weights: f64 = sample.iter().map(|event| event.weight).sum();
        let fractions_hz = (2..=divisor_max).rev().map(move |divisor| hz / f64::from(divisor));
        fractions_hz
            .filter(move |hz| phase_sum(&sample, *hz).0 >= sample_length_min * sample_weights)
            .map(|hz| (hz, self.strength(hz)))
    }

    /// Frequencies of the highest peaks of the transform, at most [`CANDIDATES_MAX`], the highest peak first.
    fn candidates(&self, hz_min: f64, hz_max: f64) -> Vec<f64> {
        let cell_count = (self.length_s / self.cell_s) as usize + 1;
        let mut series = vec![0.0; cell_count];
        for StreamEvent { at_s, weight, .. } in &self.events {
            series[((at_s / self.cell_s) as usize).min(cell_count - 1)] += weight;
        }
        let transform_length = (2 * cell_count).next_power_of_two();
        let mean = self.weights / cell_count as f64;
        series.iter_mut().for_each(|cell| *cell -= mean);
        let powers = power(&series, transform_length);
        let hz_of = |line: usize| line as f64 / (transform_length as f64 * self.cell_s);
        let mut peaks: Vec<(f64, f64)> = (1..powers.len() - 1)
            .filter(|&line| powers[line] >= powers[line - 1] && powers[line] > powers[line + 1])
            .map(|line| (hz_of(line), powers[line]))
            .filter(|(hz, _)| (hz_min..=hz_max).contains(hz))
            .collect();
        peaks.sort_by(|(_, power), (_, other_power)| other_power.total_cmp(power));
        peaks.truncate(CANDIDATES_MAX);
        peaks.into_iter().map(|(hz, _)| hz).collect()
    }

    /// The frequency with the largest strength near `hz`, and this strength. Steps uphill, and
    /// halves the step at the top.
    fn refine(&self, hz: f64) -> (f64, f64) {
        let (mut best, mut step) = ((hz, self.strength(hz)), 0.25 / self.length_s);
        while step > 1e-2 / self.length_s {
            let neighbours = [best.0 - step, best.0 + step].map(|hz| (hz, self.strength(hz)));
            match neighbours.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
                Some(better) if better.1 > best.1 => best = better,
                _ => step /= 2.0,
            }
        }
        best
    }

    /// The period of the clock near `hz`, refined by a straight line through the phases of the events that follow it.
    fn period_of_clock(&self, hz: f64, p_value: f64) -> Period {
        let (sum_length, direction) = self.phase_sum(hz);
        let mut clock = Clock { hz, direction, window: WINDOW_MAX, spread: WINDOW_MAX };
        for _ in 0..6 {
            clock = clock.fit_to_followers(&self.events).unwrap_or(clock);
        }
        let followers = self.events.iter().filter(|event| clock.is_followed_by(event));
        let locked: Vec<usize> = followers.map(|event| event.index).collect();
        // The standard error of the slope of a straight line through phases over time, in periods per s.
        let slope_error = clock.spread * (12.0 / locked.len().max(1) as f64).sqrt() / self.length_s;
        Period {
            period_ns: 1e9 / clock.hz,
            half_width_ns: 1.96 * slope_error / (clock.hz * clock.hz) * 1e9,
            mean_resultant_length: (sum_length / self.weights).min(1.0),
            p_value,
            searched: self.events.len(),
            locked,
        }
    }
}

/// The sum of the phases of events at a frequency, as unit vectors times weights. Returns its length, and its direction
/// as a fraction of the period.
fn phase_sum(events: &[StreamEvent], hz: f64) -> (f64, f64) {
    let (mut x, mut y) = (0.0, 0.0);
    for StreamEvent { at_s, weight, .. } in events {
        let (sin, cos) = (TAU * hz * at_s).sin_cos();
        x += weight * cos;
        y += weight * sin;
    }
    (x.hypot(y), y.atan2(x) / TAU)
}

/// A clock that events follow.
#[derive(Clone, Copy)]
struct Clock {
    hz: f64,
    /// Phase of the clock, as a fraction of the period.
    direction: f64,
    /// Largest offset of an event that follows the clock, as a fraction of the period.
    window: f64,
    /// Standard deviation of the offsets within the window, as a fraction of the period.
    spread: f64,
}

impl Clock {
    /// The offset of an event from the clock's phase, as a fraction of the period from -0.5 to 0.5.
    fn offset(&self, at_s: f64) -> f64 {
        let periods = self.hz * at_s - self.direction;
        periods - periods.round()
    }

    fn is_followed_by(&self, event: &StreamEvent) -> bool {
        self.offset(event.at_s).abs() <= self.window
    }

    /// The clock with the frequency and phase that fit the followers of this clock best: a straight line through their
    /// offsets over time. `None` if there is no such line.
    fn fit_to_followers(&self, events: &[StreamEvent]) -> Option<Clock> {
        // Time, offset and weight of each follower.
        let followers = || {
            let selected = events.iter().filter(|event| self.is_followed_by(event));
            selected.map(|event| (event.at_s, self.offset(event.at_s), event.weight))
        };
        let weights: f64 = followers().map(|(_, _, weight)| weight).sum();
        let mean_s = followers().map(|(at_s, _, weight)| weight * at_s).sum::<f64>() / weights;
        let mean_offset =
            followers().map(|(_, offset, weight)| weight * offset).sum::<f64>() / weights;
        let (mut products, mut time_squares, mut offset_squares) = (0.0, 0.0, 0.0);
        for (at_s, offset, weight) in followers() {
            products += weight * (at_s - mean_s) * (offset - mean_offset);
            time_squares += weight * (at_s - mean_s).powi(2);
            offset_squares += weight * (offset - mean_offset).powi(2);
        }
        // No line goes through a single instant, or through events without weight.
        let slope = (time_squares > 0.0 && weights > 0.0).then(|| products / time_squares)?;
        let spread = ((offset_squares - slope * products) / weights).max(0.0).sqrt();
        Some(Clock {
            hz: self.hz - slope,
            direction: self.direction + mean_offset - slope * mean_s,
            window: (3.0 * spread).clamp(WINDOW_MIN, WINDOW_MAX),
            spread,
        })
    }
}
