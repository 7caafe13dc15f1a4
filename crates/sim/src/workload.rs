//! Workloads: commands of a guest with a root file system, from the set-up to the check of the results.
//!
//! A workload is data (`workloads/NAME.toml`, and files in the directory of the same name). Its machine
//! boots and is set up once, at the level `fast`; the cache keeps it where the set-up has ended
//! ([`prepare`]). Each run restores it, under any model, and executes the region of interest and the check
//! ([`run`]).

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use simrecord::progress::GuestProgress;

use crate::boot::{self, EarlyEnd, EarlyReason, GuestExit, Limits, STATUS_LIMIT};
use crate::checkpoint::{self, Start};
use crate::guest::image::{self, Tools};
use crate::guest::kernel::Kernel;
use crate::machine::devices::Disk;
use crate::machine::vm::GuestText;
use crate::machine::{CPUS_MAX, Machine};
use crate::qemu::Qemu;
use crate::regular_file::read_bounded;
use crate::rootfs::{self, RootFile, RootImage, RootSpec, RootUser, SourcePackage};
use crate::text::Tail;
use crate::watch::{KeptRecord, KernelFiles, Recording, Watch};
use crate::{Accounting, Cache, Progress, Result, SimError};

/// A file in the directory of a workload: path, whether it is a program, content.
type KnownFile = (&'static str, bool, &'static [u8]);
/// The built-in workloads: name, text and files.
const KNOWN: &[(&str, &str, &[KnownFile])] = include!(concat!(env!("OUT_DIR"), "/workloads.rs"));
const TEXT_BYTES_MAX: u64 = 64 << 10;
const FILES_MAX: usize = 1000;
/// Where the files of a workload are in the guest, without the first slash.
const GUEST_DIRECTORY: &str = "workload";
/// Separates the parts of a request, as in the guest.
const SEPARATOR: char = '\u{1f}';
/// How much of the guest's last output is kept, bytes.
const OUTPUT_BYTES: usize = 64 << 10;
/// Memory of a machine for a single command, in MiB.
const COMMAND_MEMORY_MIB: u32 = 1024;

/// A workload in one of its forms: for one number of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name. For a single command: the command itself.
    pub name: String,
    /// Description in a sentence.
    pub about: String,
    /// The root file system.
    pub root: RootSpec,
    /// Whether the guest needs irqlab itself, as `/irqlab/run`.
    pub with_irqlab: bool,
    /// Whether the region marks itself, by `/irqlab/mark open` and `close`; otherwise all of `region` is
    /// the region of interest.
    pub marks_itself: bool,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Memory of the machine, in MiB.
    pub memory_mib: u32,
    /// Disks after the disk of the root file system, which is the first.
    pub disks: Vec<Disk>,
    /// Shell commands that are executed before the machine is kept; empty for none.
    pub set_up: String,
    /// Shell commands after `set_up` that end the transients of the region's work; empty for none.
    pub warm_up: String,
    /// Shell commands of the region of interest.
    pub region: String,
    /// Shell commands that succeed if the results are right; empty for none. They are not recorded.
    pub check: String,
    /// A form with less work, on the same machine; `None` if the workload has none.
    pub short: Option<ShortForm>,
}

/// A region of interest with less work than a workload's own, for a first look.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShortForm {
    /// Shell commands of the region of interest.
    pub region: String,
    /// Shell commands that succeed if the results are right.
    #[serde(default)]
    pub check: String,
}

/// The content of a workload's file. The names of the fields are the keys of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    about: String,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    omit: Vec<String>,
    #[serde(default)]
    users: Vec<RootUser>,
    #[serde(default)]
    sources: Vec<SourcePackage>,
    #[serde(default)]
    with_irqlab: bool,
    #[serde(default)]
    marks_itself: bool,
    forms: Vec<FormText>,
}

/// A form of a workload in its file: the workload for one number of CPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FormText {
    cpus: u32,
    memory_mib: u32,
    #[serde(default)]
    disks: Vec<String>,
    #[serde(default)]
    set_up: String,
    #[serde(default)]
    warm_up: String,
    region: String,
    #[serde(default)]
    check: String,
    short: Option<ShortForm>,
}

