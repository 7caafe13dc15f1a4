//! The numbers that the BPF programs and this crate share, except the keys of contexts
//! (`attribution::key`). Defined here alone: the build script writes them to `constants.h`.

macro_rules! shared_constants {
    ($($(#[doc = $doc:literal])* $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[doc = $doc])* pub const $name: $type = $value;)+

        /// Name and value of each, for the build script.
        #[allow(dead_code)] // only the build script reads it
        pub(crate) const ALL: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),+];
    };
}

shared_constants! {
    /// Slots of a histogram (`stats::histogram::SLOTS`).
    HISTOGRAM_SLOTS: usize = 512;
    /// Batches that a row keeps.
    BATCHES: usize = 64;
    /// Sections of a window that a row keeps a histogram of.
    SECTIONS: usize = 16;
    /// Slots of a section's histogram, around the slot of the row's first value: 8 powers of two.
    SECTION_SLOTS: usize = 128;
    /// Deepest nesting of spans on a CPU.
    DEPTH_MAX: usize = 16;
    /// Most PMU events in one pass.
    EVENTS_MAX: usize = 8;
    /// Bytes of an action's or a device's name.
    NAME_BYTES: usize = 32;

    /// In `key_words`: bits of the key's row; 0 is no row.
    ROW_BITS: u32 = 7;
    /// In `key_words`, above the row: what a probe pair adds inside a span, in units of 2^-this ns.
    OVERHEAD_UNIT_SHIFT: u32 = 4;
    /// The ratios of the configuration are in units of 2^-this.
    RATIO_SHIFT: u32 = 8;
    /// The exit program is timed in one of 2^this spans of a row, and in the 2nd to the (2^this +
    /// 1)th.
    TIMED_SHIFT: u32 = 3;
    /// A program's time counts 2^-this in the moving mean.
    LEARNING_SHIFT: u32 = 3;

    /// The cookie of a program's link at an entry.
    COOKIE_ENTRY: u64 = 1;

    /// Argument of the gate: open the window.
    GATE_OPEN: u64 = 1;
    /// Argument of the gate: close the window.
    GATE_CLOSE: u64 = 2;
    /// Kernel counters that the gate reads; the first are softirqs by number.
    KERNEL_COUNTERS: usize = 32;
    /// Position of the sum of device interrupts among them.
    COUNTER_DEVICES: usize = 16;
    /// Position of the first vector's counter among them.
    COUNTER_VECTORS: usize = 17;
    /// Value of a counter that this kernel does not have.
    COUNTER_ABSENT: u64 = u64::MAX;
    /// Offsets into a CPU's area of kernel variables.
    PERCPU_OFFSETS: usize = 16;
    /// Position of the run queue's offset among them.
    OFFSET_RUNQUEUES: usize = 0;
    /// Position of the offset of `kstat`.
    OFFSET_KSTAT: usize = 1;
    /// Position of the first vector counter's offset.
    OFFSET_VECTORS: usize = 2;

    /// A mark: entry of a context.
    MARK_ENTER: u16 = 1;
    /// A mark: exit of a context.
    MARK_LEAVE: u16 = 2;
    /// A mark: an NMI, with its duration.
    MARK_NMI: u16 = 3;
    /// A mark: a page fault of the loop.
    MARK_FAULT: u16 = 4;
    /// A mark: a switch from the loop, or from another task, to another task.
    MARK_SWITCH_TO: u16 = 5;
    /// A mark: a switch back to the loop.
    MARK_SWITCH_BACK: u16 = 6;
    /// Bytes of a task's name (`TASK_COMM_LEN`).
    TASK_NAME_BYTES: usize = 16;

    /// Positions of services. System calls come first, by number; the last such position counts all
    /// system calls with higher numbers.
    SERVICE_SYSCALLS: usize = 512;
    /// Position of the first softirq.
    SERVICE_SOFTIRQ: usize = 512;
    /// Position of the first system vector.
    SERVICE_VECTOR: usize = 528;
    /// All handlers of devices.
    SERVICE_IRQ: usize = 544;
    /// Page faults in user mode.
    SERVICE_FAULT_USER: usize = 545;
    /// Page faults in the kernel.
    SERVICE_FAULT_KERNEL: usize = 546;
    /// Position of task switches.
    SERVICE_SCHEDULER: usize = 547;
    /// Position of user mode.
    SERVICE_USER: usize = 548;
    /// Position of the idle task.
    SERVICE_IDLE: usize = 549;
    /// Position of kernel threads.
    SERVICE_KERNEL_THREAD: usize = 550;
    /// Position of tasks of unknown state: user mode or a system call.
    SERVICE_UNKNOWN: usize = 551;
    /// Number of positions.
    SERVICES: usize = 552;
    /// Rows of a CPU, with row 0, which is none.
    SERVICE_ROWS: usize = 256;
    /// Tasks whose system calls are followed at the same time.
    SERVICE_TASKS: usize = 32_768;
}
