//! Checkpoints: the whole state of a machine on disk, booted once and restored any number of times.
//!
//! `irqlab sim checkpoint` calls [`create`], `irqlab sim boot --from` and the experiments call [`start`].
//! The guest stops at a marker of its first process, before this process waits for a request. The caller of a
//! restore provides the request, so each restored machine continues from the same instruction. Alternatively,
//! an annotation saves the machine in the middle of a command, which a restored machine then continues. A
//! checkpoint belongs to its QEMU, kernel, initramfs and devices, and is refused for others.
//!
//! [`ready`] keeps such machines in the cache, so that no experiment boots a machine again. The key of a
//! machine covers everything that its state depends on.

mod pmu;
mod ready;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use ready::{Ready, prepared, ready};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::annotate::Annotations;
use crate::boot::Limits;
use crate::cache::check_checkpoint_name;
use crate::cache::content::Content;
use crate::guest::loaded::LoadedModule;
use crate::machine::agent::{GuestReport, Message};
use crate::machine::devices::saved_names;
use crate::machine::vm::{GuestEvent, Instrumentation, StartConfig, Vm, VmEvent};
use crate::machine::{Held, Machine};
use crate::qemu::Qemu;
use crate::regular_file::read_bounded;
use crate::watch::{self, Detail, KernelFiles, Recording, Watch};
use crate::{Cache, Progress, Result, SimError, boot, hash};

const STATE: &str = "state";
const MANIFEST: &str = "checkpoint.json";
const MANIFEST_BYTES_MAX: u64 = 256 * 1024;
/// Format of the manifest. It must change whenever the fields of [`Checkpoint`] or the files of a checkpoint change.
const SCHEMA: &str = "irqlab.checkpoint/6";
/// Maximum time for a reply of the monitor, however busy the host is.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for writing the state.
const SAVE_TIMEOUT: Duration = Duration::from_secs(300);
const SAVE_POLL: Duration = Duration::from_millis(20);
/// Guest time that a kernel may take until its first process starts, in seconds: some ten times the usual.
const BOOT_S_MAX: u64 = 30;
/// Like [`BOOT_S_MAX`], where guest time follows a model.
const BOOT_TIMED_S_MAX: u64 = 120;
/// Maximum time for reading the state: hundreds of MiB, from a disk that other processes may use. A QEMU that
/// fails to read it ends by itself.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(600);
/// Interval at which QEMU is asked whether it has read the state.
const RESTORE_POLL: Duration = Duration::from_millis(5);

/// The state from which a machine starts.
#[derive(Clone, Debug, Default)]
pub enum Start {
    /// The machine boots its kernel.
    #[default]
    Boot,
    /// A checkpoint that the user made, by its name.
    Named(String),
    /// A machine that waits for a request, in the cache.
    Ready(Arc<Ready>),
}

impl Start {
    /// Describes the start for the settings of a run. The text has no key and no path, so it depends only on
    /// the user's options.
    #[must_use]
    pub fn described(&self) -> String {
        match self {
            Start::Boot => "boot".to_owned(),
            Start::Named(name) => format!("checkpoint {name}"),
            Start::Ready(_) => "booted once, at level fast".to_owned(),
        }
    }

    /// Describes the state at the start exactly, for a key. A checkpoint that cannot be read has its name only.
    pub(crate) fn identity(&self, cache: &Cache) -> String {
        match self {
            Start::Boot => "boot".to_owned(),
            Start::Named(name) => {
                // The manifest has the check sums of all files of the state.
                let manifest = cache.path(&directory(name)).join(MANIFEST);
                let manifest = read_bounded(&manifest, MANIFEST_BYTES_MAX).unwrap_or_default();
                format!("checkpoint {name} {}", hash::of_bytes(&manifest))
            }
            Start::Ready(ready) => ready.name().to_owned(),
        }
    }
}

impl Start {
    /// Returns the modules that the machine has loaded at its start. Empty for a boot, whose modules are not
    /// known yet.
    ///
    /// Fails as [`open`] does.
    pub fn modules(&self, cache: &Cache) -> Result<Vec<LoadedModule>> {
        Ok(match self {
            Start::Boot => Vec::new(),
            Start::Named(name) => open(cache, name)?.modules(),
            Start::Ready(ready) => ready.report().modules.clone(),
        })
    }

