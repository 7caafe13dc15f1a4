//! `reproduce simos-1995`: where kernel time goes in three workloads, on machines of three years and on eight CPUs.
//!
//! Sets each workload up once for one CPU and once for eight, and runs its machines from that state with the
//! experiment `services`. `papers::simos_1995` makes the paper's tables and judges its findings.

use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use lab::experiment::{Bench, BenchError, Experiment};
use lab::services::{Class, Plan, Samples};
use live::window::Stop;
use machine::SystemModel;
use papers::simos_1995::{
    ClassifiedMisses, MachineRun, MissCosts, Paper, Role, absent_from_every_run, findings, tables,
};
use record::{Run, Table, Value};
use serde_json::{Map, Value as Json, json};
use sim::models::Model;
use sim::parallel::for_each;
use sim::services::{SimServices, SimServicesSettings, Work};
use sim::watch::{Detail, Watch};
use sim::workload::Prepared;
use sim::{Accounting, Cache, MissKind};
use sim_tables::misses::{cache_name, class_name, is_by_user};

use super::ReproduceArgs;
use super::gathered::{Gathered, Reproduction, key_cell, model_cell};
use crate::console;
use crate::options::Usage;
use crate::run::{OpenRun, is_time_limit, stop_on_signals};
use crate::simulated::{self, DetailLevel, GuestArgs, Simulated, model};

/// Sizes of each L1 cache and of L2, from the machine of 1994 to the machine of 1998 (Table 3.1), KiB.
const SIZES_KIB: [(u64, u64); 3] = [(16, 1024), (32, 2048), (64, 4096)];
/// Lines and ways of the caches, from the captions of Figures 4.6 and 4.7.
const SHAPES: [&str; 6] =
    ["l1i.line=64B", "l1i.ways=2", "l1d.line=32B", "l1d.ways=2", "l2.line=128B", "l2.ways=2"];
/// Number of CPUs of the multiprocessor (section 3.5).
const CPUS: u32 = 8;
/// Tables of a machine that are recorded in the run.
const TABLES: [&str; 5] = ["services", "modes", "waits", "agreement", "profile"];

/// Warnings about differences from the paper. The second applies only to short forms.
const CAUTIONS: [&str; 2] = [
    "the guest is Linux on x86-64 with the cores, the caches and the clocks of the models; PostgreSQL, \
     Icarus Verilog and today's gcc replace the paper's programs: compare machines and trends, not single \
     figures",
    "the short forms of the workloads do less work, so start and end are a larger part of the run",
];
/// The table that lacks the rows of a machine that failed.
const TABLE: &str = "execution";

/// The parts of the reproduction: values of `--parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The machines of the paper
    Machines,
    /// The core of 1994 with the caches of later machines
    InOrder,
    /// Caches of three sizes, with classes of misses
    Caches,
}

/// A simulated machine that runs a workload.
struct WorkloadMachine {
    workload: String,
    /// Name of the model that is loaded.
    base: String,
    /// Changes of the loaded model, as values of `--set`.
    changes: Vec<String>,
    /// Name of the model in the paper's tables.
    model: String,
    cpus: u32,
    role: Role,
}

impl WorkloadMachine {
    /// Name of the machine in messages.
    fn label(&self) -> String {
        let WorkloadMachine { workload, model, .. } = self;
        match self.role {
            Role::Machine => format!("{workload}, {model}"),
            Role::InOrder => format!("{workload}, in order with the caches of {model}"),
            Role::Caches { l1_bytes, l2_bytes } => {
                let kib = |bytes: u64| bytes >> 10;
                format!("{workload}, {model} with {} and {} KiB", kib(l1_bytes), kib(l2_bytes))
            }
        }
    }

    /// The changed model, at the level of detail that the machine's role needs.
    fn model(&self, cache: &Cache) -> anyhow::Result<Model> {
        let classifies_misses = matches!(self.role, Role::Caches { .. });
        let detail = classifies_misses.then_some(DetailLevel::Ooo);
        model(cache, &self.base, &self.changes, detail)
    }
}

/// The changes that give the machine of 1994 the caches and the memory of `source`, a model of the paper, which has an
/// L2.
fn caches_of(source: &SystemModel) -> Vec<String> {
    let l2 = source.l2.iter().map(|level| ("l2", level));
    let levels = [("l1i", &source.l1i), ("l1d", &source.l1d)].into_iter().chain(l2);
    let level = |(name, level): (&str, &machine::system_model::LevelModel)| {
        [
            format!("{name}.size_bytes={}", level.size_bytes),
            format!("{name}.ways={}", level.ways),
            format!("{name}.line_bytes={}", level.line_bytes),
        ]
    };
    let mut changes: Vec<String> = levels.flat_map(level).collect();
    changes.extend(source.l2_hit_cycles.map(|cycles| format!("l2_hit_cycles={cycles}")));
    changes.extend([
        format!("clock_hz={}", source.clock_hz),
        format!("memory_cycles={}", source.memory_cycles),
        format!("tlb_miss_cycles={}", source.tlb_miss_cycles),
    ]);
    changes
}

