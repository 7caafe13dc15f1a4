//! A command inside a simulated machine, which measures it from outside. The guest adds what its own
//! kernel counts meanwhile.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use lab::experiment::BenchError;
use lab::services::in_guest::{ServicesItem, ServicesRequest};

use crate::host::went_offline;
use crate::threads::LockedMemory;
use crate::window::{HeldCommand, WaitOutcome, WindowEdge, shell_status};

/// The guest's shell.
const SHELL: [&str; 3] = ["/bin/busybox", "sh", "-c"];
/// Counters of /proc/vmstat that are reported.
const VMSTAT: [&str; 2] = ["pgfault", "pgmajfault"];
/// More than /proc/vmstat has.
const VMSTAT_BYTES_MAX: usize = 32 << 10;
/// Where the kernel's tracing is mounted.
const TRACING: &str = "/sys/kernel/tracing";
/// The histogram of system calls by number, in which the kernel counts while it is not paused.
const HISTOGRAM: &str = "hist:keys=id:size=1024";

/// Where the guest is: a simulator records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before its kernel's counters are read first, or after they are read last.
    Reading,
    /// At an edge of the window.
    Edge(WindowEdge),
}

/// Runs the command of a request and calls `mark` around it and around the readings of the kernel's
/// counters.
///
/// # Errors
/// Where the command cannot be started, or the guest does not say what it counted.
pub fn execute(
    request: &ServicesRequest,
    mark: fn(Place),
) -> Result<Vec<ServicesItem>, BenchError> {
    let mut item = ServicesItem::default();
    if let Some(line) = &request.warm_up {
        let status = run(hold(line)?)?;
        if !status.success() {
            item.warnings.push(format!("the warm-up command failed: {status}"));
        }
    }
    let syscalls = if request.verify { Some(SyscallCounter::start()?) } else { None };
    let (mut before, mut after) = (Vmstat::open()?, Vmstat::open()?);
    // Its process is forked before the window, and before locking the memory copies what a fork shares.
    let command = hold(&request.command)?;
    // A page fault of this process between a reading and its marker is in one of the two counts only.
    // The first call of a function can cause one; with all pages present there is none.
    let locked = LockedMemory::current();
    if let Err(error) = &locked.result {
        item.warnings
            .push(format!("page faults of irqlab itself may be counted: mlockall: {error}"));
    }
    mark(Place::Reading);
    before.read()?;
    if let Some(counter) = &syscalls {
        counter.let_count()?;
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
    if let Some(counter) = syscalls {
        item.syscalls = Some(counter.end()?);
    }
    for cpu in went_offline() {
        item.warnings.push(format!(
            "CPU {cpu} was offline for a part of the window, and that part is in its idle time"
        ));
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

/// A line of the guest's shell, which waits.
fn hold(line: &str) -> Result<HeldCommand, BenchError> {
    let words: Vec<String> = SHELL.into_iter().chain([line]).map(str::to_owned).collect();
    HeldCommand::new(&words, true)
}

/// Runs a command to its end.
fn run(command: HeldCommand) -> Result<ExitStatus, BenchError> {
    command.release()?.finish(WaitOutcome::Completed)
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> BenchError {
    move |error| BenchError::Failed(format!("{what}: {error}"))
}

/// A reading of the kernel's counters of memory events. Its buffer is there before the window opens, and
/// what was read is parsed after the window: between a reading and its mark nothing is allocated.
struct Vmstat {
    file: File,
    buffer: Vec<u8>,
    filled: usize,
}

impl Vmstat {
    fn open() -> Result<Vmstat, BenchError> {
        let file = File::open("/proc/vmstat").map_err(failed("/proc/vmstat"))?;
        Ok(Vmstat { file, buffer: vec![1; VMSTAT_BYTES_MAX], filled: 0 })
    }

    /// Writes to what [`Vmstat::read`] writes to before the kernel sums its counters: this reading, and the
    /// stack below its caller's. Since the command was forked they may be pages that it had, too, the first
    /// write to which is a fault.
    #[inline(never)]
    fn touch(&mut self) {
        self.filled = std::hint::black_box(0);
    }

    #[inline(never)]
    fn read(&mut self) -> Result<(), BenchError> {
        self.filled = 0;
        while self.filled < self.buffer.len() {
            let into = &mut self.buffer[self.filled..];
            match self.file.read_at(into, self.filled as u64).map_err(failed("/proc/vmstat"))? {
                0 => break,
                bytes => self.filled += bytes,
            }
        }
        Ok(())
    }

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

/// The kernel's own count of system calls, by a histogram at its tracepoint.
struct SyscallCounter {
    trigger: File,
    /// The texts that let it count and pause it, which are there before the window opens.
    resume: String,
    pause: String,
}

impl SyscallCounter {
    fn start() -> Result<SyscallCounter, BenchError> {
        let trigger = format!("{TRACING}/events/raw_syscalls/sys_enter/trigger");
        if fs::metadata(&trigger).is_err() {
            let mount = ["mount", "-t", "tracefs", "tracefs", TRACING];
            let mut command = Command::new(SHELL[0]);
            let mounted = command.args(mount).stdout(Stdio::null()).status();
            mounted.map_err(failed("mount"))?;
        }
        let open = OpenOptions::new().append(true).open(&trigger);
        let mut trigger = open.map_err(|error| BenchError::Unavailable {
            reason: format!("the guest's kernel cannot count its system calls: {error}"),
            remedy: None,
        })?;
        let pause = format!("{HISTOGRAM}:pause");
        trigger.write_all(pause.as_bytes()).map_err(failed("the guest's trigger"))?;
        let resume = format!("{HISTOGRAM}:cont");
        Ok(SyscallCounter { trigger, resume, pause })
    }

    fn write(&self, text: &str) -> Result<(), BenchError> {
        (&self.trigger).write_all(text.as_bytes()).map_err(failed("the guest's trigger"))
    }

    /// From here on the kernel counts. Allocates nothing, as that could cause a fault.
    fn let_count(&self) -> Result<(), BenchError> {
        self.write(&self.resume)
    }

    /// The kernel counts no more. Allocates nothing, as that could cause a fault.
    fn pause(&self) -> Result<(), BenchError> {
        self.write(&self.pause)
    }

    /// Returns the count, which is paused.
    fn end(self) -> Result<BTreeMap<u32, u64>, BenchError> {
        let path = format!("{TRACING}/events/raw_syscalls/sys_enter/hist");
        let text = fs::read_to_string(path).map_err(failed("the guest's histogram"))?;
        let _ = (&self.trigger).write_all(format!("!{HISTOGRAM}").as_bytes());
        Ok(text.lines().filter_map(histogram_row).collect())
    }
}

/// A row of the kernel's histogram: `{ id:         63 } hitcount:          1`.
fn histogram_row(line: &str) -> Option<(u32, u64)> {
    let (key, count) = line.trim().strip_prefix("{ id:")?.split_once("} hitcount:")?;
    Some((key.trim().parse().ok()?, count.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_kernels_histogram() {
        let line = "{ id:         63 } hitcount:          17";
        assert_eq!(histogram_row(line), Some((63, 17)));
        for other in ["# event histogram", "", "Totals:", "{ id: x } hitcount: 1"] {
            assert_eq!(histogram_row(other), None);
        }
    }
}
