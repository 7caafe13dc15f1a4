//! [`LiveServices`]: attaches the probes, runs the command, and makes a sample of the probes' counts.
//! `lab::services` calls [`ServicesBench::measure`] once.
//!
//! Invariant: on each CPU the times of all services, of the probes, and of what has no place add up to the window.

use attribution::context::{SOFTIRQS, SYSTEM_VECTORS};
use lab::cpu_warnings::CpuWarning;
use lab::cpus::{came_online, went_offline};
use lab::experiment::{Absence, Bench, BenchError, BenchFacts};
use lab::keys;
use lab::services::{Class, ServiceStats, ServicesBench, ServicesSample, Times};
use serde_json::{Map, json};
use stats::{Distribution, LogLinear};

use super::kernel_counts;
use super::locks::LockReading;
use super::probes::{LockProbes, ServiceProbes};
use super::sums::{CpuTime, Reading, ServiceSums};
use super::time_parts::{NOT_KNOWN, PROBES, closure, parts_of_cpu};
use crate::bpf::layout::{
    SERVICE_FAULT_KERNEL, SERVICE_FAULT_USER, SERVICE_IDLE, SERVICE_IRQ, SERVICE_KERNEL_THREAD,
    SERVICE_SCHEDULER, SERVICE_SOFTIRQ, SERVICE_SYSCALL_32, SERVICE_SYSCALLS, SERVICE_UNKNOWN,
    SERVICE_USER, SERVICE_VECTOR,
};
use crate::handlers::agreement::{Files, nested_threaded_max};
use crate::host::{Root, online_cpus, process_cpus};
use crate::syscall_loop::{median, ns_per_call};
use crate::window::{HeldCommand, Stop, ThrottlingWindow, WindowEdge, shell_status, wait};

/// Name of the service of all device interrupts.
pub(super) const ALL_DEVICES: &str = "all devices";
/// The cost of the probes is measured by a loop of system calls: in this number of rounds with the probes,
/// and in as many without them.
const ROUNDS: usize = 5;
/// System calls of a round.
const CALLS: u32 = 50_000;

/// Configuration of [`LiveServices`].
#[derive(Clone, Debug)]
pub struct LiveServicesSettings {
    pub command: Vec<String>,
    /// Whether the command's output goes to stderr.
    pub to_stderr: bool,
    /// The online CPUs. All of them are measured.
    pub cpus: Vec<u32>,
    /// Whether to measure waits for locks, too.
    pub locks: bool,
    /// The user's request to stop early.
    pub stop: Stop,
}

/// This machine as a bench for the experiment `services`.
pub struct LiveServices {
    settings: LiveServicesSettings,
    probes: ServiceProbes,
    /// Time that the probes add to a system call, ns.
    overhead_ns: f64,
}

impl LiveServices {
    /// Loads and attaches the probes, and measures their cost.
    ///
    /// Fails with [`BenchError::NothingMeasurable`] without the rights, or on a kernel that cannot run the probes.
    pub fn new(settings: LiveServicesSettings) -> Result<LiveServices, BenchError> {
        // The loop that measures the cost needs a CPU on which this process may run.
        let cpu = process_cpus().started_with.first().copied();
        let cpu = cpu.ok_or_else(|| BenchError::nothing_measurable("no CPU to measure"))?;
        let call_ns = || -> Result<f64, BenchError> {
            let rounds = (0..ROUNDS).map(|_| ns_per_call(cpu, CALLS));
            let rounds: std::io::Result<Vec<f64>> = rounds.collect();
            let rounds = rounds.map_err(|error| BenchError::Failed(error.to_string()))?;
            Ok(median(rounds).unwrap_or(0.0))
        };
        let ns_without_probes = call_ns()?;
        let probes = ServiceProbes::load(&settings.cpus, settings.locks).map_err(|error| {
            match error.into() {
                // Without its probes, this experiment has nothing to measure.
                BenchError::Failed(reason) => BenchError::nothing_measurable(&reason),
                other => other,
            }
        })?;
        probes.open()?;
        let ns_with_probes = call_ns();
        probes.set_all_windows(WindowEdge::Close);
        probes.clear()?;
        let overhead_ns = (ns_with_probes? - ns_without_probes).max(0.0);
        Ok(LiveServices { settings, probes, overhead_ns })
    }

