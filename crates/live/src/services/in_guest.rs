//! Runs a command inside a simulated machine. The guest's irqlab calls [`execute`] for a request of `sim`. The
//! simulator measures the command; the guest adds its kernel's counts of page faults and system calls, which verify
//! the simulator's.
//!
//! Invariant: between a reading of the kernel's counts and its mark, this process causes no page fault and makes no
//! allocation. It would be in one of the two counts only.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lab::experiment::BenchError;
use lab::services::in_guest::{ServicesItem, ServicesRequest};

use crate::host::{Root, offline_cpus};
use crate::threads::LockedMemory;
use crate::window::{HeldCommand, OnStop, Stop, WaitOutcome, WindowEdge, shell_status};

/// The guest's program for all commands.
const BUSYBOX: &str = "/bin/busybox";
/// Command line that starts the guest's shell.
const SHELL: [&str; 3] = [BUSYBOX, "sh", "-c"];
/// Reported counters of /proc/vmstat.
const VMSTAT: [&str; 2] = ["pgfault", "pgmajfault"];
/// A limit above the size of /proc/vmstat.
const VMSTAT_BYTES_MAX: usize = 32 << 10;
/// Mount point of the kernel's tracing.
const TRACING: &str = "/sys/kernel/tracing";
/// The histogram of system calls by number. The kernel counts in it while it is not paused.
const HISTOGRAM: &str = "hist:keys=id:size=1024";

/// A point of the run, which the simulator records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the first reading of the guest's kernel counters, or after the last one.
    Reading,
    /// At an edge of the window.
    Edge(WindowEdge),
}

/// Runs the command of a request. Calls `mark` around the command, and around the readings of
/// the kernel's counters. A stop request ends the command, or prevents the window.
///
/// Fails if the command cannot be started, or the guest does not report its counts.
pub fn execute(
    request: &ServicesRequest,
    mark: fn(Place),
    stop: &Stop,
) -> Result<Vec<ServicesItem>, BenchError> {
    execute_in(&SHELL, request, mark, stop)
}

/// Like [`execute`], with the command line that starts a shell.
fn execute_in(
    shell: &[&str],
    request: &ServicesRequest,
    mark: fn(Place),
    stop: &Stop,
) -> Result<Vec<ServicesItem>, BenchError> {
    let mut item = ServicesItem::default();
    if let Some(line) = &request.warm_up {
        let command = hold(shell, line)?;
        let _on_stop = StopOfCommand::new(stop, &command)?;
        let status = run(command)?;
        if !status.success() && !stop.is_requested() {
            item.warnings.push(format!("the warm-up command failed: {status}"));
        }
    }
    let syscalls = if request.verify { Some(SyscallCounter::new()?) } else { None };
    let (mut before, mut after) = (Vmstat::open()?, Vmstat::open()?);
    // The order matters: the command's process is forked first, and the memory is locked later. Locking copies the
    // pages that the fork shares.
    let command = hold(shell, &request.command)?;
    if stop.is_requested() {
        return Ok(vec![ServicesItem { interrupted: true, ..item }]);
    }
    let on_stop = StopOfCommand::new(stop, &command)?;
    // Locking makes all pages present: without it, the first call of a function can cause a page fault.
    let locked = LockedMemory::current();
    if let Err(error) = &locked.result {
        item.warnings
            .push(format!("page faults of irqlab itself may be counted: mlockall: {error}"));
    }
    // Only now: the warm-up command can change which CPUs are online.
    item.warnings.extend(offline_cpus(&Root::default()).iter().map(|cpu| {
        format!("CPU {cpu} was offline when the window opened: its time until it came online is idle time")
    }));
    mark(Place::Reading);
    before.read()?;
    if let Some(counter) = &syscalls {
        counter.resume()?;
    }
    mark(Place::Edge(WindowEdge::Open));
    let opened = Instant::now();
    let status = run(command);
    item.length_ns = u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
    after.touch();
    mark(Place::Edge(WindowEdge::Close));
    if let Some(counter) = &syscalls {
        counter.pause()?;
    }
    after.read()?;
    mark(Place::Reading);
    drop(locked);
    item.interrupted = on_stop.has_ended_command();
    if let Some(counter) = syscalls {
        item.syscalls = Some(counter.end()?);
    }
    let status = status?;
    item.command_ended = status.to_string();
    item.command_status = shell_status(status);
    let after = after.counters();
    for (name, before) in before.counters() {
        let after = after.get(&name).copied().unwrap_or(before);
        item.vmstat.insert(name, after.saturating_sub(before));
    }
    Ok(vec![item])
}

