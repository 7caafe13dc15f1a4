//! Drains devices: a CPU's request to a device is served before the CPU continues. Without this, a run would depend on
//! the host.
//!
//! QEMU serves many requests in its main loop, in another thread. A guest would see the effect at a time that depends
//! on the host. Here the vCPU leaves its block after the instruction that writes a device's doorbell. The vCPUs' thread
//! then does all the work that devices have deferred to the main loop. Requests with a latency
//! ([`crate::devices::delay`]) then wait for a timer in guest time.
//!
//! Two effects would still depend on the host:
//! - Threads of the host end the transfers of several requests in any order. So the plugin releases one request at a
//!   time, and waits for its transfer.
//! - The main loop may do deferred work between the store and the end of the block. It then still sees the guest time
//!   of the slice's start, and may kick vCPUs out of their slices. So the main loop does no deferred work from before
//!   the store until the devices are drained.
//!
//! `translate.rs` calls [`watch`] for each instruction. Under `-icount` an access to a device is the last instruction
//! of its block: if it is not, QEMU leaves the block and executes the instruction alone. So only last instructions are
//! watched.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use machine::VirtualAddress;
use machine::decode::{Decoded, Decoder, DeviceWrite};

use crate::cpu;
use crate::devices::delay;
use crate::models::physical;
use crate::qemu::before_block;
use crate::qemu::ffi::{NO_REGISTERS, WRITES};
use crate::qemu::qemu_internals::devices::{Deferred, EventLoop, MainLoop};
use crate::qemu::{Qemu, TranslatedInstruction};
use crate::session;
use crate::writer::Writer;
use simrecord::record::Notice;

/// Physical addresses of devices that defer no work after a store: VGA, and IO-APIC, HPET and local APIC.
const QUIET_ADDRESSES: [std::ops::Range<u64>; 2] = [0xa_0000..0xc_0000, 0xfec0_0000..0xfef0_0000];
/// Ports that ring no doorbell: interrupt controllers, timers, keyboard, clock, serial ports, PCI
/// configuration, firmware configuration.
const QUIET_PORTS: [std::ops::RangeInclusive<u16>; 10] = [
    0x20..=0x21,
    0x40..=0x43,
    0x60..=0x64,
    0x70..=0x71,
    0x80..=0x80,
    0xa0..=0xa1,
    0x2f8..=0x2ff,
    0x3f8..=0x3ff,
    0x510..=0x51b,
    0xcf8..=0xcff,
];
/// The most successive pieces of deferred work. Bounds the work of a device that never becomes idle.
const EVENTS_MAX: u32 = 1 << 20;

/// Polling interval while a disk's file is read or written.
const TRANSFER_POLL: Duration = Duration::from_micros(5);

/// QEMU's event loop. `None` inside: this QEMU lacks the functions, and devices are not drained.
static EVENTS: OnceLock<Option<EventLoop>> = OnceLock::new();

/// The main loop's original function for deferred work. [`on_main_loop`] replaces it.
static MAIN_LOOP: OnceLock<Option<MainLoop>> = OnceLock::new();
static VCPU_THREAD: OnceLock<ThreadId> = OnceLock::new();
/// Whether the vCPUs' thread is draining devices.
static DRAINING: AtomicBool = AtomicBool::new(false);

/// State of [`DOORBELL`]: the main loop may do deferred work.
const QUIET: u8 = 0;
/// State of [`DOORBELL`]: an instruction executes that may ring a doorbell.
const MAY_RING: u8 = 1;
/// State of [`DOORBELL`]: a doorbell was rung, and devices are drained after this block.
const RUNG: u8 = 2;
/// The state of doorbells. The thread of all vCPUs writes it; the main loop reads it under QEMU's big lock.
static DOORBELL: AtomicU8 = AtomicU8::new(QUIET);

/// Starts draining, when the first vCPU is created. Returns whether it has started now.
pub(crate) fn start(writer: &mut Writer) -> bool {
    if EVENTS.get().is_some() {
        return false;
    }
    let _ = VCPU_THREAD.set(std::thread::current().id());
    if EVENTS.get_or_init(EventLoop::find).is_none() {
        writer.notice(Notice::DevicesNotDrained, 0, 0);
        return false;
    }
    if MAIN_LOOP.get_or_init(|| MainLoop::hook(on_main_loop)).is_none() {
        writer.notice(Notice::DevicesNotDrained, 0, 4);
    }
    true
}

/// Registers callbacks for an instruction that may ring a doorbell, while its block is translated.
pub(crate) fn watch(
    (qemu, decoder): (&Qemu, &mut Decoder),
    instruction: TranslatedInstruction,
    decoded: &Decoded,
    is_last: bool,
) {
    match decoded.device_write() {
        DeviceWrite::Store if is_last => {
            // `on_store` ends the state `MAY_RING`. QEMU calls it only for instructions that store.
            if decoder.stores(decoded) {
                let before = on_before_store;
                let data = ptr::null_mut();
                qemu.on_instruction_with(instruction, before, NO_REGISTERS, data);
            }
            qemu.on_memory(instruction, WRITES, on_store, ptr::null_mut());
        }
        DeviceWrite::Port(Some(port)) if is_quiet_port(port.into()) => {}
        DeviceWrite::Port(port) => {
            let port = port.map_or(0, usize::from);
            qemu.on_instruction(instruction, on_port, port as *mut c_void);
        }
        _ => {}
    }
}

