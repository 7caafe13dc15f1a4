//! Two threads on one CPU that wait for each other, so that each round has two context switches; and
//! signals.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use super::{checked, kernel, pipe, start_thread, syscall};
use crate::{Body, Executed, Kernel, Rounds};

const ROUNDS: u64 = 20;

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

extern "C" fn nothing(_: libc::c_int) {}

/// Sets a handler of SIGUSR2 that does nothing.
pub(super) fn handle_signal() -> Result<(), String> {
    // SAFETY: the handler touches nothing; nothing else of irqlab uses this signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let set = libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
        checked("sigaction", set.into()).map(drop)
    }
}

/// Threads that answer a byte by a byte. The one that is not measured inherits the CPU.
struct Pipes {
    /// Closed to end the other thread.
    to: Option<OwnedFd>,
    from: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Pipes {
    fn new() -> Result<Pipes, String> {
        let ((in_other, to), (from, out_other)) = (pipe()?, pipe()?);
        let answer = move || {
            while pass(libc::SYS_read, &in_other) && pass(libc::SYS_write, &out_other) {}
        };
        let thread = start_thread(answer)?;
        Ok(Pipes { to: Some(to), from, thread: Some(thread) })
    }
}

/// Reads or writes a byte; whether that went well.
fn pass(call: libc::c_long, descriptor: &OwnedFd) -> bool {
    let mut byte = 0_u8;
    syscall(call, [descriptor.as_raw_fd() as usize, (&raw mut byte) as usize, 1]) == 1
}

impl Body for Pipes {
    fn run(&mut self, rounds: u64) -> Executed {
        let Some(to) = &self.to else { return Executed::whole(rounds) };
        for _ in 0..rounds {
            pass(libc::SYS_write, to);
            pass(libc::SYS_read, &self.from);
        }
        Executed::whole(rounds)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(ROUNDS)
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        drop(self.to.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// Threads that take turns: each waits until the word has its number.
struct Futexes {
    word: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const MINE: u32 = 0;
const OTHERS: u32 = 1;

/// Gives the turn to the other thread, and wakes it.
fn give(word: &AtomicU32, to: u32) {
    word.store(to, Ordering::Release);
    syscall(libc::SYS_futex, [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1]);
}

/// Waits for the turn; other wake-ups are followed by another wait.
fn wait(word: &AtomicU32, own: u32) {
    loop {
        let now = word.load(Ordering::Acquire);
        if now == own {
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
    fn new() -> Result<Futexes, String> {
        let (word, ends) = (Arc::new(AtomicU32::new(MINE)), Arc::new(AtomicBool::new(false)));
        let (others_word, others_ends) = (Arc::clone(&word), Arc::clone(&ends));
        let answer = move || {
            loop {
                wait(&others_word, OTHERS);
                if others_ends.load(Ordering::Acquire) {
                    return;
                }
                give(&others_word, MINE);
            }
        };
        let thread = start_thread(answer)?;
        Ok(Futexes { word, ends, thread: Some(thread) })
    }
}

impl Body for Futexes {
    fn run(&mut self, rounds: u64) -> Executed {
        for _ in 0..rounds {
            give(&self.word, OTHERS);
            wait(&self.word, MINE);
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
        give(&self.word, OTHERS);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Refuses if fewer than `number` CPUs are online.
pub(super) fn needs_cpus(number: usize) -> Result<(), String> {
    match cpus_of_cpuset() {
        Some(cpus) if cpus >= number => Ok(()),
        _ => Err(format!("it needs {number} CPUs that this process may use")),
    }
}

/// How many CPUs this process may use. The caller is pinned, so a thread of its own asks: the kernel reduces an
/// affinity of all CPUs to the cpuset.
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

/// Made for threads of other kernels that must run elsewhere: all CPUs but the one of the caller.
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
