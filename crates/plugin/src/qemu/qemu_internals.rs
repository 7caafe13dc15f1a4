//! Functions and data that QEMU exports without promising them. No other module uses such exports.
//!
//! The plugin finds each export by name, and tries it before it uses it where that is possible. If an export is missing
//! or behaves differently, the feature that needs it is off, and the record has a notice. Keep this rule for a new
//! export: another version of QEMU must never be called wrongly.
//!
//! This file has a vCPU's time slices and interrupts, QEMU's clock, and its count of instructions. Further modules:
//! - `deadline`, `idle`: QEMU's next timer, and the jump of its clock when all vCPUs are halted.
//! - `devices`: event loop, block layer, coroutines and timers. `dirty`: reports of writes to memory.
//! - `held`: waits while the machine is stopped and saved.
//! - `tables`, `vcpu_state`: a vCPU's descriptor tables, and what it does: whether it is halted, or in user mode.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;

use crate::qemu::ffi;

type CpuExit = unsafe extern "C" fn(*mut c_void);
type GetCpu = unsafe extern "C" fn(c_int) -> *mut c_void;
type GetIcount = unsafe extern "C" fn() -> i64;

/// A vCPU number that no machine has.
const NO_CPU: c_int = 1 << 20;

macro_rules! function {
    ($name:literal as $kind:ty) => {{
        let found = ffi::find($name);
        if found.is_null() {
            None
        } else {
            // SAFETY: the function of this name has this signature in all versions of QEMU that
            // have API 7.
            Some(unsafe { std::mem::transmute::<*mut c_void, $kind>(found) })
        }
    }};
}

pub(crate) mod deadline;
pub(crate) mod devices;
pub(crate) mod dirty;
pub(crate) mod held;
pub(crate) mod idle;
pub(crate) mod tables;
mod vcpu_state;

pub(crate) use vcpu_state::Activity;
use vcpu_state::VcpuState;

/// QEMU's thread-local variable `current_cpu`: the vCPU that runs in the thread of all vCPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentCpu(*const *mut c_void);

static NO_CURRENT_CPU: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

impl CurrentCpu {
    /// Stands for the variable on a machine with one vCPU, which needs none.
    pub(crate) const UNKNOWN: CurrentCpu = CurrentCpu((&raw const NO_CURRENT_CPU).cast());

    /// Whether QEMU exports the variable.
    pub(crate) fn is_exported() -> bool {
        !ffi::find(c"current_cpu").is_null()
    }

    /// The variable of this thread. `None` if QEMU does not export it, or if it names no vCPU of `handles`.
    pub(crate) fn of_this_thread(handles: &[*mut c_void]) -> Option<CurrentCpu> {
        let found = ffi::find(c"current_cpu").cast_const().cast::<*mut c_void>();
        if found.is_null() {
            return None;
        }
        let current = CurrentCpu(found);
        (current.get().is_null() || handles.contains(&current.get())).then_some(current)
    }

    /// QEMU's description of the running vCPU, or null if none runs.
    #[inline(always)]
    pub(crate) fn get(self) -> *mut c_void {
        // SAFETY: a variable of the vCPUs' thread, which ends with QEMU; read in that thread.
        unsafe { self.0.read_volatile() }
    }
}

/// Ends the time slices of a vCPU, so that the next vCPU runs, and shows the vCPU's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices {
    cpu: *mut c_void,
    cpu_exit: CpuExit,
    state: VcpuState,
}

impl Slices {
    /// Whether QEMU exports the needed functions.
    pub(crate) fn are_exported() -> bool {
        let names = [c"cpu_exit", c"qemu_get_cpu"];
        names.iter().all(|name| !ffi::find(name).is_null()) && VcpuState::find().is_some()
    }

    /// The slices of a vCPU. `None` if QEMU does not export the needed functions, or does not show
    /// whether the vCPU is halted.
    pub(crate) fn of_vcpu(vcpu: c_uint) -> Option<Slices> {
        let cpu_exit = function!(c"cpu_exit" as CpuExit)?;
        let get_cpu = function!(c"qemu_get_cpu" as GetCpu)?;
        let state = VcpuState::find()?;
        let number = c_int::try_from(vcpu).ok()?;
        // SAFETY: looks a vCPU up by its number; called in a vCPU's thread.
        let (cpu, none) = unsafe { (get_cpu(number), get_cpu(NO_CPU)) };
        // A function that finds a vCPU with an unused number is not the function that is meant here.
        if cpu.is_null() || !none.is_null() {
            return None;
        }
        // Checked here, because a later failure would leave the clock without the vCPU's state.
        state.is_halted(cpu)?;
        Some(Slices { cpu, cpu_exit, state })
    }

    /// Whether the vCPU is halted. `None` if QEMU does not show it. Call it in the thread of all vCPUs.
    pub(crate) fn is_halted(self) -> Option<bool> {
        self.state.is_halted(self.cpu)
    }

    /// Whether the vCPU takes interrupts. `None` if QEMU does not show it. Call it in the thread of all vCPUs.
    pub(crate) fn takes_interrupts(self) -> Option<bool> {
        self.state.takes_interrupts(self.cpu)
    }

