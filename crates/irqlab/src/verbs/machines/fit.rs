//! `irqlab machines fit`: makes a model of the processor that irqlab runs on, from the nearest preset.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::experiment::BenchError;
use lab::kernels::fit::{
    Fitted, could_not_tell, direct, first_tlb_entries, left, nested_page, refine, refined_by,
};
use lab::kernels::{KernelSample, Processor, comparison_tables};
use live::host::{CacheFacts, HostFacts, Root, host_facts, run_host_block};
use live::kernels::selected;
use machine::schema;
use record::{Column, Kind, Run, SCHEMA, Table};
use serde_json::{Map, json};
use sim::watch::Detail;
use sim::{Cache, models};

use crate::console;
use crate::kernels::{Host, core_hz, measure_host, measure_model};
use crate::options::{ResultArgs, Usage, help_with_exit_codes, one_cpu, usable_cpus};
use crate::output_file::{self, ForceArgs};
use crate::pictures::PictureArgs;
use crate::run::{OpenRun, STOPPED, stop_on_signals};
use crate::simulated::{GuestArgs, JobsArgs, ModelDetail, Simulated, SimulatedArgs, model};

/// Models that a fit can start from, by vendor: the newest core out of order of each.
const PRESETS: [(&str, &str); 2] = [("AuthenticAMD", "zen4"), ("GenuineIntel", "emerald-rapids")];
/// The most ways of a model's TLB.
const WAYS_MAX: u32 = 64;
/// CPUs and memory of the simulated machine, as those of `bench model`.
const VCPUS: u32 = 2;
const MEMORY_MIB: u32 = 1024;

/// Make a model of this machine: measure its processor, start from the nearest model, refine it
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Examples:
  irqlab machines fit                    writes the model that --on sim:host names
  irqlab machines fit -o mine.toml -c 3  writes a file; measures CPU 3"))]
pub struct FitArgs {
    /// File to write [default: the user's model of this machine, which --on sim:host names]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Model to start from [default: the nearest of the same vendor]
    #[arg(long, value_name = "MODEL")]
    preset: Option<String>,
    /// The CPU to measure: exactly one [default: the last one usable]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// Windows of each kernel on this machine
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u32).range(6..=1000), value_name = "N")]
    windows: u32,
    /// Rounds of refinement in the simulated machine
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10), value_name = "N")]
    rounds: u32,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
}

/// A model that is being made: its text, and what was done to it.
struct Draft {
    text: String,
    fitted: Vec<Fitted>,
    /// Fields that this host cannot determine: they are left, whatever its kernels say.
    undetermined: Vec<Fitted>,
}

impl Draft {
    /// Sets a field; one that the host cannot determine, or that the model refuses, is left as it is, with
    /// the reason.
    fn set(&mut self, one: Fitted) {
        let undetermined = self.undetermined.iter().find(|other| other.field == one.field);
        let one = undetermined.cloned().unwrap_or(one);
        let one = match &one.value {
            None => one,
            Some(value) => match schema::set(&self.text, &[&format!("{}={value}", one.field)]) {
                Ok(text) => {
                    self.text = text;
                    one
                }
                Err(error) => left(&one.field, &error.problem),
            },
        };
        self.fitted.retain(|other| other.field != one.field);
        self.fitted.push(one);
    }

    /// Sets several fields at once, which are no model one by one.
    fn set_together(&mut self, all: Vec<Fitted>) {
        let assignment = |one: &Fitted| Some(format!("{}={}", one.field, one.value.as_ref()?));
        let assignments: Vec<String> = all.iter().filter_map(assignment).collect();
        let list: Vec<&str> = assignments.iter().map(String::as_str).collect();
        match schema::set(&self.text, &list) {
            Ok(text) => {
                self.text = text;
                self.fitted.extend(all);
            }
            Err(error) => {
                self.fitted.extend(all.iter().map(|one| left(&one.field, &error.problem)));
            }
        }
    }

