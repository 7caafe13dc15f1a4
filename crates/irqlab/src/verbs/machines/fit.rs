//! `irqlab machines fit`: makes a model of this machine's processor.
//!
//! Measures the kernels of the validation suite on the processor, and starts from the preset (built-in model) that is
//! nearest to the processor. Sets fields from CPUID and from the measured cycles. Then refines other fields in
//! rounds: it simulates the kernels with the draft, and changes each field by the difference. `lab::kernels::fit` has
//! the rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::experiment::BenchError;
use lab::kernels::fit::{
    Fitted, could_not_tell, direct, first_tlb_entries, left, nested_page, refine, refined_by,
};
use lab::kernels::{KernelSample, Processor, comparison_tables, field_table, preset_table};
use live::host::{CacheFacts, HostFacts, Root, host_facts, run_host_block};
use live::kernels::selected;
use machine::identity::TITLE_BYTES_MAX;
use machine::{SystemModel, schema};
use record::{Run, SCHEMA};
use serde_json::{Map, json};
use sim::watch::Detail;
use sim::{Cache, mitigations, models};

use crate::console;
use crate::kernels::{Host, core_hz, measure_host, measure_model};
use crate::options::{ResultArgs, Usage, help_with_exit_codes, one_cpu, usable_cpus};
use crate::output_file::{self, ForceArgs};
use crate::pictures::PictureArgs;
use crate::run::{OpenRun, STOPPED, stop_on_signals};
use crate::simulated::{DetailLevel, GuestArgs, JobsArgs, Simulated, SimulatedArgs, model};

/// Default preset of each vendor: the model of its newest out-of-order core.
const PRESETS: [(&str, &str); 2] = [("AuthenticAMD", "zen4"), ("GenuineIntel", "emerald-rapids")];
/// Largest number of ways of a model's TLB.
const WAYS_MAX: u32 = 64;
/// Number of CPUs of the simulated machine, which equals the machine of `bench model`.
const VCPUS: u32 = 2;
/// Memory of the simulated machine, MiB.
const MEMORY_MIB: u32 = 1024;

/// Make a model of this machine: measure its processor, start from the nearest model, refine it
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[], "Examples:
  irqlab machines fit                    writes the model for --on sim:host
  irqlab machines fit -o mine.toml -c 3  writes the model to a file; measures CPU 3"))]
pub struct FitArgs {
    /// File to write [default: the user's model of this machine, which --on sim:host uses]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Model to start from [default: the nearest of the same vendor]
    #[arg(long, value_name = "MODEL")]
    preset: Option<String>,
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

/// An unfinished model: its text, and how its fields were set.
struct Draft {
    /// The model in TOML. It is valid at any time.
    text: String,
    /// The last decision on each field, in the order in which the fields were set.
    fitted: Vec<Fitted>,
    /// Fields that this host cannot determine. They keep the preset's values, whatever the kernels measure.
    undetermined: Vec<Fitted>,
}

impl Draft {
    /// Sets a field. If the host cannot determine the field, or the model refuses the value, the field keeps its
    /// value and the reason is recorded.
    fn set(&mut self, field: Fitted) {
        let undetermined = self.undetermined.iter().find(|fitted| fitted.field == field.field);
        let field = undetermined.cloned().unwrap_or(field);
        let field = match &field.value {
            None => field,
            Some(value) => match schema::set(&self.text, &[&format!("{}={value}", field.field)]) {
                Ok(text) => {
                    self.text = text;
                    field
                }
                Err(error) => left(&field.field, &error.problem),
            },
        };
        self.fitted.retain(|fitted| fitted.field != field.field);
        self.fitted.push(field);
    }

    /// Sets several fields at once, because the model would be invalid in between. If the model refuses the values, all
    /// fields keep their values and the reason is recorded.
    fn set_together(&mut self, fields: Vec<Fitted>) {
        let assignment =
            |field: &Fitted| Some(format!("{}={}", field.field, field.value.as_ref()?));
        let assignments: Vec<String> = fields.iter().filter_map(assignment).collect();
        let list: Vec<&str> = assignments.iter().map(String::as_str).collect();
        match schema::set(&self.text, &list) {
            Ok(text) => {
                self.text = text;
                self.fitted.extend(fields);
            }
            Err(error) => {
                self.fitted.extend(fields.iter().map(|field| left(&field.field, &error.problem)));
            }
        }
    }

