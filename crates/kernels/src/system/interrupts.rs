//! Kernels of interrupts: of a timer that interrupts a loop, and of another CPU that must answer an interprocessor
//! interrupt.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::pairs::{leave_this_cpu, needs_cpus};
use super::{kernel, owned, start_thread, syscall};
use crate::timing::ticks;
use crate::{Body, Executed, Kernel, Made, Rounds};

/// How long after its setting a timer expires soon, in ns.
const EXPIRES_NS: i64 = 60_000;
/// Timer interrupts per window.
const INTERRUPTS: u64 = 4;
/// Iterations of the loop that are timed to know the time of an iteration without an interrupt.
const PLAIN_ITERATIONS: usize = 64;
/// The loop ends after this number of iterations, even if it saw no interrupt.
const ITERATIONS_MAX: u64 = 2_000_000;
/// An iteration counts as interrupted if it takes longer than this multiple of an iteration without an interrupt.
const INTERRUPTED_RATIO: u64 = 8;

/// The kernels of interrupts, timers, calls of other CPUs and signals.
pub(super) fn kernels() -> Vec<Kernel> {
    vec![
        kernel(
            (
                "timer_interrupt",
                "interrupt",
                "What a timer's interrupt takes from a loop that reads the clock, from entry to exit.",
            ),
            || Ok(Box::new(Timer { timer: timer()? })),
        ),
        kernel(
            (
                "timer_first",
                "timer",
                "A timer set that is due before all others, and cancelled: the local timer is set twice.",
            ),
            || set_and_cancel(SOON),
        ),
        kernel(
            ("timer_later", "timer", "A timer set that is due after all others, and cancelled."),
            || set_and_cancel(LATE),
        ),
        kernel(
            (
                "ipi",
                "call",
                "An interprocessor interrupt to a CPU that executes a loop, and its answer (membarrier).",
            ),
            || Ok(Box::new(Interprocessor::new()?)),
        ),
    ]
}

/// When the timer of `timer_first` is due: before the next tick, and late enough that it is cancelled first. Setting and
/// cancelling take 12 microseconds where they exit to a hypervisor.
const SOON: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: EXPIRES_NS };
/// When the timer of `timer_later` is due: after all others.
const LATE: libc::timespec = libc::timespec { tv_sec: 100_000, tv_nsec: 0 };
const ZERO: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// Makes a timer.
fn timer() -> Result<OwnedFd, String> {
    // SAFETY: creates a descriptor.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    owned("timerfd_create", timer.into())
}

/// Lets a timer expire once, after `time`. Zero cancels it. Returns whether it was set before and has not expired.
fn set_timer(timer: &OwnedFd, time: libc::timespec) -> bool {
    let setting = libc::itimerspec { it_interval: ZERO, it_value: time };
    let mut before = libc::itimerspec { it_interval: ZERO, it_value: ZERO };
    // SAFETY: the descriptor is a timer's, and both settings outlive the call.
    unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, &raw mut before);
    }
    before.it_value.tv_sec > 0 || before.it_value.tv_nsec > 0
}

/// The body of a kernel that sets a timer and cancels it.
struct SetAndCancel {
    timer: OwnedFd,
    /// When the timer is due after it is set.
    time: libc::timespec,
}

impl Body for SetAndCancel {
    fn run(&mut self, rounds: u64) -> Executed {
        let mut was_disturbed = false;
        for _ in 0..rounds {
            set_timer(&self.timer, self.time);
            // A timer that expires before it is cancelled interrupts this thread.
            was_disturbed |= !set_timer(&self.timer, ZERO);
        }
        Executed { was_disturbed, ..Executed::whole(rounds) }
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(20)
    }
}

/// Makes the body of a kernel that sets a timer, due after `time`, and cancels it.
fn set_and_cancel(time: libc::timespec) -> Made {
    Ok(Box::new(SetAndCancel { timer: timer()?, time }))
}

/// The body of `timer_interrupt`: a timer, and a loop that it interrupts. The kernel times the interrupted iterations
/// itself.
struct Timer {
    timer: OwnedFd,
}

