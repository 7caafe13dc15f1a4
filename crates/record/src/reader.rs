//! Reads a run directory of unknown origin: `show`, `report`, `compare` and other verbs use it. Everything has a limit,
//! and nothing in the directory is trusted. An error names the file and the field or column.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::check;
use crate::decode::{DecodeError, FileLimits, decode, decode_rows};
use crate::limits::{
    MANIFEST_BYTES_MAX, ROWS_IN_MEMORY_BYTES_MAX, TABLE_BYTES_MAX, TABLE_TEXT_BYTES_MAX,
    TEXT_IN_MEMORY_BYTES_MAX, rows_in_memory_bytes,
};
use crate::manifest::{self, Manifest, SchemaOnly, TableEntry};
use crate::run::{Run, SCHEMA};
use crate::table::{Table, Value};

/// Every schema that this version reads.
pub const READABLE: [&str; 1] = [SCHEMA];

/// Why a run could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The operating system could not open or read the file.
    #[error("cannot read {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// The manifest names a schema that this version does not know.
    #[error("{path}: schema {found:?}; this version reads {}", READABLE.join(", "))]
    Schema {
        path: PathBuf,
        /// The schema that the manifest names.
        found: String,
    },
    /// The file is damaged, or the directory is not a run directory.
    #[error("{path}: {what}")]
    Corrupt {
        path: PathBuf,
        /// The field or column, and the problem.
        what: String,
    },
    /// The run exceeds the limits of memory.
    #[error(
        "{dir}: {what}, which is more than the memory limit (irqlab show {dir} TABLE --format csv writes a table \
         row by row)"
    )]
    TooLarge { dir: String, what: String },
}

/// The part of a table to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All rows and columns.
    All,
    /// All rows, but only the columns with these names.
    Columns(Vec<String>),
    /// No rows. [`Table::row_count`] still counts them.
    Outline,
}

/// Reads the run directory `dir` into memory.
///
/// Fails if a file cannot be read, is damaged, or exceeds [`crate::limits`]. Fails also if this version does not know
/// the schema, or if the run exceeds [`ROWS_IN_MEMORY_BYTES_MAX`] or [`TEXT_IN_MEMORY_BYTES_MAX`].
pub fn read_run(dir: &Path) -> Result<Run, ReadError> {
    read_run_parts(dir, |_| Part::All)
}

/// Whether a directory looks like a run: it has a manifest and tables. Their content is not read.
#[must_use]
pub fn is_run_directory(dir: &Path) -> bool {
    dir.join(manifest::FILE).is_file() && dir.join(manifest::TABLES).is_dir()
}

/// Reads a run directory, but only some parts of its tables. `part` receives each table without its rows, and
/// chooses the part to read.
///
/// Has the errors of [`read_run`]. If no rows of a table are read, only the size of the table's file is checked.
pub fn read_run_parts(dir: &Path, part: impl FnMut(&Table) -> Part) -> Result<Run, ReadError> {
    StoredRun::open(dir)?.read_parts(part)
}

/// A run directory whose rows are read on request.
#[derive(Debug)]
pub struct StoredRun {
    dir: PathBuf,
    /// The run with tables without rows. [`Table::row_count`] still counts them.
    outline: Run,
    entries: Vec<TableEntry>,
}

impl StoredRun {
    /// Reads the manifest, and checks the size of each table's file.
    ///
    /// Fails if the manifest cannot be read or is damaged, if this version does not know its schema, or if the
    /// size of a table's file is wrong.
    pub fn open(dir: &Path) -> Result<StoredRun, ReadError> {
        let manifest = read_manifest(&dir.join(manifest::FILE))?;
        let (mut outline, entries) = manifest.into_run();
        outline.tables = entries.iter().map(outline_of).collect();
        for entry in &entries {
            let path = dir.join(manifest::table_file(&entry.name));
            check_size(&path, &open(&path)?, entry)?;
        }
        Ok(StoredRun { dir: dir.to_owned(), outline, entries })
    }

    /// The run with tables without rows. [`Table::row_count`] still counts them.
    #[must_use]
    pub fn outline(&self) -> &Run {
        &self.outline
    }

