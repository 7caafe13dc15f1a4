//! `irqlab bench sim-repeat`: checks that a simulated machine repeats a run to the byte, even on a host that disturbs
//! it.

mod hostile;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use live::window::Stop;
use outputs::Existing;
use record::{Kind, Run, Table};
use serde_json::{Map, json};
use sim::checkpoint::Start;
use sim::hostile::HostileHost;
use sim::image::Tools;
use sim::parallel::for_each;
use sim::qemu::Qemu;
use sim::watch::{self, Detail, KernelFiles, Recording, Watch};
use sim::{Cache, Machine, boot, checkpoint, qemu};

use super::{Measured, columns, open, run_of};
use crate::console::{self, ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, Usage};
use crate::run::{DIFFERS, stop_on_signals};
use crate::simulated::{self, GuestArgs, JobsArgs, ModelDetail, SliceArgs, shell_line};

/// Default command: processes that sleep, run concurrently, and read files.
const COMMAND: &str = "i=0; while [ $i -lt 30 ]; do \
    (usleep $((i*1300)); cat /proc/interrupts >/dev/null; ls / >/dev/null) & i=$((i+1)); done; wait; \
    i=0; while [ $i -lt 60 ]; do usleep $((i*97)); i=$((i+1)); done; cat /proc/uptime";
/// Number of hexadecimal digits of a record's hash that are shown.
const HASH_SIGNS: usize = 16;

/// Check that a simulated machine repeats a run to the byte
#[derive(Debug, clap::Args)]
pub struct SimRepeatArgs {
    /// How often to run each machine
    #[arg(long, alias = "runs", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(2..=100_000))]
    times: u32,
    /// CPUs of the simulated machine, 1 to 16 [default: 2; with --hostile 1,2,8]
    #[arg(long, value_delimiter = ',', value_name = "N,...",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: Vec<u32>,
    /// Disturb QEMU as a host could: stop its threads at random, and keep processors, disk and memory busy.
    /// Without your own command or devices, all built-in devices and workloads are run
    #[arg(long)]
    hostile: bool,
    /// With --hostile: run only these devices
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DEVICE,...", requires = "hostile",
          conflicts_with_all = ["disk", "net", "from"])]
    device: Vec<hostile::Device>,
    /// With --hostile: run only these workloads
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LOAD,...", requires = "hostile",
          conflicts_with_all = ["disk", "net", "from"])]
    workload: Vec<hostile::Workload>,
    /// Keep a record of each different outcome in this directory, for irqlab sim diff
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Model of the processor, by name or file; the record then also has cycles and misses
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// How exactly the model is simulated [default: timed, or ooo where the model needs it]
    #[arg(long, value_enum, requires = "model")]
    detail: Option<ModelDetail>,
    #[command(flatten)]
    slice: SliceArgs,
    #[command(flatten)]
    jobs: JobsArgs,
    /// Command for the guest's shell [default: processes that sleep and read files]
    #[arg(last = true)]
    command: Vec<String>,
    #[command(flatten, next_help_heading = "Simulated machine")]
    guest: GuestArgs,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// The outcome of a run: the SHA-256 of its record, and the output of the guest's programs.
type Outcome = (String, String);

/// Runs with the same outcome.
#[derive(Debug, Default)]
struct Same {
    runs: u64,
    /// Number of the first run with this outcome, from 1.
    first_run: u64,
    instructions: Option<u64>,
}

/// A run that was not stopped.
struct OneRun {
    outcome: Outcome,
    instructions: Option<u64>,
    /// The file with the record of the run, with `--keep`.
    kept: Option<PathBuf>,
}

/// A machine, its request, and the outcomes of its runs.
struct Configuration {
    name: String,
    machine: Machine,
    kernel_files: KernelFiles,
    request: String,
    start: Start,
    /// Whether a failed command is an error. A workload that does nothing would prove nothing.
    must_succeed: bool,
    outcomes: BTreeMap<Outcome, Same>,
}