    /// Returns what the kernel of the machine does about each bug of processors. Empty for a boot, whose kernel has not
    /// stated it yet.
    ///
    /// Fails as [`open`] does.
    pub fn mitigations(&self, cache: &Cache) -> Result<BTreeMap<String, String>> {
        Ok(match self {
            Start::Boot => BTreeMap::new(),
            Start::Named(name) => open(cache, name)?.report.unwrap_or_default().mitigations,
            Start::Ready(ready) => ready.report().mitigations.clone(),
        })
    }
}

/// Starts from the named checkpoint, or boots for `None`.
impl From<Option<&str>> for Start {
    fn from(name: Option<&str>) -> Start {
        name.map_or(Start::Boot, |name| Start::Named(name.to_owned()))
    }
}

/// The description of a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    schema: String,
    /// The line that QEMU prints as its version.
    pub qemu: String,
    pub machine: Machine,
    /// The kernel's command line.
    pub command_line: String,
    /// The guest's report about its kernel; absent if an annotation saved the machine.
    pub report: Option<GuestReport>,
    /// The other files of the checkpoint, by name.
    files: BTreeMap<String, Content>,
    /// The request that an annotation interrupted to save the machine; absent if the machine waits for a
    /// request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mid_run: Option<MidRun>,
    /// CRC-32 of all fields as JSON without white space, with this field as 0. The order of the fields matters.
    fields_crc32: u32,
}

/// Boots a machine until it is ready and saves it under a name; replaces a checkpoint of that name. After an error, the
/// earlier checkpoint of that name stays.
///
/// Fails as [`boot::follow`] does, and if the state cannot be written.
pub fn create(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    name: &str,
    limits: Limits,
    progress: Progress,
) -> Result<Checkpoint> {
    check_checkpoint_name(name)?;
    check_files(machine, name)?;
    let mut checkpoint = None;
    cache.replace_directory(&directory(name), progress, |staging| {
        let boot = Boot { machine, preparation: None, limits, alarm_s: limits.guest_s };
        checkpoint = Some(save_when_ready(cache, qemu, &boot, staging, &|| false)?);
        Ok(())
    })?;
    checkpoint.ok_or_else(|| refused(name, "it was not written".to_owned()))
}

/// A boot up to the point at which the machine is saved.
struct Boot<'a> {
    machine: &'a Machine,
    /// A command that the guest executes before the machine is saved.
    preparation: Option<&'a str>,
    /// Limits for the boot and the command.
    limits: Limits,
    /// The guest's own time limit, in seconds. It continues after a restore.
    alarm_s: u32,
}

/// Boots a machine, at the level `fast` (with a PMU: `count`), to the marker after which its first process waits for a
/// request; saves it there in the directory `staging`. `stop` ends the boot early, with [`SimError::Stopped`].
fn save_when_ready(
    cache: &Cache,
    qemu: &Qemu,
    target: &Boot<'_>,
    staging: &Path,
    stop: &dyn Fn() -> bool,
) -> Result<Checkpoint> {
    let Boot { machine, preparation, limits, alarm_s } = *target;
    let annotations = match preparation {
        Some(_) => Annotations::when_prepared(),
        None => Annotations::when_ready(),
    };
    let request = preparation.map(|command| format!("prepare:{command}"));
    // With a PMU, the counters must advance during the boot, too. They do not advance at level `fast`.
    let detail = if machine.pmu { Detail::Count } else { Detail::Fast };
    let watch = Watch { detail, annotations, ..Watch::default() };
    let recording = Recording::new(cache, qemu, machine, &KernelFiles::nothing(), &watch, None)?;
    let mut instrumentation = recording.instrumentation();
    let limit_s = BOOT_S_MAX + u64::from(limits.guest_s);
    instrumentation.arguments.extend(watch::guest_time_limit_arguments(cache, limit_s, None)?);
    let request = request.as_deref().unwrap_or("ready");
    let alarm = Limits { guest_s: alarm_s, ..limits };
    let mut vm = boot::start_with(qemu, machine, request, alarm, instrumentation)?;
    let report = wait_until_held(&mut vm, limits, stop)?;
    save(&mut vm, staging)?;
    if let Some(counters) = recording.counters() {
        pmu::keep(staging, counters)?;
    }
    let checkpoint = describe(staging, qemu, machine, &vm, (Some(report), None))?;
    vm.kill();
    Ok(checkpoint)
}

