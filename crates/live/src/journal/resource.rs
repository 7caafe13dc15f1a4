//! [`Resource`]: something that only one irqlab at a time may change: an interface, an interrupt, or another kernel
//! setting. [`Locks`] holds the resources that this process has locked.
//!
//! Each resource has a lock file in the directory of journals. All versions of irqlab must use the same names of lock
//! files; otherwise two of them could change one resource.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::JournalError;
use super::lock::{Attempt, LOCK, NamedLock, lock_within};
use crate::nic::Identity;

/// Longest wait for another irqlab to release a resource. Most changes take milliseconds.
const WAIT: Duration = Duration::from_secs(3);
/// Longest name of a lock file without its extension, in bytes.
const NAME_BYTES_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Name of the resource's lock file, without the extension.
    name: String,
    /// Name of the resource in messages.
    shown: String,
}

impl Resource {
    /// A network interface, with all of its settings.
    #[must_use]
    pub fn interface(interface: &Identity) -> Resource {
        let Identity { name, index, namespace, .. } = interface;
        let file = format!("interface-{}-{}-{index}", namespace.0, namespace.1);
        Resource { name: file, shown: name.clone() }
    }

    /// The kernel setting with this file. All files of an interrupt (`/proc/irq/N/...`) are one resource.
    #[must_use]
    pub fn setting(path: &Path) -> Resource {
        let parts: Vec<Component> = path.components().collect();
        // The components of `/proc/irq/N` are the root and three names.
        let is_of_interrupt = path.starts_with("/proc/irq") && parts.len() > 4;
        let path: PathBuf =
            parts.iter().take(if is_of_interrupt { 4 } else { parts.len() }).collect();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
        let shown = path.display().to_string();
        let plain: String =
            shown.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect();
        let name = format!("setting{}", &plain[..plain.len().min(NAME_BYTES_MAX)]);
        Resource { name, shown }
    }

    /// The error for a resource that another process holds.
    pub(super) fn busy(&self, holder: String) -> JournalError {
        JournalError::Busy { what: self.shown.clone(), holder }
    }

    /// The path of the resource's lock file.
    pub(super) fn lock_file(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.{LOCK}", self.name))
    }
}

/// The resources that this process holds locked, with lock files in a directory of journals.
#[derive(Debug)]
pub(super) struct Locks {
    directory: PathBuf,
    held: Vec<(Resource, NamedLock)>,
    /// See [`Locks::wait`].
    wait: Duration,
}

impl Locks {
    /// Starts without any held resource.
    pub fn new(directory: &Path) -> Locks {
        Locks { directory: directory.to_owned(), held: Vec::new(), wait: WAIT }
    }

    pub fn has(&self, resource: &Resource) -> bool {
        self.held.iter().any(|(held, _)| held == resource)
    }

    /// Locks a resource until [`Locks::release`], or until this value is dropped.
    ///
    /// Fails with [`JournalError::Busy`] if another irqlab holds the resource for longer than
    /// [`Locks::wait`].
    pub fn lock(&mut self, resource: &Resource) -> Result<(), JournalError> {
        let path = resource.lock_file(&self.directory);
        let attempt = lock_within(&path, self.wait)
            .map_err(|source| JournalError::Write { path: path.clone(), source })?;
        match attempt {
            Attempt::Locked(lock) => self.held.push((resource.clone(), lock)),
            Attempt::HeldBy(holder) => return Err(resource.busy(holder)),
        }
        Ok(())
    }

    pub fn release(&mut self, resource: &Resource) {
        self.held.retain(|(held, _)| held != resource);
    }

    /// Longest wait for another irqlab to release a resource.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether this process holds at least one of `resources`.
    pub fn has_any(&self, resources: &[Resource]) -> bool {
        resources.iter().any(|resource| self.has(resource))
    }

    #[cfg(test)]
    pub fn set_wait(&mut self, wait: Duration) {
        self.wait = wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_one_resource_and_each_other_setting_is_another() {
        let name = |path: &str| Resource::setting(Path::new(path)).name;
        assert_eq!(name("/proc/irq/30/smp_affinity_list"), "setting-proc-irq-30");
        assert_eq!(name("/proc/irq/30/smp_affinity"), name("/proc/irq/30/smp_affinity_list"));
        assert_ne!(name("/proc/irq/31/smp_affinity"), name("/proc/irq/30/smp_affinity"));
        assert_eq!(name("/proc/sys/net/core/busy_poll"), "setting-proc-sys-net-core-busy_poll");
        assert!(name(&format!("/proc/sys/{}", "é/".repeat(300))).len() < 255);
    }
}
