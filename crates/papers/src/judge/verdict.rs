//! Tests of claims: what the figures of a claim must fulfil, and the verdict.

use std::fmt;

use super::figure::{Figure, Unit, exactly, figure_text};
use super::reason::Reason;

/// Two counts are close if their ratio differs from 1 by at most this number. The paper `footprint-1999` calls 273 and
/// 298, and 286 and 300, "almost equal".
pub(crate) const CLOSE_RATIO: f64 = 0.10;

/// A smaller difference, relative to the larger figure, is not material: it decides nothing even where the intervals
/// exclude chance, because another build of the kernel changes figures as much.
const MATERIAL_RATIO: f64 = 0.01;

/// The limit of [`MATERIAL_RATIO`] for two figures whose error is unknown. The paper `footprint-1999` repeats its
/// measurements until their intervals are 5 % of the mean; the other papers state no error.
const MATERIAL_RATIO_WITHOUT_INTERVAL: f64 = 0.05;

/// The verdict on a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Fails,
    /// The finding cannot be judged, for this reason.
    NotJudged(Reason),
}

impl Verdict {
    fn from_bool(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::Fails }
    }

    /// The verdict on the opposite claim.
    fn converse(self) -> Verdict {
        match self {
            Verdict::Holds => Verdict::Fails,
            Verdict::Fails => Verdict::Holds,
            Verdict::NotJudged(reason) => Verdict::NotJudged(reason),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::NotJudged(_) => "not judged",
        })
    }
}

/// A verdict, with the numbers that decide it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    /// The ratio of the sides that decides the verdict. `None` if it cannot be computed.
    pub(crate) number: Option<f64>,
    /// The figures of the claim's sides, as text. Empty only if a figure is missing.
    pub(crate) numbers: String,
    pub(crate) verdict: Verdict,
}

impl Judged {
    /// A claim that cannot be judged because a figure is missing.
    fn without_figures(reason: Reason) -> Judged {
        Judged { number: None, numbers: String::new(), verdict: Verdict::NotJudged(reason) }
    }

    /// A claim that cannot be judged by its figures, which `numbers` lists.
    fn unusable(reason: &str, numbers: String) -> Judged {
        Judged { number: None, numbers, verdict: Verdict::NotJudged(reason.into()) }
    }

    /// Whether all sides of the claim have a figure.
    pub(super) fn has_figures(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// The figures, and the reason if they decide nothing.
    pub(super) fn in_words(&self) -> String {
        match &self.verdict {
            Verdict::NotJudged(reason) if self.has_figures() => {
                format!("{}: {}", self.numbers, reason.text())
            }
            Verdict::NotJudged(reason) => reason.text().to_owned(),
            Verdict::Holds | Verdict::Fails => self.numbers.clone(),
        }
    }
}

/// The test of a claim: what its sides must fulfil for the claim to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Test {
    /// The first side is greater than the second. Not judged if their intervals overlap, or if the difference is not
    /// material, or comes from rounding.
    Greater,
    /// The only side, a share, is above 0. Not judged if its interval contains 0, or if the share is not material compared
    /// with the whole, which is 1.
    PositiveShare,
    /// A run's maximum exceeds a lower limit. The sides: the mean of the maxima of several parts of the run, the run's
    /// maximum, and the limit. A maximum above the limit was observed, so the test never fails then. It holds if the
    /// mean is above the limit too. Not judged if the mean and the maximum lie on opposite sides of the limit.
    MaximumAbove,
    /// The converse of [`Test::MaximumAbove`]: a run's maximum does not exceed an upper limit. It has the same sides. A
    /// maximum above the limit was observed, so the test never holds then.
    MaximumBelow,
    /// The first side is about in the range from the second to the third side: it misses the nearer end by at most
    /// [`CLOSE_RATIO`] of it. Not judged if the interval of the first side crosses that limit, if a first side without
    /// an interval is within [`MATERIAL_RATIO_WITHOUT_INTERVAL`] of that limit, or if the first side is negative.
    AboutWithin,
    /// The first side, or the sum of the first two, differs from the last by at most [`CLOSE_RATIO`]. Not judged if the interval of
    /// the ratio crosses that limit, if a ratio without an interval is within [`MATERIAL_RATIO_WITHOUT_INTERVAL`] of that
    /// limit, or if a side is negative.
    Close,
    /// Cache lines that are longer by this factor do not reduce misses. The first side has the longer
    /// lines. With the full benefit, the ratio of the sides is 1 / factor. The test holds if the
    /// ratio is nearer to 1 than to 1 / factor. Not judged if the intervals of the first side and of the limit overlap, if
    /// their difference is not material, or if a side is negative.
    NoBenefit(f64),
}

