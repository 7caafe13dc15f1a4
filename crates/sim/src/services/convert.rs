//! Converts the accounting of a machine to a sample of the experiment `services`. `handlers` uses it, too,
//! for a window with services.

use std::collections::BTreeMap;

use attribution::{FaultKind, KernelContext, LockKind, Mode, SYSCALL_32};
use lab::keys;
use lab::services::in_guest::ServicesItem;
use lab::services::{
    Agreement, Class, LockMethod, LockStats, ProfileMode, ProfileSlot, ServiceStats,
    ServicesSample, Times, WaitStats,
};
use plugin_interface::symbols::wait_name;
use serde_json::{Map, json};
use simrecord::counters::{COUNTERS, CYCLES, TIME, name};
use simrecord::record::LockCounts;
use stats::Distribution;

use super::names::Names;
use super::{misses, page_walks};
use crate::accounting::{CpuUse, RegionUse, ServiceUse, ServicesUse};
use crate::btf::Btf;
use crate::handlers::agreement::lines_of;
use crate::watch::Watch;
use crate::{Accounting, Symbols};

/// System call number of write(2). The guest stops its own count with a write.
const WRITE: u32 = 1;

/// The smallest missing share of the CPUs' time that has a warning. Switches from one CPU to the next always lose less.
const MISSING_SHARE_MIN: f64 = 0.01;

/// Sources of names of the guest's kernel. `None`: the tables have numbers and addresses.
pub(crate) type KernelNames<'a> = (Option<&'a Symbols>, Option<&'a Btf>);

/// Makes a sample of the first region of a record. `window`: what the guest reports of this window; `None` if it has not
/// counted anything itself. `watch`: the settings of its recording.
///
/// The error says why the record cannot be used.
pub(crate) fn sample_of(
    accounting: &Accounting,
    window: Option<&ServicesItem>,
    (symbols, btf): KernelNames<'_>,
    clock_hz: u64,
    watch: &Watch,
) -> Result<ServicesSample, String> {
    if let Some(broken) = accounting.broken.first() {
        return Err(format!("the record is broken, its numbers must not be used: {broken}"));
    }
    let region = accounting.regions.first().ok_or("the guest opened no region of interest")?;
    let services_use = accounting.services.get(&1).ok_or("the record has no services")?;
    let names = Names { accounting, used: services_use, symbols, btf };
    let shown_counters: Vec<usize> =
        (0..COUNTERS).filter(|&counter| counter != TIME && accounting.counts(counter)).collect();
    let mut unmerged: Vec<ServiceStats> = services_use
        .services
        .iter()
        .map(|service| service_stats(service, &names, &shown_counters))
        .collect();
    unmerged.sort_by(|first, second| (first.class, &first.name).cmp(&(second.class, &second.name)));
    let mut services = merge(unmerged);
    let counters: Vec<String> =
        shown_counters.iter().filter_map(|&counter| name(counter)).map(str::to_owned).collect();
    page_walks::separate(&mut services, &counters);
    let window_ticks: u64 = region.cpus.iter().map(|cpu| cpu.used[TIME]).sum();
    // A CPU that went offline has a part of the window only. One CPU always stays online.
    let mut online = region.cpus.iter().filter(|cpu| cpu.offline_at_cycles.is_none());
    let window_cycles = online.next().map_or(0, |cpu| cpu.used[TIME]);
    let mut sample = ServicesSample {
        window_ticks,
        window_ns: (u128::from(window_cycles) * 1_000_000_000 / u128::from(clock_hz)) as u64,
        cpus: accounting.cpus,
        ticks_hz: clock_hz,
        counters,
        services,
        waits: waits(services_use, &names),
        profile: profile(services_use),
        locks: watch.locks.then(|| locks(services_use, &names)).transpose()?,
        misses: misses::sample(services_use, &names, watch.model.as_ref()),
        cpu_warnings: region.hotplug_warnings(clock_hz),
        lacks_cpus: region.cpus.iter().any(|cpu| cpu.offline_at_cycles.is_some()),
        ..ServicesSample::default()
    };
    if let Some(window) = window {
        sample.warnings.clone_from(&window.warnings);
        // irqlab ended the command of an interrupted window, so the status is not the command's own.
        if !window.interrupted {
            sample.facts = Map::from_iter([
                (keys::COMMAND_ENDED.to_owned(), json!(window.command_ended)),
                (keys::COMMAND_STATUS.to_owned(), json!(window.command_status)),
            ]);
        }
        if window.command_status != 0 && !window.interrupted {
            sample.warnings.push(format!("the command failed: {}", window.command_ended));
        }
    }
    sample.agreement = agreement(services_use, window, &names);
    sample.warnings.extend(difference_warnings(accounting, region));
    sample.warnings.extend(accounting.lost_misses_warning(1));
    if watch.model.is_none() {
        sample.warnings.extend(missing_time_warning(region));
    }
    Ok(sample)
}

