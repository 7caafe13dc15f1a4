//! Confidence intervals of means, ratios, medians and quantiles, which nearly all tables of irqlab show.
//!
//! Interrupts come in bursts, so their costs are not independent: an interval from the sample variance is too narrow. A
//! bench therefore divides a window into batches of equal length in time. The interval comes from the spread of the
//! batches (non-overlapping batch means, ratio estimator: Law & Kelton, Simulation Modeling and Analysis, ch. 9; Cochran,
//! Sampling Techniques, ch. 6). Tests on streams with a known mean (`coverage.rs`) check how often intervals contain it.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal, StudentsT};

/// Minimum number of non-empty batches for an interval.
pub const BATCHES_MIN: usize = 8;

/// The sums of a batch, or the counts of a section. The default is an empty batch.
pub trait Cell: Clone + Default {
    /// Adds another batch.
    fn add(&mut self, other: &Self);
}

/// One batch: the number of its values, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub count: u64,
    pub sum: u64,
}

impl Cell for Batch {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// One batch of values that are counted together, such as the events of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JointBatch {
    /// How often the values were counted together.
    pub count: u64,
    /// The sum of each value. Values may be negative.
    pub sums: Vec<i64>,
}

impl Cell for JointBatch {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sums.resize(self.sums.len().max(other.sums.len()), 0);
        for (sum, added) in self.sums.iter_mut().zip(&other.sums) {
            *sum = sum.saturating_add(*added);
        }
    }
}

/// Batches of equal length in time. Batch `i` covers the times from `i << shift` to before `(i + 1) << shift` since the
/// window opened, in the unit of the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches<C = Batch> {
    /// The length of a batch is 2 to this power.
    pub shift: u32,
    /// The batches, from the window's opening on.
    pub cells: Vec<C>,
}

impl<C: Cell> Batches<C> {
    /// Empty batches that cover a window of `length`: at most `number_max`, and as short as this allows.
    /// Panics if `number_max` is 0.
    #[must_use]
    pub fn covering(length: u64, number_max: u64) -> Self {
        assert!(number_max > 0, "no batch covers a window");
        let mut batches = Batches { shift: 0, cells: Vec::new() };
        while length >> batches.shift >= number_max {
            batches.shift += 1;
        }
        batches.cover(length);
        batches
    }

    /// Adds `added` to the batch that contains the time `at` since the window opened. Times after the window belong to
    /// the last batch. Does nothing without batches.
    pub fn add_at(&mut self, at: u64, added: &C) {
        let last = self.cells.len().saturating_sub(1);
        let cell = at.checked_shr(self.shift).map_or(0, |cell| (cell as usize).min(last));
        if let Some(batch) = self.cells.get_mut(cell) {
            batch.add(added);
        }
    }

    /// Adds another stream's batches of the same window. Shorter batches are first merged to the
    /// length of the longer ones.
    pub fn merge(&mut self, other: &Self) {
        let mut added = other.clone();
        self.fold_to(added.shift);
        added.fold_to(self.shift);
        self.cells.resize(self.cells.len().max(added.cells.len()), C::default());
        for (batch, added_batch) in self.cells.iter_mut().zip(&added.cells) {
            batch.add(added_batch);
        }
    }

    /// Merges neighbouring batches until their length is at least 2^`shift`.
    pub fn fold_to(&mut self, shift: u32) {
        while self.shift < shift {
            let merge_pair = |pair: &[C]| {
                let mut merged = C::default();
                pair.iter().for_each(|batch| merged.add(batch));
                merged
            };
            self.cells = self.cells.chunks(2).map(merge_pair).collect();
            self.shift += 1;
        }
    }

    /// Truncates the batches to a window of `length`, or extends them with empty ones.
    pub fn cover(&mut self, length: u64) {
        let number = length.checked_shr(self.shift).unwrap_or(0) as usize + 1;
        self.cells.resize(number, C::default());
    }
}

