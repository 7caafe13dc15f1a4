//! The rig `nvme`: reads of random blocks of a disk, on the receiver's CPU. The receiver submits a read when it is due,
//! and learns of the completion by the scheme. The sender only opens the window.
//!
//! With an interrupt, the receiver sleeps in io_uring_enter(2) until a read completes or the next read is due. By
//! polling, it asks the disk's poll queue in one io_uring_enter(2) after the other (IORING_SETUP_IOPOLL), and looks at
//! the clock in between. So a slow read does not delay the start of the next read, unless [`DEPTH_MAX`] reads are in
//! flight.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::io;
use std::iter::Peekable;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use lab::experiment::BenchError;
use lab::signal::RateWindow;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use signalling::Scheme;
use stats::Random;

use super::arrivals::{now_ns, sleep_until};
use super::disk::{Disk, READ_BYTES};
use super::events::{self, Due, EventStream, Events, Receiver, Schedule};
use super::socket::LOOK_AGAIN;

/// Most reads in flight. Further reads that are due wait; their latency includes the wait.
pub const DEPTH_MAX: usize = 128;

/// The seed of a window's blocks is the window's seed, XOR this constant. With the same seed, the block of a read would
/// depend on the time between this read and the last one.
const BLOCKS_SEED: u64 = 0x6e76_6d65_626c_6f63;
/// The disk has failed if reads are in flight, the window has ended, and no read completes for this time.
const COMPLETION_LIMIT_NS: u64 = 5_000_000_000;
/// Longest sleep while the last reads are awaited.
const LAST_READS_SLEEP_NS: u64 = 10_000_000;

#[repr(C, align(4096))]
struct Page([u8; READ_BYTES as usize]);

/// Passes the schedule of the window from the sender to the receiver.
struct Start {
    schedule: OnceLock<Schedule>,
    /// The eventfd on which the receiver sleeps until the window opens.
    event: OwnedFd,
}

