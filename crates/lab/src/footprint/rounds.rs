//! Estimates displaced lines from rounds, for the tables of `footprint`.
//!
//! Each round prepares everything again at another time, including the loop's memory and its curve. A neighbour in a
//! shared cache, or the physical addresses of the memory, can change the result for seconds or longer. These changes
//! appear between rounds, not between the repetitions of a round. The interval therefore comes from the spread of the
//! rounds' means. Where the curve is flat, rounds can agree on a number of lines by chance: the interval also contains all
//! lines that cost as much.

use stats::interval::t_95;

use super::curve::{Curve, LineCost, Reading, Rising};
use super::estimate::{
    DETECTED_DEVIATIONS, DisplacedLines, Mean, accepted, beyond_control, difference,
    estimate_displaced_lines, excess, is_detected, limit_of_error, mean, standard_error,
};
use super::sample::Repetition;
use super::series::{Round, Series};

/// Minimum number of rounds for an interval from their spread.
pub const ROUNDS_MIN: usize = 4;

/// The values whose spread determines the width of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All repetitions, as if they were independent (Welch's method).
    Repetitions,
    /// The means of this many rounds.
    Rounds(usize),
}

/// The repetitions and the curve of one round.
struct RoundRepetitions<'a> {
    treatment: &'a [Repetition],
    control: &'a [Repetition],
    /// The round's calibration curve. `None` if only counters are used.
    curve: Option<&'a Curve>,
}

/// The estimates of one round.
struct RoundEstimate<'a> {
    /// Indirect cost: extra time of the pass after the interrupt, cycles.
    excess_cycles: f64,
    /// `None` if the round's curve does not rise.
    lines: Option<RoundLines<'a>>,
}

/// Displaced lines by one round's curve.
struct RoundLines<'a> {
    curve: &'a Curve,
    rising: Rising,
    /// Extra time of the pass after the interrupt, cycles.
    excess: Mean,
    /// Estimated number of displaced lines. It can be below 0 or above the level ([`Rising::unclipped_lines`]).
    ///
    /// [`Rising::unclipped_lines`]: super::curve::Rising::unclipped_lines
    lines: f64,
    /// Half the width of the interval if only the curve had an error, lines.
    calibration_half_width: f64,
    /// Whether the pass after the interrupt took longer than with all lines displaced.
    is_beyond_curve: bool,
    /// Number of lines of the level.
    level_lines: f64,
}

/// The estimates from all rounds of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesEstimate {
    /// Extra time of the pass after the interrupt, cycles.
    pub indirect_cost: Mean,
    /// Displaced lines by the rounds whose curves rise. `None` if these are fewer than [`ROUNDS_MIN`].
    pub lines: Option<DisplacedLines>,
}

impl<'a> RoundRepetitions<'a> {
    /// Mean of `value` per interrupt: treatment minus control. `None` with fewer than two accepted repetitions of
    /// either kind that have the value.
    fn beyond_control(&self, value: fn(&Repetition) -> Option<f64>) -> Option<Mean> {
        let control = mean(&accepted(self.control, value))?;
        difference(mean(&accepted(self.treatment, value))?, control)
    }

    /// The estimates by time. `None` with fewer than two accepted, timed repetitions of either kind.
    fn estimate(&self) -> Option<RoundEstimate<'a>> {
        let beyond = self.beyond_control(excess)?;
        let by_curve = |curve: &'a Curve| {
            let rising = curve.rising()?;
            let DisplacedLines { calibration_half_width, .. } =
                estimate_displaced_lines(beyond, curve)?;
            Some(RoundLines {
                curve,
                excess: beyond,
                lines: rising.unclipped_lines(beyond.mean),
                calibration_half_width,
                is_beyond_curve: beyond.mean > rising.top(),
                level_lines: rising.lines_max(),
                rising,
            })
        };
        Some(RoundEstimate { excess_cycles: beyond.mean, lines: self.curve.and_then(by_curve) })
    }
}