/// Writes the description of a checkpoint next to its state in `staging`, and returns it. It has a report if the machine
/// waits for a request, and a `mid_run` if an annotation saved it.
fn describe(
    staging: &Path,
    qemu: &Qemu,
    machine: &Machine,
    vm: &Vm,
    (report, mid_run): (Option<GuestReport>, Option<MidRun>),
) -> Result<Checkpoint> {
    let file_names =
        [STATE].into_iter().chain(machine.pmu.then_some(pmu::CONTENT)).map(str::to_owned);
    let file_names = file_names.chain(saved_names(&machine.disks));
    let named_contents = file_names.map(|name| {
        let content = Content::of_file(&staging.join(&name))?;
        Ok((name, content))
    });
    let mut checkpoint = Checkpoint {
        schema: SCHEMA.to_owned(),
        qemu: qemu.version_text.clone(),
        machine: machine.clone(),
        command_line: vm.started_with().0.to_owned(),
        report,
        files: named_contents.collect::<Result<_>>()?,
        mid_run,
        fields_crc32: 0,
    };
    checkpoint.fields_crc32 = checkpoint.crc32_of_fields()?;
    let text = serde_json::to_string_pretty(&checkpoint)
        .map_err(|error| SimError::data(MANIFEST, error.to_string()))?;
    let path = staging.join(MANIFEST);
    fs::write(&path, text + "\n").map_err(SimError::file(&path))?;
    Ok(checkpoint)
}

/// Reads the description of a checkpoint, and checks all its files.
///
/// Fails with [`SimError::Checkpoint`] when there is none (the message lists the others), or its files are damaged.
pub fn open(cache: &Cache, name: &str) -> Result<Checkpoint> {
    check_checkpoint_name(name)?;
    let directory = cache.path(&directory(name));
    if !directory.is_dir() {
        let known = list(cache);
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(refused(name, format!("it does not exist (there are: {known})")));
    }
    Checkpoint::read(&directory).map_err(|error| {
        let remedy = format!("make it again: irqlab sim checkpoint {name} ...");
        refused(name, format!("it is damaged: {error} ({remedy})"))
    })
}

