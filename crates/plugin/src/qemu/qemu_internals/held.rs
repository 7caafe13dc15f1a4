//! Lets the vCPUs' thread wait between two blocks while the machine is stopped and its state is saved.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use super::{CpuExit, GetCpu, NO_CPU};
use crate::qemu::ffi;

type Work = extern "C" fn(*mut c_void, usize);
type RunOnCpu = unsafe extern "C" fn(*mut c_void, Work, usize);
type Ask = unsafe extern "C" fn() -> bool;
type Do = unsafe extern "C" fn();
type OnCpu = unsafe extern "C" fn(*mut c_void);
type Lock = unsafe extern "C" fn(*const c_char, c_int);
type RunTimers = unsafe extern "C" fn(c_int) -> bool;

/// `QEMU_CLOCK_VIRTUAL`.
const GUEST_TIME: c_int = 1;
/// How often to look whether the machine was stopped, or goes on.
const POLL: Duration = Duration::from_micros(500);

/// Ways to hold the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldMachine {
    run_on_cpu: RunOnCpu,
    get_cpu: GetCpu,
    cpu_exit: CpuExit,
    runs: Ask,
    pause: Do,
    do_work: OnCpu,
    lock: Lock,
    unlock: Do,
    run_timers: RunTimers,
}

impl HeldMachine {
    /// `None` if QEMU doesn't export the functions for it.
    pub(crate) fn find() -> Option<HeldMachine> {
        Some(HeldMachine {
            run_on_cpu: function!(c"async_run_on_cpu" as RunOnCpu)?,
            get_cpu: function!(c"qemu_get_cpu" as GetCpu)?,
            cpu_exit: function!(c"cpu_exit" as CpuExit)?,
            runs: function!(c"runstate_is_running" as Ask)?,
            pause: function!(c"pause_all_vcpus" as Do)?,
            do_work: function!(c"process_queued_cpu_work" as OnCpu)?,
            lock: function!(c"bql_lock_impl" as Lock)?,
            unlock: function!(c"bql_unlock" as Do)?,
            run_timers: function!(c"qemu_clock_run_timers" as RunTimers)?,
        })
    }

    fn cpus(self) -> impl Iterator<Item = *mut c_void> {
        let get = self.get_cpu;
        // SAFETY: looks a vCPU up by its number; called in the vCPUs' thread.
        (0..NO_CPU).map(move |number| unsafe { get(number) }).take_while(|cpu| !cpu.is_null())
    }

    /// Has the vCPU that runs stop at the end of its block, and do `work` before any vCPU runs and
    /// after all other work that is queued by then. The work has QEMU's big lock.
    pub(crate) fn at_end_of_block(self, work: Work) {
        let Some(last) = self.cpus().last() else { return };
        // SAFETY: vCPUs and functions exist until the machine ends. Work for the last vCPU is done last.
        unsafe { (self.run_on_cpu)(last, work, 0) };
        for cpu in self.cpus() {
            // SAFETY: as above. Otherwise the others run before QEMU checks for work.
            unsafe { (self.cpu_exit)(cpu) };
        }
    }

    /// Runs due timers in guest time, as the vCPUs' thread does between two slices.
    pub(crate) fn run_timers(self) {
        // SAFETY: called between two slices, with QEMU's big lock.
        unsafe { (self.run_timers)(GUEST_TIME) };
    }

    /// Waits until the machine was stopped by the monitor and runs again. Only from work, so in the
    /// vCPUs' thread, with QEMU's big lock.
    pub(crate) fn wait(self) {
        self.wait_until(|| {
            // SAFETY: asks under the lock.
            !unsafe { (self.runs)() }
        });
        // The thread that stops the machine waits for each vCPU. All of them are this thread's, so they pause
        // at once. QEMU's own way there would lose which vCPU runs next. SAFETY: the main loop does
        // the same, and has given the lock up to wait for it.
        unsafe { (self.pause)() };
        self.wait_until(|| {
            for cpu in self.cpus() {
                // SAFETY: saving asks the vCPUs' thread for work and waits for it. Work may do other work,
                // because QEMU removes work from its list before it starts.
                unsafe { (self.do_work)(cpu) };
            }
            // SAFETY: asks under the lock. The thread that starts the machine has started all vCPUs,
            // before it gives up the lock.
            unsafe { (self.runs)() }
        });
    }

    fn wait_until(self, is_so: impl Fn() -> bool) {
        while !is_so() {
            // SAFETY: work has the lock; it may be given up in between.
            unsafe { (self.unlock)() };
            std::thread::sleep(POLL);
            // SAFETY: the lock is not held; the place is for QEMU's own profiles.
            unsafe { (self.lock)(c"irqlab".as_ptr(), 0) };
        }
    }
}
