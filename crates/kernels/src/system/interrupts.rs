//! Interrupts, taken from a loop that reads the clock, and sent to another CPU.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::pairs::{leave_this_cpu, needs_cpus};
use super::{kernel, owned, start_thread, syscall};
use crate::timing::ticks;
use crate::{Body, Executed, Kernel, Rounds};

/// When a timer expires after it was set, ns.
const EXPIRES_NS: i64 = 60_000;
/// Interrupts of a window.
const INTERRUPTS: u64 = 4;
/// Iterations of the loop that are timed to know one without an interrupt.
const PLAIN: usize = 64;
/// A loop that saw no interrupt ends after this many iterations.
const ITERATIONS_MAX: u64 = 2_000_000;
/// An interrupted iteration takes at least this multiple of a plain iteration's time.
const INTERRUPTED: u64 = 8;

pub(super) fn kernels() -> Vec<Kernel> {
    vec![
        kernel(
            (
                "timer_interrupt",
                "interrupt",
                "What a timer's interrupt takes from a loop that reads the clock, from entry to exit.",
            ),
            || {
                // SAFETY: creates a descriptor.
                let timer =
                    unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
                Ok(Box::new(Timer { timer: owned("timerfd_create", timer.into())? }))
            },
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

/// A timer, and a loop that it interrupts.
struct Timer {
    timer: OwnedFd,
}

impl Timer {
    fn set(&self) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: 0, tv_nsec: EXPIRES_NS };
        let setting = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the descriptor is a timer's, and the setting outlives the call.
        unsafe {
            libc::timerfd_settime(
                self.timer.as_raw_fd(),
                0,
                &raw const setting,
                std::ptr::null_mut(),
            );
        }
    }

    /// Whether it has expired since it was set.
    fn has_expired(&self) -> bool {
        let mut poll =
            libc::pollfd { fd: self.timer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which outlives the call; it does not wait.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }
}

/// The shortest iteration of the loop.
fn plain_ticks() -> u64 {
    let mut last = ticks();
    let mut iteration = || {
        let now = ticks();
        now - std::mem::replace(&mut last, now)
    };
    (0..PLAIN).map(|_| iteration()).min().unwrap_or(0)
}

impl Body for Timer {
    fn run(&mut self, rounds: u64) -> Executed {
        let plain = plain_ticks();
        let (mut taken, mut units) = (0, 0);
        for _ in 0..rounds {
            self.set();
            let mut last = ticks();
            for _ in 0..ITERATIONS_MAX {
                let now = ticks();
                let length = now - last;
                last = now;
                if length > plain * INTERRUPTED {
                    // The first detour may be another one's.
                    if self.has_expired() {
                        (taken, units) = (taken + length - plain, units + 1);
                        break;
                    }
                    last = ticks();
                }
            }
        }
        Executed { units: units as f64, ticks: Some(taken) }
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(INTERRUPTS)
    }
}

/// Commands of membarrier(2).
const REGISTER: usize = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as usize;
const BARRIER: usize = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED as usize;

/// A thread on another CPU, which each barrier interrupts.
struct Interprocessor {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Interprocessor {
    fn new() -> Result<Interprocessor, String> {
        needs_cpus(2)?;
        let registered = syscall(libc::SYS_membarrier, [REGISTER, 0, 0]);
        if registered < 0 {
            let error = std::io::Error::from_raw_os_error(-registered as i32);
            return Err(format!("membarrier: {error}"));
        }
        let ends = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicBool::new(false));
        let (others_ends, others_started) = (Arc::clone(&ends), Arc::clone(&started));
        let spin = move || {
            let moved = leave_this_cpu();
            others_started.store(true, Ordering::Release);
            while moved.is_ok() && !others_ends.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        };
        let thread = start_thread(spin)?;
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(Interprocessor { ends, thread: Some(thread) })
    }
}

impl Body for Interprocessor {
    fn run(&mut self, rounds: u64) -> Executed {
        for _ in 0..rounds {
            syscall(libc::SYS_membarrier, [BARRIER, 0, 0]);
        }
        Executed::whole(rounds)
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
