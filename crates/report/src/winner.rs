//! Finds which of several figures is the smallest or largest, within their errors. Pictures and the answers of a page
//! use this, so they name no winner that may be due to chance.

/// A figure with the ends of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// The extreme that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    Smallest,
    Largest,
}

impl Figure {
    /// A figure without error, such as the value of a formula.
    #[must_use]
    pub fn exact(value: f64) -> Figure {
        Figure { value, low: value, high: value }
    }

    /// A figure whose error is not known. Its interval overlaps every other interval.
    #[must_use]
    pub fn with_unknown_error(value: f64) -> Figure {
        Figure { value, low: f64::NEG_INFINITY, high: f64::INFINITY }
    }

    /// A measured figure with the half width of its interval. Without one, its error is not known.
    #[must_use]
    pub fn with_interval(value: f64, half_width: Option<f64>) -> Figure {
        match half_width {
            Some(half_width) => Figure { value, low: value - half_width, high: value + half_width },
            None => Figure::with_unknown_error(value),
        }
    }

    /// Whether the figure's largest value is known. An upper bound has only this end.
    #[must_use]
    pub(crate) fn has_upper_end(self) -> bool {
        self.high.is_finite()
    }

    /// Whether the figure's error is known.
    #[must_use]
    pub fn has_interval(self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }
}

/// The indices of the figures that may be the extreme one. The figure with the extreme value comes first, then all
/// figures whose intervals overlap its interval. A single index means that this figure is the extreme one.
#[must_use]
pub fn candidates(figures: &[Figure], extreme: Extreme) -> Vec<usize> {
    let sign = match extreme {
        Extreme::Smallest => 1.0,
        Extreme::Largest => -1.0,
    };
    let mut indices: Vec<usize> = (0..figures.len()).collect();
    indices.sort_by(|a, b| (sign * figures[*a].value).total_cmp(&(sign * figures[*b].value)));
    let Some(&extreme_index) = indices.first() else { return indices };
    let best = figures[extreme_index];
    indices.retain(|index| {
        *index == extreme_index
            || (figures[*index].low <= best.high && figures[*index].high >= best.low)
    });
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_wins_if_no_interval_overlaps_its_own() {
        let figures = [
            Figure::with_interval(3.0, Some(0.5)),
            Figure::with_interval(1.0, Some(0.2)),
            Figure::with_interval(1.3, Some(0.2)),
            Figure::exact(9.0),
        ];
        assert_eq!(candidates(&figures, Extreme::Smallest), [1, 2]);
        assert_eq!(candidates(&figures, Extreme::Largest), [3]);
        assert_eq!(candidates(&figures[..2], Extreme::Smallest), [1]);
        assert!(candidates(&[], Extreme::Smallest).is_empty());
    }

    #[test]
    fn without_an_interval_nobody_wins() {
        let figures = [Figure::with_interval(1.0, None), Figure::with_interval(5.0, Some(0.1))];
        assert_eq!(candidates(&figures, Extreme::Smallest), [0, 1]);
        assert_eq!(candidates(&figures, Extreme::Largest), [1, 0]);
        assert!(!figures[0].has_interval() && figures[1].has_interval());
        assert_eq!(candidates(&figures[..1], Extreme::Smallest), [0], "there is no other");
    }
}
