//! The record: what the plugin writes of a simulated machine, as records of one size.
//! docs/plugin.md describes the format.
//!
//! A record is [`BYTES`] long: its kind and a CPU as 32-bit numbers, then seven 64-bit numbers, all
//! little-endian. The length is the same for all, so that a reader can check each without the
//! others.

mod codec;

use std::fmt;

/// Length of a record in bytes.
pub const BYTES: usize = 64;
/// The most records of a stream, so that a guest with an endless loop of markers does not fill the
/// disk.
pub const RECORDS_MAX: u64 = 1 << 22;
/// First number of the header: "irqlabrc".
pub const MAGIC: u64 = u64::from_le_bytes(*b"irqlabrc");
/// Version of the format. It changes whenever the meaning of a record changes.
pub const FORMAT_VERSION: u32 = 6;
/// The most spans of a stream whose counters are recorded: up to a third of its records.
pub const SPAN_COUNTS_MAX: u32 = 1 << 18;
/// The most vCPUs of a machine.
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
/// Bit of [`Header::features`]: the time for which a vCPU was halted is known.
pub const FEATURE_HALTED: u32 = 16;
/// Bit of [`Header::features`]: the guest has a PMU, for which the plugin writes registers.
pub const FEATURE_PMU: u32 = 32;
/// Bit of [`Header::features`]: the core executes sampled units only; cycles between them are estimated.
pub const FEATURE_SAMPLED: u32 = 64;

/// Defines an enumeration whose numbers the record holds, with the list of all its variants.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant = $number,)* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: [$name; [$($number),*].len()] = [$($name::$variant),*];

            /// The one with this number, if there is one.
            pub(crate) fn of_number(number: u64) -> Option<$name> {
                Self::ALL.into_iter().find(|one| *one as u64 == number)
            }
        }
    };
}

