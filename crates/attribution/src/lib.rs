//! The contexts in which a CPU executes, and the stacks that separate self time from inclusive
//! time.
//!
//! Pure: no IO, no clock, no globals. The live bench keeps its span stack in a BPF program
//! (`crates/live/bpf/span_stack.h`), and tests compare this program with its model [`SpanStack`]. The simulated bench
//! observes every instruction; its plugin keeps the more detailed [`KernelStack`].
//!
//! [`context`] and [`key`] are the only definitions of system vectors, softirqs and context keys. The C code is
//! compiled with the header that [`key::c_header`] generates.

#![forbid(unsafe_code)]

pub mod context;
pub mod delays;
pub mod fault;
pub mod kernel_context;
pub mod kernel_function;
pub mod kernel_stack;
pub mod key;
pub mod ledger;
pub mod lock_kind;
pub mod locks;
pub mod profile;
pub mod senders;
pub mod services;
pub mod stack;
pub mod tasks;

pub use context::{Context, ContextKind, SystemVector};
pub use fault::FaultKind;
pub use kernel_context::{KernelContext, PID_UNKNOWN, SYSCALL_32};
pub use kernel_stack::{ContextTransition, Frames, KernelSpan, KernelStack, KernelStackFaults};
pub use key::ContextKey;
pub use ledger::{Counts, Ledger, Row};
pub use lock_kind::LockKind;
pub use locks::{LockClient, LockPlace, LockRow, Locks, WaitEnd};
pub use profile::{Mode, Profile};
pub use services::{BlockedSpan, Completed, OffCpu, RequestPart, ServiceRow, Services};
pub use stack::{ClosedSpan, SpanStack, StackFaults};
pub use tasks::TaskStacks;