    /// The whole number that a field has now.
    fn number(&self, field: &str) -> Option<i64> {
        let table: toml::Table = toml::from_str(&self.text).ok()?;
        let mut parts = field.split('.');
        let mut value = table.get(parts.next()?)?;
        for part in parts {
            value = value.get(part)?;
        }
        value.as_integer()
    }

    /// The file: what was determined, then the model.
    fn file(&self, head: &str) -> String {
        let mut text = head.to_owned();
        for one in &self.fitted {
            let value = one.value.as_deref().unwrap_or("-");
            let measured = match one.measured {
                Some((cycles, Some((low, high)))) => format!("{cycles:.4} ({low:.4} to {high:.4})"),
                Some((cycles, None)) => format!("{cycles:.4}"),
                None => "-".to_owned(),
            };
            text += &format!("#   {} | {value} | {measured} | {}\n", one.field, one.method);
        }
        text + "\n" + &self.text
    }
}

/// A value that does not follow from a kernel.
fn stated(field: &str, value: String, method: &str) -> Fitted {
    let (field, value) = (field.to_owned(), Some(value));
    Fitted { field, value, measured: None, method: method.to_owned() }
}

/// Measures, fits, writes, prints, records.
pub fn run(args: &FitArgs) -> anyhow::Result<ExitCode> {
    let file = file(args)?;
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
    // Checked before the minutes of measuring: what a simulated machine needs.
    let with_preset = preset_machine(&preset)?;
    console::say("measures this machine");
    let host = measure_host(&[], (args.windows, 1), cpu, &stop)?;
    if stop.is_requested() {
        bail!(STOPPED);
    }
    let before = measure(&with_preset, "preset", &[])?;
    let undetermined = could_not_tell(&host.samples, &host.conditions);
    let mut draft = Draft { text, fitted: Vec::new(), undetermined };
    from_facts(&mut draft, &facts, &processor)?;
    nested_page(&host.samples, &host.conditions).into_iter().for_each(|one| draft.set(one));
    direct(&host.samples).into_iter().for_each(|one| draft.set(one));
    tlb(&mut draft, &host.samples);
    let names = refined_by(&host.samples);
    for round in 1..=args.rounds {
        let label = format!("round {round} of {}", args.rounds);
        let model = measure_text(&draft.text, &label, &names)?;
        let current = |field: &str| draft.number(field);
        let changes = refine(&host.samples, &model, &current);
        changes.into_iter().for_each(|one| draft.set(one));
    }
    // Also those that no kernel would have changed.
    std::mem::take(&mut draft.undetermined).into_iter().for_each(|one| draft.set(one));
    let after = measure_text(&draft.text, "the fitted model", &[])?;
    let head = head(&preset, &processor, &host, &after);
    output_file::write(&file, draft.file(&head).as_bytes(), args.force)?;
    let named = if args.output.is_none() { " (--on sim:host)" } else { "" };
    console::say(&format!("the model of this machine: {}{named}", file.display()));
    let run = run_of(args, (&preset, &open), &facts, &draft, (&host, &before, &after));
    open.finish(&run, &args.pictures.of(&run))
}

