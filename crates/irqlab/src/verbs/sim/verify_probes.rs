//! `irqlab sim verify-probes`: the live bench in a simulated machine, held against the truth.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use lab::handlers::in_guest::GuestOrder;
use lab::handlers::probe_check::{CheckedSource, ProbeCost, probe_costs, probes};
use lab::handlers::{BenchError, BenchFacts, Condition, HandlersBench, Load, Rate, Source};
use record::{Absence, Run, SCHEMA, Timestamp};
use serde_json::{Map, Value as Json, json};
use sim::handlers::{SimBench, SimSettings};
use sim::image::Tools;
use sim::watch::{self, Detail, QUANTUM_DEFAULT, QUANTUM_MAX, Watch};
use sim::{Cache, models, qemu};

use crate::args::{Printing, Usage, duration};
use crate::output;
use crate::verbs::handlers::place::output_directory;
use crate::verbs::handlers::sim::host;
use crate::verbs::handlers::stop::stop_on_signals;
use crate::verbs::machine::GuestArgs;

/// Which conditions, on which machine.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// Model of the processor, by name or file
    #[arg(long, value_name = "MODEL", default_value = "r4400-1994")]
    model: String,
    /// CPUs, 1 to 16
    #[arg(short, long, default_value_t = 1)]
    cpus: u32,
    /// idle, busy
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "idle")]
    load: Vec<Load>,
    /// low, high
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "high")]
    rate: Vec<Rate>,
    /// disk, net, timer, ipi, none
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "timer")]
    source: Vec<Source>,
    /// How long to measure each condition, in guest time
    #[arg(short = 'd', long, value_parser = duration, default_value = "1s", value_name = "TIME")]
    duration: Duration,
    /// How long a condition runs before it is measured, in guest time
    #[arg(long, value_parser = duration, default_value = "200ms", value_name = "TIME")]
    warm_up: Duration,
    /// Cycles of a CPU's turn, with two or more CPUs
    #[arg(long, value_name = "N", default_value_t = QUANTUM_DEFAULT,
          value_parser = clap::value_parser!(u64).range(1..=QUANTUM_MAX))]
    quantum: u64,
    /// Read cycles and instructions, too, from performance counters of the guest
    #[arg(long)]
    events: bool,
    /// Directory of the run [default: irqlab-runs/UTC-verify-probes]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    printing: Printing,
    #[command(flatten)]
    guest: GuestArgs,
}

/// All conditions together.
#[derive(Default)]
struct All {
    sources: Vec<CheckedSource>,
    costs: Vec<ProbeCost>,
    absent: Vec<Absence>,
    warnings: Vec<String>,
    /// What the probes said of their own cost, by condition.
    probed: Map<String, Json>,
}

/// Measures, prints, records.
pub fn run(cache: Cache, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let started = Timestamp::now();
    let (directory, _made) = output_directory("verify-probes", args.out.as_deref(), started)?;
    let (mut bench, host) = bench(cache, args)?;
    let conditions = Condition::combinations(&args.load, &args.rate, &args.source);
    let mut all = All::default();
    for (at, condition) in conditions.iter().enumerate() {
        let label = condition.label();
        output::say(args.printing.quiet, &format!("[{}/{}] {label}", at + 1, conditions.len()));
        match bench.verify(*condition) {
            Ok(None) => break,
            Ok(Some(verified)) => {
                let said = verified.warnings.iter().map(|text| format!("{label}: {text}"));
                all.warnings.extend(said);
                let probed = json!({
                    "inside_ns": verified.probed.inside_ns,
                    "added_ns": verified.probed.added_ns,
                    "lost": verified.probed.lost,
                    "inside_by_source": verified.inside,
                });
                all.probed.insert(label, probed);
                all.sources.extend(verified.sources);
                all.costs.extend(verified.costs);
            }
            Err(BenchError::Failed(reason)) => bail!("{label}: {reason}"),
            Err(
                BenchError::Unavailable { reason, remedy }
                | BenchError::NothingMeasurable { reason, remedy },
            ) => {
                let table = "probes".to_owned();
                all.absent.push(Absence { table, what: label, reason, remedy });
            }
        }
    }
    if all.sources.is_empty() {
        let reason = all.absent.first().map_or("no condition was measured", |one| &one.reason);
        return Ok(output::nothing(reason, None));
    }
    let run = assemble(args, started, host, bench.facts(), all);
    let format = args.printing.format();
    output::print(&output::run_text(&run, &directory, format, "probes", true))?;
    record::write_run(&run, &[], &directory).context("the results above are not recorded")?;
    output::say(args.printing.quiet, &format!("run: {}", directory.display()));
    Ok(ExitCode::SUCCESS)
}

fn bench(cache: Cache, args: &VerifyArgs) -> anyhow::Result<(SimBench, Map<String, Json>)> {
    let model = models::find(&cache, &args.model, &[], Detail::Timed);
    let model = model.map_err(|error| Usage(error.to_string()))?;
    let qemu = qemu::find(&cache)?;
    let stop = stop_on_signals()?;
    let say = |text: &str| output::say(args.printing.quiet, text);
    let (mut machine, kernel) = args.guest.machine(&cache, args.cpus, Tools::Irqlab)?;
    machine.pmu = args.events;
    let events: &[&str] = if args.events { &["cycles", "instructions"] } else { &[] };
    let annotated = watch::annotated(&cache, &qemu, &kernel, &say)?;
    let facts = sim::guest_facts(&cache, &qemu, &kernel, &say)?;
    let host = host(&machine, &facts);
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let bench = SimBench::new(SimSettings {
        watch: Watch {
            detail: Detail::Timed,
            model: Some(model),
            spans: true,
            quantum: args.quantum,
            ..Watch::default()
        },
        order: GuestOrder {
            condition: Condition::AsFound,
            warm_up_ns: ns(args.warm_up),
            duration_ns: ns(args.duration),
            command: None,
            low_interval_ns: 50_000_000,
            housekeeping: Vec::new(),
            disk_file: None,
            probed: true,
            events: events.iter().map(|name| (*name).to_owned()).collect(),
        },
        cache,
        qemu,
        machine,
        annotated,
        from: args.guest.from.clone(),
        limits: args.guest.limits(),
        events: vec!["none".to_owned()],
        on_host: Map::new(),
        stop: Box::new(move || stop.is_requested()),
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
