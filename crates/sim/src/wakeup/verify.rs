//! Checks the live bench of `wakeup`: its BPF programs measure in the guest, and the parts of each wake-up are compared
//! with the simulator's record of the same wake-up, which is exact. `irqlab sim verify-probes --experiment wakeup` prints
//! the comparison.

use std::collections::BTreeMap;

use lab::cpu_warnings::{CpuWarning, CpuWarnings};
use lab::experiment::BenchError;
use lab::guest_protocol::Request;
use lab::handlers::Condition;
use lab::handlers::probe_check::ProbeCost;
use lab::wakeup::in_guest::{GuestThread, WakeupRequest, WakeupResponse};
use lab::wakeup::probe_check::{
    Cause, ConditionCheck, ExactPart, ExactWakeup, MeasuredPart, MeasuredWakeups,
};
use plugin_interface::symbols::probe_name;

use super::bench::{CLOCKS_DIFFER, NOT_COVERED, START_NS, clocks_agree, is_covered};
use super::join::{Names, with_counter_at_reading};
use super::truth::{CpuTruth, Interval, WakeUpTimes, probe_calls, wake_ups};
use crate::accounting::{Accounting, RegionUse};
use crate::guest_run::{Expected, GuestRun, PlannedMachines};
use crate::parallel::{Jobs, for_each};

/// The results of the live bench and of the simulator for a condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerifiedWakeups {
    pub check: ConditionCheck,
    /// Cost of the probes, by class of tracepoints.
    pub costs: Vec<ProbeCost>,
    pub warnings: Vec<String>,
}

/// Has the live bench measure wake-ups in the guest, in a machine for each condition.
pub struct WakeupVerification {
    /// The machine. Spans and transitions must be recorded.
    pub guest: GuestRun,
    /// The request. Its condition is replaced.
    pub request: WakeupRequest,
    /// How many machines run at the same time.
    pub jobs: Jobs,
}

impl WakeupVerification {
    /// Measures all conditions. The outcomes are in the order of the conditions. `None`: the user asked to stop before
    /// the end.
    ///
    /// An outcome is an error if the machine fails, if the live bench cannot measure there, or, with
    /// [`BenchError::TimeLimit`], if a limit ends the machine.
    pub fn measure(
        &self,
        conditions: &[Condition],
    ) -> Vec<Result<Option<VerifiedWakeups>, BenchError>> {
        let planned = PlannedMachines {
            experiment: "verify-probes",
            count: conditions.len(),
            at_once: self.jobs.count,
        };
        self.guest.progress.plan(planned);
        for_each(self.jobs, conditions, |_, condition| {
            if self.guest.is_stopped() { Ok(None) } else { self.measure_one(*condition) }
        })
    }

    /// Measures a condition in a machine of its own. `None` if the user asked to stop before the end of the window.
    ///
    /// Fails as [`WakeupVerification::measure`] says.
    fn measure_one(&self, condition: Condition) -> Result<Option<VerifiedWakeups>, BenchError> {
        let guest = &self.guest;
        let request = WakeupRequest { condition, probed: true, ..self.request.clone() };
        let window_ns =
            u128::from(START_NS) + u128::from(request.warm_up_ns) + u128::from(request.duration_ns);
        let window_cycles = window_ns * u128::from(guest.clock_hz()) / 1_000_000_000;
        let label = condition.label();
        let expected = Expected {
            label: &label,
            window_cycles: u64::try_from(window_cycles).ok(),
            windows: Some(1),
            warm_up_cycles: None,
        };
        let machine_run = guest.run::<WakeupResponse>(&Request::Wakeup(request), expected)?;
        let Some(machine_run) = machine_run else { return Ok(None) };
        // A window that ended early is not compared.
        if let Some(reason) = machine_run.early {
            return match guest.limit_text(reason) {
                Some(limit) => Err(BenchError::TimeLimit(limit)),
                None => Ok(None),
            };
        }
        if let Some(broken) = machine_run.account.broken.first() {
            let reason = format!("the record of the machine is broken: {broken}");
            return Err(BenchError::Failed(reason));
        }
        let response = machine_run.response.ok_or(BenchError::Failed(machine_run.no_response))?;
        compare(label, &response, &machine_run.account, guest.clock_hz()).map(Some)
    }
}

