//! Limits of everything in a run. Reader and writer use the same limits, so the writer refuses a run that the reader
//! would refuse. A lower limit makes older runs unreadable.

/// Maximum size of `manifest.json`, bytes.
pub const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of tables in a run.
pub const TABLES_MAX: usize = 64;
/// Maximum number of columns in a table.
pub const COLUMNS_MAX: usize = 512;
/// Maximum number of rows in a table.
pub const ROWS_MAX: u64 = 10_000_000;
/// Maximum number of cells (rows times columns) in a run. Bounds the memory of a reader.
pub const CELLS_MAX: u64 = 100_000_000;
/// Maximum number of bytes that a run's rows take in memory, without their text. It does not apply to a program that
/// reads row by row ([`crate::StoredRun`]).
pub const ROWS_IN_MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of bytes of text of a run's rows in memory.
pub const TEXT_IN_MEMORY_BYTES_MAX: usize = 128 << 20;
/// Maximum length of a text in a cell, bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of bytes of text in a table. The size of the file does not bound it,
/// because Parquet stores repeated texts once.
pub const TABLE_TEXT_BYTES_MAX: usize = 1 << 30;
/// Maximum size of a table's file, bytes.
pub const TABLE_BYTES_MAX: u64 = 4 << 30;
/// Maximum length of the name of a table or column, bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum length of a column's heading, bytes.
pub const TITLE_BYTES_MAX: usize = 128;
/// Maximum length of a table's title, headline or note, bytes.
pub const TEMPLATE_BYTES_MAX: usize = 1024;
/// Maximum number of notes of a table.
pub const NOTES_MAX: usize = 16;
/// Maximum number of columns that form groups of rows.
pub const GROUP_COLUMNS_MAX: usize = 8;

/// Bytes that rows take in memory, without their text. A row is a list of cells and an entry in the table's list.
#[must_use]
pub fn rows_in_memory_bytes(rows: u64, columns: usize) -> u64 {
    let row = columns * size_of::<crate::Value>() + 2 * size_of::<Vec<crate::Value>>();
    rows.saturating_mul(row as u64)
}

/// Whether `name` is valid for a table or column: `[a-z0-9_]+`. Such a name is also a safe file name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed)
}
