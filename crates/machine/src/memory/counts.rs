//! What a memory system counts of each processor.

use crate::counts::Counts;

/// Defines the counts from one list, so that fields, names and the vector agree.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of a processor. All are sums since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CpuCounts {
            /// What a machine with blocking caches counts, too. `l2_writebacks` are the dirty lines that
            /// left the last private level, or the only one.
            pub basic: Counts,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CpuCounts {
            /// Names of all but the basic counts.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// All but the basic counts, in the order of their names.
            #[must_use]
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }
        }
    };
}

counts! {
    /// L2 misses that were not in L3 either, of fetches, loads and stores; none without an L3.
    l3_misses,
    /// Lines that were read from memory, prefetched ones and tables among them.
    memory_reads,
    /// Dirty lines that were written to memory.
    memory_writes,
    /// Misses of the first TLB that were in the second.
    stlb_hits,
    /// Loads of page tables.
    walk_loads,
    /// Stores to lines that others had, too: these had to give them up.
    upgrades,
    /// Misses that another core's cache served.
    cache_to_cache,
    /// Lines of its caches that others' stores took away.
    invalidated,
    /// Lines of its caches that had to leave because they left a level that includes them.
    back_invalidated,
    /// Lines that were prefetched.
    prefetches,
    /// Prefetched lines that were asked for later.
    prefetches_used,
    /// Cycles that misses waited for a register.
    mshr_wait_cycles,
    /// Cycles that misses waited for the way to memory.
    bus_wait_cycles,
}
