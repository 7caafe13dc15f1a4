//! [`Spread`]: a figure that was measured in several rounds, and its three columns.

use record::{Columns, column};

/// Median, minimum and maximum over the rounds.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// The spread of the rounds' values. `None` without values.
    pub fn from_values(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Spread { median: live::syscall_loop::median(values)?, min, max })
    }
}

/// Three columns: the median `STEM_UNIT`, which `doc` describes, `STEM_min_UNIT` and `STEM_max_UNIT`.
pub fn spread_columns<'a>(stem: &str, unit: &str, doc: &str) -> Columns<'a, Option<Spread>> {
    Columns::all([
        column(&format!("{stem}_{unit}"), doc).real(|spread: &Spread| spread.median),
        column(&format!("{stem}_min_{unit}"), "Minimum of the rounds.")
            .real(|spread: &Spread| spread.min),
        column(&format!("{stem}_max_{unit}"), "Maximum of the rounds.")
            .real(|spread: &Spread| spread.max),
    ])
    .optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_rounds_is_their_middle() {
        let spread = Spread::from_values(vec![3.0, 1.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert!(Spread::from_values(Vec::new()).is_none());
    }
}