impl Test {
    /// Judges the figures of the sides. An error: the reason why a side has no figure. `unit`: for their text.
    ///
    /// # Panics
    /// If the claim does not have exactly the sides that the test compares.
    pub(super) fn judge(self, sides: Result<Vec<Figure>, Reason>, unit: Unit) -> Judged {
        let figure_text = |figure| figure_text(figure, unit);
        let sides = match sides {
            Ok(sides) => sides,
            Err(reason) => return Judged::without_figures(reason),
        };
        let pair_text =
            |first, second| format!("{} and {}", figure_text(first), figure_text(second));
        match (self, sides[..].as_ref()) {
            (Test::Greater, &[first, second]) => {
                let number = (second.mean > 0.0).then(|| first.mean / second.mean);
                Judged {
                    number,
                    numbers: pair_text(first, second),
                    verdict: greater(first, second),
                }
            }
            (Test::PositiveShare, &[share]) => {
                Judged { number: None, numbers: figure_text(share), verdict: positive_share(share) }
            }
            (Test::MaximumAbove | Test::MaximumBelow, &[mean, maximum, limit]) => {
                let is_above = maximum_above(mean, maximum, limit);
                let (first, second, verdict) = match self {
                    Test::MaximumAbove => (mean, limit, is_above),
                    _ => (limit, mean, is_above.converse()),
                };
                let maximum_text = figure_text(maximum);
                Judged {
                    number: (second.mean > 0.0).then(|| first.mean / second.mean),
                    numbers: format!("{}; run's maximum {maximum_text}", pair_text(first, second)),
                    verdict,
                }
            }
            (Test::AboutWithin, &[figure, low, high]) => {
                let range = format!("{} to {}", figure_text(low), figure_text(high));
                let numbers = format!("{}; {range}", figure_text(figure));
                judge_range(figure, [low.mean, high.mean], numbers)
            }
            (Test::Close, [parts @ .., total]) if matches!(parts.len(), 1 | 2) => {
                let texts = parts.iter().map(|part| figure_text(*part)).collect::<Vec<_>>();
                let numbers = format!("{}; {}", texts.join(" and "), figure_text(*total));
                judge_closeness(parts, *total, numbers)
            }
            (Test::NoBenefit(factor), &[long, short]) => {
                judge_benefit(long, short, factor, pair_text(long, short))
            }
            _ => panic!("{self:?} of {} sides", sides.len()),
        }
    }
}

/// Judges [`Test::AboutWithin`]. `numbers`: the figures as text.
fn judge_range(figure: Figure, [low, high]: [f64; 2], numbers: String) -> Judged {
    if figure.mean < 0.0 {
        return Judged::unusable(NEGATIVE, numbers);
    }
    let nearest = figure.mean.clamp(low, high);
    let number = (nearest > 0.0).then(|| figure.mean / nearest);
    Judged { number, numbers, verdict: about_within(figure, low, high) }
}