/// Returns a warning if a part of the CPUs' time is in no row. Only for machines without a model: one cycle
/// is one instruction there.
///
/// Without a model QEMU executes the CPUs one after the other, and each instruction of any CPU advances guest time. While
/// one CPU executes, the other CPUs that are not halted wait for their turn. That time is in no row. A CPU that waits for a
/// lock by `pause` loses most: each `pause` ends its turn.
fn missing_time_warning(region: &RegionUse) -> Option<String> {
    let has_full_window =
        |cpu: &&CpuUse| cpu.offline_at_cycles.is_none() && !cpu.came_online && cpu.used[TIME] > 0;
    let full_window_cpus: Vec<&CpuUse> = region.cpus.iter().filter(has_full_window).collect();
    let executed_cycles: u64 = region.cpus.iter().map(|cpu| cpu.used[CYCLES]).sum();
    // The window is at least as long as the time of each CPU, and as all instructions together.
    let longest = full_window_cpus.iter().map(|cpu| cpu.used[TIME]).max()?;
    let cpu_time_of_window = longest.max(executed_cycles) as f64 * full_window_cpus.len() as f64;
    let charged_time: u64 = full_window_cpus.iter().map(|cpu| cpu.used[TIME]).sum();
    let missing_share = 1.0 - charged_time as f64 / cpu_time_of_window;
    (missing_share >= MISSING_SHARE_MIN).then(|| {
        format!(
            "at least {:.0} % of the CPUs' time is in no row: without a model the CPUs execute one after the \
             other, and the time in which a CPU waits for its turn, as in a loop that waits for a lock, is not \
             counted; rates are too high by as much, and times too short (--on sim:MODEL counts it)",
            100.0 * missing_share
        )
    })
}

/// Returns a warning for each interrupt and softirq that the guest's kernel has counted more or less often than the rows.
fn difference_warnings(accounting: &Accounting, region: &RegionUse) -> Vec<String> {
    // By line: what the kernel counted, and what the rows have.
    let mut counts_by_line: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in region.cpus.iter().flat_map(|cpu| lines_of(cpu, &accounting.irqs)) {
        let (kernel, counted) = (line.kernel_exact.unwrap_or(0), line.counted.unwrap_or(0));
        if kernel.abs_diff(counted) > line.edge_max {
            let counts = counts_by_line.entry(line.line).or_default();
            *counts = (counts.0 + kernel, counts.1 + counted);
        }
    }
    let warning = |(line, (kernel, counted)): (String, (u64, u64))| {
        format!(
            "{line}: the guest's kernel counted {kernel}, and the rows have {counted}: the time of the \
             difference is charged to what it interrupted"
        )
    };
    counts_by_line.into_iter().map(warning).collect()
}

/// Converts the profile of the CPUs over time.
fn profile(used: &ServicesUse) -> Vec<ProfileSlot> {
    let slot = |recorded: &simrecord::record::ProfileSlot| ProfileSlot {
        mode: match Mode::ALL.get(recorded.mode as usize) {
            Some(Mode::User) => ProfileMode::User,
            Some(Mode::Sync) => ProfileMode::Sync,
            Some(Mode::Idle) => ProfileMode::Idle,
            Some(Mode::Kernel) => ProfileMode::Kernel,
            Some(Mode::Unknown) | None => ProfileMode::Unknown,
        },
        start_ticks: recorded.start,
        length_ticks: recorded.length,
        ticks: recorded.time,
        fetch_stall_ticks: recorded.fetch_stall,
        data_stall_ticks: recorded.data_stall,
        pipeline_stall_ticks: recorded.pipeline_stall,
    };
    used.profile.iter().map(slot).collect()
}

/// Converts a service. `shown_counters`: the numbers of the counters to show. User mode, idle time and kernel threads have no
/// requests, so they have no times of requests.
fn service_stats(
    service: &ServiceUse,
    names: &Names<'_>,
    shown_counters: &[usize],
) -> ServiceStats {
    let (class, name) = names.class_and_name(service.service);
    let has_requests =
        !matches!(class, Class::User | Class::Idle | Class::KernelThread | Class::Other);
    let latency = service.inclusive[TIME] + service.blocked_cycles + service.descheduled_cycles;
    let times = Times {
        latency: distribution(service.completed, latency, &service.latencies),
        computation: Some(distribution(
            service.completed,
            service.computation_cycles,
            &service.computations,
        )),
        computation_ticks: Some(service.computation_cycles),
        blocked_ticks: Some(service.blocked_cycles),
        descheduled_ticks: Some(service.descheduled_cycles),
        unseen: None,
    };
    ServiceStats {
        class,
        name,
        self_ticks: Some(service.self_counts[TIME]),
        page_walk_ticks: None,
        requests: has_requests.then_some(service.requests),
        times: has_requests.then_some(times),
        counters: shown_counters.iter().map(|&counter| service.self_counts[counter]).collect(),
    }
}

