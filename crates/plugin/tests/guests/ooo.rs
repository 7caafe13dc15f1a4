//! The first process of the guest of `machines/ooo.rs`, which compiles this file by itself: loops
//! whose cycles on a core are known, each between two markers.

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

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use request::Request;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
}

const ITERATIONS: u64 = 2_000;
const CHASE_ITERATIONS: u64 = 20;

fn main() {
    init::mount_all([(c"proc", c"/proc"), (c"devtmpfs", c"/dev")]);
    let request = Request::receive();
    match request.phase.as_str() {
        "symbols" => init::hand_over_symbols(),
        "measure" => measure(&request),
        other => panic!("phase {other}"),
    }
    init::power_off();
}

fn measure(request: &Request) {
    let small = chain(16 << 10);
    let large = chain(128 << 10);
    if let Some(spinners) = request.word("spinners") {
        marker::mark(marker::FULL, 0);
        drop(fs::read("/proc/uptime"));
        with_spinners(&large, spinners as usize);
        return marker::mark(marker::END, 0);
    }
    marker::mark(marker::FULL, 0);
    // Contexts are known from the first return from the kernel on.
    drop(fs::read("/proc/uptime"));
    if let Some(pages) = request.word("pages") {
        strides_and_faults(pages);
        return marker::mark(marker::END, 0);
    }
    // Where the loops are in the period of a tick.
    dependent_adds(1 + 1_711 * request.word("delay").unwrap_or(0));
    noted(1, ITERATIONS, || dependent_adds(ITERATIONS));
    noted(2, ITERATIONS, || independent_adds(ITERATIONS));
    for (number, chain) in [(3, &small), (4, &large)] {
        chase(chain, 2);
        noted(number, CHASE_ITERATIONS * chain.len() as u64 / 8, || chase(chain, CHASE_ITERATIONS));
    }
    noted(5, ITERATIONS, || branches(ITERATIONS, u64::MAX));
    noted(6, ITERATIONS, || branches(ITERATIONS, 1 << 40));
    together();
    all_at_once();
    beside_a_sleeper();
    marker::mark(marker::END, 0);
}

/// Runs `work` between two snapshots, after a note with its number and size.
fn noted(number: u32, size: u64, work: impl Fn()) {
    work();
    marker::mark(marker::USER_FIRST + number, size);
    marker::mark(marker::SNAPSHOT, 0);
    work();
    marker::mark(marker::SNAPSHOT, 0);
}

/// 64 additions, each of the result of the one before.
#[inline(never)]
fn dependent_adds(iterations: u64) {
    // SAFETY: only registers change.
    unsafe {
        asm!(
            "2:", ".rept 64", "add {a}, {a}", ".endr", "dec {iterations}", "jnz 2b",
            a = inout(reg) 1_u64 => _,
            iterations = inout(reg) iterations => _,
            options(nomem, nostack),
        );
    }
}

/// 64 additions to eight registers, one after the other.
#[inline(never)]
fn independent_adds(iterations: u64) {
    // SAFETY: only registers change.
    unsafe {
        asm!(
            "2:", ".rept 8",
            "add r8, 1", "add r9, 1", "add r10, 1", "add r11, 1",
            "add r12, 1", "add r13, 1", "add r14, 1", "add r15, 1",
            ".endr", "dec {iterations}", "jnz 2b",
            iterations = inout(reg) iterations => _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            options(nomem, nostack),
        );
    }
}

/// A chain through all lines of a number of bytes, in an order that no prefetcher predicts: the
/// first word of each line of 64 bytes is the address of the next one.
fn chain(bytes: usize) -> Vec<u64> {
    let lines = bytes / 64;
    let mut order: Vec<usize> = (0..lines).collect();
    let mut state = 88_172_645_463_325_252_u64;
    for at in (1..lines).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(at, (state % (at as u64 + 1)) as usize);
    }
    let mut words = vec![0; lines * 8];
    let start = words.as_ptr() as u64;
    for at in 0..lines {
        words[order[at] * 8] = start + 64 * order[(at + 1) % lines] as u64;
    }
    words
}

/// Follows a chain several times.
#[inline(never)]
fn chase(chain: &[u64], iterations: u64) {
    // SAFETY: each first word of a line is the address of another such word.
    unsafe {
        asm!(
            "2:", ".rept 16", "mov {at}, [{at}]", ".endr", "dec {iterations}", "jnz 2b",
            at = inout(reg) chain.as_ptr() => _,
            iterations = inout(reg) iterations * chain.len() as u64 / 8 / 16 => _,
            options(readonly, nostack),
        );
    }
}

/// Iterations with a branch that depends on a bit of a random number, which is always the same with
/// a `mask` of all ones.
#[inline(never)]
fn branches(iterations: u64, mask: u64) {
    static DRAWN: AtomicU64 = AtomicU64::new(88_172_645_463_325_252);
    let mut drawn = DRAWN.load(Ordering::Relaxed);
    // SAFETY: only registers change.
    unsafe {
        asm!(
            "2:",
            "mov {t}, {s}", "shl {t}, 13", "xor {s}, {t}",
            "mov {t}, {s}", "shr {t}, 7", "xor {s}, {t}",
            "mov {t}, {s}", "shl {t}, 17", "xor {s}, {t}",
            "test {s}, {mask}",
            "jz 3f",
            "nop",
            "3:",
            "dec {iterations}", "jnz 2b",
            s = inout(reg) drawn,
            t = out(reg) _,
            mask = in(reg) mask,
            iterations = inout(reg) iterations => _,
            options(nomem, nostack),
        );
    }
    DRAWN.store(drawn, Ordering::Relaxed);
}

