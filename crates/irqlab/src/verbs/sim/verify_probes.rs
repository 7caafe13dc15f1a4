//! `irqlab sim verify-probes`: the live bench in a simulated machine, compared with the simulator's exact results.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::handlers::in_guest::HandlersRequest;
use lab::handlers::probe_check::{CheckedContext, ProbeCost, probe_costs, probes};
use lab::handlers::{Condition, Load, Rate, Stimulus};
use record::{Absence, Run, SCHEMA, Timestamp};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::handlers::{SimBench, SimSettings};
use sim::watch::Watch;

use crate::console::{ProgressLine, Redraw};
use crate::options::{On, ResultArgs, Usage, duration, ns};
use crate::run::{OpenRun, stop_on_signals};
use crate::simulated::{self, GuestArgs, JobsArgs, Simulated, SliceArgs};

/// Conditions to verify, and the machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sim verify-probes --stimulus timer -d 300ms
  irqlab sim verify-probes --stimulus disk --disk nvme --rate low")]
pub struct VerifyArgs {
    /// Where the live bench runs: sim:MODEL
    #[arg(long, value_name = "BENCH", default_value = "sim:r4400-1994")]
    on: On,
    /// CPUs of the simulated machine, 1 to 16
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: u32,
    /// idle, busy
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "idle")]
    load: Vec<Load>,
    /// low, high
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "high")]
    rate: Vec<Rate>,
    /// disk, net, timer, ipi, none
    #[arg(
        long,
        alias = "source",
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "timer"
    )]
    stimulus: Vec<Stimulus>,
    /// How long to measure each condition, in guest time
    #[arg(short = 'd', long, value_parser = duration, default_value = "1s", value_name = "TIME")]
    duration: Duration,
    /// How long a condition runs before it is measured, in guest time
    #[arg(long, value_parser = duration, default_value = "200ms", value_name = "TIME")]
    warm_up: Duration,
    #[command(flatten)]
    slice: SliceArgs,
    #[command(flatten)]
    jobs: JobsArgs,
    /// Also read cycles and instructions from the guest's performance counters
    #[arg(long)]
    events: bool,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten, next_help_heading = "Simulated machine")]
    guest: GuestArgs,
}

impl VerifyArgs {
    fn conditions(&self) -> Vec<Condition> {
        Condition::combinations(&self.load, &self.rate, &self.stimulus)
    }
}

/// All conditions together.
#[derive(Default)]
struct All {
    sources: Vec<CheckedContext>,
    costs: Vec<ProbeCost>,
    absent: Vec<Absence>,
    warnings: Vec<String>,
    /// The probes' own costs, by condition.
    probed: Map<String, Json>,
}

/// Measures, prints, records.
pub fn run(cache: Cache, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let open = OpenRun::new("verify-probes", &args.results)?;
    let (mut bench, host) = bench(cache, args)?;
    let conditions = args.conditions();
    let mut progress = ProgressLine::new(Redraw::EverySecond);
    let mut all = All::default();
    bench.measure_ahead(&conditions);
    for (at, condition) in conditions.iter().enumerate() {
        let label = condition.label();
        progress.step(at + 1, conditions.len(), &label);
        match bench.verify(*condition) {
            Ok(None) => break,
            Ok(Some(verified)) => {
                let warnings = verified.warnings.iter().map(|text| format!("{label}: {text}"));
                all.warnings.extend(warnings);
                let probed = json!({
                    "inside_ns": verified.probed.in_span_ns,
                    "added_ns": verified.probed.total_ns,
                    "lost": verified.probed.lost,
                });
                all.probed.insert(label, probed);
                all.sources.extend(verified.sources);
                all.costs.extend(verified.costs);
            }
            Err(BenchError::Failed(reason) | BenchError::TimeLimit(reason)) => {
                bail!("{label}: {reason}")
            }
            Err(error) => all.absent.push(error.absence("probes", label)),
        }
    }
    drop(progress);
    open.finish(&assemble(args, open.started(), host, bench.facts(), all), &[])
}

fn bench(cache: Cache, args: &VerifyArgs) -> anyhow::Result<(SimBench, Map<String, Json>)> {
    let name = args.on.simulated_model("the live bench to verify")?;
    let name = name
        .ok_or_else(|| Usage("--on sim has no clock to verify: use --on sim:MODEL".to_owned()))?;
    let model = simulated::model(&cache, name, &[], None)?;
    let watch = Watch {
        detail: model.detail,
        model: Some(model),
        spans: true,
        vcpu_slice: args.slice.vcpu_slice,
        ..Watch::default()
    };
    let stop = stop_on_signals()?;
    let prepared = Simulated::prepare(cache, &args.guest, args.vcpus, watch, stop, |machine| {
        machine.pmu = args.events;
        Ok(())
    })?;
    let events: &[&str] = if args.events { &["cycles", "instructions"] } else { &[] };
    let host = prepared.host();
    let bench = SimBench::new(SimSettings {
        kernel: (None, None),
        jobs: args.jobs.choose(args.conditions().len(), prepared.guest.machine.memory_mib),
        guest: prepared.guest,
        request: HandlersRequest {
            condition: Condition::Ambient,
            warm_up_ns: ns(args.warm_up),
            duration_ns: ns(args.duration),
            command: None,
            low_interval_ns: 50_000_000,
            housekeeping: Vec::new(),
            disk_file: None,
            probed: true,
            events: events.iter().map(|name| (*name).to_owned()).collect(),
        },
        events: vec!["none".to_owned()],
        on_host: Map::new(),
    });
    Ok((bench, host))
}

fn assemble(
    args: &VerifyArgs,
    started: Timestamp,
    host: Map<String, Json>,
    facts: BenchFacts,
    all: All,
) -> Run {
    let mut settings = facts.settings;
    settings.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
    settings.insert("duration_ns".into(), json!(args.duration.as_nanos() as u64));
    settings.insert("warm_up_ns".into(), json!(args.warm_up.as_nanos() as u64));
    let mut observer = facts.observer;
    observer.insert("probes".into(), Json::Object(all.probed));
    let mut warnings = facts.warnings;
    warnings.extend(all.warnings);
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "verify-probes".to_owned(),
        bench: "sim".to_owned(),
        started_utc: started.to_string(),
        complete: all.absent.is_empty(),
        host,
        settings,
        observer,
        warnings,
        absent: all.absent,
        tables: vec![probes(&all.sources), probe_costs(&all.costs)],
    }
}
