//! `irqlab bench sim-repeat`: whether a simulated machine repeats a run to the byte.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::bail;
use record::{Kind, Run, Table};
use serde_json::{Map, json};
use sim::image::Tools;
use sim::parallel::for_each;
use sim::qemu::Qemu;
use sim::watch::{self, Detail, KernelFiles, Recording, Watch};
use sim::{Cache, Machine, boot, checkpoint, qemu};

use super::{Measured, columns, open, run_of};
use crate::console::{self, ProgressLine, Redraw};
use crate::options::OptionalResultArgs;
use crate::run::stop_on_signals;
use crate::simulated::{self, GuestArgs, JobsArgs, ModelDetail, SliceArgs, shell_line};

/// Processes that sleep, run concurrently, and read files.
const COMMAND: &str = "i=0; while [ $i -lt 30 ]; do \
    (usleep $((i*1300)); cat /proc/interrupts >/dev/null; ls / >/dev/null) & i=$((i+1)); done; wait; \
    i=0; while [ $i -lt 60 ]; do usleep $((i*97)); i=$((i+1)); done; cat /proc/uptime";
/// Signs of a record's hash that are shown.
const HASH_SIGNS: usize = 16;

/// Whether a simulated machine repeats a run to the byte
#[derive(Debug, clap::Args)]
pub struct SimRepeatArgs {
    /// How often the machine is run
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    times: u32,
    /// CPUs of the simulated machine, 1 to 16
    #[arg(long, default_value_t = 2, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: u32,
    /// Model of the processor, by name or file: records cycles and misses, too
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// How the model is run [default: timed if it runs the model, else ooo]
    #[arg(long, value_enum, requires = "model")]
    detail: Option<ModelDetail>,
    #[command(flatten)]
    slice: SliceArgs,
    #[command(flatten)]
    jobs: JobsArgs,
    /// Command for the guest's shell [default: some processes that sleep and read files]
    #[arg(last = true)]
    command: Vec<String>,
    #[command(flatten, next_help_heading = "Simulated machine")]
    guest: GuestArgs,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// What a run left: the record's SHA-256, and what the guest printed.
type Outcome = (String, String);

/// Runs with the same outcome.
#[derive(Debug, Default)]
struct Same {
    runs: u64,
    first_run: u64,
    instructions: Option<u64>,
}

/// Runs, prints, records.
pub fn run(args: &SimRepeatArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let cache = Cache::from_environment()?;
    let bench = Bench::new(&cache, args)?;
    let stop = stop_on_signals()?;
    let mut outcomes: BTreeMap<Outcome, Same> = BTreeMap::new();
    let mut interrupted = false;
    let numbers: Vec<u64> = (1..=u64::from(args.times)).collect();
    let jobs = args.jobs.choose(numbers.len(), bench.machine.memory_mib);
    let progress = Mutex::new((0, ProgressLine::new(Redraw::EverySecond)));
    let results = for_each(jobs, &numbers, |_, _| {
        if stop.is_requested() {
            return Ok(None);
        }
        {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.0 += 1;
            let number = progress.0;
            progress.1.step(number, numbers.len(), "run");
        }
        bench.once(&|| stop.is_requested())
    });
    drop(progress);
    for (number, result) in numbers.into_iter().zip(results) {
        let Some((outcome, instructions)) = result? else {
            interrupted = true;
            continue;
        };
        let new = Same { runs: 0, first_run: number, instructions };
        outcomes.entry(outcome).or_insert(new).runs += 1;
    }
    let of = run_of("bench-sim-repeat", open.started(), bench.result(&outcomes, interrupted));
    let ended = open.finish(&Run { bench: "sim".to_owned(), host: Map::new(), ..of }, &[])?;
    match outcomes.len() {
        0 | 1 => Ok(ended),
        several => bail!("{several} different outcomes: these runs are not repeatable"),
    }
}

/// The machine that is run, and how.
struct Bench<'a> {
    cache: &'a Cache,
    args: &'a SimRepeatArgs,
    qemu: Qemu,
    machine: Machine,
    kernel_files: KernelFiles,
    watch: Watch,
    request: String,
}