    /// Calls `each` with every row in the file of `table`. Does nothing if the run has no such table.
    fn for_each_stored_row(
        &self,
        table: &str,
        each: &mut dyn FnMut(&[Value]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(entry) = self.entries.iter().find(|entry| entry.name == table) else {
            return Ok(());
        };
        let path = self.dir.join(manifest::table_file(&entry.name));
        let file = open(&path).map_err(io::Error::other)?;
        check_bytes(&path, &file, entry).map_err(io::Error::other)?;
        let limits =
            FileLimits { column_count: entry.columns.len(), text_bytes_max: TABLE_TEXT_BYTES_MAX };
        let read = decode_rows(file, entry, limits, &mut |row| each(&row)).map(drop);
        read.map_err(|error| match error {
            DecodeError::Damaged(what) | DecodeError::TooMuchText(what) => {
                io::Error::other(corrupt(&path, what))
            }
            DecodeError::Row(error) => error,
        })
    }

    /// Reads the parts of tables that `part` chooses into memory.
    ///
    /// Fails if a table's file cannot be read or is damaged, or if the parts need too much memory.
    pub fn read_parts(mut self, mut part: impl FnMut(&Table) -> Part) -> Result<Run, ReadError> {
        let (mut bytes, mut text_bytes_left) = (0_u64, TEXT_IN_MEMORY_BYTES_MAX);
        for (outline, mut entry) in self.outline.tables.iter_mut().zip(self.entries) {
            let column_count = entry.columns.len();
            match part(outline) {
                Part::Outline => continue,
                Part::All => {}
                Part::Columns(names) => {
                    entry.columns.retain(|column| names.contains(&column.name));
                    // Hints may name columns that are not read: keeps only hints without columns.
                    entry.display = crate::display::TableDisplay {
                        title: entry.display.title,
                        notes: entry.display.notes,
                        rows_max: entry.display.rows_max,
                        ..Default::default()
                    };
                }
            }
            let table_bytes = rows_in_memory_bytes(entry.rows, entry.columns.len());
            bytes = bytes.saturating_add(table_bytes);
            if bytes > ROWS_IN_MEMORY_BYTES_MAX {
                let size = format!(
                    "with the {} rows of table {}, {} MiB",
                    entry.rows,
                    entry.name,
                    bytes >> 20
                );
                return Err(ReadError::TooLarge {
                    dir: self.dir.display().to_string(),
                    what: size,
                });
            }
            let limits = FileLimits { column_count, text_bytes_max: text_bytes_left };
            let (table, text_bytes) = read_table(&self.dir, &entry, limits)?;
            *outline = table;
            text_bytes_left -= text_bytes;
        }
        Ok(self.outline)
    }
}

/// A source of the rows of tables.
pub trait Rows {
    /// Calls `each` with every row of the table, in order. Fails when `each` fails, or with a [`ReadError`] in an
    /// [`io::Error`] when the rows cannot be read.
    fn for_each_row(
        &self,
        table: &Table,
        each: &mut dyn FnMut(&[Value]) -> io::Result<()>,
    ) -> io::Result<()>;
}

/// The rows that are in memory as part of their tables.
#[derive(Clone, Copy, Debug)]
pub struct InMemory;

impl Rows for InMemory {
    fn for_each_row(
        &self,
        table: &Table,
        each: &mut dyn FnMut(&[Value]) -> io::Result<()>,
    ) -> io::Result<()> {
        table.rows().iter().try_for_each(|row| each(row))
    }
}

/// Reads row by row from the table's file, and keeps no row.
impl Rows for StoredRun {
    fn for_each_row(
        &self,
        table: &Table,
        each: &mut dyn FnMut(&[Value]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.for_each_stored_row(&table.name, each)
    }
}

/// The table of a manifest's entry, without its rows.
fn outline_of(entry: &TableEntry) -> Table {
    Table::outline(&entry.name, &entry.doc, entry.columns.clone(), entry.rows)
        .displayed(entry.display.clone())
}

/// Reads and checks the manifest. Links the columns of a run of an earlier version.
fn read_manifest(path: &Path) -> Result<Manifest, ReadError> {
    let file = open(path)?;
    let mut json = Vec::new();
    file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut json).map_err(failed(path))?;
    if json.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(corrupt(path, format!("more than {MANIFEST_BYTES_MAX} bytes")));
    }
    let invalid = |error: serde_json::Error| corrupt(path, error.to_string());
    // The schema first: a manifest of another version may not parse, and its error would not name the reason.
    let SchemaOnly { schema } = serde_json::from_slice(&json).map_err(invalid)?;
    if !READABLE.contains(&schema.as_str()) {
        return Err(ReadError::Schema { path: path.to_owned(), found: schema });
    }
    let mut manifest: Manifest = serde_json::from_slice(&json).map_err(invalid)?;
    check(&manifest).map_err(|error| corrupt(path, error))?;
    manifest.link_columns();
    Ok(manifest)
}

