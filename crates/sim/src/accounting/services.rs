//! Services of the kernel (system calls, faults, interrupts, ...), from the plugin's record.
//!
//! [`super::Accounting`] calls [`services`] once for each record. The experiment `services` turns the result into its
//! sample in [`crate::services`]. A record may have several snapshots of a region. The rows of a later snapshot
//! replace the rows of an earlier snapshot with the same key.

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
    /// The services, sorted by the code of their context. User mode and idle are services, too.
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

/// The services of each region. Regions count from 1.
type ServicesByRegion = BTreeMap<u32, ServicesUse>;

/// Collects the services by region. Adds a reason to `broken` for sums that do not add up.
pub(super) fn services(
    parsed: &ParsedServices,
    markers: &[MarkerCounts],
    regions: &[RegionUse],
    broken: &mut Vec<String>,
) -> Result<ServicesByRegion> {
    let mut services = ServicesByRegion::new();
    for ((region, _), service_use) in service_rows(parsed) {
        services.entry(region).or_default().services.push(service_use);
    }
    add_waits(parsed, &mut services)?;
    add_locks(parsed, &mut services);
    add_profile(parsed, &mut services);
    add_misses(parsed, &mut services);
    add_totals(parsed, &edge_faults(markers, regions.len()), &mut services, broken);
    check_sums(&services, regions, broken);
    Ok(services)
}