impl Batches {
    /// The interval of an amount per unit of time in a window of `length`. `amount` returns the amount of a batch.
    /// `None` if fewer than [`BATCHES_MIN`] batches have an amount above 0: they do not determine the rate.
    #[must_use]
    pub fn per_time(&self, length: u64, amount: impl Fn(&Batch) -> u64) -> Option<Interval> {
        let filled = self.cells.iter().filter(|batch| amount(batch) > 0).count();
        if filled < BATCHES_MIN {
            return None;
        }
        let batch_length = 1_u64.checked_shl(self.shift)?;
        // The window may end within the last batch.
        let remaining_time =
            |index: usize| length.saturating_sub((index as u64).saturating_mul(batch_length));
        let amount_and_time = |(index, batch): (usize, &Batch)| {
            (amount(batch) as f64, remaining_time(index).min(batch_length) as f64)
        };
        let pairs: Vec<(f64, f64)> = self.cells.iter().enumerate().map(amount_and_time).collect();
        let interval = ratio_from_batches(&pairs)?;
        // A rare amount has fewer degrees of freedom: at most the number of batches that contain it, minus 1.
        let degrees_of_freedom = interval.degrees_of_freedom.min(filled as u64 - 1);
        let widening = t_95(degrees_of_freedom)? / t_95(interval.degrees_of_freedom)?;
        let half_width = interval.half_width * widening;
        Some(Interval { half_width, degrees_of_freedom, ..interval })
    }

    /// Adds a value to the batch of the time `at` since the window opened.
    pub fn record(&mut self, value: u64, at: u64) {
        self.add_at(at, &Batch { count: 1, sum: value });
    }
}

/// One of the values of a [`JointBatch`], and its correction, such as the overhead of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// Index of the value in `sums`.
    pub at: usize,
    /// The correction: it is subtracted each time that the value was counted.
    pub less: f64,
}

impl Batches<JointBatch> {
    /// The interval of a value's mean ([`ratio_from_batches`]). `None` with too few batches, or if the sum of the value
    /// is 0 in every batch: such batches do not determine a rate.
    #[must_use]
    pub fn mean(&self, term: Term) -> Option<Interval> {
        self.ratio_of(term, |batch| batch.count as f64)
    }

    /// The interval of the ratio of two values' means, which accounts for their covariance. `None` if one of the means
    /// has no interval ([`Batches::mean`]), or if 0 lies in the interval of the denominator.
    #[must_use]
    pub fn ratio(&self, numerator: Term, denominator: Term) -> Option<Interval> {
        self.mean(denominator).filter(|mean| !mean.holds_zero())?;
        self.ratio_of(numerator, |batch| corrected_sum(batch, denominator))
    }

    /// The interval of the sum of `numerator` over the sum of `denominator`, which returns the denominator of a batch. `None`
    /// if all values of the numerator are 0, or if there are too few batches.
    fn ratio_of(
        &self,
        numerator: Term,
        denominator: impl Fn(&JointBatch) -> f64,
    ) -> Option<Interval> {
        let has_value =
            |batch: &JointBatch| batch.sums.get(numerator.at).is_some_and(|sum| *sum != 0);
        if !self.cells.iter().any(has_value) {
            return None;
        }
        let pair = |batch: &JointBatch| (corrected_sum(batch, numerator), denominator(batch));
        ratio_from_batches(&self.cells.iter().map(pair).collect::<Vec<_>>())
    }
}

/// The sum of a value in a batch, after its correction.
fn corrected_sum(batch: &JointBatch, term: Term) -> f64 {
    let sum = batch.sums.get(term.at).map_or(0.0, |sum| *sum as f64);
    sum - term.less * batch.count as f64
}

/// How an interval was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalMethod {
    /// From the spread of batches of equal length in time.
    BatchMeans,
    /// Like `BatchMeans`, but neighbouring batches were correlated, and merging them ended at the smallest number of
    /// batches. The interval may be too narrow, because these batches may be correlated, too.
    BatchMeansCorrelated,
    /// From the sample variance, as if the values were independent.
    Independent,
    /// From the batch means of two windows, one for each term of a ratio, as if the terms were independent.
    TwoWindows,
    /// Like `TwoWindows`, but one of the terms is [`IntervalMethod::BatchMeansCorrelated`].
    TwoWindowsCorrelated,
}

impl IntervalMethod {
    /// The name used in tables: `batch-means`, `batch-means-correlated`, `independent`, `two-windows` or
    /// `two-windows-correlated`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            IntervalMethod::BatchMeans => "batch-means",
            IntervalMethod::BatchMeansCorrelated => "batch-means-correlated",
            IntervalMethod::Independent => "independent",
            IntervalMethod::TwoWindows => "two-windows",
            IntervalMethod::TwoWindowsCorrelated => "two-windows-correlated",
        }
    }
}

/// A 95 % confidence interval of a mean: `mean` ± `half_width`, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub mean: f64,
    /// Half the width of the confidence interval.
    pub half_width: f64,
    /// Degrees of freedom of the standard error. With them, [`t_quantile`] gives intervals with other confidences.
    pub degrees_of_freedom: u64,
    /// Standard deviation of the means of windows of this length because of slow changes ([`drift`]), in addition to
    /// the standard error. 0 if it was not computed.
    pub drift: f64,
    pub method: IntervalMethod,
}

