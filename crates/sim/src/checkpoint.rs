//! A machine's whole state on disk: booted once without models, restored as often as wanted.
//!
//! The guest is stopped in the loop in which its first process waits for an order. What restores it
//! offers another order, so that each restored machine goes on from the same instruction. A
//! checkpoint belongs to its QEMU, kernel, initramfs and devices, and is refused with others.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::{GuestReport, Message};
use crate::boot::Limits;
use crate::cache::read_bounded;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::qemu::Qemu;
use crate::vm::{GuestEvent, More, Start, Vm, VmEvent};
use crate::{Cache, Progress, Result, SimError, boot, hash, watch};

#[path = "checkpoint_held.rs"]
mod held;
#[path = "checkpoint_pmu.rs"]
mod pmu;

pub(crate) use held::check_can_be_saved;
pub use held::{GO_ON, Going, Saver};

const STATE: &str = "state";
const MANIFEST: &str = "checkpoint.json";
const MANIFEST_BYTES_MAX: u64 = 256 * 1024;
const SCHEMA: &str = "irqlab.checkpoint/1";
const NAME_BYTES_MAX: usize = 64;
/// Longest wait for the monitor, whatever the host does.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time to write the state.
const SAVE_TIMEOUT: Duration = Duration::from_secs(300);
const SAVE_POLL: Duration = Duration::from_millis(20);
/// Guest time that a kernel may take to its first process, in seconds: some ten times what is usual.
const BOOT_S_MAX: u64 = 30;
/// The same where guest time follows a model.
const BOOT_TIMED_S_MAX: u64 = 120;
const RESTORE_POLL: Duration = Duration::from_millis(5);

/// What a checkpoint is of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    schema: String,
    /// Version of QEMU.
    pub qemu: String,
    /// The machine.
    pub machine: Machine,
    /// The kernel's command line.
    pub command_line: String,
    /// What the kernel said about itself; absent where the machine was saved on its way.
    pub report: Option<GuestReport>,
    /// Bytes of the state.
    pub state_bytes: u64,
    /// What it does, where it was saved on its way; else it waits for an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub going: Option<Going>,
}

/// Boots a machine to its ready marker and saves it under a name; replaces one of that name.
///
/// # Errors
/// As [`boot::follow`]; and when the state cannot be written.
pub fn create(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    name: &str,
    limits: Limits,
    progress: Progress,
) -> Result<Checkpoint> {
    check_name(name)?;
    check_files(machine, name)?;
    let mut made = None;
    cache.replace_directory(&directory(name), progress, |aside| {
        let counters = pmu::Saving::new(cache, qemu, machine, aside)?;
        let mut vm = boot::start_with(qemu, machine, "ready", limits, counters.more())?;
        let report = wait_until_ready(&mut vm, limits)?;
        save(&mut vm, &aside.join(STATE))?;
        vm.quit()?;
        counters.check()?;
        made = Some(describe(aside, qemu, machine, &vm, (Some(report), None))?);
        Ok(())
    })?;
    made.ok_or_else(|| refused(name, "was not made".to_owned()))
}

/// Writes what a checkpoint is of beside its state.
fn describe(
    aside: &Path,
    qemu: &Qemu,
    machine: &Machine,
    vm: &Vm,
    (report, going): (Option<GuestReport>, Option<Going>),
) -> Result<Checkpoint> {
    let state = aside.join(STATE);
    let checkpoint = Checkpoint {
        schema: SCHEMA.to_owned(),
        qemu: qemu.version_text.clone(),
        machine: machine.clone(),
        command_line: vm.started_with().0.to_owned(),
        report,
        state_bytes: fs::metadata(&state).map_err(SimError::file(&state))?.len(),
        going,
    };
    let text = serde_json::to_string_pretty(&checkpoint)
        .map_err(|error| SimError::data(MANIFEST, error.to_string()))?;
    let path = aside.join(MANIFEST);
    fs::write(&path, text + "\n").map_err(SimError::file(&path))?;
    Ok(checkpoint)
}

