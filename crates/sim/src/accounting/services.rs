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
    /// The services, sorted by context. User mode and idle are services, too.
    pub services: Vec<ServiceUse>,
    /// Blocked times of tasks, by service and reason.
    pub waits: Vec<ServiceWaitUse>,
    /// Page faults that the kernel's memory management handled, including the faults that the kernel itself
    /// causes.
    pub handled_faults: u64,
    /// Page faults between the guest's readings of its kernel's counters and the region's edges. The kernel's
    /// count may be higher by this number.
    pub edge_faults: u64,
    /// Lock counts by place in the kernel and by service, if they were requested.
    pub locks: Vec<LockCounts>,
    /// Addresses of the functions of system calls, by number.
    pub functions: BTreeMap<u32, u64>,
    /// The time of all CPUs together in each slot, sorted by start and then by mode.
    pub profile: Vec<ProfileSlot>,
    /// Misses, if they were requested.
    pub misses: Vec<ServiceMisses>,
    /// Misses of lines that other CPUs had written, if they were requested.
    pub shared: Vec<SharedMisses>,
    /// Names of structures, and how many caches of the kernel share each.
    pub structures: BTreeMap<(StructureKind, u64), (String, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUse {
    pub service: KernelContext,
    /// Requests that started in the region.
    pub requests: u64,
    /// Requests that started and completed in the region.
    pub completed: u64,
    /// Counters of the service itself.
    pub self_counts: Counts,
    /// Counters of completed requests, including nested contexts and excluding other tasks.
    pub inclusive: Counts,
    /// Cycles of the service itself in completed requests.
    pub computation_cycles: u64,
    /// Cycles during which the tasks of completed requests were blocked.
    pub blocked_cycles: u64,
    /// Cycles during which the tasks of completed requests were runnable but did not run.
    pub descheduled_cycles: u64,
    /// Completed requests by latency: from the lowest value of a bucket to the number of requests in it.
    pub latencies: BTreeMap<u64, u64>,
    /// Completed requests by computation time: from the lowest value of a bucket to the number of requests in
    /// it.
    pub computations: BTreeMap<u64, u64>,
}

/// Blocked times of tasks in a service for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceWaitUse {
    pub service: KernelContext,
    /// Number of the reason: see [`plugin_interface::symbols::wait_name`].
    pub wait: u32,
    /// How often tasks were blocked for this reason.
    pub count: u64,
    /// Sum of the blocked times.
    pub blocked_cycles: u64,
}

/// Collects the services by region. The records of a later snapshot replace the records of an earlier
/// snapshot. Adds a reason to `broken` for sums that do not add up.
pub(super) fn services(
    parsed: &ParsedServices,
    markers: &[MarkerCounts],
    regions: &[RegionUse],
    broken: &mut Vec<String>,
) -> Result<BTreeMap<u32, ServicesUse>> {
    let mut rows: BTreeMap<(u32, u64), ServiceUse> = BTreeMap::new();
    for counts in &parsed.rows {
        let row = &counts.row;
        let used = ServiceUse {
            service: counts.service,
            requests: row.requests,
            completed: row.completed,
            self_counts: counts.self_counts,
            inclusive: counts.inclusive,
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
    let mut locks = BTreeMap::new();
    for counts in &parsed.locks {
        let lock = (counts.structure, counts.place, counts.offset);
        locks.insert((counts.region, counts.kind, counts.return_to, lock, counts.code), *counts);
    }
    for ((region, ..), counts) in locks {
        services.entry(region).or_default().locks.push(counts);
    }
    for slot in &parsed.profile {
        let profile = &mut services.entry(slot.region).or_default().profile;
        let start_and_mode = (slot.start, slot.mode);
        if profile.last().is_some_and(|last| (last.start, last.mode) >= start_and_mode) {
            // The profile belongs to an earlier snapshot, whose slots may have been shorter.
            profile.clear();
        }
        profile.push(*slot);
    }
    let mut misses = BTreeMap::new();
    for row in &parsed.misses {
        let key = (row.what, row.cache, row.code, row.class, row.structure, row.key);
        misses.insert((row.region, key), *row);
    }
    for ((region, _), row) in misses {
        services.entry(region).or_default().misses.push(row);
    }
    let mut shared = BTreeMap::new();
    for row in &parsed.shared {
        let key = (row.address, row.pc, row.code, row.structure, row.place, row.offset);
        shared.insert((row.region, key), *row);
    }
    for ((region, _), row) in shared {
        services.entry(region).or_default().shared.push(row);
    }
    let structures: BTreeMap<_, _> = parsed.structures.iter().cloned().collect();
    let functions = parsed.functions.iter().map(|function| (function.number, function.address));
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
        let (mut service_sum, mut cpu_sum) = (Counts::default(), Counts::default());
        used.services.iter().for_each(|service| add(&mut service_sum, &service.self_counts));
        region.cpus.iter().for_each(|cpu| add(&mut cpu_sum, &cpu.used));
        if service_sum != cpu_sum {
            broken.push("the counters of services do not add up to those of the CPUs".to_owned());
        }
        let in_profile: u64 = used.profile.iter().map(|slot| slot.time).sum();
        if in_profile != cpu_sum[TIME] {
            broken.push("the times of the profile do not add up to those of the CPUs".to_owned());
        }
    }
    Ok(services)
}

/// Returns the page faults between the edges of a region and the readings of the kernel's counters next to
/// them, by region. The guest marks its readings; a region without readings has no row.
fn edge_faults(markers: &[MarkerCounts], regions: usize) -> BTreeMap<u32, u64> {
    let mut edges = BTreeMap::new();
    // A region that is open from the start comes before the regions that markers open.
    let mut is_open = false;
    let opens = |is_open: &mut bool, open: bool| !std::mem::replace(is_open, open) && open;
    let opened = markers.iter().filter(|row| opens(&mut is_open, row.marker.open)).count();
    let (mut region, mut is_open) = (regions.saturating_sub(opened) as u32, false);
    // Fault counts at the last reading, and at the last close.
    let (mut read_at, mut closed_at) = (None, None);
    for MarkerCounts { marker, .. } in markers {
        let faults = marker.handled_faults;
        let was_open = std::mem::replace(&mut is_open, marker.open);
        if marker.number == marker::READING {
            match closed_at.take() {
                Some(closed_at) => {
                    *edges.entry(region).or_default() += faults.saturating_sub(closed_at);
                }
                None => read_at = Some(faults),
            }
        } else if marker.open && !was_open {
            region += 1;
            if let Some(read_at) = read_at.take() {
                *edges.entry(region).or_default() += faults.saturating_sub(read_at);
            }
        } else if was_open && !marker.open {
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
        let counts = |row| MarkerCounts { marker: marker(row), counts: [0; COUNTERS] };
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
