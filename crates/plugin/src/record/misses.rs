//! Records of misses: why, for whom, and where.

/// What [`MissCount::key`] is, and what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissSort {
    /// Misses of a class: the class in the order of [`machine::memory::MissClass::ALL`], and 256 if user mode
    /// missed.
    Class = 0,
    /// Of lines that had left for others: 0 if a fully associative cache of the size would have missed
    /// them, too, 1 if not.
    Ways = 1,
    /// Of the same: for whom they had left, as the code of a context: user mode (without its task), an
    /// interrupt or softirq, or all else of the kernel ([`attribution::KernelContext::Unknown`]).
    Evictor = 2,
    /// Misses by where they were made: the address of a block of instructions and a bit more.
    Code = 3,
    /// Misses by the data: the address of 64 bytes.
    Data = 4,
    /// Misses, of all caches, that are in no [`MissSort::Code`] and no [`MissSort::Data`].
    NotKept = 5,
}

impl MissSort {
    /// All of them, in the order of their numbers.
    pub const ALL: [MissSort; 6] = [
        MissSort::Class,
        MissSort::Ways,
        MissSort::Evictor,
        MissSort::Code,
        MissSort::Data,
        MissSort::NotKept,
    ];
}

/// [`MissCount::key`] of all places that have no row of their own.
pub const ELSEWHERE: u64 = u64::MAX;

/// How often lines were missed, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissCount {
    /// The region.
    pub region: u32,
    /// In which cache: L1I, L1D, L2, L3 from 0.
    pub cache: u32,
    /// What is counted.
    pub sort: MissSort,
    /// Of what.
    pub key: u64,
    /// How often.
    pub count: u64,
}
