//! Reads a run directory, wherever it comes from: everything has a limit, and an error names the
//! file and the field or column.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::check;
use crate::decode::decode;
use crate::limits::{MANIFEST_BYTES_MAX, TABLE_BYTES_MAX};
use crate::manifest::{self, Manifest, SchemaOnly, TableEntry};
use crate::run::{Run, SCHEMA};
use crate::table::Table;

/// Every schema that this version reads.
pub const READABLE: [&str; 1] = [SCHEMA];

/// Why a run could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system refused, or there is no such file.
    #[error("cannot read {path}: {source}")]
    Io {
        /// What was being read.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Written in a schema that this version does not know.
    #[error("{path}: schema {found:?}; this version reads {}", READABLE.join(", "))]
    Schema {
        /// The manifest.
        path: PathBuf,
        /// The schema it names.
        found: String,
    },
    /// Damaged, or not a run directory.
    #[error("{path}: {what}")]
    Corrupt {
        /// The file that is damaged.
        path: PathBuf,
        /// The field or column, and what is wrong with it.
        what: String,
    },
}

/// What to read of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    All,
    /// All rows of the columns with these names; the table has no others.
    Columns(Vec<String>),
    /// No rows: [`Table::row_count`] says how many there are.
    Outline,
}

/// Reads the run directory `dir`.
///
/// # Errors
/// When a file cannot be read, is damaged or beyond [`crate::limits`], or is of a schema that this
/// version does not know.
pub fn read_run(dir: &Path) -> Result<Run, ReadError> {
    read_run_parts(dir, |_| Part::All)
}

/// Whether a directory looks like a run: it has a manifest and tables. They are not read.
#[must_use]
pub fn is_run_directory(dir: &Path) -> bool {
    dir.join(manifest::FILE).is_file() && dir.join(manifest::TABLES).is_dir()
}

/// The same with the parts of tables that are asked for: `part` sees each table without its rows.
///
/// # Errors
/// As [`read_run`]; of a table whose rows are not read, the size of its file alone is checked.
pub fn read_run_parts(dir: &Path, mut part: impl FnMut(&Table) -> Part) -> Result<Run, ReadError> {
    let manifest = read_manifest(&dir.join(manifest::FILE))?;
    let (mut run, entries) = manifest.into_run();
    for mut entry in entries {
        let outline = Table::outline(&entry.name, &entry.doc, entry.columns.clone(), entry.rows)
            .displayed(entry.display.clone());
        run.tables.push(match part(&outline) {
            Part::All => read_table(dir, &entry, entry.columns.len())?,
            Part::Columns(names) => {
                let all = entry.columns.len();
                entry.columns.retain(|column| names.contains(&column.name));
                // Hints name columns, which may not be among these.
                entry.display = crate::display::TableDisplay {
                    title: entry.display.title,
                    notes: entry.display.notes,
                    rows_max: entry.display.rows_max,
                    ..Default::default()
                };
                read_table(dir, &entry, all)?
            }
            Part::Outline => {
                let path = dir.join(manifest::table_file(&entry.name));
                check_size(&path, &open(&path)?, &entry)?;
                outline
            }
        });
    }
    Ok(run)
}

fn read_manifest(path: &Path) -> Result<Manifest, ReadError> {
    let file = open(path)?;
    let mut json = Vec::new();
    file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut json).map_err(failed(path))?;
    if json.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(corrupt(path, format!("more than {MANIFEST_BYTES_MAX} bytes")));
    }
    let parsed = |error: serde_json::Error| corrupt(path, error.to_string());
    let SchemaOnly { schema } = serde_json::from_slice(&json).map_err(parsed)?;
    if !READABLE.contains(&schema.as_str()) {
        return Err(ReadError::Schema { path: path.to_owned(), found: schema });
    }
    let manifest: Manifest = serde_json::from_slice(&json).map_err(parsed)?;
    check(&manifest).map_err(|what| corrupt(path, what))?;
    Ok(manifest)
}

/// Checks limits and names before any file of such a name is opened.
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

/// Reads the columns of the entry from a file with this number of columns.
fn read_table(dir: &Path, entry: &TableEntry, columns: usize) -> Result<Table, ReadError> {
    let path = dir.join(manifest::table_file(&entry.name));
    let file = open(&path)?;
    check_bytes(&path, &file, entry)?;
    decode(file, entry, columns).map_err(|what| corrupt(&path, what))
}

/// Compares the size of the file with the manifest's.
fn check_size(path: &Path, file: &File, entry: &TableEntry) -> Result<(), ReadError> {
    let size = file.metadata().map_err(failed(path))?.len();
    if size == entry.bytes {
        return Ok(());
    }
    let than = if size < entry.bytes { "fewer" } else { "more" };
    Err(corrupt(path, format!("{than} bytes than the {} it had", entry.bytes)))
}

/// Compares size and checksum with the manifest's.
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
        return Err(corrupt(path, format!("{than} bytes than the {} it had", entry.bytes)));
    }
    if crc.finalize() != entry.crc32 {
        return Err(corrupt(path, "damaged: its checksum is not the manifest's".to_owned()));
    }
    Ok(())
}

/// Opens a regular file: reading from a pipe or a device could block for ever.
fn open(path: &Path) -> Result<File, ReadError> {
    let metadata = fs::metadata(path).map_err(failed(path))?;
    if !metadata.is_file() {
        return Err(corrupt(path, "not a regular file".to_owned()));
    }
    File::open(path).map_err(failed(path))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> ReadError + '_ {
    |source| ReadError::Io { path: path.to_owned(), source }
}

fn corrupt(path: &Path, what: String) -> ReadError {
    ReadError::Corrupt { path: path.to_owned(), what }
}
