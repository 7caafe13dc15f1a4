//! Kernels of group `arithmetic`: latency and throughput of instructions that stay in registers.
//!
//! In a chain, each instruction depends on the previous instruction, so a chain shows the latency. Several chains at
//! the same time show the throughput. All kernels are loops of `straight`.

use crate::straight::{Needs, Straight, kernel, straight};
use crate::{Group, Kernel};

pub(crate) fn kernels() -> Vec<Kernel> {
    let list = integer().into_iter().chain(bits()).chain(float()).chain(vector());
    list.map(|(name, about, code)| kernel(Group::Arithmetic, (name, "instruction", about), code))
        .collect()
}

/// A kernel's name, what it does, and its code.
type Row = (&'static str, &'static str, Straight);

/// Integers in general registers.
fn integer() -> Vec<Row> {
    vec![
        (
            "add_chain",
            "Additions, each of which depends on the one before.",
            straight!(1 x 100, "add rax, r10"),
        ),
        ("add_2", "Additions in two chains.", straight!(2 x 50, "add rax, r10; add rbx, r10")),
        (
            "add_3",
            "Additions in three chains.",
            straight!(3 x 32, "add rax, r10; add rbx, r10; add rdx, r10"),
        ),
        (
            "add_4",
            "Additions in four chains.",
            straight!(4 x 25, "add rax, r10; add rbx, r10; add rdx, r10; add rsi, r10"),
        ),
        (
            "add_5",
            "Additions in five chains.",
            straight!(5 x 20, "add rax, r10; add rbx, r10; add rdx, r10; add rsi, r10; add r8, r10"),
        ),
        (
            "add_6",
            "Additions in six chains.",
            straight!(6 x 16, "add rax, r10; add rbx, r10; add rdx, r10; add rsi, r10; add r8, r10; add r9, r10"),
        ),
        (
            "mixed_6",
            "Six instructions of four kinds, two of them loads.",
            straight!(
                6 x 16,
                "add rax, r10; add rbx, r10; mov rdx, [rdi]; mov rsi, [rdi + 64]; add r8, r10; paddd xmm1, xmm0"
            ),
        ),
        ("nop", "NOPs of a byte.", straight!(1 x 100, "nop")),
        (
            "move_chain",
            "Moves of a register to another one and back.",
            straight!(2 x 50, "mov rbx, rax; mov rax, rbx"),
        ),
        (
            "xor_zero",
            "Registers cleared by an exclusive or with themselves.",
            straight!(2 x 50, "xor eax, eax; xor ebx, ebx"),
        ),
        ("imul_chain", "Multiplications in a chain.", straight!(1 x 50, "imul rax, r10")),
        (
            "imul_4",
            "Multiplications in four chains.",
            straight!(4 x 12, "imul rax, r10; imul rbx, r10; imul rdx, r10; imul rsi, r10"),
        ),
        (
            "mul_128",
            "Multiplications with a result of 128 bits, in a chain.",
            straight!(1 x 50, "mov eax, 3; mov r8d, 5", "mul r8"),
        ),
        (
            "div_64",
            "Divisions of 64 bits with a large quotient, in a chain with an exclusive or and an or.",
            straight!(1 x 20, "mov rax, -1; mov r12, -1; mov r8d, 3", "xor edx, edx; div r8; or rax, r12"),
        ),
        (
            "div_32",
            "Divisions of 32 bits with a large quotient, in a chain with an exclusive or and an or.",
            straight!(1 x 20, "mov eax, -1; mov r12d, -1; mov r8d, 3", "xor edx, edx; div r8d; or eax, r12d"),
        ),
        (
            "lea_3",
            "Addresses of three parts, in a chain.",
            straight!(1 x 50, "lea rax, [rax + r10*4 + 8]"),
        ),
        (
            "lea_scaled",
            "Addresses of two parts with a scaled index, in a chain.",
            straight!(1 x 50, "lea rax, [r10 + rax*4]"),
        ),
        ("lea_2", "Addresses of two parts, in a chain.", straight!(1 x 50, "lea rax, [rax + r10]")),
        (
            "add_constant",
            "Additions of a small constant, in a chain.",
            straight!(1 x 50, "add rax, 8"),
        ),
        (
            "constant_shift",
            "Additions of a constant and shifts, by turns, in a chain.",
            straight!(1 x 25, "add rax, 8; shl rax, 1"),
        ),
        (
            "test_cmov",
            "Tests and conditional moves by them, by turns, in a chain.",
            straight!(1 x 25, "test rax, rax; cmovs rax, r10"),
        ),
        ("cmov", "Conditional moves in a chain.", straight!(1 x 50, "cmovz rax, r10")),
        ("adc", "Additions with carry in a chain.", straight!(1 x 50, "adc rax, r10")),
        ("shift_cl", "Shifts by a register, in a chain.", straight!(1 x 50, "shl rax, cl")),
        ("shift_imm", "Shifts by a constant, in a chain.", straight!(1 x 50, "shl rax, 3")),
        ("rotate_imm", "Rotations by a constant, in a chain.", straight!(1 x 50, "rol rax, 3")),
        ("shld", "Double shifts in a chain.", straight!(1 x 50, "shld rax, rbx, 5")),
        ("bswap", "Byte swaps in a chain.", straight!(1 x 50, "bswap rax")),
        (
            "xchg_registers",
            "Exchanges of two registers, in a chain.",
            straight!(1 x 50, "xchg rax, rbx"),
        ),
        (
            "sete",
            "Flags into a byte and back, in a chain.",
            straight!(1 x 50, "sete al; test al, al"),
        ),
        ("movsx", "Sign extensions in a chain.", straight!(1 x 50, "movsx rax, al")),
    ]
}

