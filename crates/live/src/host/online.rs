//! The CPUs that are online now. The kernel may take a CPU offline, or bring one online, at any time. Benches use these
//! functions to distinguish a CPU that went offline from other errors.

use std::time::{Duration, Instant};

use lab::experiment::BenchError;

use super::cpu_list::parse_cpu_list;
use super::root::Root;

/// The CPUs that are online, ascending; `None` if the kernel does not say.
#[must_use]
pub fn online_cpus(root: &Root) -> Option<Vec<u32>> {
    parse_cpu_list(root.text("sys/devices/system/cpu/online")?.trim()).ok()
}

/// The CPUs that are present but offline, ascending; empty if the kernel does not say.
#[must_use]
pub fn offline_cpus(root: &Root) -> Vec<u32> {
    let present = root.text("sys/devices/system/cpu/present");
    let present = present.and_then(|list| parse_cpu_list(list.trim()).ok());
    let Some((mut offline, online)) = present.zip(online_cpus(root)) else { return Vec::new() };
    offline.retain(|cpu| !online.contains(cpu));
    offline
}

/// Whether a CPU is online; true if the kernel does not say.
#[must_use]
pub fn is_online(root: &Root, cpu: u32) -> bool {
    online_cpus(root).is_none_or(|online| online.contains(&cpu))
}

/// When the kernel takes a CPU offline, it first moves the threads off the CPU, and later removes the CPU from the
/// list of online CPUs. This is the longest time between both steps. It is some ms on hardware, and more in a
/// virtual machine whose host is busy.
const LEAVE_TIME: Duration = Duration::from_millis(300);
/// Time between two readings of the list.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The online CPUs of a simulated machine: the requested ones, or all of them if `requested` is `None`.
///
/// Fails if the machine has not all of them, or does not say which CPUs it has.
pub fn guest_cpus(root: &Root, requested: Option<&[u32]>) -> Result<Vec<u32>, BenchError> {
    let failed = |reason: String| BenchError::Failed(reason);
    let online = root.text("sys/devices/system/cpu/online");
    let online =
        online.ok_or_else(|| failed("the guest does not say which CPUs it has".to_owned()))?;
    let mut cpus = parse_cpu_list(online.trim()).map_err(|error| failed(error.to_string()))?;
    let Some(requested) = requested else { return Ok(cpus) };
    if let Some(absent) = requested.iter().find(|cpu| !cpus.contains(cpu)) {
        return Err(failed(format!("the guest has no CPU {absent}")));
    }
    cpus.retain(|cpu| requested.contains(cpu));
    Ok(cpus)
}

/// Whether `cpu` is offline or will be within 300 ms. Waits up to 300 ms for the answer. Call this after a thread was
/// moved off the CPU, or could not be pinned to it.
#[must_use]
pub fn is_leaving(root: &Root, cpu: u32) -> bool {
    is_any_leaving(root, &[cpu])
}

/// Like [`is_leaving`], for any of `cpus`.
#[must_use]
pub fn is_any_leaving(root: &Root, cpus: &[u32]) -> bool {
    let start = Instant::now();
    while cpus.iter().all(|cpu| is_online(root, *cpu)) {
        if start.elapsed() > LEAVE_TIME {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::plant;

    #[test]
    fn cpus_that_are_there_and_not_online_are_offline() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert!(offline_cpus(&root).is_empty());
        plant(directory.path(), "sys/devices/system/cpu/present", "0-3\n");
        assert!(offline_cpus(&root).is_empty());
        plant(directory.path(), "sys/devices/system/cpu/online", "0,2\n");
        assert_eq!(offline_cpus(&root), [1, 3]);
    }
}