/// Returns a distribution with exact `count` and `sum` of values. `buckets`: the number of values by the lowest value of a
/// bucket. Each value counts as the lowest of its bucket.
fn distribution(count: u64, sum: u64, buckets: &BTreeMap<u64, u64>) -> Distribution {
    let mut counts = vec![0; stats::histogram::SLOTS];
    let mut peak = 0;
    for (&lowest, &bucket_count) in buckets {
        let slot = stats::histogram::slot_of(lowest);
        counts[slot] += bucket_count;
        peak = peak.max(stats::histogram::bounds_of(slot).1);
    }
    let histogram = stats::LogLinear::from_counts(counts).unwrap_or_default();
    let mut distribution = Distribution { count, sum, histogram, ..Distribution::default() };
    distribution.peak.value = peak;
    distribution
}

/// Joins services with the same class and name, such as kernel threads of several workers: adds their counts and times.
/// `services` must be sorted by class and name, so that equal ones are neighbours.
fn merge(services: Vec<ServiceStats>) -> Vec<ServiceStats> {
    let mut merged: Vec<ServiceStats> = Vec::new();
    for service in services {
        let has_same_name = |previous: &&mut ServiceStats| {
            (previous.class, &previous.name) == (service.class, &service.name)
        };
        let Some(previous) = merged.last_mut().filter(has_same_name) else {
            merged.push(service);
            continue;
        };
        let add = |first: Option<u64>, second: Option<u64>| Some(first? + second?);
        previous.self_ticks = add(previous.self_ticks, service.self_ticks);
        previous.requests = add(previous.requests, service.requests);
        for (total, count) in previous.counters.iter_mut().zip(&service.counters) {
            *total += count;
        }
        if let Some((sums, times)) = previous.times.as_mut().zip(service.times) {
            sums.latency.merge(&times.latency);
            if let Some((sum, computation)) = sums.computation.as_mut().zip(times.computation) {
                sum.merge(&computation);
            }
            sums.computation_ticks = add(sums.computation_ticks, times.computation_ticks);
            sums.blocked_ticks = add(sums.blocked_ticks, times.blocked_ticks);
            sums.descheduled_ticks = add(sums.descheduled_ticks, times.descheduled_ticks);
        }
    }
    merged
}

/// Returns how often services blocked and how long, by service and reason.
fn waits(used: &ServicesUse, names: &Names<'_>) -> Vec<WaitStats> {
    let mut sums: BTreeMap<(Class, String, Option<&str>), (u64, u64)> = BTreeMap::new();
    for wait in &used.waits {
        let (class, service) = names.class_and_name(wait.service);
        let (count, blocked) = sums.entry((class, service, wait_name(wait.wait))).or_default();
        *count += wait.count;
        *blocked += wait.blocked_cycles;
    }
    let stats =
        |((class, service, wait), (count, blocked_ticks)): ((Class, String, Option<&str>), _)| {
            WaitStats { class, service, wait: wait.map(str::to_owned), count, blocked_ticks }
        };
    sums.into_iter().map(stats).collect()
}

/// Returns the use of locks by service and place. Fails for a kind of lock or a service that this program does not know.
fn locks(used: &ServicesUse, names: &Names<'_>) -> Result<Vec<LockStats>, String> {
    let site_name = |address: u64| match names.symbols {
        Some(symbols) => match symbols.symbol_at(address).filter(|(symbol, _)| symbol.is_code()) {
            Some((symbol, offset)) => format!("{}+{offset:#x}", symbol.label()),
            None => format!("{} {address:#x}", symbols.area_name(address)),
        },
        None => format!("{address:#x}"),
    };
    let stats = |lock: &LockCounts| {
        let kind = LockKind::of_number(lock.kind).ok_or("a lock of an unknown kind")?;
        let is_shared = matches!(kind, LockKind::SpinRead | LockKind::SemaphoreRead);
        let service = KernelContext::from_code(lock.code).ok_or("a lock of an unknown service")?;
        let (class, service) = names.class_and_name(service);
        Ok(LockStats {
            class,
            service,
            waiter: None,
            kind: kind.label().to_owned(),
            spins: !kind.sleeps(),
            place: site_name(lock.return_to),
            lock: names.structure(lock.structure, lock.place, Some(lock.offset)).1,
            method: LockMethod::Calls,
            acquires: Some(lock.acquires),
            contended: lock.contended,
            interrupted: None,
            unfinished: None,
            waited_ticks: lock.waited,
            waited_max_ticks: None,
            spun_ticks: (!kind.sleeps()).then_some(lock.waited),
            releases: Some(lock.releases),
            held_ticks: (!is_shared).then_some(lock.held),
        })
    };
    used.locks.iter().map(stats).collect()
}