/// Joins the response of the live bench with the record of its machine. `clock_hz`: cycles per second of guest time.
///
/// Fails if the window was never opened, a thread ran on an unknown CPU, or the live bench did not measure.
fn compare(
    condition: String,
    response: &WakeupResponse,
    account: &Accounting,
    clock_hz: u64,
) -> Result<VerifiedWakeups, BenchError> {
    let failed = |reason: &str| BenchError::Failed(reason.to_owned());
    let region = account.regions.first().ok_or_else(|| failed("the window was never opened"))?;
    let probed =
        response.probed.as_ref().ok_or_else(|| failed("the live bench did not measure"))?;
    let mut check = ConditionCheck {
        condition: condition.clone(),
        lost_events: probed.lost_events,
        ..ConditionCheck::default()
    };
    let mut cpu_warnings = CpuWarnings::default();
    let mut names = Names::default();
    for thread in &response.threads {
        let cpu = region.cpus.iter().find(|cpu| cpu.cpu == thread.run.cpu);
        let cpu = cpu.ok_or_else(|| failed("a thread ran on a CPU that there is not"))?;
        let truth = CpuTruth::new(cpu);
        for (_, _, cycles) in probe_calls(cpu, clock_hz) {
            check.probe_calls.0 += 1;
            check.probe_calls.1 += cycles as f64 * 1e9 / clock_hz.max(1) as f64;
        }
        if !is_covered(thread, cpu.transitions.first().map(|first| first.tsc)) {
            cpu_warnings.add(&condition, CpuWarning::new(thread.run.cpu, NOT_COVERED));
        }
        if !clocks_agree(thread) {
            cpu_warnings.add(&condition, CpuWarning::new(thread.run.cpu, CLOCKS_DIFFER));
        }
        add_measured_parts(thread, &probed.names, &mut check.measured);
        let wake_ups_of_thread = wake_ups(region, thread.run.thread);
        let timed_wake_ups = wake_up_times(thread, &wake_ups_of_thread);
        check.withheld_count += truth.withheld_count(&timed_wake_ups);
        check.exact.extend(exact_wakeups(thread, &timed_wake_ups, &truth, &mut names, account));
    }
    let mut warnings = response.warnings.clone();
    warnings.extend(cpu_warnings.lines());
    if probed.unbalanced > 0 {
        warnings.push(format!(
            "broken: the parts of {} wake-ups do not add up to the lateness",
            probed.unbalanced
        ));
    }
    let costs = probe_costs(&condition, region, clock_hz);
    Ok(VerifiedWakeups { check, costs, warnings })
}

/// Adds the parts that the live bench measured of a thread.
fn add_measured_parts(
    thread: &GuestThread,
    names: &[(String, String)],
    wakeups: &mut MeasuredWakeups,
) {
    for (due_ns, parts) in thread.parts() {
        let parts = parts
            .into_iter()
            .map(|(part, length_ns)| MeasuredPart {
                cause: Cause::from_part(part, names),
                length_ns,
            })
            .collect();
        wakeups.insert((thread.run.cpu, due_ns), parts);
    }
}

/// The wake-ups of a thread in the order of time, each with its due time by the guest's clock, ns. `wake_ups`: when the kernel
/// woke the thread, by the time-stamp counter, ascending.
fn wake_up_times(thread: &GuestThread, wake_ups: &[u64]) -> Vec<(u64, WakeUpTimes)> {
    let thread_number = thread.run.thread;
    with_counter_at_reading(&thread.records)
        .into_iter()
        .map(|[due_ns, woke_ns, woke_tsc]| {
            let due_tsc = woke_tsc.saturating_sub(woke_ns.saturating_sub(due_ns));
            let time = Interval { start: due_tsc, end: woke_tsc };
            let first = wake_ups.partition_point(|tsc| *tsc < due_tsc);
            let woken_tsc = wake_ups.get(first).copied().filter(|tsc| *tsc < woke_tsc);
            (due_ns, WakeUpTimes { interval: time, thread: thread_number, woken_tsc })
        })
        .collect()
}

/// The exact parts of the wake-ups of a thread, from [`wake_up_times`].
fn exact_wakeups(
    thread: &GuestThread,
    timed_wake_ups: &[(u64, WakeUpTimes)],
    truth: &CpuTruth<'_>,
    names: &mut Names<'_>,
    account: &Accounting,
) -> Vec<ExactWakeup> {
    let parts: Vec<_> =
        timed_wake_ups.iter().map(|(_, times)| truth.parts(*times, names, account)).collect();
    let kinds_and_names: Vec<(String, String)> = names
        .list
        .iter()
        .map(|name| {
            let (kind, name) = name.kind_and_name();
            (kind.to_owned(), name)
        })
        .collect();
    let wakeups = timed_wake_ups.iter().zip(parts).map(|(&(due_ns, times), parts)| ExactWakeup {
        cpu: thread.run.cpu,
        due_ns,
        late_ns: times.interval.end - times.interval.start,
        parts: parts
            .into_iter()
            .map(|part| ExactPart {
                cause: Cause::from_part(part.part, &kinds_and_names),
                length_ns: part.length_ns,
                probes_ns: part.probes_ns,
                host_ns: part.host_ns,
            })
            .collect(),
        instants: truth.instants(times),
    });
    wakeups.collect()
}

/// The cost of the BPF programs in the window, by class of tracepoints. Interrupts and withheld
/// time in a call are not its cost.
fn probe_costs(condition: &str, region: &RegionUse, clock_hz: u64) -> Vec<ProbeCost> {
    let mut costs: BTreeMap<u32, ProbeCost> = BTreeMap::new();
    let calls = region.cpus.iter().flat_map(|cpu| probe_calls(cpu, clock_hz));
    for (position, span, own_cycles) in calls {
        let Some(function) = probe_name(position) else { continue };
        let cost = costs.entry(position).or_insert_with(|| ProbeCost {
            condition: condition.to_owned(),
            function: function.to_owned(),
            calls: 0,
            instructions: 0,
            cycles: 0,
            ns: 0.0,
        });
        cost.calls += 1;
        cost.instructions += span.self_instructions;
        cost.cycles += own_cycles;
        cost.ns = cost.cycles as f64 * 1e9 / clock_hz.max(1) as f64;
    }
    costs.into_values().filter(|cost| cost.calls > 0).collect()
}
