//! Files that the user names: written by [`outputs`], which leaves each whole or absent.

use std::io;
use std::path::Path;

use anyhow::bail;
use outputs::Existing;

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
    /// What becomes of a regular file that exists.
    pub fn existing(self) -> Existing {
        if self.force { Existing::Replaced } else { Existing::Stays }
    }
}

/// Whether the path is `-`: standard output. A path such as /dev/stdout is refused, as all that are no regular
/// files are.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses a file that could not be written, before the work that makes its contents.
///
/// # Errors
/// When it exists and is not to be replaced, is no regular file, is part of a run, or cannot be created there.
pub fn check(path: &Path, force: ForceArgs) -> Result<(), Usage> {
    if is_stdout(path) {
        return Err(Usage("- is standard output, where the results go; name a file".to_owned()));
    }
    check_regular(path, force)
}

/// As [`check`], for a file whose place `-` can take.
///
/// # Errors
/// As [`check`], but for `-`.
pub fn check_or_stdout(path: &Path, force: ForceArgs) -> Result<(), Usage> {
    if is_stdout(path) { Ok(()) } else { check_regular(path, force) }
}

fn check_regular(path: &Path, force: ForceArgs) -> Result<(), Usage> {
    refuse_parts_of_runs(path)?;
    let existing = force.existing();
    outputs::check(path, existing).map_err(|error| Usage(described(path, existing, &error)))
}

/// Writes a file, which appears whole or not at all; or to standard output, where the path is `-`.
///
/// # Errors
/// As [`check`], and when the disk is full.
pub fn write(path: &Path, contents: &[u8], force: ForceArgs) -> anyhow::Result<()> {
    if is_stdout(path) {
        return console::print_bytes(contents).map(drop);
    }
    refuse_parts_of_runs(path)?;
    let existing = force.existing();
    if let Err(error) = outputs::write(path, contents, existing) {
        bail!(described(path, existing, &error));
    }
    Ok(())
}

fn described(path: &Path, existing: Existing, error: &io::Error) -> String {
    let is_regular = path.symlink_metadata().is_ok_and(|found| found.is_file());
    let is_in_the_way = error.kind() == io::ErrorKind::AlreadyExists;
    let remedy = match existing {
        Existing::Stays if is_in_the_way && is_regular => " (--force replaces it)",
        _ if is_in_the_way => " (name another file; - is standard output)",
        _ => "",
    };
    format!("cannot write {}: {error}{remedy}", path.display())
}

/// A run directory never changes.
fn refuse_parts_of_runs(path: &Path) -> Result<(), Usage> {
    let parent =
        path.parent().map(|parent| if parent == Path::new("") { Path::new(".") } else { parent });
    let Some(Ok(parent)) = parent.map(Path::canonicalize) else { return Ok(()) };
    let is_run = |directory: &Path| record::is_run_directory(directory);
    let above = parent.parent().filter(|_| parent.file_name().is_some_and(|name| name == "tables"));
    match [Some(parent.as_path()), above].into_iter().flatten().find(|directory| is_run(directory))
    {
        Some(run) => Err(Usage(format!(
            "{} is in the run {}, which is never changed; name a file elsewhere",
            path.display(),
            run.display()
        ))),
        None => Ok(()),
    }
}
