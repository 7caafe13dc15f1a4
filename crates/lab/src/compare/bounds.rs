//! Figures that are only bounds, marked by [`Column::bound`] or [`Column::below_limit`].
//!
//! Goal: a difference is real only if the compared quantities differ.
//! Problem: an upper bound of 446 lines and an upper bound of 474 lines do not even tell which quantity is larger.
//! Rule: a bound limits the difference on one side alone, and leaves it open on the other side. So a lower bound that is
//! above an upper bound is a real difference, and two upper bounds tell nothing.

use record::{Column, Combine, Table, Value};

use super::cells::Figure;

/// The side of a quantity on which a bound lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The quantity is at most the figure.
    Upper,
    /// The quantity is at least the figure.
    Lower,
    /// The quantity can be on both sides of the figure: the mean of upper and lower bounds, or an unknown sign.
    Unknown,
    /// The quantity is below the detection limit, without a known upper end. The figure says nothing.
    BelowLimit,
}

impl Bound {
    /// The bound that `column` has in `row`. [`Bound::BelowLimit`] for a number below the detection limit: if the upper end
    /// of its interval is known, it is an upper bound. `None` for a measurement.
    pub(super) fn of_cell(table: &Table, row: &[Value], column: &Column) -> Option<Bound> {
        let marked = |source: &Column| {
            let Some(Combine::Bound { flag, sign }) = &source.display.combine else { return None };
            let is_bound = source.marks(column) && table.get(row, flag) == Some(&Value::Bool(true));
            is_bound.then(|| Bound::of_sign(sign))
        };
        let is_below_limit = || {
            let is_set = |flag: &String| table.get(row, flag) == Some(&Value::Bool(true));
            let mut sources = table.columns.iter().filter(|source| source.marks(column));
            sources.any(|source| source.display.below_limit.as_ref().is_some_and(is_set))
        };
        let bound = table.columns.iter().find_map(marked);
        bound.or_else(|| is_below_limit().then_some(Bound::BelowLimit))
    }

    fn of_sign(sign: &str) -> Bound {
        match sign {
            "≤" | "<" => Bound::Upper,
            "≥" | ">" => Bound::Lower,
            _ => Bound::Unknown,
        }
    }

    /// The sign before the figure.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Bound::Upper => "≤",
            Bound::Lower => "≥",
            Bound::Unknown => "≤ or ≥",
            Bound::BelowLimit => "below the limit",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Bound::Upper => "an upper bound",
            Bound::Lower => "a lower bound",
            Bound::Unknown => "only a bound",
            Bound::BelowLimit => "below the detection limit",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Bound::Upper => "upper bounds",
            Bound::Lower => "lower bounds",
            Bound::Unknown => "only bounds",
            Bound::BelowLimit => "below the detection limit",
        }
    }

    /// The bound that the mean of figures is. A measurement limits its quantity on both sides.
    pub(super) fn of_mean(bounds: impl Iterator<Item = Option<Bound>>) -> Option<Bound> {
        let either = |first: Bound, second: Bound| match (first, second) {
            (Bound::BelowLimit, _) | (_, Bound::BelowLimit) => Bound::BelowLimit,
            _ if first == second => first,
            _ => Bound::Unknown,
        };
        bounds.flatten().reduce(either)
    }

    /// The interval of the quantity, by the ends of the figure's interval. An end is infinite where the bound does not
    /// limit the quantity. `None` if the other end is not known.
    pub(super) fn interval(self, low: Option<f64>, high: Option<f64>) -> Option<(f64, f64)> {
        match self {
            Bound::Upper => high.map(|high| (f64::NEG_INFINITY, high)),
            Bound::Lower => low.map(|low| (low, f64::INFINITY)),
            Bound::Unknown | Bound::BelowLimit => None,
        }
    }
}

/// On which sides the bounds among two figures leave their difference open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OpenSides {
    /// Whether the true difference can be any amount below the difference of the figures.
    pub(super) below: bool,
    /// Whether the true difference can be any amount above the difference of the figures.
    pub(super) above: bool,
}

impl OpenSides {
    /// The open sides of the difference `new` less `base`.
    pub(super) fn of_difference(base: &Figure, new: &Figure) -> OpenSides {
        use Bound::{BelowLimit, Lower, Unknown, Upper};
        let may_be_smaller =
            |figure: &Figure| matches!(figure.bound, Some(Upper | Unknown | BelowLimit));
        let may_be_larger =
            |figure: &Figure| matches!(figure.bound, Some(Lower | Unknown | BelowLimit));
        OpenSides {
            below: may_be_smaller(new) || may_be_larger(base),
            above: may_be_larger(new) || may_be_smaller(base),
        }
    }

    /// The sides that are open in either.
    pub(super) fn or(self, other: OpenSides) -> OpenSides {
        OpenSides { below: self.below || other.below, above: self.above || other.above }
    }

    pub(super) fn is_any(self) -> bool {
        self.below || self.above
    }

    pub(super) fn are_both(self) -> bool {
        self.below && self.above
    }
}

/// Names the bounds among two figures: `both are upper bounds`. `None` if both are measurements.
pub(super) fn bound_text(base: Option<Figure>, new: Option<Figure>) -> Option<String> {
    let bound = |figure: Option<Figure>| figure.and_then(|figure| figure.bound);
    match (bound(base), bound(new)) {
        (None, None) => None,
        (Some(base), None) => Some(format!("base is {}", base.noun())),
        (None, Some(new)) => Some(format!("new is {}", new.noun())),
        (Some(base), Some(new)) if base == new => Some(format!("both are {}", base.plural())),
        (Some(base), Some(new)) => Some(format!("base is {}, new is {}", base.noun(), new.noun())),
    }
}