    /// The value of a field in the draft, such as `l2.size`. `None` if it has no such field or the value is no integer.
    fn number(&self, field: &str) -> Option<i64> {
        let table: toml::Table = toml::from_str(&self.text).ok()?;
        let mut parts = field.split('.');
        let mut value = table.get(parts.next()?)?;
        for part in parts {
            value = value.get(part)?;
        }
        value.as_integer()
    }

    /// The contents of the model file: `head`, a comment line for each fitted field, and the model.
    fn file(&self, head: &str) -> String {
        let mut text = head.to_owned();
        for field in &self.fitted {
            let value = field.value.as_deref().unwrap_or("-");
            let measured = match field.measured {
                Some((cycles, Some((low, high)))) => format!("{cycles:.4} ({low:.4} to {high:.4})"),
                Some((cycles, None)) => format!("{cycles:.4}"),
                None => "-".to_owned(),
            };
            text += &format!("#   {} | {value} | {measured} | {}\n", field.field, field.method);
        }
        text + "\n" + &self.text
    }
}

/// A field whose value comes from another source than a kernel: `method`.
fn stated(field: &str, value: String, method: &str) -> Fitted {
    let (field, value) = (field.to_owned(), Some(value));
    Fitted { field, value, measured: None, method: method.to_owned() }
}

pub fn run(args: &FitArgs) -> anyhow::Result<ExitCode> {
    let file = model_file(args)?;
    let facts = host_facts(&Root::default());
    let (processor, _) = live::kernels::this_processor().ok_or_else(|| {
        let reason = "this machine does not say which processor it has (CPUID)".to_owned();
        BenchError::NothingMeasurable { reason, remedy: None }
    })?;
    let preset = preset(args.preset.as_deref(), &processor)?;
    let text = models::text(&preset)?;
    let list = args.cpus.as_deref();
    let cpu = one_cpu(list, &usable_cpus(list)?)?;
    let open = OpenRun::new("machines-fit", &args.results)?;
    let stop = stop_on_signals()?;
    // Prepares the simulated machine before the minutes of measuring, so that missing programs are reported early.
    let preset_machine = prepare_preset(&preset)?;
    console::say("measuring this machine");
    let host = measure_host(&[], (args.windows, 1), cpu, &stop)?;
    if stop.is_requested() {
        bail!(STOPPED);
    }
    let before = measure(&preset_machine, "the preset", &[])?;
    let undetermined = could_not_tell(&host.samples, &host.conditions);
    // The order of the following steps counts: a later step overrides the fields of an earlier one.
    let mut draft = Draft { text, fitted: Vec::new(), undetermined };
    set_from_facts(&mut draft, &facts, &processor)?;
    nested_page(&host.samples, &host.conditions).into_iter().for_each(|field| draft.set(field));
    direct(&host.samples).into_iter().for_each(|field| draft.set(field));
    set_tlb(&mut draft, &host.samples);
    let names = refined_by(&host.samples);
    for round in 1..=args.rounds {
        let label = format!("round {round} of {}", args.rounds);
        let model = measure_text(&draft.text, &label, &names)?;
        let current = |field: &str| draft.number(field);
        let changes = refine(&host.samples, &model, &current);
        changes.into_iter().for_each(|field| draft.set(field));
    }
    // Records the undetermined fields that no kernel has tried to set.
    std::mem::take(&mut draft.undetermined).into_iter().for_each(|field| draft.set(field));
    let after = measure_text(&draft.text, "the fitted model", &[])?;
    let head = head(&preset, &processor, &host, &after);
    output_file::write(&file, draft.file(&head).as_bytes(), args.force)?;
    let named = if args.output.is_none() { " (--on sim:host)" } else { "" };
    console::say(&format!("model of this machine: {}{named}", file.display()));
    let run = run_of(args, (&preset, &open), &facts, &draft, (&host, &before, &after));
    open.finish(&run, &args.pictures.draw(&run))
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

/// Sets what the guest sees of the processor: this one's signature and name, and what its kernel does about bugs. Features
/// stay the preset's. Does nothing if the preset shows the guest no processor.
fn set_identity(draft: &mut Draft, facts: &HostFacts, processor: &Processor) {
    let identity = SystemModel::parse(&draft.text).ok().and_then(|model| model.identity);
    let is_of_vendor =
        identity.is_some_and(|identity| identity.vendor.signature() == processor.vendor);
    if !is_of_vendor {
        return;
    }
    let cpu = &facts.cpu.model;
    draft.set(stated("identity.family", processor.family.to_string(), "CPUID"));
    draft.set(stated("identity.model", processor.model.to_string(), "CPUID"));
    if let Some(stepping) = cpu.stepping {
        draft.set(stated("identity.stepping", stepping.to_string(), "CPUID"));
    }
    if let Some(microcode) = cpu.microcode.as_deref().filter(|revision| revision.starts_with("0x"))
    {
        draft.set(stated("identity.microcode", microcode.to_owned(), "/proc/cpuinfo"));
    }
    let title: String = cpu.name.as_deref().unwrap_or("this processor").replace(',', " ");
    let title: String =
        title.chars().filter(|c| matches!(c, ' '..='~')).take(TITLE_BYTES_MAX).collect();
    draft.set(stated("identity.title", format!("{title:?}"), "/proc/cpuinfo"));
    for (bug, statement) in mitigations::statements(Path::new(mitigations::DIRECTORY)) {
        let field = format!("identity.mitigations.{bug}");
        draft.set(stated(&field, format!("{statement:?}"), "this machine's kernel"));
    }
}

/// Sets name, clock, number of CPUs and caches from what the machine states.
fn set_from_facts(
    draft: &mut Draft,
    facts: &HostFacts,
    processor: &Processor,
) -> anyhow::Result<()> {
    let name = facts.cpu.model.name.as_deref().unwrap_or("unknown processor");
    let about = format!("{} (family {}), fitted", name.replace('"', ""), processor.family);
    draft.set(stated("name", "\"host\"".to_owned(), "--on sim:host"));
    draft.set(stated("about", format!("{about:?}"), "/proc/cpuinfo"));
    draft.set(stated("cpuid", format!("[\"{processor}\"]"), "CPUID"));
    match core_hz() {
        Some(hz) => {
            let text = format!("\"{} MHz\"", (hz / 1e6).round());
            draft.set(stated("clock", text, "dependent additions by the time-stamp counter"));
        }
        None => draft.set(left("clock", "the time-stamp counter has no frequency")),
    }
    set_identity(draft, facts, processor);
    let cpus = facts.cpu.online.as_ref().map_or(1, Vec::len).clamp(1, 64);
    draft.set(stated("cpus", cpus.to_string(), "CPUs online"));
    for (level, kind, table) in
        [(1, "Data", "l1d"), (1, "Instruction", "l1i"), (2, "Unified", "l2"), (3, "Unified", "l3")]
    {
        let cache = facts.caches.iter().find(|cache| cache.level == level && cache.kind == kind);
        match cache.map(|cache| geometry(cache, table)) {
            Some(Some(fields)) => draft.set_together(fields),
            _ => draft.set(left(&format!("{table}.size"), "the machine does not state it")),
        }
    }
    Ok(())
}

/// The fields of a cache in the model's table `table`; `None` if the machine does not state all of them.
fn geometry(cache: &CacheFacts, table: &str) -> Option<Vec<Fitted>> {
    let method = "stated by CPUID (sysfs)";
    let (size, ways, line) = (cache.size_bytes?, cache.ways?, cache.line_bytes?);
    Some(vec![
        stated(&format!("{table}.size"), format!("\"{} KiB\"", size >> 10), method),
        stated(&format!("{table}.ways"), ways.to_string(), method),
        stated(&format!("{table}.line"), format!("\"{line} B\""), method),
    ])
}

/// Sets the entries and ways of the first TLB for data, if the kernels show where that TLB ends.
fn set_tlb(draft: &mut Draft, host: &[KernelSample]) {
    match first_tlb_entries(host) {
        Some((entries, method)) => {
            // A model's TLB has at most `WAYS_MAX` ways, so a larger TLB gets two or four sets.
            let sets = [1, 2, 4]
                .into_iter()
                .find(|sets| entries.is_multiple_of(*sets) && entries / sets <= WAYS_MAX);
            let ways = entries / sets.unwrap_or(1);
            draft.set_together(vec![
                stated("dtlb.entries", entries.to_string(), &method),
                stated("dtlb.ways", ways.to_string(), "the fewest sets that a model can have"),
            ]);
        }
        None => draft.set(left("dtlb.entries", "no chase of pages shows where the TLB ends")),
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
    console::say(&format!("simulating {label}: {}", counted(only)));
    Ok(measure_model(simulated, label, only, 1)?.context(STOPPED)?.samples)
}

/// Like [`measure`], in a new machine with the model `text`.
fn measure_text(text: &str, label: &str, only: &[String]) -> anyhow::Result<Vec<KernelSample>> {
    let model = models::of_text(&Cache::from_environment()?, label, text, Detail::Ooo)?;
    measure(&prepare(model)?, label, only)
}

/// The number of kernels that `only` selects, in words.
fn counted(only: &[String]) -> String {
    match (only, selected(&[])) {
        ([], Ok(all)) => format!("all {} kernels", all.len()),
        (names, _) => format!("{} kernels", names.len()),
    }
}

/// The comment at the start of the model file. `after`: samples of the fitted model.
fn head(preset: &str, processor: &Processor, host: &Host, after: &[KernelSample]) -> String {
    use lab::kernels::{Comparison, Pair, is_held_out};
    let pairs = |held_out: bool| {
        let samples =
            host.samples.iter().filter(move |sample| is_held_out(&sample.name) == held_out);
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
    let cpu = host.processor.as_ref().map_or("", |(_, name)| name.as_str());
    format!(
        "# The model of this machine, by irqlab machines fit, {date}: {cpu} ({processor}), from {preset}.\n\
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
    facts: &HostFacts,
    draft: &Draft,
    (host, before, after): (&Host, &[KernelSample], &[KernelSample]),
) -> Run {
    let mut settings = Map::new();
    settings.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
    settings.insert("from".into(), json!(preset));
    settings.insert("rounds".into(), json!(args.rounds));
    settings.insert("windows".into(), json!(args.windows));
    let mut observer = Map::new();
    observer.insert("steal_ns".into(), json!(host.steal_ns));
    let mut tables = vec![field_table(&draft.fitted)];
    tables.push(preset_table(&host.samples, before));
    tables.extend(comparison_tables(&host.samples, after));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "machines-fit".to_owned(),
        bench: "live".to_owned(),
        started_utc: open.started().to_string(),
        complete: true,
        host: run_host_block(facts),
        settings,
        observer,
        warnings: host.warnings.clone(),
        absent: Vec::new(),
        tables,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::kernels::fit::Conditions;

    #[test]
    fn fields_that_the_host_cannot_determine_keep_the_presets_values_and_are_marked() {
        let text = models::text("zen3").unwrap();
        let conditions =
            Conditions { throttled: Some(3), is_virtual: true, ..Conditions::default() };
        let undetermined = could_not_tell(&[], &conditions);
        let mut draft = Draft { text, fitted: Vec::new(), undetermined };
        draft.set(stated("clock", "\"2 GHz\"".to_owned(), "measured"));
        draft.set(stated("memory_cycles", "100".to_owned(), "measured"));
        draft.set(stated("l2_hit_cycles", "11".to_owned(), "measured"));
        let model = machine::SystemModel::parse(&draft.text).unwrap();
        assert_eq!((model.clock_hz, model.memory_cycles), (4_700_000_000, 368));
        assert_eq!(model.l2_hit_cycles, Some(11));
        std::mem::take(&mut draft.undetermined).into_iter().for_each(|field| draft.set(field));
        let file = draft.file("");
        for field in ["clock", "memory_cycles", "memory_line_cycles"] {
            let line = format!("#   {field} | - | - | preset kept: the core was throttled 3 times");
            assert!(file.contains(&line), "{file}");
        }
        assert!(file.contains("#   core.events.interrupt_cycles | - | - | preset kept: a hyper"));
        assert!(file.contains("#   l2_hit_cycles | 11 | - | measured"), "{file}");
    }
}