impl Interval {
    /// Whether 0 lies in the interval. A ratio with this mean as the denominator then has no bounds (Fieller, Some
    /// problems in interval estimation, Journal of the Royal Statistical Society B 16, 1954).
    #[must_use]
    pub fn holds_zero(&self) -> bool {
        self.mean.abs() <= self.half_width
    }

    /// The ratio of two means from different windows, as if they were independent: the squares of the
    /// relative half widths add up (delta method: Cochran, Sampling Techniques, ch. 6). `None` if 0 lies in
    /// the interval of the denominator.
    #[must_use]
    pub fn over(&self, denominator: &Interval) -> Option<Interval> {
        if denominator.holds_zero() {
            return None;
        }
        let mean = self.mean / denominator.mean;
        let half_width = self.half_width.hypot(mean * denominator.half_width);
        let is_correlated =
            |interval: &Interval| interval.method == IntervalMethod::BatchMeansCorrelated;
        let method = if is_correlated(self) || is_correlated(denominator) {
            IntervalMethod::TwoWindowsCorrelated
        } else {
            IntervalMethod::TwoWindows
        };
        Some(Interval {
            mean,
            half_width: half_width / denominator.mean.abs(),
            degrees_of_freedom: self.degrees_of_freedom.min(denominator.degrees_of_freedom),
            drift: self.drift.hypot(mean * denominator.drift) / denominator.mean.abs(),
            method,
        })
    }
}

/// The two-sided 95 % quantile of Student's t distribution. `None` with 0 degrees of freedom.
#[must_use]
pub fn t_95(degrees_of_freedom: u64) -> Option<f64> {
    t_quantile(degrees_of_freedom as f64, 0.025)
}

/// From this number of degrees of freedom on, the normal distribution replaces Student's t. They differ by 0.01 %.
const NORMAL_FROM: f64 = 1e5;

/// The value that a variable with Student's t distribution exceeds with the probability `tail`. `None` without degrees
/// of freedom, or if `tail` is not between 0 and 1/2.
#[must_use]
pub fn t_quantile(degrees_of_freedom: f64, tail: f64) -> Option<f64> {
    if !(degrees_of_freedom > 0.0 && tail > 0.0 && tail < 0.5) {
        return None;
    }
    if degrees_of_freedom >= NORMAL_FROM {
        return Some(-Normal::standard().inverse_cdf(tail));
    }
    let t = StudentsT::new(0.0, 1.0, degrees_of_freedom).ok()?;
    // The lower tail keeps all digits of a small probability.
    Some(-t.inverse_cdf(tail))
}

/// The value that a standard normal variable exceeds with a probability of 10 %.
const NORMAL_90: f64 = 1.281_6;
/// Correlations of neighbours above this value count as this value: they widen an interval three times.
const CORRELATION_MAX: f64 = 0.8;

/// The interval of the mean of all values, from batches of equal length in time ([`ratio_from_batches`]). Empty batches
/// count, because they express the burstiness. `None` if fewer than [`BATCHES_MIN`] batches have a value.
#[must_use]
pub fn from_batches(batches: &[Batch]) -> Option<Interval> {
    let pair = |batch: &Batch| (batch.sum as f64, batch.count as f64);
    ratio_from_batches(&batches.iter().map(pair).collect::<Vec<_>>())
}

