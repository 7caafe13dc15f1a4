//! Changes several settings of one interface, or none of them.

use std::io;
use std::path::Path;

use super::{Interface, Setting};
use crate::journal::{Journal, JournalError, Resource};
use crate::network::napi;

/// A setting after it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    pub setting: Setting,
    /// The setting's value before.
    pub before: String,
    /// The requested value.
    pub asked: String,
    /// The value in force, which a driver may have rounded.
    pub now: String,
}

impl InForce {
    /// Whether the device took exactly the requested value.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.now == self.asked
    }
}

/// Why a setting was not set. No setting stays changed in part: dropping the session restores
/// what it changed before.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel or the driver does not have the setting.
    #[error("{interface} has no {setting}: {source}")]
    Missing { interface: String, setting: String, source: io::Error },
    /// This user may not change the setting.
    #[error("{setting} of {interface} cannot be set: {source}")]
    NoRights { interface: String, setting: String, source: io::Error },
    /// The kernel or the driver refuses the value.
    #[error("{interface} refuses {setting} = {value}: {source}")]
    Value { interface: String, setting: String, value: String, source: io::Error },
    /// The old value could not be journalled, so nothing was set.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Changes of an interface. Dropping the session restores all of them, the last one first.
/// [`Session::keep`] keeps them in force.
#[derive(Debug)]
pub struct Session {
    interface: Interface,
    journal: Journal,
    recorded: Vec<Setting>,
    restored: Vec<String>,
}

impl Session {
    /// Locks the interface until the session is dropped, so that no other irqlab changes
    /// it. Restores the settings of the interface that killed processes left changed.
    /// Changes nothing else yet.
    ///
    /// Fails with [`JournalError::Busy`] if another irqlab holds the interface, or another error if
    /// no journal can be written.
    pub fn open(interface: Interface) -> Result<Session, JournalError> {
        let mut journal = Journal::open()?;
        let restored = journal.lock(Resource::interface(interface.identity()))?;
        Ok(Session { interface, journal, recorded: Vec::new(), restored })
    }

    /// Settings that killed processes had left changed, and that this process
    /// restored: a message each.
    #[must_use]
    pub fn restored(&self) -> &[String] {
        &self.restored
    }

    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Sets a value and reads it back. The journal has the old value before the change.
    ///
    /// Fails if the setting does not exist, may not be set, or the value is refused.
    pub fn set(&mut self, setting: Setting, value: &str) -> Result<InForce, Refusal> {
        let name = || self.interface.name().to_owned();
        let missing =
            |source| Refusal::Missing { interface: name(), setting: setting.to_string(), source };
        if let Some(path) = setting.global_path() {
            self.restored.extend(self.journal.lock(Resource::setting(Path::new(path)))?);
        }
        let before = setting.read(&self.interface).map_err(missing)?;
        if matches!(setting, Setting::GroFlushTimeout | Setting::DeferHardIrqs) {
            self.record_instances()?;
        }
        self.record(setting, &before)?;
        if let Err(source) = setting.write(&self.interface, value) {
            let (interface, setting) = (self.interface.name().to_owned(), setting.to_string());
            return Err(match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Refusal::NoRights { interface, setting, source }
                }
                _ => Refusal::Value { interface, setting, value: value.to_owned(), source },
            });
        }
        let now = setting.read(&self.interface).map_err(|source| Refusal::Missing {
            interface: self.interface.name().to_owned(),
            setting: setting.to_string(),
            source,
        })?;
        // For an instance, `value` may name only some of its values.
        let now = match setting {
            Setting::Napi { .. } => super::setting::part_of(&now, value),
            _ => now,
        };
        Ok(InForce { setting, before, asked: value.to_owned(), now })
    }

    /// Directs an interrupt to a CPU.
    ///
    /// Fails if another irqlab has directed the interrupt, its affinity cannot be read or
    /// journalled, or the kernel refuses (a managed interrupt).
    pub fn direct(&mut self, irq: u32, cpu: u32) -> Result<(), Refusal> {
        let path = format!("/proc/irq/{irq}/smp_affinity_list");
        let (interface, setting) = (self.interface.name().to_owned(), path.clone());
        self.restored.extend(self.journal.lock(Resource::setting(Path::new(&path)))?);
        let old = std::fs::read_to_string(&path).map_err(|source| Refusal::Missing {
            interface: interface.clone(),
            setting: setting.clone(),
            source,
        })?;
        self.journal.will_write(Path::new(&path), old.trim())?;
        let value = cpu.to_string();
        let refuse = |source| Refusal::Value { interface, setting, value: value.clone(), source };
        std::fs::write(&path, &value).map_err(refuse)
    }

    /// Ends the session without restoring anything. The values stay in force after this
    /// process has ended, until [`crate::journal::undo_kept`] restores them. `what`
    /// describes them for a reader.
    ///
    /// Fails if the journal cannot be written. Then everything is restored.
    pub fn keep(self, what: &str) -> Result<(), JournalError> {
        self.journal.keep(self.interface.identity(), what)
    }

    fn record(&mut self, setting: Setting, value: &str) -> Result<(), JournalError> {
        if !self.recorded.contains(&setting) {
            match setting.global_path() {
                // A global setting outlives the interface, so it gets an entry of its own.
                Some(path) => self.journal.will_write(Path::new(path), value)?,
                None => self.journal.will_set(self.interface.identity(), setting, value)?,
            }
            self.recorded.push(setting);
        }
        Ok(())
    }

    /// Records the settings of all NAPI instances. Writing a setting of the interface overwrites
    /// them, so they come first in the journal, which restores them last.
    fn record_instances(&mut self) -> Result<(), JournalError> {
        // Without the family `netdev` (before Linux 6.8), instances have no settings of their own.
        for instance in napi::instances(self.interface.index()).unwrap_or_default() {
            let values = super::setting::napi_text(&instance.settings);
            if !values.is_empty() {
                self.record(Setting::Napi { id: instance.id }, &values)?;
            }
        }
        Ok(())
    }
}
