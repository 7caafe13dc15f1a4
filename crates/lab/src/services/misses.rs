//! Cache misses of services, by class, evictor, function and data, with times. Only the simulated bench measures them.
//! The tables of `services` and `handlers` show them.

use super::class::Class;

/// Names of the classes of misses, in the order of [`MissRow::classes`]. They are parts of columns' names.
/// `class_columns` in `tables/misses.rs` explains each class.
pub const CLASSES: [&str; 7] =
    ["cold", "self", "other", "true_sharing", "false_sharing", "device", "untracked"];

/// The service that missed.
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
    /// Misses of evicted lines that a fully associative cache would have, too.
    pub capacity: u64,
    /// Misses of evicted lines that a fully associative cache would not have.
    pub conflict: u64,
}

/// Misses of a service in a cache with one value of a second key: the evictor of the line, the function that missed, or
/// the data structure in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedMisses<Key> {
    pub service: ServiceName,
    pub cache: String,
    pub key: Key,
    /// Misses by class, in the order of [`CLASSES`].
    pub classes: [u64; CLASSES.len()],
}

/// A data structure in a line that missed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StructureName {
    /// Kind of structure, such as `slab`.
    pub kind: String,
    /// The structure, such as the name of the slab cache. `None` if only the kind is known.
    pub name: Option<String>,
}

/// Times of the misses of L1 that one level supplied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissWait {
    pub service: ServiceName,
    /// Whether the misses are instruction fetches.
    pub is_fetch: bool,
    /// The supplier of the line: a cache level, another core's cache, or memory.
    pub level: String,
    pub count: u64,
    /// Total time until the lines arrived, in ticks of [`super::ServicesSample::ticks_hz`].
    pub wait_ticks: u64,
}

/// Misses of the same 8 bytes by one function of a service, because another CPU had written to the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLine {
    pub service: ServiceName,
    pub kind: String,
    /// The structure, with the member or the offset of the bytes. `None` if it is unknown.
    pub structure: Option<String>,
    /// Virtual address of the bytes. `None`: the sum of all bytes of the service that were not recorded one by one.
    pub address: Option<u64>,
    /// The function that missed.
    pub function: String,
    /// A bit mask of the CPUs that missed.
    pub cpus: u32,
    /// Misses because another CPU had written these bytes.
    pub true_sharing: u64,
    /// Misses because another CPU had written other bytes of the line.
    pub false_sharing: u64,
}

/// The data of all tables of misses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissSample {
    /// Misses of each service and cache by class.
    pub rows: Vec<MissRow>,
    /// Misses of evicted lines, by the context that had evicted the line.
    pub evictors: Vec<KeyedMisses<String>>,
    pub functions: Vec<KeyedMisses<String>>,
    pub data: Vec<KeyedMisses<StructureName>>,
    pub waits: Vec<MissWait>,
    /// Misses of lines that several CPUs use.
    pub shared: Vec<SharedLine>,
    /// Length of a coherence line in bytes: CPUs take all of it from each other at once. L1D can have shorter lines.
    pub line_bytes: u64,
}
