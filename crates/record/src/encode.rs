//! A table as the bytes of a Parquet file. Equal tables give equal bytes: simulated runs are compared byte by byte, so
//! nothing here may depend on time or host.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::table::{Column, Kind, Table, Value};

/// Replaces the version of the Parquet library, so that the bytes do not depend on that version.
const CREATED_BY: &str = "irqlab version 1 (build 0)";

/// Rows of a row group. A reader of columns holds one row group in memory at a time.
const GROUP_ROWS: usize = 1 << 20;

/// The physical and the logical type of a kind of column.
pub(crate) fn parquet_type(kind: Kind) -> (Physical, Option<LogicalType>) {
    match kind {
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Uint => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Int => (Physical::INT64, Some(LogicalType::integer(64, true))),
        Kind::Real => (Physical::DOUBLE, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    }
}

/// The Parquet file of a table.
pub(crate) fn encode(table: &Table) -> Result<Vec<u8>, ParquetError> {
    let mut bytes = Vec::new();
    let mut file = open_file(&mut bytes, &table.columns)?;
    for rows in table.rows().chunks(GROUP_ROWS) {
        write_group(&mut file, &table.columns, rows)?;
    }
    file.close()?;
    Ok(bytes)
}

/// Starts a file with these columns.
pub(crate) fn open_file<W: Write + Send>(
    out: W,
    columns: &[Column],
) -> Result<SerializedFileWriter<W>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(Compression::SNAPPY)
        .build();
    SerializedFileWriter::new(out, schema(columns)?, Arc::new(properties))
}

/// Writes rows as one row group. Each cell is absent or of its column's kind.
pub(crate) fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    columns: &[Column],
    rows: &[Vec<Value>],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for (index, column) in columns.iter().enumerate() {
        let mut writer = group
            .next_column()?
            .ok_or_else(|| ParquetError::General("fewer columns than the schema".into()))?;
        write_column(&mut writer, column.kind, rows, index)?;
        writer.close()?;
    }
    group.close()?;
    Ok(())
}

/// The Parquet schema: an optional column for each column of the table.
fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|column| {
        let (physical, logical) = parquet_type(column.kind);
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        field.build().map(Arc::new)
    });
    let fields = fields.collect::<Result<_, _>>()?;
    Ok(Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?))
}

/// Writes the cells of the column at `index`. The caller has checked that each cell is absent or of the column's kind.
fn write_column(
    writer: &mut SerializedColumnWriter<'_>,
    kind: Kind,
    rows: &[Vec<Value>],
    index: usize,
) -> Result<(), ParquetError> {
    let cells = rows.iter().map(|row| &row[index]);
    match kind {
        Kind::Bool => write_values::<BoolType>(writer, cells, |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        }),
        // Parquet has no unsigned physical type. The logical type says that the 64 bits are unsigned.
        Kind::Uint => write_values::<Int64Type>(writer, cells, |value| match value {
            Value::Uint(value) => Some(value.cast_signed()),
            _ => None,
        }),
        Kind::Int => write_values::<Int64Type>(writer, cells, |value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        }),
        Kind::Real => write_values::<DoubleType>(writer, cells, |value| match value {
            Value::Real(value) => Some(*value),
            _ => None,
        }),
        Kind::Text => write_values::<ByteArrayType>(writer, cells, |value| match value {
            Value::Text(value) => Some(ByteArray::from(value.as_str())),
            _ => None,
        }),
    }
}

/// Writes a column: a definition level for each row (1: has a value, 0: absent), and the values.
fn write_values<'a, T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    cells: impl Iterator<Item = &'a Value>,
    pick: fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    for cell in cells {
        let value = pick(cell);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}
