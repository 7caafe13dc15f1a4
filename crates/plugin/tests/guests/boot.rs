//! The first process of the guest of `machines/boot.rs`, which compiles this file by itself.
//!
//! Phase `symbols` hands the wanted symbols to the second serial port. Phase `measure` does known work
//! between markers, and reports the kernel's own counts.

#[path = "../../../guest/src/firmware.rs"]
mod firmware;
#[path = "init.rs"]
mod init;
#[allow(dead_code)]
#[path = "../../../simrecord/src/marker.rs"]
mod marker;
#[path = "../../../guest/src/ports.rs"]
mod ports;
#[path = "request.rs"]
mod request;

use std::fs;

const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

fn main() {
    init::mount_all([(c"proc", c"/proc"), (c"devtmpfs", c"/dev")]);
    match request::Request::receive().phase.as_str() {
        "symbols" => init::hand_over_symbols(),
        "measure" => measure(),
        other => panic!("phase {other}"),
    }
    init::power_off();
}

fn measure() {
    let ns = pauses_ns();
    marker::mark(marker::FULL, 0);
    // Contexts are known from the first return from the kernel on.
    drop(fs::read("/proc/uptime"));
    marker::mark(marker::USER_FIRST + 101, ns);
    marker::mark(marker::USER_FIRST, 0);
    let workers: Vec<_> = (0..2).map(|_| std::thread::spawn(work)).collect();
    for worker in workers {
        worker.join().unwrap();
    }
    for _ in 0..20 {
        marker::mark(marker::SNAPSHOT, 0);
        let counts = kernel_counts();
        for (number, cpu, count) in counts {
            marker::mark(marker::USER_FIRST + number, (cpu as u64) << 32 | count);
        }
    }
    for iterations in [1_000_000, 3_000_000] {
        marker::mark(marker::USER_FIRST + 100, iterations);
        marker::mark(marker::SNAPSHOT, 0);
        two_instructions_each(iterations);
        marker::mark(marker::SNAPSHOT, 0);
    }
    marker::mark(marker::END, 0);
}

/// The least time of 1,000 pauses in several tries, because a tick may interrupt one. In cycles of the time-stamp
/// counter, which are nanoseconds here.
fn pauses_ns() -> u64 {
    let measure = |_| {
        // SAFETY: reads a counter.
        let now = || unsafe { std::arch::x86_64::_rdtsc() };
        let start = now();
        (0..1_000).for_each(|_| std::hint::spin_loop());
        now() - start
    };
    (0..5).map(measure).min().unwrap()
}

/// Runs, faults, calls the kernel, and sleeps.
fn work() {
    for _ in 0..20 {
        two_instructions_each(1_000_000);
        let pages = vec![1_u8; 1 << 20];
        std::hint::black_box(&pages);
        drop(fs::read("/proc/stat"));
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
}

#[inline(never)]
fn two_instructions_each(iterations: u64) {
    // SAFETY: counts a register down.
    unsafe {
        std::arch::asm!(
            "2: dec {0}",
            "jnz 2b",
            inout(reg) iterations => _,
            options(nomem, nostack),
        );
    }
}

/// The kernel's own counts: 1 for the local timer or softirq + 2; CPU; count.
fn kernel_counts() -> Vec<(u32, usize, u64)> {
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap();
    let softirqs = fs::read_to_string("/proc/softirqs").unwrap();
    let mut counts = row(&interrupts, "LOC", 1);
    for (number, name) in SOFTIRQS.iter().enumerate() {
        counts.extend(row(&softirqs, name, number as u32 + 2));
    }
    counts
}

fn row(table: &str, name: &str, number: u32) -> Vec<(u32, usize, u64)> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    let counts = line.unwrap_or("").split_ascii_whitespace().map_while(|word| word.parse().ok());
    counts.enumerate().map(|(cpu, count)| (number, cpu, count)).collect()
}
