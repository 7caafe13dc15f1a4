//! A host that is as hostile as it can be to one machine, to show that the machine does not notice.
//!
//! What a simulated guest does must not depend on when the host runs which of QEMU's threads. So they are
//! stopped at random for random times, one by one; all processors are busy in bursts; the file system below
//! the temporary directory has data to write out all the time; and memory is taken and given back.
//!
//! Only the process that is named is stopped, and only processes of this program can be named: `ptrace(2)`
//! allows no others without rights. All ends with the value.

use std::fs::{self, File};
use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest time for which a thread is stopped.
const STOP_MAX: Duration = Duration::from_millis(4);
/// The longest time between two stops.
const BETWEEN_MAX: Duration = Duration::from_millis(1);
/// The longest burst of a processor hog.
const BURST_MAX: Duration = Duration::from_millis(40);
/// What is written before each fsync, bytes.
const WRITTEN_BYTES: usize = 4 << 20;
/// Memory that is taken at most, bytes.
const MEMORY_BYTES: usize = 32 << 20;
const PAGE_BYTES: usize = 4096;

/// A hostile host. Dropping it makes the host friendly again.
#[derive(Debug)]
pub struct HostileHost {
    ends: Arc<AtomicBool>,
    stops: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl HostileHost {
    /// Starts to act on a child process of this one. The seed chooses what happens, but not when the host's
    /// scheduler lets it happen.
    ///
    /// `wait(2)` also returns when a thread is stopped: wait for the end of the process by a pidfd, as
    /// [`crate::Vm`] does.
    #[must_use]
    pub fn start(pid: u32, seed: u64) -> HostileHost {
        let ends = Arc::new(AtomicBool::new(false));
        let stops = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        let mut start = |act: Box<dyn FnOnce(&AtomicBool) + Send>| {
            let ends = Arc::clone(&ends);
            threads.push(std::thread::spawn(move || act(&ends)));
        };
        let counted = Arc::clone(&stops);
        start(Box::new(move |ends| stop_threads(pid, Random::new(seed), ends, &counted)));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 1..=processors as u64 {
            start(Box::new(move |ends| hog_processor(Random::new(seed ^ number), ends)));
        }
        start(Box::new(write_out));
        start(Box::new(move |ends| take_memory(Random::new(!seed), ends)));
        HostileHost { ends, stops, threads }
    }

    /// Returns how often a thread was stopped so far.
    #[must_use]
    pub fn stops(&self) -> u64 {
        self.stops.load(Ordering::Relaxed)
    }
}

impl Drop for HostileHost {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Random numbers (xorshift64*): the same for the same seed.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        // The state must not be zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A time below `max`.
    fn time(&mut self, max: Duration) -> Duration {
        Duration::from_nanos(self.next() % (max.as_nanos() as u64).max(1))
    }
}

/// Stops one thread of the process after the other.
fn stop_threads(pid: u32, mut random: Random, ends: &AtomicBool, stops: &AtomicU64) {
    while !ends.load(Ordering::Relaxed) {
        let threads = threads_of(pid);
        if let Some(number) = (random.next() as usize).checked_rem(threads.len())
            && stop_for(pid, threads[number], random.time(STOP_MAX))
        {
            stops.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(random.time(BETWEEN_MAX));
    }
}

/// The threads of a process; none when it has ended.
fn threads_of(pid: u32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Stops a thread for a time; whether that succeeded. A thread of our children, or nothing happens.
fn stop_for(pid: u32, thread: i32, time: Duration) -> bool {
    let null = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: attaches to a thread by its number, without memory of ours. If it fails nothing has happened.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, null, null) } != 0 {
        return false;
    }
    // SAFETY: asks a thread that this one is attached to to stop. If it has ended, the wait says so.
    unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, null, null) };
    let is_stopped = wait_until_stopped(pid, thread);
    if is_stopped {
        std::thread::sleep(time);
    }
    // SAFETY: lets go of it. That fails if it has ended meanwhile, which then has to be waited for.
    while unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, null, null) } != 0
        && wait_until_stopped(pid, thread)
    {}
    is_stopped
}

/// Waits until a thread has stopped; whether it has, or has ended. The end of the process is left to who
/// waits for it. The end of another thread is not: until it was waited for, the process does not end.
fn wait_until_stopped(pid: u32, thread: i32) -> bool {
    let Ok(number) = libc::id_t::try_from(thread) else { return false };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let keeps = if number == pid { libc::WNOWAIT } else { 0 };
    let what = libc::WSTOPPED | libc::WEXITED | libc::__WALL | keeps;
    // SAFETY: the information is written to memory of its size, which is all zeros otherwise.
    let (result, info) = unsafe {
        let result = libc::waitid(libc::P_PID, number, info.as_mut_ptr(), what);
        (result, info.assume_init())
    };
    result == 0 && matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED)
}

/// Keeps a processor busy in bursts.
fn hog_processor(mut random: Random, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let until = Instant::now() + random.time(BURST_MAX);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        std::thread::sleep(random.time(BURST_MAX));
    }
}

/// Has the file system of the temporary directory write data out all the time.
fn write_out(ends: &AtomicBool) {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let place = std::env::temp_dir();
    let Ok(file) = rustix::fs::open(&place, flags, Mode::from_raw_mode(0o600)) else { return };
    let file = File::from(file);
    let data = vec![0x5a; WRITTEN_BYTES];
    while !ends.load(Ordering::Relaxed) {
        // A full disk is hostile enough.
        let _ = rustix::fs::ftruncate(&file, 0);
        let _ = rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0));
        let _ = (&file).write_all(&data);
        let _ = file.sync_all();
    }
}

/// Takes memory, page by page, and gives it back.
fn take_memory(mut random: Random, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let mut memory = vec![0_u8; random.next() as usize % MEMORY_BYTES + PAGE_BYTES];
        for page in memory.chunks_mut(PAGE_BYTES) {
            page[0] = 1;
        }
        std::hint::black_box(&memory);
        drop(memory);
        std::thread::sleep(random.time(BURST_MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_process_is_stopped_and_ends_as_without_it() {
        let mut command = Command::new("sh");
        let program = "read x; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7";
        command.args(["-c", program]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let host = HostileHost::start(child.id(), 1);
        while host.stops() < 10 {
            std::thread::yield_now();
        }
        child.stdin.take().unwrap().write_all(b"x\n").unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let end = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let mut fds = [PollFd::new(&end, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        drop(host);
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn a_process_that_is_not_there_is_left_alone() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let host = HostileHost::start(pid, 1);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(host.stops(), 0);
    }
}
