//! Columns and display hints that several tables share.

use record::limits::ROWS_MAX;
use record::{Column, Kind, TableDisplay, Value};

use super::series::Series;

pub(super) fn column(name: &str, kind: Kind, doc: &str) -> Column {
    Column::new(name, kind, doc)
}

/// Display hints that make a terminal show every row.
pub(super) fn all_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() }
}

pub(super) fn key_columns() -> Vec<Column> {
    use Kind::Text;
    vec![
        column("level", Text, "Level that the loop fills: a cache or a TLB.").priority(100).key(),
        column("stimulus", Text, "Source of the interrupt.").priority(100).key(),
        column("method", Text, "basic or refined, as in the paper's Figure 1.").priority(90).key(),
    ]
}

pub(super) fn key(series: &Series) -> Vec<Value> {
    vec![series.level.word().into(), series.stimulus.word().into(), series.method.word().into()]
}
