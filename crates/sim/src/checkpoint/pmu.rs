//! The values of a guest's performance counters. The plugin holds them, not QEMU, so a checkpoint keeps
//! them in a file of their own.
//!
//! A kernel detects a PMU once, when it boots. A kernel that found none has no `perf` after a restore
//! with counters; a kernel that found one would read zeros after a restore without, and not notice. So a
//! checkpoint of one kind is refused for a machine of the other.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::Machine;
use crate::machine::vm::Instrumentation;
use crate::qemu::Qemu;
use crate::watch::{Detail, KernelFiles, Recording, Watch};
use crate::{Cache, Result, SimError};

const CONTENT: &str = "pmu";

/// Describes whether a machine has a PMU, for [`super::Checkpoint::check`].
pub(super) fn described(machine: &Machine) -> &'static str {
    if machine.pmu { "one (--pmu)" } else { "none" }
}

/// Has the plugin save the counters of a machine that is booted for a checkpoint, if it has any.
pub(super) struct CounterSaver {
    recording: Option<Recording>,
    content: PathBuf,
}

impl CounterSaver {
    /// Prepares the plugin for a machine with a PMU; no other machine needs it.
    pub(super) fn new(
        cache: &Cache,
        qemu: &Qemu,
        machine: &Machine,
        into: &Path,
    ) -> Result<CounterSaver> {
        let content = into.join(CONTENT);
        if !machine.pmu {
            return Ok(CounterSaver { recording: None, content });
        }
        // The counters count during the boot, too; at level `fast` they would not advance.
        let watch = Watch { detail: Detail::Count, ..Watch::default() };
        let recording =
            Recording::new(cache, qemu, machine, &KernelFiles::nothing(), &watch, None)?;
        Ok(CounterSaver { recording: Some(recording), content })
    }

    /// Returns what the machine is started with.
    pub(super) fn instrumentation(&self) -> Instrumentation<'_> {
        let recording = self.recording.as_ref();
        let mut added = recording.map(Recording::instrumentation).unwrap_or_default();
        added.add_option("pmu_save", &self.content.display().to_string());
        added
    }

    /// Checks, once QEMU has ended, that the plugin saved the counters.
    pub(super) fn check(&self) -> Result<()> {
        let is_saved = self.recording.is_none() || self.content.is_file();
        let missing = || SimError::data(CONTENT, "the plugin did not save the counters");
        if is_saved { Ok(()) } else { Err(missing()) }
    }
}

/// Writes the values of counters into a checkpoint.
pub(super) fn keep(aside: &Path, text: &str) -> Result<()> {
    let content = aside.join(CONTENT);
    fs::write(&content, text).map_err(SimError::file(&content))
}

/// Has the plugin restore the counters of a machine.
pub(super) fn restore(
    machine: &Machine,
    from: &Path,
    instrumentation: &mut Instrumentation<'_>,
) -> Result<()> {
    if !machine.pmu {
        return Ok(());
    }
    let content = from.join(CONTENT);
    fs::metadata(&content).map_err(SimError::file(&content))?;
    instrumentation.add_option("pmu_state", &content.display().to_string());
    Ok(())
}
