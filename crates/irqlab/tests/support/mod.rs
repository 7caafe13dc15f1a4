//! The command as a user runs it, in a directory of its own.

// Each of the two test programs uses only a part of this module.
#![allow(dead_code)]

pub mod timeline;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

pub const IRQLAB: &str = env!("CARGO_BIN_EXE_irqlab");

/// Reads a file with the reader of another program, and returns the content as JSON. Returns `None`, and prints
/// the reason, if the reader is not installed.
pub fn read_by(reader: &str, file: &Path) -> Option<Json> {
    let Some(python) =
        needs::tool("readers-1/bin/python").filter(|path| path.ends_with("bin/python"))
    else {
        needs::not_run(needs::Need::Readers, "tools/setup.sh installs them: need_readers");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers").join(reader);
    let ended = CommandOutput::of(Command::new(python).arg(script).arg(file));
    ended.assert_code(0);
    Some(ended.json())
}

/// The fields of a line of CSV.
pub fn csv_fields(line: &str) -> Vec<String> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).from_reader(line.trim().as_bytes());
    let record = reader.records().next().transpose().expect("a line of CSV");
    record.iter().flatten().map(str::to_owned).collect()
}

static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other measurement of this test program runs. Measurements would disturb each other.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exit code and output of a finished command. `code` is `None` after a signal.
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
    pub fn assert_says(&self, text: &str) -> &Self {
        assert!(self.err.contains(text), "{text:?} is not in stderr: {}", self.err);
        self
    }

    /// Parses stdout, which is one JSON document.
    #[track_caller]
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// A working directory on a disk. The command runs in it.
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

    /// `irqlab` with these arguments.
    pub fn irqlab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(IRQLAB);
        command
            .args(arguments)
            .current_dir(self.path())
            .env("COLUMNS", "120")
            .env_remove("NO_COLOR");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(&mut self.irqlab(arguments))
    }

    /// Names in the directory, including hidden files.
    pub fn names(&self) -> Vec<String> {
        names(self.path())
    }
}

/// Asserts that irqlab refuses these arguments with `says` before it does anything.
#[track_caller]
pub fn check_refused(arguments: &[&str], says: &str) {
    let workspace = Place::new();
    let ended = workspace.run(arguments);
    ended.assert_code(2).assert_says(says);
    assert_eq!(ended.out, "");
    assert!(workspace.names().is_empty(), "{arguments:?} left {:?}", workspace.names());
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("entry"));
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether handlers can be measured here. If not, prints the reason.
pub fn can_measure() -> bool {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let reason = REASON.get_or_init(|| {
        let workspace = Place::new();
        let ended = workspace.run(&["handlers", "-q", "-d", "50ms", "--events", "none", "--json"]);
        (ended.code == Some(4)).then_some(ended.err)
    });
    if let Some(reason) = reason {
        needs::not_run(needs::Need::Bpf, reason);
    }
    reason.is_none()
}

/// Like [`can_measure`], and this is root. Only root can drop rights as these tests do.
pub fn can_measure_as_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        needs::not_run(needs::Need::Root, "this is another user");
    }
    is_root && can_measure()
}

/// Whether `unshare` with these flags makes namespaces in which a file system can be mounted. If not, prints the
/// reason. Root of a container may lack the right.
pub fn can_mount_in_namespaces(flags: &[&str]) -> bool {
    let mut command = Command::new("unshare");
    command.arg("--mount").args(flags).args(["mount", "-t", "tmpfs", "none", "/run"]);
    let tried = CommandOutput::of(&mut command);
    let can_mount = tried.code == Some(0);
    if !can_mount {
        needs::not_run(
            needs::Need::Namespaces,
            format!("unshare --mount {flags:?}: {}", tried.err),
        );
    }
    can_mount
}

/// Rows of a table of a JSON document.
pub fn rows<'a>(run: &'a Json, table: &str) -> &'a [Json] {
    run["tables"][table].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The reason why `what` is absent.
pub fn absence<'a>(run: &'a Json, what: &str) -> Option<&'a str> {
    let absent = run["absent"].as_array()?;
    absent.iter().find(|entry| entry["what"] == what)?["reason"].as_str()
}