/// The machines of a workload that `--models` and `--parts` select.
fn machines_of(
    args: &ReproduceArgs,
    paper: &Paper,
    cache: &Cache,
    workload: &str,
) -> anyhow::Result<Vec<WorkloadMachine>> {
    let is_wanted =
        |name: &str| args.models.is_empty() || args.models.iter().any(|wanted| wanted == name);
    let has_part = |part: Part| args.parts.is_empty() || args.parts.contains(&part);
    let [first, later @ ..] = &paper.machines;
    let machine = |model: &str, cpus: u32, role: Role| WorkloadMachine {
        workload: workload.to_owned(),
        base: model.to_owned(),
        changes: Vec::new(),
        model: model.to_owned(),
        cpus,
        role,
    };
    let with_all_sizes = |model: &str, cpus: u32| {
        let with_caches = |(l1_kib, l2_kib): (u64, u64)| {
            let (l1_bytes, l2_bytes) = (l1_kib << 10, l2_kib << 10);
            let changes = [("l1i", l1_bytes), ("l1d", l1_bytes), ("l2", l2_bytes)];
            let sizes = changes.map(|(name, bytes)| format!("{name}.size_bytes={bytes}"));
            let changes = SHAPES.iter().map(|&shape| shape.to_owned()).chain(sizes).collect();
            WorkloadMachine { changes, ..machine(model, cpus, Role::Caches { l1_bytes, l2_bytes }) }
        };
        SIZES_KIB.map(with_caches)
    };
    let multi = &paper.multiprocessor;
    let mut all = Vec::new();
    if has_part(Part::Machines) {
        let machines = paper.machines.iter().filter(|name| is_wanted(name));
        all.extend(machines.map(|name| machine(name, 1, Role::Machine)));
    }
    if has_part(Part::InOrder) {
        for name in later.iter().filter(|name| is_wanted(name)) {
            let later_model = model(cache, name, &[], None)?.model;
            let changes = caches_of(&later_model);
            all.push(WorkloadMachine {
                base: first.clone(),
                changes,
                ..machine(name, 1, Role::InOrder)
            });
        }
    }
    if has_part(Part::Caches) && is_wanted(first) {
        all.extend(with_all_sizes(first, 1));
    }
    if is_wanted(multi) {
        if has_part(Part::Machines) {
            all.push(machine(multi, CPUS, Role::Machine));
        }
        if has_part(Part::Caches) {
            all.extend(with_all_sizes(multi, CPUS));
        }
    }
    Ok(all)
}

/// The results of a machine.
struct Measured {
    run: MachineRun,
    tables: Vec<Table>,
    settings: Map<String, Json>,
    warnings: Vec<String>,
}

pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let paper = Paper::built_in().context("papers/simos-1995.toml")?;
    let workloads: Vec<String> = if args.workload.is_empty() {
        paper.workloads().map(str::to_owned).collect()
    } else {
        args.workload.clone()
    };
    let paper_models = || paper.machines.iter().chain([&paper.multiprocessor]);
    if let Some(unknown) =
        args.models.iter().find(|name| !paper_models().any(|model| model == *name))
    {
        let names: Vec<&str> = paper_models().map(String::as_str).collect();
        return Err(Usage(format!(
            "--models {unknown}: the paper has no such machine; its machines: {}",
            names.join(", ")
        ))
        .into());
    }
    let cache = Cache::from_environment()?;
    let mut all = Vec::new();
    for workload in &workloads {
        let machines = machines_of(args, &paper, &cache, workload)?;
        // Refuses unknown workloads before the run's directory is created.
        for cpus in [1, CPUS] {
            if machines.iter().any(|machine| machine.cpus == cpus) {
                simulated::workload(workload, cpus, args.short)?;
            }
        }
        all.push((workload, machines));
    }
    let open = OpenRun::new("reproduce", &args.results)?;
    let stop = stop_on_signals()?;
    let mut gathered = Gathered::default();
    for (workload, machines) in all {
        let (uniprocessors, multiprocessors): (Vec<WorkloadMachine>, Vec<WorkloadMachine>) =
            machines.into_iter().partition(|machine| machine.cpus == 1);
        for machines in [uniprocessors, multiprocessors] {
            if !machines.is_empty() && !stop.is_requested() {
                measure_all(args, workload, &machines, &stop, &mut gathered);
            }
        }
    }
    if stop.is_requested() {
        gathered.incomplete();
    }
    if gathered.runs.is_empty() {
        return Err(gathered.into_failure());
    }
    let run = assemble(args, &workloads, &paper, gathered, &open);
    open.finish(&run, &args.pictures.draw(&run))
}