impl Bench<'_> {
    fn new<'a>(cache: &'a Cache, args: &'a SimRepeatArgs) -> anyhow::Result<Bench<'a>> {
        let qemu = qemu::find(cache)?;
        let (machine, kernel) = args.guest.machine(cache, args.vcpus, Tools::None)?;
        let kernel_files = watch::kernel_files(cache, &qemu, &kernel, &console::say)?;
        let model = args.model.as_deref();
        let model =
            model.map(|name| simulated::model(cache, name, &[], args.detail)).transpose()?;
        let detail = model.as_ref().map_or(Detail::Count, |model| model.detail);
        let watch = Watch { detail, model, vcpu_slice: args.slice.vcpu_slice, ..Watch::default() };
        let words = shell_line(&args.command);
        let command = if words.is_empty() { COMMAND } else { &words };
        let request = format!("run:{command}");
        Ok(Bench { cache, args, qemu, machine, kernel_files, watch, request })
    }

    /// One run: its outcome, and how many instructions it had. `None` when `stop` came first.
    fn once(&self, stop: &dyn Fn() -> bool) -> anyhow::Result<Option<(Outcome, Option<u64>)>> {
        let (machine, limits) = (&self.machine, self.args.guest.limits());
        let recording =
            Recording::new(self.cache, &self.qemu, machine, &self.kernel_files, &self.watch, None)?;
        let from = self.args.guest.from.as_deref().into();
        let more = recording.instrumentation();
        let mut vm =
            checkpoint::start(self.cache, &self.qemu, machine, &from, &self.request, limits, more)?;
        let mut console = Vec::new();
        let mut keep = |bytes: &[u8]| console.extend_from_slice(bytes);
        let Some(_) = boot::follow_unless(&mut vm, limits, &mut keep, stop)? else {
            return Ok(None);
        };
        drop(vm);
        let record = recording.sha256()?;
        let account = recording.accounting()?;
        if let Some(broken) = account.broken.first() {
            bail!("the record is broken: {broken}");
        }
        if !account.ended_by_guest {
            bail!("the guest did not come to the end of the command");
        }
        Ok(Some(((record, output(&console)), account.instructions)))
    }

    fn result(&self, outcomes: &BTreeMap<Outcome, Same>, interrupted: bool) -> Measured {
        let settings = [
            ("times", json!(self.args.times)),
            ("qemu", json!(self.qemu.version_text)),
            ("machine", self.machine.described()),
            ("model", json!(self.args.model)),
            ("detail", json!(format!("{:?}", self.watch.detail).to_lowercase())),
            ("vcpu_slice", json!(self.args.slice.vcpu_slice)),
            ("checkpoint", json!(self.args.guest.from)),
            ("request", json!(self.request)),
        ];
        Measured {
            settings: settings.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
            tables: vec![table(outcomes)],
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

fn table(outcomes: &BTreeMap<Outcome, Same>) -> Table {
    let columns = columns(&[
        ("record_sha256", Kind::Text, "SHA-256 of the record, its first 64 bits."),
        ("run_count", Kind::Uint, "Runs with this record and the same console output."),
        ("first_run", Kind::Uint, "Number of the first of these runs, from 1."),
        ("instructions", Kind::Uint, "Instructions of the run on all CPUs."),
    ]);
    let doc = "Distinct outcomes of the same run; a repeatable machine has one.";
    let mut table = Table::new("outcomes", doc, columns);
    let mut sorted: Vec<_> = outcomes.iter().collect();
    sorted.sort_by_key(|(_, same)| same.first_run);
    for ((record, _), same) in sorted {
        table.push(vec![
            record.chars().take(HASH_SIGNS).collect::<String>().into(),
            same.runs.into(),
            same.first_run.into(),
            same.instructions.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_last_words_are_left_out() {
        assert_eq!(output(b"[    1.0] up\r\none\r\ntwo\n[    2.0] Power down\n"), "one\ntwo");
    }

    #[test]
    fn outcomes_are_listed_as_they_came() {
        let mut outcomes = BTreeMap::new();
        let outcome = |text: &str| (text.repeat(HASH_SIGNS), String::new());
        outcomes.insert(outcome("b"), Same { runs: 2, first_run: 1, instructions: Some(5) });
        outcomes.insert(outcome("a"), Same { runs: 1, first_run: 3, instructions: None });
        let table = table(&outcomes);
        assert_eq!(table.rows()[0][1], 2_u64.into());
        assert_eq!(table.rows()[1][0], outcome("a").0.into());
    }
}
