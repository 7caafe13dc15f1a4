//! Requests of disks are held and woken, as [`crate::devices::delay`] says.
//!
//! Each request of a disk is a coroutine of QEMU. Before it reaches the data it passes a node of
//! the driver `blkdebug`, whose event function is replaced here. The replacement pauses the
//! coroutine, and a timer in guest time wakes it, request by request, in the order of their
//! deadlines. The transfer itself takes no guest time.

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
    if let Err(disk) = delay::begin(disks, hold_at) {
        writer.notice(Notice::NoDisk, 0, disk as u64);
    }
}

/// Prepares for holding the requests of all disks, at the node of one of them.
fn hold_at(node: BlockNode) -> Option<HeldRequests> {
    let coroutines = Coroutines::find()?;
    let timer = Timer::new(on_timer)?;
    let names = [c"read_aio", c"write_aio", c"flush_to_disk", c"pwritev_zero"];
    if !on_run_or_stop(on_state) {
        return None;
    }
    // Last: the callback needs all the others.
    let [read, write, flush, zeroes] = hook_block_events(node, on_event, names)?;
    Some(HeldRequests { coroutines, timer, events: [read, write, flush], zeroes })
}

/// A request passes a node; called in its coroutine.
extern "C" fn on_event(node: *mut c_void, event: c_int) {
    if let Some(coroutines) = delay::hold(node as usize, event) {
        drain::drain_soon();
        coroutines.pause();
    }
}

extern "C" fn on_timer(_: *mut c_void) {
    let Some((coroutines, timer)) = delay::wakes() else { return };
    while let Some(request) = delay::take_due(timer.now_ns()) {
        coroutines.wake(request);
        // The request's transfer ends before the next request starts.
        drain::drain_devices();
    }
    if let Some(at_ns) = delay::earliest() {
        timer.set_ns(at_ns);
    } else {
        held::ask();
    }
}

/// The machine starts to run, or stops. QEMU waits for all requests when it
/// stops, so they are released before.
extern "C" fn on_state(_: *mut c_void, runs: bool, _: c_int) {
    delay::set_runs(runs);
    if !runs {
        drain::does_not_ring();
        while let Some((coroutines, request)) = delay::take_any() {
            coroutines.wake(request);
        }
    }
}
