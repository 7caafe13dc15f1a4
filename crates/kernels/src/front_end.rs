//! Kernels of group `front-end`: the supply of instructions, by the size of the code. Large code is generated
//! (`code`); short loops use `straight`.

use crate::code::{Code, Filling};
use crate::straight::{self, straight};
use crate::{Group, Kernel};

const KIB: usize = 1 << 10;

/// The kernels of fetch and decoding: straight code by size and kind of instruction, then code flushed from all caches.
pub(crate) fn kernels() -> Vec<Kernel> {
    use Filling::{Additions, JumpsInNoOrder, JumpsInOrder, Nops1, Nops4, Nops8, NotTaken};
    const FLUSHED: &str = "Straight code of additions, flushed from all caches and executed once.";
    let list = [
        ("nop4_12k", 12, Nops4),
        ("nop4_16k", 16, Nops4),
        ("nop4_28k", 28, Nops4),
        ("nop4_64k", 64, Nops4),
        ("nop4_256k", 256, Nops4),
        ("nop4_512k", 512, Nops4),
        ("nop4_2m", 2048, Nops4),
        ("nop8_12k", 12, Nops8),
        ("nop8_28k", 28, Nops8),
        ("nop8_64k", 64, Nops8),
        ("nop8_256k", 256, Nops8),
        ("nop1_3k", 3, Nops1),
        ("nop1_16k", 16, Nops1),
        ("add4_4k", 4, Additions),
        ("add4_12k", 12, Additions),
        ("add4_28k", 28, Additions),
        ("add4_64k", 64, Additions),
        ("add4_256k", 256, Additions),
        ("add4_512k", 512, Additions),
        ("add4_2m", 2048, Additions),
        ("jump_16k", 16, JumpsInOrder),
        ("jump_random_16k", 16, JumpsInNoOrder),
        ("jump_64k", 64, JumpsInOrder),
        ("jump_random_64k", 64, JumpsInNoOrder),
        ("jump_random_128k", 128, JumpsInNoOrder),
        ("jump_random_256k", 256, JumpsInNoOrder),
        ("jump_random_1m", 1024, JumpsInNoOrder),
        ("not_taken_4k", 4, NotTaken),
        ("not_taken_64k", 64, NotTaken),
    ];
    let kernel = |(name, kib, filling): (&'static str, usize, Filling)| {
        let make = move || Code::new(kib * KIB, filling)?.body();
        Kernel::new(Group::FrontEnd, (name, "instruction", about(filling)), make)
    };
    let flushed = [("add4_4k_flushed", 4), ("add4_64k_flushed", 64)].map(|(name, kib)| {
        let make = move || Code::new(kib * KIB, Additions)?.flushed().body();
        Kernel::new(Group::FrontEnd, (name, "instruction", FLUSHED), make).shared()
    });
    list.map(kernel).into_iter().chain(flushed).chain(loops()).collect()
}

/// Loops of a few instructions, within a cache line and across two.
fn loops() -> Vec<Kernel> {
    const SHORT: &str = "A loop of seven instructions, two of them branches, within a line.";
    const ACROSS: &str = "A loop of seven instructions, two of them branches, across two lines.";
    const FUSED: &str = "Five moves, and a comparison with a conditional branch that is not taken.";
    let list = [
        (
            "loop_one_line",
            "iteration",
            SHORT,
            straight!(
                1 x 1,
                "mov r8d, 0x7fffffff",
                "cmp rdx, r8; jae 4f; mov byte ptr [rdi], 0; add rsi, 3; add rbx, 7; 4:"
            ),
        ),
        (
            "loop_two_lines",
            "iteration",
            ACROSS,
            straight!(
                1 x 1,
                "mov r8d, 0x7fffffff; mov rax, rcx; mov ecx, 1",
                ".rept 52; nop; .endr; 3: cmp rdx, r8; jae 4f; mov byte ptr [rdi], 0; add rsi, 3; \
                 add rbx, 7; dec rax; jnz 3b; 4:"
            ),
        ),
        (
            "compare_branch",
            "group",
            FUSED,
            straight!(
                1 x 20,
                "mov ebx, 1",
                "mov rdx, rax; mov rsi, rax; mov r8, rax; mov r9, rax; mov r12, rax; cmp rax, rbx; je 4f; 4:"
            ),
        ),
    ];
    list.map(|(name, unit, about, code)| {
        straight::kernel(Group::FrontEnd, (name, unit, about), code)
    })
    .into()
}

/// The description of a kernel with this code, for tables.
fn about(filling: Filling) -> &'static str {
    match filling {
        Filling::Nops1 => "Straight code of NOPs of 1 byte.",
        Filling::Nops4 => "Straight code of NOPs of 4 bytes.",
        Filling::Nops8 => "Straight code of NOPs of 8 bytes.",
        Filling::Additions => "Straight code of additions of 4 bytes, in four chains.",
        Filling::JumpsInOrder => "A jump in each line to the next one.",
        Filling::JumpsInNoOrder => "A jump in each line to another one, in no order.",
        Filling::NotTaken => "A conditional jump that is not taken and a NOP, every 8 bytes.",
    }
}
