//! Passes the writes of devices to the guest's memory on to the caches of the models.
//!
//! QEMU reports address and length when a device has written ([`crate::qemu::qemu_internals::dirty`]): a received
//! packet, a block that was read from a disk, or the ring entry that announces them. The report comes inside an
//! instruction of a vCPU, or between two blocks. The session takes the writes before the next block of any vCPU starts,
//! and the models drop or update the lines. A block whose instruction rang the doorbell has made its own accesses by
//! then.
//!
//! QEMU also reports when a vCPU stores to a page with translated code. L1I caches and caches of decoded
//! instructions then drop the code, as processors do with self-modifying code.
//!
//! Writes of all QEMU's threads count. Most devices work in the thread of the vCPUs; packets of another machine come in
//! the main loop. Both work at points that guest time determines ([`crate::devices::drain`],
//! [`crate::devices::delay`]). If writes of the main loop were left out, a run would depend on the host.
//!
//! Reads of devices change nothing in the caches, and are not followed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use machine::PhysicalAddress;

use crate::cpu::{self, Cpu};
use crate::models::accesses::Write;
use crate::qemu::qemu_internals::dirty::{self, RamPiece, Written};

/// The most writes that wait for the next block. The record counts further writes as lost.
const WRITES_MAX: usize = 1 << 16;

/// Writes that wait for the next block.
#[derive(Debug)]
struct Waiting {
    writes: Vec<Write>,
    /// How many writes were dropped for lack of room.
    lost: u64,
}

impl Waiting {
    const fn new() -> Waiting {
        Waiting { writes: Vec::new(), lost: 0 }
    }

    /// Keeps a write, or counts it as lost if there is no room. Returns whether it is the first.
    fn push(&mut self, write: Write) -> bool {
        if self.writes.len() == WRITES_MAX {
            self.lost += 1;
            return false;
        }
        self.writes.push(write);
        self.writes.len() == 1
    }
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting::new());
/// The guest's RAM in QEMU's memory, read at the first write.
static RAM_PIECES: OnceLock<Vec<RamPiece>> = OnceLock::new();
/// The number of the guest's vCPUs.
static CPUS: AtomicU32 = AtomicU32::new(0);
/// Whether writes are kept for the caches now.
static FOLLOWS: AtomicBool = AtomicBool::new(false);

/// Starts to follow the writes of devices to a machine with `cpus` vCPUs. Call it while QEMU loads the plugin. Returns
/// whether this QEMU reports them.
pub(crate) fn start_following(cpus: u32) -> bool {
    CPUS.store(cpus, Ordering::Relaxed);
    dirty::on_write(on_write)
}

/// Sets whether writes are kept for the caches from now on. Drops the writes that wait.
pub(crate) fn set_follows_writes(follows: bool) {
    let mut waiting = lock();
    FOLLOWS.store(follows, Ordering::Relaxed);
    *waiting = Waiting::new();
}

fn lock() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// QEMU has written memory for a device, or a vCPU has stored to a page with code. Called in any thread.
fn on_write(written: Written) {
    if !FOLLOWS.load(Ordering::Relaxed) {
        return;
    }
    let pieces = RAM_PIECES.get_or_init(dirty::ram_pieces);
    let Some(physical) = physical_of(written.ram, pieces) else { return };
    keep(Write { physical, bytes: written.bytes, by_device: written.by_device });
}

/// Keeps a write until the next block of any vCPU. Called in any thread.
fn keep(write: Write) {
    let mut waiting = lock();
    if waiting.push(write) {
        // Noted under the lock: `take_waiting_writes` must not forget a write that it has not taken.
        all_vcpus().for_each(cpu::note_device_write);
    }
}

/// The numbers of all vCPUs.
fn all_vcpus() -> std::ops::Range<u32> {
    0..CPUS.load(Ordering::Relaxed)
}

