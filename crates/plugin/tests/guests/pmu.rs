//! The first process of the guest of `machines/pmu.rs`, which compiles this file by itself.
//!
//! Phase `counters` opens counters itself and writes pairs of markers: a count and its expected
//! value. Phase `perf` runs the tool of that name. Phase `checkpoint` counts for so long that there
//! is time for one.

#[path = "events.rs"]
mod events;
#[path = "../../../guest/src/firmware.rs"]
mod firmware;
#[allow(dead_code)]
#[path = "init.rs"]
mod init;
#[allow(dead_code)]
#[path = "../../../simrecord/src/marker.rs"]
mod marker;
#[path = "../../../guest/src/ports.rs"]
mod ports;
#[path = "request.rs"]
mod request;
#[path = "tool.rs"]
mod tool;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use events::{CYCLES, Counter, EXCLUDE_USER, INSTRUCTIONS, rounds};

/// The processor's number for instructions.
const RETIRED: u64 = 0xc0;

fn main() {
    // The kernel passes the parameters that it does not know to the first process.
    match std::env::args().nth(1).as_deref() {
        Some("loop") => {
            let iterations = std::env::args().nth(2).unwrap();
            return events::two_instructions_each(iterations.parse().unwrap());
        }
        Some("rdpmc") => {
            events::counted_by_rdpmc(0, 1);
            return;
        }
        _ => {}
    }
    init::mount_all([(c"proc", c"/proc"), (c"sysfs", c"/sys"), (c"devtmpfs", c"/dev")]);
    let request = request::Request::receive();
    marker::mark(marker::FULL, 0);
    match request.phase.as_str() {
        "counters" => counters(),
        "perf" => tool::run(),
        "checkpoint" => across_a_checkpoint(),
        other => panic!("phase {other}"),
    }
    init::power_off();
}

/// Marks a count and its expected value.
fn note(number: u32, counted: u64, expected: u64) {
    marker::mark(marker::USER_FIRST + number, counted);
    marker::mark(marker::USER_FIRST + number, expected);
}

fn counters() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    // Counters of CPU 0 are read there.
    init::run_on_cpu(0);
    read_in_user_mode();
    flags_stay();
    not_where_it_may_not();
    beside_markers();
    without_the_kernel();
    one_after_the_other();
    from_cpu_to_cpu(cpus);
    samples();
    marker::mark(marker::END, 0);
}

/// `rdpmc` around a loop of known length, user mode only.
fn read_in_user_mode() {
    for event in [INSTRUCTIONS, CYCLES] {
        let mut counter = Counter::on(event);
        let index = counter.index_in_user_mode();
        for iterations in [1, 1_000, 5_000_000] {
            let (counted, expected) = events::counted_by_rdpmc(index, iterations);
            note(if event == CYCLES { 12 } else { 1 }, counted, expected);
        }
    }
}

/// `rdpmc` changes no flag, whichever instruction set it.
fn flags_stay() {
    let mut counter = Counter::on(INSTRUCTIONS);
    let index = counter.index_in_user_mode();
    for pair in [(1, 1), (1, 2), (1 << 63, 1), (0x1ff, 0xff), (u64::MAX, 0)] {
        let (with, without) = events::flags_beside_rdpmc(index, pair);
        note(11, with, without);
    }
}

/// A task without a counter of its own can't read the processor's.
fn not_where_it_may_not() {
    const SEGMENTATION_FAULT: u64 = 11;
    let status = Command::new("/init").arg("rdpmc").status().unwrap();
    note(9, status.signal().unwrap_or(0) as u64, SEGMENTATION_FAULT);
}

/// The user-mode instructions of an interrupted loop: all instructions minus the kernel's.
fn without_the_kernel() {
    let (mut all, mut kernel) = (Counter::of_cpu_0(RETIRED, 0), Counter::of_cpu_0(RETIRED, EXCLUDE_USER));
    let indices = (all.index_in_user_mode(), kernel.index_in_user_mode());
    for iterations in [10, 10_000_000] {
        let (counted, expected) = events::counted_less_others(indices, iterations);
        note(10, counted, expected);
    }
}

/// `rdpmc` next to markers, for user mode and kernel: the record has the counts at the markers.
/// Marker 14 names the event, marker 4 the count.
fn beside_markers() {
    let is_intel = fs::read_to_string("/proc/cpuinfo").unwrap().contains("GenuineIntel");
    let numbers = if is_intel {
        [RETIRED, 0x81d0, 0x82d0, 0xe124, 0x03fe, 0x05fe, 0x0bfe, 0xc4]
    } else {
        [RETIRED, 0x129, 0x229, 0xf_0000_0002, 0xf_0000_0003, 0xf_0000_0005, 0x187, 0xc2]
    };
    for number in numbers {
        let mut counter = Counter::of_cpu_0(number, 0);
        let index = counter.index_in_user_mode();
        for iterations in [10, 100_000, 1_000_000] {
            let counted = events::counted_beside_markers(index, iterations);
            marker::mark(marker::USER_FIRST + 14, number);
            marker::mark(marker::USER_FIRST + 4, counted);
        }
    }
}

/// Two tasks on one CPU, which yield to each other.
fn one_after_the_other() {
    const YIELD: u64 = 24;
    let tasks = [(10_000, 300), (17_000, 200)].map(|(iterations, repetitions)| {
        std::thread::spawn(move || {
            init::run_on_cpu(0);
            let counter = Counter::off(INSTRUCTIONS);
            rounds(&counter, iterations, repetitions, YIELD, [0; 2]);
            let read = counter.read();
            (read, rounds(&counter, iterations, repetitions, YIELD, [0; 2]), counter.read())
        })
    });
    for task in tasks {
        let (once, expected, twice) = task.join().unwrap();
        note(5, once, expected);
        note(5, twice, 2 * expected);
    }
    let switches = fs::read_to_string("/proc/stat").unwrap();
    let switches = switches.lines().find_map(|line| line.strip_prefix("ctxt ")).unwrap();
    marker::mark(marker::USER_FIRST + 6, switches.trim().parse().unwrap());
}

/// A task that migrates between CPUs, or stays if there is only one.
fn from_cpu_to_cpu(cpus: usize) {
    const SET_AFFINITY: u64 = 203;
    let masks = [1_u64, if cpus > 1 { 2 } else { 1 }];
    for event in [INSTRUCTIONS, CYCLES] {
        let counter = Counter::off(event);
        let addresses = [&raw const masks[0] as u64, &raw const masks[1] as u64];
        let expected = rounds(&counter, 5_000, 100, SET_AFFINITY, addresses);
        note(if event == CYCLES { 13 } else { 7 }, counter.read(), expected);
    }
}

/// Overflows interrupt: a task has one sample per period of its instructions.
fn samples() {
    const YIELD: u64 = 24;
    const PERIOD: u64 = 10_000;
    let counter = Counter::sampling(INSTRUCTIONS, PERIOD);
    let expected = rounds(&counter, 10_000, 100, YIELD, [0; 2]);
    note(15, counter.samples(), expected / PERIOD);
    note(15, counter.read(), expected);
}

/// Reports that it counts, and does so for several seconds of host time with the counter enabled.
fn across_a_checkpoint() {
    let mut port = fs::OpenOptions::new().write(true).open("/dev/ttyS1").unwrap();
    let mut counter = Counter::on(INSTRUCTIONS);
    let index = counter.index_in_user_mode();
    port.write_all(b"counting\n").unwrap();
    let (counted, expected) = events::counted_by_rdpmc(index, 1_000_000_000);
    note(8, counted, expected);
    marker::mark(marker::END, 0);
}
