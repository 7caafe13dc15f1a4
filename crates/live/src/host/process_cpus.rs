//! The CPUs on which this process may run: fewer than the machine has if a cpuset (a container with `--cpuset-cpus`) or
//! taskset(1) limits them. They are the defaults and the limits of options such as `-c`.

use std::sync::OnceLock;

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::cpu_list::parse_cpu_list;
use super::root::Root;
use crate::threads::affinity;

/// The online CPUs that this process may use, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessCpus {
    /// The CPUs of the affinity with which irqlab was started. They are the default if the user names no CPU.
    pub started_with: Vec<u32>,
    /// The CPUs of the cpuset. The kernel lets a thread move to any of them, also if taskset(1) has excluded them, so
    /// they include `started_with`.
    pub permitted: Vec<u32>,
}

/// The CPUs of this process. The first call determines them, so `main` calls this function before any thread is pinned.
/// If the kernel does not tell, all online CPUs count as usable.
pub fn process_cpus() -> &'static ProcessCpus {
    static CPUS: OnceLock<ProcessCpus> = OnceLock::new();
    CPUS.get_or_init(|| {
        let online = Root::default().text("sys/devices/system/cpu/online").unwrap_or_default();
        let online = parse_cpu_list(&online).unwrap_or_default();
        let online_in = |cpus: Option<CpuSet>| match cpus {
            Some(set) => members_of(&set, &online),
            None => online.clone(),
        };
        // The affinity of the process's first thread, whichever thread calls this.
        let started_with = online_in(affinity(Some(getpid())).ok());
        let permitted = online_in(cpus_of_cpuset());
        let permitted = if permitted.is_empty() { started_with.clone() } else { permitted };
        ProcessCpus { started_with, permitted }
    })
}

/// The members of `set` among the online CPUs. A CPU whose number is too high for the set counts as a member.
fn members_of(set: &CpuSet, online: &[u32]) -> Vec<u32> {
    let is_member = |cpu: &&u32| **cpu as usize >= CpuSet::MAX_CPU || set.is_set(**cpu as usize);
    online.iter().filter(is_member).copied().collect()
}

/// The CPUs of the cpuset; `None` if the kernel does not tell. Requests an affinity of all CPUs, which the kernel
/// reduces to those of the cpuset (kernel/sched/syscalls.c, `__sched_setaffinity`). A new thread makes the request, so
/// no other thread's affinity changes.
fn cpus_of_cpuset() -> Option<CpuSet> {
    let request_all_cpus = || {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        sched_setaffinity(None, &all).ok()?;
        affinity(None).ok()
    };
    let thread =
        std::thread::Builder::new().name("irqlab-cpuset".to_owned()).spawn(request_all_cpus);
    thread.ok()?.join().ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_use_at_least_one_cpu() {
        let cpus = process_cpus();
        assert!(!cpus.started_with.is_empty());
        assert!(cpus.started_with.iter().all(|cpu| cpus.permitted.contains(cpu)), "{cpus:?}");
    }

    #[test]
    fn cpus_outside_of_the_set_are_left_out() {
        let mut set = CpuSet::new();
        [1, 3, 5].into_iter().for_each(|cpu| set.set(cpu));
        assert_eq!(members_of(&set, &[0, 1, 5]), [1, 5]);
        let beyond = CpuSet::MAX_CPU as u32;
        assert_eq!(members_of(&set, &[0, beyond]), [beyond]);
    }
}
