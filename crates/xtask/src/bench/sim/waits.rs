//! `cargo xtask bench sim --waits`: measures how long a user waits for results of irqlab from a model, the first and
//! the second time.
//!
//! Each row of the table is a command of irqlab, which runs twice with a cache of its own. At first the cache has
//! only what `irqlab sim setup` downloads, so the command boots machines. The second time it finds them in the cache.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ::sim::{Cache, EntryKind};
use anyhow::{Context, ensure};
use clap::ValueEnum;
use live::window::Stop;
use record::{Columns, Table, column};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value as Json};
use tempfile::TempDir;

use super::args::{SimArgs, WaitsArgs};
use crate::bench::{say, stop_on_signals};
use crate::results::Results;

/// The machine of all commands, as `--on` takes it.
const ON_MODEL: &str = "sim:zen3";
/// The guest's program in `sim boot`: a loop of the shell of about 400 million instructions.
const LOOP: &str = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
/// How long to sleep between checks whether a command has ended.
const POLL: Duration = Duration::from_millis(20);
/// How long irqlab may take to end after SIGTERM. Then it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How many bytes of a failed command's stderr are read to find the reason.
const STDERR_BYTES_MAX: u64 = 1 << 20;

/// A command whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitName {
    HandlersTimer,
    HandlersDisk,
    HandlersNet,
    Noise,
    Footprint,
    Services,
    BootSampled,
    BootOoo,
}

impl WaitName {
    /// The experiment and the level of detail, as in the table.
    fn experiment_and_level(self) -> (&'static str, &'static str) {
        match self {
            WaitName::HandlersTimer => ("handlers timer", "ooo"),
            WaitName::HandlersDisk => ("handlers disk", "ooo"),
            WaitName::HandlersNet => ("handlers net", "ooo"),
            WaitName::Noise => ("noise", "ooo"),
            WaitName::Footprint => ("footprint timer", "ooo"),
            WaitName::Services => ("services progdev", "ooo"),
            WaitName::BootSampled => ("sim boot", "sampled"),
            WaitName::BootOoo => ("sim boot", "ooo"),
        }
    }

    /// The command's arguments for irqlab.
    fn command(self) -> Vec<&'static str> {
        let arguments = match self {
            WaitName::HandlersTimer => "handlers -d 200ms --stimulus timer",
            WaitName::HandlersDisk => "handlers -d 200ms --stimulus disk",
            WaitName::HandlersNet => "handlers -d 200ms --stimulus net",
            WaitName::Noise => "noise -d 1s",
            WaitName::Footprint => "footprint --stimulus timer",
            WaitName::Services => "services --workload progdev",
            WaitName::BootSampled => "sim boot --detail sampled",
            WaitName::BootOoo => "sim boot --detail ooo",
        };
        let mut command: Vec<&str> = arguments.split_whitespace().collect();
        command.extend(["--on", ON_MODEL]);
        if matches!(self, WaitName::BootSampled | WaitName::BootOoo) {
            command.extend(["--", LOOP]);
        }
        command
    }
}

/// The time of a command, or why it has no time.
type Outcome = Result<Duration, String>;

/// A row of the table: two times of one command.
struct Wait {
    name: WaitName,
    first: Outcome,
    second: Outcome,
}

/// Measures the commands, and prints and records their times.
///
/// Fails if there is no irqlab to run, or if the caches cannot be made.
pub fn run(args: &SimArgs) -> anyhow::Result<std::process::ExitCode> {
    let WaitsArgs { irqlab, limit, row: chosen, .. } = &args.waits;
    let mut results = Results::start("sim-waits", &args.printing)?;
    let irqlab = match irqlab {
        Some(file) => file.clone(),
        None => next_to_this_program()?,
    };
    let irqlab = irqlab.canonicalize().with_context(|| irqlab.display().to_string())?;
    let stop = stop_on_signals()?;
    let every_name = WaitName::value_variants().iter().copied();
    let names: Vec<WaitName> =
        every_name.filter(|name| chosen.is_empty() || chosen.contains(name)).collect();
    let cache = Cache::from_environment()?;
    let mut waits = Vec::new();
    for (number, name) in (1..).zip(&names) {
        if stop.is_requested() {
            break;
        }
        let scratch = directory_with_downloads(&cache)?;
        let runner =
            Runner { irqlab: &irqlab, directory: scratch.path().to_owned(), limit: *limit };
        let measure = |time: &str| {
            say(&format!("[{number}/{}] {}, {time} time", names.len(), name.command().join(" ")));
            runner.measure(*name, &stop)
        };
        let first = measure("first")?;
        let second = if stop.is_requested() { Err(STOPPED.to_owned()) } else { measure("second")? };
        waits.push(Wait { name: *name, first, second });
    }
    results.setting("irqlab", irqlab.display().to_string());
    results.setting("limit_s", limit.as_secs_f64());
    results.setting("on", ON_MODEL);
    let commands = names.iter().map(|name| (row_name(*name), name.command().join(" ").into()));
    results.setting("commands", Json::Object(commands.collect::<Map<_, _>>()));
    for wait in &waits {
        for (time, outcome) in [("first", &wait.first), ("second", &wait.second)] {
            if let Err(reason) = outcome {
                let time_name = format!("{}, {time} time", row_name(wait.name));
                results.record_absence("waits", time_name, reason.clone());
            }
        }
    }
    results.table(table(&waits));
    if stop.is_requested() {
        results.interrupted();
    }
    results.finish(&args.printing)
}