/// Four threads execute the same code at the same time.
fn all_at_once() {
    let each = 10 * ITERATIONS;
    marker::mark(marker::USER_FIRST + 8, each);
    marker::mark(marker::SNAPSHOT, 0);
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| dependent_adds(each))));
    });
    marker::mark(marker::SNAPSHOT, 0);
}

/// One thread executes without end, and another one sleeps and wakes.
fn beside_a_sleeper() {
    let iterations = 50 * ITERATIONS;
    marker::mark(marker::USER_FIRST + 9, iterations);
    marker::mark(marker::SNAPSHOT, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| dependent_adds(iterations));
        scope.spawn(|| (0..10).for_each(|_| std::thread::sleep(Duration::from_micros(500))));
    });
    marker::mark(marker::SNAPSHOT, 0);
}

/// A thread misses L1 all the time, and `spinners` wait in a loop of `pause` until it is done.
fn with_spinners(chain: &[u64], spinners: usize) {
    let is_done = AtomicBool::new(false);
    let wait = || {
        while !is_done.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        (0..spinners).for_each(|_| drop(scope.spawn(wait)));
        // All have started.
        chase(chain, CHASE_ITERATIONS);
        marker::mark(marker::USER_FIRST + 1, 0);
        marker::mark(marker::SNAPSHOT, 0);
        chase(chain, 10 * CHASE_ITERATIONS);
        marker::mark(marker::SNAPSHOT, 0);
        is_done.store(true, Ordering::Release);
    });
}

/// Stores and loads with a stride of a line, and first stores to `pages` new pages: one page fault each.
fn strides_and_faults(pages: u64) {
    const BYTES: u64 = 256 << 10;
    const STRIDE: u64 = 64;
    const PASSES: u64 = 8;
    let mut array = vec![0_u8; BYTES as usize];
    let start = array.as_mut_ptr();
    let accesses = PASSES * BYTES / STRIDE;
    noted(1, accesses, || (0..PASSES).for_each(|_| store_to_all(start, BYTES / STRIDE, STRIDE)));
    noted(2, accesses, || (0..PASSES).for_each(|_| load_from_all(start, BYTES / STRIDE, STRIDE)));
    noted(3, pages, || store_to_all(new_pages(pages), pages, PAGE_BYTES));
    drop(array);
}

const PAGE_BYTES: u64 = 4_096;

/// Memory of the process that is not mapped to pages yet, and will be in small pages.
fn new_pages(pages: u64) -> *mut u8 {
    const READ_AND_WRITE: c_int = 3;
    const PRIVATE_AND_ANONYMOUS: c_int = 0x22;
    const SMALL_PAGES_ONLY: c_int = 15;
    let bytes = (pages * PAGE_BYTES) as usize;
    // SAFETY: new memory, at an address that the kernel chooses.
    unsafe {
        let flags = (READ_AND_WRITE, PRIVATE_AND_ANONYMOUS);
        let start = mmap(std::ptr::null_mut(), bytes, flags.0, flags.1, -1, 0);
        assert!(start as isize != -1, "mmap: {}", std::io::Error::last_os_error());
        let advised = madvise(start, bytes, SMALL_PAGES_ONLY);
        assert_eq!(advised, 0, "madvise: {}", std::io::Error::last_os_error());
        start.cast()
    }
}

/// Stores a byte at each of `count` addresses. Loads nothing.
#[inline(never)]
fn store_to_all(start: *mut u8, count: u64, stride: u64) {
    // SAFETY: the caller's memory has all these bytes.
    unsafe {
        asm!(
            "2:", "mov byte ptr [{at}], 1", "add {at}, {stride}", "dec {count}", "jnz 2b",
            at = inout(reg) start => _,
            stride = in(reg) stride,
            count = inout(reg) count => _,
            options(nostack),
        );
    }
}

/// Loads a byte from each of `count` addresses.
#[inline(never)]
fn load_from_all(start: *const u8, count: u64, stride: u64) {
    // SAFETY: the caller's memory has all these bytes.
    unsafe {
        asm!(
            "2:", "movzx {loaded:e}, byte ptr [{at}]", "add {at}, {stride}", "dec {count}", "jnz 2b",
            at = inout(reg) start => _,
            loaded = out(reg) _,
            stride = in(reg) stride,
            count = inout(reg) count => _,
            options(readonly, nostack),
        );
    }
}

/// Two threads add to the same number.
fn together() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    marker::mark(marker::USER_FIRST + 7, 0);
    marker::mark(marker::SNAPSHOT, 0);
    let add = || {
        (0..20_000).for_each(|_| {
            SUM.fetch_add(1, Ordering::SeqCst);
        })
    };
    std::thread::scope(|scope| {
        scope.spawn(add);
        scope.spawn(add);
    });
    marker::mark(marker::SNAPSHOT, 0);
}
