//! Reads a table from a Parquet file without trusting the file. [`crate::reader`] has already checked the manifest, and
//! the file's size and checksum. A wrong file gives an error; it costs bounded memory and never a panic.

use std::cell;
use std::fs::File;
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use crate::check::TextBudget;
use crate::encode::parquet_type;
use crate::manifest::TableEntry;
use crate::table::{Column, Kind, Table, Value};

/// Maximum number of rows decoded at a time.
const BATCH_ROWS_MAX: usize = 1 << 14;
/// Maximum number of cells decoded at a time. Bounds the memory of a reader that keeps no rows.
const BATCH_CELLS_MAX: usize = 1 << 16;

/// Receives each row. An error ends the reading.
pub(crate) type EachRow<'e> = &'e mut dyn FnMut(Vec<Value>) -> io::Result<()>;

/// The limits of a table's file.
#[derive(Clone, Copy)]
pub(crate) struct FileLimits {
    /// Exact number of columns in the file. Fewer may be read.
    pub column_count: usize,
    /// Maximum number of bytes of text that are read.
    pub text_bytes_max: usize,
}

/// Why rows could not be read.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// The file is damaged, or differs from the manifest.
    Damaged(String),
    /// The text exceeds the limit of this reader, which may be lower than the limit of a valid table.
    TooMuchText(String),
    /// The receiver of a row failed.
    Row(io::Error),
}

impl From<String> for DecodeError {
    fn from(what: String) -> Self {
        DecodeError::Damaged(what)
    }
}

/// Reads the table in `file`. Returns the table and the number of bytes of its text. The file must
/// match the manifest's entry and the limits.
pub(crate) fn decode(
    file: File,
    entry: &TableEntry,
    limits: FileLimits,
) -> Result<(Table, usize), DecodeError> {
    let mut table =
        Table::new(&entry.name, &entry.doc, entry.columns.clone()).displayed(entry.display.clone());
    let push = &mut |row| {
        table.push(row);
        Ok(())
    };
    let text_bytes = decode_rows(file, entry, limits, push)?;
    Ok((table, text_bytes))
}

/// Reads a table's file, and passes each row to `each`. Keeps no row. Returns the number of bytes of text.
pub(crate) fn decode_rows(
    file: File,
    entry: &TableEntry,
    limits: FileLimits,
    each: EachRow<'_>,
) -> Result<usize, DecodeError> {
    // The Parquet library panics on some damaged files. A panic cannot leave a half-changed value behind: the closure
    // borrows only the entry, and does not change it.
    let outcome = catch_panic(|| decode_unguarded(file, entry, limits, each));
    outcome.unwrap_or_else(|| Err("damaged: the Parquet decoder gave up on it".to_owned().into()))
}

thread_local! {
    /// Whether a panic of this thread is expected. Expected panics are not printed.
    static EXPECTS_PANIC: cell::Cell<bool> = const { cell::Cell::new(false) };
}

/// The result of `work`, or `None` if `work` panics. The panic is not printed: its message and back trace are
/// about the library and do not help the reader of a damaged run. The first call replaces the process's panic
/// hook, which still prints unexpected panics.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous_hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !EXPECTS_PANIC.get() {
                previous_hook(info);
            }
        }));
    });
    EXPECTS_PANIC.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    EXPECTS_PANIC.set(false);
    outcome.ok()
}

/// Does the work of [`decode_rows`]: reads row groups one after the other, and each in batches of all columns, so that memory
/// is bounded. The Parquet library may panic in it.
fn decode_unguarded(
    file: File,
    entry: &TableEntry,
    limits: FileLimits,
    each: EachRow<'_>,
) -> Result<usize, DecodeError> {
    let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
    let metadata = reader.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let positions = column_positions(schema, entry, limits.column_count)?;
    let row_counts = metadata.row_groups().iter().map(|group| usize::try_from(group.num_rows()));
    let row_counts = row_counts
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| "a row group has a negative row count".to_owned())?;
    let total = row_counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count as u64));
    if total != entry.rows {
        return Err(format!("{total} rows, but the manifest says {}", entry.rows).into());
    }

    let batch_rows = (BATCH_CELLS_MAX / positions.len().max(1)).clamp(1, BATCH_ROWS_MAX);
    let mut budget = TextBudget::new(limits.text_bytes_max);
    for (index, &count) in row_counts.iter().enumerate() {
        let group = reader.get_row_group(index).map_err(|error| error.to_string())?;
        let mut readers = Vec::new();
        for (column, &position) in entry.columns.iter().zip(&positions) {
            let cells = cells(group.as_ref(), position, column.kind).map_err(in_column(column))?;
            readers.push((column, cells));
        }
        // Reads a batch of all columns, then assembles its rows while they are in the processor's caches.
        let mut rows_read = 0;
        while rows_read < count {
            let batch = batch_rows.min(count - rows_read);
            let mut read_columns = Vec::with_capacity(readers.len());
            for (column, read) in &mut readers {
                let cells = read(batch).map_err(in_column(column))?;
                if cells.len() != batch {
                    let error = format!("ends after {} of {count} rows", rows_read + cells.len());
                    return Err(in_column(column)(error).into());
                }
                read_columns.push((*column, cells.into_iter()));
            }
            for _ in 0..batch {
                let row = next_row(&mut read_columns, &mut budget)?;
                each(row).map_err(DecodeError::Row)?;
            }
            rows_read += batch;
        }
    }
    Ok(budget.bytes_used())
}

