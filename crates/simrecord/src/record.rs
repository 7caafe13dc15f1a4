//! The record of a simulated machine: a stream of records, which the plugin writes and `sim` reads.
//! docs/plugin.md describes the format.
//!
//! Each record has [`BYTES`] bytes: its kind and a CPU as 32-bit numbers, then seven 64-bit numbers, all little-endian.
//! All records have the same length, so a reader can check each record alone.
//!
//! The bytes are public: a change of a record or of its meaning needs a new [`FORMAT_VERSION`]. The numbers of the
//! enumerations below are part of the format.

mod codec;

use std::fmt;

/// Length of a record in bytes.
pub const BYTES: usize = 64;
/// Maximum number of records in a stream. Without it, a guest that executes markers in an endless loop fills the disk.
pub const RECORDS_MAX: u64 = 1 << 22;
/// First number of the header: "irqlabrc".
pub const MAGIC: u64 = u64::from_le_bytes(*b"irqlabrc");
/// Version of the format. It changes whenever the meaning of a record changes.
pub const FORMAT_VERSION: u32 = 17;
/// Maximum number of spans whose counters are recorded. They take up to a third of [`RECORDS_MAX`].
pub const SPAN_COUNTS_MAX: u32 = 1 << 18;
/// Maximum number of [`ExecutedBlock`] records in a stream: a quarter of [`RECORDS_MAX`].
pub const EXECUTED_BLOCKS_MAX: u32 = 1 << 20;
/// [`ExecutedBlock::address`] of user mode.
pub const USER_MODE: u64 = 0;
/// Maximum number of vCPUs of a machine.
pub const CPUS_MAX: usize = 16;
/// Caches whose misses are classified: L1I, L1D, L2, L3, in the order of [`MissCount::cache`].
pub const CACHES: usize = 4;

/// Bit of [`Header::features`]: instructions are charged to contexts (symbols were given).
pub const FEATURE_CONTEXTS: u32 = 1;
/// Bit of [`Header::features`]: tasks have process ids and names (offsets were given).
pub const FEATURE_TASKS: u32 = 2;
/// Bit of [`Header::features`]: vCPUs run in time slices of [`Header::vcpu_slice`] cycles.
pub const FEATURE_SLICES: u32 = 4;
/// Bit of [`Header::features`]: guest time advances by the model's cycles.
pub const FEATURE_MODEL_TIME: u32 = 8;
/// Bit of [`Header::features`]: the halted time of each vCPU is known.
pub const FEATURE_HALTED: u32 = 16;
/// Bit of [`Header::features`]: the guest has a PMU, whose registers the plugin writes.
pub const FEATURE_PMU: u32 = 32;
/// Bit of [`Header::features`]: the core executes only sampled units in detail. Cycles between units are estimated.
pub const FEATURE_SAMPLED: u32 = 64;

/// Defines an enumeration whose numbers the record holds, and the list of all its variants.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant = $number,)* }

        impl $name {
            /// All variants, in the order of their numbers.
            pub const ALL: [$name; [$($number),*].len()] = [$($name::$variant),*];

            /// The variant with this number, or `None` if no variant has it.
            pub(crate) fn from_number(number: u64) -> Option<$name> {
                Self::ALL.into_iter().find(|variant| *variant as u64 == number)
            }
        }
    };
}

numbered! {
    /// How much is recorded.
    pub enum Detail {
        /// Markers only, without counts. For booting.
        Fast = 0,
        /// Instructions. They are attributed to contexts if symbols are given.
        Count = 1,
        /// Adds cycles, misses and stalls of a model of an in-order processor with blocking caches.
        Timed = 2,
        /// Adds cycles, misses and stalls of any model: a core (in order or out of order), caches and predictors.
        Ooo = 3,
    }
}

impl Detail {
    /// Whether a model counts cycles.
    #[must_use]
    pub fn has_model(self) -> bool {
        matches!(self, Detail::Timed | Detail::Ooo)
    }
}

numbered! {
    /// When the first region of interest opens.
    pub enum Roi {
        /// At the guest's first marker that opens one.
        Marker = 0,
        /// With the first instruction.
        Always = 1,
    }
}