    /// The vCPU's activity. `None` if QEMU does not show it. Call it between two blocks, in the thread of all vCPUs.
    pub(crate) fn activity(self) -> Option<Activity> {
        self.state.activity(self.cpu)
    }

    /// QEMU's description of the vCPU.
    pub(crate) fn handle(self) -> *mut c_void {
        self.cpu
    }

    /// Makes the vCPU stop at the end of its block.
    pub(crate) fn end(self) {
        // SAFETY: vCPUs exist until the machine ends; this one is running.
        unsafe { (self.cpu_exit)(self.cpu) };
    }
}

/// QEMU's clock of guest time, where it counts instructions (`-icount`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestClock(GetIcount);

impl GuestClock {
    /// `None` if QEMU does not export the function.
    pub(crate) fn find() -> Option<GuestClock> {
        function!(c"icount_get" as GetIcount).map(GuestClock)
    }

    /// The clock's time in ns. Call it only between blocks: inside a block, QEMU would exit.
    pub(crate) fn get_ns(self) -> u64 {
        // SAFETY: called from a discontinuity callback, which is between two blocks, or before the
        // machine runs.
        unsafe { (self.0)() }.cast_unsigned()
    }
}

/// The number that QEMU adds to the time of its instructions to get its clock: a number of ns in QEMU's variable
/// `timers_state`. The plugin changes it to make the clock follow a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bias(*mut i64);

// SAFETY: it points into a static variable of QEMU; `add` says where it may be called.
unsafe impl Send for Bias {}
// SAFETY: it points into a static variable of QEMU; `add` says where it may be called.
unsafe impl Sync for Bias {}

impl Bias {
    /// The bytes of `timers_state` that are searched. A lock before them must not be changed, and the fields after
    /// them do not concern instructions.
    const OFFSETS: std::ops::Range<usize> = 0x20..0x60;
    /// The search adds this to each number of 8 bytes. Either half of one may be a sequence number, and an odd one would
    /// tell readers that a writer is active. So both halves of this constant must be even.
    const TRIED_NS: i64 = 1 << 40;

    /// Finds the number: adds to each number of the range in turn, and takes the first that moves the clock by the same
    /// amount. Call it before the machine runs, while no other thread reads these numbers. `None` if no number of the range does, or QEMU lacks the variable or the clock.
    pub(crate) fn find() -> Option<Bias> {
        let state = ffi::find(c"timers_state").cast::<u8>();
        let clock = GuestClock::find()?;
        if state.is_null() {
            return None;
        }
        Self::OFFSETS.step_by(size_of::<i64>()).find_map(|offset| {
            // SAFETY: in a variable of QEMU that is longer than this in all versions with API 7,
            // and aligned as its type.
            let number = unsafe { state.add(offset) }.cast::<i64>();
            let before = clock.get_ns();
            // SAFETY: inside of the variable and aligned, as the address above. The old value is written back at once.
            let after = unsafe {
                let value = number.read_volatile();
                number.write_volatile(value.wrapping_add(Self::TRIED_NS));
                let after = clock.get_ns();
                number.write_volatile(value);
                after
            };
            let moved = after.wrapping_sub(before).cast_signed() == Self::TRIED_NS;
            (moved && clock.get_ns() == before).then_some(Bias(number))
        })
    }

    /// Advances the clock by `ns`, or sets it back if negative. Call it only where a time slice ends now or with the
    /// running block. QEMU must then leave its loop, or have planned more instructions than a slice has. Otherwise it
    /// would divide a block at another place than in another run.
    pub(crate) fn add(self, ns: i64) {
        // SAFETY: found by `find`. It is written by the thread of the vCPUs alone while they run;
        // others read it as one aligned word.
        unsafe { self.0.write_volatile(self.0.read_volatile().wrapping_add(ns)) };
    }
}

/// Work that a vCPU does between two blocks, with QEMU's big lock held.
type Work = extern "C" fn(*mut c_void, usize);
type RunOnCpu = unsafe extern "C" fn(*mut c_void, Work, usize);
type Interrupt = unsafe extern "C" fn(*mut c_void, c_int);

/// `CPU_INTERRUPT_NMI` of an x86 machine.
const INTERRUPT_NMI: c_int = 0x200;

/// Interrupts a vCPU by an NMI, as its local APIC does when a counter of its PMU overflows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NonMaskable {
    cpu: *mut c_void,
    run_on_cpu: RunOnCpu,
    interrupt: Interrupt,
}

impl NonMaskable {
    /// Whether QEMU exports the needed functions.
    pub(crate) fn is_exported() -> bool {
        [c"async_run_on_cpu", c"cpu_interrupt", c"qemu_get_cpu"]
            .into_iter()
            .all(|name| !ffi::find(name).is_null())
    }

    /// `None` if QEMU does not export the needed functions.
    pub(crate) fn of_vcpu(vcpu: c_uint) -> Option<NonMaskable> {
        let get_cpu = function!(c"qemu_get_cpu" as GetCpu)?;
        let run_on_cpu = function!(c"async_run_on_cpu" as RunOnCpu)?;
        let interrupt = function!(c"cpu_interrupt" as Interrupt)?;
        // SAFETY: looks a vCPU up by its number; called in a vCPU's thread.
        let cpu = unsafe { get_cpu(c_int::try_from(vcpu).ok()?) };
        (!cpu.is_null()).then_some(NonMaskable { cpu, run_on_cpu, interrupt })
    }

