//! Services of the kernel, from the plugin's record.

use std::collections::BTreeMap;

use attribution::KernelContext;
use simrecord::counters::{Counts, TIME};
use simrecord::marker;
use simrecord::parsed::{MarkerCounts, ParsedServices};
use simrecord::record::{
    LockCounts, ProfileSlot, ServiceMisses, ServiceTime, SharedMisses, StructureKind,
};

use super::{RegionUse, add, context_of};
use crate::Result;

/// The services of a region, of all CPUs together. Times are in cycles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicesUse {
    /// The services, user mode and idle with them, in the order of contexts.
    pub services: Vec<ServiceUse>,
    /// For what tasks were blocked.
    pub waits: Vec<ServiceWaitUse>,
    /// How often the kernel's memory management handled a page fault, with those that it causes itself.
    pub handled_faults: u64,
    /// Those between the guest's readings of its kernel's counters and the region's edges: the kernel's count
    /// may be higher by this number.
    pub edge_faults: u64,
    /// Places of the kernel that take locks, each for each service, if they were requested.
    pub locks: Vec<LockCounts>,
    /// Addresses of the functions of system calls, by number.
    pub functions: BTreeMap<u32, u64>,
    /// What all CPUs together did over time: by start, then by mode.
    pub profile: Vec<ProfileSlot>,
    /// Misses, if they were requested.
    pub misses: Vec<ServiceMisses>,
    /// Misses of lines that other CPUs had written, likewise.
    pub shared: Vec<SharedMisses>,
    /// Names of structures, and how many caches of the kernel share each.
    pub structures: BTreeMap<(StructureKind, u64), (String, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUse {
    pub service: KernelContext,
    /// Requests that started in the region.
    pub requests: u64,
    /// Those of them that completed in it.
    pub completed: u64,
    /// Counters of the service itself.
    pub self_counts: Counts,
    /// Counters of completed requests with what was nested in them, without other tasks.
    pub inclusive: Counts,
    /// Cycles of the service itself in completed requests.
    pub computation_cycles: u64,
    /// Cycles for which their tasks were blocked.
    pub blocked_cycles: u64,
    /// Cycles for which their tasks could have run but did not.
    pub descheduled_cycles: u64,
    /// Completed requests by latency: lowest value of a bucket, and how many.
    pub latencies: BTreeMap<u64, u64>,
    /// Completed requests by computation, likewise.
    pub computations: BTreeMap<u64, u64>,
}

/// For what tasks were blocked in a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceWaitUse {
    pub service: KernelContext,
    /// What they waited for, by number: see [`plugin::guest::symbols::wait_name`].
    pub wait: u32,
    /// How often.
    pub count: u64,
    /// How long, in cycles.
    pub blocked_cycles: u64,
}

/// Collects the services by region; later records replace those of an earlier snapshot. What does not
/// add up goes to `broken`.
pub(super) fn services(
    parsed: &ParsedServices,
    markers: &[MarkerCounts],
    regions: &[RegionUse],
    broken: &mut Vec<String>,
) -> Result<BTreeMap<u32, ServicesUse>> {
    let mut rows: BTreeMap<(u32, u64), ServiceUse> = BTreeMap::new();
    for one in &parsed.rows {
        let row = &one.row;
        let used = ServiceUse {
            service: one.service,
            requests: row.requests,
            completed: row.completed,
            self_counts: one.self_counts,
            inclusive: one.inclusive,
            computation_cycles: row.computation,
            blocked_cycles: row.blocked,
            descheduled_cycles: row.descheduled,
            latencies: BTreeMap::new(),
            computations: BTreeMap::new(),
        };
        rows.insert((row.region, row.code), used);
    }
    for bucket in &parsed.buckets {
        if let Some(used) = rows.get_mut(&(bucket.region, bucket.code)) {
            let times = match bucket.time {
                ServiceTime::Latency => &mut used.latencies,
                ServiceTime::Computation => &mut used.computations,
            };
            times.insert(bucket.lowest, bucket.count);
        }
    }
    let mut services: BTreeMap<u32, ServicesUse> = BTreeMap::new();
    for ((region, _), used) in rows {
        services.entry(region).or_default().services.push(used);
    }
    let mut waits = BTreeMap::new();
    for wait in &parsed.waits {
        waits.insert((wait.region, wait.code, wait.wait), (wait.count, wait.blocked));
    }
    for ((region, code, wait), (count, blocked_cycles)) in waits {
        let service = context_of(code)?;
        let wait = ServiceWaitUse { service, wait, count, blocked_cycles };
        services.entry(region).or_default().waits.push(wait);
    }
    let mut places = BTreeMap::new();
    for place in &parsed.locks {
        let lock = (place.structure, place.place, place.offset);
        places.insert((place.region, place.kind, place.return_to, lock, place.code), *place);
    }
    for ((region, ..), place) in places {
        services.entry(region).or_default().locks.push(place);
    }
    for slot in &parsed.profile {
        let profile = &mut services.entry(slot.region).or_default().profile;
        let place = (slot.start, slot.mode);
        if profile.last().is_some_and(|last| (last.start, last.mode) >= place) {
            // That of an earlier snapshot, whose slots may have been shorter.
            profile.clear();
        }
        profile.push(*slot);
    }
    let mut misses = BTreeMap::new();
    for one in &parsed.misses {
        let of = (one.what, one.cache, one.code, one.class, one.structure, one.key);
        misses.insert((one.region, of), *one);
    }
    for ((region, _), one) in misses {
        services.entry(region).or_default().misses.push(one);
    }
    let mut shared = BTreeMap::new();
    for one in &parsed.shared {
        let of = (one.address, one.pc, one.code, one.structure, one.place, one.offset);
        shared.insert((one.region, of), *one);
    }
    for ((region, _), one) in shared {
        services.entry(region).or_default().shared.push(one);
    }
    let structures: BTreeMap<_, _> = parsed.structures.iter().cloned().collect();
    let functions = parsed.functions.iter().map(|one| (one.number, one.address));
    let functions: BTreeMap<u32, u64> = functions.collect();
    let edges = edge_faults(markers, regions.len());
    for totals in &parsed.totals {
        let used = services.entry(totals.region).or_default();
        used.handled_faults = totals.handled_faults;
        used.edge_faults = edges.get(&totals.region).copied().unwrap_or(0);
        used.functions.clone_from(&functions);
        used.structures.clone_from(&structures);
        if totals.broken > 0 {
            broken.push(format!(
                "services: {} rows without room or sums that are wrong",
                totals.broken
            ));
        }
    }
    for (region, used) in &services {
        let region = regions.get((*region as usize).wrapping_sub(1));
        let Some(region) = region else { continue };
        let (mut sum, mut whole) = (Counts::default(), Counts::default());
        used.services.iter().for_each(|service| add(&mut sum, &service.self_counts));
        region.cpus.iter().for_each(|cpu| add(&mut whole, &cpu.used));
        if sum != whole {
            broken.push("the counters of services do not add up to those of the CPUs".to_owned());
        }
        let in_profile: u64 = used.profile.iter().map(|slot| slot.time).sum();
        if in_profile != whole[TIME] {
            broken.push("the times of the profile do not add up to those of the CPUs".to_owned());
        }
    }
    Ok(services)
}

