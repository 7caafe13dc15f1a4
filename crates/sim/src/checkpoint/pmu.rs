//! The values of a guest's performance counters. The plugin holds them, not QEMU, so a checkpoint keeps
//! them in a file of their own.
//!
//! A kernel detects a PMU only when it boots. If it found none, it has no `perf` after a restore with a PMU.
//! If it found one, it reads zeros after a restore without a PMU, and does not notice. A checkpoint with a PMU
//! is therefore refused for a machine without one, and vice versa.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::path::Path;

use crate::machine::Machine;
use crate::machine::vm::Instrumentation;
use crate::regular_file::read_all;
use crate::{Result, SimError};

/// The name of the file with the values.
pub(super) const CONTENT: &str = "pmu";
/// Maximum length of the text that describes the counters.
const BYTES_MAX: u64 = 1 << 16;

/// Describes whether a machine has a PMU, for [`super::Checkpoint::check`].
pub(super) fn pmu_word(machine: &Machine) -> &'static str {
    if machine.pmu { "one (--pmu)" } else { "none" }
}

/// Copies the values that the plugin wrote to the file `counters` into a checkpoint.
pub(super) fn keep(staging: &Path, mut counters: &File) -> Result<()> {
    let read = counters.seek(SeekFrom::Start(0));
    let read = read.and_then(|_| read_all(counters, BYTES_MAX));
    let text = read.map_err(SimError::system("reading the guest's counters"))?;
    let content = staging.join(CONTENT);
    fs::write(&content, text).map_err(SimError::file(&content))
}

/// Tells the plugin to restore the counters that a checkpoint has. Does nothing for a machine without a PMU.
///
/// Fails if the checkpoint has no counters.
pub(super) fn restore(
    machine: &Machine,
    directory: &Path,
    instrumentation: &mut Instrumentation<'_>,
) -> Result<()> {
    if !machine.pmu {
        return Ok(());
    }
    let content = directory.join(CONTENT);
    fs::metadata(&content).map_err(SimError::file(&content))?;
    instrumentation.add_option("pmu_state", &content.display().to_string());
    Ok(())
}
