//! [`LiveServices`]: attaches the probes, runs the command, and makes a sample of what they counted.

use std::time::Instant;

use attribution::context::{SOFTIRQS, SYSTEM_VECTORS};
use lab::experiment::{Absence, Bench, BenchError, BenchFacts};
use lab::services::{Class, ServiceStats, ServicesBench, ServicesSample, Times};
use serde_json::{Map, json};
use stats::{Distribution, LogLinear};
use syscalls::Sysno;

use super::probes::{ServiceProbes, ServiceSums};
use crate::bpf::BpfError;
use crate::bpf::layout::{
    SERVICE_FAULT_KERNEL, SERVICE_FAULT_USER, SERVICE_IRQ, SERVICE_SCHEDULER, SERVICE_SOFTIRQ,
    SERVICE_SYSCALLS, SERVICE_VECTOR,
};
use crate::host::{Root, process_cpus};
use crate::syscall_loop::{median, ns_per_call};
use crate::window::{HeldCommand, Stop, ThrottlingWindow, shell_status, wait};

/// System calls of a round of the loop that measures what the probes cost.
const CALLS: u32 = 50_000;
/// Rounds with and without the probes.
const ROUNDS: usize = 5;
/// Ticks of /proc/stat per second (USER_HZ), on every x86 kernel.
const STAT_HZ: u64 = 100;

/// How to measure.
#[derive(Clone, Debug)]
pub struct LiveServicesSettings {
    /// The command.
    pub command: Vec<String>,
    /// Whether what it prints goes to stderr.
    pub to_stderr: bool,
    /// The CPUs that are online, all of which are measured.
    pub cpus: Vec<u32>,
    /// The command that grants the rights to load BPF programs.
    pub remedy_rights: Option<String>,
    /// The request to stop early.
    pub stop: Stop,
}

/// This machine as a bench for the experiment `services`.
pub struct LiveServices {
    settings: LiveServicesSettings,
    probes: ServiceProbes,
    /// What the probes add to a system call, ns.
    overhead_ns: f64,
}

fn bench_error(error: BpfError) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl LiveServices {
    /// Loads and attaches the probes, and measures what they cost.
    ///
    /// # Errors
    /// [`BenchError::NothingMeasurable`] without the rights or the kernel for it.
    pub fn new(settings: LiveServicesSettings) -> Result<LiveServices, BenchError> {
        let nothing = |reason: String, remedy| BenchError::NothingMeasurable { reason, remedy };
        // All online CPUs are measured; the loop needs one on which this process may run.
        let cpu = process_cpus().started_with.first().copied();
        let cpu = cpu.ok_or_else(|| nothing("no CPU to measure".to_owned(), None))?;
        let loops = || -> Result<f64, BenchError> {
            let rounds = (0..ROUNDS).map(|_| ns_per_call(cpu, CALLS));
            let rounds: std::io::Result<Vec<f64>> = rounds.collect();
            let rounds = rounds.map_err(|error| BenchError::Failed(error.to_string()))?;
            Ok(median(rounds).unwrap_or(0.0))
        };
        let without = loops()?;
        let probes = ServiceProbes::load().map_err(|error| match error {
            BpfError::NotPermitted(reason) => {
                let reason = format!("the kernel refuses BPF tracing programs: {reason}");
                nothing(reason, settings.remedy_rights.clone())
            }
            error => nothing(error.to_string(), None),
        })?;
        probes.arm(true).map_err(bench_error)?;
        let with = loops();
        probes.arm(false).map_err(bench_error)?;
        probes.clear().map_err(bench_error)?;
        let overhead_ns = (with? - without).max(0.0);
        Ok(LiveServices { settings, probes, overhead_ns })
    }

    fn sample(
        &self,
        window_ns: u64,
        before: &ProcStat,
        after: &ProcStat,
    ) -> Result<ServicesSample, BenchError> {
        let (services, lost) = self.probes.read().map_err(bench_error)?;
        let cpus = self.settings.cpus.len() as u32;
        let events: u64 = services.iter().map(|(_, sums)| sums.started + sums.completed).sum();
        let calls: u64 = services
            .iter()
            .filter(|(service, _)| *service < SERVICE_SYSCALLS)
            .map(|(_, sums)| sums.completed)
            .sum();
        let mut stats: Vec<ServiceStats> =
            services.iter().filter_map(|(service, sums)| stats_of(*service, sums)).collect();
        stats.extend(after.since(before));
        stats.sort_by(|one, other| (one.class, &one.name).cmp(&(other.class, &other.name)));
        let window_ticks = window_ns * u64::from(cpus);
        let cost_ns = calls as f64 * self.overhead_ns;
        let mut observer = Map::new();
        observer.insert("probe_overhead_ns".into(), json!(self.overhead_ns));
        observer.insert("events".into(), json!(events));
        observer.insert(
            "events_per_second".into(),
            json!(events as f64 * 1e9 / window_ns.max(1) as f64),
        );
        observer.insert("cpu_share_ratio".into(), json!(cost_ns / window_ticks.max(1) as f64));
        let method = "system calls times the cost in a hot loop; the other probes cost more on top";
        observer.insert("cpu_share_method".into(), json!(method));
        observer.insert("events_lost".into(), json!(lost));
        Ok(ServicesSample {
            window_ticks,
            window_ns,
            cpus,
            ticks_hz: 1_000_000_000,
            services: stats,
            observer,
            ..ServicesSample::default()
        })
    }
}

