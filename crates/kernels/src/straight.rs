//! The frame of kernels that are a loop of a few instructions, repeated without calls. Most groups use it: they write
//! the instructions with `straight!` and make the kernel with `kernel`.
//!
//! The macro writes a function with the standard calling convention. It gives the instructions known register values
//! and memory.

use std::ptr::NonNull;

use crate::memory::Pages;
use crate::{Body, Executed, Group, Kernel, Made};

/// The instruction sets beyond basic x86-64 that a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// 256-bit vectors, and fused multiplication and addition.
    Avx2,
    /// Population and leading zero counts, bit deposits, CRC.
    Bits,
    Aes,
    Sha,
    Ssse3,
}

impl Needs {
    /// The error message if this processor lacks the instructions. `None` if it has them.
    pub(crate) fn lacking(self) -> Option<&'static str> {
        let (is_available, message) = match self {
            Needs::Nothing => (true, ""),
            Needs::Avx2 => (
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
                "the processor has no AVX2 and FMA",
            ),
            Needs::Bits => (
                is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("popcnt")
                    && is_x86_feature_detected!("sse4.2"),
                "the processor has no BMI2, POPCNT and SSE4.2",
            ),
            Needs::Aes => (is_x86_feature_detected!("aes"), "the processor has no AES"),
            Needs::Sha => (is_x86_feature_detected!("sha"), "the processor has no SHA"),
            Needs::Ssse3 => (is_x86_feature_detected!("ssse3"), "the processor has no SSSE3"),
        };
        (!is_available).then_some(message)
    }
}

/// A function that executes `count` iterations of the loop. `memory` is the address of [`MEMORY_BYTES`] bytes.
pub(crate) type Loop = unsafe extern "sysv64" fn(count: u64, memory: *mut u8);

/// A loop, as `straight!` makes it.
#[derive(Clone, Copy)]
pub(crate) struct Straight {
    pub(crate) code: Loop,
    /// Units of the kernel that one iteration executes.
    pub(crate) units: u32,
    pub(crate) needs: Needs,
}

impl Straight {
    /// Sets the instruction sets that the loop needs.
    pub(crate) fn needs(self, needs: Needs) -> Straight {
        Straight { needs, ..self }
    }
}

/// Bytes of memory that a loop may use.
pub(crate) const MEMORY_BYTES: usize = 64 << 10;

/// Makes a [`Straight`] from assembly text: `straight!(UNITS x COPIES, PROLOGUE, BODY, EPILOGUE)`. One iteration
/// executes COPIES copies of BODY, each of UNITS units. PROLOGUE and EPILOGUE are executed once per call; both may be
/// left out.
///
/// Registers at the start: rcx counts the iterations, and BODY must leave it unchanged. rdi has the address of
/// [`MEMORY_BYTES`] bytes. r10 and r11 are 1. All others but rsp are 0. Labels in BODY are numbers from 3.
macro_rules! straight {
    ($units:literal x $copies:literal, $body:expr) => {
        straight!($units x $copies, "", $body)
    };
    ($units:literal x $copies:literal, $prologue:expr, $body:expr) => {
        straight!($units x $copies, $prologue, $body, "")
    };
    ($units:literal x $copies:literal, $prologue:expr, $body:expr, $epilogue:expr) => {{
        #[unsafe(naked)]
        unsafe extern "sysv64" fn code(_count: u64, _memory: *mut u8) {
            // The registers that a function keeps for its caller are saved; the others may change.
            core::arch::naked_asm!(
                "push rbx; push rbp; push r12; push r13; push r14; push r15",
                "mov rcx, rdi; mov rdi, rsi",
                "xor eax, eax; xor ebx, ebx; xor edx, edx; xor esi, esi; xor ebp, ebp",
                "xor r8d, r8d; xor r9d, r9d; mov r10d, 1; mov r11d, 1",
                "xor r12d, r12d; xor r13d, r13d; xor r14d, r14d; xor r15d, r15d",
                // Earlier code could leave denormal values, with which arithmetic is slow.
                "pxor xmm0, xmm0; pxor xmm1, xmm1; pxor xmm2, xmm2; pxor xmm3, xmm3",
                "pxor xmm4, xmm4; pxor xmm5, xmm5; pxor xmm6, xmm6; pxor xmm7, xmm7",
                "pxor xmm8, xmm8; pxor xmm9, xmm9; pxor xmm10, xmm10; pxor xmm11, xmm11",
                "pxor xmm12, xmm12; pxor xmm13, xmm13; pxor xmm14, xmm14; pxor xmm15, xmm15",
                $prologue,
                ".p2align 6",
                "2:",
                concat!(".rept ", stringify!($copies)),
                $body,
                ".endr",
                "dec rcx",
                "jnz 2b",
                $epilogue,
                "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
                "ret",
            )
        }
        crate::straight::Straight {
            code,
            units: $units * $copies,
            needs: crate::straight::Needs::Nothing,
        }
    }};
}
pub(crate) use straight;

/// A loop and the memory that it uses.
struct StraightBody {
    straight: Straight,
    memory: Pages,
}

impl Body for StraightBody {
    fn run(&mut self, rounds: u64) -> Executed {
        let rounds = rounds.max(1);
        let memory: NonNull<u8> = self.memory.base();
        // SAFETY: the code keeps the calling convention. It accesses only `memory`, which has `MEMORY_BYTES`, and its
        // own stack frame. The processor has the instructions that it needs.
        unsafe { (self.straight.code)(rounds, memory.as_ptr()) };
        Executed::whole(rounds * u64::from(self.straight.units))
    }
}

/// The body of a kernel that executes `straight`. Fails if the processor lacks its instructions.
pub(crate) fn body(straight: Straight) -> Made {
    if let Some(message) = straight.needs.lacking() {
        return Err(message.to_owned());
    }
    let memory = Pages::small(MEMORY_BYTES)?;
    Ok(Box::new(StraightBody { straight, memory }))
}

/// A kernel that executes `straight`. `text`: its name, its unit, and what it does.
pub(crate) fn kernel(
    group: Group,
    text: (&'static str, &'static str, &'static str),
    straight: Straight,
) -> Kernel {
    Kernel::new(group, text, move || body(straight))
}