/// Page faults between a reading of the kernel's counters and the edge of a region next to it, by region.
/// Readings are marked by the guest; a region without them has no row.
fn edge_faults(markers: &[MarkerCounts], regions: usize) -> BTreeMap<u32, u64> {
    let mut edges = BTreeMap::new();
    // The last of the regions are those that markers open; one that is open from the start is before them.
    let mut is_open = false;
    let opens = |is_open: &mut bool, open: bool| !std::mem::replace(is_open, open) && open;
    let opened = markers.iter().filter(|one| opens(&mut is_open, one.marker.open)).count();
    let (mut region, mut is_open) = (regions.saturating_sub(opened) as u32, false);
    // Faults up to the marker before.
    let (mut read_at, mut closed_at) = (None, None);
    for MarkerCounts { marker: one, .. } in markers {
        let faults = one.handled_faults;
        let was_open = std::mem::replace(&mut is_open, one.open);
        if one.number == marker::READING {
            match closed_at.take() {
                Some(closed_at) => {
                    *edges.entry(region).or_default() += faults.saturating_sub(closed_at);
                }
                None => read_at = Some(faults),
            }
        } else if one.open && !was_open {
            region += 1;
            if let Some(read_at) = read_at.take() {
                *edges.entry(region).or_default() += faults.saturating_sub(read_at);
            }
        } else if was_open && !one.open {
            closed_at = Some(faults);
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use simrecord::counters::COUNTERS;
    use simrecord::record::Marker;

    fn marked(list: &[(u32, bool, u64)]) -> Vec<MarkerCounts> {
        let marker = |&(number, open, handled_faults): &(u32, bool, u64)| Marker {
            cpu: 0,
            number,
            argument: 0,
            open,
            interrupts: 0,
            exceptions: 0,
            handled_faults,
        };
        let counts = |one| MarkerCounts { marker: marker(one), counts: [0; COUNTERS] };
        list.iter().map(counts).collect()
    }

    #[test]
    fn faults_at_an_edge_are_those_between_it_and_its_reading() {
        use marker::{CLOSE, FULL, OPEN, READING};
        let window = [
            (READING, false, 10),
            (OPEN, true, 12),
            (CLOSE, false, 100),
            (READING, false, 105),
            (FULL, false, 200),
        ];
        assert_eq!(edge_faults(&marked(&window), 1), BTreeMap::from([(1, 7)]));
        // After a region that was open from the start.
        let after = [&[(CLOSE, false, 5)][..], &window].concat();
        assert_eq!(edge_faults(&marked(&after), 2), BTreeMap::from([(2, 7)]));
        let again = [&window[..], &[(OPEN, true, 300), (CLOSE, false, 400)]].concat();
        assert_eq!(edge_faults(&marked(&again), 2), BTreeMap::from([(1, 7)]));
        assert_eq!(edge_faults(&marked(&[(OPEN, true, 1), (CLOSE, false, 9)]), 1), BTreeMap::new());
    }
}
