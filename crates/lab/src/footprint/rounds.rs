//! From rounds to lines. Each round prepares everything again, also the loop's memory and its curve, at
//! another time. What a neighbour in a shared cache or the place in memory changes for a second or for
//! longer differs between rounds, and not within one: so the interval is that of the means of rounds.

use super::curve::{Curve, LineCost};
use super::estimate::{
    DETECTED_DEVIATIONS, Lines, Mean, accepted, difference, excess, lines, mean,
};
use super::sample::Repetition;
use super::series::{Round, Series};

/// Fewest rounds that an interval is made of.
pub const ROUNDS_MIN: usize = 4;

/// What one round found.
struct OfRound {
    excess_cycles: f64,
    lines: Option<OfCurve>,
}

struct OfCurve {
    lines: f64,
    calibration_half_width: f64,
    limit: f64,
    is_beyond: bool,
    all: f64,
}

/// What all rounds of a series found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfRounds {
    /// How much longer the pass after the interrupt took, cycles.
    pub aftermath: Mean,
    /// By the curve of each round; `None` where one of them does not rise.
    pub lines: Option<Lines>,
}

fn of_round(
    treatment: &[Repetition],
    control: &[Repetition],
    curve: Option<&Curve>,
) -> Option<OfRound> {
    let control = mean(&accepted(control, excess))?;
    let beyond = difference(mean(&accepted(treatment, excess))?, control)?;
    let of_curve = |curve: &Curve| {
        let rising = curve.rising()?;
        let Lines { calibration_half_width, limit, .. } = lines(beyond, curve)?;
        Some(OfCurve {
            lines: rising.lines(beyond.mean),
            calibration_half_width,
            limit,
            is_beyond: beyond.mean > rising.top(),
            all: curve.lines_max()? as f64,
        })
    };
    Some(OfRound { excess_cycles: beyond.mean, lines: curve.and_then(of_curve) })
}

fn lines_of(rounds: &[OfRound]) -> Option<Lines> {
    let found: Vec<&OfCurve> =
        rounds.iter().map(|one| one.lines.as_ref()).collect::<Option<_>>()?;
    let lines = mean(&found.iter().map(|one| one.lines).collect::<Vec<_>>())?;
    let number = found.len() as f64;
    let within = found.iter().map(|one| one.limit).sum::<f64>() / number / number.sqrt();
    let between = DETECTED_DEVIATIONS * (lines.variance / number).sqrt();
    let (limit, all) = (within.max(between), found.first()?.all);
    let beyond = found.iter().filter(|one| one.is_beyond).count();
    let from_farther = 2 * beyond > found.len();
    let low = (lines.mean - lines.half_width).max(0.0);
    // One that is beyond its curve may have had any number.
    let high = if beyond > 0 { all } else { (lines.mean + lines.half_width).min(all) };
    let detected = (lines.mean >= limit && !from_farther).then_some(lines.mean);
    // The errors of the rounds' curves are in what differs between rounds; this is their share.
    let squares: f64 = found.iter().map(|one| one.calibration_half_width.powi(2)).sum();
    let calibration_half_width = squares.sqrt() / number;
    let interval = (low, high);
    Some(Lines { lines: detected, interval, calibration_half_width, limit, from_farther })
}

/// `None` with fewer than [`ROUNDS_MIN`] rounds in which enough repetitions count.
#[must_use]
pub fn of_rounds(series: &Series) -> Option<OfRounds> {
    let (mut treatment, mut control) = (0, 0);
    let mut rounds = Vec::new();
    for round in &series.rounds {
        let both = series
            .treatment
            .get(treatment..round.treatment)
            .zip(series.control.get(control..round.control));
        (treatment, control) = (round.treatment, round.control);
        let found = both
            .and_then(|(treatment, control)| of_round(treatment, control, round.curve.as_ref()));
        rounds.extend(found);
    }
    if rounds.len() < ROUNDS_MIN {
        return None;
    }
    let aftermath = mean(&rounds.iter().map(|one| one.excess_cycles).collect::<Vec<_>>())?;
    Some(OfRounds { aftermath, lines: lines_of(&rounds) })
}

/// The curve of all rounds together, for fewer than [`ROUNDS_MIN`]; that of the series without rounds.
#[must_use]
pub fn curve(series: &Series) -> Option<Curve> {
    let of_rounds = || series.rounds.iter().map(|round| round.curve.as_ref());
    if series.rounds.is_empty() {
        return series.ready.curve.clone();
    }
    of_rounds().collect::<Option<Vec<_>>>().map(Curve::pooled)
}

