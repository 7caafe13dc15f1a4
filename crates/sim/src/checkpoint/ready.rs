//! Machines that are up and wait for a request, kept in the cache.
//!
//! Such a machine is keyed by all that it depends on. It is always restored, also right after it was
//! booted, and it is saved at a place that the guest determines; so results do not depend on whether
//! the cache had it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outputs::NewDirectory;
use serde_json::json;

use super::{Boot, Checkpoint, MANIFEST, SCHEMA, Start, restore_from, save_when_ready};
use crate::boot::Limits;
use crate::cache::in_use;
use crate::guest::loaded::LoadedModule;
use crate::machine::vm::Instrumentation;
use crate::machine::{Machine, Timing};
use crate::qemu::Qemu;
use crate::{Cache, Progress, Result, SimError, Vm, hash, watch};

/// How the names of such machines start in the cache.
pub(crate) const PREFIX: &str = "ready-";
/// Limit of a guest's own clock in its command line: a year. The plugin limits each run.
const GUEST_LIMIT_S: u32 = 365 * 86_400;
/// How often a machine that is damaged, or that another process removes, is made again.
const ATTEMPTS: usize = 3;

/// A machine that waits for a request. While it exists, the cache does not remove it.
#[derive(Debug)]
pub struct Ready {
    place: PathBuf,
    command_line: String,
    modules: Vec<LoadedModule>,
    /// Locked, shared.
    _in_use: File,
    /// Where it is kept if not in the cache.
    _scratch: Option<NewDirectory>,
}

/// Returns what to start a machine from so that it waits for a request: from the cache, if it was booted
/// before; otherwise it boots now, at the level `fast`. A machine whose time follows the host's clock is
/// not repeatable and always boots.
///
/// # Errors
/// As [`crate::boot::follow`]; [`SimError::Stopped`] when `stop` returns true; and when the state can be
/// written neither to the cache nor to the directory for temporary files.
pub fn ready(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    progress: Progress,
    stop: &dyn Fn() -> bool,
) -> Result<Start> {
    kept(cache, qemu, machine, None, Limits::default(), progress, stop)
}

/// [`ready`] of a machine that has executed a command, too: what prepares a workload. Its state and the
/// content of its disks are kept where the command has ended.
///
/// # Errors
/// As [`ready`]; [`SimError::Machine`] when the command fails, with its status and its last output, or does
/// not end within `limits`; and [`SimError::Invalid`] for a machine on the host's clock.
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
    kept(cache, qemu, machine, Some(command), limits, progress, stop)
}

fn kept(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    prepares: Option<&str>,
    limits: Limits,
    progress: Progress,
    stop: &dyn Fn() -> bool,
) -> Result<Start> {
    if machine.timing == Timing::HostClock {
        return Ok(Start::Boot);
    }
    let mut machine = machine.clone();
    // Not part of the guest's devices; a restored machine has its own.
    machine.disks.iter_mut().for_each(|disk| disk.latency_ns = 0);
    let name = format!("{PREFIX}{}", key(qemu, &machine, prepares)?);
    let boot = |aside: &Path| {
        let what = Boot { machine: &machine, prepares, limits, alarm_s: GUEST_LIMIT_S };
        save_when_ready(cache, qemu, &what, aside, stop).map(drop)
    };
    let done = if prepares.is_some() { "booting and preparing" } else { "booting" };
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let booted = cache.directory(&name, progress, |aside| {
            let line = "the machine once, at level fast; the cache keeps it for later runs";
            progress(&format!("{done} {line}"));
            boot(aside)
        });
        let place = match booted {
            Ok(place) => place,
            Err(error) if is_about(&error, cache) => {
                last = Some(error);
                break;
            }
            Err(error) => return Err(error),
        };
        match Ready::open(place, None) {
            Ok(Some(ready)) => {
                cache.evict(progress);
                return Ok(Start::Ready(Arc::new(ready)));
            }
            // What replaced it is opened next.
            Ok(None) => {}
            Err(error) => {
                progress(&format!("{name} in the cache is damaged and made again: {error}"));
                cache.discard(&name)?;
                last = Some(error);
            }
        }
    }
    let error = last.unwrap_or(SimError::Stopped);
    progress(&format!("the cache cannot keep the machine, which boots for this run only: {error}"));
    // Never finished: it is removed with the machine, or after a kill by the next start.
    let scratch = NewDirectory::create(&std::env::temp_dir().join("irqlab-machine"));
    let Ok(scratch) = scratch else { return Err(error) };
    let place = scratch.hidden_path();
    boot(&place)?;
    let ready = Ready::open(place, Some(scratch))?.ok_or(error)?;
    Ok(Start::Ready(Arc::new(ready)))
}

