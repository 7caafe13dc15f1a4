//! The counts of a machine. The plugin reads them at the start and at the end of each recorded region.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// A number of executed instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Instructions(pub u64);

impl From<u32> for Instructions {
    #[inline(always)]
    fn from(number: u32) -> Instructions {
        Instructions(number.into())
    }
}

impl Add for Instructions {
    type Output = Instructions;

    #[inline(always)]
    fn add(self, added: Instructions) -> Instructions {
        Instructions(self.0 + added.0)
    }
}

impl AddAssign for Instructions {
    #[inline(always)]
    fn add_assign(&mut self, added: Instructions) {
        self.0 += added.0;
    }
}

impl Sub for Instructions {
    type Output = Instructions;

    #[inline(always)]
    fn sub(self, subtracted: Instructions) -> Instructions {
        Instructions(self.0 - subtracted.0)
    }
}

impl Sum for Instructions {
    fn sum<I: Iterator<Item = Instructions>>(numbers: I) -> Instructions {
        numbers.fold(Instructions::default(), Add::add)
    }
}

/// Defines [`Counts`] from one list, so that fields, names and the array agree. Their order is public.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counts of a machine. All are sums since the start; the counts of a region are the difference of two
        /// readings.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// The names of the fields, in their order.
            pub const NAMES: [&str; Self::LEN] = [$(stringify!($name)),*];
            /// The number of fields.
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
    instructions,
    /// Cycles, stalls included.
    cycles,
    /// Fetched instruction lines. Consecutive accesses to a line are one fetch, unless the page differs or the TLBs
    /// were flushed in between.
    fetches,
    /// Loads, one for each line that an instruction loads from.
    loads,
    /// Stores, one for each line that an instruction stores to.
    stores,
    /// Fetches that missed L1I.
    l1i_misses,
    /// Loads that missed L1D.
    l1d_load_misses,
    /// Stores that missed L1D.
    l1d_store_misses,
    /// Misses of L1I that also missed L2.
    l2_fetch_misses,
    /// Misses of L1D that also missed L2, without write-backs of L1D.
    l2_data_misses,
    /// Dirty lines that L2 wrote back.
    l2_writebacks,
    /// Fetches that missed the instruction TLB.
    itlb_misses,
    /// Loads and stores that missed the data TLB.
    dtlb_misses,
    /// Cycles that the processor waited for instructions.
    fetch_stall_cycles,
    /// Cycles that the processor waited for data, devices included.
    data_stall_cycles,
    /// Loads and stores of devices, which bypass the caches.
    device_accesses,
    /// Cycles that page walks for instructions took. In a blocking processor they are a part of `fetch_stall_cycles`;
    /// other processors hide some of them.
    fetch_walk_cycles,
    /// Cycles that page walks for data took. In a blocking processor they are a part of `data_stall_cycles`; other
    /// processors hide some of them.
    data_walk_cycles,
}

impl Counts {
    /// The counts since the reading `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut difference = <[u64; Self::LEN]>::from(*self);
        for (count, before) in difference.iter_mut().zip(<[u64; Self::LEN]>::from(*earlier)) {
            *count -= before;
        }
        difference.into()
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
        let named = |name: &str| {
            vector[Counts::NAMES.iter().position(|candidate| *candidate == name).unwrap()]
        };
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
