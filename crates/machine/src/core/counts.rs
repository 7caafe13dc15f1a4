//! What a core counts.

/// What was counted. All are sums since the start; a region is the difference of two.
///
/// A cycle has as many slots as the core is wide. Each is taken by an instruction that graduates, lost
/// by one of the causes, or open: of the last cycle, in which more may graduate. So
/// [`CoreCounts::instructions`] and all `_slots` add up to `cycles` times the width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    /// Cycles until the last instruction that graduated.
    pub cycles: u64,
    /// Instructions.
    pub instructions: u64,
    /// Slots lost as nothing was there, and a line of instructions was waited for.
    pub fetch_stall_slots: u64,
    /// Slots lost to a load or store that missed.
    pub data_stall_slots: u64,
    /// Slots lost for any other reason: dependences, branches that were not foreseen, and so on.
    pub pipeline_stall_slots: u64,
    /// Slots that went to other threads of the core.
    pub shared_slots: u64,
    /// Slots of the last cycle that nothing has taken yet.
    pub open_slots: u64,
    /// Branches.
    pub branches: u64,
    /// Branches that were not foreseen.
    pub mispredicted_branches: u64,
    /// Taken branches whose target was not known before they were decoded.
    pub btb_misses: u64,
    /// Accesses that load.
    pub loads: u64,
    /// Accesses that store.
    pub stores: u64,
    /// Loads that waited for a line.
    pub load_misses: u64,
    /// Stores that waited for a line.
    pub store_misses: u64,
    /// Loads that took their value from a store before them.
    pub forwarded_loads: u64,
    /// Lines of instructions that were waited for.
    pub fetch_misses: u64,
    /// Interrupts and exceptions.
    pub interrupts: u64,
}

impl CoreCounts {
    /// All slots: as many as the cycles have, on a core of that width.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.instructions
            + self.fetch_stall_slots
            + self.data_stall_slots
            + self.pipeline_stall_slots
            + self.shared_slots
            + self.open_slots
    }
}