/// Counts, scans and moves of bits.
fn bits() -> Vec<Row> {
    let row = |name, about, code: Straight| (name, about, code.needs(Needs::Bits));
    vec![
        row("popcnt", "Population counts in a chain.", straight!(1 x 50, "popcnt rax, rax")),
        row("tzcnt", "Counts of trailing zeros, in a chain.", straight!(1 x 50, "tzcnt rax, rax")),
        row(
            "bsf",
            "Bit scans, in a chain with an or.",
            straight!(1 x 50, "mov eax, 1", "bsf rax, rax; or rax, r10"),
        ),
        row("pdep", "Bit deposits in a chain.", straight!(1 x 50, "pdep rax, rax, r10")),
        row("pext", "Bit extractions in a chain.", straight!(1 x 50, "pext rax, rax, r10")),
        row("andn", "And-nots in a chain.", straight!(1 x 50, "andn rax, rax, r10")),
        row("crc32", "CRC of 64 bits in a chain.", straight!(1 x 50, "crc32 rax, r10")),
    ]
}

/// Doubles: additions, multiplications, divisions, roots, comparisons and conversions.
fn float() -> Vec<Row> {
    vec![
        ("addsd_chain", "Additions of doubles in a chain.", straight!(1 x 50, "addsd xmm0, xmm1")),
        (
            "addsd_8",
            "Additions of doubles in eight chains.",
            straight!(
                8 x 12,
                "addsd xmm0, xmm15; addsd xmm1, xmm15; addsd xmm2, xmm15; addsd xmm3, xmm15; \
                 addsd xmm4, xmm15; addsd xmm5, xmm15; addsd xmm6, xmm15; addsd xmm7, xmm15"
            ),
        ),
        ("mulsd_chain", "Multiplications of doubles in a chain.", straight!(1 x 50, "mulsd xmm0, xmm1")),
        (
            "mulsd_8",
            "Multiplications of doubles in eight chains.",
            straight!(
                8 x 12,
                "mulsd xmm0, xmm15; mulsd xmm1, xmm15; mulsd xmm2, xmm15; mulsd xmm3, xmm15; \
                 mulsd xmm4, xmm15; mulsd xmm5, xmm15; mulsd xmm6, xmm15; mulsd xmm7, xmm15"
            ),
        ),
        (
            "addsd_mulsd_chain",
            "Additions and multiplications of doubles, by turns, in a chain.",
            straight!(1 x 25, "addsd xmm0, xmm1; mulsd xmm0, xmm1"),
        ),
        (
            "addsd_mulsd",
            "Additions and multiplications of doubles, by turns, in eight chains.",
            straight!(
                8 x 12,
                "addsd xmm0, xmm15; mulsd xmm1, xmm15; addsd xmm2, xmm15; mulsd xmm3, xmm15; \
                 addsd xmm4, xmm15; mulsd xmm5, xmm15; addsd xmm6, xmm15; mulsd xmm7, xmm15"
            ),
        ),
        (
            "fma_chain",
            "Fused multiplications and additions of four doubles, in a chain.",
            straight!(1 x 50, "vzeroall", "vfmadd231pd ymm0, ymm2, ymm1", "vzeroupper").needs(Needs::Avx2),
        ),
        (
            "fma_10",
            "Fused multiplications and additions of four doubles, in ten chains.",
            straight!(
                10 x 10,
                "vzeroall",
                "vfmadd231pd ymm0, ymm14, ymm15; vfmadd231pd ymm1, ymm14, ymm15; vfmadd231pd ymm2, ymm14, ymm15; \
                 vfmadd231pd ymm3, ymm14, ymm15; vfmadd231pd ymm4, ymm14, ymm15; vfmadd231pd ymm5, ymm14, ymm15; \
                 vfmadd231pd ymm6, ymm14, ymm15; vfmadd231pd ymm7, ymm14, ymm15; vfmadd231pd ymm8, ymm14, ymm15; \
                 vfmadd231pd ymm9, ymm14, ymm15",
                "vzeroupper"
            )
            .needs(Needs::Avx2),
        ),
        (
            "divsd_chain",
            "Divisions of doubles in a chain, each with an and and an or that keep the operands the same.",
            straight!(
                1 x 20,
                "mov rax, 0x3ff0000000000000; movq xmm0, rax; mov rax, 0x3ff3333333333333; movq xmm1, rax; movq xmm2, rax",
                "movapd xmm3, xmm2; orpd xmm3, xmm0; divsd xmm0, xmm1; andpd xmm0, xmm3; orpd xmm0, xmm2"
            ),
        ),
        (
            "sqrtsd_chain",
            "Square roots of doubles, in a chain with an or.",
            straight!(
                1 x 20,
                "mov rax, 0x4033333333333333; movq xmm0, rax; movq xmm2, rax",
                "sqrtsd xmm0, xmm0; orpd xmm0, xmm2"
            ),
        ),
        ("convert_chain", "Conversions of an integer to a double and back.", straight!(1 x 20, "cvtsi2sd xmm0, rax; cvttsd2si rax, xmm0")),
        ("movq_chain", "Moves of a general register to a vector register and back.", straight!(1 x 30, "movq xmm0, rax; movq rax, xmm0")),
        (
            "sqrtsd_4",
            "Square roots of doubles that do not depend on each other.",
            straight!(
                4 x 8,
                "mov rax, 0x4033333333333333; movq xmm7, rax",
                "sqrtsd xmm0, xmm7; sqrtsd xmm1, xmm7; sqrtsd xmm2, xmm7; sqrtsd xmm3, xmm7"
            ),
        ),
        (
            "divsd_4",
            "Divisions of doubles that do not depend on each other.",
            straight!(
                4 x 8,
                "mov rax, 0x4033333333333333; movq xmm7, rax",
                "movapd xmm0, xmm7; movapd xmm1, xmm7; movapd xmm2, xmm7; movapd xmm3, xmm7; \
                 divsd xmm0, xmm7; divsd xmm1, xmm7; divsd xmm2, xmm7; divsd xmm3, xmm7"
            ),
        ),
        (
            "comisd_set",
            "A comparison of doubles into flags, a bit of them in a register, and a move of it to a vector register, in a chain.",
            straight!(1 x 20, "comisd xmm0, xmm1; sete al; movzx eax, al; movq xmm0, rax"),
        ),
        ("comisd_chain", "Comparisons of doubles into flags, throughput.", straight!(1 x 50, "comisd xmm0, xmm1")),
    ]
}

