//! The columns of region and CPU that the tables share.

use record::limits::ROWS_MAX;
use record::{Columns, TableDisplay, column};

/// Returns the column of the number of a region, from 1.
pub(crate) fn region_column<'a>() -> Columns<'a, u32> {
    column("region", "Region of interest, from 1.").key().uint(|region: &u32| *region)
}

/// Returns the column of a CPU's number, or `all` for the sum over the CPUs.
pub(crate) fn cpu_column<'a>() -> Columns<'a, String> {
    column("cpu", "CPU number, or `all` for the sum over the CPUs.")
        .key()
        .text(|cpu: &String| cpu.clone())
}

/// Returns display hints for a table with rows of several regions.
pub(crate) fn by_region() -> TableDisplay {
    TableDisplay {
        group_by: vec!["region".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}

/// Returns the names of the key columns: `compare` finds the same row of another run by their values.
#[cfg(test)]
pub(crate) fn key_names(table: &record::Table) -> Vec<&str> {
    let keys = table.columns.iter().filter(|column| column.role == record::Role::Key);
    keys.map(|column| column.name.as_str()).collect()
}