    /// Makes the sample. `files`: readings before the windows opened, and after they closed.
    fn sample(
        &self,
        reading: &Reading,
        locks: Option<&LockReading>,
        files: [&Files; 2],
    ) -> ServicesSample {
        let online = online_cpus(&Root::default()).unwrap_or_default();
        let is_probed = |tracepoint: &str| {
            !self.probes.absent.iter().any(|absent| absent.starts_with(tracepoint))
        };
        let conditions = kernel_counts::ComparisonConditions {
            files,
            is_probed: &is_probed,
            lost: reading.lost,
            nested_threaded_max: nested_threaded_max(&Root::default(), files),
        };
        let (counts, undelivered) = kernel_counts::compare(&reading.cpus, conditions);
        let services = &reading.services;
        let ended = |sums: &ServiceSums| sums.completed + sums.unseen;
        let events: u64 = services.iter().map(|(_, sums)| sums.started + ended(sums)).sum();
        let waits = locks.map_or(0, |locks| 2 * locks.ended() + locks.unfinished());
        let events = events + waits + locks.map_or(0, |locks| locks.unmatched);
        let calls: u64 = services
            .iter()
            .filter(|(service, _)| *service < SERVICE_SYSCALLS)
            .map(|(_, sums)| ended(sums))
            .sum();
        let window_ticks: u64 = reading.cpus.iter().map(|cpu| cpu.window_ns).sum();
        // The windows open and close one after the other. A count is over the windows of all CPUs, so a rate is over their mean.
        let window_ns = window_ticks / (reading.cpus.len() as u64).max(1);
        // The larger of two lower bounds: the time that the probes measured of themselves, which lacks their entry and exit;
        // and the number of calls times their cost in the hot loop.
        let timed_ns: u64 = reading.cpus.iter().map(|cpu| cpu.probes_ns).sum();
        let cost_ns = (calls as f64 * self.overhead_ns).max(timed_ns as f64);
        let mut observer = Map::new();
        observer.insert("probe_overhead_ns".into(), json!(self.overhead_ns));
        observer.insert("events".into(), json!(events));
        observer.insert(
            "events_per_second".into(),
            json!(events as f64 * 1e9 / window_ns.max(1) as f64),
        );
        observer.insert("cpu_share_ratio".into(), json!(cost_ns / window_ticks.max(1) as f64));
        let method = "at least: the larger of what the probes timed of themselves and system calls times the cost in a \
                      hot loop";
        observer.insert("cpu_share_method".into(), json!(method));
        let lost = reading.lost + locks.map_or(0, |locks| locks.skipped);
        observer.insert(keys::EVENTS_LOST_COUNT.into(), json!(lost));
        ServicesSample {
            window_ticks,
            window_ns,
            cpus: reading.cpus.len() as u32,
            ticks_hz: 1_000_000_000,
            services: self.rows(reading),
            cpu_times: reading.cpus.iter().map(parts_of_cpu).collect(),
            agreement: std::iter::once(closure(&reading.cpus)).chain(counts).collect(),
            undelivered,
            locks: locks
                .zip(self.probes.locks.settings())
                .map(|(locks, settings)| locks.stats(settings, &Root::default(), service_name)),
            observer,
            cpu_warnings: hotplug_warnings(reading, &self.settings.cpus, &online),
            ..ServicesSample::default()
        }
    }

    /// The rows of the table `services`, in its order: by class and name. Their times add up to the time of all CPUs.
    fn rows(&self, reading: &Reading) -> Vec<ServiceStats> {
        let times_faults = self.probes.fault_ends_missing_reason().is_none();
        let services = reading.services.iter();
        let mut rows: Vec<ServiceStats> =
            services.filter_map(|(service, sums)| stats_of(*service, sums, times_faults)).collect();
        let sum = |part: fn(&CpuTime) -> u64| reading.cpus.iter().map(part).sum();
        // A CPU that never was idle is known to have been idle for 0 ns.
        if !rows.iter().any(|row| row.class == Class::Idle) {
            rows.push(time_only(Class::Idle, "idle", 0));
        }
        rows.push(time_only(Class::Probes, PROBES, sum(|cpu| cpu.probes_ns)));
        // Time of unknown services and time without a row are one row of the table.
        let unknown =
            rows.iter().position(|row| row.class == Class::Unknown && row.name == NOT_KNOWN);
        let unknown_ns = unknown.and_then(|position| rows.swap_remove(position).self_ticks);
        let unplaced_ns: u64 = sum(|cpu| cpu.unplaced_ns);
        rows.push(time_only(Class::Unknown, NOT_KNOWN, unplaced_ns + unknown_ns.unwrap_or(0)));
        rows.sort_by(|first, second| (first.class, &first.name).cmp(&(second.class, &second.name)));
        rows
    }
}