/// Judges [`Test::Close`]: compares the sum of `parts` with `total`. `numbers`: the figures as text.
fn judge_closeness(parts: &[Figure], total: Figure, numbers: String) -> Judged {
    if parts.iter().chain([&total]).any(|side| side.mean < 0.0) {
        return Judged::unusable(NEGATIVE, numbers);
    }
    let sum = parts.iter().fold(exactly(0.0), |sum, part| sum.plus(*part));
    let ratio = sum.mean / total.mean;
    if !ratio.is_finite() {
        return Judged::unusable(NOTHING, numbers);
    }
    // The first-order error of the ratio of independent figures (delta method).
    let half_width = sum.half_width.hypot(ratio * total.half_width) / total.mean;
    let rounding = (sum.rounding + ratio * total.rounding) / total.mean;
    let figure = Figure { mean: ratio, half_width, rounding };
    Judged { number: Some(ratio), numbers, verdict: close(figure) }
}

/// Judges [`Test::NoBenefit`]: the misses with `long` lines against the misses with lines that are shorter by `factor`.
/// `numbers`: the figures as text.
fn judge_benefit(long: Figure, short: Figure, factor: f64, numbers: String) -> Judged {
    if long.mean < 0.0 || short.mean < 0.0 {
        return Judged::unusable(NEGATIVE, numbers);
    }
    let ratio = long.mean / short.mean;
    if !ratio.is_finite() || factor <= 1.0 {
        return Judged::unusable(NOTHING, numbers);
    }
    let limit = short.times(half_benefit_ratio(factor));
    Judged { number: Some(ratio), numbers, verdict: greater(long, limit) }
}

/// Why a finding is not judged if a figure that cannot be negative is negative.
const NEGATIVE: &str = "a figure is negative: the effect is below its error";

/// Why a finding is not judged if its figures are 0.
const NOTHING: &str = "nothing to compare: the figures are 0";

/// Why a finding is not judged if two figures are equal.
const EQUAL: &str = "the figures are equal";

/// Why a finding about a run's maximum is not judged if the maximum is above the limit, but not the mean of the maxima of
/// the run's parts.
const MEAN_BELOW_LIMIT: &str =
    "the run's maximum is above the limit, but the mean of the maxima of its parts is not";

/// Whether the first figure is greater. Not judged if the intervals overlap, or if the difference is not material or may
/// not be material before the paper rounded the figures.
fn greater(first: Figure, second: Figure) -> Verdict {
    let difference = (first.mean - second.mean).abs();
    let larger_figure = first.mean.abs().max(second.mean.abs());
    let half_widths = first.half_width + second.half_width;
    if half_widths.is_infinite() {
        return Verdict::NotJudged(Reason::no_interval());
    }
    let has_error = half_widths > 0.0;
    if has_error && difference <= half_widths {
        return Verdict::NotJudged(Reason::overlap());
    }
    if difference == 0.0 {
        return Verdict::NotJudged(EQUAL.into());
    }
    let material_ratio = if has_error { MATERIAL_RATIO } else { MATERIAL_RATIO_WITHOUT_INTERVAL };
    if difference < material_ratio * larger_figure {
        return Verdict::NotJudged(not_material(material_ratio, has_error));
    }
    if difference - first.rounding - second.rounding < material_ratio * larger_figure {
        return Verdict::NotJudged(Reason::rounded(material_ratio));
    }
    Verdict::from_bool(first.mean > second.mean)
}

/// The reason why a difference below `limit` decides nothing. `has_error`: whether a figure has an interval.
fn not_material(limit: f64, has_error: bool) -> Reason {
    let figures = if has_error { "the figures" } else { "the figures have no intervals and" };
    format!("{figures} differ by less than {:.0} %", limit * 100.0).into()
}

/// Whether a share is above 0. Not judged if its interval contains 0, or if the share is not material compared with the
/// whole, which is 1.
fn positive_share(share: Figure) -> Verdict {
    let has_error = share.half_width > 0.0;
    let limit = if has_error { MATERIAL_RATIO } else { MATERIAL_RATIO_WITHOUT_INTERVAL };
    match greater(share, exactly(0.0)) {
        Verdict::Holds | Verdict::Fails if share.mean.abs() < limit => {
            let figure = if has_error { "the share" } else { "the share has no interval and" };
            let limit = limit * 100.0;
            Verdict::NotJudged(format!("{figure} differs from 0 by less than {limit:.0} %").into())
        }
        verdict => verdict,
    }
}

