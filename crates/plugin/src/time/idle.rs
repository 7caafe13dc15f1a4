//! Makes guest time jump to the next timer when all vCPUs are halted. `qemu/callbacks.rs` calls [`before_halt`] at each
//! halt of a vCPU.
//!
//! QEMU leaves the jump to its main loop, which is another thread. The main loop checks for idle vCPUs at times that
//! depend on the host. It may do so before the vCPUs' thread has completed a halt: counted the instructions of the
//! slice, stopped the timer that switches vCPUs, and returned to the first vCPU. The guest's clock, and the order and
//! length of the slices, would then depend on the host.
//!
//! So the vCPUs' thread makes the jump itself. Before the halt it queues the jump as work for a vCPU. A vCPU with
//! queued work is not idle, so the main loop never finds all vCPUs idle.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::qemu::qemu_internals::idle::{Jump, Jumps};
use crate::session;
use crate::writer::Writer;
use simrecord::record::Notice;

/// The most successive jumps. If the machine sleeps for longer, the main loop makes the further jumps, because the main
/// loop must run to end the machine. With several vCPUs a jump is at most 0.1 s of guest time.
const JUMPS_MAX: u32 = 10_000;

/// QEMU's functions. `None` inside: this QEMU lacks them, and its main loop jumps.
static JUMPS: OnceLock<Option<Jumps>> = OnceLock::new();
/// Whether QEMU did not jump as expected. The main loop then makes all further jumps.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Finds QEMU's functions. Called at the creation of each vCPU; only the first call does anything.
pub(crate) fn find_jump_functions(writer: &mut Writer) {
    if JUMPS.get().is_none() && JUMPS.get_or_init(Jumps::find).is_none() {
        writer.notice(Notice::DevicesNotDrained, 0, 2);
    }
}

/// Queues a jump, because one of the `cpus` vCPUs is about to halt.
pub(crate) fn before_halt(cpus: u32) {
    if let Some(Some(jumps)) = JUMPS.get()
        && !GIVEN_UP.load(Ordering::Relaxed)
    {
        // QEMU does the work of the last vCPU last. So no other queued work keeps a vCPU from being idle.
        jumps.at_end_of_block(cpus - 1, on_halted);
    }
}

extern "C" fn on_halted(_: *mut c_void, _: usize) {
    jump_if_all_halted();
}

/// Makes guest time jump from timer to timer while all vCPUs are halted. Call it with QEMU's big lock, between two
/// blocks.
pub(crate) fn jump_if_all_halted() {
    let Some(Some(jumps)) = JUMPS.get() else { return };
    for _ in 0..JUMPS_MAX {
        match jumps.jump() {
            Jump::Made => {}
            Jump::NotIdle | Jump::NoTimer => return,
            Jump::Wrong => return give_up(),
        }
    }
}

/// Leaves all further jumps to QEMU's main loop, and writes a notice.
#[cold]
fn give_up() {
    GIVEN_UP.store(true, Ordering::Relaxed);
    if let Some(session) = session::lock().as_mut()
        && !session.writer.has_ended()
    {
        session.writer.notice(Notice::DevicesNotDrained, 0, 3);
    }
}
