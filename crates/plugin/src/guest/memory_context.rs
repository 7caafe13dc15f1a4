//! Converts between kernel contexts and the form of a context that the memory system stores with each line, to tell
//! which context evicted it.

use attribution::{KernelContext, PID_UNKNOWN, SYSCALL_32};
use machine::memory::{Context, Mode};

/// Bit of a packed code that stands for [`SYSCALL_32`], the highest bit of a context's number.
const HIGHEST: u32 = 1 << 23;

/// Packs the code of a context ([`KernelContext::code`]) into 32 bits: the context's kind in bits 24 to 31, its number
/// in bits 0 to 22. [`SYSCALL_32`], the only higher bit of a number, becomes [`HIGHEST`].
fn number_of(code: u64) -> u32 {
    let highest = if code as u32 & SYSCALL_32 == 0 { 0 } else { HIGHEST };
    ((code >> 32) as u32 & 0xff) << 24 | (code as u32 & (HIGHEST - 1)) | highest
}

/// The inverse of [`number_of`].
fn code_of(number: u32) -> u64 {
    let highest = if number & HIGHEST == 0 { 0 } else { SYSCALL_32 };
    u64::from(number >> 24) << 32 | u64::from(number & (HIGHEST - 1) | highest)
}

/// The memory system's form of the context on top of a CPU's stack. `process`: the number of the process of the CPU's
/// task. If it is not known, a task counts as a process of its own.
pub(crate) fn context_of(top: KernelContext, process: Option<u32>) -> Context {
    if let KernelContext::User(task) = top {
        return Context { mode: Mode::User, process: process.unwrap_or(task), service: None };
    }
    let service = Some(number_of(top.of_all_tasks().code()));
    Context { mode: Mode::Kernel, process: 0, service }
}

/// The code of the kernel context that [`context_of`] has converted. All tasks in user mode have one code.
pub(crate) fn service_of(context: Context) -> u64 {
    match (context.service, context.mode) {
        (Some(service), _) => code_of(service),
        (None, Mode::User) => KernelContext::User(PID_UNKNOWN).code(),
        (None, Mode::Kernel) => KernelContext::Unknown.code(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_process_are_one_context_in_user_mode() {
        let user = |thread, process| context_of(KernelContext::User(thread), process);
        assert_eq!(user(42, Some(42)), user(43, Some(42)));
        assert_ne!(user(42, Some(42)), user(44, Some(44)));
        assert_ne!(user(42, None), user(43, None), "the processes are not known");
    }
}