const STOPPED: &str = "the bench was stopped";

/// The irqlab that cargo has built next to this program.
fn next_to_this_program() -> anyhow::Result<PathBuf> {
    let file = std::env::current_exe().context("this program")?.with_file_name("irqlab");
    ensure!(
        file.is_file(),
        "{} is missing (cargo build --release -p irqlab makes it; --irqlab FILE names another)",
        file.display()
    );
    Ok(file)
}

/// Name of a row in settings and absences.
fn row_name(name: WaitName) -> String {
    let (experiment, level) = name.experiment_and_level();
    format!("{experiment}, {level}")
}

/// Table `waits`, with a row for each command.
fn table(waits: &[Wait]) -> Table {
    let ns = |outcome: &Outcome| {
        let time = outcome.as_ref().ok()?;
        u64::try_from(time.as_nanos()).ok()
    };
    let columns = Columns::all([
        column("experiment", "What was measured; the setting `commands` has the command.")
            .text(|wait: &Wait| wait.name.experiment_and_level().0.to_owned()),
        column("level", "Level of detail of the simulation.")
            .text(|wait: &Wait| wait.name.experiment_and_level().1.to_owned()),
        column("first_ns", "Time of the command with a cache that has downloads only.")
            .uint(move |wait: &Wait| ns(&wait.first)),
        column("second_ns", "Time of the command when it runs again with the same cache.")
            .uint(move |wait: &Wait| ns(&wait.second)),
    ]);
    let doc = "Time from the start of irqlab to its end, on this host.";
    columns.table("waits", doc, waits)
}

/// Makes a directory next to the user's cache. Its subdirectory `cache` has only the downloads of the user's cache. The
/// directory is removed on drop.
fn directory_with_downloads(cache: &Cache) -> anyhow::Result<TempDir> {
    let root = cache.path("");
    let root = root.canonicalize().with_context(|| root.display().to_string())?;
    let parent = root.parent().context("the cache has no parent directory")?;
    let scratch = tempfile::Builder::new().prefix("irqlab-waits-").tempdir_in(parent);
    let scratch = scratch.with_context(|| parent.display().to_string())?;
    let copy = scratch.path().join("cache");
    fs::create_dir(&copy).with_context(|| copy.display().to_string())?;
    for entry in cache.entries() {
        if is_download(&entry.name, entry.kind) {
            let (source, destination) = (root.join(&entry.name), copy.join(&entry.name));
            link(&source, &destination).with_context(|| format!("copying {}", source.display()))?;
        }
    }
    Ok(scratch)
}

/// Whether an entry of the cache was downloaded, or was made from downloads alone.
fn is_download(name: &str, kind: EntryKind) -> bool {
    let is_kept = kind == EntryKind::Kept && !name.starts_with("checkpoint-") && name != "limit";
    is_kept || name.starts_with("rootfs-")
}

/// Copies a file or a directory within a file system. Files become hard links to the same data. This is safe because
/// irqlab replaces files of its cache, and never writes into them.
fn link(source: &Path, destination: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(source)?.file_type();
    if kind.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(source)?, destination);
    }
    if !kind.is_dir() {
        return fs::hard_link(source, destination);
    }
    fs::create_dir(destination)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        link(&entry.path(), &destination.join(entry.file_name()))?;
    }
    fs::set_permissions(destination, fs::metadata(source)?.permissions())
}

/// Runs the commands of a row, with their own cache.
struct Runner<'a> {
    irqlab: &'a Path,
    /// The working directory, which also has the cache.
    directory: PathBuf,
    limit: Duration,
}