/// A record of the stream. Counters and values follow the record that they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record of a stream, and the only header in it.
    Header(Header),
    /// The guest executed a marker. Counters follow.
    Marker(Marker),
    /// A region of interest on one CPU, or its part up to a snapshot. Counters follow, then the region's contexts.
    Region(Region),
    /// One context in the preceding region, on the same CPU. Its self counters follow,
    /// then its counters including nested contexts.
    Context(ContextRow),
    Task(Task),
    /// A warning that `sim` shows, with its CPU and its value.
    Notice(Notice, u32, u64),
    /// Instructions as the plugin and QEMU counted them.
    Check(Check),
    /// The last record. A stream without it is incomplete.
    End(End),
    /// Counters of the preceding record.
    Counters(Counters),
    /// A span of an interrupt, an exception or a followed function that ended. Counters may follow;
    /// records that would hold only zeros are left out.
    Span(Span),
    /// The end of a delay, or an event of a delay that could not be joined.
    Delay(Delay),
    /// A CPU has queued a function call for another CPU, or sends an interrupt.
    Sent(Sent),
    /// A CPU has called a function that another CPU had queued.
    QueuedRun(QueuedRun),
    /// The context on top of a CPU's stack changed.
    Transition(Transition),
    /// A counter of the guest's kernel at the opening or closing of a region.
    KernelCount(KernelCount),
    /// The name of an IRQ line's first action.
    IrqName(IrqName),
    /// How often an annotation was reached in a region, on one CPU. The values that the annotation
    /// recorded follow the rows of all CPUs.
    Annotation(AnnotationRow),
    /// Values that an annotation recorded together. A [`Record::Value`] follows for each, except
    /// with [`ValuesKind::Others`].
    Values(Values),
    /// One of the values of the preceding record.
    Value(Value),
    /// Shadow caches of a model in a region. Their counters follow.
    ShadowCaches(ShadowCaches),
    /// Misses of a fully associative cache of one size in a region.
    MissCurvePoint(MissCurvePoint),
    /// Classified misses of a region.
    Misses(MissCount),
    /// A service of the kernel in a region. Its self counters follow, then the counters of
    /// completed requests including nested contexts.
    Service(ServiceRow),
    /// Number of completed requests of a service with a time in one bucket.
    ServiceBucket(ServiceBucket),
    /// Time that a service was blocked for one cause.
    ServiceWait(ServiceWait),
    /// The kernel function that serves a system call.
    SyscallFunction(SyscallFunction),
    /// Totals over all services of a region.
    ServiceTotals(ServiceTotals),
    /// Counts of a call site of the kernel that takes locks.
    LockPlace(LockCounts),
    /// Cycles of all CPUs together in one mode, during one part of a region.
    ProfileSlot(ProfileSlot),
    /// The part of a sampled unit that one context executed. Counters follow; records that would
    /// hold only zeros are left out.
    SampledPart(SampledPart),
    ServiceMisses(ServiceMisses),
    /// Misses of lines that other CPUs had written.
    SharedMisses(SharedMisses),
    /// The name of a structure of the guest.
    StructureName(StructureName),
    /// A CPU has gone offline in a region, or has come back.
    Hotplug(Hotplug),
    /// A part of the name of a function of a user program. The parts of a name follow each other.
    UserFunction(UserFunction),
    /// A CPU starts a translated block of the kernel, or enters user mode.
    ExecutedBlock(ExecutedBlock),
    /// The host begins to withhold a CPU.
    Withheld(Withheld),
    /// The control group of the task that a CPU runs has changed.
    TaskGroup(TaskGroup),
    /// A part of the path of a control group. The parts of a path follow each other.
    GroupPath(GroupPath),
    /// A block request completes on a CPU.
    Completion(Completion),
}

/// Settings of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the guest's vCPUs.
    pub cpus: u32,
    /// The version of QEMU's plugin API.
    pub api: u32,
    pub detail: Detail,
    pub roi: Roi,
    /// Cycles of a time slice. Without a model, a cycle is an instruction.
    pub vcpu_slice: u64,
    /// QEMU's version: ASCII, padded with zeros.
    pub qemu: [u8; 16],
    /// Optional parts of the recording: bits `FEATURE_*`.
    pub features: u32,
    /// Bit N is set if counter N ([`crate::counters`]) is counted.
    pub counters: u32,
}

/// A marker that a vCPU has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The vCPU that executed the marker.
    pub cpu: u32,
    /// Number of the marker: see [`crate::marker`].
    pub number: u32,
    /// The guest's argument.
    pub argument: u64,
    /// Whether the region of interest is open after the marker.
    pub open: bool,
    /// Interrupts that the CPU took since the record started.
    pub interrupts: u64,
    /// Exceptions that the CPU took since the record started.
    pub exceptions: u64,
    /// Page faults that the kernel's memory management handled on all CPUs since the recording of
    /// services started. 0 if services are not recorded.
    pub handled_faults: u64,
}

/// A region of interest on one CPU. It ends for a CPU when the CPU goes offline ([`Hotplug`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub cpu: u32,
    /// Number of the region, from 1.
    pub region: u32,
    /// Interrupts and exceptions since the record started whose handler matches no symbol.
    pub unknown_gates: u64,
    /// Returns inside the kernel that match no entry, since the record started.
    pub unmatched_returns: u64,
    /// Contexts that ended otherwise than by their own return, since the record started.
    pub abandoned: u64,
    /// Entries that were not followed because too many were nested, since the record started.
    pub overflows: u64,
    /// Events out of order or on the wrong CPU, tasks and contexts beyond the limits, and sums that
    /// do not add up. If not zero, the region's rows are wrong.
    pub broken: u64,
    /// When the region was opened, in cycles on this CPU's time axis, like [`Span::start`].
    pub opened_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextRow {
    pub cpu: u32,
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// [`attribution::Row::entries`].
    pub entries: u64,
    /// [`attribution::Row::completed`].
    pub completed: u64,
}

