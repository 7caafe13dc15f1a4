//! Writes a run directory: whole, or not at all. All verbs that keep a run call [`write_run`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use outputs::{MakeDirectoryError, NewDirectory};
use thiserror::Error;

use crate::check;
use crate::encode::encode;
use crate::limits::{MANIFEST_BYTES_MAX, TABLE_BYTES_MAX, is_name};
use crate::manifest::{self, AttachmentEntry, Manifest, TableEntry};
use crate::run::{Run, SCHEMA};
use crate::table::Table;

/// Why a run was not written. The error leaves no part of the run on disk.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The path exists. It was not changed.
    #[error("{path}: exists already, and a run is never overwritten")]
    Exists { path: PathBuf },
    /// The path does not end in a name for a new directory.
    #[error("{path}: not the name of a new directory")]
    NoName { path: PathBuf },
    /// The system refused: disk full, read-only, no permission.
    #[error("cannot write {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// The reader would refuse the run: an error of the program.
    #[error("the run cannot be recorded: {what}")]
    Invalid { what: String },
}

/// A file of the run directory that is not a table: a picture, a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the file in the run directory: letters, digits, `-`, `_` and `.`. The first character is a letter or a
    /// digit.
    pub name: String,
    pub contents: Vec<u8>,
}

/// Writes `run` with its attachments as the new directory `dir`.
///
/// All files are written into a hidden directory next to `dir` and made durable. Then the directory is renamed, so that
/// `dir` is complete from the start. Missing parent directories are created.
///
/// Fails if `dir` exists, if the system refuses, or if the run exceeds [`crate::limits`].
pub fn write_run(run: &Run, attachments: &[Attachment], dir: &Path) -> Result<(), WriteError> {
    check(run, attachments).map_err(invalid)?;
    if dir.file_name().is_none() {
        return Err(WriteError::NoName { path: dir.to_owned() });
    }
    refuse_existing(dir)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(failed(parent))?;
    }
    let failed = |error| failed_at(dir, error);
    let directory = NewDirectory::create(dir).map_err(failed)?;
    write_contents(run, attachments, &directory, dir)?;
    directory.finish().map_err(failed)
}

/// Checks everything before the first file is created.
fn check(run: &Run, attachments: &[Attachment]) -> Result<(), String> {
    if run.schema != SCHEMA {
        return Err(format!("its schema is {:?}, and this version writes {SCHEMA}", run.schema));
    }
    let invalid = attachments.iter().find(|attachment| !is_attachment_name(&attachment.name));
    if let Some(Attachment { name, .. }) = invalid {
        return Err(format!("{name:?} is not the name of an attachment"));
    }
    check::check_run(run)
}

/// Whether this path in a run directory can be one of a run's files: the manifest, a table or an attachment. Such a path
/// stays in the directory. A program that copies runs of unknown origin uses it.
#[must_use]
pub fn is_run_file(path: &str) -> bool {
    match path.split_once('/') {
        None => path == manifest::FILE || is_attachment_name(path),
        Some((directory, file)) => {
            let table = file.strip_suffix(manifest::TABLE_SUFFIX);
            directory == manifest::TABLES && table.is_some_and(is_name)
        }
    }
}

/// Whether a file of this name stays in the run directory and replaces no other file of the run.
fn is_attachment_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_reserved = name == manifest::FILE || name == manifest::TABLES;
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(is_allowed)
        && !is_reserved
}

/// Fails if `dir` exists, also as a dangling symbolic link. This check only gives an early error: the rename at the end
/// does not overwrite a directory either.
fn refuse_existing(dir: &Path) -> Result<(), WriteError> {
    match fs::symlink_metadata(dir) {
        Ok(_) => Err(WriteError::Exists { path: dir.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(dir)(error)),
    }
}

/// Writes tables, attachments and the manifest into the new directory. `dir`: its final path, for errors.
fn write_contents(
    run: &Run,
    attachments: &[Attachment],
    directory: &NewDirectory,
    dir: &Path,
) -> Result<(), WriteError> {
    let failed = |error| failed_at(dir, error);
    directory.create_directory(manifest::TABLES).map_err(failed)?;
    let mut entries = Vec::new();
    for table in &run.tables {
        entries.push(write_table(table, directory, dir)?);
    }
    directory.synchronise(manifest::TABLES).map_err(failed)?;

    let entry = |attachment: &Attachment| AttachmentEntry {
        file: attachment.name.clone(),
        bytes: attachment.contents.len() as u64,
        crc32: crc32fast::hash(&attachment.contents),
    };
    let manifest = Manifest::new(run, entries, attachments.iter().map(entry).collect());
    let mut json =
        serde_json::to_vec_pretty(&manifest).map_err(|error| invalid(error.to_string()))?;
    json.push(b'\n');
    if json.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(invalid(format!("its manifest has more than {MANIFEST_BYTES_MAX} bytes")));
    }
    for attachment in attachments {
        directory.write(&attachment.name, &attachment.contents).map_err(failed)?;
    }
    directory.write(manifest::FILE, &json).map_err(failed)
}

/// Writes the file of a table. Returns the table's entry in the manifest.
fn write_table(
    table: &Table,
    directory: &NewDirectory,
    dir: &Path,
) -> Result<TableEntry, WriteError> {
    let file = manifest::table_file(&table.name);
    let bytes = encode(table).map_err(|error| invalid(format!("table {}: {error}", table.name)))?;
    if bytes.len() as u64 > TABLE_BYTES_MAX {
        return Err(invalid(format!("table {}: more than {TABLE_BYTES_MAX} bytes", table.name)));
    }
    directory.write(&file, &bytes).map_err(|error| failed_at(dir, error))?;
    Ok(TableEntry {
        name: table.name.clone(),
        doc: table.doc.clone(),
        file,
        bytes: bytes.len() as u64,
        crc32: crc32fast::hash(&bytes),
        rows: table.rows().len() as u64,
        display: table.display.clone(),
        columns: table.columns.clone(),
    })
}

/// An error of writing the run directory `dir`.
fn failed_at(dir: &Path, error: MakeDirectoryError) -> WriteError {
    match error {
        MakeDirectoryError::Exists => WriteError::Exists { path: dir.to_owned() },
        MakeDirectoryError::Io { path, source } => WriteError::Io { path, source },
    }
}

fn invalid(what: String) -> WriteError {
    WriteError::Invalid { what }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> WriteError + '_ {
    |source| WriteError::Io { path: path.to_owned(), source }
}
