//! What the counters of a guest's PMU hold: the plugin's, not QEMU's, so it lies beside the state.
//!
//! A kernel looks for a PMU when it boots and keeps to that. One that found none has no `perf`
//! after a restore with counters; one that found them would read zeros after a restore without, and
//! not know. So a checkpoint of the one kind is refused for a machine of the other.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::Machine;
use crate::qemu::Qemu;
use crate::vm::More;
use crate::watch::{Annotated, Detail, Recording, Watch};
use crate::{Cache, Result, SimError};

const CONTENT: &str = "pmu";

/// The kind of a machine, for [`super::Checkpoint::check`].
pub(super) fn described(machine: &Machine) -> &'static str {
    if machine.pmu { "one (--pmu)" } else { "none" }
}

/// A machine that is booted to be saved, and whose counters are, too, if it has any.
pub(super) struct Saving {
    recording: Option<Recording>,
    content: PathBuf,
}

impl Saving {
    /// Makes ready the plugin for a machine with a PMU; no other needs it.
    pub(super) fn new(
        cache: &Cache,
        qemu: &Qemu,
        machine: &Machine,
        into: &Path,
    ) -> Result<Saving> {
        let content = into.join(CONTENT);
        if !machine.pmu {
            return Ok(Saving { recording: None, content });
        }
        // Counters count on the way, too; at `fast` they would stand still.
        let watch = Watch { detail: Detail::Count, ..Watch::default() };
        let recording = Recording::new(cache, qemu, machine, &Annotated::nothing(), &watch, None)?;
        Ok(Saving { recording: Some(recording), content })
    }

    /// What the machine is to be started with.
    pub(super) fn more(&self) -> More<'_> {
        let mut more = self.recording.as_ref().map(Recording::more).unwrap_or_default();
        more.add_option("pmu_save", &self.content.display().to_string());
        more
    }

    /// That the counters were saved; once QEMU has ended.
    pub(super) fn check(&self) -> Result<()> {
        let is_saved = self.recording.is_none() || self.content.is_file();
        let missing = || SimError::data(CONTENT, "the plugin did not save the counters");
        if is_saved { Ok(()) } else { Err(missing()) }
    }
}

/// Keeps what counters hold.
pub(super) fn keep(aside: &Path, text: &str) -> Result<()> {
    let content = aside.join(CONTENT);
    fs::write(&content, text).map_err(SimError::file(&content))
}

/// Has the counters of a restored machine hold what they held.
pub(super) fn go_on_with(machine: &Machine, from: &Path, more: &mut More<'_>) -> Result<()> {
    if !machine.pmu {
        return Ok(());
    }
    let content = from.join(CONTENT);
    fs::metadata(&content).map_err(SimError::file(&content))?;
    more.add_option("pmu_state", &content.display().to_string());
    Ok(())
}
