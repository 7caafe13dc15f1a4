//! Converts the accounting of a machine to a sample of the experiment `services`. `handlers` uses it, too, for a
//! window with services.

use std::collections::BTreeMap;

use attribution::{FaultKind, KernelContext, LockKind, Mode, SYSCALL_32};
use lab::keys;
use lab::services::in_guest::ServicesItem;
use lab::services::{
    Agreement, Class, LockStats, ProfileMode, ProfileSlot, ServiceStats, ServicesSample, Times,
    WaitStats,
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

/// Makes a sample of the first region of a record.
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
    let used = accounting.services.get(&1).ok_or("the record has no services")?;
    let names = Names { accounting, used, symbols, btf };
    let counted: Vec<usize> =
        (0..COUNTERS).filter(|&counter| counter != TIME && accounting.counts(counter)).collect();
    let mut services: Vec<ServiceStats> =
        used.services.iter().map(|service| stats(service, &names, &counted)).collect();
    services.sort_by(|first, second| (first.class, &first.name).cmp(&(second.class, &second.name)));
    let mut merged = merge(services);
    let counters: Vec<String> =
        counted.iter().filter_map(|&counter| name(counter)).map(str::to_owned).collect();
    page_walks::separate(&mut merged, &counters);
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
        services: merged,
        waits: waits(used, &names),
        profile: profile(used),
        locks: watch.locks.then(|| locks(used, &names)).transpose()?,
        misses: misses::sample(used, &names, watch.model.as_ref()),
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
    sample.agreement = agreement(used, window, &names);
    sample.warnings.extend(unseen(accounting, region));
    sample.warnings.extend(accounting.lost_misses_warning(1));
    if watch.model.is_none() {
        sample.warnings.extend(missing_time(region));
    }
    Ok(sample)
}

/// Returns a warning if a part of the CPUs' time is in no row. Only for machines without a model: one cycle is one
/// instruction there.
///
/// Without a model QEMU executes the CPUs one after the other, and each instruction of any CPU advances guest time. While
/// one CPU executes, the other CPUs that are not halted wait for their turn. That time is in no row. A CPU that waits for a
/// lock by `pause` loses most: each `pause` ends its turn.
fn missing_time(region: &RegionUse) -> Option<String> {
    let is_whole =
        |cpu: &&CpuUse| cpu.offline_at_cycles.is_none() && !cpu.came_online && cpu.used[TIME] > 0;
    let whole_cpus: Vec<&CpuUse> = region.cpus.iter().filter(is_whole).collect();
    let executed: u64 = region.cpus.iter().map(|cpu| cpu.used[CYCLES]).sum();
    // The window is at least as long as the time of each CPU, and as all instructions together.
    let longest = whole_cpus.iter().map(|cpu| cpu.used[TIME]).max()?;
    let window = longest.max(executed) as f64 * whole_cpus.len() as f64;
    let charged: u64 = whole_cpus.iter().map(|cpu| cpu.used[TIME]).sum();
    let missing_share = 1.0 - charged as f64 / window;
    (missing_share >= MISSING_SHARE_MIN).then(|| {
        format!(
            "at least {:.0} % of the CPUs' time is in no row: without a model the CPUs execute one after the \
             other, and the time in which a CPU waits for its turn, as in a loop that waits for a lock, is not \
             counted; rates are too high by as much, and times too short (--on sim:MODEL counts it)",
            100.0 * missing_share
        )
    })
}

/// Returns a warning for each interrupt and softirq that the guest's kernel has counted more or less often than the
/// rows.
fn unseen(accounting: &Accounting, region: &RegionUse) -> Vec<String> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in region.cpus.iter().flat_map(|cpu| lines_of(cpu, &accounting.irqs)) {
        let (kernel, counted) = (line.kernel_exact.unwrap_or(0), line.counted.unwrap_or(0));
        if kernel.abs_diff(counted) > line.edge_max {
            let sum = sums.entry(line.line).or_default();
            *sum = (sum.0 + kernel, sum.1 + counted);
        }
    }
    let warning = |(line, (kernel, counted)): (String, (u64, u64))| {
        format!(
            "{line}: the guest's kernel counted {kernel}, and the rows have {counted}: the time of the \
             difference is charged to what it interrupted"
        )
    };
    sums.into_iter().map(warning).collect()
}

