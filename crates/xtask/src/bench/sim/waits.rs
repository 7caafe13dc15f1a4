//! `cargo xtask bench sim --waits`: how long a user waits for irqlab's answers from a model, the first and the second
//! time.
//!
//! Each row is a command of irqlab. It runs twice in a cache of its own, which has what `irqlab sim setup` downloads
//! and nothing else: the first time boots machines, the second time finds them.

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

/// Model of all rows.
const ON: &str = "sim:zen3";
/// The command of `sim boot`: a shell's loop of some 400 million instructions.
const LOOP: &str = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
/// How often a command is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Time that irqlab has to end after it was asked to.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of the output that is read to tell why a command failed, bytes.
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
    /// The name in the table, and its level of detail.
    fn texts(self) -> (&'static str, &'static str) {
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

    fn command(self) -> Vec<&'static str> {
        let words = match self {
            WaitName::HandlersTimer => "handlers -d 200ms --stimulus timer",
            WaitName::HandlersDisk => "handlers -d 200ms --stimulus disk",
            WaitName::HandlersNet => "handlers -d 200ms --stimulus net",
            WaitName::Noise => "noise -d 1s",
            WaitName::Footprint => "footprint --stimulus timer",
            WaitName::Services => "services --workload progdev",
            WaitName::BootSampled => "sim boot --detail sampled",
            WaitName::BootOoo => "sim boot --detail ooo",
        };
        let mut command: Vec<&str> = words.split_whitespace().collect();
        command.extend(["--on", ON]);
        if matches!(self, WaitName::BootSampled | WaitName::BootOoo) {
            command.extend(["--", LOOP]);
        }
        command
    }
}

/// The time of a command, or why it has none.
type Waited = Result<Duration, String>;

/// A row of the table.
struct Wait {
    name: WaitName,
    first: Waited,
    second: Waited,
}

