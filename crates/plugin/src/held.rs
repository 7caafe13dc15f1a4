//! Annotations hold the machine, so that its state can be saved where they are.
//!
//! QEMU saves a machine that is stopped, and stops it when its main loop gets to it. Here the vCPUs'
//! thread waits between two blocks, until what reads QEMU's standard error output has stopped the
//! machine by the monitor, saved it, and let it go on. Nothing runs meanwhile and guest time stands
//! still. So the guest is saved where it would be each time, and does not notice.
//!
//! Where vCPUs run in slices, that is where the slice ends in which the annotation was hit: a slice
//! that ended early would change the order of all that follow.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::delay;
use crate::idle;
use crate::qemu_internals::held::HeldMachine;
use crate::session::{self, Session};
use simrecord::messages::{HELD, REGION_CLOSED, REGION_OPEN};

/// Checkpoints that were asked for.
struct Wanted {
    /// Their numbers, in the order in which they came.
    all: Vec<u32>,
    /// How many of them have been saved.
    saved: usize,
    /// Whether the machine is to leave its block for them.
    is_asked: bool,
    /// Whether the record is to end behind them.
    stops: bool,
}

static WANTED: Mutex<Wanted> =
    Mutex::new(Wanted { all: Vec::new(), saved: 0, is_asked: false, stops: false });

/// Whether one waits; looked at behind each slice.
static IS_WAITING: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Wanted> {
    WANTED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wanted {
    fn is_waiting(&self) -> bool {
        self.saved < self.all.len()
    }
}

/// A checkpoint is to be saved; each number once. `in_slice`: not before the slice ends.
pub(crate) fn want(number: u32, in_slice: bool) {
    let mut wanted = lock();
    if wanted.all.contains(&number) {
        return;
    }
    wanted.all.push(number);
    drop(wanted);
    IS_WAITING.store(true, Ordering::Relaxed);
    if !in_slice {
        ask();
    }
}

/// If a checkpoint waits, the record ends behind it; whether one does.
pub(crate) fn stops_too() -> bool {
    let mut wanted = lock();
    wanted.stops |= wanted.is_waiting();
    wanted.is_waiting()
}

/// The block that runs or begins is the last of a slice, or no disk works any longer.
#[inline]
pub(crate) fn ask() {
    if IS_WAITING.load(Ordering::Relaxed) {
        ask_for_one();
    }
}

#[cold]
fn ask_for_one() {
    // QEMU would let waiting requests go when it stops. Behind the last one this is called again.
    if delay::is_waiting() {
        return;
    }
    let mut wanted = lock();
    if wanted.is_asked {
        return;
    }
    if let Some(machine) = HeldMachine::find() {
        wanted.is_asked = true;
        drop(wanted);
        machine.at_end_of_block(on_end_of_block);
    } else {
        eprintln!("irqlab plugin: this QEMU can't be held: no checkpoint is saved");
        wanted.saved = wanted.all.len();
        IS_WAITING.store(false, Ordering::Relaxed);
    }
}

/// Work of the last vCPU. What was put off for any vCPU in the same block comes first.
extern "C" fn on_end_of_block(_: *mut c_void, _: usize) {
    if let Some(machine) = HeldMachine::find() {
        machine.at_end_of_block(on_all_done);
    }
}

extern "C" fn on_all_done(_: *mut c_void, _: usize) {
    let Some(machine) = HeldMachine::find() else { return };
    machine.run_timers();
    lock().is_asked = false;
    while !delay::is_waiting()
        && let Some(number) = next()
    {
        say(number);
        machine.wait();
        lock().saved += 1;
    }
    let stops = {
        let mut wanted = lock();
        IS_WAITING.store(wanted.is_waiting(), Ordering::Relaxed);
        !wanted.is_waiting() && std::mem::take(&mut wanted.stops)
    };
    if stops && let Some(session) = session::lock().as_mut() {
        session.stop_between_blocks();
    }
    idle::look();
}

fn next() -> Option<u32> {
    let wanted = lock();
    wanted.all.get(wanted.saved).copied()
}

/// Tells who reads QEMU's standard error output.
fn say(number: u32) {
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    session.save_pmus();
    let region = if session.open { REGION_OPEN } else { REGION_CLOSED };
    eprintln!("{}{number} {region}", HELD);
}

impl Session {
    /// Whether a vCPU's slice will end by itself.
    pub(crate) fn runs_in_slices(&self) -> bool {
        self.counts() && self.clock.has_slices()
    }
}
