//! `irqlab bench model`: the error of a processor model. Runs the kernels of the validation suite on the processor
//! and in a simulated machine with the model, and compares the cycles. `--measured` takes the processor's cycles from
//! a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::experiment::BenchError;
use lab::kernels::{Kept, KernelSample, Processor, comparison_tables, measured_table};
use live::kernels::{COMPILED, selected, this_processor};
use machine::SystemModel;
use record::Run;
use serde_json::{Map, json};
use sim::{Cache, measured, models, qemu};

use super::{Measured, run_of};
use crate::console;
use crate::dry_run::print_plan;
use crate::kernels::{
    Host, MODEL_WINDOWS, WINDOW_CYCLES, absences, kept_settings, measure_host, measure_model,
    plan_model, read_kept,
};
use crate::options::{
    Format, On, ResultArgs, SIMULATED, Usage, help_with_exit_codes, one_cpu, usable_cpus,
};
use crate::output_file::{self, ForceArgs};
use crate::pictures::PictureArgs;
use crate::run::{OpenRun, STATUS_LIMIT, STOPPED, print_list, stop_on_signals};
use crate::simulated::{DetailLevel, LevelArgs, Simulated, SimulatedArgs};

/// Default number of CPUs of the simulated machine: an inter-processor interrupt needs two.
const VCPUS: u32 = 2;
/// Default memory of the simulated machine: the largest kernel goes through 128 MiB.
const MEMORY_MIB: u32 = 1024;

const LIMIT: &str = "End the command after this time on the host's clock; nothing is kept: status 124 [default: each machine after 30m]";
const GUEST_LIMIT: &str = "End the command if a machine runs longer on its own clock; nothing is kept: status 124 [default: 10m]";

/// Measure the error of a processor model: the same kernels on the processor and in the simulated machine
#[derive(Debug, clap::Args)]
#[command(mut_arg("limit", |arg| arg.help(LIMIT)))]
#[command(mut_arg("guest_limit", |arg| arg.help(GUEST_LIMIT)))]
#[command(after_help = help_with_exit_codes(&[STATUS_LIMIT], "Examples:
  irqlab bench model                          this processor and its model
  irqlab bench model --on sim:zen3            this processor and zen3, if zen3 models it
  irqlab bench model --on sim:zen3 --measured zen3     zen3 and kept data, on any machine
  irqlab bench model --on live --save mine.tsv         measure this processor and keep the data
  irqlab bench model --only strings,arithmetic/mul_128  some of the kernels; --list names all"))]
pub struct ModelArgs {
    /// sim:MODEL: compare with this model; sim: with this processor's model; live: only measure this processor
    #[arg(long, default_value = "sim", value_name = "BENCH")]
    on: On,
    /// Kernels to run: names, groups, or GROUP/NAME [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    only: Vec<String>,
    /// List the kernels instead of measuring them
    #[arg(long, conflicts_with_all = ["measured", "save"])]
    list: bool,
    /// Compare the model with kept data instead of this machine: a name, or a file
    #[arg(long, value_name = "DATA")]
    measured: Option<String>,
    /// Keep the data of this machine in this file
    #[arg(long, value_name = "FILE", conflicts_with = "measured")]
    save: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// The CPU to measure: exactly one [default: the last usable CPU]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// Number of windows of each kernel on this machine
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u32).range(6..=1000), value_name = "N")]
    windows: u32,
    /// Number of processes that run the kernels, one after the other, on both machines. Code and data are at other
    /// addresses in each; the result of a kernel is the median over the processes (of an even number, the lower middle one)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    processes: u32,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

/// The kernels' cycles on a real processor: measured now, or read from kept data.
struct RealProcessor {
    samples: Vec<KernelSample>,
    /// Settings, warnings and absences for the run; the tables are added later.
    result: Measured,
    /// Whether the kernels ran in a virtual machine.
    is_virtual: bool,
}

