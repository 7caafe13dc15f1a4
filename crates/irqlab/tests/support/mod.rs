//! The command as a user runs it, in a directory of its own.

// Each of the two test programs uses a part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

pub const IRQLAB: &str = env!("CARGO_BIN_EXE_irqlab");

static ALONE: Mutex<()> = Mutex::new(());

/// Measurements of one test program do not disturb one another.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a run of the command left.
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub fn of(command: &mut Command) -> CommandOutput {
        CommandOutput::of_output(&command.stdin(Stdio::null()).output().expect("the command runs"))
    }

    pub fn of_output(output: &Output) -> CommandOutput {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        CommandOutput {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    #[track_caller]
    pub fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn assert_says(&self, words: &str) -> &Self {
        assert!(self.err.contains(words), "{words:?} is not in stderr: {}", self.err);
        self
    }

    /// The one JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// A working directory on a disk, and the command in it.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `irqlab` with these words.
    pub fn irqlab(&self, words: &[&str]) -> Command {
        let mut command = Command::new(IRQLAB);
        command.args(words).current_dir(self.path()).env("COLUMNS", "120").env_remove("NO_COLOR");
        command
    }

    pub fn run(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(&mut self.irqlab(words))
    }

    /// Names in the directory, hidden ones too.
    pub fn names(&self) -> Vec<String> {
        names(self.path())
    }
}

/// These words are refused with `says`, before anything is done.
#[track_caller]
pub fn check_refused(words: &[&str], says: &str) {
    let place = Place::new();
    let ended = place.run(words);
    ended.assert_code(2).assert_says(says);
    assert_eq!(ended.out, "");
    assert!(place.names().is_empty(), "{words:?} left {:?}", place.names());
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("entry"));
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether handlers can be measured here; else says why not.
pub fn can_measure() -> bool {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let reason = REASON.get_or_init(|| {
        let place = Place::new();
        let ended = place.run(&["handlers", "-q", "-d", "50ms", "--events", "none", "--json"]);
        (ended.code == Some(4)).then_some(ended.err)
    });
    if let Some(reason) = reason {
        needs::not_run(needs::Need::Bpf, reason);
    }
    reason.is_none()
}

/// As [`can_measure`], and as root, which these tests need to take rights away.
pub fn can_measure_as_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        needs::not_run(needs::Need::Root, "this is another user");
    }
    is_root && can_measure()
}

/// Rows of a table of a JSON document.
pub fn rows<'a>(run: &'a Json, table: &str) -> &'a [Json] {
    run["tables"][table].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The reason why `what` is absent.
pub fn absence<'a>(run: &'a Json, what: &str) -> Option<&'a str> {
    let absent = run["absent"].as_array()?;
    absent.iter().find(|one| one["what"] == what)?["reason"].as_str()
}

/// What had the loop's CPU in the interval in which the loop was stalled, each with its name and kind. All
/// intervals of the repetition are within its window.
pub fn loop_stalled_by(run: &Json, stimulus: &str) -> Vec<(String, String)> {
    let is_of = |one: &&Json| one["level"] == "l1d" && one["stimulus"] == stimulus;
    let trace: Vec<&Json> = rows(run, "trace").iter().filter(is_of).collect();
    let ends = |one: &Json| {
        let from = one["start_ns"].as_u64().unwrap();
        (from, from + one["length_ns"].as_u64().unwrap())
    };
    let named = |name: &str| ends(trace.iter().find(|one| one["name"] == name).unwrap());
    let (window, stopped) = (named("repetition"), named("stalled"));
    let within = |one: (u64, u64), other: (u64, u64)| one.0 >= other.0 && one.1 <= other.1;
    assert!(within(stopped, window), "{run}");
    assert!(trace.iter().all(|one| within(ends(one), window)), "{run}");
    // The loop's CPU is the first.
    let cpu = &trace.iter().find(|one| !one["cpu"].is_null()).unwrap()["cpu"];
    let inside = trace.iter().filter(|one| one["cpu"] == *cpu && within(ends(one), stopped));
    let word = |one: &Json, key: &str| one[key].as_str().unwrap().to_owned();
    inside.map(|one| (word(one, "name"), word(one, "kind"))).collect()
}

