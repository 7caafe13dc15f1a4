//! Kernels that are a loop of straight code: a few instructions, repeated.

use std::ptr::NonNull;

use crate::memory::Pages;
use crate::{Body, Executed, Group, Kernel, Made};

/// The instructions beyond x86-64 that a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// 256-bit vectors and fused multiplication and addition.
    Avx2,
    /// Population and leading zero counts, bit deposits, CRC.
    Bits,
    Aes,
    Sha,
    Ssse3,
}

impl Needs {
    /// The message for instructions that this processor lacks, or `None` if it lacks none.
    pub(crate) fn lacking(self) -> Option<&'static str> {
        let (has, what) = match self {
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
        (!has).then_some(what)
    }
}

/// A function that goes through the loop `count` times, with the address of the memory that it may use.
pub(crate) type Loop = unsafe extern "sysv64" fn(count: u64, memory: *mut u8);

/// A loop, and how many units of the kernel one iteration executes.
#[derive(Clone, Copy)]
pub(crate) struct Straight {
    pub(crate) code: Loop,
    pub(crate) units: u32,
    pub(crate) needs: Needs,
}

impl Straight {
    /// This loop, for processors that meet `needs`.
    pub(crate) fn needs(self, needs: Needs) -> Straight {
        Straight { needs, ..self }
    }
}

/// Bytes of memory that a loop may use.
pub(crate) const MEMORY_BYTES: usize = 64 << 10;

/// A loop: `UNITS x COPIES` of the body, after a prologue. Registers: rcx counts, and a body leaves it as
/// it is; rdi has the address of [`MEMORY_BYTES`] bytes; r10 and r11 are 1; other registers are 0, but
/// for rsp. Labels in a body are numbers from 3.
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
                // Values of earlier programs could be denormal, and slow.
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

/// A loop with its memory.
struct StraightBody {
    of: Straight,
    memory: Pages,
}

impl Body for StraightBody {
    fn run(&mut self, rounds: u64) -> Executed {
        let rounds = rounds.max(1);
        let memory: NonNull<u8> = self.memory.base();
        // SAFETY: the code keeps the calling convention, accesses no memory but that of `memory`, which
        // has `MEMORY_BYTES`, and its own stack frame, and the processor has the instructions it needs.
        unsafe { (self.of.code)(rounds, memory.as_ptr()) };
        Executed::whole(rounds * u64::from(self.of.units))
    }
}

/// The body of a kernel of straight code.
pub(crate) fn body(of: Straight) -> Made {
    if let Some(lacking) = of.needs.lacking() {
        return Err(lacking.to_owned());
    }
    let memory = Pages::small(MEMORY_BYTES)?;
    Ok(Box::new(StraightBody { of, memory }))
}

/// A kernel of straight code.
pub(crate) fn kernel(
    group: Group,
    text: (&'static str, &'static str, &'static str),
    of: Straight,
) -> Kernel {
    Kernel::new(group, text, move || body(of))
}
