//! The record: what the plugin writes, as records of one size. docs/plugin.md is its description.
//!
//! A record is [`BYTES`] long: the kind and a CPU as 32-bit numbers, then seven 64-bit numbers, all
//! little-endian.

mod beside;
mod misses;

use std::fmt;

use crate::notes::Value;
pub use crate::notes::{NoteRow, Values, ValuesSort};
use crate::options::{Detail, Roi};

pub use beside::{Beside, Curve, Group, Stream};
pub use misses::{ELSEWHERE, MissCount, MissSort};

/// Length of a record.
pub const BYTES: usize = 64;
/// The most records of a stream: a guest that marks without end fills no disk.
pub const RECORDS_MAX: u64 = 1 << 22;
/// First number of the header: "irqlabrc".
pub const MAGIC: u64 = u64::from_le_bytes(*b"irqlabrc");
/// Version of the format. It changes when a record changes its meaning.
pub const FORMAT_VERSION: u32 = 3;

/// Bit of [`Header::features`]: contexts are told apart (symbols were given).
pub const FEATURE_CONTEXTS: u32 = 1;
/// Bit of [`Header::features`]: tasks have process ids and names (offsets were given).
pub const FEATURE_TASKS: u32 = 2;
/// Bit of [`Header::features`]: vCPUs run in slices of [`Header::quantum`] instructions.
pub const FEATURE_SLICES: u32 = 4;
/// Bit of [`Header::features`]: guest time advances by the model's cycles.
pub const FEATURE_MODEL_TIME: u32 = 8;
/// Bit of [`Header::features`]: time for which a vCPU was halted is known.
pub const FEATURE_HALTED: u32 = 16;

/// Bit of [`Header::features`]: the guest has a PMU, for which the plugin writes registers.
pub const FEATURE_PMU: u32 = 32;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record.
    Header(Header),
    /// The guest executed a marker. Counters follow.
    Marker(Marker),
    /// A region of interest, or the part of it up to a snapshot, on one CPU. Counters follow, then
    /// its contexts.
    Region(Region),
    /// One context in the region before, on the same CPU. Own and inclusive counters follow.
    Context(ContextRow),
    /// The name of a task.
    Task(Task),
    /// Something that `sim` should tell: see [`Notice`].
    Notice(Notice, u32, u64),
    /// Two counts of the same instructions.
    Check(Check),
    /// The last record. A stream without it is incomplete.
    End(End),
    /// Counters of the record before.
    Amounts(Amounts),
    /// A span of hardware or of a function that is followed, which ended.
    Span(Span),
    /// Another context is on top of a CPU's stack.
    Turn(Turn),
    /// A counter of the guest's kernel at the edge of a region.
    KernelCount(KernelCount),
    /// The name of an IRQ line's first action.
    IrqName(IrqName),
    /// What came of an annotation in a region, on one CPU. On CPU 0 what it has recorded follows
    /// those of all CPUs.
    Note(NoteRow),
    /// Values that an annotation has recorded together. They follow, but for
    /// [`ValuesSort::Others`].
    Values(Values),
    /// One of the values of the record before.
    Value(Value),
    /// What caches beside have counted in a region. Counters follow.
    Beside(Beside),
    /// What a cache beside, of one of all sizes, has missed in a region.
    Curve(Curve),
    /// Misses of a region.
    Misses(MissCount),
}

/// What was recorded, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many vCPUs there are.
    pub cpus: u32,
    /// The version of QEMU's plugin API.
    pub api: u32,
    /// How much is recorded.
    pub detail: Detail,
    /// Where the region of interest begins.
    pub roi: Roi,
    /// Instructions of a slice.
    pub quantum: u64,
    /// QEMU's version: ASCII, filled up with zeros.
    pub qemu: [u8; 16],
    /// Bits `FEATURE_*`.
    pub features: u32,
    /// Bit N is set if counter N ([`crate::counters`]) is counted.
    pub counters: u32,
}

