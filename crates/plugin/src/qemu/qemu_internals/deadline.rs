//! When QEMU has something to do between two slices: its next timer.

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
    /// The clock's time when QEMU counted instructions last; not later than now.
    pub(crate) counted_ns: u64,
    /// When the timer is due by that clock; none without a timer.
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

    /// The next timer. In the vCPUs' thread.
    ///
    /// QEMU refuses to read its clock inside of a block, because it would count the instructions of the
    /// vCPU that runs. Where none runs, it shows what it has counted so far.
    pub(crate) fn next_timer(self) -> NextTimer {
        // SAFETY: a variable of this thread, which QEMU reads in this thread alone; it has its value again
        // before anything but these two functions runs. They read clocks and lists of timers, under their
        // own locks.
        unsafe {
            let running = self.current.read_volatile();
            self.current.write_volatile(ptr::null_mut());
            let counted_ns = (self.clock)().cast_unsigned();
            let left_ns = (self.deadline)(GUEST_TIME, ALL_TIMERS);
            self.current.write_volatile(running);
            let left_ns = u64::try_from(left_ns).ok();
            NextTimer { counted_ns, due_ns: left_ns.map(|left| counted_ns.saturating_add(left)) }
        }
    }
}