/// Number of counters in one record.
pub const COUNTERS_PER_RECORD: usize = 6;

numbered! {
    /// The owner of the values in a [`Counters`] record.
    pub enum CountersOf {
        /// The CPU at a marker: counts since the record started, of the code before the marker.
        Marker = 0,
        /// The region. The self counts of its contexts must add up to these counters.
        Region = 1,
        /// The context itself: [`attribution::Row::self_counts`].
        SelfCounts = 2,
        /// The context, including nested contexts: [`attribution::Row::inclusive`].
        Inclusive = 3,
        /// The shadow caches of a model.
        ShadowCaches = 4,
        /// The span without nested contexts.
        Span = 5,
        /// The service without nested contexts.
        Service = 6,
        /// Completed requests of the service, including nested contexts.
        ServiceInclusive = 7,
        /// The part of a sampled unit.
        SampledPart = 10,
    }
}

/// Some of the counters of the preceding record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    pub cpu: u32,
    /// The owner of the values.
    pub of: CountersOf,
    /// The position of the first counter.
    pub first: u32,
    /// The counters from position `first` on. Zero beyond the last counter.
    pub values: [u64; COUNTERS_PER_RECORD],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The CPU that ended the span.
    pub cpu: u32,
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// When the span would have started if its task had never been switched out: its end minus `inclusive_cycles`, modulo
    /// 2^64. In cycles since the record started, on the time axis of the CPU that ended the span.
    pub start: u64,
    /// Cycles of the span itself.
    pub self_cycles: u64,
    /// Cycles of the span, including nested contexts.
    pub inclusive_cycles: u64,
    /// Instructions of the span itself.
    pub self_instructions: u64,
    /// Instructions of the span, including nested contexts.
    pub inclusive_instructions: u64,
}

impl Span {
    /// When the span ended, in cycles since the record started, on the time axis of the CPU that ended it.
    #[must_use]
    pub fn ended_at(&self) -> u64 {
        self.start.wrapping_add(self.inclusive_cycles)
    }
}

numbered! {
    /// Which events of a delay were joined.
    pub enum DelayEvents {
        /// The event that begins the delay, and the event that ends it.
        Joined = 0,
        /// The end alone: no event that begins it came in the region.
        EndAlone = 1,
        /// The begin alone: no end can be joined to it.
        BeginAlone = 2,
        /// A request for a thread that is awake, so that it does not wait.
        Awake = 3,
    }
}

/// A delay: the time from the event that asks for work, or from the time when a timer is due, to the start of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The CPU of the event that ends the delay, or that drops its begin.
    pub cpu: u32,
    pub region: u32,
    /// What was delayed: [`attribution::KernelContext::code`]. Function 0 stands for all functions of a kind, a kernel
    /// thread for the thread of an IRQ line.
    pub code: u64,
    pub events: DelayEvents,
    /// When the delay ended, or its begin was dropped, in cycles on this CPU's time axis, like [`Span::start`].
    pub at: u64,
    /// Length of the delay. 0 unless both events were joined.
    pub cycles: u64,
}

numbered! {
    /// What a CPU sends to another CPU, or to itself.
    pub enum SentKind {
        /// A function call whose sender does not wait.
        AsynchronousCall = 0,
        /// A function call whose sender waits until the function has returned.
        SynchronousCall = 1,
        /// Queued `irq_work`.
        IrqWorkCall = 2,
        /// A queued wake-up of a task.
        WakeUpCall = 3,
        /// The reschedule interrupt.
        Reschedule = 4,
        /// The interrupt for function calls of one CPU.
        CallFunctionSingle = 5,
        /// The interrupt for function calls, sent to several CPUs at once: each has a record.
        CallFunction = 6,
        /// The interrupt of `irq_work`, which a CPU sends to itself.
        IrqWork = 7,
    }
}

impl SentKind {
    /// Whether this is a function call, and not an interrupt.
    #[must_use]
    pub fn is_call(self) -> bool {
        (self as u64) < SentKind::Reschedule as u64
    }

    /// Whether a [`QueuedRun`] can belong to it.
    #[must_use]
    pub fn is_joined(self) -> bool {
        self.is_call() || self == SentKind::Reschedule
    }
}

/// A function call that a CPU queues for another CPU, or an interrupt that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The CPU that sends.
    pub cpu: u32,
    pub region: u32,
    pub kind: SentKind,
    /// The CPU that calls the function or takes the interrupt.
    pub target: u32,
    /// The address of the called function. 0 for interrupts and wake-ups.
    pub function: u64,
    /// An address in the function that sends. 0 if it is not known.
    pub call_site: u64,
    /// The task, interrupt or softirq that sends: [`attribution::KernelContext::code`].
    pub code: u64,
    /// Name of the task that sends, padded with zeros. Zeros for interrupts and softirqs.
    pub comm: [u8; 16],
    /// Number of the process of the task that sends, below 2^24. 0 for interrupts, softirqs and the idle
    /// task, and if it is not known.
    pub process: u32,
    /// Number of the 64-bit system call of the task that sends. `None` for interrupts and softirqs, and if
    /// the task is in no such call.
    pub system_call: Option<u16>,
    /// The time-stamp counter of the CPU that sends.
    pub tsc: u64,
}

