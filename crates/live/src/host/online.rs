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

/// The CPUs that went offline since the kernel started, according to its log, ascending. CPUs that
/// are online again are included. Empty if this process may not read the log. For a simulated
/// machine, whose kernel started with the machine.
#[must_use]
pub fn went_offline() -> Vec<u32> {
    let size = klog(SYSLOG_ACTION_SIZE_BUFFER, &mut []).unwrap_or(0);
    let mut text = vec![0; size];
    let read = klog(SYSLOG_ACTION_READ_ALL, &mut text).unwrap_or(0);
    offline_in_log(&String::from_utf8_lossy(&text[..read.min(size)]))
}

/// Actions of syslog(2).
const SYSLOG_ACTION_READ_ALL: libc::c_int = 3;
const SYSLOG_ACTION_SIZE_BUFFER: libc::c_int = 10;

/// Calls syslog(2); returns its result, or `None` if the kernel refuses the action.
fn klog(action: libc::c_int, buffer: &mut [u8]) -> Option<usize> {
    let length = libc::c_int::try_from(buffer.len()).ok()?;
    // SAFETY: the kernel writes at most `length` bytes, and the buffer has this length.
    let result = unsafe { libc::klogctl(action, buffer.as_mut_ptr().cast(), length) };
    usize::try_from(result).ok()
}

/// Finds lines such as `smpboot: CPU 1 is now offline`; other architectures print `psci: ...`.
fn offline_in_log(log: &str) -> Vec<u32> {
    let cpu = |line: &str| {
        let before = line.trim_end().strip_suffix(" is now offline")?;
        before.rsplit_once("CPU ")?.1.parse().ok()
    };
    let mut cpus: Vec<u32> = log.lines().filter_map(cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_cpus_that_went_offline() {
        let log = "<6>[    3.1] smpboot: CPU 12 is now offline\n<6>[ 3.2] smpboot: CPU 1 is now offline\n\
                   <6>[    3.3] smpboot: Booting Node 0 Processor 1 APIC 0x1\n<6>[ 3.4] CPU 1 is now offline";
        assert_eq!(offline_in_log(log), [1, 12]);
        assert!(offline_in_log("").is_empty());
    }
}