    /// Interrupts the vCPU at the end of its block. QEMU does not allow it inside a block.
    pub(crate) fn request(self) {
        // SAFETY: vCPUs exist until the machine ends; `interrupt` is QEMU's own function.
        unsafe { (self.run_on_cpu)(self.cpu, on_vcpu_between_blocks, self.interrupt as usize) };
    }
}

/// QEMU calls this between two blocks of `cpu`. `interrupt`: QEMU's function that interrupts a vCPU.
extern "C" fn on_vcpu_between_blocks(cpu: *mut c_void, interrupt: usize) {
    // SAFETY: `request` passes this very function.
    let interrupt = unsafe { std::mem::transmute::<usize, Interrupt>(interrupt) };
    // SAFETY: QEMU calls work with the vCPU, and with its big lock held.
    unsafe { interrupt(cpu, INTERRUPT_NMI) };
}

/// Restores a vCPU's state in the middle of a block, so that the plugin can leave the block there.
///
/// Translated code stores a part of the vCPU's state only when the block ends: the program counter, and the results
/// from which the flags are computed. QEMU can restore this state from an address in the translated code.
/// `qemu_plugin_set_pc` alone does not restore it, and the guest would continue with wrong flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MiddleOfBlock {
    cpu: *mut c_void,
    restore_state: RestoreState,
}

type RestoreState = unsafe extern "C" fn(*mut c_void, usize) -> bool;

impl MiddleOfBlock {
    /// Whether QEMU exports the needed functions.
    pub(crate) fn is_exported() -> bool {
        [c"cpu_restore_state", c"qemu_get_cpu"].into_iter().all(|name| !ffi::find(name).is_null())
    }

    /// `None` if QEMU does not export the needed functions.
    pub(crate) fn of_vcpu(vcpu: c_uint) -> Option<MiddleOfBlock> {
        let get_cpu = function!(c"qemu_get_cpu" as GetCpu)?;
        let restore_state = function!(c"cpu_restore_state" as RestoreState)?;
        // SAFETY: looks a vCPU up by its number; called in a vCPU's thread.
        let cpu = unsafe { get_cpu(c_int::try_from(vcpu).ok()?) };
        (!cpu.is_null()).then_some(MiddleOfBlock { cpu, restore_state })
    }

    /// Restores the state at the instruction whose callback returns to `return_address`. For QEMU's clock, this
    /// instruction and the later instructions of the block are then not executed. Returns false, and changes nothing,
    /// if the address is not in translated code.
    pub(crate) fn restore(self, return_address: usize) -> bool {
        // SAFETY: the vCPU is running. `- 1` gives an address inside the call instruction, as QEMU expects.
        unsafe { (self.restore_state)(self.cpu, return_address - 1) }
    }
}

/// QEMU's own count of instructions, over all vCPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Icount(GetIcount);

impl Icount {
    /// `None` if QEMU does not export the function.
    pub(crate) fn find() -> Option<Icount> {
        function!(c"icount_get_raw" as GetIcount).map(Icount)
    }

    /// The count. Call it only between blocks: inside a block, QEMU would exit.
    pub(crate) fn get(self) -> u64 {
        // SAFETY: called from a discontinuity callback, which is between two blocks.
        unsafe { (self.0)() }.cast_unsigned()
    }
}

/// QEMU's `Notifier`.
#[repr(C)]
struct Notifier {
    notify: extern "C" fn(*mut Notifier, *mut c_void),
    next: *mut Notifier,
    previous: *mut c_void,
}

type OnNotifier = unsafe extern "C" fn(*mut Notifier);

extern "C" fn ignore(_: *mut Notifier, _: *mut c_void) {}

/// Keeps QEMU's memory reclamation (RCU) from ending a time slice at a moment that depends on the host.
/// Reclamation still works, because the vCPUs' thread is often between two slices. Returns whether this QEMU
/// allows it. Call it in the vCPUs' thread.
pub(crate) fn ignore_reclamation() -> bool {
    let Some(add) = function!(c"rcu_add_force_rcu_notifier" as OnNotifier) else { return false };
    let Some(remove) = function!(c"rcu_remove_force_rcu_notifier" as OnNotifier) else {
        return false;
    };
    let mut probe = Notifier { notify: ignore, next: ptr::null_mut(), previous: ptr::null_mut() };
    let probe = &raw mut probe;
    // The notifiers of a thread are a list, and a new notifier comes first. So the list's first notifier follows
    // `probe`. SAFETY: `probe` is in the list only during this function. The next notifier is that of the vCPUs'
    // thread, which QEMU added when the thread started.
    unsafe {
        add(probe);
        let thread_notifier = (*probe).next;
        remove(probe);
        if !thread_notifier.is_null() {
            remove(thread_notifier);
        }
        !thread_notifier.is_null()
    }
}