/// Assembles the next row from the cells of all columns. Fails if a cell is damaged, or if the text exceeds its budget.
fn next_row(
    columns: &mut [(&Column, std::vec::IntoIter<Cell>)],
    budget: &mut TextBudget,
) -> Result<Vec<Value>, DecodeError> {
    let mut row = Vec::with_capacity(columns.len());
    for (column, cells) in columns {
        let value = cells.next().map_or(Ok(Value::Absent), Cell::value);
        let value = value.map_err(in_column(column))?;
        if let Err(error) = budget.check(&value) {
            let error = in_column(column)(error);
            return Err(if budget.is_exceeded() {
                DecodeError::TooMuchText(error)
            } else {
                DecodeError::Damaged(error)
            });
        }
        row.push(value);
    }
    Ok(row)
}

/// Adds the column's name to an error.
fn in_column(column: &Column) -> impl Fn(String) -> String + '_ {
    |error| format!("column {}: {error}", column.name)
}

/// The positions of the entry's columns in the file, in the entry's order. Fails unless the file has exactly `column_count`
/// columns, and the entry's columns are optional and have the kinds of the manifest.
fn column_positions(
    schema: &SchemaDescriptor,
    entry: &TableEntry,
    column_count: usize,
) -> Result<Vec<usize>, String> {
    let file_columns = schema.columns();
    if file_columns.len() != column_count {
        let file_count = file_columns.len();
        return Err(format!("{file_count} columns, but the manifest says {column_count}"));
    }
    let mut positions = Vec::new();
    for manifest_column in &entry.columns {
        let position = file_columns
            .iter()
            .position(|column| column.path().parts() == [manifest_column.name.as_str()]);
        let position =
            position.ok_or_else(|| format!("column {}: missing", manifest_column.name))?;
        let column = &file_columns[position];
        let kind = kind_of(column).ok_or_else(|| {
            format!(
                "column {}: is {}, which is no kind of column",
                manifest_column.name,
                column.physical_type()
            )
        })?;
        if kind != manifest_column.kind {
            let Column { name, kind: expected, .. } = manifest_column;
            return Err(format!("column {name}: is {kind}, but the manifest says {expected}"));
        }
        if column.max_def_level() != 1 || column.max_rep_level() != 0 {
            return Err(format!("column {}: is not a plain optional column", manifest_column.name));
        }
        positions.push(position);
    }
    Ok(positions)
}

/// The kind that the writer stores with the column's Parquet type. `None` if the writer never uses this type.
pub(crate) fn kind_of(column: &ColumnDescriptor) -> Option<Kind> {
    let file_type = (column.physical_type(), column.logical_type_ref().cloned());
    Kind::ALL.into_iter().find(|kind| parquet_type(*kind) == file_type)
}

/// A cell as it was read. Cells with the same text share its bytes; [`Cell::value`] copies the bytes.
enum Cell {
    /// A value that is not text.
    Value(Value),
    /// Text that is not yet checked to be UTF-8.
    Text(ByteArray),
}

impl Cell {
    fn value(self) -> Result<Value, String> {
        match self {
            Cell::Value(value) => Ok(value),
            Cell::Text(bytes) => {
                let text = std::str::from_utf8(bytes.data());
                let text = text.map_err(|_| "text is not UTF-8".to_owned())?;
                Ok(Value::Text(text.to_owned()))
            }
        }
    }
}

/// Reads the next cells of a column, at most the given number.
type Cells<'g> = Box<dyn FnMut(usize) -> Result<Vec<Cell>, String> + 'g>;

/// A reader of the column at `position` in a row group.
fn cells(group: &dyn RowGroupReader, position: usize, kind: Kind) -> Result<Cells<'_>, String> {
    match kind {
        Kind::Bool => values::<BoolType>(group, position, |value| Cell::Value(Value::Bool(value))),
        Kind::Uint => values::<Int64Type>(group, position, |value| {
            Cell::Value(Value::Uint(value.cast_unsigned()))
        }),
        Kind::Int => values::<Int64Type>(group, position, |value| Cell::Value(Value::Int(value))),
        Kind::Real => {
            values::<DoubleType>(group, position, |value| Cell::Value(Value::Real(value)))
        }
        Kind::Text => values::<ByteArrayType>(group, position, Cell::Text),
    }
}

/// A reader of a column whose values have the Parquet type `T`. It reads batches of limited size: a wrong count in the
/// file costs no memory. It returns fewer cells than wanted only at the end of the column.
fn values<'g, T: DataType + 'g>(
    group: &'g dyn RowGroupReader,
    position: usize,
    make: fn(T::T) -> Cell,
) -> Result<Cells<'g>, String> {
    let reader = group.get_column_reader(position).map_err(|error| error.to_string())?;
    let mut reader = get_typed_column_reader::<T>(reader);
    // For each row, the definition level: 0 is an absent cell. `present_values` has the values of the other cells.
    let (mut levels, mut present_values) = (Vec::new(), Vec::new());
    Ok(Box::new(move |cell_count| {
        let mut cells = Vec::with_capacity(cell_count);
        while cells.len() < cell_count {
            levels.clear();
            let (records, _, _) = reader
                .read_records(
                    cell_count - cells.len(),
                    Some(&mut levels),
                    None,
                    &mut present_values,
                )
                .map_err(|error| error.to_string())?;
            if records == 0 || levels.len() != records {
                break;
            }
            let mut next_values = present_values.drain(..);
            for level in &levels {
                cells.push(match level {
                    0 => Cell::Value(Value::Absent),
                    _ => make(next_values.next().ok_or("fewer values than it announces")?),
                });
            }
        }
        Ok(cells)
    }))
}
