//! What CPUs execute for.

/// What a CPU executes for; the order is that of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// User mode, of all tasks.
    User,
    /// A system call.
    Syscall,
    /// A page fault, by kind.
    Fault,
    /// Another exception of the processor.
    Exception,
    /// The entry and exit of an interrupt, and its handling outside of a device's handler.
    Interrupt,
    /// The handler of a device's IRQ line.
    Irq,
    Softirq,
    /// The scheduler, with the switch of tasks.
    Scheduler,
    /// The slow way to a lock that another has.
    Lock,
    /// The hardware walks page tables, for whichever service.
    PageWalk,
    KernelThread,
    /// Kernel code that belongs to none of these: the start of tasks, and what was under way when the
    /// window opened.
    Other,
    /// The idle task, with the time for which CPUs are halted.
    Idle,
}

impl Class {
    /// The name in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Class::User => "user",
            Class::Syscall => "syscall",
            Class::Fault => "fault",
            Class::Exception => "exception",
            Class::Interrupt => "interrupt",
            Class::Irq => "irq",
            Class::Softirq => "softirq",
            Class::Scheduler => "scheduler",
            Class::Lock => "lock",
            Class::PageWalk => "page walk",
            Class::KernelThread => "kernel thread",
            Class::Other => "other",
            Class::Idle => "idle",
        }
    }

    /// Whether it is neither user mode nor idle, nor the hardware's page walks.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        !matches!(self, Class::User | Class::PageWalk | Class::Idle)
    }
}
