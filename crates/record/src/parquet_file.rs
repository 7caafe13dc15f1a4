//! A table outside of a run directory, such as a table of many runs: written row by row, and read again.

use std::io::{self, Write};
use std::mem;
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;

use crate::decode::{DecodeError, FileLimits, decode, kind_of};
use crate::encode::{open_file, write_group};
use crate::limits::{COLUMNS_MAX, TEXT_IN_MEMORY_BYTES_MAX, is_name};
use crate::manifest::TableEntry;
use crate::reader::{ReadError, check_memory, corrupt, open};
use crate::table::{Column, Table, Value};

/// Cells of a row group. They are in memory until the group is complete.
const GROUP_CELLS: usize = 1 << 18;
/// Bytes of text of a row group.
const GROUP_TEXT_BYTES: usize = 8 << 20;

/// A Parquet file of one table. It holds a part of the rows in memory, whatever the length of the table.
pub struct ParquetFile<W: Write + Send> {
    columns: Vec<Column>,
    file: SerializedFileWriter<W>,
    rows: Vec<Vec<Value>>,
    text_bytes: usize,
}

impl<W: Write + Send> ParquetFile<W> {
    /// Starts a file with these columns.
    ///
    /// Fails if `out` fails.
    pub fn new(out: W, columns: Vec<Column>) -> io::Result<ParquetFile<W>> {
        let file = open_file(out, &columns).map_err(failed)?;
        Ok(ParquetFile { columns, file, rows: Vec::new(), text_bytes: 0 })
    }

    /// Adds a row.
    ///
    /// Fails if the row does not fit the columns, or the output fails.
    pub fn push(&mut self, row: Vec<Value>) -> io::Result<()> {
        let fits = |(value, column): (&Value, &Column)| {
            value.kind().is_none_or(|kind| kind == column.kind)
        };
        if row.len() != self.columns.len() || !row.iter().zip(&self.columns).all(fits) {
            return Err(io::Error::other("a row does not fit the columns of its table"));
        }
        self.text_bytes += row.iter().map(text_bytes).sum::<usize>();
        self.rows.push(row);
        let cells = self.rows.len() * self.columns.len();
        if cells < GROUP_CELLS && self.text_bytes < GROUP_TEXT_BYTES {
            return Ok(());
        }
        self.write_rows()
    }

    fn write_rows(&mut self) -> io::Result<()> {
        let rows = mem::take(&mut self.rows);
        self.text_bytes = 0;
        write_group(&mut self.file, &self.columns, &rows).map_err(failed)
    }

    /// Completes the file, and returns the output.
    ///
    /// Fails if the output fails.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.rows.is_empty() {
            self.write_rows()?;
        }
        self.file.into_inner().map_err(failed)
    }
}

/// Reads a file that [`ParquetFile`] wrote. The columns have names and kinds, and no documentation.
///
/// Fails if the file cannot be read, was not written by irqlab, or exceeds the limits of memory.
pub fn read_parquet(path: &Path) -> Result<Table, ReadError> {
    let damaged = |what: String| corrupt(path, what);
    let file = open(path)?;
    let reader = SerializedFileReader::new(file).map_err(|error| damaged(error.to_string()))?;
    let metadata = reader.metadata().file_metadata();
    let column = |described: &parquet::schema::types::ColumnDescPtr| {
        let kind = kind_of(described).filter(|_| is_name(described.name()));
        let kind = kind
            .ok_or_else(|| damaged(format!("column {:?}: no kind of column", described.name())));
        kind.map(|kind| Column::new(described.name(), kind, ""))
    };
    let columns = metadata.schema_descr().columns().iter().take(COLUMNS_MAX + 1).map(column);
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let rows = u64::try_from(metadata.num_rows()).unwrap_or(u64::MAX);
    check_memory(path, rows, columns.len())?;
    let limits =
        FileLimits { column_count: columns.len(), text_bytes_max: TEXT_IN_MEMORY_BYTES_MAX };
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let entry = TableEntry::unchecked(name, rows, columns);
    match decode(open(path)?, &entry, limits) {
        Ok((table, _)) => Ok(table),
        Err(DecodeError::Damaged(what) | DecodeError::TooMuchText(what)) => Err(damaged(what)),
        Err(DecodeError::Row(source)) => Err(ReadError::Io { path: path.to_owned(), source }),
    }
}

fn text_bytes(value: &Value) -> usize {
    if let Value::Text(text) = value { text.len() } else { 0 }
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Kind;

    #[test]
    fn a_long_table_has_several_row_groups_and_all_of_its_rows() {
        let columns =
            vec![Column::new("count", Kind::Uint, ""), Column::new("name", Kind::Text, "")];
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("table");
        let out = std::fs::File::create(&path).unwrap();
        let mut file = ParquetFile::new(out, columns.clone()).unwrap();
        let count = GROUP_CELLS as u64;
        for number in 0..count {
            let name = if number == 1 { Value::Absent } else { "x".into() };
            file.push(vec![number.into(), name]).unwrap();
        }
        assert!(file.push(vec!["x".into(), 1.into()]).is_err());
        assert!(file.push(vec![1.into()]).is_err());
        file.finish().unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let table = read_parquet(&path).unwrap();
        assert_eq!(table.columns, columns);
        let numbers = table.rows().iter().map(|row| row[0].number().unwrap() as u64);
        assert_eq!(numbers.collect::<Vec<u64>>(), (0..count).collect::<Vec<u64>>());
        assert_eq!(table.rows()[1][1], Value::Absent);
        std::fs::write(&path, "PAR1").unwrap();
        assert!(read_parquet(&path).is_err());
    }
}