impl Runner<'_> {
    /// Runs a command of irqlab to its end, or stops it at the time limit.
    ///
    /// Fails if irqlab cannot be started or waited for.
    fn measure(&self, name: WaitName, stop: &Stop) -> anyhow::Result<Outcome> {
        let messages = tempfile::tempfile_in(&self.directory).context("the messages of irqlab")?;
        let stderr = messages.try_clone().context("the messages of irqlab")?;
        let mut command = Command::new(self.irqlab);
        command.arg("-q").args(name.command()).current_dir(&self.directory);
        command.env("IRQLAB_CACHE", self.directory.join("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| self.irqlab.display().to_string())?;
        let is_over = || stop.is_requested() || started.elapsed() >= self.limit;
        let status = wait(&mut child, &is_over).context("waiting for irqlab")?;
        Ok(match status {
            Some(status) if status.success() => Ok(started.elapsed()),
            Some(status) => Err(format!("irqlab ended with {status}: {}", last_line(messages))),
            None if stop.is_requested() => Err(STOPPED.to_owned()),
            None => Err(format!("stopped after {} s (--limit)", self.limit.as_secs_f64())),
        })
    }
}

/// Waits until a process has ended, and returns its status. If `is_over` returns true before, ends the process and
/// returns `None`.
fn wait(child: &mut Child, is_over: &dyn Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    while !is_over() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL);
    }
    // On SIGTERM, irqlab also ends its machines. The signal fails if irqlab has just ended.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let signalled = Instant::now();
    while child.try_wait()?.is_none() {
        if signalled.elapsed() >= END_TIMEOUT {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(POLL);
    }
    Ok(None)
}

/// The last line of the file that is not empty, or a text that stands for a missing line.
fn last_line(mut file: File) -> String {
    let mut text = Vec::new();
    // A message that cannot be read must not end the bench.
    let _ = file.rewind().and_then(|()| file.take(STDERR_BYTES_MAX).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("no message on stderr").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use record::Value;

    use super::*;

    /// A program in place of irqlab.
    fn program(directory: &Path, script: &str) -> PathBuf {
        let file = directory.join("irqlab");
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    fn measured(script: &str, limit: Duration) -> Outcome {
        let directory = tempfile::tempdir().unwrap();
        let irqlab = &program(directory.path(), script);
        let runner = Runner { irqlab, directory: directory.path().to_owned(), limit };
        runner.measure(WaitName::BootOoo, &Stop::new().unwrap()).unwrap()
    }

    #[test]
    fn a_command_has_a_time_or_the_reason_why_not() {
        let minute = Duration::from_secs(60);
        let arguments = "[ \"$1 $2 $3 $8\" = '-q sim boot --' ] && [ -n \"$IRQLAB_CACHE\" ]";
        assert!(measured(arguments, minute).is_ok());
        let error = measured("echo first >&2; echo why >&2; exit 4", minute).unwrap_err();
        assert!(error.contains("status: 4: why"), "{error}");
        let error = measured("exec sleep 600", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error, "stopped after 0.05 s (--limit)");
    }

    #[test]
    fn a_cache_of_a_row_has_downloads_only() {
        for name in ["kernel-cloud.latest", "qemu-root-1", "packages-1"] {
            assert!(is_download(name, EntryKind::Kept), "{name}");
        }
        assert!(is_download("rootfs-1", EntryKind::Derived));
        assert!(!is_download("checkpoint-mine", EntryKind::Kept));
        assert!(!is_download("ready-1", EntryKind::Derived));
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(&directory.path().join("cache")).unwrap();
        fs::create_dir_all(cache.path("kernel-1/lib")).unwrap();
        fs::write(cache.path("kernel-1/lib/module"), "x").unwrap();
        std::os::unix::fs::symlink("lib/module", cache.path("kernel-1/link")).unwrap();
        fs::create_dir(cache.path("ready-1")).unwrap();
        let scratch = directory_with_downloads(&cache).unwrap();
        let copy = scratch.path().join("cache");
        assert_eq!(fs::read(copy.join("kernel-1/link")).unwrap(), b"x");
        assert!(!copy.join("ready-1").exists());
        drop(scratch);
        assert!(!copy.exists());
    }

    #[test]
    fn a_row_has_both_times() {
        let second = Err("stopped".to_owned());
        let first = Ok(Duration::from_millis(1500));
        let table = table(&[Wait { name: WaitName::BootSampled, first, second }]);
        let row = &table.rows()[0];
        let number = |column| table.get(row, column).and_then(Value::number);
        assert_eq!((number("first_ns"), number("second_ns")), (Some(1.5e9), None));
    }
}
