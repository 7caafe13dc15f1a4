//! The interrupt contexts of a CPU: kinds, names and numbers. The live and the simulated bench report the same ones. Users'
//! programs read labels and the order of kinds: neither may change.

/// The kind of a context. The order of the variants is the order in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextKind {
    /// The handler (action) of a device IRQ line.
    HardIrq,
    /// The thread of a device IRQ line: the threaded part of a handler, or the whole handler.
    IrqThread,
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
    /// The function of a high-resolution timer (`struct hrtimer`) that has expired.
    Hrtimer,
    /// The function of a timer of the timer wheel (`struct timer_list`) that has expired.
    Timer,
    /// The function of a work item (`struct work_struct`).
    Work,
    /// The function of a tasklet.
    Tasklet,
    /// An RCU callback.
    Rcu,
}

impl ContextKind {
    /// All kinds, in table order.
    pub const ALL: [ContextKind; 12] = [
        ContextKind::HardIrq,
        ContextKind::IrqThread,
        ContextKind::Vector,
        ContextKind::Softirq,
        ContextKind::NapiPoll,
        ContextKind::Nmi,
        ContextKind::Exception,
        ContextKind::Hrtimer,
        ContextKind::Timer,
        ContextKind::Work,
        ContextKind::Tasklet,
        ContextKind::Rcu,
    ];

    /// The kinds of functions that the kernel calls back inside of another context: a vector, a softirq or a worker
    /// thread.
    pub const CALLBACKS: [ContextKind; 5] = [
        ContextKind::Hrtimer,
        ContextKind::Timer,
        ContextKind::Work,
        ContextKind::Tasklet,
        ContextKind::Rcu,
    ];

    /// The name in tables and JSON.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            ContextKind::HardIrq => "irq",
            ContextKind::IrqThread => "irq_thread",
            ContextKind::Vector => "vector",
            ContextKind::Softirq => "softirq",
            ContextKind::NapiPoll => "napi",
            ContextKind::Nmi => "nmi",
            ContextKind::Exception => "exception",
            ContextKind::Hrtimer => "hrtimer",
            ContextKind::Timer => "timer",
            ContextKind::Work => "work",
            ContextKind::Tasklet => "tasklet",
            ContextKind::Rcu => "rcu",
        }
    }
}

/// An interrupt context: its kind, its number within the kind, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Context {
    pub kind: ContextKind,
    /// IRQ line, position in [`SYSTEM_VECTORS`] or softirq number; 0 for functions. Rows of one kind have the order
    /// of this number.
    pub number: u32,
    /// Action, vector, softirq, device or function name, as the kernel spells it.
    pub name: String,
}

/// Softirq names in the kernel's order (`softirq_to_name`, kernel/softirq.c).
pub const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// An x86 system vector that has a pair of entry and exit tracepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemVector {
    /// The name of the vector's tracepoints, without `_entry` and `_exit` (arch/x86/include/asm/trace/irq_vectors.h).
    pub name: &'static str,
    /// The vector's number (arch/x86/include/asm/irq_vectors.h).
    pub vector: u8,
    /// The kernel's entry point for the vector (arch/x86/include/asm/idtentry.h).
    pub entry_symbol: &'static str,
}

/// All system vectors that have tracepoints.
///
/// This is the only definition of their order and numbers. The BPF programs are compiled with the header that
/// [`crate::key::c_header`] generates from it; the simulated bench recognises interrupts by it.
pub const SYSTEM_VECTORS: [SystemVector; 11] = [
    system_vector("local_timer", 0xec, "asm_sysvec_apic_timer_interrupt"),
    system_vector("reschedule", 0xfd, "asm_sysvec_reschedule_ipi"),
    system_vector("call_function", 0xfc, "asm_sysvec_call_function"),
    system_vector("call_function_single", 0xfb, "asm_sysvec_call_function_single"),
    system_vector("irq_work", 0xf6, "asm_sysvec_irq_work"),
    system_vector("x86_platform_ipi", 0xf7, "asm_sysvec_x86_platform_ipi"),
    system_vector("error_apic", 0xfe, "asm_sysvec_error_interrupt"),
    system_vector("spurious_apic", 0xff, "asm_sysvec_spurious_apic_interrupt"),
    system_vector("thermal_apic", 0xfa, "asm_sysvec_thermal"),
    system_vector("threshold_apic", 0xf9, "asm_sysvec_threshold"),
    system_vector("deferred_error_apic", 0xf4, "asm_sysvec_deferred_error"),
];

const fn system_vector(name: &'static str, vector: u8, entry_symbol: &'static str) -> SystemVector {
    SystemVector { name, vector, entry_symbol }
}

/// The names of [`SYSTEM_VECTORS`], in the same order.
pub const VECTORS: [&str; SYSTEM_VECTORS.len()] = {
    let mut names = [""; SYSTEM_VECTORS.len()];
    let mut position = 0;
    while position < names.len() {
        names[position] = SYSTEM_VECTORS[position].name;
        position += 1;
    }
    names
};

/// The position in [`SYSTEM_VECTORS`] of the vector with this number, or `None` if it is not a system vector.
#[must_use]
pub fn position_of_vector(vector: u8) -> Option<usize> {
    SYSTEM_VECTORS.iter().position(|known| known.vector == vector)
}

/// The number of the system vector with this name. `None` if Linux has no such system vector.
#[must_use]
pub fn vector_named(name: &str) -> Option<u8> {
    SYSTEM_VECTORS.iter().find(|known| known.name == name).map(|known| known.vector)
}
