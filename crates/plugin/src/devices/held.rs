//! Annotations hold the machine, so that its state can be saved at their place.
//!
//! QEMU can save only a stopped machine, and stops it at a time that depends on its main loop. Here the vCPUs'
//! thread waits between two blocks. Meanwhile the reader of QEMU's standard error output stops the machine by
//! the monitor, saves it, and continues it. Nothing runs in that time, and guest time does not advance. So the
//! guest is saved at the same place each time, and cannot detect it.
//!
//! If vCPUs run in time slices, the machine is held when the slice with the annotation ends. An earlier end of that
//! slice would change the order of all later slices.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::devices::delay;
use crate::qemu::qemu_internals::held::HeldMachine;
use crate::session;
use crate::time::idle;
use simrecord::messages::{HELD, REGION_CLOSED, REGION_OPEN};

/// Requested checkpoints.
struct Checkpoints {
    /// Their numbers, in the order of the requests.
    all: Vec<u32>,
    /// How many of them have been saved.
    saved: usize,
    /// Whether the machine was asked to leave its block for them.
    is_asked: bool,
    /// Whether the record is to end after them.
    stops: bool,
}

static CHECKPOINTS: Mutex<Checkpoints> =
    Mutex::new(Checkpoints { all: Vec::new(), saved: 0, is_asked: false, stops: false });

/// Whether a checkpoint waits; read after each slice.
static IS_WAITING: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Checkpoints> {
    CHECKPOINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpoints {
    fn is_waiting(&self) -> bool {
        self.saved < self.all.len()
    }
}

/// Requests a checkpoint. Each number is saved once. With `in_slice`, the machine is not held before the slice ends.
pub(crate) fn want(number: u32, in_slice: bool) {
    let mut checkpoints = lock();
    if checkpoints.all.contains(&number) {
        return;
    }
    checkpoints.all.push(number);
    drop(checkpoints);
    IS_WAITING.store(true, Ordering::Relaxed);
    if !in_slice {
        ask();
    }
}

/// If a checkpoint waits, the record ends after it. Returns whether a checkpoint waits.
pub(crate) fn stops_too() -> bool {
    let mut checkpoints = lock();
    checkpoints.stops |= checkpoints.is_waiting();
    checkpoints.is_waiting()
}

/// Holds the machine if a checkpoint waits. Called when the current block is the last of a slice, or when no disk has a
/// request any longer.
#[inline]
pub(crate) fn ask() {
    if IS_WAITING.load(Ordering::Relaxed) {
        ask_for_one();
    }
}

#[cold]
fn ask_for_one() {
    // QEMU would complete waiting requests when it stops. This function is called again after the last request.
    if delay::is_waiting() {
        return;
    }
    let mut checkpoints = lock();
    if checkpoints.is_asked {
        return;
    }
    if let Some(machine) = HeldMachine::find() {
        checkpoints.is_asked = true;
        drop(checkpoints);
        machine.at_end_of_block(on_end_of_block);
    } else {
        eprintln!("irqlab plugin: this QEMU can't be held: no checkpoint is saved");
        checkpoints.saved = checkpoints.all.len();
        IS_WAITING.store(false, Ordering::Relaxed);
    }
}

/// Work of the last vCPU. Work that was queued for any vCPU in the same block comes first.
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
        let mut checkpoints = lock();
        IS_WAITING.store(checkpoints.is_waiting(), Ordering::Relaxed);
        !checkpoints.is_waiting() && std::mem::take(&mut checkpoints.stops)
    };
    if stops && let Some(session) = session::lock().as_mut() {
        session.stop(0, 0);
    }
    idle::look();
}

fn next() -> Option<u32> {
    let checkpoints = lock();
    checkpoints.all.get(checkpoints.saved).copied()
}

/// Reports the held machine on the standard error output, which `sim` reads.
fn say(number: u32) {
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    session.save_pmus();
    let region = if session.regions.is_open() { REGION_OPEN } else { REGION_CLOSED };
    eprintln!("{}{number} {region}", HELD);
}
