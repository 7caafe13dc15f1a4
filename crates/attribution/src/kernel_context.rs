//! The contexts of a simulated machine, on which every instruction is observed. The plugin writes their codes into the
//! record, and `sim` reads them: a code must never change its meaning.

use std::fmt;

use crate::context::ContextKind;
use crate::fault::FaultKind;
use crate::lock_kind::LockKind;

/// The process id of a task whose id is not known (yet).
pub const PID_UNKNOWN: u32 = u32::MAX;

/// Added to the number of a system call that came through an entry for 32-bit programs.
/// Their system calls have different numbers.
pub const SYSCALL_32: u32 = 1 << 31;

/// The context that a simulated CPU executes. Each instruction belongs to exactly one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelContext {
    /// Unknown: firmware, decompressor, and the kernel before the first event that identifies a
    /// task.
    Unknown,
    /// The idle task of the CPU, without the interrupts that it takes.
    Idle,
    /// User mode of the task with this id.
    User(u32),
    /// A kernel thread with this id.
    KernelThread(u32),
    /// Kernel code of a task whose kernel entry was not observed. The task is new and has executed no user instruction,
    /// or it was in the kernel when tracking started.
    Task(u32),
    /// A system call, by number, with [`SYSCALL_32`] for 32-bit programs.
    Syscall(u32),
    /// A processor exception, by vector.
    Exception(u8),
    /// An interrupt of a device or of the local APIC, by vector.
    Interrupt(u8),
    /// A softirq, by its number in [`crate::context::SOFTIRQS`].
    Softirq(u8),
    /// The non-maskable interrupt.
    Nmi,
    /// The handler (action) of a device's IRQ line, by the line's number.
    Irq(u32),
    /// A function of the kernel that the caller follows, by the caller's number for it.
    Function(u32),
    /// A page fault, by its kind. Only as a service: the context of a page fault is [`KernelContext::Exception`].
    Fault(FaultKind),
    /// The kernel itself brings in a page for a task, without an exception.
    KernelFault(FaultKind),
    /// The slow path of a lock that another CPU or task holds.
    LockWait(LockKind),
    /// The scheduler: from the call of `__schedule` to its return, without other tasks.
    Scheduler,
    /// A function that a timer, a work item, a tasklet or RCU calls: one of [`ContextKind::CALLBACKS`], and the lower
    /// half of the function's address. The upper half is the same for all code of the kernel.
    Callback(ContextKind, u32),
    /// The exit of a task that a signal ended, inside the context in which the signal found it. The exit of a task that ends
    /// itself is its system call.
    Exit,
}

/// The first of the kinds of codes that stand for [`KernelContext::Callback`], in the order of
/// [`ContextKind::CALLBACKS`].
const CALLBACK_KIND_FIRST: u64 = 16;
/// The kind of the code of [`KernelContext::Exit`], after those of callbacks.
const EXIT_KIND: i32 = 21;

impl KernelContext {
    /// Whether the context is an interrupt, a softirq or an exception. The threads of IRQ lines do not
    /// count: here they are ordinary kernel threads.
    #[must_use]
    pub fn is_interrupt_or_exception(self) -> bool {
        matches!(
            self,
            KernelContext::Interrupt(_)
                | KernelContext::Irq(_)
                | KernelContext::Softirq(_)
                | KernelContext::Exception(_)
                | KernelContext::Nmi
        )
    }

    /// The service of this context. All tasks share one service for user mode, and one for [`KernelContext::Task`].
    #[must_use]
    pub fn of_all_tasks(self) -> KernelContext {
        match self {
            KernelContext::User(_) => KernelContext::User(PID_UNKNOWN),
            KernelContext::Task(_) => KernelContext::Task(PID_UNKNOWN),
            other => other,
        }
    }

    /// The context as one number: its kind in the upper 32 bits, its number in the lower 32 bits.
    #[must_use]
    pub fn code(self) -> u64 {
        let (kind, number) = match self {
            KernelContext::Unknown => (0, 0),
            KernelContext::Idle => (1, 0),
            KernelContext::User(pid) => (2, pid),
            KernelContext::KernelThread(pid) => (3, pid),
            KernelContext::Task(pid) => (4, pid),
            KernelContext::Syscall(number) => (5, number),
            KernelContext::Exception(vector) => (6, u32::from(vector)),
            KernelContext::Interrupt(vector) => (7, u32::from(vector)),
            KernelContext::Softirq(number) => (8, u32::from(number)),
            KernelContext::Nmi => (9, 0),
            KernelContext::Irq(line) => (10, line),
            KernelContext::Function(number) => (11, number),
            KernelContext::Fault(kind) => (12, kind as u32),
            KernelContext::KernelFault(kind) => (13, kind as u32),
            KernelContext::Scheduler => (14, 0),
            KernelContext::LockWait(kind) => (15, kind as u32),
            KernelContext::Callback(kind, function) => {
                let position = ContextKind::CALLBACKS.iter().position(|known| *known == kind);
                (CALLBACK_KIND_FIRST as i32 + position.unwrap_or(0) as i32, function)
            }
            KernelContext::Exit => (EXIT_KIND, 0),
        };
        u64::from(kind as u32) << 32 | u64::from(number)
    }