pub fn run(args: &ModelArgs) -> anyhow::Result<ExitCode> {
    let kernels = selected(&args.only).map_err(Usage)?;
    if args.list {
        return list(&kernels, args.results.printing.format());
    }
    args.save.iter().try_for_each(|file| output_file::check(file, args.force))?;
    let kept = args.measured.as_deref().map(read_kept).transpose()?;
    let name = match &args.on {
        On::Live => None,
        On::Sim(name) => Some(model_name(name.as_deref(), kept.as_ref())?),
    };
    let Some(name) = name else {
        if kept.is_some() {
            bail!(Usage("--measured needs a model to compare with; add --on sim:MODEL".to_owned()));
        }
        let open = OpenRun::new("bench-model", &args.results)?;
        let mut real = measure_real(args)?;
        real.result.tables = vec![measured_table(&real.samples)];
        return finish(args, &open, "live", real.result);
    };
    compare(args, &name, kept, &kernels)
}

/// Prints the names of the kernels and what each executes. Measures nothing.
fn list(kernels: &[KernelSample], format: Format) -> anyhow::Result<ExitCode> {
    let line = |kernel: &KernelSample| {
        let KernelSample { group, name, about, unit, .. } = kernel;
        format!("{group:<14} {name:<20} {about} [per {unit}]\n")
    };
    let row = |kernel: &KernelSample| {
        let KernelSample { group, name, about, unit, .. } = kernel;
        json!({ "group": group, "name": name, "about": about, "unit": unit })
    };
    let text: String = kernels.iter().map(line).collect();
    print_list(format, &text, kernels.iter().map(row).collect())
}

/// The name of the model to compare with: `name`, or the model of the processor that is or was measured. For this
/// machine, a model that `machines fit` made comes before a preset.
pub(super) fn model_name(name: Option<&str>, kept: Option<&Kept>) -> anyhow::Result<String> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let processor = kept.map(|kept| kept.processor.clone());
    let is_this_machine = processor.is_none();
    let processor = processor.or_else(|| Some(this_processor()?.0));
    let Some(processor) = processor else { bail!(unidentified()) };
    let Processor { vendor, family, model } = &processor;
    if is_this_machine && models::host_file().is_some_and(|file| file.exists()) {
        return Ok(models::HOST.to_owned());
    }
    match models::of_processor(vendor, *family, *model)[..] {
        [name, ..] => Ok(name.to_owned()),
        [] => bail!(BenchError::NothingMeasurable {
            reason: format!("there is no model of this processor ({processor})"),
            remedy: Some("irqlab machines fit".to_owned()),
        }),
    }
}

pub(super) fn unidentified() -> BenchError {
    BenchError::NothingMeasurable {
        reason: "this machine does not say which processor it has (CPUID)".to_owned(),
        remedy: None,
    }
}

/// Fails when the model does not describe the processor: a comparison would be meaningless.
pub(super) fn check_processor(
    name: &str,
    model: &SystemModel,
    processor: &Processor,
) -> anyhow::Result<()> {
    let Processor { vendor, family, model: number } = processor;
    if model.processors.iter().any(|range| range.holds(vendor, *family, *number)) {
        return Ok(());
    }
    let reason = match &model.processors[..] {
        [] => format!(
            "the model {name} does not name the processors that it describes: it has no cpuid = \
             [\"{processor}\"]"
        ),
        ranges => {
            let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
            format!("the model {name} describes {}, but this is {processor}", ranges.join(", "))
        }
    };
    let remedy = if measured::names().contains(&name) {
        format!(
            "irqlab bench model --on sim:{name} --measured {name} (kept data of that processor), or \
             irqlab machines fit (a model of this processor)"
        )
    } else {
        "irqlab machines fit (a model of this processor)".to_owned()
    };
    bail!(BenchError::NothingMeasurable { reason, remedy: Some(remedy) })
}

