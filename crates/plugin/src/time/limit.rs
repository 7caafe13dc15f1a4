//! Ends the machine when its guest time is up, even if the kernel hangs.
//!
//! The limit (option `limit_ns`) is a QEMU timer in guest time. It is set when the machine first runs, so no
//! instruction is slower. If every CPU of the guest sleeps for good, guest time jumps to the limit at once.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::qemu::qemu_internals::devices::{Timer, on_run_or_stop, shut_down};
use simrecord::messages::LIMIT_REACHED;

/// The guest time that the machine may run, in nanoseconds. `i64::MAX`: no limit.
static LIMIT_NS: AtomicI64 = AtomicI64::new(i64::MAX);
/// The timer, once the first vCPU is made.
static TIMER: Mutex<Option<Timer>> = Mutex::new(None);
/// Whether the machine has run. QEMU also reports later starts, after stops, which must not set the timer again.
static HAS_RUN: AtomicBool = AtomicBool::new(false);

/// Sets the limit of guest time. Call it before [`create_timer`].
pub(crate) fn set(limit_ns: u64) {
    LIMIT_NS.store(i64::try_from(limit_ns).unwrap_or(i64::MAX), Ordering::Relaxed);
}

/// Creates the timer if there is a limit. Called at the creation of each vCPU; only the first call does anything.
pub(crate) fn create_timer() {
    let mut timer = TIMER.lock().unwrap_or_else(PoisonError::into_inner);
    if timer.is_some() || LIMIT_NS.load(Ordering::Relaxed) == i64::MAX {
        return;
    }
    let new_timer = Timer::new(on_timer);
    if new_timer.is_some() && on_run_or_stop(on_state) {
        *timer = new_timer;
    }
    if timer.is_none() {
        eprintln!("irqlab plugin: this QEMU has no timers for a plugin: guest time has no limit");
    }
}

/// The machine starts to run, or stops.
extern "C" fn on_state(_: *mut c_void, runs: bool, _: i32) {
    if !runs || HAS_RUN.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Some(timer) = *TIMER.lock().unwrap_or_else(PoisonError::into_inner) {
        // The limit counts from now on: the clock of a restored machine does not start at zero.
        timer.set_ns(timer.now_ns().saturating_add(LIMIT_NS.load(Ordering::Relaxed)));
    }
}

/// Ends the machine. `sim` recognises the message.
extern "C" fn on_timer(_: *mut c_void) {
    eprintln!("{}", LIMIT_REACHED);
    if !shut_down() {
        std::process::abort();
    }
}