/// [`QueuedRun::cycles`] of a run whose end was not seen.
pub const RUN_WITHOUT_END: u64 = u64::MAX;

/// A run of a function that another CPU has queued. A run that wakes several tasks has a record for each, and the
/// tasks share its time. Or the start of a reschedule interrupt, with a record for each CPU that has sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRun {
    /// The CPU that calls the function or takes the interrupt.
    pub cpu: u32,
    pub region: u32,
    /// The position of the call's or the interrupt's [`Sent`] record among these records of the stream, from 1. 0: the call is not known.
    pub sent: u32,
    /// The address of the called function. 0 for wake-ups and interrupts.
    pub function: u64,
    /// When the function or the interrupt started, in cycles on this CPU's time axis.
    pub at: u64,
    /// Cycles from the queueing or sending to the start. 0 if the call is not known.
    pub delay: u64,
    /// Cycles of the run, or [`RUN_WITHOUT_END`]. An interrupt always has the latter: its [`Span`] has its time.
    pub cycles: u64,
    /// The time-stamp counter of the CPU at the start.
    pub tsc: u64,
}

/// A change of the context on top of a CPU's stack. Each CPU also has a transition at the opening of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub cpu: u32,
    pub region: u32,
    /// The new context: [`attribution::KernelContext::code`].
    pub code: u64,
    /// The code of the task at the bottom of the stack.
    pub task: u64,
    /// Time of the change, in cycles on this CPU's time axis, like [`Span::start`].
    pub at: u64,
    /// Executed cycles until the change: [`Transition::at`] without halted cycles.
    pub cycles: u64,
    /// The CPU's time-stamp counter.
    pub tsc: u64,
}

/// A CPU starts a translated block of the kernel, or enters user mode. The counters are those of the CPU at that time: the
/// block executed what they advance until the next record of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedBlock {
    pub cpu: u32,
    pub region: u32,
    /// Virtual address of the block's first instruction. [`USER_MODE`] for any code of user mode.
    pub address: u64,
    /// The CPU's time-stamp counter.
    pub tsc: u64,
    /// Executed cycles, like [`Transition::cycles`].
    pub cycles: u64,
    pub instructions: u64,
    /// Misses of L1I and L1D. 0 without a model.
    pub l1_misses: u64,
    /// Misses of L2 by fetches, loads and stores. 0 without a model with an L2.
    pub l2_misses: u64,
}

/// The simulated host withholds a CPU: the CPU executes nothing, and its time goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withheld {
    pub cpu: u32,
    pub region: u32,
    /// The CPU's time-stamp counter at the start.
    pub tsc: u64,
    /// Length of the time by the time-stamp counter.
    pub length: u64,
}

/// The control group, of version 2, of the task that a CPU runs. It holds until the CPU's next record of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskGroup {
    pub cpu: u32,
    pub region: u32,
    /// The kernel's id of the group. 0 if it is not known.
    pub group: u64,
    /// When the group was read, in cycles on this CPU's time axis, like [`Span::start`].
    pub at: u64,
    /// The CPU's time-stamp counter at that time.
    pub tsc: u64,
}

/// A CPU completes a block request, or asks for its completion in a softirq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub cpu: u32,
    pub region: u32,
    /// The address of the request in the kernel.
    pub request: u64,
    /// Time, in cycles on this CPU's time axis, like [`Span::start`].
    pub at: u64,
    /// The submitter of the request: [`attribution::KernelContext::code`]. [`attribution::KernelContext::Unknown`] if it is
    /// not known, or if there are several.
    pub code: u64,
    /// Name of the task, padded with zeros. Zeros unless a task submitted the request.
    pub comm: [u8; 16],
    /// The kernel's id of the task's control group at the submission. 0 if it is not known.
    pub group: u64,
}

numbered! {
    /// Change of a CPU by the guest's kernel.
    pub enum HotplugState {
        /// The CPU went offline. The region has ended for the CPU, also if the CPU comes back.
        Offline = 0,
        /// The CPU came online again.
        Online = 1,
    }
}

/// A CPU went offline while a region was open, or came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hotplug {
    pub cpu: u32,
    pub region: u32,
    pub state: HotplugState,
    /// Time, in cycles on this CPU's time axis (the axis of [`Span::start`]).
    pub at: u64,
}

/// A counter of the guest's kernel, read from the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCount {
    /// The CPU that the counter belongs to.
    pub cpu: u32,
    pub region: u32,
    /// `true`: the counter was read when the region closed or its CPU went offline. `false`: when the region opened.
    pub at_close: bool,
    /// The counted interrupt, IRQ line or softirq: [`attribution::KernelContext::code`].
    pub code: u64,
    /// Value of the counter, modulo 2^32 as in the kernel.
    pub value: u64,
    /// Whether the CPU was inside that context. If so, the kernel may or may not have counted the current entry.
    pub inside: bool,
}