/// Converts the profile of the CPUs over time.
fn profile(used: &ServicesUse) -> Vec<ProfileSlot> {
    let slot = |recorded: &simrecord::record::ProfileSlot| ProfileSlot {
        mode: match Mode::ALL.get(recorded.mode as usize) {
            Some(Mode::User) => ProfileMode::User,
            Some(Mode::Sync) => ProfileMode::Sync,
            Some(Mode::Idle) => ProfileMode::Idle,
            Some(Mode::Kernel) | None => ProfileMode::Kernel,
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

/// Converts a service. `counted`: the numbers of the counters to show.
fn stats(service: &ServiceUse, names: &Names<'_>, counted: &[usize]) -> ServiceStats {
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
        counters: counted.iter().map(|&counter| service.self_counts[counter]).collect(),
    }
}

/// Returns a distribution with exact sum and count. `buckets`: from the lowest value of a bucket to its number of
/// values.
fn distribution(count: u64, sum: u64, buckets: &BTreeMap<u64, u64>) -> Distribution {
    let mut counts = vec![0; stats::histogram::SLOTS];
    let mut peak = 0;
    for (&lowest, &count) in buckets {
        let slot = stats::histogram::slot_of(lowest);
        counts[slot] += count;
        peak = peak.max(stats::histogram::bounds_of(slot).1);
    }
    let histogram = stats::LogLinear::from_counts(counts).unwrap_or_default();
    let mut distribution = Distribution { count, sum, histogram, ..Distribution::default() };
    distribution.peak.value = peak;
    distribution
}

/// Joins services with the same class and name, such as kernel threads of several workers. `services` must be sorted
/// by class and name: equal ones are neighbours.
fn merge(services: Vec<ServiceStats>) -> Vec<ServiceStats> {
    let mut merged: Vec<ServiceStats> = Vec::new();
    for service in services {
        let has_same_name =
            |last: &&mut ServiceStats| (last.class, &last.name) == (service.class, &service.name);
        let Some(last) = merged.last_mut().filter(has_same_name) else {
            merged.push(service);
            continue;
        };
        let sum = |first: Option<u64>, second: Option<u64>| Some(first? + second?);
        last.self_ticks = sum(last.self_ticks, service.self_ticks);
        last.requests = sum(last.requests, service.requests);
        for (total, count) in last.counters.iter_mut().zip(&service.counters) {
            *total += count;
        }
        if let Some((total, times)) = last.times.as_mut().zip(service.times) {
            total.latency.merge(&times.latency);
            if let Some((total, computation)) = total.computation.as_mut().zip(times.computation) {
                total.merge(&computation);
            }
            total.computation_ticks = sum(total.computation_ticks, times.computation_ticks);
            total.blocked_ticks = sum(total.blocked_ticks, times.blocked_ticks);
            total.descheduled_ticks = sum(total.descheduled_ticks, times.descheduled_ticks);
        }
    }
    merged
}

/// Returns the blocked times by service and reason.
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

/// Returns the use of locks by service and place.
fn locks(used: &ServicesUse, names: &Names<'_>) -> Result<Vec<LockStats>, String> {
    let site_name = |address: u64| match names.symbols {
        Some(symbols) => match symbols.at(address).filter(|(symbol, _)| symbol.is_code()) {
            Some((symbol, offset)) => format!("{}+{offset:#x}", symbol.label()),
            None => format!("{} {address:#x}", symbols.place_name(address)),
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
            kind: kind.label().to_owned(),
            spins: !kind.sleeps(),
            place: site_name(lock.return_to),
            lock: names.structure(lock.structure, lock.place, Some(lock.offset)).1,
            acquires: lock.acquires,
            contended: lock.contended,
            waited_ticks: lock.waited,
            releases: lock.releases,
            held_ticks: (!is_shared).then_some(lock.held),
        })
    };
    used.locks.iter().map(stats).collect()
}

/// Returns the comparison with the guest's own counts: page faults, and system calls if the guest traced them.
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
    let is_with_read = |service| {
        let needs_read = |kind| matches!(kind, FaultKind::File | FaultKind::Swap);
        match service {
            KernelContext::Fault(kind) | KernelContext::KernelFault(kind) => needs_read(kind),
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
            counted: requests(&is_with_read),
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
        assert_eq!(missing_time(&region(&[(1_000, 600), (500, 1_100)])), None);
        assert_eq!(missing_time(&region(&[(1_000, 600)])), None);
        // A CPU that never started.
        assert_eq!(missing_time(&region(&[(1_000, 600), (0, 0)])), None);
        // Both execute all the time, so each waits for half of it.
        let warning = missing_time(&region(&[(1_000, 0), (1_000, 0)])).unwrap();
        assert!(warning.starts_with("at least 50 % of the CPUs' time"), "{warning}");
        // CPU 1 spins while CPU 0 executes: its turns are short.
        let warning = missing_time(&region(&[(1_000, 600), (100, 0)])).unwrap();
        assert!(warning.starts_with("at least 47 %"), "{warning}");
        let mut offline = region(&[(1_000, 600), (100, 0)]);
        offline.cpus[1].offline_at_cycles = Some(100);
        assert_eq!(missing_time(&offline), None);
    }
}