impl Start {
    fn new() -> io::Result<Start> {
        Ok(Start { schedule: OnceLock::new(), event: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    fn open(&self, schedule: Schedule) -> io::Result<()> {
        let _ = self.schedule.set(schedule);
        self.wake()
    }

    fn wake(&self) -> io::Result<()> {
        rustix::io::write(&self.event, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Sleeps until the window opens. `None` if it never opens.
    fn wait(&self, events: &Events<'_>) -> io::Result<Option<Schedule>> {
        while self.schedule.get().is_none() && !events.is_closed() {
            rustix::io::read(&self.event, &mut [0; 8])?;
        }
        Ok(self.schedule.get().copied())
    }
}

/// How the receiver waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    /// Sleeps until a completion interrupts, or the next read is due.
    Sleep,
    /// Polls while a read is in flight, and else sleeps until the next read is due.
    SleepWithoutReads,
    /// Polls all the time.
    Spin,
    /// Polls all the time, and yields the CPU after each poll that finds nothing.
    SpinAndYield,
}

impl Idle {
    /// `Rig::check` has refused all schemes but those of the rig `nvme`.
    fn of_scheme(scheme: Scheme) -> Idle {
        match scheme {
            Scheme::Poll => Idle::SleepWithoutReads,
            Scheme::Spin => Idle::Spin,
            Scheme::SpinYield => Idle::SpinAndYield,
            _ => Idle::Sleep,
        }
    }
}

/// A read that was submitted.
#[derive(Clone, Copy, Default)]
struct Request {
    /// The time at which the read was due, as [`Due::carried`] returns it.
    carried: u64,
    /// Bytes from the start of the disk.
    offset: u64,
}

/// The random numbers that choose the blocks of a window's reads.
fn random_of_blocks(seed: u64) -> Random {
    Random::new(seed ^ BLOCKS_SEED)
}

/// The reads in flight, and the memory that the disk writes to.
struct Reads<'a> {
    ring: IoUring,
    disk: &'a Disk,
    /// One page for each read in flight. The kernel writes to a page until its read is reaped.
    pages: Vec<UnsafeCell<Page>>,
    /// Pages without a read in flight.
    free: Vec<usize>,
    /// The last read of each page.
    requests: Vec<Request>,
    random: Random,
}

impl<'a> Reads<'a> {
    fn new(ring: IoUring, disk: &'a Disk, seed: u64) -> Reads<'a> {
        let page = |_| UnsafeCell::new(Page([0; READ_BYTES as usize]));
        Reads {
            ring,
            disk,
            pages: (0..DEPTH_MAX).map(page).collect(),
            free: (0..DEPTH_MAX).collect(),
            requests: vec![Request::default(); DEPTH_MAX],
            random: random_of_blocks(seed),
        }
    }

    fn in_flight(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    /// Queues a read of a random block. The next entry into the kernel submits it. Call it only with a free page.
    fn add(&mut self, due: Due) -> io::Result<()> {
        let page = self.free.pop().ok_or_else(|| io::Error::other("no free page"))?;
        let offset = self.random.below(self.disk.blocks()) * READ_BYTES;
        self.requests[page] = Request { carried: due.carried(), offset };
        // Shared references to an `UnsafeCell` allow the kernel to write to the other pages meanwhile.
        let address = self.pages[page].get().cast::<u8>();
        let file = Fd(self.disk.file().as_raw_fd());
        let read = opcode::Read::new(file, address, READ_BYTES as u32).offset(offset);
        // SAFETY: `pages` never grows, so the page keeps its address until `drop`, which leaks the pages if reads are
        // still in flight. No reference to the content of a page exists, and `free` gives the page to no other read
        // until `reap` has seen the completion. The file outlives the ring.
        let pushed = unsafe { self.ring.submission().push(&read.build().user_data(page as u64)) };
        pushed.map_err(|_| {
            self.free.push(page);
            io::Error::other("the submission queue is full")
        })
    }

    /// Waits a short time for completions. Polls once if the ring polls: such a ring has no timeout.
    fn wait_for_last(&self) -> io::Result<()> {
        if self.ring.params().is_setup_iopoll() {
            rustix::thread::sched_yield();
            self.submit()
        } else {
            self.submit_and_sleep(LAST_READS_SLEEP_NS)
        }
    }

    /// Submits the queued reads, and polls once for completions if the ring polls.
    fn submit(&self) -> io::Result<()> {
        without_interruption(self.ring.submit().map(|_| ()))
    }

    /// Submits the queued reads, and sleeps until a read completes or `timeout_ns` has passed.
    fn submit_and_sleep(&self, timeout_ns: u64) -> io::Result<()> {
        let seconds = timeout_ns / 1_000_000_000;
        let timeout = Timespec::new().sec(seconds).nsec((timeout_ns % 1_000_000_000) as u32);
        let arguments = SubmitArgs::new().timespec(&timeout);
        without_interruption(self.ring.submitter().submit_with_args(1, &arguments).map(|_| ()))
    }

    /// Passes the completed reads to `handle`, each by its time. Returns their number.
    ///
    /// Fails if a read failed. The error names the disk and the offset.
    fn reap(&mut self, mut handle: impl FnMut(u64)) -> io::Result<usize> {
        let mut reaped = 0;
        while let Some(completion) = self.ring.completion().next() {
            let page = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            let request = self.requests.get(page).copied();
            let Request { carried, offset } =
                request.ok_or_else(|| io::Error::other("unknown read"))?;
            self.free.push(page);
            reaped += 1;
            let failed = |reason: String| {
                let device = self.disk.device();
                io::Error::other(format!("read of {device} at byte {offset}: {reason}"))
            };
            match completion.result() {
                error if error < 0 => {
                    return Err(failed(io::Error::from_raw_os_error(-error).to_string()));
                }
                bytes if bytes as u64 != READ_BYTES => {
                    return Err(failed(format!("{bytes} bytes instead of {READ_BYTES}")));
                }
                _ => handle(carried),
            }
        }
        Ok(reaped)
    }
}

impl Drop for Reads<'_> {
    /// Waits for the reads in flight, for [`COMPLETION_LIMIT_NS`] at most. Then leaks their pages, because the disk may
    /// still write to them.
    fn drop(&mut self) {
        let give_up_ns = now_ns() + COMPLETION_LIMIT_NS;
        while self.in_flight() > 0 {
            if self.wait_for_last().is_err() || now_ns() >= give_up_ns {
                std::mem::forget(std::mem::take(&mut self.pages));
                return;
            }
            // A read that failed is complete, too.
            let _ = self.reap(|_| {});
        }
    }
}

/// A signal (signal(7)) or the timeout has ended a call early: the caller looks again anyway.
fn without_interruption(result: io::Result<()>) -> io::Result<()> {
    let is_early = |error: &io::Error| {
        [Errno::INTR, Errno::TIME]
            .iter()
            .any(|early| error.raw_os_error() == Some(early.raw_os_error()))
    };
    match result {
        Err(error) if is_early(&error) => Ok(()),
        result => result,
    }
}

struct DiskReader<'a> {
    reads: Reads<'a>,
    idle: Idle,
    start: &'a Start,
}

impl DiskReader<'_> {
    /// Queues all reads that are due at `now_ns`, as far as there are free pages. Returns when the reader has to start
    /// the next read, ns of CLOCK_MONOTONIC; `None` if only a completion allows another read, or all have started.
    fn add_due(
        &mut self,
        schedule: &mut Peekable<impl Iterator<Item = Due>>,
        now_ns: u64,
    ) -> io::Result<Option<u64>> {
        while !self.reads.free.is_empty()
            && let Some(due) = schedule.next_if(|due| due.ns <= now_ns)
        {
            self.reads.add(due)?;
        }
        let is_full = self.reads.free.is_empty();
        Ok(schedule.peek().map(|due| due.ns).filter(|_| !is_full))
    }

    /// Submits the queued reads. Then waits for completions by the scheme, or looks for them once.
    fn wait(&mut self, next_ns: Option<u64>, now_ns: u64) -> io::Result<()> {
        let longest_ns = now_ns + LOOK_AGAIN.as_nanos() as u64;
        let wake_ns = next_ns.map_or(longest_ns, |next_ns| next_ns.min(longest_ns));
        match self.idle {
            Idle::Sleep => self.reads.submit_and_sleep(wake_ns.saturating_sub(now_ns)),
            _ if self.reads.in_flight() > 0 => self.reads.submit(),
            Idle::SleepWithoutReads => {
                sleep_until(wake_ns);
                Ok(())
            }
            Idle::Spin | Idle::SpinAndYield => Ok(()),
        }
    }
}

impl DiskReader<'_> {
    /// Receives the reads that are in flight when the window has ended. Otherwise, slow reads would count as dropped.
    ///
    /// Fails if no read completes for [`COMPLETION_LIMIT_NS`]. The error names the disk.
    fn receive_last(&mut self, events: &mut Events<'_>) -> io::Result<()> {
        let mut give_up_ns = now_ns() + COMPLETION_LIMIT_NS;
        while self.reads.in_flight() > 0 {
            self.reads.wait_for_last()?;
            let now = now_ns();
            if self.reads.reap(|carried| events.handle(carried))? > 0 {
                give_up_ns = now + COMPLETION_LIMIT_NS;
            } else if now >= give_up_ns {
                return Err(io::Error::other(format!(
                    "{} has completed none of {} reads for {} s",
                    self.reads.disk.device(),
                    self.reads.in_flight(),
                    COMPLETION_LIMIT_NS / 1_000_000_000
                )));
            }
        }
        Ok(())
    }
}

impl Receiver for DiskReader<'_> {
    fn receive(&mut self, events: &mut Events<'_>) -> io::Result<()> {
        let Some(schedule) = self.start.wait(events)? else { return Ok(()) };
        let mut schedule = schedule.events().peekable();
        while !events.is_closed() {
            let now = now_ns();
            let next_ns = self.add_due(&mut schedule, now)?;
            self.wait(next_ns, now)?;
            let reaped = self.reads.reap(|carried| events.handle(carried))?;
            // A wake-up is not counted as a signal: the timer of the next read wakes the reader, too.
            match self.idle {
                Idle::Spin if reaped == 0 => spin_loop(),
                Idle::SpinAndYield if reaped == 0 => rustix::thread::sched_yield(),
                _ => {}
            }
        }
        self.receive_last(events)
    }
}

