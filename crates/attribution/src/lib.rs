//! What a CPU is executing for, and the stacks that tell self time from inclusive time.
//!
//! Pure: no IO, no clock, no globals. The live bench keeps the span stack inside its BPF program
//! (`crates/live/bpf/span_stack.h`); the model here is what that C code is tested against. The
//! simulated bench sees every instruction, and keeps the fuller [`KernelStack`].

#![forbid(unsafe_code)]

pub mod context;
mod frames;
pub mod kernel_context;
pub mod kernel_stack;
pub mod ledger;
pub mod stack;
pub mod tasks;

pub use context::{Context, ContextKind};
pub use frames::{Frames, KernelSpan, KernelTurn};
pub use kernel_context::{KernelContext, PID_UNKNOWN, SYSCALL_32};
pub use kernel_stack::{KernelStack, KernelStackFaults};
pub use ledger::{Counts, Ledger, Row};
pub use stack::{ClosedSpan, SpanStack, StackFaults};
pub use tasks::TaskStacks;