/// Returns the comparison with the guest's own counts: page faults, and system calls if the guest traced them. Without a
/// `window` the kernel's counts are absent.
fn agreement(
    used: &ServicesUse,
    window: Option<&ServicesItem>,
    names: &Names<'_>,
) -> Vec<Agreement> {
    let vmstat = |name: &str| window.and_then(|window| window.vmstat.get(name).copied());
    let requests = |is_counted: &dyn Fn(KernelContext) -> bool| {
        let services = used.services.iter().filter(|row| is_counted(row.service));
        services.map(|row| row.requests).sum::<u64>()
    };
    let needs_read = |service| {
        let reads = |kind| matches!(kind, FaultKind::File | FaultKind::Swap);
        match service {
            KernelContext::Fault(kind) | KernelContext::KernelFault(kind) => reads(kind),
            _ => false,
        }
    };
    let mut rows = vec![
        Agreement {
            what: "page faults handled".to_owned(),
            counted: used.handled_faults,
            kernel: vmstat("pgfault"),
            source: "pgfault of /proc/vmstat".to_owned(),
            edge_max: used.edge_faults,
        },
        Agreement {
            what: "page faults with a read".to_owned(),
            counted: requests(&needs_read),
            kernel: vmstat("pgmajfault"),
            source: "pgmajfault of /proc/vmstat".to_owned(),
            edge_max: used.edge_faults,
        },
    ];
    let Some(counts) = window.and_then(|window| window.syscalls.as_ref()) else { return rows };
    let numbers = used.services.iter().filter_map(|row| match row.service {
        KernelContext::Syscall(number) if number & SYSCALL_32 == 0 => Some(number),
        _ => None,
    });
    let numbers: std::collections::BTreeSet<u32> = numbers.chain(counts.keys().copied()).collect();
    for number in numbers {
        rows.push(Agreement {
            what: format!("syscall {}", names.syscall(number)),
            counted: requests(&|service| service == KernelContext::Syscall(number)),
            kernel: Some(counts.get(&number).copied().unwrap_or(0)),
            source: "tracepoint raw_syscalls:sys_enter of the guest".to_owned(),
            // The guest ends its count with a write.
            edge_max: u64::from(number == WRITE),
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs by their executed and their halted cycles.
    fn region(cpus: &[(u64, u64)]) -> RegionUse {
        let cpu = |(number, &(executed, halted)): (usize, &(u64, u64))| {
            let mut cpu = CpuUse { cpu: number as u32, ..CpuUse::default() };
            (cpu.used[CYCLES], cpu.used[TIME]) = (executed, executed + halted);
            cpu
        };
        RegionUse { cpus: cpus.iter().enumerate().map(cpu).collect(), ..RegionUse::default() }
    }

    #[test]
    fn time_in_which_cpus_wait_for_their_turn_is_named() {
        // One CPU executes while the other is halted, and both are halted for 100 cycles.
        assert_eq!(missing_time_warning(&region(&[(1_000, 600), (500, 1_100)])), None);
        assert_eq!(missing_time_warning(&region(&[(1_000, 600)])), None);
        // A CPU that never started.
        assert_eq!(missing_time_warning(&region(&[(1_000, 600), (0, 0)])), None);
        // Both execute all the time, so each waits for half of it.
        let warning = missing_time_warning(&region(&[(1_000, 0), (1_000, 0)])).unwrap();
        assert!(warning.starts_with("at least 50 % of the CPUs' time"), "{warning}");
        // CPU 1 spins while CPU 0 executes: its turns are short.
        let warning = missing_time_warning(&region(&[(1_000, 600), (100, 0)])).unwrap();
        assert!(warning.starts_with("at least 47 %"), "{warning}");
        let mut offline = region(&[(1_000, 600), (100, 0)]);
        offline.cpus[1].offline_at_cycles = Some(100);
        assert_eq!(missing_time_warning(&offline), None);
    }
}