/// Runs machines that have one workload and one number of CPUs. All start from the saved state of one machine, which is
/// set up once. A failure is recorded in `all`.
fn measure_all(
    args: &ReproduceArgs,
    workload: &str,
    machines: &[WorkloadMachine],
    stop: &Stop,
    all: &mut Gathered<MachineRun>,
) {
    let cpus = machines[0].cpus;
    let (prepared, workload) = match prepare(args, workload, cpus, stop) {
        Ok(ready) => ready,
        Err(error) => {
            let text = format!("{error:#}");
            for machine in machines {
                let error = if is_time_limit(&error) {
                    anyhow!(BenchError::TimeLimit(text.clone()))
                } else {
                    anyhow!(text.clone())
                };
                all.fail(TABLE, &machine.label(), error);
            }
            return;
        }
    };
    all.host = prepared.host();
    let jobs = args.jobs.choose(machines.len(), prepared.guest.machine.memory_mib);
    let results = for_each(jobs, machines, |_, machine| {
        let result = measure(machine, &prepared, &workload);
        if let Ok(Some(measured)) = &result {
            let instructions = measured.run.instructions() as f64 / 1e9;
            console::say(&format!("{}: {instructions:.3} G instructions", machine.label()));
        }
        result
    });
    for (machine, result) in machines.iter().zip(results) {
        match result {
            Ok(Some(measured)) => add_machine(machine, measured, all),
            Ok(None) => all.incomplete(),
            // The results of the other machines are kept.
            Err(error) => all.fail(TABLE, &machine.label(), error),
        }
    }
}

/// Prepares the machine of a workload. Sets it up unless the cache has it.
fn prepare(
    args: &ReproduceArgs,
    workload: &str,
    cpus: u32,
    stop: &Stop,
) -> anyhow::Result<(Simulated, Prepared)> {
    let workload = simulated::workload(workload, cpus, args.short)?;
    let guest = GuestArgs { machine_limit: Some(args.limit()), ..GuestArgs::default() };
    let cache = Cache::from_environment()?;
    Simulated::prepare_workload(cache, &guest, &workload, Watch::default(), stop.clone())
}

/// Runs a machine to the end of its workload. Returns `None` if the user asked to stop, because a part of a workload
/// cannot be compared with the paper.
///
/// Fails with [`BenchError::TimeLimit`] when a limit ends the machine.
fn measure(
    machine: &WorkloadMachine,
    prepared: &Simulated,
    workload: &Prepared,
) -> anyhow::Result<Option<Measured>> {
    let mut guest = prepared.guest.clone();
    if (guest.stop)() {
        return Ok(None);
    }
    let model = machine.model(&guest.cache)?;
    let costs = costs(&model);
    let misses = matches!(machine.role, Role::Caches { .. });
    guest.watch = Watch {
        detail: model.detail,
        model: Some(model),
        start_fast: true,
        services: true,
        // On one CPU, nothing waits for a lock.
        locks: machine.cpus > 1,
        misses,
        ..Watch::default()
    };
    let mut bench = SimServices::new(SimServicesSettings {
        trace_bytes_max: None,
        guest,
        work: Work::Workload(Box::new(workload.clone())),
        symbols: prepared.facts.symbols.clone(),
        btf: prepared.facts.btf.clone(),
        on_host: Map::new(),
        label: machine.label(),
    });
    let Some((sample, account)) = bench.measure_recorded()? else { return Ok(None) };
    if sample.interrupted {
        return match bench.limit_reached() {
            Some(limit) => bail!(BenchError::TimeLimit(limit)),
            None => Ok(None),
        };
    }
    let facts = bench.facts();
    let samples = Samples { window: Some(sample) };
    let report = Plan { histograms: false }.report(&samples);
    let Some(sample) = samples.window else { return Ok(None) };
    let walks = sample.services.iter().filter(|service| service.class == Class::PageWalk);
    let run = MachineRun {
        page_walks: walks.cloned().collect(),
        workload: machine.workload.clone(),
        model: machine.model.clone(),
        cpus: machine.cpus,
        role: machine.role,
        costs,
        // The paper counts page walks in modes and services, because software of its kernel walked the tables.
        sample: sample.with_page_walks_in_services(),
        misses: misses_by_class(&account),
    };
    let mut warnings = report.warnings;
    warnings.extend(facts.warnings);
    Ok(Some(Measured { run, tables: report.tables, settings: facts.settings, warnings }))
}

