//! What a bench hands in: each service with its counters and times.

use serde_json::{Map, Value as Json};
use stats::Distribution;

use super::misses::MissSample;

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
    /// A softirq.
    Softirq,
    /// The scheduler, with the switch of tasks.
    Scheduler,
    /// The slow way to a lock that another has.
    Lock,
    /// The hardware walks page tables, for whichever service.
    PageWalk,
    /// A kernel thread.
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

/// Times of the completed requests of a service, in the bench's [`ServicesSample::ticks_hz`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// From start to end.
    pub latency: Distribution,
    /// The service itself; absent where the bench knows no more than the sum.
    pub computation: Option<Distribution>,
    /// Sum of the times of the service itself.
    pub computation_ticks: Option<u64>,
    /// Sum of the times for which tasks were blocked; absent where they are not known.
    pub blocked_ticks: Option<u64>,
    /// Sum of the times for which tasks could have run but did not.
    pub descheduled_ticks: Option<u64>,
}

/// A service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceStats {
    /// Its class.
    pub class: Class,
    /// Its name, as the kernel spells it.
    pub name: String,
    /// CPU time of the service itself, without what interrupted it or was nested in it; absent where the
    /// bench does not know it.
    pub self_ticks: Option<u64>,
    /// Time of page walks for it, for instructions and for data, which is in the rows of
    /// [`Class::PageWalk`] and not in [`ServiceStats::self_ticks`]; absent where the bench does not know
    /// it.
    pub page_walk_ticks: Option<[u64; 2]>,
    /// Requests that started in the window; absent where the word has no meaning (user mode, idle).
    pub requests: Option<u64>,
    /// Times of those that completed in it.
    pub times: Option<Times>,
    /// Counters of the service itself, in the order of [`ServicesSample::counters`].
    pub counters: Vec<u64>,
}

/// For what tasks were blocked in a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStats {
    /// The class of the service.
    pub class: Class,
    /// Its name.
    pub service: String,
    /// What they waited for; absent where it is not known.
    pub wait: Option<String>,
    /// How often.
    pub count: u64,
    /// How long, sum.
    pub blocked_ticks: u64,
}

/// A place of the kernel that takes locks of one kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStats {
    /// The kind of lock.
    pub kind: String,
    /// The function that takes it, and how far in it.
    pub place: String,
    /// The name of the lock: its symbol, or the structure that it is in and the member or distance. Absent
    /// where it is not known.
    pub lock: Option<String>,
    /// How often it takes one.
    pub acquires: u64,
    /// How often another has it.
    pub contended: u64,
    /// How long it waits for it then, sum.
    pub waited_ticks: u64,
    /// How long it has it, sum; absent where several can.
    pub held_ticks: Option<u64>,
}

/// Two counts of the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// What is counted.
    pub what: String,
    /// By the bench.
    pub counted: u64,
    /// By the kernel itself; absent where it does not say.
    pub kernel: Option<u64>,
    /// Where the kernel's count comes from.
    pub source: String,
    /// By how much they may differ, because reading the kernel's count is itself counted.
    pub edge_max: u64,
}

/// A window: a command, and what services took while it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicesSample {
    /// How long the window was open, in ticks of each CPU, sum over the CPUs.
    pub window_ticks: u64,
    /// Its length on the clock, ns.
    pub window_ns: u64,
    /// CPUs.
    pub cpus: u32,
    /// Ticks per second: cycles of the model, or nanoseconds.
    pub ticks_hz: u64,
    /// Names of the counters.
    pub counters: Vec<String>,
    /// The services, user mode and idle with them.
    pub services: Vec<ServiceStats>,
    /// For what tasks were blocked.
    pub waits: Vec<WaitStats>,
    /// Places that take locks; absent if they were not measured.
    pub locks: Option<Vec<LockStats>>,
    /// Misses; absent if they were not measured.
    pub misses: Option<MissSample>,
    /// Comparisons with the kernel's own counts.
    pub agreement: Vec<Agreement>,
    /// What was in force.
    pub facts: Map<String, Json>,
    /// What measuring cost.
    pub observer: Map<String, Json>,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// Whether the user ended the window.
    pub interrupted: bool,
}

impl ServiceStats {
    /// Time of page walks for it.
    #[must_use]
    pub fn page_walks(&self) -> Option<u64> {
        self.page_walk_ticks.map(|[fetch, data]| fetch + data)
    }
}

impl ServicesSample {
    /// Ticks in nanoseconds.
    #[must_use]
    pub fn ns_of(&self, ticks: f64) -> f64 {
        ticks * 1e9 / self.ticks_hz.max(1) as f64
    }

    /// The position of a counter.
    #[must_use]
    pub fn counter(&self, name: &str) -> Option<usize> {
        self.counters.iter().position(|counter| counter == name)
    }
}
