//! The kernel's counts on the receiving CPU: interrupts, softirqs and NAPI polls. `window.rs` reads them at both
//! edges of a window.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

use crate::host::Root;
use crate::host::interrupts::{InterruptLine, Interrupts, read_interrupts, read_softirqs};

/// Directories at which tracefs may be mounted.
const TRACEFS: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];

/// A reading of the kernel's counts; each is `None` if it could not be read.
#[derive(Clone, Debug, Default)]
pub struct KernelCounts {
    interrupts: Option<Interrupts>,
    softirqs: Option<Interrupts>,
    /// NAPI polls on the receiving CPU.
    polls: Option<u64>,
    /// NAPI polls on the receiving CPU that found packets.
    useful_polls: Option<u64>,
}

/// Increase of the counts on one CPU between two readings; each is `None` if a reading lacks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Increase {
    /// Number of interrupts of all kinds on the CPU. `None` also if the kernel freed an IRQ line meanwhile: the counts of
    /// the line are lost then.
    pub interrupts: Option<u64>,
    /// Number of NET_RX softirqs on the CPU.
    pub net_rx: Option<u64>,
    /// Number of NAPI polls on the CPU.
    pub polls: Option<u64>,
    /// Number of NAPI polls on the CPU that found packets.
    pub useful_polls: Option<u64>,
    /// Interrupts of the given lines on all CPUs. `None` if /proc/interrupts lists no given line, or if the kernel freed a
    /// given line meanwhile.
    pub of_lines: Option<u64>,
}

impl KernelCounts {
    /// Reads all counts now. `polls`: the counter of the receiving CPU.
    pub fn now(root: &Root, polls: Option<&PollCounter>) -> KernelCounts {
        KernelCounts {
            interrupts: read_interrupts(root),
            softirqs: read_softirqs(root),
            polls: polls.and_then(|counter| read(&counter.all)),
            useful_polls: polls.and_then(|counter| read(&counter.useful)),
        }
    }

