//! The events that the guest can select, by the numbers and unit masks of AMD's family 17h and of Intel's Golden Cove.
//! docs/guest-pmu.md has the same tables, which a test checks.

use machine::identity::Vendor;

/// An event that a counter can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Instructions,
    Cycles,
    /// Executed cycles at the rate of the guest's TSC.
    ReferenceCycles,
    Branches,
    BranchMisses,
    /// Cycles without an instruction from the front end.
    FetchStallCycles,
    /// Cycles with an instruction that waits for data.
    DataStallCycles,
    L1dAccesses,
    L1dMisses,
    L1iAccesses,
    L1iMisses,
    L2Accesses,
    L2Misses,
    /// Accesses of the last level of caches: misses of the level before it.
    LastLevelAccesses,
    /// Misses of the last level of caches.
    LastLevelMisses,
    /// Lines that were prefetched into L1D.
    L1dPrefetches,
    /// Misses of the first level of the data TLB.
    DtlbL1Misses,
    /// Walks of the page table for data.
    DtlbMisses,
    /// Misses of the instruction TLB's first level that hit the second.
    ItlbL2Hits,
    /// Walks of the page table for instructions.
    ItlbMisses,
    Loads,
    Stores,
    L1dLoadMisses,
    L1dStoreMisses,
    L2FetchMisses,
    L2DataMisses,
    /// Lines that L2 wrote back.
    L2Writebacks,
    /// Loads and stores that went to a device.
    DeviceAccesses,
    Interrupts,
    Exceptions,
}

/// An event number of 12 bits, a unit mask, and the event that they select.
type Row = (u16, u8, Event);

/// Events of family 17h that Linux uses for its generic events and its cache events
/// (arch/x86/events/amd/core.c, 6.1), and the events of loads and stores.
const FAMILY_17H: [Row; 20] = [
    (0x076, 0x00, Event::Cycles),
    (0x0c0, 0x00, Event::Instructions),
    (0x060, 0xff, Event::L2Accesses),
    (0x064, 0x09, Event::L2Misses),
    (0x0c2, 0x00, Event::Branches),
    (0x0c3, 0x00, Event::BranchMisses),
    (0x087, 0x02, Event::FetchStallCycles),
    (0x087, 0x01, Event::DataStallCycles),
    (0x040, 0x00, Event::L1dAccesses),
    (0x060, 0xc8, Event::L1dMisses),
    (0x05a, 0xff, Event::L1dPrefetches),
    (0x080, 0x00, Event::L1iAccesses),
    (0x081, 0x00, Event::L1iMisses),
    (0x045, 0xff, Event::DtlbL1Misses),
    (0x045, 0xf0, Event::DtlbMisses),
    (0x084, 0x00, Event::ItlbL2Hits),
    (0x085, 0xff, Event::ItlbMisses),
    (0x029, 0x01, Event::Loads),
    (0x029, 0x02, Event::Stores),
    (0x02c, 0x00, Event::Interrupts),
];

/// Intel's architectural events (SDM volume 3, 20.2.1.2), and events of Golden Cove that Linux uses for its cache events
/// (arch/x86/events/intel/core.c, 6.1) or irqlab for misses of L2. Walks for data are missing: Golden Cove counts the
/// walks of loads and of stores apart, and models count them together.
const GOLDEN_COVE: [Row; 15] = [
    (0x03c, 0x00, Event::Cycles),
    (0x0c0, 0x00, Event::Instructions),
    (0x03c, 0x01, Event::ReferenceCycles),
    (0x02e, 0x4f, Event::LastLevelAccesses),
    (0x02e, 0x41, Event::LastLevelMisses),
    (0x0c4, 0x00, Event::Branches),
    (0x0c5, 0x00, Event::BranchMisses),
    (0x0c4, 0x04, Event::Branches),
    (0x0c5, 0x04, Event::BranchMisses),
    (0x0d0, 0x81, Event::Loads),
    (0x0d0, 0x82, Event::Stores),
    (0x024, 0xe1, Event::L1dLoadMisses),
    (0x024, 0xe4, Event::L1iMisses),
    (0x024, 0x3f, Event::L2Misses),
    (0x011, 0x0e, Event::ItlbMisses),
];

