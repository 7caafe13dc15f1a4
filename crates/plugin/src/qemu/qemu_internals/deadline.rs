//! QEMU's next timer: the next time at which QEMU has work to do between two time slices. The clock plans slices by it.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::GetIcount;
use super::idle::{Deadline, GUEST_TIME};
use crate::qemu::ffi;

/// Attribute mask for all timers: each of them bounds how many instructions QEMU lets a vCPU execute.
const ALL_TIMERS: c_int = !0;

/// QEMU's next timer in guest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextTimer {
    /// The time of QEMU's clock when it counted instructions last. Not later than now.
    pub(crate) counted_ns: u64,
    /// When the timer is due, by QEMU's clock. `None` without a timer.
    pub(crate) due_ns: Option<u64>,
}

/// Asks QEMU for its next timer, also inside a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// QEMU's variable that says which vCPU runs in this thread.
    current: *mut *mut c_void,
    deadline: Deadline,
    clock: GetIcount,
}

impl Deadlines {
    /// Finds QEMU's functions. Call it in the vCPUs' thread. `None` if QEMU does not export them.
    pub(crate) fn of_this_thread() -> Option<Deadlines> {
        let current = ffi::find(c"current_cpu").cast::<*mut c_void>();
        if current.is_null() {
            return None;
        }
        Some(Deadlines {
            current,
            deadline: function!(c"qemu_clock_deadline_ns_all" as Deadline)?,
            clock: function!(c"icount_get" as GetIcount)?,
        })
    }

    /// The next timer. Call it in the vCPUs' thread.
    ///
    /// Inside a block QEMU refuses to read its clock, because it cannot count the instructions of the running vCPU
    /// there. If no vCPU seems to run, QEMU's clock shows the instructions that it has counted so far. So this function
    /// hides the running vCPU for the duration of the two calls.
    pub(crate) fn next_timer(self) -> NextTimer {
        // SAFETY: a variable of this thread, which only this thread reads. It gets its value back before any other code
        // than the two functions runs. These functions read clocks and lists of timers under their own locks.
        unsafe {
            let running = self.current.read_volatile();
            self.current.write_volatile(ptr::null_mut());
            let counted_ns = (self.clock)().cast_unsigned();
            let deadline_ns = (self.deadline)(GUEST_TIME, ALL_TIMERS);
            self.current.write_volatile(running);
            let due_ns =
                u64::try_from(deadline_ns).ok().map(|wait_ns| counted_ns.saturating_add(wait_ns));
            NextTimer { counted_ns, due_ns }
        }
    }
}