    /// Increase on `cpu` since an earlier reading. `irqs`: the interrupt lines to count; `None` counts none.
    pub fn since(&self, earlier: &KernelCounts, cpu: u32, irqs: Option<&[u32]>) -> Increase {
        let difference = |now: &Option<Interrupts>, before: &Option<Interrupts>| {
            Some(now.as_ref()?.since(before.as_ref()?))
        };
        let sum_of_cpu = |counts: &Interrupts| {
            let column = counts.cpus.iter().position(|candidate| *candidate == cpu)?;
            // Lines such as `ERR` have one number for all CPUs: they belong to no CPU.
            let count = |line: &InterruptLine| {
                (line.per_cpu.len() == counts.cpus.len()).then(|| line.per_cpu[column])
            };
            Some(counts.lines.iter().filter_map(count).sum())
        };
        let softirqs = difference(&self.softirqs, &earlier.softirqs);
        let interrupts = difference(&self.interrupts, &earlier.interrupts);
        let sum_of_lines = |irqs: &[u32], counts: &Interrupts| {
            let is_counted =
                |line: &&InterruptLine| line.number.is_some_and(|irq| irqs.contains(&irq));
            let mut totals =
                counts.lines.iter().filter(is_counted).map(InterruptLine::total).peekable();
            totals.peek().is_some().then(|| totals.sum::<u64>())
        };
        let readings = self.interrupts.as_ref().zip(earlier.interrupts.as_ref());
        let renewed = readings.map(|(now, before)| now.renewed_lines(before)).unwrap_or_default();
        let complete = if renewed.is_empty() { interrupts.as_ref() } else { None };
        let known_irqs = irqs.filter(|irqs| !irqs.iter().any(|irq| renewed.contains(irq)));
        Increase {
            interrupts: complete.and_then(sum_of_cpu),
            of_lines: known_irqs
                .zip(interrupts.as_ref())
                .and_then(|(irqs, counts)| sum_of_lines(irqs, counts)),
            net_rx: softirqs.and_then(|counts| counts.count("NET_RX", cpu)),
            polls: self.polls.zip(earlier.polls).map(|(now, before)| now.saturating_sub(before)),
            useful_polls: self
                .useful_polls
                .zip(earlier.useful_polls)
                .map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

/// Performance events that count the tracepoint `napi_poll` on one CPU: all polls, and polls with packets.
/// Counting costs about ten ns per poll.
pub struct PollCounter {
    all: OwnedFd,
    useful: OwnedFd,
}

impl PollCounter {
    /// Opens both counters for the polls of `interface` and of packets that other CPUs steer to `cpu`.
    ///
    /// Fails without tracefs, or the right to count (CAP_PERFMON).
    pub fn open(root: &Root, cpu: u32, interface: &str) -> io::Result<PollCounter> {
        let id = TRACEFS.iter().find_map(|mount| {
            root.text(format!("{mount}/events/napi/napi_poll/id"))?.trim().parse::<u64>().ok()
        });
        let id = id.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no tracepoint napi_poll in tracefs")
        })?;
        // The backlog, to which other CPUs steer packets, has no device.
        let filter = format!("(dev_name == \"{interface}\" || dev_name == \"(no_device)\")");
        Ok(PollCounter {
            all: open(id, cpu, &filter)?,
            useful: open(id, cpu, &format!("{filter} && work > 0"))?,
        })
    }
}

/// Opens a counter of the tracepoint with number `id`, for events on `cpu` that match `filter`.
fn open(id: u64, cpu: u32, filter: &str) -> io::Result<OwnedFd> {
    let filter = CString::new(filter).map_err(io::Error::other)?;
    let mut attributes = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        type_: b::PERF_TYPE_TRACEPOINT,
        config: id,
        ..b::perf_event_attr::default()
    };
    // SAFETY: `attributes` is a whole perf_event_attr with its size set, and outlives the call.
    let fd = unsafe {
        let flags = u64::from(b::PERF_FLAG_FD_CLOEXEC);
        perf::perf_event_open(&mut attributes, -1, cpu as i32, -1, flags)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, which nobody else owns.
    let counter = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an open event, and a terminated string that outlives the call, which only reads it.
    let filtered = unsafe { perf::ioctls::SET_FILTER(fd, filter.as_ptr().cast_mut()) };
    if filtered < 0 { Err(io::Error::last_os_error()) } else { Ok(counter) }
}

/// The count so far; `None` if it cannot be read.
fn read(counter: &OwnedFd) -> Option<u64> {
    let mut count = [0; 8];
    (rustix::io::read(counter, &mut count) == Ok(8)).then(|| u64::from_ne_bytes(count))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn interrupts_of_lines_that_are_not_listed_are_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        fs::create_dir_all(directory.path().join("proc")).unwrap();
        let counts = |count: u64| {
            let text = format!("           CPU0       CPU1\n 24:  {count}  5  PCI-MSIX  nvme0q1\n");
            fs::write(directory.path().join("proc/interrupts"), text).unwrap();
            KernelCounts::now(&root, None)
        };
        let (before, after) = (counts(10), counts(17));
        let of_lines = |irqs: Option<&[u32]>| after.since(&before, 0, irqs).of_lines;
        assert_eq!(of_lines(Some(&[24, 25])), Some(7));
        assert_eq!(of_lines(Some(&[25])), None);
        assert_eq!(of_lines(Some(&[])), None);
        assert_eq!(of_lines(None), None);
    }

    #[test]
    fn interrupts_of_a_line_that_is_made_again_are_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        fs::create_dir_all(directory.path().join("proc")).unwrap();
        let counts = |card: u64, disk: u64| {
            let lines =
                format!(" 24: {card} PCI-MSIX 0-edge eth0\n 25: {disk} PCI-MSIX 1-edge nvme0q1\n");
            fs::write(directory.path().join("proc/interrupts"), format!("  CPU0\n{lines}"))
                .unwrap();
            KernelCounts::now(&root, None)
        };
        let (before, after) = (counts(1_000_000, 3), counts(12, 8));
        let increase = |irqs: &[u32]| after.since(&before, 0, Some(irqs));
        assert_eq!(increase(&[25]).of_lines, Some(5));
        assert_eq!((increase(&[24]).of_lines, increase(&[25]).interrupts), (None, None));
    }
}
