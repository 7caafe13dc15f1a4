//! `irqlab machines fit`: makes a model of this machine's processor, or of a processor that was measured earlier.
//!
//! Measures the kernels of the validation suite on the processor (or reads kept data), and starts from the preset
//! (built-in model) that is nearest to the processor. Sets fields from CPUID and from the measured cycles. Then refines other fields in
//! rounds: it simulates the kernels with the draft, and changes each field by the difference. `lab::kernels::fit` has
//! the rules.

mod draft;
mod facts;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::experiment::BenchError;
use lab::kernels::fit::{
    contradictions, direct, nested_page, refine, refined_by, undetermined_fields,
};
use lab::kernels::{
    Kept, KernelSample, Processor, comparison_tables, field_table, host_exits, preset_table,
};
use live::host::{Root, host_facts};
use live::kernels::selected;
use machine::{SystemModel, schema};
use record::{Absence, Run, SCHEMA};
use serde_json::{Map, json};
use sim::watch::Detail;
use sim::{Cache, models};

use self::draft::{Draft, stated};
use self::facts::{set_from_facts, set_tlb};
use self::reference::ReferenceProcessor;
use crate::console;
use crate::kernels::{absences, measure_model, read_kept};
use crate::options::{ResultArgs, Usage, help_with_exit_codes, one_cpu, usable_cpus};
use crate::output_file::{self, ForceArgs};
use crate::pictures::PictureArgs;
use crate::run::{OpenRun, STOPPED, made_by, stop_on_signals};
use crate::simulated::{DetailLevel, GuestArgs, JobsArgs, Simulated, SimulatedArgs, model};

/// Default preset of each vendor: the model of its newest out-of-order core.
const PRESETS: [(&str, &str); 2] = [("AuthenticAMD", "zen4"), ("GenuineIntel", "emerald-rapids")];
/// Number of CPUs of the simulated machine, which equals the machine of `bench model`.
const VCPUS: u32 = 2;
/// Memory of the simulated machine, MiB.
const MEMORY_MIB: u32 = 1024;

/// Make a model of a processor: measure it, start from the nearest model, refine it
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[], "Examples:
  irqlab machines fit                    writes the model for --on sim:host
  irqlab machines fit -o mine.toml -c 3  writes the model to a file; measures CPU 3
  irqlab machines fit --measured zen3 -o zen3-fit.toml
                                         the model of a processor that is not at hand, from kept data"))]
pub struct FitArgs {
    /// File to write [default: the user's model of this machine, which --on sim:host uses]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Model to start from [default: the nearest of the same vendor]
    #[arg(long, value_name = "MODEL")]
    preset: Option<String>,
    /// Fit to kept data of a processor (zen3, zen4, emerald-rapids, or a file as in ./M.tsv) instead of this machine's; needs
    /// -o
    #[arg(long, value_name = "DATA", conflicts_with_all = ["cpus", "windows"], requires = "output")]
    measured: Option<String>,
    /// The CPU to measure: exactly one [default: the last usable CPU]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// Number of windows of each kernel on this machine
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u32).range(6..=1000), value_name = "N")]
    windows: u32,
    /// Number of rounds of refinement in the simulated machine
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10), value_name = "N")]
    rounds: u32,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
}

