//! Devices are drained: what a CPU requests of a device is done before the CPU continues.
//!
//! QEMU does much of it in its main loop, in another thread, so a guest would see the effect at a
//! time that depends on the host. Here the vCPU leaves its block after the instruction that writes
//! a device's doorbell, and does the work that devices have deferred to the main loop, until
//! nothing is left. Requests with a latency in the guest ([`crate::delay`]) then wait for a timer
//! in guest time.
//!
//! Under `-icount` an access to a device is the last instruction of its block: when it is not, QEMU
//! leaves the block and executes it alone. So only last instructions are watched.

use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;
use std::time::Duration;

use machine::decode::DeviceWrite;

use crate::delay;
use crate::ffi::WRITES;
use crate::qemu::TranslatedInstruction;
use crate::qemu_internals::devices::EventLoop;
use crate::session::{self, Session};
use crate::{cpu, delay::Delays, physical};
use simrecord::record::Notice;

/// Devices that defer no work after a store: VGA; IO-APIC, HPET and local APIC.
const QUIET_ADDRESSES: [std::ops::Range<u64>; 2] = [0xa_0000..0xc_0000, 0xfec0_0000..0xfef0_0000];
/// The same for ports: interrupt controllers, timers, keyboard, clock, serial ports, PCI
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
/// Bound on successive events: a device that never becomes idle.
const EVENTS_MAX: u32 = 1 << 20;

/// Polling interval while a file is read or written.
const TRANSFER_POLL: Duration = Duration::from_micros(5);

/// QEMU's event loop; `None` if this QEMU has another.
static EVENTS: OnceLock<Option<EventLoop>> = OnceLock::new();

/// Starts draining, when the first vCPU is created.
pub(crate) fn start(session: &mut Session) {
    if EVENTS.get().is_some() {
        return;
    }
    if EVENTS.get_or_init(EventLoop::find).is_none() {
        session.notice(Notice::DevicesNotDrained, 0, 0);
    } else if let Err(disk) = Delays::begin(&session.options.disks) {
        session.notice(Notice::NoDisk, 0, disk as u64);
    }
}

/// Watches an instruction while its block is translated.
pub(crate) fn watch(
    session: &Session,
    instruction: TranslatedInstruction,
    write: DeviceWrite,
    is_last: bool,
) {
    match write {
        DeviceWrite::Store if is_last => {
            session.qemu.on_memory(instruction, WRITES, on_store, std::ptr::null_mut());
        }
        DeviceWrite::Port(Some(port)) if is_quiet_port(port.into()) => {}
        DeviceWrite::Port(port) => {
            let port = port.map_or(0, usize::from);
            session.qemu.on_instruction(instruction, on_port, port as *mut c_void);
        }
        _ => {}
    }
}

fn is_quiet_port(port: u16) -> bool {
    QUIET_PORTS.iter().any(|quiet| quiet.contains(&port))
}

/// Called after a store by the last instruction of a block.
extern "C" fn on_store(_: c_uint, info: u32, address: u64, _: *mut c_void) {
    let Some(Some(events)) = EVENTS.get() else { return };
    let Some(address) = physical::of_device(info, address) else { return };
    if !QUIET_ADDRESSES.iter().any(|quiet| quiet.contains(&address)) {
        events.at_end_of_block(cpu::running(), on_end_of_block);
    }
}

/// Called before an instruction that writes to a port; 0 means the port in `dx`.
extern "C" fn on_port(_: c_uint, port: *mut c_void) {
    let Some(Some(events)) = EVENTS.get() else { return };
    let mut port = port as usize as u16;
    if port == 0 {
        let mut guard = session::lock();
        let Some(session) = guard.as_mut() else { return };
        let Some(registers) = session.registers else { return };
        port = session.qemu.register_value(registers.rdx) as u16;
    }
    if !is_quiet_port(port) {
        events.at_end_of_block(cpu::running(), on_end_of_block);
    }
}

extern "C" fn on_end_of_block(_: *mut c_void, _: usize) {
    drain_devices();
}

/// Does the work that devices have deferred. Needs QEMU's big lock, outside of coroutines and of
/// translated code.
pub(crate) fn drain_devices() {
    let Some(Some(events)) = EVENTS.get() else { return };
    for _ in 0..EVENTS_MAX {
        if !events.poll() {
            if !delay::is_transferring() {
                break;
            }
            // A file is read and written by other threads, which defer the rest when they are done.
            std::thread::sleep(TRANSFER_POLL);
        }
    }
    delay::schedule();
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
