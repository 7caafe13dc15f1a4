//! Pauses and wakes requests of disks in QEMU, as [`crate::devices::delay`] decides.
//!
//! Each request of a disk is a coroutine of QEMU. Before a request reaches the data it passes a node of the driver
//! `blkdebug`, whose event function is replaced here. The replacement pauses the coroutine. A timer in guest time wakes
//! one request after the other, in the order of their deadlines. The transfer itself takes no guest time.

use std::ffi::{c_int, c_void};

use crate::devices::delay::{self, HeldRequests};
use crate::devices::drain;
use crate::devices::held;
use crate::qemu::qemu_internals::devices::{
    BlockNode, Coroutines, Timer, hook_block_events, on_run_or_stop,
};
use crate::writer::Writer;
use plugin_interface::options::Disk;
use simrecord::record::Notice;

/// Starts draining devices and holding requests of disks, when the first vCPU is created.
pub(crate) fn start(disks: &[Disk], writer: &mut Writer) {
    if !drain::start(writer) {
        return;
    }
    if let Err(disk) = delay::find_disks(disks, hold_at) {
        writer.notice(Notice::NoDisk, 0, disk as u64);
    }
}

/// Makes QEMU report the requests of all disks to [`on_event`]. `node`: a `blkdebug` node of any disk. `None` if this
/// QEMU does not allow it.
fn hold_at(node: BlockNode) -> Option<HeldRequests> {
    let coroutines = Coroutines::find()?;
    let timer = Timer::new(on_timer)?;
    let names = [c"read_aio", c"write_aio", c"flush_to_disk", c"pwritev_zero"];
    if !on_run_or_stop(on_state) {
        return None;
    }
    // Last: from here on QEMU calls `on_event`, which needs everything above.
    let [read, write, flush, zeroes] = hook_block_events(node, on_event, names)?;
    Some(HeldRequests { coroutines, timer, events: [read, write, flush], zeroes })
}

/// QEMU calls this in the coroutine of a request that passes a node. Holds the request.
extern "C" fn on_event(node: *mut c_void, event: c_int) {
    if let Some(coroutines) = delay::hold(node as usize, event) {
        drain::drain_soon();
        coroutines.pause();
    }
}

/// QEMU calls this when the earliest deadline is reached. Wakes the requests that are due.
extern "C" fn on_timer(_: *mut c_void) {
    let Some((coroutines, timer)) = delay::coroutines_and_timer() else { return };
    while let Some(request) = delay::take_due_request(timer.now_ns()) {
        coroutines.wake(request);
        // The request's transfer ends before the next request starts.
        drain::drain_devices();
    }
    if let Some(at_ns) = delay::earliest_deadline() {
        timer.set_ns(at_ns);
    } else {
        held::hold_if_requested();
    }
}

/// QEMU calls this when the machine starts to run, or stops. At a stop, QEMU waits until all requests are complete, so
/// all held requests are woken.
extern "C" fn on_state(_: *mut c_void, runs: bool, _: c_int) {
    delay::set_machine_runs(runs);
    if !runs {
        drain::does_not_ring();
        while let Some((coroutines, request)) = delay::take_any_request() {
            coroutines.wake(request);
        }
    }
}
