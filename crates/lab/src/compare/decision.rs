//! The interval of a difference, and the verdict on it. All comparisons decide here.
//!
//! Goal: a comparison of A with B, and one of B with A, come to the same verdict.
//! Problem: rounding decides where an end of the interval is exactly 0, such as for quantiles in adjacent buckets, and the
//! exponential of a logarithm rounds otherwise than a difference.
//! Rule: each step has a mirror image. Intervals of ratios are intervals of logarithms. An end within the rounding error
//! of 0 is 0. The margin is a part of the smaller figure.

use record::Role;

use super::Verdict;
use super::bounds::OpenSides;
use super::windows::WindowLengths;

/// A difference up to this part of the larger figure (or of 1, for figures below 1) is rounding, and counts as 0.
/// Differences of counts below 10¹² are not affected.
const ROUNDING_RATIO: f64 = 1e-12;

/// The largest rounding error of the difference of two figures.
fn rounding(base: f64, new: f64) -> f64 {
    ROUNDING_RATIO * base.abs().max(new.abs()).max(1.0)
}

/// Second figure less first. 0 within the rounding error.
pub(super) fn change(base: f64, new: f64) -> f64 {
    let difference = new - base;
    if difference.abs() > rounding(base, new) { difference } else { 0.0 }
}

/// Distances from a difference down and up to the ends of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distances {
    /// In the unit of the column.
    Linear { down: f64, up: f64 },
    /// On the scale of the logarithm of the second figure over the first. Both figures are above 0.
    Logarithmic { down: f64, up: f64 },
}

impl Distances {
    /// Widens both distances by `ratio`, the difference of the windows of two totals.
    fn wider_by_windows(self, (base, new): (f64, f64), ratio: f64) -> Distances {
        match self {
            Distances::Linear { down, up } => {
                let more = ratio * base.abs().max(new.abs());
                Distances::Linear { down: down + more, up: up + more }
            }
            Distances::Logarithmic { down, up } => {
                Distances::Logarithmic { down: down + ratio, up: up + ratio }
            }
        }
    }
}

/// The interval of the difference of two figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    /// Lower and upper end, in the unit of the column. Infinite where a bound leaves the difference open.
    pub(super) ends: (f64, f64),
    /// The ends as parts of the smaller figure: where the margin is this large, the figures are equal.
    margin_ratios: (f64, f64),
}

/// 0 if `value` is within `rounding` of 0, else `value`.
fn without_rounding(value: f64, rounding: f64) -> f64 {
    if value.abs() > rounding { value } else { 0.0 }
}

impl Interval {
    /// The interval of the difference `new` less `base`. `windows`: the windows of the figures, if the figures are totals.
    pub(super) fn new(
        (base, new): (f64, f64),
        distances: Distances,
        windows: Option<WindowLengths>,
    ) -> Interval {
        let change = change(base, new);
        let window_ratio = windows.map_or(0.0, |windows| windows.difference());
        match distances.wider_by_windows((base, new), window_ratio) {
            Distances::Linear { down, up } => {
                let snapped = |end: f64| without_rounding(end, rounding(base, new));
                let ends = (snapped(change - down), snapped(change + up));
                let smaller = base.abs().min(new.abs());
                let part = |end: f64| if end == 0.0 { 0.0 } else { end / smaller };
                Interval { ends, margin_ratios: (part(ends.0), part(ends.1)) }
            }
            Distances::Logarithmic { down, up } => {
                let middle = if change == 0.0 { 0.0 } else { new.ln() - base.ln() };
                let low = without_rounding(middle - down, ROUNDING_RATIO);
                let high = without_rounding(middle + up, ROUNDING_RATIO);
                // The change itself comes from a difference: it must not be outside of its interval.
                let ends = ((base * low.exp_m1()).min(change), (base * high.exp_m1()).max(change));
                let part = |end: f64| end.abs().exp_m1().copysign(end);
                Interval { ends, margin_ratios: (part(low), part(high)) }
            }
        }
    }

    /// This interval without an end on the open sides.
    pub(super) fn opened(self, open: OpenSides) -> Interval {
        let (infinite_low, infinite_high) = (f64::NEG_INFINITY, f64::INFINITY);
        let opened = |(low, high): (f64, f64)| {
            let low = if open.below { infinite_low } else { low };
            (low, if open.above { infinite_high } else { high })
        };
        Interval { ends: opened(self.ends), margin_ratios: opened(self.margin_ratios) }
    }

    /// Whether the whole interval is within the margin, a part of the smaller figure.
    fn is_within(&self, margin_ratio: f64) -> bool {
        let margin_ratio = margin_ratio + ROUNDING_RATIO;
        let (low, high) = self.margin_ratios;
        self.ends == (0.0, 0.0) || (low >= -margin_ratio && high <= margin_ratio)
    }
}

/// The verdict on a difference by its interval. `margin_ratio`: figures that differ by less than this part of the smaller
/// one are equal. `windows`: as for [`Interval::new`]; totals that differ by no more than their windows are equal.
pub(super) fn verdict(
    interval: &Interval,
    margin_ratio: f64,
    role: Role,
    windows: Option<WindowLengths>,
) -> Verdict {
    let window_ratio = windows.map_or(0.0, |windows| windows.difference());
    // The interval reaches by the windows' difference beyond a change that they explain.
    let windows_margin = (2.0 * window_ratio).exp_m1();
    let (low, high) = interval.ends;
    if interval.is_within(margin_ratio + windows_margin) {
        Verdict::Equal
    } else if low > 0.0 {
        verdict_by_role(role, true)
    } else if high < 0.0 {
        verdict_by_role(role, false)
    } else {
        Verdict::Undecided
    }
}

/// The verdict on a real difference. `has_grown`: whether the second figure is larger.
fn verdict_by_role(role: Role, has_grown: bool) -> Verdict {
    match (role, has_grown) {
        (Role::Cost, true) | (Role::Benefit, false) => Verdict::Worse,
        (Role::Cost, false) | (Role::Benefit, true) => Verdict::Better,
        (Role::Figure | Role::Key, _) => Verdict::Changed,
    }
}