/// Returns the names of the checkpoints in the cache, sorted. A damaged checkpoint is among them. Empty if the cache cannot
/// be read.
#[must_use]
pub fn list(cache: &Cache) -> Vec<String> {
    let Ok(entries) = fs::read_dir(cache.path("")) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().strip_prefix("checkpoint-")?.to_owned();
        (check_checkpoint_name(&name).is_ok() && entry.path().join(MANIFEST).is_file())
            .then_some(name)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

impl Checkpoint {
    /// Reads the description in a directory. Fails if it is damaged or of another version, and if a file next to it is
    /// missing, damaged or unknown.
    fn read(directory: &Path) -> Result<Checkpoint> {
        let invalid = |reason: String| SimError::data(MANIFEST, reason);
        let text = read_bounded(&directory.join(MANIFEST), MANIFEST_BYTES_MAX)?;
        let manifest: Value =
            serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        if manifest["schema"] != SCHEMA {
            let schema = manifest["schema"].as_str().unwrap_or("none");
            return Err(invalid(format!("schema {schema:?} instead of {SCHEMA:?}")));
        }
        let checkpoint: Checkpoint =
            serde_json::from_value(manifest).map_err(|error| invalid(error.to_string()))?;
        let crc32 = checkpoint.crc32_of_fields()?;
        if crc32 != checkpoint.fields_crc32 {
            let expected = checkpoint.fields_crc32;
            return Err(invalid(format!("CRC-32 {crc32:08x} instead of {expected:08x}")));
        }
        let disks = saved_names(&checkpoint.machine.disks);
        if let Some(name) =
            disks.chain([STATE.to_owned()]).find(|name| !checkpoint.files.contains_key(name))
        {
            return Err(invalid(format!("it names no file {name:?}")));
        }
        for (name, expected_content) in &checkpoint.files {
            let is_disk = saved_names(&checkpoint.machine.disks).any(|disk| disk == *name);
            if !is_disk && !matches!(name.as_str(), STATE | pmu::CONTENT) {
                return Err(invalid(format!("it names an unknown file {name:?}")));
            }
            expected_content.check(directory, name)?;
        }
        Ok(checkpoint)
    }

    /// Computes [`Checkpoint::fields_crc32`].
    fn crc32_of_fields(&self) -> Result<u32> {
        let fields = Checkpoint { fields_crc32: 0, ..self.clone() };
        let text = serde_json::to_vec(&fields)
            .map_err(|error| SimError::data(MANIFEST, error.to_string()))?;
        Ok(crc32fast::hash(&text))
    }

    /// Returns the size of the machine's state in bytes, without its disks.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        self.files.get(STATE).map_or(0, |state| state.bytes)
    }

    /// Checks that the checkpoint belongs to this QEMU and this machine. The sets of devices are compared only if nothing
    /// else differs, because options that differ change them, too.
    ///
    /// Fails with [`SimError::Checkpoint`], which names each difference.
    pub fn check(&self, name: &str, qemu: &Qemu, machine: &Machine) -> Result<()> {
        let saved = &self.machine;
        let words = |machine: &Machine| match machine.identity.kernel_words() {
            [] => "auto".to_owned(),
            words => words.join(" "),
        };
        let comparisons = [
            ("QEMU", self.qemu.clone(), qemu.version_text.clone()),
            (
                "kernel (--kernel, --flavour)",
                key(&saved.kernel_sha256),
                key(&machine.kernel_sha256),
            ),
            (
                "initramfs (--with-irqlab, or another version of irqlab)",
                key(&saved.initramfs_sha256),
                key(&machine.initramfs_sha256),
            ),
            ("--vcpus", saved.cpus.to_string(), machine.cpus.to_string()),
            ("--mem", format!("{}M", saved.memory_mib), format!("{}M", machine.memory_mib)),
            // The kernel has read its command line, so words of the run would have no effect.
            ("--append", saved.appended_words(), machine.appended_words()),
            ("--identity", saved.identity.name.clone(), machine.identity.name.clone()),
            ("--mitigations", words(saved), words(machine)),
            ("--disk", saved.disk_words(), machine.disk_words()),
            ("--net", saved.nic_word().to_owned(), machine.nic_word().to_owned()),
            ("--pmu", pmu::pmu_word(saved).to_owned(), pmu::pmu_word(machine).to_owned()),
        ];
        let mut differences: Vec<_> =
            comparisons.into_iter().filter(|(_, saved, current)| saved != current).collect();
        let (saved_devices, devices) = (saved.device_set(), machine.device_set());
        if differences.is_empty() && saved_devices != devices {
            differences.push(("device set", saved_devices, devices));
        }
        if differences.is_empty() {
            return Ok(());
        }
        let lines = differences.into_iter().map(|(part, saved, current)| {
            format!("\n  {part}: made with {saved}, this is {current}")
        });
        let difference_lines: String = lines.collect();
        let (made_with, options) = (saved.options(), machine.options());
        Err(refused(
            name,
            format!(
                "it belongs to another machine:{difference_lines}\n(it was made with {made_with}; make it again for this \
                 machine, with the same --kernel, --modules, --flavour, --rootfs and --with-irqlab as here:\n  \
                 irqlab sim checkpoint {name} {options})"
            ),
        ))
    }
}

