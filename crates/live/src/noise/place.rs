//! Where and how a loop's thread runs, and what the kernel counts of it.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// The CPUs as a set for the scheduler; those beyond its size are left out.
#[must_use]
pub fn cpu_set(cpus: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter()
        .filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU)
        .for_each(|&cpu| set.set(cpu as usize));
    set
}

/// Pins this thread.
///
/// # Errors
/// When the CPU went offline, or is outside of this process's cpuset.
pub fn pin(cpu: u32) -> io::Result<()> {
    sched_setaffinity(None, &cpu_set(&[cpu])).map_err(Into::into)
}

/// Makes this thread one of SCHED_FIFO at that priority.
///
/// # Errors
/// Without CAP_SYS_NICE, or a limit on real-time priorities that allows it.
pub fn real_time(priority: u32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority as libc::c_int };
    // SAFETY: the structure is valid for the call, which changes this thread's scheduling alone.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps all memory of this process in RAM for as long as this lives.
pub struct Locked {
    /// Whether the kernel agreed; else why not.
    pub result: io::Result<()>,
}

impl Locked {
    /// Locks what is there. What comes later is not a loop's, and need not fit under the limit.
    #[must_use]
    pub fn all() -> Locked {
        // SAFETY: locking changes no memory's contents or place.
        let result = unsafe { libc::mlockall(libc::MCL_CURRENT) };
        Locked { result: if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) } }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: unlocking changes no memory's contents or place.
        unsafe { libc::munlockall() };
    }
}

/// What the kernel has counted of this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Page faults, with and without IO.
    pub page_faults: u64,
    /// Switches to other tasks, wanted and not.
    pub switches: u64,
}

impl Counted {
    /// Until now; absent when the kernel does not say.
    #[must_use]
    pub fn now() -> Option<Counted> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills the structure, which is as large as it expects.
        let usage = unsafe {
            (libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) == 0)
                .then(|| usage.assume_init())
        }?;
        let sum = |a: libc::c_long, b: libc::c_long| (a as u64).saturating_add(b as u64);
        Some(Counted {
            page_faults: sum(usage.ru_minflt, usage.ru_majflt),
            switches: sum(usage.ru_nvcsw, usage.ru_nivcsw),
        })
    }

    /// How much more than `before`.
    #[must_use]
    pub fn since(self, before: Counted) -> Counted {
        Counted {
            page_faults: self.page_faults.saturating_sub(before.page_faults),
            switches: self.switches.saturating_sub(before.switches),
        }
    }
}
