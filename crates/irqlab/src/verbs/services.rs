//! `irqlab services`: where does kernel time go, service by service?
//!
//! Makes the plan of `lab::services` from the options, and measures a command or a workload. The live bench uses BPF
//! programs; in a simulated machine, the plugin records the services.

use std::process::ExitCode;

use anyhow::bail;
use lab::services::in_guest::ServicesRequest;
use lab::services::{Plan, ServicesBench};
use lab::timeline;
use live::host::{Root, host_facts, run_host_block};
use live::services::{LiveServices, LiveServicesSettings};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::models::Model;
use sim::services::{SimServices, SimServicesSettings, Work};
use sim::watch::{Detail, StopRule, Until, Watch};

use super::sim::rootfs;
use crate::console::{self, Redraw};
use crate::dry_run::print_plan;
use crate::options::{
    Format, On, ResultArgs, SIMULATED, Usage, help_with_exit_codes, online_cpus, size_between,
};
use crate::pictures::PictureArgs;
use crate::run::{EVENTS_LOST, OpenRun, STATUS_LIMIT, stop_on_signals};
use crate::simulated::{self, Simulated, SimulatedArgs, shell_line};
use crate::until::{NEEDS_MODEL, WorkloadUntilArg};

/// How a workload's window ends at level `ooo` by default. The level executes 10 to 25 million instructions a second, so
/// this takes some 15 seconds.
const UNTIL: StopRule = StopRule::Instructions(200_000_000);

/// Where does kernel time go, service by service?
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[EVENTS_LOST, STATUS_LIMIT], "Examples:
  irqlab services -- make -j2                               this machine, while the command runs
  irqlab services --locks -- make -j2                       and who waits for which lock
  irqlab services --on sim -- 'ls -lR / > /dev/null'        counts of each service
  irqlab services --on sim:r4400-1994 -- CMD                with cycles and memory stalls of a model
  irqlab services --on sim:r10000-1996 --workload progdev   gcc and make, set up once
  irqlab services --on sim --rootfs mine -- CMD             in a root file system of Debian's packages
  irqlab services --on sim:zen3 --misses -- CMD             why each service misses its caches
  irqlab services --on sim --verify -- CMD                  compared with the guest's own counts"))]
pub struct ServicesArgs {
    /// Where to measure: live, sim or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// Line for the guest's shell that runs before the measurement, to fill the caches
    #[arg(long, value_name = "LINE", help_heading = SIMULATED)]
    warm_up_command: Option<String>,
    /// Have the guest's kernel count its system calls as well; this slows the guest
    #[arg(long, help_heading = SIMULATED)]
    verify: bool,
    /// Also record which services and places in the kernel wait for locks; on sim also which take them, and the run takes
    /// longer
    #[arg(long)]
    locks: bool,
    /// Also record which lines each service misses in the model's caches, who evicted them, and what they
    /// belong to; needs a model, and simulates it with --detail ooo
    #[arg(long, help_heading = SIMULATED)]
    misses: bool,
    /// Also keep single events, for table timeline and export --format perfetto: what ran on each CPU, nested, and an
    /// arrow from the raise of each softirq to its run; the latest that fit into SIZE (64KiB to 80MiB; an event takes 40
    /// bytes)
    #[arg(long, value_parser = size_between(timeline::BYTES_MIN, timeline::BYTES_MAX), value_name = "SIZE",
          help_heading = SIMULATED)]
    trace: Option<u64>,
    /// Also record the histograms' buckets
    #[arg(long)]
    histograms: bool,
    /// Measure this workload instead of a command: a name from `irqlab sim workload`, or a file
    #[arg(long, value_name = "NAME", help_heading = SIMULATED, conflicts_with = "command")]
    workload: Option<String>,
    /// Measure the workload's short form, which does less of the same work
    #[arg(long, help_heading = SIMULATED, requires = "workload", conflicts_with = "command")]
    short: bool,
    /// End the window of a workload: N-instructions (as in 200M-instructions) once all CPUs have executed N, without the
    /// workload's check; end: when the workload ends. Default: end, but 200M-instructions at --detail ooo without --short
    #[arg(long, value_name = "RULE", help_heading = SIMULATED, requires = "workload", conflicts_with = "command")]
    until: Option<WorkloadUntilArg>,
    /// Run the command in this root file system (irqlab sim rootfs), which is the first disk; the command must succeed
    #[arg(long, value_name = "NAME", help_heading = SIMULATED,
          conflicts_with_all = ["workload", "verify", "warm_up_command"])]
    rootfs: Option<String>,
    /// The command to measure; on sim, the guest's shell runs it
    #[arg(last = true, value_name = "CMD", required_unless_present = "workload")]
    command: Vec<String>,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