/// The checkpoint of a name.
///
/// # Errors
/// When there is none, or its files are damaged.
pub fn open(cache: &Cache, name: &str) -> Result<Checkpoint> {
    check_name(name)?;
    let directory = cache.path(&directory(name));
    if !directory.is_dir() {
        let known = list(cache);
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(refused(name, format!("there is none of that name; there are: {known}")));
    }
    let damaged = |reason: String| refused(name, format!("is damaged: {reason}"));
    let text = read_bounded(&directory.join(MANIFEST), MANIFEST_BYTES_MAX)?;
    let checkpoint: Checkpoint =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if checkpoint.schema != SCHEMA {
        return Err(damaged(format!("schema {:?} instead of {SCHEMA:?}", checkpoint.schema)));
    }
    let state = directory.join(STATE);
    let bytes = fs::metadata(&state).map_err(SimError::file(&state))?.len();
    if bytes != checkpoint.state_bytes {
        return Err(damaged(format!("{bytes} bytes instead of {}", checkpoint.state_bytes)));
    }
    Ok(checkpoint)
}

/// Names of the checkpoints in the cache.
#[must_use]
pub fn list(cache: &Cache) -> Vec<String> {
    let Ok(entries) = fs::read_dir(cache.path("")) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().strip_prefix("checkpoint-")?.to_owned();
        (check_name(&name).is_ok() && entry.path().join(MANIFEST).is_file()).then_some(name)
    });
    let mut names: Vec<String> = names.collect();
    names.retain(|name| !name.ends_with(".aside") && !name.ends_with(".old"));
    names.sort();
    names
}

impl Checkpoint {
    /// That this QEMU and this machine are those of the checkpoint.
    ///
    /// # Errors
    /// [`SimError::Checkpoint`] that names each difference.
    pub fn check(&self, name: &str, qemu: &Qemu, machine: &Machine) -> Result<()> {
        let cpus = |machine: &Machine| format!("{} CPUs, {} MiB", machine.cpus, machine.memory_mib);
        let was = &self.machine;
        let pairs = [
            ("QEMU", self.qemu.clone(), qemu.version_text.clone()),
            ("kernel", key(&was.kernel_sha256), key(&machine.kernel_sha256)),
            ("initramfs", key(&was.initramfs_sha256), key(&machine.initramfs_sha256)),
            ("size", cpus(was), cpus(machine)),
            ("device set", was.device_set(), machine.device_set()),
            ("PMU", pmu::described(was).to_owned(), pmu::described(machine).to_owned()),
        ];
        let differences: Vec<String> = pairs
            .into_iter()
            .filter(|(_, was, is)| was != is)
            .map(|(what, was, is)| format!("{what}: made with {was}, this is {is}"))
            .collect();
        if differences.is_empty() {
            return Ok(());
        }
        let differences = differences.join("\n  ");
        let remedy = format!("with the options of this: irqlab sim checkpoint {name} ...");
        Err(refused(name, format!("of another machine:\n  {differences}\nmake it again, {remedy}")))
    }
}

/// Restores a checkpoint with an order; the machine runs on at once.
///
/// # Errors
/// When the checkpoint is of another machine, kernel or QEMU, or QEMU does not start.
pub fn restore(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    name: &str,
    order: &str,
    mut more: More<'_>,
) -> Result<Vm> {
    let checkpoint = open(cache, name)?;
    checkpoint.check(name, qemu, machine)?;
    let order = checkpoint.order(name, order)?;
    check_files(machine, name)?;
    let place = cache.path(&directory(name));
    pmu::go_on_with(machine, &place, &mut more)?;
    let state = place.join(STATE);
    more.arguments.extend(["-incoming".to_owned(), format!("file:{}", state.display())]);
    let command_line = checkpoint.command_line;
    let start = Start { command_line, order, more };
    let mut vm = Vm::start(qemu, machine, &start)?;
    go_on(&mut vm)?;
    Ok(vm)
}

/// Restores a checkpoint where one is named, else boots. The guest is ended when its time is up,
/// counted from the restore, or from its start with some time to boot, whatever it does then.
///
/// # Errors
/// As [`restore`] and [`boot::start_with`].
pub fn start(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    from: Option<&str>,
    order: &str,
    limits: Limits,
    mut more: More<'_>,
) -> Result<Vm> {
    // The guest's own limit counts from its first process on, which the kernel has to get to.
    let boot_s = match (from, more.is_timed) {
        (Some(_), _) => 0,
        (None, true) => BOOT_TIMED_S_MAX,
        (None, false) => BOOT_S_MAX,
    };
    more.arguments.extend(watch::limit(cache, boot_s + u64::from(limits.guest_s))?);
    match from {
        Some(name) => restore(cache, qemu, machine, name, order, more),
        None => boot::start_with(qemu, machine, order, limits, more),
    }
}

