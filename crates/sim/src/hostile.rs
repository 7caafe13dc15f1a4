//! A host that disturbs one machine, to show that the machine's run does not change.
//!
//! A simulated guest must not depend on the host's schedule of QEMU's threads. The hostile host stops these
//! threads one by one, at random and for random times. It keeps all processors busy in bursts, writes data to
//! the file system of the temporary directory all the time, and takes memory and gives it back.
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

/// A hostile host, until it is dropped.
#[derive(Debug)]
pub struct HostileHost {
    ends: Arc<AtomicBool>,
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
        let ends = Arc::new(AtomicBool::new(false));
        let stops = Arc::new(AtomicU64::new(0));
        let mut host =
            HostileHost { ends: Arc::clone(&ends), stops: Arc::clone(&stops), threads: Vec::new() };
        let mut start = |act: Box<dyn FnOnce(&AtomicBool) + Send>| -> io::Result<()> {
            let ends = Arc::clone(&ends);
            let thread = std::thread::Builder::new().spawn(move || act(&ends));
            host.threads.push(thread.map_err(with_reached_limit)?);
            Ok(())
        };
        start(Box::new(move |ends| stop_threads(pid, Random::new(seed), ends, &stops)))?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 1..=processors as u64 {
            start(Box::new(move |ends| hog_processor(Random::new(seed ^ number), ends)))?;
        }
        start(Box::new(write_out))?;
        start(Box::new(move |ends| take_memory(Random::new(!seed), ends)))?;
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
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A random time below `max`.
fn time(random: &mut Random, max: Duration) -> Duration {
    Duration::from_nanos(random.below(max.as_nanos() as u64))
}

/// Stops one thread of the process after the other.
fn stop_threads(pid: u32, mut random: Random, ends: &AtomicBool, stops: &AtomicU64) {
    while !ends.load(Ordering::Relaxed) {
        let threads = threads_of(pid);
        if let Some(&thread) = threads.get(random.below(threads.len() as u64) as usize)
            && stop_for(pid, thread, time(&mut random, STOP_MAX))
        {
            stops.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(time(&mut random, BETWEEN_MAX));
    }
}

/// The threads of a process; none when it has ended.
fn threads_of(pid: u32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Stops a thread of a child process for a time. Returns whether that succeeded; other threads are left alone.
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

/// Waits until a thread has stopped or ended; returns whether it has stopped. The end of the process is not
/// consumed: its owner waits for it. The end of another thread is: until then the process does not end.
fn wait_until_stopped(pid: u32, thread: i32) -> bool {
    let Ok(number) = libc::id_t::try_from(thread) else { return false };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let keeps = if number == pid { libc::WNOWAIT } else { 0 };
    let events = libc::WSTOPPED | libc::WEXITED | libc::__WALL | keeps;
    // SAFETY: the information is written to memory of its size, which is all zeros otherwise.
    let (result, info) = unsafe {
        let result = libc::waitid(libc::P_PID, number, info.as_mut_ptr(), events);
        (result, info.assume_init())
    };
    result == 0 && matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED)
}

/// Keeps a processor busy in bursts.
fn hog_processor(mut random: Random, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let until = Instant::now() + time(&mut random, BURST_MAX);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        std::thread::sleep(time(&mut random, BURST_MAX));
    }
}

/// Has the file system of the temporary directory write data out all the time.
fn write_out(ends: &AtomicBool) {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let directory = std::env::temp_dir();
    let Ok(file) = rustix::fs::open(&directory, flags, Mode::from_raw_mode(0o600)) else { return };
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
        let mut memory = vec![0_u8; random.below(MEMORY_BYTES as u64) as usize + PAGE_BYTES];
        for page in memory.chunks_mut(PAGE_BYTES) {
            page[0] = 1;
        }
        std::hint::black_box(&memory);
        drop(memory);
        std::thread::sleep(time(&mut random, BURST_MAX));
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
