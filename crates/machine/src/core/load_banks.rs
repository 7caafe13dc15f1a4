//! Banks of the L1 data cache: they limit how many loads may start in a cycle at the same offset of their lines. Only
//! the out-of-order core has them, for models with [`DataModel::bank_loads`](super::DataModel::bank_loads).

use super::Access;
use crate::cycle::Cycle;

/// Logarithm of the width of a bank in bytes. On a Golden Cove, three loads of 4 bytes at 0, 4 and 64 start
/// together; three loads at 0, 64 and 128 do not (measured, see `machines/emerald-rapids.toml`).
const BANK_SHIFT: u32 = 2;
const BANKS: usize = 16;

/// For each bank, the last cycle when a load started, and the number of loads in that cycle. Loads that start in an
/// earlier cycle, out of order, are not counted.
#[derive(Clone, Debug)]
pub(super) struct LoadBanks {
    /// Maximum number of loads per bank and cycle.
    loads_max: u32,
    last_starts: [(Cycle, u32); BANKS],
}

impl LoadBanks {
    pub(super) fn new(loads_max: u32) -> LoadBanks {
        LoadBanks { loads_max, last_starts: [(Cycle::START, 0); BANKS] }
    }

    /// Starts a load in this cycle, if its bank has room. Returns whether it has.
    #[inline]
    pub(super) fn take(&mut self, load: &Access, cycle: Cycle) -> bool {
        let bank = load.virtual_address.block_number(BANK_SHIFT) as usize % BANKS;
        let (last, number) = &mut self.last_starts[bank];
        if *last == cycle {
            *number += 1;
            return *number <= self.loads_max;
        }
        if *last < cycle {
            (*last, *number) = (cycle, 1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::VirtualAddress;

    #[test]
    fn loads_of_a_cycle_at_one_offset_of_lines_are_limited() {
        let mut banks = LoadBanks::new(2);
        let mut take = |address, cycle| {
            let virtual_address = VirtualAddress(address);
            let access =
                Access { virtual_address, physical: None, instruction: 0, bytes: 8, write: false };
            banks.take(&access, Cycle(cycle))
        };
        assert!(take(0x1000, 5) && take(0x2040, 5) && take(0x1004, 5));
        assert!(!take(0x1080, 5), "the third at the start of a line");
        assert!(take(0x1080, 6) && take(0x1000, 4), "in another cycle");
    }
}