/// Starts a process that waits, and then executes a line of the shell.
fn hold(shell: &[&str], line: &str) -> Result<HeldCommand, BenchError> {
    let arguments: Vec<String> = shell.iter().chain([&line]).map(ToString::to_string).collect();
    HeldCommand::new(&arguments, true)
}

/// Ends a command when the stop is requested.
struct StopOfCommand {
    on_stop: OnStop,
    /// Whether the command still ran when the stop came.
    has_ended_command: Arc<AtomicBool>,
}

impl StopOfCommand {
    /// The command must not be waited for before.
    fn new(stop: &Stop, command: &HeldCommand) -> Result<StopOfCommand, BenchError> {
        let end = command.ender().map_err(failed("the command"))?;
        let has_ended_command = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&has_ended_command);
        let on_stop = OnStop::call(stop, move || has_ended.store(end(), Ordering::Relaxed))?;
        Ok(StopOfCommand { on_stop, has_ended_command })
    }

    /// Whether a stop has ended the command. False if the command had ended before the stop.
    fn has_ended_command(self) -> bool {
        // Dropping `on_stop` waits for its thread, which may still be storing the answer.
        drop(self.on_stop);
        self.has_ended_command.load(Ordering::Relaxed)
    }
}

/// Runs a command to its end.
fn run(command: HeldCommand) -> Result<ExitStatus, BenchError> {
    command.release()?.finish(WaitOutcome::Completed)
}

fn failed(subject: &str) -> impl Fn(std::io::Error) -> BenchError {
    move |error| BenchError::Failed(format!("{subject}: {error}"))
}

/// A reading of /proc/vmstat. The buffer is allocated before the window opens, and the text is parsed after the window.
struct Vmstat {
    file: File,
    /// [`VMSTAT_BYTES_MAX`] bytes.
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read.
    filled: usize,
}

impl Vmstat {
    /// Opens the file, and allocates the buffer. Writing ones causes the page faults of the buffer's memory here; the
    /// memory of a buffer of zeros would first fault in [`Vmstat::read`].
    ///
    /// Fails if the file cannot be opened.
    fn open() -> Result<Vmstat, BenchError> {
        let file = File::open("/proc/vmstat").map_err(failed("/proc/vmstat"))?;
        Ok(Vmstat { file, buffer: vec![1; VMSTAT_BYTES_MAX], filled: 0 })
    }

    /// Writes to the memory that [`Vmstat::read`] writes: this value, and the stack below the caller's frame. Since the
    /// fork of the command, both processes may share these pages, and the first write to a shared page is a page fault.
    /// This call causes the fault before the kernel adds up its counters.
    #[inline(never)]
    fn touch(&mut self) {
        self.filled = std::hint::black_box(0);
    }

    /// Reads the file. Allocates nothing.
    #[inline(never)]
    fn read(&mut self) -> Result<(), BenchError> {
        self.filled = 0;
        while self.filled < self.buffer.len() {
            let free = &mut self.buffer[self.filled..];
            match self.file.read_at(free, self.filled as u64).map_err(failed("/proc/vmstat"))? {
                0 => break,
                bytes => self.filled += bytes,
            }
        }
        Ok(())
    }

    /// The counters in [`VMSTAT`], from the last reading.
    fn counters(&self) -> BTreeMap<String, u64> {
        let text = String::from_utf8_lossy(&self.buffer[..self.filled]);
        let value = |line: &str| -> Option<(String, u64)> {
            let (name, value) = line.split_once(' ')?;
            let value = value.trim().parse().ok()?;
            VMSTAT.contains(&name).then(|| (name.to_owned(), value))
        };
        text.lines().filter_map(value).collect()
    }
}

/// A counter of all system calls: the kernel's histogram at their tracepoint (a trigger of tracefs).
struct SyscallCounter {
    trigger: File,
    /// The texts that resume and pause the counting, allocated before the window opens.
    resume_text: String,
    pause_text: String,
}

