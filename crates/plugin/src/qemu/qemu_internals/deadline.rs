//! QEMU's next timer: the time at which QEMU has work to do between two slices.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::GetIcount;
use super::idle::{Deadline, GUEST_TIME};
use crate::qemu::ffi;

/// All timers that bound the number of instructions that QEMU lets a vCPU execute.
const ALL_TIMERS: c_int = !0;

/// QEMU's next timer in guest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextTimer {
    /// The clock's time when QEMU last counted instructions. Not later than now.
    pub(crate) counted_ns: u64,
    /// When the timer is due by the same clock; `None` without a timer.
    pub(crate) due_ns: Option<u64>,
}

/// Asks QEMU inside of a block for its next timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// QEMU's variable that says which vCPU runs in this thread.
    current: *mut *mut c_void,
    deadline: Deadline,
    clock: GetIcount,
}

impl Deadlines {
    /// The deadlines of the calling thread, which is the vCPUs'. `None` if QEMU does not export what they need.
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
    /// Inside a block QEMU refuses to read its clock, because it would have to count the instructions of the running
    /// vCPU. If no vCPU seems to run, QEMU's clock shows the instructions that are counted so far.
    pub(crate) fn next_timer(self) -> NextTimer {
        // SAFETY: a variable of this thread, which only this thread reads. It has its value again before any code runs
        // other than the two functions below. They read clocks and lists of timers under their own locks.
        unsafe {
            let running = self.current.read_volatile();
            self.current.write_volatile(ptr::null_mut());
            let counted_ns = (self.clock)().cast_unsigned();
            let left_ns = (self.deadline)(GUEST_TIME, ALL_TIMERS);
            self.current.write_volatile(running);
            let due_ns =
                u64::try_from(left_ns).ok().map(|wait_ns| counted_ns.saturating_add(wait_ns));
            NextTimer { counted_ns, due_ns }
        }
    }
}