/// Whether a run's maximum exceeds a limit. `mean`: the mean of the maxima of several parts of the run. Its interval counts
/// only if the maximum does not exceed the limit by a material difference.
fn maximum_above(mean: Figure, maximum: Figure, limit: Figure) -> Verdict {
    let of_mean = greater(mean, limit);
    if maximum.mean <= limit.mean {
        return of_mean;
    }
    if mean.mean <= limit.mean {
        return Verdict::NotJudged(MEAN_BELOW_LIMIT.into());
    }
    match greater(maximum, limit) {
        Verdict::Holds => Verdict::Holds,
        Verdict::Fails | Verdict::NotJudged(_) => of_mean,
    }
}

/// The verdict on a figure without an interval that is within [`MATERIAL_RATIO_WITHOUT_INTERVAL`] of a limit, or may be
/// before the paper rounded it. `None` if the figure has an interval, or is farther from both limits. `name`: names the
/// figure in the reason.
fn too_close_to(name: &str, figure: Figure, limits: [f64; 2]) -> Option<Verdict> {
    let is_within = |rounding: f64| {
        limits.into_iter().any(|limit| {
            let margin = MATERIAL_RATIO_WITHOUT_INTERVAL * limit.abs().max(figure.mean);
            (figure.mean - limit).abs() - rounding < margin
        })
    };
    if figure.half_width > 0.0 || !is_within(figure.rounding) {
        return None;
    }
    let position = if is_within(0.0) { "has no interval and is" } else { "is rounded and may be" };
    let percent = MATERIAL_RATIO_WITHOUT_INTERVAL * 100.0;
    let reason = format!("the {name} {position} within {percent:.0} % of the limit");
    Some(Verdict::NotJudged(reason.into()))
}

/// Whether a figure misses the range from `range_low` to `range_high` by at most [`CLOSE_RATIO`] of the nearer end. Not judged
/// if its interval crosses that limit.
fn about_within(figure: Figure, range_low: f64, range_high: f64) -> Verdict {
    let (low, high) = (range_low * (1.0 - CLOSE_RATIO), range_high * (1.0 + CLOSE_RATIO));
    if let Some(not_judged) = too_close_to("figure", figure, [low, high]) {
        return not_judged;
    }
    let (figure_low, figure_high) =
        (figure.mean - figure.half_width, figure.mean + figure.half_width);
    if low <= figure_low && figure_high <= high {
        Verdict::Holds
    } else if figure_high < low || high < figure_low {
        Verdict::Fails
    } else if figure.half_width.is_infinite() {
        Verdict::NotJudged(Reason::no_interval())
    } else {
        Verdict::NotJudged(Reason::across_limit("figure"))
    }
}

/// Whether a ratio differs from 1 by at most [`CLOSE_RATIO`]. Not judged if its interval crosses that limit.
fn close(ratio: Figure) -> Verdict {
    let limits = [1.0 - CLOSE_RATIO, 1.0 + CLOSE_RATIO];
    if let Some(not_judged) = too_close_to("ratio", ratio, limits) {
        return not_judged;
    }
    let half_width = ratio.half_width;
    let distance = (ratio.mean - 1.0).abs();
    if distance + half_width <= CLOSE_RATIO {
        Verdict::Holds
    } else if distance - half_width > CLOSE_RATIO {
        Verdict::Fails
    } else if half_width.is_infinite() {
        Verdict::NotJudged(Reason::no_interval())
    } else {
        Verdict::NotJudged(Reason::across_limit("ratio"))
    }
}

