//! Holds the machine at an annotation, so that `sim` can save its state as a checkpoint.
//!
//! QEMU can save only a stopped machine, and the time at which it stops a machine depends on its main loop. Here the
//! vCPUs' thread waits between two blocks, and prints a message on the standard error output. `sim` reads the message,
//! stops the machine by QEMU's monitor, saves it, and continues it. Nothing runs in that time, and guest time does not
//! advance. So the guest is saved at the same place each time, and cannot detect it.
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
    /// The numbers of all checkpoints, in the order of the requests.
    numbers: Vec<u32>,
    /// How many of them have been saved.
    saved: usize,
    /// Whether the vCPU was made to leave its block for the next checkpoint.
    leaves_block: bool,
    /// Whether the record ends once all requested checkpoints are saved.
    ends_record: bool,
}

static CHECKPOINTS: Mutex<Checkpoints> = Mutex::new(Checkpoints {
    numbers: Vec::new(),
    saved: 0,
    leaves_block: false,
    ends_record: false,
});

/// Whether a checkpoint waits to be saved. Read after each slice, without the lock.
static IS_WAITING: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Checkpoints> {
    CHECKPOINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpoints {
    fn is_waiting(&self) -> bool {
        self.saved < self.numbers.len()
    }
}

/// Requests a checkpoint. Each number is saved once. `in_slice`: the machine is held only when the time slice ends.
pub(crate) fn request_checkpoint(number: u32, in_slice: bool) {
    let mut checkpoints = lock();
    if checkpoints.numbers.contains(&number) {
        return;
    }
    checkpoints.numbers.push(number);
    drop(checkpoints);
    IS_WAITING.store(true, Ordering::Relaxed);
    if !in_slice {
        hold_if_requested();
    }
}

/// Makes the record end after the checkpoint that waits to be saved. Returns whether there is such a checkpoint.
pub(crate) fn end_record_after_checkpoint() -> bool {
    let mut checkpoints = lock();
    checkpoints.ends_record |= checkpoints.is_waiting();
    checkpoints.is_waiting()
}

/// Holds the machine after the running block if a checkpoint waits to be saved. Called in the last block of a time
/// slice, at a halt, and when no request of a disk is held any longer.
#[inline]
pub(crate) fn hold_if_requested() {
    if IS_WAITING.load(Ordering::Relaxed) {
        hold_at_end_of_block();
    }
}

/// Holds the machine after the running block, unless requests of disks are held.
#[cold]
fn hold_at_end_of_block() {
    // QEMU would complete held requests when it stops. This function is called again after the last of them.
    if delay::is_holding_requests() {
        return;
    }
    let mut checkpoints = lock();
    if checkpoints.leaves_block {
        return;
    }
    if let Some(machine) = HeldMachine::find() {
        checkpoints.leaves_block = true;
        drop(checkpoints);
        machine.at_end_of_block(on_end_of_block);
    } else {
        eprintln!(
            "irqlab plugin: this QEMU cannot be stopped at an annotation: no checkpoint is saved"
        );
        checkpoints.saved = checkpoints.numbers.len();
        IS_WAITING.store(false, Ordering::Relaxed);
    }
}

/// QEMU calls this between two blocks, as work of the last vCPU. Other work that the block has queued may follow, so
/// the machine is held by work that is queued now.
extern "C" fn on_end_of_block(_: *mut c_void, _: usize) {
    if let Some(machine) = HeldMachine::find() {
        machine.at_end_of_block(on_all_done);
    }
}

/// QEMU calls this between two blocks, after all other queued work. Holds the machine for each checkpoint that waits.
extern "C" fn on_all_done(_: *mut c_void, _: usize) {
    let Some(machine) = HeldMachine::find() else { return };
    machine.run_timers();
    lock().leaves_block = false;
    while !delay::is_holding_requests()
        && let Some(number) = next_number()
    {
        report_held(number);
        machine.wait();
        lock().saved += 1;
    }
    let ends_record = {
        let mut checkpoints = lock();
        IS_WAITING.store(checkpoints.is_waiting(), Ordering::Relaxed);
        !checkpoints.is_waiting() && std::mem::take(&mut checkpoints.ends_record)
    };
    if ends_record && let Some(session) = session::lock().as_mut() {
        session.stop(0, 0);
    }
    idle::jump_if_all_halted();
}

/// The number of the next checkpoint to save. `None` if all requested checkpoints are saved.
fn next_number() -> Option<u32> {
    let checkpoints = lock();
    checkpoints.numbers.get(checkpoints.saved).copied()
}

/// Reports on the standard error output, which `sim` reads, that the machine is held for checkpoint `number`.
fn report_held(number: u32) {
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    session.save_pmus();
    let region = if session.regions.is_open() { REGION_OPEN } else { REGION_CLOSED };
    eprintln!("{}{number} {region}", HELD);
}
