//! Periods in a stream of events.
//!
//! Where events follow a clock of period P, their phases (the fraction of P at which they come) are
//! concentrated. The mean resultant length R, the length of the mean of the phases as unit vectors,
//! is 1 when all phases are identical and about 0 when they are uniform (Mardia and Jupp, Directional
//! Statistics, ch. 6: Rayleigh's test). Candidates come from the Fourier transform of the stream; the
//! period is then refined on the events' own times. A clock also has harmonics: the lowest frequency
//! that is nearly as strong as the strongest is the fundamental. The events that follow it are
//! removed, and the rest is searched again.

use std::f64::consts::TAU;

use crate::fourier::power;

/// An event: its time and its weight (such as its length; 1 where all count the same).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Time in ns, from any origin.
    pub at_ns: u64,
    /// Weight, not negative.
    pub weight: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The shortest period, ns.
    pub period_ns_min: u64,
    /// The longest period, ns; never more than an eighth of the stream's length.
    pub period_ns_max: u64,
    /// Maximum number of periods to find.
    pub periods_max: usize,
    /// The smallest mean resultant length R of a period that is reported.
    pub resultant_length_min: f64,
    /// The largest p-value of a period that is reported.
    pub p_value_max: f64,
}

/// A period that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    pub period_ns: f64,
    /// Half width of its 95 % confidence interval, ns.
    pub half_width_ns: f64,
    /// Mean resultant length R of the phases of all events searched, 0 to 1.
    pub mean_resultant_length: f64,
    /// Probability of such an R by chance, corrected for the number of frequencies searched.
    pub p_value: f64,
    /// Number of events searched. Events that follow a stronger period are not searched again.
    pub searched: usize,
    /// Positions of the events that follow this period.
    pub locked: Vec<usize>,
}

/// Minimum number of events for a search.
pub const EVENTS_MIN: usize = 8;
/// Maximum number of cells of the transform: bounds time and memory.
const CELLS_MAX: usize = 1 << 18;
/// Maximum number of candidates that are refined.
const CANDIDATES_MAX: usize = 24;
/// A lower frequency is the fundamental if it has at least this share of the greatest power.
const NEARLY: f64 = 0.45;
/// Bounds of a clock's window. An event follows the clock if its distance from the mean phase, as a part of the period,
/// is within the window.
const WINDOW_MAX: f64 = 0.125;
const WINDOW_MIN: f64 = 0.01;

/// The periods of a stream, strongest first. Events beyond the cells of the transform are ignored.
#[must_use]
pub fn periods(events: &[Event], search: &Search) -> Vec<Period> {
    let mut remaining: Vec<usize> = (0..events.len()).collect();
    let mut found = Vec::new();
    while found.len() < search.periods_max && remaining.len() >= EVENTS_MIN {
        let stream = Stream::new(events, &remaining, search);
        let Some(period) = stream.and_then(|stream| stream.strongest(search)) else { break };
        remaining.retain(|index| !period.locked.contains(index));
        found.push(period);
    }
    found
}

/// The remaining events.
struct Stream {
    /// Position among all events, seconds since the first, weight.
    events: Vec<(usize, f64, f64)>,
    length_s: f64,
    cell_s: f64,
    squares: f64,
    weights: f64,
}

impl Stream {
    fn new(events: &[Event], remaining: &[usize], search: &Search) -> Option<Stream> {
        let first_ns = remaining.iter().map(|&index| events[index].at_ns).min()?;
        let cell_s = search.period_ns_min as f64 / 4e9;
        let in_reach = |&index: &usize| {
            let after_s = (events[index].at_ns - first_ns) as f64 / 1e9;
            let reached = after_s < cell_s * (CELLS_MAX / 2) as f64;
            reached.then_some((index, after_s, events[index].weight))
        };
        let events: Vec<_> = remaining.iter().filter_map(in_reach).collect();
        let length_s = events.iter().map(|event| event.1).fold(0.0, f64::max);
        let squares: f64 = events.iter().map(|event| event.2 * event.2).sum();
        let weights: f64 = events.iter().map(|event| event.2).sum();
        let is_enough = events.len() >= EVENTS_MIN && squares > 0.0 && length_s > 0.0;
        is_enough.then_some(Stream { events, length_s, cell_s, squares, weights })
    }

    /// The sum of the phases at a frequency as unit vectors times weights: its length, and its direction as a fraction of
    /// the period.
    fn mean_phase(&self, hz: f64) -> (f64, f64) {
        let (mut x, mut y) = (0.0, 0.0);
        for (_, at_s, weight) in &self.events {
            let (sin, cos) = (TAU * hz * at_s).sin_cos();
            x += weight * cos;
            y += weight * sin;
        }
        (x.hypot(y), y.atan2(x) / TAU)
    }

    /// Rayleigh's statistic: about Exp(1) when there is no period.
    fn strength(&self, hz: f64) -> f64 {
        self.mean_phase(hz).0.powi(2) / self.squares
    }

