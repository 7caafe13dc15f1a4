//! The contexts a CPU can execute in on behalf of an interrupt, and their names.

/// The kind of a context; its order is the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextKind {
    /// The handler (action) of a device IRQ line.
    HardIrq,
    /// A system vector of the architecture: local timer, IPIs, irq_work, thermal, error, spurious.
    Vector,
    /// A softirq, named as in /proc/softirqs.
    Softirq,
    /// A poll of one NAPI instance (inside NET_RX, a busy poll, or a NAPI thread).
    NapiPoll,
    /// A handler of the non-maskable interrupt.
    Nmi,
    /// A processor exception, such as a page fault.
    Exception,
}

impl ContextKind {
    /// All kinds, in table order.
    pub const ALL: [ContextKind; 6] = [
        ContextKind::HardIrq,
        ContextKind::Vector,
        ContextKind::Softirq,
        ContextKind::NapiPoll,
        ContextKind::Nmi,
        ContextKind::Exception,
    ];

    /// The name used in tables and JSON (`irq`, `vector`, `softirq`, `napi`, `nmi`, `exception`).
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            ContextKind::HardIrq => "irq",
            ContextKind::Vector => "vector",
            ContextKind::Softirq => "softirq",
            ContextKind::NapiPoll => "napi",
            ContextKind::Nmi => "nmi",
            ContextKind::Exception => "exception",
        }
    }
}

/// One source of interrupt cost: its kind, its number within the kind, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Context {
    /// What sort of context this is.
    pub kind: ContextKind,
    /// IRQ line, position in [`VECTORS`] or softirq number; the order of rows within a kind.
    pub number: u32,
    /// Action, vector, softirq or device name, as the kernel spells it.
    pub name: String,
}

/// Softirq names in the kernel's order (`softirq_to_name`, kernel/softirq.c).
pub const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// x86 system vectors that have an entry/exit tracepoint pair
/// (arch/x86/include/asm/trace/irq_vectors.h), named as their tracepoints.
pub const VECTORS: [&str; 11] = [
    "local_timer",
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
    "error_apic",
    "spurious_apic",
    "thermal_apic",
    "threshold_apic",
    "deferred_error_apic",
];