/// Measures the kernels in the simulated machine and, without `kept` data, on this machine. Makes the run.
fn compare(
    args: &ModelArgs,
    name: &str,
    kept: Option<Kept>,
    kernels: &[KernelSample],
) -> anyhow::Result<ExitCode> {
    args.simulated.guest.refuse_free_running()?;
    let cache = Cache::from_environment()?;
    let level = LevelArgs {
        detail: Some(args.simulated.level.detail.unwrap_or(DetailLevel::Ooo)),
        ..args.simulated.level.clone()
    };
    if name == models::HOST {
        // Fails here without a fitted model, before other checks: this error says how to make one.
        models::text(name)?;
    }
    let model = level.model_of_all_events(&cache, Some(name))?.context("no model is named")?;
    let processor = match &kept {
        Some(kept) => kept.processor.clone(),
        None => this_processor().ok_or_else(unidentified)?.0,
    };
    check_processor(name, &model.model, &processor)?;
    let open = OpenRun::new("bench-model", &args.results)?;
    let described = model.described.clone();
    let is_nested = model.model.nested.is_some();
    let vcpus = args.simulated.vcpus.unwrap_or(VCPUS);
    let watch = args.simulated.watch(Some(model));
    let mut guest = args.simulated.guest.clone();
    guest.mem.get_or_insert(MEMORY_MIB);
    let stop = stop_on_signals()?;
    // Missing programs are reported before the minutes of measuring.
    qemu::find(&cache)?;
    guest.kernel.kernel(&cache)?;
    if args.simulated.dry_run {
        let machine = Simulated::prepare(cache, &guest, vcpus, watch, stop, |_| Ok(()))?;
        let work = plan_model(&machine, name, &args.only, args.processes)?;
        if kept.is_none() {
            console::say(
                "this processor is measured first; the plan has only the simulated machine",
            );
        }
        return print_plan(open.format(), 1, &[(name.to_owned(), work)]);
    }
    // The processor comes first: preparing a machine fills this process's memory, and fork(2) copies its page tables.
    let mut real = match kept {
        Some(kept) => real_from_kept(&kept, kernels),
        None => measure_real(args)?,
    };
    let machine = Simulated::prepare(cache, &guest, vcpus, watch, stop, |_| Ok(()))?;
    let Some(measured) = measure_model(&machine, name, &args.only, args.processes)? else {
        bail!(STOPPED)
    };
    let mut result = std::mem::take(&mut real.result);
    result.settings.insert("model".into(), described);
    result.settings.insert("set".into(), json!(args.simulated.level.set));
    result.settings.insert("qemu".into(), json!(machine.guest.qemu.version_text));
    result.settings.insert("guest".into(), json!(machine.host()));
    result.settings.insert("model_windows".into(), json!(MODEL_WINDOWS));
    result.settings.insert("processes".into(), json!(args.processes));
    let wall_ns = u64::try_from(measured.wall.as_nanos()).unwrap_or(u64::MAX);
    result.settings.insert("on_host".into(), json!({ "wall_ns": wall_ns }));
    result.warnings.extend(measured.notices);
    if real.is_virtual && !is_nested {
        result.warnings.push(UNNESTED.to_owned());
    }
    result.absent.extend(absences(&measured.samples, "in the model"));
    result.tables = comparison_tables(&real.samples, &measured.samples);
    result.tables.extend(machine.machine_facts()?.mitigations);
    finish(args, &open, "sim", result)
}

/// Takes the real processor's cycles from kept data instead of a measurement.
fn real_from_kept(kept: &Kept, kernels: &[KernelSample]) -> RealProcessor {
    let samples = kept.samples(kernels);
    let host = Map::from_iter([("cpu_model".to_owned(), json!(kept.cpu))]);
    let mut result =
        Measured { settings: kept_settings(kept), host: Some(host), ..Measured::default() };
    result.observer.insert("method".into(), json!(kept.method));
    result.absent = absences(&samples, "in the kept data");
    if let Some(compiled) = kept.compiled.as_ref().filter(|compiled| *compiled != COMPILED) {
        result.warnings.push(format!(
            "the kernels of the kept data were compiled by {compiled}, the kernels of this program by \
             {COMPILED}: their instructions may differ"
        ));
    }
    RealProcessor { samples, result, is_virtual: kept.is_virtual == Some(true) }
}

