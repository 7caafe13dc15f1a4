//! Timers that expire at known times: the ground truth that the detour loop in a simulated machine must detect
//! (`in_guest.rs`).

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::thread::JoinHandle;

use lab::noise::in_guest::{Inject, Injections};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock::{Reading, monotonic_ns};
use crate::spawn::spawn_thread;
use crate::threads::pin;

/// Most timers on one CPU. Each timer is an open file, and the kernel limits their number.
const TIMERS_MAX: u64 = 3_900;
/// Room that timers leave for files that the process opens later.
const OTHER_FILES: u64 = 64;
/// Allowance for the time between the setting of the timers and the start of the loop, apart from the loop's warm-up and
/// trials: threads start, and other CPUs set their timers.
const START_NS: u64 = 10_000_000;

/// Timers that are set. No thread waits for them, so they only raise their interrupts.
pub struct Injector {
    /// The times at which the timers expire, by the time-stamp counter.
    pub set: Injections,
    _timers: Vec<OwnedFd>,
}

/// When the loop runs after the timers are set.
#[derive(Clone, Copy)]
pub struct LoopTimes {
    /// Time that the loop takes before its window: the warm-up and the trials.
    pub before_window_ns: u64,
    pub window_ns: u64,
}

/// A thread that sets the timers of a CPU.
pub struct TimerSetter(JoinHandle<Result<Injector, String>>);

impl TimerSetter {
    /// Starts to set at most `timers_max` timers on `cpu`, until the end of the loop's window. `hz`: frequency of the
    /// time-stamp counter.
    ///
    /// Fails if no thread can be started.
    pub fn start(
        inject: Inject,
        cpu: u32,
        hz: f64,
        times: LoopTimes,
        timers_max: u64,
    ) -> Result<TimerSetter, String> {
        // A timer expires on the CPU on which it was set, unless this CPU is idle.
        let set = move || {
            pin(cpu).map_err(|error| error.to_string())?;
            set_all(inject, hz, times, timers_max)
        };
        spawn_thread("irqlab-timers", set).map(TimerSetter).map_err(|error| error.to_string())
    }

    /// Waits until the timers are set.
    ///
    /// Fails if the kernel refuses a timer.
    pub fn finish(self) -> Result<Injector, String> {
        self.0.join().map_err(|_| "the thread that sets timers died".to_owned())?
    }
}

/// Sets all timers on the calling thread's CPU.
fn set_all(inject: Inject, hz: f64, times: LoopTimes, timers_max: u64) -> Result<Injector, String> {
    let now = Reading::now().ok_or("no time-stamp counter")?;
    let from_ns = now.ns() + times.before_window_ns;
    let after_now_ns =
        times.before_window_ns.saturating_add(START_NS).saturating_add(times.window_ns);
    let (mut timers, mut count) = (Vec::new(), 0_u64);
    loop {
        let expiry_ns = from_ns.saturating_add((count + 1).saturating_mul(inject.every_ns));
        let simultaneous = u64::from(inject.timers_at(count + 1));
        // Setting timers takes time, too.
        if expiry_ns >= monotonic_ns().saturating_add(after_now_ns)
            || timers.len() as u64 + simultaneous > timers_max
        {
            break;
        }
        for _ in 0..simultaneous {
            let set = set_timer(expiry_ns);
            timers.push(set.map_err(|error| format!("setting a timer failed: {error}"))?);
        }
        count += 1;
    }
    let tsc = |ns: u64| now.cycles() + ((ns - now.ns()) as f64 * hz / 1e9).round() as u64;
    let last = tsc(from_ns + count * inject.every_ns);
    Ok(Injector { set: Injections { from: tsc(from_ns), last, times: count }, _timers: timers })
}

/// Raises the limit of open files, and makes the process's table of files large enough for the timers of `cpus` CPUs.
/// Returns how many timers each CPU may set.
///
/// The kernel waits for an RCU grace period whenever the table of a process with several threads grows
/// (`expand_fdtable`, fs/file.c): often 10 ms, by which the first timers would expire before the loop starts.
///
/// Fails if there is no room for a single timer of each CPU.
pub fn room_for_timers(cpus: usize) -> Result<u64, String> {
    let room = || -> rustix::io::Result<u64> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let lowest = timer.as_raw_fd() as u64;
        let wanted = lowest + TIMERS_MAX * cpus as u64 + OTHER_FILES;
        let limit = getrlimit(Resource::Nofile);
        let maximum = limit.maximum.map(|maximum| maximum.max(wanted + 1));
        // Without the right to raise the maximum, there is room up to it.
        if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
        }
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let highest = wanted.min(files.saturating_sub(1));
        let _highest = fcntl_dupfd_cloexec(&timer, highest as i32)?;
        Ok(highest.saturating_sub(lowest + OTHER_FILES))
    };
    let refused = |error: String| format!("room for timers is refused: {error}");
    let room = room().map_err(|error| refused(error.to_string()))?;
    match (room / cpus.max(1) as u64).min(TIMERS_MAX) {
        0 => Err(refused(format!("{room} files for {cpus} CPUs"))),
        each => Ok(each),
    }
}

/// Sets a timer that expires once, at `expiry_ns` of CLOCK_MONOTONIC.
fn set_timer(expiry_ns: u64) -> rustix::io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let expiry = Timespec {
        tv_sec: (expiry_ns / 1_000_000_000) as i64,
        tv_nsec: (expiry_ns % 1_000_000_000) as i64,
    };
    let no_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    let once = Itimerspec { it_interval: no_interval, it_value: expiry };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
    Ok(timer)
}
