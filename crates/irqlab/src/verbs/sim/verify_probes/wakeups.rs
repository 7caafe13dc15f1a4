//! `irqlab sim verify-probes --experiment wakeup`: the live bench of `wakeup` in a simulated machine.
//! `verify_probes::run` calls [`run`] for it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::experiment::{BenchError, BenchFacts};
use lab::handlers::Stimulus;
use lab::handlers::probe_check::probe_costs;
use lab::wakeup::delay_check::delays_table;
use lab::wakeup::in_guest::{RECORDS_MAX, WakeupRequest};
use lab::wakeup::probe_check::{
    ERROR_MAX, PROBE_COSTS_MIN, WAKEUPS_MIN, causes, instants, parts, wakeups,
};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::wakeup::{VerifiedWakeups, WakeupVerification};
use sim::watch::Watch;

use super::{AllResults, ConditionResult, VerifyArgs, assemble, model};
use crate::options::{Usage, ns};
use crate::run::{OpenRun, STOPPED, stop_on_signals};
use crate::simulated::{Simulated, add_disk};

/// Time between two due times without `--period`.
const PERIOD: Duration = Duration::from_millis(1);
/// The guest's response has room for this many parts of each wake-up, on average.
const PARTS_OF_A_WAKEUP: u64 = 10;
/// The disk that the disk stimulus reads without `--disk`.
const DISK: &str = "virtio-blk,latency=100us";
/// The class and the kind of sleep of the measured threads: those of `wakeup`.
const POLICY: &str = "fifo:95";
const WAIT: &str = "nanosleep";
/// The CPU that the simulated host withholds with `--withhold`.
const WITHHELD_CPU: u32 = 0;

impl ConditionResult for VerifiedWakeups {
    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn costs_json(&self) -> Json {
        json!({"probe_cost_ns": self.check.probe_cost_ns(), "lost": self.check.lost_events})
    }

    fn add_rows_to(self, all: &mut AllResults) {
        all.wakeups.push(self.check);
        all.costs.extend(self.costs);
    }
}

/// Measures all conditions, prints and records the run.
pub fn run(cache: Cache, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let period_ns = ns(args.period.unwrap_or(PERIOD));
    check_window(ns(args.duration), period_ns)?;
    let open = OpenRun::new("verify-probes", &args.results)?;
    let model = model(&cache, args)?;
    let conditions = args.conditions();
    let watch = Watch {
        spans: true,
        transitions: true,
        withhold: args.withhold.then_some(WITHHELD_CPU),
        ..args.level.watch(model)
    };
    let prepared =
        Simulated::prepare(cache, &args.guest, args.vcpus, watch, stop_on_signals()?, |machine| {
            add_disk(machine, args.stimulus.contains(&Stimulus::Disk), DISK)
        })?;
    let host = prepared.host();
    let verification = WakeupVerification {
        jobs: args.jobs.choose(conditions.len(), prepared.guest.machine.memory_mib),
        request: WakeupRequest {
            cpus: None,
            period_ns,
            duration_ns: ns(args.duration),
            warm_up_ns: ns(args.warm_up),
            policy: POLICY.to_owned(),
            wait: WAIT.to_owned(),
            wake_by: lab::wakeup::WakeBy::Timer,
            waker_cpu: None,
            aligned: false,
            condition: lab::handlers::Condition::Ambient,
            low_interval_ns: 50_000_000,
            seed: None,
            probed: true,
            has_hog: args.hog,
        },
        guest: prepared.guest,
    };
    let mut all = AllResults::default();
    let outcomes = verification.measure(&conditions);
    for (condition, outcome) in conditions.iter().zip(outcomes) {
        all.add(condition.label(), outcome)?;
    }
    if all.ended_before_results() {
        match all.time_limit {
            Some(limit) => bail!(BenchError::TimeLimit(limit)),
            None => bail!(STOPPED),
        }
    }
    let tables = vec![
        wakeups(&all.wakeups),
        delays_table(&all.wakeups),
        parts(&all.wakeups),
        instants(&all.wakeups),
        causes(&all.wakeups),
        probe_costs(&all.costs),
    ];
    let facts = facts(&verification, args);
    open.finish(&assemble(args, open.started(), host, facts, all, tables), &[])
}

/// Refuses a window in which a thread has no wake-up, or more wake-ups than the guest's response holds for a CPU.
fn check_window(duration_ns: u64, period_ns: u64) -> Result<(), Usage> {
    let wakeups_max = RECORDS_MAX as u64 / PARTS_OF_A_WAKEUP;
    match duration_ns / period_ns.max(1) {
        0 => Err(Usage("-d is shorter than the period -p, so no thread would wake up".to_owned())),
        wakeups if wakeups > wakeups_max => Err(Usage(format!(
            "a window would have {wakeups} wake-ups of each CPU; the guest keeps all parts of all of them until the end, and \
             has room for {wakeups_max} wake-ups (choose a shorter -d or a longer -p)"
        ))),
        _ => Ok(()),
    }
}

/// The facts of the machine and of the comparison.
fn facts(verification: &WakeupVerification, args: &VerifyArgs) -> BenchFacts {
    let WakeupVerification { guest, request, .. } = verification;
    let mut settings = Map::new();
    settings.insert("qemu".into(), json!(guest.qemu.version_text));
    settings.insert("machine".into(), json!(guest.machine.described()));
    let model = guest.watch.model.as_ref().map(|model| &model.described);
    settings.insert("model".into(), json!(model));
    settings.insert("vcpu_slice_cycles".into(), json!(guest.watch.vcpu_slice));
    settings.insert("start".into(), json!(guest.start.described()));
    settings.insert("period_ns".into(), json!(request.period_ns));
    settings.insert("policy".into(), json!(request.policy));
    settings.insert("wait".into(), json!(request.wait));
    settings.insert("hog".into(), json!(args.hog));
    settings.insert("withheld_cpu".into(), json!(guest.watch.withhold));
    settings.insert("judged_wakeups_min".into(), json!(WAKEUPS_MIN));
    settings.insert("judged_probe_costs_min".into(), json!(PROBE_COSTS_MIN));
    settings.insert("judged_error_ratio_max".into(), json!(ERROR_MAX));
    let mut observer = Map::new();
    observer.insert("method".into(), json!("the live bench in the guest, and a QEMU plugin"));
    BenchFacts {
        bench: "sim".to_owned(),
        settings,
        observer,
        absent: guest.kernel_files.absences(&guest.watch, "parts"),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_wake_ups_and_not_too_many() {
        assert!(check_window(1_000_000_000, 1_000_000).is_ok());
        assert!(check_window(500_000, 1_000_000).is_err());
        assert!(check_window(60_000_000_000, 1_000_000).is_err());
    }
}