/// The statistics of a service by its position; none for what has no name.
fn stats_of(service: usize, sums: &ServiceSums) -> Option<ServiceStats> {
    let (class, name) = match service {
        SERVICE_IRQ => (Class::Irq, "all devices".to_owned()),
        SERVICE_FAULT_USER => (Class::Fault, "in user mode".to_owned()),
        SERVICE_FAULT_KERNEL => (Class::Fault, "in the kernel".to_owned()),
        SERVICE_SCHEDULER => (Class::Scheduler, "switch".to_owned()),
        number if number < SERVICE_SYSCALLS => (Class::Syscall, syscall_name(number)),
        number if number >= SERVICE_VECTOR => {
            (Class::Interrupt, SYSTEM_VECTORS.get(number - SERVICE_VECTOR)?.name.to_owned())
        }
        number => (Class::Softirq, (*SOFTIRQS.get(number - SERVICE_SOFTIRQ)?).to_owned()),
    };
    let is_timed = !matches!(class, Class::Fault | Class::Scheduler);
    let off_ns = sums.blocked_ns + sums.descheduled_ns;
    let own_ns = sums.latency_ns.saturating_sub(off_ns + sums.nested_ns);
    let has_waits = class == Class::Syscall;
    let times = Times {
        latency: latency(sums),
        computation: None,
        computation_ticks: Some(own_ns),
        blocked_ticks: has_waits.then_some(sums.blocked_ns),
        descheduled_ticks: has_waits.then_some(sums.descheduled_ns),
    };
    Some(ServiceStats {
        class,
        name,
        self_ticks: is_timed.then_some(own_ns),
        page_walk_ticks: None,
        requests: Some(sums.started),
        times: is_timed.then_some(times),
        counters: Vec::new(),
    })
}

fn syscall_name(number: usize) -> String {
    let name = Sysno::new(number).map(|call| call.name().to_owned());
    name.unwrap_or_else(|| number.to_string())
}

fn latency(sums: &ServiceSums) -> Distribution {
    let last = sums.latencies.iter().rposition(|count| *count > 0).unwrap_or(0);
    let histogram = LogLinear::from_counts(sums.latencies.clone()).unwrap_or_default();
    let (count, sum) = (sums.completed, sums.latency_ns);
    let mut latency = Distribution { count, sum, histogram, ..Distribution::default() };
    latency.peak.value = stats::histogram::bounds_of(last).1;
    latency
}

/// User and idle time of all CPUs since the boot, as /proc/stat has them.
#[derive(Clone, Copy, Debug, Default)]
struct ProcStat {
    user_ns: u64,
    idle_ns: u64,
}

