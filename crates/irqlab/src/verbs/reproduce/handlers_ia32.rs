//! `reproduce handlers-ia32`: the cost of interrupts on six machines, under {idle, loaded} x {low, high rate} x
//! {disk, net}.
//!
//! Simulates the models one after the other with the experiment `handlers`, the conditions of a model at the same
//! time. `papers::handlers_ia32` makes the paper's tables and judges its findings.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use lab::experiment::{Bench, BenchFacts, Experiment, Measured, RunContext, assemble};
use lab::handlers::in_guest::HandlersRequest;
use lab::handlers::{Condition, Load, Plan, Rate, Stimulus};
use live::window::Stop;
use papers::handlers_ia32::{ModelRun, Paper, findings, paper};
use record::{Absence, Run};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::devices::NicModel;
use sim::handlers::{SimBench, SimSettings};
use sim::watch::Watch;

use super::ReproduceArgs;
use super::gathered::{Gathered, Reproduction, model_cell};
use crate::console;
use crate::identity::IdentityArgs;
use crate::options::ns;
use crate::run::{OpenRun, stop_on_signals};
use crate::simulated::{FlavourName, GuestArgs, KernelArgs, Simulated, add_disk, model};

/// Length of a window: about twenty interrupts at the low rate, hundreds at the high rate.
const WINDOW: Duration = Duration::from_millis(200);
const LOW_INTERVAL: Duration = Duration::from_millis(10);
const WARM_UP: Duration = Duration::from_millis(100);
/// Disk of the paper's machines, except [`SCSI_MACHINE`].
const IDE: &str = "ide,latency=100us";
const SCSI: &str = "lsi,latency=100us";
/// The paper's machine with a SCSI disk.
const SCSI_MACHINE: &str = "p3-1266";
/// The paper's machines had 100 Mbit/s cards with port IO and an interrupt line.
const CARDS: NicModel = NicModel::Rtl8139;
/// Tables of each model that are recorded in the run.
const TABLES: [&str; 4] = ["handlers", "events", "ratios", "conditions"];

pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let published = Paper::built_in().context("papers/handlers-ia32.toml")?;
    let models = if args.models.is_empty() {
        published.machines.iter().map(|machine| machine.model.clone()).collect()
    } else {
        args.models.clone()
    };
    let cache = Cache::from_environment()?;
    // Refuses unknown models before the run's directory is created.
    for name in &models {
        model(&cache, name, &[], None)?;
    }
    let plan = Plan {
        conditions: Condition::combinations(Load::ALL, Rate::ALL, &[Stimulus::Net, Stimulus::Disk]),
        histograms: false,
    };
    let open = OpenRun::new("reproduce", &args.results)?;
    let stop = stop_on_signals()?;
    let mut all = Gathered::default();
    for name in &models {
        if stop.is_requested() {
            all.incomplete();
            break;
        }
        console::say(&format!("{name}: {} conditions", plan.conditions.len()));
        match measure(args, name, &plan, &stop) {
            Ok((run, facts, host)) => {
                all.host = host;
                add_model(&plan, run, facts, &mut all);
            }
            // The results of the other models are kept.
            Err(error) => all.fail("paper", name, error),
        }
    }
    if all.runs.iter().all(|run| run.measured.samples.conditions.is_empty()) {
        return Err(all.into_failure());
    }
    open.finish(&assemble_all(args, &models, &published, all, &open), &[])
}

/// Measures all conditions on one model. Also returns the facts of the bench, and the block `host` of the run.
fn measure(
    args: &ReproduceArgs,
    name: &str,
    plan: &Plan,
    stop: &Stop,
) -> anyhow::Result<(ModelRun, BenchFacts, Map<String, Json>)> {
    let cache = Cache::from_environment()?;
    let model = model(&cache, name, &[], None)?;
    let clock_hz = model.model.clock_hz;
    let watch = Watch {
        spans: true,
        span_counts: true,
        detail: model.detail,
        model: Some(model),
        start_fast: true,
        ..Watch::default()
    };
    let kernel = KernelArgs { kernel: None, modules: None, flavour: Some(FlavourName::Full) };
    let machine_limit = Some(args.limit());
    // All models run the same software.
    let identity = IdentityArgs::plain();
    let guest =
        GuestArgs { kernel, identity, net: Some(CARDS), machine_limit, ..GuestArgs::default() };
    let disk = if name == SCSI_MACHINE { SCSI } else { IDE };
    let prepared = Simulated::prepare(cache, &guest, 1, watch, stop.clone(), |machine| {
        add_disk(machine, true, disk)
    })?;
    let host = prepared.host();
    let jobs = args.jobs.choose(plan.conditions.len(), prepared.guest.machine.memory_mib);
    let request = HandlersRequest {
        condition: Condition::Ambient,
        warm_up_ns: ns(WARM_UP),
        warms_in_samples: false,
        duration_ns: ns(args.duration.unwrap_or(WINDOW)),
        command: None,
        low_interval_ns: ns(LOW_INTERVAL),
        housekeeping: Vec::new(),
        disk_file: None,
        probed: false,
        senders: false,
        events: Vec::new(),
        delays: false,
    };
    let (events, on_host) = (Vec::new(), Map::new());
    let settings = SimSettings {
        guest: prepared.guest,
        jobs,
        low_rate_warm_up_ns: request.warm_up_ns,
        request,
        events,
        on_host,
        kernel: (None, None),
        senders: false,
        victims: None,
        trace_bytes_max: None,
    };
    let mut bench = SimBench::new(settings);
    let mut measured: Measured<_> = plan.measure(&mut bench, &mut |_: &_| {})?;
    measured.note_limit(&bench);
    let run = ModelRun { model: name.to_owned(), clock_hz, measured };
    Ok((run, bench.facts(), host))
}

/// Adds the description, the warnings and the tables of a model to `all`. The first column of its tables names the model.
fn add_model(plan: &Plan, run: ModelRun, facts: BenchFacts, all: &mut Gathered<ModelRun>) {
    let name = run.model.clone();
    let machine = json!({
        "model": facts.settings.get("model"), "machine": facts.settings.get("machine"),
    });
    all.machine(&name, machine);
    all.warn(&name, facts.warnings.iter().cloned());
    all.add_early_end(&name, &run.measured);
    let assembled = assemble(plan, RunContext::default(), facts, &run.measured);
    for absence in assembled.absent {
        all.absent.push(Absence { what: format!("{name}: {}", absence.what), ..absence });
    }
    for table in assembled.tables {
        if TABLES.contains(&table.name.as_str()) {
            all.add_rows(&[model_cell(&name)], table);
        }
    }
    all.runs.push(run);
}

/// Makes the run from all models: the tables compare them with the paper's figures.
fn assemble_all(
    args: &ReproduceArgs,
    models: &[String],
    published: &Paper,
    all: Gathered<ModelRun>,
    open: &OpenRun,
) -> Run {
    let settings = json!({
        "paper": published.title, "models": models, "seed": args.seed,
        "duration_ns": ns(args.duration.unwrap_or(WINDOW)), "low_interval_ns": ns(LOW_INTERVAL),
        "warm_up_ns": ns(WARM_UP),
    });
    let caution = "the guest is Linux on x86-64 with the caches, core and clock of the model, and two connected \
                   RTL8139 cards instead of a remote machine; its drivers are not those of the paper, so compare \
                   machines and conditions, not single figures";
    let tables =
        vec![paper(published, &all.runs), findings(published, &all.runs, args.selection())];
    let started = open.started();
    all.into_run(Reproduction {
        experiment: "handlers",
        settings,
        cautions: &[caution],
        tables,
        started,
    })
}
