//! The tools bpftrace and perf, started as users start them, for the comparison of overheads (`overhead.rs`).

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

use super::failed;
use crate::spawn::with_reached_limit;
use crate::syscall_loop::ns_per_call;

/// The usual two lines of bpftrace for the time between two events, for one CPU: other CPUs' system calls are not the
/// loop's.
fn bpftrace_script(cpu: u32) -> String {
    format!(
        "tracepoint:raw_syscalls:sys_enter /cpu == {cpu}/ {{ @s[tid] = nsecs }} \
         tracepoint:raw_syscalls:sys_exit /cpu == {cpu} && @s[tid]/ {{ @h = hist(nsecs - @s[tid]); delete(@s[tid]); }}"
    )
}

/// Longest wait until a tool is active.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait until a tool has ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two signals that request a tool's end.
const SIGNAL_PERIOD: Duration = Duration::from_secs(4);
/// Time from the opening of a tool's events to the first check whether the tool is active.
const SETTLE: Duration = Duration::from_millis(300);
/// A tool is active if the fastest of the check's loops is slower than without the tool by this factor.
const SLOWER_BY: f64 = 1.5;
/// Loops of a check, and system calls per loop.
const PROBING_LOOPS: u32 = 8;
const PROBING_CALLS: u32 = 1_000;
/// System calls of the check that finds the tool active. The tool has seen them all, because the fastest loop was
/// slowed down, too.
pub(super) const PROBING_CALLS_SEEN: u64 = PROBING_LOOPS as u64 * PROBING_CALLS as u64;
/// Bytes of each output that an error message shows.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// A tool with which irqlab is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Bpftrace,
    Perf,
}

impl Tool {
    pub fn program(self) -> &'static str {
        match self {
            Tool::Bpftrace => "bpftrace",
            Tool::Perf => "perf",
        }
    }

    fn arguments(self, cpu: u32) -> Vec<String> {
        let split = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self {
            Tool::Bpftrace => vec!["-e".to_owned(), bpftrace_script(cpu)],
            Tool::Perf => split(&format!(
                "record -q -e raw_syscalls:sys_enter -e raw_syscalls:sys_exit -C {cpu} -o /dev/null"
            )),
        }
    }

    /// The command line, as the table shows it.
    pub fn command_line(self, cpu: u32) -> String {
        match self {
            Tool::Bpftrace => format!("bpftrace -e '{}'", bpftrace_script(cpu)),
            Tool::Perf => format!("perf {}", self.arguments(cpu).join(" ")),
        }
    }
}

/// A running tool. Dropping this ends the tool.
pub(super) struct Peer {
    child: Child,
    tool: Tool,
    /// Files in memory. A pipe that nobody reads would stop a tool that writes much.
    stdout: File,
    stderr: File,
}

impl Peer {
    /// Starts the tool and waits until it slows the loop on `cpu` down. `bare_call_ns` is the time of a
    /// system call without the tool.
    ///
    /// Fails with [`BenchError::Unavailable`] if the tool is not installed or does not work here.
    pub fn start(tool: Tool, cpu: u32, bare_call_ns: f64) -> Result<Self, BenchError> {
        let mut command = Command::new(tool.program());
        command.args(tool.arguments(cpu));
        let mut peer = Self::spawn(tool, command)?;
        peer.wait_until_active(cpu, bare_call_ns)?;
        Ok(peer)
    }

