//! Kernels of group `atomics`: locked instructions, fences, serialising instructions and cache flushes. All are loops
//! of `straight`.

use crate::straight::{kernel, straight};
use crate::{Group, Kernel};

/// The kernels of locked instructions and fences: name, what they do, and their code.
pub(crate) fn kernels() -> Vec<Kernel> {
    let list = [
        (
            "lock_xadd",
            "Locked exchanges and additions, in a chain.",
            straight!(1 x 20, "lock xadd [rdi], rax"),
        ),
        (
            "lock_add",
            "Locked additions to memory.",
            straight!(1 x 20, "lock add qword ptr [rdi], 1"),
        ),
        (
            "xchg_memory",
            "Exchanges with memory, which are locked.",
            straight!(1 x 20, "xchg [rdi], rax"),
        ),
        (
            "lock_cmpxchg",
            "Locked comparisons and exchanges.",
            straight!(1 x 20, "lock cmpxchg [rdi], rbx"),
        ),
        (
            "lock_cmpxchg16b",
            "Locked comparisons and exchanges of 16 bytes.",
            straight!(1 x 20, "mov r8, rcx; xor ecx, ecx; lock cmpxchg16b [rdi]; mov rcx, r8"),
        ),
        ("lock_bts", "Locked bit sets.", straight!(1 x 20, "lock bts dword ptr [rdi], 3")),
        (
            "lock_add_spread",
            "Locked additions to four lines.",
            straight!(4 x 8, "lock add qword ptr [rdi], 1; lock add qword ptr [rdi + 64], 1; lock add qword ptr [rdi + 128], 1; lock add qword ptr [rdi + 192], 1"),
        ),
        ("mfence", "Full fences.", straight!(1 x 20, "mfence")),
        ("store_mfence", "A store and a full fence.", straight!(1 x 20, "mov [rdi], rax; mfence")),
        ("lfence", "Load fences.", straight!(1 x 20, "lfence")),
        ("sfence", "Store fences.", straight!(1 x 20, "sfence")),
        ("store_sfence", "A store and a store fence.", straight!(1 x 20, "mov [rdi], rax; sfence")),
        ("rdtsc", "Readings of the time-stamp counter.", straight!(1 x 20, "rdtsc")),
        (
            "rdtscp",
            "Ordered readings of the time-stamp counter, with a push and a pop.",
            straight!(1 x 20, "push rcx; rdtscp; pop rcx"),
        ),
        (
            "lfence_rdtsc",
            "A load fence and a reading of the time-stamp counter.",
            straight!(1 x 20, "lfence; rdtsc"),
        ),
        ("pause", "Pauses of a loop that waits.", straight!(1 x 20, "pause")),
        (
            "cpuid",
            "Identifications of the processor; a hypervisor handles each.",
            straight!(1 x 4, "xor eax, eax; mov r12, rcx; cpuid; mov rcx, r12"),
        ),
        (
            "xgetbv",
            "Readings of the extended control register.",
            straight!(1 x 20, "mov r12, rcx; xor ecx, ecx; xgetbv; mov rcx, r12"),
        ),
        ("pushf_popf", "Flags pushed and popped.", straight!(1 x 20, "pushfq; popfq")),
        ("cld", "Clearings of the direction flag.", straight!(1 x 20, "cld")),
        (
            "clflush_mfence",
            "A line flushed that is in no cache, and a full fence.",
            straight!(1 x 10, "clflush [rdi]; mfence"),
        ),
        (
            "clflush_load",
            "A line flushed, a full fence, a load of it and a load fence.",
            straight!(1 x 10, "clflush [rdi]; mfence; mov rax, [rdi]; lfence"),
        ),
        (
            "prefetcht0",
            "Prefetches of a line that is in the first cache.",
            straight!(1 x 20, "prefetcht0 [rdi]"),
        ),
    ];
    list.map(|(name, about, code)| kernel(Group::Atomics, (name, "instruction", about), code))
        .into()
}
