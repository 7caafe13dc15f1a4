//! The core that a vCPU executes on at the level `ooo`: its own core, or one thread of a multithreaded core.
//!
//! This is a thin layer over the cores of the crate `machine`; [`Pipeline`](super::pipeline::Pipeline) alone uses it.
//! Its functions run for each block.

use std::ops::Range;

use machine::core::{
    AnyCore, CoreCounts, ExecutedBlock, Memory, MultithreadedCore, SingleThreadCore, Template,
    Warmed,
};
use machine::{Cycle, PhysicalAddress};

/// The core that a vCPU executes on.
pub(crate) enum Core {
    /// A core that no other vCPU uses.
    Single(AnyCore),
    /// A thread of a core that several vCPUs share.
    Thread(Thread),
}

pub(crate) struct Thread {
    pub(crate) core: *mut MultithreadedCore,
    /// The number of the thread on the core.
    pub(crate) thread: usize,
}

impl Thread {
    fn core_mut(&mut self) -> &mut MultithreadedCore {
        // SAFETY: never freed; one thread of the host uses it, and no use is nested in another.
        unsafe { &mut *self.core }
    }

    fn core(&self) -> &MultithreadedCore {
        // SAFETY: never freed; one thread of the host uses it, and no use is nested in another.
        unsafe { &*self.core }
    }
}

impl Core {
    /// Executes a block from instruction `first` on.
    #[inline(always)]
    pub(crate) fn run_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        match self {
            Core::Single(core) => core.run_from(first, block, executed, memory),
            Core::Thread(thread) => {
                let number = thread.thread;
                thread.core_mut().run_from(number, (first, block), executed, memory);
            }
        }
    }

    /// Executes a block without times: see [`OutOfOrderCore::warm_from`](machine::core::OutOfOrderCore::warm_from).
    /// Other cores execute it in detail.
    #[inline]
    pub(crate) fn warm_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) -> Warmed {
        match self {
            Core::Single(AnyCore::OutOfOrder(core)) => {
                core.warm_from(first, block, executed, memory)
            }
            Core::Single(AnyCore::InOrder(_)) | Core::Thread(_) => {
                self.run_from(first, block, executed, memory);
                Warmed::default()
            }
        }
    }

    /// The processor takes an interrupt or exception after the instruction that was executed last.
    pub(crate) fn interrupt(&mut self) {
        match self {
            Core::Single(core) => core.interrupt(),
            Core::Thread(thread) => {
                let number = thread.thread;
                thread.core_mut().interrupt(number);
            }
        }
    }

    /// Delays the first instruction of a handler by `cycles`: the time that the processor waits for its own reads at
    /// the entry.
    pub(crate) fn delay_entry(&mut self, cycles: u64) {
        match self {
            Core::Single(core) => core.delay_entry(cycles),
            Core::Thread(thread) => {
                let number = thread.thread;
                thread.core_mut().delay_entry(number, cycles);
            }
        }
    }

    /// Drops decoded instructions, and the line of the last fetch, at physical addresses where code may have changed.
    pub(crate) fn forget_code(&mut self, physical: Range<PhysicalAddress>) {
        match self {
            Core::Single(core) => core.forget_code(physical),
            Core::Thread(thread) => thread.core_mut().forget_code(physical),
        }
    }

    /// Drops everything that depends on address translations, because they have changed.
    pub(crate) fn forget_translations(&mut self) {
        match self {
            Core::Single(core) => core.flush_translations(),
            Core::Thread(thread) => {
                let number = thread.thread;
                thread.core_mut().flush_translations(number);
            }
        }
    }

    /// Makes the threads of the core issue all instructions that cannot depend on later instructions of another thread.
    pub(crate) fn advance(&mut self) {
        if let Core::Thread(thread) = self {
            thread.core_mut().advance();
        }
    }

    /// Makes the threads of the core issue all their instructions, and continue at a common time.
    pub(crate) fn issue_all_threads(&mut self) {
        if let Core::Thread(thread) = self {
            thread.core_mut().drain();
        }
    }

    /// Sets whether the vCPU is halted. The other threads of its core do not wait for a halted vCPU.
    pub(crate) fn set_halted(&mut self, halted: bool) {
        if let Core::Thread(thread) = self {
            let number = thread.thread;
            thread.core_mut().set_halted(number, halted);
        }
    }

    /// Makes a thread of a multithreaded core wait `cycles` before its next instruction. Returns false for another
    /// core, which does not wait.
    pub(crate) fn wait_as_thread(&mut self, cycles: u64) -> bool {
        let Core::Thread(thread) = self else { return false };
        let number = thread.thread;
        thread.core_mut().wait(number, cycles);
        true
    }

    /// Cycles of the executed instructions. For a thread, a lower bound: it may not have issued all of them.
    #[inline(always)]
    pub(crate) fn cycles(&self) -> u64 {
        match self {
            Core::Single(core) => core.cycles(),
            Core::Thread(thread) => thread.core().cycles(thread.thread),
        }
    }

    /// The time at which the core asks the memory for the next block. For a thread, it includes the cycles while the
    /// thread let others issue.
    pub(crate) fn time(&self) -> Cycle {
        match self {
            Core::Single(core) => core.time(),
            Core::Thread(thread) => thread.core().time(thread.thread),
        }
    }

    pub(crate) fn counts(&self) -> CoreCounts {
        match self {
            Core::Single(core) => core.counts(),
            Core::Thread(thread) => thread.core().counts(thread.thread),
        }
    }
}