/// Length of a name in [`IrqName`].
pub const IRQ_NAME_BYTES: usize = 32;

/// The name of an IRQ line's first action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqName {
    pub irq: u32,
    /// The name in the kernel, cut off or padded with zeros.
    pub name: [u8; IRQ_NAME_BYTES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process id of the thread.
    pub pid: u32,
    /// Name in the kernel, padded with zeros.
    pub comm: [u8; 16],
}

/// Instructions since the record started, as the plugin and QEMU counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Instructions that the plugin counted.
    pub counted: u64,
    /// Instructions that QEMU counted for its clock.
    pub icount: u64,
}

/// The last record of a stream: how the recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether a marker of the guest ended the record. If neither a marker nor an annotation ended
    /// it, QEMU exited; how far the guest ran then depends on the host.
    pub by_marker: bool,
    /// Whether an annotation ended the record.
    pub by_annotation: bool,
    /// Whether records were left out because the stream reached [`RECORDS_MAX`].
    pub truncated: bool,
    /// Instructions of all CPUs. `None` if they were not counted.
    pub instructions: Option<u64>,
    /// Records before this one.
    pub records: u64,
}

/// How often an annotation was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationRow {
    pub cpu: u32,
    pub region: u32,
    /// The annotation's position in the list.
    pub annotation: u32,
    /// How often the CPU reached the annotation.
    pub hits: u64,
    /// Spans that could not be opened or closed, on all CPUs. Only the row of CPU 0 has the number; other rows have 0.
    pub refused: u64,
}

numbered! {
    /// Meaning of [`Values::number`].
    pub enum ValuesKind {
        /// How often the region recorded exactly these values.
        Count = 0,
        /// How often the region recorded values that have no row.
        Others = 1,
        /// When one hit recorded the values.
        Hit = 2,
    }
}

/// Values that an annotation recorded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// The CPU of a hit. 0 for counts over all CPUs.
    pub cpu: u32,
    pub region: u32,
    /// The annotation's position in the list.
    pub annotation: u32,
    /// The action that recorded the values, by its position in the annotation.
    pub action: u32,
    /// Meaning of [`Values::number`].
    pub kind: ValuesKind,
    /// A count. For a hit, its time by the guest's time-stamp counter, in ns. All CPUs share this clock.
    pub number: u64,
}

/// Maximum length of a text that an annotation records, in bytes.
pub const TEXT_BYTES_MAX: usize = 32;

/// A value that an annotation recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A register or a place in memory that could not be read.
    Absent,
    Number(u64),
    /// A text, padded with zeros.
    Text([u8; TEXT_BYTES_MAX]),
}

numbered! {
    /// The modes whose accesses shadow caches count apart.
    pub enum Group {
        User = 0,
        /// The kernel without the idle task.
        Kernel = 1,
        /// The idle task, without the interrupts that it takes.
        Idle = 2,
    }
}

numbered! {
    /// The accesses that a miss curve counts.
    pub enum AccessStream {
        /// Fetches of instructions.
        Instructions = 0,
        /// Loads and stores.
        Data = 1,
    }
}

/// Shadow caches of one model, summed over all CPUs. Shadow caches see all accesses without timing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowCaches {
    pub region: u32,
    /// Position of the model on the command line, from 0.
    pub model: u32,
    /// The mode that made the accesses.
    pub group: Group,
    /// Bit N is set if these caches have counter N.
    pub counters: u32,
}

/// A point of a miss curve: a fully associative LRU cache of one size, summed over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissCurvePoint {
    pub region: u32,
    /// The mode that made the accesses.
    pub group: Group,
    pub stream: AccessStream,
    pub size_bytes: u64,
    pub accesses: u64,
    /// Accesses that missed.
    pub misses: u64,
}

numbered! {
    /// Meaning of [`MissCount::count`] and [`MissCount::key`].
    #[derive(PartialOrd, Ord)]
    pub enum MissKind {
        /// Misses of a class. The key is the position of the class in
        /// [`machine::memory::MissClass::ALL`], plus 256 if user mode missed.
        Class = 0,
        /// Misses of evicted lines. The key is 0 if a fully associative cache of this size would
        /// have missed as well (capacity), and 1 if not (conflict).
        Associativity = 1,
        /// Misses of evicted lines, by the context that evicted the line. The key is the code of
        /// that context: user mode (without its task), an interrupt or softirq, or the rest of the
        /// kernel ([`attribution::KernelContext::Unknown`]).
        Evictor = 2,
        /// Misses by the code that made them. The key of the kernel's code is an address of instructions; the key of
        /// user code is [`UserFunction::number`], or [`UNKNOWN_FUNCTION`].
        Code = 3,
        /// Misses by their data. The key is the address of a 64-byte line.
        Data = 4,
        /// Misses of all caches that no row of [`MissKind::Code`] or [`MissKind::Data`] counts.
        NotKept = 5,
    }
}

