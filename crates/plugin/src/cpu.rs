//! The state of a vCPU that every executed block touches.

use std::cell::UnsafeCell;
use std::ffi::{c_uint, c_void};
use std::ptr;

use crate::block::Block;
use crate::options::CPUS_MAX;
use crate::qemu_internals::{CurrentCpu, Slices};

/// Counts of one vCPU. A line of its own, so that neighbours don't share one.
#[repr(align(64))]
pub(crate) struct Cpu {
    /// Instructions of all blocks that were started, less those known not to have been executed.
    instructions: u64,
    /// The block that was started last; null once it is known how much of it was executed.
    block: *const Block,
    /// Instructions to the end of the slice; negative when it is over.
    slice_left: i64,
    /// An exception was raised, and its handler not entered yet.
    raising: bool,
    /// QEMU's own description of the vCPU, to recognise it by.
    handle: *mut c_void,
    slices: Option<Slices>,
}

/// All vCPUs, and which of them runs.
struct Machine {
    cpus: [UnsafeCell<Cpu>; CPUS_MAX],
    running: UnsafeCell<Running>,
}

/// Which vCPU runs. Remembered, as it changes at the end of slices only.
struct Running {
    current: CurrentCpu,
    handle: *mut c_void,
    index: u32,
}

// SAFETY: all vCPUs run in one thread, which `on_vcpu` checks; at exit they are stopped.
unsafe impl Sync for Machine {}

static MACHINE: Machine = Machine {
    cpus: [const { UnsafeCell::new(Cpu::NEW) }; CPUS_MAX],
    running: UnsafeCell::new(Running {
        current: CurrentCpu::UNKNOWN,
        handle: ptr::null_mut(),
        index: 0,
    }),
};

/// Runs `use_it` on the state of a vCPU. It must not call back into QEMU in a way that comes here
/// again.
#[inline(always)]
pub(crate) fn with<R>(vcpu: u32, use_it: impl FnOnce(&mut Cpu) -> R) -> R {
    let cell = &MACHINE.cpus[vcpu as usize % CPUS_MAX];
    // SAFETY: one thread runs all vCPUs, and no use is nested in another.
    use_it(unsafe { &mut *cell.get() })
}

/// Which vCPU runs.
///
/// QEMU passes a number to callbacks of blocks and instructions, but where one thread runs all
/// vCPUs it is a constant in the code: the number of the vCPU that *translated* the block.
#[inline(always)]
pub(crate) fn running() -> u32 {
    // SAFETY: one thread runs all vCPUs; this reference does not outlive the function.
    let running = unsafe { &mut *MACHINE.running.get() };
    let handle = running.current.get();
    if handle != running.handle {
        running.changed(handle);
    }
    running.index
}

/// Makes ready to tell which of several vCPUs runs.
pub(crate) fn watch(current: CurrentCpu) {
    // SAFETY: as above.
    unsafe { (*MACHINE.running.get()).current = current };
}

impl Running {
    #[cold]
    fn changed(&mut self, handle: *mut c_void) {
        let runs = |vcpu: &u32| with(*vcpu, |cpu| cpu.handle == handle);
        if let Some(vcpu) = (0..CPUS_MAX as u32).find(runs) {
            self.index = vcpu;
            self.handle = handle;
        }
    }
}

/// A block starts, on a machine with one vCPU.
pub(crate) extern "C" fn on_block(_: c_uint, block: *mut c_void) {
    with(0, |cpu| {
        cpu.start(block.cast_const().cast());
    });
}

/// A block starts, on a machine with several vCPUs.
pub(crate) extern "C" fn on_block_of_slice(_: c_uint, block: *mut c_void) {
    with(running(), |cpu| {
        cpu.slice_left -= i64::from(cpu.start(block.cast_const().cast()));
        if cpu.slice_left <= 0 {
            cpu.end_slice();
        }
    });
}

/// After an access to memory by the only instruction of a block that is not a repeated string
/// instruction.
///
/// QEMU can count time only at the end of a block. When an instruction in the middle turns out to
/// access a device, it leaves the block there, executes that instruction in a block of its own, and
/// goes on with the rest. Blocks of that sort have their memory callbacks, but not the others: so
/// this callback without the one of its block says that the block before was left.
pub(crate) extern "C" fn on_lone_access(_: c_uint, _: u32, _: u64, block: *mut c_void) {
    let block = block.cast_const().cast::<Block>();
    with(running(), |cpu| {
        if cpu.block != block {
            // SAFETY: the arena keeps the block while there is code that passes it.
            let address = unsafe { (*block).address() };
            cpu.left_after(address);
            cpu.block = block;
        }
    });
}

