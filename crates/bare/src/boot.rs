//! The start of the program: from the 32-bit entry to 64-bit Rust code, with page tables of 2 MiB pages, SSE, and a
//! stack. The first 4 GiB are mapped one to one. The first GiB is also mapped at the addresses of kernels
//! ([`crate::addresses::HIGH`]), where the program and its memory are. Interrupts stay off.

use core::arch::global_asm;
use core::panic::PanicInfo;

use crate::command::{Command, Program};
use crate::{cpu, footprint, noise, serial};

global_asm!(
    // XEN_ELFNOTE_PHYS32_ENTRY (18): the entry, which gets the address of StartInfo in ebx.
    ".section .note.pvh, \"a\", @note",
    ".balign 4",
    ".long 4, 4, 18",
    ".asciz \"Xen\"",
    ".long start32",
    ".section .boot, \"ax\"",
    ".code32",
    ".globl start32",
    "start32:",
    "cli",
    "cld",
    "movl $boot_stack_top, %esp",
    // 2,048 pages: present, writable, large.
    "movl $boot_pages, %edi",
    "movl $0x83, %eax",
    "movl $2048, %ecx",
    "2: movl %eax, (%edi)",
    "movl $0, 4(%edi)",
    "addl $0x200000, %eax",
    "addl $8, %edi",
    "loop 2b",
    // Four page directories of 512 pages each, and one table that points to them.
    "movl $boot_pages + 3, %eax",
    "movl $boot_tables, %edi",
    "movl $4, %ecx",
    "3: movl %eax, (%edi)",
    "addl $0x1000, %eax",
    "addl $8, %edi",
    "loop 3b",
    "movl $boot_tables + 3, boot_top",
    // The first GiB again, from 0xffffffff80000000 on.
    "movl $boot_pages + 3, boot_high + 510 * 8",
    "movl $boot_high + 3, boot_top + 511 * 8",
    "movl $boot_top, %eax",
    "movl %eax, %cr3",
    // PAE, OSFXSR, OSXMMEXCPT.
    "movl %cr4, %eax",
    "orl $0x620, %eax",
    "movl %eax, %cr4",
    // EFER: long mode.
    "movl $0xc0000080, %ecx",
    "rdmsr",
    "orl $0x100, %eax",
    "wrmsr",
    // PG, PE and MP; no emulation of the FPU.
    "movl %cr0, %eax",
    "andl $~4, %eax",
    "orl $0x80000003, %eax",
    "movl %eax, %cr0",
    "lgdt boot_gdt_pointer",
    "ljmp $8, $start64",
    ".code64",
    "start64:",
    "movl $16, %eax",
    "movl %eax, %ds",
    "movl %eax, %es",
    "movl %eax, %ss",
    "movabsq $boot_stack_top + 0xffffffff80000000, %rsp",
    "movl %ebx, %edi",
    "xorl %ebp, %ebp",
    "movabsq $bare_main, %rax",
    "call *%rax",
    "4: hlt",
    "jmp 4b",
    ".balign 8",
    // Null; code of 64 bits; data.
    "boot_gdt: .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff",
    "boot_gdt_pointer: .word 23",
    ".long boot_gdt",
    ".section .boot.bss, \"aw\", @nobits",
    ".balign 4096",
    "boot_pages: .skip 4 * 4096",
    "boot_tables: .skip 4096",
    "boot_high: .skip 4096",
    "boot_top: .skip 4096",
    "boot_stack: .skip 65536",
    "boot_stack_top:",
    ".text",
    // The library `core` is compiled for programs that unwind and refers to this; a panic never gets here.
    ".globl rust_eh_personality",
    "rust_eh_personality: ud2",
    options(att_syntax)
);

/// The loader's information (xen/include/public/arch-x86/hvm/start_info.h).
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    modules_at: u64,
    command_line_at: u64,
}

const MAGIC: u32 = 0x336e_c578;
/// Maximum length of the command line.
const COMMAND_LINE_BYTES_MAX: usize = 2048;

/// The command line; empty if there is none, or if it is too long. `info`: address of [`StartInfo`].
fn command_line(info: u64) -> &'static [u8] {
    // SAFETY: the loader leaves the structure at this address, and all memory below 4 GiB is mapped.
    let info = unsafe { &*(info as *const StartInfo) };
    if info.magic != MAGIC || info.command_line_at == 0 {
        return b"";
    }
    // SAFETY: mapped, as above; bytes after the line are not used.
    let bytes = unsafe {
        core::slice::from_raw_parts(info.command_line_at as *const u8, COMMAND_LINE_BYTES_MAX)
    };
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    &bytes[..length]
}

/// The first Rust function. `info`: address of [`StartInfo`]. The host needs the first and the last line of the output.
#[unsafe(no_mangle)]
extern "C" fn bare_main(info: u64) -> ! {
    serial::line("irqlab-bare 1", &[]);
    match Command::parse(command_line(info)) {
        Ok(Command { program: Program::Noise(parameters) }) => noise::run(&parameters),
        Ok(Command { program: Program::Footprint(parameters) }) => footprint::run(&parameters),
        Err(word) => serial::line(word, &[]),
    }
    serial::line("end", &[]);
    cpu::power_off()
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    serial::line("error panic", &[]);
    cpu::power_off()
}
