//! Kernels of two threads on one CPU that wait for each other: each round has two context switches. The second thread
//! inherits the pinned CPU of the measured thread.
//!
//! The file also has what other kernels of group `system` need: a handler of a signal, the number of CPUs, and a way
//! to another CPU.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use super::{checked, kernel, pipe, start_thread, syscall};
use crate::{Body, Executed, Kernel, Rounds};

/// Rounds per window.
const ROUNDS: u64 = 20;

/// The kernels of two threads that wait for each other.
pub(super) fn kernels() -> Vec<Kernel> {
    let round = "round";
    vec![
        kernel(
            (
                "pipe_ping_pong",
                round,
                "A byte to another thread on the same CPU and back, by pipes.",
            ),
            || Ok(Box::new(Pipes::new()?)),
        ),
        kernel(
            (
                "futex_ping_pong",
                round,
                "A wake-up of another thread on the same CPU and back, by futexes.",
            ),
            || Ok(Box::new(Futexes::new()?)),
        ),
    ]
}

extern "C" fn ignore_signal(_: libc::c_int) {}

/// Sets a handler of SIGUSR2 that does nothing.
pub(super) fn handle_signal() -> Result<(), String> {
    // SAFETY: the handler touches nothing; nothing else of irqlab uses this signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let set = libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
        checked("sigaction", set.into()).map(drop)
    }
}

/// The body of `pipe_ping_pong`. The other thread answers each byte that arrives in a pipe by a byte in a second pipe.
struct Pipes {
    /// The pipe to the other thread, which ends when this is closed. `None` only during the drop.
    writer: Option<OwnedFd>,
    /// The pipe from the other thread.
    reader: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Pipes {
    fn new() -> Result<Pipes, String> {
        let ((thread_reader, writer), (reader, thread_writer)) = (pipe()?, pipe()?);
        let answer = move || {
            while pass(libc::SYS_read, &thread_reader) && pass(libc::SYS_write, &thread_writer) {}
        };
        let thread = start_thread(answer)?;
        Ok(Pipes { writer: Some(writer), reader, thread: Some(thread) })
    }
}

/// Reads or writes one byte. False if the call failed or the pipe was closed.
fn pass(call: libc::c_long, descriptor: &OwnedFd) -> bool {
    let mut byte = 0_u8;
    syscall(call, [descriptor.as_raw_fd() as usize, (&raw mut byte) as usize, 1]) == 1
}

impl Body for Pipes {
    fn run(&mut self, rounds: u64) -> Executed {
        let Some(writer) = &self.writer else { return Executed::whole(rounds) };
        for _ in 0..rounds {
            pass(libc::SYS_write, writer);
            pass(libc::SYS_read, &self.reader);
        }
        Executed::whole(rounds)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(ROUNDS)
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        drop(self.writer.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// The body of `futex_ping_pong`. Two threads take turns: each waits until the word has its number.
struct Futexes {
    /// The thread that has the turn: [`MEASURED_THREAD`] or [`OTHER_THREAD`].
    word: Arc<AtomicU32>,
    /// Set, before the last turn of the other thread, to end it.
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const MEASURED_THREAD: u32 = 0;
const OTHER_THREAD: u32 = 1;

/// Gives the turn to the thread with number `next`, and wakes it.
fn give_turn(word: &AtomicU32, next: u32) {
    word.store(next, Ordering::Release);
    syscall(libc::SYS_futex, [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1]);
}

/// Waits until the thread with number `thread` has the turn. A wake-up without the turn leads to another wait.
fn wait_for_turn(word: &AtomicU32, thread: u32) {
    loop {
        let now = word.load(Ordering::Acquire);
        if now == thread {
            return;
        }
        // SAFETY: the word outlives the call; without a time limit the fourth argument is null.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                now,
                std::ptr::null::<libc::timespec>(),
            );
        }
    }
}

impl Futexes {
    /// Starts the other thread, which waits for its first turn.
    fn new() -> Result<Futexes, String> {
        let (word, ends) =
            (Arc::new(AtomicU32::new(MEASURED_THREAD)), Arc::new(AtomicBool::new(false)));
        let (thread_word, thread_ends) = (Arc::clone(&word), Arc::clone(&ends));
        let answer = move || {
            loop {
                wait_for_turn(&thread_word, OTHER_THREAD);
                if thread_ends.load(Ordering::Acquire) {
                    return;
                }
                give_turn(&thread_word, MEASURED_THREAD);
            }
        };
        let thread = start_thread(answer)?;
        Ok(Futexes { word, ends, thread: Some(thread) })
    }
}

impl Body for Futexes {
    fn run(&mut self, rounds: u64) -> Executed {
        for _ in 0..rounds {
            give_turn(&self.word, OTHER_THREAD);
            wait_for_turn(&self.word, MEASURED_THREAD);
        }
        Executed::whole(rounds)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(ROUNDS)
    }
}

impl Drop for Futexes {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        give_turn(&self.word, OTHER_THREAD);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Fails if this process may use fewer than `number` CPUs.
pub(super) fn needs_cpus(number: usize) -> Result<(), String> {
    match cpus_of_cpuset() {
        Some(cpus) if cpus >= number => Ok(()),
        _ => Err(format!("it needs {number} CPUs that this process may use")),
    }
}

/// How many CPUs this process may use. The calling thread is pinned to one CPU, so a new thread sets its affinity to
/// all CPUs. The kernel reduces this to the process's cpuset, which the thread then reads. `None` if a call failed.
fn cpus_of_cpuset() -> Option<usize> {
    let ask = || {
        let mut set = all_cpus();
        let set_bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: the length is that of the set, which outlives both calls; only this thread's affinity changes.
        unsafe {
            let set_answer = libc::sched_setaffinity(0, set_bytes, &raw const set);
            let get_answer = libc::sched_getaffinity(0, set_bytes, &raw mut set);
            (set_answer == 0 && get_answer == 0).then(|| libc::CPU_COUNT(&set) as usize)
        }
    };
    std::thread::Builder::new().spawn(ask).ok()?.join().ok()?
}

fn all_cpus() -> libc::cpu_set_t {
    // SAFETY: the set is an array of bits, so all-zero is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: each number is below the size of the set.
    (0..libc::CPU_SETSIZE as usize).for_each(|cpu| unsafe { libc::CPU_SET(cpu, &mut set) });
    set
}

/// Moves the calling thread to another CPU: it may use all CPUs but the present one.
pub(super) fn leave_this_cpu() -> Result<(), String> {
    // SAFETY: the length is that of the set, and only the calling thread's affinity changes.
    unsafe {
        let this_cpu = checked("sched_getcpu", libc::sched_getcpu().into())? as usize;
        let mut set = all_cpus();
        if this_cpu < libc::CPU_SETSIZE as usize {
            libc::CPU_CLR(this_cpu, &mut set);
        }
        let set_bytes = size_of::<libc::cpu_set_t>();
        checked("sched_setaffinity", libc::sched_setaffinity(0, set_bytes, &raw const set).into())
            .map(drop)
    }
}
