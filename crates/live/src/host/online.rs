//! The CPUs that are online now. The kernel may take a CPU offline, or bring
//! one online, at any time.

use std::time::{Duration, Instant};

use super::cpu_list::parse_cpu_list;
use super::root::Root;

/// The CPUs that are online, ascending; `None` if the kernel does not say.
#[must_use]
pub fn online_cpus(root: &Root) -> Option<Vec<u32>> {
    parse_cpu_list(root.text("sys/devices/system/cpu/online")?.trim()).ok()
}

/// The CPUs that the machine has and that are offline, ascending; empty if the kernel does not say.
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

/// Longest time that the kernel takes between moving the threads off a CPU and removing
/// the CPU from the list of online CPUs. It is some ms on hardware, and more in a
/// machine whose host is busy.
const LEAVE_TIME: Duration = Duration::from_millis(300);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Whether `cpu` is offline or about to be. To ask after a thread was moved off the CPU, or could
/// not be pinned to it. Waits up to 300 ms.
#[must_use]
pub fn is_leaving(root: &Root, cpu: u32) -> bool {
    is_any_leaving(root, &[cpu])
}

/// Whether any of `cpus` is offline or about to be. Waits up to 300 ms.
#[must_use]
pub fn is_any_leaving(root: &Root, cpus: &[u32]) -> bool {
    let start = Instant::now();
    while cpus.iter().all(|cpu| is_online(root, *cpu)) {
        if start.elapsed() > LEAVE_TIME {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
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