/// Returns the names of the built-in workloads.
#[must_use]
pub fn names() -> Vec<&'static str> {
    KNOWN.iter().map(|(name, ..)| *name).collect()
}

/// Returns the workload of that name in its form for `cpus` CPUs. A name that has a slash or ends in `.toml` is the
/// path of a file; the directory of the same name has the files of that workload.
///
/// Fails when no workload has that name, when it has no form for this number of CPUs, or when the file is no workload.
pub fn find(name: &str, cpus: u32) -> Result<Workload> {
    if name.contains('/') || name.ends_with(".toml") {
        let path = Path::new(name);
        let bytes = read_bounded(path, TEXT_BYTES_MAX)?;
        let text = String::from_utf8(bytes).map_err(|_| SimError::data(name, "is no text"))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        return parse(&stem, &text, files_below(&path.with_extension(""))?, cpus);
    }
    let built_in = KNOWN.iter().find(|(built_in_name, ..)| *built_in_name == name);
    let (_, text, files) = built_in.ok_or_else(|| {
        let names = names().join(", ");
        SimError::Invalid(format!(
            "no workload {name:?}; there are: {names}, and files (as in ./W.toml)"
        ))
    })?;
    let root_file = |(path, is_program, bytes): &KnownFile| RootFile {
        path: format!("{GUEST_DIRECTORY}/{path}"),
        is_program: *is_program,
        bytes: bytes.to_vec(),
    };
    parse(name, text, files.iter().map(root_file).collect(), cpus)
}

/// Returns a single command as a workload, without set-up and check.
///
/// Fails when there is no command, or no machine has this number of CPUs.
pub fn of_command(line: &str, root: RootSpec, cpus: u32) -> Result<Workload> {
    let workload = Workload {
        name: line.to_owned(),
        about: "a command".to_owned(),
        root,
        with_irqlab: false,
        marks_itself: false,
        cpus,
        memory_mib: COMMAND_MEMORY_MIB,
        disks: Vec::new(),
        set_up: String::new(),
        warm_up: String::new(),
        region: line.to_owned(),
        check: String::new(),
        short: None,
    };
    workload.check()?;
    Ok(workload)
}

/// Parses the file of a workload, and chooses the form for `cpus` CPUs.
fn parse(name: &str, text: &str, files: Vec<RootFile>, cpus: u32) -> Result<Workload> {
    let invalid = |reason: String| SimError::data(format!("workload {name}"), reason);
    let file: WorkloadFile = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let cpu_counts: Vec<String> = file.forms.iter().map(|form| form.cpus.to_string()).collect();
    let form = file.forms.into_iter().find(|form| form.cpus == cpus).ok_or_else(|| {
        invalid(format!("has no form for {cpus} CPUs; there are: {}", cpu_counts.join(", ")))
    })?;
    let disks = form.disks.iter().map(|disk| disk.parse().map_err(invalid));
    let (packages, users) = (file.packages, file.users);
    let root = RootSpec { packages, files, users, omit: file.omit, sources: file.sources };
    let workload = Workload {
        name: name.to_owned(),
        about: file.about,
        root,
        with_irqlab: file.with_irqlab,
        marks_itself: file.marks_itself,
        cpus: form.cpus,
        memory_mib: form.memory_mib,
        disks: disks.collect::<Result<_>>()?,
        set_up: form.set_up,
        warm_up: form.warm_up,
        region: form.region,
        check: form.check,
        short: form.short,
    };
    workload.check()?;
    Ok(workload)
}

/// Reads the files in a directory and below, sorted by path. Empty if there is no such directory.
fn files_below(directory: &Path) -> Result<Vec<RootFile>> {
    let mut files = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(folder) = waiting.pop().filter(|folder| folder != directory || folder.is_dir()) {
        for entry in fs::read_dir(&folder).map_err(SimError::file(&folder))?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let inside = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy();
            files.push(RootFile::of_host(&path, &format!("{GUEST_DIRECTORY}/{inside}"))?);
            if files.len() > FILES_MAX {
                let reason = format!("over {FILES_MAX} files");
                return Err(SimError::data(directory.display().to_string(), reason));
            }
        }
    }
    files.sort_by(|first, second| first.path.cmp(&second.path));
    Ok(files)
}