numbered! {
    /// How much is recorded.
    pub enum Detail {
        /// Markers only, without counts: for booting.
        Fast = 0,
        /// Instructions, by context where symbols are given.
        Count = 1,
        /// In addition cycles, misses and stalls of a model of an in-order processor with blocking
        /// caches.
        Timed = 2,
        /// In addition cycles, misses and stalls of any model: its core, in order or out of order,
        /// its caches and its predictors.
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
    /// Where the first region of interest opens.
    pub enum Roi {
        /// At the guest's first marker that opens one.
        Marker = 0,
        /// With the first instruction.
        Always = 1,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record.
    Header(Header),
    /// The guest executed a marker. Counters follow.
    Marker(Marker),
    /// A region of interest on one CPU, or the part of it up to a snapshot. Counters follow, then
    /// its contexts.
    Region(Region),
    /// One context in the preceding region, on the same CPU. Counters follow: of the context
    /// itself, then with what was nested in it.
    Context(ContextRow),
    /// The name of a task.
    Task(Task),
    /// A warning that `sim` shows: what, on which CPU, with which value.
    Notice(Notice, u32, u64),
    /// Two counts of the same instructions.
    Check(Check),
    /// The last record. A stream without it is incomplete.
    End(End),
    /// Counters of the preceding record.
    Counters(Counters),
    /// A span of an interrupt, an exception or a followed function, which ended. Counters may follow, without
    /// records that would hold zeros only.
    Span(Span),
    /// Another context is on top of a CPU's stack.
    Transition(Transition),
    /// A counter of the guest's kernel at the opening or closing of a region.
    KernelCount(KernelCount),
    /// The name of an IRQ line's first action.
    IrqName(IrqName),
    /// How often an annotation was reached in a region, on one CPU. The values that the annotation
    /// recorded follow the rows of all CPUs.
    Annotation(AnnotationRow),
    /// Values that an annotation recorded together. They follow, except for
    /// [`ValuesKind::Others`].
    Values(Values),
    /// One of the values of the preceding record.
    Value(Value),
    /// What the shadow caches of a model counted in a region. Counters follow.
    ShadowCaches(ShadowCaches),
    /// What a fully associative cache of one size missed in a region.
    MissCurvePoint(MissCurvePoint),
    /// Classified misses of a region.
    Misses(MissCount),
    /// A service of the kernel in a region. Counters follow: of the service itself, then of completed
    /// requests with what was nested in them.
    Service(ServiceRow),
    /// Completed requests of a service whose time is in one bucket.
    ServiceBucket(ServiceBucket),
    /// For what a service was blocked.
    ServiceWait(ServiceWait),
    /// Which function of the kernel serves a system call.
    SyscallFunction(SyscallFunction),
    /// All services of a region together.
    ServiceTotals(ServiceTotals),
    /// A place of the kernel that takes locks.
    LockPlace(LockCounts),
    /// What all CPUs together did in a mode in a part of a region.
    ProfileSlot(ProfileSlot),
    /// The part of a sampled unit that one context executed. Counters follow, without records that would
    /// hold zeros only.
    SampledPart(SampledPart),
    ServiceMisses(ServiceMisses),
    /// Misses of lines that other CPUs had written.
    SharedMisses(SharedMisses),
    /// The name of a structure of the guest.
    StructureName(StructureName),
}

/// What is recorded, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many vCPUs there are.
    pub cpus: u32,
    /// The version of QEMU's plugin API.
    pub api: u32,
    /// How much is recorded.
    pub detail: Detail,
    /// Where the first region of interest opens.
    pub roi: Roi,
    /// Cycles of a time slice; without a model a cycle is an instruction.
    pub vcpu_slice: u64,
    /// QEMU's version: ASCII, padded with zeros.
    pub qemu: [u8; 16],
    /// Bits `FEATURE_*`.
    pub features: u32,
    /// Bit N is set if counter N ([`crate::counters`]) is counted.
    pub counters: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The vCPU that executed it.
    pub cpu: u32,
    /// Its number: see [`crate::marker`].
    pub number: u32,
    /// The guest's argument.
    pub argument: u64,
    /// Whether the region of interest is open after it.
    pub open: bool,
    /// Interrupts that the CPU took since the record started.
    pub interrupts: u64,
    /// Exceptions that it took.
    pub exceptions: u64,
    /// Page faults that the kernel's memory management handled, on all CPUs, since services were recorded;
    /// 0 if they are not.
    pub handled_faults: u64,
}

/// A region of interest on one CPU.
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
    /// Events out of order or on the wrong CPU, tasks and contexts beyond the limits, sums that do
    /// not add up. If it is not zero, the rows are wrong.
    pub broken: u64,
    /// When the region was opened, in cycles on this CPU's time axis: that of [`Span::start`].
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

/// How many counters one record holds.
pub const COUNTERS_PER_RECORD: usize = 6;

numbered! {
    /// What a record of counters belongs to.
    pub enum CountersOf {
        /// The CPU at a marker, since the record started: what was executed before the marker.
        Marker = 0,
        /// The region. The self counts of its contexts add up to these, or the record is broken.
        Region = 1,
        /// The context itself: [`attribution::Row::self_counts`].
        SelfCounts = 2,
        /// The context with what was nested in it: [`attribution::Row::inclusive`].
        Inclusive = 3,
        /// The shadow caches of a model.
        ShadowCaches = 4,
        /// The span itself.
        Span = 5,
        /// The service itself.
        Service = 6,
        /// Completed requests of the service, with what was nested in them.
        ServiceInclusive = 7,
        /// The part of a sampled unit.
        SampledPart = 10,
    }
}

/// Some of the counters of the preceding record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    pub cpu: u32,
    /// What they belong to.
    pub of: CountersOf,
    /// The position of the first counter.
    pub first: u32,
    /// The counters from that position on; zero beyond the last counter.
    pub values: [u64; COUNTERS_PER_RECORD],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The CPU on which it ended.
    pub cpu: u32,
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// When it started, in cycles since the record started, on the time axis of the CPU on which it
    /// started.
    pub start: u64,
    /// Cycles of the span itself.
    pub self_cycles: u64,
    /// Cycles with what was nested in it.
    pub inclusive_cycles: u64,
    /// Instructions of the span itself.
    pub self_instructions: u64,
    /// Instructions with what was nested in it.
    pub inclusive_instructions: u64,
}