/// The numbers about locks that the run lacks. Empty without `--locks`.
fn absences_of_locks(locks: &LockProbes) -> Vec<Absence> {
    let in_sim = |subject: &str, reason: &str| {
        Absence::new("locks", subject, reason).with_remedy(Some("--on sim --locks"))
    };
    match locks {
        LockProbes::NotAsked => Vec::new(),
        LockProbes::Missing(names) => {
            let names = names.join(" and ");
            let reason =
                format!("this kernel has no tracepoint {names}, which came with Linux 5.19");
            vec![in_sim("waits for locks", &reason)]
        }
        LockProbes::Loaded(settings) => {
            let acquires = in_sim(
                "acquires without contention, and how long locks are held",
                "the kernel's tracepoints mark only waits for contended locks",
            );
            let others = settings.absent.iter();
            let others = others.map(|(what, reason)| Absence::new("locks", *what, reason.as_str()));
            std::iter::once(acquires).chain(others).collect()
        }
    }
}

/// Warnings about the CPUs that went offline or came online in the window. `planned`: the CPUs to measure. `online`:
/// the CPUs that are online at the window's end.
fn hotplug_warnings(reading: &Reading, planned: &[u32], online: &[u32]) -> Vec<CpuWarning> {
    let offline = || reading.cpus.iter().filter(|time| time.went_offline);
    let warning = |time: &CpuTime| went_offline(time.cpu, time.window_ns as f64 / 1e9);
    let has_come = |cpu: &&u32| !planned.contains(cpu) || offline().any(|time| time.cpu == **cpu);
    let come_online = online.iter().filter(has_come).map(|cpu| came_online(*cpu));
    offline().map(warning).chain(come_online).collect()
}

/// Warning about requests whose times are not known because the kernel did not hand over a switch of their task.
/// `None` without such requests.
fn unseen_warning(services: &[ServiceStats]) -> Option<String> {
    let sum = |count: fn(&Times) -> u64| -> u64 {
        services.iter().filter_map(|service| service.times.as_ref()).map(count).sum()
    };
    let unseen = sum(|times| times.unseen.unwrap_or(0));
    let completed = sum(|times| times.latency.count);
    (unseen > 0).then(|| {
        format!(
            "{unseen} of {} completed requests have no times: the kernel did not hand a switch of their task to BPF \
             programs (column unseen_count). After such a switch, time counts for the task before it until the next event; if that \
             is a thread of process 1, as not known",
            unseen + completed
        )
    })
}

/// A service that has time but no requests.
fn time_only(class: Class, name: &str, ns: u64) -> ServiceStats {
    ServiceStats {
        class,
        name: name.to_owned(),
        self_ticks: Some(ns),
        page_walk_ticks: None,
        requests: None,
        times: None,
        counters: Vec::new(),
    }
}

/// The statistics of a service, given by its number in `bpf/services.bpf.c`. `None` if the number has no name.
/// `times_faults`: the ends of page faults are seen.
fn stats_of(service: usize, sums: &ServiceSums, times_faults: bool) -> Option<ServiceStats> {
    let (class, name) = service_name(service)?;
    if matches!(class, Class::User | Class::Idle | Class::KernelThread | Class::Unknown) {
        return Some(time_only(class, &name, sums.self_ns));
    }
    let is_timed = match class {
        Class::Scheduler => false,
        Class::Fault => times_faults,
        _ => true,
    };
    let off_cpu_ns = sums.blocked_ns + sums.descheduled_ns;
    let computation_ns = sums.latency_ns.saturating_sub(off_cpu_ns + sums.nested_ns);
    let has_waits = matches!(class, Class::Syscall | Class::Fault);
    let times = Times {
        latency: latency(sums),
        computation: None,
        computation_ticks: Some(computation_ns),
        blocked_ticks: has_waits.then_some(sums.blocked_ns),
        descheduled_ticks: has_waits.then_some(sums.descheduled_ns),
        unseen: has_waits.then_some(sums.unseen),
    };
    Some(ServiceStats {
        class,
        name,
        self_ticks: is_timed.then_some(sums.self_ns),
        page_walk_ticks: None,
        requests: Some(sums.started),
        times: is_timed.then_some(times),
        counters: Vec::new(),
    })
}

