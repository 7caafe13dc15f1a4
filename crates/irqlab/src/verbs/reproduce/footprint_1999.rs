//! `reproduce footprint-1999`: the cache lines that an interrupt evicts, for each model of `--models`.
//!
//! Simulates the parts of each model (`parts`) with the experiment `footprint`, several machines at a time.
//! `papers::footprint_1999` makes the paper's tables and judges its findings.

use std::cmp::Reverse;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use lab::experiment::{Bench, BenchFacts, Experiment, Measured, RunContext, Step, assemble};
use lab::footprint::Samples;
use live::window::Stop;
use machine::SystemModel;
use papers::footprint_1999::{ModelRun, Paper, Part, findings, paper};
use record::{Run, Timestamp};
use serde_json::{Map, Value as Json, json};
use sim::parallel::for_each;
use sim::watch::Watch;
use sim::{Cache, models};

use super::ReproduceArgs;
use super::gathered::{Gathered, Reproduction, key_cell, model_cell};
use super::parts::{GuestPart, left_out, parts};
use crate::console::{ProgressLine, Redraw};
use crate::identity::IdentityArgs;
use crate::options::Usage;
use crate::run::{OpenRun, stop_on_signals};
use crate::simulated::{self, GuestArgs, JobsArgs};
use crate::verbs::footprint::{MEMORY_MIB, SimulatedFootprint, VCPUS, prepare};

/// The tables of a part that are recorded: their names in the part, and in the run of the reproduction.
const TABLES: [(&str, &str); 4] =
    [("footprint", "series"), ("sums", "sums"), ("modes", "modes"), ("by_context", "by_context")];

/// One simulated machine: a part of the measurements of a model.
struct PartOfModel<'a> {
    model: &'a str,
    part: GuestPart,
    window_cycles: u64,
}

/// The result of a part: the block `host` of the run, the facts of the bench, and the samples. `None` if the user
/// stopped before the part was measured.
type PartResult = anyhow::Result<Option<(Map<String, Json>, BenchFacts, Measured<Samples>)>>;

impl PartOfModel<'_> {
    /// Name of the machine in progress lines.
    fn label(&self) -> String {
        format!("{}: {}", self.model, self.part.name)
    }
}

pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let figures = Paper::built_in().context("papers/footprint-1999.toml")?;
    let (models, repetitions) = (args.models(), args.repetitions()?);
    let mut all_parts = Vec::new();
    for model in &models {
        let described = changed_model(model, &[])?;
        let at_model_clock = figures.has_long_windows_of(model);
        for part in parts(&described, repetitions as usize, args.seed, at_model_clock) {
            // Refuses wrong changes before any machine starts.
            changed_model(model, &part.set())?;
            let window_cycles = part.window_cycles(&described);
            all_parts.push(PartOfModel { model, window_cycles, part });
        }
    }
    let open = OpenRun::new("reproduce", &args.results)?;
    let stop = stop_on_signals()?;
    let jobs = args.jobs.choose(all_parts.len(), MEMORY_MIB);
    let progress = Mutex::new((0, ProgressLine::new(Redraw::EverySecond)));
    // Long parts start first. If a long part started last, it would run alone at the end.
    let mut order: Vec<usize> = (0..all_parts.len()).collect();
    order.sort_by_key(|index| Reverse(all_parts[*index].window_cycles));
    let results = for_each(jobs, &order, |_, index| {
        let part_of_model = &all_parts[*index];
        if stop.is_requested() {
            return Ok(None);
        }
        {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.0 += 1;
            let (number, label) = (progress.0, part_of_model.label());
            progress.1.step(number, all_parts.len(), &label);
        }
        measure_part(args, part_of_model, &stop).with_context(|| part_of_model.model.to_owned())
    });
    drop(progress);
    let mut all = Gathered::default();
    let mut results: Vec<(usize, PartResult)> = order.into_iter().zip(results).collect();
    results.sort_by_key(|(index, _)| *index);
    for (part_of_model, (_, result)) in all_parts.into_iter().zip(results) {
        gather(part_of_model, result, &mut all)?;
    }
    if all.runs.iter().all(|run| run.parts.is_empty()) {
        return Err(all.into_failure());
    }
    open.finish(&assemble_all(args, repetitions, &figures, all, open.started()), &[])
}

/// Adds the result of a part to `all`. The parts of a model must come one after the other.
fn gather(
    PartOfModel { model, part, .. }: PartOfModel<'_>,
    result: PartResult,
    all: &mut Gathered<ModelRun>,
) -> anyhow::Result<()> {
    if all.runs.last().is_none_or(|run| run.model != model) {
        let left_out = left_out(&changed_model(model, &[])?);
        all.runs.push(ModelRun { model: model.to_owned(), parts: Vec::new(), left_out });
    }
    let measured = match result {
        Ok(Some(measured)) => measured,
        Ok(None) => {
            all.incomplete();
            return Ok(());
        }
        // The results of the other parts are kept.
        Err(error) => {
            all.fail("series", &format!("{model}, {}", part.name), error);
            return Ok(());
        }
    };
    let (host, facts, measured) = measured;
    all.host = host;
    add_part(model, &part, facts, &measured, all);
    let GuestPart { long, change, .. } = part;
    if let Some(run) = all.runs.last_mut() {
        run.parts.push(Part { long, change, measured });
    }
    Ok(())
}

/// The model with this name and these changes.
fn changed_model(name: &str, changes: &[String]) -> Result<SystemModel, Usage> {
    let changed = models::with_changes(name, changes);
    changed.map(|(_, model)| model).map_err(|error| Usage(error.to_string()))
}

