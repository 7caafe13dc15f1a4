//! [`FaultPlace`]: a place in which verbs run under faults. It is a directory with files of somebody else, and with
//! separate temporary files, cache and journals. [`FaultPlace::wrong_end`] checks the end of a run, and
//! [`FaultPlace::wrong_state`] checks the place after the next start.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::tracer::{self, FaultyCall, Traced};
use crate::support::{IRQLAB, Net, lives, names};

/// The file in which the standard library panics if it cannot read from its own pair of sockets whether a program was
/// started. Linux gives no error there, so a fault there shows nothing about irqlab.
const STD_SPAWN: &str = "library/std/src/sys/process/unix/unix.rs";

/// How long a verb may take under a fault. Most take less than a second.
const LIMIT: Duration = Duration::from_secs(60);
/// Exit codes that docs/command.md has; 137 stands for the kill.
const CODES: [i32; 8] = [0, 1, 2, 3, 4, 5, 124, 137];
/// Files of somebody else in the working directory, with their contents. No run may change them.
const OTHERS: [(&str, &str); 2] = [("others/file", "of somebody else"), ("others/.hidden", "too")];
/// The directory of runs without --out.
const RUNS: &str = "irqlab-runs";
/// Settings of the card that verbs change.
const SETTINGS: [&str; 5] = [
    "v0/gro_flush_timeout",
    "v0/napi_defer_hard_irqs",
    "v0/queues/rx-0/rps_cpus",
    "tap0/gro_flush_timeout",
    "tap0/napi_defer_hard_irqs",
];

/// Instances of the kernel's trace, shared by all processes of the machine.
const TRACE_INSTANCES: &str = "/sys/kernel/tracing/instances";

/// The instances of irqlab processes that have ended.
fn dead_trace_instances() -> Vec<String> {
    let path = Path::new(TRACE_INSTANCES);
    let mut instances = if path.is_dir() { names(path) } else { Vec::new() };
    instances.retain(|name| {
        let pid = name.strip_prefix("irqlab-").and_then(|suffix| suffix.split('-').next());
        pid.and_then(|pid| pid.parse().ok()).is_some_and(|pid: u32| !lives(pid))
    });
    instances
}

/// How a run ended.
pub struct Ended {
    /// The exit code, or 128 plus the number of the signal that ended the run.
    pub code: i32,
    /// The run's stderr.
    pub err: String,
    /// Whether the run ended within [`LIMIT`]. If not, it was killed.
    pub is_in_time: bool,
}

/// A place in which verbs run under faults.
pub struct FaultPlace {
    root: tempfile::TempDir,
    /// The network namespaces of verbs that use a card. `None` in a place without a card.
    net: Option<Net>,
    /// The values of [`SETTINGS`] before the first run. Empty without a card.
    settings: BTreeMap<&'static str, String>,
}

impl FaultPlace {
    /// Creates the place. `net`: network namespaces with the cards `v0` and `tap0`, for verbs that use a card.
    pub fn new(net: Option<Net>) -> FaultPlace {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["work", "tmp", "cache", "run", "home"] {
            fs::create_dir(root.path().join(name)).expect("a new directory");
        }
        let mut place = FaultPlace { root, net, settings: BTreeMap::new() };
        fs::create_dir(place.work("others")).expect("a new directory");
        for (name, text) in OTHERS {
            fs::write(place.work(name), text).expect("a new file");
        }
        place.settings = place.settings();
        place
    }

    /// A place whose cache has what a simulated machine of the default kernel needs.
    pub fn with_simulator() -> FaultPlace {
        let place = FaultPlace::new(None);
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/irqlab"));
        let cache = std::env::var_os("IRQLAB_CACHE").map(PathBuf::from).or(home);
        let cache = cache.expect("a simulated machine has a cache");
        let is_needed = |name: &String| {
            let starts = [
                "facts-",
                "guest-tools-",
                "kernel-cloud",
                "kernel-files-",
                "packages-",
                "qemu-root-",
            ];
            let is_kernel = name.starts_with("kernel-linux-image-") && name.contains("-cloud-");
            !name.ends_with(".lock")
                && (is_kernel || starts.iter().any(|start| name.starts_with(start)))
        };
        let mut copy = Command::new("cp");
        copy.args(["-a", "--reflink=auto", "-t"]).arg(place.root.path().join("cache"));
        copy.args(names(&cache).iter().filter(|name| is_needed(name)).map(|name| cache.join(name)));
        assert!(copy.status().expect("cp(1)").success());
        place
    }

    /// A path in the working directory. With a card, this is the working directory of the network namespaces.
    pub fn work(&self, name: &str) -> PathBuf {
        match &self.net {
            Some(net) => net.place().path().join(name),
            None => self.root.path().join("work").join(name),
        }
    }

    /// The network namespaces with the cards. `None` in a place without a card.
    pub fn net(&self) -> Option<&Net> {
        self.net.as_ref()
    }

