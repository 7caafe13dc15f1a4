//! Limits of everything in a run. The writer refuses a run that the reader would refuse.

/// Largest `manifest.json`.
pub const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of tables in a run.
pub const TABLES_MAX: usize = 64;
/// Maximum number of columns in a table.
pub const COLUMNS_MAX: usize = 512;
/// Maximum number of rows in a table.
pub const ROWS_MAX: u64 = 10_000_000;
/// Maximum number of cells (rows times columns) in a run: bounds the memory of a reader.
pub const CELLS_MAX: u64 = 100_000_000;
/// Maximum number of bytes that a run's rows take in memory, without their text. A program that keeps no rows in memory
/// has no such limit.
pub const ROWS_IN_MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of bytes of text of a run's rows in memory.
pub const TEXT_IN_MEMORY_BYTES_MAX: usize = 128 << 20;
/// Longest text in a cell.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of bytes of text in a table: a few bytes of Parquet can encode much text.
pub const TABLE_TEXT_BYTES_MAX: usize = 1 << 30;
/// Largest file of a table.
pub const TABLE_BYTES_MAX: u64 = 4 << 30;
/// Longest name of a table or column.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest heading of a column.
pub const TITLE_BYTES_MAX: usize = 128;
/// Longest title, headline or note of a table.
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

/// Whether `name` is valid for a table or column: `[a-z0-9_]+`, which is a safe file name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}