pub fn run(args: &SimRepeatArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let cache = Cache::from_environment()?;
    let bench = Bench::new(&cache, args)?;
    let stop = stop_on_signals()?;
    let mut configurations = bench.configurations(&stop)?;
    let mut interrupted = false;
    // Every machine runs once before any runs a second time, so that an interrupted bench has runs of all.
    let runs: Vec<(u64, usize)> = (1..=u64::from(args.times))
        .flat_map(|number| (0..configurations.len()).map(move |index| (number, index)))
        .collect();
    let memory_mib = configurations.iter().map(|each| each.machine.memory_mib).max().unwrap_or(0);
    let jobs = args.jobs.choose(runs.len(), memory_mib);
    let progress = Mutex::new((0, ProgressLine::new(Redraw::EverySecond)));
    let results = for_each(jobs, &runs, |_, (number, index)| {
        if stop.is_requested() {
            return Ok(None);
        }
        let configuration = &configurations[*index];
        {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.0 += 1;
            let started = progress.0;
            progress.1.step(started, runs.len(), &configuration.name);
        }
        bench.once(configuration, *number, &|| stop.is_requested())
    });
    drop(progress);
    for ((number, index), result) in runs.into_iter().zip(results) {
        let Some(run) = result? else {
            interrupted = true;
            continue;
        };
        let new = Same { runs: 0, first_run: number, instructions: run.instructions };
        let same = configurations[index].outcomes.entry(run.outcome).or_insert(new);
        same.runs += 1;
        if let Some(kept) = run.kept
            && same.runs > 1
        {
            fs::remove_file(&kept).with_context(|| format!("cannot remove {}", kept.display()))?;
        }
    }
    let result = bench.result(&configurations, interrupted);
    let run = run_of("bench-sim-repeat", open.started(), result);
    let exit = open.finish(&Run { bench: "sim".to_owned(), host: Map::new(), ..run }, &[])?;
    let unrepeatable = configurations.iter().filter(|each| each.outcomes.len() > 1);
    let names: Vec<&str> = unrepeatable.map(|each| each.name.as_str()).collect();
    if names.is_empty() {
        return Ok(exit);
    }
    console::warn(&format!(
        "these machines had different outcomes, so they are not repeatable: {}",
        names.join(", ")
    ));
    Ok(ExitCode::from(DIFFERS))
}

struct Bench<'a> {
    cache: &'a Cache,
    args: &'a SimRepeatArgs,
    qemu: Qemu,
    watch: Watch,
}