impl SyscallCounter {
    /// Sets up the histogram, paused. Mounts tracefs if necessary.
    fn new() -> Result<SyscallCounter, BenchError> {
        let trigger = format!("{TRACING}/events/raw_syscalls/sys_enter/trigger");
        if fs::metadata(&trigger).is_err() {
            let mount = ["mount", "-t", "tracefs", "tracefs", TRACING];
            let mut command = Command::new(BUSYBOX);
            let mounted = command.args(mount).stdout(Stdio::null()).status();
            mounted.map_err(failed("mount"))?;
        }
        let open = OpenOptions::new().append(true).open(&trigger);
        let mut trigger = open.map_err(|error| BenchError::Unavailable {
            reason: format!("the guest's kernel cannot count its system calls: {error}"),
            remedy: None,
        })?;
        let pause_text = format!("{HISTOGRAM}:pause");
        trigger.write_all(pause_text.as_bytes()).map_err(failed("the guest's trigger"))?;
        let resume_text = format!("{HISTOGRAM}:cont");
        Ok(SyscallCounter { trigger, resume_text, pause_text })
    }

    fn write(&self, text: &str) -> Result<(), BenchError> {
        (&self.trigger).write_all(text.as_bytes()).map_err(failed("the guest's trigger"))
    }

    /// Makes the kernel count. Allocates nothing, because that could cause a page fault.
    fn resume(&self) -> Result<(), BenchError> {
        self.write(&self.resume_text)
    }

    /// Stops the kernel's counting. Allocates nothing, because that could cause a page fault.
    fn pause(&self) -> Result<(), BenchError> {
        self.write(&self.pause_text)
    }

    /// Returns the number of calls of each system call, and removes the histogram. The counting must be paused.
    fn end(self) -> Result<BTreeMap<u32, u64>, BenchError> {
        let path = format!("{TRACING}/events/raw_syscalls/sys_enter/hist");
        let text = fs::read_to_string(path).map_err(failed("the guest's histogram"))?;
        let _ = (&self.trigger).write_all(format!("!{HISTOGRAM}").as_bytes());
        Ok(text.lines().filter_map(histogram_row).collect())
    }
}

/// Parses a row of the kernel's histogram, such as `{ id:         63 } hitcount:          1`, into the number of the
/// system call and its count. `None` for other lines.
fn histogram_row(line: &str) -> Option<(u32, u64)> {
    let (key, count) = line.trim().strip_prefix("{ id:")?.split_once("} hitcount:")?;
    Some((key.trim().parse().ok()?, count.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    /// Executes a command with the host's shell. `mark` may request a stop.
    fn executed(command: &str, mark: fn(Place), stop: &Stop) -> ServicesItem {
        let command = command.to_owned();
        let request = ServicesRequest { command, ..ServicesRequest::default() };
        execute_in(&["/bin/sh", "-c"], &request, mark, stop).unwrap().remove(0)
    }

    #[test]
    fn a_stop_after_the_commands_end_cuts_nothing() {
        static STOP: OnceLock<Stop> = OnceLock::new();
        let stop = STOP.get_or_init(|| Stop::new().unwrap());
        let at_close = |place| {
            if place == Place::Edge(WindowEdge::Close) {
                STOP.get().unwrap().request();
            }
        };
        let item = executed("exit 3", at_close, stop);
        assert!(!item.interrupted && stop.is_requested(), "{item:?}");
        assert_eq!(item.command_status, 3);
    }

    #[test]
    fn a_stop_while_the_command_runs_ends_it() {
        static STOP: OnceLock<Stop> = OnceLock::new();
        let stop = STOP.get_or_init(|| Stop::new().unwrap());
        let at_open = |place| {
            if place == Place::Edge(WindowEdge::Open) {
                std::thread::spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    STOP.get().unwrap().request();
                });
            }
        };
        let item = executed("exec sleep 600", at_open, stop);
        assert!(item.interrupted && item.command_status == 128 + 15, "{item:?}");
    }

    #[test]
    fn rows_of_the_kernels_histogram() {
        let line = "{ id:         63 } hitcount:          17";
        assert_eq!(histogram_row(line), Some((63, 17)));
        for other in ["# event histogram", "", "Totals:", "{ id: x } hitcount: 1"] {
            assert_eq!(histogram_row(other), None);
        }
    }
}
