//! Kernels of group `loads-stores`: loads and stores in the first-level cache, and forwarding of a store's data to a
//! load. All are loops of `straight`.

use crate::straight::{Needs, Straight, kernel, straight};
use crate::{Group, Kernel};

/// A kernel's name, its unit, what it does, and its code.
type Row = (&'static str, &'static str, &'static str, Straight);

pub(crate) fn kernels() -> Vec<Kernel> {
    let list = throughput().into_iter().chain(forwarding()).chain(crossing());
    list.map(|(name, unit, about, code)| kernel(Group::LoadsStores, (name, unit, about), code))
        .collect()
}

/// Loads, stores and copies that do not depend on each other, and stack operations.
fn throughput() -> Vec<Row> {
    vec![
        (
            "loads_6",
            "load",
            "Loads of 8 bytes from six lines.",
            straight!(
                6 x 16,
                "mov rax, [rdi]; mov rbx, [rdi + 64]; mov rdx, [rdi + 128]; mov rsi, [rdi + 192]; \
                 mov r8, [rdi + 256]; mov r9, [rdi + 320]"
            ),
        ),
        (
            "loads_32b",
            "load",
            "Loads of 32 bytes from six lines.",
            straight!(
                6 x 16,
                "vzeroall",
                "vmovdqa ymm0, [rdi]; vmovdqa ymm1, [rdi + 64]; vmovdqa ymm2, [rdi + 128]; \
                 vmovdqa ymm3, [rdi + 192]; vmovdqa ymm4, [rdi + 256]; vmovdqa ymm5, [rdi + 320]",
                "vzeroupper"
            )
            .needs(Needs::Avx2),
        ),
        (
            "load_scaled_index",
            "load and and",
            "Loads whose address has a scaled index, in a chain with an and.",
            straight!(1 x 20, "mov [rdi], rax", "mov rax, [rdi + rax*8]; and rax, 0"),
        ),
        (
            "load_vector",
            "round",
            "A load into a vector register, a move to a general register and an and, in a chain.",
            straight!(1 x 20, "mov [rdi], rax", "movq xmm0, [rdi + rax]; movq rax, xmm0; and rax, 0"),
        ),
        (
            "stores_16b",
            "store",
            "Stores of 16 bytes to the same line.",
            straight!(
                4 x 16,
                "movups [rdi], xmm0; movups [rdi + 16], xmm0; movups [rdi + 32], xmm0; movups [rdi + 48], xmm0"
            ),
        ),
        (
            "stores_line",
            "store",
            "Stores of 8 bytes to the same line.",
            straight!(4 x 16, "mov [rdi], rax; mov [rdi + 8], rax; mov [rdi + 16], rax; mov [rdi + 24], rax"),
        ),
        (
            "stores_lines",
            "store",
            "Stores of 8 bytes to four lines.",
            straight!(4 x 16, "mov [rdi], rax; mov [rdi + 64], rax; mov [rdi + 128], rax; mov [rdi + 192], rax"),
        ),
        (
            "stores_32b",
            "store",
            "Stores of 32 bytes, two to a line.",
            straight!(
                4 x 16,
                "vzeroall",
                "vmovdqa [rdi], ymm0; vmovdqa [rdi + 32], ymm0; vmovdqa [rdi + 64], ymm0; vmovdqa [rdi + 96], ymm0",
                "vzeroupper"
            )
            .needs(Needs::Avx2),
        ),
        (
            "copy_32b",
            "load and store",
            "Copies of 32 bytes.",
            straight!(
                4 x 16,
                "vzeroall",
                "vmovdqa ymm0, [rdi]; vmovdqa [rdi + 4160], ymm0; vmovdqa ymm1, [rdi + 32]; vmovdqa [rdi + 4192], ymm1; \
                 vmovdqa ymm2, [rdi + 64]; vmovdqa [rdi + 4224], ymm2; vmovdqa ymm3, [rdi + 96]; vmovdqa [rdi + 4256], ymm3",
                "vzeroupper"
            )
            .needs(Needs::Avx2),
        ),
        (
            "load_add",
            "instruction",
            "Additions from memory, in four chains.",
            straight!(4 x 16, "add rax, [rdi]; add rbx, [rdi + 64]; add rdx, [rdi + 128]; add rsi, [rdi + 192]"),
        ),
        (
            "load_chain",
            "load and and",
            "Loads in a chain, each with an and.",
            straight!(1 x 20, "mov rax, [rdi + rax]; and rax, 0"),
        ),
        ("load_float", "addition", "Additions of a double from memory, in a chain.", straight!(1 x 20, "addsd xmm0, [rdi]")),
        ("push_pop", "pair", "A push and a pop to another register.", straight!(1 x 20, "push rax; pop rbx")),
        ("movnti", "store", "Stores of 8 bytes that bypass the caches, to a line.", {
            straight!(8 x 4, "movnti [rdi], rax; movnti [rdi + 8], rax; movnti [rdi + 16], rax; movnti [rdi + 24], rax; \
                movnti [rdi + 32], rax; movnti [rdi + 40], rax; movnti [rdi + 48], rax; movnti [rdi + 56], rax")
        }),
    ]
}

/// Loads of what a store has just written, and similar addresses.
fn forwarding() -> Vec<Row> {
    vec![
        (
            "forward_same",
            "round",
            "A store, a load of it by the same register, and an addition, in a chain.",
            straight!(1 x 20, "mov [rdi + 256], rax; mov rax, [rdi + 256]; add rax, r10"),
        ),
        (
            "forward_index",
            "round",
            "A store and a load of it, by an index that depends on the previous load, in a chain.",
            straight!(1 x 20, "mov [rdi + r9 + 256], rax; mov rax, [rdi + r9 + 256]; mov r9, rax; and r9, 0"),
        ),
        ("add_memory", "instruction", "Additions to the same 8 bytes of memory.", straight!(1 x 20, "add qword ptr [rdi + 256], 1")),
        ("inc_memory", "instruction", "Increments of the same 4 bytes of memory.", straight!(1 x 20, "inc dword ptr [rdi + 256]")),
        (
            "forward_two",
            "round",
            "Two stores of 4 bytes and a load of both, in a chain.",
            straight!(1 x 20, "mov [rdi + 256], eax; mov [rdi + 260], eax; mov rax, [rdi + 256]"),
        ),
        (
            "forward_32b",
            "round",
            "A store of 32 bytes and a load of them, in a chain.",
            straight!(1 x 20, "vzeroall", "vmovdqa [rdi + 256], ymm0; vmovdqa ymm0, [rdi + 256]", "vzeroupper")
                .needs(Needs::Avx2),
        ),
        (
            "forward_part",
            "round",
            "A store of 8 bytes and a load of one in it, in a chain.",
            straight!(1 x 20, "mov [rdi + 256], rax; movzx eax, byte ptr [rdi + 259]"),
        ),
        (
            "forward_vector",
            "round",
            "A store of a general register and a load of it into a vector, and back, in a chain.",
            straight!(1 x 20, "mov [rdi + 256], rax; movq xmm0, [rdi + 256]; movq rax, xmm0"),
        ),
        (
            "alias_4k",
            "round",
            "A store, and a load of another page at the same place in it.",
            straight!(1 x 20, "mov [rdi + 256], rax; mov rax, [rdi + 4352]; and rax, 1"),
        ),
    ]
}

/// Loads and stores that are not aligned or cross a line or a page.
fn crossing() -> Vec<Row> {
    vec![
        (
            "loads_unaligned",
            "load",
            "Loads that are not aligned, each within a line.",
            straight!(4 x 16, "mov rax, [rdi + 3]; mov rbx, [rdi + 67]; mov rdx, [rdi + 131]; mov rsi, [rdi + 195]"),
        ),
        (
            "loads_split",
            "load",
            "Loads that cross a line.",
            straight!(4 x 16, "mov rax, [rdi + 61]; mov rbx, [rdi + 125]; mov rdx, [rdi + 189]; mov rsi, [rdi + 253]"),
        ),
        (
            "stores_split",
            "store",
            "Stores that cross a line.",
            straight!(4 x 16, "mov [rdi + 61], rax; mov [rdi + 125], rax; mov [rdi + 189], rax; mov [rdi + 253], rax"),
        ),
        (
            "loads_page_split",
            "load",
            "Loads that cross a page.",
            straight!(2 x 16, "mov rax, [rdi + 4093]; mov rbx, [rdi + 8189]"),
        ),
        (
            "stores_page_split",
            "store",
            "Stores that cross a page.",
            straight!(2 x 16, "mov [rdi + 4093], rax; mov [rdi + 8189], rax"),
        ),
    ]
}