/// [`MissCount::key`] of the row that sums all keys without a row.
pub const ELSEWHERE: u64 = u64::MAX;

/// A number of misses, summed over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissCount {
    pub region: u32,
    /// The cache that missed, below [`CACHES`].
    pub cache: u32,
    pub kind: MissKind,
    /// Class, context, code or data that is counted: see [`MissKind`].
    pub key: u64,
    pub count: u64,
}

/// A service of the kernel, summed over all CPUs. Times are in cycles of the CPUs' time axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRow {
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// Requests that started in the region.
    pub requests: u64,
    /// Requests that started and completed in the region.
    pub completed: u64,
    /// Time of the service itself in completed requests.
    pub computation: u64,
    /// Time that tasks were blocked, in completed requests.
    pub blocked: u64,
    /// Time that tasks were runnable but not running, in completed requests.
    pub descheduled: u64,
}

numbered! {
    /// Meaning of [`ServiceBucket::lowest`].
    pub enum ServiceTime {
        /// From the start of a request to its end.
        Latency = 0,
        /// The time of the service itself.
        Computation = 1,
    }
}

/// Number of completed requests of a service with a time in one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceBucket {
    pub region: u32,
    pub code: u64,
    pub time: ServiceTime,
    /// The lowest value of the bucket, in cycles. A bucket is at most 1/16 of this value wide.
    pub lowest: u64,
    pub count: u64,
}

/// Time that tasks were blocked in a service, for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceWait {
    pub region: u32,
    pub code: u64,
    /// Number of the cause: the argument of `plugin_interface::symbols::wait_name`. 0 if the cause is unknown.
    pub wait: u32,
    /// How often tasks were blocked.
    pub count: u64,
    /// Total time blocked, in cycles.
    pub blocked: u64,
}

/// The kernel function that serves a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyscallFunction {
    /// The number of the system call.
    pub number: u32,
    pub address: u64,
}

/// A call site of the kernel that takes locks of one kind and name, for one service. Times are in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockCounts {
    pub region: u32,
    /// The code of the service.
    pub code: u64,
    /// Number of the [`attribution::LockKind`].
    pub kind: u32,
    /// Return address of the function that takes the lock.
    pub return_to: u64,
    /// Kind of the structure that contains the lock.
    pub structure: StructureKind,
    /// The structure: see [`StructureKind`].
    pub place: u64,
    /// Distance of the lock from the start of the object, at most 65,535.
    pub offset: u32,
    /// How often the call site took a lock.
    pub acquires: u64,
    /// How often another task or CPU held the lock, at most `u32::MAX`.
    pub contended: u64,
    /// How often the release of a lock that was taken here was seen, at most `u32::MAX`.
    pub releases: u64,
    /// Total time of waiting for contended locks.
    pub waited: u64,
    /// Total time that the locks in `releases` were held.
    pub held: u64,
}

/// One mode during one part of a region, summed over all CPUs. All parts are equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileSlot {
    pub region: u32,
    /// The position of the mode in [`attribution::profile::Mode::ALL`].
    pub mode: u32,
    /// Start of the part, in cycles since the region opened.
    pub start: u64,
    /// Length of the part, in cycles.
    pub length: u64,
    /// Cycles in the mode, stalled or not.
    pub time: u64,
    /// Cycles in the mode that waited for instructions.
    pub fetch_stall: u64,
    /// Cycles in the mode that waited for data.
    pub data_stall: u64,
    /// Cycles in the mode that the pipeline lost for other reasons.
    pub pipeline_stall: u64,
}

/// The part of a sampled unit that one context executed in detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPart {
    pub cpu: u32,
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// Number of the unit on this CPU, from 0 at the start of the record. Units outside an open region have no parts.
    pub unit: u64,
}

numbered! {
    /// Meaning of [`ServiceMisses::count`] and [`ServiceMisses::key`].
    #[derive(PartialOrd, Ord, Hash)]
    pub enum ServiceMissKind {
        /// Misses of a class. The key is 1 if a fully associative cache of this size would have
        /// missed as well (capacity), 2 if not (conflict), and 0 if unknown.
        Class = 0,
        /// Misses of evicted lines, by the context that evicted the line and by class. The key is the context's code.
        Evictor = 1,
        /// Misses by the code that made them and by class. The key of the kernel's code is an address of instructions, rounded; the
        /// key of user code is [`UserFunction::number`], or [`UNKNOWN_FUNCTION`].
        Code = 2,
        /// Misses by their data and by class. The key is [`StructureName::place`].
        Data = 3,
        /// Time of L1 misses, by the level that supplied the line. The key is the level: 0 L1,
        /// 1 L2, 2 L3, 3 another core's cache, 4 memory.
        Wait = 4,
    }
}