/// Restores a checkpoint with a request; the machine continues at once.
///
/// Fails when the checkpoint belongs to another machine, kernel or QEMU, or QEMU does not start.
pub fn restore(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    name: &str,
    request: &str,
    instrumentation: Instrumentation<'_>,
) -> Result<Vm> {
    let checkpoint = open(cache, name)?;
    checkpoint.check(name, qemu, machine)?;
    let request = checkpoint.firmware_request(name, request)?;
    check_files(machine, name)?;
    let directory = cache.path(&directory(name));
    let modules = checkpoint.modules();
    let mut vm = restore_from(
        &directory,
        &checkpoint.command_line,
        qemu,
        machine,
        request,
        instrumentation,
    )?;
    vm.set_modules(modules);
    Ok(vm)
}

/// Restores the state in a directory, and continues the machine.
fn restore_from(
    directory: &Path,
    command_line: &str,
    qemu: &Qemu,
    machine: &Machine,
    request: String,
    mut instrumentation: Instrumentation<'_>,
) -> Result<Vm> {
    pmu::restore(machine, directory, &mut instrumentation)?;
    let (command_line, state) = (command_line.to_owned(), directory.join(STATE));
    let config = StartConfig { command_line, request, state: Some(&state), instrumentation };
    let mut vm = Vm::start(qemu, machine, &config)?;
    resume(&mut vm)?;
    Ok(vm)
}

/// Starts a machine from `from` with a request. The plugin ends the guest at its time limit, whatever the
/// guest executes. The limit counts from the restore, or from the boot with some time added.
///
/// Fails as [`restore`] and [`boot::start_with`] do.
pub fn start(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    from: &Start,
    request: &str,
    limits: Limits,
    mut instrumentation: Instrumentation<'_>,
) -> Result<Vm> {
    // The guest's own limit counts from the start of its first process, after the kernel has booted.
    let boot_s = match (from, instrumentation.is_timed) {
        (Start::Named(_) | Start::Ready(_), _) => 0,
        (Start::Boot, true) => BOOT_TIMED_S_MAX,
        (Start::Boot, false) => BOOT_S_MAX,
    };
    let limit_s = boot_s + u64::from(limits.guest_s);
    let unrecorded_machine = instrumentation.arguments.is_empty().then_some(machine);
    instrumentation.arguments.extend(watch::guest_time_limit_arguments(
        cache,
        limit_s,
        unrecorded_machine,
    )?);
    match from {
        Start::Boot => boot::start_with(qemu, machine, request, limits, instrumentation),
        Start::Named(name) => restore(cache, qemu, machine, name, request, instrumentation),
        Start::Ready(ready) => ready.restore(qemu, machine, request, instrumentation),
    }
}