    /// The context with this [`KernelContext::code`], or `None` if no context has this code.
    #[must_use]
    pub fn from_code(code: u64) -> Option<KernelContext> {
        let number = u32::try_from(code & u64::from(u32::MAX)).ok()?;
        let small = u8::try_from(number);
        let callback = |kind: u64| {
            let position = usize::try_from(kind.checked_sub(CALLBACK_KIND_FIRST)?).ok()?;
            ContextKind::CALLBACKS.get(position).copied()
        };
        let context = match code >> 32 {
            0 => KernelContext::Unknown,
            1 => KernelContext::Idle,
            2 => KernelContext::User(number),
            3 => KernelContext::KernelThread(number),
            4 => KernelContext::Task(number),
            5 => KernelContext::Syscall(number),
            6 => KernelContext::Exception(small.ok()?),
            7 => KernelContext::Interrupt(small.ok()?),
            8 => KernelContext::Softirq(small.ok()?),
            9 => KernelContext::Nmi,
            10 => KernelContext::Irq(number),
            11 => KernelContext::Function(number),
            12 => KernelContext::Fault(FaultKind::of_number(number)?),
            13 => KernelContext::KernelFault(FaultKind::of_number(number)?),
            14 => KernelContext::Scheduler,
            15 => KernelContext::LockWait(LockKind::of_number(number)?),
            21 => KernelContext::Exit,
            kind => KernelContext::Callback(callback(kind)?, number),
        };
        // Contexts without a number have only one code: refuses codes with a number.
        (context.code() == code).then_some(context)
    }
}

impl fmt::Display for KernelContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            KernelContext::Unknown => write!(out, "unknown"),
            KernelContext::Idle => write!(out, "idle"),
            KernelContext::User(PID_UNKNOWN) => write!(out, "user"),
            KernelContext::User(pid) => write!(out, "user {pid}"),
            KernelContext::KernelThread(pid) => write!(out, "kernel thread {pid}"),
            KernelContext::Task(PID_UNKNOWN) => write!(out, "task"),
            KernelContext::Task(pid) => write!(out, "task {pid}"),
            KernelContext::Syscall(number) if number & SYSCALL_32 != 0 => {
                write!(out, "syscall {} (32 bits)", number & !SYSCALL_32)
            }
            KernelContext::Syscall(number) => write!(out, "syscall {number}"),
            KernelContext::Exception(vector) => write!(out, "exception {vector}"),
            KernelContext::Interrupt(vector) => write!(out, "interrupt {vector:#04x}"),
            KernelContext::Softirq(number) => {
                match crate::context::SOFTIRQS.get(usize::from(number)) {
                    Some(name) => write!(out, "softirq {name}"),
                    None => write!(out, "softirq {number}"),
                }
            }
            KernelContext::Nmi => write!(out, "nmi"),
            KernelContext::Irq(line) => write!(out, "irq {line}"),
            KernelContext::Function(number) => write!(out, "function {number}"),
            KernelContext::Fault(kind) => write!(out, "fault {}", kind.label()),
            KernelContext::KernelFault(kind) => {
                write!(out, "fault {} (by the kernel)", kind.label())
            }
            KernelContext::Scheduler => write!(out, "scheduler"),
            KernelContext::Callback(kind, function) => {
                write!(out, "{} {function:#x}", kind.label())
            }
            KernelContext::LockWait(kind) => write!(out, "wait for a {}", kind.label()),
            KernelContext::Exit => write!(out, "exit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_other_numbers_are_refused() {
        let contexts = [
            KernelContext::Unknown,
            KernelContext::Idle,
            KernelContext::User(7),
            KernelContext::KernelThread(PID_UNKNOWN),
            KernelContext::Task(1),
            KernelContext::Syscall(511),
            KernelContext::Exception(14),
            KernelContext::Interrupt(0xec),
            KernelContext::Softirq(3),
            KernelContext::Nmi,
            KernelContext::Irq(24),
            KernelContext::Function(0),
            KernelContext::Fault(FaultKind::CopyOnWrite),
            KernelContext::KernelFault(FaultKind::BadAddress),
            KernelContext::Scheduler,
            KernelContext::LockWait(LockKind::SemaphoreWrite),
            KernelContext::Callback(ContextKind::Hrtimer, 0x8114_5820),
            KernelContext::Callback(ContextKind::Rcu, u32::MAX),
            KernelContext::Exit,
        ];
        for context in contexts {
            assert_eq!(KernelContext::from_code(context.code()), Some(context));
        }
        for code in [
            1,
            1 << 32 | 5,
            6 << 32 | 256,
            9 << 32 | 1,
            12 << 32 | 9,
            14 << 32 | 1,
            15 << 32 | 6,
            21 << 32 | 1,
            22 << 32,
            u64::MAX,
        ] {
            assert_eq!(KernelContext::from_code(code), None, "{code:#x}");
        }
    }

    #[test]
    fn names_have_kind_and_number() {
        assert_eq!(KernelContext::Softirq(3).to_string(), "softirq NET_RX");
        assert_eq!(KernelContext::Softirq(99).to_string(), "softirq 99");
        assert_eq!(KernelContext::Interrupt(0xec).to_string(), "interrupt 0xec");
        assert_eq!(KernelContext::User(PID_UNKNOWN).to_string(), "user");
    }
}
