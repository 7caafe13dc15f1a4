//! What a CPU is executing for, and the stack that tells self time from inclusive time.
//!
//! Pure: no IO, no clock, no globals. The live bench keeps the same stack inside its BPF program
//! (`crates/live/bpf/span_stack.h`); the model here is what that C code is tested against.

pub mod context;
pub mod stack;

pub use context::{Context, ContextKind};
pub use stack::{ClosedSpan, SpanStack, StackFaults};
