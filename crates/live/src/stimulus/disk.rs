//! The disk stimulus: one worker on the first measured CPU reads a file, one request at a time. Each read reaches the
//! device, whose completion interrupts. At a low rate random requests are timed; at the high rate the reads
//! go backwards through the file without a pause.

use std::fs::File;
use std::time::Duration;

use rustix::fs::Advice;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::WorkerError;
use super::facts::{Facts, facts};
use super::scratch::{self, Target};
use super::system::{self, Ticker, random_from_clock};
use super::worker_pool::{Worker, WorkerPool};
use super::{Rate, StimulusSettings};

const MIB: u64 = 1024 * 1024;
/// Default sizes of the scratch file.
const LOW_FILE_BYTES: u64 = 16 * MIB;
const HIGH_FILE_BYTES: u64 = 256 * MIB;
/// File system blocks per request at the high rate.
const HIGH_REQUEST_BLOCKS: u64 = 4;
const REQUEST_BYTES_MAX: u64 = MIB;
/// Number of consecutive failed reads after which the stimulus fails.
const CONSECUTIVE_ERRORS_MAX: u32 = 1000;
/// Number of probing reads. At least one must have reached a block device.
const PROBE_READS: u32 = 4;

/// Alignment of buffers and offsets that every block device accepts for `O_DIRECT`.
const PAGE_BYTES: u64 = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES as usize]);

/// Starts the worker that reads the disk, on the first measured CPU. Low rate: random pages, one per interval. High
/// rate: the file backwards, without a pause. Returns the facts of the stimulus.
///
/// Fails if the file is missing, cannot be made, or is smaller than a request.
pub(super) fn start(
    settings: &StimulusSettings,
    pool: &mut WorkerPool,
) -> Result<Facts, WorkerError> {
    if !settings.housekeeping.is_empty() {
        system::prefer(&settings.housekeeping);
    }
    let (default_bytes, interval) = match settings.rate {
        Rate::Low => (LOW_FILE_BYTES, Some(settings.low_interval)),
        Rate::High => (HIGH_FILE_BYTES, None),
    };
    let target = match &settings.disk_file {
        Some(path) => scratch::open(path)?,
        None => {
            let bytes = settings.scratch_bytes.unwrap_or(default_bytes);
            scratch::make(&settings.scratch_dir, bytes.max(PAGE_BYTES))?
        }
    };
    let request_bytes = match settings.rate {
        Rate::Low => PAGE_BYTES,
        Rate::High => high_request_bytes(target.block_bytes),
    };
    let requests = target.size_bytes / request_bytes;
    if requests == 0 {
        return Err(WorkerError::unavailable(
            format!("{} is smaller than one request of {request_bytes} bytes", target.place),
            "name a larger file with --disk-file",
        ));
    }
    let facts = facts! {
        "stimulus": "disk",
        "file": target.place,
        "file_bytes": target.size_bytes,
        "request_bytes": request_bytes,
        "interval_ns": interval.map(|interval| interval.as_nanos() as u64),
        "order": if interval.is_some() { "random" } else { "backwards" },
        "queue_depth": 1,
    };
    let cpu = settings.cpus.first().copied();
    let reader = Reader::new(target, request_bytes, requests);
    pool.spawn("disk", cpu, move |worker| reader.run(worker, interval))?;
    Ok(facts)
}

/// Bytes of a request at the high rate: whole pages, 8 KiB to 1 MiB.
fn high_request_bytes(block_bytes: u64) -> u64 {
    let bytes = block_bytes.saturating_mul(HIGH_REQUEST_BLOCKS);
    bytes.clamp(2 * PAGE_BYTES, REQUEST_BYTES_MAX) / PAGE_BYTES * PAGE_BYTES
}

struct Reader {
    file: File,
    /// Path or description of the file, for messages.
    place: String,
    /// Whether reads bypass the page cache (`O_DIRECT`).
    is_direct: bool,
    request_bytes: u64,
    /// Number of requests that fit in the file.
    requests: u64,
    /// Buffer of one request, aligned for `O_DIRECT`.
    pages: Vec<Page>,
}