/// Whether the machine is all right and the cache cannot keep it.
fn is_about(error: &SimError, cache: &Cache) -> bool {
    match error {
        SimError::File { path, .. } => path.starts_with(cache.path("")),
        SimError::Unsaved(_) => true,
        _ => false,
    }
}

impl Ready {
    /// Opens a directory, checks its files, and notes that it was used now. `None` if another process
    /// removed or replaced the directory in that moment.
    fn open(place: PathBuf, scratch: Option<NewDirectory>) -> Result<Option<Ready>> {
        let path = place.join(MANIFEST);
        let opened = in_use::open(&path).map_err(SimError::file(&path))?;
        let Some(file) = opened else {
            // Without a manifest it is damaged, unless it is gone as a whole.
            return match place.exists() && !path.exists() {
                true => Err(SimError::file(&path)(ErrorKind::NotFound.into())),
                false => Ok(None),
            };
        };
        let checkpoint = Checkpoint::read(&place)?;
        let command_line = checkpoint.command_line;
        let modules = checkpoint.report.unwrap_or_default().modules;
        Ok(Some(Ready { place, command_line, modules, _in_use: file, _scratch: scratch }))
    }

    pub(super) fn modules(&self) -> &[LoadedModule] {
        &self.modules
    }

    /// Restores it with a request.
    pub(super) fn restore(
        &self,
        qemu: &Qemu,
        machine: &Machine,
        request: &str,
        instrumentation: Instrumentation<'_>,
    ) -> Result<Vm> {
        let request = request.to_owned();
        let (place, command_line) = (&self.place, &self.command_line);
        let mut vm = restore_from(place, command_line, qemu, machine, request, instrumentation)?;
        vm.set_modules(self.modules.clone());
        Ok(vm)
    }
}

/// Returns the key of all that the state of a machine depends on.
fn key(qemu: &Qemu, machine: &Machine, prepares: Option<&str>) -> Result<String> {
    let mut depends_on = json!({
        "schema": SCHEMA,
        "qemu": qemu.version_text,
        "plugin": watch::plugin_sha256(),
        "kernel": machine.kernel_sha256,
        "initramfs": machine.initramfs_sha256,
        "command_line": machine.command_line("ready", GUEST_LIMIT_S)?,
        "vcpus": machine.cpus,
        "memory_mib": machine.memory_mib,
        "devices": machine.device_set(),
        "pmu": machine.pmu,
    });
    if let Some(command) = prepares {
        depends_on["prepares"] = command.into();
    }
    Ok(hash::key(&hash::of_bytes(depends_on.to_string().as_bytes())).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;
    use crate::qemu::tests::qemu;

    #[test]
    fn the_key_changes_with_all_that_the_state_depends_on() {
        let key_of = |machine: &Machine| key(&qemu(), machine, None).unwrap();
        let of_base = key_of(&machine());
        let changes: [fn(&mut Machine); 10] = [
            |machine| machine.kernel_sha256 = "cc".to_owned(),
            |machine| machine.initramfs_sha256 = "cc".to_owned(),
            |machine| machine.cpus = 2,
            |machine| machine.memory_mib += 1,
            |machine| machine.cpu_model = "qemu64".to_owned(),
            |machine| machine.disks = vec!["nvme".parse().unwrap()],
            |machine| machine.nics = "e1000".parse().ok(),
            |machine| machine.seed = 2,
            |machine| machine.pmu = true,
            |machine| machine.append.push("nohz=off".to_owned()),
        ];
        let mut keys = std::collections::BTreeSet::from([of_base.clone()]);
        for change in changes {
            let mut other = machine();
            change(&mut other);
            assert!(keys.insert(key_of(&other)), "{other:?}");
        }
        let mut other = qemu();
        other.version_text = "QEMU 11.2".to_owned();
        assert_ne!(key(&other, &machine(), None).unwrap(), of_base);
        assert_ne!(key(&qemu(), &machine(), Some("true")).unwrap(), of_base);
        // Where the files lie is not in it.
        let mut moved = machine();
        moved.kernel = "/elsewhere/bzImage".into();
        assert_eq!(key_of(&moved), of_base);
    }
}