pub fn run(args: &FitArgs) -> anyhow::Result<ExitCode> {
    let kept = args.measured.as_deref().map(read_kept).transpose()?;
    let file = model_file(args)?;
    let processor = match &kept {
        Some(kept) => kept.processor.clone(),
        None => this_processor()?,
    };
    let preset = preset(args.preset.as_deref(), &processor)?;
    let text = models::text(&preset)?;
    refuse_exits(&preset, &text)?;
    let name = model_name(kept.as_ref(), &file)?;
    let list = args.cpus.as_deref();
    let cpu = if kept.is_none() { Some(one_cpu(list, &usable_cpus(list)?)?) } else { None };
    let open = OpenRun::new("machines-fit", &args.results)?;
    let stop = stop_on_signals()?;
    // Prepares the simulated machine before the minutes of measuring, so that missing programs are reported early.
    let preset_machine = prepare_preset(&preset)?;
    let reference = match (kept, cpu) {
        (None, Some(cpu)) => ReferenceProcessor::measure(
            args.windows,
            (processor, cpu),
            host_facts(&Root::default()),
            &stop,
        )?,
        (Some(kept), _) => ReferenceProcessor::from_kept(kept)?,
        (None, None) => unreachable!("a CPU is chosen unless there are kept data"),
    };
    let host = &reference.samples;
    let before = measure(&preset_machine, "the preset", &[])?;
    let undetermined = undetermined_fields(host, &reference.conditions);
    // The order of the following steps counts: a later step overrides the fields of an earlier one.
    let mut draft = Draft { text, fitted: Vec::new(), undetermined };
    draft.set(stated("name", name, "the file's name, or host"));
    set_from_facts(&mut draft, &reference);
    nested_page(host, &reference.conditions).into_iter().for_each(|field| draft.set(field));
    direct(host).into_iter().for_each(|field| draft.set(field));
    set_tlb(&mut draft, host);
    let names = refined_by(host);
    for round in 1..=args.rounds {
        let label = format!("round {round} of {}", args.rounds);
        let model = measure_text(&draft.text, &label, &names)?;
        let current = |field: &str| draft.number(field);
        let changes = refine(host, &model, &current);
        changes.into_iter().for_each(|field| draft.set(field));
    }
    // Records the undetermined fields that no kernel has tried to set.
    std::mem::take(&mut draft.undetermined).into_iter().for_each(|field| draft.set(field));
    let after = measure_text(&draft.text, "the fitted model", &[])?;
    // The machine that was just measured has no exits, so its cycles are the processor's part alone.
    let exits = host_exits(host, &after, &reference.conditions);
    exits.into_iter().for_each(|field| draft.set(field));
    let head = head(&preset, &reference, &after);
    output_file::write(&file, draft.file(&head).as_bytes(), args.force)?;
    let named = if args.output.is_none() { " (--on sim:host)" } else { "" };
    console::say(&format!("the fitted model: {}{named}", file.display()));
    let run = run_of(args, (&preset, &open), &draft, (&reference, &before, &after));
    open.finish(&run, &args.pictures.draw(&run))
}

/// Refuses a preset that states exits to a hypervisor. The preset's host is not this host, and a fit would attribute
/// the cycles of applied exits to its processor.
fn refuse_exits(preset: &str, text: &str) -> anyhow::Result<()> {
    if SystemModel::parse(text)?.host_exits.is_some() {
        bail!(Usage(format!("{preset} states the exits of a host; remove its table [host_exits]")));
    }
    Ok(())
}

