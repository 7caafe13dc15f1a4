//! Where a run is written.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use record::Timestamp;

use crate::args::Usage;

/// Directories made for a run; those that are still empty at the end are removed.
pub struct MadeDirectories(Vec<PathBuf>);

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        for directory in &self.0 {
            // It is not empty when there is a run in it, by us or by others: then it stays.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// The directory to write, after a check that it can be made: better now than after the minutes.
pub fn output_directory(
    experiment: &str,
    out: Option<&Path>,
    started: Timestamp,
) -> anyhow::Result<(PathBuf, MadeDirectories)> {
    let parent = match out {
        Some(out) => match out.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        },
        None => PathBuf::from("irqlab-runs"),
    };
    if let Some(out) = out.filter(|out| out.symlink_metadata().is_ok()) {
        bail!(Usage(format!("{} exists already; a run never replaces one", out.display())));
    }
    let missing = parent.ancestors().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let made = MadeDirectories(missing.map(Path::to_owned).collect());
    let cannot = || format!("cannot write runs into {}", parent.display());
    std::fs::create_dir_all(&parent).with_context(cannot)?;
    let probe = parent.join(format!(".irqlab-probe-{}", std::process::id()));
    std::fs::create_dir(&probe).with_context(cannot)?;
    std::fs::remove_dir(&probe).with_context(cannot)?;
    let directory = match out {
        Some(out) => out.to_owned(),
        None => record::default_dir(&parent, experiment, started),
    };
    Ok((directory, made))
}