/// Another context is on top of a CPU's stack, from the opening of a region on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub cpu: u32,
    pub region: u32,
    /// The context: [`attribution::KernelContext::code`].
    pub code: u64,
    /// The code of the task at the bottom of the stack.
    pub task: u64,
    /// When, in cycles on this CPU's time axis: that of [`Span::start`].
    pub at: u64,
    /// How many of those cycles it executed, without those it was halted.
    pub cycles: u64,
    /// What the CPU's time-stamp counter showed.
    pub tsc: u64,
}

/// A counter that the guest's kernel keeps itself, read from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCount {
    /// The CPU whose counter it is.
    pub cpu: u32,
    pub region: u32,
    /// Whether it was read when the region closed; otherwise when it opened.
    pub at_close: bool,
    /// What is counted: [`attribution::KernelContext::code`] of an interrupt, IRQ line or softirq.
    pub code: u64,
    /// The kernel's counter, modulo 2^32 as the kernel keeps it.
    pub value: u64,
    /// Whether the CPU was inside that context: the kernel may have counted it already or not.
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
    /// Its process id (of the thread).
    pub pid: u32,
    /// Its name in the kernel, padded with zeros.
    pub comm: [u8; 16],
}

/// Instructions since the record started, counted twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// By the plugin.
    pub counted: u64,
    /// By QEMU, for its clock.
    pub icount: u64,
}

/// How a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether the guest ended it by a marker. If neither a marker nor an annotation did, QEMU
    /// exited; how far the guest ran until then depends on the host.
    pub by_marker: bool,
    /// Whether an annotation ended it.
    pub by_annotation: bool,
    /// Whether records were left out because there were [`RECORDS_MAX`].
    pub truncated: bool,
    /// Instructions of all CPUs, if they were counted.
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
    /// How often the CPU reached it.
    pub hits: u64,
    /// Spans that could not be opened or closed, on all CPUs; 0 except in the row of CPU 0.
    pub refused: u64,
}

numbered! {
    /// What [`Values::number`] is.
    pub enum ValuesKind {
        /// How often exactly these values were recorded in the region.
        Count = 0,
        /// How often values were recorded that have no row.
        Others = 1,
        /// When they were recorded: one hit.
        Hit = 2,
    }
}

/// Values that an annotation recorded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// The CPU of a hit; 0 for what all CPUs recorded.
    pub cpu: u32,
    pub region: u32,
    /// The annotation's position in the list.
    pub annotation: u32,
    /// The position among the annotation's actions of the one that recorded them.
    pub action: u32,
    /// What [`Values::number`] is.
    pub kind: ValuesKind,
    /// How often, or, of a hit, when: in cycles of its CPU's time axis.
    pub number: u64,
}

/// Longest text that an annotation records, in bytes.
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
    /// Whose accesses shadow caches count.
    pub enum Group {
        /// User mode.
        User = 0,
        /// The kernel without the idle task.
        Kernel = 1,
        /// The idle task, without the interrupts that it takes.
        Idle = 2,
    }
}

numbered! {
    /// Which accesses a miss curve is of.
    pub enum AccessStream {
        /// Instruction fetches.
        Instructions = 0,
        /// Loads and stores.
        Data = 1,
    }
}

/// Shadow caches of one model, of all CPUs together: caches that see all accesses without timing
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowCaches {
    pub region: u32,
    /// Which of the models, from 0 in the order in which they were given.
    pub model: u32,
    /// Whose accesses.
    pub group: Group,
    /// Bit N is set if these caches have counter N.
    pub counters: u32,
}

