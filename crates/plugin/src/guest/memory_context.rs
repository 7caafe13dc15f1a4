//! Converts between kernel contexts and the memory system's own form of a context.

use attribution::{KernelContext, PID_UNKNOWN, SYSCALL_32};
use machine::memory::{Context, Mode};

/// Bit of a number of a service that stands for the highest bit of its code.
const HIGHEST: u32 = 1 << 23;

/// Packs the code of a context into 32 bits: its kind in bits 24 to 31, its number in bits 0 to 23. The number's only
/// higher bit, [`SYSCALL_32`], becomes [`HIGHEST`].
fn number_of(code: u64) -> u32 {
    let highest = if code as u32 & SYSCALL_32 == 0 { 0 } else { HIGHEST };
    ((code >> 32) as u32 & 0xff) << 24 | (code as u32 & (HIGHEST - 1)) | highest
}

fn code_of(number: u32) -> u64 {
    let highest = if number & HIGHEST == 0 { 0 } else { SYSCALL_32 };
    u64::from(number >> 24) << 32 | u64::from(number & (HIGHEST - 1) | highest)
}

/// A context as the memory knows it: by the context on top alone.
pub(crate) fn context_of(top: KernelContext) -> Context {
    if let KernelContext::User(process) = top {
        return Context { mode: Mode::User, process, service: None };
    }
    let service = Some(number_of(top.of_all_tasks().code()));
    Context { mode: Mode::Kernel, process: 0, service }
}

/// The code of the service that a context of the memory is.
pub(crate) fn service_of(context: Context) -> u64 {
    match (context.service, context.mode) {
        (Some(service), _) => code_of(service),
        (None, Mode::User) => KernelContext::User(PID_UNKNOWN).code(),
        (None, Mode::Kernel) => KernelContext::Unknown.code(),
    }
}