/// The guest's physical address of an offset in QEMU's RAM. `None` for memory that is no RAM of the guest, such as a
/// display's.
fn physical_of(ram: u64, pieces: &[RamPiece]) -> Option<PhysicalAddress> {
    let is_in = |piece: &&RamPiece| ram.wrapping_sub(piece.ram) < piece.bytes;
    pieces.iter().find(is_in).map(|piece| PhysicalAddress(ram - piece.ram + piece.physical))
}

/// Takes the waiting writes, before a block starts. The second value is the number of writes that were dropped for lack
/// of room. Call it in the thread of all vCPUs.
pub(crate) fn take_waiting_writes() -> (Vec<Write>, u64) {
    let mut waiting = lock();
    let Waiting { writes, lost } = std::mem::replace(&mut *waiting, Waiting::new());
    all_vcpus().for_each(|vcpu| cpu::with_vcpu(vcpu, Cpu::forget_device_writes));
    (writes, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_without_room_are_counted() {
        let mut waiting = Waiting::new();
        let write = |n: u64| Write { physical: PhysicalAddress(n * 64), bytes: 4, by_device: true };
        let firsts = (0..WRITES_MAX as u64 + 3).filter(|n| waiting.push(write(*n))).count();
        assert_eq!((firsts, waiting.writes.len(), waiting.lost), (1, WRITES_MAX, 3));
        let last = PhysicalAddress((WRITES_MAX as u64 - 1) * 64);
        assert_eq!(waiting.writes.last().unwrap().physical, last);
    }

    /// Two threads, as QEMU's main loop writes while vCPUs run: whenever a write waits, each vCPU knows.
    #[test]
    fn a_write_while_writes_are_taken_is_not_forgotten() {
        const CPUS_OF_TEST: u32 = 3;
        const WRITES: usize = 200_000;
        CPUS.store(CPUS_OF_TEST, Ordering::Relaxed);
        let main_loop = std::thread::spawn(|| {
            for number in 0..WRITES as u64 {
                keep(Write { physical: PhysicalAddress(number), bytes: 1, by_device: true });
            }
        });
        let knows = |vcpu: u32| {
            // The vCPU plans its next slice, in between.
            let slice = cpu::Slice { cycles: 1 << 20, instructions: u64::MAX };
            cpu::with_vcpu(vcpu, |cpu| cpu.set_slice(slice));
            cpu::with_vcpu(vcpu, |cpu| cpu.device_wrote()) && cpu::due_at(vcpu) == 0
        };
        let mut taken = 0;
        while !main_loop.is_finished() {
            if knows(1) {
                let (writes, lost) = take_waiting_writes();
                taken += writes.len() + lost as usize;
            }
        }
        main_loop.join().unwrap();
        if taken < WRITES {
            assert!((0..CPUS_OF_TEST).all(knows), "{taken} of {WRITES} were taken");
            let (writes, lost) = take_waiting_writes();
            taken += writes.len() + lost as usize;
        }
        assert_eq!(taken, WRITES);
        assert!(!(0..CPUS_OF_TEST).any(knows), "nothing waits");
    }

    #[test]
    fn ram_above_four_gib_is_found() {
        let pieces = [
            RamPiece { ram: 0, physical: 0, bytes: 0xa_0000 },
            RamPiece { ram: 0x10_0000, physical: 0x10_0000, bytes: 0xbff0_0000 },
            RamPiece { ram: 0xc000_0000, physical: 1 << 32, bytes: 0x4000_0000 },
        ];
        let physical = |ram| physical_of(ram, &pieces).map(|physical| physical.0);
        assert_eq!(physical(0x9_ffff), Some(0x9_ffff));
        assert_eq!(physical(0xa_0000), None);
        assert_eq!(physical(0x1234_5678), Some(0x1234_5678));
        assert_eq!(physical(0xc000_0010), Some((1 << 32) + 0x10));
        assert_eq!(physical(1 << 32), None);
    }
}
