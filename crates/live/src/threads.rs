//! Properties of a measuring thread: its CPU, its scheduling class, its locked memory, its CPU time, and the kernel's
//! counts of its page faults and context switches. The loops, stimuli and receivers of all experiments use them.

use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::host::{Root, format_cpu_list, is_leaving, is_online, process_cpus};

/// The scheduler's CPU set of `cpus`. CPUs beyond the set's size are left out.
#[must_use]
pub fn cpu_set(cpus: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter()
        .filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU)
        .for_each(|&cpu| set.set(cpu as usize));
    set
}

/// Size of the kernel's CPU set that [`affinity`] can read, bytes: Linux has at most 8,192 CPUs (`NR_CPUS`).
const KERNEL_SET_BYTES: usize = 1024;

/// The CPUs on which a thread may run; `None`: this thread. CPUs beyond the set's size are left out.
///
/// The kernel writes a bit for each CPU that the machine might ever have. It refuses a set for 1,024 CPUs on a machine that
/// might have more, also if it has few.
///
/// Fails if the kernel refuses.
pub fn affinity(thread: Option<Pid>) -> io::Result<CpuSet> {
    let mut words = [0_u64; KERNEL_SET_BYTES / 8];
    let id = thread.map_or(0, |thread| thread.as_raw_nonzero().get());
    let pointer = words.as_mut_ptr();
    // SAFETY: the kernel writes at most the given number of bytes, which is that of `words`.
    let bytes =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, id, KERNEL_SET_BYTES, pointer) };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut set = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| words[cpu / 64] >> (cpu % 64) & 1 == 1)
        .for_each(|cpu| set.set(cpu));
    Ok(set)
}

/// Pins this thread to one CPU.
///
/// Fails if the CPU is offline, or outside this process's cpuset. Then the error names the CPUs of the cpuset.
pub fn pin(cpu: u32) -> io::Result<()> {
    sched_setaffinity(None, &cpu_set(&[cpu])).map_err(|error| {
        if is_leaving(&Root::default(), cpu) {
            return io::Error::other(format!("CPU {cpu} is offline"));
        }
        let error = io::Error::from(error);
        let permitted = format_cpu_list(&process_cpus().permitted);
        let message =
            format!("running on CPU {cpu} failed: {error} (this process may use {permitted})");
        io::Error::new(error.kind(), message)
    })
}

/// Whether this thread runs on `cpu` now. The kernel keeps the CPU's number in user memory, so this
/// needs no system call.
#[inline]
#[must_use]
pub fn runs_on(cpu: u32) -> bool {
    // SAFETY: sched_getcpu takes no arguments and touches no memory of this program.
    let current = unsafe { libc::sched_getcpu() };
    i64::from(current) == i64::from(cpu)
}

/// Whether this thread may run only on `cpu`, as after [`pin`]. The kernel lets a pinned thread run
/// anywhere once its CPU goes offline, and does not restrict it again when the CPU returns.
#[must_use]
pub fn is_pinned_to(cpu: u32) -> bool {
    affinity(None).is_ok_and(|allowed| allowed == cpu_set(&[cpu]))
}

/// A warning if this thread, which was restricted to `cpus`, may run elsewhere because they all went offline. `None` without `cpus`, if one of them is online, or if the thread is still restricted.
#[must_use]
pub fn lost_observer_cpus(root: &Root, cpus: &[u32]) -> Option<String> {
    let is_lost = !cpus.is_empty()
        && !cpus.iter().any(|cpu| is_online(root, *cpu))
        && affinity(None).is_ok_and(|allowed| allowed != cpu_set(cpus));
    is_lost.then(|| {
        format!(
            "irqlab's own thread lost its CPUs ({}), which went offline, and ran on those of the loops",
            format_cpu_list(cpus)
        )
    })
}