    /// A command that runs `program` with the arguments `words` in the place.
    pub fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = match &self.net {
            Some(net) => net.near(program, words),
            None => {
                // Root's journals are always in /run/irqlab: in a mount namespace, that is the place's own.
                let script = "mkdir -p /run/irqlab && mount --bind \"$1\" /run/irqlab && shift && \
                              exec \"$@\"";
                let mut command = Command::new("unshare");
                command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
                command.arg(self.root.path().join("run")).arg(program).args(words);
                command
            }
        };
        command.current_dir(self.work("")).env("COLUMNS", "120");
        for (name, value) in [("TMPDIR", "tmp"), ("IRQLAB_CACHE", "cache"), ("HOME", "home")] {
            command.env(name, self.root.path().join(value));
        }
        command.env_remove("LD_LIBRARY_PATH").env_remove("XDG_CACHE_HOME");
        command.env_remove("XDG_CONFIG_HOME").env("RUST_BACKTRACE", "0");
        command
    }

    /// A program in the place whose stderr goes to a file.
    fn quiet_command(&self, program: &str, words: &[&str], err: &Path) -> Command {
        let file = fs::File::create(err).expect("a file for stderr");
        let mut command = self.command(program, words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        command
    }

    /// Starts a program in a process group of its own; stderr goes to a file.
    pub fn start(&self, program: &str, words: &[&str], err: &Path) -> Child {
        let mut command = self.quiet_command(program, words, err);
        command.process_group(0).spawn().expect("the program starts")
    }

    /// Waits for the end of a program that [`FaultPlace::start`] has started. Kills it with its process group after
    /// [`LIMIT`].
    pub fn end(&self, mut child: Child, err: &Path) -> Ended {
        let start = Instant::now();
        let mut is_in_time = true;
        let status = loop {
            if let Some(status) = child.try_wait().expect("our child") {
                break status;
            }
            if start.elapsed() > LIMIT && is_in_time {
                is_in_time = false;
                let group = rustix::process::Pid::from_child(&child);
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        let code = status.code().unwrap_or(128 + signal.unwrap_or(0));
        Ended { code, err: fs::read_to_string(err).unwrap_or_default(), is_in_time }
    }

    pub fn err_file(&self, number: usize) -> PathBuf {
        self.root.path().join(format!("stderr-{number}"))
    }

    pub fn run(&self, program: &str, words: &[&str]) -> Ended {
        let err = self.err_file(0);
        let child = self.start(program, words, &err);
        self.end(child, &err)
    }

    /// Runs irqlab under the tracer.
    pub fn traced(&self, words: &[&str], faulty: Option<FaultyCall>) -> (Ended, Traced) {
        let file = self.err_file(0);
        let traced = tracer::run(self.quiet_command(IRQLAB, words, &file), faulty, LIMIT);
        let err = fs::read_to_string(file).unwrap_or_default();
        (Ended { code: traced.code, err, is_in_time: traced.is_in_time }, traced)
    }

    fn settings(&self) -> BTreeMap<&'static str, String> {
        let Some(net) = &self.net else { return BTreeMap::new() };
        SETTINGS.map(|name| (name, net.read(&format!("/sys/class/net/{name}")))).into()
    }

    /// Starts a verb again. With a card, also undoes the kept changes as a user does. Returns the failures; `None` without
    /// any.
    pub fn next_start(&self) -> Option<String> {
        let undo = ["signal", "undo"];
        let commands = [&["machines"][..], &undo];
        let commands = if self.net.is_some() { &commands[..] } else { &commands[..1] };
        let ends = commands.iter().map(|command| (command, self.run(IRQLAB, command)));
        let failed = ends.filter(|(_, ended)| ended.code != 0);
        let text =
            |(command, ended): (&&[&str], Ended)| format!("{}: {}", command.join(" "), ended.err);
        let failed: Vec<_> = failed.map(text).collect();
        (!failed.is_empty()).then(|| failed.join("; "))
    }

    /// What is wrong with a run's end: too late, a panic, or an exit code that is not documented. `None` if it is
    /// right.
    pub fn wrong_end(ended: &Ended) -> Option<String> {
        let line = |text: &str| ended.err.lines().find(|line| line.contains(text));
        if !ended.is_in_time {
            return Some("does not end".to_owned());
        }
        if line("panicked at").is_some_and(|line| line.contains(STD_SPAWN)) {
            return None;
        }
        if let Some(line) = line("panicked at").or_else(|| line("memory allocation of")) {
            return Some(line.to_owned());
        }
        let is_documented = CODES.contains(&ended.code);
        (!is_documented).then(|| format!("exit code {}: {}", ended.code, ended.err.trim()))
    }

    /// What is wrong with the place after [`FaultPlace::next_start`]: a changed file or setting, or a file that is
    /// left. `None` if it is right. `outputs`: names in the working directory that the run may have created.
    pub fn wrong_state(&self, outputs: &[&str]) -> Option<String> {
        for (name, text) in OTHERS {
            if fs::read_to_string(self.work(name)).ok().as_deref() != Some(text) {
                return Some(format!("a file of somebody else is changed: {name}"));
            }
        }
        let known = |name: &String| {
            ["others", RUNS].contains(&name.as_str()) || outputs.contains(&name.as_str())
        };
        let mut leftovers: Vec<String> =
            names(&self.work("")).into_iter().filter(|name| !known(name)).collect();
        let runs = self.work(RUNS);
        if runs.is_dir() {
            leftovers.extend(names(&runs).into_iter().filter(|name| name.starts_with('.')));
        }
        leftovers.extend(names(&self.root.path().join("tmp")));
        let journals = match &self.net {
            Some(net) => net.names("/run/irqlab"),
            None => names(&self.root.path().join("run")),
        };
        let is_journal = |name: &String| name.ends_with(".json") || name.ends_with(".aside");
        leftovers.extend(journals.into_iter().filter(is_journal));
        leftovers.extend(dead_trace_instances());
        if !leftovers.is_empty() {
            return Some(format!("left after the next start: {}", leftovers.join(", ")));
        }
        let now = self.settings();
        let changed = self.settings.iter().find(|(name, value)| now.get(*name) != Some(value));
        changed.map(|(name, before)| format!("{name} was {before}, and is {:?}", now.get(name)))
    }

    /// Removes an output of the run before.
    pub fn remove(&self, name: &str) {
        let path = self.work(name);
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}