/// The class and name of a service, given by its number in `bpf/services.bpf.c`. `None` if the number has no name.
fn service_name(service: usize) -> Option<(Class, String)> {
    Some(match service {
        SERVICE_USER => (Class::User, "user".to_owned()),
        SERVICE_IDLE => (Class::Idle, "idle".to_owned()),
        SERVICE_KERNEL_THREAD => (Class::KernelThread, "all kernel threads".to_owned()),
        SERVICE_UNKNOWN => (Class::Unknown, NOT_KNOWN.to_owned()),
        SERVICE_IRQ => (Class::Irq, ALL_DEVICES.to_owned()),
        SERVICE_FAULT_USER => (Class::Fault, "in user mode".to_owned()),
        SERVICE_FAULT_KERNEL => (Class::Fault, "in the kernel".to_owned()),
        SERVICE_SCHEDULER => (Class::Scheduler, "switch".to_owned()),
        number if number < SERVICE_SYSCALLS => (Class::Syscall, syscall_name(number)),
        number if number >= SERVICE_VECTOR => {
            (Class::Interrupt, SYSTEM_VECTORS.get(number - SERVICE_VECTOR)?.name.to_owned())
        }
        number => (Class::Softirq, (*SOFTIRQS.get(number - SERVICE_SOFTIRQ)?).to_owned()),
    })
}

/// The name of the system calls at a position: of 32-bit code, and of all numbers from there on, together.
fn syscall_name(position: usize) -> String {
    const LAST: usize = SERVICE_SYSCALLS - 1;
    match position {
        SERVICE_SYSCALL_32 => "calls of 32-bit code".to_owned(),
        LAST => format!("{SERVICE_SYSCALL_32} and above"),
        _ => lab::services::syscall_name(position),
    }
}

/// The distribution of a service's latencies. Its peak is the upper bound of the highest filled slot.
fn latency(sums: &ServiceSums) -> Distribution {
    let highest_slot = sums.latencies.iter().rposition(|count| *count > 0).unwrap_or(0);
    let histogram = LogLinear::from_counts(sums.latencies.clone()).unwrap_or_default();
    let (count, sum) = (sums.completed, sums.latency_ns);
    let mut latency = Distribution { count, sum, histogram, ..Distribution::default() };
    latency.peak.value = stats::histogram::bounds_of(highest_slot).1;
    latency
}