/// Measures the kernels on a CPU of this machine, and saves the result with `--save`.
fn measure_real(args: &ModelArgs) -> anyhow::Result<RealProcessor> {
    let list = args.cpus.as_deref();
    let cpu = one_cpu(list, &usable_cpus(list)?)?;
    let stop = stop_on_signals()?;
    let host = measure_host(&args.only, (args.windows, args.processes), cpu, &stop)?;
    let mut result = Measured { interrupted: stop.is_requested(), ..Measured::default() };
    result.settings.insert("cpu".into(), json!(cpu));
    result.settings.insert("windows".into(), json!(args.windows));
    result.settings.insert("window_cycles".into(), json!(WINDOW_CYCLES));
    result.settings.insert("processes".into(), json!(args.processes));
    result.observer.insert("method".into(), json!(METHOD));
    result.observer.insert("steal_ns".into(), json!(host.steal_ns));
    result.absent = absences(&host.samples, "on this machine");
    if let Some((processor, cpu)) = &host.processor {
        result.settings.insert("cpuid".into(), json!(processor.to_string()));
        if let Some(file) = &args.save {
            save((file, args.force), &host, (processor.clone(), cpu.clone()), args.processes)?;
        }
    } else if args.save.is_some() {
        bail!(unidentified());
    }
    result.warnings = host.warnings;
    let is_virtual = host.conditions.is_virtual;
    Ok(RealProcessor { samples: host.samples, result, is_virtual })
}

/// Warning if the processor was measured in a virtual machine and the model has no nested page tables.
const UNNESTED: &str = "the processor was measured in a virtual machine, whose page walks are nested, and those of the \
                        model are not: kernels with many pages and kernels of the system differ therefore (--set \
                        nested.page=4KiB)";

/// How cycles are measured: text of the run and of the file with kept data.
const METHOD: &str = "core cycles per unit: ticks of the time-stamp counter, converted by chains of dependent \
                      additions (a cycle each) before and after each window; median of the windows in which the \
                      core's rate changed by at most 1 % and neither four chains of additions nor NOPs found a \
                      busy SMT sibling";

/// Writes the kept data of this processor, which `--measured` reads.
fn save(
    (file, force): (&Path, ForceArgs),
    host: &Host,
    processor: (Processor, String),
    processes: u32,
) -> anyhow::Result<()> {
    let date = record::now().strftime("%Y-%m-%d").to_string();
    let mut method = METHOD.to_owned();
    if processes > 1 {
        method += &format!(
            "; (lower) median over those of {processes} processes that have cycles of the kernel"
        );
    }
    let mut kept = Kept::of(&host.samples, processor, date, method);
    kept.is_virtual = Some(host.conditions.is_virtual);
    kept.compiled = Some(COMPILED.to_owned());
    let text = kept.text();
    output_file::write(file, text.as_bytes(), force)?;
    console::say(&format!("data of this processor: {}", file.display()));
    Ok(())
}

/// Makes the run on the bench `bench`, with the selected kernels as its first setting. Prints and records it.
fn finish(
    args: &ModelArgs,
    open: &OpenRun,
    bench: &str,
    mut result: Measured,
) -> anyhow::Result<ExitCode> {
    let mut settings = Map::new();
    settings.insert("only".into(), json!(args.only));
    settings.extend(std::mem::take(&mut result.settings));
    result.settings = settings;
    let run = Run { bench: bench.to_owned(), ..run_of("bench-model", open.started(), result) };
    open.finish(&run, &args.pictures.draw(&run))
}
