//! What the record holds of annotations.

/// What came of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoteRow {
    /// The CPU.
    pub cpu: u32,
    /// The region.
    pub region: u32,
    /// The annotation's position in the list.
    pub note: u32,
    /// How often the CPU came to it.
    pub hits: u64,
    /// Spans that could not be opened or closed, of all CPUs; with CPU 0 only.
    pub refused: u64,
}

/// What values tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuesSort {
    /// How often just these were recorded in the region.
    Count = 0,
    /// How often others than those that are told were.
    Others = 1,
    /// When they were recorded: one hit.
    Hit = 2,
}

/// Values that an annotation has recorded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// The CPU of a hit; 0 for what all CPUs have recorded.
    pub cpu: u32,
    /// The region.
    pub region: u32,
    /// The annotation's position in the list.
    pub note: u32,
    /// The position of what it does at which they were recorded.
    pub deed: u32,
    /// What they tell.
    pub sort: ValuesSort,
    /// How often; of a hit when, in cycles of its CPU's time.
    pub number: u64,
}
