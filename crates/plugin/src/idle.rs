//! All vCPUs are halted: guest time goes on to the next timer.
//!
//! QEMU leaves the jump to its main loop, which is another thread. It looks whether all vCPUs are
//! halted whenever the host lets it, and may find them so when the vCPUs' thread has not yet done
//! what follows a halt: to count the instructions of the slice, to stop the timer by which vCPUs take
//! turns, and to go on with the first vCPU. The guest's clock, and which vCPU runs next and for how
//! long, then depend on the host. So the vCPUs' thread jumps itself. It asks for that before the halt
//! and as work for a vCPU, which is not idle therefore: the main loop never finds all of them halted.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::options::Time;
use crate::qemu_internals::idle::{Jump, Jumps};
use crate::session::{self, Session};
use simrecord::record::Notice;

/// Jumps in a row. A machine that sleeps for longer, or for ever, is left to the main loop, which
/// must have its turn to end it. With several vCPUs a jump is at most 0.1 s of guest time.
const JUMPS_MAX: u32 = 10_000;

/// `None` if the main loop jumps.
static JUMPS: OnceLock<Option<Jumps>> = OnceLock::new();
/// QEMU does not jump as it must.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Makes ready, when the first vCPU is made.
pub(crate) fn begin(session: &mut Session) {
    if session.options.time == Time::Host || JUMPS.get().is_some() {
        return;
    }
    if JUMPS.get_or_init(Jumps::find).is_none() {
        session.notice(Notice::DevicesNotDrained, 0, 2);
    }
}

/// A vCPU of `cpus` is about to halt.
pub(crate) fn before_halt(cpus: u32) {
    if let Some(Some(jumps)) = JUMPS.get()
        && !GIVEN_UP.load(Ordering::Relaxed)
    {
        // The work of the last vCPU is done last: there is none left behind it that would keep a
        // vCPU from being idle.
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
        && !session.ended
    {
        session.notice(Notice::DevicesNotDrained, 0, 3);
    }
}