/// The name of the new model, as TOML: `host` for this machine's, else that of its file without the extension.
///
/// Fails if a model cannot have this name.
fn model_name(kept: Option<&Kept>, file: &Path) -> anyhow::Result<String> {
    if kept.is_none() {
        return Ok("\"host\"".to_owned());
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    // A string of JSON is a string of TOML, too.
    let name = json!(stem).to_string();
    match schema::set(&models::text("zen3")?, &[&format!("name={name}")]) {
        Ok(_) => Ok(name),
        Err(error) => bail!(Usage(format!("no model can have the file's name: {error}"))),
    }
}

/// This machine's processor.
fn this_processor() -> anyhow::Result<Processor> {
    let (processor, _) = live::kernels::this_processor().ok_or_else(|| {
        let reason = "this machine does not say which processor it has (CPUID)".to_owned();
        BenchError::NothingMeasurable { reason, remedy: None }
    })?;
    Ok(processor)
}

/// The file to write. Creates its directory and checks that the file can be written.
fn model_file(args: &FitArgs) -> anyhow::Result<PathBuf> {
    let file = match &args.output {
        Some(file) => file.clone(),
        None => models::host_file()
            .ok_or_else(|| Usage("there is no home directory; name a file with -o".to_owned()))?,
    };
    if let Some(directory) = file.parent().filter(|directory| *directory != Path::new("")) {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    output_file::check(&file, args.force)?;
    Ok(file)
}

/// The name of the model to start from: `requested`, else the nearest to the processor.
fn preset(requested: Option<&str>, processor: &Processor) -> anyhow::Result<String> {
    if let Some(name) = requested {
        return Ok(name.to_owned());
    }
    let Processor { vendor, family, model } = processor;
    if let Some(name) = models::of_processor(vendor, *family, *model).first() {
        return Ok((*name).to_owned());
    }
    match PRESETS.iter().find(|(preset_vendor, _)| preset_vendor == vendor) {
        Some((_, name)) => Ok((*name).to_owned()),
        None => {
            bail!(Usage(format!(
                "there is no model of a processor by {vendor}; name a model to start from with --preset"
            )))
        }
    }
}

/// Prepares a simulated machine with the model.
fn prepare(model: models::Model) -> anyhow::Result<Simulated> {
    let cache = Cache::from_environment()?;
    let plain = SimulatedArgs::plain(JobsArgs::default(), std::time::Duration::from_secs(3600));
    let watch = plain.watch(Some(model));
    let guest = GuestArgs { mem: Some(MEMORY_MIB), ..GuestArgs::default() };
    Simulated::prepare(cache, &guest, VCPUS, watch, stop_on_signals()?, |_| Ok(()))
}

fn prepare_preset(name: &str) -> anyhow::Result<Simulated> {
    prepare(model(&Cache::from_environment()?, name, &[], Some(DetailLevel::Ooo))?)
}

/// Measures the kernels named in `only`, or all if it is empty. `label`: name of the machine in messages.
fn measure(
    simulated: &Simulated,
    label: &str,
    only: &[String],
) -> anyhow::Result<Vec<KernelSample>> {
    console::say(&format!("simulating {label}: {}", kernel_count_text(only)));
    Ok(measure_model(simulated, label, only, 1)?.context(STOPPED)?.samples)
}

/// Like [`measure`], in a new machine with the model `text`.
fn measure_text(text: &str, label: &str, only: &[String]) -> anyhow::Result<Vec<KernelSample>> {
    let model = models::of_text(&Cache::from_environment()?, label, text, Detail::Ooo)?;
    measure(&prepare(model)?, label, only)
}

/// The number of kernels that `only` selects, in words.
fn kernel_count_text(only: &[String]) -> String {
    match (only, selected(&[])) {
        ([], Ok(all)) => format!("all {} kernels", all.len()),
        (names, _) => format!("{} kernels", names.len()),
    }
}

/// The comment at the start of the model file. `after`: samples of the fitted model.
fn head(preset: &str, reference: &ReferenceProcessor, after: &[KernelSample]) -> String {
    use lab::kernels::{Comparison, Pair, is_held_out};
    let pairs = |held_out: bool| {
        let samples =
            reference.samples.iter().filter(move |sample| is_held_out(&sample.name) == held_out);
        samples.filter_map(|host| {
            let model = after.iter().find(|sample| sample.name == host.name)?;
            Some(Pair { host, model })
        })
    };
    let summary = |held_out: bool| match Comparison::of(pairs(held_out)) {
        Some(errors) => {
            format!("{} kernels, mean error factor {:.3}", errors.kernels, errors.mean)
        }
        None => "none".to_owned(),
    };
    let ReferenceProcessor { processor, cpu, facts, .. } = reference;
    let of_what = if facts.is_some() { "this machine" } else { "a processor, from kept data" };
    format!(
        "# The model of {of_what}, by irqlab machines fit, {date}: {cpu} ({processor}), from {preset}.\n\
         # Held out of the fit: {held}. Others: {used}.\n\
         # Field | value (-: the preset's is kept) | cycles (95 %) | method:\n",
        date = record::now().strftime("%Y-%m-%d"),
        held = summary(true),
        used = summary(false),
    )
}

/// Makes the run. `before` and `after`: samples of the preset and of the fitted model.
fn run_of(
    args: &FitArgs,
    (preset, open): (&str, &OpenRun),
    draft: &Draft,
    (reference, before, after): (&ReferenceProcessor, &[KernelSample], &[KernelSample]),
) -> Run {
    let mut settings = reference.settings.clone();
    settings.extend(made_by());
    settings.insert("from".into(), json!(preset));
    settings.insert("rounds".into(), json!(args.rounds));
    let mut observer = Map::new();
    observer.insert("steal_ns".into(), json!(reference.steal_ns));
    let contradicting = contradictions(&reference.samples, after, &draft.fitted);
    let mut tables = vec![field_table(&draft.fitted)];
    tables.push(preset_table(&reference.samples, before));
    tables.extend(comparison_tables(&reference.samples, after));
    let without_cycles = [
        absences(&reference.samples, "of the processor"),
        absences(before, "in the preset"),
        absences(after, "in the fitted model"),
    ];
    let absence = |(what, reason, remedy): (String, String, Option<String>)| {
        Absence::new("kernels", what, reason).with_remedy(remedy)
    };
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "machines-fit".to_owned(),
        bench: if reference.facts.is_some() { "live" } else { "sim" }.to_owned(),
        started_utc: open.started().to_string(),
        complete: true,
        host: reference.host_block(),
        settings,
        observer,
        warnings: [&reference.warnings[..], &contradicting[..]].concat(),
        absent: without_cycles.into_iter().flatten().map(absence).collect(),
        tables,
    }
}