/// The file to write, which can be written.
fn file(args: &FitArgs) -> anyhow::Result<PathBuf> {
    let file = match &args.output {
        Some(file) => file.clone(),
        None => models::host_file()
            .ok_or_else(|| Usage("there is no home directory; name a file (-o)".to_owned()))?,
    };
    if let Some(directory) = file.parent().filter(|directory| *directory != Path::new("")) {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    output_file::check(&file, args.force)?;
    Ok(file)
}

/// The model to start from.
fn preset(from: Option<&str>, processor: &Processor) -> anyhow::Result<String> {
    if let Some(name) = from {
        return Ok(name.to_owned());
    }
    let Processor { vendor, family, model } = processor;
    if let Some(name) = models::of_processor(vendor, *family, *model).first() {
        return Ok((*name).to_owned());
    }
    match PRESETS.iter().find(|(other, _)| other == vendor) {
        Some((_, name)) => Ok((*name).to_owned()),
        None => {
            bail!(Usage(format!("no model is near a processor of {vendor}; name one (--preset)")))
        }
    }
}

/// Clock, processors and caches, as the machine states them.
fn from_facts(draft: &mut Draft, facts: &HostFacts, processor: &Processor) -> anyhow::Result<()> {
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
    let cpus = facts.cpu.online.as_ref().map_or(1, Vec::len).clamp(1, 64);
    draft.set(stated("cpus", cpus.to_string(), "CPUs online"));
    for (level, kind, table) in
        [(1, "Data", "l1d"), (1, "Instruction", "l1i"), (2, "Unified", "l2"), (3, "Unified", "l3")]
    {
        let of = facts.caches.iter().find(|one| one.level == level && one.kind == kind);
        match of.map(|one| geometry(one, table)) {
            Some(Some(fields)) => draft.set_together(fields),
            _ => draft.set(left(&format!("{table}.size"), "the machine does not state it")),
        }
    }
    Ok(())
}

fn geometry(of: &CacheFacts, table: &str) -> Option<Vec<Fitted>> {
    let method = "stated by CPUID (sysfs)";
    let (size, ways, line) = (of.size_bytes?, of.ways?, of.line_bytes?);
    Some(vec![
        stated(&format!("{table}.size"), format!("\"{} KiB\"", size >> 10), method),
        stated(&format!("{table}.ways"), ways.to_string(), method),
        stated(&format!("{table}.line"), format!("\"{line} B\""), method),
    ])
}

fn tlb(draft: &mut Draft, host: &[KernelSample]) {
    match first_tlb_entries(host) {
        Some((entries, method)) => {
            // A model's TLB has at most this number of ways: a larger one has two sets or four.
            let sets = [1, 2, 4]
                .into_iter()
                .find(|sets| entries.is_multiple_of(*sets) && entries / sets <= WAYS_MAX);
            let ways = entries / sets.unwrap_or(1);
            draft.set_together(vec![
                stated("dtlb.entries", entries.to_string(), &method),
                stated("dtlb.ways", ways.to_string(), "as few sets as a model can have"),
            ]);
        }
        None => draft.set(left("dtlb.entries", "chases of pages show no end of it")),
    }
}

/// A simulated machine under a model.
fn prepare(model: models::Model) -> anyhow::Result<Simulated> {
    let cache = Cache::from_environment()?;
    let plain = SimulatedArgs::plain(JobsArgs::default(), std::time::Duration::from_secs(3600));
    let watch = plain.watch(Some(model));
    let guest = GuestArgs { mem: Some(MEMORY_MIB), ..GuestArgs::default() };
    Simulated::prepare(cache, &guest, VCPUS, watch, stop_on_signals()?, |_| Ok(()))
}

fn preset_machine(name: &str) -> anyhow::Result<Simulated> {
    prepare(model(&Cache::from_environment()?, name, &[], Some(ModelDetail::Ooo))?)
}

fn measure(
    simulated: &Simulated,
    label: &str,
    only: &[String],
) -> anyhow::Result<Vec<KernelSample>> {
    console::say(&format!("simulates {label}: {}", counted(only)));
    Ok(measure_model(simulated, label, only, 1)?.context(STOPPED)?.samples)
}

fn measure_text(text: &str, label: &str, only: &[String]) -> anyhow::Result<Vec<KernelSample>> {
    let model = models::of_text(&Cache::from_environment()?, label, text, Detail::Ooo)?;
    measure(&prepare(model)?, label, only)
}

fn counted(only: &[String]) -> String {
    match (only, selected(&[])) {
        ([], Ok(all)) => format!("all {} kernels", all.len()),
        (some, _) => format!("{} kernels", some.len()),
    }
}

/// The comment above the model.
fn head(preset: &str, processor: &Processor, host: &Host, after: &[KernelSample]) -> String {
    use lab::kernels::{Comparison, Pair, is_held_out};
    let pairs = |held: bool| {
        let all = host.samples.iter().filter(move |one| is_held_out(&one.name) == held);
        all.filter_map(|host| {
            let model = after.iter().find(|one| one.name == host.name)?;
            Some(Pair { host, model })
        })
    };
    let words = |held: bool| match Comparison::of(pairs(held)) {
        Some(of) => format!("{} kernels, mean error factor {:.3}", of.kernels, of.mean),
        None => "none".to_owned(),
    };
    let cpu = host.processor.as_ref().map_or("", |(_, name)| name.as_str());
    format!(
        "# The model of this machine, by irqlab machines fit, {date}: {cpu} ({processor}), from {preset}.\n\
         # Held out of the fit: {held}. Others: {used}.\n\
         # Field | value (-: the preset's is left) | cycles (95 %) | method:\n",
        date = record::now().strftime("%Y-%m-%d"),
        held = words(true),
        used = words(false),
    )
}

fn fields(draft: &Draft) -> Table {
    let columns = vec![
        Column::new("field", Kind::Text, "Field of the model, as in --set.").key().priority(100),
        Column::new("value", Kind::Text, "Its value; absent where the preset's was left.")
            .priority(90),
        Column::new("cycles", Kind::Real, "Cycles of the kernel that determines it.").digits(4),
        Column::new("ci95_low_cycles", Kind::Real, "Lower end of their 95 % interval.")
            .title("95 %")
            .digits(4)
            .up_to("ci95_high_cycles"),
        Column::new("ci95_high_cycles", Kind::Real, "Upper end of that interval.").detail(),
        Column::new("method", Kind::Text, "What determines it; or why the preset's was left."),
    ];
    let mut table = Table::new("fields", "Fields of the fitted model.", columns);
    for one in &draft.fitted {
        let (cycles, interval) = one.measured.unzip();
        let (low, high) = interval.flatten().unzip();
        table.push(vec![
            one.field.as_str().into(),
            one.value.as_deref().into(),
            cycles.into(),
            low.into(),
            high.into(),
            one.method.as_str().into(),
        ]);
    }
    table
}

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
    let mut tables = vec![fields(draft)];
    let mut preset_groups = comparison_tables(&host.samples, before).swap_remove(0);
    preset_groups.name = "preset_groups".to_owned();
    preset_groups.doc =
        "How far the preset is from the real processor, by group of kernels.".to_owned();
    tables.push(preset_groups);
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
    fn what_the_host_cannot_tell_stays_the_presets_and_is_marked() {
        let text = models::text("zen3").unwrap();
        let conditions =
            Conditions { throttled: Some(3), is_virtual: true, ..Conditions::default() };
        let undetermined = could_not_tell(&[], &conditions);
        let mut draft = Draft { text, fitted: Vec::new(), undetermined };
        draft.set(stated("clock", "\"2 GHz\"".to_owned(), "measured"));
        draft.set(stated("memory_cycles", "100".to_owned(), "measured"));
        draft.set(stated("l2_hit_cycles", "11".to_owned(), "measured"));
        let model = machine::SystemModel::parse(&draft.text).unwrap();
        assert_eq!((model.clock_hz, model.latencies.memory_cycles), (4_700_000_000, 368));
        assert_eq!(model.latencies.l2_hit_cycles, 11);
        std::mem::take(&mut draft.undetermined).into_iter().for_each(|one| draft.set(one));
        let file = draft.file("");
        for field in ["clock", "memory_cycles", "memory_line_cycles"] {
            let line = format!("#   {field} | - | - | preset left: the core was throttled 3 times");
            assert!(file.contains(&line), "{file}");
        }
        assert!(file.contains("#   core.events.interrupt_cycles | - | - | preset left: a hyper"));
        assert!(file.contains("#   l2_hit_cycles | 11 | - | measured"), "{file}");
    }
}
