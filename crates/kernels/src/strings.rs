//! Kernels of group `strings`: repeated string instructions (`rep movsb` and others), and copies by loops of loads
//! and stores. All are loops of `straight`.

use crate::straight::{kernel, straight};
use crate::{Group, Kernel};

/// A loop of a repeated string instruction with `$count` repetitions. `$source` sets the other registers that the
/// instruction reads. r13 is 8 KiB after rdi, the start of the memory. rcx and rdi are restored after each instruction.
macro_rules! repeated {
    ($source:literal, $count:literal, $instruction:literal) => {
        straight!(
            1 x 4,
            "lea r13, [rdi + 8192]",
            concat!(
                "mov r8, rcx; mov r9, rdi; ", $source, "; mov ecx, ", $count, "; ", $instruction,
                "; mov rcx, r8; mov rdi, r9"
            )
        )
    };
}

/// The kernels of `rep` instructions, by length and alignment.
pub(crate) fn kernels() -> Vec<Kernel> {
    let list = [
        ("movsb_8", "rep movsb of 8 bytes.", repeated!("mov rsi, r13", "8", "rep movsb")),
        ("movsb_64", "rep movsb of 64 bytes.", repeated!("mov rsi, r13", "64", "rep movsb")),
        (
            "movsb_200",
            "rep movsb of 200 bytes to an address that is not aligned.",
            repeated!("lea rsi, [r13 + 5]", "200", "rep movsb"),
        ),
        ("movsb_1k", "rep movsb of 1 KiB.", repeated!("mov rsi, r13", "1024", "rep movsb")),
        ("movsb_4k", "rep movsb of 4 KiB.", repeated!("mov rsi, r13", "4096", "rep movsb")),
        (
            "movsb_16k",
            "rep movsb of 16 KiB.",
            repeated!("lea rsi, [r13 + 16384]", "16384", "rep movsb"),
        ),
        ("movsq_64", "rep movsq of 64 bytes.", repeated!("mov rsi, r13", "8", "rep movsq")),
        ("movsq_4k", "rep movsq of 4 KiB.", repeated!("mov rsi, r13", "512", "rep movsq")),
        ("stosb_64", "rep stosb of 64 bytes.", repeated!("xor eax, eax", "64", "rep stosb")),
        ("stosb_4k", "rep stosb of 4 KiB.", repeated!("xor eax, eax", "4096", "rep stosb")),
        ("stosq_4k", "rep stosq of 4 KiB.", repeated!("xor eax, eax", "512", "rep stosq")),
        ("lodsb_64", "rep lodsb of 64 bytes.", repeated!("mov rsi, r13", "64", "rep lodsb")),
        (
            "cmpsb_64",
            "repe cmpsb of 64 equal bytes.",
            repeated!("lea rsi, [rdi + 4096]; lea rdi, [rdi + 12288]", "64", "repe cmpsb"),
        ),
        (
            "scasb_64",
            "repne scasb over 64 bytes without the one that is looked for.",
            repeated!("mov eax, 77", "64", "repne scasb"),
        ),
    ];
    let call = "call";
    list.map(|(name, about, code)| kernel(Group::Strings, (name, call, about), code))
        .into_iter()
        .chain(copies())
        .collect()
}

/// Copies by loops of loads and stores.
fn copies() -> Vec<Kernel> {
    let list = [
        (
            "copy_4k_16b",
            "A copy of 4 KiB by 16 bytes.",
            straight!(
                1 x 1,
                "",
                "xor eax, eax; 3:; movdqa xmm0, [rdi + rax + 8192]; movdqa [rdi + rax], xmm0; \
                 movdqa xmm1, [rdi + rax + 8208]; movdqa [rdi + rax + 16], xmm1; \
                 movdqa xmm2, [rdi + rax + 8224]; movdqa [rdi + rax + 32], xmm2; \
                 movdqa xmm3, [rdi + rax + 8240]; movdqa [rdi + rax + 48], xmm3; \
                 add eax, 64; cmp eax, 4096; jb 3b"
            ),
        ),
        (
            "clear_4k_8b",
            "A page cleared by 8 bytes.",
            straight!(1 x 1, "", "xor eax, eax; 3:; mov [rdi + rax], rbx; mov [rdi + rax + 8], rbx; add eax, 16; cmp eax, 4096; jb 3b"),
        ),
    ];
    list.map(|(name, about, code)| kernel(Group::Strings, (name, "call", about), code)).into()
}