impl Workload {
    /// Checks the number of CPUs and the commands. A separator in a command would split the request.
    fn check(&self) -> Result<()> {
        let invalid = |reason: &str| Err(SimError::data(format!("workload {}", self.name), reason));
        if !(1..=CPUS_MAX).contains(&self.cpus) {
            return invalid(&format!("{} CPUs; allowed: 1 to {CPUS_MAX}", self.cpus));
        }
        if self.region.trim().is_empty() {
            return invalid("it has no command for its region of interest");
        }
        let short = self.short.iter().flat_map(|short| [&short.region, &short.check]);
        let mut parts =
            [&self.set_up, &self.warm_up, &self.region, &self.check].into_iter().chain(short);
        if self.short.as_ref().is_some_and(|short| short.region.trim().is_empty()) {
            return invalid("its short form has no command for the region of interest");
        }
        if parts.any(|part| part.contains(['\0', SEPARATOR])) {
            return invalid("a command has a control character");
        }
        Ok(())
    }

    /// Returns the workload with the region and the check of its short form. Its machine is the same.
    ///
    /// Fails when it has no short form.
    pub fn shortened(mut self) -> Result<Workload> {
        let Some(short) = self.short.take() else {
            return Err(SimError::data(format!("workload {}", self.name), "has no short form"));
        };
        (self.region, self.check) = (short.region, short.check);
        Ok(self)
    }

    /// Returns the shell commands that run before the machine is kept.
    fn preparation(&self) -> String {
        format!("set -e\n{}\n{}\n:", self.set_up.trim(), self.warm_up.trim())
    }

    /// Returns the request for the restored guest, in the format that `crates/guest` parses.
    fn request(&self) -> String {
        let markers = if self.marks_itself { "own" } else { "init" };
        let (region, check) = (self.region.trim(), self.check.trim());
        format!("work:{markers}{SEPARATOR}{region}{SEPARATOR}{check}")
    }

    /// Returns the machine, with its root file system as the first disk.
    ///
    /// Fails when an image cannot be made.
    fn machine(&self, cache: &Cache, kernel: &Kernel, root: &RootImage) -> Result<Machine> {
        let tools = if self.with_irqlab { Tools::Irqlab } else { Tools::None };
        let mut machine = Machine::new(kernel, &image::build(cache, kernel, tools.with_root())?);
        machine.cpus = self.cpus;
        machine.memory_mib = self.memory_mib;
        machine.root = true;
        machine.disks = vec![root.disk(cache, 0)?];
        machine.disks.extend(self.disks.iter().cloned());
        machine.check()?;
        Ok(machine)
    }
}

/// A workload's machine, kept in the cache where its set-up has ended.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub machine: Machine,
    /// Saved state that it starts from.
    pub start: Start,
    /// Request for the guest.
    pub request: String,
    /// Its root file system.
    pub root: RootImage,
    /// Whether it opens its region of interest itself.
    pub marks_itself: bool,
    /// Result of [`RootImage::other_sources`].
    pub other_sources: Option<String>,
}

impl Prepared {
    /// A command in a root file system, without a set-up and without a check of its results. The first disk of
    /// `machine` is the root file system. In the state `start`, the machine waits for a request.
    #[must_use]
    pub fn command(machine: Machine, start: Start, root: RootImage, command: &str) -> Prepared {
        let request = format!("work:init{SEPARATOR}{command}{SEPARATOR}");
        Prepared { machine, start, request, root, marks_itself: false, other_sources: None }
    }

    /// Returns the settings of a run that say which root file system and which sources the workload has.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, Json)> {
        let root = ("root_sha256".to_owned(), self.root.sha256.clone().into());
        let sources =
            self.root.sources.as_ref().map(|sources| ("sources".to_owned(), json!(sources)));
        [root].into_iter().chain(sources).collect()
    }
}

