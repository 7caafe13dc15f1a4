//! A figure that was measured in several rounds.

use record::{Columns, column};

/// Median and range of the rounds.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// The spread of the rounds' values. `None` if there are no values.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Spread { median: values[values.len() / 2], min, max })
    }
}

/// Columns `STEM_UNIT`, which `doc` describes, `STEM_min_UNIT` and `STEM_max_UNIT`.
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