    fn strongest(&self, search: &Search) -> Option<Period> {
        let hz_min = (1e9 / search.period_ns_max as f64).max(8.0 / self.length_s);
        let hz_max = 1e9 / search.period_ns_min as f64;
        let independent = (hz_max - hz_min) * self.length_s;
        if independent < 1.0 {
            return None;
        }
        let refined: Vec<(f64, f64)> =
            self.candidates(hz_min, hz_max).into_iter().map(|hz| self.refine(hz)).collect();
        let strength_max = refined.iter().map(|(_, strength)| *strength).fold(0.0, f64::max);
        let nearly_strongest =
            refined.into_iter().filter(|(_, strength)| *strength >= NEARLY * strength_max);
        let (hz, strength) = nearly_strongest.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let p_value = (independent * (-strength).exp()).min(1.0);
        let period = self.period(hz, p_value);
        let is_sure = p_value <= search.p_value_max;
        (is_sure && period.mean_resultant_length >= search.resultant_length_min).then_some(period)
    }

    /// Frequencies of the highest peaks of the transform.
    fn candidates(&self, hz_min: f64, hz_max: f64) -> Vec<f64> {
        let cells = (self.length_s / self.cell_s) as usize + 1;
        let mut series = vec![0.0; cells];
        for (_, at_s, weight) in &self.events {
            series[((at_s / self.cell_s) as usize).min(cells - 1)] += weight;
        }
        let length = (2 * cells).next_power_of_two();
        let mean = self.weights / cells as f64;
        series.iter_mut().for_each(|cell| *cell -= mean);
        let lines = power(&series, length);
        let hz_of = |line: usize| line as f64 / (length as f64 * self.cell_s);
        let mut peaks: Vec<(f64, f64)> = (1..lines.len() - 1)
            .filter(|&k| lines[k] >= lines[k - 1] && lines[k] > lines[k + 1])
            .map(|k| (hz_of(k), lines[k]))
            .filter(|(hz, _)| (hz_min..=hz_max).contains(hz))
            .collect();
        peaks.sort_by(|a, b| b.1.total_cmp(&a.1));
        peaks.truncate(CANDIDATES_MAX);
        peaks.into_iter().map(|(hz, _)| hz).collect()
    }

    /// The frequency at the maximum of the peak near `hz`, with the strength there.
    fn refine(&self, hz: f64) -> (f64, f64) {
        let (mut best, mut step) = ((hz, self.strength(hz)), 0.25 / self.length_s);
        while step > 1e-2 / self.length_s {
            let moved = [best.0 - step, best.0 + step].map(|hz| (hz, self.strength(hz)));
            match moved.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
                Some(better) if better.1 > best.1 => best = better,
                _ => step /= 2.0,
            }
        }
        best
    }

    /// The period at `hz`, refined by a line through the phases of the events that follow it.
    fn period(&self, hz: f64, p_value: f64) -> Period {
        let (length, direction) = self.mean_phase(hz);
        let mut clock = Clock { hz, direction, window: WINDOW_MAX, spread: WINDOW_MAX };
        for _ in 0..6 {
            clock = clock.fitted(&self.events).unwrap_or(clock);
        }
        let near =
            self.events.iter().filter(|(_, at_s, _)| clock.offset(*at_s).abs() <= clock.window);
        let locked: Vec<usize> = near.map(|(index, _, _)| *index).collect();
        // The error of a slope: phases over time, on a line.
        let error_turns = clock.spread * (12.0 / locked.len().max(1) as f64).sqrt() / self.length_s;
        Period {
            period_ns: 1e9 / clock.hz,
            half_width_ns: 1.96 * error_turns / (clock.hz * clock.hz) * 1e9,
            mean_resultant_length: (length / self.weights).min(1.0),
            p_value,
            searched: self.events.len(),
            locked,
        }
    }
}

/// A clock. `direction` is its phase, `window` the largest offset of an event that follows it, and `spread` the standard
/// deviation of these offsets. All three are fractions of the period.
#[derive(Clone, Copy)]
struct Clock {
    hz: f64,
    direction: f64,
    window: f64,
    spread: f64,
}

impl Clock {
    /// The offset of an event from the clock's phase, as a fraction of the period from -0.5 to 0.5.
    fn offset(&self, at_s: f64) -> f64 {
        let turns = self.hz * at_s - self.direction;
        turns - turns.round()
    }

    /// The clock that fits the events near this one better, by a line through their offsets.
    fn fitted(&self, events: &[(usize, f64, f64)]) -> Option<Clock> {
        let near = || {
            let off = events.iter().map(|(_, at_s, weight)| (*at_s, self.offset(*at_s), *weight));
            off.filter(|(_, offset, _)| offset.abs() <= self.window)
        };
        let weights: f64 = near().map(|(_, _, weight)| weight).sum();
        let mean_s = near().map(|(at_s, _, weight)| weight * at_s).sum::<f64>() / weights;
        let mean_offset = near().map(|(_, offset, weight)| weight * offset).sum::<f64>() / weights;
        let (mut across, mut along, mut square) = (0.0, 0.0, 0.0);
        for (at_s, offset, weight) in near() {
            across += weight * (at_s - mean_s) * (offset - mean_offset);
            along += weight * (at_s - mean_s).powi(2);
            square += weight * (offset - mean_offset).powi(2);
        }
        // No line goes through a single instant, or through events without weight.
        let slope = (along > 0.0 && weights > 0.0).then(|| across / along)?;
        let spread = ((square - slope * across) / weights).max(0.0).sqrt();
        Some(Clock {
            hz: self.hz - slope,
            direction: self.direction + mean_offset - slope * mean_s,
            window: (3.0 * spread).clamp(WINDOW_MIN, WINDOW_MAX),
            spread,
        })
    }
}