fn is_quiet_port(port: u16) -> bool {
    QUIET_PORTS.iter().any(|quiet| quiet.contains(&port))
}

/// Called before a store by the last instruction of a block.
extern "C" fn on_before_store(_: c_uint, _: *mut c_void) {
    may_ring();
}

/// Called after a store by the last instruction of a block.
extern "C" fn on_store(_: c_uint, info: u32, address: u64, _: *mut c_void) {
    let device = physical::device_address_of_access(info, VirtualAddress(address));
    if device.is_some() {
        before_block::device_written();
    }
    let rings = device
        .is_some_and(|address| !QUIET_ADDRESSES.iter().any(|quiet| quiet.contains(&address.0)));
    if rings {
        drain_at_end_of_block();
    } else {
        does_not_ring();
    }
}

fn may_ring() {
    // A doorbell that was rung earlier in the block stays rung.
    let _ = DOORBELL.compare_exchange(QUIET, MAY_RING, Ordering::SeqCst, Ordering::Relaxed);
}

/// The instruction that might ring a doorbell did not ring one: it stored to memory, or raised an exception.
pub(crate) fn does_not_ring() {
    if DOORBELL.load(Ordering::Relaxed) == MAY_RING {
        DOORBELL.store(QUIET, Ordering::SeqCst);
    }
}

/// Makes the running vCPU leave its block, and drains devices then. Call it in the thread of all vCPUs.
fn drain_at_end_of_block() {
    let Some(Some(events)) = EVENTS.get() else { return };
    DOORBELL.store(RUNG, Ordering::SeqCst);
    events.at_end_of_block(cpu::running_vcpu(), on_end_of_block);
}

/// Drains devices at the end of the block, because a disk's request was held. Does nothing if devices are drained
/// anyway, or outside of the vCPUs' thread.
///
/// Without a doorbell, a request can start because an earlier request ended, a port was read, or a timer of the device
/// expired.
pub(crate) fn drain_soon() {
    let drains = DRAINING.load(Ordering::Relaxed) || DOORBELL.load(Ordering::Relaxed) == RUNG;
    if in_vcpu_thread() && !drains {
        drain_at_end_of_block();
    }
}

fn in_vcpu_thread() -> bool {
    VCPU_THREAD.get() == Some(&std::thread::current().id())
}

/// QEMU's main loop calls this in its own thread, with QEMU's big lock, when it is about to do deferred work.
extern "C" fn on_main_loop(source: *mut c_void, callback: *mut c_void, data: *mut c_void) -> c_int {
    match MAIN_LOOP.get() {
        Some(Some(main_loop)) if DOORBELL.load(Ordering::SeqCst) == QUIET => {
            main_loop.dispatch(Deferred { source, callback, data })
        }
        _ => MainLoop::LATER,
    }
}

/// Called before an instruction that writes to `port`. 0: the port is in `dx`.
extern "C" fn on_port(_: c_uint, port: *mut c_void) {
    let mut port = port as usize as u16;
    if port == 0 {
        let mut guard = session::lock();
        let Some(session) = guard.as_mut() else { return };
        let Some(registers) = session.registers else { return };
        port = session.qemu.register_value(registers.rdx) as u16;
    }
    if !is_quiet_port(port) {
        drain_at_end_of_block();
    }
}

extern "C" fn on_end_of_block(_: *mut c_void, _: usize) {
    drain_devices();
    DOORBELL.store(QUIET, Ordering::SeqCst);
}

/// Does the work that devices have deferred, and serves requests without a latency. Then schedules requests with a
/// latency. Call it with QEMU's big lock, outside of coroutines and of translated code.
pub(crate) fn drain_devices() {
    let Some(Some(events)) = EVENTS.get() else { return };
    DRAINING.store(true, Ordering::Relaxed);
    loop {
        do_deferred(*events);
        if !delay::release_undelayed_request() {
            break;
        }
    }
    delay::schedule_new_requests();
    DRAINING.store(false, Ordering::Relaxed);
}

/// Does deferred work until there is none and no data is being transferred.
fn do_deferred(events: EventLoop) {
    let mut done_count = 0;
    while done_count < EVENTS_MAX {
        if events.poll() {
            done_count += 1;
        } else if delay::is_transferring() {
            // Other threads read and write the file, and defer the rest of the request when they finish.
            std::thread::sleep(TRANSFER_POLL);
        } else {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_disks_are_not_quiet() {
        assert!([0x3f8, 0x20, 0xcf8, 0x80].into_iter().all(is_quiet_port));
        assert!(![0x1f7, 0x170, 0xc000, 0x92].into_iter().any(is_quiet_port));
    }
}
