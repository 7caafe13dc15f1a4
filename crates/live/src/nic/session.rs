//! [`Session`]: changes several settings of one interface, with a journal. Dropping the session restores all of them,
//! so a caller that stops at an error changes nothing. `irqlab signal advise --apply` keeps the changes of its
//! session; `signal::card` restores the settings after each measurement.
//!
//! Each old value is in the journal before the setting is changed. Keep this order: after a kill, the next start
//! restores only what the journal contains.

use std::io;
use std::path::Path;

use super::{Interface, Setting};
use crate::journal::{Journal, JournalError, Resource};
use crate::network::napi;

/// A setting that was set, with its value before, the requested value, and the value in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    pub setting: Setting,
    /// The setting's value before.
    pub before: String,
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

/// Why a setting was not set. Dropping the session restores the settings that it changed before.
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
    /// Settings whose first value is in the journal.
    recorded: Vec<Setting>,
    /// See [`Session::restoration_warnings`].
    restored: Vec<String>,
}

impl Session {
    /// Locks the interface until the session is dropped, so that no other irqlab changes it. Restores the settings of
    /// the interface that killed processes left changed. Changes nothing else.
    ///
    /// Fails with [`JournalError::Busy`] if another irqlab holds the interface, or another error if
    /// no journal can be written.
    pub fn open(interface: Interface) -> Result<Session, JournalError> {
        let mut journal = Journal::open()?;
        let restored = journal.lock(Resource::interface(interface.identity()))?;
        Ok(Session { interface, journal, recorded: Vec::new(), restored })
    }

    /// A message for each setting that a killed process left changed, and that this session restored.
    #[must_use]
    pub fn restoration_warnings(&self) -> &[String] {
        &self.restored
    }

    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Sets a value and reads it back.
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
        // `value` may contain only some values of a NAPI instance. The comparison needs these alone.
        let now = match setting {
            Setting::Napi { .. } => super::setting::part_of(&now, value),
            _ => now,
        };
        Ok(InForce { setting, before, asked: value.to_owned(), now })
    }

    /// Directs an interrupt to a CPU, until the session is dropped.
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

    /// Ends the session without restoring anything. The values stay in force after this process has ended, until
    /// [`crate::journal::undo_kept`] restores them. `what` describes the changes for a reader.
    ///
    /// Fails if the journal cannot be written. Then all settings are restored.
    pub fn keep(self, what: &str) -> Result<(), JournalError> {
        self.journal.keep(self.interface.identity(), what)
    }

    /// Records the old value of a setting in the journal. Does nothing if this session has recorded the setting before,
    /// because the first value is the one to restore.
    fn record(&mut self, setting: Setting, value: &str) -> Result<(), JournalError> {
        if !self.recorded.contains(&setting) {
            match setting.global_path() {
                // A global setting remains when the interface vanishes, so its entry names its file.
                Some(path) => self.journal.will_write(Path::new(path), value)?,
                None => self.journal.will_set(self.interface.identity(), setting, value)?,
            }
            self.recorded.push(setting);
        }
        Ok(())
    }

    /// Records the settings of all NAPI instances. Call it before a setting is recorded that overwrites them: the
    /// journal restores in reverse order, so it restores the instances last.
    fn record_instances(&mut self) -> Result<(), JournalError> {
        // Before Linux 6.8 (no netlink family `netdev`), instances have no separate settings.
        for instance in napi::instances(self.interface.index()).unwrap_or_default() {
            let values = super::setting::napi_text(&instance.settings);
            if !values.is_empty() {
                self.record(Setting::Napi { id: instance.id }, &values)?;
            }
        }
        Ok(())
    }
}