/// Makes the root file system of a workload, boots its machine and sets it up, unless the cache has the machine.
/// `adjust` completes the machine before it boots. `limits` bounds the time of the set-up.
///
/// Fails if a package does not exist, or if the set-up takes too long or fails in the guest; the error has its
/// status and last output. Fails with [`SimError::Stopped`] if `stop` returns true.
#[allow(clippy::too_many_arguments)] // everything that determines a machine
pub fn prepare(
    cache: &Cache,
    qemu: &Qemu,
    kernel: &Kernel,
    workload: &Workload,
    limits: Limits,
    adjust: impl FnOnce(&mut Machine),
    progress: Progress,
    stop: &dyn Fn() -> bool,
) -> Result<Prepared> {
    let root = rootfs::image(cache, &workload.root, false, progress)?;
    let mut machine = workload.machine(cache, kernel, &root)?;
    adjust(&mut machine);
    machine.check()?;
    let command = workload.preparation();
    let start = checkpoint::prepared(cache, qemu, &machine, &command, limits, progress, stop)?;
    let (request, marks_itself) = (workload.request(), workload.marks_itself);
    let other_sources = root.other_sources(&workload.root);
    Ok(Prepared { machine, start, request, root, marks_itself, other_sources })
}

/// Outcome of a workload.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The end of the machine. Its status is that of the region of interest if the region failed, else that of the
    /// check.
    pub exit: GuestExit,
    pub accounting: Accounting,
    /// The last lines of its console.
    pub output: String,
    /// Why the machine was ended before its check. Its record then has the region until that time.
    pub early: Option<EarlyReason>,
}

impl Outcome {
    /// Returns whether the guest reached its time limit.
    #[must_use]
    pub fn reached_limit(&self) -> bool {
        self.exit.reached_limit || self.exit.status == STATUS_LIMIT
    }

    /// Returns whether the record has a region and can be trusted. The region may have ended early.
    #[must_use]
    pub fn has_readable_region(&self) -> bool {
        !self.accounting.regions.is_empty() && self.accounting.broken.is_empty()
    }

    /// Returns why the results must not be used; `None` if the region and its check have succeeded. The first that applies:
    /// an early end, a failed step, a broken record, a record without a region.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let console_lines = || {
            let lines: Vec<String> =
                self.output.lines().map(|line| format!("  | {line}")).collect();
            format!("last lines of the console:\n{}", lines.join("\n"))
        };
        let status = self.exit.status;
        let early_end = match self.early {
            Some(EarlyReason::Stopped) => Some("the workload was stopped"),
            Some(EarlyReason::HostLimit) => {
                Some("the workload reached the host's time limit (--limit)")
            }
            Some(EarlyReason::GuestLimit) | None => None,
        };
        if early_end.is_some() || self.reached_limit() {
            let event =
                early_end.unwrap_or("the workload reached the guest's time limit (--guest-limit)");
            let position = if self.accounting.regions.is_empty() {
                "before it opened its region of interest"
            } else {
                "in its region of interest or its check"
            };
            return Some(format!("{event} {position}\n{}", console_lines()));
        }
        if status != 0 {
            let step =
                self.exit.failed.map_or_else(|| "the workload".to_owned(), |step| step.to_string());
            return Some(format!(
                "{step} failed in the guest with status {status}\n{}",
                console_lines()
            ));
        }
        if let Some(broken) = self.accounting.broken.first() {
            return Some(format!("the record is broken, its numbers must not be used: {broken}"));
        }
        if self.accounting.regions.is_empty() {
            return Some("the workload has not opened its region of interest".to_owned());
        }
        None
    }
}

