//! `irqlab bench sim-repeat`: checks that a simulated machine repeats a run to the byte. Runs each machine many
//! times, and compares the digests of the plugin's records.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use record::Run;
use serde_json::{Map, json};
use sim::image::Tools;
use sim::repeat::{RepeatedMachine, Repetition};
use sim::watch::{self, Watch};
use sim::{Cache, qemu};
use sim_tables::repeat;

use super::{Measured, open, run_of};
use crate::console::{self, ProgressLine, Redraw};
use crate::options::{On, OptionalResultArgs};
use crate::run::{DIFFERS, stop_on_signals};
use crate::simulated::{GuestArgs, JobsArgs, LevelArgs, shell_line};

/// Default command: processes that sleep, run concurrently, and read files.
const COMMAND: &str = "i=0; while [ $i -lt 30 ]; do \
    (usleep $((i*1300)); cat /proc/interrupts >/dev/null; ls / >/dev/null) & i=$((i+1)); done; wait; \
    i=0; while [ $i -lt 60 ]; do usleep $((i*97)); i=$((i+1)); done; cat /proc/uptime";

const LIMIT: &str = "End the command with an error if a machine runs longer on the host's clock: status 124 \
    [default: 30m]";
const GUEST_LIMIT: &str = "End the command with an error if a machine runs longer on its own clock: status 124 \
    [default: 10m]";

/// Check that a simulated machine repeats a run to the byte
#[derive(Debug, clap::Args)]
#[command(mut_arg("limit", |arg| arg.help(LIMIT)))]
#[command(mut_arg("guest_limit", |arg| arg.help(GUEST_LIMIT)))]
#[command(after_help = "Examples:
  irqlab bench sim-repeat --times 20
  irqlab bench sim-repeat --times 5 --on sim:zen3 --keep records -- 'ls -lR /'

Exit codes: 0 all runs of a machine are equal; 1 failed; 2 the command line is wrong; 3 runs differ; 4 no machine can be simulated here; 124 a machine reached --limit or --guest-limit.")]
pub struct SimRepeatArgs {
    /// How often to run each machine
    #[arg(long, alias = "runs", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(2..=100_000))]
    times: u32,
    /// CPUs of the simulated machine, 1 to 16 [default: 2]
    #[arg(long, value_delimiter = ',', value_name = "N,...",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: Vec<u32>,
    /// Keep a record of each different outcome in this directory, for irqlab sim diff
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// What is repeated: sim, or sim:MODEL, whose record also has cycles and misses
    #[arg(long, value_name = "BENCH", default_value = "sim")]
    on: On,
    #[command(flatten)]
    level: LevelArgs,
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

pub fn run(args: &SimRepeatArgs) -> anyhow::Result<ExitCode> {
    args.guest.refuse_free_running()?;
    let open = open(&args.results)?;
    let cache = Cache::from_environment()?;
    let qemu = qemu::find(&cache)?;
    let name = args.on.simulated_model("a machine to repeat")?;
    let model = args.level.model_of_all_events(&cache, name)?;
    let watch = Watch { transitions: args.keep.is_some(), ..args.level.watch(model) };
    if let Some(directory) = &args.keep {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let stop = stop_on_signals()?;
    let command = shell_line(&args.command);
    let request = format!("run:{}", if command.is_empty() { COMMAND } else { &command });
    let vcpus: &[u32] = if args.vcpus.is_empty() { &[2] } else { &args.vcpus };
    let machine = |vcpus: &u32| {
        let (mut machine, kernel) = args.guest.machine(&cache, *vcpus, Tools::None)?;
        let (model, from) = (watch.model.as_ref(), args.guest.from.as_deref());
        machine.identity = args.guest.identity.choose(&cache, *vcpus, model, from)?;
        let kernel_files = watch::kernel_files(&cache, &qemu, &kernel, &console::say)?;
        let (name, start) = (format!("{vcpus} vCPU"), args.guest.from.as_deref().into());
        Ok(RepeatedMachine::new(name, machine, kernel_files, request.clone(), start))
    };
    let mut machines = vcpus.iter().map(machine).collect::<anyhow::Result<Vec<_>>>()?;
    let memory_mib = machines.iter().map(|repeated| repeated.machine.memory_mib).max().unwrap_or(0);
    let jobs = args.jobs.choose(args.times as usize * machines.len(), memory_mib);
    let progress_line = Mutex::new(ProgressLine::new(Redraw::EverySecond));
    let repetition = Repetition {
        cache: &cache,
        qemu: &qemu,
        watch: &watch,
        limits: args.guest.limits(),
        is_hostile: false,
        keep: args.keep.as_deref(),
        stop: &|| stop.is_requested(),
        progress: &|number, count, name| {
            progress_line.lock().unwrap_or_else(PoisonError::into_inner).step(number, count, name);
        },
    };
    let is_complete = repetition.run(&mut machines, u64::from(args.times), jobs)?;
    drop(progress_line);
    let settings = [
        ("times", json!(args.times)),
        ("qemu", json!(qemu.version_text)),
        ("machine", json!(machines.first().map(|repeated| repeated.machine.described()))),
        ("model", json!(name)),
        ("detail", json!(format!("{:?}", watch.detail).to_lowercase())),
        ("vcpu_slice", json!(watch.vcpu_slice)),
        ("checkpoint", json!(args.guest.from)),
        ("request", json!(request)),
    ];
    let result = Measured {
        settings: settings.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
        tables: vec![repeat::outcomes(&machines)],
        interrupted: !is_complete,
        ..Measured::default()
    };
    let run = run_of("bench-sim-repeat", open.started(), result);
    let exit = open.finish(&Run { bench: "sim".to_owned(), host: Map::new(), ..run }, &[])?;
    let unrepeatable = machines.iter().filter(|repeated| repeated.outcomes().len() > 1);
    let names: Vec<&str> = unrepeatable.map(|repeated| repeated.name.as_str()).collect();
    if names.is_empty() {
        return Ok(exit);
    }
    console::warn(&format!(
        "these machines had different outcomes, so they are not repeatable: {}",
        names.join(", ")
    ));
    Ok(ExitCode::from(DIFFERS))
}
