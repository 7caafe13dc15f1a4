//! Counters of the kernel's `perf_event_open`, and code whose instructions are all known.

use std::arch::asm;
use std::ffi::{c_int, c_long, c_void};

use crate::marker;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn read(file: c_int, to: *mut c_void, bytes: usize) -> isize;
    fn close(file: c_int) -> c_int;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
}

const PERF_EVENT_OPEN: c_long = 298;
const PAGE_BYTES: usize = 4096;
const PROTECTION_READ: c_int = 1;
const MAP_SHARED: c_int = 1;
const HARDWARE: u32 = 0;
const RAW: u32 = 4;
const OFF: u64 = 1;
pub const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5 | 1 << 6;
const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
const IOCTL: u64 = 16;

pub const CYCLES: u64 = 0;
pub const INSTRUCTIONS: u64 = 1;

/// The first version of the kernel's `perf_event_attr`.
#[repr(C)]
struct Attributes {
    kind: u32,
    bytes: u32,
    config: u64,
    period: u64,
    sample: u64,
    format: u64,
    flags: u64,
    wakeup: u64,
    config1: u64,
}

/// A counter of the kernel.
pub struct Counter {
    file: c_int,
    /// Its page, once it is mapped.
    page: *mut c_void,
    /// The length of the mapping.
    mapped_bytes: usize,
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: this owns the file and the page. A counter whose page is mapped would stay.
        unsafe {
            if !self.page.is_null() {
                munmap(self.page, self.mapped_bytes);
            }
            close(self.file);
        }
    }
}

impl Counter {
    /// A generic hardware event of the calling task in user mode, enabled.
    pub fn on(event: u64) -> Counter {
        Counter::open((HARDWARE, event), EXCLUDE_KERNEL, (0, -1), 0)
    }

    /// A generic hardware event of the calling task in user mode, disabled.
    pub fn off(event: u64) -> Counter {
        Counter::open((HARDWARE, event), EXCLUDE_KERNEL | OFF, (0, -1), 0)
    }

    /// Like [`Counter::off`], with a sample each `period` events.
    pub fn sampling(event: u64, period: u64) -> Counter {
        let mut counter =
            Counter::open((HARDWARE, event), EXCLUDE_KERNEL | OFF, (0, -1), period);
        // The second page has the samples.
        counter.map(2 * PAGE_BYTES);
        counter
    }

    /// A raw event of the processor on CPU 0, enabled, without the modes that the flags exclude.
    pub fn of_cpu_0(number: u64, flags: u64) -> Counter {
        Counter::open((RAW, number), flags, (-1, 0), 0)
    }

    /// `period`: the number of events from sample to sample, or 0 for no samples.
    fn open(
        (kind, event): (u32, u64),
        flags: u64,
        (task, cpu): (c_int, c_int),
        period: u64,
    ) -> Counter {
        let bytes = size_of::<Attributes>() as u32;
        let attributes = Attributes {
            kind,
            bytes,
            config: event,
            period,
            sample: 0,
            format: 0,
            flags,
            wakeup: 0,
            config1: 0,
        };
        // SAFETY: a call of the kernel with a description that it only reads.
        let file =
            unsafe { syscall(PERF_EVENT_OPEN, &raw const attributes, task, cpu, -1_i32, 0_u64) };
        assert!(file >= 0, "perf_event_open: {}", std::io::Error::last_os_error());
        Counter { file: file as c_int, page: std::ptr::null_mut(), mapped_bytes: 0 }
    }

    /// The counter's value now.
    pub fn read(&self) -> u64 {
        let mut value = 0_u64;
        // SAFETY: reads eight bytes into a local variable.
        let bytes = unsafe { read(self.file, (&raw mut value).cast(), 8) };
        assert_eq!(bytes, 8);
        value
    }

    /// Maps the counter's first page, which the kernel keeps up to date, and pages for samples.
    fn map(&mut self, bytes: usize) {
        // SAFETY: maps the kernel's pages of the counter at an address that the kernel chooses.
        let page = unsafe {
            mmap(std::ptr::null_mut(), bytes, PROTECTION_READ, MAP_SHARED, self.file, 0)
        };
        assert!(page as isize != -1, "mmap: {}", std::io::Error::last_os_error());
        (self.page, self.mapped_bytes) = (page, bytes);
    }

