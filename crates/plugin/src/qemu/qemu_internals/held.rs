//! Makes the vCPUs' thread wait between two blocks while `sim` stops the machine by QEMU's monitor and saves its state.
//! `devices/held.rs` uses it.

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
/// The interval at which the waiting thread checks whether the machine was stopped, or runs again.
const POLL: Duration = Duration::from_micros(500);

/// QEMU's functions that are needed to hold the machine.
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
    /// `None` if QEMU does not export the needed functions.
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

    /// QEMU's descriptions of all vCPUs.
    fn cpus(self) -> impl Iterator<Item = *mut c_void> {
        let get = self.get_cpu;
        // SAFETY: looks a vCPU up by its number; called in the vCPUs' thread.
        (0..NO_CPU).map(move |number| unsafe { get(number) }).take_while(|cpu| !cpu.is_null())
    }

    /// Makes the running vCPU stop at the end of its block. The vCPUs' thread then does `work`, with QEMU's big lock,
    /// before any vCPU runs. All other work that was queued before comes first.
    pub(crate) fn at_end_of_block(self, work: Work) {
        let Some(last) = self.cpus().last() else { return };
        // QEMU does the work of the last vCPU last. SAFETY: vCPUs and functions exist until the machine ends.
        unsafe { (self.run_on_cpu)(last, work, 0) };
        for cpu in self.cpus() {
            // Otherwise the other vCPUs would run before QEMU checks for work. SAFETY: vCPUs exist until the machine
            // ends.
            unsafe { (self.cpu_exit)(cpu) };
        }
    }

    /// Runs due timers in guest time, as the vCPUs' thread does between two slices.
    pub(crate) fn run_timers(self) {
        // SAFETY: called between two slices, with QEMU's big lock.
        unsafe { (self.run_timers)(GUEST_TIME) };
    }

    /// Waits until the monitor has stopped the machine, and it runs again. Call it only in work of a vCPU, which runs
    /// in the vCPUs' thread with QEMU's big lock.
    pub(crate) fn wait(self) {
        self.wait_until(|| {
            // SAFETY: called with the lock.
            !unsafe { (self.runs)() }
        });
        // The thread that stops the machine waits until each vCPU has paused. All vCPUs are in this thread, so
        // `pause_all_vcpus` pauses them at once. If QEMU paused them itself, it would forget which vCPU runs next.
        // SAFETY: the main loop makes the same call, and has released the lock to wait for the vCPUs.
        unsafe { (self.pause)() };
        self.wait_until(|| {
            for cpu in self.cpus() {
                // To save the machine, QEMU queues work for the vCPUs' thread and waits for it. SAFETY: work may do
                // other work, because QEMU removes work from its list before it starts it.
                unsafe { (self.do_work)(cpu) };
            }
            // SAFETY: called with the lock. The thread that starts the machine starts all vCPUs before it releases the
            // lock.
            unsafe { (self.runs)() }
        });
    }

    /// Releases QEMU's big lock until the condition holds, and checks the condition with the lock.
    fn wait_until(self, condition_holds: impl Fn() -> bool) {
        while !condition_holds() {
            // SAFETY: work has the lock, and may release it in between.
            unsafe { (self.unlock)() };
            std::thread::sleep(POLL);
            // SAFETY: this thread does not hold the lock. The arguments name the caller for QEMU's own profiles.
            unsafe { (self.lock)(c"irqlab".as_ptr(), 0) };
        }
    }
}
