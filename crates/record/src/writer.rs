//! Writes a run directory: whole, or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use outputs::{MakeDirectoryError, NewDirectory};
use thiserror::Error;

use crate::check;
use crate::encode::encode;
use crate::limits::{MANIFEST_BYTES_MAX, TABLE_BYTES_MAX};
use crate::manifest::{self, AttachmentEntry, Manifest, TableEntry};
use crate::run::{Run, SCHEMA};
use crate::table::Table;

/// Why a run was not written. No part of it remains.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Something of that name exists; it was not changed.
    #[error("{path}: exists already, and a run is never overwritten")]
    Exists {
        /// The run directory asked for.
        path: PathBuf,
    },
    /// The path is not the name of a directory that can be created.
    #[error("{path}: not the name of a new directory")]
    NoName {
        /// The run directory asked for.
        path: PathBuf,
    },
    /// The system refused: disk full, read-only, no permission.
    #[error("cannot write {path}: {source}")]
    Io {
        /// What was being written.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The run could not be read back: an error of the program.
    #[error("the run cannot be recorded: {what}")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },
}

/// A file of the run directory that is not a table: a picture, a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the file in the run directory: letters, digits, `-`, `_` and `.`, not first.
    pub name: String,
    /// What is written into it.
    pub contents: Vec<u8>,
}

/// Writes `run` with its attachments as the new directory `dir`.
///
/// All files are written into a hidden directory next to `dir`, made durable, and the directory is
/// then renamed: whoever sees `dir` sees all of it. Missing parent directories are created.
///
/// # Errors
/// When `dir` exists, when the system refuses, or when the run is beyond [`crate::limits`].
pub fn write_run(run: &Run, attachments: &[Attachment], dir: &Path) -> Result<(), WriteError> {
    check(run, attachments).map_err(|what| WriteError::Invalid { what })?;
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

fn check(run: &Run, attachments: &[Attachment]) -> Result<(), String> {
    if run.schema != SCHEMA {
        return Err(format!("its schema is {:?}, and this version writes {SCHEMA}", run.schema));
    }
    if let Some(bad) = attachments.iter().find(|attachment| !is_attachment_name(&attachment.name)) {
        return Err(format!("{:?} is not the name of an attachment", bad.name));
    }
    check::check_run(run)
}

/// Whether the name stays in the run directory and is not that of the run's own files.
fn is_attachment_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_taken = name == manifest::FILE || name == manifest::TABLES;
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(is_plain)
        && !is_taken
}

fn refuse_existing(dir: &Path) -> Result<(), WriteError> {
    match fs::symlink_metadata(dir) {
        Ok(_) => Err(WriteError::Exists { path: dir.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(dir)(error)),
    }
}

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

    let invalid = |what: String| WriteError::Invalid { what };
    let of_attachment = |attachment: &Attachment| AttachmentEntry {
        file: attachment.name.clone(),
        bytes: attachment.contents.len() as u64,
        crc32: crc32fast::hash(&attachment.contents),
    };
    let manifest = Manifest::new(run, entries, attachments.iter().map(of_attachment).collect());
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

fn write_table(
    table: &Table,
    directory: &NewDirectory,
    dir: &Path,
) -> Result<TableEntry, WriteError> {
    let file = manifest::table_file(&table.name);
    let bytes = encode(table)
        .map_err(|error| WriteError::Invalid { what: format!("table {}: {error}", table.name) })?;
    if bytes.len() as u64 > TABLE_BYTES_MAX {
        let what = format!("table {}: more than {TABLE_BYTES_MAX} bytes", table.name);
        return Err(WriteError::Invalid { what });
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

fn failed(path: &Path) -> impl Fn(io::Error) -> WriteError + '_ {
    |source| WriteError::Io { path: path.to_owned(), source }
}