/// Vectors of integers, and encryption and hashing.
fn vector() -> Vec<Row> {
    vec![
        ("paddd_chain", "Additions of four integers, in a chain.", straight!(1 x 50, "paddd xmm0, xmm1")),
        (
            "paddd_8",
            "Additions of eight integers, in eight chains.",
            straight!(
                8 x 12,
                "vzeroall",
                "vpaddd ymm0, ymm0, ymm15; vpaddd ymm1, ymm1, ymm15; vpaddd ymm2, ymm2, ymm15; vpaddd ymm3, ymm3, ymm15; \
                 vpaddd ymm4, ymm4, ymm15; vpaddd ymm5, ymm5, ymm15; vpaddd ymm6, ymm6, ymm15; vpaddd ymm7, ymm7, ymm15",
                "vzeroupper"
            )
            .needs(Needs::Avx2),
        ),
        ("pmuludq_1", "Multiplications of two 32-bit integers to 64 bits, in a chain.", straight!(1 x 50, "pmuludq xmm0, xmm1")),
        (
            "pshufb_6",
            "Byte shuffles in six chains.",
            straight!(
                6 x 12,
                "pshufb xmm0, xmm15; pshufb xmm1, xmm15; pshufb xmm2, xmm15; pshufb xmm3, xmm15; pshufb xmm4, xmm15; pshufb xmm5, xmm15"
            )
            .needs(Needs::Ssse3),
        ),
        ("pshufb_chain", "Byte shuffles in a chain.", straight!(1 x 50, "pshufb xmm0, xmm1").needs(Needs::Ssse3)),
        ("movdqa_chain", "Moves of a vector register to another one and back.", straight!(2 x 50, "movdqa xmm1, xmm0; movdqa xmm0, xmm1")),
        ("aesenc_chain", "Rounds of AES in a chain.", straight!(1 x 50, "aesenc xmm0, xmm1").needs(Needs::Aes)),
        ("sha256_chain", "Rounds of SHA-256.", straight!(1 x 50, "sha256rnds2 xmm1, xmm2, xmm0").needs(Needs::Sha)),
    ]
}
