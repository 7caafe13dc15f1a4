//! What a bench hands in of cache misses: of each service by class, evictor, code and data, and how long
//! they took.

use super::class::Class;

/// Names of the classes of misses, in the order of [`MissRow::classes`].
pub const CLASSES: [&str; 7] =
    ["cold", "self", "other", "true_sharing", "false_sharing", "device", "untracked"];

/// A service, as rows of misses name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    pub class: Class,
    pub name: String,
}

/// Misses of a service in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissRow {
    pub service: ServiceName,
    /// The cache: L1I, L1D, L2 or L3.
    pub cache: String,
    /// Misses by class, in the order of [`CLASSES`].
    pub classes: [u64; CLASSES.len()],
    /// Those of evicted lines that a fully associative cache would have had, too.
    pub capacity: u64,
    /// Those that it would not have had.
    pub conflict: u64,
}

/// Misses of a service in a cache by something else: the evictor of the line, or the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissPart {
    pub service: ServiceName,
    pub cache: String,
    pub by: String,
    pub count: u64,
}

/// Misses of a service in a cache by their data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataMisses {
    pub service: ServiceName,
    pub cache: String,
    /// Kind of structure, such as `slab`.
    pub kind: String,
    /// The structure, such as the name of the slab cache; absent where the sort says all that is known.
    pub structure: Option<String>,
    /// Misses by class, in the order of [`CLASSES`].
    pub classes: [u64; CLASSES.len()],
}

/// How long misses of L1 took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissWait {
    pub service: ServiceName,
    /// Whether they are instruction fetches.
    pub is_fetch: bool,
    /// What supplied the line: a level, another core's cache, memory.
    pub level: String,
    pub count: u64,
    /// Sum of the times that the lines took.
    pub wait_ticks: u64,
}

/// Misses of 8 bytes that lie in a line that another CPU had written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLine {
    pub service: ServiceName,
    /// Kind of structure.
    pub kind: String,
    /// The structure, with the member or the distance from its start.
    pub structure: Option<String>,
    /// Virtual address of the bytes.
    pub address: u64,
    /// The function that missed.
    pub function: String,
    /// The CPUs that missed, a bit each.
    pub cpus: u32,
    /// Misses because another CPU had written these bytes.
    pub true_sharing: u64,
    /// Misses because another CPU had written other bytes of the line.
    pub false_sharing: u64,
}

/// All tables of misses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissSample {
    /// By service, cache and class.
    pub rows: Vec<MissRow>,
    /// By the context that had evicted the line.
    pub evictors: Vec<MissPart>,
    pub functions: Vec<MissPart>,
    pub data: Vec<DataMisses>,
    /// How long they took.
    pub waits: Vec<MissWait>,
    /// Misses of lines that CPUs share.
    pub shared: Vec<SharedLine>,
    /// Length of a line of L1D, bytes.
    pub line_bytes: u64,
}