/// Name and kind of each activity on the loop's CPU while the loop was stalled. Asserts that all intervals of
/// the repetition are within its window.
pub fn loop_stalled_by(run: &Json, stimulus: &str) -> Vec<(String, String)> {
    let is_wanted = |row: &&Json| row["level"] == "l1d" && row["stimulus"] == stimulus;
    let trace: Vec<&Json> = rows(run, "trace").iter().filter(is_wanted).collect();
    let start_and_end = |row: &Json| {
        let start = row["start_ns"].as_u64().unwrap();
        (start, start + row["length_ns"].as_u64().unwrap())
    };
    let named = |name: &str| start_and_end(trace.iter().find(|row| row["name"] == name).unwrap());
    let (window, stopped) = (named("repetition"), named("stalled"));
    let within = |inner: (u64, u64), outer: (u64, u64)| inner.0 >= outer.0 && inner.1 <= outer.1;
    assert!(within(stopped, window), "{run}");
    assert!(trace.iter().all(|row| within(start_and_end(row), window)), "{run}");
    // The first CPU of the trace is the loop's.
    let cpu = &trace.iter().find(|row| !row["cpu"].is_null()).unwrap()["cpu"];
    let is_inside = |row: &&&Json| row["cpu"] == *cpu && within(start_and_end(row), stopped);
    let text = |row: &Json, key: &str| row[key].as_str().unwrap().to_owned();
    trace.iter().filter(is_inside).map(|row| (text(row, "name"), text(row, "kind"))).collect()
}

/// Waits until `done` returns true, at most 60 s.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The child processes of `parent`, including zombies.
pub fn children(parent: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether the process runs. A zombie does not.
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|state| !state.is_empty() && !state.starts_with(" Z"))
}

/// Starts the command, and waits until it has started processes of its stimuli. Returns their PIDs.
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
pub fn only_run(workspace: &Place) -> PathBuf {
    let runs = workspace.path().join("irqlab-runs");
    let names = names(&runs);
    assert_eq!(names.len(), 1, "{names:?}");
    runs.join(&names[0])
}

/// Whether there is a simulator. If not, prints the reason.
pub fn can_simulate(workspace: &Place) -> bool {
    // The cache keeps the answers of the guest, so only the first call boots a guest.
    let ended = workspace.run(&["sim", "facts"]);
    if ended.code != Some(0) {
        needs::not_run(needs::Need::Qemu, &ended.err);
    }
    ended.code == Some(0)
}

/// Two namespaces of network and mounts, `near` and `far`. The veth pair `v0` (near, 192.0.2.1) and `v1` (far,
/// 192.0.2.2) joins them. `near` also has the tap device `tap0`, whose driver coalesces by `rx-frames` up to 64.
/// Each namespace has its own `/run`, and so its own journals. Dropping this removes both namespaces.
pub struct Net {
    workspace: Place,
    near: Child,
    far: Child,
}

impl Net {
    /// Returns `None`, and prints the reason, if this user cannot have namespaces.
    pub fn prepared() -> Option<Net> {
        let workspace = Place::new();
        let hold = |script: &str| {
            let mounts =
                "mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /run && ip link set lo up";
            let script = format!("{mounts} && {script} && echo ready && exec sleep 1000000");
            let arguments = ["--net", "--mount", "--propagation", "private", "sh", "-c", &script];
            let mut command = Command::new("unshare");
            let command = command.args(arguments).current_dir(workspace.path());
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
            Some(near) => Some(Net { workspace, near, far }),
            None => {
                let _ = far.kill().and_then(|()| far.wait());
                None
            }
        }
    }

    pub fn place(&self) -> &Place {
        &self.workspace
    }

    fn within(&self, holder: &Child, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &holder.id().to_string(), "--net", "--mount", "--wd"]);
        command.arg(program).args(arguments).env("COLUMNS", "120");
        command
    }

    /// A program in the near namespace.
    pub fn near(&self, program: &str, arguments: &[&str]) -> Command {
        self.within(&self.near, program, arguments)
    }

    /// A program in the far namespace.
    pub fn far(&self, program: &str, arguments: &[&str]) -> Command {
        self.within(&self.far, program, arguments)
    }

    /// A program with the mounts of the near namespace and the network of the machine.
    pub fn near_mounts(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.near.id().to_string(), "--mount", "--wd", program])
            .args(arguments);
        command
    }

    /// `irqlab` in the near namespace.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(&mut self.near(IRQLAB, arguments))
    }

    /// The trimmed content of a file in the near namespace.
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