numbered! {
    /// Kinds of structures of the guest. Each says what [`StructureName::place`] holds.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum StructureKind {
        /// The kind could not be read. Holds 0.
        Unknown = 0,
        /// A variable of the kernel's image or of a module. Holds its address, rounded to 64 bytes.
        Image = 1,
        /// A per-CPU variable. Holds its offset in the per-CPU area, rounded to 64 bytes.
        PerCpu = 2,
        /// An object of a slab cache. Holds the address of the slab cache.
        Slab = 3,
        /// The stack of a task. Holds the task's process id.
        Stack = 4,
        /// User memory without a file. Holds the process id of the task that used it, 0 if unknown.
        Anonymous = 5,
        /// A page of a file. Holds the address of the kernel's `file_system_type`, 0 if unknown.
        File = 6,
        /// Page tables. Holds 0.
        PageTable = 7,
        /// The kernel's array of `struct page`. Holds 0.
        PageArray = 8,
        /// The vmalloc area, without the stacks of tasks. Holds 0.
        Vmalloc = 9,
        /// Memory reserved at boot, such as large hash tables. Holds 0.
        Reserved = 10,
        /// Another page of the kernel. Holds 0.
        KernelPage = 11,
        /// The CPU entry areas. Holds 0.
        EntryArea = 12,
        /// Other user memory. Holds 0.
        OtherUser = 13,
    }
}

/// Misses of a service, summed over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceMisses {
    pub region: u32,
    /// The cache that missed, below [`CACHES`].
    pub cache: u32,
    pub what: ServiceMissKind,
    /// The position of the class in [`machine::memory::MissClass::ALL`]; 0 for [`ServiceMissKind::Wait`].
    pub class: u32,
    /// The service: [`attribution::KernelContext::code`].
    pub code: u64,
    /// Kind of structure, for [`ServiceMissKind::Data`].
    pub structure: StructureKind,
    /// See [`ServiceMissKind`]. [`ELSEWHERE`] in the row that sums all keys without a row.
    pub key: u64,
    pub count: u64,
    /// Total time of the misses in cycles, for [`ServiceMissKind::Wait`]; else 0.
    pub cycles: u64,
}

/// L1D misses of 8 bytes, by a service at one place of its code. Another CPU had written the line. A row whose `place`,
/// `address` and `pc` are [`ELSEWHERE`] sums all misses of the service without a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMisses {
    pub region: u32,
    /// Kind of the structure that contains the bytes.
    pub structure: StructureKind,
    /// The structure: see [`StructureKind`].
    pub place: u64,
    /// Distance of the bytes from the start of the object.
    pub offset: u32,
    /// Virtual address of the bytes.
    pub address: u64,
    /// [`attribution::KernelContext::code`] of the service.
    pub code: u64,
    /// The code that missed, like the key of [`ServiceMissKind::Code`].
    pub pc: u64,
    /// Bit N is set if CPU N missed.
    pub cpus: u32,
    /// Misses because another CPU had written these bytes.
    pub true_sharing: u32,
    /// Misses because another CPU had written other bytes of the coherence granule.
    pub false_sharing: u32,
}

/// The name of a slab cache or of a file system type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructureName {
    pub kind: StructureKind,
    pub place: u64,
    /// Number of the kernel's caches that share this slab cache. Above 1, its objects have several
    /// types. 1 for file systems, 0 if unknown.
    pub shared_by: u32,
    /// The name in bytes, padded with zeros.
    pub name: [u8; TEXT_BYTES_MAX],
}

/// The number that stands for user code whose file is not known. Addresses of the kernel have their highest bit set;
/// numbers of functions do not.
pub const UNKNOWN_FUNCTION: u64 = 0;
/// Bytes of a name in a [`UserFunction`] or [`GroupPath`].
pub const NAME_PART_BYTES: usize = 40;

/// A part of the name of a user program's function, as `FUNCTION [FILE]`. The name `[FILE]` stands for all code of the
/// file that no symbol covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFunction {
    /// The number of the function, from 1.
    pub number: u64,
    /// The position of this part in the name, from 0.
    pub part: u32,
    /// The text; the last part is padded with zeros.
    pub text: [u8; NAME_PART_BYTES],
}

impl UserFunction {
    /// The parts of a name, in order.
    pub fn of_name(number: u64, name: &str) -> impl Iterator<Item = UserFunction> {
        (0..).zip(name.as_bytes().chunks(NAME_PART_BYTES)).map(move |(part, bytes)| {
            let mut text = [0; NAME_PART_BYTES];
            text[..bytes.len()].copy_from_slice(bytes);
            UserFunction { number, part, text }
        })
    }
}

/// A part of the path of a control group from the root of its hierarchy, whose path is `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPath {
    /// The kernel's id of the group.
    pub group: u64,
    /// The position of this part in the path, from 0.
    pub part: u32,
    /// The bytes; the last part is padded with zeros.
    pub text: [u8; NAME_PART_BYTES],
}

