//! `irqlab bench model`: kernels on a real processor and in the simulated machine under its model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use lab::experiment::BenchError;
use lab::kernels::{Kept, KernelSample, Processor, comparison_tables, measured_table};
use live::kernels::{COMPILED, selected, this_processor};
use machine::SystemModel;
use record::Run;
use serde_json::{Map, json};
use sim::{Cache, measured, models};

use super::{Measured, run_of};
use crate::console;
use crate::kernels::{Host, MODEL_WINDOWS, WINDOW_CYCLES, measure_host, measure_model};
use crate::options::{
    Format, On, ResultArgs, SIMULATED, Usage, help_with_exit_codes, one_cpu, usable_cpus,
};
use crate::output_file::{self, ForceArgs};
use crate::pictures::PictureArgs;
use crate::run::{OpenRun, STOPPED, print_list, stop_on_signals};
use crate::simulated::{ModelDetail, Simulated, SimulatedArgs, model};

/// CPUs of the simulated machine unless another number is given: an interprocessor interrupt needs two.
const VCPUS: u32 = 2;
/// Memory of the simulated machine unless it is given: the largest kernel goes through 128 MiB.
const MEMORY_MIB: u32 = 1024;

/// How true a model of a processor is: kernels on the processor and in the simulated machine
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Examples:
  irqlab bench model                          this processor, compared with the model of it
  irqlab bench model --on sim:zen3            compared with this model, if it is of this processor
  irqlab bench model --on sim:zen3 --measured zen3     with kept data, on any machine
  irqlab bench model --on live --save mine.tsv         keep what was measured, for others
  irqlab bench model --only strings,arithmetic/mul_128 some of the kernels; --list names all"))]
pub struct ModelArgs {
    /// sim or sim:MODEL: compare with a model; live: measure this processor alone [default: sim, the
    /// model of this processor]
    #[arg(long, default_value = "sim", value_name = "BENCH")]
    on: On,
    /// Kernels: names, groups, or GROUP/NAME [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    only: Vec<String>,
    /// List the kernels
    #[arg(long, conflicts_with_all = ["measured", "save"])]
    list: bool,
    /// Compare kept data with the model, and not this machine: a name, or a file
    #[arg(long, value_name = "DATA")]
    measured: Option<String>,
    /// Keep what was measured on this machine in this file
    #[arg(long, value_name = "FILE", conflicts_with = "measured")]
    save: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// The CPU to measure: exactly one [default: the last one usable]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// Windows of each kernel on this machine
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u32).range(6..=1000), value_name = "N")]
    windows: u32,
    /// Processes, one after the other, here and in the simulated machine: where code and data lie differs, and of
    /// each kernel the middle one counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    processes: u32,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

/// Cycles of a real processor: measured now, or kept.
struct Real {
    samples: Vec<KernelSample>,
    of: Measured,
    /// Whether the processor ran a virtual machine.
    is_virtual: bool,
}

/// Measures, compares, prints, records.
pub fn run(args: &ModelArgs) -> anyhow::Result<ExitCode> {
    let kernels = selected(&args.only).map_err(Usage)?;
    if args.list {
        return list(&kernels, args.results.printing.format());
    }
    args.save.iter().try_for_each(|file| output_file::check(file, args.force))?;
    let kept = args.measured.as_deref().map(kept).transpose()?;
    let name = match &args.on {
        On::Live => None,
        On::Sim(name) => Some(model_name(name.as_deref(), kept.as_ref())?),
    };
    let Some(name) = name else {
        if kept.is_some() {
            bail!(Usage("--measured is compared with a model; add --on sim:MODEL".to_owned()));
        }
        let open = OpenRun::new("bench-model", &args.results)?;
        let mut real = measure_real(args)?;
        real.of.tables = vec![measured_table(&real.samples)];
        return finish(args, &open, "live", real.of);
    };
    compare(args, &name, kept, &kernels)
}

fn list(kernels: &[KernelSample], format: Format) -> anyhow::Result<ExitCode> {
    let line = |one: &KernelSample| {
        format!("{:<14} {:<20} {} [per {}]\n", one.group, one.name, one.about, one.unit)
    };
    let row = |one: &KernelSample| json!({ "group": one.group, "name": one.name, "about": one.about, "unit": one.unit });
    let text: String = kernels.iter().map(line).collect();
    print_list(format, &text, kernels.iter().map(row).collect())
}