/// Makes the ring. `polls`: completions are polled for, and the disk does not interrupt.
fn ring(polls: bool) -> Result<IoUring, BenchError> {
    let mut builder = IoUring::builder();
    if polls {
        builder.setup_iopoll();
    }
    let ring = builder.build(DEPTH_MAX as u32).map_err(|error| BenchError::Unavailable {
        reason: format!("the kernel refuses io_uring: {error}"),
        remedy: Some("sysctl -w kernel.io_uring_disabled=0".to_owned()),
    })?;
    // Without it, a wait has no timeout (Linux 5.11).
    if !ring.params().is_feature_ext_arg() {
        return Err(BenchError::unavailable("io_uring has no timeouts here (IORING_FEAT_EXT_ARG)"));
    }
    Ok(ring)
}

/// Measures a window of reads at a rate.
///
/// Fails with [`BenchError::Unavailable`] if the disk or the kernel lacks the scheme. Fails with [`BenchError::Failed`]
/// if a read fails or does not complete, and with the errors of the window's threads.
pub fn rate_window(stream: &EventStream, disk: &Disk) -> Result<RateWindow, BenchError> {
    let scheme = stream.point.scheme;
    disk.check(scheme)?;
    let start = Start::new().map_err(|error| BenchError::Failed(format!("eventfd: {error}")))?;
    let reads = Reads::new(ring(scheme.is_by_polling())?, disk, stream.seed);
    let reader = DiskReader { reads, idle: Idle::of_scheme(scheme), start: &start };
    let wake = || {
        let _ = start.wake();
    };
    events::measure_schedule(stream, |schedule| start.open(schedule), reader, wake)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_reads_do_not_depend_on_the_gaps_between_them() {
        const READS: usize = 20_000;
        let correlation = |mut of_blocks: Random, mut of_gaps: Random| {
            let pairs: Vec<(f64, f64)> = (0..READS)
                .map(|_| (of_blocks.below(1 << 20) as f64, of_gaps.exponential()))
                .collect();
            let mean = |values: &dyn Fn(&(f64, f64)) -> f64| {
                pairs.iter().map(values).sum::<f64>() / READS as f64
            };
            let (block, gap) = (mean(&|pair| pair.0), mean(&|pair| pair.1));
            let covariance = mean(&|pair| (pair.0 - block) * (pair.1 - gap));
            let variances =
                mean(&|pair| (pair.0 - block).powi(2)) * mean(&|pair| (pair.1 - gap).powi(2));
            (covariance / variances.sqrt()).abs()
        };
        for seed in [0, 1, 7, u64::MAX] {
            let with_own_seed = correlation(random_of_blocks(seed), Random::new(seed));
            assert!(with_own_seed < 0.04, "{with_own_seed}");
            // The test would see one seed for both.
            assert!(correlation(Random::new(seed), Random::new(seed)) > 0.5);
        }
    }
}