/// Waits until QEMU has read all the state of a restored machine, and continues the machine. The machine was
/// stopped when it was saved.
///
/// Fails if QEMU has not read the state within [`RESTORE_TIMEOUT`], reports an error, or ends.
fn resume(vm: &mut Vm) -> Result<()> {
    let deadline = Instant::now() + RESTORE_TIMEOUT;
    loop {
        let answer = vm.command("query-status", &Value::Null, MONITOR_TIMEOUT)?;
        match answer["status"].as_str() {
            Some("inmigrate") if Instant::now() >= deadline => {
                let seconds = RESTORE_TIMEOUT.as_secs();
                let reason = format!(
                    "the state cannot be restored: QEMU did not read it within {seconds} s"
                );
                return Err(vm.failure(&reason));
            }
            Some("inmigrate") => std::thread::sleep(RESTORE_POLL),
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

/// Waits until the plugin holds the machine at its marker and the guest has reported about its kernel, in any order: the
/// report comes over another channel. Returns the report.
///
/// Fails if the machine ends before, at the limits, and with [`SimError::Stopped`] as soon as `stop` returns true.
fn wait_until_held(vm: &mut Vm, limits: Limits, stop: &dyn Fn() -> bool) -> Result<GuestReport> {
    let mut deadline = Instant::now() + limits.wall;
    let (mut report, mut is_held) = (None, false);
    let mut failed_step = None;
    loop {
        if is_held && let Some(report) = report.take() {
            return Ok(report);
        }
        let event = vm.next_event(deadline.min(Instant::now() + boot::STOP_POLL))?;
        if stop() {
            vm.kill();
            return Err(SimError::Stopped);
        }
        match event {
            Some(VmEvent::Guest(GuestEvent(Message::Facts(facts)))) => report = Some(facts),
            Some(VmEvent::Held(_)) => {
                is_held = true;
                deadline = Instant::now() + MONITOR_TIMEOUT;
            }
            Some(VmEvent::Guest(GuestEvent(Message::Step { name, status }))) => {
                failed_step = Some((name, status));
            }
            Some(VmEvent::Ended(_)) => {
                return Err(match failed_step {
                    Some((name, status)) => {
                        let reason = boot::step_failed(&name, status);
                        match status {
                            boot::STATUS_LIMIT => vm.time_limit(&reason),
                            _ => vm.failure(&reason),
                        }
                    }
                    None if vm.reached_limit() => {
                        vm.time_limit("the guest has reached its time limit before it was ready")
                    }
                    None => vm.failure("the machine ended before it was ready"),
                });
            }
            None if Instant::now() >= deadline && is_held => {
                vm.kill();
                return Err(vm.failure("the guest is ready and has reported no facts"));
            }
            None if Instant::now() >= deadline => {
                vm.kill();
                let wall_limit = limits.wall;
                let reason = format!("the machine was not ready after {wall_limit:?} (--limit)");
                return Err(vm.time_limit(&reason));
            }
            Some(_) | None => {}
        }
    }
}

/// Stops the machine; writes its state and the content of its disks to a directory.
fn save(vm: &mut Vm, staging: &Path) -> Result<()> {
    vm.command("stop", &Value::Null, MONITOR_TIMEOUT)?;
    vm.save_disks(staging)?;
    let uri = format!("file:{}", staging.join(STATE).display());
    vm.command("migrate", &json!({ "uri": uri }), MONITOR_TIMEOUT)?;
    let deadline = Instant::now() + SAVE_TIMEOUT;
    loop {
        let answer = vm.command("query-migrate", &Value::Null, MONITOR_TIMEOUT)?;
        match answer["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => {
                let reason = answer["error-desc"].as_str().unwrap_or("no reason given");
                return Err(SimError::Unsaved(reason.to_owned()));
            }
            _ if Instant::now() > deadline => {
                let seconds = SAVE_TIMEOUT.as_secs();
                return Err(SimError::Unsaved(format!("not written after {seconds} s")));
            }
            _ => std::thread::sleep(SAVE_POLL),
        }
    }
}

/// Checks that the kernel and the initramfs still have their hashes.
fn check_files(machine: &Machine, name: &str) -> Result<()> {
    for (path, expected) in
        [(&machine.kernel, &machine.kernel_sha256), (&machine.initramfs, &machine.initramfs_sha256)]
    {
        if hash::of_file(path)? != *expected {
            return Err(refused(name, format!("{} has changed since it was made", path.display())));
        }
    }
    Ok(())
}

/// Returns the name of a checkpoint's directory in the cache.
fn directory(name: &str) -> String {
    format!("checkpoint-{name}")
}

/// The part of a SHA-256 hash that messages show.
fn key(hash: &str) -> String {
    hash::key(hash).to_owned()
}

/// Returns the error for a checkpoint that cannot be used.
fn refused(name: &str, reason: String) -> SimError {
    SimError::Checkpoint { name: name.to_owned(), reason }
}

/// The request for [`start`] if an annotation saved the machine during a command: the machine continues the command.
pub const RESUME: &str = "resume";

/// The request that a machine was executing when an annotation saved it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MidRun {
    /// The request in the firmware, which the guest may not have read yet.
    request: String,
    /// Whether the guest's command had started, and with it the region of interest.
    pub in_region: bool,
    /// The modules that the guest had loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    modules: Vec<LoadedModule>,
}

impl Checkpoint {
    /// Returns the modules that the guest had loaded.
    fn modules(&self) -> Vec<LoadedModule> {
        match (&self.report, &self.mid_run) {
            (Some(report), _) => report.modules.clone(),
            (None, Some(mid_run)) => mid_run.modules.clone(),
            (None, None) => Vec::new(),
        }
    }

    /// Returns the request for the firmware of a machine that is restored with `request`.
    ///
    /// Fails unless [`RESUME`] is given exactly for a machine that was saved in the middle of a command.
    fn firmware_request(&self, name: &str, request: &str) -> Result<String> {
        match (&self.mid_run, request == RESUME) {
            (Some(mid_run), true) => Ok(mid_run.request.clone()),
            (None, false) => Ok(request.to_owned()),
            (Some(_), false) => Err(refused(
                name,
                format!(
                    "an annotation saved it in the middle of a command, which it continues \
                     (irqlab sim boot --from {name}, without a command)"
                ),
            )),
            (None, true) => {
                Err(refused(name, "it waits for a command, and none is given".to_owned()))
            }
        }
    }
}

/// Saves a machine where annotations hold it.
pub struct Saver<'a> {
    cache: &'a Cache,
    qemu: &'a Qemu,
    machine: &'a Machine,
    recording: &'a Recording,
}