/// The simulator's own events on Intel, under a number that Golden Cove does not use.
const RAW_INTEL: [Row; 14] = [
    (0x0fe, 0x00, Event::Loads),
    (0x0fe, 0x01, Event::Stores),
    (0x0fe, 0x02, Event::L1dLoadMisses),
    (0x0fe, 0x03, Event::L1dStoreMisses),
    (0x0fe, 0x04, Event::L2FetchMisses),
    (0x0fe, 0x05, Event::L2DataMisses),
    (0x0fe, 0x06, Event::L2Writebacks),
    (0x0fe, 0x07, Event::DeviceAccesses),
    (0x0fe, 0x08, Event::Interrupts),
    (0x0fe, 0x09, Event::Exceptions),
    (0x0fe, 0x0a, Event::FetchStallCycles),
    (0x0fe, 0x0b, Event::DataStallCycles),
    (0x0fe, 0x0c, Event::L1iAccesses),
    (0x0fe, 0x0d, Event::DtlbL1Misses),
];

/// The simulator's own events on AMD, in a range where no processor has events. The low byte stays below 0xe0, because
/// kernels take higher numbers for events of the northbridge.
const RAW_AMD: [Row; 10] = [
    (0xf00, 0x00, Event::Loads),
    (0xf01, 0x00, Event::Stores),
    (0xf02, 0x00, Event::L1dLoadMisses),
    (0xf03, 0x00, Event::L1dStoreMisses),
    (0xf04, 0x00, Event::L2FetchMisses),
    (0xf05, 0x00, Event::L2DataMisses),
    (0xf06, 0x00, Event::L2Writebacks),
    (0xf07, 0x00, Event::DeviceAccesses),
    (0xf08, 0x00, Event::Interrupts),
    (0xf09, 0x00, Event::Exceptions),
];

/// The rows of a vendor's processor: the processor's events, then the simulator's events.
fn rows_of(vendor: Vendor) -> impl Iterator<Item = &'static Row> {
    let (processor, simulator): (&[Row], &[Row]) = match vendor {
        Vendor::Amd => (&FAMILY_17H, &RAW_AMD),
        Vendor::Intel => (&GOLDEN_COVE, &RAW_INTEL),
    };
    processor.iter().chain(simulator)
}

/// The event of a number and a unit mask, or `None` if the plugin does not know it.
pub(crate) fn event_of(vendor: Vendor, number: u16, mask: u8) -> Option<Event> {
    rows_of(vendor).find(|row| (row.0, row.1) == (number, mask)).map(|row| row.2)
}

impl Event {
    /// The most events per cycle that are assumed. It bounds how soon a counter can overflow, and so when the plugin
    /// checks the counter. If a model has more events per cycle, an overflow is reported late. `instructions_max`: the
    /// most instructions per cycle.
    pub(crate) fn per_cycle_max(self, instructions_max: u64) -> u64 {
        match self {
            Event::Cycles => 1,
            Event::Instructions | Event::Branches | Event::BranchMisses => instructions_max,
            _ => 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_means_two_things() {
        for vendor in [Vendor::Amd, Vendor::Intel] {
            for row in rows_of(vendor) {
                let has_same_number =
                    |candidate: &&Row| (candidate.0, candidate.1) == (row.0, row.1);
                assert_eq!(rows_of(vendor).filter(has_same_number).count(), 1, "{row:x?}");
                assert_eq!(event_of(vendor, row.0, row.1), Some(row.2));
            }
        }
    }

    #[test]
    fn the_simulators_own_numbers_are_in_a_free_range() {
        for (number, mask, _) in RAW_AMD {
            assert!((0xf00..0xfff).contains(&number) && number & 0xff < 0xe0 && mask == 0);
        }
    }

    #[test]
    fn what_is_not_in_the_table_means_nothing() {
        assert_eq!(event_of(Vendor::Amd, 0x0c0, 1), None);
        assert_eq!(event_of(Vendor::Amd, 0x003, 0xff), None);
        assert_eq!(event_of(Vendor::Amd, 0x03c, 0), None);
        assert_eq!(event_of(Vendor::Intel, 0x076, 0), None);
    }

    #[test]
    fn the_table_in_the_docs_is_this_one() {
        let page = include_str!("../../../../docs/guest-pmu.md");
        let rows = rows_of(Vendor::Amd).chain(rows_of(Vendor::Intel));
        for (number, mask, event) in rows {
            let row = format!("| `{number:03x}` | `{mask:02x}` | `{event:?}` |");
            assert!(page.contains(&row), "docs/guest-pmu.md lacks {row}");
        }
    }
}