impl Bench<'_> {
    fn new<'a>(cache: &'a Cache, args: &'a SimRepeatArgs) -> anyhow::Result<Bench<'a>> {
        let qemu = qemu::find(cache)?;
        let model = args.model.as_deref();
        let model =
            model.map(|name| simulated::model(cache, name, &[], args.detail)).transpose()?;
        let detail = model.as_ref().map_or(Detail::Count, |model| model.detail);
        let transitions = args.hostile || args.keep.is_some();
        let vcpu_slice = args.slice.vcpu_slice;
        let watch = Watch { detail, model, vcpu_slice, transitions, ..Watch::default() };
        if let Some(directory) = &args.keep {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        Ok(Bench { cache, args, qemu, watch })
    }

    /// The machines to run: all built-in devices and workloads with `--hostile`, or the machine of the options.
    fn configurations(&self, stop: &Stop) -> anyhow::Result<Vec<Configuration>> {
        let args = self.args;
        let line = shell_line(&args.command);
        let guest = &args.guest;
        let is_chosen = !line.is_empty()
            || !guest.disk.is_empty()
            || guest.net.is_some()
            || guest.from.is_some();
        if args.hostile && !is_chosen {
            return self.hostile_configurations(stop);
        }
        let command = if line.is_empty() { COMMAND } else { &line };
        let vcpus: &[u32] = if args.vcpus.is_empty() { &[2] } else { &args.vcpus };
        vcpus
            .iter()
            .map(|vcpus| {
                let name = format!("{vcpus} vCPU");
                self.configuration(name, guest, *vcpus, command)
            })
            .collect()
    }

    fn hostile_configurations(&self, stop: &Stop) -> anyhow::Result<Vec<Configuration>> {
        let args = self.args;
        let vcpus: &[u32] = if args.vcpus.is_empty() { &[1, 2, 8] } else { &args.vcpus };
        let mut all = Vec::new();
        for device in hostile::devices(&args.device) {
            let guest = device.guest(&args.guest, &hostile::image(self.cache)?)?;
            for vcpus in vcpus {
                for workload in hostile::workloads(&args.workload, device) {
                    let name = format!("{vcpus} vCPU, {}, {}", device.name(), workload.name());
                    let command = workload.command(device);
                    let configuration = self.configuration(name, &guest, *vcpus, &command)?;
                    all.push(Configuration { must_succeed: true, ..configuration });
                }
            }
        }
        if all.is_empty() {
            bail!(Usage(
                "no device in --device can run a workload in --workload (stream needs a network card)"
                    .to_owned()
            ));
        }
        // The bench does not repeat the boots, so each machine boots once.
        let memory_mib = all.iter().map(|each| each.machine.memory_mib).max().unwrap_or(0);
        let jobs = args.jobs.choose(all.len(), memory_mib);
        let starts = for_each(jobs, &all, |_, each| {
            let is_stopped = || stop.is_requested();
            checkpoint::ready(self.cache, &self.qemu, &each.machine, &console::say, &is_stopped)
        });
        for (configuration, start) in all.iter_mut().zip(starts) {
            configuration.start = start?;
        }
        Ok(all)
    }

    fn configuration(
        &self,
        name: String,
        guest: &GuestArgs,
        vcpus: u32,
        command: &str,
    ) -> anyhow::Result<Configuration> {
        let (machine, kernel) = guest.machine(self.cache, vcpus, Tools::None)?;
        let kernel_files = watch::kernel_files(self.cache, &self.qemu, &kernel, &console::say)?;
        let (request, outcomes) = (format!("run:{command}"), BTreeMap::new());
        let start = guest.from.as_deref().into();
        let must_succeed = false;
        Ok(Configuration { name, machine, kernel_files, request, start, must_succeed, outcomes })
    }

    /// Runs a machine once. Returns `None` if it was stopped.
    fn once(
        &self,
        configuration: &Configuration,
        number: u64,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<Option<OneRun>> {
        let Configuration { machine, name, .. } = configuration;
        let limits = self.args.guest.limits();
        let kept = self.args.keep.as_deref().map(|directory| {
            directory.join(format!("{}-{number}.record", name.replace([',', ' '], "")))
        });
        let recording = Recording::new(
            self.cache,
            &self.qemu,
            machine,
            &configuration.kernel_files,
            &self.watch,
            kept.as_deref().map(|file| (file, Existing::Stays)),
        )?;
        let more = recording.instrumentation();
        let mut vm = checkpoint::start(
            self.cache,
            &self.qemu,
            machine,
            &configuration.start,
            &configuration.request,
            limits,
            more,
        )?;
        let host = self.args.hostile.then(|| HostileHost::start(vm.pid(), number));
        let host = host.transpose().context("starting a hostile thread failed")?;
        let mut console = Vec::new();
        let mut keep = |bytes: &[u8]| console.extend_from_slice(bytes);
        let ending = boot::follow_unless(&mut vm, limits, &mut keep, stop);
        drop(host);
        drop(vm);
        let Some(exit) = ending.with_context(|| name.clone())? else { return Ok(None) };
        if configuration.must_succeed && exit.status != 0 {
            let console = output(&console);
            bail!("{name}: the workload failed with status {}:\n{console}", exit.status);
        }
        let record = recording.sha256()?;
        let account = recording.accounting()?;
        if let Some(broken) = account.broken.first() {
            bail!("{name}: the record is broken: {broken}");
        }
        if !account.ended_by_guest {
            bail!("{name}: the guest ended before the command did");
        }
        let outcome = (record, output(&console));
        Ok(Some(OneRun { outcome, instructions: account.instructions, kept }))
    }

    fn result(&self, configurations: &[Configuration], interrupted: bool) -> Measured {
        let first = configurations.first();
        let settings = [
            ("times", json!(self.args.times)),
            ("hostile", json!(self.args.hostile)),
            ("qemu", json!(self.qemu.version_text)),
            ("machine", json!(first.map(|each| each.machine.described()))),
            ("model", json!(self.args.model)),
            ("detail", json!(format!("{:?}", self.watch.detail).to_lowercase())),
            ("vcpu_slice", json!(self.args.slice.vcpu_slice)),
            ("checkpoint", json!(self.args.guest.from)),
            ("request", json!(first.map(|each| &each.request))),
        ];
        let summary = self.args.hostile.then(|| summary(configurations));
        Measured {
            settings: settings.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
            tables: summary.into_iter().chain([outcomes(configurations)]).collect(),
            interrupted,
            ..Measured::default()
        }
    }
}

/// Returns the output of the guest's programs. The kernel's messages after the record's end, while the
/// machine powers off, depend on the host.
fn output(console: &[u8]) -> String {
    let console = String::from_utf8_lossy(console);
    console.lines().filter(|line| !line.starts_with('[')).collect::<Vec<_>>().join("\n")
}

/// Table `repeatability`, with a row for each machine.
fn summary(configurations: &[Configuration]) -> Table {
    let columns = columns(&[
        ("configuration", Kind::Text, "CPUs, device and workload of the machine."),
        ("run_count", Kind::Uint, "How often the machine was run."),
        (
            "outcome_count",
            Kind::Uint,
            "Number of different outcomes; 1 if the machine is repeatable.",
        ),
    ]);
    let doc = "Number of different outcomes of each machine.";
    let mut table = Table::new("repeatability", doc, columns);
    for configuration in configurations {
        let runs: u64 = configuration.outcomes.values().map(|same| same.runs).sum();
        let outcomes = configuration.outcomes.len() as u64;
        table.push(vec![configuration.name.clone().into(), runs.into(), outcomes.into()]);
    }
    table
}

fn outcomes(configurations: &[Configuration]) -> Table {
    outcome_table(configurations.iter().map(|each| (each.name.as_str(), &each.outcomes)))
}

fn outcome_table<'a>(
    configurations: impl Iterator<Item = (&'a str, &'a BTreeMap<Outcome, Same>)>,
) -> Table {
    let columns = columns(&[
        ("configuration", Kind::Text, "CPUs, device and workload of the machine."),
        ("record_sha256", Kind::Text, "First 64 bits of the record's SHA-256."),
        ("run_count", Kind::Uint, "Runs with this record and the same console output."),
        ("first_run", Kind::Uint, "Number of the first run with this outcome, from 1."),
        ("instructions", Kind::Uint, "Instructions of the run on all CPUs."),
    ]);
    let doc = "Different outcomes of the same run; a repeatable machine has only one.";
    let mut table = Table::new("outcomes", doc, columns);
    for (name, distinct) in configurations {
        let mut sorted: Vec<_> = distinct.iter().collect();
        sorted.sort_by_key(|(_, same)| same.first_run);
        for ((record, _), same) in sorted {
            table.push(vec![
                name.into(),
                record.chars().take(HASH_SIGNS).collect::<String>().into(),
                same.runs.into(),
                same.first_run.into(),
                same.instructions.into(),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_messages_are_left_out() {
        assert_eq!(output(b"[    1.0] up\r\none\r\ntwo\n[    2.0] Power down\n"), "one\ntwo");
    }

    #[test]
    fn outcomes_are_listed_as_they_came() {
        let mut distinct = BTreeMap::new();
        let outcome = |text: &str| (text.repeat(HASH_SIGNS), String::new());
        distinct.insert(outcome("b"), Same { runs: 2, first_run: 1, instructions: Some(5) });
        distinct.insert(outcome("a"), Same { runs: 1, first_run: 3, instructions: None });
        let table = outcome_table([("one", &distinct)].into_iter());
        assert_eq!(table.rows()[0][2], 2_u64.into());
        assert_eq!(table.rows()[1][1], outcome("a").0.into());
    }
}