impl Reader {
    fn new(target: Target, request_bytes: u64, requests: u64) -> Self {
        let pages = vec![Page([0; PAGE_BYTES as usize]); (request_bytes / PAGE_BYTES) as usize];
        let Target { file, place, is_direct, .. } = target;
        Reader { file, place, is_direct, request_bytes, requests, pages }
    }

    fn run(mut self, worker: &Worker, interval: Option<Duration>) -> Result<(), WorkerError> {
        let method = self.choose_method()?;
        worker.report_ready(facts! { "method": method });
        let mut random = random_from_clock();
        let mut ticker = interval.map(Ticker::new);
        // The high rate goes backwards from here, as in the paper, to defeat read-ahead.
        let mut index = self.requests;
        let mut consecutive_errors = 0;
        while !worker.is_stopped() {
            index = match &mut ticker {
                Some(ticker) => {
                    worker.sleep_to_next(ticker);
                    random.next() % self.requests
                }
                None => index.checked_sub(1).unwrap_or(self.requests - 1),
            };
            match self.read(index) {
                Ok(bytes) => {
                    consecutive_errors = 0;
                    worker.count(1, bytes);
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    consecutive_errors += 1;
                    worker.count_error();
                    if consecutive_errors == CONSECUTIVE_ERRORS_MAX {
                        return Err(WorkerError::failed(format!(
                            "reading {}: {error}",
                            self.place
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads request `index` from the device, and returns the bytes read. Without `O_DIRECT`, first removes the
    /// request's pages from the page cache.
    fn read(&mut self, index: u64) -> Result<u64, Errno> {
        let offset = index * self.request_bytes;
        if !self.is_direct {
            scratch::drop_cached(&self.file, offset, self.request_bytes);
        }
        let bytes = self.pages.as_mut_bytes();
        rustix::io::pread(&self.file, bytes, offset).map(|count| count as u64)
    }

    /// Chooses `O_DIRECT` if a read succeeds with it, else buffered reads. Fails if reads do not reach a block device,
    /// where the kernel counts them. Returns the method's name, a public fact.
    fn choose_method(&mut self) -> Result<&'static str, WorkerError> {
        if self.is_direct && self.read(0).is_err() {
            self.is_direct = false;
            let flags = rustix::fs::fcntl_getfl(&self.file).map(|f| f - rustix::fs::OFlags::DIRECT);
            flags
                .and_then(|flags| rustix::fs::fcntl_setfl(&self.file, flags))
                .map_err(|e| WorkerError::failed(format!("fcntl of {}: {e}", self.place)))?;
        }
        if !self.is_direct {
            // Switches read-ahead off. If the kernel ignores this hint, it reads more data than requested.
            let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Random);
        }
        let before = storage_read_bytes();
        for probe in 0..PROBE_READS {
            let index = u64::from(probe) * self.requests / u64::from(PROBE_READS);
            self.read(index).map_err(|error| {
                WorkerError::unavailable(format!("cannot read {}: {error}", self.place), REMEDY)
            })?;
        }
        match (before, storage_read_bytes()) {
            (Some(before), Some(after)) if after == before => Err(WorkerError::unavailable(
                format!("reads of {} do not reach a block device", self.place),
                REMEDY,
            )),
            _ if self.is_direct => Ok("O_DIRECT"),
            _ => Ok("buffered, POSIX_FADV_DONTNEED"),
        }
    }
}

const REMEDY: &str = "set TMPDIR to a directory on a local disk";

/// Bytes that this thread has read from storage. `None` if the kernel does not count them
/// (`CONFIG_TASK_IO_ACCOUNTING`).
fn storage_read_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_high_request_is_four_blocks_within_bounds() {
        assert_eq!(high_request_bytes(4096), 16 * 1024);
        assert_eq!(high_request_bytes(512), 8 * 1024);
        assert_eq!(high_request_bytes(1), 8 * 1024);
        assert_eq!(high_request_bytes(1 << 20), 1 << 20);
        assert_eq!(high_request_bytes(u64::MAX), 1 << 20);
    }
}
