//! QEMU's functions for idle vCPUs: which vCPUs are idle, and the jump of the clock to the next timer while all of them
//! are. `time/idle.rs` and the clock use them.

use std::ffi::{c_int, c_void};

use super::{GetCpu, NO_CPU, Slices};
use crate::qemu::ffi;

type Work = extern "C" fn(*mut c_void, usize);
type RunOnCpu = unsafe extern "C" fn(*mut c_void, Work, usize);
type Ask = unsafe extern "C" fn() -> bool;
type IsIdle = unsafe extern "C" fn(*mut c_void) -> bool;
type Do = unsafe extern "C" fn();
pub(super) type Deadline = unsafe extern "C" fn(c_int, c_int) -> i64;
type RunTimers = unsafe extern "C" fn(c_int) -> bool;
type GetClock = unsafe extern "C" fn(c_int) -> i64;

/// `QEMU_CLOCK_VIRTUAL`.
pub(super) const GUEST_TIME: c_int = 1;
/// Attribute mask for all timers of the guest: all but those with `QEMU_TIMER_ATTR_EXTERNAL`.
const TIMERS_OF_GUEST: c_int = !1;

/// The outcome of an attempt to jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// The clock has jumped to the next timer, and due timers have run.
    Made,
    /// A vCPU has something to do, or the machine is stopped.
    NotIdle,
    /// No timer is set, so there is nothing to jump to.
    NoTimer,
    /// The clock did not jump to the next timer: this QEMU works differently.
    Wrong,
}

/// Finds out which vCPUs have nothing to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleVcpus(IsIdle);

impl IdleVcpus {
    /// `None` if QEMU does not export the function.
    pub(crate) fn find() -> Option<IdleVcpus> {
        function!(c"cpu_thread_is_idle" as IsIdle).map(IdleVcpus)
    }

    /// Whether a vCPU is halted, and neither an interrupt nor work waits for it. Call it in the vCPUs' thread.
    pub(crate) fn is_idle(self, vcpu: Slices) -> bool {
        // SAFETY: vCPUs exist until the machine ends. The function reads the vCPU's state, which QEMU writes in this
        // thread. It reads the data of other threads (work, interrupts) in QEMU's own way.
        unsafe { (self.0)(vcpu.handle()) }
    }
}

/// Makes QEMU's clock jump.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jumps {
    run_on_cpu: RunOnCpu,
    get_cpu: GetCpu,
    runs: Ask,
    all_idle: Ask,
    deadline: Deadline,
    now: GetClock,
    jump: Do,
    run_timers: RunTimers,
}

impl Jumps {
    /// `None` if QEMU does not export the needed functions, or guest time does not follow instructions.
    pub(crate) fn find() -> Option<Jumps> {
        let use_icount = ffi::find(c"use_icount").cast_const().cast::<c_int>();
        // SAFETY: a variable of QEMU, set before the machine is made.
        if use_icount.is_null() || unsafe { use_icount.read_volatile() } == 0 {
            return None;
        }
        Some(Jumps {
            run_on_cpu: function!(c"async_run_on_cpu" as RunOnCpu)?,
            get_cpu: function!(c"qemu_get_cpu" as GetCpu)?,
            runs: function!(c"runstate_is_running" as Ask)?,
            all_idle: function!(c"all_cpu_threads_idle" as Ask)?,
            deadline: function!(c"qemu_clock_deadline_ns_all" as Deadline)?,
            now: function!(c"qemu_clock_get_ns" as GetClock)?,
            jump: function!(c"icount_start_warp_timer" as Do)?,
            run_timers: function!(c"qemu_clock_run_timers" as RunTimers)?,
        })
    }

    /// Makes the vCPUs' thread do `work`, with QEMU's big lock, when the running block has ended. Until then `vcpu` is
    /// not idle for QEMU.
    pub(crate) fn at_end_of_block(self, vcpu: u32, work: Work) {
        let number = c_int::try_from(vcpu).unwrap_or(NO_CPU);
        // SAFETY: called in the vCPUs' thread; vCPUs and functions exist until the machine ends.
        unsafe {
            let cpu = (self.get_cpu)(number);
            if !cpu.is_null() {
                (self.run_on_cpu)(cpu, work, 0);
            }
        }
    }

    /// Makes the clock jump to the next timer and runs due timers, if all vCPUs are halted. Call it in the vCPUs'
    /// thread between two time slices, with QEMU's big lock.
    pub(crate) fn jump(self) -> Jump {
        // SAFETY: QEMU's main loop makes the first calls with the lock, and the vCPUs' thread makes the other calls
        // between two slices.
        unsafe {
            if !(self.runs)() || !(self.all_idle)() {
                return Jump::NotIdle;
            }
            let deadline_ns = (self.deadline)(GUEST_TIME, TIMERS_OF_GUEST);
            if deadline_ns < 0 {
                return Jump::NoTimer;
            }
            let due_ns = (self.now)(GUEST_TIME).wrapping_add(deadline_ns);
            (self.jump)();
            if (self.now)(GUEST_TIME) != due_ns {
                return Jump::Wrong;
            }
            (self.run_timers)(GUEST_TIME);
        }
        Jump::Made
    }
}