/// A warning if irqlab's own thread shares a CPU with a measured thread or loop. `own_cpus`: where it runs; empty if no
/// CPU is left for it. `effect`: what it does to the results.
#[must_use]
pub fn shared_cpus_warning(measured: &[u32], own_cpus: &[u32], effect: &str) -> Option<String> {
    let is_shared = own_cpus.is_empty() || own_cpus.iter().any(|cpu| measured.contains(cpu));
    is_shared.then(|| {
        format!("irqlab's own thread runs on measured CPUs {effect} (leave it a CPU with -c or -H)")
    })
}

/// Checks that this thread is still pinned to `cpu` and runs there. Call it after a measurement that began with
/// [`pin`]: the kernel removes the restriction to a CPU that goes offline, and does not restore it.
///
/// Fails if the CPU went offline meanwhile, or the thread was moved.
pub fn check_pinned(cpu: u32) -> io::Result<()> {
    if is_pinned_to(cpu) && runs_on(cpu) {
        return Ok(());
    }
    let why = if is_leaving(&Root::default(), cpu) {
        "it went offline"
    } else {
        "the kernel moved this thread to another CPU (did its CPU go offline for a while?)"
    };
    Err(io::Error::other(format!("CPU {cpu} was lost while it was measured: {why}")))
}

/// Pins another process with a single thread, such as a kernel thread, to one CPU.
///
/// Fails without CAP_SYS_NICE, or if the kernel does not allow the move.
pub fn pin_process(pid: u32, cpu: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    sched_setaffinity(Some(pid), &cpu_set(&[cpu])).map_err(Into::into)
}

/// Gives this thread the class SCHED_FIFO at `priority`.
///
/// Fails without CAP_SYS_NICE, or a limit on real-time priorities that allows `priority`.
pub fn real_time(priority: u32) -> io::Result<()> {
    set_scheduling_class(libc::SCHED_FIFO, priority)
}

/// Gives this thread the class SCHED_OTHER, that of usual threads.
///
/// Fails if the kernel refuses.
pub fn usual_class() -> io::Result<()> {
    set_scheduling_class(libc::SCHED_OTHER, 0)
}

/// Gives this thread the class SCHED_RR at `priority`.
///
/// Fails like [`real_time`].
pub fn round_robin(priority: u32) -> io::Result<()> {
    set_scheduling_class(libc::SCHED_RR, priority)
}

/// The structure of sched_setattr(2), in its first version.
#[repr(C)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Gives this thread the class SCHED_DEADLINE with these times.
///
/// Fails without CAP_SYS_NICE, with EPERM if the thread may run on fewer CPUs than its root domain has, and with EBUSY if the
/// CPUs have not enough time left.
pub fn deadline(runtime_ns: u64, deadline_ns: u64, period_ns: u64) -> io::Result<()> {
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>() as u32,
        policy: libc::SCHED_DEADLINE as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime_ns,
        deadline_ns,
        period_ns,
    };
    // SAFETY: the structure has the size that it states and outlives the call, which changes this thread's scheduling alone.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this thread the class SCHED_IDLE: it runs only while no other thread wants the CPU.
///
/// Fails if the kernel refuses.
pub fn lowest_priority() -> io::Result<()> {
    set_scheduling_class(libc::SCHED_IDLE, 0)
}

fn set_scheduling_class(class: libc::c_int, priority: u32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority as libc::c_int };
    // SAFETY: the structure is valid for the call, which changes this thread's scheduling alone.
    let result = unsafe { libc::sched_setscheduler(0, class, &parameter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks this process's memory in RAM until this value is dropped.
pub struct LockedMemory {
    /// `Err` if the kernel did not lock the memory.
    pub result: io::Result<()>,
}

impl LockedMemory {
    /// Locks all memory that is mapped now. Call it after the loops have mapped their memory: later mappings are not
    /// locked, and need not fit under the limit on locked memory.
    #[must_use]
    pub fn current() -> LockedMemory {
        // SAFETY: locking changes no memory's contents or place.
        let result = unsafe { libc::mlockall(libc::MCL_CURRENT) };
        LockedMemory { result: if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) } }
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        // SAFETY: unlocking changes no memory's contents or place.
        unsafe { libc::munlockall() };
    }
}