/// The rounds of a series, each with its part of the repetitions. Empty if the series has no rounds.
fn split_rounds(series: &Series) -> Vec<RoundRepetitions<'_>> {
    let (mut treatment_start, mut control_start) = (0, 0);
    let mut rounds = Vec::new();
    for round in &series.rounds {
        let treatment = series.treatment.get(treatment_start..round.treatment);
        let control = series.control.get(control_start..round.control);
        (treatment_start, control_start) = (round.treatment, round.control);
        let curve = round.curve.as_ref();
        let repetitions = treatment.zip(control);
        rounds.extend(repetitions.map(|(treatment, control)| RoundRepetitions {
            treatment,
            control,
            curve,
        }));
    }
    rounds
}

/// The noise within rounds: the error of the mean over several rounds that the spread of their repetitions causes.
#[derive(Clone, Copy)]
struct NoiseWithin {
    /// Standard error of the mean, cycles.
    standard_error: f64,
    /// Half the width of its 95 % interval, cycles.
    half_width: f64,
    /// Error of a curve in the mean over the rounds, as a part of its error in one round.
    curve_factor: f64,
}

impl NoiseWithin {
    /// `None` if a round has fewer than two values.
    fn new(rounds: &[&RoundLines<'_>]) -> Option<NoiseWithin> {
        let errors: Option<Vec<f64>> =
            rounds.iter().map(|round| standard_error(round.excess)).collect();
        let count = rounds.len() as f64;
        let squares: f64 = errors?.iter().map(|error| error * error).sum();
        let freedom: u64 = rounds.iter().map(|round| round.excess.count as u64 - 1).sum();
        let standard_error = squares.sqrt() / count;
        let half_width = t_95(freedom)? * standard_error;
        Some(NoiseWithin { standard_error, half_width, curve_factor: 1.0 / count.sqrt() })
    }

    /// The mean interval of the rounds' curves. An interval contains the lines whose cost agrees with the round's time
    /// within the errors of the mean. Where a curve is flat, many numbers of lines do, however many rounds there are.
    fn interval(&self, rounds: &[&RoundLines<'_>]) -> (f64, f64) {
        let interval = |round: &&RoundLines<'_>| {
            let curve_errors = self.curve_factor * round.rising.standard_errors_95();
            let (cycles, half_width) = (round.excess.mean, self.half_width);
            round.rising.unclipped_interval(Reading { cycles, half_width, curve_errors })
        };
        let (low, high) = rounds
            .iter()
            .map(interval)
            .fold((0.0, 0.0), |sum, (low, high)| (sum.0 + low, sum.1 + high));
        let count = rounds.len() as f64;
        (low / count, high / count)
    }

    /// Detection limit by the pooled curve of the rounds, lines. The noise of the time falls with the number of rounds,
    /// and not the limit itself: lines that cost nothing are not detected by any number of rounds. Infinite if the
    /// pooled curve does not rise.
    fn detection_limit(&self, rounds: &[&RoundLines<'_>]) -> f64 {
        let pooled = Curve::pooled(rounds.iter().map(|round| round.curve));
        let limit = |curve: Rising| limit_of_error(self.standard_error, &curve);
        pooled.rising().map_or(f64::INFINITY, limit)
    }
}

/// The mean of the rounds' displaced lines. Its interval contains that of the rounds' spread, and the lines whose cost
/// agrees with the times. A round without lines does not count. `None` if fewer than [`ROUNDS_MIN`] rounds have lines.
///
/// A round's lines may be below 0 or above the level. Only the mean and the ends of its interval are cut there: the mean
/// of rounds that are cut one by one is too high near 0, by 0.4 standard errors of a round, for any number of rounds. An
/// interval that is cut to the possible values keeps its coverage (Mandelkern, Setting confidence intervals for bounded
/// parameters, Statist. Sci. 17, 2002).
fn combine_lines(rounds: &[RoundEstimate<'_>]) -> Option<DisplacedLines> {
    let rounds: Vec<&RoundLines<'_>> =
        rounds.iter().filter_map(|round| round.lines.as_ref()).collect();
    if rounds.len() < ROUNDS_MIN {
        return None;
    }
    let lines = mean(&rounds.iter().map(|round| round.lines).collect::<Vec<_>>())?;
    let count = rounds.len() as f64;
    let within = NoiseWithin::new(&rounds)?;
    let limit_between = DETECTED_DEVIATIONS * (lines.variance / count).sqrt();
    let level_lines = rounds.first()?.level_lines;
    let limit = within.detection_limit(&rounds).max(limit_between);
    let exceeds_level = lines.mean - lines.half_width > level_lines;
    let in_level = |lines: f64| lines.clamp(0.0, level_lines);
    let (low_within, high_within) = within.interval(&rounds);
    let half_width = lines.half_width.max(lines.mean - low_within).max(high_within - lines.mean);
    let low = in_level(low_within.min(lines.mean - lines.half_width));
    // A round beyond its curve does not bound the number of lines from above.
    let high = if rounds.iter().any(|round| round.is_beyond_curve) {
        level_lines
    } else {
        in_level(high_within.max(lines.mean + lines.half_width))
    };
    let estimate = in_level(lines.mean);
    let is_detected = is_detected(estimate, limit, level_lines) && !exceeds_level;
    // The spread between rounds already contains the errors of their curves. This half width shows the curves' part
    // alone.
    let squares: f64 = rounds.iter().map(|round| round.calibration_half_width.powi(2)).sum();
    Some(DisplacedLines {
        count: is_detected.then_some(estimate),
        interval: (low, high),
        half_width,
        calibration_half_width: squares.sqrt() / count,
        limit,
        level_lines,
        exceeds_level,
    })
}

/// The numbers of the rounds without a curve that rises. Their times tell nothing about the displaced lines.
#[must_use]
pub fn flat_rounds(series: &Series) -> Vec<u64> {
    let is_flat = |round: &&Round| round.curve.as_ref().and_then(Curve::rising).is_none();
    series.rounds.iter().filter(is_flat).map(|round| round.number).collect()
}

/// Estimates a series from its rounds. A round counts if it has at least two accepted repetitions of each kind. `None`
/// if fewer than [`ROUNDS_MIN`] rounds count.
#[must_use]
pub fn estimate_from_rounds(series: &Series) -> Option<SeriesEstimate> {
    let rounds: Vec<RoundEstimate<'_>> =
        split_rounds(series).iter().filter_map(RoundRepetitions::estimate).collect();
    if rounds.len() < ROUNDS_MIN {
        return None;
    }
    let indirect_cost = mean(&rounds.iter().map(|round| round.excess_cycles).collect::<Vec<_>>())?;
    Some(SeriesEstimate { indirect_cost, lines: combine_lines(&rounds) })
}

/// Mean of `value` per interrupt, treatment minus control, from the rounds' means. Its count is the number of rounds
/// that count. A round counts if it has at least two accepted repetitions of each kind with the value. `None` if fewer
/// than [`ROUNDS_MIN`] rounds count.
#[must_use]
pub fn beyond_control_by_round(
    series: &Series,
    value: fn(&Repetition) -> Option<f64>,
) -> Option<Mean> {
    let rounds = split_rounds(series);
    let differences: Vec<f64> = rounds
        .iter()
        .filter_map(|round| round.beyond_control(value))
        .map(|beyond| beyond.mean)
        .collect();
    if differences.len() < ROUNDS_MIN {
        return None;
    }
    mean(&differences)
}

/// Mean of `value` per interrupt, treatment minus control, and the spread behind its interval. The mean comes from the
/// rounds' means if at least [`ROUNDS_MIN`] rounds count, otherwise from all repetitions. `None` with too few accepted
/// repetitions, as in [`beyond_control`].
#[must_use]
pub fn beyond_control_with_spread(
    series: &Series,
    value: fn(&Repetition) -> Option<f64>,
) -> Option<(Mean, Spread)> {
    let pooled = beyond_control(&series.treatment, &series.control, value)?;
    Some(match beyond_control_by_round(series, value) {
        Some(by_round) => (by_round, Spread::Rounds(by_round.count)),
        None => (pooled, Spread::Repetitions),
    })
}

/// One curve for the whole series: the pooled curves of its rounds. Without rounds, the curve of the series.
/// `None` if a curve is missing.
#[must_use]
pub fn curve(series: &Series) -> Option<Curve> {
    if series.rounds.is_empty() {
        return series.ready.curve.clone();
    }
    let curves = series.rounds.iter().map(|round| round.curve.as_ref());
    curves.collect::<Option<Vec<_>>>().map(Curve::pooled)
}

/// Cost of one displaced line: the mean over the rounds' curves. With fewer than [`ROUNDS_MIN`] rounds, the cost by the
/// pooled curve. `None` if a curve is missing. A curve that does not rise counts, too: without the curves whose noise made
/// them fall, the mean would be too high.
#[must_use]
pub fn line_cost(series: &Series) -> Option<LineCost> {
    if series.rounds.len() < ROUNDS_MIN {
        return curve(series)?.line_cost();
    }
    let round_cost = |round: &Round| Some(round.curve.as_ref()?.line_cost()?.mean_cycles);
    let costs: Option<Vec<f64>> = series.rounds.iter().map(round_cost).collect();
    let Mean { mean, half_width, .. } = mean(&costs?)?;
    Some(LineCost { mean_cycles: mean, half_width_cycles: half_width })
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::exact;
    use super::super::estimate::user_misses;
    use super::*;
    use crate::footprint::Ready;
    use crate::footprint::sample::Verdict;
    use crate::footprint::tests::counted_in_rounds;
    use crate::footprint::{Geometry, Level, Method, Stimulus};

    /// A series with 16 treatment and 16 control repetitions in each round. A round is the number of displaced
    /// lines, and the cost of one line, cycles.
    fn series(rounds: &[(f64, f64)]) -> Series {
        let geometry = Geometry { size_bytes: 65_536, line_bytes: 64, ways: 8 };
        let repetition = |cycles: f64| Repetition {
            verdict: Verdict::Accepted,
            excess_cycles: Some(cycles as i64),
            stalled_cycles: Some(1),
            user_misses: None,
            kernel_misses: None,
            window: None,
        };
        let mut series = Series {
            level: Level::L2,
            stimulus: Stimulus::Disk,
            method: Method::Refined,
            ready: Ready {
                geometry,
                pages: String::new(),
                raised_by: String::new(),
                curve: None,
                pass_cycles: 1,
                chunk_lines: 1,
                start_misses: None,
            },
            treatment: Vec::new(),
            control: Vec::new(),
            rounds: Vec::new(),
        };
        for &(lines, cost) in rounds {
            for number in 0..16 {
                let noise = f64::from(number % 3) - 1.0;
                series.treatment.push(repetition(lines * cost + noise));
                series.control.push(repetition(noise));
            }
            let curve = exact(&[(0, 0), (1024, (1024.0 * cost) as i64)]);
            let (treatment, control) = (series.treatment.len(), series.control.len());
            let number = series.rounds.len() as u64 + 1;
            series.rounds.push(Round { number, curve: Some(curve), treatment, control });
        }
        series
    }

    #[test]
    fn the_interval_contains_the_spread_between_rounds() {
        let estimate_of = |rounds: &[(f64, f64)]| estimate_from_rounds(&series(rounds)).unwrap();
        // Rounds with equal lines at different costs: the time differs, the lines do not.
        let estimate = estimate_of(&[(300.0, 10.0), (300.0, 13.0), (300.0, 9.0), (300.0, 12.0)]);
        let lines = estimate.lines.unwrap();
        assert!((lines.count.unwrap() - 300.0).abs() < 1.0, "{lines:?}");
        assert!(lines.interval.1 - lines.interval.0 < 2.0, "{lines:?}");
        assert!(estimate.indirect_cost.half_width > 500.0, "{estimate:?}");
        // Rounds with different lines: the spread is between rounds, not within one.
        let estimate = estimate_of(&[(200.0, 10.0), (400.0, 10.0), (250.0, 10.0), (350.0, 10.0)]);
        let lines = estimate.lines.unwrap();
        assert!(lines.interval.0 < 200.0 && lines.interval.1 > 400.0, "{lines:?}");
    }

    #[test]
    fn the_interval_of_counted_misses_contains_the_spread_between_rounds() {
        let rounds_misses = [100, 160, 220, 130, 190];
        let series = counted_in_rounds(&rounds_misses);
        let (beyond, spread) = beyond_control_with_spread(&series, user_misses).unwrap();
        assert_eq!(spread, Spread::Rounds(5));
        assert!((beyond.mean - 160.0).abs() < 1e-9, "{beyond:?}");
        // Student's t of 4 degrees of freedom, and a variance of the rounds' means of 9000 / 4.
        let expected = 2.776 * (9000.0_f64 / 4.0 / 5.0).sqrt();
        assert!((beyond.half_width - expected).abs() < 0.1, "{beyond:?}");
        // The repetitions as if they were independent: the interval is six times too narrow.
        let pooled = beyond_control(&series.treatment, &series.control, user_misses).unwrap();
        assert!(pooled.half_width < 10.0, "{pooled:?}");
        // Three rounds are too few.
        let series = counted_in_rounds(&rounds_misses[..3]);
        assert_eq!(beyond_control_by_round(&series, user_misses), None);
        let (beyond, spread) = beyond_control_with_spread(&series, user_misses).unwrap();
        let pooled = beyond_control(&series.treatment, &series.control, user_misses);
        assert_eq!((Some(beyond), spread), (pooled, Spread::Repetitions));
    }

    #[test]
    fn a_few_rounds_pool_their_curves() {
        let mut two_rounds = series(&[(300.0, 10.0), (300.0, 12.0)]);
        let pooled = curve(&two_rounds).unwrap();
        let last = pooled.points().last().unwrap();
        assert_eq!((last.repetitions, last.excess_cycles), (16, 11.0 * 1024.0));
        assert_eq!(line_cost(&two_rounds).unwrap().mean_cycles, 11.0);
        two_rounds.rounds[1].curve = None;
        assert_eq!(curve(&two_rounds), None);
        // From four rounds on, each round has its own cost. Their spread makes the interval.
        let costs = line_cost(&series(&[(300.0, 10.0), (300.0, 12.0), (9.0, 10.0), (9.0, 12.0)]));
        let LineCost { mean_cycles, half_width_cycles } = costs.unwrap();
        assert!(mean_cycles == 11.0 && half_width_cycles > 1.5, "{half_width_cycles}");
    }

    #[test]
    fn the_limit_of_rounds_is_not_cut_at_the_level() {
        // The standard error of each round is 64 cycles, and the level has 64 lines of one cycle.
        let mut small_level = series(&[(62.0, 1.0); 5]);
        for (number, repetition) in (0_i64..).zip(&mut small_level.treatment) {
            repetition.excess_cycles = Some(62 + (number % 2 * 2 - 1) * 248);
        }
        for round in &mut small_level.rounds {
            round.curve = Some(exact(&[(0, 0), (64, 64)]));
        }
        let found = estimate_from_rounds(&small_level).unwrap().lines.unwrap();
        let expected = 3.29 * 64.0 / 5.0_f64.sqrt();
        assert!((found.limit / expected - 1.0).abs() < 1e-3, "{found:?}");
        assert_eq!((found.count, found.limit_in_level()), (None, None));
        // The limits of the rounds come from the noise of their repetitions.
        let mut noisy = series(&[(0.0, 1.0); 5]);
        for (number, repetition) in (0_i64..).zip(&mut noisy.treatment) {
            repetition.excess_cycles = Some((number % 2 * 2 - 1) * 16_000);
        }
        let found = estimate_from_rounds(&noisy).unwrap().lines.unwrap();
        let standard_error = 16_000.0 / 15.0_f64.sqrt();
        let expected = 3.29 * standard_error / 5.0_f64.sqrt();
        assert!((found.limit / expected - 1.0).abs() < 1e-3, "{found:?} {expected}");
    }

    /// A series whose level is that of a measured processor: its first 96 lines cost nothing, and all others 4 cycles each.
    /// Each round's repetitions have these cycles more than the controls in the mean, with a standard error of 4 cycles.
    fn with_flat_start(rounds_cycles: &[i64]) -> Series {
        let rounds: Vec<(f64, f64)> = rounds_cycles.iter().map(|_| (0.0, 1.0)).collect();
        let mut series = series(&rounds);
        for (number, repetition) in series.treatment.iter_mut().enumerate() {
            let noise = (number as i64 % 2 * 2 - 1) * 15;
            repetition.excess_cycles = Some(rounds_cycles[number / 16] + noise);
        }
        for round in &mut series.rounds {
            round.curve = Some(exact(&[(0, 0), (32, 0), (64, 0), (96, 0), (512, 1_664)]));
        }
        series
    }

    #[test]
    fn lines_that_cost_nothing_are_in_the_interval_and_below_the_limit_of_rounds() {
        let estimate_of =
            |cycles: &[i64]| estimate_from_rounds(&with_flat_start(cycles)).unwrap().lines.unwrap();
        // The rounds agree within a line, by chance: 0 to 96 lines cost 2 cycles less, half of the standard error of a round.
        let found = estimate_of(&[2, 3, 2, 1, 2]);
        assert!(found.limit > 96.0, "{found:?}");
        assert_eq!(found.count, None);
        assert!(found.interval.0 == 0.0 && found.interval.1 > 97.0, "{found:?}");
        // Nothing is displaced: 96 lines would take no longer.
        let nothing = estimate_of(&[0, 0, 0, 0, 0]);
        assert!(nothing.interval.1 > 96.0, "{nothing:?}");
        // More rounds lower the noise, and not the lines that cost nothing.
        let many = estimate_of(&[2; 50]);
        assert!(many.limit > 96.0 && many.limit < found.limit, "{many:?}");
        // Where the curve rises, lines are detected as before.
        let rising = estimate_of(&[804, 796, 800, 808, 792]);
        assert!((rising.count.unwrap() - 296.0).abs() < 0.1, "{rising:?}");
        assert!(rising.interval.1 - rising.interval.0 < 5.0, "{rising:?}");
        assert!(rising.half_width < 2.5, "{rising:?}");
    }

    #[test]
    fn a_round_whose_curve_does_not_rise_does_not_count() {
        let mut one_flat = series(&[(300.0, 10.0); 5]);
        one_flat.rounds[2].curve = Some(exact(&[(0, 9), (1024, 9)]));
        let found = estimate_from_rounds(&one_flat).unwrap().lines.unwrap();
        assert!((found.count.unwrap() - 300.0).abs() < 1.0, "{found:?}");
        assert_eq!(flat_rounds(&one_flat), [3]);
        // Three rounds with lines are too few.
        one_flat.rounds[4].curve = Some(exact(&[(0, 9), (1024, 9)]));
        assert_eq!(estimate_from_rounds(&one_flat).unwrap().lines, None);
        assert_eq!(flat_rounds(&one_flat), [3, 5]);
    }

    #[test]
    fn few_rounds_and_rounds_beyond_the_curve_have_no_estimate() {
        assert_eq!(estimate_from_rounds(&series(&[(300.0, 10.0); 3])), None);
        let mut contaminated = series(&[(300.0, 10.0); 4]);
        let last_round = contaminated.control.iter_mut().skip(48);
        last_round.for_each(|repetition| repetition.verdict = Verdict::Contaminated);
        assert_eq!(estimate_from_rounds(&contaminated), None);
        let lines_of =
            |rounds: &[(f64, f64)]| estimate_from_rounds(&series(rounds)).unwrap().lines.unwrap();
        let beyond = lines_of(&[(1100.0, 10.0); 4]);
        assert!(beyond.exceeds_level && beyond.count.is_none(), "{beyond:?}");
        let partly_beyond = lines_of(&[(900.0, 9.0), (900.0, 9.0), (900.0, 9.0), (1100.0, 9.0)]);
        assert_eq!(partly_beyond.interval.1, 1024.0);
        // Rounds above and below the level's number of lines do not exceed it together.
        let around_level = lines_of(&[(1060.0, 9.0), (990.0, 9.0), (1050.0, 9.0), (1030.0, 9.0)]);
        assert!(!around_level.exceeds_level, "{around_level:?}");
        assert_eq!((around_level.count, around_level.interval.1), (Some(1024.0), 1024.0));
        let nothing_displaced = lines_of(&[(0.0, 10.0); 4]);
        assert!(nothing_displaced.count.is_none(), "{nothing_displaced:?}");
        assert!(nothing_displaced.limit > 0.0, "{nothing_displaced:?}");
    }
}