impl<'a> Saver<'a> {
    /// Makes a saver for a machine that `recording` observes.
    #[must_use]
    pub fn new(
        cache: &'a Cache,
        qemu: &'a Qemu,
        machine: &'a Machine,
        recording: &'a Recording,
    ) -> Saver<'a> {
        Saver { cache, qemu, machine, recording }
    }

    /// Saves the machine, which the plugin holds, and continues it.
    ///
    /// Fails when the state cannot be written, or the machine does not continue.
    pub fn save(&self, vm: &mut Vm, held: Held, progress: Progress) -> Result<()> {
        let checkpoint_name =
            self.recording.checkpoints().get(held.number as usize).ok_or_else(|| {
                vm.failure("the plugin holds it for a checkpoint that no annotation names")
            })?;
        let mut checkpoint = None;
        self.cache.replace_directory(&directory(checkpoint_name), progress, |staging| {
            save(vm, staging)?;
            if let Some(counters) = self.recording.counters() {
                pmu::keep(staging, counters)?;
            }
            let request = vm.started_with().1.to_owned();
            let modules = vm.modules().to_vec();
            let mid_run = MidRun { request, in_region: held.in_region, modules };
            checkpoint =
                Some(describe(staging, self.qemu, self.machine, vm, (None, Some(mid_run)))?);
            Ok(())
        })?;
        vm.command("cont", &Value::Null, MONITOR_TIMEOUT)?;
        let mib = checkpoint.map_or(0, |checkpoint| checkpoint.state_bytes()) >> 20;
        progress(&format!("checkpoint {checkpoint_name}: {mib} MiB"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;
    use crate::qemu::tests::qemu;

    fn checkpoint() -> Checkpoint {
        let mut checkpoint = Checkpoint {
            schema: SCHEMA.to_owned(),
            qemu: qemu().version_text,
            machine: machine(),
            command_line: String::new(),
            report: Some(GuestReport::default()),
            files: BTreeMap::from([(
                STATE.to_owned(),
                Content { bytes: 3, crc32: crc32fast::hash(b"abc") },
            )]),
            mid_run: None,
            fields_crc32: 0,
        };
        checkpoint.fields_crc32 = checkpoint.crc32_of_fields().unwrap();
        checkpoint
    }

    #[test]
    fn another_machine_is_refused_by_what_differs() {
        assert!(checkpoint().check("x", &qemu(), &machine()).is_ok());
        type Change = (fn(&mut Machine), &'static str);
        let changes: [Change; 11] = [
            (
                |machine| machine.kernel_sha256 = "cc".to_owned(),
                "--flavour): made with aa, this is cc",
            ),
            (|machine| machine.initramfs_sha256 = "cc".to_owned(), "initramfs ("),
            (|machine| machine.cpus = 2, "--vcpus: made with 1, this is 2"),
            (|machine| machine.cpus = 2, "irqlab sim checkpoint x --vcpus 2 --mem 512M"),
            (|machine| machine.devices.push("-device e1000".to_owned()), "device set: "),
            (
                |machine| machine.disks = vec!["nvme".parse().unwrap()],
                "--disk: made with none, this is nvme",
            ),
            (|machine| machine.nics = "e1000".parse().ok(), "--net: made with none, this is e1000"),
            (
                |machine| machine.append = vec!["threadirqs".to_owned(), "nohz=off".to_owned()],
                "--append: made with none, this is threadirqs nohz=off",
            ),
            (
                |machine| machine.append = vec!["threadirqs".to_owned()],
                "512M --identity x86-64 --append threadirqs",
            ),
            (|machine| machine.seed = 2, "seed 2"),
            (|machine| machine.pmu = true, "--pmu: made with none, this is one (--pmu)"),
        ];
        for (change, words) in changes {
            let mut changed = machine();
            change(&mut changed);
            let error = checkpoint().check("x", &qemu(), &changed).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let mut other_qemu = qemu();
        other_qemu.version_text = "QEMU 11.2".to_owned();
        let error = checkpoint().check("x", &other_qemu, &machine()).unwrap_err().to_string();
        assert!(error.contains("QEMU: made with") && error.contains("11.2"), "{error}");
    }

    #[test]
    fn damaged_and_absent_ones_are_named() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        for name in ["", ".x", "a/b", "..", "a b", &"x".repeat(65), "x.aside", "x.part"] {
            assert!(open(&cache, name).unwrap_err().to_string().contains("no name"), "{name}");
        }
        assert!(open(&cache, "one").unwrap_err().to_string().contains("there are: none"));
        let directory = scratch.path().join("checkpoint-one");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(MANIFEST), serde_json::to_string(&checkpoint()).unwrap()).unwrap();
        fs::write(directory.join(STATE), "abc").unwrap();
        assert_eq!(list(&cache), ["one"]);
        assert!(open(&cache, "one").is_ok());
        for damaged in ["ab", "abd", "bac"] {
            fs::write(directory.join(STATE), damaged).unwrap();
            let error = open(&cache, "one").unwrap_err().to_string();
            assert!(error.contains("state") && error.contains("with CRC-32"), "{error}");
        }
        fs::write(directory.join(MANIFEST), "{}").unwrap();
        assert!(open(&cache, "one").unwrap_err().to_string().contains("damaged"));
    }

    /// Reading detects a flipped bit in any byte of the description. The exceptions change no value: white
    /// space, and the name of a field that is null.
    #[test]
    fn a_description_that_is_damaged_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join(STATE), "abc").unwrap();
        let path = scratch.path().join(MANIFEST);
        let text = serde_json::to_string_pretty(&checkpoint()).unwrap();
        let mut accepted = 0;
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, damaged).unwrap();
            if let Ok(read) = Checkpoint::read(scratch.path()) {
                accepted += 1;
                assert_eq!(serde_json::to_string_pretty(&read).unwrap(), text, "byte {at}");
            }
        }
        assert!(accepted < text.len() / 20, "{accepted} of {} bytes", text.len());
    }

    #[test]
    fn a_machine_in_the_middle_of_a_command_gets_no_other_request() {
        let mut checkpoint: Checkpoint = serde_json::from_value(serde_json::json!({
            "schema": "x", "qemu": "x", "machine": machine(), "command_line": "",
            "report": null, "files": {}, "fields_crc32": 0,
        }))
        .unwrap();
        assert_eq!(checkpoint.firmware_request("a", "run:ls").unwrap(), "run:ls");
        assert!(
            checkpoint
                .firmware_request("a", RESUME)
                .unwrap_err()
                .to_string()
                .contains("waits for a command")
        );
        let modules = vec![LoadedModule { name: "nic".to_owned(), sections: [].into() }];
        let request = "none".to_owned();
        checkpoint.mid_run = Some(MidRun { request, in_region: true, modules: modules.clone() });
        assert_eq!(checkpoint.firmware_request("a", RESUME).unwrap(), "none");
        assert_eq!(checkpoint.modules(), modules);
        let error = checkpoint.firmware_request("a", "run:ls").unwrap_err().to_string();
        assert!(error.contains("without a command"), "{error}");
    }
}