impl Timer {
    /// Whether the timer has expired since the last time it was set.
    fn has_expired(&self) -> bool {
        let mut poll =
            libc::pollfd { fd: self.timer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which outlives the call; it does not wait.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }
}

/// Ticks of the shortest of some iterations of the loop: one without an interrupt.
fn plain_ticks() -> u64 {
    let mut last = ticks();
    let mut iteration = || {
        let now = ticks();
        now - std::mem::replace(&mut last, now)
    };
    (0..PLAIN_ITERATIONS).map(|_| iteration()).min().unwrap_or(0)
}

impl Body for Timer {
    fn run(&mut self, rounds: u64) -> Executed {
        let plain = plain_ticks();
        let (mut interrupt_ticks, mut interrupts) = (0, 0);
        for _ in 0..rounds {
            set_timer(&self.timer, SOON);
            let mut last = ticks();
            for _ in 0..ITERATIONS_MAX {
                let now = ticks();
                let length = now - last;
                last = now;
                if length > plain * INTERRUPTED_RATIO {
                    // Something else than the timer may have interrupted the loop.
                    if self.has_expired() {
                        (interrupt_ticks, interrupts) =
                            (interrupt_ticks + length - plain, interrupts + 1);
                        break;
                    }
                    last = ticks();
                }
            }
        }
        Executed { units: interrupts as f64, ticks: Some(interrupt_ticks), was_disturbed: false }
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(INTERRUPTS)
    }
}

/// Commands of membarrier(2): registration of this process, and a barrier.
const REGISTER: usize = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as usize;
const BARRIER: usize = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED as usize;

/// The body of `ipi`. A thread spins on another CPU. Each barrier interrupts that CPU and waits for its answer.
struct Interprocessor {
    /// Set to end the thread.
    ends: Arc<AtomicBool>,
    /// Turns of the thread's loop. A thread that makes none during a window does not run: then barriers interrupt no CPU.
    turns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Interprocessor {
    /// Starts the thread, and waits until it runs on another CPU. Registers this process for barriers.
    fn new() -> Result<Interprocessor, String> {
        needs_cpus(2)?;
        let registered = syscall(libc::SYS_membarrier, [REGISTER, 0, 0]);
        if registered < 0 {
            let error = std::io::Error::from_raw_os_error(-registered as i32);
            return Err(format!("membarrier: {error}"));
        }
        let ends = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicBool::new(false));
        let has_moved = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicU64::new(0));
        let (thread_ends, thread_started) = (Arc::clone(&ends), Arc::clone(&started));
        let thread_turns = Arc::clone(&turns);
        let thread_moved = Arc::clone(&has_moved);
        let spin = move || {
            let moved = leave_this_cpu();
            thread_moved.store(moved.is_ok(), Ordering::Relaxed);
            thread_started.store(true, Ordering::Release);
            while moved.is_ok() && !thread_ends.load(Ordering::Acquire) {
                // No other thread writes the number.
                thread_turns.store(thread_turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                std::hint::spin_loop();
            }
        };
        let thread = start_thread(spin)?;
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        if !has_moved.load(Ordering::Relaxed) {
            // Barriers would interrupt no CPU.
            return Err("the thread to interrupt cannot leave this CPU".to_owned());
        }
        Ok(Interprocessor { ends, turns, thread: Some(thread) })
    }
}

/// How often [`Interprocessor::makes_turn`] looks: some ten microseconds.
const LOOKS: u32 = 2_000;

impl Interprocessor {
    /// Whether the thread makes a turn of its loop soon.
    fn makes_turn(&self) -> bool {
        let before = self.turns.load(Ordering::Relaxed);
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.turns.load(Ordering::Relaxed) != before
        })
    }
}

impl Body for Interprocessor {
    fn run(&mut self, rounds: u64) -> Executed {
        let ran_before = self.makes_turn();
        let started = ticks();
        for _ in 0..rounds {
            syscall(libc::SYS_membarrier, [BARRIER, 0, 0]);
        }
        let barrier_ticks = ticks() - started;
        // Another program takes the CPU for much longer than a window.
        let was_disturbed = !ran_before || !self.makes_turn();
        Executed { units: rounds as f64, ticks: Some(barrier_ticks), was_disturbed }
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(10)
    }
}

impl Drop for Interprocessor {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.thread.take().map(JoinHandle::join);
    }
}
