//! When all vCPUs are halted, guest time jumps to the next timer.
//!
//! QEMU leaves the jump to its main loop, which is another thread. It checks for idle vCPUs at
//! times that depend on the host, possibly before the vCPUs' thread has done the work after a halt:
//! count the instructions of the slice, stop the timer that switches vCPUs, and continue with the
//! first vCPU. The guest's clock, and the order and length of the slices, would then depend on the
//! host. So the vCPUs' thread makes the jump. It queues the jump before the halt, as work for a
//! vCPU, which is therefore not idle: the main loop never finds all of them halted.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::qemu::qemu_internals::idle::{Jump, Jumps};
use crate::session;
use crate::writer::Writer;
use simrecord::record::Notice;

/// The most jumps in a row. If the machine sleeps for longer, the main loop makes the further jumps, because it must
/// run to end the machine. With several vCPUs a jump is at most 0.1 s of guest time.
const JUMPS_MAX: u32 = 10_000;

/// `None` if the main loop jumps.
static JUMPS: OnceLock<Option<Jumps>> = OnceLock::new();
/// Whether QEMU did not jump as expected. The main loop then makes all further jumps.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Finds QEMU's functions, when the first vCPU is created.
pub(crate) fn begin(writer: &mut Writer) {
    if JUMPS.get().is_none() && JUMPS.get_or_init(Jumps::find).is_none() {
        writer.notice(Notice::DevicesNotDrained, 0, 2);
    }
}

/// A vCPU of `cpus` is about to halt.
pub(crate) fn before_halt(cpus: u32) {
    if let Some(Some(jumps)) = JUMPS.get()
        && !GIVEN_UP.load(Ordering::Relaxed)
    {
        // Work of the last vCPU is done last. So no later work keeps a vCPU from being idle.
        jumps.at_end_of_block(cpus - 1, on_halted);
    }
}

extern "C" fn on_halted(_: *mut c_void, _: usize) {
    look();
}

/// Jumps, if all vCPUs are halted. With QEMU's big lock, between two blocks.
pub(crate) fn look() {
    let Some(Some(jumps)) = JUMPS.get() else { return };
    for _ in 0..JUMPS_MAX {
        match jumps.jump() {
            Jump::Made => {}
            Jump::NotIdle | Jump::NoTimer => return,
            Jump::Wrong => return give_up(),
        }
    }
}

#[cold]
fn give_up() {
    GIVEN_UP.store(true, Ordering::Relaxed);
    if let Some(session) = session::lock().as_mut()
        && !session.writer.has_ended()
    {
        session.writer.notice(Notice::DevicesNotDrained, 0, 3);
    }
}