/// The interval of the sum of the numerators over the sum of the denominators. A batch is a pair (numerator,
/// denominator), so the interval accounts for their covariance. The batches are in the order of time and have equal
/// length. `None` if fewer than [`BATCHES_MIN`] denominators are above 0.
///
/// The function merges pairs of batches while the residuals of neighbouring batches correlate (von Neumann's ratio,
/// one-sided at 10 %: Fishman, Grouping observations in digital simulation, Management Science 24, 1978). The remaining
/// correlation widens the interval as in a first-order autoregressive process (Tafazzoli, Wilson et al., Performance of
/// Skart, INFORMS Journal on Computing 23, 2011).
#[must_use]
pub fn ratio_from_batches(batches: &[(f64, f64)]) -> Option<Interval> {
    let filled_count =
        |batches: &[(f64, f64)]| batches.iter().filter(|batch| batch.1 > 0.0).count();
    if filled_count(batches) < BATCHES_MIN {
        return None;
    }
    let sums = |batches: &[(f64, f64)]| {
        batches.iter().fold((0.0, 0.0), |sum, batch| (sum.0 + batch.0, sum.1 + batch.1))
    };
    let (numerator, denominator) = sums(batches);
    let mean = numerator / denominator;
    let mut merged = batches.to_vec();
    let mut method = IntervalMethod::BatchMeans;
    let residuals = loop {
        let residuals: Vec<f64> = merged.iter().map(|batch| batch.0 - mean * batch.1).collect();
        let longer_batches: Vec<(f64, f64)> = merged.chunks(2).map(sums).collect();
        let is_last = filled_count(&longer_batches) < BATCHES_MIN;
        let are_correlated = are_neighbours_correlated(&residuals);
        // The test has little power with the fewest batches. Merging down to them is itself a sign of correlation.
        if is_last && (are_correlated || merged.len() < batches.len()) {
            method = IntervalMethod::BatchMeansCorrelated;
        }
        if is_last || !are_correlated {
            break residuals;
        }
        merged = longer_batches;
    };
    let number = merged.len() as f64;
    let squares: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
    let correlation = lag_1(&residuals).clamp(0.0, CORRELATION_MAX);
    let error =
        (squares / (number - 1.0) / number * (1.0 + correlation) / (1.0 - correlation)).sqrt();
    let degrees_of_freedom = filled_count(&merged) as u64 - 1;
    let half_width = t_95(degrees_of_freedom)? * error / (denominator / number);
    let drift = drift(batches);
    Some(Interval { mean, half_width, degrees_of_freedom, drift, method })
}

/// About this number of parts of a window are compared with its single batches for the drift. With few
/// batches, there are 2 to 11 parts.
const DRIFT_PARTS: usize = 8;

/// Number of batches in a part of a window with `batches` batches, for the drift.
fn batches_of_part(batches: usize) -> usize {
    (batches / DRIFT_PARTS).max(2)
}

/// Degrees of freedom of the drift's variance: the number of parts minus 1, at least 1. The number of parts follows from
/// the degrees of freedom of the batches' mean. It is a lower bound, because merging reduces these degrees of freedom.
fn drift_freedom(degrees_of_freedom: f64) -> f64 {
    let batches = degrees_of_freedom as usize;
    let parts = batches / batches_of_part(batches);
    parts.clamp(2, DRIFT_PARTS) as f64 - 1.0
}

/// The drift of a ratio: the standard deviation between windows of this length because of slow changes. A batch is a
/// pair (numerator, denominator), and the ratio is the sum of the numerators over the sum of the denominators. 0 with
/// fewer than five batches, or if the denominators are 0.
///
/// The variance of a mean of independent batches is inversely proportional to their number. The variance between about
/// eight parts of the window can be larger. This excess is the drift. The function assumes an equal excess between whole windows:
/// the Allan variance of flicker noise is equal for all lengths (Allan, Statistics of atomic frequency standards,
/// Proceedings of the IEEE 54, 1966). No test decides whether a drift exists, because a missed drift would appear as a
/// difference of two windows. Changes that are slower than the window cannot be detected.
#[must_use]
pub fn drift(batches: &[(f64, f64)]) -> f64 {
    // The last batch may be shorter than the others.
    let full_batches = &batches[..batches.len().saturating_sub(1)];
    let part_batches = batches_of_part(full_batches.len());
    let (numerator, denominator) =
        full_batches.iter().fold((0.0, 0.0), |sum, batch| (sum.0 + batch.0, sum.1 + batch.1));
    if full_batches.len() < 2 * part_batches || denominator <= 0.0 {
        return 0.0;
    }
    let ratio = numerator / denominator;
    let mean_denominator = denominator / full_batches.len() as f64;
    let deviations: Vec<f64> =
        full_batches.iter().map(|batch| (batch.0 - ratio * batch.1) / mean_denominator).collect();
    let part_means: Vec<f64> = deviations
        .chunks_exact(part_batches)
        .map(|part| part.iter().sum::<f64>() / part_batches as f64)
        .collect();
    let variance = |values: &[f64]| {
        let squares: f64 = values.iter().map(|value| value.powi(2)).sum();
        squares / (values.len() as f64 - 1.0)
    };
    let part_batches = part_batches as f64;
    // Both variances are per batch. Without drift, they are equal on average.
    let parts_variance = part_batches * variance(&part_means);
    let batches_variance = variance(&deviations);
    ((parts_variance - batches_variance) / (part_batches - 1.0)).max(0.0).sqrt()
}

/// Correlation of each residual with the next one; 0 if all residuals are 0. The residuals' sum is 0.
fn lag_1(residuals: &[f64]) -> f64 {
    let squares: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
    let products: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if squares > 0.0 { products / squares } else { 0.0 }
}