    /// Starts the tool's process.
    fn spawn(tool: Tool, mut command: Command) -> Result<Self, BenchError> {
        let no_file = |error| failed("a file in memory", error);
        let (stdout, for_stdout) = file_in_memory().map_err(no_file)?;
        let (stderr, for_stderr) = file_in_memory().map_err(no_file)?;
        command.stdin(Stdio::null()).stdout(for_stdout).stderr(for_stderr);
        // SAFETY: between fork and exec only prctl(2) is called, which is async-signal-safe.
        unsafe { command.pre_exec(die_with_parent) };
        let child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => BenchError::Unavailable {
                reason: format!("{} is not installed", tool.program()),
                remedy: Some(format!("apt install {}", package(tool))),
            },
            _ => failed(&format!("starting {}", tool.program()), with_reached_limit(error)),
        })?;
        Ok(Peer { child, tool, stdout, stderr })
    }

    fn wait_until_active(&mut self, cpu: u32, bare_call_ns: f64) -> Result<(), BenchError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                let output = self.start_of_output();
                return Err(self.unavailable(&format!("ended at once ({status}): {output}")));
            }
            if self.has_events() {
                std::thread::sleep(SETTLE);
                if slows_calls(cpu, bare_call_ns)? {
                    return Ok(());
                }
            }
            if Instant::now() > deadline {
                return Err(self.unavailable("was started and does not slow system calls down"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether the tool has open perf events, which all tools use to attach to tracepoints.
    fn has_events(&self) -> bool {
        let directory = format!("/proc/{}/fd", self.child.id());
        let Ok(entries) = std::fs::read_dir(directory) else { return false };
        let targets = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let mut names = targets.map(|target| target.to_string_lossy().into_owned());
        names.any(|name| name.contains("[perf_event]"))
    }

    fn unavailable(&self, problem: &str) -> BenchError {
        BenchError::Unavailable {
            reason: format!("{} {problem}", self.tool.program()),
            remedy: None,
        }
    }

    /// The first bytes of the tool's stderr, then those of its stdout, for an error message.
    fn start_of_output(&mut self) -> String {
        let start = |file: &mut File| {
            // A read error only shortens the message.
            let mut bytes = read_all(file).unwrap_or_default();
            bytes.truncate(MESSAGE_BYTES_MAX);
            String::from_utf8_lossy(&bytes).trim().to_owned()
        };
        start(&mut self.stderr) + &start(&mut self.stdout)
    }

    /// Ends the tool like Ctrl-C, and waits. Returns all that the tool wrote to stdout.
    ///
    /// Fails if the tool does not end in time, and kills it then. Fails if its output cannot be read.
    pub fn stop(mut self) -> Result<String, BenchError> {
        let start = Instant::now();
        let mut signals = 0;
        loop {
            // bpftrace sometimes misses the first signal, so more follow.
            if start.elapsed() >= SIGNAL_PERIOD * signals {
                self.interrupt();
                signals += 1;
            }
            match self.child.try_wait() {
                Ok(Some(_)) => {
                    let unreadable = |error| failed("a tool's output", error);
                    let bytes = read_all(&mut self.stdout).map_err(unreadable)?;
                    return Ok(String::from_utf8_lossy(&bytes).into_owned());
                }
                Ok(None) if start.elapsed() < STOP_TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return Err(self.unavailable("does not end on SIGINT")),
            }
        }
    }

    fn interrupt(&self) {
        // The tool may have ended meanwhile. It is not reaped yet, so no other process has its PID.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
    }
}

/// An empty file in memory: a descriptor for reading the tool's output, and a second one for the tool. Both have one
/// position, so the file is read only after the tool has ended, or for an error message.
fn file_in_memory() -> io::Result<(File, File)> {
    let file = File::from(memfd_create("irqlab-output", MemfdFlags::CLOEXEC)?);
    let for_tool = file.try_clone()?;
    Ok((file, for_tool))
}

/// Reads a file from its start to its end.
fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether system calls on `cpu` take longer than `bare_call_ns` times [`SLOWER_BY`].
pub(super) fn slows_calls(cpu: u32, bare_call_ns: f64) -> Result<bool, BenchError> {
    let mut fastest = f64::INFINITY;
    for _ in 0..PROBING_LOOPS {
        let time = ns_per_call(cpu, PROBING_CALLS)
            .map_err(|error| failed("the system call loop", error))?;
        fastest = fastest.min(time);
    }
    Ok(fastest > bare_call_ns * SLOWER_BY)
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // Both calls fail only if the child has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Debian package of a tool.
fn package(tool: Tool) -> &'static str {
    match tool {
        Tool::Bpftrace => "bpftrace",
        Tool::Perf => "linux-perf",
    }
}

fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(Into::into)
}

/// The number of spans in bpftrace's histogram: the sum of its counts.
pub(super) fn spans_in_histogram(output: &str) -> u64 {
    let count = |line: &str| -> Option<u64> {
        let (_, after) = line.trim_start().strip_prefix('[')?.split_once(')')?;
        after.split_whitespace().next()?.parse().ok()
    };
    output.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bpftrace_sees_only_the_loops_cpu() {
        let line = Tool::Bpftrace.command_line(3);
        assert_eq!(line.matches("cpu == 3").count(), 2, "{line}");
        assert_eq!(Tool::Bpftrace.arguments(3)[1], bpftrace_script(3));
    }

    #[test]
    fn counts_of_a_histogram() {
        let output =
            "Attaching 2 probes...\n\n@h:\n[128, 256)   12 |@@  |\n[1K, 2K)      3 |@   |\n";
        assert_eq!(spans_in_histogram(output), 15);
    }

    /// A shell stands for bpftrace, and writes more at its end than a pipe holds (64 KiB).
    #[test]
    fn a_long_histogram_is_read_to_its_end() {
        let bar = "@".repeat(52);
        let script = format!(
            "trap 'for i in $(seq 1000); do echo \"[$i, $i)  2 |{bar}|\"; done; exit' INT; echo ready; \
             while :; do sleep 0.01; done"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let peer = Peer::spawn(Tool::Bpftrace, command).unwrap();
        while peer.stdout.metadata().unwrap().len() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(spans_in_histogram(&peer.stop().unwrap()), 2_000);
    }
}
