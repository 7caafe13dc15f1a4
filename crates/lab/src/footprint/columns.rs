//! Columns and display hints that the tables of `footprint` share. Names and order of the columns are public.

use record::limits::ROWS_MAX;
use record::{Columns, TableDisplay, column};

use super::series::Series;
use super::what::{Level, Method, Stimulus};

/// Display hints that make a terminal show every row.
pub(super) fn all_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() }
}

/// The columns that name a series.
pub(super) fn key_columns<'a>() -> Columns<'a, (Level, Stimulus, Method)> {
    type Key = (Level, Stimulus, Method);
    Columns::all([
        column("level", "Level that the loop fills: a cache or a TLB.")
            .priority(100)
            .key()
            .text(|(level, ..): &Key| level.word()),
        column("stimulus", "Source of the interrupt.")
            .priority(100)
            .key()
            .text(|(_, stimulus, _): &Key| stimulus.word()),
        column("method", "basic or refined, as in the paper's Figure 1.")
            .priority(90)
            .key()
            .text(|(.., method): &Key| method.word()),
    ])
}

impl Series {
    /// The values of [`key_columns`].
    pub(super) fn key(&self) -> (Level, Stimulus, Method) {
        (self.level, self.stimulus, self.method)
    }
}