impl Bench for LiveServices {
    fn facts(&self) -> BenchFacts {
        let only_in_sim = |subject: &str, reason: &str| {
            Absence::new("services", subject, reason).with_remedy(Some("--on sim"))
        };
        let mut absent = vec![
            only_in_sim(
                "faults by kind",
                "the kernel's tracepoints say that a page faults, and not why",
            ),
            only_in_sim(
                "times of the scheduler and of each kernel thread",
                "only switches have a tracepoint: the scheduler's time is in the rows of the tasks",
            ),
            only_in_sim("what tasks waited for", "no tracepoint says it"),
            only_in_sim(
                "kernel entry and exit outside the tracepoints, NMIs, and exceptions other than \
                 page faults",
                "no tracepoint has both their ends: they are in the rows that they interrupt, mostly user",
            ),
        ];
        absent.extend(self.probes.fault_ends_missing_reason().map(|reason| {
            only_in_sim(
                "times of page faults",
                &format!(
                    "nothing says when they end: {reason}; they are in the rows that they interrupt"
                ),
            )
        }));
        absent.extend(absences_of_locks(&self.probes.locks));
        let missing = self.probes.absent.iter();
        absent.extend(
            missing
                .map(|name| Absence::new("services", name, "this kernel has no such tracepoint")),
        );
        let pairs = [
            (keys::ATTACHMENT, json!("tp_btf")),
            ("clock", json!("CLOCK_MONOTONIC (bpf_ktime_get_ns)")),
            ("clock_hz", json!(1_000_000_000_u64)),
        ];
        let mut method =
            "A/B on a pinned getppid loop, with all probes and without; not subtracted".to_owned();
        if self.probes.locks.settings().is_some() {
            method.push_str(
                "; the loop waits for no lock, so the time of the programs of locks is only in cpu_share_ratio",
            );
        }
        BenchFacts {
            bench: "live".to_owned(),
            settings: pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            observer: Map::from_iter([("method".to_owned(), json!(method))]),
            absent,
            warnings: Vec::new(),
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }
}

impl ServicesBench for LiveServices {
    fn measure(&mut self) -> Result<Option<ServicesSample>, BenchError> {
        let held = HeldCommand::new(&self.settings.command, self.settings.to_stderr)?;
        let throttling = ThrottlingWindow::open(&Root::default());
        let before = Files::read(&Root::default());
        let mut not_opened = self.probes.set_all_windows(WindowEdge::Open);
        let ended = held.release().and_then(|command| {
            let outcome = wait(None, Some(&command), &self.settings.stop);
            Ok((outcome, command.finish(outcome)?))
        });
        let not_closed = self.probes.set_all_windows(WindowEdge::Close);
        let after = Files::read(&Root::default());
        let (outcome, status) = ended?;
        if not_opened.len() == self.settings.cpus.len() {
            return Err(not_opened.pop().map_or_else(
                || BenchError::Failed("no CPU to measure".to_owned()),
                |(_, error)| error.into(),
            ));
        }
        let reading = self.probes.read()?;
        let locks = self.probes.read_locks()?;
        let mut sample = self.sample(&reading, locks.as_ref(), [&before, &after]);
        sample.interrupted = outcome == crate::window::WaitOutcome::Stopped;
        sample.facts = Map::from_iter([
            (keys::COMMAND_ENDED.to_owned(), json!(status.to_string())),
            (keys::COMMAND_STATUS.to_owned(), json!(shell_status(status))),
        ]);
        if let Some(locks) = &locks {
            let counts = [
                (keys::LOCK_WAITS_UNFINISHED_COUNT, locks.unfinished()),
                (keys::LOCK_WAITS_UNSTARTED_COUNT, locks.unmatched),
            ];
            sample.facts.extend(counts.map(|(key, count)| (key.to_owned(), json!(count))));
        }
        throttling.report(&Root::default(), &mut sample.facts, &mut sample.warnings);
        let failed = not_opened.iter().map(|(cpu, error)| (*cpu, "open", error));
        let failed = failed.chain(not_closed.iter().map(|(cpu, error)| (*cpu, "close", error)));
        // The gate of a CPU that went offline cannot be closed, but the CPU's window closed when it went offline.
        let failed = failed.filter(|(cpu, ..)| !reading.cpus.iter().any(|time| time.cpu == *cpu));
        sample.cpu_warnings.extend(failed.map(|(cpu, edge, error)| {
            let what =
                format!("the window did not {edge}, and the CPU's time is in no row: {error}");
            CpuWarning::new(cpu, &what)
        }));
        sample.lacks_cpus = reading.cpus.iter().any(|time| time.went_offline)
            || reading.cpus.len() < self.settings.cpus.len();
        let closure = &sample.agreement[0];
        if closure.kernel != Some(closure.counted) {
            sample.warnings.push(format!(
                "the times do not add up: {} ns of {} ns are in the rows, which is an error of irqlab",
                closure.counted,
                closure.kernel.unwrap_or(0)
            ));
        }
        let lacking: u64 = sample
            .agreement
            .iter()
            .skip(1)
            .filter_map(|line| Some(line.kernel?.saturating_sub(line.counted + line.edge_max)))
            .sum();
        if lacking > 0 {
            sample.warnings.push(format!(
                "the kernel counted {lacking} interrupts and softirqs that it did not hand to BPF programs (table \
                 agreement): no row has their requests, and their times are in the rows that they interrupt \
                 (undelivered_max_count in table services states at most how many a row lacks)"
            ));
        }
        sample.warnings.extend(unseen_warning(&sample.services));
        if !sample.interrupted && !status.success() {
            sample.warnings.push(format!("the command failed: {status}"));
        }
        Ok(Some(sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_went_or_came_are_named() {
        let time = |cpu, went_offline| CpuTime {
            cpu,
            window_ns: 250_000_000,
            went_offline,
            ..CpuTime::default()
        };
        let cpus = vec![time(0, false), time(1, true), time(2, true)];
        let reading = Reading { cpus, ..Reading::default() };
        let mut warnings = lab::cpu_warnings::CpuWarnings::default();
        hotplug_warnings(&reading, &[0, 1, 2], &[0, 2, 3])
            .into_iter()
            .for_each(|warning| warnings.add("", warning));
        let [went, came] = &warnings.lines()[..] else { panic!("two kinds") };
        assert!(went.starts_with("CPUs 1-2: went offline in the window"), "{went}");
        assert!(went.ends_with("(after 0.250 s)"), "{went}");
        assert!(came.starts_with("CPUs 2-3: came online in the window"), "{came}");
    }

    #[test]
    fn system_calls_have_the_names_of_the_architecture() {
        assert_eq!(syscall_name(0), "read");
        assert_eq!(syscall_name(510), "calls of 32-bit code");
        assert_eq!(syscall_name(511), "510 and above");
    }
}
