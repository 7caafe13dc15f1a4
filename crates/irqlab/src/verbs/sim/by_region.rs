//! How tables with rows of several regions of interest are shown.

use record::TableDisplay;
use record::limits::ROWS_MAX;

/// Hints of a table with rows of several regions of interest.
pub(super) fn by_region() -> TableDisplay {
    TableDisplay {
        group_by: vec!["region".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}
