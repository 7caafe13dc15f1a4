//! Several changes of one interface, or none.

use std::io;
use std::path::Path;

use super::{Interface, Setting};
use crate::journal::{Journal, JournalError, Resource};
use crate::network::napi;

/// What a setting is, now that it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// What was set.
    pub setting: Setting,
    /// Its value before.
    pub before: String,
    /// The value that was asked for.
    pub asked: String,
    /// The value in force: a driver may round.
    pub now: String,
}

impl InForce {
    /// Whether the device took the value as it was asked for.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.now == self.asked
    }
}

/// Why a setting was not set. No setting is left half-set: what the session had changed before is restored
/// when the session is dropped.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel or the driver does not have it.
    #[error("{interface} has no {setting}: {source}")]
    Missing {
        interface: String,
        setting: String,
        /// The system's error.
        source: io::Error,
    },
    /// It may not be set by this user.
    #[error("{setting} of {interface} cannot be set: {source}")]
    NoRights {
        interface: String,
        setting: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel or the driver refuses the value.
    #[error("{interface} refuses {setting} = {value}: {source}")]
    Value {
        interface: String,
        setting: String,
        value: String,
        /// The system's error.
        source: io::Error,
    },
    /// The old value could not be written down, so nothing was set.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Changes of an interface. Dropping it restores all of them, the last one first; [`Session::keep`] lets
/// them be.
#[derive(Debug)]
pub struct Session {
    interface: Interface,
    journal: Journal,
    recorded: Vec<Setting>,
    restored: Vec<String>,
}

impl Session {
    /// Locks the interface, so that no other irqlab changes it until this is dropped, and restores what killed
    /// processes left changed of it. Nothing else is changed yet.
    ///
    /// # Errors
    /// [`JournalError::Busy`] where another irqlab has it, and where no journal can be written.
    pub fn open(interface: Interface) -> Result<Session, JournalError> {
        let mut journal = Journal::open()?;
        let restored = journal.lock(Resource::interface(interface.identity()))?;
        Ok(Session { interface, journal, recorded: Vec::new(), restored })
    }

    /// What killed processes had left changed and is restored now, a message each.
    #[must_use]
    pub fn restored(&self) -> &[String] {
        &self.restored
    }

    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Sets a value and reads it back. The old one is in the journal first.
    ///
    /// # Errors
    /// Where it is not there, may not be set, or the value is refused.
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
        // A part of an instance's values may be asked for.
        let now = match setting {
            Setting::Napi { .. } => super::setting::part_of(&now, value),
            _ => now,
        };
        Ok(InForce { setting, before, asked: value.to_owned(), now })
    }

    /// Directs an interrupt to a CPU.
    ///
    /// # Errors
    /// Where another irqlab has directed it, its affinity cannot be read or written down, or the kernel
    /// refuses (a managed interrupt).
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

    /// Ends the session without restoring anything: the values stay in force when this process has ended,
    /// until [`crate::journal::undo_kept`] restores them. `what` names them for a reader.
    ///
    /// # Errors
    /// When the journal cannot be written; then everything is restored.
    pub fn keep(self, what: &str) -> Result<(), JournalError> {
        self.journal.keep(self.interface.identity(), what)
    }

    fn record(&mut self, setting: Setting, value: &str) -> Result<(), JournalError> {
        if !self.recorded.contains(&setting) {
            match setting.global_path() {
                // It outlives the interface.
                Some(path) => self.journal.will_write(Path::new(path), value)?,
                None => self.journal.will_set(self.interface.identity(), setting, value)?,
            }
            self.recorded.push(setting);
        }
        Ok(())
    }

    /// Writing a setting of the interface sets all of its NAPI instances, so theirs come first in the
    /// journal, which restores them last.
    fn record_instances(&mut self) -> Result<(), JournalError> {
        // Without the family (before Linux 6.8) there are none to set.
        for instance in napi::instances(self.interface.index()).unwrap_or_default() {
            let values = super::setting::napi_text(&instance.settings);
            if !values.is_empty() {
                self.record(Setting::Napi { id: instance.id }, &values)?;
            }
        }
        Ok(())
    }
}
