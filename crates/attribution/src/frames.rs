//! What a stack of contexts is made of.

use crate::kernel_context::KernelContext;
use crate::ledger::{Counts, add};

/// How a frame came to be, and so how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The foot of the stack; it ends by becoming another.
    Foot,
    /// `syscall`: ends with the return to user mode.
    Syscall,
    /// Interrupt or exception: ends with an `iret` at this stack pointer.
    Hardware { stack_pointer: u64 },
    /// A part of the context below: ends when it is told to.
    Part,
    /// A function: ends at its return address with the stack pointer above it.
    Call { return_to: u64, stack_pointer: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<const N: usize> {
    pub(crate) context: KernelContext,
    pub(crate) entry: Entry,
    pub(crate) own: Counts<N>,
    pub(crate) nested: Counts<N>,
    /// Times at which the span began.
    pub(crate) began: u64,
    /// The region of interest in which the span began; 0 for none.
    pub(crate) region: u32,
}

impl<const N: usize> Frame<N> {
    pub(crate) fn new(context: KernelContext, entry: Entry) -> Self {
        Frame { context, entry, own: [0; N], nested: [0; N], began: 0, region: 0 }
    }

    pub(crate) fn inclusive(&self) -> Counts<N> {
        let mut sum = self.own;
        add(&mut sum, &self.nested);
        sum
    }
}

/// The stack of a task that is not running.
#[derive(Clone, Debug)]
pub struct Frames<const N: usize = 1>(pub(crate) Vec<Frame<N>>);

impl<const N: usize> Frames<N> {
    /// A stack with nothing but its foot.
    #[must_use]
    pub fn new(foot: KernelContext) -> Frames<N> {
        let mut frames = Vec::with_capacity(4);
        frames.push(Frame::new(foot, Entry::Foot));
        Frames(frames)
    }
}

/// A span that began and ended in the region of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSpan<const N: usize = 1> {
    /// What it was.
    pub context: KernelContext,
    /// When it began: the first count of the CPU that it began on.
    pub began: u64,
    /// Used by itself.
    pub own: Counts<N>,
    /// Used with what was nested inside.
    pub inclusive: Counts<N>,
}

/// Another context is on top from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTurn<const N: usize = 1> {
    /// What the CPU executes for.
    pub context: KernelContext,
    /// The task at the foot, which may be the same.
    pub foot: KernelContext,
    /// What the CPU had counted then.
    pub at: Counts<N>,
}