/// A marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The vCPU that executed it.
    pub cpu: u32,
    /// Its number.
    pub number: u32,
    /// The guest's argument.
    pub argument: u64,
    /// Whether the region of interest is open behind it.
    pub open: bool,
    /// Interrupts that the CPU took since the record began.
    pub interrupts: u64,
    /// Exceptions that it took.
    pub exceptions: u64,
}

/// A region of interest on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The CPU.
    pub cpu: u32,
    /// Counts regions from 1.
    pub region: u32,
    /// Interrupts and exceptions since the record began to whose handler no symbol belongs.
    pub unknown_gates: u64,
    /// Returns inside the kernel that match no entry, since the record began.
    pub unmatched_returns: u64,
    /// Contexts that ended otherwise than by their own return, since the record began.
    pub abandoned: u64,
    /// Entries not followed because too many were nested, since the record began.
    pub overflows: u64,
    /// Events out of order or on the wrong CPU, tasks and contexts beyond the limits, sums that
    /// don't close. Not zero: the rows are broken.
    pub broken: u64,
    /// When the region was opened, in cycles on this CPU's time axis: that of [`Span::began`].
    pub opened_at: u64,
}

/// A context in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextRow {
    /// The CPU.
    pub cpu: u32,
    /// The region.
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// As in [`attribution::Row`].
    pub entries: u64,
    /// As in [`attribution::Row`].
    pub completed: u64,
}

/// How many counters one record holds.
pub const AMOUNTS: usize = 6;

/// Whose counters these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountsOf {
    /// Of the CPU at a marker, since the record began: what was executed before it.
    Marker = 0,
    /// Of the region. The contexts' own ones sum up to these, or the record is broken.
    Region = 1,
    /// [`attribution::Row::own`].
    Own = 2,
    /// [`attribution::Row::inclusive`].
    Inclusive = 3,
    /// Of caches beside.
    Beside = 4,
}

/// Some of the counters of the record before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    /// The CPU.
    pub cpu: u32,
    /// Whose they are.
    pub of: AmountsOf,
    /// The position of the first.
    pub first: u32,
    /// The counters from there on; zero beyond the last one.
    pub values: [u64; AMOUNTS],
}

/// A span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The CPU on which it ended.
    pub cpu: u32,
    /// The region.
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// When it began, on the time axis of the CPU that it began on, in cycles since the record
    /// began.
    pub began: u64,
    /// Cycles that it used itself.
    pub own_cycles: u64,
    /// Cycles with what was nested inside.
    pub inclusive_cycles: u64,
    /// Instructions that it executed itself.
    pub own_instructions: u64,
    /// Instructions with what was nested inside.
    pub inclusive_instructions: u64,
}

/// Another context is on top of a CPU's stack, from the opening of a region on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The CPU.
    pub cpu: u32,
    /// The region.
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// That of the task at the foot of the stack.
    pub foot: u64,
    /// When, in cycles on this CPU's time axis: that of [`Span::began`].
    pub at: u64,
    /// The cycles among them in which it executed.
    pub cycles: u64,
    /// What the CPU would have read of its time-stamp counter then.
    pub tsc: u64,
}

/// What the guest's kernel has counted itself, read from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCount {
    /// The CPU whose count it is.
    pub cpu: u32,
    /// The region.
    pub region: u32,
    /// Whether it was read where the region closed; else where it opened.
    pub at_close: bool,
    /// What is counted: [`attribution::KernelContext::code`] of an interrupt, IRQ or softirq.
    pub code: u64,
    /// The kernel's count, modulo 2^32 as the kernel has it.
    pub value: u64,
    /// Whether the CPU was inside of that context then: the kernel may have counted it or not.
    pub inside: bool,
}

/// Length of a name in [`IrqName`].
pub const IRQ_NAME_BYTES: usize = 32;

/// The name of an IRQ line's first action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqName {
    /// The line.
    pub irq: u32,
    /// The name as the kernel has it, cut off or filled up with zeros.
    pub name: [u8; IRQ_NAME_BYTES],
}

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its process id (of the thread).
    pub pid: u32,
    /// Its name as the kernel has it, filled up with zeros.
    pub comm: [u8; 16],
}

