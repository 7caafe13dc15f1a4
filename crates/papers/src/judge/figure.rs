//! Figures that claims compare, with their intervals and units.

use record::{Column, Columns, column};

use super::reason::Reason;

/// A measured or published number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figure {
    pub(crate) mean: f64,
    /// Half the width of the 95 % confidence interval. 0 for a number whose error is unknown, such as a published number
    /// or a result of a deterministic simulation. Infinite for a number that was measured once or in too few batches.
    pub(crate) half_width: f64,
    /// The largest error from rounding: half of the step in which a paper prints the number. 0 for a number that is not
    /// rounded, or whose step is too small for a verdict.
    pub(crate) rounding: f64,
}

impl Figure {
    /// A measured figure, which is not rounded. `half_width`: see [`Figure::half_width`].
    pub(crate) fn from_measurement(mean: f64, half_width: f64) -> Figure {
        Figure { mean, half_width, rounding: 0.0 }
    }

    /// The figure times a factor that is not negative.
    pub(crate) fn times(self, factor: f64) -> Figure {
        Figure {
            mean: self.mean * factor,
            half_width: self.half_width * factor,
            rounding: self.rounding * factor,
        }
    }

    /// The sum of two independent figures.
    pub(crate) fn plus(self, other: Figure) -> Figure {
        Figure {
            mean: self.mean + other.mean,
            half_width: self.half_width.hypot(other.half_width),
            rounding: self.rounding + other.rounding,
        }
    }
}

/// A figure, or the reason for a missing figure.
pub(crate) type Known = Result<Figure, Reason>;

/// A number whose error is unknown, such as a published figure.
pub(crate) fn exactly(number: f64) -> Figure {
    Figure { mean: number, ..Figure::default() }
}

/// A published figure that the paper prints in steps of `step`, such as whole milliseconds.
pub(crate) fn rounded(number: f64, step: f64) -> Figure {
    Figure { mean: number, rounding: step / 2.0, ..Figure::default() }
}

/// Unit of a figure in the column `evidence`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Printed after the number. Empty for a plain ratio.
    label: &'static str,
    /// The printed number over the figure.
    factor: f64,
}

impl Unit {
    /// A ratio that is no share, such as a speed-up.
    pub(crate) const RATIO: Unit = Unit { label: "", factor: 1.0 };
    /// A share, 0 to 1.
    pub(crate) const PERCENT: Unit = Unit { label: " %", factor: 100.0 };
    /// A time in ns.
    pub(crate) const MICROSECONDS: Unit = Unit { label: " µs", factor: 1e-3 };
    /// A time in ns.
    pub(crate) const MILLISECONDS: Unit = Unit { label: " ms", factor: 1e-6 };
    /// A size in bytes.
    pub(crate) const KIBIBYTES: Unit = Unit { label: " KiB", factor: 1.0 / 1024.0 };

    /// The unit of the figure itself. `label` begins with a space.
    pub(crate) const fn without_factor(label: &'static str) -> Unit {
        Unit { label, factor: 1.0 }
    }
}

/// The figure with its interval and unit, as text. It has at least three significant digits and one decimal place. A
/// number whose error is unknown stands alone. A rounded number has the digits that the paper prints.
pub(super) fn figure_text(figure: Figure, unit: Unit) -> String {
    let label = unit.label;
    let figure = figure.times(unit.factor);
    let size = if figure.mean == 0.0 { 1.0 } else { figure.mean.abs().max(1e-6) };
    let decimals = (2.0 - size.log10().floor()).max(1.0) as usize;
    if figure.rounding > 0.0 && figure.half_width == 0.0 {
        let step = 2.0 * figure.rounding;
        // The step in other units is not exact: 0.01 times 100 may be a little less than 1.
        let decimals = (-step.log10() - 1e-9).ceil().max(0.0) as usize;
        format!("{:.decimals$}{label}", figure.mean)
    } else if figure.half_width == 0.0 {
        format!("{:.decimals$}{label}", figure.mean)
    } else if figure.half_width.is_finite() {
        let minimum = 10_f64.powi(-i32::try_from(decimals).unwrap_or(1));
        // A measured figure has an error, even if the error rounds to nothing.
        let half_width = if figure.half_width < minimum / 2.0 {
            format!("<{minimum:.decimals$}")
        } else {
            format!("{:.decimals$}", figure.half_width)
        };
        format!("{:.decimals$} ± {half_width}{label}", figure.mean)
    } else {
        format!("{:.decimals$}{label} (no interval)", figure.mean)
    }
}

/// The columns of a figure. `mean`: the column of its mean. `half_width`: the name of the detail column with the half
/// width of its interval. `source`: the end of that column's description.
pub(crate) fn figure_columns<'a>(
    mean: Column,
    half_width: &str,
    source: &str,
) -> Columns<'a, Option<Figure>> {
    let doc = format!("Half width of the 95 % confidence interval of {}{source}.", mean.name);
    Columns::all([
        mean.plus_minus(half_width).real(|figure: &Option<Figure>| Some(figure.as_ref()?.mean)),
        column(half_width, &doc)
            .detail()
            .real(|figure: &Option<Figure>| Some(figure.as_ref()?.half_width)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_interval_is_not_shown_as_none() {
        let text = |mean, half_width| {
            figure_text(Figure::from_measurement(mean, half_width), Unit::without_factor(" misses"))
        };
        assert_eq!(text(1234.0, 0.02), "1234.0 ± <0.1 misses");
        assert_eq!(text(1234.0, 0.06), "1234.0 ± 0.1 misses");
        assert_eq!(text(2.0, 1e-4), "2.00 ± <0.01 misses");
        assert_eq!(text(1234.0, 0.0), "1234.0 misses");
    }

    #[test]
    fn a_rounded_figure_has_the_digits_of_the_paper() {
        assert_eq!(figure_text(rounded(12e6, 1e6), Unit::MILLISECONDS), "12 ms");
        assert_eq!(figure_text(rounded(0.25, 0.01), Unit::PERCENT), "25 %");
        assert_eq!(figure_text(rounded(24.25, 0.01), Unit::RATIO), "24.25");
        assert_eq!(figure_text(rounded(12e6, 1e6).times(0.9), Unit::MILLISECONDS), "10.8 ms");
    }
}