impl ProcStat {
    fn read() -> Option<ProcStat> {
        ProcStat::parse(&Root::default().text("proc/stat")?)
    }

    /// The first line: `cpu  user nice system idle iowait ...`, in ticks.
    fn parse(text: &str) -> Option<ProcStat> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let ns = |ticks: u64| ticks.saturating_mul(1_000_000_000 / STAT_HZ);
        let [user, nice, _, idle, waiting, ..] = ticks[..] else { return None };
        Some(ProcStat { user_ns: ns(user + nice), idle_ns: ns(idle + waiting) })
    }

    fn since(&self, before: &ProcStat) -> [ServiceStats; 2] {
        let row = |class, name: &str, ns| ServiceStats {
            class,
            name: name.to_owned(),
            self_ticks: Some(ns),
            page_walk_ticks: None,
            requests: None,
            times: None,
            counters: Vec::new(),
        };
        [
            row(Class::User, "user", self.user_ns.saturating_sub(before.user_ns)),
            row(Class::Idle, "idle", self.idle_ns.saturating_sub(before.idle_ns)),
        ]
    }
}

impl Bench for LiveServices {
    fn facts(&self) -> BenchFacts {
        let absence = |what: &str, reason: &str, remedy: Option<&str>| Absence {
            table: "services".to_owned(),
            what: what.to_owned(),
            reason: reason.to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let mut absent = vec![
            absence(
                "faults by kind, and their times",
                "the kernel's tracepoints say that a page faults, and neither why nor until when",
                Some("--on sim"),
            ),
            absence(
                "times of the scheduler and of kernel threads",
                "only switches have a tracepoint",
                Some("--on sim"),
            ),
            absence("what tasks waited for", "no tracepoint says it", Some("--on sim")),
            absence(
                "the sum: user and idle time are those of /proc/stat, to within 10 ms",
                "what the kernel does outside of these services is in no row",
                Some("--on sim"),
            ),
        ];
        let missing = self.probes.absent.iter();
        absent
            .extend(missing.map(|name| absence(name, "this kernel has no such tracepoint", None)));
        let pairs = [
            ("attachment", json!("tp_btf")),
            ("clock", json!("CLOCK_MONOTONIC (bpf_ktime_get_ns)")),
            ("clock_hz", json!(1_000_000_000_u64)),
        ];
        let method = "A/B on a pinned getppid loop, with all probes and without; not subtracted";
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
        let before = ProcStat::read().unwrap_or_default();
        self.probes.arm(true).map_err(bench_error)?;
        let opened = Instant::now();
        let ended = held.release().and_then(|command| {
            let outcome = wait(None, Some(&command), &self.settings.stop);
            Ok((outcome, command.finish(outcome)?))
        });
        let window_ns = u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.probes.arm(false).map_err(bench_error)?;
        let after = ProcStat::read().unwrap_or_default();
        let (outcome, status) = ended?;
        let mut sample = self.sample(window_ns, &before, &after)?;
        sample.interrupted = outcome == crate::window::WaitOutcome::Stopped;
        sample.facts = Map::from_iter([
            ("command_ended".to_owned(), json!(status.to_string())),
            ("command_status".to_owned(), json!(shell_status(status))),
        ]);
        throttling.close(&Root::default(), &mut sample.facts, &mut sample.warnings);
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
    fn user_and_idle_time_are_read_from_the_first_line() {
        let text = "cpu  10 2 30 400 5 0 1 0 0 0\ncpu0 1 1 1 1 1\n";
        let read = ProcStat::parse(text).unwrap();
        assert_eq!((read.user_ns, read.idle_ns), (120_000_000, 4_050_000_000));
        assert!(ProcStat::parse("cpu  10 2\n").is_none() && ProcStat::parse("").is_none());
    }

    #[test]
    fn system_calls_have_the_names_of_the_architecture() {
        assert_eq!(syscall_name(0), "read");
        assert_eq!(syscall_name(511), "511");
    }
}