/// Measures the waits, and prints and records them.
///
/// Fails when there is no irqlab to run, or the caches cannot be made.
pub fn run(args: &SimArgs) -> anyhow::Result<std::process::ExitCode> {
    let WaitsArgs { irqlab, limit, row: chosen, .. } = &args.waits;
    let mut results = Results::start("sim-waits", &args.printing)?;
    let irqlab = match irqlab {
        Some(file) => file.clone(),
        None => next_to_this_program()?,
    };
    let irqlab = irqlab.canonicalize().with_context(|| irqlab.display().to_string())?;
    let stop = stop_on_signals()?;
    let all = WaitName::value_variants().iter().copied();
    let names: Vec<WaitName> =
        all.filter(|name| chosen.is_empty() || chosen.contains(name)).collect();
    let cache = Cache::from_environment()?;
    let mut waits = Vec::new();
    for (number, name) in (1..).zip(&names) {
        if stop.is_requested() {
            break;
        }
        let scratch = seeded(&cache)?;
        let place = Place { irqlab: &irqlab, directory: scratch.path().to_owned(), limit: *limit };
        let measure = |time: &str| {
            say(&format!("[{number}/{}] {}, {time} time", names.len(), name.command().join(" ")));
            place.measure(*name, &stop)
        };
        let first = measure("first")?;
        let second = if stop.is_requested() { Err(STOPPED.to_owned()) } else { measure("second")? };
        waits.push(Wait { name: *name, first, second });
    }
    results.setting("irqlab", irqlab.display().to_string());
    results.setting("limit_s", limit.as_secs_f64());
    results.setting("on", ON);
    let commands = names.iter().map(|name| (row_name(*name), name.command().join(" ").into()));
    results.setting("commands", Json::Object(commands.collect::<Map<_, _>>()));
    for wait in &waits {
        for (time, waited) in [("first", &wait.first), ("second", &wait.second)] {
            if let Err(reason) = waited {
                let what = format!("{}, {time} time", row_name(wait.name));
                results.absent("waits", what, reason.clone());
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
    let (experiment, level) = name.texts();
    format!("{experiment}, {level}")
}

fn table(waits: &[Wait]) -> Table {
    let ns = |waited: &Waited| {
        let time = waited.as_ref().ok()?;
        u64::try_from(time.as_nanos()).ok()
    };
    let columns = Columns::all([
        column("experiment", "What was measured; the setting `commands` has the command.")
            .text(|wait: &Wait| wait.name.texts().0.to_owned()),
        column("level", "Level of detail of the simulation.")
            .text(|wait: &Wait| wait.name.texts().1.to_owned()),
        column("first_ns", "Time of the command with a cache that has downloads only.")
            .uint(move |wait: &Wait| ns(&wait.first)),
        column("second_ns", "Time of the command when it runs again with the same cache.")
            .uint(move |wait: &Wait| ns(&wait.second)),
    ]);
    let doc = "Time from the start of irqlab to its end, on this host.";
    columns.table("waits", doc, waits)
}

/// A directory next to the cache, with a cache that has the downloads alone. It disappears when it is dropped.
///
/// Fails when it cannot be made.
fn seeded(cache: &Cache) -> anyhow::Result<TempDir> {
    let root = cache.path("");
    let root = root.canonicalize().with_context(|| root.display().to_string())?;
    let parent = root.parent().context("the cache has no parent directory")?;
    let scratch = tempfile::Builder::new().prefix("irqlab-waits-").tempdir_in(parent);
    let scratch = scratch.with_context(|| parent.display().to_string())?;
    let copy = scratch.path().join("cache");
    fs::create_dir(&copy).with_context(|| copy.display().to_string())?;
    for entry in cache.entries() {
        if is_download(&entry.name, entry.kind) {
            let (from, to) = (root.join(&entry.name), copy.join(&entry.name));
            link(&from, &to).with_context(|| format!("copying {}", from.display()))?;
        }
    }
    Ok(scratch)
}

/// Whether an entry of the cache is downloaded, or made of downloads alone.
fn is_download(name: &str, kind: EntryKind) -> bool {
    let is_kept = kind == EntryKind::Kept && !name.starts_with("checkpoint-") && name != "limit";
    is_kept || name.starts_with("rootfs-")
}

/// Copies a file or a directory on the same file system, with files as links to the same data. irqlab replaces files of
/// its cache, and never writes into them.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    if !kind.is_dir() {
        return fs::hard_link(from, to);
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        link(&entry.path(), &to.join(entry.file_name()))?;
    }
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

/// Where a row's commands run.
struct Place<'a> {
    irqlab: &'a Path,
    directory: PathBuf,
    limit: Duration,
}

impl Place<'_> {
    /// Runs a command of irqlab to its end, or to the limit.
    ///
    /// Fails when irqlab cannot be started or waited for.
    fn measure(&self, name: WaitName, stop: &Stop) -> anyhow::Result<Waited> {
        let messages = tempfile::tempfile_in(&self.directory).context("the messages of irqlab")?;
        let stderr = messages.try_clone().context("the messages of irqlab")?;
        let mut command = Command::new(self.irqlab);
        command.arg("-q").args(name.command()).current_dir(&self.directory);
        command.env("IRQLAB_CACHE", self.directory.join("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| self.irqlab.display().to_string())?;
        let is_over = || stop.is_requested() || started.elapsed() >= self.limit;
        let ended = wait(&mut child, &is_over).context("waiting for irqlab")?;
        Ok(match ended {
            Some(status) if status.success() => Ok(started.elapsed()),
            Some(status) => Err(format!("irqlab ended with {status}: {}", last_line(messages))),
            None if stop.is_requested() => Err(STOPPED.to_owned()),
            None => Err(format!("stopped after {} s (--limit)", self.limit.as_secs_f64())),
        })
    }
}

/// Waits for a process. Ends it when `is_over` returns true, and returns `None` then.
fn wait(child: &mut Child, is_over: &dyn Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    while !is_over() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL);
    }
    // irqlab ends its machines. It may end at this moment.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let asked = Instant::now();
    while child.try_wait()?.is_none() {
        if asked.elapsed() >= END_TIMEOUT {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(POLL);
    }
    Ok(None)
}

/// The last line that is not empty, or a text that says that there is none.
fn last_line(mut file: File) -> String {
    let mut text = Vec::new();
    // What cannot be read is no reason to end the bench.
    let _ = file.rewind().and_then(|()| file.take(STDERR_BYTES_MAX).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("it gives no reason").trim().to_owned()
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

    fn measured(script: &str, limit: Duration) -> Waited {
        let directory = tempfile::tempdir().unwrap();
        let irqlab = &program(directory.path(), script);
        let place = Place { irqlab, directory: directory.path().to_owned(), limit };
        place.measure(WaitName::BootOoo, &Stop::new().unwrap()).unwrap()
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
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::at(&place.path().join("cache")).unwrap();
        fs::create_dir_all(cache.path("kernel-1/lib")).unwrap();
        fs::write(cache.path("kernel-1/lib/module"), "x").unwrap();
        std::os::unix::fs::symlink("lib/module", cache.path("kernel-1/link")).unwrap();
        fs::create_dir(cache.path("ready-1")).unwrap();
        let scratch = seeded(&cache).unwrap();
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