/// The costs of misses that the paper's tables need.
fn costs(model: &Model) -> MissCosts {
    let Model { model, detail, .. } = model;
    MissCosts {
        // Read only for models of the level `timed`, which have an L2.
        l2_hit_cycles: model.l2_hit_cycles.unwrap_or_default(),
        memory_cycles: model.memory_cycles,
        transfer_cycles: model.or_memory(model.cache_to_cache_cycles),
        upgrade_cycles: model.or_memory(model.upgrade_cycles),
        // `timed` is the level of detail with blocking caches only.
        is_blocking: *detail == Detail::Timed,
    }
}

/// The misses by class in the first region: the region of interest of the workload.
fn misses_by_class(account: &Accounting) -> Vec<ClassifiedMisses> {
    let classes =
        account.misses.iter().filter(|count| count.region == 1 && count.kind == MissKind::Class);
    let classified = |count: &sim::MissCount| ClassifiedMisses {
        cache: cache_name(count).to_owned(),
        is_user: is_by_user(count),
        class: class_name(count).to_owned(),
        count: count.count,
    };
    classes.map(classified).collect()
}

/// Adds the result of a machine to `all`. Only the tables of the paper's machines are recorded.
fn add_machine(
    workload_machine: &WorkloadMachine,
    measured: Measured,
    all: &mut Gathered<MachineRun>,
) {
    let label = workload_machine.label();
    all.warn(&label, measured.warnings);
    let settings = |name: &str| measured.settings.get(name).cloned();
    let machine = json!({
        "model": settings("model"), "machine": settings("machine"), "start": settings("start"),
        "clock_hz": settings("clock_hz"), "vcpu_slice_cycles": settings("vcpu_slice_cycles"),
    });
    all.machine(&label, machine);
    let workload = key_cell("workload", "The workload.", &workload_machine.workload);
    let key = [workload, model_cell(&workload_machine.model)];
    let is_machine = workload_machine.role == Role::Machine;
    let is_kept = |table: &Table| is_machine && TABLES.contains(&table.name.as_str());
    for table in measured.tables.into_iter().filter(is_kept) {
        all.add_rows(&key, without_counters(&table));
    }
    all.runs.push(measured.run);
}

/// Removes the columns of single counters, because models have different counters.
fn without_counters(table: &Table) -> Table {
    let is_kept = |name: &str| !name.starts_with("self_") || name.starts_with("self_total_");
    let kept: Vec<usize> =
        (0..table.columns.len()).filter(|&index| is_kept(&table.columns[index].name)).collect();
    let columns = kept.iter().map(|&index| table.columns[index].clone()).collect();
    let mut reduced = Table::new(&table.name, &table.doc, columns).displayed(table.display.clone());
    for row in table.rows() {
        reduced.push(kept.iter().map(|&index| row[index].clone()).collect::<Vec<Value>>());
    }
    reduced
}

/// Makes the run from all machines: its tables compare them with the paper's figures.
fn assemble(
    args: &ReproduceArgs,
    workloads: &[String],
    paper: &Paper,
    mut all: Gathered<MachineRun>,
    open: &OpenRun,
) -> Run {
    let mut paper_tables = vec![findings(paper, &all.runs, args.selection())];
    paper_tables.extend(tables(paper, &all.runs));
    let sizes: Vec<Json> =
        SIZES_KIB.iter().map(|(l1, l2)| json!({ "l1_kib": l1, "l2_kib": l2 })).collect();
    let settings = json!({
        "paper": paper.title, "workloads": workloads, "short": args.short, "seed": args.seed,
        "cache_sizes": sizes,
    });
    let mut models: Vec<&str> = all.runs.iter().map(|run| run.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    let models = format!("models {}", models.join(", "));
    all.host.insert("cpu_model".to_owned(), json!(models));
    // The machines have different numbers of CPUs.
    all.host.remove("cpus_online");
    all.absent.extend(absent_from_every_run());
    all.into_run(Reproduction {
        experiment: "services",
        settings,
        cautions: &CAUTIONS[..1 + usize::from(args.short)],
        tables: paper_tables,
        started: open.started(),
    })
}