/// A point of a miss curve: a fully associative LRU cache of one size, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissCurvePoint {
    pub region: u32,
    /// Whose accesses.
    pub group: Group,
    pub stream: AccessStream,
    /// The size of the cache.
    pub size_bytes: u64,
    /// Accesses to the cache.
    pub accesses: u64,
    /// Those that missed.
    pub misses: u64,
}

numbered! {
    /// What [`MissCount::count`] counts, and what [`MissCount::key`] is.
    #[derive(PartialOrd, Ord)]
    pub enum MissKind {
        /// Misses of a class. The key is the position of the class in
        /// [`machine::memory::MissClass::ALL`], plus 256 if user mode missed.
        Class = 0,
        /// Misses of lines that had been evicted. The key is 0 if a fully associative cache of the
        /// same size would have missed them, too (capacity), and 1 if not (conflict).
        Associativity = 1,
        /// The same misses by the context that evicted the line, as a context's code: user mode
        /// (without its task), an interrupt or softirq, or the rest of the kernel
        /// ([`attribution::KernelContext::Unknown`]).
        Evictor = 2,
        /// Misses by the code that made them: the key is an address of instructions, rounded.
        Code = 3,
        /// Misses by their data: the key is the address of 64 bytes.
        Data = 4,
        /// Misses, of all caches, that are in no row of [`MissKind::Code`] and [`MissKind::Data`].
        NotKept = 5,
    }
}

/// [`MissCount::key`] of all places that have no row of their own.
pub const ELSEWHERE: u64 = u64::MAX;

/// How many misses there were, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissCount {
    pub region: u32,
    /// In which cache, below [`CACHES`].
    pub cache: u32,
    /// What is counted.
    pub kind: MissKind,
    /// The object of the count: see [`MissKind`].
    pub key: u64,
    pub count: u64,
}

/// A service of the kernel, on all CPUs together. Times are in cycles of the CPUs' time axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRow {
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// Requests that started in the region.
    pub requests: u64,
    /// Those of them that completed in it.
    pub completed: u64,
    /// Time of the service itself in completed requests.
    pub computation: u64,
    /// Time for which tasks were blocked in completed requests.
    pub blocked: u64,
    /// Time for which they were not running although they could, in completed requests.
    pub descheduled: u64,
}

numbered! {
    /// What [`ServiceBucket::lowest`] is.
    pub enum ServiceTime {
        /// From the start of a request to its end.
        Latency = 0,
        /// The time of the service itself.
        Computation = 1,
    }
}

/// Completed requests of a service by their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceBucket {
    pub region: u32,
    pub code: u64,
    pub time: ServiceTime,
    /// The lowest value of the bucket, in cycles; a bucket is at most 1/16 of it wide.
    pub lowest: u64,
    pub count: u64,
}

/// For what tasks were blocked in a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceWait {
    pub region: u32,
    pub code: u64,
    /// What they waited for, by the plugin's number; 0 for what is not known.
    pub wait: u32,
    /// How often.
    pub count: u64,
    /// How long, sum, in cycles.
    pub blocked: u64,
}

/// Which function of the kernel serves a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyscallFunction {
    /// The number of the system call.
    pub number: u32,
    pub address: u64,
}

/// A place of the kernel that takes locks of one kind and name, for one service. Times are in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockCounts {
    pub region: u32,
    /// The code of the service.
    pub code: u64,
    /// Number of the [`attribution::LockKind`].
    pub kind: u32,
    /// Where the function that takes the lock returns to.
    pub return_to: u64,
    /// What the lock lies in.
    pub structure: StructureKind,
    /// Which structure: see [`StructureKind`].
    pub place: u64,
    /// Distance of the lock from the start of the object, at most 65,535.
    pub offset: u32,
    /// How often it took one.
    pub acquires: u64,
    /// How often another had it.
    pub contended: u64,
    /// How long it was waited for then, sum.
    pub waited: u64,
    /// How long it was held, sum.
    pub held: u64,
}