/// Boots the machine of a part and measures it. Returns `None` if the user asked to stop.
fn measure_part(args: &ReproduceArgs, part_of_model: &PartOfModel<'_>, stop: &Stop) -> PartResult {
    let part = &part_of_model.part;
    let guest = GuestArgs {
        machine_limit: Some(args.limit()),
        append: part.append.clone(),
        net: part.cards(),
        // All models run the same software.
        identity: IdentityArgs::plain(),
        ..GuestArgs::default()
    };
    let cache = Cache::from_environment()?;
    let model = simulated::model(&cache, part_of_model.model, &part.set(), None)?;
    let watch = Watch {
        detail: model.detail,
        model: Some(model.clone()),
        start_fast: true,
        ..Watch::default()
    };
    let label = format!("{}, ", part_of_model.label());
    let footprint = SimulatedFootprint {
        label: &label,
        // The parts run at the same time.
        jobs: JobsArgs::one(),
        guest: &guest,
        vcpus: VCPUS,
        model: &model,
        watch,
        disk: part.disk,
        geometry: &[],
        request: part.request.clone(),
    };
    let (mut bench, facts) = prepare(cache, footprint, stop.clone())?;
    let mut measured = part.request.plan.measure(&mut bench, &mut |_: &Step| {})?;
    measured.note_limit(&bench);
    // Measurements from before a stop are kept.
    let is_kept = !bench.stop_requested() || !measured.samples.series.is_empty();
    Ok(is_kept.then(|| (facts.host, bench.facts(), measured)))
}

/// The name of a part's table in the run. `None` if the run does not have the table.
fn name_in_run(name_in_part: &str) -> Option<&'static str> {
    TABLES.iter().find(|(part, _)| *part == name_in_part).map(|(_, run)| *run)
}

/// Adds a part's machine, warnings, early end, absences, and those of its tables that [`TABLES`] lists. The first columns
/// of its tables name the model and the guest.
fn add_part(
    name: &str,
    part: &GuestPart,
    facts: BenchFacts,
    measured: &Measured<Samples>,
    all: &mut Gathered<ModelRun>,
) {
    let machine = json!({
        "model": facts.settings.get("model"), "machine": facts.settings.get("machine"),
        "window_ns": part.request.window_ns, "ticks": part.request.ticks,
    });
    let label = format!("{name}, {}", part.name);
    all.machine(&label, machine);
    let slowed = part.clock().map(|clock| {
        format!(
            "run with {clock}: at the model's own clock, windows would take too long to simulate"
        )
    });
    all.warn(&label, facts.warnings.iter().cloned().chain(slowed));
    all.add_early_end(&label, measured);
    let run = assemble(&part.request.plan, RunContext::default(), facts, measured);
    for absence in run.absent {
        let what = format!("{label}: {}", absence.what);
        let table = name_in_run(&absence.table).unwrap_or(&absence.table).to_owned();
        all.absent.push(record::Absence { table, what, ..absence });
    }
    for mut table in run.tables {
        let Some(name_in_run) = name_in_run(&table.name) else { continue };
        let guest = key_cell("guest", "Guest that measured the row.", part.name);
        table.name = name_in_run.to_owned();
        all.add_rows(&[model_cell(name), guest], table);
    }
}

/// Makes the run from all parts: the tables compare the models with the paper's figures.
fn assemble_all(
    args: &ReproduceArgs,
    repetitions: u32,
    figures: &Paper,
    mut all: Gathered<ModelRun>,
    started: Timestamp,
) -> Run {
    let tables = vec![
        paper(figures, &all.runs, &mut all.absent),
        findings(figures, &all.runs, args.selection()),
    ];
    let settings = json!({
        "paper": figures.title, "models": args.models(), "repetitions_max": repetitions,
        "seed": args.seed,
    });
    let caution = "the guest is Linux on x86-64 with the caches and the clock of the model; code and system are \
                   not those of the paper, so compare findings, not single figures";
    all.into_run(Reproduction {
        experiment: "footprint",
        settings,
        cautions: &[caution],
        tables,
        started,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use papers::Selection;

    use super::*;

    fn item(number: usize) -> PartOfModel<'static> {
        let part = parts(&changed_model("ultra-1", &[]).unwrap(), 24, 1, false).swap_remove(number);
        PartOfModel { model: "ultra-1", window_cycles: 0, part }
    }

    #[test]
    fn the_results_of_other_parts_survive_a_failure() {
        let mut all = Gathered::default();
        gather(item(0), Err(anyhow!("no machine")), &mut all).unwrap();
        let measured = (Map::new(), BenchFacts::default(), Measured::default());
        gather(item(1), Ok(Some(measured)), &mut all).unwrap();
        assert_eq!((all.absent.len(), all.runs[0].parts.len()), (1, 1));
        assert_eq!(all.absent[0].reason, "no machine");
        assert_eq!(all.into_failure().to_string(), "no machine");
    }

    #[test]
    fn a_part_that_was_cut_short_makes_the_run_incomplete() {
        let figures = Paper::built_in().unwrap();
        let mut measured = Measured::default();
        measured.left_out("l1d, disk");
        let mut all = Gathered::default();
        let result = (Map::new(), BenchFacts::default(), measured);
        gather(item(0), Ok(Some(result)), &mut all).unwrap();
        let tables = vec![findings(&figures, &all.runs, Selection::Part)];
        let (experiment, settings, started) = ("footprint", json!({}), record::now());
        let run =
            all.into_run(Reproduction { experiment, settings, cautions: &[], tables, started });
        let is_named = |warning: &String| warning.contains("ended early: l1d, disk");
        assert!(!run.complete && run.warnings.iter().any(is_named), "{:?}", run.warnings);
    }
}