/// The clock of one thread's CPU time. Any thread of this process can read it.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// The clock of the calling thread (pthread_getcpuclockid(3)).
    ///
    /// Fails if the kernel has no such clock.
    pub fn of_this_thread() -> io::Result<CpuClock> {
        let mut clock = 0;
        // SAFETY: this thread's own id, and a number that outlives the call.
        match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } {
            0 => Ok(CpuClock(clock)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// The clock of a process with a single thread, such as a kernel thread
    /// (clock_getcpuclockid(3)). `None` if there is no such process.
    #[must_use]
    pub fn of_process(pid: u32) -> Option<CpuClock> {
        let mut clock = 0;
        let pid = libc::pid_t::try_from(pid).ok()?;
        // SAFETY: the number outlives the call. The call fails for a process that does not exist.
        let result = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
        (result == 0).then_some(CpuClock(clock))
    }

    /// CPU time of the thread, ns; 0 after it has ended.
    #[must_use]
    pub fn now_ns(self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure outlives the call; an ended thread's clock is an error.
        match unsafe { libc::clock_gettime(self.0, &raw mut time) } {
            0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            _ => 0,
        }
    }
}

/// The kernel's counts of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounts {
    /// Page faults, major and minor.
    pub page_faults: u64,
    /// Context switches, voluntary and involuntary.
    pub switches: u64,
    /// Voluntary context switches: how often the thread gave up its CPU in order to sleep.
    pub sleeps: u64,
}

impl ThreadCounts {
    /// The counts of this thread so far; `None` if the kernel does not report them.
    #[must_use]
    pub fn now() -> Option<ThreadCounts> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills the structure, which is as large as it expects.
        let usage = unsafe {
            (libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) == 0)
                .then(|| usage.assume_init())
        }?;
        let sum = |a: libc::c_long, b: libc::c_long| (a as u64).saturating_add(b as u64);
        Some(ThreadCounts {
            page_faults: sum(usage.ru_minflt, usage.ru_majflt),
            switches: sum(usage.ru_nvcsw, usage.ru_nivcsw),
            sleeps: usage.ru_nvcsw as u64,
        })
    }

    /// The increase since `before`.
    #[must_use]
    pub fn since(self, before: ThreadCounts) -> ThreadCounts {
        ThreadCounts {
            page_faults: self.page_faults.saturating_sub(before.page_faults),
            switches: self.switches.saturating_sub(before.switches),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
        }
    }
}

/// Context switches of a thread of this process so far, voluntary and involuntary (/proc/self/task/TID/status,
/// proc_pid_status(5)). `None` after it has ended.
#[must_use]
pub fn switches_of_thread(tid: rustix::thread::Pid) -> Option<u64> {
    let path = format!("/proc/self/task/{}/status", tid.as_raw_nonzero());
    let status = std::fs::read_to_string(path).ok()?;
    let counts = status.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.ends_with("ctxt_switches").then(|| value.trim().parse::<u64>().ok())?
    });
    let counts: Vec<u64> = counts.collect();
    (counts.len() == 2).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_affinity_is_that_which_was_set() {
        let before = affinity(None).unwrap();
        assert_eq!(before, rustix::thread::sched_getaffinity(None).unwrap());
        let cpu = process_cpus().started_with[0];
        pin(cpu).unwrap();
        assert_eq!(affinity(None).unwrap(), cpu_set(&[cpu]));
        assert_eq!(affinity(Some(rustix::thread::gettid())).unwrap(), cpu_set(&[cpu]));
        assert!(is_pinned_to(cpu));
        sched_setaffinity(None, &before).unwrap();
    }

    #[test]
    fn a_cpu_that_irqlab_shares_with_a_loop_is_warned_about() {
        let warning = |own_cpus: &[u32]| shared_cpus_warning(&[0, 1], own_cpus, "with an effect");
        let expected = "irqlab's own thread runs on measured CPUs with an effect (leave it a CPU with -c or -H)";
        assert_eq!(warning(&[]).as_deref(), Some(expected));
        assert_eq!(warning(&[1, 2]).as_deref(), Some(expected));
        assert_eq!(warning(&[2]), None);
    }
}