/// Checks limits and names of a manifest. Must run before a table's file is opened: a name from
/// the manifest is a part of the file's path.
fn check(manifest: &Manifest) -> Result<(), String> {
    check::check_shape(manifest.tables.iter().map(shape))?;
    for TableEntry { name, file, bytes, .. } in &manifest.tables {
        if *bytes > TABLE_BYTES_MAX {
            return Err(format!("table {name}: {bytes} bytes, more than {TABLE_BYTES_MAX}"));
        }
        let expected = manifest::table_file(name);
        if *file != expected {
            return Err(format!("table {name}: file is {file:?}, not {expected:?}"));
        }
    }
    Ok(())
}

fn shape(entry: &TableEntry) -> check::Shape<'_> {
    let TableEntry { name, columns, display, rows, .. } = entry;
    check::Shape { name, columns, display, rows: *rows }
}

/// Reads the entry's columns from the table's file. Returns the table and the number of bytes of its text.
fn read_table(
    dir: &Path,
    entry: &TableEntry,
    limits: FileLimits,
) -> Result<(Table, usize), ReadError> {
    let path = dir.join(manifest::table_file(&entry.name));
    let file = open(&path)?;
    check_bytes(&path, &file, entry)?;
    decode(file, entry, limits).map_err(|error| match error {
        DecodeError::Damaged(what) => corrupt(&path, what),
        DecodeError::TooMuchText(what) => ReadError::TooLarge {
            dir: dir.display().to_string(),
            what: format!("table {}: {what}", entry.name),
        },
        DecodeError::Row(source) => ReadError::Io { path, source },
    })
}

/// Compares the size of the file with the size in the manifest.
fn check_size(path: &Path, file: &File, entry: &TableEntry) -> Result<(), ReadError> {
    let size = file.metadata().map_err(failed(path))?.len();
    if size == entry.bytes {
        return Ok(());
    }
    let than = if size < entry.bytes { "fewer" } else { "more" };
    Err(corrupt(path, format!("{than} bytes than the manifest says ({})", entry.bytes)))
}

/// Compares size and checksum of the file with the values in the manifest.
fn check_bytes(path: &Path, mut file: &File, entry: &TableEntry) -> Result<(), ReadError> {
    let mut crc = crc32fast::Hasher::new();
    let mut size = 0_u64;
    let mut buffer = vec![0; 1 << 16];
    // One byte past the announced size is enough to know that it is wrong.
    while size <= entry.bytes {
        let count = file.read(&mut buffer).map_err(failed(path))?;
        if count == 0 {
            break;
        }
        size += count as u64;
        crc.update(&buffer[..count]);
    }
    if size != entry.bytes {
        let than = if size < entry.bytes { "fewer" } else { "more" };
        return Err(corrupt(
            path,
            format!("{than} bytes than the manifest says ({})", entry.bytes),
        ));
    }
    if crc.finalize() != entry.crc32 {
        return Err(corrupt(path, "damaged: its checksum is not the manifest's".to_owned()));
    }
    Ok(())
}

/// Fails if the rows of a table exceed [`ROWS_IN_MEMORY_BYTES_MAX`].
pub(crate) fn check_memory(path: &Path, rows: u64, columns: usize) -> Result<(), ReadError> {
    if rows_in_memory_bytes(rows, columns) > ROWS_IN_MEMORY_BYTES_MAX {
        return Err(corrupt(path, format!("{rows} rows are more than the memory limit")));
    }
    Ok(())
}

/// Opens a regular file. Other files are refused, because reading from a pipe or a device could block forever.
pub(crate) fn open(path: &Path) -> Result<File, ReadError> {
    let metadata = fs::metadata(path).map_err(failed(path))?;
    if !metadata.is_file() {
        return Err(corrupt(path, "not a regular file".to_owned()));
    }
    File::open(path).map_err(failed(path))
}

/// Makes an IO error of `path` a [`ReadError`].
fn failed(path: &Path) -> impl Fn(io::Error) -> ReadError + '_ {
    |source| ReadError::Io { path: path.to_owned(), source }
}

pub(crate) fn corrupt(path: &Path, what: String) -> ReadError {
    ReadError::Corrupt { path: path.to_owned(), what }
}
