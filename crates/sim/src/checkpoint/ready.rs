//! Machines that are up and wait for a request, kept in the cache. The experiments and workloads start from them.
//!
//! The key of such a machine covers everything that its state depends on. The machine is always restored, also
//! right after its boot, and the guest determines the point at which it is saved. Results therefore do not
//! depend on whether the cache had the machine.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outputs::NewDirectory;
use serde_json::json;

use super::{Boot, Checkpoint, MANIFEST, SCHEMA, Start, restore_from, save_when_ready};
use crate::boot::Limits;
use crate::cache::in_use;
use crate::machine::agent::GuestReport;
use crate::machine::vm::Instrumentation;
use crate::machine::{Machine, Timing};
use crate::qemu::Qemu;
use crate::{Cache, Progress, Result, SimError, Vm, hash, watch};

/// Prefix of the names of such machines in the cache.
pub(crate) const PREFIX: &str = "ready-";
/// Limit of a guest's own clock in its command line: a year. The plugin limits each run.
const GUEST_LIMIT_S: u32 = 365 * 86_400;
/// Maximum number of attempts to keep a machine in the cache. An attempt fails if the machine is damaged, or
/// if another process removes it.
const ATTEMPTS: usize = 3;

/// A machine that waits for a request. While it exists, the cache does not remove it.
#[derive(Debug)]
pub struct Ready {
    /// Its name in the cache, which has its key.
    name: String,
    directory: PathBuf,
    command_line: String,
    report: GuestReport,
    /// Holds the shared lock that protects the entry from eviction.
    _in_use: File,
    /// The temporary directory of a machine that the cache cannot keep. The directory ends with this value.
    _scratch: Option<NewDirectory>,
}

/// Returns the start of a machine that waits for a request. The cache has the machine if it was booted before;
/// otherwise it boots now, at the level `fast`. A machine whose time follows the host's clock is not
/// repeatable and always boots.
///
/// Fails as [`crate::boot::follow`] does, and with [`SimError::Stopped`] if `stop` returns true. Fails if the state
/// can be written neither to the cache nor to the directory for temporary files.
pub fn ready(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    progress: Progress,
    stop: &dyn Fn() -> bool,
) -> Result<Start> {
    boot_or_reuse(cache, qemu, machine, None, Limits::default(), progress, stop)
}

/// Like [`ready`], for a machine that has also executed a command, which prepares a workload. The machine's
/// state and the content of its disks are saved after the end of the command.
///
/// Fails as [`ready`] does. Fails with [`SimError::Machine`] if the command fails; the error has its status and its
/// last output. Fails with [`SimError::TimeLimit`] if it does not end within `limits`, and with [`SimError::Invalid`]
/// for a machine on the host's clock.
pub fn prepared(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    command: &str,
    limits: Limits,
    progress: Progress,
    stop: &dyn Fn() -> bool,
) -> Result<Start> {
    if machine.timing == Timing::HostClock {
        let text = "a workload's machine is kept, so its time cannot follow the host's clock";
        return Err(SimError::Invalid(text.to_owned()));
    }
    boot_or_reuse(cache, qemu, machine, Some(command), limits, progress, stop)
}

