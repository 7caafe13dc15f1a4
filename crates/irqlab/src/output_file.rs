//! Output files that the user names (`-o`, `--save`, `--picture`, `--record`). Verbs check them before they measure,
//! and write them afterwards. [`outputs`] writes them: a file appears whole or not at all.

use std::io;
use std::path::Path;

use anyhow::bail;
use outputs::{Existing, NewFile};

use crate::console;
use crate::options::Usage;

/// Whether a file that exists may be replaced.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ForceArgs {
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl ForceArgs {
    /// The treatment of a regular file that exists.
    pub fn existing(self) -> Existing {
        if self.force { Existing::Replaced } else { Existing::Stays }
    }
}

/// Whether the path is `-`, which names standard output. /dev/stdout is refused, because it is no regular file.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses a file that cannot be written, before irqlab spends time on its contents.
///
/// Fails when the file exists and may not be replaced, is no regular file, is part of a run, or
/// cannot be created.
pub fn check(path: &Path, force: ForceArgs) -> Result<(), Usage> {
    if is_stdout(path) {
        return Err(Usage("- is standard output, where the results go; name a file".to_owned()));
    }
    check_regular(path, force)
}

/// Like [`check`], but allows `-` for standard output.
///
/// Fails as [`check`] does.
pub fn check_or_stdout(path: &Path, force: ForceArgs) -> Result<(), Usage> {
    if is_stdout(path) { Ok(()) } else { check_regular(path, force) }
}

fn check_regular(path: &Path, force: ForceArgs) -> Result<(), Usage> {
    refuse_parts_of_runs(path)?;
    let existing = force.existing();
    outputs::check(path, existing).map_err(|error| Usage(error_text(path, existing, &error)))
}

/// Writes a file, which appears whole or not at all. If the path is `-`, writes to standard output.
///
/// Fails as [`check`] does, and when the disk is full.
pub fn write(path: &Path, contents: &[u8], force: ForceArgs) -> anyhow::Result<()> {
    if is_stdout(path) {
        return console::print_bytes(contents).map(drop);
    }
    refuse_parts_of_runs(path)?;
    let existing = force.existing();
    if let Err(error) = outputs::write(path, contents, existing) {
        bail!(error_text(path, existing, &error));
    }
    Ok(())
}

/// Creates a file that is written step by step. It gets its name when it is complete.
///
/// Fails as [`check`] does.
pub fn create(path: &Path, force: ForceArgs) -> Result<NewFile, Usage> {
    check(path, force)?;
    let existing = force.existing();
    NewFile::create(path, existing).map_err(|error| Usage(error_text(path, existing, &error)))
}

/// The error message of a file that cannot be written, with its remedy if there is one.
fn error_text(path: &Path, existing: Existing, error: &io::Error) -> String {
    let is_regular = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    let exists = error.kind() == io::ErrorKind::AlreadyExists;
    let remedy = match existing {
        Existing::Stays if exists && is_regular => " (--force replaces it)",
        _ if exists => " (name another file; - is standard output)",
        _ => "",
    };
    format!("cannot write {}: {error}{remedy}", path.display())
}

/// Refuses a path inside a run directory, because recorded runs never change.
fn refuse_parts_of_runs(path: &Path) -> Result<(), Usage> {
    let parent =
        path.parent().map(|parent| if parent == Path::new("") { Path::new(".") } else { parent });
    let Some(Ok(parent)) = parent.map(Path::canonicalize) else { return Ok(()) };
    // A run's tables are files in its directory `tables`.
    let is_tables_directory = parent.file_name().is_some_and(|name| name == "tables");
    let grandparent = if is_tables_directory { parent.parent() } else { None };
    let candidates = [Some(parent.as_path()), grandparent].into_iter().flatten();
    match candidates.into_iter().find(|directory| record::is_run_directory(directory)) {
        Some(run) => Err(Usage(format!(
            "{} is in the run {}, which is never changed; name a file elsewhere",
            path.display(),
            run.display()
        ))),
        None => Ok(()),
    }
}
