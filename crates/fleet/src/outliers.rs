//! Outliers among hosts: robust scores by the median and the median absolute deviation.

use stats::median::median;

/// Least number of hosts. With fewer, the median absolute deviation says little.
pub const HOSTS_MIN: usize = 5;
/// A host whose score is beyond this number is an outlier (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993).
/// Fleets of equal hosts have one by chance, too: docs/fleet.md has the probabilities.
pub const OUTLIER_SCORE: f64 = 3.5;
/// Makes the median absolute deviation of a normal distribution its standard deviation.
const NORMAL_SCALE: f64 = 1.4826;

/// The scores of hosts, in the order of their figures.
#[derive(Clone, Debug, PartialEq)]
pub struct RobustScores {
    pub median: f64,
    /// Median absolute deviation, times 1.4826.
    pub deviation: f64,
    /// Each host's distance from the median, in deviations.
    pub scores: Vec<f64>,
}

/// Why hosts have no scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unscored {
    /// Only this number of hosts have the figure.
    TooFew(usize),
    /// At least half of the hosts have the same figure.
    NoDeviation,
}

impl std::fmt::Display for Unscored {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unscored::TooFew(count) => {
                write!(formatter, "only {count} hosts have the figure, and {HOSTS_MIN} are needed")
            }
            Unscored::NoDeviation => formatter.write_str(
                "the median absolute deviation is 0: at least half of the hosts have the same figure",
            ),
        }
    }
}

/// The robust score of each figure: its distance from the median, divided by 1.4826 times the median absolute deviation.
///
/// Fails with the reason if scores would say nothing.
pub fn robust_scores(figures: &[f64]) -> Result<RobustScores, Unscored> {
    if figures.len() < HOSTS_MIN {
        return Err(Unscored::TooFew(figures.len()));
    }
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        median(&values).ok_or(Unscored::TooFew(0))
    };
    let center = middle(figures.to_vec())?;
    let distances = figures.iter().map(|figure| (figure - center).abs());
    let deviation = NORMAL_SCALE * middle(distances.collect())?;
    if deviation <= 0.0 || !deviation.is_finite() {
        return Err(Unscored::NoDeviation);
    }
    let scores = figures.iter().map(|figure| (figure - center) / deviation).collect();
    Ok(RobustScores { median: center, deviation, scores })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_the_distance_in_scaled_deviations() {
        // Median 5; absolute deviations 4, 1, 0, 1, 95 have the median 1.
        let found = robust_scores(&[1.0, 4.0, 5.0, 6.0, 100.0]).unwrap();
        assert_eq!((found.median, found.deviation), (5.0, 1.4826));
        assert_eq!(found.scores[4], 95.0 / 1.4826);
        let outliers: Vec<bool> =
            found.scores.iter().map(|score| score.abs() > OUTLIER_SCORE).collect();
        assert_eq!(outliers, [false, false, false, false, true]);
    }

    #[test]
    fn outliers_do_not_hide_one_another() {
        // With mean and standard deviation, the three would have scores below 2.
        let mut figures: Vec<f64> = (0..9).map(|number| 1.0 + 0.01 * f64::from(number)).collect();
        figures.extend([50.0, 51.0, 52.0]);
        let found = robust_scores(&figures).unwrap();
        let count = found.scores.iter().filter(|score| score.abs() > OUTLIER_SCORE).count();
        assert_eq!(count, 3);
    }

    #[test]
    fn without_deviation_or_hosts_there_is_a_reason() {
        assert_eq!(robust_scores(&[1.0, 2.0, 3.0, 4.0]), Err(Unscored::TooFew(4)));
        assert_eq!(robust_scores(&[]), Err(Unscored::TooFew(0)));
        let equal = robust_scores(&[2.0, 2.0, 2.0, 2.0, 9.0]);
        assert_eq!(equal, Err(Unscored::NoDeviation));
    }
}