/// Returns the start of a machine after its boot, and after the command `preparation` if there is one. A machine on the
/// host's clock boots for each run. Else the cache has the machine, or it boots now; attempts are repeated if the cache's
/// machine is damaged or removed. Falls back to a temporary directory if the cache cannot keep the machine.
fn boot_or_reuse(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    preparation: Option<&str>,
    limits: Limits,
    progress: Progress,
    stop: &dyn Fn() -> bool,
) -> Result<Start> {
    if machine.timing == Timing::HostClock {
        return Ok(Start::Boot);
    }
    let machine = without_request_times(machine);
    let name = format!("{PREFIX}{}", key(cache, qemu, &machine, preparation)?);
    let boot = |staging: &Path| {
        let target = Boot { machine: &machine, preparation, limits, alarm_s: GUEST_LIMIT_S };
        save_when_ready(cache, qemu, &target, staging, stop).map(drop)
    };
    let activity = if preparation.is_some() { "booting and preparing" } else { "booting" };
    let mut last_error = None;
    for _ in 0..ATTEMPTS {
        let cached = cache.directory(&name, progress, |staging| {
            let line = "the machine once, at level fast; the cache keeps it for later runs";
            progress(&format!("{activity} {line}"));
            boot(staging)
        });
        let directory = match cached {
            Ok(directory) => directory,
            Err(error) if is_about_cache(&error, cache) => {
                last_error = Some(error);
                break;
            }
            Err(error) => return Err(error),
        };
        match Ready::open_directory(&name, directory, None) {
            Ok(Some(ready_machine)) => {
                cache.evict(progress);
                return Ok(Start::Ready(Arc::new(ready_machine)));
            }
            // Another process removed or replaced the directory: the next attempt opens it again.
            Ok(None) => {}
            Err(error) => {
                progress(&format!("{name} in the cache is damaged and made again: {error}"));
                cache.discard(&name)?;
                last_error = Some(error);
            }
        }
    }
    let error = last_error.unwrap_or(SimError::Stopped);
    progress(&format!("the cache cannot keep the machine, which boots for this run only: {error}"));
    // The directory is never finished: it is removed with the machine, or after a kill by the next start.
    let scratch = NewDirectory::create(&std::env::temp_dir().join("irqlab-machine"));
    let Ok(scratch) = scratch else { return Err(error) };
    let directory = scratch.hidden_path();
    boot(&directory)?;
    let ready_machine = Ready::open_directory(&name, directory, Some(scratch))?.ok_or(error)?;
    Ok(Start::Ready(Arc::new(ready_machine)))
}

/// Returns the machine with disks that complete each request at once. When requests complete is not part of the guest's
/// devices, nor of the key: a restored machine has its own times.
fn without_request_times(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    for disk in &mut machine.disks {
        (disk.latency_ns, disk.drive, disk.coalescing) = (0, None, None);
    }
    machine
}

/// Returns whether the error concerns the cache only, not the machine.
fn is_about_cache(error: &SimError, cache: &Cache) -> bool {
    match error {
        SimError::File { path, .. } => path.starts_with(cache.path("")),
        SimError::Unsaved(_) => true,
        _ => false,
    }
}

