//! Moves the time of page walks from the services whose accesses caused them to rows of their own. The sum of all rows
//! stays the same. `convert` calls it.

use lab::services::{Class, PAGE_WALKS, ServiceStats};

/// For each kind of access: the counters of stall cycles, of cycles of walks, and of cycles of all waits.
const KINDS: [[&str; 3]; 2] = [
    ["fetch_stall_cycles", "fetch_walk_cycles", "fetch_wait_cycles"],
    ["data_stall_cycles", "data_walk_cycles", "data_wait_cycles"],
];

/// Moves the time of page walks from services to the rows [`PAGE_WALKS`], if the model counts walks. A blocking core stalls
/// for the whole of a walk. An out-of-order core hides a part of its waits: walks get the same share of its stalls as
/// of its waits. Sorts the services by class and name.
pub(super) fn separate(services: &mut Vec<ServiceStats>, counters: &[String]) {
    let position = |name: &str| counters.iter().position(|counter| counter == name);
    let kind_positions =
        |[stall, walk, wait]: [&str; 3]| Some((position(stall)?, position(walk)?, position(wait)));
    let Some(cycles) = position("cycles") else { return };
    // Without the counters of one kind no time moves: the rows would lack the time of that kind's walks.
    let [Some(fetch), Some(data)] = KINDS.map(kind_positions) else { return };
    let mut rows = PAGE_WALKS.map(|name| ServiceStats {
        class: Class::PageWalk,
        name: name.to_owned(),
        self_ticks: Some(0),
        page_walk_ticks: None,
        requests: Some(0),
        times: None,
        counters: vec![0; counters.len()],
    });
    for service in &mut *services {
        let row = &mut rows[usize::from(service.class != Class::User)];
        let mut moved_cycles = [0; 2];
        for ((stall, walk, wait), moved_cycles) in [fetch, data].into_iter().zip(&mut moved_cycles)
        {
            let (stalled, walked) = (service.counters[stall], service.counters[walk]);
            *moved_cycles = match wait.map(|wait| service.counters[wait]) {
                Some(waited) => part(stalled, walked, waited),
                None => walked.min(stalled),
            };
            // Stall cycles are rounded apart from the cycles of the service, so they may be more.
            let ticks = service.self_ticks.unwrap_or(u64::MAX);
            *moved_cycles = (*moved_cycles).min(service.counters[cycles]).min(ticks);
            service.counters[stall] -= *moved_cycles;
            service.counters[cycles] -= *moved_cycles;
            service.self_ticks = service.self_ticks.map(|ticks| ticks - *moved_cycles);
            row.counters[stall] += *moved_cycles;
            row.counters[cycles] += *moved_cycles;
            row.self_ticks = row.self_ticks.map(|ticks| ticks + *moved_cycles);
        }
        service.page_walk_ticks = Some(moved_cycles);
        let count = |name| position(name).map(|position| service.counters[position]);
        let misses = count("itlb_misses").unwrap_or(0) + count("dtlb_misses").unwrap_or(0);
        let walks = count("stlb_misses").unwrap_or(misses);
        row.requests = row.requests.map(|requests| requests + walks);
    }
    // A walk that began before the region has time in it, and no request.
    let has_walks = |row: &ServiceStats| row.requests > Some(0) || row.self_ticks > Some(0);
    services.extend(rows.into_iter().filter(has_walks));
    services.sort_by(|first, second| (first.class, &first.name).cmp(&(second.class, &second.name)));
}