/// The longest detours of a CPU are kept, the parts of each add up to it, and the sums over time and by cause have every
/// detour. `noise`: the CPU's row of table `noise`. `kept`: how many detours were to be kept.
#[track_caller]
pub fn check_longest(run: &Json, noise: &Json, kept: u64) {
    let uint = |row: &Json, column: &str| {
        row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
    };
    let on_cpu = |table: &str| -> Vec<Json> {
        rows(run, table).iter().filter(|row| row["cpu"] == noise["cpu"]).cloned().collect()
    };
    let sum = |table: &[Json], column: &str| table.iter().map(|row| uint(row, column)).sum::<u64>();
    let longest = on_cpu("longest");
    assert_eq!(longest.len() as u64, uint(noise, "detour_count").min(kept), "{noise}");
    assert_eq!(longest[0]["length_ns"], noise["detour_max_ns"], "{noise}");
    let parts = on_cpu("longest_parts");
    for (rank, detour) in (1_u64..).zip(&longest) {
        assert_eq!(uint(detour, "rank"), rank, "{detour}");
        assert!(uint(detour, "largest_ns") > 0, "{detour}");
        let parts: Vec<Json> = parts.iter().filter(|part| part["rank"] == rank).cloned().collect();
        assert_eq!(parts.len() as u64, uint(detour, "part_count"), "{detour}");
        assert_eq!(sum(&parts, "length_ns"), uint(detour, "length_ns"), "{detour}");
    }
    assert_eq!(sum(&on_cpu("lost_time"), "lost_ns"), uint(noise, "lost_ns"), "{noise}");
    let by_cause = on_cpu("detour_histogram_by_cause");
    assert_eq!(sum(&by_cause, "detour_count"), uint(noise, "detour_count"), "{noise}");
}

/// The number in a column of a row.
pub fn uint(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
}

/// Checks a run of `wakeup`: parts add up: in each of the worst wake-ups, and over all wake-ups of each CPU.
pub fn check_wakeup_sums(run: &Json) {
    for row in rows(run, "wakeup") {
        // A thread has either a timer or a waker.
        let has_waker = run["settings"]["wake_by"] != "timer";
        let (before_waking, other) =
            if has_waker { ("waking", "late_timer") } else { ("late_timer", "waking") };
        assert!(row[format!("{other}_ratio")].is_null(), "{row}");
        let shares = [before_waking, "interrupts", "tasks", "switch", "return", "other"];
        let share = |class: &&str| row[format!("{class}_ratio")].as_f64();
        let sum: f64 = shares.iter().map(|class| share(class).unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum} {row}");
        let causes = rows(run, "causes").iter().filter(|cause| cause["cpu"] == row["cpu"]);
        let total: u64 = causes.map(|cause| uint(cause, "total_ns")).sum();
        let late_ns = row["late_mean_ns"].as_f64().unwrap() * uint(row, "wakeup_count") as f64;
        assert!((total as f64 - late_ns).abs() <= 1e-9 * late_ns, "{total} {late_ns}");
    }
    for worst in rows(run, "worst") {
        let parts: Vec<&Json> = rows(run, "worst_parts")
            .iter()
            .filter(|part| part["cpu"] == worst["cpu"] && part["rank"] == worst["rank"])
            .collect();
        let sum: u64 = parts.iter().map(|part| uint(part, "length_ns")).sum();
        assert_eq!(sum, uint(worst, "late_ns"), "{worst} {parts:?}");
        assert_eq!(parts.len() as u64, uint(worst, "part_count"), "{worst}");
        // Each part starts where the one before it ends, the first one at the due time.
        let starts: Vec<u64> = parts.iter().map(|part| uint(part, "start_ns")).collect();
        let mut next_ns = uint(worst, "due_ns");
        for (part, start_ns) in parts.iter().zip(starts) {
            assert_eq!(start_ns, next_ns, "{worst} {parts:?}");
            next_ns += uint(part, "length_ns");
        }
    }
}