/// Returns the services with the distributions of their times, by region and code of the context.
fn service_rows(parsed: &ParsedServices) -> BTreeMap<(u32, u64), ServiceUse> {
    let mut rows: BTreeMap<(u32, u64), ServiceUse> = BTreeMap::new();
    for counts in &parsed.rows {
        let row = &counts.row;
        let service_use = ServiceUse {
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
        rows.insert((row.region, row.code), service_use);
    }
    for bucket in &parsed.buckets {
        if let Some(service_use) = rows.get_mut(&(bucket.region, bucket.code)) {
            let times = match bucket.time {
                ServiceTime::Latency => &mut service_use.latencies,
                ServiceTime::Computation => &mut service_use.computations,
            };
            times.insert(bucket.lowest, bucket.count);
        }
    }
    rows
}

/// Adds the blocked times of tasks.
fn add_waits(parsed: &ParsedServices, services: &mut ServicesByRegion) -> Result<()> {
    let mut waits = BTreeMap::new();
    for wait in &parsed.waits {
        waits.insert((wait.region, wait.code, wait.wait), (wait.count, wait.blocked));
    }
    for ((region, code, wait), (count, blocked_cycles)) in waits {
        let service = context_of(code)?;
        let wait = ServiceWaitUse { service, wait, count, blocked_cycles };
        services.entry(region).or_default().waits.push(wait);
    }
    Ok(())
}

/// Adds the counts of locks.
fn add_locks(parsed: &ParsedServices, services: &mut ServicesByRegion) {
    let mut locks = BTreeMap::new();
    for counts in &parsed.locks {
        let lock = (counts.structure, counts.place, counts.offset);
        locks.insert((counts.region, counts.kind, counts.return_to, lock, counts.code), *counts);
    }
    for ((region, ..), counts) in locks {
        services.entry(region).or_default().locks.push(counts);
    }
}

/// Adds the times of the profile. A later snapshot has the whole profile again.
fn add_profile(parsed: &ParsedServices, services: &mut ServicesByRegion) {
    for slot in &parsed.profile {
        let profile = &mut services.entry(slot.region).or_default().profile;
        let start_and_mode = (slot.start, slot.mode);
        if profile.last().is_some_and(|last| (last.start, last.mode) >= start_and_mode) {
            // The profile belongs to an earlier snapshot, whose slots may have been shorter.
            profile.clear();
        }
        profile.push(*slot);
    }
}

/// Adds the cache misses of services, and their misses of lines that other CPUs had written.
fn add_misses(parsed: &ParsedServices, services: &mut ServicesByRegion) {
    let mut misses = BTreeMap::new();
    for row in &parsed.misses {
        let key = (row.what, row.cache, row.code, row.class, row.structure, row.key);
        misses.insert((row.region, key), *row);
    }
    for ((region, _), row) in misses {
        services.entry(region).or_default().misses.push(row);
    }
    let mut shared_misses = BTreeMap::new();
    for row in &parsed.shared {
        let key = (row.address, row.pc, row.code, row.structure, row.place, row.offset);
        shared_misses.insert((row.region, key), *row);
    }
    for ((region, _), row) in shared_misses {
        services.entry(region).or_default().shared.push(row);
    }
}

/// Adds the values that hold for a whole region. `edges`: the result of [`edge_faults`]; `reasons`: why the record is broken.
fn add_totals(
    parsed: &ParsedServices,
    edges: &BTreeMap<u32, u64>,
    services: &mut ServicesByRegion,
    reasons: &mut Vec<String>,
) {
    let structures: BTreeMap<_, _> = parsed.structures.iter().cloned().collect();
    let functions: BTreeMap<u32, u64> =
        parsed.functions.iter().map(|function| (function.number, function.address)).collect();
    for totals in &parsed.totals {
        let region_services = services.entry(totals.region).or_default();
        region_services.handled_faults = totals.handled_faults;
        region_services.edge_faults = edges.get(&totals.region).copied().unwrap_or(0);
        region_services.functions.clone_from(&functions);
        region_services.structures.clone_from(&structures);
        if totals.broken > 0 {
            reasons
                .push(format!("services: {} rows did not fit, or have wrong sums", totals.broken));
        }
    }
}

/// Checks that the services, and the slots of the profile, add up to the CPUs of their region. Adds a reason to `reasons` for
/// each sum that does not.
fn check_sums(services: &ServicesByRegion, regions: &[RegionUse], reasons: &mut Vec<String>) {
    for (region_number, region_services) in services {
        let region = regions.get((*region_number as usize).wrapping_sub(1));
        let Some(region) = region else { continue };
        let (mut service_sum, mut cpu_sum) = (Counts::default(), Counts::default());
        let service_rows = region_services.services.iter();
        service_rows.for_each(|service| add(&mut service_sum, &service.self_counts));
        region.cpus.iter().for_each(|cpu| add(&mut cpu_sum, &cpu.used));
        if service_sum != cpu_sum {
            reasons.push("the counters of services do not add up to those of the CPUs".to_owned());
        }
        let profile_time: u64 = region_services.profile.iter().map(|slot| slot.time).sum();
        if profile_time != cpu_sum[TIME] {
            reasons.push("the times of the profile do not add up to those of the CPUs".to_owned());
        }
    }
}

/// Returns for each region the page faults at its edges: between the guest's reading of its kernel's counters and the
/// opening, and between the closing and the next reading. The guest marks its readings. A region without readings has
/// no row. `regions`: the number of regions of the record, with one that is open from the start.
fn edge_faults(markers: &[MarkerCounts], region_count: usize) -> BTreeMap<u32, u64> {
    let mut edges = BTreeMap::new();
    // A region that is open from the start comes before the regions that markers open.
    let mut was_open = false;
    let opened_by_markers = markers
        .iter()
        .filter(|row| !std::mem::replace(&mut was_open, row.marker.open) && row.marker.open)
        .count();
    let mut region = region_count.saturating_sub(opened_by_markers) as u32;
    let mut is_open = false;
    // Faults at the last reading before a region, and at the last close. `None` once they were compared.
    let (mut faults_at_reading, mut faults_at_close) = (None, None);
    for MarkerCounts { marker, .. } in markers {
        let faults = marker.handled_faults;
        let was_open = std::mem::replace(&mut is_open, marker.open);
        if marker.number == marker::READING {
            match faults_at_close.take() {
                Some(faults_at_close) => {
                    *edges.entry(region).or_default() += faults.saturating_sub(faults_at_close);
                }
                None => faults_at_reading = Some(faults),
            }
        } else if marker.open && !was_open {
            region += 1;
            if let Some(faults_at_reading) = faults_at_reading.take() {
                *edges.entry(region).or_default() += faults.saturating_sub(faults_at_reading);
            }
        } else if was_open && !marker.open {
            faults_at_close = Some(faults);
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