/// What a displaced line costs: the mean of the rounds' curves, or that of one curve.
#[must_use]
pub fn line_cost(series: &Series) -> Option<LineCost> {
    if series.rounds.len() < ROUNDS_MIN {
        return curve(series)?.line_cost();
    }
    let of_round = |round: &Round| Some(round.curve.as_ref()?.line_cost()?.mean_cycles);
    let costs: Option<Vec<f64>> = series.rounds.iter().map(of_round).collect();
    let Mean { mean, half_width, .. } = mean(&costs?)?;
    Some(LineCost { mean_cycles: mean, half_width_cycles: half_width })
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::exact;
    use super::*;
    use crate::footprint::Ready;
    use crate::footprint::sample::Verdict;
    use crate::footprint::{Geometry, Level, Method, Stimulus};

    /// Rounds of 16 repetitions each: lines displaced, and what one costs in that round.
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
            for turn in 0..16 {
                let noise = f64::from(turn % 3) - 1.0;
                series.treatment.push(repetition(lines * cost + noise));
                series.control.push(repetition(noise));
            }
            let curve = exact(&[(0, 0), (1024, (1024.0 * cost) as i64)]);
            let (treatment, control) = (series.treatment.len(), series.control.len());
            series.rounds.push(Round { curve: Some(curve), treatment, control });
        }
        series
    }

    #[test]
    fn what_changes_between_rounds_is_in_the_interval() {
        // The same lines, each at the cost of its round: time differs, lines do not.
        let found =
            of_rounds(&series(&[(300.0, 10.0), (300.0, 13.0), (300.0, 9.0), (300.0, 12.0)]));
        let found = found.unwrap();
        let lines = found.lines.unwrap();
        assert!((lines.lines.unwrap() - 300.0).abs() < 1.0, "{lines:?}");
        assert!(lines.interval.1 - lines.interval.0 < 2.0, "{lines:?}");
        assert!(found.aftermath.half_width > 500.0, "{found:?}");
        // Other lines in each round: within a round there is no such difference.
        let lines =
            of_rounds(&series(&[(200.0, 10.0), (400.0, 10.0), (250.0, 10.0), (350.0, 10.0)]));
        let lines = lines.unwrap().lines.unwrap();
        assert!(lines.interval.0 < 200.0 && lines.interval.1 > 400.0, "{lines:?}");
    }

    #[test]
    fn a_few_rounds_pool_their_curves() {
        let mut few = series(&[(300.0, 10.0), (300.0, 12.0)]);
        let pooled = curve(&few).unwrap();
        let last = pooled.points().last().unwrap();
        assert_eq!((last.repetitions, last.excess_cycles), (16, 11.0 * 1024.0));
        assert_eq!(line_cost(&few).unwrap().mean_cycles, 11.0);
        few.rounds[1].curve = None;
        assert_eq!(curve(&few), None);
        // From four on each round has a cost, and they differ.
        let costs = line_cost(&series(&[(300.0, 10.0), (300.0, 12.0), (9.0, 10.0), (9.0, 12.0)]));
        let LineCost { mean_cycles, half_width_cycles } = costs.unwrap();
        assert!(mean_cycles == 11.0 && half_width_cycles > 1.5, "{half_width_cycles}");
    }

    #[test]
    fn few_rounds_and_rounds_beyond_the_curve_have_no_number() {
        assert_eq!(of_rounds(&series(&[(300.0, 10.0); 3])), None);
        let mut few = series(&[(300.0, 10.0); 4]);
        few.control.iter_mut().skip(48).for_each(|one| one.verdict = Verdict::Contaminated);
        assert_eq!(of_rounds(&few), None);
        let beyond = of_rounds(&series(&[(1100.0, 10.0); 4])).unwrap().lines.unwrap();
        assert!(beyond.from_farther && beyond.lines.is_none(), "{beyond:?}");
        let one = of_rounds(&series(&[(900.0, 9.0), (900.0, 9.0), (900.0, 9.0), (1100.0, 9.0)]));
        assert_eq!(one.unwrap().lines.unwrap().interval.1, 1024.0);
        let none = of_rounds(&series(&[(0.0, 10.0); 4])).unwrap().lines.unwrap();
        assert!(none.lines.is_none() && none.limit > 0.0, "{none:?}");
    }
}