/// A mode in a part of a region, of all CPUs together. Parts are equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileSlot {
    pub region: u32,
    /// The position of the mode in [`attribution::profile::Mode::ALL`].
    pub mode: u32,
    /// When it starts, in cycles since the region opened.
    pub start: u64,
    /// How long it is, in cycles.
    pub length: u64,
    /// Cycles in the mode.
    pub time: u64,
    /// Those of them that waited for instructions.
    pub fetch_stall: u64,
    /// Those that waited for data.
    pub data_stall: u64,
    /// Those that were lost in the pipeline otherwise.
    pub pipeline_stall: u64,
}

/// What one context executed of a sampled unit, in detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPart {
    pub cpu: u32,
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// The unit of the CPU, from 0 where the record started; units in which a region was not open have no
    /// parts.
    pub unit: u64,
}

numbered! {
    /// What [`ServiceMisses::count`] counts, and what [`ServiceMisses::key`] is.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum ServiceMissKind {
        /// Misses of a class. The key is 1 if a fully associative cache of the same size would have
        /// missed, too (capacity), 2 if not (conflict), and 0 where that is not known.
        Class = 0,
        /// Misses of lines that had been evicted, by the context that did; the key is its code.
        Evictor = 1,
        /// Misses by the code that made them: the key is an address of instructions, rounded.
        Code = 2,
        /// Misses by their data, and by class: the key is [`StructureName::place`].
        Data = 3,
        /// How long misses of L1 took, by the level that supplied the line. The key is its position
        /// among L1, L2, L3, another core's cache and memory.
        Wait = 4,
    }
}

numbered! {
    /// What [`StructureName::place`] is.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum StructureKind {
        /// What could not be read; 0.
        Unknown = 0,
        /// A variable of the kernel's image or of a module: its address, rounded to 64 bytes.
        Image = 1,
        /// A variable of the CPUs' own areas: its distance from the start, rounded likewise.
        PerCpu = 2,
        /// An object of a slab cache: the address of the cache.
        Slab = 3,
        /// The stack of a task: its process id.
        Stack = 4,
        /// User memory without a file: the process id of the task that used it, 0 if not known.
        Anonymous = 5,
        /// A page of a file: the address of the description of its file system's sort, 0 if not known.
        File = 6,
        /// Page tables; 0.
        PageTable = 7,
        /// The array of descriptions of pages; 0.
        PageArray = 8,
        /// The part of the addresses for memory that is mapped page by page, without tasks' stacks; 0.
        Vmalloc = 9,
        /// Memory that was reserved at boot, such as large hash tables; 0.
        Reserved = 10,
        /// Another page of the kernel; 0.
        KernelPage = 11,
        /// The CPUs' entry areas; 0.
        EntryArea = 12,
        /// Other user memory; 0.
        OtherUser = 13,
    }
}

/// Misses of a service, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceMisses {
    pub region: u32,
    /// In which cache, below [`CACHES`].
    pub cache: u32,
    /// What is counted.
    pub what: ServiceMissKind,
    /// The position of the class in [`machine::memory::MissClass::ALL`], for [`ServiceMissKind::Class`]
    /// and [`ServiceMissKind::Data`]; else 0.
    pub class: u32,
    /// The service: [`attribution::KernelContext::code`].
    pub code: u64,
    /// Kind of structure, for [`ServiceMissKind::Data`].
    pub structure: StructureKind,
    /// The object of the count: see [`ServiceMissKind`]; [`ELSEWHERE`] for all that have no row of their own.
    pub key: u64,
    pub count: u64,
    /// How long they took, sum, cycles, for [`ServiceMissKind::Wait`]; else 0.
    pub cycles: u64,
}

