//! The record: what the plugin writes, as records of one size. docs/plugin.md is its description.
//!
//! A record is [`BYTES`] long: the kind and a CPU as 32-bit numbers, then seven 64-bit numbers, all
//! little-endian.

use std::fmt;

use crate::options::{Detail, Roi};

/// Length of a record.
pub const BYTES: usize = 64;
/// The most records of a stream: a guest that marks without end fills no disk.
pub const RECORDS_MAX: u64 = 1 << 22;
/// First number of the header: "irqlabrc".
pub const MAGIC: u64 = u64::from_le_bytes(*b"irqlabrc");
/// Version of the format. It changes when a record changes its meaning.
pub const FORMAT_VERSION: u32 = 1;

/// Bit of [`Header::features`]: contexts are told apart (symbols were given).
pub const FEATURE_CONTEXTS: u64 = 1;
/// Bit of [`Header::features`]: tasks have process ids and names (offsets were given).
pub const FEATURE_TASKS: u64 = 2;
/// Bit of [`Header::features`]: vCPUs run in slices of [`Header::quantum`] instructions.
pub const FEATURE_SLICES: u64 = 4;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record.
    Header(Header),
    /// The guest executed a marker.
    Marker(Marker),
    /// A region of interest, or the part of it up to a snapshot, on one CPU. Its contexts follow.
    Region(Region),
    /// What one context used in the region before, on the same CPU.
    Context(ContextRow),
    /// The name of a task.
    Task(Task),
    /// Something that `sim` should tell: see [`Notice`].
    Notice(Notice, u32, u64),
    /// Two counts of the same instructions.
    Check(Check),
    /// The last record. A stream without it is incomplete.
    End(End),
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
    pub features: u64,
}

/// A marker, and the counters where it stands: what was executed before it.
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
    /// Counters, if the detail has any.
    pub counts: Option<MarkerCounts>,
}

/// Counters since the record began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerCounts {
    /// Instructions of the marker's CPU.
    pub instructions: u64,
    /// Instructions of all CPUs.
    pub instructions_total: u64,
    /// Interrupts that the marker's CPU took.
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
    /// Instructions executed in it. The contexts' own instructions sum up to this, or the record is
    /// broken.
    pub instructions: u64,
    /// Interrupts and exceptions since the record began to whose handler no symbol belongs.
    pub unknown_gates: u64,
    /// Returns inside the kernel that match no entry, since the record began.
    pub unmatched_returns: u64,
    /// Contexts that ended otherwise than by their own return, since the record began.
    pub abandoned: u64,
    /// Entries not followed because too many were nested, since the record began.
    pub overflows: u64,
    /// Events out of order or on the wrong CPU, tasks and contexts beyond the limits. Not zero: the
    /// rows are broken.
    pub broken: u64,
}

/// What a context used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextRow {
    /// The CPU.
    pub cpu: u32,
    /// The region.
    pub region: u32,
    /// [`attribution::KernelContext::code`].
    pub code: u64,
    /// As in [`attribution::Row`].
    pub own: u64,
    /// As in [`attribution::Row`].
    pub inclusive: u64,
    /// As in [`attribution::Row`].
    pub entries: u64,
    /// As in [`attribution::Row`].
    pub completed: u64,
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
        })
    }
}

impl Notice {
    pub(crate) fn of(number: u64) -> Option<Notice> {
        [Notice::NoSlices, Notice::NoIcount, Notice::NoRegisters, Notice::SecondThread]
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
