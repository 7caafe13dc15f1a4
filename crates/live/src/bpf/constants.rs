//! Numbers that the BPF programs and this crate share, except the keys of contexts (`attribution::key`). This file is
//! their only definition: the build script (build.rs) includes it, and writes `constants.h` for the programs.
//!
//! It must compile inside of the build script: it may use no other module.

macro_rules! shared_constants {
    ($($(#[doc = $doc:literal])* $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[doc = $doc])* pub const $name: $type = $value;)+

        /// Name and value of each constant.
        #[allow(dead_code)] // only the build script reads this
        pub(crate) const ALL: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),+];
    };
}

shared_constants! {
    /// Slots of a histogram (`stats::histogram::SLOTS`).
    HISTOGRAM_SLOTS: usize = 512;
    /// Batches of a row: equal parts of the window, for the interval of a mean.
    BATCHES: usize = 64;
    /// Sections of a window. A row has a histogram of each.
    SECTIONS: usize = 16;
    /// Slots of a section's histogram, around the slot of the row's first value: 8 powers of two.
    SECTION_SLOTS: usize = 128;
    /// Deepest nesting of spans on a CPU.
    DEPTH_MAX: usize = 16;
    /// Largest number of PMU events in one pass.
    EVENTS_MAX: usize = 8;
    /// Bytes of an action's or a device's name.
    NAME_BYTES: usize = 32;

    /// Rows of a CPU that functions do not take, so that each other context still finds one. Functions without a row
    /// share a row for each kind.
    ROWS_RESERVED: u32 = 16;
    /// Largest number of worker threads whose work items are interrupted by a task switch in a window.
    WORKERS_MAX: usize = 4_096;

    /// Largest number of work items that wait at the same time, in the measurement of their delays.
    WORK_ITEMS_MAX: usize = 16_384;
    /// Largest number of threads of IRQ lines whose delays are measured.
    IRQ_THREADS_MAX: usize = 4_096;

    /// Largest number of senders with a row of their own. Further senders share a row for each kind of event.
    SENDER_ROWS_MAX: usize = 4_096;
    /// Largest number of calls that wait for their run on another CPU.
    QUEUED_CALLS_MAX: usize = 16_384;
    /// Words of 64 CPUs in a set of sending CPUs or of targets. Senders are measured only on machines whose
    /// CPUs fit into these words.
    SENDER_CPU_WORDS: usize = 16;
    /// An event of a sender: a call is queued. The kernel's type of the call is added: 0 asynchronous, 1
    /// synchronous, 2 irq_work, 3 wake-up.
    SENDER_CALL: u32 = 1;
    /// A call of the type irq_work is queued.
    SENDER_IRQ_WORK: u32 = 3;
    /// An interrupt is sent to one CPU.
    SENDER_IPI: u32 = 5;
    /// Interrupts are sent to several CPUs at once.
    SENDER_IPI_TO_SEVERAL: u32 = 6;
    /// A function runs, and no queued call can be joined to its run.
    SENDER_RUN: u32 = 7;
    /// A sender's context: all senders of an event that found no free row.
    SENDER_OTHERS: u32 = u32::MAX;
    /// A sender's context: not known.
    SENDER_UNKNOWN: u32 = u32::MAX - 1;
    /// A sender's context: an interrupt whose entry was not seen.
    SENDER_HARDIRQ: u32 = u32::MAX - 2;
    /// A sender's context: a softirq whose entry was not seen.
    SENDER_SOFTIRQ: u32 = u32::MAX - 3;

    /// Times are summed by the tasks that pay for interrupts and that cause them.
    VICTIMS_BY_TASK: u32 = 1;
    /// Times are summed by the control groups that pay for interrupts and that cause them.
    VICTIMS_BY_CGROUP: u32 = 2;
    /// Largest number of cells of victims, causes and contexts. The time of further cells goes to a cell of each context.
    VICTIM_CELLS_MAX: u32 = 65_536;
    /// A victim or cause: not known.
    PARTY_UNKNOWN: u32 = 0;
    /// A victim or cause: the idle task.
    PARTY_IDLE: u32 = 1;
    /// A victim or cause: all tasks with one name.
    PARTY_TASK: u32 = 2;
    /// A victim or cause: the tasks of a control group.
    PARTY_CGROUP: u32 = 3;
    /// A victim: all cells of a context that found no free entry.
    PARTY_OTHERS: u32 = 4;

    /// A single event: a counted span.
    TRACE_SPAN: u32 = 1;
    /// A single event: a part of a work item's span that ended with a task switch.
    TRACE_PART: u32 = 2;
    /// A single event: a task had the CPU.
    TRACE_TASK: u32 = 3;
    /// A single event: a softirq was raised, and runs now.
    TRACE_RAISE: u32 = 4;
    /// A single event: a function call was queued, and runs now.
    TRACE_CALL: u32 = 5;
    /// A single event: a reschedule interrupt was sent.
    TRACE_SEND: u32 = 6;
    /// Bits of a type. The bits from here on belong to the type.
    TRACE_TYPE_BITS: u32 = 8;
    /// The number of tasks that could run is not known.
    TRACE_RUNNABLE_UNKNOWN: u32 = 0x00ff_ffff;

    /// Lowest bits of a key's word in `cpu_state`: the key's row, or 0 for no row.
    ROW_BITS: u32 = 7;
    /// The other bits of a key's word: the time that a probe pair adds inside a span, in units of 2^-this ns.
    OVERHEAD_UNIT_SHIFT: u32 = 4;
    /// The ratios of the configuration are in units of 2^-this.
    RATIO_SHIFT: u32 = 8;
    /// Exit programs are timed in every 2^this-th span of a row. They are also timed in each of the spans 2 to
    /// 2^this + 1, so the programs learn their overhead soon.
    TIMED_SHIFT: u32 = 3;
    /// Weight of a new time in the moving mean of the overhead: 2^-this.
    LEARNING_SHIFT: u32 = 3;

    /// Cookie of the link to an entry's tracepoint.
    COOKIE_ENTRY: u64 = 1;

    /// Argument of the gate: open the window.
    GATE_OPEN: u64 = 1;
    /// Argument of the gate: close the window.
    GATE_CLOSE: u64 = 2;
    /// Kernel counters that the gate reads. The first ones are softirqs, by number.
    KERNEL_COUNTERS: usize = 32;
    /// Position of the sum of device interrupts among the kernel counters.
    COUNTER_DEVICES: usize = 16;
    /// Position of the first vector's counter among the kernel counters.
    COUNTER_VECTORS: usize = 17;
    /// Value of a counter that this kernel does not have.
    COUNTER_ABSENT: u64 = u64::MAX;
    /// Number of offsets into a CPU's area of kernel variables.
    PERCPU_OFFSETS: usize = 19;
    /// Position of the run queue's offset among the offsets.
    OFFSET_RUNQUEUES: usize = 0;
    /// Position of the offset of `kstat`.
    OFFSET_KSTAT: usize = 1;
    /// Position of the offset of the mask of pending softirqs.
    OFFSET_PENDING: usize = 2;
    /// Position of the offset of the count that says whether the CPU handles an interrupt or a softirq.
    OFFSET_PREEMPT: usize = 3;
    /// Position of the offset of the mask of pending softirqs that the CPU's thread of timers runs. Only kernels with such
    /// a thread have this mask (PREEMPT_RT; from Linux 6.12 on also with the kernel option threadirqs).
    OFFSET_PENDING_TIMERS: usize = 4;
    /// Position of the first vector counter's offset.
    OFFSET_VECTORS: usize = 5;

    /// A mark: entry of a context.
    MARK_ENTER: u16 = 1;
    /// A mark: exit of a context.
    MARK_LEAVE: u16 = 2;
    /// A mark: an NMI, with its duration.
    MARK_NMI: u16 = 3;
    /// A mark: a page fault of the measuring loop.
    MARK_FAULT: u16 = 4;
    /// A mark: a switch to a task that is not the loop.
    MARK_SWITCH_TO: u16 = 5;
    /// A mark: a switch back to the loop.
    MARK_SWITCH_BACK: u16 = 6;
    /// A mark: the measured thread is woken.
    MARK_WAKE: u16 = 7;
    /// A step of the chain of wakers that ends with the last wake-up of this CPU's measured thread.
    MARK_WAKER: u16 = 8;
    /// Largest number of steps of a chain of wakers.
    WAKERS_MAX: usize = 4;
    /// A record of a sender, whose number the marks at entries of interrupts contain.
    MARK_SENDER: u16 = 9;
    /// Largest number of senders that marks tell apart.
    MARK_SENDERS_MAX: u32 = 4_096;
    /// The number of all senders that found no number of their own.
    MARK_SENDERS_OTHER: u32 = u32::MAX;
    /// Number of tasks whose chains of wakers are kept.
    WOKEN_TASKS_MAX: u32 = 16_384;
    /// Bytes of a task's name (`TASK_COMM_LEN`).
    TASK_NAME_BYTES: usize = 16;

    /// Number of services that are system calls. They have the first positions, by number. Position `SERVICE_SYSCALLS`
    /// - 1 also counts all system calls with higher numbers.
    SERVICE_SYSCALLS: usize = 512;
    /// Position of all system calls of 32-bit code, whose numbers mean other calls. Linux has no
    /// 64-bit call with this number.
    SERVICE_SYSCALL_32: usize = 510;
    /// Position of the first softirq.
    SERVICE_SOFTIRQ: usize = 512;
    /// Position of the first system vector.
    SERVICE_VECTOR: usize = 528;
    /// Position of all handlers of devices together.
    SERVICE_IRQ: usize = 544;
    /// Position of page faults in user mode.
    SERVICE_FAULT_USER: usize = 545;
    /// Position of page faults in the kernel.
    SERVICE_FAULT_KERNEL: usize = 546;
    /// Position of task switches.
    SERVICE_SCHEDULER: usize = 547;
    /// Position of user mode.
    SERVICE_USER: usize = 548;
    /// Position of the idle task.
    SERVICE_IDLE: usize = 549;
    /// Position of kernel threads.
    SERVICE_KERNEL_THREAD: usize = 550;
    /// Position of time that has no known service: the task may be in user mode or in a system call,
    /// or its switches are hidden.
    SERVICE_UNKNOWN: usize = 551;
    /// Number of positions of services.
    SERVICES: usize = 552;
    /// Number of rows of a CPU, including row 0, which means no row.
    SERVICE_ROWS: usize = 256;
    /// Largest number of tasks whose system calls are followed at the same time.
    SERVICE_TASKS: usize = 32_768;

    /// Number of rows of a CPU for waits for locks. A power of 2.
    LOCK_ROWS: usize = 1_024;
    /// Number of rows that are tried for a key of waits before the wait is lost.
    LOCK_PROBES: usize = 16;
    /// Largest number of tasks that wait for locks asleep at the same time.
    LOCK_TASKS: usize = 16_384;
    /// Largest number of waits inside each other. A power of 2.
    LOCK_DEPTH: usize = 4;
    /// Number of entries of the kernel's stack that are searched for the caller of a lock function.
    LOCK_FRAMES: usize = 12;
    /// Largest number of ranges of functions that take locks.
    LOCK_FUNCTIONS: usize = 32;
}