/// Restores the machine of a workload, runs it to its end and reads its record. Keeps the record in `keep_at` if that
/// is given. `stop` gets the guest's progress; it and the limits can end the machine early.
///
/// Fails as [`boot::follow`] does, and when the record is damaged. Fails with [`SimError::Stopped`] if `stop` returned
/// true before the plugin had written a record. A workload that fails in the guest is an [`Outcome`], not an error.
#[allow(clippy::too_many_arguments)] // everything that determines a run
pub fn run(
    cache: &Cache,
    qemu: &Qemu,
    prepared: &Prepared,
    kernel_files: &KernelFiles,
    watch: &Watch,
    limits: Limits,
    keep_at: Option<KeptRecord<'_>>,
    console: &mut dyn FnMut(GuestText<'_>),
    stop: &dyn Fn(GuestProgress) -> bool,
) -> Result<Outcome> {
    let machine = &prepared.machine;
    let recording = Recording::new(cache, qemu, machine, kernel_files, watch, keep_at)?;
    let instrumentation = recording.instrumentation();
    let (start, request) = (&prepared.start, &prepared.request);
    let mut vm = checkpoint::start(cache, qemu, machine, start, request, limits, instrumentation)?;
    let mut tail = Tail::new(OUTPUT_BYTES);
    let mut keep_and_print = |text: GuestText<'_>| {
        tail.push(text.bytes);
        console(text);
    };
    let mut refuse = boot::refuse_to_save();
    let early_end = || EarlyEnd::EndRecord;
    let stop = || stop(recording.progress());
    let end =
        boot::follow_to_end(&mut vm, limits, &early_end, &mut keep_and_print, &stop, &mut refuse)?;
    drop(vm);
    let accounting = match (recording.accounting(), end.early) {
        // QEMU was stopped before the plugin wrote anything.
        (Err(_), Some(EarlyReason::Stopped)) => return Err(SimError::Stopped),
        (accounting, _) => accounting?,
    };
    let exit = end.exit.unwrap_or_else(|| GuestExit {
        status: STATUS_LIMIT,
        reached_limit: false,
        failed: None,
        faults: None,
        report: None,
        output: Vec::new(),
        wall: end.wall,
    });
    Ok(Outcome { exit, accounting, output: tail.lines(), early: end.early })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workloads_are_whole() {
        assert!(!names().is_empty());
        for name in names() {
            for cpus in [1, 8] {
                let workload = find(name, cpus).unwrap();
                assert!(!workload.check.is_empty(), "{name}: nothing checks its results");
                for source in &workload.root.sources {
                    assert_eq!(source.sha256.len(), 64, "{name}: {}", source.package);
                }
                assert!(workload.request().len() <= 4096 && workload.preparation().len() <= 4000);
                let short = workload.clone().shortened().unwrap();
                assert!(!short.check.is_empty() && short.request().len() <= 4096, "{name}");
                // Restored from the same machine.
                assert_eq!(short.preparation(), workload.preparation());
                assert_eq!((&short.root, &short.disks), (&workload.root, &workload.disks));
            }
            let error = find(name, 3).unwrap_err().to_string();
            assert!(error.contains("no form for 3 CPUs; there are: 1, 8"), "{error}");
        }
        let error = find("nosuch", 1).unwrap_err().to_string();
        assert!(error.contains("no workload \"nosuch\"; there are: "), "{error}");
    }

    #[test]
    fn a_workload_of_a_file_has_the_files_next_to_it() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("mine.toml");
        let text = "about = \"x\"\npackages = [\"dash\"]\n[[forms]]\ncpus = 2\nmemory_mib = 256\n\
                    disks = [\"virtio-blk,scratch=1M\"]\nregion = \"true\"\n";
        fs::write(&path, text).unwrap();
        fs::create_dir_all(scratch.path().join("mine/src")).unwrap();
        fs::write(scratch.path().join("mine/src/a.c"), "int x;").unwrap();
        let name = path.display().to_string();
        let workload = find(&name, 2).unwrap();
        assert_eq!((workload.name.as_str(), workload.disks.len()), ("mine", 1));
        assert_eq!(workload.root.files[0].path, "workload/src/a.c");
        assert_eq!(workload.request(), "work:init\u{1f}true\u{1f}");
        for (from, to, words) in [
            ("cpus = 2", "cpus = 2\nspeed = 3", "speed"),
            ("\"true\"", "\" \"", "region of interest"),
            ("scratch=1M", "scratch=1", "multiple of 512"),
        ] {
            fs::write(&path, text.replace(from, to)).unwrap();
            let error = find(&name, 2).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