impl Cpu {
    const NEW: Cpu = Cpu {
        instructions: 0,
        block: ptr::null(),
        slice_left: 0,
        raising: false,
        handle: ptr::null_mut(),
        slices: None,
    };

    /// A block starts; returns its length.
    #[inline(always)]
    fn start(&mut self, block: *const Block) -> u32 {
        // SAFETY: the arena keeps the block while there is code that passes it.
        let length = unsafe { (*block).length };
        self.instructions += u64::from(length);
        self.block = block;
        length
    }

    /// Instructions executed, if the block that was started last ran to its end.
    pub(crate) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Makes ready to run slices.
    pub(crate) fn begin(&mut self, slices: Option<Slices>) {
        self.slices = slices;
        self.handle = slices.map_or(ptr::null_mut(), Slices::handle);
        self.slice_left = slices.map_or(0, |slices| slices.quantum);
    }

    /// The code cache is empty.
    pub(crate) fn forget_block(&mut self) {
        self.block = ptr::null();
    }

    /// An exception is raised.
    pub(crate) fn raise(&mut self) {
        self.raising = true;
    }

    /// A handler is entered instead of the instruction at `address`. Returns whether it is that of
    /// an exception; else the block before ran to its end.
    pub(crate) fn deliver(&mut self, address: u64) -> bool {
        let exception = std::mem::take(&mut self.raising);
        if exception {
            self.interrupted_at(address);
        }
        exception
    }

    /// An exception came at `address`: the instruction there was not executed, nor were those behind
    /// it in the block.
    fn interrupted_at(&mut self, address: u64) {
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        let Some(block) = (unsafe { self.block.as_ref() }) else { return };
        if let Some(index) = block.index_of(address) {
            let last = index + 1 == block.length;
            if !(last && block.ends_in_trap) {
                self.instructions -= u64::from(block.length - index);
            }
            self.block = ptr::null();
        }
    }

    /// The block was left after the instruction at `address`.
    fn left_after(&mut self, address: u64) {
        // SAFETY: as above.
        let Some(block) = (unsafe { self.block.as_ref() }) else { return };
        if let Some(index) = block.index_of(address) {
            self.instructions -= u64::from(block.length - index - 1);
        }
    }

    #[cold]
    fn end_slice(&mut self) {
        if let Some(slices) = self.slices {
            self.slice_left = slices.quantum;
            slices.end();
        } else {
            self.slice_left = i64::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(block: &Block) -> Cpu {
        Cpu { instructions: 1_000, block, ..Cpu::NEW }
    }

    #[test]
    fn an_exception_in_the_middle_takes_back_what_was_not_executed() {
        let block = Block::new(&[0x10, 0x12, 0x15, 0x1a], false);
        let mut cpu = cpu(&block);
        cpu.interrupted_at(0x12);
        assert_eq!(cpu.instructions, 997);
        cpu.interrupted_at(0x12); // once only
        assert_eq!(cpu.instructions, 997);
    }

    #[test]
    fn an_interrupt_takes_back_nothing() {
        let block = Block::new(&[0x10, 0x12], false);
        let mut cpu = cpu(&block);
        assert!(!cpu.deliver(0x10)); // the block is a loop
        assert_eq!(cpu.instructions, 1_000);
        cpu.raise();
        assert!(cpu.deliver(0x12));
        assert_eq!(cpu.instructions, 999);
        assert!(!cpu.deliver(0x12));
    }

    #[test]
    fn an_exception_elsewhere_takes_back_nothing() {
        let block = Block::new(&[0x10, 0x12], false);
        let mut cpu = cpu(&block);
        cpu.interrupted_at(0x20);
        assert_eq!(cpu.instructions, 1_000);
    }

    #[test]
    fn a_software_interrupt_is_executed() {
        let block = Block::new(&[0x10, 0x12], true);
        let mut cpu = cpu(&block);
        cpu.interrupted_at(0x12);
        assert_eq!(cpu.instructions, 1_000);
    }

    #[test]
    fn a_block_left_at_a_device_access_has_executed_it() {
        let block = Block::new(&[0x10, 0x12, 0x15, 0x1a], false);
        let mut cpu = cpu(&block);
        cpu.left_after(0x12);
        assert_eq!(cpu.instructions, 998);
    }
}
