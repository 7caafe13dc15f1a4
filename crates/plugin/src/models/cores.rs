//! The core that a vCPU executes on at the level `ooo`.

use std::ops::Range;

use machine::core::{
    AnyCore, CoreCounts, ExecutedBlock, Memory, MultithreadedCore, SingleThreadCore, Template,
    Warmed,
};
use machine::{Cycle, PhysicalAddress};

/// The core that a vCPU executes on.
pub(crate) enum Core {
    /// A core of its own.
    Single(AnyCore),
    /// A thread of a core that several vCPUs share.
    Thread(Thread),
}

pub(crate) struct Thread {
    pub(crate) core: *mut MultithreadedCore,
    pub(crate) thread: usize,
}

impl Thread {
    fn core(&mut self) -> &mut MultithreadedCore {
        // SAFETY: never freed; one thread of the host uses it, and no use is nested in another.
        unsafe { &mut *self.core }
    }

    fn known(&self) -> &MultithreadedCore {
        // SAFETY: as above.
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
                thread.core().run_from(number, (first, block), executed, memory);
            }
        }
    }

    /// Executes a block without times: see [`OutOfOrderCore::warm_from`](machine::core::OutOfOrderCore::warm_from). Only an out-of-order core can.
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

    /// An interrupt or exception is taken after the instruction that was executed last.
    pub(crate) fn interrupt(&mut self) {
        match self {
            Core::Single(core) => core.interrupt(),
            Core::Thread(thread) => {
                let number = thread.thread;
                thread.core().interrupt(number);
            }
        }
    }

    /// Delays the first instruction of a handler. `cycles`: how long the processor waits for the reads of the entry
    /// itself.
    pub(crate) fn delay_entry(&mut self, cycles: u64) {
        match self {
            Core::Single(core) => core.delay_entry(cycles),
            Core::Thread(thread) => {
                let number = thread.thread;
                thread.core().delay_entry(number, cycles);
            }
        }
    }

    /// Code at these physical addresses may have changed. The threads of a core have no cache of decoded
    /// instructions.
    pub(crate) fn forget_code(&mut self, physical: Range<PhysicalAddress>) {
        match self {
            Core::Single(core) => core.forget_code(physical),
            Core::Thread(_) => {}
        }
    }

    /// The address translations have changed.
    pub(crate) fn forget_translations(&mut self) {
        match self {
            Core::Single(core) => core.flush_translations(),
            Core::Thread(thread) => {
                let number = thread.thread;
                thread.core().flush_translations(number);
            }
        }
    }

    /// Has the threads issue what does not depend on later instructions of each other.
    pub(crate) fn advance(&mut self) {
        if let Core::Thread(thread) = self {
            thread.core().advance();
        }
    }

    /// Has the threads issue all their instructions, and continue at a common time.
    pub(crate) fn issue_all_threads(&mut self) {
        if let Core::Thread(thread) = self {
            thread.core().drain();
        }
    }

    /// The vCPU is halted, or no longer is: the other threads of its core then do not wait for it.
    pub(crate) fn set_halted(&mut self, halted: bool) {
        if let Core::Thread(thread) = self {
            let number = thread.thread;
            thread.core().set_halted(number, halted);
        }
    }

    /// Makes a thread of a multithreaded core wait `cycles` before its next instruction. Returns whether the
    /// core is such a thread.
    pub(crate) fn wait_as_thread(&mut self, cycles: u64) -> bool {
        let Core::Thread(thread) = self else { return false };
        let number = thread.thread;
        thread.core().wait(number, cycles);
        true
    }

    /// Cycles of the executed instructions; a lower bound for a thread.
    #[inline(always)]
    pub(crate) fn cycles(&self) -> u64 {
        match self {
            Core::Single(core) => core.cycles(),
            Core::Thread(thread) => thread.known().cycles(thread.thread),
        }
    }

    /// The time at which the core asks the memory for the next block: its cycles, and the cycles that a thread
    /// of a core let others pass.
    pub(crate) fn time(&self) -> Cycle {
        match self {
            Core::Single(core) => core.time(),
            Core::Thread(thread) => thread.known().time(thread.thread),
        }
    }

    pub(crate) fn counts(&self) -> CoreCounts {
        match self {
            Core::Single(core) => core.counts(),
            Core::Thread(thread) => thread.known().counts(thread.thread),
        }
    }
}