/// Von Neumann's test: whether neighbouring residuals are more alike than independent residuals would be, one-sided at
/// 10 %. False if all residuals are 0. The residuals are in the order of time, and their sum is 0.
fn are_neighbours_correlated(residuals: &[f64]) -> bool {
    let n = residuals.len() as f64;
    let squares: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
    let ends = residuals.first().zip(residuals.last());
    let end_squares = ends.map_or(0.0, |(first, last)| first.powi(2) + last.powi(2));
    if squares <= 0.0 {
        return false;
    }
    // One minus half of von Neumann's ratio (the squared differences of neighbours over the squares). Of independent
    // residuals, the statistic has the mean 0 and this standard deviation.
    let statistic = lag_1(residuals) + end_squares / (2.0 * squares);
    let standard_deviation = ((n - 2.0) / (n * n - 1.0)).sqrt();
    statistic > NORMAL_90 * standard_deviation
}

/// The interval of a mean from the sum of the values and the sum of their squares, as if the values were independent.
/// `None` with fewer than two values.
#[must_use]
pub fn from_moments(count: u64, sum: u64, sum_of_squares: u128) -> Option<Interval> {
    let degrees_of_freedom = count.checked_sub(1)?;
    let t = t_95(degrees_of_freedom)?;
    let n = count as f64;
    // n * sum(x^2) - sum(x)^2 in integers: the difference of two near-equal floats would be noise.
    let spread = sum_of_squares
        .checked_mul(u128::from(count))
        .map(|scaled| scaled.saturating_sub(u128::from(sum) * u128::from(sum)) as f64)
        .unwrap_or_else(|| n * sum_of_squares as f64 - (sum as f64).powi(2));
    let variance = spread.max(0.0) / n / (n - 1.0);
    let half_width = t * (variance / n).sqrt();
    let (mean, method) = (sum as f64 / n, IntervalMethod::Independent);
    Some(Interval { mean, half_width, degrees_of_freedom, drift: 0.0, method })
}

/// The interval of the mean of independent values. `None` with fewer than two values.
#[must_use]
pub fn from_values(values: &[f64]) -> Option<Interval> {
    let degrees_of_freedom = (values.len() as u64).checked_sub(1)?;
    let t = t_95(degrees_of_freedom)?;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half_width = t * (variance / n).sqrt();
    let method = IntervalMethod::Independent;
    Some(Interval { mean, half_width, degrees_of_freedom, drift: 0.0, method })
}

/// The positions, from 0, of two values among `count` sorted independent values. The median lies between the two with a
/// probability of at least 95 % (the sign test's interval: Conover, Practical Nonparametric Statistics, ch. 3). `None`
/// with fewer than six values.
#[must_use]
pub fn order_95(count: usize) -> Option<(usize, usize)> {
    let binomial = Binomial::new(0.5, count as u64).ok()?;
    let is_in_tail = |position: &usize| binomial.cdf(*position as u64) <= 0.025;
    // The partition is valid because the distribution function rises: the tail is a prefix of the positions.
    let positions: Vec<usize> = (0..count / 2).collect();
    let low = positions.partition_point(is_in_tail).checked_sub(1)?;
    Some((low, count - 1 - low))
}

/// The ranks, from 1, of two values among `count` sorted independent values. The quantile at `per_100k` of 100,000 lies
/// between the two with a probability of at least 95 %, for any distribution (David and Nagaraja, Order Statistics,
/// section 7.1). A rank is `None` if there are too few values to bound that side.
#[must_use]
pub fn quantile_ranks_95(count: u64, per_100k: u32) -> (Option<u64>, Option<u64>) {
    quantile_ranks(count, per_100k, 0.025)
}

/// The ranks, from 1, of two values among `count` sorted independent values. The quantile at `per_100k` of 100,000 lies
/// outside of the two with a probability of at most `tail` at each side. A rank is `None` if too few values exist to bound
/// the quantile at this side.
#[must_use]
pub fn quantile_ranks(count: u64, per_100k: u32, tail: f64) -> (Option<u64>, Option<u64>) {
    let share = f64::from(per_100k) / 1e5;
    let (Ok(below), true) = (Binomial::new(share, count), count > 0 && tail > 0.0) else {
        return (None, None);
    };
    // The number of values below the quantile is binomial. It is below the low rank, or at least the high rank, with a
    // probability of at most `tail` each.
    let low = below.inverse_cdf(tail);
    let high = below.inverse_cdf(1.0 - tail) + 1;
    ((low > 0).then_some(low), (high <= count).then_some(high))
}

