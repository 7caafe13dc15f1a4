//! Timers that expire at known times: the ground truth that the detour loop in a simulated machine must detect
//! (`in_guest.rs`).

use std::os::fd::OwnedFd;

use lab::noise::in_guest::{Inject, Injections};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock::Reading;
use crate::spawn::spawn_thread;
use crate::threads::pin;

/// Most timers on one CPU. Each timer is an open file, and the kernel limits their number.
const TIMERS_MAX: u64 = 3_900;

/// Timers that are set. No thread waits for them, so they only raise their interrupts.
pub struct Injector {
    /// The times at which the timers expire, by the time-stamp counter.
    pub set: Injections,
    _timers: Vec<OwnedFd>,
}

impl Injector {
    /// Sets timers on `cpu`, all within `window_ns` after `after_ns` from now. `hz`: frequency of the time-stamp
    /// counter.
    ///
    /// Fails if the kernel refuses a timer.
    pub fn start(
        inject: Inject,
        cpu: u32,
        hz: f64,
        (after_ns, window_ns): (u64, u64),
    ) -> Result<Injector, String> {
        // A timer expires on the CPU on which it was set, unless this CPU is idle.
        let set = move || {
            pin(cpu).map_err(|error| error.to_string())?;
            set_all(inject, hz, (after_ns, window_ns))
        };
        let thread = spawn_thread("irqlab-timers", set).map_err(|error| error.to_string())?;
        thread.join().map_err(|_| "the thread that sets timers died".to_owned())?
    }
}

/// Sets all timers on the calling thread's CPU.
fn set_all(inject: Inject, hz: f64, (after_ns, window_ns): (u64, u64)) -> Result<Injector, String> {
    let limit = getrlimit(Resource::Nofile);
    let raised_limit = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised_limit).map_err(|error| error.to_string())?;
    let now = Reading::now().ok_or("no time-stamp counter")?;
    let from_ns = now.ns() + after_ns;
    let (mut timers, mut times) = (Vec::new(), 0);
    loop {
        let expiry_ns = from_ns + (times + 1) * inject.every_ns;
        let simultaneous = u64::from(inject.timers_at(times + 1));
        if expiry_ns >= from_ns + window_ns || timers.len() as u64 + simultaneous > TIMERS_MAX {
            break;
        }
        for _ in 0..simultaneous {
            let set = set_timer(expiry_ns);
            timers.push(set.map_err(|error| format!("setting a timer failed: {error}"))?);
        }
        times += 1;
    }
    let tsc = |ns: u64| now.cycles() + ((ns - now.ns()) as f64 * hz / 1e9).round() as u64;
    let last = tsc(from_ns + times * inject.every_ns);
    Ok(Injector { set: Injections { from: tsc(from_ns), last, times }, _timers: timers })
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
