//! A check that holds for every region of a record.

use simrecord::counters::{COUNTERS, Counts};
use simrecord::parsed::CpuRegion;

/// Checks that every instruction, cycle and miss of a region belongs to one context, and that no record was
/// lost.
pub fn contexts_add_up(region: &CpuRegion) {
    let mut sums: Counts = [0; COUNTERS];
    for row in &region.contexts {
        (0..COUNTERS).for_each(|counter| sums[counter] += row.self_counts[counter]);
    }
    assert_eq!(sums, region.used, "{:?}", region.region);
    let region = region.region;
    assert_eq!((region.broken, region.overflows, region.abandoned), (0, 0, 0));
}
