//! The start and end of a first process; part of the other guests here.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::fs;
use std::io::Write;

unsafe extern "C" {
    fn mount(
        from: *const c_char,
        to: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn reboot(how: c_int) -> c_int;
    fn sched_setaffinity(task: c_int, bytes: usize, mask: *const c_ulong) -> c_int;
}

const POWER_OFF: c_int = 0x4321_fedc;

/// Mounts file systems of the kernel, each a kind and a place.
pub fn mount_all<const COUNT: usize>(all: [(&CStr, &CStr); COUNT]) {
    for (kind, place) in all {
        // SAFETY: C strings; no data.
        unsafe { mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    }
}

/// Has this task run on the last CPU alone.
#[allow(dead_code)]
pub fn run_on_the_last_cpu() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    run_on_cpu(cpus - 1);
}

/// Has this task run on one CPU alone.
#[allow(dead_code)]
pub fn run_on_cpu(cpu: usize) {
    run_on(1 << cpu);
}

/// Has this task run on any CPU again.
#[allow(dead_code)]
pub fn run_on_all_cpus() {
    run_on(c_ulong::MAX);
}

fn run_on(mask: c_ulong) {
    // SAFETY: reads the mask, of as many bytes.
    let result = unsafe { sched_setaffinity(0, size_of::<c_ulong>(), &raw const mask) };
    assert_eq!(result, 0);
}

/// Waits until the kernel has done the work that it deferred at its boot.
#[allow(dead_code)]
pub fn wait_for_boot_work() {
    std::thread::sleep(std::time::Duration::from_secs(3));
}

/// Ends the machine.
pub fn power_off() {
    // SAFETY: the argument is a number.
    unsafe { reboot(POWER_OFF) };
}

/// The name of a function in the source, where the compiler has replaced the function by one copy.
fn name_in_source(symbol: &str) -> &str {
    let is_copy = |suffix: &&str| matches!(*suffix, "constprop.0" | "isra.0");
    symbol.split_once('.').filter(|(_, suffix)| is_copy(suffix)).map_or(symbol, |(name, _)| name)
}

/// The wanted symbols, each with the next one, at which it ends.
pub fn hand_over_symbols() {
    let wanted = fs::read_to_string("/wanted").unwrap();
    let wanted: Vec<&str> = wanted.lines().collect();
    let all = fs::read_to_string("/proc/kallsyms").unwrap();
    let mut list = String::new();
    let mut ends = false;
    for line in all.lines() {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let name = name_in_source(columns[2]);
        let is_wanted = wanted.contains(&name);
        if is_wanted || ends {
            list += &format!("{} {name}\n", columns[0]);
        }
        ends = is_wanted;
    }
    fs::OpenOptions::new()
        .write(true)
        .open("/dev/ttyS1")
        .unwrap()
        .write_all(list.as_bytes())
        .unwrap();
}