    /// The number of samples until now, of a counter from [`Counter::sampling`].
    pub fn samples(&self) -> u64 {
        const DATA_HEAD_WORD: usize = 1024 / 8;
        // A sample of no fields has a header alone.
        const SAMPLE_BYTES: u64 = 8;
        let page_words: *const u64 = self.page.cast_const().cast();
        // SAFETY: the page is mapped, and has the position of the next sample there.
        unsafe { page_words.add(DATA_HEAD_WORD).read_volatile() / SAMPLE_BYTES }
    }

    /// The number of the processor's counter, for `rdpmc`.
    pub fn index_in_user_mode(&mut self) -> u32 {
        self.map(PAGE_BYTES);
        let words: *const u32 = self.page.cast_const().cast();
        // SAFETY: the page is mapped. Words: version, compat_version, lock, index, offset (2),
        // time_enabled (2), time_running (2), capabilities.
        let (index, capabilities) =
            unsafe { (words.add(3).read_volatile(), words.add(10).read_volatile()) };
        assert!(capabilities & 1 << 2 != 0, "no cap_user_rdpmc: {capabilities:#x}");
        assert!(index > 0, "the counter is not on the processor");
        index - 1
    }
}

#[inline(never)]
pub fn two_instructions_each(iterations: u64) {
    // SAFETY: counts a register down.
    unsafe {
        asm!("2: dec {0}", "jnz 2b", inout(reg) iterations => _, options(nomem, nostack));
    }
}

/// The difference of `rdpmc` around a loop, and the expected number of instructions: the first
/// `rdpmc`, the two after it, the loop, and the one after the loop.
pub fn counted_by_rdpmc(index: u32, iterations: u64) -> (u64, u64) {
    let (before, before_high, low, high): (u64, u64, u64, u64);
    // SAFETY: reads a counter that the kernel has allowed to read.
    unsafe {
        asm!(
            "rdpmc",
            "mov {low}, rax",
            "mov {high}, rdx",
            "2: dec {count}",
            "jnz 2b",
            "nop",
            "rdpmc",
            low = out(reg) before,
            high = out(reg) before_high,
            count = inout(reg) iterations => _,
            in("ecx") index,
            out("rax") low,
            out("rdx") high,
            options(nomem, nostack),
        );
    }
    let counted = (high << 32 | low).wrapping_sub(before_high << 32 | before);
    (counted, 1 + 2 + 2 * iterations + 1)
}

/// The values of `rdpmc` next to two markers, numbers 2 and 3, with a loop between them that walks
/// through memory. Between each marker and its `rdpmc` are three instructions without memory
/// accesses.
pub fn counted_beside_markers(index: u32, iterations: u64) -> u64 {
    const BYTES: usize = 1 << 18;
    let mut memory = vec![1_u8; BYTES + 64];
    let (before, before_high, low, high): (u64, u64, u64, u64);
    // SAFETY: the kernel has allowed to read the counter; a marker changes nothing. The loop stays in the memory.
    unsafe {
        asm!(
            "mov eax, {first}",
            "nop dword ptr [rax + rax + {displacement}]",
            "nop",
            "nop",
            "rdpmc",
            "mov {low}, rax",
            "mov {high}, rdx",
            "xor eax, eax",
            "2: add dword ptr [{memory} + rax], 1",
            "mov edx, dword ptr [{memory} + rax + 4]",
            "add eax, 4160",
            "and eax, {mask}",
            "dec {count}",
            "jnz 2b",
            "mov eax, {second}",
            "nop dword ptr [rax + rax + {displacement}]",
            "nop",
            "nop",
            "rdpmc",
            first = const marker::USER_FIRST + 2,
            second = const marker::USER_FIRST + 3,
            displacement = const marker::DISPLACEMENT,
            mask = const BYTES - 1,
            memory = in(reg) memory.as_mut_ptr(),
            low = out(reg) before,
            high = out(reg) before_high,
            count = inout(reg) iterations => _,
            in("ecx") index,
            out("rax") low,
            out("rdx") high,
            options(nostack),
        );
    }
    (high << 32 | low).wrapping_sub(before_high << 32 | before)
}

