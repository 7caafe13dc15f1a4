//! Reads a table from a Parquet file without trusting the file.

use std::cell::Cell;
use std::fs::File;
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

/// Rows decoded at a time.
const BATCH_ROWS: usize = 1 << 14;

/// The table in `file`, which must match the manifest's entry; or what is wrong with it.
/// The file has this number of columns.
pub(crate) fn decode(file: File, entry: &TableEntry, columns: usize) -> Result<Table, String> {
    // The Parquet library panics on some damaged files. The entry is all that it borrows, and it does
    // not change it.
    let outcome = unless_it_panics(|| decode_unguarded(file, entry, columns));
    outcome.unwrap_or_else(|| Err("damaged: the Parquet decoder gave up on it".to_owned()))
}

thread_local! {
    /// Whether a panic of this thread is expected, and not to be printed.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The result of `work`; none where it panics. Such a panic is not printed: its message and back trace are about
/// the library, and the reader of a damaged run could do nothing with them.
fn unless_it_panics<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                print(info);
            }
        }));
    });
    EXPECTED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(false);
    outcome.ok()
}

fn decode_unguarded(file: File, entry: &TableEntry, columns: usize) -> Result<Table, String> {
    let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
    let metadata = reader.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let places = column_places(schema, entry, columns)?;
    let groups = metadata.row_groups().iter().map(|group| group.num_rows());
    let counts = groups.map(usize::try_from).collect::<Result<Vec<_>, _>>();
    let counts = counts.map_err(|_| "a row group has a negative row count".to_owned())?;
    let total = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count as u64));
    if total != entry.rows {
        return Err(format!("{total} rows, but the manifest says {}", entry.rows));
    }

    let mut table =
        Table::new(&entry.name, &entry.doc, entry.columns.clone()).displayed(entry.display.clone());
    let mut budget = TextBudget::new();
    for (index, &count) in counts.iter().enumerate() {
        let group = reader.get_row_group(index).map_err(|error| error.to_string())?;
        let mut readers = Vec::new();
        for (column, &place) in entry.columns.iter().zip(&places) {
            let cells = cells(group.as_ref(), place, column.kind).map_err(in_column(column))?;
            readers.push((column, cells));
        }
        // Batch by batch across the columns: a row is written while it is in the caches.
        let mut done = 0;
        while done < count {
            let batch = BATCH_ROWS.min(count - done);
            let mut rows: Vec<Vec<Value>> = Vec::new();
            for (column, read) in &mut readers {
                let values = read(batch).map_err(in_column(column))?;
                if values.len() != batch {
                    let ends = format!("ends after {} of {count} rows", done + values.len());
                    return Err(in_column(column)(ends));
                }
                rows.resize_with(batch, || Vec::with_capacity(places.len()));
                for (row, value) in rows.iter_mut().zip(values) {
                    budget.check(&value).map_err(in_column(column))?;
                    row.push(value);
                }
            }
            rows.into_iter().for_each(|row| table.push(row));
            done += batch;
        }
    }
    Ok(table)
}

fn in_column(column: &Column) -> impl Fn(String) -> String + '_ {
    |error| format!("column {}: {error}", column.name)
}

/// The positions of the entry's columns in the file, which must have the number that the manifest states.
fn column_places(
    schema: &SchemaDescriptor,
    entry: &TableEntry,
    columns: usize,
) -> Result<Vec<usize>, String> {
    let found = schema.columns();
    if found.len() != columns {
        return Err(format!("{} columns, but the manifest says {columns}", found.len()));
    }
    let mut places = Vec::new();
    for wanted in &entry.columns {
        let place = found.iter().position(|column| column.path().parts() == [wanted.name.as_str()]);
        let place = place.ok_or_else(|| format!("column {}: missing", wanted.name))?;
        let column = &found[place];
        let kind = kind_of(column).ok_or_else(|| {
            format!(
                "column {}: is {}, which is no kind of column",
                wanted.name,
                column.physical_type()
            )
        })?;
        if kind != wanted.kind {
            let Column { name, kind: expected, .. } = wanted;
            return Err(format!("column {name}: is {kind}, but the manifest says {expected}"));
        }
        if column.max_def_level() != 1 || column.max_rep_level() != 0 {
            return Err(format!("column {}: is not a plain optional column", wanted.name));
        }
        places.push(place);
    }
    Ok(places)
}

fn kind_of(column: &ColumnDescriptor) -> Option<Kind> {
    let found = (column.physical_type(), column.logical_type_ref().cloned());
    Kind::ALL.into_iter().find(|kind| parquet_type(*kind) == found)
}

/// Reads up to this number of values of a column.
type Cells<'g> = Box<dyn FnMut(usize) -> Result<Vec<Value>, String> + 'g>;

fn cells(group: &dyn RowGroupReader, place: usize, kind: Kind) -> Result<Cells<'_>, String> {
    match kind {
        Kind::Bool => values::<BoolType>(group, place, |value| Ok(Value::Bool(value))),
        Kind::Uint => {
            values::<Int64Type>(group, place, |value| Ok(Value::Uint(value.cast_unsigned())))
        }
        Kind::Int => values::<Int64Type>(group, place, |value| Ok(Value::Int(value))),
        Kind::Real => values::<DoubleType>(group, place, |value| Ok(Value::Real(value))),
        Kind::Text => values::<ByteArrayType>(group, place, text),
    }
}

fn text(bytes: ByteArray) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes.data()).map_err(|_| "text is not UTF-8".to_owned())?;
    Ok(Value::Text(text.to_owned()))
}

/// Batches are of limited size, so that a wrong count costs no memory.
fn values<'g, T: DataType + 'g>(
    group: &'g dyn RowGroupReader,
    place: usize,
    make: fn(T::T) -> Result<Value, String>,
) -> Result<Cells<'g>, String> {
    let reader = group.get_column_reader(place).map_err(|error| error.to_string())?;
    let mut reader = get_typed_column_reader::<T>(reader);
    let (mut levels, mut found) = (Vec::new(), Vec::new());
    Ok(Box::new(move |wanted| {
        let mut cells = Vec::with_capacity(wanted);
        while cells.len() < wanted {
            levels.clear();
            let (records, _, _) = reader
                .read_records(wanted - cells.len(), Some(&mut levels), None, &mut found)
                .map_err(|error| error.to_string())?;
            if records == 0 || levels.len() != records {
                break;
            }
            let mut found = found.drain(..);
            for level in &levels {
                cells.push(match level {
                    0 => Value::Absent,
                    _ => make(found.next().ok_or("fewer values than it announces")?)?,
                });
            }
        }
        Ok(cells)
    }))
}