/// Returns `stalled * walked / waited`, rounded down and at most `stalled`.
fn part(stalled: u64, walked: u64, waited: u64) -> u64 {
    let share = u128::from(stalled) * u128::from(walked.min(waited));
    u64::try_from(share / u128::from(waited.max(1))).unwrap_or(stalled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(class: Class, counters: &[u64]) -> ServiceStats {
        ServiceStats {
            class,
            name: "one".to_owned(),
            self_ticks: Some(counters[0]),
            page_walk_ticks: None,
            requests: Some(1),
            times: None,
            counters: counters.to_vec(),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    const TIMED: [&str; 7] = [
        "cycles",
        "fetch_stall_cycles",
        "data_stall_cycles",
        "fetch_walk_cycles",
        "data_walk_cycles",
        "itlb_misses",
        "dtlb_misses",
    ];

    #[test]
    fn a_blocking_core_stalls_for_all_of_a_walk_and_sums_stay() {
        let mut services = vec![
            service(Class::User, &[100, 20, 30, 5, 10, 1, 2]),
            service(Class::Syscall, &[200, 40, 50, 15, 0, 3, 0]),
        ];
        separate(&mut services, &names(&TIMED));
        let sum: u64 = services.iter().filter_map(|service| service.self_ticks).sum();
        let cycles: u64 = services.iter().map(|service| service.counters[0]).sum();
        assert_eq!((sum, cycles), (300, 300));
        let row = |name: &str| services.iter().find(|service| service.name == name).unwrap();
        let user = row("of user mode");
        assert_eq!((user.self_ticks, user.requests), (Some(15), Some(3)));
        assert_eq!(row("of the kernel").self_ticks, Some(15));
        assert_eq!(services[0].page_walk_ticks, Some([5, 10]));
        assert_eq!(services[0].counters[..3], [85, 15, 20]);
    }

    #[test]
    fn another_core_hides_walks_as_it_hides_other_waits() {
        let mut all = TIMED.to_vec();
        all.extend(["fetch_wait_cycles", "data_wait_cycles"]);
        let mut services = vec![service(Class::User, &[100, 20, 30, 10, 50, 1, 2, 40, 100])];
        separate(&mut services, &names(&all));
        assert_eq!(services[0].page_walk_ticks, Some([5, 15]));
        assert_eq!(services.iter().filter_map(|service| service.self_ticks).sum::<u64>(), 100);
    }

    /// The sums of ticks and cycles of all services stay, whatever is counted.
    fn check_sums(counted: &[&str], counters: &[u64]) -> Vec<ServiceStats> {
        let mut services = vec![service(Class::User, counters), service(Class::Syscall, counters)];
        let sums = |services: &[ServiceStats]| {
            let ticks: u64 = services.iter().filter_map(|service| service.self_ticks).sum();
            let counted = 0..counters.len();
            let counted = counted.map(|counter| {
                services.iter().map(|service| service.counters[counter]).sum::<u64>()
            });
            (ticks, counted.collect::<Vec<_>>())
        };
        let before = sums(&services);
        separate(&mut services, &names(counted));
        assert_eq!(sums(&services), before, "{counted:?} {counters:?}");
        services
    }

    #[test]
    fn sums_stay_when_the_counters_of_one_kind_are_absent() {
        let fetches = ["cycles", "fetch_stall_cycles", "fetch_walk_cycles", "itlb_misses"];
        let services = check_sums(&fetches, &[100, 20, 10, 1]);
        assert!(services.iter().all(|service| service.page_walk_ticks.is_none()));
    }

    #[test]
    fn sums_stay_when_a_walk_began_before_the_region() {
        let services = check_sums(&TIMED, &[100, 20, 30, 5, 10, 0, 0]);
        let walks = services.iter().filter(|service| service.class == Class::PageWalk);
        let walks: Vec<_> = walks.map(|row| (row.self_ticks, row.requests)).collect();
        assert_eq!(walks, [(Some(15), Some(0)); 2]);
    }

    #[test]
    fn sums_stay_when_stalls_are_more_than_all_cycles() {
        check_sums(&TIMED, &[1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn without_a_model_there_are_no_walks() {
        let mut services = vec![service(Class::User, &[100])];
        separate(&mut services, &names(&["instructions"]));
        assert_eq!((services.len(), services[0].page_walk_ticks), (1, None));
    }
}