/// The difference of two counters around a loop, and the number of instructions that this is in
/// user mode: from the first counter's first `rdpmc` to before its second.
pub fn counted_less_others((one, other): (u32, u32), iterations: u64) -> (u64, u64) {
    let (one_before, other_before, other_after, one_after): (u32, u32, u32, u32);
    // SAFETY: the kernel has allowed to read the counters.
    unsafe {
        asm!(
            "mov ecx, {other:e}",
            "rdpmc",
            "mov {other_before:e}, eax",
            "mov ecx, {one:e}",
            "rdpmc",
            "mov {one_before:e}, eax",
            "2: dec {count}",
            "jnz 2b",
            "mov ecx, {other:e}",
            "rdpmc",
            "mov {other_after:e}, eax",
            "mov ecx, {one:e}",
            "rdpmc",
            one = in(reg) one,
            other = in(reg) other,
            one_before = out(reg) one_before,
            other_before = out(reg) other_before,
            other_after = out(reg) other_after,
            count = inout(reg) iterations => _,
            out("eax") one_after,
            out("ecx") _,
            out("edx") _,
            options(nomem, nostack),
        );
    }
    let more =
        one_after.wrapping_sub(one_before).wrapping_sub(other_after.wrapping_sub(other_before));
    (u64::from(more), 2 + 2 * iterations + 4)
}

/// All flags after a comparison that `rdpmc` follows, and after one without.
pub fn flags_beside_rdpmc(index: u32, (one, other): (u64, u64)) -> (u64, u64) {
    let (with, without): (u64, u64);
    // SAFETY: the kernel has allowed to read the counter; each pushed word is popped.
    unsafe {
        asm!(
            "cmp {one}, {other}",
            "rdpmc",
            "pushfq",
            "pop {with}",
            "cmp {one}, {other}",
            "nop",
            "pushfq",
            "pop {without}",
            one = in(reg) one,
            other = in(reg) other,
            with = out(reg) with,
            without = out(reg) without,
            in("ecx") index,
            out("eax") _,
            out("edx") _,
        );
    }
    (with, without)
}

/// Repeats a loop and a system call `repetitions` times, with a counter enabled from the first
/// instruction to the last. Returns the number of user-mode instructions. The system call's
/// arguments are 0, 8 and alternately each of `thirds`.
pub fn rounds(
    counter: &Counter,
    iterations: u64,
    repetitions: u64,
    call: u64,
    thirds: [u64; 2],
) -> u64 {
    // SAFETY: system calls with valid arguments; of the registers, those named are changed.
    unsafe {
        asm!(
            "mov eax, {ioctl}",
            "mov rdi, {file}",
            "mov esi, {enable}",
            "xor edx, edx",
            "syscall",
            "2: mov rcx, {iterations}",   // 1 per repetition
            "3: dec rcx",
            "jnz 3b",
            "mov rax, {call}",            // 2
            "xor edi, edi",               // 3
            "mov esi, 8",                 // 4
            "mov rdx, {third}",           // 5
            "xor {third}, {other}",       // 6
            "syscall",                    // 7
            "dec {repetitions}",                // 8
            "jnz 2b",                     // 9
            "mov eax, {ioctl}",           // 1 of the end
            "mov rdi, {file}",            // 2
            "mov esi, {disable}",         // 3
            "xor edx, edx",               // 4
            "syscall",                    // 5
            ioctl = const IOCTL,
            enable = const ENABLE,
            disable = const DISABLE,
            file = in(reg) counter.file as u64,
            iterations = in(reg) iterations,
            call = in(reg) call,
            third = inout(reg) thirds[0] => _,
            other = in(reg) thirds[0] ^ thirds[1],
            repetitions = inout(reg) repetitions => _,
            out("rax") _,
            out("rcx") _,
            out("rdx") _,
            out("rsi") _,
            out("rdi") _,
            out("r11") _,
            options(nostack),
        );
    }
    repetitions * (2 * iterations + 9) + 5
}
