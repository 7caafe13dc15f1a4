//! Small wrappers of system calls for the workers of a stimulus process: pinning, sleeping, signals, random numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute, sched_setaffinity};
use rustix::time::clock_gettime;
use stats::Random;

use super::StimulusSettings;
use super::error::WorkerError;
use crate::threads::{self, cpu_set};

/// Signal that makes a blocked system call of a worker return.
const WAKE_UP: libc::c_int = libc::SIGUSR1;

const NS_PER_S: i64 = 1_000_000_000;

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// Installs an empty handler for the wake-up signal. Without `SA_RESTART`, so that a system call that the signal
/// interrupts returns.
pub(super) fn install_wake_up_signal() {
    // SAFETY: `action` is fully initialised (all-zero is valid for sigaction). The handler touches
    // nothing, so it is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(WAKE_UP, &action, std::ptr::null_mut());
    }
}

/// Ignores the signals of the terminal, which the whole foreground process group gets. The measuring process must
/// get the report before this process ends.
pub(super) fn ignore_terminal_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: SIG_IGN is a valid disposition; no handler of this process is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Interrupts the system call in which `thread` may block. The thread must not be joined yet.
pub(super) fn wake_up(thread: libc::pthread_t) {
    // SAFETY: the caller holds the thread's JoinHandle, so the id is valid.
    unsafe { libc::pthread_kill(thread, WAKE_UP) };
}

/// Pins the calling thread.
pub(super) fn pin(cpu: u32) -> Result<(), WorkerError> {
    threads::pin(cpu).map_err(|error| {
        WorkerError::unavailable(
            error.to_string(),
            "choose online CPUs of this process's cpuset with -c",
        )
    })
}

/// Restricts the calling thread to `cpus`, if the kernel permits.
pub(super) fn prefer(cpus: &[u32]) {
    // Errors are ignored: only the preparation and the idle main thread run here.
    let _ = sched_setaffinity(None, &cpu_set(cpus));
}

/// A CPU other than the first measured one, for the other end of a stimulus. The last housekeeping CPU, else the last
/// usable CPU that is not measured, else the last measured CPU. `None` if there is no other CPU.
pub(super) fn other_cpu(settings: &StimulusSettings) -> Option<u32> {
    choose_other(&settings.cpus, &settings.housekeeping, &settings.usable)
}

fn choose_other(measured: &[u32], housekeeping: &[u32], usable: &[u32]) -> Option<u32> {
    let first = measured.first().copied();
    let is_other = |cpu: &&u32| Some(**cpu) != first;
    housekeeping
        .iter()
        .rfind(is_other)
        .or_else(|| usable.iter().rfind(|cpu| !measured.contains(cpu)))
        .or_else(|| measured.iter().rfind(is_other))
        .copied()
}

/// Deadlines at equal distances on CLOCK_MONOTONIC. After a stall the next deadline is now: missed deadlines
/// do not cause a burst.
pub(super) struct Ticker {
    interval_ns: i64,
    next_ns: i64,
}

impl Ticker {
    /// The first deadline is one interval from now.
    pub fn new(interval: Duration) -> Self {
        let interval_ns = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX / 4);
        Ticker { interval_ns, next_ns: now_ns() }
    }

    pub fn next_deadline(&mut self) -> Timespec {
        self.next_ns = (self.next_ns + self.interval_ns).max(now_ns());
        Timespec { tv_sec: self.next_ns / NS_PER_S, tv_nsec: self.next_ns % NS_PER_S }
    }
}

fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * NS_PER_S + now.tv_nsec
}

/// Sleeps until a time of CLOCK_MONOTONIC. Returns false if a signal ended the sleep early.
pub(super) fn sleep_until(deadline: Timespec) -> bool {
    clock_nanosleep_absolute(ClockId::Monotonic, &deadline).is_ok()
}

/// A generator whose sequence differs in each run, so that a storage device cannot recognise the data.
pub(super) fn random_from_clock() -> Random {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Random::new((now.as_nanos() as u64) ^ (u64::from(std::process::id()) << 48))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_cpu_is_housekeeping_then_unmeasured_then_measured() {
        let check = |cpus: &[u32], housekeeping: &[u32], usable: &[u32], expect| {
            assert_eq!(choose_other(cpus, housekeeping, usable), expect);
        };
        check(&[0], &[1, 2], &[0, 1, 2, 3], Some(2));
        check(&[2], &[1, 2], &[0, 1, 2, 3], Some(1));
        check(&[0, 1], &[], &[0, 1, 2, 3], Some(3));
        check(&[0, 1], &[], &[0, 1], Some(1));
        check(&[0], &[], &[0], None);
        check(&[0], &[0], &[], None);
    }

    #[test]
    fn a_stalled_ticker_does_not_burst() {
        let mut ticker = Ticker::new(Duration::from_millis(1));
        ticker.next_ns -= 1_000_000_000;
        let first = ticker.next_deadline();
        let second = ticker.next_deadline();
        let ns = |t: Timespec| t.tv_sec * NS_PER_S + t.tv_nsec;
        assert!(ns(second) - ns(first) >= 1_000_000);
    }
}
