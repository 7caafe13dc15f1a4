//! A host that disturbs one machine, to show that the machine's run does not change. Repetitions
//! ([`crate::repeat::Repetition::is_hostile`]) and tests use it.
//!
//! A simulated guest must not depend on the host's schedule of QEMU's threads. The hostile host stops these
//! threads one by one, at random and for random times. It keeps all processors busy in bursts. It writes data to
//! the file system of the temporary directory, and allocates and frees memory, all the time.
//!
//! It stops only the threads of the named process. Only processes of this program can be named: `ptrace(2)`
//! allows no others without privileges. All disturbance ends when the value is dropped.

use std::fs::{self, File};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stats::Random;

use crate::process::with_reached_limit;

/// Longest stop of a thread.
const STOP_MAX: Duration = Duration::from_millis(4);
/// The longest time between two stops.
const BETWEEN_MAX: Duration = Duration::from_millis(1);
/// The longest burst of a processor hog.
const BURST_MAX: Duration = Duration::from_millis(40);
/// Bytes written before each fsync.
const WRITTEN_BYTES: usize = 4 << 20;
/// Maximum memory that is taken, bytes.
const MEMORY_BYTES: usize = 32 << 20;
const PAGE_BYTES: usize = 4096;

/// The threads of a hostile host. They end when this value is dropped.
#[derive(Debug)]
pub struct HostileHost {
    is_ending: Arc<AtomicBool>,
    stops: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl HostileHost {
    /// Starts to act on a child process of this one. `seed` determines the actions; the host's scheduler
    /// determines their times.
    ///
    /// `wait(2)` also returns when a thread is stopped: wait for the end of the process by a pidfd, as
    /// [`crate::Vm`] does.
    ///
    /// Fails when the kernel refuses a thread.
    pub fn start(pid: u32, seed: u64) -> io::Result<HostileHost> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let stops = Arc::new(AtomicU64::new(0));
        let mut host = HostileHost {
            is_ending: Arc::clone(&is_ending),
            stops: Arc::clone(&stops),
            threads: Vec::new(),
        };
        let mut start = |act: Box<dyn FnOnce(&AtomicBool) + Send>| -> io::Result<()> {
            let is_ending = Arc::clone(&is_ending);
            let thread = std::thread::Builder::new().spawn(move || act(&is_ending));
            host.threads.push(thread.map_err(with_reached_limit)?);
            Ok(())
        };
        start(Box::new(move |is_ending| stop_threads(pid, Random::new(seed), is_ending, &stops)))?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 1..=processors as u64 {
            start(Box::new(move |is_ending| hog_processor(Random::new(seed ^ number), is_ending)))?;
        }
        start(Box::new(write_out))?;
        start(Box::new(move |is_ending| take_memory(Random::new(!seed), is_ending)))?;
        Ok(host)
    }

    /// Returns how often a thread was stopped so far.
    #[must_use]
    pub fn stops(&self) -> u64 {
        self.stops.load(Ordering::Relaxed)
    }
}

impl Drop for HostileHost {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns a random time below `max`.
fn random_time(random: &mut Random, max: Duration) -> Duration {
    Duration::from_nanos(random.below(max.as_nanos() as u64))
}

/// Stops threads of the process, one at a time, chosen at random.
fn stop_threads(pid: u32, mut random: Random, is_ending: &AtomicBool, stops: &AtomicU64) {
    while !is_ending.load(Ordering::Relaxed) {
        let threads = threads_of(pid);
        if let Some(&thread) = threads.get(random.below(threads.len() as u64) as usize)
            && stop_for(pid, thread, random_time(&mut random, STOP_MAX))
        {
            stops.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(random_time(&mut random, BETWEEN_MAX));
    }
}

/// Returns the threads of a process; empty when it has ended.
fn threads_of(pid: u32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Stops a thread for a time, if it belongs to a child process. Returns whether it was stopped.
fn stop_for(pid: u32, thread: i32, time: Duration) -> bool {
    let null = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: attaches to a thread by its number; no memory of this process is passed. On failure nothing
    // is attached.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, null, null) } != 0 {
        return false;
    }
    // SAFETY: stops the attached thread; no memory is passed. If the thread has ended, the wait below
    // returns that.
    unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, null, null) };
    let is_stopped = wait_until_stopped(pid, thread);
    if is_stopped {
        std::thread::sleep(time);
    }
    // SAFETY: detaches the thread; no memory is passed. That fails if the thread has ended in the meantime;
    // its end must then be waited for.
    while unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, null, null) } != 0
        && wait_until_stopped(pid, thread)
    {}
    is_stopped
}

/// Waits until a thread has stopped or ended; returns whether it has stopped. Leaves the end of the process for its
/// owner to wait for (`WNOWAIT`). Consumes the end of any other thread: until then the process could not end.
fn wait_until_stopped(pid: u32, thread: i32) -> bool {
    let Ok(number) = libc::id_t::try_from(thread) else { return false };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let wait_flag = if number == pid { libc::WNOWAIT } else { 0 };
    let events = libc::WSTOPPED | libc::WEXITED | libc::__WALL | wait_flag;
    // SAFETY: the information is written to memory of its size, which is all zeros otherwise.
    let (result, info) = unsafe {
        let result = libc::waitid(libc::P_PID, number, info.as_mut_ptr(), events);
        (result, info.assume_init())
    };
    result == 0 && matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED)
}

/// Keeps a processor busy in bursts.
fn hog_processor(mut random: Random, is_ending: &AtomicBool) {
    while !is_ending.load(Ordering::Relaxed) {
        let until = Instant::now() + random_time(&mut random, BURST_MAX);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        std::thread::sleep(random_time(&mut random, BURST_MAX));
    }
}

/// Writes to the file system of the temporary directory all the time.
fn write_out(is_ending: &AtomicBool) {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let directory = std::env::temp_dir();
    let Ok(file) = rustix::fs::open(&directory, flags, Mode::from_raw_mode(0o600)) else { return };
    let file = File::from(file);
    let data = vec![0x5a; WRITTEN_BYTES];
    while !is_ending.load(Ordering::Relaxed) {
        // Errors are ignored: on a full disk, the attempts alone disturb.
        let _ = rustix::fs::ftruncate(&file, 0);
        let _ = rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0));
        let _ = (&file).write_all(&data);
        let _ = file.sync_all();
    }
}

/// Allocates memory, touches it page by page, and frees it, again and again.
fn take_memory(mut random: Random, is_ending: &AtomicBool) {
    while !is_ending.load(Ordering::Relaxed) {
        let mut memory = vec![0_u8; random.below(MEMORY_BYTES as u64) as usize + PAGE_BYTES];
        for page in memory.chunks_mut(PAGE_BYTES) {
            page[0] = 1;
        }
        std::hint::black_box(&memory);
        drop(memory);
        std::thread::sleep(random_time(&mut random, BURST_MAX));
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
        let host = HostileHost::start(child.id(), 1).unwrap();
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
        let host = HostileHost::start(pid, 1).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(host.stops(), 0);
    }
}