impl GroupPath {
    /// The parts of a path, in order.
    pub fn of_path(group: u64, path: &[u8]) -> impl Iterator<Item = GroupPath> + '_ {
        (0..).zip(path.chunks(NAME_PART_BYTES)).map(move |(part, bytes)| {
            let mut text = [0; NAME_PART_BYTES];
            text[..bytes.len()].copy_from_slice(bytes);
            GroupPath { group, part, text }
        })
    }
}

/// Totals over all services of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTotals {
    pub region: u32,
    /// Page faults that the kernel's memory management handled, as the kernel counts them.
    pub handled_faults: u64,
    /// Rows without room, and sums that do not add up. If not zero, the rows are wrong.
    pub broken: u64,
}

numbered! {
    /// A warning of the plugin. The record holds its number.
    pub enum Notice {
        /// QEMU's `cpu_exit`, `qemu_get_cpu` or `current_cpu` do not behave as expected: several
        /// vCPUs cannot be counted. The record ends there.
        NoSlices = 1,
        /// QEMU exports no instruction count, so counts were not checked.
        NoIcount = 2,
        /// A register that annotations need cannot be read: contexts are unknown.
        NoRegisters = 3,
        /// vCPUs run in several threads: they cannot be counted. The record ends there.
        SecondThread = 4,
        /// QEMU's clock cannot be made to follow the model: guest time is uniform.
        NoModelTime = 5,
        /// QEMU exports no clock: the halted time of vCPUs is unknown.
        NoClock = 6,
        /// The guest programs its PMU for an event that is not counted; the counter does not
        /// advance. The value has the layout of an event select: event number in bits 0 to 7 and
        /// 32 to 35, unit mask in bits 8 to 15.
        EventNotCounted = 7,
        /// The plugin cannot drive QEMU's event loop. Devices respond at times that depend on the host, so runs differ.
        DevicesNotDrained = 8,
        /// The block layer is not as expected, or a named disk is missing. Disk requests are not delayed, and complete
        /// at times that depend on the host. The value is the number of the disk, from 0.
        NoDisk = 9,
        /// QEMU does not let the plugin interrupt the guest when a counter overflows.
        NoOverflows = 10,
        /// Device writes cannot be followed: caches keep lines that a device has overwritten.
        NoDeviceWrites = 11,
        /// Descriptor tables cannot be found. Caches do not see a vCPU's own accesses when it enters a handler.
        NoEntries = 12,
        /// Devices made more writes between two blocks than the plugin keeps. Caches keep the lines of the lost writes.
        /// The value is the number of lost writes.
        DeviceWritesLost = 13,
        /// The guest's memory does not tell the time of its clock, or its clock source is not the time-stamp counter:
        /// timers without a known delay ran.
        TimersUnknown = 14,
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Notice::NoSlices => {
                "this QEMU does not show which vCPU runs, or cannot be made to change it"
            }
            Notice::NoIcount => "this QEMU exports no instruction count to check against",
            Notice::NoRegisters => "registers of the guest cannot be read: contexts are unknown",
            Notice::SecondThread => {
                "vCPUs run in several threads (start QEMU with -accel tcg,thread=single)"
            }
            Notice::NoModelTime => {
                "this QEMU's clock cannot follow the model: guest time is uniform"
            }
            Notice::NoClock => "this QEMU exports no clock: halted time is not known",
            Notice::EventNotCounted => {
                "the guest programs its PMU for an event that is not counted: its counter does not \
                 advance"
            }
            Notice::DevicesNotDrained => {
                "this QEMU's event loop cannot be driven: devices are not repeatable"
            }
            Notice::NoDisk => {
                "a disk's requests cannot be delayed: they take no time, and may not be repeatable"
            }
            Notice::NoOverflows => {
                "this QEMU does not interrupt the guest when a counter overflows: no sampling"
            }
            Notice::NoDeviceWrites => {
                "this QEMU does not show what devices write: caches keep stale lines"
            }
            Notice::NoEntries => {
                "this QEMU does not show descriptor tables: what a processor itself reads and \
                 writes when it enters a handler does not reach the caches"
            }
            Notice::TimersUnknown => {
                "delays of some timers are not known: the kernel's clock source is not the time-stamp counter, or its clock \
                 cannot be read"
            }
            Notice::DeviceWritesLost => {
                "devices wrote to more places between two blocks than irqlab follows: caches keep \
                 stale lines of the others"
            }
        })
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// No record has this kind.
    Kind(u32),
    /// A field of a record of this kind has a value that the plugin never writes.
    Field(u32),
    /// Another program wrote the header.
    Magic,
    /// The header has another version of the format.
    Version(u32),
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Kind(kind) => write!(out, "unknown record kind {kind}"),
            RecordError::Field(kind) => {
                write!(out, "a record of kind {kind} has a field out of range")
            }
            RecordError::Magic => write!(out, "not a record of a simulated machine"),
            RecordError::Version(version) => write!(
                out,
                "the record has format version {version}, but this irqlab reads version \
                 {FORMAT_VERSION}"
            ),
        }
    }
}

impl std::error::Error for RecordError {}
