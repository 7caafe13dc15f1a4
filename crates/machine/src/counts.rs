//! What a machine counts.

/// Defines [`Counts`] from one list, so that fields, names and the vector agree.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was counted. All are sums since the start; a region of interest is the difference
        /// of two.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// The fields' names, in their order.
            pub const NAMES: [&str; Self::LEN] = [$(stringify!($name)),*];
            /// How many fields there are.
            pub const LEN: usize = [$(stringify!($name)),*].len();
        }

        impl From<Counts> for [u64; Counts::LEN] {
            fn from(counts: Counts) -> Self {
                [$(counts.$name),*]
            }
        }

        impl From<[u64; Counts::LEN]> for Counts {
            fn from([$($name),*]: [u64; Counts::LEN]) -> Self {
                Counts { $($name),* }
            }
        }
    };
}

counts! {
    /// Instructions.
    instructions,
    /// Cycles, waits included.
    cycles,
    /// Instruction lines fetched. Accesses to the line of the last fetch, one behind the other, are
    /// one fetch, as long as the page is the same too and the TLBs were not flushed in between.
    fetches,
    /// Loads: a line each.
    loads,
    /// Stores: a line each.
    stores,
    /// Fetches that were not in L1I.
    l1i_misses,
    /// Loads that were not in L1D.
    l1d_load_misses,
    /// Stores that were not in L1D.
    l1d_store_misses,
    /// Misses of L1I that were not in L2 either.
    l2_fetch_misses,
    /// Misses of L1D that were not in L2 either. Dirty lines that come from L1D are not among them.
    l2_data_misses,
    /// Dirty lines of L2 that left for memory.
    l2_writebacks,
    /// Fetches whose page was not in the instruction TLB.
    itlb_misses,
    /// Loads and stores whose page was not in the data TLB.
    dtlb_misses,
    /// Cycles waited for instructions.
    fetch_stall_cycles,
    /// Cycles waited for data, devices included.
    data_stall_cycles,
    /// Loads and stores that went past the caches to a device.
    device_accesses,
}

impl Counts {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut added = <[u64; Self::LEN]>::from(*self);
        for (count, before) in added.iter_mut().zip(<[u64; Self::LEN]>::from(*earlier)) {
            *count -= before;
        }
        added.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_has_the_order_of_the_names() {
        let counts =
            Counts { instructions: 1, l2_writebacks: 2, device_accesses: 3, ..Counts::default() };
        let vector: [u64; Counts::LEN] = counts.into();
        let named =
            |name: &str| vector[Counts::NAMES.iter().position(|other| *other == name).unwrap()];
        assert_eq!((named("instructions"), named("l2_writebacks")), (1, 2));
        assert_eq!((named("device_accesses"), vector.iter().sum::<u64>()), (3, 6));
        assert_eq!(Counts::from(vector), counts);
        assert_eq!(size_of::<Counts>(), Counts::LEN * 8);
    }

    #[test]
    fn a_region_is_a_difference() {
        let earlier = Counts { cycles: 3, loads: 1, ..Counts::default() };
        let later = Counts { cycles: 10, loads: 1, stores: 2, ..Counts::default() };
        let expected = Counts { cycles: 7, stores: 2, ..Counts::default() };
        assert_eq!(later.since(&earlier), expected);
    }
}