/// Waits for something that must come soon.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes that `parent` started.
pub fn children(parent: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether the process runs: a zombie does not.
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Starts the command and waits until its sources run.
pub fn start_with_sources(command: &mut Command) -> (Child, Vec<u32>) {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    wait_until("the sources run", || !children(child.id()).is_empty());
    let sources = children(child.id());
    (child, sources)
}

/// Sends a signal to a process that this test started.
pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("the process is ours");
}

/// The only run directory in `irqlab-runs`.
#[track_caller]
pub fn only_run(place: &Place) -> PathBuf {
    let runs = place.path().join("irqlab-runs");
    let names = names(&runs);
    assert_eq!(names.len(), 1, "{names:?}");
    runs.join(&names[0])
}

/// Whether there is a simulator; else says why not.
pub fn can_simulate(place: &Place) -> bool {
    // What it asks the guest is kept, so this boots but once.
    let ended = place.run(&["sim", "facts"]);
    if ended.code != Some(0) {
        needs::not_run(needs::Need::Qemu, &ended.err);
    }
    ended.code == Some(0)
}

/// Network and mounts of a test's own: two namespaces `near` and `far` that the veth pair `v0`, `v1` joins, with
/// 192.0.2.1 and 192.0.2.2, and in `near` the tap device `tap0`, whose driver coalesces by `rx-frames` up to 64.
/// Each has a `/run` of its own, and so journals of its own. They vanish with this.
pub struct Net {
    place: Place,
    near: Child,
    far: Child,
}

impl Net {
    /// `None`, with the reason printed, where this user cannot have one.
    pub fn prepared() -> Option<Net> {
        let place = Place::new();
        let hold = |script: &str| {
            let mounts =
                "mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /run && ip link set lo up";
            let script = format!("{mounts} && {script} && echo ready && exec sleep 1000000");
            let words = ["--net", "--mount", "--propagation", "private", "sh", "-c", &script];
            let mut command = Command::new("unshare");
            let command = command.args(words).current_dir(place.path());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
            let mut line = String::new();
            let mut out = std::io::BufReader::new(child.stdout.take()?);
            let _ = std::io::BufRead::read_line(&mut out, &mut line);
            if line != "ready\n" {
                let ended = child.wait_with_output().ok()?;
                needs::not_run(needs::Need::Namespaces, String::from_utf8_lossy(&ended.stderr));
                return None;
            }
            Some(child)
        };
        let Some(far) = hold("true") else {
            needs::not_run(needs::Need::Namespaces, "there is no unshare(1)");
            return None;
        };
        let script = format!(
            "ip tuntap add dev tap0 mode tap && ip link set tap0 up && \
             ip link add v0 type veth peer name v1 netns {} && \
             ip address add 192.0.2.1/30 dev v0 && ip link set v0 up && \
             nsenter -t {0} --net sh -c 'ip address add 192.0.2.2/30 dev v1 && ip link set v1 up'",
            far.id()
        );
        let near = hold(&script);
        let mut far = far;
        match near {
            Some(near) => Some(Net { place, near, far }),
            None => {
                let _ = far.kill().and_then(|()| far.wait());
                None
            }
        }
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    fn within(&self, holder: &Child, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &holder.id().to_string(), "--net", "--mount", "--wd"]);
        command.arg(program).args(words).env("COLUMNS", "120");
        command
    }

    /// A program in the near namespace.
    pub fn near(&self, program: &str, words: &[&str]) -> Command {
        self.within(&self.near, program, words)
    }

    /// A program in the far namespace.
    pub fn far(&self, program: &str, words: &[&str]) -> Command {
        self.within(&self.far, program, words)
    }

    /// A program that has the near namespace's mounts, and the network of the machine.
    pub fn near_mounts(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.near.id().to_string(), "--mount", "--wd", program]).args(words);
        command
    }

    /// `irqlab` in the near namespace.
    pub fn run(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(&mut self.near(IRQLAB, words))
    }

    /// What a file of the near namespace has.
    pub fn read(&self, path: &str) -> String {
        CommandOutput::of(&mut self.near("cat", &[path])).out.trim().to_owned()
    }

    /// Names in a directory of the near namespace.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let list = CommandOutput::of(&mut self.near("ls", &["-A", directory])).out;
        list.lines().map(str::to_owned).collect()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for holder in [&mut self.near, &mut self.far] {
            let _ = holder.kill().and_then(|()| holder.wait());
        }
    }
}