impl Ready {
    /// Opens a directory, checks its files, and notes that it was used now. `None` if another process
    /// removed or replaced the directory in that moment.
    fn open_directory(
        name: &str,
        directory: PathBuf,
        scratch: Option<NewDirectory>,
    ) -> Result<Option<Ready>> {
        let path = directory.join(MANIFEST);
        let in_use_file = in_use::open(&path).map_err(SimError::file(&path))?;
        let Some(file) = in_use_file else {
            // A directory without a manifest is damaged. A directory that is gone was removed by another
            // process.
            if directory.exists() && !path.exists() {
                return Err(SimError::file(&path)(ErrorKind::NotFound.into()));
            }
            return Ok(None);
        };
        let checkpoint = Checkpoint::read(&directory)?;
        let command_line = checkpoint.command_line;
        let report = checkpoint.report.unwrap_or_default();
        let (name, _in_use, _scratch) = (name.to_owned(), file, scratch);
        Ok(Some(Ready { name, directory, command_line, report, _in_use, _scratch }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn report(&self) -> &GuestReport {
        &self.report
    }

    /// Restores the machine with a request.
    pub(super) fn restore(
        &self,
        qemu: &Qemu,
        machine: &Machine,
        request: &str,
        instrumentation: Instrumentation<'_>,
    ) -> Result<Vm> {
        let request = request.to_owned();
        let (directory, command_line) = (&self.directory, &self.command_line);
        let mut vm =
            restore_from(directory, command_line, qemu, machine, request, instrumentation)?;
        vm.set_modules(self.report.modules.clone());
        Ok(vm)
    }
}

/// Returns a machine's key, which covers everything that the machine's state depends on. A new setting that changes
/// the state must get a field here.
fn key(cache: &Cache, qemu: &Qemu, machine: &Machine, preparation: Option<&str>) -> Result<String> {
    let mut depends_on = json!({
        "schema": SCHEMA,
        "qemu": qemu.version_text,
        "qemu_content": qemu.content_sha256(cache)?,
        "plugin": watch::plugin_sha256(),
        "kernel": machine.kernel_sha256,
        "initramfs": machine.initramfs_sha256,
        "command_line": machine.command_line("ready", GUEST_LIMIT_S)?,
        "vcpus": machine.cpus,
        "memory_mib": machine.memory_mib,
        "devices": machine.device_set(),
        "pmu": machine.pmu,
    });
    if let Some(command) = preparation {
        depends_on["prepares"] = command.into();
    }
    Ok(hash::key(&hash::of_bytes(depends_on.to_string().as_bytes())).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::Coalescing;
    use crate::machine::identity::Identity;
    use crate::machine::tests::machine;
    use crate::models;
    use crate::qemu::tests::{qemu, qemu_with_content};

    fn key(qemu: &Qemu, machine: &Machine, preparation: Option<&str>) -> Result<String> {
        let scratch = tempfile::tempdir().unwrap();
        super::key(&Cache::at(scratch.path()).unwrap(), qemu, machine, preparation)
    }

    fn of_zen3() -> Identity {
        Identity::of_model(&models::with_changes("zen3", &[]).unwrap().1, 1)
    }

    #[test]
    fn machines_that_differ_in_the_times_of_requests_boot_alike() {
        let with_disk = |disk: &str| Machine { disks: vec![disk.parse().unwrap()], ..machine() };
        let plain = with_disk("nvme");
        let mut coalescing = plain.clone();
        coalescing.disks[0].coalescing = Some(Coalescing { count: 8, delay_ns: 1_000 });
        let drive = with_disk("nvme,drive=hp97560");
        for timed in [with_disk("nvme,latency=80us"), drive, coalescing] {
            assert_ne!(timed.disks, plain.disks);
            assert_eq!(without_request_times(&timed).disks, plain.disks);
            assert_eq!(key(&qemu(), &timed, None).unwrap(), key(&qemu(), &plain, None).unwrap(),);
        }
    }

    #[test]
    fn the_key_changes_with_all_that_the_state_depends_on() {
        let key_of = |machine: &Machine| key(&qemu(), machine, None).unwrap();
        let base_key = key_of(&machine());
        let changes: [fn(&mut Machine); 10] = [
            |machine| machine.kernel_sha256 = "cc".to_owned(),
            |machine| machine.initramfs_sha256 = "cc".to_owned(),
            |machine| machine.cpus = 2,
            |machine| machine.memory_mib += 1,
            |machine| machine.identity = of_zen3(),
            |machine| machine.disks = vec!["nvme".parse().unwrap()],
            |machine| machine.nics = "e1000".parse().ok(),
            |machine| machine.seed = 2,
            |machine| machine.pmu = true,
            |machine| machine.append.push("nohz=off".to_owned()),
        ];
        let mut keys = std::collections::BTreeSet::from([base_key.clone()]);
        for change in changes {
            let mut changed = machine();
            change(&mut changed);
            assert!(keys.insert(key_of(&changed)), "{changed:?}");
        }
        let mut other_qemu = qemu();
        other_qemu.version_text = "QEMU 11.2".to_owned();
        assert_ne!(key(&other_qemu, &machine(), None).unwrap(), base_key);
        assert_ne!(key(&qemu_with_content("cd"), &machine(), None).unwrap(), base_key);
        assert_ne!(key(&qemu(), &machine(), Some("true")).unwrap(), base_key);
        // The key does not depend on the paths of the files.
        let mut moved = machine();
        moved.kernel = "/elsewhere/bzImage".into();
        assert_eq!(key_of(&moved), base_key);
    }
}
