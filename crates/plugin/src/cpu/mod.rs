//! The state of a vCPU that every executed block touches.

pub(crate) mod beside;
mod counting;
mod due;
pub(crate) mod ooo;
pub(crate) mod timed;

use std::cell::UnsafeCell;
use std::ffi::{c_uint, c_void};
use std::ptr;

use machine::BlockingMachine;

use crate::beside::Beside;
use crate::block::Block;
use crate::callbacks;
use crate::pipeline::Pipeline;
use crate::qemu_internals::CurrentCpu;
use simrecord::counters::{COUNTERS, Counts};
use simrecord::record::CPUS_MAX;

/// No block starts at this address.
const NOWHERE: u64 = u64::MAX;

/// Who counts cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    /// Nobody: each instruction is one, if instructions are counted at all.
    Plain,
    /// The model of the level `timed`.
    Timed,
    /// The core of the level `ooo`.
    Ooo,
}

/// Counts of one vCPU. A line of its own, so that neighbours don't share one.
#[repr(align(64))]
pub(crate) struct Cpu {
    /// Instructions of all blocks that were started, less those known not to have been executed.
    /// With a model it is the model that counts them.
    instructions: u64,
    /// The block that was started last; null once it is known how much of it was executed.
    block: *const Block,
    /// Where a function that is followed returns to, [`NOWHERE`] for none.
    awaits: u64,
    /// Where the slice ends: the count of cycles.
    slice_end: u64,
    /// The count of cycles from which on a counter of the guest's PMU may have run over.
    pmu_deadline: u64,
    /// The earlier of both; 0 if the guest has read the clock.
    due_at: u64,
    /// What is to be added to the time that the guest has just read from the clock, ns.
    clock_ahead: Option<i64>,
    /// Branches of the blocks that were started. With a model only.
    branches: u64,
    /// The model of the level `timed`, null without one.
    model: *mut BlockingMachine,
    /// What executes at the level `ooo`, null without one.
    pipeline: *mut Pipeline,
    /// Caches beside, null without any.
    beside: *mut Beside,
    /// Whether the idle task runs, without any interrupt.
    idles: bool,
    /// Who counts cycles.
    counting: Counting,
    /// Whether the kernel runs.
    in_kernel: bool,
    /// An exception was raised, and its handler not entered yet.
    raising: bool,
    /// QEMU has left the block to execute an instruction of it alone. At the level `ooo` only.
    left: bool,
    /// QEMU's own description of the vCPU, to recognise it by.
    handle: *mut c_void,
    /// Cycles for which the vCPU was halted.
    halted_cycles: u64,
    /// What user mode has counted up to the last change of the mode.
    user: Counts,
    /// What was counted when the mode changed last.
    changed_at: Counts,
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

/// Which vCPU runs, if that is known without asking: always where there is one, `ALONE`, else if it is
/// the one that ran when [`running`] was asked last.
#[inline(always)]
fn known_running<const ALONE: bool>() -> Option<u32> {
    if ALONE {
        return Some(0);
    }
    // SAFETY: as above.
    let running = unsafe { &*MACHINE.running.get() };
    (running.current.get() == running.handle).then_some(running.index)
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
    begin(0, block.cast_const().cast());
}

/// A block starts, on a machine with several vCPUs.
pub(crate) extern "C" fn on_block_of_slice(_: c_uint, block: *mut c_void) {
    begin(running(), block.cast_const().cast());
}

#[inline(always)]
fn begin(vcpu: u32, block: *const Block) {
    // SAFETY: the arena keeps the block while there is code that passes it.
    let known = unsafe { &*block };
    if with(vcpu, |cpu| cpu.is_due(known, cpu.instructions)) {
        callbacks::before_block(vcpu, known);
    }
    with(vcpu, |cpu| {
        cpu.instructions += u64::from(known.length);
        cpu.block = block;
    });
}

/// After an access to memory by the only instruction of a block that is not a repeated string
/// instruction.
///
/// QEMU can count time only at the end of a block. When an instruction in the middle turns out to
/// access a device, it leaves the block there, executes that instruction in a block of its own, and
/// goes on with the rest. Blocks of that sort have their memory callbacks, but not the others: so
/// this callback without the one of its block says that the block before was left.
pub(crate) extern "C" fn on_single_access(_: c_uint, _: u32, _: u64, block: *mut c_void) {
    let block = block.cast_const().cast::<Block>();
    with(running(), |cpu| {
        if cpu.block != block {
            // SAFETY: the arena keeps the block while there is code that passes it.
            let address = unsafe { (*block).address };
            cpu.left_after(address);
            cpu.block = block;
        }
    });
}

impl Cpu {
    const NEW: Cpu = Cpu {
        instructions: 0,
        block: ptr::null(),
        awaits: NOWHERE,
        slice_end: u64::MAX,
        pmu_deadline: u64::MAX,
        due_at: u64::MAX,
        clock_ahead: None,
        branches: 0,
        model: ptr::null_mut(),
        pipeline: ptr::null_mut(),
        beside: ptr::null_mut(),
        idles: false,
        counting: Counting::Plain,
        in_kernel: false,
        raising: false,
        left: false,
        handle: ptr::null_mut(),
        halted_cycles: 0,
        user: [0; COUNTERS],
        changed_at: [0; COUNTERS],
    };

    /// Whether something is to be done before `block` starts.
    #[inline(always)]
    fn is_due(&self, block: &Block, cycles: u64) -> bool {
        (block.in_kernel != self.in_kernel)
            | (block.address == self.awaits)
            | (cycles >= self.due_at)
    }

    /// Whether the slice is over.
    pub(crate) fn slice_is_over(&mut self) -> bool {
        self.cycles() >= self.slice_end
    }

    /// The slice ends in so many cycles.
    pub(crate) fn set_slice(&mut self, cycles: u64) {
        self.slice_end = self.cycles().saturating_add(cycles);
        self.due_at = self.slice_end.min(self.pmu_deadline);
    }

    /// QEMU's description of the vCPU, by which it is recognised.
    pub(crate) fn set_handle(&mut self, handle: *mut c_void) {
        self.handle = handle;
    }

    /// A function that is followed returns to `address`; to none if there is none.
    pub(crate) fn await_at(&mut self, address: Option<u64>) {
        self.awaits = address.unwrap_or(NOWHERE);
    }

    /// Whether a function that is followed returns to `address`.
    pub(crate) fn awaits(&self, address: u64) -> bool {
        self.awaits == address
    }

    /// It was halted for so many cycles.
    pub(crate) fn add_halted(&mut self, cycles: u64) {
        self.halted_cycles += cycles;
    }

    /// The code cache is about to be emptied.
    pub(crate) fn forget_block(&mut self) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.forget_block();
        }
        self.block = ptr::null();
    }
}

#[cfg(test)]
mod tests;