/// The saved machine was stopped, and so is the restored one when all its state is there.
fn go_on(vm: &mut Vm) -> Result<()> {
    let deadline = Instant::now() + MONITOR_TIMEOUT;
    loop {
        let answer = vm.command("query-status", &Value::Null, MONITOR_TIMEOUT)?;
        match answer["status"].as_str() {
            Some("inmigrate") if Instant::now() < deadline => std::thread::sleep(RESTORE_POLL),
            Some("paused") => {
                return vm.command("cont", &Value::Null, MONITOR_TIMEOUT).map(drop);
            }
            other => {
                let status = other.unwrap_or("unknown");
                return Err(vm.failure(&format!("the state cannot be restored: {status}")));
            }
        }
    }
}

/// A machine like that of the checkpoint with another kernel and image, for [`Checkpoint::check`].
#[must_use]
pub fn with_kernel(checkpoint: &Checkpoint, kernel: &Kernel) -> Machine {
    let kernel_sha256 = kernel.sha256.clone();
    Machine { kernel: kernel.image.clone(), kernel_sha256, ..checkpoint.machine.clone() }
}

fn wait_until_ready(vm: &mut Vm, limits: Limits) -> Result<GuestReport> {
    let deadline = Instant::now() + limits.wall;
    let mut report = None;
    loop {
        match vm.next(deadline)? {
            Some(VmEvent::Guest(GuestEvent(Message::Facts(facts)))) => report = Some(facts),
            Some(VmEvent::Guest(GuestEvent(Message::Ready))) => {
                return report.ok_or_else(|| vm.failure("the guest is ready and said no facts"));
            }
            Some(VmEvent::Ended(_)) => {
                return Err(vm.failure("the machine ended before it was ready"));
            }
            Some(_) => {}
            None => {
                vm.kill();
                let seconds = limits.wall.as_secs();
                return Err(vm.failure(&format!("the machine was not ready after {seconds} s")));
            }
        }
    }
}

/// Stops the machine and writes its state.
fn save(vm: &mut Vm, path: &Path) -> Result<()> {
    vm.command("stop", &Value::Null, MONITOR_TIMEOUT)?;
    let uri = format!("file:{}", path.display());
    vm.command("migrate", &json!({ "uri": uri }), MONITOR_TIMEOUT)?;
    let deadline = Instant::now() + SAVE_TIMEOUT;
    loop {
        let answer = vm.command("query-migrate", &Value::Null, MONITOR_TIMEOUT)?;
        match answer["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => {
                let reason = answer["error-desc"].as_str().unwrap_or("no reason given");
                return Err(vm.failure(&format!("the state cannot be saved: {reason}")));
            }
            _ if Instant::now() > deadline => {
                return Err(vm.failure("saving the state takes too long"));
            }
            _ => std::thread::sleep(SAVE_POLL),
        }
    }
}

/// That the files still are what their hashes say.
fn check_files(machine: &Machine, name: &str) -> Result<()> {
    for (path, expected) in
        [(&machine.kernel, &machine.kernel_sha256), (&machine.initramfs, &machine.initramfs_sha256)]
    {
        if hash::of_file(path)? != *expected {
            return Err(refused(name, format!("{} was changed since", path.display())));
        }
    }
    Ok(())
}

fn directory(name: &str) -> String {
    format!("checkpoint-{name}")
}

fn key(hash: &str) -> String {
    hash::key(hash).to_owned()
}

fn refused(name: &str, reason: String) -> SimError {
    SimError::Checkpoint { name: name.to_owned(), reason }
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(fits);
    if is_name && !name.starts_with('.') && !name.ends_with(".aside") && !name.ends_with(".old") {
        return Ok(());
    }
    let allowed = "1 to 64 letters, digits, dots, dashes and underscores, no dot first";
    Err(refused(name, format!("no name for a checkpoint; allowed: {allowed}")))
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