fn kept(name: &str) -> anyhow::Result<Kept> {
    let text = measured::text(name).map_err(|error| Usage(error.to_string()))?;
    Ok(Kept::parse(&text).map_err(|why| Usage(format!("{name}: {why}")))?)
}

/// The name of the model to compare with: the one that is named, or the one of the processor that was
/// measured.
fn model_name(name: Option<&str>, kept: Option<&Kept>) -> anyhow::Result<String> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let processor = kept.map(|kept| kept.processor.clone());
    let is_here = processor.is_none();
    let processor = processor.or_else(|| Some(this_processor()?.0));
    let Some(processor) = processor else { bail!(unidentified()) };
    let Processor { vendor, family, model } = &processor;
    if is_here && models::host_file().is_some_and(|file| file.exists()) {
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

fn unidentified() -> BenchError {
    BenchError::NothingMeasurable {
        reason: "this machine does not say which processor it has (CPUID)".to_owned(),
        remedy: None,
    }
}

/// Refuses to compare a model with another processor than the one it is of.
fn check_processor(name: &str, model: &SystemModel, processor: &Processor) -> anyhow::Result<()> {
    let Processor { vendor, family, model: number } = processor;
    if model.processors.iter().any(|range| range.holds(vendor, *family, *number)) {
        return Ok(());
    }
    let reason = match &model.processors[..] {
        [] => format!(
            "the model {name} does not say which processors it is of: it has no cpuid = [\"{processor}\"]"
        ),
        ranges => {
            let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
            format!("the model {name} is of {}, and this is {processor}", ranges.join(", "))
        }
    };
    let remedy = match measured::names().contains(&name) {
        true => format!(
            "irqlab bench model --on sim:{name} --measured {name} (kept data of that processor), or irqlab \
             machines fit (a model of this one)"
        ),
        false => "irqlab machines fit (a model of this processor)".to_owned(),
    };
    bail!(BenchError::NothingMeasurable { reason, remedy: Some(remedy) })
}

fn compare(
    args: &ModelArgs,
    name: &str,
    kept: Option<Kept>,
    kernels: &[KernelSample],
) -> anyhow::Result<ExitCode> {
    let cache = Cache::from_environment()?;
    let detail = Some(args.simulated.detail().unwrap_or(ModelDetail::Ooo));
    if name == models::HOST {
        // Says that there is none, and what makes it, before anything else is wrong with it.
        models::text(name)?;
    }
    let model = model(&cache, name, args.simulated.changes(), detail)?;
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
    // Checked before the minutes of measuring: what a simulated machine needs.
    let machine = Simulated::prepare(cache, &guest, vcpus, watch, stop, |_| Ok(()))?;
    let mut real = match kept {
        Some(kept) => of_kept(&kept, kernels),
        None => measure_real(args)?,
    };
    let Some(measured) = measure_model(&machine, name, &args.only, args.processes)? else {
        bail!(STOPPED)
    };
    let mut of = std::mem::take(&mut real.of);
    of.settings.insert("model".into(), described);
    of.settings.insert("set".into(), json!(args.simulated.changes()));
    of.settings.insert("qemu".into(), json!(machine.guest.qemu.version_text));
    of.settings.insert("guest".into(), json!(machine.host()));
    of.settings.insert("model_windows".into(), json!(MODEL_WINDOWS));
    of.settings.insert("processes".into(), json!(args.processes));
    let wall_ns = u64::try_from(measured.wall.as_nanos()).unwrap_or(u64::MAX);
    of.settings.insert("on_host".into(), json!({ "wall_ns": wall_ns }));
    of.warnings.extend(measured.notices);
    if real.is_virtual && !is_nested {
        of.warnings.push(UNNESTED.to_owned());
    }
    of.absent.extend(absences(&measured.samples, "in the model"));
    of.tables = comparison_tables(&real.samples, &measured.samples);
    finish(args, &open, "sim", of)
}

/// The kernels that have no cycles, with the reason.
fn absences(samples: &[KernelSample], place: &str) -> Vec<(String, String, Option<String>)> {
    let absence = |one: &KernelSample| {
        let why = one.figures.as_ref().err()?;
        Some((format!("{}/{} {place}", one.group, one.name), why.clone(), None))
    };
    samples.iter().filter_map(absence).collect()
}

fn of_kept(kept: &Kept, kernels: &[KernelSample]) -> Real {
    let samples = kept.samples(kernels);
    let mut of = Measured::default();
    of.settings.insert("measured_on".into(), json!(kept.cpu));
    of.settings.insert("measured_cpuid".into(), json!(kept.processor.to_string()));
    of.settings.insert("measured_date".into(), json!(kept.date));
    of.observer.insert("method".into(), json!(kept.method));
    of.absent = absences(&samples, "in the kept data");
    if let Some(compiled) = kept.compiled.as_ref().filter(|compiled| *compiled != COMPILED) {
        of.warnings.push(format!(
            "the kept data are of kernels compiled by {compiled}, and these are by {COMPILED}: programs may \
             be other instructions"
        ));
    }
    Real { samples, of, is_virtual: kept.is_virtual == Some(true) }
}

fn measure_real(args: &ModelArgs) -> anyhow::Result<Real> {
    let list = args.cpus.as_deref();
    let cpu = one_cpu(list, &usable_cpus(list)?)?;
    let stop = stop_on_signals()?;
    let host = measure_host(&args.only, (args.windows, args.processes), cpu, &stop)?;
    let mut of = Measured { interrupted: stop.is_requested(), ..Measured::default() };
    of.settings.insert("cpu".into(), json!(cpu));
    of.settings.insert("windows".into(), json!(args.windows));
    of.settings.insert("window_cycles".into(), json!(WINDOW_CYCLES));
    of.settings.insert("processes".into(), json!(args.processes));
    of.observer.insert("method".into(), json!(METHOD));
    of.observer.insert("steal_ns".into(), json!(host.steal_ns));
    of.absent = absences(&host.samples, "on this machine");
    if let Some((processor, cpu)) = &host.processor {
        of.settings.insert("cpuid".into(), json!(processor.to_string()));
        if let Some(file) = &args.save {
            save((file, args.force), &host, (processor.clone(), cpu.clone()), args.processes)?;
        }
    } else if args.save.is_some() {
        bail!(unidentified());
    }
    of.warnings = host.warnings;
    Ok(Real { samples: host.samples, of, is_virtual: host.conditions.is_virtual })
}

/// What to say where only the processor ran a virtual machine.
const UNNESTED: &str = "the processor was measured in a virtual machine, whose page walks are nested, and the model's are \
                        not: kernels of many pages and of the system differ for that (--set nested.page=4KiB)";

/// How cycles are measured.
const METHOD: &str = "cycles of the core for a unit: ticks of the time-stamp counter, by chains of dependent \
                      additions (a cycle each) before and after each window; median of the windows in which \
                      the core's rate changed by at most 1 % and neither four chains of additions nor NOPs found a busy sibling";

fn save(
    (file, force): (&Path, ForceArgs),
    host: &Host,
    of: (Processor, String),
    processes: u32,
) -> anyhow::Result<()> {
    let date = record::now().strftime("%Y-%m-%d").to_string();
    let mut method = METHOD.to_owned();
    if processes > 1 {
        method += &format!("; of {processes} processes the one with the middle cycles");
    }
    let mut kept = Kept::of(&host.samples, of, date, method);
    kept.is_virtual = Some(host.conditions.is_virtual);
    kept.compiled = Some(COMPILED.to_owned());
    let text = kept.text();
    output_file::write(file, text.as_bytes(), force)?;
    console::say(&format!("kept: {}", file.display()));
    Ok(())
}

fn finish(
    args: &ModelArgs,
    open: &OpenRun,
    bench: &str,
    mut of: Measured,
) -> anyhow::Result<ExitCode> {
    let mut settings = Map::new();
    settings.insert("only".into(), json!(args.only));
    settings.extend(std::mem::take(&mut of.settings));
    of.settings = settings;
    let run = Run { bench: bench.to_owned(), ..run_of("bench-model", open.started(), of) };
    open.finish(&run, &args.pictures.of(&run))
}