/// Instructions counted twice, since the record began.
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
    /// Whether the guest ended it by a marker. Otherwise QEMU ended; how far the guest ran on until
    /// then depends on the host.
    pub by_marker: bool,
    /// Whether an annotation ended it.
    pub by_annotation: bool,
    /// Whether records were left out because there were [`RECORDS_MAX`].
    pub truncated: bool,
    /// Instructions of all CPUs, if counted.
    pub instructions: Option<u64>,
    /// Records before this one.
    pub records: u64,
}

/// What may be said in a notice. The record holds the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// QEMU's `cpu_exit`, `qemu_get_cpu` or `current_cpu` don't behave as they must: nothing can be
    /// counted with several vCPUs. The record ends there.
    NoSlices = 1,
    /// QEMU exports no count of its own, so counts were not checked.
    NoIcount = 2,
    /// A register that annotations need can't be read: contexts are unknown.
    NoRegisters = 3,
    /// A vCPU runs in a thread of its own: it can't be counted. The record ends there.
    SecondThread = 4,
    /// QEMU's clock can't be made to follow the model: guest time is uniform.
    NoModelTime = 5,
    /// QEMU exports no clock: time for which a vCPU was halted is not known.
    NoClock = 6,
    /// The guest's PMU is asked for an event that is not counted; its counter stands still. The value
    /// is the event: number in bits 0 to 7 and 32 to 35, unit mask in 8 to 15, as in an event select.
    EventNotCounted = 7,
    /// QEMU's event loop can't be driven: devices answer when the host gets to it, and no two runs
    /// are the same.
    NotSettled = 8,
    /// The block layer is not as it must be, or a disk that was named is not there: requests of
    /// disks are not held back, and may complete when the host gets to it. The value is the number
    /// of the disk, from 0.
    NoDisk = 9,
    /// QEMU doesn't export what it takes to interrupt the guest when a counter runs over.
    NoOverflows = 10,
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Notice::NoSlices => {
                "this QEMU doesn't tell which vCPU runs, or can't be told to change it"
            }
            Notice::NoIcount => "this QEMU exports no instruction count to check against",
            Notice::NoRegisters => "registers of the guest can't be read: contexts are unknown",
            Notice::SecondThread => "vCPUs run in several threads; give -accel tcg,thread=single",
            Notice::NoModelTime => {
                "this QEMU's clock can't follow the model: guest time is uniform"
            }
            Notice::NoClock => "this QEMU exports no clock: halted time is not known",
            Notice::NotSettled => {
                "this QEMU's event loop can't be driven: devices aren't repeatable"
            }
            Notice::NoDisk => "a disk can't be settled: it is neither repeatable nor has a latency",
            Notice::EventNotCounted => {
                "the guest's PMU is asked for an event that is not counted; its counter stands still"
            }
            Notice::NoOverflows => {
                "this QEMU doesn't interrupt the guest when a counter runs over: no sampling"
            }
        })
    }
}

impl Notice {
    pub(crate) fn of(number: u64) -> Option<Notice> {
        [
            Notice::NoSlices,
            Notice::NoIcount,
            Notice::NoRegisters,
            Notice::SecondThread,
            Notice::NoModelTime,
            Notice::NoClock,
            Notice::NotSettled,
            Notice::NoDisk,
            Notice::EventNotCounted,
            Notice::NoOverflows,
        ]
        .into_iter()
        .find(|notice| *notice as u64 == number)
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// No such kind.
    Kind(u32),
    /// A field of a record of this kind has a value that is not written.
    Field(u32),
    /// A header of another program.
    Magic,
    /// A header of another version of the format.
    Version(u32),
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Kind(kind) => write!(out, "no record is of kind {kind}"),
            RecordError::Field(kind) => write!(out, "a field of a record of kind {kind} is wrong"),
            RecordError::Magic => write!(out, "not a record of a simulated machine"),
            RecordError::Version(version) => {
                write!(out, "version {version} of the format; this is {FORMAT_VERSION}")
            }
        }
    }
}

impl std::error::Error for RecordError {}