/// Misses of L1D by a service at a place of its code, of 8 bytes that lie in a line that another CPU had
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMisses {
    pub region: u32,
    /// Where the bytes lie.
    pub structure: StructureKind,
    /// Which structure: see [`StructureKind`].
    pub place: u64,
    /// Distance of the bytes from the start of the object.
    pub offset: u32,
    /// Their virtual address.
    pub address: u64,
    /// Code of the service.
    pub code: u64,
    /// An address of instructions, rounded.
    pub pc: u64,
    /// Bit N is set if CPU N missed.
    pub cpus: u32,
    /// Misses because another CPU had written these bytes.
    pub true_sharing: u32,
    /// Misses because another CPU had written other bytes of the coherence granule.
    pub false_sharing: u32,
}

/// The name of a structure: that of a slab cache, or of the type of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructureName {
    pub kind: StructureKind,
    pub place: u64,
    /// How many caches of the kernel share a slab cache, whose objects then are of several types; 1 for
    /// others, 0 if that is not known.
    pub shared_by: u32,
    /// Its name, padded with zeros.
    pub name: [u8; TEXT_BYTES_MAX],
}

/// All services of a region together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTotals {
    pub region: u32,
    /// Page faults as the kernel counts them: how often its memory management handled one.
    pub handled_faults: u64,
    /// Rows for which there was no room, and sums that do not add up. If it is not zero, the rows are
    /// wrong.
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
        /// A vCPU runs in a thread of its own: it cannot be counted. The record ends there.
        SecondThread = 4,
        /// QEMU's clock cannot be made to follow the model: guest time is uniform.
        NoModelTime = 5,
        /// QEMU exports no clock: the time for which a vCPU was halted is not known.
        NoClock = 6,
        /// The guest programs its PMU for an event that is not counted; the counter does not
        /// advance. The value is the event: number in bits 0 to 7 and 32 to 35, unit mask in 8 to
        /// 15, as in an event select.
        EventNotCounted = 7,
        /// QEMU's event loop cannot be driven: devices answer when the host gets to it, and no two
        /// runs are the same.
        DevicesNotDrained = 8,
        /// The block layer is not as expected, or a disk that was named is missing: disk requests
        /// are not delayed, and complete when the host gets to it. The value is the number of the
        /// disk, from 0.
        NoDisk = 9,
        /// QEMU does not export what is needed to interrupt the guest when a counter overflows.
        NoOverflows = 10,
        /// What devices write cannot be followed: caches keep lines that a device has written.
        NoDeviceWrites = 11,
        /// Descriptor tables cannot be found: what vCPUs read and write themselves when they enter
        /// handlers does not reach the caches.
        NoEntries = 12,
        /// Devices wrote more places between two blocks than are kept: caches keep the lines of the
        /// others. The value is the number of those writes.
        DeviceWritesLost = 13,
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
                "a disk's requests cannot be delayed: it is not repeatable and has no latency"
            }
            Notice::NoOverflows => {
                "this QEMU does not interrupt the guest when a counter overflows: no sampling"
            }
            Notice::NoDeviceWrites => {
                "this QEMU does not show what devices write: caches keep those lines"
            }
            Notice::NoEntries => {
                "this QEMU does not show descriptor tables: what a processor itself reads and \
                 writes when it enters a handler does not reach the caches"
            }
            Notice::DeviceWritesLost => {
                "devices wrote to more places between two blocks than are followed: caches keep lines \
                 of the others"
            }
        })
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// There is no such kind.
    Kind(u32),
    /// A field of a record of this kind has a value that is never written.
    Field(u32),
    /// The header is that of another program.
    Magic,
    /// The header is that of another version of the format.
    Version(u32),
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Kind(kind) => write!(out, "no record is of kind {kind}"),
            RecordError::Field(kind) => {
                write!(out, "a field of a record of kind {kind} is out of range")
            }
            RecordError::Magic => write!(out, "not a record of a simulated machine"),
            RecordError::Version(version) => {
                write!(out, "version {version} of the format; this is {FORMAT_VERSION}")
            }
        }
    }
}

impl std::error::Error for RecordError {}
