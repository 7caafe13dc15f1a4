//! The classes of kernel services. Their labels are cells of the tables.

/// The names of the services of class [`Class::PageWalk`]: walks for user mode, and for the kernel with the idle task.
pub const PAGE_WALKS: [&str; 2] = ["of user mode", "of the kernel"];

/// A class of services; user mode and idle are classes, too, so that the times add
/// up. Tables list the classes in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// User mode, of all tasks.
    User,
    Syscall,
    /// A page fault. The service's name is the kind of fault.
    Fault,
    /// An exception of the processor other than a page fault.
    Exception,
    /// The entry and exit of an interrupt, and its handling outside of a device's handler.
    Interrupt,
    /// The handler of a device's IRQ line.
    Irq,
    Softirq,
    /// The scheduler, with the switch of tasks.
    Scheduler,
    /// The slow path of a lock that another context holds.
    Lock,
    /// Page walks by the hardware, on behalf of any service.
    PageWalk,
    KernelThread,
    /// Kernel code outside the other classes: the start of tasks, and services that were already in progress
    /// when the window opened.
    Other,
    /// Time of which it is not known whether it is the kernel's or user mode's.
    Unknown,
    /// The programs of irqlab that divide the time. Their time is no cost of the kernel.
    Probes,
    /// The idle task, including the time that CPUs are halted.
    Idle,
}

impl Class {
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
            Class::Unknown => "unknown",
            Class::Probes => "probes",
            Class::Idle => "idle",
        }
    }

    /// Whether the kernel's own code executes, as far as is known: neither user mode, nor idle, nor the hardware's page
    /// walks, nor irqlab's programs.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        !matches!(
            self,
            Class::User | Class::PageWalk | Class::Unknown | Class::Probes | Class::Idle
        )
    }
}