/// The uncertainty of a figure of a run, for the comparison of runs (`lab/src/compare`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertainty {
    /// Half of the width of the 95 % interval.
    pub half_width: f64,
    /// Degrees of freedom of the standard error.
    pub degrees_of_freedom: f64,
    /// The [`drift`]. 0 if it is unknown.
    pub drift: f64,
}

/// Half the width of the interval of a sum or difference of two independent figures, with error probability `tail` at
/// each side. The function uses Student's t with the degrees of freedom of Welch and Satterthwaite (Satterthwaite, An
/// approximate distribution of estimates of variance components, Biometrics Bulletin 2, 1946). Each figure has two
/// deviations with degrees of freedom of their own: its error and its drift. `None` if a figure has no degrees of freedom,
/// or `tail` is no probability.
#[must_use]
pub fn half_width_of_difference(figures: [Uncertainty; 2], tail: f64) -> Option<f64> {
    let (mut variance, mut squares_over_freedom) = (0.0, 0.0);
    for figure in figures {
        // `half_width` is that of a 95 % interval.
        let error = figure.half_width / t_quantile(figure.degrees_of_freedom, 0.025)?;
        let error_freedom = figure.degrees_of_freedom;
        let drift_freedom = drift_freedom(error_freedom);
        for (deviation, freedom) in [(error, error_freedom), (figure.drift, drift_freedom)] {
            variance += deviation.powi(2);
            squares_over_freedom += deviation.powi(4) / freedom;
        }
    }
    if variance <= 0.0 {
        return Some(0.0);
    }
    let freedom = variance * variance / squares_over_freedom;
    Some(t_quantile(freedom, tail)? * variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-3 * b.abs().max(1e-9)
    }

    #[test]
    fn ranks_of_quantiles_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, ch. 3: the median of 10, 20 and 100 values.
        assert_eq!(quantile_ranks_95(10, 50_000), (Some(2), Some(9)));
        assert_eq!(quantile_ranks_95(20, 50_000), (Some(6), Some(15)));
        assert_eq!(quantile_ranks_95(100, 50_000), (Some(40), Some(61)));
        // 100 values do not bound a 99th percentile from above, 1,000 do.
        assert_eq!(quantile_ranks_95(100, 99_000), (Some(97), None));
        assert_eq!(quantile_ranks_95(1_000, 99_000), (Some(983), Some(997)));
        assert_eq!(quantile_ranks_95(0, 50_000), (None, None));
        let (low, high) = quantile_ranks_95(10_000_000_000, 99_900);
        assert!(low.unwrap().abs_diff(9_990_000_000) < 10_000 && high.unwrap() > 9_990_000_000);
    }

    /// At least 95 % of the intervals hold the quantile, for any distribution; here the values are uniform.
    #[test]
    fn intervals_of_quantiles_cover_them() {
        let mut random = crate::Random::new(7);
        for (count, per_100k) in [(8, 50_000), (30, 50_000), (30, 90_000), (300, 99_000)] {
            let (low, high) = quantile_ranks_95(count, per_100k);
            let truth = u64::from(per_100k) * 10;
            let covers = |_: &u32| {
                let mut values: Vec<u64> = (0..count).map(|_| random.below(1_000_000)).collect();
                values.sort_unstable();
                let value_of_rank = |rank: u64| values[rank as usize - 1];
                low.is_none_or(|low| value_of_rank(low) <= truth)
                    && high.is_none_or(|high| value_of_rank(high) >= truth)
            };
            let covered = (0..4_000).filter(covers).count();
            assert!(covered >= 3_780, "{count} values, {per_100k}: {covered} of 4000");
        }
    }

    #[test]
    fn t_quantiles_are_those_of_the_tables() {
        assert!(is_near(t_95(1).unwrap(), 12.706));
        assert!(is_near(t_95(15).unwrap(), 2.131));
        assert!(is_near(t_95(1_000_000).unwrap(), 1.960));
        assert_eq!(t_95(0), None);
    }

    #[test]
    fn the_median_lies_between_the_order_statistics_of_the_tables() {
        assert_eq!(order_95(0), None);
        assert_eq!(order_95(5), None);
        // Conover, table A3: the first and the last of six, the second and the ninth of ten.
        assert_eq!(order_95(6), Some((0, 5)));
        assert_eq!(order_95(10), Some((1, 8)));
        assert_eq!(order_95(100), Some((39, 60)));
    }

    #[test]
    fn batches_cover_their_window_and_take_each_value_once() {
        for length in [0, 1, 63, 64, 1_000_000, u64::MAX] {
            let mut batches = Batches::covering(length, 64);
            assert!((1..=64).contains(&batches.cells.len()), "{length}: {batches:?}");
            for at in [0, length / 2, length, u64::MAX] {
                batches.record(3, at);
            }
            assert_eq!(batches.cells.iter().map(|batch| batch.count).sum::<u64>(), 4);
            assert_eq!(batches.cells.last().map_or(0, |last| last.sum) % 3, 0);
        }
        let mut batches = Batches::covering(100, 10);
        batches.record(7, 17);
        assert_eq!((batches.shift, batches.cells[1].sum), (4, 7));
    }

    #[test]
    fn moments_of_a_known_sample() {
        // 2 4 4 4 5 5 7 9: mean 5, sample variance 32/7.
        let values = [2u64, 4, 4, 4, 5, 5, 7, 9];
        let squares = values.iter().map(|v| u128::from(v * v)).sum();
        let interval = from_moments(8, values.iter().sum(), squares).unwrap();
        assert!(is_near(interval.mean, 5.0));
        assert!(is_near(interval.half_width, 2.3646 * (32.0f64 / 7.0 / 8.0).sqrt()));
        assert_eq!(from_moments(1, 5, 25), None);
        assert_eq!(from_moments(0, 0, 0), None);
    }

    #[test]
    fn equal_values_have_an_interval_of_zero_width_however_large() {
        let (n, v) = (1_000_000u64, 3_000_000_000u64);
        let interval = from_moments(n, n * v, u128::from(n) * u128::from(v) * u128::from(v));
        assert_eq!(interval.unwrap().half_width, 0.0);
    }

    #[test]
    fn bursts_widen_the_interval_that_batches_give() {
        // 16 batches of 100 values, all small or all large: the mean moves from batch to batch.
        let batch = |i: u64| Batch { count: 100, sum: 1_000 + 2_000 * (i % 2) };
        let batches: Vec<Batch> = (0..16).map(batch).collect();
        let by_batch = from_batches(&batches).unwrap();
        let squares = 800 * 100 + 800 * 900;
        let independent = from_moments(1_600, 32_000, squares).unwrap();
        assert!(is_near(by_batch.mean, 20.0) && is_near(independent.mean, 20.0));
        assert!(by_batch.half_width > 5.0 * independent.half_width);
    }

    #[test]
    fn batches_of_different_length_merge_into_the_longer() {
        let cell = |count| Batch { count, sum: 10 * count };
        let mut fine = Batches { shift: 3, cells: (1..=5).map(cell).collect() };
        let coarse = Batches { shift: 4, cells: vec![cell(100)] };
        fine.merge(&coarse);
        assert_eq!(fine, Batches { shift: 4, cells: vec![cell(103), cell(7), cell(5)] });
        fine.cover(40);
        assert_eq!(fine.cells.len(), 3);
        fine.cover(100);
        assert_eq!(fine.cells.len(), 7);
    }

    /// The first value is 4 in every second batch and 0 in the others. The second value is always 3.
    fn joint(number: u64) -> Batches<JointBatch> {
        let mut batches = Batches::<JointBatch>::covering(number * 2 - 1, number);
        for at in 0..number * 2 {
            let first = if at / 2 % 2 == 0 { 4 } else { 0 };
            batches.add_at(at, &JointBatch { count: 1, sums: vec![first, 3] });
        }
        batches
    }

    #[test]
    fn values_of_one_window_have_means_and_ratios() {
        let batches = joint(16);
        assert_eq!(batches.cells[1], JointBatch { count: 2, sums: vec![0, 6] });
        let plain = |at| Term { at, less: 0.0 };
        assert!(is_near(batches.mean(plain(0)).unwrap().mean, 2.0));
        assert_eq!(batches.mean(plain(1)).unwrap().half_width, 0.0);
        assert!(is_near(batches.ratio(plain(0), plain(1)).unwrap().mean, 2.0 / 3.0));
        let corrected_by = |at, less| Term { at, less };
        let corrected = batches.ratio(corrected_by(0, 0.5), corrected_by(1, 1.0)).unwrap();
        assert!(is_near(corrected.mean, 1.5 / 2.0));
        assert_eq!(batches.mean(plain(2)), None, "never counted");
        assert_eq!(
            batches.ratio(plain(0), corrected_by(1, 3.0)),
            None,
            "nothing is left of the denominator"
        );
        assert_eq!(joint(7).mean(plain(1)), None, "too few batches");
        // Common variation does not widen the interval of the ratio.
        assert_eq!(batches.ratio(plain(0), plain(0)).unwrap().half_width, 0.0);
        assert!(batches.mean(plain(0)).unwrap().half_width > 0.5);
    }

    #[test]
    fn relative_widths_of_two_windows_add_as_squares() {
        let interval = |mean, half_width, method| Interval {
            mean,
            half_width,
            degrees_of_freedom: 9,
            drift: 0.0,
            method,
        };
        let (top, bottom) = (
            interval(50.0, 1.5, IntervalMethod::BatchMeans),
            interval(100.0, 4.0, IntervalMethod::BatchMeans),
        );
        let ratio = top.over(&bottom).unwrap();
        assert!(is_near(ratio.mean, 0.5) && is_near(ratio.half_width, 0.5 * 0.05), "{ratio:?}");
        assert_eq!(ratio.method, IntervalMethod::TwoWindows);
        let marked = interval(100.0, 4.0, IntervalMethod::BatchMeansCorrelated);
        assert_eq!(top.over(&marked).unwrap().method, IntervalMethod::TwoWindowsCorrelated);
        assert_eq!(top.over(&interval(4.0, 4.0, IntervalMethod::BatchMeans)), None);
        // A numerator of 0 has a width, too.
        let none = interval(0.0, 1.0, IntervalMethod::BatchMeans).over(&bottom).unwrap();
        assert!(is_near(none.half_width, 0.01), "{none:?}");
    }

    #[test]
    fn drift_is_what_longer_batches_do_not_average_out() {
        let mut random = crate::Random::new(9);
        let mut level = |slow: f64| -> Vec<(f64, f64)> {
            let batch = |index: usize| {
                let level = if (index / 8).is_multiple_of(2) { slow } else { -slow };
                (100.0 * (10.0 + level + random.unit() - 0.5), 100.0)
            };
            (0..65).map(batch).collect()
        };
        // Independent batches have no drift in half of the windows, and a small one in the others. The standard deviation
        // of a batch is 0.29, and the one of an eighth is 0.10.
        let found: Vec<f64> = (0..100).map(|_| drift(&level(0.0))).collect();
        let without = found.iter().filter(|drift| **drift == 0.0).count();
        assert!((35..=75).contains(&without), "{without} of 100");
        assert!(found.iter().all(|drift| *drift < 0.2), "{found:?}");
        let slow = drift(&level(1.0));
        assert!((slow - 1.07).abs() < 0.1, "the deviation of eighths at 1 and -1: {slow}");
        assert_eq!(drift(&[(1.0, 1.0); 3]), 0.0, "too few batches");
        assert_eq!(drift(&[(5.0, 1.0); 64]), 0.0, "all alike");
    }

    #[test]
    fn differences_have_the_freedom_of_both_figures() {
        let figure = |half_width, degrees_of_freedom, drift| Uncertainty {
            half_width,
            degrees_of_freedom,
            drift,
        };
        // Two errors of 1 with ten degrees of freedom: t of 20 (2.086) times the root of 2.
        let ten = figure(2.228_1, 10.0, 0.0);
        let half_width = half_width_of_difference([ten, ten], 0.025).unwrap();
        assert!(is_near(half_width, 2.086 * 2.0_f64.sqrt()), "{half_width}");
        let none = figure(0.0, 10.0, 0.0);
        assert_eq!(half_width_of_difference([none, none], 0.025), Some(0.0));
        // Only the drift of one: an error of 2 with seven degrees of freedom.
        // Of 64 batches, eight parts have seven degrees of freedom; of ten, five parts have four.
        for (batches, t) in [(64.0, 2.364_6), (10.0, 2.776_4)] {
            let drifting = figure(0.0, batches, 2.0);
            let drifting = half_width_of_difference([none, drifting], 0.025).unwrap();
            assert!(is_near(drifting, 2.0 * t), "{drifting}");
        }
        assert_eq!(half_width_of_difference([figure(1.0, 0.0, 0.0), ten], 0.025), None);
        assert_eq!((t_quantile(0.0, 0.1), t_quantile(5.0, 0.6)), (None, None));
        assert!(is_near(t_quantile(7.0, 0.5e-4).unwrap(), 7.885), "{:?}", t_quantile(7.0, 0.5e-4));
    }

    #[test]
    fn too_few_batches_give_no_interval() {
        assert_eq!(from_batches(&[Batch { count: 9, sum: 9 }; 7]), None);
        assert_eq!(from_batches(&[Batch::default(); 32]), None);
    }
}
