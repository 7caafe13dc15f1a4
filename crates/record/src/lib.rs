//! The run directory and its schema: the only crate that knows the file format.
//!
//! A run directory is written whole or not at all ([`write_run`]). Reading limits everything ([`read_run`]), because a
//! run directory may come from another host. `docs/schema.md` describes it.

#![forbid(unsafe_code)]

mod check;
pub mod columns;
mod decode;
pub mod display;
mod encode;
mod hints;
pub mod interval;
pub mod keys;
pub mod limits;
mod manifest;
mod parquet_file;
pub mod place;
pub mod reader;
pub mod run;
pub mod table;
pub mod writer;

pub use columns::{Cell, Columns, column};
pub use display::{ColumnDisplay, Combine, Format, Keep, RowFilter, TableDisplay};
pub use interval::IntervalColumns;
pub use jiff::Timestamp;
pub use outputs::{leftovers as partial_dirs, remove_leftovers};
pub use parquet_file::{ParquetFile, read_parquet};
pub use place::{default_dir_name, default_dirs, now};
pub use reader::{
    InMemory, Part, ReadError, Rows, StoredRun, is_run_directory, read_run, read_run_parts,
};
pub use run::{Absence, Run, SCHEMA};
pub use table::{Column, Kind, Role, Table, Value};
pub use writer::{Attachment, WriteError, is_run_file, write_run};