impl ServicesArgs {
    /// The options of the command, for the settings of the run.
    fn settings(&self) -> Map<String, Json> {
        let settings = [
            ("version", json!(crate::VERSION)),
            ("command", json!(self.command)),
            ("workload", json!(self.workload)),
            ("rootfs", json!(self.rootfs)),
            ("short", json!(self.short)),
            ("warm_up_command", json!(self.warm_up_command)),
            ("verify", json!(self.verify)),
            ("misses", json!(self.misses)),
            ("locks", json!(self.locks)),
        ];
        let trace = self.trace.map(|bytes| ("trace_bytes", json!(bytes)));
        let settings = settings.into_iter().chain(trace);
        settings.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Returns how the plugin ends the window of the workload before the workload ends. `None`: it does not.
    ///
    /// Fails for a rule without a model.
    fn until(&self, model: Option<&Model>) -> Result<Option<Until>, Usage> {
        let is_long = self.workload.is_some() && !self.short;
        let is_slow = model.is_some_and(|model| model.detail == Detail::Ooo);
        let rule = match self.until {
            Some(WorkloadUntilArg(Some(_))) if model.is_none() => {
                return Err(Usage(NEEDS_MODEL.to_owned()));
            }
            Some(WorkloadUntilArg(rule)) => rule,
            None => (is_long && is_slow).then_some(UNTIL),
        };
        // The machine ends with its window, so the guest's clock need not reach the end of a window.
        Ok(rule.map(|enough| Until { enough, window_ns: 1, warm_up_ns: 0 }))
    }

    /// Refuses options that work only with a command, not with `--workload`.
    fn check_workload(&self) -> Result<(), Usage> {
        let command_options =
            [("--verify", self.verify), ("--warm-up-command", self.warm_up_command.is_some())];
        match command_options.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Usage(format!(
                "{option} cannot be combined with --workload; it needs a command"
            ))),
            None => Ok(()),
        }
    }
}

pub fn run(args: &ServicesArgs) -> anyhow::Result<ExitCode> {
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => run_simulated(args, model.as_deref()),
    }
}

/// Measures the plan, prints and records the run.
fn measure(
    args: &ServicesArgs,
    open: &OpenRun,
    context: lab::experiment::RunContext,
    bench: &mut (dyn ServicesBench + 'static),
) -> anyhow::Result<ExitCode> {
    let plan = Plan { histograms: args.histograms };
    let measured =
        open.measure(&plan, context, bench, Redraw::EverySecond, |run, _| args.pictures.draw(run));
    Ok(measured?.0)
}

/// Measures the services that a command uses on this machine.
fn run_live(args: &ServicesArgs) -> anyhow::Result<ExitCode> {
    if args.workload.is_some() {
        bail!(Usage(
            "--workload needs a simulated machine: add --on sim or --on sim:MODEL".to_owned()
        ));
    }
    let host = host_facts(&Root::default());
    let open = OpenRun::new("services", &args.results)?;
    let mut context = open.context(run_host_block(&host), args.settings());
    context.settings.insert("out".into(), json!(open.directory()));
    console::say_more("measuring the overhead of the probes");
    let mut bench = LiveServices::new(LiveServicesSettings {
        command: args.command.clone(),
        to_stderr: args.results.printing.format() != Format::Table,
        cpus: online_cpus()?,
        locks: args.locks,
        stop: stop_on_signals()?,
    })?;
    measure(args, &open, context, &mut bench)
}

/// Measures a workload or a command in a simulated machine, or prints the plan with `--dry-run`.
fn run_simulated(args: &ServicesArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    args.simulated.guest.refuse_free_running()?;
    let vcpus = args.simulated.vcpus.unwrap_or(1);
    let cache = Cache::from_environment()?;
    let model = if args.misses {
        Some(args.simulated.level.model_with_misses(&cache, model)?)
    } else {
        args.simulated.model(&cache, model)?
    };
    let until = args.until(model.as_ref())?;
    let open = OpenRun::new("services", &args.results)?;
    let (locks, misses) = (args.locks, args.misses);
    let has_trace = args.trace.is_some();
    let watch = Watch {
        services: true,
        locks,
        misses,
        spans: has_trace,
        transitions: has_trace,
        delays: has_trace,
        until,
        ..args.simulated.watch(model)
    };
    let stop = stop_on_signals()?;
    let guest = &args.simulated.guest;
    let mut settings = args.settings();
    if let Some(Until { enough, .. }) = until {
        settings.insert("until".to_owned(), json!(enough.to_string()));
        console::say(&format!(
            "the window ends after {enough} at the latest; --until end measures the whole workload"
        ));
    }
    let (prepared, work) = match (&args.workload, &args.rootfs) {
        (None, Some(name)) => {
            let root = rootfs::find(&cache, name)?;
            let command = shell_line(&args.command);
            let (machine, prepared) =
                Simulated::prepare_in_root(cache, guest, vcpus, (root, &command), watch, stop)?;
            settings.extend(prepared.settings());
            (machine, Work::Workload(Box::new(prepared)))
        }
        (Some(name), _) => {
            args.check_workload()?;
            let workload = simulated::workload(name, vcpus, args.short)?;
            let (machine, prepared) =
                Simulated::prepare_workload(cache, guest, &workload, watch, stop)?;
            settings.extend(prepared.settings());
            (machine, Work::Workload(Box::new(prepared)))
        }
        (None, None) => {
            let request = ServicesRequest {
                warm_up: args.warm_up_command.clone(),
                command: shell_line(&args.command),
                verify: args.verify,
            };
            let machine = Simulated::prepare(cache, guest, vcpus, watch, stop, |_| Ok(()))?;
            (machine, Work::Command(request))
        }
    };
    let context = prepared.machine_facts()?.context(&open, settings);
    let mut bench = SimServices::new(SimServicesSettings {
        work,
        symbols: prepared.facts.symbols,
        btf: prepared.facts.btf,
        guest: prepared.guest,
        on_host: Map::from_iter([("out".to_owned(), json!(open.directory()))]),
        trace_bytes_max: args.trace,
        label: args.workload.clone().unwrap_or_else(|| "command".to_owned()),
    });
    if args.simulated.dry_run {
        return print_plan(open.format(), 1, &bench.planned()?);
    }
    measure(args, &open, context, &mut bench)
}