/// The ratio of misses half way between no benefit of longer lines (1) and the full benefit (1 / `factor`).
pub(crate) fn half_benefit_ratio(factor: f64) -> f64 {
    (1.0 + 1.0 / factor) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::figure::{Known, rounded};
    use super::*;

    fn greater(left: Known, right: Known) -> Judged {
        Test::Greater.judge([left, right].into_iter().collect(), Unit::RATIO)
    }

    fn about_within(figure: Known, range: [f64; 2]) -> Judged {
        let sides = [figure, Ok(exactly(range[0])), Ok(exactly(range[1]))];
        Test::AboutWithin.judge(sides.into_iter().collect(), Unit::RATIO)
    }

    fn close([first, second]: [Known; 2], whole: Known) -> Judged {
        Test::Close.judge([first, second, whole].into_iter().collect(), Unit::RATIO)
    }

    fn no_benefit(long: Known, short: Known, factor: f64) -> Judged {
        Test::NoBenefit(factor).judge([long, short].into_iter().collect(), Unit::RATIO)
    }

    fn mean(mean: f64, half_width: f64) -> Known {
        Ok(Figure::from_measurement(mean, half_width))
    }

    fn not_measured() -> Known {
        Err("no L2".into())
    }

    #[test]
    fn figures_are_printed_with_their_units() {
        let sides = || [mean(1_250_000.0, 5_000.0), mean(2e6, 0.0)].into_iter().collect();
        let text = |unit| Test::Greater.judge(sides(), unit).numbers;
        assert_eq!(text(Unit::MICROSECONDS), "1250.0 ± 5.0 µs and 2000.0 µs");
        let share = [mean(0.261, 0.002), mean(0.2, 0.0)].into_iter().collect();
        let share = Test::Greater.judge(share, Unit::PERCENT).numbers;
        assert_eq!(share, "26.1 ± 0.2 % and 20.0 %");
    }

    #[test]
    fn a_difference_that_is_not_material_decides_nothing() {
        let verdict = |first, second| greater(first, second).verdict;
        let small: Verdict = Verdict::NotJudged("the figures differ by less than 1 %".into());
        // 0.1 %, far beyond the intervals.
        assert_eq!(verdict(mean(100.1, 0.01), mean(100.0, 0.01)), small);
        assert_eq!(verdict(mean(100.0, 0.01), mean(100.1, 0.01)), small);
        assert_eq!(verdict(mean(102.0, 0.01), mean(100.0, 0.01)), Verdict::Holds);
        // Figures without an interval, such as those of a paper: the error is unknown.
        let reason = "the figures have no intervals and differ by less than 5 %";
        let unknown = Verdict::NotJudged(reason.into());
        assert_eq!(verdict(mean(24.25, 0.0), mean(23.40, 0.0)), unknown);
        assert_eq!(verdict(mean(12.0, 0.0), mean(11.0, 0.0)), Verdict::Holds);
        // In whole numbers, 11.5 and 11.49 are 12 and 11.
        let rounded_to_1 = |number| Ok(rounded(number, 1.0));
        let from_rounding =
            Verdict::NotJudged("the figures are rounded and may differ by less than 5 %".into());
        assert_eq!(verdict(rounded_to_1(12.0), rounded_to_1(11.0)), from_rounding);
        assert_eq!(verdict(rounded_to_1(11.0), rounded_to_1(12.0)), from_rounding);
        assert_eq!(verdict(rounded_to_1(13.0), rounded_to_1(11.0)), Verdict::Holds);
        let judged = greater(mean(24.25, 0.0), mean(23.40, 0.0));
        assert_eq!(judged.in_words(), format!("24.2 and 23.4: {reason}"));
        // A negative effect is as far from 0 as a positive one.
        assert_eq!(verdict(mean(-5.0, 0.0), mean(5.0, 0.0)), Verdict::Fails);
        assert_eq!(verdict(mean(0.0, 0.0), mean(0.0, 0.0)), Verdict::NotJudged(EQUAL.into()));
        // The limit on longer lines is a comparison, too: 75.4 of 100 misses remain, and the limit is 75.
        let remain = no_benefit(mean(75.4, 0.01), mean(100.0, 0.01), 2.0);
        assert_eq!(remain.verdict, small);
    }

    #[test]
    fn a_range_is_about_its_ends() {
        let verdict = |figure| about_within(figure, [3.0, 4.0]).verdict;
        assert_eq!(verdict(mean(3.5, 0.1)), Verdict::Holds);
        assert_eq!(verdict(mean(4.3, 0.1)), Verdict::Holds);
        assert_eq!(verdict(mean(2.75, 0.01)), Verdict::Holds);
        // Without an interval, 2.75 is too close to the limit of 2.7, and 4.5 to the limit of 4.4.
        let too_close =
            Verdict::NotJudged("the figure has no interval and is within 5 % of the limit".into());
        assert_eq!(verdict(mean(2.75, 0.0)), too_close);
        assert_eq!(verdict(mean(4.5, 0.0)), too_close);
        assert_eq!(verdict(mean(2.9, 0.0)), Verdict::Holds);
        assert_eq!(verdict(mean(4.7, 0.0)), Verdict::Fails);
        assert_eq!(verdict(mean(4.6, 0.1)), Verdict::Fails);
        assert_eq!(verdict(mean(2.5, 0.1)), Verdict::Fails);
        let across = Verdict::NotJudged(Reason::across_limit("figure"));
        assert_eq!(verdict(mean(4.3, 0.2)), across);
        assert_eq!(verdict(mean(3.5, 9.0)), across);
        let unknown = Verdict::NotJudged(Reason::no_interval());
        assert_eq!(verdict(mean(3.5, f64::INFINITY)), unknown);
        assert_eq!(verdict(mean(-3.5, 0.1)), Verdict::NotJudged(NEGATIVE.into()));
        // The ratio is 1 within the range, and the ratio to the nearer end outside.
        let number = |figure| about_within(figure, [3.0, 4.0]).number;
        assert_eq!(number(mean(3.5, 0.1)), Some(1.0));
        assert_eq!(number(mean(8.0, 0.1)), Some(2.0));
        assert_eq!(number(mean(1.5, 0.1)), Some(0.5));
        assert_eq!(about_within(mean(3.5, 0.1), [3.0, 4.0]).numbers, "3.50 ± 0.10; 3.00 to 4.00");
    }

    #[test]
    fn a_figure_that_was_measured_once_is_not_judged() {
        let once = Figure::from_measurement(12.5, f64::INFINITY);
        let judged = greater(Ok(once), Ok(exactly(2.0)));
        let unknown = Verdict::NotJudged(Reason::no_interval());
        assert_eq!((judged.number, judged.verdict), (Some(6.25), unknown));
        assert_eq!(judged.numbers, "12.5 (no interval) and 2.00");
    }

    #[test]
    fn an_unknown_figure_is_not_judged() {
        let unknown = Verdict::NotJudged("no L2".into());
        assert_eq!(greater(mean(1.0, 0.1), not_measured()).verdict, unknown);
        assert_eq!(about_within(not_measured(), [1.0, 2.0]).verdict, unknown);
        assert_eq!(close([mean(1.0, 0.1), not_measured()], mean(2.0, 0.1)).verdict, unknown);
        assert_eq!(close([mean(1.0, 0.1), mean(1.0, 0.1)], not_measured()).verdict, unknown);
        assert_eq!(no_benefit(not_measured(), not_measured(), 2.0).verdict, unknown);
        let zeros = close([mean(0.0, 0.0), mean(0.0, 0.0)], mean(0.0, 0.0)).verdict;
        assert!(matches!(zeros, Verdict::NotJudged(_)));
    }

    #[test]
    fn numbers_decide() {
        assert_eq!(greater(mean(30.0, 2.0), mean(20.0, 2.0)).verdict, Verdict::Holds);
        assert_eq!(greater(mean(20.0, 2.0), mean(30.0, 2.0)).verdict, Verdict::Fails);
        let overlap = greater(mean(30.0, 6.0), mean(20.0, 6.0)).verdict;
        assert!(matches!(overlap, Verdict::NotJudged(_)));
        let close_to =
            |whole| close([mean(104.0, 1.0), mean(169.0, 1.0)], mean(whole, 1.0)).verdict;
        assert_eq!((close_to(298.0), close_to(350.0)), (Verdict::Holds, Verdict::Fails));
        let without_benefit =
            |long, factor| no_benefit(mean(long, 1.0), mean(100.0, 1.0), factor).verdict;
        let twice = (without_benefit(80.0, 2.0), without_benefit(70.0, 2.0));
        assert_eq!(twice, (Verdict::Holds, Verdict::Fails));
        let four_times = (without_benefit(70.0, 4.0), without_benefit(60.0, 4.0));
        assert_eq!(four_times, (Verdict::Holds, Verdict::Fails));
    }

    #[test]
    fn a_share_that_is_not_material_is_not_positive() {
        let verdict = |share: Known| {
            Test::PositiveShare.judge([share].into_iter().collect(), Unit::PERCENT).verdict
        };
        let reason = "the share has no interval and differs from 0 by less than 5 %";
        assert_eq!(verdict(mean(0.001, 0.0)), Verdict::NotJudged(reason.into()));
        assert_eq!(verdict(mean(-0.001, 0.0)), Verdict::NotJudged(reason.into()));
        assert_eq!(verdict(mean(0.0, 0.0)), Verdict::NotJudged(EQUAL.into()));
        assert_eq!(verdict(mean(0.06, 0.0)), Verdict::Holds);
        assert_eq!(verdict(mean(-0.06, 0.0)), Verdict::Fails);
        assert_eq!(verdict(mean(0.02, 0.01)), Verdict::Holds);
        assert_eq!(verdict(mean(0.02, 0.03)), Verdict::NotJudged(Reason::overlap()));
        let reason = "the share differs from 0 by less than 1 %";
        assert_eq!(verdict(mean(0.005, 0.001)), Verdict::NotJudged(reason.into()));
    }

    /// A maximum above the limit was observed: no verdict contradicts it.
    #[test]
    fn an_observed_maximum_is_certain_on_one_side() {
        let both = |part_mean: Known, maximum: f64, limit: f64| {
            [Test::MaximumAbove, Test::MaximumBelow].map(|test| {
                let sides = [part_mean.clone(), mean(maximum, 0.0), mean(limit, 0.0)];
                test.judge(sides.into_iter().collect(), Unit::PERCENT).verdict
            })
        };
        let undecided = || [0, 1].map(|_| Verdict::NotJudged(MEAN_BELOW_LIMIT.into()));
        // Maxima of 20, 20, 20, 20 and 31.9 %, and a limit of 30 %.
        assert_eq!(both(mean(0.2238, 0.0661), 0.319, 0.3), undecided());
        // Maxima of 15, 15, 15, 15 and 21 %, and a limit of 20 %.
        assert_eq!(both(mean(0.162, 0.0333), 0.21, 0.2), undecided());
        // One peak of 68 % in a fifth of the run.
        let [above, below] = [Verdict::Holds, Verdict::Fails];
        assert_eq!(both(mean(0.136, 0.3776), 0.68, 0.001), [above, below]);
        assert_eq!(both(mean(0.2, 0.001), 0.201, 0.3), [Verdict::Fails, Verdict::Holds]);
        // A maximum that exceeds the limit by less than 5 % decides nothing: the mean's interval does.
        let overlap = || [0, 1].map(|_| Verdict::NotJudged(Reason::overlap()));
        assert_eq!(both(mean(0.302, 0.01), 0.31, 0.3), overlap());
    }

    #[test]
    fn a_ratio_at_its_limit_is_judged_beyond_its_interval_alone() {
        let across = || Verdict::NotJudged(Reason::across_limit("ratio"));
        let verdict = |first, second, total| close([first, second], total).verdict;
        // The interval of 0.98 ± 0.88 contains the limit of 10 %, though both intervals are wide.
        assert_eq!(verdict(mean(60.0, 40.0), mean(38.0, 30.0), mean(100.0, 50.0)), across());
        // The half widths of the ratio: 5 / 100 for the sum, 0.98 * 4 / 100 for the total, 0.0635 for both.
        let within = |first| verdict(mean(first, 3.0), mean(38.0, 4.0), mean(100.0, 4.0));
        assert_eq!(within(60.0), Verdict::Holds);
        assert_eq!(within(57.0), across());
        assert_eq!(within(47.0), across());
        assert_eq!(within(45.0), Verdict::Fails);
        let once = mean(38.0, f64::INFINITY);
        let unknown = Verdict::NotJudged(Reason::no_interval());
        assert_eq!(verdict(mean(60.0, 3.0), once.clone(), mean(100.0, 4.0)), unknown);
        // Without intervals, ratios of 0.92, 0.88, 1.09 and 1.12 are too close to the limits.
        let too_close =
            Verdict::NotJudged("the ratio has no interval and is within 5 % of the limit".into());
        let exact = |sum| verdict(mean(sum, 0.0), mean(0.0, 0.0), mean(100.0, 0.0));
        for sum in [92.0, 88.0, 109.0, 112.0] {
            assert_eq!(exact(sum), too_close, "{sum}");
        }
        assert_eq!((exact(104.0), exact(96.0)), (Verdict::Holds, Verdict::Holds));
        assert_eq!((exact(120.0), exact(80.0)), (Verdict::Fails, Verdict::Fails));
        // 25 and 24 % of the time may be 25.5 and 23.5 %: a ratio of 1.085.
        let whole_percents = |first, second| {
            let [first, second] = [first, second].map(|share| Ok(rounded(share, 1.0)));
            close([first, Ok(exactly(0.0))], second).verdict
        };
        let reason = "the ratio is rounded and may be within 5 % of the limit";
        assert_eq!(whole_percents(25.0, 24.0), Verdict::NotJudged(reason.into()));
        assert_eq!(whole_percents(24.0, 24.0), Verdict::Holds);
        assert_eq!(whole_percents(22.0, 28.0), Verdict::Fails);
        // Lines of twice the length: 80 of 100 misses remain, and the limit is 75.
        let without_benefit =
            |half_width| no_benefit(mean(80.0, half_width), mean(100.0, half_width), 2.0).verdict;
        assert_eq!(without_benefit(2.0), Verdict::Holds);
        assert_eq!(without_benefit(4.0), Verdict::NotJudged(Reason::overlap()));
        assert_eq!(no_benefit(once, mean(100.0, 1.0), 2.0).verdict, unknown);
    }

    #[test]
    fn negative_effects_have_no_ratio() {
        let negative = || Verdict::NotJudged(NEGATIVE.into());
        assert_eq!(no_benefit(mean(-5.0, 0.1), mean(-3.0, 0.1), 2.0).verdict, negative());
        assert_eq!(no_benefit(mean(-5.0, 0.1), mean(3.0, 0.1), 2.0).verdict, negative());
        let exact = |number| mean(number, 0.0);
        assert_eq!(close([exact(-1.0), exact(-2.0)], exact(-3.0)).verdict, negative());
        assert_eq!(close([exact(5.0), exact(-2.0)], exact(3.0)).verdict, negative());
        assert_eq!(close([exact(5.0), exact(0.0)], exact(5.0)).verdict, Verdict::Holds);
        let judged = no_benefit(exact(0.0), exact(0.0), 2.0);
        assert_eq!(judged.verdict, Verdict::NotJudged(NOTHING.into()));
        assert_eq!(judged.numbers, "0.00 and 0.00");
    }

    proptest! {
        #[test]
        fn greater_and_its_converse_never_both_hold(
            left in 0.0..1e4_f64, right in 0.0..1e4_f64, half_width in 0.0..100.0_f64,
        ) {
            let verdict = greater(mean(left, half_width), mean(right, half_width)).verdict;
            let converse = greater(mean(right, half_width), mean(left, half_width)).verdict;
            prop_assert_eq!(converse, verdict.converse());
        }
    }
}
