//! The interrupt of `footprint.rs`: the local APIC's timer, whose handler touches a requested number of lines.
//!
//! Invariant: the handler, its stack and its parameters are the lines that [`touched_addresses`] reports. The assembly
//! uses the offsets of [`Work`]'s fields.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

/// Vector number of the timer interrupt.
const VECTOR: u64 = 0x40;
const GATE_BYTES: u64 = 16;
/// The code segment: the offset of its descriptor in the table of descriptors.
const CODE_SELECTOR: u64 = 8;
/// Registers of the local APIC.
const APIC: u64 = 0xfee0_0000;
const SPURIOUS: u64 = 0xf0;
const LVT_TIMER: u64 = 0x320;
const INITIAL_COUNT: u64 = 0x380;
const DIVIDE: u64 = 0x3e0;
/// Value of `SPURIOUS`: the APIC is enabled, and the spurious vector is 0xff.
const ENABLED: u32 = 0x1ff;
/// Value of `DIVIDE`: the timer counts undivided.
const BY_ONE: u32 = 0xb;

/// The handler's parameters, in one cache line. The handler reads and writes the fields at fixed offsets.
#[repr(C, align(256))]
struct Work {
    /// Address of the data lines.
    data: AtomicU64,
    /// Number of data lines.
    lines: AtomicU64,
    /// Size of a data line in bytes.
    line: AtomicU64,
    /// Address of the routine; 0: none.
    routine: AtomicU64,
    /// How often the handler has run.
    ran: AtomicU64,
    /// The handler's stack pointer in its last run.
    stack: AtomicU64,
}

#[unsafe(no_mangle)]
static HANDLER_WORK: Work = Work {
    data: AtomicU64::new(0),
    lines: AtomicU64::new(0),
    line: AtomicU64::new(0),
    routine: AtomicU64::new(0),
    ran: AtomicU64::new(0),
    stack: AtomicU64::new(0),
};

global_asm!(
    // Global, because the Rust code that uses them may be in another compilation unit.
    ".globl handler, handler_end, unexpected, interrupt_table",
    ".balign 256",
    "handler:",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "lea rdi, [rip + HANDLER_WORK]",
    "mov rsi, [rdi]",
    "mov rcx, [rdi + 8]",
    "mov rdx, [rdi + 16]",
    "test rcx, rcx",
    "jz 3f",
    "2: mov rax, [rsi]",
    "add rsi, rdx",
    "dec rcx",
    "jnz 2b",
    "3: mov rax, [rdi + 24]",
    "test rax, rax",
    "jz 4f",
    "call rax",
    "4: inc qword ptr [rdi + 32]",
    "mov [rdi + 40], rsp",
    // End of interrupt.
    "mov eax, 0xfee000b0",
    "mov dword ptr [rax], 0",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "iretq",
    "handler_end:",
    // Any other interrupt is an error.
    "unexpected:",
    "call bare_unexpected",
    ".section .bss.interrupts, \"aw\", @nobits",
    ".balign 16",
    "interrupt_table: .skip 4096",
    ".text",
);

unsafe extern "C" {
    static mut interrupt_table: [[u64; 2]; 256];
    fn handler();
    fn handler_end();
    fn unexpected();
}

#[unsafe(no_mangle)]
extern "C" fn bare_unexpected() -> ! {
    crate::serial::line("error interrupt", &[]);
    crate::cpu::power_off()
}

/// A present 64-bit interrupt gate for a handler.
fn gate(handler: u64) -> [u64; 2] {
    let low =
        (handler & 0xffff) | CODE_SELECTOR << 16 | 0x8e00 << 32 | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

fn write_apic(register: u64, value: u32) {
    // SAFETY: a register of the local APIC, at its address after a reset, which is mapped.
    unsafe { ((APIC + register) as *mut u32).write_volatile(value) };
}

/// The operand of `lidt` and `sgdt`.
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Loads the interrupt descriptor table, and enables the local APIC.
pub fn set_up() {
    // SAFETY: one CPU, interrupts off: nothing else uses the table; the pointer is read at once.
    unsafe {
        let table = &raw mut interrupt_table;
        for vector in 0..256 {
            (*table)[vector] = gate(unexpected as *const () as u64);
        }
        (*table)[VECTOR as usize] = gate(handler as *const () as u64);
        let pointer = Pointer { limit: 4095, base: table as u64 };
        asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags));
    }
    // Masks the legacy interrupt controllers.
    crate::cpu::write_port(0x21, 0xff);
    crate::cpu::write_port(0xa1, 0xff);
    write_apic(SPURIOUS, ENABLED);
    write_apic(DIVIDE, BY_ONE);
    write_apic(LVT_TIMER, VECTOR as u32);
}

/// Sets the lines that the handler touches: `lines` lines of `line` bytes at `data`, and a routine.
pub fn handle(data: u64, lines: u64, line: u64, routine: Option<u64>) {
    HANDLER_WORK.data.store(data, Ordering::Relaxed);
    HANDLER_WORK.lines.store(lines, Ordering::Relaxed);
    HANDLER_WORK.line.store(line, Ordering::Relaxed);
    HANDLER_WORK.routine.store(routine.unwrap_or(0), Ordering::Relaxed);
}

/// Schedules the interrupt once, after `steps` steps of the timer; cancels it if `steps` is 0.
#[inline]
pub fn schedule(steps: u32) {
    write_apic(INITIAL_COUNT, steps);
}

/// How often the handler has run.
#[inline]
pub fn ran() -> u64 {
    HANDLER_WORK.ran.load(Ordering::Relaxed)
}

/// The addresses that an interrupt always touches: the lowest address of the handler's stack, the start and the end of
/// its instructions, the address of its parameters, the interrupt gate, and the descriptor of the code segment. The
/// processor itself reads the last two. The order is the order of the output line `own`.
pub fn touched_addresses() -> [u64; 6] {
    let stack = HANDLER_WORK.stack.load(Ordering::Relaxed);
    let work = &raw const HANDLER_WORK as u64;
    let gate = &raw const interrupt_table as u64 + VECTOR * GATE_BYTES;
    let code = handler as *const () as u64..handler_end as *const () as u64;
    [stack, code.start, code.end, work, gate, descriptors() + CODE_SELECTOR]
}

/// The address of the table of segment descriptors.
fn descriptors() -> u64 {
    let mut pointer = Pointer { limit: 0, base: 0 };
    // SAFETY: the instruction writes the ten bytes of `pointer`.
    unsafe {
        asm!("sgdt [{}]", in(reg) &raw mut pointer, options(nostack, preserves_flags));
    }
    pointer.base
}
